//! A shell that lives on from one command to the next, from this side.

mod background;
mod command_run;
mod fd_carrier;
pub(crate) mod process_tree;
pub(crate) mod stdin;
mod streams;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_api::{
    ConnectionRecord, Denial, ExitStatus, GrantedAccess, LimitBreach, ResourceUsage, ShellCommand,
    ShellCommandResult, ShellState, StreamOutput,
};
use ringfence_enforce::apply::{ExecId, ExecSpec, OrphanReaping};
use ringfence_policy::{AbsPath, Limits};
use ringfence_provider::{
    Interrupter, OutputSink, ProviderError, SandboxShell, ShellSpec, StdinFeeder,
};
use ringfence_shell::{BoundedCapture, EndMarker, ShellKind, prelude};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::limit_monitor::CommandUsage;
use crate::packed;
use background::{BackgroundOutput, BackgroundProcesses};
use command_run::ShellRun;
use process_tree::CommandStart;
use stdin::StdinFeed;
use streams::{SharedStreams, stream};

/// Where shells run.
pub(crate) trait ShellHost: Send + Sync {
    /// The file that every command goes through.
    fn runner(&self) -> &str;

    /// Starts a process with these descriptors.
    fn start(
        &self,
        start: &ExecSpec,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(ExecId, StartedProcess), ProviderError>;

    /// Lets process `pid`, and nobody else, open these, each by what is answered with its number
    /// behind, until they are taken back; `None` where another process must have them for it.
    fn offer(&self, _pid: i32, _given: &[OwnedFd]) -> Result<Option<&str>, ProviderError> {
        Ok(None)
    }

    /// Nothing is offered to that process any more.
    fn take_back(&self, _pid: i32) {}

    /// How a process ended of which it is known that it has.
    fn ended(&self, job: ExecId) -> Option<(ExitStatus, ResourceUsage)>;

    /// Nobody asks about it any more.
    fn forget(&self, job: ExecId);

    /// What was refused since this was asked for last.
    fn refused(&self) -> (Vec<Denial>, u64);

    /// What went through since this was asked for last, because somebody said so.
    fn granted(&self) -> Vec<GrantedAccess>;

    /// Who was connected to since this was asked for last, and how many more there were.
    fn connections(&self) -> (Vec<ConnectionRecord>, u64) {
        Default::default()
    }

    /// What a command may use only so much of.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// A command begins: what it uses is its own.
    fn begin(&self) {}

    /// The limits that were gone beyond since this was asked for last.
    fn breaches(&self) -> Vec<LimitBreach> {
        Vec::new()
    }

    /// What else was refused to a command that failed in `cwd`, where nobody tells of it.
    fn guess(&self, _cwd: &AbsPath, _stderr: &StreamOutput, _told: &[Denial]) -> Vec<Denial> {
        Vec::new()
    }
}

/// How a process ended of which it is known that it has. The whole sandbox may have, because of
/// something that was used too much.
pub(crate) fn ended(
    place: &dyn ShellHost,
    job: ExecId,
    spent: &mut CommandUsage,
) -> Result<(ExitStatus, ResourceUsage), ProviderError> {
    if let Some(ended) = place.ended(job) {
        return Ok(ended);
    }
    let breaches = place.breaches();
    if breaches.is_empty() {
        return Err(ProviderError::Gone { what: "sandbox" });
    }
    spent.note(breaches);
    Ok((ExitStatus::Killed(libc::SIGKILL), ResourceUsage::default()))
}

/// What whoever waited for a command knows of its end.
pub(crate) struct CommandEnd {
    pub(crate) status: ExitStatus,
    pub(crate) usage: ResourceUsage,
    pub(crate) duration: Duration,
    pub(crate) timed_out: bool,
    pub(crate) kept: [BoundedCapture; 2],
    pub(crate) spent: CommandUsage,
}

/// A command that is over, with what its place has to tell of it.
pub(crate) fn ran(
    place: &dyn ShellHost,
    CommandEnd { status, usage, duration, timed_out, kept, spent }: CommandEnd,
) -> ShellCommandResult {
    let [stdout, stderr] = kept.map(BoundedCapture::finish);
    let (denials, denials_dropped) = place.refused();
    ShellCommandResult {
        stdout,
        stderr,
        status,
        timed_out,
        breaches: spent.finish(status, place.breaches()),
        duration,
        usage,
        denials,
        denials_dropped,
        granted: place.granted(),
        connections: place.connections(),
        background: StreamOutput::default(),
        shell: ShellState::LivesOn,
    }
}

/// A process that runs.
pub(crate) struct StartedProcess {
    /// Readable when it has ended.
    pub(crate) pidfd: OwnedFd,
    /// Our end of its terminal, if it has one.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A persistent shell.
pub(crate) struct PersistentShell {
    place: Arc<dyn ShellHost>,
    job: ExecId,
    kind: ShellKind,
    /// It, and where it was found.
    program: Vec<u8>,
    path: Vec<u8>,
    ends: ShellPipes,
    pid: i32,
    /// What it and those it waited for have used.
    used: ResourceUsage,
    left: BackgroundProcesses,
    late: BackgroundOutput,
    /// What somebody has who is to feed the next command.
    feed: Option<Arc<StdinFeed>>,
    interrupted: Arc<AtomicBool>,
    /// When the command began.
    beginning: Arc<Mutex<CommandStart>>,
    is_over: bool,
    /// `$?` after the last command.
    status: i32,
    buffer: Vec<u8>,
    /// What words are made of, got many at a time.
    random: Vec<u8>,
}

/// Our ends.
struct ShellPipes {
    /// What it is told goes here.
    script: OwnedFd,
    /// What it tells comes here.
    report: OwnedFd,
    /// Standard output and error, as long as somebody can write to them.
    streams: [Option<OwnedFd>; 2],
    /// The pipes of which the shell has one end still, and earlier commands may: they are
    /// replaced before the next one.
    shared: SharedStreams,
    pidfd: OwnedFd,
}

impl PersistentShell {
    pub(crate) fn start(place: Arc<dyn ShellHost>, how: &ShellSpec) -> Result<Self, ProviderError> {
        let system = |error: rustix::io::Errno| ProviderError::System {
            what: "make the pipes of a shell",
            source: error.into(),
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(system);
        let ((script_end, script), (report, report_end), (out, out_end), (err, err_end)) =
            (pipe()?, reports().map_err(system)?, stream()?, stream()?);
        for ours in [&script, &report] {
            rustix::io::ioctl_fionbio(ours, true).map_err(system)?;
        }
        let kind = ShellKind::of(how.program.as_ref());
        let program = how.program.as_encoded_bytes().to_vec();
        let start = ExecSpec {
            command: vec![program.clone(), format!("/dev/fd/{}", kind.script()).into_bytes()],
            variables: packed(&how.variables),
            cwd: how.cwd.clone(),
            numbers: vec![1, 2, kind.report(), kind.script()],
            terminal: None,
            orphans: OrphanReaping::Kept,
        };
        let path = start
            .variables
            .iter()
            .find_map(|variable| variable.strip_prefix(b"PATH="))
            .unwrap_or_default()
            .to_vec();
        let given = [out_end.as_fd(), err_end.as_fd(), report_end.as_fd(), script_end.as_fd()];
        let (job, StartedProcess { pidfd, .. }) = place.start(&start, &given)?;
        let pid = number(&pidfd).ok_or(ProviderError::Gone { what: "shell" })?;
        let ends = ShellPipes {
            script,
            report,
            streams: [Some(out), Some(err)],
            shared: [None, None],
            pidfd,
        };
        rustix::io::write(&ends.script, &prelude(kind, &program)).map_err(system)?;
        Ok(Self {
            place,
            job,
            kind,
            program,
            path,
            ends,
            pid,
            used: ResourceUsage::default(),
            left: BackgroundProcesses::by(pid),
            late: BackgroundOutput::default(),
            feed: None,
            interrupted: Arc::default(),
            beginning: Arc::new(Mutex::new(CommandStart { at: u64::MAX, before: Vec::new() })),
            is_over: false,
            status: 0,
            buffer: vec![0; BUFFER],
            random: Vec::new(),
        })
    }

    /// It cannot be told or heard any more.
    fn give_up(&mut self) {
        self.is_over = true;
        process_tree::end(self.pid);
    }

    /// A word that nobody has seen.
    fn word(&mut self) -> io::Result<EndMarker> {
        const WORDS: usize = 64;
        if self.random.is_empty() {
            let mut random = vec![0; WORDS * EndMarker::LENGTH];
            let length =
                rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
            random.truncate(length - length % EndMarker::LENGTH);
            self.random = random;
        }
        let rest = self.random.len().saturating_sub(EndMarker::LENGTH);
        let word =
            self.random.split_off(rest).try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok(EndMarker::new(word))
    }
}

/// As much as an ordinary user may have of each pipe.
const PIPE: usize = 256 * 1024;

/// As much is read at once.
const BUFFER: usize = 64 * 1024;

/// Where a shell tells of ends. A socket and no pipe: programs get the descriptor as well, and a
/// pipe can be opened anew to read from it what the shell says. And the kernel tells who speaks.
fn reports() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}

/// The number of a process on this host.
pub(crate) fn number(pidfd: &OwnedFd) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let number: i32 =
        text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    (number > 0).then_some(number)
}

impl SandboxShell for PersistentShell {
    fn execute(
        &mut self,
        line: &ShellCommand,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError> {
        if self.is_over {
            return Err(ProviderError::Gone { what: "shell" });
        }
        let ran = ShellRun::begin(self, line)?.ran(sink);
        // Not before the command: whoever has an interrupter may have used it a moment ago.
        self.interrupted.store(false, Ordering::SeqCst);
        if ran.is_err() {
            self.give_up();
        }
        ran
    }

    fn feeder(&mut self) -> io::Result<Arc<dyn StdinFeeder>> {
        let feed = StdinFeed::new()?;
        self.feed = Some(feed.clone());
        Ok(feed)
    }

    fn interrupter(&self) -> Box<dyn Interrupter> {
        Box::new(ShellInterrupter {
            asked: self.interrupted.clone(),
            beginning: self.beginning.clone(),
            pid: self.pid,
        })
    }

    fn pid(&self) -> i32 {
        self.pid
    }

    fn is_alive(&self) -> bool {
        !self.is_over && std::fs::read_link(format!("/proc/{}/exe", self.pid)).is_ok()
    }

    fn cwd(&self) -> Option<AbsPath> {
        AbsPath::new(std::fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?)
            .filter(|_| !self.is_over)
    }
}

impl Drop for PersistentShell {
    fn drop(&mut self) {
        // It reads on, and finds the end of its script.
        self.place.forget(self.job);
    }
}

struct ShellInterrupter {
    asked: Arc<AtomicBool>,
    beginning: Arc<Mutex<CommandStart>>,
    pid: i32,
}

impl Interrupter for ShellInterrupter {
    fn interrupt(&self) {
        self.asked.store(true, Ordering::SeqCst);
        process_tree::signal_group(self.pid, libc::SIGINT);
    }

    fn signal(&self, number: i32) {
        let beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner).clone();
        process_tree::signal_since(self.pid, &beginning, number);
    }
}
