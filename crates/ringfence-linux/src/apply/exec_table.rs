//! Processes that init starts in a running sandbox.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::open::open;

use ringfence_api::{ExitStatus, ResourceUsage, TerminalSize};
use ringfence_sys::process::{self, Fork, ResourceLimit, SpawnIsolation, SpawnOptions, Wait};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::fd_passing::{send_message, send_message_with_fds};
use super::init::execute;
use super::{ExecId, ExecReport, ExecSpec, OrphanReaping, SandboxMessage};

/// The running processes.
pub(super) struct ExecTable<'a> {
    pub(super) control: &'a OwnedFd,
    mask: &'a SignalSet,
    rlimits: Vec<ResourceLimit>,
    /// The Landlock rules of each process, without namespaces.
    landlock: Option<BorrowedFd<'a>>,
    running: HashMap<i32, ExecId>,
}

/// A started process, and its terminal.
struct ExecChild {
    pid: i32,
    terminal: Option<OwnedFd>,
}

impl<'a> ExecTable<'a> {
    pub(super) fn new(
        control: &'a OwnedFd,
        mask: &'a SignalSet,
        rlimits: Vec<ResourceLimit>,
        landlock: Option<BorrowedFd<'a>>,
    ) -> Self {
        Self { control, mask, rlimits, landlock, running: HashMap::new() }
    }

    /// Starts the process that the first fd describes, with the other fds.
    pub(super) fn start(&mut self, job: ExecId, descriptors: Vec<OwnedFd>) {
        let started = self.spawn_child(descriptors);
        // Init must not keep a directory busy.
        let _ = rustix::process::chdir("/");
        let report = started.and_then(|ExecChild { pid, terminal }| {
            self.running.insert(pid, job);
            let pidfd = process::pidfd(pid).map_err(|error| raw(&error))?;
            let fds: Vec<_> = [Some(pidfd.as_fd()), terminal.as_ref().map(AsFd::as_fd)]
                .into_iter()
                .flatten()
                .collect();
            send_message_with_fds(
                self.control,
                &SandboxMessage::Exec(job, ExecReport::Started),
                &fds,
            );
            Ok(())
        });
        if let Err(error) = report {
            send_message(
                self.control,
                &SandboxMessage::Exec(job, ExecReport::NotExecuted(error.raw_os_error())),
            );
        }
    }

    fn spawn_child(&self, descriptors: Vec<OwnedFd>) -> Result<ExecChild, Errno> {
        /// Beyond every fd number that a process may request.
        const FIRST_FREE: i32 = 512;
        let (what, given) = descriptors.split_first().ok_or(Errno::INVAL)?;
        let start = ExecSpec::read(what).ok_or(Errno::BADMSG)?;
        // Keep clear of the fd numbers that the child uses.
        let given = given
            .iter()
            .map(|one| rustix::io::fcntl_dupfd_cloexec(one, FIRST_FREE))
            .collect::<Result<Vec<_>, _>>()?;
        // A process without a stdin gets the sandbox's own `/dev/null`: through the host's, root
        // could change the mode of the host's device.
        let null = open("/dev/null", OFlags::RDONLY)?;
        let null =
            (!start.numbers.contains(&0) && start.terminal.is_none()).then_some((null.as_fd(), 0));
        let fd_map: Vec<_> =
            given.iter().map(AsFd::as_fd).zip(start.numbers.iter().copied()).chain(null).collect();
        let text = |bytes: &Vec<u8>| CString::new(bytes.as_slice()).map_err(|_| Errno::INVAL);
        let arguments = start.command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let variables = start.variables.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        rustix::process::chdir(start.cwd.as_path())?;
        if start.terminal.is_some() && self.landlock.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let terminal = start.terminal.map(SandboxPty::open).transpose()?;
        // The shell's control fds must not be accessible to processes it starts.
        let company = if start.orphans == OrphanReaping::BySubreaper {
            SpawnIsolation::HiddenSubreaper
        } else {
            start.orphans.isolation()
        };
        let how = SpawnOptions {
            isolation: company,
            descriptors: &fd_map,
            rlimits: &self.rlimits,
            mask: self.mask,
            landlock: self.landlock,
        };
        let spawn = |path: &CString, arguments: &[CString]| match &terminal {
            Some(terminal) => fork_and_execute(
                &|| terminal.become_controlling(self.mask, &self.rlimits),
                path,
                arguments,
                &variables,
            ),
            None => process::spawn_with(path, arguments, &variables, &how),
        };
        let pid = execute(&arguments, &variables, &spawn).map_err(Errno::from_raw_os_error)?;
        Ok(ExecChild { pid, terminal: terminal.map(|terminal| terminal.ours) })
    }

    /// Reports the end of a process; most children are orphans that are not in the table.
    pub(super) fn report_end(&mut self, pid: i32, status: ExitStatus, usage: ResourceUsage) {
        if let Some(job) = self.running.remove(&pid) {
            let report = ExecReport::Ended(status, usage);
            send_message(self.control, &SandboxMessage::Exec(job, report));
        }
    }
}

/// A new terminal in this sandbox.
struct SandboxPty {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl SandboxPty {
    fn open(TerminalSize { rows, columns }: TerminalSize) -> Result<Self, Errno> {
        let ours = open("/dev/pts/ptmx", OFlags::RDWR | OFlags::NOCTTY)?;
        rustix::pty::unlockpt(&ours)?;
        let theirs = rustix::pty::ioctl_tiocgptpeer(
            &ours,
            OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
        )?;
        rustix::termios::tcsetwinsize(
            &ours,
            Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        Ok(Self { ours, theirs })
    }

    /// Makes it the controlling terminal of a new session.
    fn become_controlling(&self, mask: &SignalSet, rlimits: &[ResourceLimit]) -> Result<(), Errno> {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(&self.theirs)?;
        rustix::stdio::dup2_stdin(&self.theirs)?;
        rustix::stdio::dup2_stdout(&self.theirs)?;
        rustix::stdio::dup2_stderr(&self.theirs)?;
        rlimits.iter().try_for_each(ResourceLimit::apply).map_err(|error| raw(&error))?;
        reset_signals(mask)
    }
}

/// Resets signals as for every command: Rust's runtime ignores SIGPIPE.
fn reset_signals(mask: &SignalSet) -> Result<(), Errno> {
    let _ = signal::set_disposition(libc::SIGPIPE, signal::SignalDisposition::Default);
    signal::set_mask(mask).map(drop).map_err(|error| raw(&error))
}

/// Starts a program by forking this process, which is small and single-threaded, because `first`
/// must run in the child.
fn fork_and_execute(
    first: &dyn Fn() -> Result<(), Errno>,
    path: &CString,
    arguments: &[CString],
    variables: &[CString],
) -> io::Result<i32> {
    let (failure, error_pipe) = pipe_with(PipeFlags::CLOEXEC)?;
    match process::fork()? {
        Fork::Child => {
            let error = first()
                .map_or_else(io::Error::from, |()| process::execute(path, arguments, variables));
            let _ = rustix::io::write(&error_pipe, &raw(&error).raw_os_error().to_ne_bytes());
            process::exit_now(127)
        }
        Fork::Parent(pid) => {
            drop(error_pipe);
            let mut number = [0; 4];
            match rustix::io::read(&failure, &mut number) {
                Ok(4) => {
                    let _ = process::wait(pid, Wait::Block);
                    Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
                }
                _ => Ok(pid),
            }
        }
    }
}

fn raw(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
