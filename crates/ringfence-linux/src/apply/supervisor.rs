//! The supervisor: single-threaded, forked from a single-threaded launcher or a zygote, or our
//! binary executed again.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::open::{open, open_at};

use ringfence_plan::NetworkNamespace;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{namespace, net, privilege};
use rustix::fs::OFlags;
use rustix::mount::MountAttrFlags;
use rustix::thread::CpuSet;
use tracing::{debug, error, info, trace_span};

use super::fd_passing::{is_peer_gone, relay_log, send_fds, send_message, send_message_with_fds};
use super::helper_process::message_sockets;
use super::{SandboxMessage, SetupError, SetupStep, init, notify};

/// CPU affinity of the supervisor while it builds the sandbox. The command may use all CPUs in the
/// set.
#[derive(Debug, Clone, Copy)]
pub(super) enum CpuPinning {
    /// Not pinned.
    Unpinned,
    /// Pinned to one CPU until init is forked and two processes can work in parallel.
    UntilFork(CpuSet),
    /// Pinned to one CPU, with every process involved, until the sandbox is built: on a machine
    /// with all CPUs busy, waking another CPU costs more than it saves.
    UntilBuilt(CpuSet),
}

impl CpuPinning {
    /// Called when init was forked.
    fn release_after_fork(&self) {
        if let CpuPinning::UntilFork(cpus) = self {
            set_affinity(cpus);
        }
    }

    /// Called when the sandbox is built.
    pub(super) fn release(&self) {
        if let CpuPinning::UntilFork(cpus) | CpuPinning::UntilBuilt(cpus) = self {
            set_affinity(cpus);
        }
    }
}

/// Returns to every CPU that the command may use.
fn set_affinity(cpus: &CpuSet) {
    // An optimisation only.
    let _ = rustix::thread::sched_setaffinity(None, cpus);
}

/// Origin of the sandbox's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetnsSource {
    /// The host's network.
    Host,
    /// Created by the supervisor.
    New,
    /// The one in which the supervisor was forked.
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

/// Runs the supervisor. Returns its exit status.
pub(super) fn run_supervisor(
    network: NetnsSource,
    control: OwnedFd,
    mask: &SignalSet,
    pinning: &CpuPinning,
) -> i32 {
    let Ok(control) = process::close_all_but(control) else { return 125 };
    relay_log(&control, SandboxMessage::Log);
    match run(network, &control, mask, pinning) {
        Ok(()) => 0,
        Err(fault) => {
            error!(target: "supervisor", errno = fault.errno, "cannot {}", fault.what);
            send_message(&control, &SandboxMessage::Failed(fault.what, fault.errno));
            125
        }
    }
}

/// Signals from the terminal, and signals meant for the command: helpers block them.
pub(super) const COMMAND_SIGNALS: &[i32] = &[
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
    pinning: &CpuPinning,
) -> Result<(), SetupError> {
    let _stage = trace_span!(target: "stage", "run").entered();
    privilege::die_with_parent(libc::SIGKILL).during("prctl(PR_SET_PDEATHSIG)")?;
    if is_peer_gone(control) {
        process::exit_now(125);
    }
    signal::block(&SignalSet::from_signals(COMMAND_SIGNALS)).during("pthread_sigmask")?;
    namespaces()?;
    debug!(target: "supervisor", "created user, mount, pid, ipc and uts namespaces");
    let host_proc = open("/proc", OFlags::PATH).during("open /proc")?;
    let (ours, theirs) = message_sockets().during("socketpair")?;
    match process::fork().during("fork")? {
        Fork::Child => {
            drop((ours, host_proc));
            init::main(&init::InitArgs { control, supervisor: &theirs, network, mask, pinning })
        }
        Fork::Parent(pid) => {
            drop(theirs);
            pinning.release_after_fork();
            info!(target: "supervisor", init = pid, network = ?network, "forked init");
            let wire = mount_tripwire(control, &ours, pid)?;
            debug!(target: "supervisor", is_mounted = wire.is_some(), "tripwire");
            if network == NetnsSource::New {
                create_network(&host_proc, &ours)?;
                debug!(target: "supervisor", "created a network namespace with a loopback only");
            }
            // The kernel reaps the notify handler's children that wait at FIFOs.
            let _ = signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Ignore);
            notify::serve(
                ours,
                host_proc,
                control,
                notify::NotifySetup { init: pid, wire, parts: None, pinning },
            );
            process::await_end(pid);
            info!(target: "supervisor", "init has ended");
            Ok(())
        }
    }
}

fn namespaces() -> Result<(), SetupError> {
    let flags =
        namespace::USER | namespace::MOUNT | namespace::PID | namespace::IPC | namespace::UTS;
    let (uid, gid) = process::ids();
    namespace::unshare(flags).during("unshare(CLONE_NEWUSER|…)")?;
    map_ids(uid, gid)?;
    namespace::set_host_name(c"ringfence").during("sethostname")
}

/// Mounts the tripwire, if possible: its FUSE fd goes to the launcher, the mount to init. Mounted
/// by the supervisor, so that FUSE requests carry host pids.
fn mount_tripwire(
    control: &OwnedFd,
    init: &OwnedFd,
    pid: i32,
) -> Result<Option<OwnedFd>, SetupError> {
    let wire = tripwire().filter(|(served, _)| {
        send_message_with_fds(control, &SandboxMessage::TripwireMounted(pid), &[served.as_fd()])
    });
    let mount = wire.map(|(_, mount)| mount);
    let sent = send_fds(init, mount.as_ref().map(AsFd::as_fd));
    sent.during("send the tripwire to init").map(|()| mount)
}

fn tripwire() -> Option<(OwnedFd, OwnedFd)> {
    let (uid, gid) = process::ids();
    let served = open("/dev/fuse", OFlags::RDWR).ok()?;
    let number = served.as_raw_fd().to_string();
    let (user, group) = (uid.to_string(), gid.to_string());
    let options =
        [("fd", number.as_str()), ("rootmode", "40000"), ("user_id", &user), ("group_id", &group)];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = super::build::new_mount("fuse", &options, &[], flags).ok()?;
    Some((served, mount))
}

/// Creates a network namespace with only a loopback, for init to join. It takes the kernel as long
/// as all the rest together; init builds the root meanwhile, and may have changed the root
/// directory of both processes by the time it is done.
fn create_network(host_proc: &OwnedFd, init: &OwnedFd) -> Result<(), SetupError> {
    namespace::unshare(namespace::NETWORK).during("unshare(CLONE_NEWNET)")?;
    net::loopback_up().during("set the loopback up")?;
    let made =
        open_at(host_proc, "self/ns/net", OFlags::RDONLY).during("open the network namespace")?;
    send_fds(init, [made.as_fd()]).during("send the network to init")
}

/// Maps one user and one group in a new user namespace: all that needs no privilege.
pub(super) fn map_ids(uid: u32, gid: u32) -> Result<(), SetupError> {
    fs::write("/proc/self/setgroups", "deny").during("write /proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).during("write /proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).during("write /proc/self/gid_map")
}
