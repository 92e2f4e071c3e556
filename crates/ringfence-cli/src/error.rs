//! What can go wrong at this door.

use ringfence_engine::EngineError;

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
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
        source: std::io::Error,
    },
}

impl CliError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            CliError::Engine(error) => error.hint(),
            CliError::Words { hint, .. } => Some(hint.clone()),
            CliError::File { .. } => None,
        }
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            CliError::Engine(error) => error.status() as u8,
            CliError::Words { .. } | CliError::File { .. } => 125,
        }
    }
}
