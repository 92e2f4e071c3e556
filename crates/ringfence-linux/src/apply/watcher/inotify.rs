//! Watches on directories, within the kernel's per-user limits.

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

use super::super::fd_passing::send_fds;
use super::InotifyShortage;
use super::inotify_broker::{BrokerEvent, BrokerMessage, MAX_MESSAGE};

/// An event in a watched directory, which is identified by its watch descriptor.
pub(super) enum WatchEvent<'a> {
    /// A name appeared in a directory.
    Appeared { number: i32, name: &'a OsStr, is_directory: bool },
    /// A directory is no longer watched.
    Unwatched(i32),
    /// The event queue overflowed.
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

    /// Watches an opened directory, independent of its path.
    pub(super) fn add_by_number(&self, directory: &OwnedFd) -> rustix::io::Result<i32> {
        self.add(format!("/proc/self/fd/{}", directory.as_raw_fd()))
    }

    pub(super) fn remove(&self, number: i32) {
        let _ = inotify::remove_watch(&self.0, number);
    }

    /// Passes every pending event to `handle`.
    pub(super) fn read(&self, mut handle: impl FnMut(WatchEvent<'_>)) -> io::Result<()> {
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
                handle(WatchEvent::Overrun);
            } else if event.events().contains(ReadFlags::IGNORED) {
                handle(WatchEvent::Unwatched(event.wd()));
            } else if let Some(name) =
                event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()))
            {
                handle(WatchEvent::Appeared {
                    number: event.wd(),
                    name,
                    is_directory: event.events().contains(ReadFlags::ISDIR),
                });
            }
        }
    }
}

/// The watches of one watcher process.
pub(super) struct WatchSet {
    backend: WatchBackend,
    shortage: Cell<InotifyShortage>,
}

enum WatchBackend {
    Own(InotifyInstance),
    /// The broker's socket, and events that arrived while waiting for an answer.
    Broker(OwnedFd, RefCell<Vec<BrokerEvent>>),
    /// The user has no inotify instance left: nothing is watched.
    Unavailable,
}

impl WatchSet {
    /// Uses the broker if there is a connection to it.
    pub(super) fn new(broker: Option<OwnedFd>) -> io::Result<Self> {
        let backend = match broker.map_or_else(
            || InotifyInstance::new().map(WatchBackend::Own),
            |broker| Ok(WatchBackend::Broker(broker, RefCell::default())),
        ) {
            Err(Errno::MFILE) => WatchBackend::Unavailable,
            backend => backend?,
        };
        Ok(Self { backend, shortage: Cell::new(InotifyShortage::Watches) })
    }

    /// The limit that was reached, if a directory could not be watched.
    pub(super) fn shortage(&self) -> InotifyShortage {
        self.shortage.get()
    }

    /// Readable when there are events.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.backend {
            WatchBackend::Own(instance) => Some(instance.descriptor()),
            WatchBackend::Broker(broker, _) => Some(broker.as_fd()),
            WatchBackend::Unavailable => None,
        }
    }

    /// True if events are queued here that the fd does not show as readable.
    pub(super) fn has_queued(&self) -> bool {
        matches!(&self.backend, WatchBackend::Broker(_, queued) if !queued.borrow().is_empty())
    }

    /// Watches a directory for names that appear in it.
    pub(super) fn add(&self, directory: &OwnedFd) -> rustix::io::Result<i32> {
        let added = match &self.backend {
            // The working directory is `/proc/self/fd`: it lists every open fd by number.
            WatchBackend::Own(instance) => instance.add(directory.as_raw_fd().to_string()),
            WatchBackend::Broker(broker, queued) => request_watch(broker, directory, queued),
            WatchBackend::Unavailable => Err(Errno::MFILE),
        };
        if added == Err(Errno::MFILE) {
            self.shortage.set(InotifyShortage::Instances);
        }
        added
    }

    /// Removes a watch.
    pub(super) fn remove(&self, number: i32) {
        match &self.backend {
            WatchBackend::Own(instance) => instance.remove(number),
            WatchBackend::Broker(broker, _) => {
                let _ = rustix::net::send(broker, &number.to_ne_bytes(), SendFlags::NOSIGNAL);
            }
            WatchBackend::Unavailable => {}
        }
    }

    /// Passes every pending event to `handle`.
    pub(super) fn read(&self, mut handle: impl FnMut(WatchEvent<'_>)) -> io::Result<()> {
        match &self.backend {
            WatchBackend::Own(instance) => instance.read(handle),
            WatchBackend::Broker(broker, queued) => {
                queued.take().iter().for_each(|event| handle(event.as_watch_event()));
                while let Some(message) = receive(broker)? {
                    if let BrokerMessage::Events(events) = message {
                        events.iter().for_each(|event| handle(event.as_watch_event()));
                    }
                }
                Ok(())
            }
            WatchBackend::Unavailable => Ok(()),
        }
    }
}

/// Asks the broker to watch a directory. The broker never blocks. If it does not answer within 10
/// s, its socket is shut down: the watcher ends, and with it the sandbox.
fn request_watch(
    broker: &OwnedFd,
    directory: &OwnedFd,
    queued: &RefCell<Vec<BrokerEvent>>,
) -> rustix::io::Result<i32> {
    const TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    send_fds(broker, [directory.as_fd()])?;
    loop {
        match receive(broker)? {
            Some(BrokerMessage::Watched(Ok(number))) => return Ok(number),
            // A directory that only the broker may not read counts as unwatched, which differs from
            // a directory that no process here may read.
            Some(BrokerMessage::Watched(Err(libc::EACCES))) => return Err(Errno::PERM),
            Some(BrokerMessage::Watched(Err(number))) => {
                return Err(Errno::from_raw_os_error(number));
            }
            Some(BrokerMessage::Events(events)) => queued.borrow_mut().extend(events),
            None if poll(&mut [PollFd::new(broker, PollFlags::IN)], Some(&TIMEOUT)) == Ok(0) => {
                rustix::net::shutdown(broker, Shutdown::Both)?;
                return Err(Errno::TIMEDOUT);
            }
            None => {}
        }
    }
}

/// Receives the next message from the broker; `None` if there is none yet.
fn receive(broker: &OwnedFd) -> rustix::io::Result<Option<BrokerMessage>> {
    let mut buffer = vec![0; MAX_MESSAGE];
    match rustix::net::recv(broker, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(Errno::PIPE),
        Ok((length, _)) => {
            postcard::from_bytes(&buffer[..length]).map(Some).map_err(|_| Errno::BADMSG)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}
