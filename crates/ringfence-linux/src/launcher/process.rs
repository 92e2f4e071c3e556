//! A process in a sandbox, next to its shells.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::apply::{ExecId, ExecSpec, OrphanReaping};
use crate::clock::timespec;
use crate::launcher::system_step::SystemStep;
use ringfence_api::{Outcome, OutputStream, Signal, StdinInput};
use ringfence_provider::{
    Interrupter, OutputSink, ProcessSpec, ProcessStdio, ProviderError, SandboxedProcess,
    StdinFeeder, Terminal,
};
use ringfence_shell::BoundedCapture;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::launcher::deadline::Deadline;
use crate::launcher::limit_monitor::CommandUsage;
use crate::launcher::pack_environment;
use crate::launcher::shell::stdin::{StdinFeed, StdinPipe};
use crate::launcher::shell::{
    CommandEnd, ShellHost, StartedProcess, command_result, ended, pid_of, process_tree,
};
use crate::launcher::terminal::PtyMaster;

/// Time to react to each signal: interrupt, terminate.
const GRACE: Duration = Duration::from_secs(2);

/// Interval of checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct SandboxProcess {
    host: Arc<dyn ShellHost>,
    job: ExecId,
    started: StartedProcess,
    pid: i32,
    streams: [Option<OwnedFd>; 2],
    feed: Option<Arc<StdinFeed>>,
    stdin_pipe: Option<StdinPipe>,
    kept: [BoundedCapture; 2],
    begun: Instant,
    /// Time limit.
    allowed: Option<Duration>,
    deadline: Option<Instant>,
    interrupted: Arc<AtomicBool>,
    /// Signals left to try; the last one is repeated.
    signals_left: &'static [i32],
    timed_out: bool,
    spent: CommandUsage,
}

/// The process for init to start, without its streams.
fn exec_spec(spec: &ProcessSpec) -> ExecSpec {
    ExecSpec {
        command: spec.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
        variables: pack_environment(&spec.environment),
        cwd: spec.cwd.clone(),
        numbers: Vec::new(),
        terminal: None,
        orphans: OrphanReaping::ByInit,
    }
}

impl SandboxProcess {
    pub(crate) fn start(
        host: Arc<dyn ShellHost>,
        spec: &ProcessSpec,
    ) -> Result<Self, ProviderError> {
        let what = "create process pipes";
        let mut start = exec_spec(spec);
        let mut given: Vec<OwnedFd> = Vec::new();
        let (mut streams, mut limit) = ([None, None], 0);
        let (mut feed, mut stdin_pipe) = (None, None);
        match &spec.streams {
            ProcessStdio::Terminal(size) => start.terminal = Some(*size),
            ProcessStdio::Pipes { input, limit: most }
            | ProcessStdio::Merged { input, limit: most } => {
                limit = *most;
                let is_merged = matches!(spec.streams, ProcessStdio::Merged { .. });
                for (number, stream) in
                    [1, 2].into_iter().zip(&mut streams).take(if is_merged { 1 } else { 2 })
                {
                    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).during(what)?;
                    rustix::io::ioctl_fionbio(&ours, true).during(what)?;
                    *stream = Some(ours);
                    given.push(theirs);
                    start.numbers.push(number);
                }
                if is_merged {
                    given.push(given[0].try_clone().during(what)?);
                    start.numbers.push(2);
                }
                feed = (*input == StdinInput::Streamed)
                    .then(StdinFeed::new)
                    .transpose()
                    .during(what)?;
                if let Some((ours, theirs)) = StdinPipe::open(input, feed.clone()).during(what)? {
                    stdin_pipe = Some(ours);
                    given.push(theirs);
                    start.numbers.push(0);
                }
            }
        }
        let descriptors: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        let (job, started) = host.start(&start, &descriptors)?;
        let pid = pid_of(&started.pidfd).unwrap_or_default();
        let spent = CommandUsage::new(&host.limits());
        let begun = Instant::now();
        Ok(Self {
            host,
            job,
            started,
            pid,
            streams,
            feed,
            stdin_pipe,
            kept: [BoundedCapture::new(limit), BoundedCapture::new(limit)],
            begun,
            allowed: spec.deadline,
            deadline: spec.deadline.map(|limit| Deadline::new(begun, limit).polite),
            interrupted: Arc::default(),
            signals_left: &[libc::SIGINT, libc::SIGTERM, libc::SIGKILL],
            timed_out: false,
            spent,
        })
    }

    /// Waits for an event; true if the process has ended.
    fn wait_event(&self) -> Result<bool, ProviderError> {
        let mut waits = vec![PollFd::new(&self.started.pidfd, PollFlags::IN)];
        waits
            .extend(self.streams.iter().flatten().map(|stream| PollFd::new(stream, PollFlags::IN)));
        waits.extend(
            self.stdin_pipe
                .as_ref()
                .and_then(StdinPipe::poll_target)
                .map(|(what, flags)| PollFd::from_borrowed_fd(what, flags)),
        );
        let left = self.deadline.map_or(POLL_INTERVAL, |deadline| {
            POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))
        });
        let left = timespec(left);
        match poll(&mut waits, Some(&left)) {
            Ok(_) => Ok(!waits[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error).during("wait for a process"),
        }
    }

    fn read(&mut self, buffer: &mut [u8], sink: &mut OutputSink<'_>) {
        for ((end, stream), kept) in
            self.streams.iter_mut().zip([OutputStream::Out, OutputStream::Err]).zip(&mut self.kept)
        {
            while let Some(open) = end {
                match rustix::io::read(open, &mut *buffer) {
                    Ok(0) => *end = None,
                    Ok(length) => {
                        sink(stream, &buffer[..length]);
                        kept.push(&buffer[..length]);
                        self.spent.add_output(length);
                        if self.spent.is_over_output_limit() {
                            break;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Sends the next stronger signal when it is due.
    fn keep_time(&mut self) {
        let is_interrupted = self.interrupted.load(Ordering::SeqCst);
        let is_unwanted =
            self.signals_left.len() == 3 && (is_interrupted || self.spent.is_over_output_limit());
        if !is_unwanted && self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        if !is_interrupted && !self.spent.is_over_output_limit() {
            self.timed_out = true;
            self.spent.record_timeout(self.begun.elapsed(), self.allowed);
        }
        if let Some((signal, signals_left)) = self.signals_left.split_first() {
            if self.pid > 0 {
                process_tree::signal_group(self.pid, *signal);
            }
            self.signals_left =
                if signals_left.is_empty() { self.signals_left } else { signals_left };
            let own = self
                .allowed
                .filter(|_| self.timed_out)
                .map(|limit| Deadline::new(self.begun, limit));
            self.deadline = Some(
                own.and_then(|own| own.after(*signal)).unwrap_or_else(|| Instant::now() + GRACE),
            );
        }
    }
}

impl SandboxedProcess for SandboxProcess {
    fn terminal(&self) -> Option<Box<dyn Terminal>> {
        let master = self.started.terminal.as_ref()?.try_clone().ok()?;
        Some(Box::new(PtyMaster::new(master)))
    }

    fn interrupter(&self) -> Box<dyn Interrupter> {
        Box::new(ProcessInterrupter(self.interrupted.clone(), self.pid))
    }

    fn feeder(&self) -> Option<Arc<dyn StdinFeeder>> {
        self.feed.clone().map(|feed| feed as Arc<dyn StdinFeeder>)
    }

    fn wait(mut self: Box<Self>, sink: &mut OutputSink<'_>) -> Result<Outcome, ProviderError> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(stdin_pipe) = &mut self.stdin_pipe {
                stdin_pipe.write_pending();
            }
            let is_over = self.wait_event()?;
            self.read(&mut buffer, sink);
            if is_over {
                break;
            }
            self.keep_time();
        }
        let (status, usage) = ended(self.host.as_ref(), self.job, &mut self.spent)?;
        let duration = self.begun.elapsed();
        let Self { kept, timed_out, host, job, spent, .. } = *self;
        let ran = command_result(
            host.as_ref(),
            CommandEnd { status, usage, duration, timed_out, kept, spent },
        );
        host.forget(job);
        Ok(ran)
    }
}

struct ProcessInterrupter(Arc<AtomicBool>, i32);

impl Interrupter for ProcessInterrupter {
    fn interrupt(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn signal(&self, signal: Signal) {
        if self.1 > 0 {
            process_tree::signal_group(self.1, signal.linux_number());
        }
    }
}
