//! A conversation between a program and a host, each of whom speaks with us.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::answers::{Answers, Kind, Pieces, Unreadable};
use super::leg::Leg;
use super::scrub::Scrub;
use super::swap;
use super::{Errand, Told};
use crate::peek::head::Afterwards;
use crate::peek::requests::{Next, Piece, Requests};
use crate::peek::{LONGEST, Objection};

/// How long the two may take until they can speak.
const GREETING: Duration = Duration::from_secs(30);
/// How long one who was refused may take to ask, and to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// What goes on between the two.
pub(super) struct Talk {
    near: Leg,
    far: Leg,
    errand: Errand,
    requests: Requests,
    answers: Answers,
    /// Until when something is held back.
    held: Option<Instant>,
    /// What the program has said and was not passed on yet.
    queue: Vec<u8>,
    /// The host has answered something.
    is_answered: bool,
    /// The request that is on its way is the last.
    is_last: bool,
}

/// What cannot be got over.
enum Fault {
    Near(io::Error),
    Far(io::Error),
    Refused(Objection),
    Unreadable(Unreadable),
}

impl Talk {
    pub(super) fn new(near: Leg, far: Leg, errand: Errand) -> Self {
        let requests = Requests::new(errand.name.clone(), errand.port);
        let scrub = Scrub::new(errand.swaps.iter().map(|swap| swap.value.reveal()));
        let (answers, queue) = (Answers::new(scrub), Vec::new());
        Self {
            near,
            far,
            errand,
            requests,
            answers,
            held: None,
            queue,
            is_answered: false,
            is_last: false,
        }
    }

    /// Until it is over.
    pub(super) fn hold(mut self) {
        match self.carry() {
            Ok(()) if self.far.is_torn() => self.near.tear(),
            Ok(()) => self.near.shut(),
            Err(Fault::Near(error)) => {
                if self.near.is_greeting() {
                    (self.errand.told)(Told::Failed(format!(
                        "the program did not accept the sandbox's certificate: {error}"
                    )));
                }
            }
            Err(Fault::Far(error)) => {
                let sentence = format!("TLS or HTTP with {} failed: {error}", self.errand.name);
                if !self.is_answered {
                    (self.errand.told)(Told::Failed(sentence.clone()));
                    self.answer("502 Bad Gateway", &sentence);
                }
            }
            Err(Fault::Unreadable(Unreadable(why))) => {
                let sentence = format!("the answer of {} is withheld: {why}", self.errand.name);
                (self.errand.told)(Told::Failed(sentence.clone()));
                if self.answers.is_unbegun() {
                    self.say("502 Bad Gateway", &sentence);
                }
                self.near.tear();
            }
            Err(Fault::Refused(objection)) => {
                (self.errand.told)(Told::Refused(objection.to_string()));
                // In the middle of another answer it would be read as part of that.
                if self.answers.is_quiet() {
                    self.answer(
                        "421 Misdirected Request",
                        &format!("this request does not go to {}: {objection}", self.errand.name),
                    );
                }
            }
        }
        self.part();
    }

    fn carry(&mut self) -> Result<(), Fault> {
        let greeting = Instant::now() + GREETING;
        loop {
            if !self.far.is_greeting() {
                self.pass_requests()?;
            }
            self.near.flush().map_err(Fault::Near)?;
            self.far.flush().map_err(Fault::Far)?;
            let is_over = self.is_last && self.answers.is_quiet();
            if self.far.is_heard_out() || is_over {
                if self.far.is_greeting() {
                    return Err(Fault::Far(Errno::CONNRESET.into()));
                }
                self.release()?;
                return self.send_rest();
            }
            if self.near.is_heard_out() && !self.far.is_full() && !self.far.is_greeting() {
                if self.near.is_greeting() {
                    return Err(Fault::Near(Errno::CONNRESET.into()));
                }
                self.far.shut();
            }
            let is_greeting = self.near.is_greeting() || self.far.is_greeting();
            match self.wait(self.limit(greeting)).map_err(Fault::Near)? {
                Heard::Nothing if self.is_overdue() => self.release()?,
                Heard::Nothing if is_greeting => {
                    let late = Errno::TIMEDOUT.into();
                    return Err(if self.far.is_greeting() {
                        Fault::Far(late)
                    } else {
                        Fault::Near(late)
                    });
                }
                Heard::Nothing => {}
                Heard::Gone => return Ok(()),
                Heard::Some { near, far } => {
                    if near {
                        let said = self.near.hear().map_err(Fault::Near)?;
                        self.queue.extend_from_slice(&said);
                    }
                    if far {
                        self.host_speaks()?;
                    }
                    if self.is_overdue() {
                        self.release()?;
                    }
                }
            }
        }
    }

    /// How long to wait for the two. What is held is held for as long as the program has not taken
    /// what comes before it: it could keep the rest from coming.
    fn limit(&self, greeting: Instant) -> Option<Duration> {
        let is_greeting = self.near.is_greeting() || self.far.is_greeting();
        let end = match self.held.filter(|_| !self.near.is_full()) {
            Some(held) => Some(held),
            None => is_greeting.then_some(greeting),
        };
        end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    fn is_overdue(&self) -> bool {
        !self.near.is_full() && self.held.is_some_and(|held| held <= Instant::now())
    }

    /// Waits until somebody speaks or can be spoken to. From each only so much is heard as the
    /// other takes.
    fn wait(&self, limit: Option<Duration>) -> io::Result<Heard> {
        let may_ask = self.near.is_greeting()
            || !(self.far.is_greeting() || self.far.is_full() || self.queue.len() >= LONGEST);
        let flags = |leg: &Leg, may_hear: bool| {
            let hear =
                if may_hear && !leg.is_heard_out() { PollFlags::IN } else { PollFlags::empty() };
            hear | if leg.is_full() { PollFlags::OUT } else { PollFlags::empty() }
        };
        let (near, far) = (flags(&self.near, may_ask), flags(&self.far, !self.near.is_full()));
        let mut polled = vec![PollFd::new(&self.near.socket, near)];
        if !far.is_empty() {
            polled.push(PollFd::new(&self.far.socket, far));
        }
        match poll(&mut polled, limit.map(timespec).as_ref()) {
            Ok(0) => return Ok(Heard::Nothing),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Heard::Some { near: false, far: false }),
            Err(error) => return Err(error.into()),
        }
        let told = |at: usize| polled.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let wrong = PollFlags::HUP | PollFlags::ERR;
        // Nobody is inside any more to hear anything.
        if told(0).intersects(wrong) && !near.contains(PollFlags::IN) {
            return Ok(Heard::Gone);
        }
        let speaks = |asked: PollFlags, told: PollFlags| {
            asked.contains(PollFlags::IN) && told.intersects(PollFlags::IN | wrong)
        };
        Ok(Heard::Some { near: speaks(near, told(0)), far: speaks(far, told(1)) })
    }

    fn host_speaks(&mut self) -> Result<(), Fault> {
        let said = self.far.hear().map_err(Fault::Far)?;
        if said.is_empty() {
            return Ok(());
        }
        if self.requests.wants_answer() {
            self.requests.answer(&said);
        }
        let mut clean = Pieces::default();
        let heard = self.answers.hear(&said, &mut clean);
        self.pass_on(&clean)?;
        self.held = self.answers.patience().map(|patience| Instant::now() + patience);
        heard.map_err(Fault::Unreadable)
    }

    /// Passes on what belongs to requests for the host, with the values in their heads.
    fn pass_requests(&mut self) -> Result<(), Fault> {
        let (mut said, mut from) = (Vec::new(), 0);
        while let Some(piece) = self.requests.piece(&self.queue[from..]) {
            let bytes = &self.queue[from..from + piece.length()];
            from += piece.length();
            match piece {
                Piece::Other(_) => said.extend_from_slice(bytes),
                Piece::Head(0) => {}
                Piece::Head(_) => {
                    let method = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
                    if method == b"TRACE" {
                        return Err(Fault::Refused(Objection::Trace));
                    }
                    self.answers.expect(if method == b"HEAD" { Kind::Head } else { Kind::Other });
                    self.is_last = self.requests.is_last();
                    let afterwards =
                        if self.is_last { Afterwards::Closed } else { Afterwards::Open };
                    let (with, names) = swap::put(bytes, &self.errand.swaps, afterwards);
                    if with.len() > LONGEST {
                        return Err(Fault::Refused(Objection::TooLong));
                    }
                    names
                        .into_iter()
                        .for_each(|name| (self.errand.told)(Told::Put(name.to_owned())));
                    said.extend_from_slice(&with);
                }
            }
        }
        self.queue.drain(..from);
        self.far.say(&said).map_err(Fault::Far)?;
        match self.requests.next() {
            Next::Refused(objection) => Err(Fault::Refused(objection)),
            Next::More | Next::Answer | Next::Opaque | Next::Over => Ok(()),
        }
    }

    fn release(&mut self) -> Result<(), Fault> {
        self.held = None;
        let mut rest = Pieces::default();
        self.answers.release(&mut rest);
        self.pass_on(&rest)
    }

    fn pass_on(&mut self, pieces: &Pieces) -> Result<(), Fault> {
        for piece in pieces.iter() {
            self.is_answered = true;
            self.near.say(piece).map_err(Fault::Near)?;
        }
        Ok(())
    }

    /// What the host has said last, until the program has it.
    fn send_rest(&mut self) -> Result<(), Fault> {
        loop {
            self.near.flush().map_err(Fault::Near)?;
            if !self.near.is_full() {
                return Ok(());
            }
            let mut polled = [PollFd::new(&self.near.socket, PollFlags::OUT)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::Near(error.into())),
            }
        }
    }

    /// Tells the program why nothing comes of it, once it has asked for something.
    fn answer(&mut self, status: &str, sentence: &str) {
        let end = Instant::now() + FAREWELL;
        while (self.near.is_greeting() || self.queue.is_empty()) && !self.near.is_heard_out() {
            match self.next_of_near(end) {
                Some(said) => self.queue.extend_from_slice(&said),
                None => return,
            }
        }
        self.say(status, sentence);
    }

    fn say(&mut self, status: &str, sentence: &str) {
        // It is shown at terminals as it is.
        let sentence: String =
            sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = format!("ringfence: {sentence}\n");
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            text.len()
        );
        let _ = self.near.say(format!("{head}{text}").as_bytes());
        self.near.shut();
    }

    /// Hears the program out: if it were cut off while it speaks, it could miss what it was told.
    fn part(mut self) {
        let end = Instant::now() + FAREWELL;
        while !self.near.is_heard_out() && self.next_of_near(end).is_some() {}
    }

    /// What the program says next, if it does in time.
    fn next_of_near(&mut self, end: Instant) -> Option<Vec<u8>> {
        self.near.flush().ok()?;
        let left = end.checked_duration_since(Instant::now())?;
        let mut polled = [PollFd::new(&self.near.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&timespec(left))) {
            Ok(0) => None,
            Ok(_) | Err(Errno::INTR) => self.near.hear().ok(),
            Err(_) => None,
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

/// What was heard.
enum Heard {
    /// Nothing in time.
    Nothing,
    /// The program is gone.
    Gone,
    /// Of these two, perhaps of neither: then somebody can be spoken to.
    Some { near: bool, far: bool },
}
