//! The relay itself: who wants to know of which directory, and telling them.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, sockopt,
};

use super::super::super::helper::handed_over;
use super::super::inotify::{InotifyInstance, WatchEvent};
use super::{BrokerEvent, BrokerMessage};

/// So many bytes of names are sent at once: with what stands around them no message is
/// longer than [`super::LONGEST`].
const NAMES: usize = 6 * 1024;

/// What our binary does as the relay; answers its exit status.
pub(in crate::apply) fn main(control: &OwnedFd) -> i32 {
    super::super::hurry();
    let instance = InotifyInstance::new().ok();
    let mut exchange =
        BrokerServer { instance, seats: HashMap::new(), watched: HashMap::new(), next: 0 };
    match exchange.serve(control) {
        Ok(()) => 0,
        Err(_) => 125,
    }
}

/// Everybody who is served, and what is watched for them.
struct BrokerServer {
    /// `None` if the person has no instance left: nothing is watched then.
    instance: Option<InotifyInstance>,
    seats: HashMap<usize, BrokerClient>,
    /// Who wants to know of each directory.
    watched: HashMap<i32, BTreeSet<usize>>,
    next: usize,
}

/// One lookout.
struct BrokerClient {
    socket: OwnedFd,
    /// An answer that it waits for.
    owed: Option<Result<i32, i32>>,
    /// Whether more happened than it could be told.
    is_overrun: bool,
    /// What it is to be told.
    news: Vec<BrokerEvent>,
    names: usize,
}

impl BrokerServer {
    /// Until whoever started us is gone.
    fn serve(&mut self, control: &OwnedFd) -> io::Result<()> {
        loop {
            let numbers: Vec<usize> = self.seats.keys().copied().collect();
            let mut ends = vec![PollFd::new(control, PollFlags::IN)];
            ends.extend(numbers.iter().map(|number| self.seats[number].waits()));
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
                let Some([socket]) = handed_over(control) else { return Ok(()) };
                self.seat(socket);
            }
            for (number, ready) in numbers.into_iter().zip(&ready[1..]) {
                if !ready.is_empty() && !self.attend(number) {
                    self.leave(number);
                }
            }
            self.tell()?;
        }
    }

    fn seat(&mut self, socket: OwnedFd) {
        // As much as is allowed: what does not go in makes a lookout look through everything.
        let _ = sockopt::set_socket_send_buffer_size(&socket, 1 << 20);
        self.seats.insert(
            self.next,
            BrokerClient { socket, owed: None, is_overrun: false, news: Vec::new(), names: 0 },
        );
        self.next += 1;
    }

    /// Does what a lookout asks for; `false` if it is gone.
    fn attend(&mut self, number: usize) -> bool {
        let Some(seat) = self.seats.get_mut(&number) else { return true };
        match asked(&seat.socket) {
            Ok(BrokerRequest::Watch(directory)) => {
                let added = self
                    .instance
                    .as_ref()
                    .ok_or(Errno::MFILE)
                    .and_then(|instance| instance.add_by_number(&directory));
                seat.owed = Some(added.map_err(Errno::raw_os_error));
                if let Ok(watch) = added {
                    self.watched.entry(watch).or_default().insert(number);
                }
            }
            Ok(BrokerRequest::Forget(watch)) => self.forget(watch, number),
            Ok(BrokerRequest::Nothing) => {}
            Err(()) => return false,
        }
        self.seats.get_mut(&number).is_none_or(|seat| seat.settle().is_ok())
    }

    /// One who wants to know of a directory less.
    fn forget(&mut self, watch: i32, number: usize) {
        let Some(wanted) = self.watched.get_mut(&watch) else { return };
        wanted.remove(&number);
        if wanted.is_empty() {
            self.watched.remove(&watch);
            self.instance.iter().for_each(|instance| instance.remove(watch));
        }
    }

    fn leave(&mut self, number: usize) {
        self.seats.remove(&number);
        let all: Vec<i32> = self
            .watched
            .iter()
            .filter(|(_, wanted)| wanted.contains(&number))
            .map(|(watch, _)| *watch)
            .collect();
        all.into_iter().for_each(|watch| self.forget(watch, number));
    }

    /// Tells everybody what has happened to what they watch.
    fn tell(&mut self) -> io::Result<()> {
        let Some(instance) = &self.instance else { return Ok(()) };
        let (seats, watched) = (&mut self.seats, &mut self.watched);
        instance.read(|happened| match &happened {
            WatchEvent::Overrun => seats.values_mut().for_each(|seat| seat.hear(&happened)),
            WatchEvent::Unwatched(watch) => {
                let wanted = watched.remove(watch).unwrap_or_default();
                wanted
                    .iter()
                    .filter_map(|number| seats.get_mut(number).map(|seat| seat.hear(&happened)))
                    .for_each(drop);
            }
            WatchEvent::Appeared { number: watch, .. } => {
                let wanted = watched.get(watch).into_iter().flatten();
                wanted
                    .filter_map(|number| seats.get_mut(number).map(|seat| seat.hear(&happened)))
                    .for_each(drop);
            }
        })?;
        // One that is gone is noticed when it is waited for next.
        self.seats.values_mut().for_each(|seat| seat.pass_on());
        Ok(())
    }
}

impl BrokerClient {
    fn waits(&self) -> PollFd<'_> {
        let is_owed = self.owed.is_some() || self.is_overrun;
        PollFd::new(
            &self.socket,
            if is_owed { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN },
        )
    }

    /// Notes something to be told.
    fn hear(&mut self, happened: &WatchEvent<'_>) {
        if let WatchEvent::Appeared { name, .. } = happened {
            // The number and two lengths take up to 16 bytes.
            self.names += name.len() + 16;
        }
        self.news.push(BrokerEvent::of(happened));
        if self.names + self.news.len() * 8 > NAMES {
            self.pass_on();
        }
    }

    fn pass_on(&mut self) {
        let news = std::mem::take(&mut self.news);
        self.names = 0;
        if !news.is_empty()
            && !self.is_overrun
            && self.send(&BrokerMessage::Happened(news)).is_err()
        {
            self.is_overrun = true;
        }
    }

    /// Sends what could not be sent before.
    fn settle(&mut self) -> Result<(), Errno> {
        if let Some(answer) = self.owed {
            match self.send(&BrokerMessage::Watched(answer)) {
                Err(Errno::AGAIN) => return Ok(()),
                sent => sent?,
            }
            self.owed = None;
        }
        if self.is_overrun {
            match self.send(&BrokerMessage::Happened(vec![BrokerEvent::Overrun])) {
                Err(Errno::AGAIN) => return Ok(()),
                sent => sent?,
            }
            self.is_overrun = false;
        }
        Ok(())
    }

    fn send(&self, word: &BrokerMessage) -> Result<(), Errno> {
        let bytes = postcard::to_stdvec(word).map_err(|_| Errno::INVAL)?;
        rustix::net::send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
    }
}

/// What a lookout wants.
enum BrokerRequest {
    Watch(OwnedFd),
    Forget(i32),
    /// It waits for something to be sent.
    Nothing,
}

fn asked(socket: &OwnedFd) -> Result<BrokerRequest, ()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4];
    let how = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let length = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, how) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(BrokerRequest::Nothing),
        Err(_) => return Err(()),
    };
    let given = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match (given, length) {
        (Some(directory), _) => Ok(BrokerRequest::Watch(directory)),
        (None, 4) => Ok(BrokerRequest::Forget(i32::from_ne_bytes(bytes))),
        _ => Err(()),
    }
}
