//! Files that others have written, settings among them.

use std::io;
use std::path::Path;

use ringfence_engine::read_plain;

use crate::error::CliError;

/// What a file says; `None` if there is none.
pub(crate) fn text_of(file: &Path) -> Result<Option<String>, CliError> {
    const MEBIBYTES: u64 = 4;
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not text");
    match read_plain(file, MEBIBYTES).and_then(|bytes| String::from_utf8(bytes).map_err(no_text)) {
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
