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
    pub fuse: bool,
}
