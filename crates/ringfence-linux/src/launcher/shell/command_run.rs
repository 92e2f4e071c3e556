//! One command of a shell, from start to end.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringfence_api::{
    ExitStatus, Outcome, OutputStream, ResourceUsage, ShellCommand, ShellState, StdinInput,
};
use ringfence_policy::AbsPath;
use ringfence_provider::{OutputSink, ProviderError, SandboxShell};
use ringfence_shell::{
    BoundedCapture, EndMarker, EndMarkerReader, ShellLine, StdinMode, report_line, script,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::process_tree::CommandStart;
use super::stdin::StdinPipe;
use super::{CommandEnd, PersistentShell, command_result, ended, process_tree};
use crate::clock::timespec;
use crate::launcher::deadline::Deadline;
use crate::launcher::limit_monitor::CommandUsage;
use crate::launcher::system_step::SystemStep;
use crate::locks::lock;

/// Time to react to each signal: interrupt, terminate, kill.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Interval of checks for a shell that did not report an end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The kernel's CPU counters are too coarse for shorter commands.
const MIN_MEASURED: Duration = Duration::from_millis(10);

/// Progress in stopping a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum StopStage {
    NotYet,
    Interrupted,
    Terminated,
    Killed,
    /// The shell itself was killed.
    ShellKilled,
}

pub(super) struct ShellRun<'a> {
    shell: &'a mut PersistentShell,
    word: EndMarker,
    reader: EndMarkerReader,
    /// The rest of the script to write.
    script: Vec<u8>,
    written: usize,
    kept: [BoundedCapture; 2],
    stdin_pipe: Option<StdinPipe>,
    begun: Instant,
    command_start: CommandStart,
    deadline: Option<Instant>,
    ending: StopStage,
    timed_out: bool,
    /// Time limit.
    allowed: Option<Duration>,
    spent: CommandUsage,
    /// Time of a second interrupt.
    again: Option<Instant>,
    /// Set if the shell waited for the next command at the last check.
    is_idle: bool,
    /// Set when no process has the report socket any more.
    is_shut: bool,
    /// Time of the last check if the shell waits for the next command.
    looked: Instant,
    peak: Peak,
}

/// Peak memory of the processes of a command.
///
/// The shell alone gets the peak of processes that it reaped. So they are read while they run: soon
/// and often at first, less often later. The kernel keeps the peak of each, so one read is enough;
/// a process that lives between two reads is missed.
struct Peak {
    kb: u64,
    next: Instant,
    pause: Duration,
}

impl Peak {
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_millis(250);

    fn new(begun: Instant) -> Self {
        Self { kb: 0, next: begun + Self::FIRST, pause: Self::FIRST }
    }

    /// Reads the peak, if it is due.
    fn look(&mut self, shell: i32, command_start: &CommandStart) {
        if Instant::now() < self.next {
            return;
        }
        self.kb = self.kb.max(process_tree::peak_since(shell, command_start));
        self.pause = (self.pause * 2).min(Self::LONGEST);
        self.next = Instant::now() + self.pause;
    }
}

/// End of a command.
pub(super) struct ShellRunEnd {
    status: ExitStatus,
    shell: ShellState,
    /// Usage of the shell, if it has ended.
    all: Option<ResourceUsage>,
}

impl<'a> ShellRun<'a> {
    pub(super) fn begin(
        shell: &'a mut PersistentShell,
        line: &ShellCommand,
    ) -> Result<Self, ProviderError> {
        let word = shell.next_marker().during("create an end marker")?;
        let reads =
            if line.input == StdinInput::Empty { StdinMode::AsTheShell } else { StdinMode::Its };
        let command =
            ShellLine { line: &line.text, reads, errors: line.errors, status: shell.status };
        let script = script(shell.kind, command, &word, shell.host.runner());
        let script =
            script.map_err(|error| ProviderError::NotACommand { source: Box::new(error) })?;
        let fed = shell.feed.take();
        let (stdin_pipe, input) =
            StdinPipe::open(&line.input, fed).during("create a pipe")?.unzip();
        shell.refresh(input)?;
        let mut run = Self::new(shell, script, word);
        run.kept = [BoundedCapture::new(line.limit), BoundedCapture::new(line.limit)];
        run.deadline = line.deadline.map(|limit| Deadline::new(run.begun, limit).polite);
        run.allowed = line.deadline;
        run.spent = CommandUsage::new(&run.shell.host.limits());
        run.shell.host.begin_command();
        run.stdin_pipe = stdin_pipe;
        *lock(&run.shell.command_start) = run.command_start.clone();
        Ok(run)
    }

    /// Script of our own that is no command of the user.
    pub(super) fn internal(
        shell: &'a mut PersistentShell,
        text: &str,
    ) -> Result<Self, ProviderError> {
        let word = shell.next_marker().during("create an end marker")?;
        let script = [text.as_bytes(), &report_line(shell.kind, &word)].concat();
        let mut run = Self::new(shell, script, word);
        run.deadline = Some(run.begun + GRACE);
        Ok(run)
    }

    fn new(shell: &'a mut PersistentShell, script: Vec<u8>, word: EndMarker) -> Self {
        let command_start =
            CommandStart { at: process_tree::now_ticks(), before: shell.background.known() };
        let begun = Instant::now();
        Self {
            shell,
            word,
            reader: EndMarkerReader::default(),
            script,
            written: 0,
            kept: [BoundedCapture::new(0), BoundedCapture::new(0)],
            stdin_pipe: None,
            begun,
            command_start,
            deadline: None,
            ending: StopStage::NotYet,
            timed_out: false,
            allowed: None,
            spent: CommandUsage::default(),
            again: None,
            is_idle: false,
            is_shut: false,
            looked: begun,
            peak: Peak::new(begun),
        }
    }

    /// Runs to the end and returns the result.
    pub(super) fn run_to_result(
        mut self,
        sink: &mut OutputSink<'_>,
    ) -> Result<Outcome, ProviderError> {
        let end = self.run(sink)?;
        self.shell.detach_background();
        Ok(self.into_result(end))
    }

    pub(super) fn run(&mut self, sink: &mut OutputSink<'_>) -> Result<ShellRunEnd, ProviderError> {
        loop {
            self.write_script();
            let ready = self.wait()?;
            self.read(ready.streams, sink);
            if ready.report
                && let Some(status) = self.read_report()?
            {
                // A program with the shell's fd may have woken us: then the shell wrote more, and
                // reported its end, after its streams were read.
                self.read([true; 2], sink);
                return Ok(ShellRunEnd {
                    status: ExitStatus::Exited(status),
                    shell: ShellState::Alive,
                    all: None,
                });
            }
            if ready.gone {
                return self.gone(sink);
            }
            self.keep_time();
            self.peak.look(self.shell.pid, &self.command_start);
            // Not every timeout of the poll means silence: it may be short.
            if ready.nothing && self.looked.elapsed() >= CHECK_INTERVAL && self.is_silent() {
                return Err(ProviderError::ReportFdsClosed);
            }
        }
    }

    /// Writes as much of the script and input as the pipes take.
    fn write_script(&mut self) {
        if let Some(stdin_pipe) = &mut self.stdin_pipe {
            stdin_pipe.write_pending();
        }
        while self.written < self.script.len() {
            match rustix::io::write(&self.shell.pipes.script, &self.script[self.written..]) {
                Ok(more) => self.written += more,
                Err(Errno::INTR) => {}
                // Full, or the shell is gone, which the pidfd shows.
                Err(_) => return,
            }
        }
    }

    fn wait(&self) -> Result<PollReady, ProviderError> {
        let pipes = &self.shell.pipes;
        let mut waits = Vec::with_capacity(5);
        waits.push(PollFd::new(&pipes.pidfd, PollFlags::IN));
        // A closed socket would always be ready.
        waits.extend((!self.is_shut).then(|| PollFd::new(&pipes.report, PollFlags::IN)));
        let first = waits.len();
        waits.extend(
            pipes.streams.iter().flatten().map(|stream| PollFd::new(stream, PollFlags::IN)),
        );
        waits.extend(
            (self.written < self.script.len()).then(|| PollFd::new(&pipes.script, PollFlags::OUT)),
        );
        waits.extend(
            self.stdin_pipe
                .as_ref()
                .and_then(StdinPipe::poll_target)
                .map(|(what, flags)| PollFd::from_borrowed_fd(what, flags)),
        );
        let next = [self.deadline, self.again, Some(self.peak.next)].into_iter().flatten().min();
        let left = next.map_or(CHECK_INTERVAL, |next| {
            CHECK_INTERVAL.min(next.saturating_duration_since(Instant::now()))
        });
        let left = timespec(left);
        match poll(&mut waits, Some(&left)) {
            Ok(ready) => {
                let is_ready = |wait: &PollFd<'_>| !wait.revents().is_empty();
                let mut streams = waits[first..].iter().map(is_ready);
                Ok(PollReady {
                    nothing: ready == 0,
                    report: !self.is_shut && is_ready(&waits[1]),
                    gone: is_ready(&waits[0]),
                    streams: pipes
                        .streams
                        .each_ref()
                        .map(|stream| stream.is_some() && streams.next() == Some(true)),
                })
            }
            Err(Errno::INTR) => {
                Ok(PollReady { nothing: false, report: false, gone: false, streams: [false; 2] })
            }
            Err(error) => Err(error).during("wait for the shell"),
        }
    }

    /// Reads everything written so far to the `ready` streams.
    fn read(&mut self, ready: [bool; 2], sink: &mut OutputSink<'_>) {
        let PersistentShell { pipes, buffer, .. } = &mut *self.shell;
        let streams = pipes
            .streams
            .iter_mut()
            .zip([OutputStream::Out, OutputStream::Err])
            .zip(&mut self.kept)
            .zip(ready);
        for (((end, stream), kept), _) in streams.filter(|(_, is_ready)| *is_ready) {
            while let Some(open) = end {
                match read(open, buffer) {
                    // No process has it any more: the shell redirected it.
                    Ok(0) => *end = None,
                    Ok(length) => {
                        sink(stream, &buffer[..length]);
                        kept.push(&buffer[..length]);
                        self.spent.add_output(length);
                        // A short read means that the pipe is empty.
                        if length < buffer.len() {
                            break;
                        }
                    }
                    Err(_) => break,
                }
            }
        }
    }

    /// The exit status, if the end marker arrived.
    fn read_report(&mut self) -> Result<Option<i32>, ProviderError> {
        /// Bounded, so that another writer cannot keep us busy.
        const MAX_READS: usize = 64;
        let mut report = [0; 512];
        for _ in 0..MAX_READS {
            match recv_report(&self.shell.pipes.report, &mut report) {
                Ok((0, _)) => {
                    self.is_shut = true;
                    return Ok(None);
                }
                // A program that inherited the fd from the shell.
                Ok((_, pid)) if pid != Some(self.shell.pid) => {}
                Ok((length, _)) => {
                    let status = self.reader.push(&report[..length], &self.word);
                    if status.is_some() {
                        return Ok(status);
                    }
                    if self.reader.is_too_noisy() {
                        return Err(ProviderError::ReportFdsClosed);
                    }
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Handles the end of the shell itself.
    fn gone(&mut self, sink: &mut OutputSink<'_>) -> Result<ShellRunEnd, ProviderError> {
        self.read([true; 2], sink);
        self.shell.is_over = true;
        let (status, usage) = ended(self.shell.host.as_ref(), self.shell.job, &mut self.spent)?;
        Ok(ShellRunEnd { status, shell: ShellState::Ended, all: Some(usage) })
    }

    fn into_result(mut self, ShellRunEnd { status, shell, all }: ShellRunEnd) -> Outcome {
        let duration = self.begun.elapsed();
        let usage = self.usage(duration, all);
        if let ExitStatus::Exited(left) = status {
            self.shell.status = left;
        }
        let Self { shell: persistent, kept, timed_out, spent, .. } = self;
        let over = CommandEnd { status, usage, duration, timed_out, kept, spent };
        let mut ran = Outcome {
            shell,
            background: persistent.background_output.take_output(),
            ..command_result(persistent.host.as_ref(), over)
        };
        if status != ExitStatus::Exited(0) {
            let at = persistent.cwd().unwrap_or_else(AbsPath::root);
            ran.denials.extend(persistent.host.guess_denials(&at, &ran.stderr, &ran.denials));
        }
        ran
    }

    /// Usage since the last call.
    fn usage(&mut self, duration: Duration, all: Option<ResourceUsage>) -> ResourceUsage {
        let now = match all {
            Some(all) => all,
            None if duration < MIN_MEASURED => {
                return ResourceUsage { max_rss_kb: self.peak(), ..ResourceUsage::default() };
            }
            None => {
                process_tree::read_stat(self.shell.pid).map_or(self.shell.used, |facts| facts.used)
            }
        };
        let before = std::mem::replace(&mut self.shell.used, now);
        ResourceUsage {
            user_us: now.user_us.saturating_sub(before.user_us),
            system_us: now.system_us.saturating_sub(before.system_us),
            max_rss_kb: now.max_rss_kb.max(self.peak()),
        }
    }

    /// Includes the shell, which ran the command.
    fn peak(&self) -> u64 {
        self.peak.kb.max(process_tree::peak(self.shell.pid).unwrap_or_default())
    }

    /// Sends the next stronger signal when it is due.
    fn keep_time(&mut self) {
        if self.ending == StopStage::NotYet && self.spent.is_over_output_limit() {
            self.deadline = Some(Instant::now());
        } else if self.ending == StopStage::NotYet && self.shell.interrupted.load(Ordering::SeqCst)
        {
            self.ending = StopStage::Interrupted;
            self.deadline = Some(Instant::now() + GRACE);
            // So early, the interrupt may have come before the shell began the command.
            self.again = (self.begun.elapsed() < 2 * CHECK_INTERVAL)
                .then(|| Instant::now() + CHECK_INTERVAL / 2);
        }
        if self.again.take_if(|when| *when <= Instant::now()).is_some() {
            process_tree::signal_group(self.shell.pid, libc::SIGINT);
        }
        if self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let pid = self.shell.pid;
        if self.ending == StopStage::NotYet && !self.spent.is_over_output_limit() {
            self.timed_out = true;
            self.spent.record_timeout(self.begun.elapsed(), self.allowed);
        }
        self.ending = match self.ending {
            StopStage::NotYet => {
                process_tree::signal_group(pid, libc::SIGINT);
                StopStage::Interrupted
            }
            StopStage::Interrupted => {
                // The shell as well: it would continue with the rest of the line.
                process_tree::signal_group(pid, libc::SIGINT);
                process_tree::signal_since(pid, &self.command_start, libc::SIGTERM);
                StopStage::Terminated
            }
            StopStage::Terminated => {
                process_tree::signal_group(pid, libc::SIGINT);
                process_tree::signal_since(pid, &self.command_start, libc::SIGKILL);
                StopStage::Killed
            }
            StopStage::Killed | StopStage::ShellKilled => {
                process_tree::kill_shell(pid);
                StopStage::ShellKilled
            }
        };
        self.deadline = Some(self.next_deadline());
    }

    /// Time of the next step.
    fn next_deadline(&self) -> Instant {
        /// Time for the shell to report a killed command, before the shell itself is killed.
        const REPORT_LIMIT: Duration = Duration::from_millis(500);
        let own =
            self.allowed.filter(|_| self.timed_out).map(|limit| Deadline::new(self.begun, limit));
        match (own, self.ending) {
            (Some(deadline), StopStage::Interrupted) => deadline.firm(),
            (Some(deadline), StopStage::Terminated) => deadline.hard,
            (Some(_), StopStage::Killed) => Instant::now() + REPORT_LIMIT,
            _ => Instant::now() + GRACE,
        }
    }

    /// True if the shell waits for the next command without a report of this one's end: seen twice,
    /// so that it had time to report.
    fn is_silent(&mut self) -> bool {
        self.looked = Instant::now();
        let was_idle = self.is_idle;
        self.is_idle = self.written == self.script.len() && self.shell.waits_for_more();
        was_idle && self.is_idle
    }
}

fn read(from: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(from, &mut *buffer) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Reads a report and its sender's pid. Data of two senders never comes at once.
fn recv_report(report: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Option<i32>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            report,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let pid = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(who) => Some(who.pid.as_raw_nonzero().get()),
        _ => None,
    });
    Ok((received.bytes, pid))
}

struct PollReady {
    nothing: bool,
    report: bool,
    gone: bool,
    streams: [bool; 2],
}
