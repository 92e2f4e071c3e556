//! Persistent shell: one shell process that runs many commands, seen from the host.

mod background;
mod command_run;
mod fd_carrier;
pub(crate) mod process_tree;
pub(crate) mod stdin;
mod streams;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::apply::{ExecId, ExecSpec, OrphanReaping};
use crate::launcher::system_step::SystemStep;
use crate::locks::lock;
use ringfence_api::{
    ConnectionRecord, Denial, ExitStatus, GrantedAccess, LimitBreach, Outcome, ResourceUsage,
    ShellCommand, Signal, StreamOutput,
};
use ringfence_policy::{AbsPath, Limits};
use ringfence_provider::{
    Interrupter, OutputSink, ProviderError, SandboxShell, ShellSpec, StdinFeeder,
};
use ringfence_shell::{BoundedCapture, EndMarker, ShellKind, prelude};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::launcher::limit_monitor::CommandUsage;
use crate::launcher::pack_environment;
use background::{BackgroundOutput, BackgroundProcesses};
use command_run::ShellRun;
use process_tree::CommandStart;
use stdin::StdinFeed;
use streams::{SharedStreams, stream};

/// Host of shells: a sandbox, or none.
pub(crate) trait ShellHost: Send + Sync {
    /// The file that every command goes through.
    fn runner(&self) -> &str;

    /// Starts a process with these fds.
    fn start(
        &self,
        start: &ExecSpec,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(ExecId, StartedProcess), ProviderError>;

    /// Lets only process `pid` open these fds, by the returned prefix with the index appended,
    /// until they are withdrawn; `None` if another process must hold the fds for it.
    fn offer(&self, _pid: i32, _given: &[OwnedFd]) -> Result<Option<&str>, ProviderError> {
        Ok(None)
    }

    /// Withdraws the fds offered to that process.
    fn withdraw(&self, _pid: i32) {}

    /// Exit status of a process that has ended.
    fn ended(&self, job: ExecId) -> Option<(ExitStatus, ResourceUsage)>;

    /// Forgets a process.
    fn forget(&self, job: ExecId);

    /// Takes the denials since the last call.
    fn take_denials(&self) -> (Vec<Denial>, u64);

    /// Takes the accesses that an answer granted since the last call.
    fn take_granted(&self) -> Vec<GrantedAccess>;

    /// Takes the connections since the last call, and the count of dropped ones.
    fn take_connections(&self) -> (Vec<ConnectionRecord>, u64) {
        Default::default()
    }

    /// Resource limits of a command.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Begins a command: usage counts for it from here on.
    fn begin_command(&self) {}

    /// Takes the limit breaches since the last call.
    fn take_breaches(&self) -> Vec<LimitBreach> {
        Vec::new()
    }

    /// Denials guessed for a command that failed in `cwd`, if nothing reports them.
    fn guess_denials(
        &self,
        _cwd: &AbsPath,
        _stderr: &StreamOutput,
        _told: &[Denial],
    ) -> Vec<Denial> {
        Vec::new()
    }
}

/// Exit status of a process that has ended. The whole sandbox may have ended because of a limit.
pub(crate) fn ended(
    host: &dyn ShellHost,
    job: ExecId,
    spent: &mut CommandUsage,
) -> Result<(ExitStatus, ResourceUsage), ProviderError> {
    if let Some(ended) = host.ended(job) {
        return Ok(ended);
    }
    let breaches = host.take_breaches();
    if breaches.is_empty() {
        return Err(ProviderError::Gone { what: "sandbox" });
    }
    spent.add_breaches(breaches);
    Ok((ExitStatus::Killed(libc::SIGKILL), ResourceUsage::default()))
}

/// End of a command, as its waiter saw it.
pub(crate) struct CommandEnd {
    pub(crate) status: ExitStatus,
    pub(crate) usage: ResourceUsage,
    pub(crate) duration: Duration,
    pub(crate) timed_out: bool,
    pub(crate) kept: [BoundedCapture; 2],
    pub(crate) spent: CommandUsage,
}

/// The outcome of a command, with the reports of its host.
pub(crate) fn command_result(
    host: &dyn ShellHost,
    CommandEnd { status, usage, duration, timed_out, kept, spent }: CommandEnd,
) -> Outcome {
    let [stdout, stderr] = kept.map(BoundedCapture::finish);
    let (denials, denials_dropped) = host.take_denials();
    let (connections, connections_dropped) = host.take_connections();
    Outcome {
        stdout,
        stderr,
        status,
        timed_out,
        breaches: spent.finish(status, host.take_breaches()),
        duration_ms: duration.as_millis() as u64,
        usage,
        denials,
        denials_dropped,
        granted: host.take_granted(),
        connections,
        connections_dropped,
        ..Outcome::default()
    }
}

/// A running process.
pub(crate) struct StartedProcess {
    /// Readable when it has ended.
    pub(crate) pidfd: OwnedFd,
    /// Our end of its terminal, if it has one.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A persistent shell.
pub(crate) struct PersistentShell {
    host: Arc<dyn ShellHost>,
    job: ExecId,
    kind: ShellKind,
    /// The program, and the PATH it was found on.
    program: Vec<u8>,
    path: Vec<u8>,
    pipes: ShellPipes,
    pid: i32,
    id: String,
    /// Usage of the shell and its reaped children.
    used: ResourceUsage,
    background: BackgroundProcesses,
    background_output: BackgroundOutput,
    /// Feed for the input of the next command, if a feeder was requested.
    feed: Option<Arc<StdinFeed>>,
    interrupted: Arc<AtomicBool>,
    /// Start of the current command.
    command_start: Arc<Mutex<CommandStart>>,
    is_over: bool,
    /// `$?` after the last command.
    status: i32,
    buffer: Vec<u8>,
    /// Random bytes for end markers, read many at a time.
    random: Vec<u8>,
}

/// Our ends of the pipes.
struct ShellPipes {
    /// The shell reads its script from here.
    script: OwnedFd,
    /// The shell reports ends of commands here.
    report: OwnedFd,
    /// Standard output and error, while any process can write to them.
    streams: [Option<OwnedFd>; 2],
    /// Inodes of pipes that the shell and perhaps earlier commands still have: they are replaced
    /// before the next command.
    shared: SharedStreams,
    pidfd: OwnedFd,
}

impl PersistentShell {
    pub(crate) fn start(host: Arc<dyn ShellHost>, spec: &ShellSpec) -> Result<Self, ProviderError> {
        let what = "create the pipes of a shell";
        let pipe = || pipe_with(PipeFlags::CLOEXEC).during(what);
        let ((script_end, script), (report, report_end), (out, out_end), (err, err_end)) =
            (pipe()?, report_socket().during(what)?, stream()?, stream()?);
        for ours in [&script, &report] {
            rustix::io::ioctl_fionbio(ours, true).during(what)?;
        }
        let kind = ShellKind::from_program(spec.program.as_ref());
        let program = spec.program.as_encoded_bytes().to_vec();
        let start = ExecSpec {
            command: vec![program.clone(), format!("/dev/fd/{}", kind.script()).into_bytes()],
            variables: pack_environment(&spec.environment),
            cwd: spec.cwd.clone(),
            numbers: vec![1, 2, kind.report(), kind.script()],
            terminal: None,
            orphans: OrphanReaping::BySubreaper,
        };
        let path = start
            .variables
            .iter()
            .find_map(|variable| variable.strip_prefix(b"PATH="))
            .unwrap_or_default()
            .to_vec();
        let given = [out_end.as_fd(), err_end.as_fd(), report_end.as_fd(), script_end.as_fd()];
        let (job, StartedProcess { pidfd, .. }) = host.start(&start, &given)?;
        let pid = pid_of(&pidfd).ok_or(ProviderError::Gone { what: "shell" })?;
        let pipes = ShellPipes {
            script,
            report,
            streams: [Some(out), Some(err)],
            shared: [None, None],
            pidfd,
        };
        rustix::io::write(&pipes.script, &prelude(kind, &program)).during(what)?;
        Ok(Self {
            host,
            job,
            kind,
            program,
            path,
            pipes,
            pid,
            id: pid.to_string(),
            used: ResourceUsage::default(),
            background: BackgroundProcesses::new(pid),
            background_output: BackgroundOutput::default(),
            feed: None,
            interrupted: Arc::default(),
            command_start: Arc::new(Mutex::new(CommandStart { at: u64::MAX, before: Vec::new() })),
            is_over: false,
            status: 0,
            buffer: vec![0; BUFFER],
            random: Vec::new(),
        })
    }

    /// Gives up on a shell that no longer responds.
    fn give_up(&mut self) {
        self.is_over = true;
        process_tree::kill_shell(self.pid);
    }

    /// A fresh end marker.
    fn next_marker(&mut self) -> io::Result<EndMarker> {
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

/// Largest pipe size for an unprivileged user.
const PIPE_SIZE: usize = 256 * 1024;

/// Bytes read at once.
const BUFFER: usize = 64 * 1024;

/// Channel for reports of ends. A socket, not a pipe: programs inherit the fd, and a pipe could be
/// reopened to read the shell's reports. The kernel also adds the sender's pid.
fn report_socket() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}

/// The pid of a process on this host.
pub(crate) fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
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
    ) -> Result<Outcome, ProviderError> {
        if self.is_over {
            return Err(ProviderError::Gone { what: "shell" });
        }
        let ran = ShellRun::begin(self, line)?.run_to_result(sink);
        // After the command: an interrupter may have been used a moment ago.
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
            requested: self.interrupted.clone(),
            command_start: self.command_start.clone(),
            pid: self.pid,
        })
    }

    fn id(&self) -> &str {
        &self.id
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
        // The shell reads the end of its script and exits.
        self.host.forget(self.job);
    }
}

struct ShellInterrupter {
    requested: Arc<AtomicBool>,
    command_start: Arc<Mutex<CommandStart>>,
    pid: i32,
}

impl Interrupter for ShellInterrupter {
    fn interrupt(&self) {
        self.requested.store(true, Ordering::SeqCst);
        process_tree::signal_group(self.pid, libc::SIGINT);
    }

    fn signal(&self, signal: Signal) {
        let command_start = lock(&self.command_start).clone();
        process_tree::signal_since(self.pid, &command_start, signal.linux_number());
    }
}
