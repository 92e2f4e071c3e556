//! The `process` provider: commands without confinement.
//!
//! It runs the commands of policies without a sandbox, such as `full-access`. With a policy that
//! confines, each demand of the policy is a gap.

mod sandbox;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::apply::{LaunchError, SandboxEvent, SandboxMessage, exit_status, resource_usage};
use ringfence_api::{CommandRequest, Enforcement, Gap, HostFacts, Outcome};
use ringfence_policy::{AbsPath, Grants, ProviderSpec};
use ringfence_provider::{
    Capabilities, PolicyDemand, PreparedSandbox, Provider, ProviderError, Sandbox, Support,
};
use ringfence_sys::process::{self, ChildStatus, Wait};
use ringfence_sys::signal::{self, SignalSet};
use rustix::event::epoll;

use crate::launcher::command_loop::{self, SupervisedCommand};
use crate::launcher::sandbox_monitor::SandboxMonitor;

/// Provider of commands without confinement.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessProvider;

impl Provider for ProcessProvider {
    fn name(&self) -> &str {
        ProviderSpec::PROCESS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { shells: Support::Yes, files: Support::Yes, ..Capabilities::default() }
    }

    fn prepare(
        &self,
        grants: &Grants,
        _: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        Ok(Box::new(PreparedUnconfined { gaps: find_gaps(grants) }))
    }
}

/// The gaps for `grants`: all demands that need confinement.
fn find_gaps(grants: &Grants) -> Vec<Gap> {
    let met = [&PolicyDemand::OF_REQUEST[..], &[PolicyDemand::Usage]].concat();
    PolicyDemand::gaps(grants, ProviderSpec::PROCESS, &met)
}

/// No sandbox at all.
struct PreparedUnconfined {
    gaps: Vec<Gap>,
}

impl PreparedSandbox for PreparedUnconfined {
    fn enforced(&self) -> &[Enforcement] {
        &[]
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn is_confined(&self) -> bool {
        false
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        let command = request.command[0].to_string_lossy().into_owned();
        let not_executed = |errno| ProviderError::NotExecuted {
            command,
            source: io::Error::from_raw_os_error(errno),
        };
        let Some(program) = find(request) else { return Err(not_executed(libc::ENOENT)) };
        let mut exec_error = None;
        let mut seen = SandboxMonitor::default();
        let masked = command_loop::Masked::begin()?;
        let ran = command_loop::run(
            request,
            crate::launcher::orphans::TeardownMode::Wait,
            &mut seen,
            &masked,
            |streams, mask| start(request, &program, streams, mask, &mut exec_error),
        );
        drop(masked);
        if let Some(errno) = exec_error {
            return Err(not_executed(errno));
        }
        ran.map(|outcome| Outcome { gaps: self.gaps.clone(), ..outcome })
    }

    fn start_sandbox(&mut self, _cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        Ok(Box::new(sandbox::UnconfinedSandbox::new(self.gaps.clone())?))
    }
}

/// The program on the command's own `PATH`.
fn find(request: &CommandRequest) -> Option<PathBuf> {
    let name = &request.command[0];
    if name.as_bytes().contains(&b'/') {
        let path = request.cwd.as_path().join(name);
        return path.exists().then_some(path);
    }
    let path = request
        .variables
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.clone())
        .unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Starts the command. `exec_error` becomes the errno of `execve`, if that fails.
fn start(
    request: &CommandRequest,
    program: &std::path::Path,
    streams: [BorrowedFd<'_>; 3],
    mask: &SignalSet,
    exec_error: &mut Option<i32>,
) -> Result<Box<dyn SupervisedCommand>, LaunchError> {
    let failed = |what: &'static str| move |source: io::Error| LaunchError::Helper { what, source };
    let text = |bytes: &[u8]| {
        CString::new(bytes)
            .map_err(|_| failed("read the command")(io::ErrorKind::InvalidInput.into()))
    };
    let arguments =
        request.command.iter().map(|word| text(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let variables = request
        .variables
        .iter()
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<Vec<_>, _>>()?;
    std::env::set_current_dir(request.cwd.as_path())
        .map_err(failed("enter the working directory"))?;
    let copy = |fd: BorrowedFd<'_>| {
        rustix::io::fcntl_dupfd_cloexec(fd, 10)
            .map_err(|error| failed("duplicate an fd")(error.into()))
    };
    let streams = [copy(streams[0])?, copy(streams[1])?, copy(streams[2])?];
    let descriptors = [(streams[0].as_fd(), 0), (streams[1].as_fd(), 1), (streams[2].as_fd(), 2)];
    let pid = process::spawn(
        &text(program.as_os_str().as_bytes())?,
        &arguments,
        &variables,
        &descriptors,
        mask,
    )
    .map_err(|error| {
        // These two come from the fork, all others from `execve`.
        let is_fork = |errno: &i32| [libc::EAGAIN, libc::ENOMEM].contains(errno);
        *exec_error = error.raw_os_error().filter(|errno| !is_fork(errno));
        failed("start the command")(error)
    })?;
    UnconfinedChild::watch(pid)
        .map(|child| Box::new(child) as Box<dyn SupervisedCommand>)
        .map_err(failed("watch the command"))
}

struct UnconfinedChild {
    pid: i32,
    /// Readable at its end.
    _pidfd: OwnedFd,
    /// Its stops, which a pidfd does not report.
    changes: OwnedFd,
    both: OwnedFd,
    is_over: bool,
}

impl UnconfinedChild {
    /// With several threads, SIGCHLD may go to another one; the pidfd never misses the end.
    fn watch(pid: i32) -> io::Result<Self> {
        let (pidfd, changes) =
            (process::pidfd(pid)?, signal::signalfd(&SignalSet::from_signals(&[libc::SIGCHLD]))?);
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for descriptor in [&pidfd, &changes] {
            epoll::add(&both, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { pid, _pidfd: pidfd, changes, both, is_over: false })
    }
}

impl SupervisedCommand for UnconfinedChild {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn next(&mut self) -> Result<SandboxEvent, LaunchError> {
        if self.is_over {
            return Ok(SandboxMessage::Closed.into());
        }
        while let Ok(Some(_)) = signal::read_signalfd(self.changes.as_fd()) {}
        let (change, usage) = match process::wait(self.pid, Wait::Poll) {
            Ok(Some((_, change, usage))) => (change, usage),
            // Another child changed.
            Ok(None) => return Ok(SandboxMessage::Continued.into()),
            Err(_) => return Ok(SandboxMessage::Closed.into()),
        };
        let ended = exit_status(change);
        self.is_over = ended.is_some();
        let message = match (ended, change) {
            (Some(status), _) => SandboxMessage::Ended(status, resource_usage(&usage)),
            (None, ChildStatus::Stopped(_)) => SandboxMessage::Stopped,
            (None, _) => SandboxMessage::Continued,
        };
        Ok(message.into())
    }

    fn signal(&self, number: i32) {
        let _ = signal::kill(self.pid, number);
    }

    fn end(&self) {
        self.signal(libc::SIGKILL);
    }

    fn wait(&mut self) {}

    fn leave(&mut self) {}
}
