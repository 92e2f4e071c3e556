//! Why a tool did not do what was asked.

use std::io;

use ringfence_api::Denial;
use ringfence_audit::AuditError;
use ringfence_policy::{AbsPath, GlobError};

/// Why a tool did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The policy refuses it.
    #[error("{} of {} is refused: {} ({})", denial.operation.word(), denial.target, denial.rule, denial.origin)]
    Denied {
        /// By which rule; the same value that is on record.
        denial: Box<Denial>,
    },
    /// There is nothing at that path.
    #[error("there is no {path}")]
    NotFound {
        /// Where links lead, as far as they do.
        path: AbsPath,
    },
    /// It was to be made, and is there.
    #[error("{path} is there already")]
    Exists {
        /// What is there.
        path: AbsPath,
    },
    /// Something else stands there than the tool works on.
    #[error("{path} is {kind}, not {wanted}")]
    OfAnotherKind {
        /// Where.
        path: AbsPath,
        /// What it is.
        kind: &'static str,
        /// What it would have to be.
        wanted: &'static str,
    },
    /// It is larger than the tool takes.
    #[error("{path} has {size} bytes, and at most {limit} are taken")]
    TooLarge {
        /// Which file.
        path: AbsPath,
        /// How large it is, or would be.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The text that was to be replaced is not in the file.
    #[error("the text to be replaced is not in {path}")]
    NoMatch {
        /// Which file.
        path: AbsPath,
    },
    /// The text that was to be replaced is in the file more than once.
    #[error("the text to be replaced stands in {path} {count} times")]
    Ambiguous {
        /// Which file.
        path: AbsPath,
        /// How often.
        count: usize,
    },
    /// A directory on the way to a new file is missing.
    #[error("there is no directory {path}")]
    NoDirectory {
        /// Which.
        path: AbsPath,
    },
    /// Names on the way, or the file itself, changed faster than they could be held.
    #[error("{path} was changed by somebody else meanwhile")]
    Unsettled {
        /// Which path was asked for.
        path: AbsPath,
    },
    /// A glob cannot be read.
    #[error("`{text}` is no glob")]
    Glob {
        /// As it was written.
        text: String,
        /// What is wrong with it.
        source: GlobError,
    },
    /// The sandbox's files cannot be reached from this process.
    #[error("`{tool}` is not offered: the files of this sandbox are elsewhere")]
    Elsewhere {
        /// The tool that was called.
        tool: String,
    },
    /// What was asked for makes no sense.
    #[error("{what}")]
    Input {
        /// What is wrong with it.
        what: String,
    },
    /// The operating system refused.
    #[error("cannot {what} {path}")]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: AbsPath,
        /// Why it failed.
        source: io::Error,
    },
    /// Nobody can say which policy holds, so nothing is done.
    #[error("no policy holds that could allow it")]
    Policy {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It could not be recorded.
    #[error("the call cannot be recorded, and the policy wants it recorded")]
    Audit {
        /// Why not.
        source: AuditError,
    },
    /// No extension has the name's prefix.
    #[error("no extension serves `{tool}`")]
    NoExtension {
        /// The tool that was called.
        tool: String,
    },
    /// An extension or the session failed.
    #[error("`{tool}` failed")]
    Handler {
        /// The tool that was called.
        tool: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ToolError {
    /// A stable word for it.
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

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ToolError::Denied { denial } => {
                let wish = if denial.operation == ringfence_api::Operation::Read {
                    "read"
                } else {
                    "write"
                };
                (denial.operation != ringfence_api::Operation::Call).then(|| {
                    format!("`ringfence explain {wish} {}` says how to change that", denial.target)
                })
            }
            ToolError::NoMatch { .. } => {
                Some("read the file again: blanks and line ends count".into())
            }
            ToolError::Ambiguous { .. } => {
                Some("take more of the lines around it, or ask for all to be replaced".into())
            }
            ToolError::TooLarge { .. } => Some("ask for a range of it".into()),
            ToolError::Unsettled { .. } => Some("try again".into()),
            ToolError::Elsewhere { .. } => {
                Some("use the shell: `cat FILE`, `tee FILE`, `ls`, `grep -r`".into())
            }
            ToolError::NoDirectory { path } => {
                Some(format!("`createParents: true` makes it, or `mkdir -p {path}`"))
            }
            ToolError::Glob { source, .. } => Some(source.hint().into()),
            ToolError::Audit { source } => Some(source.hint().to_string()),
            _ => None,
        }
    }

    /// The refusal, if it is one.
    pub fn denial(&self) -> Option<&Denial> {
        match self {
            ToolError::Denied { denial } => Some(denial),
            _ => None,
        }
    }
}

/// What was tried, on what.
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
