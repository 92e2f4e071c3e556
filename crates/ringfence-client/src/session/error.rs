//! Errors of a client of a session.

use std::io;

use ringfence_api::session_protocol::SessionError;

/// The reason why a request to a session failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionClientError {
    /// The session refused the request, or speaks another version of the protocol. The texts may
    /// contain names that a command chose.
    #[error("{}", .0.message)]
    Refused(SessionError),
    /// The connection failed.
    #[error("cannot {what} session {session}")]
    Connection {
        /// The attempted operation.
        what: &'static str,
        /// The session.
        session: String,
        /// The cause.
        source: io::Error,
    },
    /// No session fits, or no directory for sockets.
    #[error("{what}")]
    Usage {
        /// The problem.
        what: String,
        /// The hint.
        hint: String,
    },
}

impl SessionClientError {
    /// Returns the stable error code.
    pub fn code(&self) -> &str {
        match self {
            SessionClientError::Refused(error) => &error.code,
            SessionClientError::Connection { .. } => "file",
            SessionClientError::Usage { .. } => "usage",
        }
    }

    /// Returns a command to type, or another way to fix the error.
    pub fn hint(&self) -> Option<&str> {
        match self {
            SessionClientError::Refused(error) => error.hint.as_deref(),
            SessionClientError::Connection { .. } => None,
            SessionClientError::Usage { hint, .. } => Some(hint),
        }
    }
}
