//! Errors, as opposed to denials.

use std::io;

use ringfence_engine::{AllowError, EngineError};
use ringfence_tools::ToolError;

/// Why a sandbox could not be created, or a command not be run in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// [`init`](crate::init) was not called.
    #[error("`ringfence::init()` was not called in this process")]
    InitMissing,
    /// Unknown provider name.
    #[error("Unknown sandbox provider: \"{name}\". Available: [{}]", known.join(", "))]
    UnknownProvider {
        /// The requested name.
        name: String,
        /// The registered names.
        known: Vec<String>,
    },
    /// Invalid provider options.
    #[error("invalid options for the provider `{provider}`")]
    Options {
        /// The provider.
        provider: String,
        /// The parse error.
        source: serde_json::Error,
    },
    /// A configuration file cannot be used.
    #[error("cannot {what} {file}")]
    File {
        /// The attempted operation.
        what: &'static str,
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// An entry that is not a valid path.
    #[error("`{entry}` is not a path: {why}")]
    Path {
        /// The entry as given.
        entry: String,
        /// The problem with it.
        why: &'static str,
    },
    /// The configuration sets `allowNetwork`, which must stay false.
    #[error("`allowNetwork` must be false: it never opens the network")]
    Network,
    /// The answer is not among the options, or the configuration forbids it.
    #[error("`{what}` is not offered here")]
    NotOffered {
        /// The requested answer or feature.
        what: String,
    },
    /// A permanent grant could not be written.
    #[error("cannot allow it permanently")]
    NotAllowed {
        /// The cause.
        source: Box<AllowError>,
    },
    /// The sandbox could not be created; nothing was run.
    #[error("cannot create the sandbox; nothing was run")]
    NotCreated {
        /// The cause.
        source: Box<EngineError>,
    },
    /// The command could not be run to its end.
    #[error("cannot run the command")]
    NotExecuted {
        /// The cause.
        source: Box<EngineError>,
    },
    /// The sandbox died before the command ended. The command's effects so far remain.
    #[error("the sandbox `{id}` died before the command ended")]
    Gone {
        /// The sandbox id.
        id: String,
    },
    /// The policy was narrowed in a way that a live sandbox cannot apply; nothing was run.
    #[error("the sandbox `{id}` allows more than the changed policy; nothing was run")]
    Narrowed {
        /// The sandbox id.
        id: String,
        /// The change that cannot be applied.
        source: Box<EngineError>,
    },
    /// The sandbox was ended before.
    #[error("the sandbox `{id}` has ended")]
    Ended {
        /// The sandbox id.
        id: String,
    },
    /// A tool could not be called, or the audit log could not record the call.
    #[error("cannot call the tool")]
    Tool {
        /// The cause.
        source: Box<ToolError>,
    },
    /// A third-party provider failed.
    #[error("the provider `{provider}` failed")]
    Provider {
        /// The provider.
        provider: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl SandboxError {
    /// A stable error code.
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

    /// The next step for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            SandboxError::UnknownProvider { .. } => {
                Some("use one of these, or add yours with `SandboxProviderRegistry::register`".into())
            }
            SandboxError::InitMissing => Some("call `ringfence::init();` on the first line of `main`".into()),
            SandboxError::Network => {
                Some("leave it false, and open the network with `mode = \"full\"` under `[network]` in a policy file".into())
            }
            SandboxError::NotCreated { source } | SandboxError::NotExecuted { source } => source.hint(),
            SandboxError::NotAllowed { source } => source.hint(),
            SandboxError::Tool { source } => source.hint(),
            SandboxError::Gone { .. } | SandboxError::Narrowed { .. } => {
                Some("run the command again: it gets a new sandbox, in the first directory and with all grants".into())
            }
            SandboxError::NotOffered { .. } => Some("answer with one of the `options` of the permission".into()),
            SandboxError::Path { .. } => Some("write an absolute path, or one that starts with `~/`".into()),
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
