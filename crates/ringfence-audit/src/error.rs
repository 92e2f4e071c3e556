//! Errors of the audit log.

use std::io;
use std::path::PathBuf;

/// The reason the log could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or directory could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The disk, quota or file size limit is full.
    #[error("no space for another record in {}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another user could change the log.
    #[error("unsafe location for the audit log: {} {why}", path.display())]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Another process holds the lock.
    #[error("another process holds the lock of {}", path.display())]
    Busy {
        /// The locked file.
        path: PathBuf,
    },
}

impl AuditError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            AuditError::File { .. } => "audit-unusable",
            AuditError::Full { .. } => "audit-full",
            AuditError::Unsafe { .. } => "audit-unsafe",
            AuditError::Busy { .. } => "audit-busy",
        }
    }

    /// The hint: a command to type.
    pub fn hint(&self) -> String {
        match self {
            AuditError::File { .. } => {
                "export XDG_STATE_HOME=DIRECTORY, with a directory that you can write".into()
            }
            AuditError::Full { path, .. } => format!("df {}", path.display()),
            AuditError::Unsafe { path, .. } => {
                format!("chmod go-w {0}; chown \"$(id -u)\" {0}", path.display())
            }
            AuditError::Busy { path } => format!("fuser {}", path.display()),
        }
    }
}

/// Adds the operation and the path to an error.
pub(crate) trait AuditStep<T> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, AuditError>;
}

impl<T, E: Into<io::Error>> AuditStep<T> for Result<T, E> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, AuditError> {
        self.map_err(|error| error_of(error.into(), what, path.into()))
    }
}

/// A full disk, an exceeded quota and a file size limit are the same error for a log.
fn error_of(source: io::Error, what: &'static str, path: PathBuf) -> AuditError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match source.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => AuditError::Full { path, source },
        _ => AuditError::File { what, path, source },
    }
}
