//! Carrying a plan out on Linux.
//!
//! [`Ahead`] runs in the caller: it starts the helper, before it is known what for, and
//! speaks with it. `helper` makes the namespaces, starts `init` as the sandbox's first
//! process, which `build`s the root, and stays as the `usher` of calls that make names.

mod birth;
mod build;
mod cgroup;
mod config_change;
mod exec_table;
mod freeze;
mod handle;
pub mod helper;
mod init;
mod intent;
mod mount_agent;
mod netns_listeners;
mod notify;
mod parked;
mod pending_connect;
mod pending_write;
mod probe;
mod socket_memory;
mod watcher;
mod zygote;

pub use birth::{Birth, NotABirth};
pub use cgroup::{Cgroup, CgroupUsage, grouping};
pub use config_change::{ConfigChange, STAGED_CONFIG};
pub use handle::{
    ExecEvent, GitMarkerCreated, LaunchError, PrestartedSandbox, Reins, SandboxEvent, SandboxHandle,
};
pub use intent::{Intent, IntentEffect, intent};
pub use mount_agent::{DirHolder, MaskedPath, MountGrant};
pub use netns_listeners::NetnsListeners;
pub use parked::{CloseOnExec, ParkedNotification, SignalCheck};
pub use pending_connect::{PendingConnect, SocketKind};
pub use pending_write::{PendingWrite, WriteIntent};
pub use probe::{UsernsObstacle, probe, support};
pub use watcher::{
    FOREIGN, InotifyShortage, OWN, QueryId, SandboxFds, WatcherMessage, WatcherProcess,
};
pub use zygote::{NetnsReuse, Zygote};

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use ringfence_api::{Allowance, Denial, ResourceUsage};
use ringfence_policy::{AbsPath, Grants, Rule};
use ringfence_sys::process::SpawnIsolation;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::plan::{Overmount, PinnedDir, Plan};

/// Where a shell finds the streams that are offered to it, each by its number, to be opened for
/// writing. Nothing is there; whoever opens one waits for [`Event::Takes`] to be answered.
pub const OFFERED: &str = "/run/offered/";
/// The name under which our binary is the helper.
pub const HELPER: &str = "ringfence-warden";
/// Where the helper speaks with its caller.
const CONTROL_FD: i32 = 3;

/// What the helper is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// How the command is confined.
    pub plan: Plan,
    /// What the usher decides by, packed: many commands never need it.
    pub grants: Vec<u8>,
    /// Program and arguments; nothing for a sandbox that stands until it is ended.
    pub command: Vec<Vec<u8>>,
    /// `NAME=value` each.
    pub variables: Vec<Vec<u8>>,
    /// Where the command starts.
    pub cwd: AbsPath,
    /// Who could say yes to what is about to be refused.
    pub asker: ApprovalMode,
    /// How many files the command may have open, where it is not as many as whoever launches it.
    pub open_files: Option<u64>,
    /// The counter of the sandbox's memory.
    pub memory: MemoryCounter,
}

/// The counter of a sandbox's memory, where that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryCounter {
    /// Nothing, or a cgroup, which misses nothing.
    Complete,
    /// The limit monitor, from what the kernel tells of each process and socket.
    ByProcess,
}

/// Whether somebody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApprovalMode {
    /// What would be refused is.
    Nobody,
    /// Calls that make or write something wait for an answer.
    Somebody,
}

/// A process to be started in a sandbox that stands, beside others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program and arguments.
    pub command: Vec<Vec<u8>>,
    /// `NAME=value` each.
    pub variables: Vec<Vec<u8>>,
    /// Where it starts.
    pub cwd: AbsPath,
    /// Which number each descriptor that is handed over has in it. Without a zero among them
    /// there is nothing to read.
    pub numbers: Vec<i32>,
    /// Whether it has a terminal of its own for standard streams.
    pub terminal: Option<TerminalSize>,
    /// What becomes of those that its children leave behind.
    pub orphans: OrphanReaping,
}

/// Whose children those become whose own parents have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrphanReaping {
    /// The sandbox's first process's.
    Left,
    /// The process's that all of them come from, which can be told by them whether anything
    /// of it still runs.
    Kept,
}

impl OrphanReaping {
    /// How such a process is started.
    pub fn company(self) -> SpawnIsolation {
        match self {
            OrphanReaping::Left => SpawnIsolation::Own,
            OrphanReaping::Kept => SpawnIsolation::Head,
        }
    }
}

/// Of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// How many lines it shows.
    pub rows: u16,
    /// How many characters a line has.
    pub columns: u16,
}

/// So many descriptors can be handed over at once.
const MOST_DESCRIPTORS: usize = 16;

impl ExecSpec {
    fn read(file: &OwnedFd) -> Option<Self> {
        postcard::from_bytes(&whole(file)?).ok()
    }
}

/// What a process that was started beside others is known by.
pub type ExecId = u64;

/// What became of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum ExecReport {
    /// It runs. A descriptor of it comes along, and one of its terminal if it has one.
    Started,
    /// It could not be executed: the error number.
    NotExecuted(i32),
    /// It ended with a status.
    Exited(i32, ResourceUsage),
    /// It was ended by a signal.
    Killed(i32, ResourceUsage),
}

/// What a command sees of a cache's store. The store itself it never sees: there it could
/// put links in place of what is beside.
pub const UPPER: &str = "upper";
/// Where the kernel works on an overlay over [`UPPER`].
pub const WORK: &str = "work";
/// Where a store has the layers of runs that go on at the same time, each with an [`UPPER`] and a
/// [`WORK`] of its own: two overlays over one directory lose what is written.
pub const BESIDE: &str = "beside";

impl LaunchSpec {
    /// Out of the file it was written to, wherever its position is.
    fn read(file: &OwnedFd) -> Option<Self> {
        Self::read_with_length(file).map(|(launch, _)| launch)
    }

    /// The same, with how much of the file it takes.
    fn read_with_length(file: &OwnedFd) -> Option<(Self, u64)> {
        let bytes = whole(file)?;
        let (launch, rest) = postcard::take_from_bytes(&bytes).ok()?;
        Some((launch, (bytes.len() - rest.len()) as u64))
    }
}

/// All that stands in a file, wherever its position is.
fn whole(file: &OwnedFd) -> Option<Vec<u8>> {
    let length = rustix::fs::fstat(file).ok()?.st_size as usize;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match rustix::io::pread(file, &mut bytes[filled..], filled as u64) {
            Ok(0) | Err(_) => return None,
            Ok(more) => filled += more,
        }
    }
    Some(bytes)
}

/// Grants as the helper takes them.
pub fn pack(grants: &Grants) -> Vec<u8> {
    postcard::to_stdvec(grants).expect("grants are plain data")
}

/// What holds beside a plan since it was made: it stands behind the launch in the same file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PlanUpdate {
    guards: Vec<PinnedDir>,
    rules: Vec<Rule>,
    /// Another policy, in place of the one before and of what people have added to that.
    revised: Option<PolicyReplacement>,
}

/// A policy that holds in place of the one before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyReplacement {
    /// What is decided by.
    pub grants: Grants,
    /// Trees in which something may appear.
    pub trees: Vec<AbsPath>,
    /// What is covered by now.
    pub covers: Vec<(AbsPath, Overmount)>,
}

impl PlanUpdate {
    /// Behind whatever stands there. The kernel finds the end: several may do so at a time.
    fn append(&self, file: &OwnedFd) -> rustix::io::Result<()> {
        let bytes = postcard::to_stdvec(self).map_err(|_| rustix::io::Errno::INVAL)?;
        rustix::fs::fcntl_setfl(file, OFlags::APPEND)?;
        match rustix::io::write(file, &bytes)? {
            length if length == bytes.len() => Ok(()),
            _ => Err(rustix::io::Errno::NOSPC),
        }
    }

    /// Those that stand behind `from`, and where the last of them ends. One that is only
    /// half there is read the next time.
    fn read(file: &OwnedFd, from: u64) -> Option<(Vec<Self>, u64)> {
        let length = (rustix::fs::fstat(file).ok()?.st_size as u64)
            .checked_sub(from)
            .filter(|length| *length > 0)?;
        let mut bytes = vec![0; length as usize];
        let filled = rustix::io::pread(file, bytes.as_mut_slice(), from).ok()?;
        let (mut rest, mut found) = (&bytes[..filled], Vec::new());
        while let Ok((one, left)) = postcard::take_from_bytes(rest) {
            found.push(one);
            rest = left;
        }
        Some((found, from + (filled - rest.len()) as u64))
    }
}

/// From the helper to its caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum SandboxMessage {
    /// The sandbox could not be made: what was tried, and the error number.
    Failed(String, i32),
    /// The command could not be executed.
    NotExecuted(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It ended: with a status, or by a signal.
    Exited(i32, ResourceUsage),
    /// It was ended by a signal.
    Killed(i32, ResourceUsage),
    /// Something was refused.
    Denied(Box<Denial>),
    /// A call would be refused, and waits.
    Pleads(Box<pending_write::PendingWriteInfo>),
    /// A program renames a lock file onto a protected config, and waits; the directory and the lock
    /// file come along.
    ReplacesConfig(Box<config_change::Told>),
    /// The ways out of the sandbox's network come along.
    Doors(netns_listeners::OptionalListeners),
    /// A program connects to somewhere that is not in the sandbox; its socket comes along.
    Connects(Box<pending_connect::ConnectInfo>),
    /// A socket of the sandbox's network comes along.
    Socket,
    /// Datagrams were sent to where nobody is, by this process and program.
    Sent(SocketAddr, u32, String),
    /// A name is looked up, by this process and program.
    LooksUp(String, u32, String),
    /// This process and program asks for names by itself; the other end of its socket comes along.
    Queries(u32, String),
    /// A shell opens the stream of this number, and waits for it.
    Takes(u32, CloseOnExec, parked::NotificationInfo),
    /// Something went through, as often as it says since it was last told of.
    Passed(Box<Allowance>),
    /// This many more accesses went through, each of which would have been another entry.
    Unlisted(u64),
    /// The tripwire is mounted; the descriptor that comes along is to be served. The number
    /// is that of the sandbox's first process.
    Wired(i32),
    /// What it takes to reach into the sandbox comes along.
    Inside,
    /// Everything that was made before the order has been told.
    Settled,
    /// What only the sandbox's first process knows of what is used.
    Account(InitUsage),
    /// The disk space that the notify handler took for the command so far, where a limit counts it.
    TookSpace(SpaceTaken),
    /// Nobody goes on.
    Paused,
    /// The sandbox stands, and waits to be told what to start.
    Standing,
    /// Something became of a process that was started beside others.
    Of(ExecId, ExecReport),
    /// The command made a name of git's in the directory whose descriptor comes along.
    Made(AbsPath, GitMarker, Option<Birth>),
}

/// What only the sandbox's first process knows of what is used there, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitUsage {
    /// What those have written to disks who have ended, and whom nobody else has waited for.
    pub written: u64,
    /// Memory that is shared by a key, and stays when nobody has it.
    pub shared: u64,
    /// Memory in sockets, also in those that are in flight.
    pub sockets: u64,
}

/// Disk space that the notify handler took for the command, which the kernel counts for none of the
/// command's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceTaken {
    /// Names of files, directories, links and sockets that were made.
    pub names: u64,
    /// Bytes of files that were copied.
    pub copied: u64,
}

impl SpaceTaken {
    /// All of it in bytes. A name takes room in its directory, and mostly an inode.
    pub fn bytes(&self) -> u64 {
        const NAME: u64 = 1024;
        self.names.saturating_mul(NAME).saturating_add(self.copied)
    }
}

/// Which name was made that the sweep looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GitMarker {
    /// `.git`: a repository, or a pointer to one.
    DotGit,
    /// `HEAD`: perhaps a bare repository.
    Head,
    /// The directory of a worktree in a repository that was there before, or the one around
    /// those. The directory that comes along is this one.
    Store,
    /// A directory that left a tree which the survey does not walk, with all that is in it. The
    /// directory that comes along is this one.
    Tree,
    /// A setting that agents or editors obey.
    Setting,
    /// A file or directory with a denied name that the command may make or write. No directory
    /// comes along, and the path is its own.
    File,
}

/// From the caller to the sandbox's first process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum SandboxOrder {
    /// Send this signal to the command.
    Signal(i32),
    /// End everything.
    End,
    /// Let nobody go on.
    Pause,
    /// Let everybody go on.
    Resume,
    /// Say when everything that was made before has been told.
    Settle,
    /// Say what only the sandbox's first process knows of what is used.
    Account,
    /// Hand out a socket of the sandbox's network.
    Socket,
    /// Start a process: what and how comes along, and its descriptors behind that.
    Start(ExecId),
}

/// A step of making the sandbox that failed.
#[derive(Debug)]
struct SetupError {
    what: String,
    errno: i32,
}

/// Names what was attempted.
trait SetupStep<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, SetupError>;
}

impl<T> SetupStep<T> for std::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, SetupError> {
        self.map_err(|error| SetupError {
            what: what(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

impl<T> SetupStep<T> for rustix::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, SetupError> {
        self.map_err(|error| SetupError { what: what(), errno: error.raw_os_error() })
    }
}
