//! The helper: single-threaded, a copy of a single-threaded caller or our own binary
//! started anew.

use std::ffi::OsStr;
use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringfence_sys::process::{self, Fork};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{namespace, net, privilege};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::CpuSet;
use serde::Serialize;

use super::cgroup::{self, JANITOR};
use super::mount_agent::{self, PORTER};
use super::watcher::inotify_broker::RELAY;
use super::watcher::{self, LOOKOUT};
use super::zygote::{self, NURSERY};
use super::{CONTROL_FD, HELPER, SandboxMessage, SetupError, SetupStep, init, notify};
use crate::plan::NetworkNamespace;
use crate::seccomp::HANDED_OVER;

/// To be called on the first line of `main`: if this process was started as the helper, it
/// does the helper's work and does not return.
pub fn enter_if_helper() {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(HELPER)) {
        let status = main();
        process::exit_now(status);
    }
}

fn main() -> i32 {
    let Ok(control) = process::inherited(CONTROL_FD) else { return 125 };
    let word = std::env::args_os().nth(1);
    if word.as_deref() == Some(OsStr::new(LOOKOUT)) {
        return watcher::main(&control);
    }
    if word.as_deref() == Some(OsStr::new(RELAY)) {
        return watcher::inotify_broker::main(&control);
    }
    if word.as_deref() == Some(OsStr::new(JANITOR)) {
        return cgroup::tidy_up(&control);
    }
    if word.as_deref() == Some(OsStr::new(PORTER)) {
        return mount_agent::main(&control);
    }
    if word.as_deref() == Some(OsStr::new(NURSERY)) {
        let processor = std::env::args().nth(2).and_then(|number| number.parse().ok());
        return zygote::main(control, processor);
    }
    let network = if word.as_deref() == Some(OsStr::new(HOST_NETWORK)) {
        NetnsSource::Host
    } else {
        NetnsSource::New
    };
    let mask = signal::block(&SignalSet::of(&[])).expect("asking for the mask changes nothing");
    become_warden(network, control, &mask, &CpuPinning::Anywhere)
}

/// The argument that keeps the helper in the host's network.
pub(super) const HOST_NETWORK: &str = "--host-network";

/// On which processor a helper is, and until when. The command may use all that are named here.
#[derive(Debug, Clone, Copy)]
pub(super) enum CpuPinning {
    /// On whichever there is room.
    Anywhere,
    /// On one, until there is something that two can do.
    Shortly(CpuSet),
    /// On one, together with all who have a part in it, until the sandbox stands: where others
    /// keep every processor busy, what one saves by the other's help is lost by calling for it.
    ToTheEnd(CpuSet),
}

impl CpuPinning {
    /// Two can do something.
    fn part(&self) {
        if let CpuPinning::Shortly(processors) = self {
            spread(processors);
        }
    }

    /// The sandbox stands.
    pub(super) fn end(&self) {
        if let CpuPinning::Shortly(processors) | CpuPinning::ToTheEnd(processors) = self {
            spread(processors);
        }
    }
}

/// Back to every processor that the command may use.
fn spread(processors: &CpuSet) {
    // Only a matter of speed.
    let _ = rustix::thread::sched_setaffinity(None, processors);
}

/// Which network a sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetnsSource {
    /// The host's.
    Host,
    /// One that its warden makes.
    New,
    /// The one that its warden finds itself in.
    Found,
}

impl From<NetworkNamespace> for NetnsSource {
    fn from(network: NetworkNamespace) -> Self {
        match network {
            NetworkNamespace::Host => NetnsSource::Host,
            NetworkNamespace::Own => NetnsSource::New,
        }
    }
}

/// What the helper does, in whichever way it was started; answers its exit status.
pub(super) fn become_warden(
    network: NetnsSource,
    control: OwnedFd,
    mask: &SignalSet,
    stay: &CpuPinning,
) -> i32 {
    let Ok(control) = process::keep_only(control) else { return 125 };
    match run(network, &control, mask, stay) {
        Ok(()) => 0,
        Err(fault) => {
            tell(&control, &SandboxMessage::Failed(fault.what, fault.errno));
            125
        }
    }
}

/// Sends a report; a caller that is gone needs none.
pub(super) fn tell(control: impl AsFd, report: &SandboxMessage) {
    if let Ok(bytes) = postcard::to_stdvec(report) {
        let _ = rustix::net::send(control, &bytes, SendFlags::NOSIGNAL);
    }
}

/// The same with descriptors; answers whether they could be sent.
pub(super) fn tell_with(
    control: impl AsFd,
    report: &SandboxMessage,
    descriptors: &[BorrowedFd<'_>],
) -> bool {
    send_with(control, report, descriptors).is_ok()
}

/// Sends whatever it is, with descriptors.
pub(super) fn send_with<T: Serialize>(
    to: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = postcard::to_stdvec(message).map_err(|_| std::io::ErrorKind::InvalidData)?;
    sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Whether the other end of a socket is gone.
pub(super) fn is_gone(socket: impl AsFd) -> bool {
    let mut ends = [PollFd::new(&socket, PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok()
        && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Signals of the terminal and of those who mean the command: the helper outlives them.
pub(super) const NOT_FOR_US: &[i32] = &[
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGPIPE,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];

fn run(
    network: NetnsSource,
    control: &OwnedFd,
    mask: &SignalSet,
    stay: &CpuPinning,
) -> Result<(), SetupError> {
    privilege::die_with_parent(libc::SIGKILL).during(|| "prctl(PR_SET_PDEATHSIG)".into())?;
    if is_gone(control) {
        process::exit_now(125);
    }
    signal::block(&SignalSet::of(NOT_FOR_US)).during(|| "pthread_sigmask".into())?;
    namespaces()?;
    let host_proc = rustix::fs::open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .during(|| "open /proc".into())?;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .during(|| "socketpair".into())?;
    match process::fork().during(|| "fork".into())? {
        Fork::Child => {
            drop((ours, host_proc));
            init::main(&init::InitArgs { control, warden: &theirs, network, mask, stay })
        }
        Fork::Parent(pid) => {
            drop(theirs);
            stay.part();
            let wire = hand_wire_over(control, &ours, pid)?;
            if network == NetnsSource::New {
                own_network(&host_proc, &ours)?;
            }
            // Those who wait at pipes for the usher are reaped by the kernel.
            let _ = signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Ignore);
            notify::serve(&ours, host_proc, control, notify::NotifySetup { init: pid, wire, stay });
            process::await_end(pid);
            Ok(())
        }
    }
}

fn namespaces() -> Result<(), SetupError> {
    let flags =
        namespace::USER | namespace::MOUNT | namespace::PID | namespace::IPC | namespace::UTS;
    let (uid, gid) = process::ids();
    namespace::unshare(flags).during(|| "unshare(CLONE_NEWUSER|…)".into())?;
    map_ids(uid, gid)?;
    namespace::set_host_name(c"ringfence").during(|| "sethostname".into())
}

/// Mounts the tripwire, where there can be one: its served end goes to the caller, the
/// mount to the sandbox's first process. Mounted from here, so that whoever trips it is
/// told by the number that the host knows.
fn hand_wire_over(
    control: &OwnedFd,
    init: &OwnedFd,
    pid: i32,
) -> Result<Option<OwnedFd>, SetupError> {
    let wire = tripwire()
        .filter(|(served, _)| tell_with(control, &SandboxMessage::Wired(pid), &[served.as_fd()]));
    let mount = wire.map(|(_, mount)| mount);
    let handed = match &mount {
        Some(mount) => hand_over(init, [mount.as_fd()]),
        None => hand_over(init, []),
    };
    handed.during(|| "hand the tripwire over".into()).map(|()| mount)
}

fn tripwire() -> Option<(OwnedFd, OwnedFd)> {
    let (uid, gid) = process::ids();
    let served =
        rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let number = served.as_raw_fd().to_string();
    let (user, group) = (uid.to_string(), gid.to_string());
    let options =
        [("fd", number.as_str()), ("rootmode", "40000"), ("user_id", &user), ("group_id", &group)];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = super::build::make("fuse", &options, &[], flags).ok()?;
    Some((served, mount))
}

/// A network with nothing but a loopback, for the sandbox's first process to join. Making
/// one takes the kernel as long as all the rest together; that process builds meanwhile,
/// and the root of both may be another by the time it is made.
fn own_network(host_proc: &OwnedFd, init: &OwnedFd) -> Result<(), SetupError> {
    namespace::unshare(namespace::NETWORK).during(|| "unshare(CLONE_NEWNET)".into())?;
    net::loopback_up().during(|| "set the loopback up".into())?;
    let made = rustix::fs::openat(
        host_proc,
        "self/ns/net",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .during(|| "open the network namespace".into())?;
    hand_over(init, [made.as_fd()]).during(|| "hand the network over".into())
}

/// Known to the filter: the listener itself is handed over in this way, when nobody listens yet.
const HANDING_OVER: SendFlags = SendFlags::from_bits_retain(HANDED_OVER);

/// Passes descriptors on.
pub(super) fn hand_over<const COUNT: usize>(
    to: &OwnedFd,
    descriptors: [BorrowedFd<'_>; COUNT],
) -> rustix::io::Result<()> {
    hand_over_with(to, b'd', &descriptors)
}

/// The same with a word of one byte.
pub(super) fn hand_over_with(
    to: &OwnedFd,
    word: u8,
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(to, &[IoSlice::new(&[word])], &mut ancillary, HANDING_OVER).map(drop)
}

/// Descriptors that were passed on; `None` if their sender is gone.
pub(super) fn handed_over<const COUNT: usize>(socket: &OwnedFd) -> Option<[OwnedFd; COUNT]> {
    all_handed_over(socket)?.try_into().ok()
}

/// The same, where it is not known how many there are.
pub(super) fn all_handed_over(socket: &OwnedFd) -> Option<Vec<OwnedFd>> {
    all_handed_over_with(socket).map(|(_, descriptors)| descriptors)
}

/// The same with the word that came along.
pub(super) fn all_handed_over_with(socket: &OwnedFd) -> Option<(u8, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .ok()?;
    let descriptors = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect()),
        _ => None,
    })?;
    Some((byte[0], descriptors))
}

/// Names one user and one group in a user namespace just made: all that needs no privilege.
pub(super) fn map_ids(uid: u32, gid: u32) -> Result<(), SetupError> {
    fs::write("/proc/self/setgroups", "deny").during(|| "write /proc/self/setgroups".into())?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
        .during(|| "write /proc/self/uid_map".into())?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
        .during(|| "write /proc/self/gid_map".into())
}
