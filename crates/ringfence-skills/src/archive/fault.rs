//! Reasons to refuse an archive.

use std::fmt;
use std::io;

use ringfence_policy::is_hidden;

use crate::name::SkillNameError;

/// The reason an archive is refused, and the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveError {
    /// The entry's name, with hidden characters escaped; `None` for the whole archive.
    pub entry: Option<String>,
    /// The fault.
    pub fault: ArchiveFault,
}

/// A fault of an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArchiveFault {
    #[error("cannot read the archive: {kind}")]
    Unreadable { kind: io::ErrorKind },
    #[error("the archive has {size} bytes, more than the limit of {limit}")]
    ArchiveSize { size: u64, limit: u64 },
    #[error("not a ZIP archive, or the end is missing")]
    NoArchive,
    #[error("the central directory is broken: {what}")]
    Broken { what: &'static str },
    #[error("bytes {from} to {to} do not belong to any part of the archive")]
    Stray { from: u64, to: u64 },
    #[error("the archive is one of several volumes")]
    Volumes,
    #[error("the zip64 format is not supported")]
    Zip64,
    #[error("the archive has {count} entries, more than the limit of {limit}")]
    Entries { count: u64, limit: u64 },
    #[error("the archive has {count} skills, more than the limit of {limit}")]
    Skills { count: u64, limit: u64 },
    #[error("the archive contains no skill")]
    Empty,
    #[error("it is encrypted")]
    Encrypted,
    #[error("it has unknown flags ({flags:#06x})")]
    Flags { flags: u16 },
    #[error("it needs an unknown version of the format ({version:#06x})")]
    Version { version: u16 },
    #[error("it is compressed by method {method}; only deflate is supported")]
    Method { method: u16 },
    #[error("its two headers disagree about its {what}")]
    Disagreement { what: &'static str },
    #[error("its bytes overlap another entry")]
    Overlap,
    #[error("an extra field ({id:#06x}) gives it a different {what}")]
    Extra { id: u16, what: &'static str },
    #[error("its name is not UTF-8")]
    NotUtf8,
    #[error("its name is empty")]
    Nameless,
    #[error("its name is absolute")]
    Absolute,
    #[error("its name contains `..`")]
    Upwards,
    #[error("a part of its name is empty or `.`")]
    EmptyPart,
    #[error("its name has a backslash")]
    Backslash,
    #[error("its name begins with a drive letter")]
    Drive,
    #[error("its name contains the hidden character {character:?}")]
    Character { character: char },
    #[error("its name, or a part of it, is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("it is more than {limit} directories deep")]
    TooDeep { limit: usize },
    #[error("it is a link")]
    Link,
    #[error("it is a device, a pipe or a socket")]
    Special,
    #[error("it has the setuid, setgid or sticky bit")]
    Privileged,
    #[error("it is declared both as a file and as a directory")]
    TwoKinds,
    #[error("it occurs twice")]
    Twice,
    #[error("some systems treat it as the same name as `{other}`")]
    Alike { other: String },
    #[error("it is a file, but other entries are below it")]
    FileAndDirectory,
    #[error("it is a file at the top level, outside a skill")]
    TopLevelFile,
    #[error("SKILL.md is at the top level, so the skill has no name")]
    SkillAtTop,
    #[error("its directory cannot be the name of a skill: {source}")]
    SkillName { source: SkillNameError },
    #[error("it has no SKILL.md directly in it")]
    NoSkillFile,
    #[error("it has {size} bytes, more than the limit of {limit}")]
    FileSize { size: u64, limit: u64 },
    #[error("all files together have {size} bytes, more than the limit of {limit}")]
    TotalSize { size: u64, limit: u64 },
    #[error("it is compressed more than {limit} times")]
    Ratio { limit: u64 },
    #[error("its bytes cannot be unpacked")]
    Data,
    #[error("its size does not match its header")]
    Size,
    #[error("its checksum is wrong")]
    Checksum,
}

impl ArchiveFault {
    pub(crate) fn for_archive(self) -> ArchiveError {
        ArchiveError { entry: None, fault: self }
    }

    pub(crate) fn for_entry(self, name: &[u8]) -> ArchiveError {
        let text = String::from_utf8_lossy(name);
        let shown = text.chars().flat_map(|c| {
            if is_hidden(c) { c.escape_default().collect::<Vec<_>>() } else { vec![c] }
        });
        ArchiveError { entry: Some(shown.take(200).collect()), fault: self }
    }
}

impl ArchiveError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self.fault {
            ArchiveFault::Unreadable { .. } => "archive-unreadable",
            ArchiveFault::ArchiveSize { .. }
            | ArchiveFault::Entries { .. }
            | ArchiveFault::Skills { .. }
            | ArchiveFault::TooLong { .. }
            | ArchiveFault::TooDeep { .. }
            | ArchiveFault::FileSize { .. }
            | ArchiveFault::TotalSize { .. }
            | ArchiveFault::Ratio { .. } => "archive-bounds",
            ArchiveFault::NoArchive
            | ArchiveFault::Broken { .. }
            | ArchiveFault::Stray { .. }
            | ArchiveFault::Volumes
            | ArchiveFault::Zip64
            | ArchiveFault::Flags { .. }
            | ArchiveFault::Version { .. }
            | ArchiveFault::Method { .. }
            | ArchiveFault::Disagreement { .. }
            | ArchiveFault::Overlap
            | ArchiveFault::Extra { .. }
            | ArchiveFault::Data
            | ArchiveFault::Size
            | ArchiveFault::Checksum => "archive-format",
            ArchiveFault::Encrypted => "archive-encrypted",
            ArchiveFault::NotUtf8
            | ArchiveFault::Nameless
            | ArchiveFault::Absolute
            | ArchiveFault::Upwards
            | ArchiveFault::EmptyPart
            | ArchiveFault::Backslash
            | ArchiveFault::Drive
            | ArchiveFault::Character { .. }
            | ArchiveFault::Twice
            | ArchiveFault::Alike { .. }
            | ArchiveFault::FileAndDirectory => "archive-name",
            ArchiveFault::Link
            | ArchiveFault::Special
            | ArchiveFault::Privileged
            | ArchiveFault::TwoKinds => "archive-kind",
            ArchiveFault::Empty
            | ArchiveFault::TopLevelFile
            | ArchiveFault::SkillAtTop
            | ArchiveFault::SkillName { .. }
            | ArchiveFault::NoSkillFile => "archive-layout",
        }
    }

    /// The hint: a command to type.
    pub fn hint(&self) -> Option<String> {
        Some(match &self.fault {
            ArchiveFault::Encrypted => "pack it without a password".into(),
            ArchiveFault::Method { .. } | ArchiveFault::Zip64 | ArchiveFault::Volumes | ArchiveFault::Stray { .. } => {
                "pack it again as one plain ZIP: `zip -r skills.zip my-skill`".into()
            }
            ArchiveFault::Link => "pack the target of the link: `zip -r` follows links".into(),
            ArchiveFault::Privileged => "remove the bits: `chmod -R u-s,g-s,-t my-skill`".into(),
            ArchiveFault::Empty | ArchiveFault::TopLevelFile | ArchiveFault::SkillAtTop | ArchiveFault::NoSkillFile => {
                "pack the directory of each skill, with SKILL.md in it: `zip -r skills.zip my-skill`".into()
            }
            ArchiveFault::SkillName { source } => source.hint(),
            _ => return None,
        })
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "`{entry}`: {}", self.fault),
            None => write!(f, "{}", self.fault),
        }
    }
}

impl std::error::Error for ArchiveError {}

impl From<io::Error> for ArchiveFault {
    fn from(error: io::Error) -> ArchiveFault {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveFault::Broken { what: "it ends too early" },
            kind => ArchiveFault::Unreadable { kind },
        }
    }
}
