//! A client's connection to a session.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ringfence_api::session_protocol::{
    PROTOCOL_VERSION, SessionReply, SessionReport, SessionRequest,
};
use ringfence_api::{ExecuteResult, OutputStream};

use super::lines::{LineStream, not_understood, write_line};
use super::socket_dir;
use crate::error::CliError;

/// A connection to a session.
pub(super) struct SessionClient {
    id: String,
    pub(super) stream: UnixStream,
    lines: LineStream<UnixStream>,
    /// Held while a line is sent, so that two threads do not mix their lines.
    send_lock: Arc<Mutex<()>>,
}

impl SessionClient {
    /// Connects to a session. `None` if its server is gone; then its socket is removed.
    pub(super) fn connect(id: &str, socket: &Path) -> Option<Self> {
        let connected = socket_dir::connect(socket);
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if connected.as_ref().is_err_and(is_refused) {
            let _ = std::fs::remove_file(socket);
        }
        let stream = connected.ok()?;
        let lines = LineStream::new(stream.try_clone().ok()?);
        Some(Self { id: id.to_owned(), stream, lines, send_lock: Arc::default() })
    }

    /// Checks that the session speaks our version of the protocol.
    pub(super) fn greet(&mut self) -> Result<(), CliError> {
        match self.ask(&SessionRequest::Hello { version: PROTOCOL_VERSION }) {
            Ok(SessionReply::Hello { version: PROTOCOL_VERSION, .. }) => Ok(()),
            Err(error @ CliError::Session(_)) => Err(error),
            Ok(_) | Err(_) => Err(self.not_understood("protocol-version", "does not say `hello`")),
        }
    }

    fn not_understood(&self, code: &str, what: &str) -> CliError {
        CliError::Session(not_understood(code, format!("session {} {what}", self.id), &self.id))
    }

    /// The error of a reply that does not belong to the request.
    pub(super) fn unexpected(&self) -> CliError {
        self.not_understood("protocol", "sent an unexpected reply")
    }

    pub(super) fn fail(&self, what: &'static str, source: io::Error) -> CliError {
        CliError::File { what, path: format!("session {}", self.id), source }
    }

    pub(super) fn send(&self, request: &SessionRequest) -> Result<(), CliError> {
        let _lock = self.send_lock.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&mut &self.stream, request).map_err(|error| self.fail("send to", error))
    }

    /// Forwards standard input to its end, in a thread.
    pub(super) fn forward_input(&self) -> Result<(), CliError> {
        const PIECE: usize = 64 * 1024;
        let mut stream = self.stream.try_clone().map_err(|error| self.fail("send to", error))?;
        let send_lock = self.send_lock.clone();
        let forward = move || {
            let mut piece = vec![0; PIECE];
            loop {
                // A read error counts as the end.
                let length = io::stdin().lock().read(&mut piece).unwrap_or(0);
                let input = SessionRequest::Input { data: piece[..length].into() };
                let _lock = send_lock.lock().unwrap_or_else(PoisonError::into_inner);
                if write_line(&mut stream, &input).is_err() || length == 0 {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("input".into())
            .spawn(forward)
            .map(drop)
            .map_err(|error| self.fail("send to", error))
    }

    /// Sends a request, and forwards the command's output until the reply arrives.
    pub(super) fn ask(&mut self, request: &SessionRequest) -> Result<SessionReply, CliError> {
        self.send(request)?;
        self.reply()
    }

    /// Asks for the state of the session.
    pub(super) fn inspect(&mut self) -> Result<SessionReport, CliError> {
        match self.ask(&SessionRequest::Inspect {})? {
            SessionReply::State(state) => Ok(*state),
            _ => Err(self.unexpected()),
        }
    }

    /// Forwards the command's output until its result arrives.
    pub(super) fn result(&mut self) -> Result<ExecuteResult, CliError> {
        match self.reply()? {
            SessionReply::Result(result) => Ok(*result),
            _ => Err(self.unexpected()),
        }
    }

    /// Forwards the command's output until another reply arrives.
    fn reply(&mut self) -> Result<SessionReply, CliError> {
        loop {
            let line = self.lines.next_line().map_err(|error| self.fail("receive from", error))?;
            let line =
                line.ok_or_else(|| self.fail("receive from", io::ErrorKind::UnexpectedEof.into()))?;
            let reply = serde_json::from_slice(&line).map_err(|error| {
                self.not_understood("protocol", &format!("sent an invalid reply: {error}"))
            })?;
            let (stream, data) = match reply {
                SessionReply::Output { stream, data } => (stream, data.0),
                SessionReply::Error { error, .. } => return Err(CliError::Session(error)),
                reply => return Ok(reply),
            };
            let written = match stream {
                OutputStream::Out => write_and_flush(&mut io::stdout().lock(), &data),
                OutputStream::Err => write_and_flush(&mut io::stderr().lock(), &data),
            };
            if written.is_err() {
                // The reader has closed the pipe: the command need not go on.
                self.send(&SessionRequest::Interrupt {})?;
            }
        }
    }
}

pub(super) fn write_and_flush(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Returns all sessions that respond, and their state.
pub(super) fn all() -> Result<Vec<(SessionClient, SessionReport)>, CliError> {
    let connected = socket_dir::sockets()?
        .into_iter()
        .filter_map(|(id, socket)| SessionClient::connect(&id, &socket));
    Ok(connected
        .filter_map(|mut session| {
            let state = session.greet().and_then(|()| session.inspect()).ok()?;
            Some((session, state))
        })
        .collect())
}

/// Connects to the session with this id, of any version.
pub(super) fn find_by_id(id: &str) -> Result<Option<SessionClient>, CliError> {
    let found = socket_dir::sockets()?.into_iter().find(|(known, _)| known == id);
    Ok(found.and_then(|(id, socket)| SessionClient::connect(&id, &socket)))
}

/// Finds a session by its id, a prefix of its id, or its name.
pub(super) fn find(word: &str) -> Result<SessionClient, CliError> {
    if let Some(mut session) = find_by_id(word)? {
        return session.greet().map(|()| session);
    }
    let is_match = |state: &SessionReport| {
        state.name.as_deref() == Some(word) || (word.len() >= 4 && state.session.starts_with(word))
    };
    let mut found: Vec<SessionClient> = all()?
        .into_iter()
        .filter(|(_, state)| is_match(state))
        .map(|(session, _)| session)
        .collect();
    let what = match found.len() {
        1 => return Ok(found.remove(0)),
        0 => format!("there is no session `{word}`"),
        several => format!("`{word}` matches {several} sessions"),
    };
    Err(CliError::Usage {
        what,
        hint: "`ringfence session list` shows the running sessions".into(),
    })
}
