//! Supervision of one command: passes signals on, keeps the time limit, captures output.

mod masked;
mod relay;

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::apply::{
    Cgroup, LaunchError, SandboxControl, SandboxEvent, SandboxHandle, SandboxMessage,
};
use crate::clock::timespec;
use crate::launcher::sandbox_monitor::SandboxMonitor;
use crate::launcher::system_step::SystemStep;
use ringfence_api::{CommandRequest, ExitStatus, Outcome, ResourceUsage, StdioMode, StreamOutput};
use ringfence_provider::ProviderError;
use ringfence_shell::BoundedCapture;
use ringfence_sys::signal::{self, ReceivedSignal, SignalSender, SignalSet};
use rustix::event::{PollFd, PollFlags, poll};
use tracing::info;

use crate::launcher::deadline::Deadline;
use crate::launcher::limit_monitor::{CommandUsage, LimitMonitor};
use crate::launcher::orphans::TeardownMode;
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
        let signals = signal::signalfd(set).during("receive signals")?;
        let early = read_early_signals(signals.as_fd());
        let (mut pipes, mut relay) = (Vec::new(), None);
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let started = match request.stdio {
            StdioMode::Inherit => {
                match seen.is_guessed.then(Relay::new).transpose().during("make a pipe")?.flatten()
                {
                    None => start(own, mask),
                    Some((made, ends)) => {
                        relay = Some(made);
                        let stderr = ends.stderr.as_fd();
                        start([own[0], if ends.is_both { stderr } else { own[1] }, stderr], mask)
                    }
                }
            }
            StdioMode::Capture { limit } => {
                let pipe = || {
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).during("make a pipe")
                };
                let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
                for reader in [out, err] {
                    rustix::io::ioctl_fionbio(&reader, true).during("make a pipe")?;
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
            failed => drop(failed.during("wait for the command")?),
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
