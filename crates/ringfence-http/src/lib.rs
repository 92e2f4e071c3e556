//! The service: skills and sandboxes of many tenants behind HTTP.
//!
//! A door like the others: it finds words for what `skills` keeps and `engine` runs. Whoever
//! starts it says in which place commands run.

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
pub use tenants::{Quotas, SHORTEST_TOKEN};

/// Makes the place in which a sandbox is to be.
pub type ProviderFactory = Box<dyn Fn() -> Box<dyn Provider + Send> + Send + Sync>;

/// How a service is to be.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where everything is kept.
    pub data: PathBuf,
    /// The policy that a first start writes, if the operator chose one.
    pub profile: Option<Profile>,
    /// The administrator's token, if somebody chose one.
    pub admin_token: Option<String>,
    /// Names, beside those of loopback, under which it may be reached.
    pub hosts: Vec<String>,
    /// Pages of these origins may use it from a browser.
    pub origins: Vec<String>,
    /// Certificate chain and key, as PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// What tenants may use, where nothing else is said of them.
    pub quotas: Quotas,
    /// As many commands run at the same time.
    pub at_once: usize,
    /// How large archives may be.
    pub bounds: UploadBounds,
    /// How long those that run may take when the service is to end.
    pub patience: Duration,
}

/// What is said once it serves.
#[derive(Debug, Clone)]
pub struct ServiceReady {
    /// Where.
    pub address: SocketAddr,
    /// Whether by TLS.
    pub is_secure: bool,
    /// The administrator's token, if it was made just now: it is kept nowhere.
    pub admin_token: Option<String>,
    /// How many commands a service before this one had left without an end.
    pub lost: usize,
    /// Number of commands it had accepted and not begun: they are run now.
    pub resumed: usize,
    /// How many sandboxes it had left.
    pub lost_sandboxes: usize,
}

/// Why it does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The place where everything is kept cannot be used.
    #[error("cannot use {} for the service's data", path.display())]
    Data {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What was kept cannot be read.
    #[error("cannot read {}", path.display())]
    Kept {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: serde_json::Error,
    },
    /// Without the key that they were made with, no token is known any more.
    #[error("{} is missing, and without it none of the {count} tokens in {} can be used", key.display(), tokens.display())]
    NoKey {
        /// Where the key was.
        key: PathBuf,
        /// Where the tokens are.
        tokens: PathBuf,
        /// How many.
        count: usize,
    },
    /// The skills cannot be kept.
    #[error(transparent)]
    Skills(#[from] StoreError),
    /// No command could be confined, or the policy is none.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The policy that is there comes from another profile than the one that was asked for.
    #[error("{} is the policy of another profile", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
    },
    /// A token that anybody could guess, or that no header can hold.
    #[error(
        "the administrator's token is no token: it needs {SHORTEST_TOKEN} characters or more, and no blanks"
    )]
    Token,
    /// Plain HTTP to other machines would tell everybody the tokens.
    #[error(
        "{address} can be reached from other machines, and without TLS everybody on the way reads the tokens"
    )]
    Exposed {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use {} for TLS", path.display())]
    Tls {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The network.
    #[error("cannot serve at {address}")]
    Served {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

impl ServeError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            ServeError::Data { .. } => "data",
            ServeError::Kept { .. } => "data-unreadable",
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

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServeError::Data { .. } => Some("`--data DIR` names another directory, which has to be yours alone".into()),
            ServeError::Kept { path, .. } => Some(format!("mend it, or move it away: `mv {0} {0}.broken`", path.display())),
            ServeError::NoKey { tokens, .. } => {
                Some(format!("put the key back from a backup; or give up all tokens: `mv {0} {0}.void`", tokens.display()))
            }
            ServeError::Skills(error) => error.hint(),
            ServeError::Engine(error) => error.hint(),
            ServeError::Profile { path } => {
                Some(format!("leave `--profile` out, or have it written anew: `mv {0} {0}.old`", path.display()))
            }
            ServeError::Token => Some("`export RINGFENCE_ADMIN_TOKEN=$(openssl rand -hex 32)`, or leave it out".into()),
            ServeError::Exposed { .. } => {
                Some("`--tls-cert FILE --tls-key FILE`; or listen on 127.0.0.1, behind a proxy that speaks TLS".into())
            }
            ServeError::Tls { .. } => Some("both are PEM files: the certificate with its chain, and its private key".into()),
            ServeError::Served { .. } => Some("`--listen ADDRESS:PORT` names another".into()),
        }
    }
}

/// What all that serve share.
pub(crate) type SharedState = Arc<state::AppState>;
