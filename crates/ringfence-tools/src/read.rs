//! `read`: shows a file, or a range of its lines or bytes.

use std::io::{BufRead, BufReader, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ringfence_api::{Operation, base64};
use ringfence_policy::{AbsPath, Tool};
use rustix::fs::{FileType, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{ToolError, ToolStep};
use crate::opened_path::PathHandle;
use crate::text::{is_binary, whole_characters};
use crate::{FileTools, ToolCall};

/// What is to be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadParams {
    /// Which file.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// The first line to be shown, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The first byte to be shown, from 0; lines are not counted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_offset: Option<u64>,
    /// How many bytes at most; [`Content::MOST`] is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_limit: Option<u64>,
}

impl ReadParams {
    /// The whole of a file.
    pub fn new(path: impl Into<PathBuf>) -> ReadParams {
        ReadParams { path: path.into(), ..ReadParams::default() }
    }
}

/// What was shown of a file: exactly its bytes, as text where they are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadResultBody {
    /// Where the file is, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// The text, with whatever marks and line ends it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// How large the file is.
    pub size: u64,
    /// The number of the first line that is shown, where lines are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<u64>,
    /// Whether there is more behind what is shown.
    pub truncated: bool,
}

impl ReadResultBody {
    /// So many bytes are shown at once, and no more.
    pub const MOST: u64 = 16 << 20;
    /// So many are shown if nobody says how many.
    pub const USUAL: u64 = 1 << 20;
    /// So many are gone through to find a line.
    const PASSED: u64 = 256 << 20;
}

/// All of a file, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeFile {
    /// Where the file is, without links.
    pub path: AbsPath,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl FileTools {
    /// Shows a file, or a part of it.
    pub fn read(&self, wish: &ReadParams) -> Result<ReadResultBody, ToolError> {
        self.errand(Tool::Read)?.carry_out(|errand| attempt(errand, wish))
    }

    /// All of a file, if it has no more bytes than `most`.
    pub fn take(&self, path: &Path, most: u64) -> Result<WholeFile, ToolError> {
        self.errand(Tool::Read)?.carry_out(|errand| {
            let (ground, place) = errand.found(path, Operation::Read)?;
            let decision = errand.judge(&ground, &place, Operation::Read)?;
            let node = place
                .there
                .as_ref()
                .ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
            must_be_file(node, &place.path)?;
            errand.record(Operation::Read, decision)?;
            let bytes = errand.plainly(&ground, || whole(node, &place.path, most))?;
            Ok(WholeFile { path: place.path, bytes })
        })
    }
}

fn attempt(errand: &mut ToolCall<'_>, wish: &ReadParams) -> Result<ReadResultBody, ToolError> {
    let (ground, place) = errand.found(&wish.path, Operation::Read)?;
    let decision = errand.judge(&ground, &place, Operation::Read)?;
    let node =
        place.there.as_ref().ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
    must_be_file(node, &place.path)?;
    errand.record(Operation::Read, decision)?;
    errand.plainly(&ground, || {
        let file = std::fs::File::from(node.open(OFlags::RDONLY, &place.path)?);
        let most = wish.byte_limit.unwrap_or(ReadResultBody::USUAL).min(ReadResultBody::MOST);
        let (bytes, truncated) = match wish.byte_offset {
            Some(start) => range_of_bytes(file, start, most).during("read", &place.path)?,
            None => ReadLines { first: wish.offset.unwrap_or(1).max(1), count: wish.limit, most }
                .of(file, &place.path)?,
        };
        let first_line = wish.byte_offset.is_none().then(|| wish.offset.unwrap_or(1).max(1));
        let size = u64::try_from(node.status.st_size).unwrap_or(0);
        Ok(content(place.path.clone(), bytes, size, first_line, truncated))
    })
}

/// Nothing but plain files is ever opened: a pipe would be waited for, and a device obeys.
pub(crate) fn must_be_file(node: &PathHandle, path: &AbsPath) -> Result<(), ToolError> {
    match node.kind() {
        FileType::RegularFile => Ok(()),
        kind => {
            Err(ToolError::OfAnotherKind { path: path.clone(), kind: word(kind), wanted: "a file" })
        }
    }
}

pub(crate) fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of no known kind",
    }
}

fn content(
    path: AbsPath,
    bytes: Vec<u8>,
    size: u64,
    first_line: Option<u64>,
    truncated: bool,
) -> ReadResultBody {
    let (text, base64) = match String::from_utf8(bytes) {
        Ok(text) if !is_binary(text.as_bytes()) => (Some(text), None),
        Ok(text) => (None, Some(base64(text.as_bytes()))),
        Err(bytes) => (None, Some(base64(bytes.as_bytes()))),
    };
    ReadResultBody { path, text, base64, size, first_line, truncated }
}

fn range_of_bytes(
    mut file: std::fs::File,
    start: u64,
    most: u64,
) -> std::io::Result<(Vec<u8>, bool)> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    let truncated = bytes.len() as u64 > most;
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    if truncated {
        let whole = whole_characters(&bytes).len();
        // A piece shorter than a character is shown as it is, or nothing would ever be.
        bytes.truncate(if whole == 0 { bytes.len() } else { whole });
    }
    Ok((bytes, truncated))
}

/// A range of lines.
struct ReadLines {
    first: u64,
    count: Option<u64>,
    /// Bytes.
    most: u64,
}

impl ReadLines {
    fn of(&self, file: std::fs::File, path: &AbsPath) -> Result<(Vec<u8>, bool), ToolError> {
        let mut reader = BufReader::with_capacity(64 << 10, file);
        let mut passed = 0;
        for _ in 1..self.first {
            let length =
                skip_line(&mut reader, ReadResultBody::PASSED - passed).during("read", path)?;
            passed += length;
            if length == 0 {
                return Ok((Vec::new(), false));
            }
            if passed >= ReadResultBody::PASSED {
                return Err(ToolError::TooLarge {
                    path: path.clone(),
                    size: passed,
                    limit: ReadResultBody::PASSED,
                });
            }
        }
        let mut bytes = Vec::new();
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 && (bytes.len() as u64) < self.most {
            let room = self.most - bytes.len() as u64;
            if (&mut reader).take(room).read_until(b'\n', &mut bytes).during("read", path)? == 0 {
                break;
            }
            left -= u64::from(bytes.last() == Some(&b'\n'));
        }
        let truncated = !reader.fill_buf().during("read", path)?.is_empty();
        if truncated && bytes.last() != Some(&b'\n') {
            let whole = whole_characters(&bytes).len();
            bytes.truncate(if whole == 0 { bytes.len() } else { whole });
        }
        Ok((bytes, truncated))
    }
}

/// Goes past a line, or past as much of it as `most`; answers how long it was.
fn skip_line(reader: &mut impl BufRead, most: u64) -> std::io::Result<u64> {
    let mut length = 0;
    while length < most {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let (used, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        reader.consume(used);
        length += used as u64;
        if is_end {
            break;
        }
    }
    Ok(length)
}

/// All of a file that is held, if it is no larger than `most`.
pub(crate) fn whole(node: &PathHandle, path: &AbsPath, most: u64) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::from(node.open(OFlags::RDONLY, path)?);
    file.take(most + 1).read_to_end(&mut bytes).during("read", path)?;
    if bytes.len() as u64 > most {
        let size = u64::try_from(node.status.st_size).unwrap_or(0);
        return Err(ToolError::TooLarge { path: path.clone(), size, limit: most });
    }
    Ok(bytes)
}
