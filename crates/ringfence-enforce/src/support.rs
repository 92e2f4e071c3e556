//! What this host can do.

use serde::{Deserialize, Serialize};

/// What this host can do: facts, each probed or read, none assumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSupport {
    /// User id of whoever runs ringfence.
    pub uid: u32,
    /// Group id of whoever runs ringfence.
    pub gid: u32,
    /// Landlock's version; 0 where there is none.
    pub landlock: u32,
    /// Whether a file system can be served from here.
    pub fuse: FuseSupport,
    /// What can be told of processes from outside.
    pub accounts: ProcAccounting,
    /// Whose the numbers of processes are.
    pub numbers: PidAllocation,
}

impl HostSupport {
    /// Whether signals and abstract sockets can be kept inside.
    pub(crate) fn scopes(&self) -> bool {
        self.landlock >= 6
    }
}

/// Who shares the numbers that processes have, of which there are only so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidAllocation {
    /// Each sandbox has its own, and as few as it is to have: kernels from 6.14 on.
    Own,
    /// The whole machine, and a sandbox is a control group of so many.
    Grouped,
    /// The whole machine.
    Shared,
}

/// What the kernel tells of processes, by `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcAccounting {
    /// Which there are, and what they use.
    Full,
    /// The same, but for what they write.
    WithoutDisk,
    /// Not even which there are.
    Nothing,
}

/// The device by which file systems are served: `/dev/fuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FuseSupport {
    /// It can be opened.
    Opens,
    /// It is there and cannot be opened.
    Shut,
    /// It is not there.
    Absent,
}
