//! Archives uploaded by tenants.
//!
//! A strict reader of our own: a ZIP archive stores everything twice, and a malicious one relies on
//! two programs reading different copies. Here every byte must belong to exactly one part, both
//! copies must agree, and an ambiguous archive is refused as a whole, with the name of the entry.
//! Nothing is unpacked before all checks pass.

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

/// The content of an archive, checked and not yet unpacked.
#[derive(Debug)]
pub(crate) struct CheckedArchive {
    /// Files and directories, sorted by name: a directory before its content.
    pub(crate) entries: Vec<ArchiveEntry>,
    /// The top-level directories.
    pub(crate) skills: Vec<SkillName>,
    /// Warnings about entries that were left out.
    pub(crate) warnings: Vec<SkillWarning>,
}

/// A file or a directory of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveEntry {
    /// The path in the archive, without a trailing slash.
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

/// The position of a file's bytes in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PackedRange {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) size: u64,
    pub(crate) checksum: u32,
    pub(crate) is_deflated: bool,
}

/// Checks all of `archive` except the bytes of its files.
pub(crate) fn check_archive(
    archive: &mut (impl Read + Seek),
    bounds: &UploadBounds,
) -> Result<CheckedArchive, ArchiveError> {
    let records = layout::read(archive, bounds)?;
    let (entries, warnings) = names::check_names(records, bounds)?;
    let skills = names::skills(&entries, bounds)?;
    Ok(CheckedArchive { entries, skills, warnings })
}
