//! `write`: makes a file, or replaces what is in one.

use std::path::{Path, PathBuf};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Tool};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::deposit::{Deposit, Sync};
use crate::error::{During, ToolError};
use crate::ground::Ground;
use crate::place::{Lost, Place};
use crate::read::must_be_file;
use crate::{Errand, Tools};

/// What is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Write {
    /// To which file. Where it is a link, what it leads to is written.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// All that is to be in it.
    pub content: String,
    /// Whether directories that are missing on the way are made.
    #[serde(default, alias = "create_parents")]
    pub create_parents: bool,
    /// Whether a file that is there already is left alone.
    #[serde(default, alias = "new_only")]
    pub new_only: bool,
    /// Whether to wait until the disk has it.
    #[serde(default)]
    pub fsync: bool,
}

impl Write {
    /// A file and all that is to be in it.
    pub fn new(path: impl Into<PathBuf>, content: impl Into<String>) -> Write {
        Write { path: path.into(), content: content.into(), ..Write::default() }
    }
}

/// What is to be put into a file: bytes, which need not be text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put<'a> {
    /// Into which file. Where it is a link, what it leads to is written.
    pub path: &'a Path,
    /// All that is to be in it.
    pub content: &'a [u8],
    /// Whether directories that are missing on the way are made.
    pub create_parents: bool,
    /// Whether a file that is there already is left alone.
    pub new_only: bool,
    /// Whether to wait until the disk has it.
    pub fsync: bool,
}

impl Write {
    fn put(&self) -> Put<'_> {
        let Self { path, content, create_parents, new_only, fsync } = self;
        Put { path, content: content.as_bytes(), create_parents: *create_parents, new_only: *new_only, fsync: *fsync }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Where the file is, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// Whether it was not there before.
    pub created: bool,
    /// How large it is now.
    pub size: u64,
}

impl Tools {
    /// Makes a file, or replaces what is in it: all at once, or not at all.
    pub fn write(&self, wish: &Write) -> Result<Written, ToolError> {
        self.put(&wish.put())
    }

    /// The same with bytes.
    pub fn put(&self, wish: &Put<'_>) -> Result<Written, ToolError> {
        self.errand(Tool::Write)?.carry_out(|errand| attempt(errand, wish))
    }
}

fn attempt(errand: &mut Errand<'_>, wish: &Put<'_>) -> Result<Written, ToolError> {
    let (ground, place) = loop {
        let (ground, found) = errand.find(wish.path)?;
        match found {
            Ok(place) => break (ground, place),
            Err(Lost::Missing { place }) if wish.create_parents => {
                errand.must_be_in_time(place.path.as_path())?;
                make_directory(errand, &ground, &place)?;
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
    }
    must_fit(&ground, &place.path, wish.content.len())?;
    errand.record(operation, decision)?;
    let sync = if wish.fsync { Sync::Wait } else { Sync::Leave };
    errand.plainly(&ground, || Deposit { place: &place, content: wish.content, sync }.make())?;
    Ok(Written { created: operation == Operation::Create, size: wish.content.len() as u64, path: place.path })
}

/// A file may be no larger than one that a command writes.
pub(crate) fn must_fit(ground: &Ground, path: &AbsPath, length: usize) -> Result<(), ToolError> {
    match ground.grants().limits.file_size {
        Some(limit) if length as u64 > limit => Err(ToolError::TooLarge { path: path.clone(), size: length as u64, limit }),
        _ => Ok(()),
    }
}

/// Makes a directory that is missing on the way.
fn make_directory(errand: &mut Errand<'_>, ground: &Ground, place: &Place) -> Result<(), ToolError> {
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
