//! Processes that the sandbox's first one starts beside others, when it is told to.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_api::Usage;
use ringfence_sys::process::{self, Change, Company};
use ringfence_sys::signal::Set;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::Winsize;

use super::helper::{tell, tell_with};
use super::init::execute;
use super::{Fate, Job, Report, Size, Start};

/// Those that run.
pub(super) struct Jobs<'a> {
    pub(super) control: &'a OwnedFd,
    mask: &'a Set,
    running: HashMap<i32, Job>,
}

/// A process that was started, and its terminal.
struct Started {
    pid: i32,
    terminal: Option<OwnedFd>,
}

impl<'a> Jobs<'a> {
    pub(super) fn new(control: &'a OwnedFd, mask: &'a Set) -> Self {
        Self { control, mask, running: HashMap::new() }
    }

    /// Starts what the first descriptor says, with the others.
    pub(super) fn start(&mut self, job: Job, descriptors: Vec<OwnedFd>) {
        let started = self.started(descriptors);
        // Nothing is kept busy by us.
        let _ = rustix::process::chdir("/");
        let fate = started.and_then(|Started { pid, terminal }| {
            self.running.insert(pid, job);
            let pidfd = process::pidfd(pid).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let told: Vec<_> = [Some(pidfd.as_fd()), terminal.as_ref().map(AsFd::as_fd)].into_iter().flatten().collect();
            tell_with(self.control, &Report::Of(job, Fate::Started), &told);
            Ok(())
        });
        if let Err(error) = fate {
            tell(self.control, &Report::Of(job, Fate::NotExecuted(error.raw_os_error())));
        }
    }

    fn started(&self, descriptors: Vec<OwnedFd>) -> Result<Started, Errno> {
        /// Behind every number that somebody may want.
        const AWAY: i32 = 512;
        let (what, given) = descriptors.split_first().ok_or(Errno::INVAL)?;
        let start = Start::read(what).ok_or(Errno::BADMSG)?;
        // Out of the way of the numbers they are to have.
        let given = given.iter().map(|one| rustix::io::fcntl_dupfd_cloexec(one, AWAY)).collect::<Result<Vec<_>, _>>()?;
        // Whoever is given nothing to read reads from the sandbox's own nothing: through the
        // host's, root could change its mode for everybody.
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let null = (!start.numbers.contains(&0) && start.terminal.is_none()).then_some((null.as_fd(), 0));
        let placed: Vec<_> = given.iter().map(AsFd::as_fd).zip(start.numbers.iter().copied()).chain(null).collect();
        let text = |bytes: &Vec<u8>| CString::new(bytes.as_slice()).map_err(|_| Errno::INVAL);
        let arguments = start.command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let variables = start.variables.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        rustix::process::chdir(start.cwd.as_path())?;
        let terminal = start.terminal.map(terminal).transpose()?;
        let spawn =
            |company, path: &CString, arguments: &[CString]| process::spawn_in(company, path, arguments, &variables, &placed, self.mask);
        let pid = match &terminal {
            Some((_, name)) => execute(&arguments, &variables, &|path, arguments| spawn(Company::At(name), path, arguments)),
            None => execute(&arguments, &variables, &|path, arguments| spawn(Company::Own, path, arguments)),
        };
        let pid = pid.map_err(Errno::from_raw_os_error)?;
        Ok(Started { pid, terminal: terminal.map(|(terminal, _)| terminal) })
    }

    /// Something became of a child: most are orphans that nobody asks about.
    pub(super) fn changed(&mut self, pid: i32, change: Change, usage: Usage) {
        let fate = match change {
            Change::Exited(status) => Fate::Exited(status, usage),
            Change::Killed(signal) => Fate::Killed(signal, usage),
            Change::Stopped(_) | Change::Continued => return,
        };
        if let Some(job) = self.running.remove(&pid) {
            tell(self.control, &Report::Of(job, fate));
        }
    }
}

/// A new terminal of this sandbox: our end, and the name of the other.
fn terminal(size: Size) -> Result<(OwnedFd, CString), Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ours = rustix::fs::open("/dev/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    resize(ours.as_fd(), size)?;
    Ok((ours, name))
}

/// Gives a terminal another size.
pub(super) fn resize(terminal: BorrowedFd<'_>, Size { rows, columns }: Size) -> Result<(), Errno> {
    rustix::termios::tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
}
