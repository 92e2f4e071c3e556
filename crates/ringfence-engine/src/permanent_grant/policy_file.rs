//! Atomic replacement of a policy file through a draft in the same directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_policy::AbsPath;

use super::AllowError;
use crate::files::read_policy_file;
use crate::host::system;

/// The time to wait for another writer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The real path of a policy file.
#[derive(Debug)]
pub(crate) struct PolicyFilePath {
    file: AbsPath,
    draft: AbsPath,
}

impl PolicyFilePath {
    /// Resolves `named`. Neither the file nor its directory has to exist. A dangling link is an
    /// error, because the intended target is unknown.
    pub(crate) fn find(named: &AbsPath) -> Result<Self, AllowError> {
        let file = if fs::symlink_metadata(named.as_path()).is_ok() {
            fs::canonicalize(named.as_path())
                .and_then(absolute)
                .map_err(|source| failed("follow", named, source))?
        } else {
            named.clone()
        };
        let directory = file.parent().unwrap_or_else(AbsPath::root);
        // The real path, if it exists: rules use real paths.
        let real = fs::canonicalize(directory.as_path()).and_then(absolute).unwrap_or(directory);
        let name = file.name().unwrap_or_default().to_owned();
        let mut draft = std::ffi::OsString::from(".");
        draft.push(&name);
        draft.push(".new");
        Ok(Self { file: real.join(&name), draft: real.join(&draft) })
    }

    pub(crate) fn file(&self) -> &AbsPath {
        &self.file
    }

    /// The file that is written and then renamed to the policy file.
    pub(crate) fn draft(&self) -> &AbsPath {
        &self.draft
    }

    /// The content of the file, if it exists, without waiting for a writer.
    pub(crate) fn peek(&self) -> Result<Option<Vec<u8>>, AllowError> {
        match read_policy_file(&self.file) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.file, error)),
        }
    }

    /// Locks the file against other writers.
    ///
    /// The draft is the lock. Its holder renames it to the policy file; the next writer then sees
    /// that the name is gone and creates another draft. A draft left by a crash is reused.
    pub(crate) fn lock(self) -> Result<LockedPolicyFile, AllowError> {
        let directory = self.file.parent().unwrap_or_else(AbsPath::root);
        system::create_private_dir(directory.as_path())
            .map_err(|error| failed("create", &directory, error))?;
        let begun = Instant::now();
        loop {
            let draft = self.open().map_err(|error| failed("write", &self.draft, error))?;
            if draft.try_lock().is_ok() && is_same_file(&draft, &self.draft) {
                return Ok(LockedPolicyFile { place: self, draft });
            }
            if begun.elapsed() > LOCK_TIMEOUT {
                return Err(failed("lock", &self.draft, io::ErrorKind::WouldBlock.into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn open(&self) -> io::Result<File> {
        let draft = system::open_private_file(self.draft.as_path())?;
        if draft.metadata()?.is_file() {
            Ok(draft)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }
}

/// A policy file locked for writing.
#[derive(Debug)]
pub(crate) struct LockedPolicyFile {
    place: PolicyFilePath,
    draft: File,
}

impl LockedPolicyFile {
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, AllowError> {
        self.place.peek()
    }

    /// Replaces the file by this text.
    pub(crate) fn replace(mut self, text: &str) -> Result<(), AllowError> {
        let (file, draft) = (self.place.file.clone(), self.place.draft.clone());
        let failed = |error| failed("write", &file, error);
        self.write(text).map_err(failed)?;
        fs::rename(draft.as_path(), file.as_path()).map_err(failed)?;
        let directory = file.parent().unwrap_or_else(AbsPath::root);
        File::open(directory.as_path()).and_then(|directory| directory.sync_all()).map_err(failed)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.draft.set_len(0)?;
        let kept = match fs::metadata(self.place.file.as_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        system::copy_access(kept.as_ref(), &self.draft)?;
        self.draft.write_all(text.as_bytes())?;
        self.draft.sync_all()
    }
}

impl Drop for LockedPolicyFile {
    /// Removes an unused draft. A draft that became the policy file no longer has this name.
    fn drop(&mut self) {
        if is_same_file(&self.draft, &self.place.draft) {
            let _ = fs::remove_file(self.place.draft.as_path());
        }
    }
}

/// True if `path` still names this file.
fn is_same_file(file: &File, path: &AbsPath) -> bool {
    let numbers = |found: io::Result<fs::Metadata>| system::stamp(&found.ok()?).numbers;
    let found = numbers(fs::symlink_metadata(path.as_path()));
    found.is_some() && found == numbers(file.metadata())
}

fn absolute(path: std::path::PathBuf) -> io::Result<AbsPath> {
    AbsPath::new(path).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn failed(what: &'static str, file: &AbsPath, source: io::Error) -> AllowError {
    AllowError::File { what, file: file.clone(), source }
}
