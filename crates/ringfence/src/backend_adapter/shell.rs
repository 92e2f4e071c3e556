//! The shell of a program's sandbox. It drives the futures of the backend on the calling thread.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ringfence_api::{
    ExecuteResult, ExitStatus, LimitBreach, Outcome, OutputStream, ShellCommand, ShellState,
    Signal, StreamOutput, lock,
};
use ringfence_policy::{AbsPath, Limit};
use ringfence_provider::{Interrupter, OutputSink, ProviderError, SandboxShell, StdinFeeder};
use ringfence_shell::BoundedCapture;

use super::not_executed;
use crate::{Command, SandboxBackend};

/// Time for the backend to end a command at its time limit by itself, and to report its output.
const GRACE: Duration = Duration::from_secs(1);

/// The status of a command whose future was dropped, as after Ctrl-C.
const INTERRUPTED: ExitStatus = ExitStatus::Killed(2);

pub(super) struct BackendShell {
    backend: Arc<dyn SandboxBackend>,
    cwd: Option<AbsPath>,
    control: Arc<ShellControl>,
}

/// The controls of the command that runs, or of the next one.
#[derive(Default)]
struct ShellControl {
    is_interrupted: AtomicBool,
    /// Of the last command.
    events: Mutex<Option<Sender<ShellEvent>>>,
}

enum ShellEvent {
    Output(OutputStream, Vec<u8>),
    Woken,
}

/// The end of a command.
enum FutureEnd {
    Result(Box<ExecuteResult>),
    /// Its future was dropped.
    Interrupted,
    /// As [`FutureEnd::Interrupted`], at the time limit.
    TimedOut,
}

impl BackendShell {
    pub(super) fn new(backend: Arc<dyn SandboxBackend>, cwd: AbsPath) -> Self {
        Self { backend, cwd: Some(cwd), control: Arc::default() }
    }

    /// Polls the command's future until its end, and passes its output on.
    fn drive(
        &self,
        line: &ShellCommand,
        until: Option<Instant>,
        on_output: &mut OutputSink<'_>,
    ) -> Result<FutureEnd, ProviderError> {
        let (sender, events) = mpsc::channel();
        *lock(&self.control.events) = Some(sender.clone());
        let output = sender.clone();
        let sink = move |stream, bytes: &[u8]| {
            // After the end of the command its output goes nowhere.
            let _ = output.send(ShellEvent::Output(stream, bytes.to_vec()));
        };
        let command = Command { line: line.clone(), sink: Some(Box::new(sink)) };
        let waker = Waker::from(Arc::new(EventWaker(sender)));
        let mut future = self.backend.execute(command);
        let end = loop {
            if self.control.is_interrupted.swap(false, Ordering::SeqCst) {
                break FutureEnd::Interrupted;
            }
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => {
                    break FutureEnd::Result(Box::new(result.map_err(not_executed)?));
                }
                Poll::Pending => {}
            }
            match next_event(&events, until) {
                Some(event) => pass_on(event, on_output),
                None => break FutureEnd::TimedOut,
            }
        };
        drop(future);
        events.try_iter().for_each(|event| pass_on(event, on_output));
        Ok(end)
    }
}

/// The next event; `None` at the time limit.
fn next_event(events: &Receiver<ShellEvent>, until: Option<Instant>) -> Option<ShellEvent> {
    let Some(until) = until else { return events.recv().ok() };
    events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

fn pass_on(event: ShellEvent, on_output: &mut OutputSink<'_>) {
    if let ShellEvent::Output(stream, bytes) = event {
        on_output(stream, &bytes);
    }
}

impl SandboxShell for BackendShell {
    fn execute(
        &mut self,
        line: &ShellCommand,
        sink: &mut OutputSink<'_>,
    ) -> Result<Outcome, ProviderError> {
        let begun = Instant::now();
        let mut streamed = [BoundedCapture::new(line.limit), BoundedCapture::new(line.limit)];
        let mut is_streamed = false;
        let until = line.deadline.and_then(|limit| begun.checked_add(limit.saturating_add(GRACE)));
        let end = self.drive(line, until, &mut |stream, bytes| {
            is_streamed = true;
            streamed[usize::from(stream == OutputStream::Err)].push(bytes);
            sink(stream, bytes);
        })?;
        let timed_out = matches!(end, FutureEnd::TimedOut);
        let mut ran = match end {
            FutureEnd::Result(result) => {
                let cwd = result.cwd.clone().filter(|_| result.shell == ShellState::Alive);
                self.cwd = cwd.and_then(AbsPath::new);
                if !is_streamed {
                    sink(OutputStream::Out, &result.stdout.bytes);
                    sink(OutputStream::Err, &result.stderr.bytes);
                }
                from_result(*result, line.limit)
            }
            FutureEnd::Interrupted | FutureEnd::TimedOut => {
                let [stdout, stderr] = streamed.map(BoundedCapture::finish);
                let interrupted = ExecuteResult { timed_out, ..ExecuteResult::default() };
                let ran = from_result(interrupted, line.limit);
                Outcome { stdout, stderr, status: INTERRUPTED, ..ran }
            }
        };
        ran.duration_ms = begun.elapsed().as_millis() as u64;
        if let Some(limit) = line.deadline.filter(|_| ran.timed_out) {
            let (configured, observed) = (limit.as_millis() as u64, ran.duration_ms);
            ran.breaches.retain(|breach| breach.limit != Limit::Wall);
            ran.breaches.push(LimitBreach { limit: Limit::Wall, configured, observed });
        }
        Ok(ran)
    }

    fn interrupter(&self) -> Box<dyn Interrupter> {
        Box::new(BackendInterrupter(self.control.clone()))
    }

    fn feeder(&mut self) -> io::Result<Arc<dyn StdinFeeder>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn id(&self) -> &str {
        self.backend.id()
    }

    fn cwd(&self) -> Option<AbsPath> {
        self.cwd.clone()
    }
}

/// The part of a result that the backend knows, with at most `limit` bytes of each stream.
fn from_result(result: ExecuteResult, limit: usize) -> Outcome {
    let keep = |output: ringfence_api::CapturedOutput| {
        let mut kept = BoundedCapture::new(limit);
        kept.push(&output.bytes);
        let kept = kept.finish();
        StreamOutput { dropped: kept.dropped + output.dropped, ..kept }
    };
    Outcome {
        stdout: keep(result.stdout),
        stderr: keep(result.stderr),
        background: keep(result.background),
        status: ExitStatus::Exited(result.exit_code),
        timed_out: result.timed_out,
        breaches: result.breaches,
        duration_ms: result.duration_ms,
        usage: result.usage,
        denials: result.denials,
        denials_dropped: result.denials_dropped,
        granted: result.granted,
        shell: result.shell,
        ..Outcome::default()
    }
}

/// Interrupts a command: its future is dropped.
struct BackendInterrupter(Arc<ShellControl>);

impl Interrupter for BackendInterrupter {
    fn interrupt(&self) {
        self.0.is_interrupted.store(true, Ordering::SeqCst);
        if let Some(events) = &*lock(&self.0.events) {
            let _ = events.send(ShellEvent::Woken);
        }
    }

    fn signal(&self, _: Signal) {
        self.interrupt();
    }
}

struct EventWaker(Sender<ShellEvent>);

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.0.send(ShellEvent::Woken);
    }
}
