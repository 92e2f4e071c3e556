//! Passing fds to a running shell.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::apply::{ExecId, ExecSpec, OrphanReaping};
use crate::launcher::system_step::SystemStep;
use ringfence_policy::AbsPath;
use ringfence_provider::ProviderError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;

use super::command_run::GRACE;
use super::{ShellHost, pid_of};

/// A process next to a shell that holds fds for it to open: a running process cannot be given any.
/// It ends when this is dropped.
pub(super) struct FdCarrier {
    host: Arc<dyn ShellHost>,
    job: ExecId,
    /// The pid inside the sandbox.
    pid: i32,
    _stdin: OwnedFd,
}

/// Fds that a shell can open, until this is dropped.
pub(super) enum FdOffer {
    /// Only the shell itself can open them.
    Exclusive { host: Arc<dyn ShellHost>, pid: i32, prefix: String },
    /// Fds of another process.
    Carried(FdCarrier),
}

impl FdOffer {
    /// Offers fds to the shell `pid`, which is `program` found on `path`.
    pub(super) fn new(
        host: &Arc<dyn ShellHost>,
        pid: i32,
        (program, path): (&[u8], &[u8]),
        given: &[OwnedFd],
    ) -> Result<Self, ProviderError> {
        if let Some(prefix) = host.offer(pid, given)? {
            return Ok(Self::Exclusive { host: host.clone(), pid, prefix: prefix.to_owned() });
        }
        let descriptors: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        FdCarrier::start(host, program, path, &descriptors).map(Self::Carried)
    }

    /// The path at which the shell opens one of them.
    pub(super) fn path(&self, index: usize) -> String {
        match self {
            Self::Exclusive { prefix, .. } => format!("{prefix}{index}"),
            Self::Carried(carrier) => carrier.path(index),
        }
    }

    /// The redirection that opens an fd for reading. An offered fd is requested by opening it for
    /// writing as well, and keeps its own mode.
    pub(super) fn read_redirection(&self) -> &'static str {
        match self {
            Self::Exclusive { .. } => "<>",
            Self::Carried(_) => "<",
        }
    }
}

impl Drop for FdOffer {
    fn drop(&mut self) {
        if let Self::Exclusive { host, pid, .. } = self {
            host.withdraw(*pid);
        }
    }
}

/// Number of the first fd.
const FIRST_FD: i32 = 3;

impl FdCarrier {
    /// Starts the carrier with the shell's own program, which certainly exists.
    pub(super) fn start(
        host: &Arc<dyn ShellHost>,
        program: &[u8],
        path: &[u8],
        given: &[BorrowedFd<'_>],
    ) -> Result<Self, ProviderError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).during("create a pipe");
        let ((stdin_end, stdin), (ready, ready_end)) = (pipe()?, pipe()?);
        let start = ExecSpec {
            command: [program, b"-c", b"echo; read x"].map(<[u8]>::to_vec).into(),
            variables: vec![[b"PATH=", path].concat()],
            cwd: AbsPath::root(),
            numbers: [0, 1].into_iter().chain(FIRST_FD..).take(given.len() + 2).collect(),
            terminal: None,
            orphans: OrphanReaping::ByInit,
        };
        let descriptors: Vec<_> = [stdin_end.as_fd(), ready_end.as_fd()]
            .into_iter()
            .chain(given.iter().copied())
            .collect();
        let (job, started) = host.start(&start, &descriptors)?;
        let pid = pid_of(&started.pidfd)
            .and_then(innermost)
            .ok_or(ProviderError::Gone { what: "sandbox" })?;
        let carrier = Self { host: host.clone(), job, pid, _stdin: stdin };
        drop(ready_end);
        // Before its `execve` is done, its fds are not accessible.
        let waits = &mut [PollFd::new(&ready, PollFlags::IN)];
        let limit = Timespec { tv_sec: GRACE.as_secs() as i64, tv_nsec: 0 };
        let _ = poll(waits, Some(&limit));
        if rustix::io::ioctl_fionread(&ready) != Ok(1) {
            return Err(ProviderError::Gone { what: "process that passes streams to a shell" });
        }
        Ok(carrier)
    }

    /// The path at which the shell opens one of them.
    fn path(&self, index: usize) -> String {
        format!("/proc/{}/fd/{}", self.pid, FIRST_FD as usize + index)
    }
}

impl Drop for FdCarrier {
    fn drop(&mut self) {
        self.host.forget(self.job);
    }
}

/// The pid in the innermost pid namespace.
fn innermost(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}
