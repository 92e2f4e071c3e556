//! A process beside the shells of a sandbox.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_api::{OutputStream, ShellCommandResult, StdinInput};
use ringfence_enforce::apply::{ExecId, ExecSpec, OrphanReaping};
use ringfence_provider::{
    Interrupter, OutputSink, ProcessSpec, ProcessStdio, ProviderError, SandboxedProcess,
    StdinFeeder,
};
use ringfence_shell::BoundedCapture;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;

use crate::deadline::Deadline;
use crate::limit_monitor::CommandUsage;
use crate::packed;
use crate::shell::stdin::{StdinFeed, StdinPipe};
use crate::shell::{CommandEnd, ShellHost, StartedProcess, ended, number, process_tree, ran};

/// How long it may take to mind each of: interrupt, terminate.
const GRACE: Duration = Duration::from_secs(2);

/// So often somebody else is asked whether it is to go on.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) struct SandboxProcess {
    place: Arc<dyn ShellHost>,
    job: ExecId,
    started: StartedProcess,
    pid: i32,
    streams: [Option<OwnedFd>; 2],
    feed: Option<Arc<StdinFeed>>,
    intake: Option<StdinPipe>,
    kept: [BoundedCapture; 2],
    begun: Instant,
    /// How long it may take.
    allowed: Option<Duration>,
    deadline: Option<Instant>,
    interrupted: Arc<AtomicBool>,
    /// The signals that are left to try, the last of which is tried again and again.
    firmer: &'static [i32],
    timed_out: bool,
    spent: CommandUsage,
}

impl SandboxProcess {
    pub(crate) fn start(
        place: Arc<dyn ShellHost>,
        how: &ProcessSpec,
    ) -> Result<Self, ProviderError> {
        let wrong = |source| ProviderError::System { what: "make the pipes of a process", source };
        let system = |error: Errno| wrong(error.into());
        let mut start = ExecSpec {
            command: how.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            variables: packed(&how.variables),
            cwd: how.cwd.clone(),
            numbers: Vec::new(),
            terminal: None,
            orphans: OrphanReaping::Left,
        };
        let mut given: Vec<OwnedFd> = Vec::new();
        let (mut streams, mut limit) = ([None, None], 0);
        let (mut feed, mut intake) = (None, None);
        match &how.streams {
            ProcessStdio::Terminal(size) => start.terminal = Some(*size),
            ProcessStdio::Pipes { input, limit: most }
            | ProcessStdio::Merged { input, limit: most } => {
                limit = *most;
                let is_merged = matches!(how.streams, ProcessStdio::Merged { .. });
                for (number, stream) in
                    [1, 2].into_iter().zip(&mut streams).take(if is_merged { 1 } else { 2 })
                {
                    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(system)?;
                    rustix::io::ioctl_fionbio(&ours, true).map_err(system)?;
                    *stream = Some(ours);
                    given.push(theirs);
                    start.numbers.push(number);
                }
                if is_merged {
                    given.push(given[0].try_clone().map_err(wrong)?);
                    start.numbers.push(2);
                }
                feed =
                    (*input == StdinInput::Fed).then(StdinFeed::new).transpose().map_err(wrong)?;
                if let Some((ours, theirs)) = StdinPipe::open(input, feed.clone()).map_err(wrong)? {
                    intake = Some(ours);
                    given.push(theirs);
                    start.numbers.push(0);
                }
            }
        }
        let descriptors: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        let (job, started) = place.start(&start, &descriptors)?;
        let pid = number(&started.pidfd).unwrap_or_default();
        let spent = CommandUsage::within(&place.limits());
        let begun = Instant::now();
        Ok(Self {
            place,
            job,
            started,
            pid,
            streams,
            feed,
            intake,
            kept: [BoundedCapture::new(limit), BoundedCapture::new(limit)],
            begun,
            allowed: how.deadline,
            deadline: how.deadline.map(|limit| Deadline::new(begun, limit).polite),
            interrupted: Arc::default(),
            firmer: &[libc::SIGINT, libc::SIGTERM, libc::SIGKILL],
            timed_out: false,
            spent,
        })
    }

    /// Until something happens; answers whether it has ended.
    fn look(&self) -> Result<bool, ProviderError> {
        let mut waits = vec![PollFd::new(&self.started.pidfd, PollFlags::IN)];
        waits
            .extend(self.streams.iter().flatten().map(|stream| PollFd::new(stream, PollFlags::IN)));
        waits.extend(
            self.intake
                .as_ref()
                .and_then(StdinPipe::waits)
                .map(|(what, flags)| PollFd::from_borrowed_fd(what, flags)),
        );
        let left = self
            .deadline
            .map_or(LOOK, |deadline| LOOK.min(deadline.saturating_duration_since(Instant::now())));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut waits, Some(&left)) {
            Ok(_) => Ok(!waits[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => {
                Err(ProviderError::System { what: "wait for a process", source: error.into() })
            }
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
                        self.spent.wrote(length);
                        if self.spent.is_too_much() {
                            break;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Asks more and more firmly.
    fn keep_time(&mut self) {
        let is_interrupted = self.interrupted.load(Ordering::SeqCst);
        let is_unwanted = self.firmer.len() == 3 && (is_interrupted || self.spent.is_too_much());
        if !is_unwanted && self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        if !is_interrupted && !self.spent.is_too_much() {
            self.timed_out = true;
            self.spent.took(self.begun.elapsed(), self.allowed);
        }
        if let Some((signal, firmer)) = self.firmer.split_first() {
            if self.pid > 0 {
                process_tree::signal_group(self.pid, *signal);
            }
            self.firmer = if firmer.is_empty() { self.firmer } else { firmer };
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
    fn terminal(&self) -> Option<BorrowedFd<'_>> {
        self.started.terminal.as_ref().map(AsFd::as_fd)
    }

    fn interrupter(&self) -> Box<dyn Interrupter> {
        Box::new(ProcessInterrupter(self.interrupted.clone(), self.pid))
    }

    fn feeder(&self) -> Option<Arc<dyn StdinFeeder>> {
        self.feed.clone().map(|feed| feed as Arc<dyn StdinFeeder>)
    }

    fn wait(
        mut self: Box<Self>,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(intake) = &mut self.intake {
                intake.pour();
            }
            let is_over = self.look()?;
            self.read(&mut buffer, sink);
            if is_over {
                break;
            }
            self.keep_time();
        }
        let (status, usage) = ended(self.place.as_ref(), self.job, &mut self.spent)?;
        let duration = self.begun.elapsed();
        let Self { kept, timed_out, place, job, spent, .. } = *self;
        let ran =
            ran(place.as_ref(), CommandEnd { status, usage, duration, timed_out, kept, spent });
        place.forget(job);
        Ok(ran)
    }
}

struct ProcessInterrupter(Arc<AtomicBool>, i32);

impl Interrupter for ProcessInterrupter {
    fn interrupt(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn signal(&self, number: i32) {
        if self.1 > 0 {
            process_tree::signal_group(self.1, number);
        }
    }
}
