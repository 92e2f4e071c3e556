//! The flags and mode with which a file is opened for a caller.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::NotifyReply;
use crate::apply::CloseOnExec;

/// The bits of a mode that are taken over: no file is made to run as its owner or group.
pub(super) const PLAIN: u32 = 0o1777;

/// How a file is to be opened.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
    pub(super) on_execute: CloseOnExec,
}

impl Wish {
    /// `openat` ignores bits that `openat2` refuses.
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
            Mode::from_raw_mode(mode & PLAIN)
        } else {
            Mode::empty()
        };
        Self { flags: known, mode, on_execute: CloseOnExec::of(flags) }
    }

    pub(super) fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
    }

    /// Answers whether an open of a pipe would wait for a writer.
    pub(super) fn only_reads(&self) -> bool {
        !self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::NONBLOCK)
    }

    pub(super) fn without_making(self) -> Self {
        Self { flags: self.flags - (OFlags::CREATE | OFlags::EXCL), mode: Mode::empty(), ..self }
    }

    /// What keeps an open from waiting. What is made anew is a plain file, which never does.
    pub(super) fn impatience(&self) -> OFlags {
        if self.flags.contains(OFlags::CREATE | OFlags::EXCL) {
            OFlags::empty()
        } else {
            OFlags::NONBLOCK
        }
    }

    /// The same, but only for a name that is not there yet.
    pub(super) fn exclusively(self) -> Self {
        Self { flags: self.flags | OFlags::EXCL, ..self }
    }

    /// Never waits, follows no link and leaves the content: that goes once the file is judged.
    pub(super) fn open_at(&self, directory: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        let flags = (self.flags - OFlags::TRUNC) | self.impatience();
        rustix::fs::openat2(directory, path, flags, self.mode, ResolveFlags::NO_SYMLINKS)
    }

    /// Takes the content away, if that was wanted of what is open now.
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
        rustix::fs::openat(
            host_proc,
            again,
            OFlags::RDONLY | OFlags::TRUNC | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(drop)
    }

    pub(super) fn target_flags(&self) -> u32 {
        self.on_execute.flags()
    }

    /// Takes off the flag with which it was opened so as not to wait.
    pub(super) fn unblocked(&self, opened: OwnedFd) -> Result<OwnedFd, Errno> {
        if !self.flags.contains(OFlags::NONBLOCK) && !self.impatience().is_empty() {
            rustix::fs::fcntl_setfl(
                &opened,
                self.flags & (OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME),
            )?;
        }
        Ok(opened)
    }

    pub(super) fn reply(&self, opened: OwnedFd) -> Result<NotifyReply, Errno> {
        Ok(NotifyReply::Descriptor(self.unblocked(opened)?, self.target_flags()))
    }
}
