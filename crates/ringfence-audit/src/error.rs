//! What can go wrong with the log.

use std::io;
use std::path::PathBuf;

/// Why something could not be recorded or read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or directory could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// There is no room for another record.
    #[error("no room for another record in {}", path.display())]
    Full {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else could change what is written there.
    #[error("the audit log would not be safe in {}: it {why}", path.display())]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another process keeps the log to itself.
    #[error("another process keeps {} locked", path.display())]
    Busy {
        /// The locked file.
        path: PathBuf,
    },
}

impl AuditError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            AuditError::File { .. } => "audit-unusable",
            AuditError::Full { .. } => "audit-full",
            AuditError::Unsafe { .. } => "audit-unsafe",
            AuditError::Busy { .. } => "audit-busy",
        }
    }

    /// What to type next.
    pub fn hint(&self) -> String {
        match self {
            AuditError::File { .. } => {
                "export XDG_STATE_HOME=DIRECTORY, one that you can write".into()
            }
            AuditError::Full { path, .. } => format!("df {}", path.display()),
            AuditError::Unsafe { path, .. } => {
                format!("chmod go-w {0}; chown \"$(id -u)\" {0}", path.display())
            }
            AuditError::Busy { path } => format!("fuser {}", path.display()),
        }
    }
}

/// Names what was attempted on what.
pub(crate) trait AuditStep<T> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, AuditError>;
}

impl<T> AuditStep<T> for rustix::io::Result<T> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, AuditError> {
        self.map_err(|error| error_of(error.into(), what, path.into()))
    }
}

impl<T> AuditStep<T> for io::Result<T> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, AuditError> {
        self.map_err(|error| error_of(error, what, path.into()))
    }
}

/// A full disk, a used-up quota and a limit on sizes are one thing to a log.
fn error_of(source: io::Error, what: &'static str, path: PathBuf) -> AuditError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match source.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => AuditError::Full { path, source },
        _ => AuditError::File { what, path, source },
    }
}
