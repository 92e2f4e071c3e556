//! Descriptors for a shell that already runs.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringfence_enforce::apply::{ExecId, ExecSpec, OrphanReaping};
use ringfence_policy::AbsPath;
use ringfence_provider::ProviderError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;

use super::command_run::GRACE;
use super::{ShellHost, number};

/// A process beside a shell that has descriptors for it to open: nobody can give it any. It
/// ends when this is dropped.
pub(super) struct FdCarrier {
    place: Arc<dyn ShellHost>,
    job: ExecId,
    /// What the shell knows it by.
    pid: i32,
    _breath: OwnedFd,
}

/// Descriptors that a shell can open, until this is dropped.
pub(super) enum FdOffer {
    /// It and nobody else.
    Alone { place: Arc<dyn ShellHost>, pid: i32, prefix: String },
    /// Of another process.
    Borne(FdCarrier),
}

impl FdOffer {
    /// To the shell `pid`, which is `program` found on `path`.
    pub(super) fn make(
        place: &Arc<dyn ShellHost>,
        pid: i32,
        (program, path): (&[u8], &[u8]),
        given: &[OwnedFd],
    ) -> Result<Self, ProviderError> {
        if let Some(prefix) = place.offer(pid, given)? {
            return Ok(Self::Alone { place: place.clone(), pid, prefix: prefix.to_owned() });
        }
        let descriptors: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        FdCarrier::start(place, program, path, &descriptors).map(Self::Borne)
    }

    /// Where the shell finds one of them.
    pub(super) fn path(&self, index: usize) -> String {
        match self {
            Self::Alone { prefix, .. } => format!("{prefix}{index}"),
            Self::Borne(bearer) => bearer.path(index),
        }
    }

    /// How one is opened that is to be read. What is offered to one alone is what it is, and
    /// is asked for by opening it to write.
    pub(super) fn reading(&self) -> &'static str {
        match self {
            Self::Alone { .. } => "<>",
            Self::Borne(_) => "<",
        }
    }
}

impl Drop for FdOffer {
    fn drop(&mut self) {
        if let Self::Alone { place, pid, .. } = self {
            place.take_back(*pid);
        }
    }
}

/// The number of the first.
const FIRST: i32 = 3;

impl FdCarrier {
    /// By the same program as the shell, which is there.
    pub(super) fn start(
        place: &Arc<dyn ShellHost>,
        program: &[u8],
        path: &[u8],
        given: &[BorrowedFd<'_>],
    ) -> Result<Self, ProviderError> {
        let system = |what| move |source: std::io::Error| ProviderError::System { what, source };
        let pipe =
            || pipe_with(PipeFlags::CLOEXEC).map_err(|error| system("make a pipe")(error.into()));
        let ((breath_end, breath), (ready, ready_end)) = (pipe()?, pipe()?);
        let start = ExecSpec {
            command: [program, b"-c", b"echo; read x"].map(<[u8]>::to_vec).into(),
            variables: vec![[b"PATH=", path].concat()],
            cwd: AbsPath::root(),
            numbers: [0, 1].into_iter().chain(FIRST..).take(given.len() + 2).collect(),
            terminal: None,
            orphans: OrphanReaping::Left,
        };
        let descriptors: Vec<_> = [breath_end.as_fd(), ready_end.as_fd()]
            .into_iter()
            .chain(given.iter().copied())
            .collect();
        let (job, started) = place.start(&start, &descriptors)?;
        let pid = number(&started.pidfd)
            .and_then(innermost)
            .ok_or(ProviderError::Gone { what: "sandbox" })?;
        let bearer = Self { place: place.clone(), job, pid, _breath: breath };
        drop(ready_end);
        // Until it is what it was to become, nobody may look at it.
        let waits = &mut [PollFd::new(&ready, PollFlags::IN)];
        let limit = Timespec { tv_sec: GRACE.as_secs() as i64, tv_nsec: 0 };
        let _ = poll(waits, Some(&limit));
        if rustix::io::ioctl_fionread(&ready) != Ok(1) {
            return Err(ProviderError::Gone {
                what: "process that was to give a shell its streams",
            });
        }
        Ok(bearer)
    }

    /// Where the shell finds one of them.
    fn path(&self, index: usize) -> String {
        format!("/proc/{}/fd/{}", self.pid, FIRST as usize + index)
    }
}

impl Drop for FdCarrier {
    fn drop(&mut self) {
        self.place.forget(self.job);
    }
}

/// The number that a process has where it is.
fn innermost(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}
