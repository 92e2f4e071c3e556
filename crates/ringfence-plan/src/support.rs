//! Capabilities of the host.

use serde::{Deserialize, Serialize};

/// Capabilities of the host, each probed or read, none assumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSupport {
    /// User id of the user who runs ringfence.
    pub uid: u32,
    /// Group id of the user who runs ringfence.
    pub gid: u32,
    /// Landlock ABI version; 0 without Landlock.
    pub landlock: u32,
    /// Availability of FUSE.
    pub fuse: FuseSupport,
    /// Process accounting in `/proc`.
    pub accounts: ProcAccounting,
    /// Scope of pid allocation.
    pub numbers: PidAllocation,
}

impl HostSupport {
    /// True if Landlock can keep signals and abstract sockets inside (ABI 6).
    pub fn has_landlock_scopes(&self) -> bool {
        self.landlock >= 6
    }
}

/// Scope of pid allocation, which is a limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidAllocation {
    /// Per sandbox, with its own `pid_max`: Linux 6.14 and later.
    Own,
    /// System-wide, with a cgroup limit per sandbox.
    Grouped,
    /// System-wide.
    Shared,
}

/// Process accounting in `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcAccounting {
    /// Child processes and all their usage.
    Full,
    /// Child processes and their usage, without bytes written.
    WithoutDisk,
    /// Not even child processes.
    Nothing,
}

/// Availability of `/dev/fuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FuseSupport {
    /// It can be opened.
    Opens,
    /// It exists and cannot be opened.
    Shut,
    /// It does not exist.
    Absent,
}
