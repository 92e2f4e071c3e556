//! One terminated exchange between a program and a host.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::leg::TlsLeg;
use super::responses::{Pieces, ResponseFollower, ResponseKind, Unreadable};
use super::scrub::SecretScrubber;
use super::swap;
use super::{TerminateRequest, TlsEvent};
use crate::peek::head::AfterHead;
use crate::peek::requests::{RequestFollower, RequestNext, RequestPiece};
use crate::peek::{LONGEST, PeekError};

/// Time limit of both TLS handshakes.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// Time that a refused program has to send its request and read the reason.
const REFUSAL_GRACE: Duration = Duration::from_secs(2);

/// State of one exchange.
pub(super) struct TlsExchange {
    near: TlsLeg,
    far: TlsLeg,
    request: TerminateRequest,
    requests: RequestFollower,
    answers: ResponseFollower,
    /// Deadline for the held response bytes.
    held: Option<Instant>,
    /// Request bytes that are not passed on yet.
    queue: Vec<u8>,
    /// Set once the host has sent response bytes.
    is_answered: bool,
    /// Set when the current request is the last.
    is_last: bool,
}

/// Fatal fault of an exchange.
enum ExchangeFault {
    Near(io::Error),
    Far(io::Error),
    Refused(PeekError),
    Unreadable(Unreadable),
}

impl TlsExchange {
    pub(super) fn new(near: TlsLeg, far: TlsLeg, request: TerminateRequest) -> Self {
        let requests = RequestFollower::new(request.name.clone(), request.port);
        let scrub = SecretScrubber::new(request.swaps.iter().map(|swap| swap.value.reveal()));
        let (answers, queue) = (ResponseFollower::new(scrub), Vec::new());
        Self {
            near,
            far,
            request,
            requests,
            answers,
            held: None,
            queue,
            is_answered: false,
            is_last: false,
        }
    }

    /// Runs until the exchange ends.
    pub(super) fn run(mut self) {
        match self.carry() {
            Ok(()) if self.far.is_truncated() => self.near.abort_write(),
            Ok(()) => self.near.close_write(),
            Err(ExchangeFault::Near(error)) => {
                if self.near.is_handshaking() {
                    (self.request.on_event)(TlsEvent::Failed(format!(
                        "the program did not accept the sandbox's certificate: {error}"
                    )));
                }
            }
            Err(ExchangeFault::Far(error)) => {
                let message = format!("TLS or HTTP with {} failed: {error}", self.request.name);
                if !self.is_answered {
                    (self.request.on_event)(TlsEvent::Failed(message.clone()));
                    self.send_error("502 Bad Gateway", &message);
                }
            }
            Err(ExchangeFault::Unreadable(Unreadable(why))) => {
                let message = format!("response of {} blocked: {why}", self.request.name);
                (self.request.on_event)(TlsEvent::Failed(message.clone()));
                if self.answers.is_before_output() {
                    self.send_response("502 Bad Gateway", &message);
                }
                self.near.abort_write();
            }
            Err(ExchangeFault::Refused(objection)) => {
                (self.request.on_event)(TlsEvent::Refused(objection.to_string()));
                // Within another response it would be read as part of that one.
                if self.answers.is_quiet() {
                    self.send_error(
                        "421 Misdirected Request",
                        &format!("request to {} refused: {objection}", self.request.name),
                    );
                }
            }
        }
        self.drain_and_close();
    }

    fn carry(&mut self) -> Result<(), ExchangeFault> {
        let greeting = Instant::now() + HANDSHAKE_LIMIT;
        loop {
            if !self.far.is_handshaking() {
                self.pass_requests()?;
            }
            self.near.flush().map_err(ExchangeFault::Near)?;
            self.far.flush().map_err(ExchangeFault::Far)?;
            let is_over = self.is_last && self.answers.is_quiet();
            if self.far.is_at_eof() || is_over {
                if self.far.is_handshaking() {
                    return Err(ExchangeFault::Far(Errno::CONNRESET.into()));
                }
                self.release()?;
                return self.send_rest();
            }
            if self.near.is_at_eof() && !self.far.has_pending_output() && !self.far.is_handshaking()
            {
                if self.near.is_handshaking() {
                    return Err(ExchangeFault::Near(Errno::CONNRESET.into()));
                }
                self.far.close_write();
            }
            let is_greeting = self.near.is_handshaking() || self.far.is_handshaking();
            match self.wait(self.limit(greeting)).map_err(ExchangeFault::Near)? {
                ExchangeInput::Nothing if self.is_overdue() => self.release()?,
                ExchangeInput::Nothing if is_greeting => {
                    let late = Errno::TIMEDOUT.into();
                    return Err(if self.far.is_handshaking() {
                        ExchangeFault::Far(late)
                    } else {
                        ExchangeFault::Near(late)
                    });
                }
                ExchangeInput::Nothing => {}
                ExchangeInput::Gone => return Ok(()),
                ExchangeInput::Some { near, far } => {
                    if near {
                        let received = self.near.read_plain().map_err(ExchangeFault::Near)?;
                        self.queue.extend_from_slice(&received);
                    }
                    if far {
                        self.read_response()?;
                    }
                    if self.is_overdue() {
                        self.release()?;
                    }
                }
            }
        }
    }

    /// Poll timeout. The deadline of held bytes counts only once the program has taken the bytes
    /// before them: otherwise it could delay the rest.
    fn limit(&self, greeting: Instant) -> Option<Duration> {
        let is_greeting = self.near.is_handshaking() || self.far.is_handshaking();
        let end = match self.held.filter(|_| !self.near.has_pending_output()) {
            Some(held) => Some(held),
            None => is_greeting.then_some(greeting),
        };
        end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    fn is_overdue(&self) -> bool {
        !self.near.has_pending_output() && self.held.is_some_and(|held| held <= Instant::now())
    }

    /// Waits until one side can be read or written. Each side is read only as far as the other side
    /// takes data.
    fn wait(&self, limit: Option<Duration>) -> io::Result<ExchangeInput> {
        let may_read_near = self.near.is_handshaking()
            || !(self.far.is_handshaking()
                || self.far.has_pending_output()
                || self.queue.len() >= LONGEST);
        let flags = |leg: &TlsLeg, may_read: bool| {
            let input =
                if may_read && !leg.is_at_eof() { PollFlags::IN } else { PollFlags::empty() };
            input | if leg.has_pending_output() { PollFlags::OUT } else { PollFlags::empty() }
        };
        let (near, far) =
            (flags(&self.near, may_read_near), flags(&self.far, !self.near.has_pending_output()));
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
        let revents = |at: usize| polled.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let wrong = PollFlags::HUP | PollFlags::ERR;
        // The program has closed its socket.
        if revents(0).intersects(wrong) && !near.contains(PollFlags::IN) {
            return Ok(ExchangeInput::Gone);
        }
        let is_readable = |requested: PollFlags, revents: PollFlags| {
            requested.contains(PollFlags::IN) && revents.intersects(PollFlags::IN | wrong)
        };
        Ok(ExchangeInput::Some {
            near: is_readable(near, revents(0)),
            far: is_readable(far, revents(1)),
        })
    }

    fn read_response(&mut self) -> Result<(), ExchangeFault> {
        let received = self.far.read_plain().map_err(ExchangeFault::Far)?;
        if received.is_empty() {
            return Ok(());
        }
        if self.requests.wants_answer() {
            self.requests.feed_response(&received);
        }
        let mut clean = Pieces::default();
        let fed = self.answers.feed(&received, &mut clean);
        self.pass_on(&clean)?;
        self.held = self.answers.hold_limit().map(|patience| Instant::now() + patience);
        fed.map_err(ExchangeFault::Unreadable)
    }

    /// Passes on complete parts of requests to the host, with secrets inserted into their heads.
    fn pass_requests(&mut self) -> Result<(), ExchangeFault> {
        let (mut output, mut from) = (Vec::new(), 0);
        while let Some(piece) = self.requests.next_piece(&self.queue[from..]) {
            let bytes = &self.queue[from..from + piece.length()];
            from += piece.length();
            match piece {
                RequestPiece::Other(_) => output.extend_from_slice(bytes),
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
                    let afterwards = if self.is_last { AfterHead::Closed } else { AfterHead::Open };
                    let (with, names) =
                        swap::insert_secrets(bytes, &self.request.swaps, afterwards);
                    if with.len() > LONGEST {
                        return Err(ExchangeFault::Refused(PeekError::TooLong));
                    }
                    names.into_iter().for_each(|name| {
                        (self.request.on_event)(TlsEvent::SecretInserted(name.to_owned()))
                    });
                    output.extend_from_slice(&with);
                }
            }
        }
        self.queue.drain(..from);
        self.far.write_plain(&output).map_err(ExchangeFault::Far)?;
        match self.requests.next_step() {
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
            self.near.write_plain(piece).map_err(ExchangeFault::Near)?;
        }
        Ok(())
    }

    /// Sends the remaining response bytes to the program.
    fn send_rest(&mut self) -> Result<(), ExchangeFault> {
        loop {
            self.near.flush().map_err(ExchangeFault::Near)?;
            if !self.near.has_pending_output() {
                return Ok(());
            }
            let mut polled = [PollFd::new(&self.near.socket, PollFlags::OUT)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(ExchangeFault::Near(error.into())),
            }
        }
    }

    /// Sends an error response to the program, once it has sent a request.
    fn send_error(&mut self, status: &str, message: &str) {
        let end = Instant::now() + REFUSAL_GRACE;
        while (self.near.is_handshaking() || self.queue.is_empty()) && !self.near.is_at_eof() {
            match self.read_near(end) {
                Some(received) => self.queue.extend_from_slice(&received),
                None => return,
            }
        }
        self.send_response(status, message);
    }

    fn send_response(&mut self, status: &str, message: &str) {
        // It is shown at a terminal as it is.
        let message: String =
            message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = format!("ringfence: {message}\n");
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            text.len()
        );
        let _ = self.near.write_plain(format!("{head}{text}").as_bytes());
        self.near.close_write();
    }

    /// Reads until the program closes: an early close would reset the socket and lose the response.
    fn drain_and_close(mut self) {
        let end = Instant::now() + REFUSAL_GRACE;
        while !self.near.is_at_eof() && self.read_near(end).is_some() {}
    }

    /// Next bytes of the program, if they come in time.
    fn read_near(&mut self, end: Instant) -> Option<Vec<u8>> {
        self.near.flush().ok()?;
        let left = end.checked_duration_since(Instant::now())?;
        let mut polled = [PollFd::new(&self.near.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&timespec(left))) {
            Ok(0) => None,
            Ok(_) | Err(Errno::INTR) => self.near.read_plain().ok(),
            Err(_) => None,
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

/// Input of one poll.
enum ExchangeInput {
    /// Timeout.
    Nothing,
    /// The program has closed.
    Gone,
    /// Readable sides; with neither, a side became writable.
    Some { near: bool, far: bool },
}
