//! Carries out a plan on Linux.
//!
//! The *launcher* is the ringfence process that starts a sandbox (the CLI, a service, or a program
//! that uses the library): there, [`PrestartedSandbox`] starts the *supervisor*, before the plan is
//! known, and talks to it. The supervisor (`helper`) creates the namespaces and starts `init`, the
//! sandbox's first process, which `build`s the root. The supervisor then serves as the *notify
//! handler* (`notify`) of the seccomp filter. The *watcher*, the *mount agent*, the *zygote* and
//! the *cgroup reaper* are further helper processes.

mod build;
mod cgroup;
mod config_change;
mod descendants;
mod exec_table;
mod fd_passing;
mod filter_cache;
mod freeze;
mod handle;
mod helper_process;
mod init;
mod intent;
mod landlock_rules;
mod listener_lookup;
mod mount_agent;
mod netns_listeners;
mod notify;
mod parked;
mod pending_connect;
mod pending_write;
mod probe;
mod process_scope;
pub(crate) mod reexec;
mod restricted;
mod socket_memory;
mod supervisor;
mod watcher;
mod zygote;

pub(crate) use cgroup::{Cgroup, CgroupUsage, describe_cgroups};
pub(crate) use config_change::{ConfigChange, STAGED_CONFIG};
pub(crate) use handle::{
    CreatedName, LaunchError, PrestartedSandbox, SandboxControl, SandboxEvent, SandboxHandle,
};
pub(crate) use intent::{IntentEffect, intent};
pub(crate) use listener_lookup::has_loopback_listener;
pub(crate) use mount_agent::{MaskedPath, MountGrant};
pub(crate) use netns_listeners::NetnsListeners;
pub(crate) use parked::{CloseOnExec, SignalCheck};
pub(crate) use pending_connect::{PendingConnect, SocketKind};
pub(crate) use pending_write::{PendingWrite, WriteIntent};
pub use probe::{UsernsObstacle, probe};
pub(crate) use probe::{can_mediate, support};
pub(crate) use restricted::remove_scratch;
pub(crate) use ringfence_survey::FileIdentity;
pub(crate) use watcher::{
    FOREIGN, InotifyShortage, OWN, PAUSED, SandboxFds, WatcherMessage, WatcherProcess,
};
pub(crate) use zygote::{NetnsReuse, Zygote};

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use ringfence_api::{Allowance, Denial, ExitStatus, ResourceUsage, TerminalSize};
use ringfence_plan::{Overmount, PinnedDir, Plan};
use ringfence_policy::{AbsPath, Grants, Rule};
use ringfence_sys::process::{ChildStatus, ChildUsage, SpawnIsolation};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// Directory of the streams offered to a shell, each named by its number, to be opened for writing.
/// It does not exist: an open waits for an answer to [`SandboxMessage::StreamRequested`].
pub(crate) const OFFERED_STREAMS: &str = "/run/offered/";
/// `argv[0]` that starts our binary as a helper process.
pub(crate) const HELPER: &str = "ringfence-supervisor";
/// The fd through which a helper talks to its parent.
const CONTROL_FD: i32 = 3;

/// The task of a supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LaunchSpec {
    /// The confinement of the command.
    pub plan: Plan,
    /// The rules of the notify handler, serialised: many commands never need them.
    pub grants: Vec<u8>,
    /// Program and arguments; empty for a sandbox that runs until it is ended.
    pub command: Vec<Vec<u8>>,
    /// The environment, as `NAME=value`.
    pub variables: Vec<Vec<u8>>,
    /// The working directory of the command.
    pub cwd: AbsPath,
    /// Handling of denials: final, or the user is asked.
    pub asker: ApprovalMode,
    /// RLIMIT_NOFILE of the command, if it differs from the caller's.
    pub open_files: Option<u64>,
    /// The counter of the sandbox's memory.
    pub memory: MemoryCounter,
}

/// The counter of a sandbox's memory, where that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemoryCounter {
    /// No limit, or a cgroup, which counts everything.
    Complete,
    /// The limit monitor, from the kernel's figures of each process and socket.
    ByProcess,
}

/// Handling of denials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ApprovalMode {
    /// Denials are final.
    Deny,
    /// Syscalls that create or write files wait for an answer.
    Ask,
}

/// A process to be started in a running sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExecSpec {
    /// Program and arguments.
    pub command: Vec<Vec<u8>>,
    /// The environment, as `NAME=value`.
    pub variables: Vec<Vec<u8>>,
    /// The working directory.
    pub cwd: AbsPath,
    /// The numbers of the fds that are sent along. Without a zero among them, stdin is `/dev/null`.
    pub numbers: Vec<i32>,
    /// The size of its own terminal, if it has one for its standard streams.
    pub terminal: Option<TerminalSize>,
    /// The parent of its orphaned descendants.
    pub orphans: OrphanReaping,
}

/// The parent of orphaned processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OrphanReaping {
    /// Init.
    ByInit,
    /// The started process, which can tell from them if a descendant still runs.
    BySubreaper,
}

impl OrphanReaping {
    /// The isolation with which such a process is started.
    pub(crate) fn isolation(self) -> SpawnIsolation {
        match self {
            OrphanReaping::ByInit => SpawnIsolation::NewSession,
            OrphanReaping::BySubreaper => SpawnIsolation::Subreaper,
        }
    }
}

impl ExecSpec {
    fn read(file: &OwnedFd) -> Option<Self> {
        postcard::from_bytes(&read_whole(file)?).ok()
    }
}

/// Identifies a process started in a running sandbox.
pub(crate) type ExecId = u64;

/// A report about such a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExecReport {
    /// It runs. A pidfd is sent along, and an fd of its terminal if it has one.
    Started,
    /// It could not be executed: errno.
    NotExecuted(i32),
    /// It ended.
    Ended(ExitStatus, ResourceUsage),
}

impl LaunchSpec {
    /// Reads it from the start of the file, independent of the file position.
    fn read(file: &OwnedFd) -> Option<Self> {
        Self::read_with_length(file).map(|(launch, _)| launch)
    }

    /// The same, with its length in the file.
    fn read_with_length(file: &OwnedFd) -> Option<(Self, u64)> {
        let bytes = read_whole(file)?;
        let (launch, rest) = postcard::take_from_bytes(&bytes).ok()?;
        Some((launch, (bytes.len() - rest.len()) as u64))
    }
}

/// The whole content of a file, independent of the file position.
fn read_whole(file: &OwnedFd) -> Option<Vec<u8>> {
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

/// Serialises grants for the supervisor.
pub(crate) fn serialize_grants(grants: &Grants) -> Vec<u8> {
    postcard::to_stdvec(grants).expect("grants are plain data")
}

/// An update to a plan, appended to the launch spec in the same file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PlanUpdate {
    guards: Vec<PinnedDir>,
    rules: Vec<Rule>,
    /// A new policy, in place of the previous one and of the user's later grants.
    revised: Option<PolicyReplacement>,
}

/// A policy that replaces the previous one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PolicyReplacement {
    /// The rules to decide by.
    pub grants: Grants,
    /// Trees in which denied files may appear.
    pub trees: Vec<AbsPath>,
    /// Paths masked by now.
    pub masks: Vec<(AbsPath, Overmount)>,
}

impl PlanUpdate {
    /// Appends to the file. `O_APPEND` makes concurrent appends safe.
    fn append(&self, file: &OwnedFd) -> rustix::io::Result<()> {
        let bytes = postcard::to_stdvec(self).map_err(|_| rustix::io::Errno::INVAL)?;
        rustix::fs::fcntl_setfl(file, OFlags::APPEND)?;
        match rustix::io::write(file, &bytes)? {
            length if length == bytes.len() => Ok(()),
            _ => Err(rustix::io::Errno::NOSPC),
        }
    }

    /// The updates after offset `from`, and the end of the last one. An incomplete one is read the
    /// next time.
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

/// A message from the supervisor or init to the launcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum SandboxMessage {
    /// The sandbox could not be built: the attempted step, and errno.
    Failed(String, i32),
    /// The command could not be executed.
    NotExecuted(i32),
    /// The command was stopped by a signal.
    Stopped,
    /// The command ended.
    Ended(ExitStatus, ResourceUsage),
    /// An access was denied.
    Denied(Box<Denial>),
    /// An access is about to be denied; its process waits for an answer.
    PendingWrite(Box<pending_write::PendingWriteInfo>),
    /// A program renames a lock file onto a protected config, and waits; the directory and the lock
    /// file are sent along.
    ConfigChange(Box<config_change::ConfigChangeInfo>),
    /// The listening sockets in the sandbox's network are sent along.
    Listeners(netns_listeners::OptionalListeners),
    /// A program connects to an address outside the sandbox; its socket is sent along.
    PendingConnect(Box<pending_connect::ConnectInfo>),
    /// A socket in the sandbox's network is sent along.
    Socket,
    /// Datagrams were sent to an unreachable address, by this process and program.
    DatagramSent(SocketAddr, u32, String),
    /// A connection to the loopback at this port, where nothing in the sandbox listens, by this
    /// process and program.
    UnservedPort(u16, u32, String),
    /// A name is looked up, by this process and program.
    DnsLookup(String, u32, String),
    /// This process and program sends DNS queries itself; the other end of its socket is sent
    /// along.
    DnsQueries(u32, String),
    /// A shell opens the stream of this number, and waits for it.
    StreamRequested(u32, CloseOnExec, parked::NotificationInfo),
    /// An access was allowed, with the number of times since the last report.
    Allowed(Box<Allowance>),
    /// This many more accesses were allowed, each of which would have been another entry.
    Unlisted(u64),
    /// The tripwire is mounted; its FUSE fd, which the launcher must serve, is sent along. The
    /// number is the pid of init.
    TripwireMounted(i32),
    /// The fds needed to enter the sandbox are sent along.
    EntryFds,
    /// Everything created before the order has been reported.
    Settled,
    /// Usage that only init can measure.
    Usage(InitUsage),
    /// The disk space that the notify handler took for the command so far, where a limit counts it.
    SpaceTaken(SpaceTaken),
    /// Every process is stopped.
    Paused,
    /// The sandbox is built and waits for processes to start.
    Ready,
    /// A report about a process started in a running sandbox.
    Exec(ExecId, ExecReport),
    /// The command created a name that the sweep or the watcher has to know. The fd of its
    /// directory is sent along, unless there were too many.
    NameCreated(AbsPath, NameKind, Option<FileIdentity>),
    /// A line for the log.
    Log(Vec<u8>),
    /// The command was continued. Never sent: the `process` provider adds it.
    Continued,
    /// The sandbox is gone. Never sent: the launcher adds it.
    Closed,
}

impl SandboxMessage {
    /// The syscall that waits for an answer.
    fn waiting_call(&self) -> Option<parked::NotificationInfo> {
        match self {
            SandboxMessage::PendingWrite(info) => Some(info.call),
            SandboxMessage::ConfigChange(info) => Some(info.call),
            SandboxMessage::PendingConnect(info) => Some(info.call),
            SandboxMessage::StreamRequested(_, _, call) => Some(*call),
            _ => None,
        }
    }
}

/// The exit status of a process that has ended.
pub(crate) fn exit_status(change: ChildStatus) -> Option<ExitStatus> {
    match change {
        ChildStatus::Exited(status) => Some(ExitStatus::Exited(status)),
        ChildStatus::Killed(signal) => Some(ExitStatus::Killed(signal)),
        ChildStatus::Stopped(_) | ChildStatus::Continued => None,
    }
}

/// The resources that a process used, as they are reported.
pub(crate) fn resource_usage(usage: &ChildUsage) -> ResourceUsage {
    let ChildUsage { user_us, system_us, max_rss_kb, .. } = *usage;
    ResourceUsage { user_us, system_us, max_rss_kb }
}

/// Usage only init can measure, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitUsage {
    /// Bytes written by reaped orphans.
    pub written: u64,
    /// SysV shared memory, which persists without a process.
    pub shared: u64,
    /// Memory in sockets, including those in flight.
    pub sockets: u64,
}

/// Disk space that the notify handler took for the command, which the kernel charges to none of the
/// command's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpaceTaken {
    /// Names of created files, directories, links and sockets.
    pub names: u64,
    /// Bytes of copied files.
    pub copied: u64,
}

impl SpaceTaken {
    /// The total in bytes. A name takes space in its directory, and usually an inode.
    pub(crate) fn bytes(&self) -> u64 {
        const NAME: u64 = 1024;
        self.names.saturating_mul(NAME).saturating_add(self.copied)
    }
}

/// The kind of a created name that the sweep or the watcher has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum NameKind {
    /// `.git`: a repository, or a pointer to one.
    DotGit,
    /// `HEAD`: perhaps a bare repository.
    Head,
    /// The directory of a worktree in a repository that existed before, or its parent. This
    /// directory is sent along.
    Store,
    /// A directory that left a tree which the survey does not walk, with its content. This
    /// directory is sent along.
    Tree,
    /// A setting that agents or editors obey.
    Setting,
    /// A file or directory with a denied name that the command may create or write. No directory is
    /// sent along, and the path is its own.
    DeniedFile,
}

/// An order from the launcher to init.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum SandboxOrder {
    /// Sends this signal to the command.
    Signal(i32),
    /// Ends every process.
    End,
    /// Stops every process.
    Pause,
    /// Continues every process.
    Resume,
    /// Reports when everything created before has been reported.
    Settle,
    /// Reports usage that only init can measure.
    Usage,
    /// Sends a socket in the sandbox's network.
    Socket,
    /// Starts a process: its spec is sent along, followed by its fds.
    Start(ExecId),
}

/// A failed step of building the sandbox.
#[derive(Debug)]
struct SetupError {
    what: String,
    errno: i32,
}

impl SetupError {
    fn new(what: &str, errno: i32) -> Self {
        Self { what: what.to_owned(), errno }
    }
}

/// The name of a step: a text, or a function that formats it after an error.
trait StepName {
    fn text(self) -> String;
}

impl StepName for &str {
    fn text(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> StepName for F {
    fn text(self) -> String {
        self()
    }
}

/// Names the attempted step of an error.
trait SetupStep<T> {
    fn during(self, what: impl StepName) -> Result<T, SetupError>;
}

impl<T, E: Into<std::io::Error>> SetupStep<T> for Result<T, E> {
    fn during(self, what: impl StepName) -> Result<T, SetupError> {
        self.map_err(|error| SetupError {
            what: what.text(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        })
    }
}
