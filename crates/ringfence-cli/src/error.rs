//! Errors of the command line interface.

use std::io;

use ringfence_api::session_protocol::SessionError;
use ringfence_audit::AuditError;
use ringfence_client::{RemoteError, SessionClientError};
use ringfence_engine::{AllowError, EngineError};
use ringfence_http::ServeError;
use ringfence_log::LogError;
use ringfence_policy::PolicyError;
use ringfence_policy::import::{CodexPolicyError, ImportError};
use ringfence_tools::ToolError;
use serde_json::{Value, json};

use crate::output::printable;

/// A failure of a subcommand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A permanent grant could not be saved.
    #[error(transparent)]
    Allow(#[from] AllowError),
    /// The audit log could not be read.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Logging could not be started.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The arguments contradict each other.
    #[error("{what}")]
    Usage {
        /// The problem.
        what: String,
        /// The hint.
        hint: String,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}")]
    File {
        /// The attempted operation.
        what: &'static str,
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// Another tool's file could not be read.
    #[error("{path}:{source}")]
    Import {
        /// The file.
        path: String,
        /// The parse error.
        #[source]
        source: ImportError,
    },
    /// A sandbox policy in the form of Codex could not be read. A project may have written it.
    #[error("{place}:{}", printable(&.source.to_string()))]
    CodexPolicy {
        /// The flag or the file.
        place: String,
        /// The parse error.
        #[source]
        source: CodexPolicyError,
    },
    /// A command was to run in the sandbox of another platform.
    #[error(
        "cannot run in the sandbox of {platform}: this host is not {platform}, and this version has no plan for {platform} to print"
    )]
    OtherPlatform {
        /// The platform's name.
        platform: &'static str,
    },
    /// The HTTP server failed.
    #[error(transparent)]
    Serve {
        /// The cause.
        source: Box<ServeError>,
    },
    /// A session refused a request. The texts may contain names that a command chose.
    #[error("{}", printable(&.0.message))]
    Session(SessionError),
    /// The file tools could not be opened.
    #[error("cannot open the file tools")]
    Tool(#[source] Box<ToolError>),
    /// A request to a remote server failed. The texts may be the server's.
    #[error("{}", printable(&.0.to_string()))]
    Remote(#[from] RemoteError),
}

impl From<PolicyError> for CliError {
    fn from(error: PolicyError) -> Self {
        CliError::Engine(EngineError::Policy(error))
    }
}

impl From<ToolError> for CliError {
    fn from(error: ToolError) -> Self {
        CliError::Tool(Box::new(error))
    }
}

impl From<SessionClientError> for CliError {
    fn from(error: SessionClientError) -> Self {
        match error {
            SessionClientError::Refused(error) => CliError::Session(error),
            SessionClientError::Connection { what, session, source } => {
                CliError::File { what, path: format!("session {session}"), source }
            }
            SessionClientError::Usage { what, hint } => CliError::Usage { what, hint },
        }
    }
}

impl CliError {
    /// Returns the stable error code.
    pub(crate) fn code(&self) -> &str {
        match self {
            CliError::Engine(error) => error.code(),
            CliError::Allow(error) => error.code(),
            CliError::Audit(error) => error.code(),
            CliError::Log(_) => "log",
            CliError::Usage { .. } => "usage",
            CliError::File { .. } => "file",
            CliError::Import { source, .. } => source.code(),
            CliError::CodexPolicy { .. } => "sandbox-policy",
            CliError::OtherPlatform { .. } => "other-platform",
            CliError::Serve { source } => source.code(),
            CliError::Session(error) => &error.code,
            CliError::Tool(error) => error.code(),
            CliError::Remote(error) => error.code(),
        }
    }

    /// Returns a command to type, or another way to fix the error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            CliError::Engine(error) => error.hint(),
            CliError::Allow(error) => error.hint(),
            CliError::Audit(error) => Some(error.hint()),
            CliError::Log(error) => Some(error.hint().into()),
            CliError::Usage { hint, .. } => Some(hint.clone()),
            CliError::File { .. } => None,
            CliError::Import { source, .. } => Some(source.hint()),
            CliError::CodexPolicy { source, .. } => Some(source.hint.clone()),
            CliError::OtherPlatform { .. } => Some(
                "`ringfence sandbox linux` runs the command here, and `ringfence plan` prints the plan of this host".into(),
            ),
            CliError::Serve { source } => source.hint(),
            CliError::Session(error) => error.hint.as_deref().map(printable),
            CliError::Tool(error) => error.hint(),
            CliError::Remote(error) => error.hint().map(|hint| printable(&hint)),
        }
    }

    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            CliError::Engine(error) => error.status() as u8,
            CliError::Session(error) => error.status,
            CliError::Allow(_)
            | CliError::Audit(_)
            | CliError::Log(_)
            | CliError::Usage { .. }
            | CliError::File { .. }
            | CliError::Import { .. }
            | CliError::CodexPolicy { .. }
            | CliError::OtherPlatform { .. }
            | CliError::Serve { .. }
            | CliError::Tool(_)
            | CliError::Remote(_) => 125,
        }
    }

    /// Returns the causes, nearest first.
    pub(crate) fn causes(&self) -> Vec<String> {
        match self {
            // Its message already is the message of its cause.
            CliError::Import { .. } | CliError::CodexPolicy { .. } => Vec::new(),
            CliError::Session(error) => error.causes.iter().map(|cause| printable(cause)).collect(),
            CliError::Remote(error) => ringfence_api::causes(error),
            _ => ringfence_api::causes(self),
        }
    }

    /// Returns the error for a client of a session.
    pub(crate) fn to_session_error(&self) -> SessionError {
        SessionError {
            code: self.code().to_owned(),
            message: self.to_string(),
            causes: self.causes(),
            hint: self.hint(),
            status: self.exit_status(),
        }
    }

    /// Returns the error as JSON.
    pub(crate) fn to_json(&self) -> Value {
        if let CliError::Session(error) = self {
            return json!(error);
        }
        json!({ "code": self.code(), "message": self.to_string(), "causes": self.causes(), "hint": self.hint() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_cannot_control_the_terminal() {
        let (message, hint) = ("no\x1b[2J".to_owned(), Some("list\x07".to_owned()));
        let error = CliError::from(RemoteError::Refused { code: "x".into(), message, hint });
        assert_eq!(error.to_string(), "no\u{fffd}[2J");
        assert_eq!(error.hint().as_deref(), Some("list\u{fffd}"));
        assert_eq!(error.causes(), Vec::<String>::new());
    }
}
