//! Errors of requests to a server.

use std::io;
use std::path::PathBuf;

/// The reason why a request to a server failed. The texts may be the server's.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The URL is invalid.
    #[error("`{url}` is not a server URL: {what}")]
    Url {
        /// The URL as given.
        url: String,
        /// The problem.
        what: &'static str,
    },
    /// There is no token.
    #[error("no token for the server")]
    NoToken,
    /// The token cannot be sent in a header.
    #[error("the token for the server has blanks or special characters")]
    Token,
    /// The token file cannot be read.
    #[error("cannot read the token in {}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Plain HTTP to another machine would expose the token.
    #[error("refusing to send the token to {authority} without TLS: it is another machine")]
    Exposed {
        /// The server.
        authority: String,
    },
    /// This program cannot speak TLS.
    #[error("this program is built without TLS")]
    NoTls,
    /// There is no system CA bundle.
    #[error("no system CA bundle found")]
    NoRoots,
    /// The certificates cannot be used.
    #[error("cannot use the certificates in {}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls {
        /// The cause.
        source: io::Error,
    },
    /// The connection failed.
    #[error("cannot connect to the server at {authority}")]
    Unreached {
        /// The server.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {authority} is not trusted")]
    Untrusted {
        /// The server.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// The connection was lost.
    #[error("lost the connection to the server at {authority}")]
    Broken {
        /// The server.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// The response is not from a ringfence server.
    #[error("{authority} is not a ringfence server: {what}")]
    Strange {
        /// The server.
        authority: String,
        /// The unexpected response.
        what: String,
    },
    /// The server refused the request.
    #[error("{message}")]
    Refused {
        /// The server's error code.
        code: String,
        /// The server's message.
        message: String,
        /// The server's hint.
        hint: Option<String>,
    },
}

impl RemoteError {
    /// Returns the stable error code.
    pub fn code(&self) -> &str {
        match self {
            RemoteError::Url { .. } => "url",
            RemoteError::NoToken | RemoteError::Token | RemoteError::TokenFile { .. } => "token",
            RemoteError::Exposed { .. } => "exposed",
            RemoteError::NoTls
            | RemoteError::NoRoots
            | RemoteError::Roots { .. }
            | RemoteError::Tls { .. }
            | RemoteError::Untrusted { .. } => "tls",
            RemoteError::Unreached { .. } => "unreached",
            RemoteError::Broken { .. } => "broken",
            RemoteError::Strange { .. } => "strange",
            RemoteError::Refused { code, .. } => code,
        }
    }

    /// Returns a command to type, or another way to fix the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            RemoteError::Url { .. } => {
                Some("use a URL such as `--url http://127.0.0.1:7420`".into())
            }
            RemoteError::NoToken => {
                Some("`export RINGFENCE_TOKEN=…`, or `--token-file FILE`".into())
            }
            RemoteError::Token | RemoteError::TokenFile { .. } => {
                Some("use `--token-file FILE`, a file with the token on one line".into())
            }
            RemoteError::Exposed { .. } => Some(
                "use `--url https://…`; or run `ssh -L 7420:127.0.0.1:7420 HOST` and omit `--url`"
                    .into(),
            ),
            RemoteError::NoRoots | RemoteError::Roots { .. } | RemoteError::Untrusted { .. } => {
                Some("use `--ca FILE`, with the certificate of the server's CA".into())
            }
            RemoteError::NoTls => Some("build `ringfence-client` with the feature `tls`".into()),
            RemoteError::Tls { .. } => None,
            RemoteError::Unreached { .. } => {
                Some("start one with `ringfence serve`, or use another `--url`".into())
            }
            RemoteError::Broken { .. } => Some("try again".into()),
            RemoteError::Strange { .. } => Some("use another `--url`".into()),
            RemoteError::Refused { hint, .. } => hint.clone(),
        }
    }
}
