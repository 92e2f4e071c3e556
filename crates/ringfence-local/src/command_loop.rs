//! Standing by a command: passing signals on, keeping time, keeping output.

mod config;
mod masked;
mod own_files;
mod relay;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_api::{
    CommandRequest, ConnectionRecord, Denial, ExitStatus, GrantedAccess, Operation, Outcome,
    ResourceUsage, StdioMode, StreamOutput,
};
use ringfence_enforce::apply::{
    Birth, Cgroup, GitMarker, GitMarkerCreated, LaunchError, Reins, SandboxEvent, SandboxFds,
    SandboxHandle,
};
use ringfence_enforce::{Plan, RememberedFiles};
use ringfence_policy::{AbsPath, Limits};
use ringfence_provider::ProviderError;
use ringfence_shell::BoundedCapture;
use ringfence_sys::signal::{self, ReceivedSignal, SignalSender, SignalSet};
use rustix::event::{PollFd, PollFlags, poll};

use crate::allowance_log::AllowanceLog;
use crate::asks::LivePolicy;
use crate::deadline::Deadline;
use crate::denial_log::DenialLog;
use crate::egress::{EgressGate, EgressGuard, EgressServer, ReservedPorts};
use crate::git_config::KnownConfigs;
use crate::git_sweep::{InodeId, identity};
use crate::limit_monitor::{CommandUsage, LimitMonitor};
use crate::lookups::Lookups;
use crate::optional::marked;
use crate::orphans::Farewell;
use crate::tripwire_server::TripwireServer;
use crate::watcher_thread::{WatcherStage, WatcherThread};
pub(crate) use masked::Masked;
use masked::{OF_THE_TERMINAL, passed_on};
use relay::Relay;

/// Something that runs and tells.
pub(crate) trait SupervisedCommand {
    fn descriptor(&self) -> BorrowedFd<'_>;
    fn next(&mut self) -> Result<SandboxEvent, LaunchError>;
    fn signal(&self, signal: i32);
    fn end(&self);
    /// Ends it from outside.
    fn kill(&self) {
        self.end();
    }
    fn wait(&mut self);
    fn leave(&mut self);
    /// The process that does things for it, and the processor it is built on.
    fn warden(&self) -> (Option<i32>, Option<usize>) {
        (None, None)
    }
    /// For somebody who may have to stop it.
    fn reins(&self) -> Option<Reins> {
        None
    }
    /// By which the kernel counts for it.
    fn group(&self) -> Option<Arc<Cgroup>> {
        None
    }
}

impl SupervisedCommand for SandboxHandle {
    fn descriptor(&self) -> BorrowedFd<'_> {
        SandboxHandle::descriptor(self)
    }
    fn next(&mut self) -> Result<SandboxEvent, LaunchError> {
        SandboxHandle::next(self)
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
        SandboxHandle::leave(self);
    }
    fn warden(&self) -> (Option<i32>, Option<usize>) {
        (self.pid(), self.processor())
    }
    fn reins(&self) -> Option<Reins> {
        Some(SandboxHandle::reins(self))
    }
    fn group(&self) -> Option<Arc<Cgroup>> {
        SandboxHandle::group(self)
    }
}

/// What was seen of a command, also if it ended in an error of ours.
#[derive(Debug, Default)]
pub(crate) struct SandboxMonitor {
    /// Names of git's that it made.
    pub(crate) made: Vec<GitMarkerCreated>,
    /// Files with a denied name that it made or wrote: git tracks them, or made them.
    pub(crate) own_files: HashMap<AbsPath, Birth>,
    /// Their contents when the last command of a session ended, until the next begins.
    pub(crate) left_contents: Option<RememberedFiles>,
    /// Directories of further ones, by identity: of very many, not all are held open.
    pub(crate) more: HashSet<InodeId>,
    /// Whether there are such that nothing is known of.
    pub(crate) has_unknown: bool,
    /// Whether it was started at all.
    pub(crate) is_started: bool,
    /// Who decides which hosts it reaches, where it reaches any.
    pub(crate) gate: Option<Arc<EgressGate>>,
    /// Ports of the host that lead into it, until somebody is let in by them.
    pub(crate) ports: ReservedPorts,
    /// The way to them.
    pub(crate) egress: Option<EgressGuard>,
    /// Who watches what it looks for.
    pub(crate) watch: Option<TripwireServer>,
    /// What holds in it, where something can.
    pub(crate) ground: Option<Arc<LivePolicy>>,
    /// What it takes to reach into it.
    pub(crate) inside: Option<Arc<SandboxFds>>,
    /// Whether somebody is to look out for what appears, and who does.
    pub(crate) live: WatcherStage,
    /// Names of git's that came from outside while it ran, when it has ended.
    pub(crate) foreign: HashSet<Birth>,
    /// Whether there was anything to watch by.
    pub(crate) is_wired: bool,
    /// What went through, where that is told.
    pub(crate) observed: AllowanceLog,
    /// What was refused to it, but for what the watch knows.
    pub(crate) denials: DenialLog,
    /// Answers to programs that look up names by themselves.
    pub(crate) lookups: Lookups,
    /// What it may use only so much of.
    pub(crate) limits: Limits,
    /// Who keeps account of that, where somebody has to.
    pub(crate) steward: Option<LimitMonitor>,
    /// True if denied reads are guessed from standard error, because nothing reports them.
    pub(crate) is_guessed: bool,
    /// Settings of the user in git configs that it changes.
    pub(crate) configs: KnownConfigs,
}

impl SandboxMonitor {
    /// Takes back what a plan says of a tripwire that could not be had.
    pub(crate) fn own_up(&self, plan: &mut Plan) {
        if self.is_started && !self.is_wired {
            plan.unwire();
        }
    }

    /// Whom somebody keeps account of, as soon as there is something that can use anything.
    pub(crate) fn keep_account(&mut self, subject: &dyn SupervisedCommand) {
        if let ((Some(warden), _), Some(reins)) = (subject.warden(), subject.reins()) {
            self.steward = LimitMonitor::over(&self.limits, warden, reins, subject.group());
        }
    }

    /// Something is about to run.
    pub(crate) fn starts(&mut self) -> Result<(), ProviderError> {
        self.steward.as_mut().map_or(Ok(()), LimitMonitor::attend)
    }

    /// All that was refused so far; what follows is counted anew.
    pub(crate) fn refused(&mut self) -> (Vec<Denial>, u64) {
        let own = std::mem::take(&mut self.denials);
        let others = self
            .watch
            .as_ref()
            .map(TripwireServer::take)
            .into_iter()
            .chain(self.gate.as_ref().map(|gate| gate.take()));
        let others = others.chain([self.lookups.take()]);
        others.fold(own, DenialLog::with).into_parts()
    }

    /// Who was connected to since this was asked for last.
    pub(crate) fn connections(&self) -> (Vec<ConnectionRecord>, u64) {
        self.gate.as_ref().map(|gate| gate.connections().into_parts()).unwrap_or_default()
    }

    /// Takes note of what an event tells of the sandbox; answers what it tells of a process.
    pub(crate) fn heed(
        &mut self,
        event: SandboxEvent,
        subject: &dyn SupervisedCommand,
    ) -> Result<Option<SandboxEvent>, ProviderError> {
        match event {
            SandboxEvent::Denied(denial) if is_nowhere(&denial) => {}
            SandboxEvent::Denied(denial) => {
                self.note_denial(denial);
            }
            SandboxEvent::Doors(doors) => {
                let Some(gate) = &self.gate else { return Ok(None) };
                let Some(reins) = subject.reins() else { return Ok(None) };
                // Whoever connects may come before the sandbox is known to stand.
                self.watch.iter().for_each(TripwireServer::begin);
                self.egress = Some(EgressServer::open(
                    doors,
                    gate.clone(),
                    std::mem::take(&mut self.ports),
                    reins,
                )?);
            }
            SandboxEvent::Socket(socket) => {
                if let Some(egress) = &self.egress {
                    egress.arrived(socket);
                }
            }
            SandboxEvent::Connects(program) => match &self.egress {
                Some(egress) => egress.connects(program),
                None => drop(program),
            },
            SandboxEvent::Sent { to, pid, program } => {
                self.gate.iter().for_each(|gate| gate.sent(to, pid, program.clone()))
            }
            SandboxEvent::LooksUp { name, pid, program } => {
                self.gate.iter().for_each(|gate| gate.looks_up(&name, pid, &program))
            }
            SandboxEvent::Queries(pid, program, socket) => {
                self.lookups.answer(socket, (pid, program), self.ground.clone())
            }
            SandboxEvent::Pleads(plea) if is_nowhere(plea.denial()) => drop(plea),
            SandboxEvent::Pleads(plea) => match &self.watch {
                Some(watch) => watch.plead(plea),
                None => self.denials.note(plea.denial().clone()),
            },
            SandboxEvent::ReplacesConfig(change) => self.replace_config(change),
            SandboxEvent::Passed(allowance) => self.observed.note(allowance),
            SandboxEvent::Unlisted(more) => self.observed.unlisted(more),
            SandboxEvent::Made(made) => {
                self.live.made(made.birth);
                match (made.what, made.birth) {
                    (GitMarker::File, Some(birth)) => self.note_own_file(made.path, birth),
                    (GitMarker::File, None) => {}
                    _ => self.note(made),
                }
            }
            SandboxEvent::Settled => self.live.settled(),
            SandboxEvent::Account(account) => {
                self.steward.iter().for_each(|steward| steward.told(account))
            }
            SandboxEvent::TookSpace(taken) => {
                self.steward.iter().for_each(|steward| steward.took_space(taken))
            }
            SandboxEvent::Paused => self.live.paused(),
            SandboxEvent::Inside(inside) => self.look_out(inside, subject)?,
            SandboxEvent::Wired(device, init) => {
                self.is_wired = true;
                if let Some(watch) = &self.watch {
                    let (warden, processor) = subject.warden();
                    watch.serve(device, [warden.unwrap_or_default(), init], processor);
                }
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// What went through since this was asked for last, because somebody said so.
    pub(crate) fn granted(&self) -> Vec<GrantedAccess> {
        self.watch.as_ref().map(TripwireServer::granted).unwrap_or_default()
    }

    /// Notes something that was refused.
    fn note_denial(&mut self, denial: Denial) {
        let denial = self.ground.as_ref().map_or_else(
            || denial.clone(),
            |ground| ground.read(|grants| marked(denial.clone(), grants)),
        );
        self.denials.note(denial);
    }

    fn look_out(
        &mut self,
        inside: SandboxFds,
        subject: &dyn SupervisedCommand,
    ) -> Result<(), ProviderError> {
        let props = self.watch.as_ref().and_then(TripwireServer::props);
        let inside = Arc::new(if props.is_some() { inside } else { inside.unwired() });
        self.watch.iter().for_each(TripwireServer::begin);
        if let Some(ground) = &self.ground {
            ground.let_in(&inside);
        }
        self.inside = Some(inside.clone());
        let WatcherStage::Wanted(made) = &mut self.live else { return Ok(()) };
        let made = std::mem::take(made);
        let begun = subject.reins().ok_or_else(|| std::io::ErrorKind::Unsupported.into());
        let begun = begun.and_then(|reins| WatcherThread::begin(inside, props, reins, made));
        let live = begun.map_err(|source| ProviderError::System {
            what: "look out for what appears",
            source,
        })?;
        if let Some(ground) = &self.ground {
            ground.looked_out_for_by(live.renewal());
        }
        self.live = WatcherStage::Begun(live);
        Ok(())
    }

    fn note(&mut self, made: GitMarkerCreated) {
        const MANY: usize = 256;
        match made.directory.as_ref().and_then(identity) {
            Some(place)
                if self.made.iter().any(|known| {
                    known.what == made.what
                        && known.directory.as_ref().and_then(identity) == Some(place)
                }) => {}
            Some(_) if self.made.len() < MANY => self.made.push(made),
            // What is in it would have to be looked for everywhere.
            Some(_) if made.what == GitMarker::Tree => self.has_unknown = true,
            Some(identity) => {
                self.more.insert(identity);
            }
            None => self.has_unknown = true,
        }
    }
}

/// How long init may take to end everything, before the sandbox is killed from outside.
const GRACE: Duration = Duration::from_secs(2);

type StartFn<'a> = dyn FnMut([BorrowedFd<'_>; 3], &SignalSet) -> Result<Box<dyn SupervisedCommand>, LaunchError>
    + 'a;

/// Starts a command and stays with it to its end, while the signals of `masked` wait.
pub(crate) fn run<F>(
    request: &CommandRequest,
    farewell: Farewell,
    seen: &mut SandboxMonitor,
    masked: &Masked,
    mut start: F,
) -> Result<Outcome, ProviderError>
where
    F: FnMut([BorrowedFd<'_>; 3], &SignalSet) -> Result<Box<dyn SupervisedCommand>, LaunchError>,
{
    let set = SignalSet::of(&passed_on());
    CommandLoop::start(request, &set, &masked.0, seen, &mut start)
        .and_then(|attendance| attendance.stay(farewell))
}

struct CommandLoop<'a> {
    request: &'a CommandRequest,
    subject: Box<dyn SupervisedCommand>,
    signals: OwnedFd,
    /// What is kept of each stream, and where it comes from until its end.
    pipes: Vec<(Option<OwnedFd>, BoundedCapture)>,
    /// Standard error on its way to the caller's own.
    relay: Option<Relay>,
    begun: Instant,
    deadline: Option<Instant>,
    timed_out: bool,
    is_ending: bool,
    spent: CommandUsage,
    seen: &'a mut SandboxMonitor,
    ended: Option<(ExitStatus, ResourceUsage)>,
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
        let signals = signal::descriptor(set)
            .map_err(|source| ProviderError::System { what: "receive signals", source })?;
        // They came while the sandbox was prepared. The terminal's, too, have to be passed on:
        // there was no command yet that could have got them.
        let early: Vec<i32> = std::iter::from_fn(|| signal::next(signals.as_fd()).ok().flatten())
            .map(|arrived| arrived.signal)
            .collect();
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
        seen.keep_account(subject.as_ref());
        seen.starts()?;
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
            spent: CommandUsage::within(&seen.limits),
            seen,
            ended: None,
        })
    }

    fn stay(mut self, farewell: Farewell) -> Result<Outcome, ProviderError> {
        loop {
            let ready = self.wait()?;
            if ready.signal {
                self.pass_on();
            }
            self.drain();
            if ready.event {
                let event =
                    self.subject.next().map_err(|error| not_started(self.request, error))?;
                // A helper that went without a word may have got that far.
                self.seen.is_started |= !matches!(
                    event,
                    SandboxEvent::NotExecuted(_)
                        | SandboxEvent::Wired(..)
                        | SandboxEvent::Inside(_)
                );
                match event {
                    SandboxEvent::Closed => break,
                    event => self.note(event)?,
                }
            }
            if self.ended.is_some() {
                break;
            }
            self.keep_time();
        }
        match farewell {
            Farewell::Wait => self.subject.wait(),
            Farewell::Leave => self.subject.leave(),
        }
        self.drain();
        let duration = self.begun.elapsed();
        let Some((status, usage)) = self.ended else {
            // Too much of something may have ended it without a word.
            let is_too_much = self.seen.steward.as_ref().is_some_and(LimitMonitor::has_ended_it);
            if !self.timed_out && !self.is_ending && !is_too_much {
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
            self.seen.steward.take().iter().flat_map(LimitMonitor::breaches).collect(),
        );
        let granted = self.seen.granted();
        // What is still carried ends with it, and is told of.
        self.seen.egress = None;
        let (connections, connections_dropped) = self.seen.connections();
        let (denials, denials_dropped) = self.seen.refused();
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
            observed: None,
            connections,
            connections_dropped,
            denials,
            denials_dropped,
            granted,
            timed_out: self.timed_out,
            breaches,
            duration_ms: duration.as_millis() as u64,
            usage,
            enforced: Vec::new(),
            gaps: Vec::new(),
            quarantined: Vec::new(),
            refusal: None,
        }
    }

    /// Until something happens or the time is up.
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
        let left = left.map(|left| rustix::time::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
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

    /// A signal that the terminal sent is not passed on: the command has it. SIGXFSZ of the kernel
    /// is about a file that ringfence itself writes.
    fn pass_on(&mut self) {
        while let Ok(Some(ReceivedSignal { signal, sender })) = signal::next(self.signals.as_fd()) {
            let is_ours = OF_THE_TERMINAL.contains(&signal) || signal == libc::SIGXFSZ;
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
        // Not on the stack: a caller may have set a limit of as much for all of it.
        let mut buffer = vec![0; 64 * 1024];
        for (pipe, capture) in &mut self.pipes {
            while let Some(reader) = pipe {
                match rustix::io::read(reader, buffer.as_mut_slice()) {
                    Ok(0) => *pipe = None,
                    Ok(length) => {
                        self.spent.wrote(length);
                        capture.push(&buffer[..length]);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
                if self.spent.is_too_much() {
                    break;
                }
            }
        }
    }

    fn note(&mut self, event: SandboxEvent) -> Result<(), ProviderError> {
        match self.seen.heed(event, self.subject.as_ref())? {
            Some(SandboxEvent::NotExecuted(errno)) => {
                let command = self.request.command[0].to_string_lossy().into_owned();
                return Err(ProviderError::NotExecuted {
                    command,
                    source: std::io::Error::from_raw_os_error(errno),
                });
            }
            // Whoever started us sees a job that stopped, as if it were the command. With a
            // time limit we stay awake: a command must not stop the clock.
            Some(SandboxEvent::Stopped(_))
                if self.request.stdio == StdioMode::Inherit && self.deadline.is_none() =>
            {
                // Nobody would look out or tell meanwhile: all of it stops with us.
                let reins = self.subject.reins();
                reins.iter().for_each(Reins::pause);
                let _ = signal::raise(libc::SIGSTOP);
                reins.iter().for_each(Reins::resume);
                self.subject.signal(libc::SIGCONT);
            }
            Some(SandboxEvent::Ended(status, usage)) => self.ended = Some((status, usage)),
            _ => {}
        }
        Ok(())
    }

    fn keep_time(&mut self) {
        if self.spent.is_too_much() && !self.is_ending {
            self.subject.end();
            self.is_ending = true;
            self.deadline = Some(Instant::now() + GRACE);
        }
        if self.ended.is_some() || self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        if self.is_ending {
            // Whoever was to end it is kept busy.
            self.subject.kill();
            self.deadline = None;
        } else if self.timed_out {
            self.subject.end();
            self.is_ending = true;
            self.deadline = Some(Instant::now() + GRACE);
        } else {
            self.timed_out = true;
            self.spent.took(self.begun.elapsed(), self.request.deadline);
            self.subject.signal(libc::SIGTERM);
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

/// Whether something was wanted that the host does not have either, or was to be made in a
/// directory that it does not have.
fn is_nowhere(denial: &Denial) -> bool {
    let target = std::path::Path::new(&denial.target);
    let is_absent = |path: &std::path::Path| std::fs::symlink_metadata(path).is_err();
    match denial.operation {
        Operation::Create | Operation::Rename => {
            denial.rule == Denial::NOTHING_OPENS_IT && target.parent().is_some_and(is_absent)
        }
        // The notify handler had it open when it refused: a command may have removed it since.
        Operation::Write if Denial::OF_THE_SANDBOX.contains(&denial.rule.as_str()) => false,
        Operation::Read | Operation::Write | Operation::Execute => is_absent(target),
        Operation::Connect | Operation::Call | Operation::Command => false,
    }
}
