//! Errors of providers.

use std::io;

use ringfence_api::host_limits::limit_hint;

/// Why a provider could not run a command.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The registry has no provider of this name.
    #[error("Unknown sandbox provider: \"{name}\". Available: [{}]", available.join(", "))]
    UnknownProvider {
        /// The requested name.
        name: String,
        /// The registered names.
        available: Vec<String>,
    },
    /// The provider has no option of this name.
    #[error(
        "unknown option `{option}` of the sandbox provider `{provider}`; known options: {known}"
    )]
    UnknownOption {
        /// The provider.
        provider: String,
        /// The option.
        option: String,
        /// The known options.
        known: String,
    },
    /// An option of the provider has no such value.
    #[error(
        "the option `{option}` of the sandbox provider `{provider}` cannot be `{value}`; known values: {known}"
    )]
    InvalidOption {
        /// The provider.
        provider: String,
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// The known values.
        known: String,
    },
    /// The sandbox could not be created.
    #[error("cannot start the sandbox for `{command}`")]
    NotStarted {
        /// The command.
        command: String,
        /// Advice: a command line that helps.
        hint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The command could not be executed in the sandbox.
    #[error("cannot execute `{command}`")]
    NotExecuted {
        /// The command.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// A standard stream is a directory, which would lead out of the sandbox.
    #[error("standard {stream} is a directory")]
    StreamIsDirectory {
        /// `input`, `output` or `error`.
        stream: &'static str,
    },
    /// The text is not a shell command.
    #[error("not a shell command")]
    NotACommand {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The sandbox or its shell has ended.
    #[error("the {what} has ended")]
    Gone {
        /// `sandbox` or `shell`.
        what: &'static str,
    },
    /// The provider does not have this feature.
    #[error("the sandbox provider does not support {what}")]
    NotSupported {
        /// The feature.
        what: &'static str,
    },
    /// A terminal was requested without confinement.
    #[error("a terminal is available only in a sandbox")]
    TerminalNeedsSandbox,
    /// The command closed the fds that its shell uses to report exit statuses.
    #[error("the command closed the fds that its shell uses to report its exit status")]
    ReportFdsClosed,
    /// A port to publish from the sandbox is not available on the host.
    #[error("cannot listen on port {port} of the host's loopback")]
    PortTaken {
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// No CA certificates are available, so secrets cannot be sent to any host.
    #[error("cannot insert secrets into requests")]
    NoCaCertificates {
        /// Advice for the user.
        hint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host's upstream proxy cannot be used.
    #[error("cannot use the upstream proxy of this network")]
    UpstreamProxyUnusable {
        /// Advice for the user.
        hint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A system operation failed.
    #[error("cannot {what}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl ProviderError {
    /// The error for an option that is not in `known`.
    pub fn unknown_option(provider: &str, option: &str, known: &[&str]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self::UnknownOption { provider: provider.to_owned(), option: option.to_owned(), known }
    }

    /// A stable error code: clients match on it, so a code stays even if its variant is renamed.
    pub fn code(&self) -> &'static str {
        match self {
            ProviderError::UnknownProvider { .. } => "unknown-provider",
            ProviderError::UnknownOption { .. } => "unknown-provider-option",
            ProviderError::InvalidOption { .. } => "invalid-provider-option",
            ProviderError::NotStarted { .. } => "sandbox-not-started",
            ProviderError::NotExecuted { .. } => "command-not-executed",
            ProviderError::StreamIsDirectory { .. } => "stream-is-directory",
            ProviderError::NotACommand { .. } => "not-a-line",
            ProviderError::Gone { .. } => "gone",
            ProviderError::NotSupported { .. } => "not-supported",
            ProviderError::TerminalNeedsSandbox => "unconfined",
            ProviderError::ReportFdsClosed => "shell-mute",
            ProviderError::PortTaken { .. } => "port-taken",
            ProviderError::NoCaCertificates { .. } => "no-trust",
            ProviderError::UpstreamProxyUnusable { .. } => "no-way-out",
            ProviderError::System { .. } => "system",
        }
    }

    /// The next step for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProviderError::NotStarted { hint, .. }
            | ProviderError::NoCaCertificates { hint, .. }
            | ProviderError::UpstreamProxyUnusable { hint, .. } => Some(hint.clone()),
            ProviderError::UnknownProvider { .. }
            | ProviderError::UnknownOption { .. }
            | ProviderError::InvalidOption { .. } => {
                Some("use `--provider local`; `ringfence policy show --origin` shows which file or flag chose it".into())
            }
            ProviderError::NotExecuted { source, .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Some("`ringfence explain exec PATH` shows if a rule allows the program".into())
            }
            ProviderError::NotExecuted { .. } => None,
            ProviderError::StreamIsDirectory { .. } => {
                Some("redirect it from or to a file or /dev/null".into())
            }
            ProviderError::Gone { .. } | ProviderError::ReportFdsClosed => {
                Some("run the command again: it gets a new one".into())
            }
            ProviderError::NotSupported { .. } => Some("use `--provider local`".into()),
            ProviderError::TerminalNeedsSandbox => Some("run it in your own terminal".into()),
            ProviderError::System { source, .. } => limit_hint(source).map(str::to_owned),
            ProviderError::PortTaken { port, .. } => {
                Some(format!("remove {port} from `bind`, or stop the program that listens on it"))
            }
            ProviderError::NotACommand { .. } => None,
        }
    }

    /// The exit status of the CLI: 127 not found, 126 not executable, 125 a ringfence error.
    pub fn status(&self) -> i32 {
        match self {
            ProviderError::NotExecuted { source, .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                127
            }
            ProviderError::NotExecuted { .. } => 126,
            _ => 125,
        }
    }
}
