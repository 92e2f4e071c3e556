//! `read`: reads a file, or a range of its lines or bytes.

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

/// Parameters of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadParams {
    /// The file.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// The first line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The number of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The first byte, from 0; then lines are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_offset: Option<u64>,
    /// The limit of bytes; at most [`ReadResultBody::MAX_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_limit: Option<u64>,
}

impl ReadParams {
    /// Reads a whole file.
    pub fn new(path: impl Into<PathBuf>) -> ReadParams {
        ReadParams { path: path.into(), ..ReadParams::default() }
    }
}

/// The content of a file: exactly its bytes, as text if they are UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadResultBody {
    /// The path of the file, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// The text, with its byte order mark and line endings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The size of the file.
    pub size: u64,
    /// The number of the first line, if lines are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<u64>,
    /// True if there is more content.
    pub truncated: bool,
}

impl ReadResultBody {
    /// The maximum number of bytes per call.
    pub const MAX_BYTES: u64 = 16 << 20;
    /// The default number of bytes per call.
    pub const DEFAULT_BYTES: u64 = 1 << 20;
    /// The maximum number of bytes to skip before the first line.
    const MAX_SKIPPED: u64 = 256 << 20;
}

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeFile {
    /// The path of the file, without links.
    pub path: AbsPath,
    /// The content.
    pub bytes: Vec<u8>,
}

impl FileTools {
    /// Reads a file, or a part of it.
    pub fn read(&self, params: &ReadParams) -> Result<ReadResultBody, ToolError> {
        self.begin_call(Tool::Read)?.run_attempts(|call| attempt(call, params))
    }

    /// Reads a whole file of at most `most` bytes.
    pub fn read_whole(&self, path: &Path, most: u64) -> Result<WholeFile, ToolError> {
        self.begin_call(Tool::Read)?.run_attempts(|call| {
            let (snapshot, place) = call.find_existing(path, Operation::Read)?;
            let decision = call.judge(&snapshot, &place, Operation::Read)?;
            let node = place
                .target
                .as_ref()
                .ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
            must_be_file(node, &place.path)?;
            call.record(Operation::Read, decision)?;
            let bytes =
                call.without_capabilities(&snapshot, || read_whole_file(node, &place.path, most))?;
            Ok(WholeFile { path: place.path, bytes })
        })
    }
}

fn attempt(call: &mut ToolCall<'_>, params: &ReadParams) -> Result<ReadResultBody, ToolError> {
    let (snapshot, place) = call.find_existing(&params.path, Operation::Read)?;
    let decision = call.judge(&snapshot, &place, Operation::Read)?;
    let node =
        place.target.as_ref().ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
    must_be_file(node, &place.path)?;
    call.record(Operation::Read, decision)?;
    call.without_capabilities(&snapshot, || {
        let file = std::fs::File::from(node.open(OFlags::RDONLY, &place.path)?);
        let most = params
            .byte_limit
            .unwrap_or(ReadResultBody::DEFAULT_BYTES)
            .min(ReadResultBody::MAX_BYTES);
        let (bytes, truncated) = match params.byte_offset {
            Some(start) => range_of_bytes(file, start, most).during("read", &place.path)?,
            None => {
                ReadLines { first: params.offset.unwrap_or(1).max(1), count: params.limit, most }
                    .read(file, &place.path)?
            }
        };
        let first_line = params.byte_offset.is_none().then(|| params.offset.unwrap_or(1).max(1));
        let size = u64::try_from(node.status.st_size).unwrap_or(0);
        Ok(content(place.path.clone(), bytes, size, first_line, truncated))
    })
}

/// Refuses all but regular files: opening a pipe may block, and opening a device may have an
/// effect.
pub(crate) fn must_be_file(node: &PathHandle, path: &AbsPath) -> Result<(), ToolError> {
    match node.kind() {
        FileType::RegularFile => Ok(()),
        kind => Err(ToolError::OfAnotherKind {
            path: path.clone(),
            kind: file_type_text(kind),
            wanted: "a file",
        }),
    }
}

pub(crate) fn file_type_text(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of unknown type",
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
        // A piece shorter than one character is returned as it is, else no progress is possible.
        bytes.truncate(if whole == 0 { bytes.len() } else { whole });
    }
    Ok((bytes, truncated))
}

/// A range of lines.
struct ReadLines {
    first: u64,
    count: Option<u64>,
    /// The limit in bytes.
    most: u64,
}

impl ReadLines {
    fn read(&self, file: std::fs::File, path: &AbsPath) -> Result<(Vec<u8>, bool), ToolError> {
        let mut reader = BufReader::with_capacity(64 << 10, file);
        let mut passed = 0;
        for _ in 1..self.first {
            let length = skip_line(&mut reader, ReadResultBody::MAX_SKIPPED - passed)
                .during("read", path)?;
            passed += length;
            if length == 0 {
                return Ok((Vec::new(), false));
            }
            if passed >= ReadResultBody::MAX_SKIPPED {
                return Err(ToolError::TooLarge {
                    path: path.clone(),
                    size: passed,
                    limit: ReadResultBody::MAX_SKIPPED,
                });
            }
        }
        let mut bytes = Vec::new();
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 && (bytes.len() as u64) < self.most {
            let space = self.most - bytes.len() as u64;
            if (&mut reader).take(space).read_until(b'\n', &mut bytes).during("read", path)? == 0 {
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

/// Skips a line, or `most` bytes of it. Returns the number of bytes.
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

/// Reads a whole opened file of at most `most` bytes.
pub(crate) fn read_whole_file(
    node: &PathHandle,
    path: &AbsPath,
    most: u64,
) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::from(node.open(OFlags::RDONLY, path)?);
    file.take(most + 1).read_to_end(&mut bytes).during("read", path)?;
    if bytes.len() as u64 > most {
        let size = u64::try_from(node.status.st_size).unwrap_or(0);
        return Err(ToolError::TooLarge { path: path.clone(), size, limit: most });
    }
    Ok(bytes)
}
