//! Carrying a plan out on Linux.
//!
//! [`Ahead`] runs in the caller: it starts the helper, before it is known what for, and
//! speaks with it. `helper` makes the namespaces, starts `init` as the sandbox's first
//! process, which `build`s the root, and stays as the `usher` of calls that make names.

mod build;
pub mod helper;
mod init;
mod intent;
mod launch;
mod lookout;
mod probe;
mod usher;

pub use intent::{Intent, intent};
pub use launch::{Ahead, Event, LaunchError, Made, Reins, Running};
pub use lookout::{Inside, Lookout, Sighting};
pub use probe::{Obstacle, probe, support};

use std::os::fd::OwnedFd;

use ringfence_api::{Denial, Usage};
use ringfence_policy::{AbsPath, Grants};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The name under which our binary is the helper.
pub const HELPER: &str = "ringfence-warden";
/// Where the helper speaks with its caller.
const CONTROL_FD: i32 = 3;

/// What the helper is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    /// How the command is confined.
    pub plan: Plan,
    /// What the usher decides by, packed: many commands never need it.
    pub grants: Vec<u8>,
    /// Program and arguments.
    pub command: Vec<Vec<u8>>,
    /// `NAME=value` each.
    pub variables: Vec<Vec<u8>>,
    /// Where the command starts.
    pub cwd: AbsPath,
}

/// What a command sees of a cache's store. The store itself it never sees: there it could
/// put links in place of what is beside.
pub const UPPER: &str = "upper";
/// Where the kernel works on an overlay over [`UPPER`].
pub const WORK: &str = "work";

impl Launch {
    /// Out of the file it was written to, wherever its position is.
    fn read(file: &OwnedFd) -> Option<Self> {
        let length = rustix::fs::fstat(file).ok()?.st_size as usize;
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match rustix::io::pread(file, &mut bytes[filled..], filled as u64) {
                Ok(0) | Err(_) => return None,
                Ok(more) => filled += more,
            }
        }
        postcard::from_bytes(&bytes).ok()
    }
}

/// Grants as the helper takes them.
pub fn pack(grants: &Grants) -> Vec<u8> {
    postcard::to_stdvec(grants).expect("grants are plain data")
}

/// From the helper to its caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Report {
    /// The sandbox could not be made: what was tried, and the error number.
    Failed(String, i32),
    /// The command could not be executed.
    NotExecuted(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It ended: with a status, or by a signal.
    Exited(i32, Usage),
    /// It was ended by a signal.
    Killed(i32, Usage),
    /// Something was refused.
    Denied(Box<Denial>),
    /// The tripwire is mounted; the descriptor that comes along is to be served. The number
    /// is that of the sandbox's first process.
    Wired(i32),
    /// What it takes to reach into the sandbox comes along.
    Inside,
    /// The command made a name of git's in the directory whose descriptor comes along.
    Made(AbsPath, Planted),
}

/// Which name of git's was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Planted {
    /// `.git`: a repository, or a pointer to one.
    DotGit,
    /// `HEAD`: perhaps a bare repository.
    Head,
}

/// From the caller to the sandbox's first process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Order {
    /// Send this signal to the command.
    Signal(i32),
    /// End everything.
    End,
    /// Let nobody go on.
    Pause,
    /// Let everybody go on.
    Resume,
}

/// A step of making the sandbox that failed.
#[derive(Debug)]
struct Fault {
    what: String,
    errno: i32,
}

/// Names what was attempted.
trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Fault>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Fault> {
        self.map_err(|error| Fault { what: what(), errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Fault> {
        self.map_err(|error| Fault { what: what(), errno: error.raw_os_error() })
    }
}
