//! What this host can do.

use serde::{Deserialize, Serialize};

/// What this host can do: facts, each probed or read, none assumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Support {
    /// User id of whoever runs ringfence.
    pub uid: u32,
    /// Group id of whoever runs ringfence.
    pub gid: u32,
    /// Landlock's version; 0 where there is none.
    pub landlock: u32,
    /// Whether a file system can be served from here.
    pub fuse: Fuse,
}

/// The device by which file systems are served: `/dev/fuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fuse {
    /// It can be opened.
    Opens,
    /// It is there and cannot be opened.
    Shut,
    /// It is not there.
    Absent,
}
