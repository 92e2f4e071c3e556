//! Reads untrusted text files, such as settings.

use std::io;
use std::path::Path;

use ringfence_engine::read_regular_file;

use crate::error::CliError;

/// Reads a text file; `None` if it does not exist.
pub(crate) fn read_text(file: &Path) -> Result<Option<String>, CliError> {
    const MEBIBYTES: u64 = 4;
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8");
    match read_regular_file(file, MEBIBYTES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(no_text))
    {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(source) => {
            Err(CliError::File { what: "read", path: file.display().to_string(), source })
        }
    }
}
