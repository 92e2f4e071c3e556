//! `write`: creates a file, or replaces its content.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Tool};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::atomic_write::{AtomicWrite, FsyncMode};
use crate::error::{ToolError, ToolStep};
use crate::opened_path::{OpenedPath, PathLookupError};
use crate::policy_snapshot::PolicySnapshot;
use crate::read::must_be_file;
use crate::{FileTools, ToolCall};

/// Parameters of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteParams {
    /// The file. If it is a link, its target is written.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// The whole content.
    pub content: String,
    /// True to create missing parent directories.
    #[serde(default = "yes", alias = "create_parents")]
    pub create_parents: bool,
    /// True to fail if the file exists.
    #[serde(default, alias = "new_only")]
    pub new_only: bool,
    /// True to call fsync.
    #[serde(default)]
    pub fsync: bool,
}

fn yes() -> bool {
    true
}

impl WriteParams {
    /// Writes a whole file.
    pub fn new(path: impl Into<PathBuf>, content: impl Into<String>) -> WriteParams {
        WriteParams { path: path.into(), content: content.into(), ..WriteParams::default() }
    }
}

/// The new content of a file: bytes, not necessarily text.
#[derive(Debug, Clone, Copy)]
pub enum WriteSource<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// The first `length` bytes of a file, independent of its offset.
    File {
        /// The file.
        file: &'a File,
        /// Number of bytes.
        length: u64,
    },
}

impl<'a> From<&'a [u8]> for WriteSource<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        WriteSource::Bytes(bytes)
    }
}

impl WriteSource<'_> {
    pub(crate) fn length(&self) -> u64 {
        match self {
            WriteSource::Bytes(bytes) => bytes.len() as u64,
            WriteSource::File { length, .. } => *length,
        }
    }

    pub(crate) fn copy_to(&self, to: &mut File) -> io::Result<()> {
        match self {
            WriteSource::Bytes(bytes) => to.write_all(bytes),
            WriteSource::File { file, length } => {
                let mut from = *file;
                from.seek(SeekFrom::Start(0))?;
                let copied = io::copy(&mut from.take(*length), to)?;
                if copied == *length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
        }
    }
}

/// A file and its new content.
#[derive(Debug, Clone, Copy)]
pub struct PutParams<'a> {
    /// The file. If it is a link, its target is written.
    pub path: &'a Path,
    /// The whole content.
    pub content: WriteSource<'a>,
    /// True to create missing parent directories.
    pub create_parents: bool,
    /// True to fail if the file exists.
    pub new_only: bool,
    /// True to call fsync.
    pub fsync: bool,
}

impl WriteParams {
    fn put(&self) -> PutParams<'_> {
        let Self { path, content, create_parents, new_only, fsync } = self;
        PutParams {
            path,
            content: WriteSource::Bytes(content.as_bytes()),
            create_parents: *create_parents,
            new_only: *new_only,
            fsync: *fsync,
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteOutput {
    /// The path of the file, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// True if the file is new.
    pub created: bool,
    /// The new size.
    pub size: u64,
}

impl FileTools {
    /// Creates a file, or replaces its content atomically.
    pub fn write(&self, params: &WriteParams) -> Result<WriteOutput, ToolError> {
        self.put(&params.put())
    }

    /// As [`FileTools::write`], for bytes.
    pub fn put(&self, params: &PutParams<'_>) -> Result<WriteOutput, ToolError> {
        self.begin_call(Tool::Write)?.run_attempts(|call| attempt(call, params))
    }
}

impl FileTools {
    /// Creates a directory and its missing parents. An existing one stays unchanged.
    pub fn make_directories(&self, path: &Path) -> Result<AbsPath, ToolError> {
        self.begin_call(Tool::Write)?.run_attempts(|call| {
            loop {
                let (snapshot, found) = call.find(path)?;
                let missing = match found {
                    Ok(place) => match &place.target {
                        Some(node) if node.kind() == FileType::Directory => return Ok(place.path),
                        Some(_) => return Err(ToolError::Exists { path: place.path }),
                        None => place,
                    },
                    Err(PathLookupError::Missing { place }) => *place,
                    Err(lost) => return Err(call.lookup_error(&snapshot, lost, Operation::Create)),
                };
                call.check_deadline(missing.path.as_path())?;
                make_directory(call, &snapshot, &missing)?;
            }
        })
    }
}

fn attempt(call: &mut ToolCall<'_>, params: &PutParams<'_>) -> Result<WriteOutput, ToolError> {
    let (snapshot, place) = loop {
        let (snapshot, found) = call.find(params.path)?;
        match found {
            Ok(place) => break (snapshot, place),
            Err(PathLookupError::Missing { place }) if params.create_parents => {
                call.check_deadline(place.path.as_path())?;
                if let Some(path) = AbsPath::new(call.tools.absolute(params.path)) {
                    call.must_not_start_programs(&snapshot, &path)?;
                }
                make_directory(call, &snapshot, &place)?;
            }
            Err(PathLookupError::Missing { place }) => {
                return Err(ToolError::NoDirectory { path: place.path });
            }
            Err(lost) => return Err(call.lookup_error(&snapshot, lost, Operation::Create)),
        }
    };
    let operation = if place.target.is_some() { Operation::Write } else { Operation::Create };
    let decision = call.judge(&snapshot, &place, operation)?;
    if let Some(node) = &place.target {
        must_be_file(node, &place.path)?;
        if params.new_only {
            return Err(ToolError::Exists { path: place.path.clone() });
        }
    } else {
        call.must_not_start_programs(&snapshot, &place.path)?;
    }
    must_fit(&snapshot, &place.path, params.content.length())?;
    call.record(operation, decision)?;
    let sync = if params.fsync { FsyncMode::Wait } else { FsyncMode::Leave };
    call.without_capabilities(&snapshot, || {
        AtomicWrite { place: &place, content: params.content, sync }.write()
    })?;
    Ok(WriteOutput {
        created: operation == Operation::Create,
        size: params.content.length(),
        path: place.path,
    })
}

/// Applies the file size limit of commands.
pub(crate) fn must_fit(
    snapshot: &PolicySnapshot,
    path: &AbsPath,
    length: u64,
) -> Result<(), ToolError> {
    match snapshot.grants().limits.file_size {
        Some(limit) if length > limit => {
            Err(ToolError::TooLarge { path: path.clone(), size: length, limit })
        }
        _ => Ok(()),
    }
}

/// Creates a missing parent directory.
fn make_directory(
    call: &mut ToolCall<'_>,
    snapshot: &PolicySnapshot,
    place: &OpenedPath,
) -> Result<(), ToolError> {
    let decision = call.judge(snapshot, place, Operation::Create)?;
    call.record(Operation::Create, decision)?;
    call.without_capabilities(snapshot, || {
        match rustix::fs::mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o777)) {
            // Another process created it; the next lookup decides.
            Err(Errno::EXIST) => return Ok(()),
            made => made.during("create", &place.path)?,
        }
        if place.is_directory_unmoved()? {
            return Ok(());
        }
        // The empty directory is ours, so it can be removed.
        let _ = rustix::fs::unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR);
        Err(ToolError::Unsettled { path: place.path.clone() })
    })
}
