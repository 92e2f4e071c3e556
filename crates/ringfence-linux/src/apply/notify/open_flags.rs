//! The flags and mode with which a file is opened for a caller.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::NotifyReply;
use crate::apply::CloseOnExec;
use crate::open::open_at;

/// Mode bits that are kept: setuid and setgid are dropped.
pub(super) const MODE_BITS: u32 = 0o1777;

/// The flags and mode of an open.
#[derive(Clone, Copy)]
pub(super) struct OpenRequest {
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
    pub(super) on_execute: CloseOnExec,
}

impl OpenRequest {
    /// Masks the flags: `openat` ignores bits that `openat2` rejects.
    pub(super) fn new(flags: i32, mode: u32) -> Self {
        const KNOWN: i32 = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_SYNC
            | libc::O_DSYNC
            | libc::O_DIRECT
            | libc::O_DIRECTORY
            | libc::O_NOFOLLOW
            | libc::O_NOATIME;
        let known = OFlags::from_bits_retain((flags & KNOWN) as u32)
            | OFlags::NOCTTY
            | OFlags::CLOEXEC
            | OFlags::LARGEFILE;
        let mode = if known.contains(OFlags::CREATE) {
            Mode::from_raw_mode(mode & MODE_BITS)
        } else {
            Mode::empty()
        };
        Self { flags: known, mode, on_execute: CloseOnExec::from_flags(flags) }
    }

    pub(super) fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
    }

    pub(super) fn reads(&self) -> bool {
        !self.flags.contains(OFlags::WRONLY)
    }

    /// True if an open of a FIFO would wait for a writer.
    pub(super) fn may_wait_for_writer(&self) -> bool {
        !self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::NONBLOCK)
    }

    pub(super) fn without_create(self) -> Self {
        Self { flags: self.flags - (OFlags::CREATE | OFlags::EXCL), mode: Mode::empty(), ..self }
    }

    /// Flag that keeps an open from blocking. A file created with `O_EXCL` is regular and never
    /// blocks.
    pub(super) fn nonblock_flag(&self) -> OFlags {
        if self.flags.contains(OFlags::CREATE | OFlags::EXCL) {
            OFlags::empty()
        } else {
            OFlags::NONBLOCK
        }
    }

    /// The same open, but it fails if the name exists.
    pub(super) fn with_excl(self) -> Self {
        Self { flags: self.flags | OFlags::EXCL, ..self }
    }

    /// Opens without blocking, follows no symlink and does not truncate: truncation waits for the
    /// policy check.
    pub(super) fn open_at(&self, directory: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        let flags = (self.flags - OFlags::TRUNC) | self.nonblock_flag();
        rustix::fs::openat2(directory, path, flags, self.mode, ResolveFlags::NO_SYMLINKS)
    }

    /// Truncates the opened file, if the caller asked for it.
    pub(super) fn truncate(
        &self,
        host_proc: BorrowedFd<'_>,
        opened: &OwnedFd,
        status: &Stat,
    ) -> Result<(), Errno> {
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if !is_file || !self.flags.contains(OFlags::TRUNC) {
            return Ok(());
        }
        if self.flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return rustix::fs::ftruncate(opened, 0);
        }
        let again = format!("self/fd/{}", opened.as_raw_fd());
        open_at(host_proc, again, OFlags::RDONLY | OFlags::TRUNC).map(drop)
    }

    pub(super) fn fd_flags(&self) -> u32 {
        self.on_execute.flags()
    }

    /// Clears `O_NONBLOCK`, which was set so as not to block.
    pub(super) fn clear_nonblock(&self, opened: OwnedFd) -> Result<OwnedFd, Errno> {
        if !self.flags.contains(OFlags::NONBLOCK) && !self.nonblock_flag().is_empty() {
            rustix::fs::fcntl_setfl(
                &opened,
                self.flags & (OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME),
            )?;
        }
        Ok(opened)
    }

    pub(super) fn reply(&self, opened: OwnedFd) -> Result<NotifyReply, Errno> {
        Ok(NotifyReply::Descriptor(self.clear_nonblock(opened)?, self.fd_flags()))
    }
}
