//! Windows. Never run, only compiled.
//!
//! Owners, access rules and numbers of files are not read. A caller that needs one takes the
//! stricter way: no project is found, no repository is trusted, and no policy file is written.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Account, FileStamp};

/// The variable with the home directory.
pub(super) const HOME_VARIABLE: &str = "USERPROFILE";
/// The managed policy. Not by `%ProgramData%`, which the user can set.
pub(crate) const MANAGED_POLICY: &str = r"C:\ProgramData\ringfence\policy.toml";

/// The user that runs ringfence; `None` where users have no numbers.
pub(crate) fn user_id() -> Option<u32> {
    None
}

/// The owner of a file; `None` if it is not known.
pub(crate) fn owner(_: &Metadata) -> Option<u32> {
    None
}

/// The account by the variables that Windows sets.
pub(super) fn account() -> Account {
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    Account {
        name: variable("USERNAME", ""),
        home: variable(HOME_VARIABLE, r"C:\"),
        shell: variable("ComSpec", r"C:\Windows\System32\cmd.exe"),
    }
}

/// The version of a file. A change shows by its time of modification only.
pub(crate) fn stamp(file: &Metadata) -> FileStamp {
    let modified = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified = (since.as_secs() as i64, i64::from(since.subsec_nanos()));
    FileStamp { numbers: None, size: file.len(), modified, changed: modified }
}

/// Opens a file for reading. Pipes have names of their own, so none can replace a file.
pub(crate) fn open_nonblocking(file: &Path) -> io::Result<File> {
    File::open(file)
}

/// Fails: it cannot set the access rules.
pub(crate) fn create_private_dir(_: &Path) -> io::Result<()> {
    unsupported()
}

/// Fails, as [`create_private_dir`].
pub(crate) fn open_private_file(_: &Path) -> io::Result<File> {
    unsupported()
}

/// Fails, as [`create_private_dir`].
pub(crate) fn copy_access(_: Option<&Metadata>, _: &File) -> io::Result<()> {
    unsupported()
}

fn unsupported<T>() -> io::Result<T> {
    let why = "ringfence cannot set access rules on Windows yet; edit the policy file by hand";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
