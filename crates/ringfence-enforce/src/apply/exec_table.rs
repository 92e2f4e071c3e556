//! Processes that the sandbox's first one starts beside others, when it is told to.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringfence_api::ResourceUsage;
use ringfence_sys::process::{
    self, ChildStatus, Fork, ResourceLimit, SpawnIsolation, SpawnOptions, Wait,
};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::helper::{tell, tell_with};
use super::init::execute;
use super::{ExecId, ExecReport, ExecSpec, OrphanReaping, SandboxMessage, TerminalSize};

/// Those that run.
pub(super) struct ExecTable<'a> {
    pub(super) control: &'a OwnedFd,
    mask: &'a SignalSet,
    ceilings: Vec<ResourceLimit>,
    running: HashMap<i32, ExecId>,
}

/// A process that was started, and its terminal.
struct ExecChild {
    pid: i32,
    terminal: Option<OwnedFd>,
}

impl<'a> ExecTable<'a> {
    pub(super) fn new(
        control: &'a OwnedFd,
        mask: &'a SignalSet,
        ceilings: Vec<ResourceLimit>,
    ) -> Self {
        Self { control, mask, ceilings, running: HashMap::new() }
    }

    /// Starts what the first descriptor says, with the others.
    pub(super) fn start(&mut self, job: ExecId, descriptors: Vec<OwnedFd>) {
        let started = self.started(descriptors);
        // Nothing is kept busy by us.
        let _ = rustix::process::chdir("/");
        let fate = started.and_then(|ExecChild { pid, terminal }| {
            self.running.insert(pid, job);
            let pidfd = process::pidfd(pid).map_err(|error| raw(&error))?;
            let told: Vec<_> = [Some(pidfd.as_fd()), terminal.as_ref().map(AsFd::as_fd)]
                .into_iter()
                .flatten()
                .collect();
            tell_with(self.control, &SandboxMessage::Of(job, ExecReport::Started), &told);
            Ok(())
        });
        if let Err(error) = fate {
            tell(
                self.control,
                &SandboxMessage::Of(job, ExecReport::NotExecuted(error.raw_os_error())),
            );
        }
    }

    fn started(&self, descriptors: Vec<OwnedFd>) -> Result<ExecChild, Errno> {
        /// Behind every number that somebody may want.
        const AWAY: i32 = 512;
        let (what, given) = descriptors.split_first().ok_or(Errno::INVAL)?;
        let start = ExecSpec::read(what).ok_or(Errno::BADMSG)?;
        // Out of the way of the numbers they are to have.
        let given = given
            .iter()
            .map(|one| rustix::io::fcntl_dupfd_cloexec(one, AWAY))
            .collect::<Result<Vec<_>, _>>()?;
        // Whoever is given nothing to read reads from the sandbox's own nothing: through the
        // host's, root could change its mode for everybody.
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let null =
            (!start.numbers.contains(&0) && start.terminal.is_none()).then_some((null.as_fd(), 0));
        let placed: Vec<_> =
            given.iter().map(AsFd::as_fd).zip(start.numbers.iter().copied()).chain(null).collect();
        let text = |bytes: &Vec<u8>| CString::new(bytes.as_slice()).map_err(|_| Errno::INVAL);
        let arguments = start.command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let variables = start.variables.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        rustix::process::chdir(start.cwd.as_path())?;
        let terminal = start.terminal.map(SandboxPty::open).transpose()?;
        // What the shell is told, and where it tells of an end, is for nobody who came from it.
        let company = if start.orphans == OrphanReaping::Kept {
            SpawnIsolation::Recluse
        } else {
            start.orphans.company()
        };
        let how = SpawnOptions {
            company,
            descriptors: &placed,
            ceilings: &self.ceilings,
            mask: self.mask,
        };
        let spawn = |path: &CString, arguments: &[CString]| match &terminal {
            Some(terminal) => copy(
                &|| terminal.take_place(self.mask, &self.ceilings),
                path,
                arguments,
                &variables,
            ),
            None => process::spawn_as(path, arguments, &variables, &how),
        };
        let pid = execute(&arguments, &variables, &spawn).map_err(Errno::from_raw_os_error)?;
        Ok(ExecChild { pid, terminal: terminal.map(|terminal| terminal.ours) })
    }

    /// Something became of a child: most are orphans that nobody asks about.
    pub(super) fn changed(&mut self, pid: i32, change: ChildStatus, usage: ResourceUsage) {
        let fate = match change {
            ChildStatus::Exited(status) => ExecReport::Exited(status, usage),
            ChildStatus::Killed(signal) => ExecReport::Killed(signal, usage),
            ChildStatus::Stopped(_) | ChildStatus::Continued => return,
        };
        if let Some(job) = self.running.remove(&pid) {
            tell(self.control, &SandboxMessage::Of(job, fate));
        }
    }
}

/// A new terminal of this sandbox.
struct SandboxPty {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl SandboxPty {
    fn open(TerminalSize { rows, columns }: TerminalSize) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let ours = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
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

    /// In a session of its own.
    fn take_place(&self, mask: &SignalSet, ceilings: &[ResourceLimit]) -> Result<(), Errno> {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(&self.theirs)?;
        rustix::stdio::dup2_stdin(&self.theirs)?;
        rustix::stdio::dup2_stdout(&self.theirs)?;
        rustix::stdio::dup2_stderr(&self.theirs)?;
        ceilings.iter().try_for_each(ResourceLimit::put).map_err(|error| raw(&error))?;
        be_plain(mask)
    }
}

/// Signals are to it as to every command: Rust's own start ignores one of them.
fn be_plain(mask: &SignalSet) -> Result<(), Errno> {
    let _ = signal::set_disposition(libc::SIGPIPE, signal::SignalDisposition::Default);
    signal::set_mask(mask).map(drop).map_err(|error| raw(&error))
}

/// Starts a program by a copy of this process, which is small and has one thread: what is
/// done in it first, nobody else can do for it.
fn copy(
    first: &dyn Fn() -> Result<(), Errno>,
    path: &CString,
    arguments: &[CString],
    variables: &[CString],
) -> io::Result<i32> {
    let (failure, told) = pipe_with(PipeFlags::CLOEXEC)?;
    match process::fork()? {
        Fork::Child => {
            let error = first()
                .map_or_else(io::Error::from, |()| process::execute(path, arguments, variables));
            let _ = rustix::io::write(&told, &raw(&error).raw_os_error().to_ne_bytes());
            process::exit_now(127)
        }
        Fork::Parent(pid) => {
            drop(told);
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
