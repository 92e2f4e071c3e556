//! Archives that tenants bring.
//!
//! Read strictly, by a reader of our own: an archive says everything twice, and whoever made a
//! bad one counts on two programs believing different halves. Here every byte of the file has to
//! belong to exactly one thing, both halves have to say the same, and what has more than one
//! reading is refused as a whole, with the entry that it is about. Nothing is unpacked before all
//! of that was looked at.

mod fault;
mod layout;
mod names;
mod record;
mod unpack;

use std::io::{Read, Seek};

use crate::bounds::UploadBounds;
use crate::info::SkillWarning;
use crate::name::SkillName;

pub use fault::{ArchiveError, ArchiveFault};
pub(crate) use unpack::{UnpackSink, unpack};

/// What an archive holds, judged and not yet unpacked.
#[derive(Debug)]
pub(crate) struct CheckedArchive {
    /// Files and directories, in the order of their names: a directory before what is in it.
    pub(crate) entries: Vec<ArchiveEntry>,
    /// The directories at its top.
    pub(crate) skills: Vec<SkillName>,
    /// What was left out.
    pub(crate) warnings: Vec<SkillWarning>,
}

/// A file or a directory of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveEntry {
    /// From the top of the archive on, without a slash at its end.
    pub(crate) name: String,
    pub(crate) kind: ArchiveEntryKind,
    pub(crate) packed: PackedRange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArchiveEntryKind {
    Directory,
    File,
    Program,
}

/// Where the bytes of a file stand in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PackedRange {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) size: u64,
    pub(crate) checksum: u32,
    pub(crate) is_deflated: bool,
}

/// Looks at all of `archive` but the bytes of its files.
pub(crate) fn judge(
    archive: &mut (impl Read + Seek),
    bounds: &UploadBounds,
) -> Result<CheckedArchive, ArchiveError> {
    let records = layout::read(archive, bounds)?;
    let (entries, warnings) = names::judge(records, bounds)?;
    let skills = names::skills(&entries, bounds)?;
    Ok(CheckedArchive { entries, skills, warnings })
}
