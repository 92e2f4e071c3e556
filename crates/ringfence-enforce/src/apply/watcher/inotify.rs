//! Watches on directories, as far as the kernel lets a person have them.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::time::Timespec;

use super::super::helper::hand_over;
use super::InotifyShortage;
use super::inotify_broker::{BrokerEvent, BrokerMessage, LONGEST};

/// Something that happened in watched directories; each is known by the kernel's number.
pub(super) enum WatchEvent<'a> {
    /// A name appeared in one.
    Appeared { number: i32, name: &'a OsStr, is_directory: bool },
    /// One is no longer watched.
    Unwatched(i32),
    /// More than can be told.
    Overrun,
}

/// An inotify instance.
pub(super) struct InotifyInstance(OwnedFd);

impl InotifyInstance {
    pub(super) fn new() -> rustix::io::Result<Self> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map(Self)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn add(&self, path: String) -> rustix::io::Result<i32> {
        inotify::add_watch(
            &self.0,
            path,
            WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR,
        )
    }

    /// Watches a directory that was opened, wherever it is.
    pub(super) fn add_by_number(&self, directory: &OwnedFd) -> rustix::io::Result<i32> {
        self.add(format!("/proc/self/fd/{}", directory.as_raw_fd()))
    }

    pub(super) fn remove(&self, number: i32) {
        let _ = inotify::remove_watch(&self.0, number);
    }

    /// Tells of everything that has happened so far.
    pub(super) fn read(&self, mut told: impl FnMut(WatchEvent<'_>)) -> io::Result<()> {
        let mut space = vec![MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(&self.0, &mut space);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told(WatchEvent::Overrun);
            } else if event.events().contains(ReadFlags::IGNORED) {
                told(WatchEvent::Unwatched(event.wd()));
            } else if let Some(name) =
                event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()))
            {
                told(WatchEvent::Appeared {
                    number: event.wd(),
                    name,
                    is_directory: event.events().contains(ReadFlags::ISDIR),
                });
            }
        }
    }
}

/// The watches of one lookout.
pub(super) struct WatchSet {
    by: WatchBackend,
    shortage: Cell<InotifyShortage>,
}

enum WatchBackend {
    Own(InotifyInstance),
    /// The relay, and what it told while it was waited for.
    Relay(OwnedFd, RefCell<Vec<BrokerEvent>>),
    /// The person has no instance left: nothing is watched.
    Nobody,
}

impl WatchSet {
    /// By the relay, if there is an end of it.
    pub(super) fn new(relay: Option<OwnedFd>) -> io::Result<Self> {
        let by = match relay.map_or_else(
            || InotifyInstance::new().map(WatchBackend::Own),
            |relay| Ok(WatchBackend::Relay(relay, RefCell::default())),
        ) {
            Err(Errno::MFILE) => WatchBackend::Nobody,
            by => by?,
        };
        Ok(Self { by, shortage: Cell::new(InotifyShortage::Watches) })
    }

    /// What there is too little of, where a directory could not be watched.
    pub(super) fn shortage(&self) -> InotifyShortage {
        self.shortage.get()
    }

    /// Readable when something has happened.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.by {
            WatchBackend::Own(instance) => Some(instance.descriptor()),
            WatchBackend::Relay(relay, _) => Some(relay.as_fd()),
            WatchBackend::Nobody => None,
        }
    }

    /// Whether something has happened that the descriptor no longer tells of.
    pub(super) fn has_heard(&self) -> bool {
        matches!(&self.by, WatchBackend::Relay(_, heard) if !heard.borrow().is_empty())
    }

    /// Watches a directory for names that appear in it.
    pub(super) fn add(&self, directory: &OwnedFd) -> rustix::io::Result<i32> {
        let added = match &self.by {
            // Our working directory has all that we have opened, by number.
            WatchBackend::Own(instance) => instance.add(directory.as_raw_fd().to_string()),
            WatchBackend::Relay(relay, heard) => ask(relay, directory, heard),
            WatchBackend::Nobody => Err(Errno::MFILE),
        };
        if added == Err(Errno::MFILE) {
            self.shortage.set(InotifyShortage::Instances);
        }
        added
    }

    /// Watches it no longer.
    pub(super) fn remove(&self, number: i32) {
        match &self.by {
            WatchBackend::Own(instance) => instance.remove(number),
            WatchBackend::Relay(relay, _) => {
                let _ = rustix::net::send(relay, &number.to_ne_bytes(), SendFlags::NOSIGNAL);
            }
            WatchBackend::Nobody => {}
        }
    }

    /// Tells of everything that has happened so far.
    pub(super) fn read(&self, mut told: impl FnMut(WatchEvent<'_>)) -> io::Result<()> {
        match &self.by {
            WatchBackend::Own(instance) => instance.read(told),
            WatchBackend::Relay(relay, heard) => {
                heard.take().iter().for_each(|event| told(event.happened()));
                while let Some(word) = hear(relay)? {
                    if let BrokerMessage::Happened(events) = word {
                        events.iter().for_each(|event| told(event.happened()));
                    }
                }
                Ok(())
            }
            WatchBackend::Nobody => Ok(()),
        }
    }
}

/// Has the relay watch a directory. It has nothing to wait for. Should it not answer, it is
/// not heard any more: we end, and with us the sandbox.
fn ask(
    relay: &OwnedFd,
    directory: &OwnedFd,
    heard: &RefCell<Vec<BrokerEvent>>,
) -> rustix::io::Result<i32> {
    const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    hand_over(relay, [directory.as_fd()])?;
    loop {
        match hear(relay)? {
            Some(BrokerMessage::Watched(Ok(number))) => return Ok(number),
            // Whatever it may not look into is not watched: that is another thing than what
            // nobody may look into.
            Some(BrokerMessage::Watched(Err(libc::EACCES))) => return Err(Errno::PERM),
            Some(BrokerMessage::Watched(Err(number))) => {
                return Err(Errno::from_raw_os_error(number));
            }
            Some(BrokerMessage::Happened(events)) => heard.borrow_mut().extend(events),
            None if poll(&mut [PollFd::new(relay, PollFlags::IN)], Some(&PATIENCE)) == Ok(0) => {
                rustix::net::shutdown(relay, Shutdown::Both)?;
                return Err(Errno::TIMEDOUT);
            }
            None => {}
        }
    }
}

/// What the relay says next; `None` if it has not said anything more.
fn hear(relay: &OwnedFd) -> rustix::io::Result<Option<BrokerMessage>> {
    let mut buffer = vec![0; LONGEST];
    match rustix::net::recv(relay, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(Errno::PIPE),
        Ok((length, _)) => {
            postcard::from_bytes(&buffer[..length]).map(Some).map_err(|_| Errno::BADMSG)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}
