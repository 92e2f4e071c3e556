//! A conversation between a program and a host, each of whom speaks with us.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::leg::TlsLeg;
use super::responses::{Pieces, ResponseFollower, ResponseKind, Unreadable};
use super::scrub::SecretScrubber;
use super::swap;
use super::{TerminateRequest, TlsEvent};
use crate::peek::head::Afterwards;
use crate::peek::requests::{RequestFollower, RequestNext, RequestPiece};
use crate::peek::{LONGEST, PeekError};

/// How long the two may take until they can speak.
const GREETING: Duration = Duration::from_secs(30);
/// How long one who was refused may take to ask, and to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// What goes on between the two.
pub(super) struct TlsExchange {
    near: TlsLeg,
    far: TlsLeg,
    errand: TerminateRequest,
    requests: RequestFollower,
    answers: ResponseFollower,
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
enum ExchangeFault {
    Near(io::Error),
    Far(io::Error),
    Refused(PeekError),
    Unreadable(Unreadable),
}

impl TlsExchange {
    pub(super) fn new(near: TlsLeg, far: TlsLeg, errand: TerminateRequest) -> Self {
        let requests = RequestFollower::new(errand.name.clone(), errand.port);
        let scrub = SecretScrubber::new(errand.swaps.iter().map(|swap| swap.value.reveal()));
        let (answers, queue) = (ResponseFollower::new(scrub), Vec::new());
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
            Err(ExchangeFault::Near(error)) => {
                if self.near.is_greeting() {
                    (self.errand.told)(TlsEvent::Failed(format!(
                        "the program did not accept the sandbox's certificate: {error}"
                    )));
                }
            }
            Err(ExchangeFault::Far(error)) => {
                let sentence = format!("TLS or HTTP with {} failed: {error}", self.errand.name);
                if !self.is_answered {
                    (self.errand.told)(TlsEvent::Failed(sentence.clone()));
                    self.answer("502 Bad Gateway", &sentence);
                }
            }
            Err(ExchangeFault::Unreadable(Unreadable(why))) => {
                let sentence = format!("the answer of {} is withheld: {why}", self.errand.name);
                (self.errand.told)(TlsEvent::Failed(sentence.clone()));
                if self.answers.is_unbegun() {
                    self.say("502 Bad Gateway", &sentence);
                }
                self.near.tear();
            }
            Err(ExchangeFault::Refused(objection)) => {
                (self.errand.told)(TlsEvent::Refused(objection.to_string()));
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

    fn carry(&mut self) -> Result<(), ExchangeFault> {
        let greeting = Instant::now() + GREETING;
        loop {
            if !self.far.is_greeting() {
                self.pass_requests()?;
            }
            self.near.flush().map_err(ExchangeFault::Near)?;
            self.far.flush().map_err(ExchangeFault::Far)?;
            let is_over = self.is_last && self.answers.is_quiet();
            if self.far.is_heard_out() || is_over {
                if self.far.is_greeting() {
                    return Err(ExchangeFault::Far(Errno::CONNRESET.into()));
                }
                self.release()?;
                return self.send_rest();
            }
            if self.near.is_heard_out() && !self.far.is_full() && !self.far.is_greeting() {
                if self.near.is_greeting() {
                    return Err(ExchangeFault::Near(Errno::CONNRESET.into()));
                }
                self.far.shut();
            }
            let is_greeting = self.near.is_greeting() || self.far.is_greeting();
            match self.wait(self.limit(greeting)).map_err(ExchangeFault::Near)? {
                ExchangeInput::Nothing if self.is_overdue() => self.release()?,
                ExchangeInput::Nothing if is_greeting => {
                    let late = Errno::TIMEDOUT.into();
                    return Err(if self.far.is_greeting() {
                        ExchangeFault::Far(late)
                    } else {
                        ExchangeFault::Near(late)
                    });
                }
                ExchangeInput::Nothing => {}
                ExchangeInput::Gone => return Ok(()),
                ExchangeInput::Some { near, far } => {
                    if near {
                        let said = self.near.hear().map_err(ExchangeFault::Near)?;
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
    fn wait(&self, limit: Option<Duration>) -> io::Result<ExchangeInput> {
        let may_ask = self.near.is_greeting()
            || !(self.far.is_greeting() || self.far.is_full() || self.queue.len() >= LONGEST);
        let flags = |leg: &TlsLeg, may_hear: bool| {
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
            Ok(0) => return Ok(ExchangeInput::Nothing),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(ExchangeInput::Some { near: false, far: false }),
            Err(error) => return Err(error.into()),
        }
        let told = |at: usize| polled.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let wrong = PollFlags::HUP | PollFlags::ERR;
        // Nobody is inside any more to hear anything.
        if told(0).intersects(wrong) && !near.contains(PollFlags::IN) {
            return Ok(ExchangeInput::Gone);
        }
        let speaks = |asked: PollFlags, told: PollFlags| {
            asked.contains(PollFlags::IN) && told.intersects(PollFlags::IN | wrong)
        };
        Ok(ExchangeInput::Some { near: speaks(near, told(0)), far: speaks(far, told(1)) })
    }

    fn host_speaks(&mut self) -> Result<(), ExchangeFault> {
        let said = self.far.hear().map_err(ExchangeFault::Far)?;
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
        heard.map_err(ExchangeFault::Unreadable)
    }

    /// Passes on what belongs to requests for the host, with the values in their heads.
    fn pass_requests(&mut self) -> Result<(), ExchangeFault> {
        let (mut said, mut from) = (Vec::new(), 0);
        while let Some(piece) = self.requests.piece(&self.queue[from..]) {
            let bytes = &self.queue[from..from + piece.length()];
            from += piece.length();
            match piece {
                RequestPiece::Other(_) => said.extend_from_slice(bytes),
                RequestPiece::Head(0) => {}
                RequestPiece::Head(_) => {
                    let method = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
                    if method == b"TRACE" {
                        return Err(ExchangeFault::Refused(PeekError::Trace));
                    }
                    self.answers.expect(if method == b"HEAD" {
                        ResponseKind::Head
                    } else {
                        ResponseKind::Other
                    });
                    self.is_last = self.requests.is_last();
                    let afterwards =
                        if self.is_last { Afterwards::Closed } else { Afterwards::Open };
                    let (with, names) = swap::put(bytes, &self.errand.swaps, afterwards);
                    if with.len() > LONGEST {
                        return Err(ExchangeFault::Refused(PeekError::TooLong));
                    }
                    names
                        .into_iter()
                        .for_each(|name| (self.errand.told)(TlsEvent::Put(name.to_owned())));
                    said.extend_from_slice(&with);
                }
            }
        }
        self.queue.drain(..from);
        self.far.say(&said).map_err(ExchangeFault::Far)?;
        match self.requests.next() {
            RequestNext::Refused(objection) => Err(ExchangeFault::Refused(objection)),
            RequestNext::More | RequestNext::Answer | RequestNext::Opaque | RequestNext::Over => {
                Ok(())
            }
        }
    }

    fn release(&mut self) -> Result<(), ExchangeFault> {
        self.held = None;
        let mut rest = Pieces::default();
        self.answers.release(&mut rest);
        self.pass_on(&rest)
    }

    fn pass_on(&mut self, pieces: &Pieces) -> Result<(), ExchangeFault> {
        for piece in pieces.iter() {
            self.is_answered = true;
            self.near.say(piece).map_err(ExchangeFault::Near)?;
        }
        Ok(())
    }

    /// What the host has said last, until the program has it.
    fn send_rest(&mut self) -> Result<(), ExchangeFault> {
        loop {
            self.near.flush().map_err(ExchangeFault::Near)?;
            if !self.near.is_full() {
                return Ok(());
            }
            let mut polled = [PollFd::new(&self.near.socket, PollFlags::OUT)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(ExchangeFault::Near(error.into())),
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
enum ExchangeInput {
    /// Nothing in time.
    Nothing,
    /// The program is gone.
    Gone,
    /// Of these two, perhaps of neither: then somebody can be spoken to.
    Some { near: bool, far: bool },
}
