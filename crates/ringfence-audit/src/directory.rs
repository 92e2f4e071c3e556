//! The directory of the log: owned by this user only, and never accessed through a link.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{AuditError, AuditStep};
use crate::platform::{self, WriteMode};

/// An open directory.
#[derive(Debug)]
pub(crate) struct LogDir {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl LogDir {
    /// Opens it for writing, and creates missing directories.
    pub(crate) fn open_for_writing(path: &Path) -> Result<LogDir, AuditError> {
        Ok(LogDir { file: platform::open_dir_for_writing(path)?, path: path.to_owned() })
    }

    /// Opens it for reading; `None` if there is none.
    pub(crate) fn open_for_reading(path: &Path) -> Result<Option<LogDir>, AuditError> {
        let opened = platform::open_dir_for_reading(path)?;
        Ok(opened.map(|file| LogDir { file, path: path.to_owned() }))
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file for reading and writing, and creates it if it is missing.
    pub(crate) fn open_writable(&self, name: &str, mode: WriteMode) -> Result<File, AuditError> {
        platform::open_writable(self, name, mode)
    }

    /// Opens a regular file for reading; `None` if it is missing.
    pub(crate) fn open_readable(&self, name: &str) -> Result<Option<File>, AuditError> {
        platform::open_readable(self, name)
    }

    /// The numbers of the log's files, in order.
    pub(crate) fn file_numbers(&self) -> Result<Vec<u64>, AuditError> {
        let names = platform::entry_names(self).during("read", &self.path)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// The name of log file `number`.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:08}.jsonl")
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".jsonl").filter(|digits| digits.len() >= 8)?.parse().ok()?;
    (name == file_name(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_names_are_log_files() {
        assert_eq!(number_of(&file_name(7)), Some(7));
        assert_eq!(number_of(&file_name(123_456_789)), Some(123_456_789));
        for name in [
            "head",
            "7.jsonl",
            "00000007.jsonl.gz",
            "000000007.jsonl",
            "0000000x.jsonl",
            "+0000007.jsonl",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
