//! Opens the caller's controlling terminal.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::execute::{SyscallProxy, status_of};
use super::open_flags::OpenRequest;

impl SyscallProxy<'_, '_> {
    /// Opens `/dev/tty`. It is a different terminal, or none, for each session: the caller's is
    /// found by its device number in the sandbox's `/dev/pts`, unless the caller is in the notify
    /// handler's own session.
    pub(super) fn open_terminal(&self, request: &OpenRequest) -> Result<NotifyReply, Errno> {
        const OURS: i32 = 0;
        let (session, terminal) = self.caller.terminal(self.caller.pid()).ok_or(Errno::NXIO)?;
        let flags = request.without_create().flags | OFlags::NONBLOCK;
        if self.caller.terminal(OURS).is_some_and(|(ours, _)| ours == session) {
            return request.reply(rustix::fs::open("/dev/tty", flags, Mode::empty())?);
        }
        match (rustix::fs::major(terminal), rustix::fs::minor(terminal)) {
            (136..=143, number) => {
                request.reply(rustix::fs::open(format!("/dev/pts/{number}"), flags, Mode::empty())?)
            }
            _ => Err(Errno::NXIO),
        }
    }
}

/// Device number of `/dev/tty`.
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
