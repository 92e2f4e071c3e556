//! Init, the sandbox's first process: drops every privilege, starts the command, reaps children,
//! and ends every process when it ends.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::open::open;

use ringfence_api::{ExitStatus, ResourceUsage};
use ringfence_plan::seccomp::{ConnectHandling, FileOwner, FilterOptions, GroupSignals, Uncounted};
use ringfence_plan::{NetworkNamespace, Plan, Step};
use ringfence_policy::{Limit, Observe};
use ringfence_sys::process::{
    self, ChildStatus, LimitedResource, ResourceLimit, SpawnIsolation, SpawnOptions, Wait,
};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{landlock, namespace, privilege, seccomp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::net::RecvFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, error, info, trace_span};

pub(super) use super::exec_table::ExecTable;
use super::fd_passing::{
    is_peer_gone, receive_all_fds, receive_bytes_with_fds, receive_fds, send_bytes_with_fds,
    send_message,
};
use super::filter_cache::cached_filter;
use super::socket_memory::SocketMemory;
use super::supervisor::{CpuPinning, NetnsSource, map_ids};
use super::{
    InitUsage, LaunchSpec, MemoryCounter, SandboxMessage, SandboxOrder, SetupError, SetupStep,
    build, exit_status, netns_listeners, notify, probe, process_scope::ProcessScope,
    resource_usage,
};

/// Connections of init to the outside.
pub(super) struct InitArgs<'a> {
    /// To the launcher.
    pub(super) control: &'a OwnedFd,
    /// To the supervisor.
    pub(super) supervisor: &'a OwnedFd,
    pub(super) network: NetnsSource,
    /// The signal mask that the command starts with.
    pub(super) mask: &'a SignalSet,
    pub(super) pinning: &'a CpuPinning,
}

/// Does not return: the process ends with the command.
pub(super) fn main(args: &InitArgs<'_>) -> ! {
    if let Err(fault) = run(args) {
        error!(target: "init", errno = fault.errno, "cannot {}", fault.what);
        send_message(args.control, &SandboxMessage::Failed(fault.what, fault.errno));
    }
    process::exit_now(0)
}

fn run(args: &InitArgs<'_>) -> Result<(), SetupError> {
    let _stage = trace_span!(target: "stage", "run").entered();
    let InitArgs { control, supervisor, .. } = *args;
    privilege::die_with_parent(libc::SIGKILL).during("prctl(PR_SET_PDEATHSIG)")?;
    // If the parent ignores SIGCHLD, the kernel would reap the command before init sees its status.
    signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Default)
        .during("sigaction(SIGCHLD)")?;
    // In init, not in the supervisor: /proc can only be mounted from inside the pid namespace it
    // shows.
    let root = build::PreparedRoot::new()?;
    let Some((launch, for_notify_handler)) = receive_launch(control)? else { return Ok(()) };
    // Not earlier: the cgroup that init is in by now becomes the root of all cgroups seen inside.
    namespace::unshare(namespace::CGROUP).during("unshare(CLONE_NEWCGROUP)")?;
    let launch = &launch;
    debug!(target: "init", steps = launch.plan.steps.len(), "received the plan");
    if let Some(files) = launch.open_files {
        limit_files(files)?;
    }
    let rlimits = rlimits(&launch.plan);
    let wire = receive_fds(supervisor).map(|[wire]| wire);
    build::build(launch, root, wire)?;
    if let Some(most) = launch.plan.limit(Limit::Processes) {
        limit_processes(most);
    }
    replace_host_null()?;
    debug!(target: "init", "built the root");
    if args.network == NetnsSource::New {
        join_network(supervisor)?;
    }
    if launch.plan.steps.contains(&Step::Egress) {
        netns_listeners::open_listeners(control, &launch.plan)?;
    }
    let sockets = limit_kernel_memory(launch);
    let mut inside = None;
    for step in &launch.plan.steps {
        match step {
            Step::Lock => inside = Some(lock(launch, supervisor)?),
            Step::Landlock => restrict_with_landlock()?,
            Step::Seccomp => {
                install_filter(launch, supervisor, inside.as_ref(), &for_notify_handler)?
            }
            _ => continue,
        }
        debug!(target: "init", step = ?step, "applied");
    }
    // The lock must end with the notify handler, so no other process may keep it open.
    drop(for_notify_handler);
    args.pinning.release();
    // Children are reported by a signalfd. `mask` was saved before, so the command gets its own.
    let children = SignalSet::from_signals(&[libc::SIGCHLD]);
    signal::block(&children).during("pthread_sigmask")?;
    let sigchld_fd = signal::signalfd(&children).during("signalfd")?;
    let command = if launch.command.is_empty() {
        info!(target: "init", "ready, without a command");
        send_message(control, &SandboxMessage::Ready);
        None
    } else {
        match start(launch, control, args.mask, &rlimits, None)? {
            Some(command) => Some(command),
            None => return Ok(()),
        }
    };
    if let Some(pid) = command {
        info!(target: "init", command = pid, "started the command");
    }
    let jobs = ExecTable::new(control, args.mask, rlimits, None);
    let scope = ProcessScope::PidNamespace;
    serve(command, jobs, supervisor, &sigchld_fd, sockets.as_ref(), scope)
}

/// Waits for the launch spec, and takes over the standard streams; `None` if the launcher has gone.
/// Also returns the fds for the notify handler: the plan file, and the project's lock, if there is
/// one.
pub(super) fn receive_launch(
    control: &OwnedFd,
) -> Result<Option<(LaunchSpec, Vec<OwnedFd>)>, SetupError> {
    let Some(mut given) = receive_all_fds(control).filter(|given| given.len() >= 4) else {
        return Ok(None);
    };
    let for_notify_handler = given.split_off(3);
    let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(given) else { return Ok(None) };
    rustix::stdio::dup2_stdin(stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr))
        .during("take over the standard streams")?;
    let launch = LaunchSpec::read(&for_notify_handler[0])
        .ok_or_else(|| SetupError::new("read the plan", libc::EBADMSG))?;
    Ok(Some((launch, for_notify_handler)))
}

/// Sets the soft limit of open files.
pub(super) fn limit_files(most: u64) -> Result<(), SetupError> {
    let limit = Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).during("setrlimit(RLIMIT_NOFILE)")
}

/// The rlimits for every process of the command. A hard limit cannot be raised from here.
pub(super) fn rlimits(plan: &Plan) -> Vec<ResourceLimit> {
    let counted = [
        (LimitedResource::OpenFiles, Resource::Nofile, plan.limit(Limit::OpenFiles)),
        (LimitedResource::FileSize, Resource::Fsize, plan.limit(Limit::FileSize)),
        (
            LimitedResource::Processes,
            Resource::Nproc,
            plan.limit(Limit::Processes).map(nproc_limit),
        ),
    ];
    let within =
        |resource, most: u64| getrlimit(resource).maximum.map_or(most, |now| most.min(now));
    counted
        .into_iter()
        .filter_map(|(of, resource, most)| {
            Some(ResourceLimit { resource: of, limit: within(resource, most?) })
        })
        .collect()
}

/// Bounds the pids of the sandbox's own pid namespace (Linux 6.14), also for root, whom
/// `RLIMIT_NPROC` does not limit.
///
/// Once the kernel's pid counter has passed `RESERVED_PIDS`, it wraps to that number and never
/// gives out a lower one again. So the pids above it must be enough for the sandbox's whole life,
/// and the counter is set there at once: otherwise 299 more pids could be had before it wraps.
fn limit_processes(most: u64) {
    const RESERVED_PIDS: u64 = 300;
    const LARGEST: u64 = 4_194_304;
    if probe::has_pid_max_per_namespace() {
        // If a write fails, only the limit monitor enforces the bound. `ns_last_pid` needs
        // CONFIG_CHECKPOINT_RESTORE.
        let pid_max = RESERVED_PIDS.saturating_add(pids_needed(most)).min(LARGEST);
        let _ = std::fs::write("/proc/sys/kernel/pid_max", pid_max.to_string());
        let _ = std::fs::write("/proc/sys/kernel/ns_last_pid", RESERVED_PIDS.to_string());
    }
}

/// Number of pids for `most` processes. A process that has ended keeps its pid while others are in
/// its process group or session, so a live one may need two.
fn pids_needed(most: u64) -> u64 {
    most.saturating_mul(2).saturating_add(16)
}

/// `RLIMIT_NPROC` for `most` processes: exactly one more can be started, which the limit monitor
/// sees and ends the sandbox for. The rest are ringfence's own, which the kernel counts for the
/// same user namespace: init, the notify handler, and its children that wait at a FIFO for a
/// caller.
fn nproc_limit(most: u64) -> u64 {
    const OURS: u64 = 2;
    const AT_FIFOS: u64 = 4;
    most.saturating_add(1 + OURS + AT_FIFOS)
}

/// Lowers the kernel memory that a sandbox can use outside its processes, where no cgroup counts
/// it. Returns the counter for sockets, which must be opened before the filter is installed:
/// inside, netlink is for routes only. On the host's network it would count the host's sockets.
fn limit_kernel_memory(launch: &LaunchSpec) -> Option<SocketMemory> {
    /// With 16 KiB each, and up to 1 MiB if all messages are empty.
    const MESSAGE_QUEUES: &str = "32";
    if launch.memory == MemoryCounter::Complete {
        return None;
    }
    let _ = std::fs::write("/proc/sys/kernel/msgmni", MESSAGE_QUEUES);
    (launch.plan.network() == NetworkNamespace::Own).then(SocketMemory::open).flatten()
}

fn measure_usage(sockets: Option<&SocketMemory>) -> InitUsage {
    /// `struct msg_msg`, as the kernel allocates it for an empty message.
    const MESSAGE: u64 = 64;
    let sum = |of: &str, size: fn(&[u64]) -> u64| {
        let table = std::fs::read_to_string(format!("/proc/sysvipc/{of}")).unwrap_or_default();
        let numbers = |line: &str| {
            line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>()
        };
        table.lines().skip(1).map(|line| size(&numbers(line))).sum::<u64>()
    };
    // Columns 14 and 15: resident and swapped bytes of a segment.
    let segments = sum("shm", |line| line.iter().skip(14).sum());
    // Columns 3 and 4: the bytes in a queue, and its messages. Only root may lower the number of
    // queues.
    let queues = sum("msg", |line| line.get(3..5).map_or(0, |queue| queue[0] + queue[1] * MESSAGE));
    InitUsage {
        written: process::bytes_written_by_children().unwrap_or_default(),
        shared: segments + queues,
        sockets: sockets.map_or(0, SocketMemory::bytes),
    }
}

/// Joins the network that the supervisor created meanwhile.
fn join_network(supervisor: &OwnedFd) -> Result<(), SetupError> {
    let [network] = receive_fds(supervisor)
        .ok_or_else(|| SetupError::new("receive the network", libc::EBADMSG))?;
    namespace::enter(network.as_fd(), namespace::NETWORK).during("enter the network namespace")
}

/// Replaces standard streams that are the host's `/dev/null` by the sandbox's: through the host's,
/// root could change the mode of the host's device.
fn replace_host_null() -> Result<(), SetupError> {
    let null = rustix::fs::makedev(1, 3);
    let is_null = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream).is_ok_and(|status| status.st_rdev == null)
    };
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let [stdin, stdout, stderr] = streams.map(is_null);
    if !(stdin || stdout || stderr) {
        return Ok(());
    }
    let own = open("/dev/null", OFlags::RDWR).during("open /dev/null")?;
    let placed = [(stdin, 0), (stdout, 1), (stderr, 2)]
        .into_iter()
        .filter(|(is, _)| *is)
        .try_for_each(|(_, number)| match number {
            0 => rustix::stdio::dup2_stdin(&own),
            1 => rustix::stdio::dup2_stdout(&own),
            _ => rustix::stdio::dup2_stderr(&own),
        });
    placed.during("take over /dev/null")
}

/// Enters a user namespace below the supervisor's: the mounts copied into it are locked together,
/// and privileges gained in it reach neither them nor the other namespaces.
fn lock(launch: &LaunchSpec, supervisor: &OwnedFd) -> Result<InnerNamespaces, SetupError> {
    let identity = launch
        .plan
        .identity()
        .ok_or_else(|| SetupError::new("find an identity in the plan", libc::EINVAL))?;
    namespace::unshare(namespace::USER | namespace::MOUNT)
        .during("unshare(CLONE_NEWUSER|CLONE_NEWNS)")?;
    map_ids(identity.uid, identity.gid)?;
    limit_watches();
    build::make_proc_read_only(&launch.plan.steps)?;
    // Opened while this process is still dumpable.
    let open = |kind: &str| open(format!("/proc/self/ns/{kind}"), OFlags::RDONLY);
    let inside = InnerNamespaces {
        user: open("user").during("open the user namespace")?,
        mount: open("mnt").during("open the mount namespace")?,
    };
    // A host without keyrings has nothing to hide there.
    match privilege::join_new_session_keyring() {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => {
            Err(error).during("keyctl(KEYCTL_JOIN_SESSION_KEYRING)")?
        }
        _ => {}
    }
    drop_capabilities(if launch.command.is_empty() { 1 << privilege::CAP_WAKE_ALARM } else { 0 })?;
    privilege::set_no_new_privs().during("prctl(PR_SET_NO_NEW_PRIVS)")?;
    privilege::set_not_dumpable().during("prctl(PR_SET_DUMPABLE)")?;
    // Set last: every change of credentials above would have cleared it.
    privilege::die_with_parent(libc::SIGKILL).during("prctl(PR_SET_PDEATHSIG)")?;
    if is_peer_gone(supervisor) {
        process::exit_now(125);
    }
    Ok(inside)
}

/// Drops every capability for good, except `kept`, which is of no use here: a shell that has it
/// cannot be traced by processes it starts, which have none.
pub(super) fn drop_capabilities(kept: u64) -> Result<(), SetupError> {
    let needed = 1 << privilege::CAP_SETPCAP;
    privilege::set_all_capabilities(needed, needed | kept, kept).during("capset")?;
    privilege::lock_root_capabilities().during("prctl(PR_SET_SECUREBITS)")?;
    for number in 0..64 {
        if privilege::drop_bounding(number).is_err() {
            break;
        }
    }
    privilege::set_all_capabilities(0, kept, kept).during("capset")
}

/// Limits inotify watches: the kernel counts them per user, and the user and other sandboxes need
/// some as well.
fn limit_watches() {
    const INSTANCES: &str = "32";
    let allowed = || {
        std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    // Kernels without these limits do not share the count between user namespaces.
    let _ = std::fs::write("/proc/sys/user/max_inotify_instances", INSTANCES);
    let _ = allowed().map(|allowed| {
        std::fs::write("/proc/sys/user/max_inotify_watches", (allowed / 4).to_string())
    });
}

/// The namespaces of the command.
struct InnerNamespaces {
    user: OwnedFd,
    mount: OwnedFd,
}

/// Keeps signals and abstract sockets inside the sandbox. File access is left to the locked mounts:
/// handling any access right in Landlock would make every open 5 % slower.
fn restrict_with_landlock() -> Result<(), SetupError> {
    let scoped = landlock::scope::ABSTRACT_UNIX_SOCKET | landlock::scope::SIGNAL;
    let rules = landlock::create_scope_ruleset(scoped).during("landlock_create_ruleset")?;
    landlock::restrict_self(rules.as_fd()).during("landlock_restrict_self")
}

/// Installs the filter in init, so that every later process inherits it, and sends the listener to
/// the notify handler.
fn install_filter(
    launch: &LaunchSpec,
    supervisor: &OwnedFd,
    inside: Option<&InnerNamespaces>,
    for_notify_handler: &[OwnedFd],
) -> Result<(), SetupError> {
    let steps = &launch.plan.steps;
    let scoped = steps.contains(&Step::Landlock);
    let group_signals = if scoped { GroupSignals::Scoped } else { GroupSignals::Refused };
    let owner = FileOwner::from_uid(launch.plan.identity().map(|identity| identity.uid));
    let observe = if steps.contains(&Step::Observe) { Observe::All } else { Observe::Denials };
    let connects = match launch.plan.network() {
        NetworkNamespace::Host => ConnectHandling::KernelExceptUnixPaths,
        NetworkNamespace::Own if steps.contains(&Step::Egress) => ConnectHandling::Notified,
        NetworkNamespace::Own => ConnectHandling::Isolated,
    };
    let refused = |is_limited| if is_limited { Uncounted::Refused } else { Uncounted::Allowed };
    let disk = refused(launch.plan.limit(Limit::Disk).is_some());
    let memory = refused(launch.memory == MemoryCounter::ByProcess);
    let listener = seccomp::install(&cached_filter(FilterOptions {
        group_signals,
        owner,
        observe,
        connects,
        disk,
        memory,
    }))
    .during("seccomp(SECCOMP_SET_MODE_FILTER)")?;
    let inside =
        inside.ok_or_else(|| SetupError::new("find the lock in the plan", libc::EINVAL))?;
    let word = match (observe, connects) {
        (Observe::All, _) => notify::ALL,
        (Observe::Denials, ConnectHandling::Notified) => notify::CONNECTIONS,
        (Observe::Denials, ConnectHandling::Isolated | ConnectHandling::KernelExceptUnixPaths) => {
            notify::DENIALS
        }
    };
    let held = for_notify_handler.iter().map(AsFd::as_fd);
    let namespaces = [inside.user.as_fd(), inside.mount.as_fd()];
    let mut descriptors = vec![listener.as_fd()];
    descriptors.extend(held.clone().take(1).chain(namespaces).chain(held.skip(1)));
    send_bytes_with_fds(supervisor, &[word], &descriptors)
        .during("send the listener to the notify handler")
}

/// Spawns a program at a path with these arguments. Returns its pid.
pub(super) type SpawnFn<'a> = dyn Fn(&CString, &[CString]) -> std::io::Result<i32> + 'a;

/// Starts the command, confined by the Landlock rules if there are any. Returns its pid, or `None` if
/// it could not be executed.
pub(super) fn start(
    launch: &LaunchSpec,
    control: &OwnedFd,
    mask: &SignalSet,
    rlimits: &[ResourceLimit],
    landlock: Option<BorrowedFd<'_>>,
) -> Result<Option<i32>, SetupError> {
    let text = |bytes: &Vec<u8>| {
        CString::new(bytes.as_slice())
            .map_err(|_| SetupError::new("read the command", libc::EINVAL))
    };
    let arguments = launch.command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let variables = launch.variables.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    rustix::process::chdir(launch.cwd.as_path()).during(|| format!("enter {}", launch.cwd))?;
    let how = SpawnOptions {
        isolation: SpawnIsolation::SameSession,
        descriptors: &[],
        rlimits,
        mask,
        landlock,
    };
    let spawn = |path: &CString, arguments: &[CString]| {
        process::spawn_with(path, arguments, &variables, &how)
    };
    match execute(&arguments, &variables, &spawn) {
        Ok(pid) => Ok(Some(pid)),
        Err(errno) => {
            info!(target: "init", errno, "cannot execute the command");
            send_message(control, &SandboxMessage::NotExecuted(errno));
            Ok(None)
        }
    }
}

/// Executes the program, searching `PATH` as a shell does.
pub(super) fn execute(
    arguments: &[CString],
    variables: &[CString],
    spawn: &SpawnFn<'_>,
) -> Result<i32, i32> {
    let Some(program) = arguments.first() else { return Err(libc::EINVAL) };
    let spawn = |path: &CString, arguments: &[CString]| {
        spawn(path, arguments).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    };
    let try_one = |path: CString| match spawn(&path, arguments) {
        Err(libc::ENOEXEC) => {
            // A script without an interpreter line is run by the shell.
            let mut script = vec![c"sh".to_owned(), path];
            script.extend_from_slice(&arguments[1..]);
            spawn(&c"/bin/sh".to_owned(), &script)
        }
        other => other,
    };
    if program.as_bytes().contains(&b'/') {
        return try_one(program.clone());
    }
    let path = variables
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    let mut worst = libc::ENOENT;
    for directory in path.split(|byte| *byte == b':') {
        let directory: &[u8] = if directory.is_empty() { b"." } else { directory };
        let Ok(path) = CString::new([directory, b"/", program.as_bytes()].concat()) else {
            continue;
        };
        // Checked first: a failed attempt would cost a fork.
        if rustix::fs::stat(&path).is_ok() {
            match try_one(path) {
                Err(libc::ENOENT | libc::ENOTDIR) => {}
                Err(error) => worst = error,
                started => return started,
            }
        }
    }
    Err(worst)
}

/// Reaps children and handles orders, until the command has ended. Without a command, until the
/// order to end.
pub(super) fn serve(
    command: Option<i32>,
    mut jobs: ExecTable<'_>,
    supervisor: &OwnedFd,
    sigchld_fd: &OwnedFd,
    sockets: Option<&SocketMemory>,
    scope: ProcessScope,
) -> Result<(), SetupError> {
    let control = jobs.control;
    let mut is_paused = false;
    loop {
        while let Ok(Some((pid, change, usage))) = process::wait(-1, Wait::Poll) {
            let ended = exit_status(change).map(|status| (status, resource_usage(&usage)));
            match (ended, change) {
                (Some((status, usage)), _) if command == Some(pid) => {
                    return end(control, supervisor, scope, &SandboxMessage::Ended(status, usage));
                }
                (Some((status, usage)), _) => jobs.report_end(pid, status, usage),
                (None, ChildStatus::Stopped(_)) if command == Some(pid) && !is_paused => {
                    send_message(control, &SandboxMessage::Stopped);
                }
                (None, _) => {}
            }
        }
        let mut waits = [control, sigchld_fd].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut waits, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).during("poll"),
        }
        let gone = waits[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let order = waits[0].revents().contains(PollFlags::IN).then(|| receive(control)).flatten();
        match order {
            // The command may have ended meanwhile, and it may run as another user.
            Some((SandboxOrder::Signal(signal), _)) => {
                drop(command.map(|command| signal::kill(command, signal)))
            }
            Some((SandboxOrder::End, _)) => {
                let (status, usage) = (ExitStatus::Killed(libc::SIGKILL), ResourceUsage::default());
                return end(control, supervisor, scope, &SandboxMessage::Ended(status, usage));
            }
            Some((SandboxOrder::Pause, _)) => {
                is_paused = scope.stop_all();
                send_message(control, &SandboxMessage::Paused);
            }
            Some((SandboxOrder::Resume, _)) => {
                scope.continue_all();
                is_paused = false;
            }
            Some((SandboxOrder::Settle, _)) => {
                notify::flush_reports(supervisor);
                send_message(control, &SandboxMessage::Settled);
            }
            Some((SandboxOrder::Usage, _)) => {
                send_message(control, &SandboxMessage::Usage(measure_usage(sockets)))
            }
            Some((SandboxOrder::Socket, _)) => netns_listeners::send_socket(control),
            Some((SandboxOrder::Start(job), descriptors)) => jobs.start(job, descriptors),
            None if gone => return Ok(()),
            None => {}
        }
        while let Ok(Some(_)) = signal::read_signalfd(sigchld_fd.as_fd()) {}
    }
}

/// Ends the sandbox and sends `report`. Reported when no other process is left, so that the
/// launcher need not wait for init to exit.
fn end(
    control: &OwnedFd,
    supervisor: &OwnedFd,
    scope: ProcessScope,
    report: &SandboxMessage,
) -> Result<(), SetupError> {
    info!(target: "init", report = ?report, "the command has ended");
    scope.end_all();
    debug!(target: "init", "no other process is left");
    notify::flush_reports(supervisor);
    send_message(control, report);
    Ok(())
}

fn receive(control: &OwnedFd) -> Option<(SandboxOrder, Vec<OwnedFd>)> {
    let mut buffer = [0; 64];
    let (length, fds) = receive_bytes_with_fds(control, &mut buffer, RecvFlags::DONTWAIT).ok()?;
    Some((postcard::from_bytes(buffer.get(..length)?).ok()?, fds))
}
