//! What can go wrong at this door.

use std::io;

use ringfence_audit::AuditError;
use ringfence_engine::{AllowError, EngineError};
use ringfence_http::ServeError;
use ringfence_policy::PolicyError;
use ringfence_policy::import::ImportError;
use serde_json::{Value, json};

use crate::commands::remote::RemoteError;

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Something was not allowed for good.
    #[error(transparent)]
    Allow(#[from] AllowError),
    /// The audit log could not be read.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The words of the command line do not go together.
    #[error("{what}")]
    Words {
        /// What is wrong.
        what: String,
        /// What to type instead.
        hint: String,
    },
    /// A file could not be used.
    #[error("cannot {what} {path}")]
    File {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Another tool's file could not be read.
    #[error("{path}:{source}")]
    Import {
        /// The file.
        path: String,
        /// What is wrong in it.
        #[source]
        source: ImportError,
    },
    /// The service does not serve.
    #[error(transparent)]
    Serve {
        /// Why not.
        source: Box<ServeError>,
    },
    /// A service was not used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl From<PolicyError> for CliError {
    fn from(error: PolicyError) -> Self {
        CliError::Engine(EngineError::Policy(error))
    }
}

impl CliError {
    /// A stable word for it.
    pub(crate) fn code(&self) -> &str {
        match self {
            CliError::Engine(error) => error.code(),
            CliError::Allow(error) => error.code(),
            CliError::Audit(error) => error.code(),
            CliError::Words { .. } => "usage",
            CliError::File { .. } => "file",
            CliError::Import { source, .. } => source.code(),
            CliError::Serve { source } => source.code(),
            CliError::Remote(error) => error.code(),
        }
    }

    /// What to type next.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            CliError::Engine(error) => error.hint(),
            CliError::Allow(error) => error.hint(),
            CliError::Audit(error) => Some(error.hint()),
            CliError::Words { hint, .. } => Some(hint.clone()),
            CliError::File { .. } => None,
            CliError::Import { source, .. } => Some(source.hint()),
            CliError::Serve { source } => source.hint(),
            CliError::Remote(error) => error.hint(),
        }
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            CliError::Engine(error) => error.status() as u8,
            CliError::Allow(_)
            | CliError::Audit(_)
            | CliError::Words { .. }
            | CliError::File { .. }
            | CliError::Import { .. }
            | CliError::Serve { .. }
            | CliError::Remote(_) => 125,
        }
    }

    /// What lies behind it, nearest first.
    pub(crate) fn causes(&self) -> Vec<String> {
        // Its own message is the cause's.
        if matches!(self, CliError::Import { .. }) {
            Vec::new()
        } else {
            ringfence_api::causes(self)
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({ "code": self.code(), "message": self.to_string(), "causes": self.causes(), "hint": self.hint() })
    }
}
