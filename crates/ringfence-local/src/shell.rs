//! A shell that lives on from one command to the next, from this side.

mod bearer;
mod course;
pub(crate) mod family;
pub(crate) mod feed;
mod fresh;
mod left;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_api::{
    Afterwards, Breach, Connection, Denial, Granted, Line, Output, Ran, Status, Usage,
};
use ringfence_enforce::apply::{Job, Orphans, Start};
use ringfence_policy::{AbsPath, Limits};
use ringfence_provider::{Feeder, Interrupter, ProviderError, Shell, ShellStart, Sink};
use ringfence_shell::{Capture, Kind, Word, prelude};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::packed;
use crate::steward::Spent;
use course::Course;
use family::Beginning;
use feed::Feed;
use fresh::{Shared, stream};
use left::{Late, Left};

/// Where shells run.
pub(crate) trait Place: Send + Sync {
    /// The file that every command goes through.
    fn runner(&self) -> &str;

    /// Starts a process with these descriptors.
    fn start(
        &self,
        start: &Start,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Job, Started), ProviderError>;

    /// Lets process `pid`, and nobody else, open these, each by what is answered with its number
    /// behind, until they are taken back; `None` where another process must have them for it.
    fn offer(&self, _pid: i32, _given: &[OwnedFd]) -> Result<Option<&str>, ProviderError> {
        Ok(None)
    }

    /// Nothing is offered to that process any more.
    fn take_back(&self, _pid: i32) {}

    /// How a process ended of which it is known that it has.
    fn ended(&self, job: Job) -> Option<(Status, Usage)>;

    /// Nobody asks about it any more.
    fn forget(&self, job: Job);

    /// What was refused since this was asked for last.
    fn refused(&self) -> (Vec<Denial>, u64);

    /// What went through since this was asked for last, because somebody said so.
    fn granted(&self) -> Vec<Granted>;

    /// Who was connected to since this was asked for last, and how many more there were.
    fn connections(&self) -> (Vec<Connection>, u64) {
        Default::default()
    }

    /// What a command may use only so much of.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// A command begins: what it uses is its own.
    fn begin(&self) {}

    /// The limits that were gone beyond since this was asked for last.
    fn breaches(&self) -> Vec<Breach> {
        Vec::new()
    }

    /// What else was refused to a command that failed in `cwd`, where nobody tells of it.
    fn guess(&self, _cwd: &AbsPath, _stderr: &Output, _told: &[Denial]) -> Vec<Denial> {
        Vec::new()
    }
}

/// How a process ended of which it is known that it has. The whole sandbox may have, because of
/// something that was used too much.
pub(crate) fn ended(
    place: &dyn Place,
    job: Job,
    spent: &mut Spent,
) -> Result<(Status, Usage), ProviderError> {
    if let Some(ended) = place.ended(job) {
        return Ok(ended);
    }
    let breaches = place.breaches();
    if breaches.is_empty() {
        return Err(ProviderError::Gone { what: "sandbox" });
    }
    spent.note(breaches);
    Ok((Status::Killed(libc::SIGKILL), Usage::default()))
}

/// What whoever waited for a command knows of its end.
pub(crate) struct Over {
    pub(crate) status: Status,
    pub(crate) usage: Usage,
    pub(crate) duration: Duration,
    pub(crate) timed_out: bool,
    pub(crate) kept: [Capture; 2],
    pub(crate) spent: Spent,
}

/// A command that is over, with what its place has to tell of it.
pub(crate) fn ran(
    place: &dyn Place,
    Over { status, usage, duration, timed_out, kept, spent }: Over,
) -> Ran {
    let [stdout, stderr] = kept.map(Capture::finish);
    let (denials, denials_dropped) = place.refused();
    Ran {
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
        background: Output::default(),
        shell: Afterwards::LivesOn,
    }
}

/// A process that runs.
pub(crate) struct Started {
    /// Readable when it has ended.
    pub(crate) pidfd: OwnedFd,
    /// Our end of its terminal, if it has one.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A persistent shell.
pub(crate) struct Persistent {
    place: Arc<dyn Place>,
    job: Job,
    kind: Kind,
    /// It, and where it was found.
    program: Vec<u8>,
    path: Vec<u8>,
    ends: Ends,
    pid: i32,
    /// What it and those it waited for have used.
    used: Usage,
    left: Left,
    late: Late,
    /// What somebody has who is to feed the next command.
    feed: Option<Arc<Feed>>,
    interrupted: Arc<AtomicBool>,
    /// When the command began.
    beginning: Arc<Mutex<Beginning>>,
    is_over: bool,
    /// `$?` after the last command.
    status: i32,
    buffer: Vec<u8>,
    /// What words are made of, got many at a time.
    random: Vec<u8>,
}

/// Our ends.
struct Ends {
    /// What it is told goes here.
    script: OwnedFd,
    /// What it tells comes here.
    report: OwnedFd,
    /// Standard output and error, as long as somebody can write to them.
    streams: [Option<OwnedFd>; 2],
    /// The pipes of which the shell has one end still, and earlier commands may: they are
    /// replaced before the next one.
    shared: Shared,
    pidfd: OwnedFd,
}

impl Persistent {
    pub(crate) fn start(place: Arc<dyn Place>, how: &ShellStart) -> Result<Self, ProviderError> {
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
        let kind = Kind::of(how.program.as_ref());
        let program = how.program.as_encoded_bytes().to_vec();
        let start = Start {
            command: vec![program.clone(), format!("/dev/fd/{}", kind.script()).into_bytes()],
            variables: packed(&how.variables),
            cwd: how.cwd.clone(),
            numbers: vec![1, 2, kind.report(), kind.script()],
            terminal: None,
            orphans: Orphans::Kept,
        };
        let path = start
            .variables
            .iter()
            .find_map(|variable| variable.strip_prefix(b"PATH="))
            .unwrap_or_default()
            .to_vec();
        let given = [out_end.as_fd(), err_end.as_fd(), report_end.as_fd(), script_end.as_fd()];
        let (job, Started { pidfd, .. }) = place.start(&start, &given)?;
        let pid = number(&pidfd).ok_or(ProviderError::Gone { what: "shell" })?;
        let ends =
            Ends { script, report, streams: [Some(out), Some(err)], shared: [None, None], pidfd };
        rustix::io::write(&ends.script, &prelude(kind, &program)).map_err(system)?;
        Ok(Self {
            place,
            job,
            kind,
            program,
            path,
            ends,
            pid,
            used: Usage::default(),
            left: Left::by(pid),
            late: Late::default(),
            feed: None,
            interrupted: Arc::default(),
            beginning: Arc::new(Mutex::new(Beginning { at: u64::MAX, before: Vec::new() })),
            is_over: false,
            status: 0,
            buffer: vec![0; BUFFER],
            random: Vec::new(),
        })
    }

    /// It cannot be told or heard any more.
    fn give_up(&mut self) {
        self.is_over = true;
        family::end(self.pid);
    }

    /// A word that nobody has seen.
    fn word(&mut self) -> io::Result<Word> {
        const WORDS: usize = 64;
        if self.random.is_empty() {
            let mut random = vec![0; WORDS * Word::LENGTH];
            let length =
                rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
            random.truncate(length - length % Word::LENGTH);
            self.random = random;
        }
        let rest = self.random.len().saturating_sub(Word::LENGTH);
        let word =
            self.random.split_off(rest).try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok(Word::new(word))
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

impl Shell for Persistent {
    fn execute(&mut self, line: &Line, sink: &mut Sink<'_>) -> Result<Ran, ProviderError> {
        if self.is_over {
            return Err(ProviderError::Gone { what: "shell" });
        }
        let ran = Course::begin(self, line)?.ran(sink);
        // Not before the command: whoever has an interrupter may have used it a moment ago.
        self.interrupted.store(false, Ordering::SeqCst);
        if ran.is_err() {
            self.give_up();
        }
        ran
    }

    fn feeder(&mut self) -> io::Result<Arc<dyn Feeder>> {
        let feed = Feed::new()?;
        self.feed = Some(feed.clone());
        Ok(feed)
    }

    fn interrupter(&self) -> Box<dyn Interrupter> {
        Box::new(Interrupts {
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

impl Drop for Persistent {
    fn drop(&mut self) {
        // It reads on, and finds the end of its script.
        self.place.forget(self.job);
    }
}

struct Interrupts {
    asked: Arc<AtomicBool>,
    beginning: Arc<Mutex<Beginning>>,
    pid: i32,
}

impl Interrupter for Interrupts {
    fn interrupt(&self) {
        self.asked.store(true, Ordering::SeqCst);
        family::signal_group(self.pid, libc::SIGINT);
    }

    fn signal(&self, number: i32) {
        let beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner).clone();
        family::signal_since(self.pid, &beginning, number);
    }
}
