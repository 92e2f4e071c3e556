//! Errors of the file tools.

use std::io;

use ringfence_api::Denial;
use ringfence_audit::AuditError;
use ringfence_policy::{AbsPath, GlobError};

/// The reason a tool call failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The policy denies it.
    #[error("{} of {} is denied: {} ({})", denial.operation.word(), denial.target, denial.rule, denial.origin)]
    Denied {
        /// The rule; the same value as in the audit record.
        denial: Box<Denial>,
    },
    /// The path does not exist.
    #[error("{path} does not exist")]
    NotFound {
        /// The path, with links resolved as far as possible.
        path: AbsPath,
    },
    /// It should be new, but it exists.
    #[error("{path} already exists")]
    Exists {
        /// The existing path.
        path: AbsPath,
    },
    /// The file has the wrong type for the tool.
    #[error("{path} is {kind}, not {wanted}")]
    OfAnotherKind {
        /// The path.
        path: AbsPath,
        /// Its type.
        kind: &'static str,
        /// The required type.
        wanted: &'static str,
    },
    /// The file is too large for the tool.
    #[error("{path} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The file.
        path: AbsPath,
        /// Its size, or its size after the operation.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The text to replace is not in the file.
    #[error("the text to replace is not in {path}")]
    NoMatch {
        /// The file.
        path: AbsPath,
    },
    /// The text to replace occurs more than once.
    #[error("the text to replace occurs {count} times in {path}")]
    Ambiguous {
        /// The file.
        path: AbsPath,
        /// The number of occurrences.
        count: usize,
    },
    /// A parent directory of a new file is missing.
    #[error("the directory {path} does not exist")]
    NoDirectory {
        /// The directory.
        path: AbsPath,
    },
    /// The path, or the file itself, kept changing during the call.
    #[error("{path} was changed by another process meanwhile")]
    Unsettled {
        /// The requested path.
        path: AbsPath,
    },
    /// A glob is invalid.
    #[error("`{text}` is not a valid glob")]
    Glob {
        /// The glob.
        text: String,
        /// The problem.
        source: GlobError,
    },
    /// The sandbox's files are not accessible from this process.
    #[error("`{tool}` is not available: this process cannot access the files of the sandbox")]
    Elsewhere {
        /// The tool that was called.
        tool: String,
    },
    /// The parameters are invalid.
    #[error("{what}")]
    Input {
        /// The problem.
        what: String,
    },
    /// A syscall failed.
    #[error("cannot {what} {path}")]
    System {
        /// The operation.
        what: &'static str,
        /// The path.
        path: AbsPath,
        /// The cause.
        source: io::Error,
    },
    /// The policy is unknown, so nothing is done.
    #[error("no policy is available to allow the call")]
    Policy {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The audit record could not be written.
    #[error("cannot write the audit record that the policy requires")]
    Audit {
        /// The cause.
        source: AuditError,
    },
    /// No extension is registered for the name's prefix.
    #[error("no extension is registered for `{tool}`")]
    NoExtension {
        /// The tool that was called.
        tool: String,
    },
    /// An extension or the session failed.
    #[error("`{tool}` failed")]
    Handler {
        /// The tool that was called.
        tool: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ToolError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            ToolError::Denied { .. } => "denied",
            ToolError::NotFound { .. } | ToolError::NoDirectory { .. } => "not-found",
            ToolError::Exists { .. } => "exists",
            ToolError::OfAnotherKind { .. } => "kind",
            ToolError::TooLarge { .. } => "too-large",
            ToolError::NoMatch { .. } => "no-match",
            ToolError::Ambiguous { .. } => "ambiguous",
            ToolError::Unsettled { .. } => "unsettled",
            ToolError::Glob { .. } => "glob",
            ToolError::Elsewhere { .. } => "elsewhere",
            ToolError::Input { .. } => "input",
            ToolError::System { .. } => "system",
            ToolError::Policy { .. } => "policy",
            ToolError::Audit { source } => source.code(),
            ToolError::NoExtension { .. } => "no-extension",
            ToolError::Handler { .. } => "handler",
        }
    }

    /// The hint: a command to type.
    pub fn hint(&self) -> Option<String> {
        match self {
            ToolError::Denied { denial } => {
                let access = if denial.operation == ringfence_api::Operation::Read {
                    "read"
                } else {
                    "write"
                };
                (denial.operation != ringfence_api::Operation::Call).then(|| {
                    format!(
                        "run `ringfence explain {access} {}` to see how to change that",
                        denial.target
                    )
                })
            }
            ToolError::NoMatch { .. } => {
                Some("read the file again: spaces and line endings must match".into())
            }
            ToolError::Ambiguous { .. } => {
                Some("include more of the surrounding lines, or set `replaceAll: true`".into())
            }
            ToolError::TooLarge { .. } => Some("request a range of it".into()),
            ToolError::Unsettled { .. } => Some("try again".into()),
            ToolError::Elsewhere { .. } => {
                Some("use the shell: `cat FILE`, `tee FILE`, `ls`, `grep -r`".into())
            }
            ToolError::NoDirectory { path } => {
                Some(format!("set `createParents: true`, or run `mkdir -p {path}`"))
            }
            ToolError::Glob { source, .. } => Some(source.hint().into()),
            ToolError::Audit { source } => Some(source.hint().to_string()),
            _ => None,
        }
    }

    /// The denial, if it is one.
    pub fn denial(&self) -> Option<&Denial> {
        match self {
            ToolError::Denied { denial } => Some(denial),
            _ => None,
        }
    }
}

/// Adds the operation and the path to an error.
pub(crate) trait ToolStep<T> {
    fn during(self, what: &'static str, path: &AbsPath) -> Result<T, ToolError>;
}

impl<T> ToolStep<T> for rustix::io::Result<T> {
    fn during(self, what: &'static str, path: &AbsPath) -> Result<T, ToolError> {
        self.map_err(io::Error::from).during(what, path)
    }
}

impl<T> ToolStep<T> for io::Result<T> {
    fn during(self, what: &'static str, path: &AbsPath) -> Result<T, ToolError> {
        self.map_err(|source| ToolError::System { what, path: path.clone(), source })
    }
}
