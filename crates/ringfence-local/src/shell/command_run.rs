//! One command of a shell, from its beginning to its end.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringfence_api::{
    ExitStatus, OutputStream, ResourceUsage, ShellCommand, ShellCommandResult, ShellState,
    StdinInput,
};
use ringfence_policy::AbsPath;
use ringfence_provider::{OutputSink, ProviderError, SandboxShell};
use ringfence_shell::{
    BoundedCapture, EndMarker, EndMarkerReader, ShellLine, StdinMode, script, telling,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::time::Timespec;

use super::process_tree::CommandStart;
use super::stdin::StdinPipe;
use super::{CommandEnd, PersistentShell, ended, process_tree, ran};
use crate::deadline::Deadline;
use crate::limit_monitor::CommandUsage;

/// How long a command may take to mind each of: interrupt, terminate, kill.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// So often it is looked at whether the shell has forgotten to tell.
const LOOK: Duration = Duration::from_millis(200);

/// Shorter commands use less than the kernel tells of.
const SHORT: Duration = Duration::from_millis(10);

/// How far it went with a command that is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum StopStage {
    NotYet,
    Interrupted,
    Terminated,
    Killed,
    /// The shell itself.
    Given,
}

pub(super) struct ShellRun<'a> {
    shell: &'a mut PersistentShell,
    word: EndMarker,
    hearing: EndMarkerReader,
    /// What it is yet to be told.
    script: Vec<u8>,
    told: usize,
    kept: [BoundedCapture; 2],
    intake: Option<StdinPipe>,
    begun: Instant,
    beginning: CommandStart,
    deadline: Option<Instant>,
    ending: StopStage,
    timed_out: bool,
    /// How long it may take.
    allowed: Option<Duration>,
    spent: CommandUsage,
    /// When to interrupt once more.
    again: Option<Instant>,
    /// Whether it was already waiting for the next command when it was looked at.
    is_idle: bool,
    /// Whether nothing more can be told: nobody has that pipe any more.
    is_shut: bool,
    /// When it was last looked whether the shell waits for the next command.
    looked: Instant,
    peak: Peak,
}

/// The most memory that one process of a command was seen to have.
///
/// Only a shell knows it of processes that it has waited for. So they are looked at while they run:
/// soon and often at first, and less often later. The kernel keeps the peak of each, so one that is
/// seen once is known; one that comes and goes between two looks is not.
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

    /// Looks, if it is time.
    fn look(&mut self, shell: i32, beginning: &CommandStart) {
        if Instant::now() < self.next {
            return;
        }
        self.kb = self.kb.max(process_tree::peak_since(shell, beginning));
        self.pause = (self.pause * 2).min(Self::LONGEST);
        self.next = Instant::now() + self.pause;
    }
}

/// How it came to an end.
pub(super) struct ShellRunEnd {
    status: ExitStatus,
    shell: ShellState,
    /// What the shell has used, where it has ended.
    all: Option<ResourceUsage>,
}

impl<'a> ShellRun<'a> {
    pub(super) fn begin(
        shell: &'a mut PersistentShell,
        line: &ShellCommand,
    ) -> Result<Self, ProviderError> {
        let system = |what| move |source: std::io::Error| ProviderError::System { what, source };
        let word = shell.word().map_err(system("make up a word"))?;
        let reads =
            if line.input == StdinInput::Nothing { StdinMode::AsTheShell } else { StdinMode::Its };
        let told = ShellLine { line: &line.text, reads, errors: line.errors, status: shell.status };
        let script = script(shell.kind, told, &word, shell.place.runner());
        let script = script.map_err(|error| ProviderError::NoLine { source: Box::new(error) })?;
        let fed = shell.feed.take();
        let (intake, input) =
            StdinPipe::open(&line.input, fed).map_err(system("make a pipe"))?.unzip();
        shell.refresh(input)?;
        let mut course = Self::new(shell, script, word);
        course.kept = [BoundedCapture::new(line.limit), BoundedCapture::new(line.limit)];
        course.deadline = line.deadline.map(|limit| Deadline::new(course.begun, limit).polite);
        course.allowed = line.deadline;
        course.spent = CommandUsage::within(&course.shell.place.limits());
        course.shell.place.begin();
        course.intake = intake;
        *course.shell.beginning.lock().unwrap_or_else(PoisonError::into_inner) =
            course.beginning.clone();
        Ok(course)
    }

    /// Something that is nobody's command.
    pub(super) fn aside(shell: &'a mut PersistentShell, text: &str) -> Result<Self, ProviderError> {
        let word = shell
            .word()
            .map_err(|source| ProviderError::System { what: "make up a word", source })?;
        let script = [text.as_bytes(), &telling(shell.kind, &word)].concat();
        let mut course = Self::new(shell, script, word);
        course.deadline = Some(course.begun + GRACE);
        Ok(course)
    }

    fn new(shell: &'a mut PersistentShell, script: Vec<u8>, word: EndMarker) -> Self {
        let beginning = CommandStart { at: process_tree::now(), before: shell.left.known() };
        let begun = Instant::now();
        Self {
            shell,
            word,
            hearing: EndMarkerReader::default(),
            script,
            told: 0,
            kept: [BoundedCapture::new(0), BoundedCapture::new(0)],
            intake: None,
            begun,
            beginning,
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

    /// To its end, and what became of it.
    pub(super) fn ran(
        mut self,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError> {
        let end = self.run(sink)?;
        self.shell.part();
        Ok(self.over(end))
    }

    pub(super) fn run(&mut self, sink: &mut OutputSink<'_>) -> Result<ShellRunEnd, ProviderError> {
        loop {
            self.tell();
            let ready = self.wait()?;
            self.read(ready.streams, sink);
            if ready.report
                && let Some(status) = self.hear()?
            {
                // A program with the shell's descriptor may have woken us: then the shell wrote
                // more, and told of its end, after its streams were looked at.
                self.read([true; 2], sink);
                return Ok(ShellRunEnd {
                    status: ExitStatus::Exited(status),
                    shell: ShellState::LivesOn,
                    all: None,
                });
            }
            if ready.gone {
                return self.gone(sink);
            }
            self.keep_time();
            self.peak.look(self.shell.pid, &self.beginning);
            // Waits may be shorter: not every one that was in vain is a sign of silence.
            if ready.nothing && self.looked.elapsed() >= LOOK && self.is_mute() {
                return Err(ProviderError::Mute);
            }
        }
    }

    /// As much of the script, and of what it is to read, as there is room for.
    fn tell(&mut self) {
        if let Some(intake) = &mut self.intake {
            intake.pour();
        }
        while self.told < self.script.len() {
            match rustix::io::write(&self.shell.ends.script, &self.script[self.told..]) {
                Ok(more) => self.told += more,
                Err(Errno::INTR) => {}
                // Full, or nobody reads it any more, which is heard of otherwise.
                Err(_) => return,
            }
        }
    }

    fn wait(&self) -> Result<PollReady, ProviderError> {
        let ends = &self.shell.ends;
        let mut waits = Vec::with_capacity(5);
        waits.push(PollFd::new(&ends.pidfd, PollFlags::IN));
        // What is closed at the other end would be ready at once and for ever.
        waits.extend((!self.is_shut).then(|| PollFd::new(&ends.report, PollFlags::IN)));
        let first = waits.len();
        waits
            .extend(ends.streams.iter().flatten().map(|stream| PollFd::new(stream, PollFlags::IN)));
        waits.extend(
            (self.told < self.script.len()).then(|| PollFd::new(&ends.script, PollFlags::OUT)),
        );
        waits.extend(
            self.intake
                .as_ref()
                .and_then(StdinPipe::waits)
                .map(|(what, flags)| PollFd::from_borrowed_fd(what, flags)),
        );
        let next = [self.deadline, self.again, Some(self.peak.next)].into_iter().flatten().min();
        let left =
            next.map_or(LOOK, |next| LOOK.min(next.saturating_duration_since(Instant::now())));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut waits, Some(&left)) {
            Ok(ready) => {
                let is_ready = |wait: &PollFd<'_>| !wait.revents().is_empty();
                let mut streams = waits[first..].iter().map(is_ready);
                Ok(PollReady {
                    nothing: ready == 0,
                    report: !self.is_shut && is_ready(&waits[1]),
                    gone: is_ready(&waits[0]),
                    streams: ends
                        .streams
                        .each_ref()
                        .map(|stream| stream.is_some() && streams.next() == Some(true)),
                })
            }
            Err(Errno::INTR) => {
                Ok(PollReady { nothing: false, report: false, gone: false, streams: [false; 2] })
            }
            Err(error) => {
                Err(ProviderError::System { what: "wait for the shell", source: error.into() })
            }
        }
    }

    /// All that was written so far to those of the streams that are `ready`.
    fn read(&mut self, ready: [bool; 2], sink: &mut OutputSink<'_>) {
        let PersistentShell { ends, buffer, .. } = &mut *self.shell;
        let streams = ends
            .streams
            .iter_mut()
            .zip([OutputStream::Out, OutputStream::Err])
            .zip(&mut self.kept)
            .zip(ready);
        for (((end, stream), kept), _) in streams.filter(|(_, is_ready)| *is_ready) {
            while let Some(open) = end {
                match read(open, buffer) {
                    // Nobody has it any more: the shell has sent it elsewhere.
                    Ok(0) => *end = None,
                    Ok(length) => {
                        sink(stream, &buffer[..length]);
                        kept.push(&buffer[..length]);
                        self.spent.wrote(length);
                        // A pipe gives all that it has.
                        if length < buffer.len() {
                            break;
                        }
                    }
                    Err(_) => break,
                }
            }
        }
    }

    /// The status, if our word was said.
    fn hear(&mut self) -> Result<Option<i32>, ProviderError> {
        /// Whoever else speaks without end does not keep us from everything else.
        const TURNS: usize = 64;
        let mut said = [0; 512];
        for _ in 0..TURNS {
            match heard(&self.shell.ends.report, &mut said) {
                Ok((0, _)) => {
                    self.is_shut = true;
                    return Ok(None);
                }
                // A program that has the descriptor from its shell.
                Ok((_, pid)) if pid != Some(self.shell.pid) => {}
                Ok((length, _)) => {
                    let status = self.hearing.hear(&said[..length], &self.word);
                    if status.is_some() {
                        return Ok(status);
                    }
                    if self.hearing.is_loud() {
                        return Err(ProviderError::Mute);
                    }
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The shell has ended: by what it was told, or otherwise.
    fn gone(&mut self, sink: &mut OutputSink<'_>) -> Result<ShellRunEnd, ProviderError> {
        self.read([true; 2], sink);
        self.shell.is_over = true;
        let (status, usage) = ended(self.shell.place.as_ref(), self.shell.job, &mut self.spent)?;
        Ok(ShellRunEnd { status, shell: ShellState::Ended, all: Some(usage) })
    }

    fn over(mut self, ShellRunEnd { status, shell, all }: ShellRunEnd) -> ShellCommandResult {
        let duration = self.begun.elapsed();
        let usage = self.usage(duration, all);
        if let ExitStatus::Exited(left) = status {
            self.shell.status = left;
        }
        let Self { shell: persistent, kept, timed_out, spent, .. } = self;
        let over = CommandEnd { status, usage, duration, timed_out, kept, spent };
        let mut ran = ShellCommandResult {
            shell,
            background: persistent.late.take(),
            ..ran(persistent.place.as_ref(), over)
        };
        if status != ExitStatus::Exited(0) {
            let at = persistent.cwd().unwrap_or_else(AbsPath::root);
            ran.denials.extend(persistent.place.guess(&at, &ran.stderr, &ran.denials));
        }
        ran
    }

    /// What was used since that was looked at last.
    fn usage(&mut self, duration: Duration, all: Option<ResourceUsage>) -> ResourceUsage {
        let now = match all {
            Some(all) => all,
            None if duration < SHORT => {
                return ResourceUsage { max_rss_kb: self.peak(), ..ResourceUsage::default() };
            }
            None => process_tree::facts(self.shell.pid).map_or(self.shell.used, |facts| facts.used),
        };
        let before = std::mem::replace(&mut self.shell.used, now);
        ResourceUsage {
            user_us: now.user_us.saturating_sub(before.user_us),
            system_us: now.system_us.saturating_sub(before.system_us),
            max_rss_kb: now.max_rss_kb.max(self.peak()),
        }
    }

    /// Of the shell as well: it has carried out the command.
    fn peak(&self) -> u64 {
        self.peak.kb.max(process_tree::peak(self.shell.pid).unwrap_or_default())
    }

    /// Asks more and more firmly.
    fn keep_time(&mut self) {
        if self.ending == StopStage::NotYet && self.spent.is_too_much() {
            self.deadline = Some(Instant::now());
        } else if self.ending == StopStage::NotYet && self.shell.interrupted.load(Ordering::SeqCst)
        {
            self.ending = StopStage::Interrupted;
            self.deadline = Some(Instant::now() + GRACE);
            // One so young may have been interrupted before its shell had begun it.
            self.again = (self.begun.elapsed() < 2 * LOOK).then(|| Instant::now() + LOOK / 2);
        }
        if self.again.take_if(|when| *when <= Instant::now()).is_some() {
            process_tree::signal_group(self.shell.pid, libc::SIGINT);
        }
        if self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let pid = self.shell.pid;
        if self.ending == StopStage::NotYet && !self.spent.is_too_much() {
            self.timed_out = true;
            self.spent.took(self.begun.elapsed(), self.allowed);
        }
        self.ending = match self.ending {
            StopStage::NotYet => {
                process_tree::signal_group(pid, libc::SIGINT);
                StopStage::Interrupted
            }
            StopStage::Interrupted => {
                // The shell as well: it would go on with what comes next in the line.
                process_tree::signal_group(pid, libc::SIGINT);
                process_tree::signal_since(pid, &self.beginning, libc::SIGTERM);
                StopStage::Terminated
            }
            StopStage::Terminated => {
                process_tree::signal_group(pid, libc::SIGINT);
                process_tree::signal_since(pid, &self.beginning, libc::SIGKILL);
                StopStage::Killed
            }
            StopStage::Killed | StopStage::Given => {
                process_tree::end(pid);
                StopStage::Given
            }
        };
        self.deadline = Some(self.next_deadline());
    }

    /// The time of the next step.
    fn next_deadline(&self) -> Instant {
        /// For a shell to tell of the end of a command that was killed, before it is killed itself.
        const TELLING: Duration = Duration::from_millis(500);
        let own =
            self.allowed.filter(|_| self.timed_out).map(|limit| Deadline::new(self.begun, limit));
        match (own, self.ending) {
            (Some(deadline), StopStage::Interrupted) => deadline.firm(),
            (Some(deadline), StopStage::Terminated) => deadline.hard,
            (Some(_), StopStage::Killed) => Instant::now() + TELLING,
            _ => Instant::now() + GRACE,
        }
    }

    /// Whether the shell waits for the next command and has not told of the end of this one:
    /// seen twice, so that it has had time to.
    fn is_mute(&mut self) -> bool {
        self.looked = Instant::now();
        let was_idle = self.is_idle;
        self.is_idle = self.told == self.script.len() && self.shell.waits_for_more();
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

/// What was said, and by whom. Two are never heard at once.
fn heard(report: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Option<i32>), Errno> {
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
