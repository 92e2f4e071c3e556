//! Commands without confinement: for `full-access`, which the user chose by name.

mod sandbox;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_api::{
    Asker, CommandRequest, Denial, ExitStatus, Gap, GapKind, Outcome, ResourceUsage,
};
use ringfence_enforce::apply::{LaunchError, SandboxEvent};
use ringfence_plan::Plan;
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{PreparedSandbox, ProviderError, Sandbox};
use ringfence_sys::process::{self, ChildStatus, Wait};
use ringfence_sys::signal::{self, SignalSet};
use rustix::event::epoll;

use crate::command_loop::{self, SupervisedCommand};

/// No sandbox at all.
pub(crate) struct PreparedUnconfined {
    plan: Plan,
}

impl PreparedUnconfined {
    pub(crate) fn new(grants: &Grants) -> Self {
        Self { plan: Plan { steps: Vec::new(), gaps: writing_gap(grants).into_iter().collect() } }
    }
}

/// The gap for a policy without writing tools: without a sandbox, any program can write.
fn writing_gap(grants: &Grants) -> Option<Gap> {
    let tool = grants.tools.rule_against_writing()?;
    Some(Gap {
        what: "tools".into(),
        why: format!(
            "`{}` ({}) leaves no tool that writes, but without a sandbox any program can write",
            tool.name, tool.origin
        ),
        hint: "run it in the sandbox, or accept with `--on-gap run`".into(),
        kind: GapKind::Enforcement,
    })
}

impl PreparedSandbox for PreparedUnconfined {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn set_asker(&mut self, _asker: Arc<dyn Asker>) {
        // Nothing is denied.
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        let command = request.command[0].to_string_lossy().into_owned();
        let program = find(request).ok_or(ProviderError::NotExecuted {
            command,
            source: io::Error::from_raw_os_error(libc::ENOENT),
        })?;
        let mut seen = command_loop::SandboxMonitor::default();
        let masked = command_loop::Masked::begin()?;
        let ran = command_loop::run(
            request,
            crate::orphans::TeardownMode::Wait,
            &mut seen,
            &masked,
            |streams, mask| start(request, &program, streams, mask),
        );
        drop(masked);
        ran.map(|outcome| Outcome { gaps: self.plan.gaps.clone(), ..outcome })
    }

    fn start_sandbox(&mut self, _cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        Ok(Box::new(sandbox::UnconfinedSandbox::new()?))
    }

    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        (Vec::new(), 0)
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

fn start(
    request: &CommandRequest,
    program: &std::path::Path,
    streams: [BorrowedFd<'_>; 3],
    mask: &SignalSet,
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
    .map_err(failed("start the command"))?;
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
            return Ok(SandboxEvent::Closed);
        }
        while let Ok(Some(_)) = signal::read_signalfd(self.changes.as_fd()) {}
        let (change, usage) = match process::wait(self.pid, Wait::Poll) {
            Ok(Some((_, change, usage))) => (change, usage),
            // Another child changed.
            Ok(None) => return Ok(SandboxEvent::Continued),
            Err(_) => return Ok(SandboxEvent::Closed),
        };
        let usage = ResourceUsage {
            user_us: usage.user_us,
            system_us: usage.system_us,
            max_rss_kb: usage.max_rss_kb,
        };
        Ok(match change {
            ChildStatus::Exited(status) => {
                self.is_over = true;
                SandboxEvent::Ended(ExitStatus::Exited(status), usage)
            }
            ChildStatus::Killed(signal) => {
                self.is_over = true;
                SandboxEvent::Ended(ExitStatus::Killed(signal), usage)
            }
            ChildStatus::Stopped(signal) => SandboxEvent::Stopped(signal),
            ChildStatus::Continued => SandboxEvent::Continued,
        })
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
