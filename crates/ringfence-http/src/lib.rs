//! HTTP frontend: skills and sandboxes of many tenants.
//!
//! It maps HTTP requests to `skills` and `engine`. The caller of [`serve`] chooses the provider
//! that runs commands.

#![forbid(unsafe_code)]

mod asks;
mod error;
mod events;
mod executions;
mod metrics;
mod sandboxes;
mod serde_int;
mod server;
mod skills;
mod state;
mod tenants;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_engine::EngineError;
use ringfence_provider::Provider;
use ringfence_skills::StoreError;

pub use ringfence_skills::UploadBounds;
pub use server::{openapi, serve};
pub use state::{Profile, SANDBOX_POLICY};
pub use tenants::{MIN_TOKEN_LENGTH, Quotas};

/// Creates the provider for a new sandbox.
pub type ProviderFactory = Box<dyn Fn() -> Box<dyn Provider> + Send + Sync>;

/// The settings of the service.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// The listen address.
    pub listen: SocketAddr,
    /// The data directory.
    pub data: PathBuf,
    /// The policy profile that a first start writes, if the operator chose one.
    pub profile: Option<Profile>,
    /// The administrator's token, if the operator chose one.
    pub admin_token: Option<String>,
    /// Host names, besides those of loopback, that requests may use.
    pub hosts: Vec<String>,
    /// Origins whose web pages may use the service from a browser.
    pub origins: Vec<String>,
    /// Certificate chain and key, as PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The default quotas of a tenant.
    pub quotas: Quotas,
    /// The number of commands that run at once.
    pub max_concurrent_commands: usize,
    /// Size limits for uploaded archives.
    pub bounds: UploadBounds,
    /// Time that running commands get to finish at shutdown.
    pub shutdown_grace: Duration,
}

/// Reported once the service accepts requests.
#[derive(Debug, Clone)]
pub struct ServiceReady {
    /// The bound address.
    pub address: SocketAddr,
    /// True if it serves TLS.
    pub is_secure: bool,
    /// The administrator's token, if it was just created: it is stored nowhere.
    pub admin_token: Option<String>,
    /// Commands that a previous service left unfinished.
    pub lost: usize,
    /// Commands that a previous service accepted but did not start: they run now.
    pub resumed: usize,
    /// Sandboxes that a previous service left behind.
    pub lost_sandboxes: usize,
}

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data directory cannot be used.
    #[error("cannot use {} for the service's data", path.display())]
    Data {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A stored file cannot be parsed.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The key of the stored tokens is missing, so no token can be checked.
    #[error("{} is missing: none of the {count} tokens in {} can be used without it", key.display(), tokens.display())]
    NoKey {
        /// The path of the missing key.
        key: PathBuf,
        /// The file with the tokens.
        tokens: PathBuf,
        /// The number of tokens.
        count: usize,
    },
    /// The skill store cannot be opened.
    #[error(transparent)]
    Skills(#[from] StoreError),
    /// No command could be confined, or the policy is invalid.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The policy file was written for another profile than the requested one.
    #[error("{} is the policy of another profile", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
    },
    /// The token is too easy to guess, or not valid in a header.
    #[error(
        "invalid administrator's token: it needs {MIN_TOKEN_LENGTH} or more characters, without spaces"
    )]
    Token,
    /// Plain HTTP to other machines would expose the tokens.
    #[error(
        "{address} is reachable from other machines: without TLS the tokens travel in clear text"
    )]
    Exposed {
        /// The requested address.
        address: SocketAddr,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use {} for TLS", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The network failed.
    #[error("cannot serve at {address}")]
    Served {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

impl ServeError {
    /// A stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            ServeError::Data { .. } => "data",
            ServeError::Unreadable { .. } => "data-unreadable",
            ServeError::NoKey { .. } => "key-missing",
            ServeError::Skills(error) => error.code(),
            ServeError::Engine(error) => error.code(),
            ServeError::Profile { .. } => "profile",
            ServeError::Token => "token",
            ServeError::Exposed { .. } => "exposed",
            ServeError::Tls { .. } => "tls",
            ServeError::Served { .. } => "served",
        }
    }

    /// The next step for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServeError::Data { .. } => {
                Some("choose another directory that only you can access: `--data DIR`".into())
            }
            ServeError::Unreadable { path, .. } => {
                Some(format!("repair it, or move it away: `mv {0} {0}.broken`", path.display()))
            }
            ServeError::NoKey { tokens, .. } => Some(format!(
                "restore the key from a backup, or discard all tokens: `mv {0} {0}.void`",
                tokens.display()
            )),
            ServeError::Skills(error) => error.hint(),
            ServeError::Engine(error) => error.hint(),
            ServeError::Profile { path } => Some(format!(
                "omit `--profile`, or let ringfence write the policy again: `mv {0} {0}.old`",
                path.display()
            )),
            ServeError::Token => {
                Some("`export RINGFENCE_ADMIN_TOKEN=$(openssl rand -hex 32)`, or omit it".into())
            }
            ServeError::Exposed { .. } => Some(
                "`--tls-cert FILE --tls-key FILE`; or listen on 127.0.0.1 behind a TLS proxy"
                    .into(),
            ),
            ServeError::Tls { .. } => Some(
                "pass two PEM files: the certificate with its chain, and its private key".into(),
            ),
            ServeError::Served { .. } => {
                Some("choose another address: `--listen ADDRESS:PORT`".into())
            }
        }
    }
}

/// The app state shared by all request handlers.
pub(crate) type SharedState = Arc<state::AppState>;
