//! `write`: makes a file, or replaces what is in one.

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

/// What is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteParams {
    /// To which file. Where it is a link, what it leads to is written.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// All that is to be in it.
    pub content: String,
    /// Whether directories that are missing on the way are made.
    #[serde(default = "yes", alias = "create_parents")]
    pub create_parents: bool,
    /// Whether a file that is there already is left alone.
    #[serde(default, alias = "new_only")]
    pub new_only: bool,
    /// Whether to wait until the disk has it.
    #[serde(default)]
    pub fsync: bool,
}

fn yes() -> bool {
    true
}

impl WriteParams {
    /// A file and all that is to be in it.
    pub fn new(path: impl Into<PathBuf>, content: impl Into<String>) -> WriteParams {
        WriteParams { path: path.into(), content: content.into(), ..WriteParams::default() }
    }
}

/// New content of a file: bytes, which need not be text.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// The first `length` bytes of a file, wherever its offset is.
    File {
        /// The file.
        file: &'a File,
        /// Number of bytes.
        length: u64,
    },
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Source::Bytes(bytes)
    }
}

impl Source<'_> {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::File { length, .. } => *length,
        }
    }

    pub(crate) fn copy_to(&self, to: &mut File) -> io::Result<()> {
        match self {
            Source::Bytes(bytes) => to.write_all(bytes),
            Source::File { file, length } => {
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
    /// Into which file. Where it is a link, what it leads to is written.
    pub path: &'a Path,
    /// All that is to be in it.
    pub content: Source<'a>,
    /// Whether directories that are missing on the way are made.
    pub create_parents: bool,
    /// Whether a file that is there already is left alone.
    pub new_only: bool,
    /// Whether to wait until the disk has it.
    pub fsync: bool,
}

impl WriteParams {
    fn put(&self) -> PutParams<'_> {
        let Self { path, content, create_parents, new_only, fsync } = self;
        PutParams {
            path,
            content: Source::Bytes(content.as_bytes()),
            create_parents: *create_parents,
            new_only: *new_only,
            fsync: *fsync,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteOutput {
    /// Where the file is, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// Whether it was not there before.
    pub created: bool,
    /// How large it is now.
    pub size: u64,
}

impl FileTools {
    /// Makes a file, or replaces what is in it: all at once, or not at all.
    pub fn write(&self, wish: &WriteParams) -> Result<WriteOutput, ToolError> {
        self.put(&wish.put())
    }

    /// The same with bytes.
    pub fn put(&self, wish: &PutParams<'_>) -> Result<WriteOutput, ToolError> {
        self.errand(Tool::Write)?.carry_out(|errand| attempt(errand, wish))
    }
}

impl FileTools {
    /// Makes a directory, and those that are missing on the way. One that is there is left as it
    /// is.
    pub fn make_directories(&self, path: &Path) -> Result<AbsPath, ToolError> {
        self.errand(Tool::Write)?.carry_out(|errand| {
            loop {
                let (ground, found) = errand.find(path)?;
                let missing = match found {
                    Ok(place) => match &place.there {
                        Some(node) if node.kind() == FileType::Directory => return Ok(place.path),
                        Some(_) => return Err(ToolError::Exists { path: place.path }),
                        None => place,
                    },
                    Err(PathLookupError::Missing { place }) => *place,
                    Err(lost) => return Err(errand.lost(&ground, lost, Operation::Create)),
                };
                errand.must_be_in_time(missing.path.as_path())?;
                make_directory(errand, &ground, &missing)?;
            }
        })
    }
}

fn attempt(errand: &mut ToolCall<'_>, wish: &PutParams<'_>) -> Result<WriteOutput, ToolError> {
    let (ground, place) = loop {
        let (ground, found) = errand.find(wish.path)?;
        match found {
            Ok(place) => break (ground, place),
            Err(PathLookupError::Missing { place }) if wish.create_parents => {
                errand.must_be_in_time(place.path.as_path())?;
                if let Some(path) = AbsPath::new(errand.tools.absolute(wish.path)) {
                    errand.must_not_start_programs(&ground, &path)?;
                }
                make_directory(errand, &ground, &place)?;
            }
            Err(PathLookupError::Missing { place }) => {
                return Err(ToolError::NoDirectory { path: place.path });
            }
            Err(lost) => return Err(errand.lost(&ground, lost, Operation::Create)),
        }
    };
    let operation = if place.there.is_some() { Operation::Write } else { Operation::Create };
    let decision = errand.judge(&ground, &place, operation)?;
    if let Some(node) = &place.there {
        must_be_file(node, &place.path)?;
        if wish.new_only {
            return Err(ToolError::Exists { path: place.path.clone() });
        }
    } else {
        errand.must_not_start_programs(&ground, &place.path)?;
    }
    must_fit(&ground, &place.path, wish.content.length())?;
    errand.record(operation, decision)?;
    let sync = if wish.fsync { FsyncMode::Wait } else { FsyncMode::Leave };
    errand
        .plainly(&ground, || AtomicWrite { place: &place, content: wish.content, sync }.make())?;
    Ok(WriteOutput {
        created: operation == Operation::Create,
        size: wish.content.length(),
        path: place.path,
    })
}

/// A file may be no larger than one that a command writes.
pub(crate) fn must_fit(
    ground: &PolicySnapshot,
    path: &AbsPath,
    length: u64,
) -> Result<(), ToolError> {
    match ground.grants().limits.file_size {
        Some(limit) if length > limit => {
            Err(ToolError::TooLarge { path: path.clone(), size: length, limit })
        }
        _ => Ok(()),
    }
}

/// Makes a directory that is missing on the way.
fn make_directory(
    errand: &mut ToolCall<'_>,
    ground: &PolicySnapshot,
    place: &OpenedPath,
) -> Result<(), ToolError> {
    let decision = errand.judge(ground, place, Operation::Create)?;
    errand.record(Operation::Create, decision)?;
    errand.plainly(ground, || {
        match rustix::fs::mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o777)) {
            // Whatever it is, it is looked at anew.
            Err(Errno::EXIST) => return Ok(()),
            made => made.during("make", &place.path)?,
        }
        if place.stands()? {
            return Ok(());
        }
        // Empty it is ours, and nobody misses it.
        let _ = rustix::fs::unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR);
        Err(ToolError::Unsettled { path: place.path.clone() })
    })
}
