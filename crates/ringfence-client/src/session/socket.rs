//! Connections to the sockets of running sessions.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use ringfence_api::session_protocol::SessionReport;

use super::{ClientResult, SessionClient, SessionClientError, socket_dir};

/// A connection to the socket of a session.
pub type SocketClient = SessionClient<UnixStream, UnixStream>;

impl SocketClient {
    /// Connects to a session. `None` if its server is gone; then its socket is removed.
    pub fn connect(id: &str, socket: &Path) -> Option<Self> {
        let connected = socket_dir::connect(socket);
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if connected.as_ref().is_err_and(is_refused) {
            let _ = std::fs::remove_file(socket);
        }
        let stream = connected.ok()?;
        Some(Self::new(id, stream.try_clone().ok()?, stream))
    }
}

/// Returns all sessions that respond, and their state.
pub fn find_all() -> Vec<(SocketClient, SessionReport)> {
    let connected = socket_dir::sockets()
        .into_iter()
        .filter_map(|(id, socket)| SocketClient::connect(&id, &socket));
    connected
        .filter_map(|mut session| {
            let state = session.greet().and_then(|()| session.inspect()).ok()?;
            Some((session, state))
        })
        .collect()
}

/// Connects to the session with this id, of any version.
pub fn find_by_id(id: &str) -> Option<SocketClient> {
    let found = socket_dir::sockets().into_iter().find(|(known, _)| known == id);
    found.and_then(|(id, socket)| SocketClient::connect(&id, &socket))
}

/// Finds a session by its id, a prefix of its id, or its name.
pub fn find_session(word: &str) -> ClientResult<SocketClient> {
    if let Some(mut session) = find_by_id(word) {
        return session.greet().map(|()| session);
    }
    let is_match = |state: &SessionReport| {
        state.name.as_deref() == Some(word) || (word.len() >= 4 && state.session.starts_with(word))
    };
    let mut found: Vec<SocketClient> = find_all()
        .into_iter()
        .filter(|(_, state)| is_match(state))
        .map(|(session, _)| session)
        .collect();
    let what = match found.len() {
        1 => return Ok(found.remove(0)),
        0 => format!("there is no session `{word}`"),
        several => format!("`{word}` matches {several} sessions"),
    };
    Err(SessionClientError::Usage {
        what,
        hint: "`ringfence session list` shows the running sessions".into(),
    })
}
