//! A client's connection to a session, over any transport.

pub(crate) mod child;
mod error;
#[cfg(unix)]
pub(crate) mod socket;
#[cfg(unix)]
pub mod socket_dir;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use ringfence_api::session_protocol::{
    PROTOCOL_VERSION, QuestionReport, SessionError, SessionReply, SessionReport, SessionRequest,
};
use ringfence_api::{AskAnswer, ExecuteResult, OutputStream, QuarantinedFile, Signal, lock};

pub use error::SessionClientError;

use crate::lines::{LineStream, write_line};

type ClientResult<T> = Result<T, SessionClientError>;

/// A connection to a session: replies come from `R`, requests go to `W`.
///
/// It has at most one command at a time. Its events may come before the reply to another request;
/// they are kept for [`next_event`](Self::next_event).
#[derive(Debug)]
pub struct SessionClient<R, W> {
    lines: LineStream<R>,
    sender: RequestSender<W>,
    /// Replies of the running command that came before the reply to another request.
    kept: VecDeque<SessionReply>,
}

/// The sending side of a connection, also for other threads.
#[derive(Debug)]
pub struct RequestSender<W> {
    session: String,
    /// Locked while a line is sent, so that two threads do not mix their lines.
    to: Arc<Mutex<W>>,
}

/// An event of a connection's command.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandEvent {
    /// It wrote to a stream.
    Output {
        /// The stream.
        stream: OutputStream,
        /// The bytes.
        data: Vec<u8>,
    },
    /// It has ended.
    Ended(Box<ExecuteResult>),
}

impl<W> Clone for RequestSender<W> {
    fn clone(&self) -> Self {
        Self { session: self.session.clone(), to: self.to.clone() }
    }
}

impl<W: Write> RequestSender<W> {
    /// Sends a request.
    pub fn send(&self, request: &SessionRequest) -> ClientResult<()> {
        let mut to = lock(&self.to);
        write_line(&mut *to, request).map_err(|source| self.broken("send to", source))
    }

    /// Forwards standard input to the running command until the end of `from`.
    pub fn forward_input(&self, mut from: impl Read) -> ClientResult<()> {
        const PIECE: usize = 64 * 1024;
        let mut piece = vec![0; PIECE];
        loop {
            // A read error counts as the end.
            let length = from.read(&mut piece).unwrap_or(0);
            self.send(&SessionRequest::Input { data: piece[..length].into() })?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn broken(&self, what: &'static str, source: io::Error) -> SessionClientError {
        SessionClientError::Connection { what, session: self.session.clone(), source }
    }

    fn not_understood(&self, code: &str, what: &str) -> SessionClientError {
        let what = format!("session {} {what}", self.session);
        SessionClientError::Refused(SessionError::not_understood(code, what, &self.session))
    }
}

impl<R: Read, W: Write> SessionClient<R, W> {
    /// A connection to `session`, which is named in errors. [`greet`](Self::greet) comes first.
    pub fn new(session: &str, from: R, to: W) -> Self {
        let sender = RequestSender { session: session.to_owned(), to: Arc::new(Mutex::new(to)) };
        Self { lines: LineStream::new(from), sender, kept: VecDeque::new() }
    }

    /// The sending side.
    pub fn sender(&self) -> RequestSender<W> {
        self.sender.clone()
    }

    /// The transport of replies.
    pub fn transport(&self) -> &R {
        self.lines.transport()
    }

    /// Checks that the session speaks our version of the protocol.
    pub fn greet(&mut self) -> ClientResult<()> {
        match self.ask(&SessionRequest::Hello { version: PROTOCOL_VERSION }) {
            Ok(SessionReply::Hello { version: PROTOCOL_VERSION, session }) => {
                self.sender.session = session;
                Ok(())
            }
            Ok(_) => Err(self.sender.not_understood("protocol-version", "does not say `hello`")),
            Err(error) => Err(error),
        }
    }

    /// Joins the session of an agent's conversation.
    pub fn begin(&mut self, signature: &str) -> ClientResult<()> {
        self.ask(&SessionRequest::Begin { signature: signature.to_owned() }).map(drop)
    }

    /// Returns the state of the session.
    pub fn inspect(&mut self) -> ClientResult<SessionReport> {
        match self.ask(&SessionRequest::Inspect {})? {
            SessionReply::State(state) => Ok(*state),
            _ => Err(self.unexpected()),
        }
    }

    /// Returns the accesses that wait for an answer, oldest first.
    pub fn questions(&mut self) -> ClientResult<Vec<QuestionReport>> {
        match self.ask(&SessionRequest::Questions {})? {
            SessionReply::Questions { questions } => Ok(questions),
            _ => Err(self.unexpected()),
        }
    }

    /// Answers a question.
    pub fn answer(&mut self, question: u64, answer: AskAnswer) -> ClientResult<()> {
        self.ask(&SessionRequest::Answer { question, answer }).map(drop)
    }

    /// Sends a signal to the processes of all running commands; returns the number of commands.
    pub fn signal(&mut self, signal: Signal) -> ClientResult<usize> {
        match self.ask(&SessionRequest::Signal { signal: signal.linux_number() })? {
            SessionReply::Signalled { signalled } => Ok(signalled),
            _ => Err(self.unexpected()),
        }
    }

    /// Ends the session and all its processes. Returns the files that were moved away because they
    /// could have run on the host.
    pub fn stop(&mut self) -> ClientResult<Vec<QuarantinedFile>> {
        match self.ask(&SessionRequest::Stop {})? {
            SessionReply::Stopped { quarantined, .. } => Ok(quarantined),
            _ => Err(self.unexpected()),
        }
    }

    /// Sends a request that starts, feeds or interrupts a command.
    pub fn send(&self, request: &SessionRequest) -> ClientResult<()> {
        self.sender.send(request)
    }

    /// Waits for the end of the command. `on_output` gets streamed output; an error of `on_output` interrupts it.
    pub fn result(
        &mut self,
        mut on_output: impl FnMut(OutputStream, &[u8]) -> io::Result<()>,
    ) -> ClientResult<ExecuteResult> {
        loop {
            match self.next_event()? {
                CommandEvent::Ended(result) => return Ok(*result),
                CommandEvent::Output { stream, data } => {
                    if on_output(stream, &data).is_err() {
                        self.send(&SessionRequest::Interrupt {})?;
                    }
                }
            }
        }
    }

    /// Waits for the next event of the command.
    pub fn next_event(&mut self) -> ClientResult<CommandEvent> {
        let reply = match self.kept.pop_front() {
            Some(reply) => reply,
            None => self.next_reply()?,
        };
        match reply {
            SessionReply::Output { stream, data } => {
                Ok(CommandEvent::Output { stream, data: data.0 })
            }
            SessionReply::Result(result) => Ok(CommandEvent::Ended(result)),
            SessionReply::Error { error, .. } => Err(SessionClientError::Refused(error)),
            _ => Err(self.unexpected()),
        }
    }

    /// Sends a request and waits for its reply. Keeps events of the running command.
    fn ask(&mut self, request: &SessionRequest) -> ClientResult<SessionReply> {
        self.send(request)?;
        loop {
            let reply = self.next_reply()?;
            match &reply {
                SessionReply::Output { .. } | SessionReply::Result(_) => self.kept.push_back(reply),
                // The error of the command.
                SessionReply::Error { ask: Some(ask), .. } if ask != request.word() => {
                    self.kept.push_back(reply);
                }
                SessionReply::Error { error, .. } => {
                    return Err(SessionClientError::Refused(error.clone()));
                }
                _ => return Ok(reply),
            }
        }
    }

    fn next_reply(&mut self) -> ClientResult<SessionReply> {
        let line = self
            .lines
            .next_line()
            .and_then(|line| line.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof)));
        let line = line.map_err(|source| self.sender.broken("receive from", source))?;
        serde_json::from_slice(&line).map_err(|error| {
            self.sender.not_understood("protocol", &format!("sent an invalid reply: {error}"))
        })
    }

    /// The error of a reply that does not belong to the request.
    fn unexpected(&self) -> SessionClientError {
        self.sender.not_understood("protocol", "sent an unexpected reply")
    }
}

#[cfg(test)]
mod tests;
