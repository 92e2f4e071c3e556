//! The broker process: tracks which client watches which directory, and forwards events.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::super::inotify::{InotifyInstance, WatchEvent};
use super::{BrokerEvent, BrokerMessage};
use crate::apply::fd_passing::{receive_bytes_with_fds, receive_fds};

/// Bytes of names per message: with the framing, no message is longer than [`super::MAX_MESSAGE`].
const MAX_NAMES: usize = 6 * 1024;

/// Entry point of the broker process. Returns its exit status.
pub(in crate::apply) fn main(control: &OwnedFd) -> i32 {
    super::super::request_short_slices();
    let instance = InotifyInstance::new().ok();
    let mut server =
        BrokerServer { instance, clients: HashMap::new(), watched: HashMap::new(), next: 0 };
    match server.serve(control) {
        Ok(()) => 0,
        Err(_) => 125,
    }
}

/// All clients, and the directories watched for them.
struct BrokerServer {
    /// `None` if the user has no inotify instance left: then nothing is watched.
    instance: Option<InotifyInstance>,
    clients: HashMap<usize, BrokerClient>,
    /// The clients of each watch.
    watched: HashMap<i32, BTreeSet<usize>>,
    next: usize,
}

/// One watcher.
struct BrokerClient {
    socket: OwnedFd,
    /// An answer that the client waits for.
    pending_answer: Option<Result<i32, i32>>,
    /// True if more happened than could be sent.
    is_overrun: bool,
    /// Events to be sent.
    events: Vec<BrokerEvent>,
    names: usize,
}

impl BrokerServer {
    /// Serves until the launcher is gone.
    fn serve(&mut self, control: &OwnedFd) -> io::Result<()> {
        loop {
            let numbers: Vec<usize> = self.clients.keys().copied().collect();
            let mut ends = vec![PollFd::new(control, PollFlags::IN)];
            ends.extend(numbers.iter().map(|number| self.clients[number].poll_fd()));
            ends.extend(
                self.instance
                    .as_ref()
                    .map(|instance| PollFd::from_borrowed_fd(instance.descriptor(), PollFlags::IN)),
            );
            match poll(&mut ends, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<PollFlags> = ends.iter().map(PollFd::revents).collect();
            drop(ends);
            if !ready[0].is_empty() {
                let Some([socket]) = receive_fds(control) else { return Ok(()) };
                self.add_client(socket);
            }
            for (number, ready) in numbers.into_iter().zip(&ready[1..]) {
                if !ready.is_empty() && !self.handle_request(number) {
                    self.remove_client(number);
                }
            }
            self.forward_events()?;
        }
    }

    fn add_client(&mut self, socket: OwnedFd) {
        // The largest allowed buffer: an event that does not fit forces the watcher to scan all
        // trees.
        let _ = sockopt::set_socket_send_buffer_size(&socket, 1 << 20);
        self.clients.insert(
            self.next,
            BrokerClient {
                socket,
                pending_answer: None,
                is_overrun: false,
                events: Vec::new(),
                names: 0,
            },
        );
        self.next += 1;
    }

    /// Handles a request of a client; `false` if the client is gone.
    fn handle_request(&mut self, number: usize) -> bool {
        let Some(client) = self.clients.get_mut(&number) else { return true };
        match receive_request(&client.socket) {
            Ok(BrokerRequest::Watch(directory)) => {
                let added = self
                    .instance
                    .as_ref()
                    .ok_or(Errno::MFILE)
                    .and_then(|instance| instance.add_by_number(&directory));
                client.pending_answer = Some(added.map_err(Errno::raw_os_error));
                if let Ok(watch) = added {
                    self.watched.entry(watch).or_default().insert(number);
                }
            }
            Ok(BrokerRequest::Forget(watch)) => self.forget(watch, number),
            Ok(BrokerRequest::Nothing) => {}
            Err(()) => return false,
        }
        self.clients.get_mut(&number).is_none_or(|client| client.send_pending().is_ok())
    }

    /// Removes a client from a watch.
    fn forget(&mut self, watch: i32, number: usize) {
        let Some(watchers) = self.watched.get_mut(&watch) else { return };
        watchers.remove(&number);
        if watchers.is_empty() {
            self.watched.remove(&watch);
            self.instance.iter().for_each(|instance| instance.remove(watch));
        }
    }

    fn remove_client(&mut self, number: usize) {
        self.clients.remove(&number);
        let all: Vec<i32> = self
            .watched
            .iter()
            .filter(|(_, watchers)| watchers.contains(&number))
            .map(|(watch, _)| *watch)
            .collect();
        all.into_iter().for_each(|watch| self.forget(watch, number));
    }

    /// Forwards pending events to the clients that watch the directory.
    fn forward_events(&mut self) -> io::Result<()> {
        let Some(instance) = &self.instance else { return Ok(()) };
        let (clients, watched) = (&mut self.clients, &mut self.watched);
        instance.read(|event| match &event {
            WatchEvent::Overrun => {
                clients.values_mut().for_each(|client| client.queue_event(&event))
            }
            WatchEvent::Unwatched(watch) => {
                let watchers = watched.remove(watch).unwrap_or_default();
                watchers
                    .iter()
                    .filter_map(|number| {
                        clients.get_mut(number).map(|client| client.queue_event(&event))
                    })
                    .for_each(drop);
            }
            WatchEvent::Appeared { number: watch, .. } => {
                let watchers = watched.get(watch).into_iter().flatten();
                watchers
                    .filter_map(|number| {
                        clients.get_mut(number).map(|client| client.queue_event(&event))
                    })
                    .for_each(drop);
            }
        })?;
        // A client that is gone is noticed at the next poll.
        self.clients.values_mut().for_each(|client| client.flush());
        Ok(())
    }
}

impl BrokerClient {
    fn poll_fd(&self) -> PollFd<'_> {
        let is_pending = self.pending_answer.is_some() || self.is_overrun;
        PollFd::new(
            &self.socket,
            if is_pending { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN },
        )
    }

    /// Queues an event.
    fn queue_event(&mut self, event: &WatchEvent<'_>) {
        if let WatchEvent::Appeared { name, .. } = event {
            // The watch descriptor and two lengths take up to 16 bytes.
            self.names += name.len() + 16;
        }
        self.events.push(BrokerEvent::from_watch_event(event));
        if self.names + self.events.len() * 8 > MAX_NAMES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.names = 0;
        if !events.is_empty()
            && !self.is_overrun
            && self.send(&BrokerMessage::Events(events)).is_err()
        {
            self.is_overrun = true;
        }
    }

    /// Sends messages that could not be sent before.
    fn send_pending(&mut self) -> Result<(), Errno> {
        if let Some(answer) = self.pending_answer {
            match self.send(&BrokerMessage::Watched(answer)) {
                Err(Errno::AGAIN) => return Ok(()),
                sent => sent?,
            }
            self.pending_answer = None;
        }
        if self.is_overrun {
            match self.send(&BrokerMessage::Events(vec![BrokerEvent::Overrun])) {
                Err(Errno::AGAIN) => return Ok(()),
                sent => sent?,
            }
            self.is_overrun = false;
        }
        Ok(())
    }

    fn send(&self, message: &BrokerMessage) -> Result<(), Errno> {
        let bytes = postcard::to_stdvec(message).map_err(|_| Errno::INVAL)?;
        rustix::net::send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
    }
}

/// A request of a watcher.
enum BrokerRequest {
    Watch(OwnedFd),
    Forget(i32),
    /// The client only became writable.
    Nothing,
}

fn receive_request(socket: &OwnedFd) -> Result<BrokerRequest, ()> {
    let mut bytes = [0; 4];
    let (length, fds) = match receive_bytes_with_fds(socket, &mut bytes, RecvFlags::DONTWAIT) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(BrokerRequest::Nothing),
        Err(_) => return Err(()),
    };
    match (fds.into_iter().next(), length) {
        (Some(directory), _) => Ok(BrokerRequest::Watch(directory)),
        (None, 4) => Ok(BrokerRequest::Forget(i32::from_ne_bytes(bytes))),
        _ => Err(()),
    }
}
