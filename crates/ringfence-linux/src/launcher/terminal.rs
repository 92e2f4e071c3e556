//! The master side of a pseudo-terminal.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_api::TerminalSize;
use ringfence_provider::Terminal;
use rustix::io::Errno;
use rustix::termios::Winsize;

pub(crate) struct PtyMaster(OwnedFd);

impl PtyMaster {
    pub(crate) fn new(master: OwnedFd) -> Self {
        Self(master)
    }
}

impl Read for PtyMaster {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.0, buffer) {
            // No process has the other side open.
            Err(Errno::IO) => Ok(0),
            read => Ok(read?),
        }
    }
}

impl Write for PtyMaster {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Terminal for PtyMaster {
    fn resize(&mut self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.0, size)?)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(AsFd::as_fd(&self.0))
    }
}
