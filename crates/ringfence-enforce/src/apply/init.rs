//! The sandbox's first process: gives up every privilege, starts the command, reaps, and
//! takes everything with it when it ends.

use std::ffi::CString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_api::ResourceUsage;
use ringfence_policy::{Limit, Observe};
use ringfence_sys::process::{
    self, ChildStatus, LimitedResource, ResourceLimit, SpawnIsolation, SpawnOptions, Wait,
};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{landlock, namespace, privilege, seccomp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::exec_table::ExecTable;
use super::helper::{
    CpuPinning, NetnsSource, all_handed_over, hand_over_with, handed_over, is_gone, map_ids, tell,
};
use super::socket_memory::SocketMemory;
use super::{
    InitUsage, LaunchSpec, MOST_DESCRIPTORS, MemoryCounter, SandboxMessage, SandboxOrder,
    SetupError, SetupStep, build, freeze, netns_listeners, notify, probe,
};
use crate::plan::{NetworkNamespace, Plan, Step};
use crate::seccomp::{
    ConnectHandling, FileOwner, FilterOptions, GroupSignals, Uncounted, ready_filter,
};

/// What ties the first process to those outside.
pub(super) struct InitArgs<'a> {
    /// To the caller.
    pub(super) control: &'a OwnedFd,
    /// To the warden.
    pub(super) warden: &'a OwnedFd,
    pub(super) network: NetnsSource,
    /// The signal mask that the command is to start with.
    pub(super) mask: &'a SignalSet,
    pub(super) stay: &'a CpuPinning,
}

/// Does not return: the process ends with the command.
pub(super) fn main(ties: &InitArgs<'_>) -> ! {
    if let Err(fault) = run(ties) {
        tell(ties.control, &SandboxMessage::Failed(fault.what, fault.errno));
    }
    process::exit_now(0)
}

fn run(ties: &InitArgs<'_>) -> Result<(), SetupError> {
    let InitArgs { control, warden, .. } = *ties;
    privilege::die_with_parent(libc::SIGKILL).during(|| "prctl(PR_SET_PDEATHSIG)".into())?;
    // Ignored by whoever started us, it would reap the command before we hear of its end.
    signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Default)
        .during(|| "sigaction(SIGCHLD)".into())?;
    // Here and not in the warden: /proc can only be mounted from among the processes it shows.
    let ground = build::PreparedRoot::lay()?;
    let Some((launch, for_usher)) = told(control)? else { return Ok(()) };
    // Not before: the group that we are in by now is the root of all that are seen inside.
    namespace::unshare(namespace::CGROUP).during(|| "unshare(CLONE_NEWCGROUP)".into())?;
    let launch = &launch;
    if let Some(files) = launch.open_files {
        limit_files(files)?;
    }
    let ceilings = ceilings(&launch.plan);
    let wire = handed_over(warden).map(|[wire]| wire);
    build::build(launch, ground, wire)?;
    if let Some(most) = launch.plan.most(Limit::Processes) {
        limit_processes(most);
    }
    own_null()?;
    if ties.network == NetnsSource::New {
        join_network(warden)?;
    }
    if launch.plan.steps.contains(&Step::Egress) {
        netns_listeners::open(control, &launch.plan)?;
    }
    let sockets = limit_kernel_memory(launch);
    let mut inside = None;
    for step in &launch.plan.steps {
        match step {
            Step::Lock => inside = Some(lock(launch, warden)?),
            Step::Landlock => restrict()?,
            Step::Seccomp => refuse_calls(launch, warden, inside.as_ref(), &for_usher)?,
            _ => {}
        }
    }
    // The lock ends with the usher, so that no other process may keep it open.
    drop(for_usher);
    ties.stay.end();
    // Children are told by descriptor; the mask was taken before, so the command gets its own.
    let children = SignalSet::of(&[libc::SIGCHLD]);
    signal::block(&children).during(|| "pthread_sigmask".into())?;
    let ended = signal::descriptor(&children).during(|| "signalfd".into())?;
    let command = if launch.command.is_empty() {
        tell(control, &SandboxMessage::Standing);
        None
    } else {
        match start(launch, control, ties.mask, &ceilings)? {
            Some(command) => Some(command),
            None => return Ok(()),
        }
    };
    attend(command, ExecTable::new(control, ties.mask, ceilings), &ended, sockets.as_ref())
}

/// Waits to be told what to do, and takes over the standard streams; `None` if the caller has
/// changed its mind. Answers what the usher gets of it, too: the plan as it came, and the project's
/// lock, where there is one.
fn told(control: &OwnedFd) -> Result<Option<(LaunchSpec, Vec<OwnedFd>)>, SetupError> {
    let Some(mut given) = all_handed_over(control).filter(|given| given.len() >= 4) else {
        return Ok(None);
    };
    let for_usher = given.split_off(3);
    let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(given) else { return Ok(None) };
    rustix::stdio::dup2_stdin(stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr))
        .during(|| "take over the standard streams".into())?;
    let launch = LaunchSpec::read(&for_usher[0])
        .ok_or_else(|| SetupError { what: "read the plan".into(), errno: libc::EBADMSG })?;
    Ok(Some((launch, for_usher)))
}

/// As many files may be open from here on.
fn limit_files(most: u64) -> Result<(), SetupError> {
    let limit = Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).during(|| "setrlimit(RLIMIT_NOFILE)".into())
}

/// What the kernel itself lets every process have no more of. Higher than it is now, nothing can
/// be made from here.
fn ceilings(plan: &Plan) -> Vec<ResourceLimit> {
    let counted = [
        (LimitedResource::OpenFiles, Resource::Nofile, plan.most(Limit::OpenFiles)),
        (LimitedResource::FileSize, Resource::Fsize, plan.most(Limit::FileSize)),
        (
            LimitedResource::Processes,
            Resource::Nproc,
            plan.most(Limit::Processes).map(nproc_ceiling),
        ),
    ];
    let within =
        |resource, most: u64| getrlimit(resource).maximum.map_or(most, |now| most.min(now));
    counted
        .into_iter()
        .filter_map(|(of, resource, most)| {
            Some(ResourceLimit { of, most: within(resource, most?) })
        })
        .collect()
}

/// Bounds the pids of the sandbox's own pid namespace (Linux 6.14), for root too, whom
/// `RLIMIT_NPROC` does not hold.
///
/// Once the kernel's pid counter has passed `RESERVED_PIDS`, it wraps to that number and never
/// gives out a lower one again. So the pids above it must be enough for the sandbox's whole life,
/// and the counter is set there at once: otherwise 299 more pids could be had before it wraps.
fn limit_processes(most: u64) {
    const RESERVED_PIDS: u64 = 300;
    const LARGEST: u64 = 4_194_304;
    if probe::has_own_numbers() {
        // A failed write leaves the bound to the limit monitor. `ns_last_pid` is only there with
        // CONFIG_CHECKPOINT_RESTORE.
        let pid_max = RESERVED_PIDS.saturating_add(pid_room(most)).min(LARGEST);
        let _ = std::fs::write("/proc/sys/kernel/pid_max", pid_max.to_string());
        let _ = std::fs::write("/proc/sys/kernel/ns_last_pid", RESERVED_PIDS.to_string());
    }
}

/// Pids for `most` processes. A process that has ended keeps its pid while others are in its
/// process group or session, so a live one may need two.
fn pid_room(most: u64) -> u64 {
    most.saturating_mul(2).saturating_add(16)
}

/// `RLIMIT_NPROC` for `most` processes: exactly one more can be started, which the limit monitor
/// sees and ends everything for. The rest are ours, which the kernel counts for the same user
/// namespace: init, the notify handler, and the processes that wait at a FIFO for a caller.
fn nproc_ceiling(most: u64) -> u64 {
    const OURS: u64 = 2;
    const AT_FIFOS: u64 = 4;
    most.saturating_add(1 + OURS + AT_FIFOS)
}

/// Lowers what the kernel holds for a sandbox beside its processes, where no cgroup counts it.
/// Answers the counter for sockets, which must be opened before the filter: inside, netlink is for
/// routes only. On the host's network it would count the host's sockets.
fn limit_kernel_memory(launch: &LaunchSpec) -> Option<SocketMemory> {
    /// With 16 KiB each, and up to 1 MiB where all messages are empty.
    const MESSAGE_QUEUES: &str = "32";
    if launch.memory == MemoryCounter::Complete {
        return None;
    }
    let _ = std::fs::write("/proc/sys/kernel/msgmni", MESSAGE_QUEUES);
    (launch.plan.network() == NetworkNamespace::Own).then(SocketMemory::open).flatten()
}

fn account(sockets: Option<&SocketMemory>) -> InitUsage {
    /// `struct msg_msg`, as the kernel allocates it for an empty message.
    const MESSAGE: u64 = 64;
    let sum = |of: &str, size: fn(&[u64]) -> u64| {
        let table = std::fs::read_to_string(format!("/proc/sysvipc/{of}")).unwrap_or_default();
        let numbers = |line: &str| {
            line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>()
        };
        table.lines().skip(1).map(|line| size(&numbers(line))).sum::<u64>()
    };
    // Columns 14 and 15: what of a segment is in memory, and what was moved out of it.
    let segments = sum("shm", |line| line.iter().skip(14).sum());
    // Columns 3 and 4: the bytes in a queue, and its messages. Only root may lower the number of
    // queues.
    let queues = sum("msg", |line| line.get(3..5).map_or(0, |queue| queue[0] + queue[1] * MESSAGE));
    InitUsage {
        written: process::written_by_children().unwrap_or_default(),
        shared: segments + queues,
        sockets: sockets.map_or(0, SocketMemory::bytes),
    }
}

/// Into the network that the warden made meanwhile.
fn join_network(warden: &OwnedFd) -> Result<(), SetupError> {
    let [network] = handed_over(warden)
        .ok_or_else(|| SetupError { what: "receive the network".into(), errno: libc::EBADMSG })?;
    namespace::enter(network.as_fd(), namespace::NETWORK)
        .during(|| "enter the network namespace".into())
}

/// A standard stream that is the host's `/dev/null` becomes ours: through the host's, root
/// could change its mode for everybody.
fn own_null() -> Result<(), SetupError> {
    let null = rustix::fs::makedev(1, 3);
    let is_null = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream).is_ok_and(|status| status.st_rdev == null)
    };
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let [stdin, stdout, stderr] = streams.map(is_null);
    if !(stdin || stdout || stderr) {
        return Ok(());
    }
    let own = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .during(|| "open /dev/null".into())?;
    let placed = [(stdin, 0), (stdout, 1), (stderr, 2)]
        .into_iter()
        .filter(|(is, _)| *is)
        .try_for_each(|(_, number)| match number {
            0 => rustix::stdio::dup2_stdin(&own),
            1 => rustix::stdio::dup2_stdout(&own),
            _ => rustix::stdio::dup2_stderr(&own),
        });
    placed.during(|| "take over /dev/null".into())
}

/// A user namespace below the warden's: the mounts copied into it are locked together, and
/// whatever could be gained in it reaches neither them nor the other namespaces.
fn lock(launch: &LaunchSpec, warden: &OwnedFd) -> Result<InnerNamespaces, SetupError> {
    let identity = launch.plan.identity().ok_or_else(|| SetupError {
        what: "find an identity in the plan".into(),
        errno: libc::EINVAL,
    })?;
    namespace::unshare(namespace::USER | namespace::MOUNT)
        .during(|| "unshare(CLONE_NEWUSER|CLONE_NEWNS)".into())?;
    map_ids(identity.uid, identity.gid)?;
    limit_watches();
    build::quiet_processes(&launch.plan.steps)?;
    // Opened while this process can still be looked into.
    let open = |kind: &str| {
        rustix::fs::open(
            format!("/proc/self/ns/{kind}"),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    let inside = InnerNamespaces {
        user: open("user").during(|| "open the user namespace".into())?,
        mount: open("mnt").during(|| "open the mount namespace".into())?,
    };
    // A host without keyrings has nothing to hide there.
    match privilege::fresh_session_keyring() {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => {
            Err(error).during(|| "keyctl(KEYCTL_JOIN_SESSION_KEYRING)".into())?
        }
        _ => {}
    }
    give_up(if launch.command.is_empty() { 1 << privilege::CAP_WAKE_ALARM } else { 0 })?;
    privilege::no_new_privileges().during(|| "prctl(PR_SET_NO_NEW_PRIVS)".into())?;
    privilege::not_dumpable().during(|| "prctl(PR_SET_DUMPABLE)".into())?;
    // Asked for last: every change of credentials above would have cleared it.
    privilege::die_with_parent(libc::SIGKILL).during(|| "prctl(PR_SET_PDEATHSIG)".into())?;
    if is_gone(warden) {
        process::exit_now(125);
    }
    Ok(inside)
}

/// Gives up every capability for good, but for one that is of no use here: a shell that has it
/// cannot be looked into by what it starts, which has none.
fn give_up(kept: u64) -> Result<(), SetupError> {
    let needed = 1 << privilege::CAP_SETPCAP;
    privilege::set_all_capabilities(needed, needed | kept, kept).during(|| "capset".into())?;
    privilege::superuser_is_nobody().during(|| "prctl(PR_SET_SECUREBITS)".into())?;
    for number in 0..64 {
        if privilege::drop_bounding(number).is_err() {
            break;
        }
    }
    privilege::set_all_capabilities(0, kept, kept).during(|| "capset".into())
}

/// Watches are counted for the person, who needs some as well, and so do other sandboxes: a
/// command gets a part of them.
fn limit_watches() {
    const INSTANCES: &str = "32";
    let allowed = || {
        std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    // Kernels without the limits count nobody's watches against anybody else's.
    let _ = std::fs::write("/proc/sys/user/max_inotify_instances", INSTANCES);
    let _ = allowed().map(|allowed| {
        std::fs::write("/proc/sys/user/max_inotify_watches", (allowed / 4).to_string())
    });
}

/// The namespaces the command lives in.
struct InnerNamespaces {
    user: OwnedFd,
    mount: OwnedFd,
}

/// Keeps signals and abstract sockets inside. File rights are left to the mounts, which are
/// locked: to handle any of them would cost every open 5 %.
fn restrict() -> Result<(), SetupError> {
    let scoped = landlock::scope::ABSTRACT_UNIX_SOCKET | landlock::scope::SIGNAL;
    let rules = landlock::scopes(scoped).during(|| "landlock_create_ruleset".into())?;
    landlock::restrict_self(rules.as_fd()).during(|| "landlock_restrict_self".into())
}

/// Installs the filter here, so that it holds for everything started later, and hands the
/// usher its end.
fn refuse_calls(
    launch: &LaunchSpec,
    warden: &OwnedFd,
    inside: Option<&InnerNamespaces>,
    for_usher: &[OwnedFd],
) -> Result<(), SetupError> {
    let steps = &launch.plan.steps;
    let scoped = steps.contains(&Step::Landlock);
    let group_signals = if scoped { GroupSignals::Scoped } else { GroupSignals::Refused };
    let owner = FileOwner::of(launch.plan.identity().map(|identity| identity.uid));
    let observe = if steps.contains(&Step::Observe) { Observe::All } else { Observe::Denials };
    let connects = match launch.plan.network() {
        NetworkNamespace::Host => ConnectHandling::Free,
        NetworkNamespace::Own if steps.contains(&Step::Egress) => ConnectHandling::Asked,
        NetworkNamespace::Own => ConnectHandling::Shut,
    };
    let refused = |is_limited| if is_limited { Uncounted::Refused } else { Uncounted::Allowed };
    let disk = refused(launch.plan.most(Limit::Disk).is_some());
    let memory = refused(launch.memory == MemoryCounter::ByProcess);
    let listener = seccomp::install(&ready_filter(FilterOptions {
        group_signals,
        owner,
        observe,
        connects,
        disk,
        memory,
    }))
    .during(|| "seccomp(SECCOMP_SET_MODE_FILTER)".into())?;
    let inside = inside.ok_or_else(|| SetupError {
        what: "find the lock in the plan".into(),
        errno: libc::EINVAL,
    })?;
    let word = match (observe, connects) {
        (Observe::All, _) => notify::ALL,
        (Observe::Denials, ConnectHandling::Asked) => notify::CONNECTIONS,
        (Observe::Denials, ConnectHandling::Shut | ConnectHandling::Free) => notify::DENIALS,
    };
    let mut descriptors = vec![listener.as_fd(), inside.user.as_fd(), inside.mount.as_fd()];
    descriptors.extend(for_usher.iter().map(AsFd::as_fd));
    hand_over_with(warden, word, &descriptors).during(|| "hand the listener over".into())
}

/// Starts a program at a path with these arguments; answers its number.
pub(super) type SpawnFn<'a> = dyn Fn(&CString, &[CString]) -> std::io::Result<i32> + 'a;

/// Starts the command; answers its process id, or `None` if it could not be executed.
fn start(
    launch: &LaunchSpec,
    control: &OwnedFd,
    mask: &SignalSet,
    ceilings: &[ResourceLimit],
) -> Result<Option<i32>, SetupError> {
    let text = |bytes: &Vec<u8>| {
        CString::new(bytes.as_slice())
            .map_err(|_| SetupError { what: "read the command".into(), errno: libc::EINVAL })
    };
    let arguments = launch.command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let variables = launch.variables.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    rustix::process::chdir(launch.cwd.as_path()).during(|| format!("enter {}", launch.cwd))?;
    let how = SpawnOptions { company: SpawnIsolation::Ours, descriptors: &[], ceilings, mask };
    let spawn = |path: &CString, arguments: &[CString]| {
        process::spawn_as(path, arguments, &variables, &how)
    };
    match execute(&arguments, &variables, &spawn) {
        Ok(pid) => Ok(Some(pid)),
        Err(errno) => {
            tell(control, &SandboxMessage::NotExecuted(errno));
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
            // A script without an interpreter line is the shell's.
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
        // Asked first: to find out by trying would cost a process each time.
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

/// Reaps whatever ends and passes orders on, until the command has ended. Without one, until
/// told to end.
fn attend(
    command: Option<i32>,
    mut jobs: ExecTable<'_>,
    ended: &OwnedFd,
    sockets: Option<&SocketMemory>,
) -> Result<(), SetupError> {
    let control = jobs.control;
    let mut is_paused = false;
    loop {
        while let Ok(Some((pid, change, usage))) = process::wait(-1, Wait::Poll) {
            let usage = ResourceUsage {
                user_us: usage.user_us,
                system_us: usage.system_us,
                max_rss_kb: usage.max_rss_kb,
            };
            if command != Some(pid) {
                jobs.changed(pid, change, usage);
                continue;
            }
            let report = match change {
                ChildStatus::Exited(status) => SandboxMessage::Exited(status, usage),
                ChildStatus::Killed(signal) => SandboxMessage::Killed(signal, usage),
                ChildStatus::Stopped(_) if is_paused => continue,
                ChildStatus::Stopped(signal) => {
                    tell(control, &SandboxMessage::Stopped(signal));
                    continue;
                }
                ChildStatus::Continued => continue,
            };
            // Told when nothing else is left, so that the caller need not wait for us to go.
            end_all();
            wait_for_usher();
            tell(control, &report);
            return Ok(());
        }
        let mut waits = [PollFd::new(control, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).during(|| "poll".into()),
        }
        let gone = waits[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let order = waits[0].revents().contains(PollFlags::IN).then(|| receive(control)).flatten();
        match order {
            // The command may have ended meanwhile, and it may be another user's program.
            Some((SandboxOrder::Signal(signal), _)) => {
                drop(command.map(|command| signal::kill(command, signal)))
            }
            Some((SandboxOrder::End, _)) => {
                end_all();
                wait_for_usher();
                tell(control, &SandboxMessage::Killed(libc::SIGKILL, ResourceUsage::default()));
                return Ok(());
            }
            Some((SandboxOrder::Pause, _)) => {
                is_paused = freeze::stop_all();
                tell(control, &SandboxMessage::Paused);
            }
            Some((SandboxOrder::Resume, _)) => {
                let _ = signal::kill(-1, libc::SIGCONT);
                is_paused = false;
            }
            Some((SandboxOrder::Settle, _)) => {
                let own = wait_for_usher();
                tell(control, &SandboxMessage::Settled);
                // What is started later has our mask.
                rustix::process::umask(own);
            }
            Some((SandboxOrder::Account, _)) => {
                tell(control, &SandboxMessage::Account(account(sockets)))
            }
            Some((SandboxOrder::Socket, _)) => netns_listeners::hand_out(control),
            Some((SandboxOrder::Start(job), descriptors)) => jobs.start(job, descriptors),
            None if gone => return Ok(()),
            None => {}
        }
        while let Ok(Some(_)) = signal::next(ended.as_fd()) {}
    }
}

/// Ends and reaps every other process of the sandbox: orphans become ours.
fn end_all() {
    // Told again after all that could be reaped: what one had just started is new.
    while signal::kill(-1, libc::SIGKILL).is_ok() {
        match process::wait(-1, Wait::Block) {
            Ok(_) => while let Ok(Some(_)) = process::wait(-1, Wait::Poll) {},
            // Those left are not ours: openers of pipes, which end with us.
            Err(_) => return,
        }
    }
}

/// Until the usher has done what it was about to do for those who ended: it serves one call
/// after the other, and this one is ours. Answers the mask that was ours.
fn wait_for_usher() -> Mode {
    rustix::process::umask(Mode::from_raw_mode(0o077))
}

fn receive(control: &OwnedFd) -> Option<(SandboxOrder, Vec<OwnedFd>)> {
    let mut buffer = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let how = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received =
        recvmsg(control, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, how).ok()?;
    let order = postcard::from_bytes(buffer.get(..received.bytes)?).ok()?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
        _ => None,
    });
    Some((order, descriptors.flatten().collect()))
}
