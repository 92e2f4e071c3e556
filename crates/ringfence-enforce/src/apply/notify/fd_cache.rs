//! What is opened once for many calls: opening it anew costs as much as the call itself.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_sys::process;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

#[derive(Default)]
pub(super) struct FdCache {
    root: Option<OwnedFd>,
    /// The thread that was asked for a descriptor last. A number that another has by now leads
    /// to nobody: the handle is of the one that has ended.
    latest: RefCell<Option<(i32, OwnedFd)>>,
    threads: Cell<ThreadPidfds>,
}

/// Whether the kernel gives handles of threads (6.9; before, of processes only).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ThreadPidfds {
    #[default]
    Known,
    Unknown,
}

impl FdCache {
    /// We are in the sandbox: its root is ours from now on, and stays.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.root = Some(rustix::fs::open(
            "/",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        Ok(())
    }

    /// The sandbox's root.
    pub(super) fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.root.as_ref().map(AsFd::as_fd).ok_or(Errno::NOENT)
    }

    /// A copy of a thread's descriptor.
    pub(super) fn descriptor(&self, thread: i32, number: i32) -> io::Result<OwnedFd> {
        if self.threads.get() == ThreadPidfds::Unknown {
            return Err(Errno::INVAL.into());
        }
        let mut latest = self.latest.borrow_mut();
        if let Some((known, handle)) = latest.as_ref()
            && *known == thread
        {
            match process::descriptor_of(handle.as_fd(), number) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                copied => return copied,
            }
        }
        let handle = process::pidfd_of_thread(thread).inspect_err(|error| {
            if error.raw_os_error() == Some(libc::EINVAL) {
                self.threads.set(ThreadPidfds::Unknown);
            }
        })?;
        let (_, handle) = latest.insert((thread, handle));
        process::descriptor_of(handle.as_fd(), number)
    }
}
