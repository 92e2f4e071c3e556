//! Supervision of one command: passes signals on, keeps the time limit, captures output.

mod config;
mod masked;
mod own_files;
mod relay;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::apply::{
    Cgroup, ConfigChange, CreatedName, FileIdentity, LaunchError, NameKind, NetnsListeners,
    PendingConnect, PendingWrite, SandboxControl, SandboxEvent, SandboxFds, SandboxHandle,
    SandboxMessage,
};
use crate::clock::timespec;
use crate::inode::InodeId;
use ringfence_api::{
    CommandRequest, ConnectionRecord, Denial, ExitStatus, GrantedAccess, Operation, Outcome,
    ResourceUsage, StdioMode, StreamOutput,
};
use ringfence_plan::Plan;
use ringfence_policy::{AbsPath, Limits};
use ringfence_provider::ProviderError;
use ringfence_shell::BoundedCapture;
use ringfence_survey::RememberedFiles;
use ringfence_sys::signal::{self, ReceivedSignal, SignalSender, SignalSet};
use rustix::event::{PollFd, PollFlags, poll};
use tracing::{debug, info};

use crate::launcher::allowance_log::AllowanceLog;
use crate::launcher::asks::LivePolicy;
use crate::launcher::deadline::Deadline;
use crate::launcher::denial_log::DenialLog;
use crate::launcher::egress::{
    EgressCaller, EgressGate, EgressGuard, EgressServer, ReservedPorts, host_port_denial,
};
use crate::launcher::git_config::KnownConfigs;
use crate::launcher::git_sweep::identity;
use crate::launcher::limit_monitor::{CommandUsage, LimitMonitor};
use crate::launcher::lookups::Lookups;
use crate::launcher::optional::mark_optional;
use crate::launcher::orphans::TeardownMode;
use crate::launcher::tripwire_server::TripwireServer;
use crate::launcher::watcher_thread::{WatcherStage, WatcherThread};
pub(crate) use masked::Masked;
use masked::{TERMINAL_SIGNALS, forwarded_signals};
use relay::Relay;

/// A running command that reports events.
pub(crate) trait SupervisedCommand {
    fn descriptor(&self) -> BorrowedFd<'_>;
    fn next(&mut self) -> Result<SandboxEvent, LaunchError>;
    fn signal(&self, signal: i32);
    fn end(&self);
    /// Kills it from outside.
    fn kill(&self) {
        self.end();
    }
    fn wait(&mut self);
    fn leave(&mut self);
    /// Pid of the supervisor, and the CPU that the sandbox was built on.
    fn supervisor(&self) -> (Option<i32>, Option<usize>) {
        (None, None)
    }
    /// Handle for a thread that may have to stop the sandbox.
    fn control(&self) -> Option<SandboxControl> {
        None
    }
    /// Cgroup that counts the command's usage.
    fn group(&self) -> Option<Arc<Cgroup>> {
        None
    }
}

impl SupervisedCommand for SandboxHandle {
    fn descriptor(&self) -> BorrowedFd<'_> {
        SandboxHandle::fd(self)
    }
    fn next(&mut self) -> Result<SandboxEvent, LaunchError> {
        SandboxHandle::next_event(self)
    }
    fn signal(&self, signal: i32) {
        SandboxHandle::signal(self, signal);
    }
    fn end(&self) {
        SandboxHandle::end(self);
    }
    fn kill(&self) {
        SandboxHandle::kill(self);
    }
    fn wait(&mut self) {
        SandboxHandle::wait(self);
    }
    fn leave(&mut self) {
        SandboxHandle::release(self);
    }
    fn supervisor(&self) -> (Option<i32>, Option<usize>) {
        (self.supervisor_pid(), self.cpu())
    }
    fn control(&self) -> Option<SandboxControl> {
        Some(SandboxHandle::control(self))
    }
    fn group(&self) -> Option<Arc<Cgroup>> {
        SandboxHandle::cgroup(self)
    }
}

/// Observations about a command, kept also if it ended in an error of ours.
#[derive(Debug, Default)]
pub(crate) struct SandboxMonitor {
    /// Git markers that the command created.
    pub(crate) made: Vec<CreatedName>,
    /// Files with a denied name that the command created or wrote: git tracks them, or made them.
    pub(crate) own_files: HashMap<AbsPath, FileIdentity>,
    /// Their contents when the last command of a session ended, until the next one begins.
    pub(crate) left_contents: Option<RememberedFiles>,
    /// Directories of further markers, by identity: not all of very many are held open.
    pub(crate) more: HashSet<InodeId>,
    /// Set when there are further markers without an identity.
    pub(crate) has_unknown: bool,
    /// Set once the command was started.
    pub(crate) is_started: bool,
    /// Decides which hosts the command reaches, if it reaches any.
    pub(crate) gate: Option<Arc<EgressGate>>,
    /// Ports of the host that lead into the sandbox, until they are opened.
    pub(crate) ports: ReservedPorts,
    /// The egress server, while it runs.
    pub(crate) egress: Option<EgressGuard>,
    /// The tripwire server, if there is a tripwire.
    pub(crate) tripwire: Option<TripwireServer>,
    /// The policy in force, if it can change.
    pub(crate) policy: Option<Arc<LivePolicy>>,
    /// Fds that reach into the sandbox.
    pub(crate) inside: Option<Arc<SandboxFds>>,
    /// State of the watcher for paths that appear.
    pub(crate) watcher: WatcherStage,
    /// Git markers that came from outside while the command ran, once it has ended.
    pub(crate) foreign: HashSet<FileIdentity>,
    /// Set once the tripwire is mounted.
    pub(crate) is_wired: bool,
    /// Allowed accesses, if they are reported.
    pub(crate) observed: AllowanceLog,
    /// Denials, except those that the tripwire server knows.
    pub(crate) denials: DenialLog,
    /// DNS responder for programs that look up names by themselves.
    pub(crate) lookups: Lookups,
    /// Resource limits of the command.
    pub(crate) limits: Limits,
    /// The limit monitor, if one is needed.
    pub(crate) limit_monitor: Option<LimitMonitor>,
    /// True if denied reads are guessed from standard error, because nothing reports them.
    pub(crate) is_guessed: bool,
    /// The user's settings in git configs that the command changes.
    pub(crate) configs: KnownConfigs,
}

impl SandboxMonitor {
    /// Removes the tripwire from a plan if it could not be mounted.
    pub(crate) fn correct_plan(&self, plan: &mut Plan) {
        if self.is_started && !self.is_wired {
            plan.replace_tripwire_by_gap();
        }
    }

    /// Starts the limit monitor, as soon as a process exists that can use resources.
    pub(crate) fn start_limit_monitor(&mut self, subject: &dyn SupervisedCommand) {
        if let ((Some(supervisor), _), Some(control)) = (subject.supervisor(), subject.control()) {
            self.limit_monitor =
                LimitMonitor::new(&self.limits, supervisor, control, subject.group());
        }
    }

    /// Prepares for a command that is about to run.
    pub(crate) fn begin_command(&mut self) -> Result<(), ProviderError> {
        self.limit_monitor.as_mut().map_or(Ok(()), LimitMonitor::start)
    }

    /// Takes all denials so far.
    pub(crate) fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        let own = std::mem::take(&mut self.denials);
        let others = self
            .tripwire
            .as_ref()
            .map(TripwireServer::take_denials)
            .into_iter()
            .chain(self.gate.as_ref().map(|gate| gate.take_denials()));
        let others = others.chain([self.lookups.take_denials()]);
        others.fold(own, DenialLog::merge).into_parts()
    }

    /// Takes the connections since the last call.
    pub(crate) fn take_connections(&self) -> (Vec<ConnectionRecord>, u64) {
        self.gate.as_ref().map(|gate| gate.take_connections().into_parts()).unwrap_or_default()
    }

    /// Handles events about the sandbox; returns an event about a process.
    pub(crate) fn handle_event(
        &mut self,
        event: SandboxEvent,
        subject: &dyn SupervisedCommand,
    ) -> Result<Option<SandboxEvent>, ProviderError> {
        let SandboxEvent { message, mut fds, waiting } = event;
        let sandbox = subject.supervisor().0;
        match message {
            SandboxMessage::Denied(denial) if is_missing(&denial) => {}
            SandboxMessage::Denied(denial) => self.note_denial(*denial),
            SandboxMessage::PendingWrite(info) if is_missing(&info.denial) => drop(waiting),
            SandboxMessage::PendingWrite(info) => match (&self.tripwire, waiting) {
                (Some(tripwire), Some(waiting)) => {
                    tripwire.ask_write(PendingWrite::new(info, waiting))
                }
                _ => self.denials.record(info.denial),
            },
            SandboxMessage::ConfigChange(info) => {
                let change = ConfigChange::new(info, fds, waiting);
                change.into_iter().for_each(|change| self.replace_config(change))
            }
            SandboxMessage::Allowed(allowance) => self.observed.note(*allowance),
            SandboxMessage::Unlisted(more) => self.observed.add_unlisted(more),
            SandboxMessage::NameCreated(path, what, birth) => {
                self.watcher.record_created(birth);
                match (what, birth) {
                    (NameKind::DeniedFile, Some(birth)) => self.note_own_file(path, birth),
                    (NameKind::DeniedFile, None) => {}
                    _ => self.note(CreatedName { directory: fds.pop(), path, what }),
                }
            }
            SandboxMessage::Settled => self.watcher.record_flush(),
            SandboxMessage::Usage(account) => {
                self.limit_monitor.iter().for_each(|monitor| monitor.set_init_usage(account))
            }
            SandboxMessage::SpaceTaken(taken) => {
                self.limit_monitor.iter().for_each(|monitor| monitor.set_space_taken(taken))
            }
            SandboxMessage::Paused => self.watcher.record_pause(),
            SandboxMessage::EntryFds => {
                let Some(inside) = SandboxFds::from_fds(fds, sandbox.map(i32::cast_unsigned))
                else {
                    return Ok(Some(SandboxMessage::Closed.into()));
                };
                debug!(target: "launcher", sandbox, "the notify handler serves the sandbox");
                self.start_watcher(inside, subject)?
            }
            SandboxMessage::TripwireMounted(init) => {
                let Some(device) = fds.pop() else {
                    return Ok(Some(SandboxMessage::Closed.into()));
                };
                debug!(target: "launcher", sandbox, init, "serves the tripwire");
                self.is_wired = true;
                if let Some(tripwire) = &self.tripwire {
                    let (supervisor, processor) = subject.supervisor();
                    tripwire.serve(device, [supervisor.unwrap_or_default(), init], processor);
                }
            }
            message => {
                let event = SandboxEvent { message, fds, waiting };
                return self.handle_network_event(event, subject);
            }
        }
        Ok(None)
    }

    /// Handles events about sockets and names; returns an event about a process.
    fn handle_network_event(
        &mut self,
        event: SandboxEvent,
        subject: &dyn SupervisedCommand,
    ) -> Result<Option<SandboxEvent>, ProviderError> {
        let SandboxEvent { message, mut fds, waiting } = event;
        match message {
            SandboxMessage::Listeners(more) => {
                let Some(listeners) = NetnsListeners::from_fds(fds, more) else {
                    return Ok(Some(SandboxMessage::Closed.into()));
                };
                let Some(gate) = &self.gate else { return Ok(None) };
                let Some(control) = subject.control() else { return Ok(None) };
                // A program may connect before the sandbox is reported as built.
                self.tripwire.iter().for_each(TripwireServer::start_asking);
                self.egress = Some(EgressServer::open(
                    listeners,
                    gate.clone(),
                    std::mem::take(&mut self.ports),
                    control,
                )?);
            }
            SandboxMessage::Socket => {
                if let (Some(egress), Some(socket)) = (&self.egress, fds.pop()) {
                    egress.handle_socket(socket);
                }
            }
            SandboxMessage::PendingConnect(info) => {
                let program = PendingConnect::new(info, fds.pop(), waiting);
                if let (Some(egress), Some(program)) = (&self.egress, program) {
                    egress.handle_connect(program);
                }
            }
            SandboxMessage::DatagramSent(to, pid, program) => {
                self.gate.iter().for_each(|gate| gate.record_datagrams(to, pid, program.clone()))
            }
            SandboxMessage::UnservedPort(port, pid, program) => {
                let caller = EgressCaller::new(pid, program);
                let denial = self.policy.as_ref().and_then(|policy| {
                    policy.network(None, |rules| host_port_denial(rules, port, &caller))
                });
                denial.into_iter().for_each(|denial| self.note_denial(denial));
            }
            SandboxMessage::DnsLookup(name, pid, program) => {
                self.gate.iter().for_each(|gate| gate.record_lookup(&name, pid, &program))
            }
            SandboxMessage::DnsQueries(pid, program) => {
                if let Some(socket) = fds.pop() {
                    let policy = self.policy.clone();
                    self.lookups.serve_socket(socket.into(), (pid, program), policy)
                }
            }
            message => return Ok(Some(SandboxEvent { message, fds, waiting })),
        }
        Ok(None)
    }

    /// Takes the accesses that an answer granted since the last call.
    pub(crate) fn take_granted(&self) -> Vec<GrantedAccess> {
        self.tripwire.as_ref().map(TripwireServer::take_granted).unwrap_or_default()
    }

    /// Records a denial.
    fn note_denial(&mut self, denial: Denial) {
        let denial = self.policy.as_ref().map_or_else(
            || denial.clone(),
            |policy| policy.read(|grants| mark_optional(denial.clone(), grants)),
        );
        self.denials.record(denial);
    }

    fn start_watcher(
        &mut self,
        inside: SandboxFds,
        subject: &dyn SupervisedCommand,
    ) -> Result<(), ProviderError> {
        let watcher_nodes = self.tripwire.as_ref().and_then(TripwireServer::watcher_nodes);
        let inside =
            Arc::new(if watcher_nodes.is_some() { inside } else { inside.without_tripwire() });
        self.tripwire.iter().for_each(TripwireServer::start_asking);
        if let Some(policy) = &self.policy {
            policy.set_sandbox_fds(&inside);
        }
        self.inside = Some(inside.clone());
        let WatcherStage::Wanted(made) = &mut self.watcher else { return Ok(()) };
        let made = std::mem::take(made);
        let begun = subject.control().ok_or_else(|| std::io::ErrorKind::Unsupported.into());
        let begun =
            begun.and_then(|control| WatcherThread::start(inside, watcher_nodes, control, made));
        let watcher =
            begun.map_err(|source| ProviderError::System { what: "start the watcher", source })?;
        if let Some(policy) = &self.policy {
            policy.set_watcher_restart(watcher.restart_handle());
        }
        self.watcher = WatcherStage::Begun(watcher);
        Ok(())
    }

    fn note(&mut self, made: CreatedName) {
        const MAX_KEPT: usize = 256;
        match made.directory.as_ref().and_then(identity) {
            Some(place)
                if self.made.iter().any(|known| {
                    known.what == made.what
                        && known.directory.as_ref().and_then(identity) == Some(place)
                }) => {}
            Some(_) if self.made.len() < MAX_KEPT => self.made.push(made),
            // Its contents would have to be searched for everywhere.
            Some(_) if made.what == NameKind::Tree => self.has_unknown = true,
            Some(identity) => {
                self.more.insert(identity);
            }
            None => self.has_unknown = true,
        }
    }
}

/// Time that init may take to end everything, before the sandbox is killed from outside.
const GRACE: Duration = Duration::from_secs(2);

type StartFn<'a> = dyn FnMut([BorrowedFd<'_>; 3], &SignalSet) -> Result<Box<dyn SupervisedCommand>, LaunchError>
    + 'a;

/// Starts a command and supervises it to its end, with the signals of `masked` blocked.
pub(crate) fn run<F>(
    request: &CommandRequest,
    end_mode: TeardownMode,
    seen: &mut SandboxMonitor,
    masked: &Masked,
    mut start: F,
) -> Result<Outcome, ProviderError>
where
    F: FnMut([BorrowedFd<'_>; 3], &SignalSet) -> Result<Box<dyn SupervisedCommand>, LaunchError>,
{
    let set = SignalSet::from_signals(&forwarded_signals());
    CommandLoop::start(request, &set, &masked.0, seen, &mut start)
        .and_then(|command_loop| command_loop.supervise(end_mode))
}

struct CommandLoop<'a> {
    request: &'a CommandRequest,
    subject: Box<dyn SupervisedCommand>,
    signals: OwnedFd,
    /// Pipe and captured output of each stream; the pipe is `None` after its end.
    pipes: Vec<(Option<OwnedFd>, BoundedCapture)>,
    /// Relay of standard error to the caller's own.
    relay: Option<Relay>,
    begun: Instant,
    deadline: Option<Instant>,
    timed_out: bool,
    is_ending: bool,
    spent: CommandUsage,
    seen: &'a mut SandboxMonitor,
    ended: Option<(ExitStatus, ResourceUsage)>,
}

/// Signals that came while the sandbox was prepared. The terminal's are passed on too: no command
/// existed yet that could have received them.
fn read_early_signals(signals: BorrowedFd<'_>) -> Vec<i32> {
    std::iter::from_fn(|| signal::read_signalfd(signals).ok().flatten())
        .map(|arrived| arrived.signal)
        .collect()
}

impl<'a> CommandLoop<'a> {
    fn start(
        request: &'a CommandRequest,
        set: &SignalSet,
        mask: &SignalSet,
        seen: &'a mut SandboxMonitor,
        start: &mut StartFn<'_>,
    ) -> Result<Self, ProviderError> {
        let system = |what: &'static str| {
            move |error: rustix::io::Errno| ProviderError::System { what, source: error.into() }
        };
        let signals = signal::signalfd(set)
            .map_err(|source| ProviderError::System { what: "receive signals", source })?;
        let early = read_early_signals(signals.as_fd());
        let (mut pipes, mut relay) = (Vec::new(), None);
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let started = match request.stdio {
            StdioMode::Inherit => match seen
                .is_guessed
                .then(Relay::new)
                .transpose()
                .map_err(system("make a pipe"))?
                .flatten()
            {
                None => start(own, mask),
                Some((made, ends)) => {
                    relay = Some(made);
                    let stderr = ends.stderr.as_fd();
                    start([own[0], if ends.is_both { stderr } else { own[1] }, stderr], mask)
                }
            },
            StdioMode::Capture { limit } => {
                let pipe = || {
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                        .map_err(system("make a pipe"))
                };
                let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
                for reader in [out, err] {
                    rustix::io::ioctl_fionbio(&reader, true).map_err(system("make a pipe"))?;
                    pipes.push((Some(reader), BoundedCapture::new(limit)));
                }
                start([rustix::stdio::stdin(), out_end.as_fd(), err_end.as_fd()], mask)
            }
        };
        let begun = Instant::now();
        let subject = started.map_err(|error| not_started(request, error))?;
        let sandbox = subject.supervisor().0;
        info!(target: "launcher", sandbox, "sent the plan to the supervisor");
        seen.start_limit_monitor(subject.as_ref());
        seen.begin_command()?;
        early
            .iter()
            .filter(|signal| **signal != libc::SIGXFSZ)
            .for_each(|signal| subject.signal(*signal));
        Ok(Self {
            request,
            subject,
            signals,
            pipes,
            relay,
            begun,
            deadline: request.deadline.map(|limit| Deadline::new(begun, limit).polite),
            timed_out: false,
            is_ending: false,
            spent: CommandUsage::new(&seen.limits),
            seen,
            ended: None,
        })
    }

    fn supervise(mut self, end_mode: TeardownMode) -> Result<Outcome, ProviderError> {
        loop {
            let ready = self.wait()?;
            if ready.signal {
                self.pass_on();
            }
            self.drain();
            if ready.event {
                let event =
                    self.subject.next().map_err(|error| not_started(self.request, error))?;
                // A helper that died without a report may have got that far.
                self.seen.is_started |= !matches!(
                    event.message,
                    SandboxMessage::NotExecuted(_)
                        | SandboxMessage::TripwireMounted(_)
                        | SandboxMessage::EntryFds
                );
                if self.note(event)?.is_break() {
                    break;
                }
            }
            self.keep_time();
        }
        match end_mode {
            TeardownMode::Wait => self.subject.wait(),
            TeardownMode::Leave => self.subject.leave(),
        }
        self.drain();
        let duration = self.begun.elapsed();
        info!(target: "launcher", status = ?self.ended, ?duration, "the sandbox has ended");
        let Some((status, usage)) = self.ended else {
            // A breached limit may have ended it without a report.
            let is_over_limit =
                self.seen.limit_monitor.as_ref().is_some_and(LimitMonitor::has_fatal_breach);
            if !self.timed_out && !self.is_ending && !is_over_limit {
                return Err(not_started(self.request, LaunchError::Silent));
            }
            return Ok(self.finish(
                ExitStatus::Killed(libc::SIGKILL),
                ResourceUsage::default(),
                duration,
            ));
        };
        Ok(self.finish(status, usage, duration))
    }

    fn finish(self, status: ExitStatus, usage: ResourceUsage, duration: Duration) -> Outcome {
        let breaches = self.spent.finish(
            status,
            self.seen.limit_monitor.take().iter().flat_map(LimitMonitor::take_breaches).collect(),
        );
        let granted = self.seen.take_granted();
        // Open connections end with the egress server and are then recorded.
        self.seen.egress = None;
        let (connections, connections_dropped) = self.seen.take_connections();
        let (denials, denials_dropped) = self.seen.take_denials();
        let mut output = self.pipes.into_iter().map(|(_, capture)| capture.finish());
        let (stdout, mut stderr): (StreamOutput, StreamOutput) =
            (output.next().unwrap_or_default(), output.next().unwrap_or_default());
        if let Some(relay) = self.relay {
            let is_cut = self.timed_out || self.is_ending;
            stderr =
                relay.finish(if is_cut { Some(Instant::now()) } else { self.deadline }).finish();
        }
        Outcome {
            stdout,
            stderr,
            status,
            connections,
            connections_dropped,
            denials,
            denials_dropped,
            granted,
            timed_out: self.timed_out,
            breaches,
            duration_ms: duration.as_millis() as u64,
            usage,
            ..Outcome::default()
        }
    }

    /// Waits until an event, a signal, output, or the deadline.
    fn wait(&self) -> Result<LoopWake, ProviderError> {
        let mut waits = vec![
            PollFd::from_borrowed_fd(self.subject.descriptor(), PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        waits.extend(self.relay.iter().filter_map(Relay::polled));
        waits.extend(
            self.pipes
                .iter()
                .filter_map(|(pipe, _)| pipe.as_ref())
                .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
        );
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(timespec);
        match poll(&mut waits, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(ProviderError::System {
                    what: "wait for the command",
                    source: error.into(),
                });
            }
        }
        Ok(LoopWake {
            event: !waits[0].revents().is_empty(),
            signal: !waits[1].revents().is_empty(),
        })
    }

    /// Passes signals on, except those of the terminal, which the command has received itself, and
    /// SIGXFSZ from the kernel, which is about a file that ringfence itself writes.
    fn pass_on(&mut self) {
        while let Ok(Some(ReceivedSignal { signal, sender })) =
            signal::read_signalfd(self.signals.as_fd())
        {
            let is_ours = TERMINAL_SIGNALS.contains(&signal) || signal == libc::SIGXFSZ;
            if sender == SignalSender::Process || !is_ours {
                self.subject.signal(signal);
            }
        }
    }

    fn drain(&mut self) {
        self.relay.iter_mut().for_each(Relay::pass_on);
        if self.pipes.is_empty() {
            return;
        }
        // On the heap: the caller may have a stack limit below this size.
        let mut buffer = vec![0; 64 * 1024];
        for (pipe, capture) in &mut self.pipes {
            while let Some(reader) = pipe {
                match rustix::io::read(reader, buffer.as_mut_slice()) {
                    Ok(0) => *pipe = None,
                    Ok(length) => {
                        self.spent.add_output(length);
                        capture.push(&buffer[..length]);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
                if self.spent.is_over_output_limit() {
                    break;
                }
            }
        }
    }

    /// Handles an event. Breaks when the command has ended or the sandbox is gone.
    fn note(&mut self, event: SandboxEvent) -> Result<ControlFlow<()>, ProviderError> {
        let event = self.seen.handle_event(event, self.subject.as_ref())?;
        match event.map(|event| event.message) {
            Some(SandboxMessage::NotExecuted(errno)) => {
                let command = self.request.command[0].to_string_lossy().into_owned();
                return Err(ProviderError::NotExecuted {
                    command,
                    source: std::io::Error::from_raw_os_error(errno),
                });
            }
            // Stop as well, so that the caller's shell sees a stopped job. With a time limit we
            // stay awake: a command must not stop the clock.
            Some(SandboxMessage::Stopped)
                if self.request.stdio == StdioMode::Inherit && self.deadline.is_none() =>
            {
                // The watcher and notify handler cannot work meanwhile, so they stop too.
                let control = self.subject.control();
                control.iter().for_each(SandboxControl::pause);
                let _ = signal::raise(libc::SIGSTOP);
                control.iter().for_each(SandboxControl::resume);
                self.subject.signal(libc::SIGCONT);
            }
            Some(SandboxMessage::Ended(status, usage)) => {
                self.ended = Some((status, usage));
                return Ok(ControlFlow::Break(()));
            }
            Some(SandboxMessage::Closed) => return Ok(ControlFlow::Break(())),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn keep_time(&mut self) {
        if self.spent.is_over_output_limit() && !self.is_ending {
            self.subject.end();
            self.is_ending = true;
            self.deadline = Some(Instant::now() + GRACE);
        }
        if self.ended.is_some() || self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        if self.is_ending {
            // Init did not end it in time.
            self.subject.kill();
            self.deadline = None;
        } else if self.timed_out {
            self.subject.end();
            self.is_ending = true;
            self.deadline = Some(Instant::now() + GRACE);
        } else {
            self.timed_out = true;
            self.spent.record_timeout(self.begun.elapsed(), self.request.deadline);
            self.subject.signal(libc::SIGTERM);
            info!(target: "launcher", "sent SIGTERM to the command: time limit");
            self.deadline =
                self.request.deadline.map(|limit| Deadline::new(self.begun, limit).hard);
        }
    }
}

struct LoopWake {
    event: bool,
    signal: bool,
}

fn not_started(request: &CommandRequest, error: LaunchError) -> ProviderError {
    let command =
        request.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    ProviderError::NotStarted { command, hint: error.hint().into(), source: Box::new(error) }
}

/// True if the target does not exist on the host either, or was to be created in a directory that
/// does not exist.
fn is_missing(denial: &Denial) -> bool {
    let target = std::path::Path::new(&denial.target);
    let is_absent = |path: &std::path::Path| std::fs::symlink_metadata(path).is_err();
    match denial.operation {
        Operation::Create | Operation::Rename => {
            denial.rule == Denial::NO_RULE_ALLOWS && target.parent().is_some_and(is_absent)
        }
        // The notify handler had it open when it denied the write: a command may have removed it
        // since.
        Operation::Write if Denial::SANDBOX_RULES.contains(&denial.rule.as_str()) => false,
        Operation::Read | Operation::Write | Operation::Execute => is_absent(target),
        Operation::Connect | Operation::Call | Operation::Command => false,
    }
}
