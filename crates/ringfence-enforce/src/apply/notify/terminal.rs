//! Opening the caller's own terminal.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::execute::{SyscallProxy, status_of};
use super::open_flags::Wish;

impl SyscallProxy<'_, '_> {
    /// `/dev/tty` is another terminal, or none, for each session: the caller's is found by
    /// its number among those of the sandbox, unless its session is ours.
    pub(super) fn open_terminal(&self, wish: &Wish) -> Result<NotifyReply, Errno> {
        const OURS: i32 = 0;
        let (session, terminal) = self.caller.terminal(self.caller.pid()).ok_or(Errno::NXIO)?;
        let flags = wish.without_making().flags | OFlags::NONBLOCK;
        if self.caller.terminal(OURS).is_some_and(|(ours, _)| ours == session) {
            return wish.reply(rustix::fs::open("/dev/tty", flags, Mode::empty())?);
        }
        match (rustix::fs::major(terminal), rustix::fs::minor(terminal)) {
            (136..=143, number) => {
                wish.reply(rustix::fs::open(format!("/dev/pts/{number}"), flags, Mode::empty())?)
            }
            _ => Err(Errno::NXIO),
        }
    }
}

/// The device that is each session's own terminal.
const TERMINAL: (u32, u32) = (5, 0);

fn is_terminal(status: &rustix::fs::Stat) -> bool {
    let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    is_device && (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev)) == TERMINAL
}

pub(super) fn is_own_terminal(opened: &OwnedFd) -> bool {
    rustix::fs::fstat(opened).is_ok_and(|status| is_terminal(&status))
}

pub(super) fn is_terminal_of_caller(start: BorrowedFd<'_>, path: &CStr) -> bool {
    status_of(start, path).is_some_and(|status| is_terminal(&status))
}
