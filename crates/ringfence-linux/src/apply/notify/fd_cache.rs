//! Fds that are opened once and used for many syscalls: opening them each time costs as much as the
//! syscall itself.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::open::open;

use ringfence_sys::process;
use rustix::fs::OFlags;
use rustix::io::Errno;

#[derive(Default)]
pub(super) struct FdCache {
    root: Option<OwnedFd>,
    /// Pidfd of the thread from which an fd was copied last. If the pid is reused, the pidfd still
    /// refers to the ended thread, and the copy fails with ESRCH.
    latest: RefCell<Option<(i32, OwnedFd)>>,
    threads: Cell<ThreadPidfds>,
}

/// Support for pidfds of threads (Linux 6.9; before, of processes only).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ThreadPidfds {
    #[default]
    Supported,
    Unsupported,
}

impl FdCache {
    /// Opens the sandbox's root, after the notify handler has entered the sandbox.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.root = Some(open("/", OFlags::PATH | OFlags::DIRECTORY)?);
        Ok(())
    }

    /// The sandbox's root.
    pub(super) fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.root.as_ref().map(AsFd::as_fd).ok_or(Errno::NOENT)
    }

    /// Copies an fd of a thread.
    pub(super) fn descriptor(&self, thread: i32, number: i32) -> io::Result<OwnedFd> {
        if self.threads.get() == ThreadPidfds::Unsupported {
            return Err(Errno::INVAL.into());
        }
        let mut latest = self.latest.borrow_mut();
        if let Some((known, handle)) = latest.as_ref()
            && *known == thread
        {
            match process::pidfd_getfd(handle.as_fd(), number) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                copied => return copied,
            }
        }
        let handle = process::pidfd_of_thread(thread).inspect_err(|error| {
            if error.raw_os_error() == Some(libc::EINVAL) {
                self.threads.set(ThreadPidfds::Unsupported);
            }
        })?;
        let (_, handle) = latest.insert((thread, handle));
        process::pidfd_getfd(handle.as_fd(), number)
    }
}
