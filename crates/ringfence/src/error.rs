//! What can go wrong, as opposed to what a sandbox refuses.

use std::io;

use ringfence_engine::{AllowError, EngineError};
use ringfence_tools::ToolError;

/// Why a sandbox could not be made, or a command not be run in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// [`init`](crate::init) was not called.
    #[error("`ringfence::init()` was not called in this process")]
    InitMissing,
    /// No such provider.
    #[error("there is no sandbox provider `{name}`; known are: {}", known.join(", "))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The provider's own options are wrong.
    #[error("the options for the provider `{provider}` are wrong")]
    Options {
        /// Whose.
        provider: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A file of settings cannot be used.
    #[error("cannot {what} {file}")]
    File {
        /// What was attempted.
        what: &'static str,
        /// The file.
        file: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A path that is to be opened or shut is none.
    #[error("`{entry}` is not a path: {why}")]
    Path {
        /// As it was given.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The policy asks for a network, which this switch never gives.
    #[error("`allowNetwork` asks for what it never gives")]
    Network,
    /// What was answered was not among the options, or is not allowed by the configuration.
    #[error("`{what}` is not offered here")]
    NotOffered {
        /// What was asked for.
        what: String,
    },
    /// What was to be allowed for good was not.
    #[error("it was not allowed for good")]
    NotAllowed {
        /// Why.
        source: Box<AllowError>,
    },
    /// The sandbox could not be made: nothing has run.
    #[error("the sandbox could not be made, and nothing was run")]
    NotCreated {
        /// Why.
        source: Box<EngineError>,
    },
    /// The command could not be run to its end.
    #[error("the command could not be run")]
    NotExecuted {
        /// Why.
        source: Box<EngineError>,
    },
    /// The sandbox died before the command had ended. What it has done until then is done.
    #[error("the sandbox `{id}` died before the command had ended")]
    Gone {
        /// Which.
        id: String,
    },
    /// The policy was narrowed by what a sandbox that stands cannot take over; nothing was run.
    #[error("the sandbox `{id}` allows more than the policy does by now, and nothing was run")]
    Narrowed {
        /// Which.
        id: String,
        /// By what.
        source: Box<EngineError>,
    },
    /// The sandbox was ended before.
    #[error("the sandbox `{id}` has ended")]
    Ended {
        /// Which.
        id: String,
    },
    /// A tool could not be called, or its call not be recorded.
    #[error("the tool could not be called")]
    Tool {
        /// Why.
        source: Box<ToolError>,
    },
    /// Another provider failed.
    #[error("the provider `{provider}` failed")]
    Provider {
        /// Which.
        provider: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl SandboxError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            SandboxError::InitMissing => "init-missing",
            SandboxError::UnknownProvider { .. } => "unknown-provider",
            SandboxError::Options { .. } => "provider-options",
            SandboxError::File { .. } => "file",
            SandboxError::Path { .. } => "path",
            SandboxError::Network => "allow-network",
            SandboxError::NotOffered { .. } => "not-offered",
            SandboxError::NotAllowed { source } => source.code(),
            SandboxError::NotCreated { source } | SandboxError::NotExecuted { source } => {
                source.code()
            }
            SandboxError::Gone { .. } => "gone",
            SandboxError::Narrowed { source, .. } => source.code(),
            SandboxError::Ended { .. } => "ended",
            SandboxError::Tool { source } => source.code(),
            SandboxError::Provider { .. } => "provider",
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            SandboxError::InitMissing => Some("call `ringfence::init();` on the first line of `main`".into()),
            SandboxError::Network => {
                Some("leave it false, and open the network with `mode = \"full\"` under `[network]` in a policy file".into())
            }
            SandboxError::NotCreated { source } | SandboxError::NotExecuted { source } => source.hint(),
            SandboxError::NotAllowed { source } => source.hint(),
            SandboxError::Tool { source } => source.hint(),
            SandboxError::Gone { .. } | SandboxError::Narrowed { .. } => {
                Some("the next command gets a new one, in the first directory and with all grants".into())
            }
            SandboxError::NotOffered { .. } => Some("`options` of the permission names what may be answered".into()),
            SandboxError::Path { .. } => Some("write an absolute path, or one that begins with `~/`".into()),
            _ => None,
        }
    }

    pub(crate) fn tool(error: ToolError) -> Self {
        SandboxError::Tool { source: Box::new(error) }
    }

    pub(crate) fn not_created(error: impl Into<EngineError>) -> Self {
        SandboxError::NotCreated { source: Box::new(error.into()) }
    }
}
