//! Why a service was not used.

use std::io;
use std::path::PathBuf;

/// Why a service was not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// The address is none.
    #[error("`{url}` is no address of a service: {what}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no token.
    #[error("there is no token for the service")]
    NoToken,
    /// It cannot stand in a header.
    #[error("the token for the service is not one word of plain characters")]
    Token,
    /// The file with the token cannot be read.
    #[error("cannot read the token in {}", path.display())]
    TokenFile {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Plain HTTP would tell everybody on the way.
    #[error("{authority} is another machine, and without TLS everybody on the way reads the token")]
    Exposed {
        /// Where it was to go.
        authority: String,
    },
    /// This machine has no certificates.
    #[error("this machine's certificates are nowhere")]
    NoRoots,
    /// They cannot be used.
    #[error("cannot use the certificates in {}", path.display())]
    Roots {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// TLS cannot be spoken.
    #[error("cannot speak TLS")]
    Tls {
        /// Why not.
        source: rustls::Error,
    },
    /// Nobody is there.
    #[error("cannot reach the service at {authority}")]
    Unreached {
        /// Where.
        authority: String,
        /// Why not.
        source: io::Error,
    },
    /// Somebody is there, and nobody says that it is the service.
    #[error("who answers at {authority} is not vouched for")]
    Untrusted {
        /// Where.
        authority: String,
        /// What is wrong.
        source: io::Error,
    },
    /// The connection broke off.
    #[error("the service at {authority} broke off")]
    Broken {
        /// Where.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// What answers is no service of ours.
    #[error("what answers at {authority} is no ringfence service: {what}")]
    Strange {
        /// Where.
        authority: String,
        /// What it says.
        what: String,
    },
    /// The service said no, in its own words.
    #[error("{message}")]
    Refused {
        /// Its word for it.
        code: String,
        /// Its sentence.
        message: String,
        /// What it says helps.
        hint: Option<String>,
    },
}

impl RemoteError {
    /// A stable word for it.
    pub(crate) fn code(&self) -> &str {
        match self {
            RemoteError::Url { .. } => "url",
            RemoteError::NoToken | RemoteError::Token | RemoteError::TokenFile { .. } => "token",
            RemoteError::Exposed { .. } => "exposed",
            RemoteError::NoRoots
            | RemoteError::Roots { .. }
            | RemoteError::Tls { .. }
            | RemoteError::Untrusted { .. } => "tls",
            RemoteError::Unreached { .. } => "unreached",
            RemoteError::Broken { .. } => "broken",
            RemoteError::Strange { .. } => "strange",
            RemoteError::Refused { code, .. } => code,
        }
    }

    /// What to type next.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            RemoteError::Url { .. } => Some("`--url http://127.0.0.1:7420`".into()),
            RemoteError::NoToken => {
                Some("`export RINGFENCE_TOKEN=…`, or `--token-file FILE`".into())
            }
            RemoteError::Token | RemoteError::TokenFile { .. } => {
                Some("`--token-file FILE` names a file with the token on one line".into())
            }
            RemoteError::Exposed { .. } => Some(
                "`--url https://…`; or `ssh -L 7420:127.0.0.1:7420 HOST`, and no `--url`".into(),
            ),
            RemoteError::NoRoots | RemoteError::Roots { .. } | RemoteError::Untrusted { .. } => {
                Some("`--ca FILE` names the certificate of whoever vouches for it".into())
            }
            RemoteError::Tls { .. } => None,
            RemoteError::Unreached { .. } => {
                Some("`ringfence serve` starts one; `--url` names another".into())
            }
            RemoteError::Broken { .. } => Some("try again".into()),
            RemoteError::Strange { .. } => Some("`--url` names another".into()),
            RemoteError::Refused { hint, .. } => hint.clone(),
        }
    }
}
