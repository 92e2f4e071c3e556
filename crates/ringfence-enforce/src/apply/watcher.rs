//! The lookout: covers what appears in the opened trees while a command runs.
//!
//! A process of its own, which the caller starts once a command takes longer than a moment.
//! It lives among the host's processes, where the command can neither see nor signal it,
//! and stands in the sandbox's mounts with the warden's rights over them: what is covered
//! there looks covered, what is not is what the command could open.

mod granted;
mod inotify;
pub(super) mod inotify_broker;
mod masks;
mod repos;
mod tracked;
mod tree;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringfence_policy::{AbsPath, Access, Grants, NameIndex, Rule, Verdict};
use ringfence_sys::process::{self, SpawnIsolation, SpawnOptions};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{namespace, privilege};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use super::handle::{LaunchError, failed, helper};
use super::helper::{NOT_FOR_US, all_handed_over, hand_over, handed_over, is_gone};
use super::{Birth, CONTROL_FD, HELPER, LaunchSpec, PlanUpdate, PolicyReplacement};
use crate::plan::{FileKind, Step};
use granted::{GrantedPaths, is_opened_since};
use inotify::WatchSet;
use inotify_broker::InotifySource;
use masks::LiveMasker;
pub(super) use masks::{attached_masks, protect};
use repos::RepoTracker;
use tree::{TreeWatcher, WatchedTrees};

/// Of a repository: the command made it.
pub const OWN: usize = 1;
/// Of a repository: the command did not make it.
pub const FOREIGN: usize = 0;

/// The argument that makes our binary the lookout.
pub(super) const LOOKOUT: &str = "--lookout";

/// The shortest turn that the kernel gives.
const TURN_NS: u64 = 100_000;

/// What it takes to reach into a running sandbox.
#[derive(Debug)]
pub struct SandboxFds {
    /// The warden's user namespace.
    pub(super) user: OwnedFd,
    /// The command's mount namespace.
    pub(super) mount: OwnedFd,
    /// The launch, as it was written.
    pub(super) plan: OwnedFd,
    /// The tripwire, where there is one.
    pub(super) wire: Option<OwnedFd>,
}

impl SandboxFds {
    /// The same where nobody serves the tripwire.
    pub fn unwired(self) -> Self {
        Self { wire: None, ..self }
    }

    /// Out of the descriptors as they are handed over.
    pub(super) fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut given = descriptors.into_iter();
        Some(Self {
            user: given.next()?,
            mount: given.next()?,
            plan: given.next()?,
            wire: given.next(),
        })
    }
}

/// The number of a question.
pub type QueryId = u64;

/// What the lookout tells its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatcherMessage {
    /// Something denied has appeared, and is covered with the node of this number.
    Appeared(usize, AbsPath),
    /// A `.git` or a `HEAD` has appeared: [`Lookout::answer`] is waited for, by [`OWN`] if
    /// the command made it.
    Repository(QueryId, Birth),
    /// So many nodes are wanted to cover things with: [`Lookout::answer`] is waited for.
    Wanted(QueryId, usize, FileKind),
    /// More has happened than can be followed: everything is looked through anew, and until
    /// that is done nobody should go on. [`Lookout::answer`] is waited for.
    Overrun(QueryId),
    /// All was looked through.
    Caught,
    /// So many directories cannot be watched, for want of something: they are looked through
    /// again and again.
    Unwatched(usize, InotifyShortage),
}

/// What the kernel lets a person have only so many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InotifyShortage {
    /// Directories that are watched.
    Watches,
    /// Processes that watch.
    Instances,
}

impl InotifyShortage {
    /// The setting that it is a matter of, and a value to go on with.
    pub fn setting(self) -> &'static str {
        match self {
            InotifyShortage::Watches => "fs.inotify.max_user_watches=1048576",
            InotifyShortage::Instances => "fs.inotify.max_user_instances=1024",
        }
    }
}

/// A lookout, as its caller sees it. Dropping it ends it.
#[derive(Debug)]
pub struct WatcherProcess {
    socket: OwnedFd,
    pid: i32,
    _ears: InotifySource,
}

impl WatcherProcess {
    /// Starts it.
    pub fn start(inside: &SandboxFds) -> Result<Self, LaunchError> {
        let (ears, end) = InotifySource::new()?;
        let (socket, pid) = spawn(LOOKOUT)?;
        let lookout = Self { socket, pid, _ears: ears };
        let SandboxFds { user, mount, plan, wire } = inside;
        let handed = match wire {
            Some(wire) => hand_over(
                &lookout.socket,
                [user.as_fd(), mount.as_fd(), plan.as_fd(), wire.as_fd()],
            ),
            None => hand_over(&lookout.socket, [user.as_fd(), mount.as_fd(), plan.as_fd()]),
        };
        let handed = handed.and_then(|()| match &end {
            Some(end) => hand_over(&lookout.socket, [end.as_fd()]),
            None => hand_over(&lookout.socket, []),
        });
        handed.map_err(helper("brief the lookout"))?;
        Ok(lookout)
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when it has something to say, or is gone.
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What it says next; `None` if it is gone. Blocks.
    pub fn next(&self) -> Option<WatcherMessage> {
        receive(&self.socket)
    }

    /// The number of the first of the nodes that were wanted, and the rest follow it; or
    /// whose a repository is.
    pub fn answer(&self, question: QueryId, answer: usize) {
        send(&self.socket, &(question, answer));
    }
}

impl Drop for WatcherProcess {
    fn drop(&mut self) {
        let _ = signal::kill(self.pid, libc::SIGKILL);
        process::await_end(self.pid);
    }
}

/// Starts our binary anew as what `word` says; answers our end of the socket by which it is
/// spoken with, and its number.
fn spawn(word: &str) -> Result<(OwnedFd, i32), LaunchError> {
    spawn_with(word, SpawnIsolation::Ours)
}

/// The same for somebody who is to be there when we no longer are.
pub(super) fn spawn_apart(word: &str) -> Result<(OwnedFd, i32), LaunchError> {
    spawn_with(word, SpawnIsolation::Own)
}

fn spawn_with(word: &str, company: SpawnIsolation) -> Result<(OwnedFd, i32), LaunchError> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(helper("socketpair"))?;
    // Out of the way of the number it is to have.
    let theirs = rustix::io::fcntl_dupfd_cloexec(theirs, 10).map_err(helper("fcntl"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(helper("open /dev/null"))?;
    let null = rustix::io::fcntl_dupfd_cloexec(null, 10).map_err(helper("fcntl"))?;
    let arguments = [HELPER, word].map(|word| CString::new(word).expect("a literal without NUL"));
    let descriptors =
        [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2), (theirs.as_fd(), CONTROL_FD)];
    let how = SpawnOptions {
        company,
        descriptors: &descriptors,
        ceilings: &[],
        mask: &SignalSet::of(NOT_FOR_US),
    };
    let pid = process::spawn_as(c"/proc/self/exe", &arguments, &[], &how)
        .map_err(failed("spawn /proc/self/exe"))?;
    Ok((ours, pid))
}

/// Only a matter of speed: little is done at a time, and that should be done at once.
fn hurry() {
    let niceness = rustix::process::getpriority_process(None).unwrap_or_default();
    let _ = process::set_turn(TURN_NS, niceness);
}

/// Whoever is gone needs none, and whoever is stopped is not waited for.
pub(super) fn send(socket: &OwnedFd, value: &impl Serialize) {
    send_by(socket, value, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send_by(socket: &OwnedFd, value: &impl Serialize, how: SendFlags) {
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

/// What our binary does as the lookout; answers its exit status.
pub(super) fn main(control: &OwnedFd) -> i32 {
    match stand(control) {
        Ok(()) => 0,
        Err(_) => 125,
    }
}

fn stand(control: &OwnedFd) -> io::Result<()> {
    privilege::die_with_parent(libc::SIGKILL)?;
    if is_gone(control) {
        return Ok(());
    }
    let Some(SandboxFds { user, mount, plan, wire }) =
        all_handed_over(control).and_then(SandboxFds::of)
    else {
        return Ok(());
    };
    let relay = handed_over(control).map(|[relay]| relay);
    let unreadable = || io::Error::from(io::ErrorKind::InvalidData);
    let (launch, length) = LaunchSpec::read_with_length(&plan).ok_or_else(unreadable)?;
    let grants: Grants = postcard::from_bytes(&launch.grants).map_err(|_| unreadable())?;
    let trees = launch.plan.steps.iter().find_map(|step| {
        if let Step::Lookout { trees } = step { Some(trees.clone()) } else { None }
    });
    let covers = launch.plan.steps.iter().filter_map(|step| match step {
        Step::Cover { path, cover } => Some((path.clone(), *cover)),
        _ => None,
    });
    let first =
        PolicyReplacement { grants, trees: trees.unwrap_or_default(), covers: covers.collect() };
    let (added, known) = PlanUpdate::read(&plan, length).unwrap_or_else(|| (Vec::new(), length));
    let (PolicyReplacement { grants, trees, covers: covered }, opened) = by_now(first, added);
    let lifted = GrantedPaths::since(plan.try_clone()?, known, &opened);
    // Seen from the host, where nothing is covered.
    let denied = tree::denied(&covered);
    let repositories = RepoTracker::new(&grants, &launch.plan, plan);
    // By these a watch is put on a directory that was found, and not on whatever its path
    // leads to by then; the sandbox has no processes of the host's.
    let numbers = rustix::fs::open(
        "/proc/self/fd",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    namespace::enter(user.as_fd(), namespace::USER)?;
    namespace::enter(mount.as_fd(), namespace::MOUNT)?;
    rustix::process::fchdir(&numbers)?;
    drop((user, mount, numbers));
    privilege::not_dumpable()?;
    // Asked for again: every change of credentials clears it.
    privilege::die_with_parent(libc::SIGKILL)?;
    if is_gone(control) {
        return Ok(());
    }
    hurry();
    let covers = LiveMasker::new(control, wire, &launch.plan, lifted)?;
    let index = NameIndex::new(&grants);
    TreeWatcher::new(
        &grants,
        &index,
        WatchedTrees { trees, covered, denied },
        covers,
        repositories,
        WatchSet::new(relay)?,
    )
    .stand()
}

/// What holds after all that was added, and what somebody opened by that very path.
fn by_now(
    mut holding: PolicyReplacement,
    added: Vec<PlanUpdate>,
) -> (PolicyReplacement, Vec<Rule>) {
    let mut found = Vec::new();
    for PlanUpdate { rules, revised, .. } in added {
        if let Some(revised) = revised {
            holding = revised;
            holding.grants.rules.extend(found.iter().cloned());
        }
        found.extend(rules.iter().filter(|rule| !is_opened_since(rule)).cloned());
        holding.grants.rules.extend(rules);
    }
    // A rule that was written since may shut it all the same.
    let grants = &holding.grants;
    let is_open = |rule: &&Rule| {
        is_opened_since(rule) && grants.verdict(&rule.root, Access::Read) == Verdict::Allowed
    };
    let opened: Vec<Rule> = grants.rules.iter().filter(is_open).cloned().collect();
    holding.trees.extend(
        opened.iter().map(|rule| &rule.root).filter(|root| root.as_path().is_dir()).cloned(),
    );
    holding.trees.sort();
    holding.trees.dedup();
    (holding, opened)
}
