//! Watches on directories, as far as the kernel lets a person have them.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::Shortage;

/// Watches that were put on directories.
pub(super) struct Watches {
    /// `None` if the person has no instance left: nothing is watched then.
    inotify: Option<OwnedFd>,
}

/// Something that happened in watched directories; each is known by the kernel's number.
pub(super) enum Happened<'a> {
    /// A name appeared in one.
    Appeared { number: i32, name: &'a OsStr, is_directory: bool },
    /// One is no longer watched.
    Unwatched(i32),
    /// More than can be told.
    Overrun,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => Ok(Self { inotify: Some(inotify) }),
            Err(Errno::MFILE) => Ok(Self { inotify: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// What there is too little of, where a directory cannot be watched.
    pub(super) fn shortage(&self) -> Shortage {
        if self.inotify.is_some() { Shortage::Watches } else { Shortage::Instances }
    }

    /// Readable when something has happened.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Watches a directory for names that appear in it.
    pub(super) fn add(&self, directory: &OwnedFd) -> rustix::io::Result<i32> {
        let wanted = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let inotify = self.inotify.as_ref().ok_or(Errno::MFILE)?;
        // Our working directory has all that we have opened, by number.
        inotify::add_watch(inotify, directory.as_raw_fd().to_string(), wanted)
    }

    /// Watches it no longer.
    pub(super) fn remove(&self, number: i32) {
        let _ = self.inotify.as_ref().map(|inotify| inotify::remove_watch(inotify, number));
    }

    /// Tells of everything that has happened so far.
    pub(super) fn read(&self, mut told: impl FnMut(Happened<'_>)) -> io::Result<()> {
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let mut space = vec![MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(inotify, &mut space);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told(Happened::Overrun);
            } else if event.events().contains(ReadFlags::IGNORED) {
                told(Happened::Unwatched(event.wd()));
            } else if let Some(name) = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes())) {
                told(Happened::Appeared { number: event.wd(), name, is_directory: event.events().contains(ReadFlags::ISDIR) });
            }
        }
    }
}
