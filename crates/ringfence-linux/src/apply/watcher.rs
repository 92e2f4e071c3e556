//! The watcher: masks denied files that appear in the opened trees while a command runs.
//!
//! A process of its own, which the launcher starts once a command runs longer than 25 ms. It is
//! among the host's processes, where the command can neither see nor signal it. It has entered the
//! sandbox's mount namespace with the supervisor's rights over it, so it sees the masks that the
//! command sees.

mod granted;
mod inotify;
pub(super) mod inotify_broker;
mod masks;
mod repos;
mod tracked;
mod tree;

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use crate::apply::helper_process::{kill_and_reap, start_helper};
use crate::open::open;

use ringfence_plan::{FileKind, Overmount, Step};
use ringfence_policy::{AbsPath, Access, Grants, NameIndex, Rule, Verdict};
use ringfence_sys::process::{self, SpawnIsolation};
use ringfence_sys::{namespace, privilege};
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use tracing::{error, info};

use super::fd_passing::{is_peer_gone, receive_all_fds, receive_fds, relay_log, send_fds};
use super::handle::{LaunchError, helper_error};
use super::{FileIdentity, LaunchSpec, PlanUpdate, PolicyReplacement};
use granted::{GrantedPaths, is_session_grant};
use inotify::WatchSet;
use inotify_broker::InotifySource;
use masks::LiveMasker;
pub(super) use masks::{attached_masks, mount_read_only};
use repos::RepoTracker;
use tree::{TreeWatcher, WatchedTrees};

/// Answer about a file: the command made it.
pub(crate) const OWN: usize = 1;
/// Answer about a file: the command did not make it.
pub(crate) const FOREIGN: usize = 0;
/// Answer to [`WatcherMessage::Overrun`]: the sandbox is paused, as far as possible.
pub(crate) const PAUSED: usize = 1;

/// The argument that starts our binary as the watcher.
pub(super) const WATCHER: &str = "--watcher";

/// The shortest time slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// The fds needed to enter a running sandbox.
#[derive(Debug)]
pub(crate) struct SandboxFds {
    /// The supervisor's user namespace.
    pub(super) user: OwnedFd,
    /// The command's mount namespace.
    pub(super) mount: OwnedFd,
    /// The file with the launch spec and its updates.
    pub(super) plan: OwnedFd,
    /// The tripwire's fd, if there is a tripwire.
    pub(super) wire: Option<OwnedFd>,
    /// The pid of the supervisor, for log lines.
    pub(super) sandbox: Option<u32>,
}

impl SandboxFds {
    /// The same fds without the tripwire, for when no process serves it.
    pub(crate) fn without_tripwire(self) -> Self {
        Self { wire: None, ..self }
    }

    /// Takes the fds in the order in which they are sent.
    pub(crate) fn from_fds(descriptors: Vec<OwnedFd>, sandbox: Option<u32>) -> Option<Self> {
        let mut given = descriptors.into_iter();
        Some(Self {
            user: given.next()?,
            mount: given.next()?,
            plan: given.next()?,
            wire: given.next(),
            sandbox,
        })
    }
}

/// The number of a query.
pub(crate) type QueryId = u64;

/// A message from the watcher to the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WatcherMessage {
    /// A denied file appeared and is masked with the tripwire node of this number.
    Masked(usize, AbsPath),
    /// The watcher asks if the command made this file. It waits for [`WatcherProcess::answer`]:
    /// [`OWN`] or [`FOREIGN`].
    Origin(QueryId, FileIdentity),
    /// The watcher needs this many tripwire nodes as masks. It waits for
    /// [`WatcherProcess::answer`].
    Wanted(QueryId, usize, FileKind),
    /// Event queue overflow: the watcher scans every tree again, and the launcher should pause the
    /// sandbox until then. The watcher waits for [`WatcherProcess::answer`]: [`PAUSED`].
    Overrun(QueryId),
    /// The scan after an overflow is complete.
    ScanComplete,
    /// This many directories cannot be watched because of a kernel limit: the watcher scans them
    /// periodically.
    Unwatched(usize, InotifyShortage),
    /// A line for the log.
    Log(Vec<u8>),
}

/// A per-user inotify limit of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InotifyShortage {
    /// Watched directories.
    Watches,
    /// Inotify instances.
    Instances,
}

impl InotifyShortage {
    /// The sysctl to raise, with a sufficient value.
    pub(crate) fn sysctl(self) -> &'static str {
        match self {
            InotifyShortage::Watches => "fs.inotify.max_user_watches=1048576",
            InotifyShortage::Instances => "fs.inotify.max_user_instances=1024",
        }
    }
}

/// A watcher, as the launcher sees it. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct WatcherProcess {
    socket: OwnedFd,
    pid: i32,
    _inotify: InotifySource,
}

impl WatcherProcess {
    /// Starts the watcher process.
    pub(crate) fn start(inside: &SandboxFds) -> Result<Self, LaunchError> {
        let (inotify, end) = InotifySource::new()?;
        let environment = ringfence_log::helper_environment(inside.sandbox);
        let (socket, pid) = start_helper(WATCHER, SpawnIsolation::SameSession, &environment)?;
        let watcher = Self { socket, pid, _inotify: inotify };
        let SandboxFds { user, mount, plan, wire, .. } = inside;
        let fds = [user, mount, plan].into_iter().chain(wire);
        let sent = send_fds(&watcher.socket, fds.map(AsFd::as_fd))
            .and_then(|()| send_fds(&watcher.socket, end.as_ref().map(AsFd::as_fd)));
        sent.map_err(helper_error("send fds to the watcher"))?;
        Ok(watcher)
    }

    /// The watcher's pid.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when a message is waiting, or when the watcher has ended.
    pub(crate) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Receives the next message; `None` if the watcher has ended. Blocks. Writes a log line
    /// before it returns it.
    pub(crate) fn next_message(&self) -> Option<WatcherMessage> {
        let message = receive(&self.socket);
        if let Some(WatcherMessage::Log(line)) = &message {
            ringfence_log::write_line(line);
        }
        message
    }

    /// Answers a query: the number of the first requested node (the others follow it), or [`OWN`]
    /// or [`FOREIGN`] for a file.
    pub(crate) fn answer(&self, question: QueryId, answer: usize) {
        send(&self.socket, &(question, answer));
    }
}

impl Drop for WatcherProcess {
    fn drop(&mut self) {
        kill_and_reap(self.pid);
    }
}

/// Requests short time slices, to be scheduled sooner. An optimisation only: each event needs
/// little CPU time.
fn request_short_slices() {
    let niceness = rustix::process::getpriority_process(None).unwrap_or_default();
    let _ = process::set_time_slice(SLICE_NS, niceness);
}

/// Sends without waiting: a receiver that is gone or stopped is ignored.
pub(super) fn send(socket: &OwnedFd, value: &impl Serialize) {
    send_with_flags(socket, value, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send_with_flags(socket: &OwnedFd, value: &impl Serialize, how: SendFlags) {
    if let Ok(bytes) = postcard::to_stdvec(value) {
        let _ = rustix::net::send(socket, &bytes, how);
    }
}

pub(super) fn receive<T: for<'a> Deserialize<'a>>(socket: &OwnedFd) -> Option<T> {
    // A path, and a little more.
    let mut buffer = vec![0; 8 * 1024];
    loop {
        match rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((length, _)) => return postcard::from_bytes(buffer.get(..length)?).ok(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Entry point of the watcher process. Returns its exit status.
pub(super) fn main(control: &OwnedFd) -> i32 {
    match run(control) {
        Ok(()) => 0,
        Err(error) => {
            error!(target: "watcher", %error, "ends, and so does the sandbox");
            125
        }
    }
}

fn run(control: &OwnedFd) -> io::Result<()> {
    relay_log(control, WatcherMessage::Log);
    privilege::die_with_parent(libc::SIGKILL)?;
    if is_peer_gone(control) {
        return Ok(());
    }
    let Some(SandboxFds { user, mount, plan, wire, .. }) =
        receive_all_fds(control).and_then(|fds| SandboxFds::from_fds(fds, None))
    else {
        return Ok(());
    };
    let broker = receive_fds(control).map(|[broker]| broker);
    let unreadable = || io::Error::from(io::ErrorKind::InvalidData);
    let (launch, length) = LaunchSpec::read_with_length(&plan).ok_or_else(unreadable)?;
    let grants: Grants = postcard::from_bytes(&launch.grants).map_err(|_| unreadable())?;
    let trees = launch.plan.steps.iter().find_map(|step| {
        if let Step::Watcher { trees } = step { Some(trees.clone()) } else { None }
    });
    let masks = launch.plan.steps.iter().filter_map(|step| match step {
        Step::Mask { path, mask } => Some((path.clone(), *mask)),
        _ => None,
    });
    let first =
        PolicyReplacement { grants, trees: trees.unwrap_or_default(), masks: masks.collect() };
    let (added, known) = PlanUpdate::read(&plan, length).unwrap_or_else(|| (Vec::new(), length));
    let (PolicyReplacement { grants, trees, masks: masked }, opened) = current_policy(first, added);
    let granted = GrantedPaths::new(plan.try_clone()?, known, &opened);
    // Collected on the host side, where nothing is masked.
    let denied = denied_inodes(&masked);
    let repositories = RepoTracker::new(&grants, &launch.plan, plan);
    // The watcher adds a watch through an fd in this directory, and so hits the directory that it
    // found, not the one at the same path later. The sandbox's own `/proc` does not show host
    // processes.
    let numbers = open("/proc/self/fd", OFlags::PATH | OFlags::DIRECTORY)?;
    namespace::enter(user.as_fd(), namespace::USER)?;
    namespace::enter(mount.as_fd(), namespace::MOUNT)?;
    rustix::process::fchdir(&numbers)?;
    drop((user, mount, numbers));
    privilege::set_not_dumpable()?;
    // Set again: every change of credentials clears it.
    privilege::die_with_parent(libc::SIGKILL)?;
    if is_peer_gone(control) {
        return Ok(());
    }
    request_short_slices();
    info!(target: "watcher", trees = trees.len(), "entered the sandbox");
    let masker = LiveMasker::new(control, wire, &launch.plan, granted)?;
    let index = NameIndex::new(&grants);
    TreeWatcher::new(
        &grants,
        &index,
        WatchedTrees { trees, masked, denied },
        masker,
        repositories,
        WatchSet::new(broker)?,
    )
    .run()
}

/// The policy after all updates, and the rules that the user granted while the command runs.
fn current_policy(
    mut policy: PolicyReplacement,
    added: Vec<PlanUpdate>,
) -> (PolicyReplacement, Vec<Rule>) {
    let mut later_rules = Vec::new();
    for PlanUpdate { rules, revised, .. } in added {
        if let Some(revised) = revised {
            policy = revised;
            policy.grants.rules.extend(later_rules.iter().cloned());
        }
        later_rules.extend(rules.iter().filter(|rule| !is_session_grant(rule)).cloned());
        policy.grants.rules.extend(rules);
    }
    // A newer rule may deny the path anyway.
    let grants = &policy.grants;
    let is_open = |rule: &&Rule| {
        is_session_grant(rule) && grants.verdict(&rule.root, Access::Read) == Verdict::Allowed
    };
    let opened: Vec<Rule> = grants.rules.iter().filter(is_open).cloned().collect();
    policy.trees.extend(
        opened.iter().map(|rule| &rule.root).filter(|root| root.as_path().is_dir()).cloned(),
    );
    policy.trees.sort();
    policy.trees.dedup();
    (policy, opened)
}

/// The inodes of files that are denied by name, to recognise them under other names.
fn denied_inodes(masked: &[(AbsPath, Overmount)]) -> HashSet<(u64, u64)> {
    let paths = masked
        .iter()
        .filter(|(_, mask)| *mask == Overmount::Deny(FileKind::File))
        .map(|(path, _)| path);
    let found = paths.filter_map(|path| fs::symlink_metadata(path.as_path()).ok());
    found.filter(fs::Metadata::is_file).map(|metadata| (metadata.dev(), metadata.ino())).collect()
}
