//! Why an archive is refused.

use std::fmt;
use std::io;

use ringfence_policy::is_hidden;

use crate::name::SkillNameError;

/// Why an archive is refused, and for which of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveError {
    /// The entry's name, with whatever does not show spelt out; none where it is the whole archive.
    pub entry: Option<String>,
    /// What is wrong.
    pub fault: ArchiveFault,
}

/// What is wrong with an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArchiveFault {
    #[error("it cannot be read: {kind}")]
    Unreadable { kind: io::ErrorKind },
    #[error("it has {size} bytes, and at most {limit} are taken")]
    ArchiveSize { size: u64, limit: u64 },
    #[error("it is no ZIP archive, or its end is missing")]
    NoArchive,
    #[error("its directory is broken: {what}")]
    Broken { what: &'static str },
    #[error("bytes {from} to {to} belong to nothing in it")]
    Stray { from: u64, to: u64 },
    #[error("it is one of several volumes")]
    Volumes,
    #[error("it is written in the form for huge archives (zip64)")]
    Zip64,
    #[error("it has {count} entries, and at most {limit} are taken")]
    Entries { count: u64, limit: u64 },
    #[error("it has {count} skills, and at most {limit} are taken")]
    Skills { count: u64, limit: u64 },
    #[error("there is no skill in it")]
    Empty,
    #[error("it is encrypted")]
    Encrypted,
    #[error("its flags say something that is not known here ({flags:#06x})")]
    Flags { flags: u16 },
    #[error("it needs a version of the format that is not known here ({version:#06x})")]
    Version { version: u16 },
    #[error("it is compressed by method {method}, and only deflate is read")]
    Method { method: u16 },
    #[error("its two headers disagree about its {what}")]
    Disagreement { what: &'static str },
    #[error("its bytes are those of another entry, too")]
    Overlap,
    #[error("an extra field of it ({id:#06x}) gives it another {what}")]
    Extra { id: u16, what: &'static str },
    #[error("its name is not UTF-8")]
    NotUtf8,
    #[error("its name is empty")]
    Nameless,
    #[error("its name is absolute")]
    Absolute,
    #[error("its name leads upwards (`..`)")]
    Upwards,
    #[error("a part of its name is empty or `.`")]
    EmptyPart,
    #[error("its name has a backslash")]
    Backslash,
    #[error("its name begins with the letter of a drive")]
    Drive,
    #[error("its name has {character:?} in it, which does not show")]
    Character { character: char },
    #[error("its name, or a part of it, is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("it lies deeper than {limit} directories")]
    TooDeep { limit: usize },
    #[error("it is a link")]
    Link,
    #[error("it is a device, a pipe or a socket")]
    Special,
    #[error("it sets its user, its group or the sticky bit")]
    Privileged,
    #[error("it says both that it is a file and that it is a directory")]
    TwoKinds,
    #[error("it is there twice")]
    Twice,
    #[error("on some systems it is the same name as `{other}`")]
    Alike { other: String },
    #[error("it is a file, and other entries lie in it")]
    FileAndDirectory,
    #[error("it is a file beside the skills")]
    TopLevelFile,
    #[error("SKILL.md stands at the top, so the skill has no name")]
    SkillAtTop,
    #[error("its directory cannot be the name of a skill: {source}")]
    SkillName { source: SkillNameError },
    #[error("there is no SKILL.md directly in it")]
    NoSkillFile,
    #[error("it has {size} bytes, and at most {limit} are taken")]
    FileSize { size: u64, limit: u64 },
    #[error("all files have {size} bytes together, and at most {limit} are taken")]
    TotalSize { size: u64, limit: u64 },
    #[error("it becomes more than {limit} times as large by unpacking")]
    Ratio { limit: u64 },
    #[error("its bytes cannot be unpacked")]
    Data,
    #[error("it is not of the size that it says")]
    Size,
    #[error("its checksum is wrong")]
    Checksum,
}

impl ArchiveFault {
    pub(crate) fn whole(self) -> ArchiveError {
        ArchiveError { entry: None, fault: self }
    }

    pub(crate) fn of(self, name: &[u8]) -> ArchiveError {
        let text = String::from_utf8_lossy(name);
        let shown = text.chars().flat_map(|c| {
            if is_hidden(c) { c.escape_default().collect::<Vec<_>>() } else { vec![c] }
        });
        ArchiveError { entry: Some(shown.take(200).collect()), fault: self }
    }
}

impl ArchiveError {
    /// A stable word for it.
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

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match &self.fault {
            ArchiveFault::Encrypted => "pack it without a password".into(),
            ArchiveFault::Method { .. } | ArchiveFault::Zip64 | ArchiveFault::Volumes | ArchiveFault::Stray { .. } => {
                "pack it anew as one plain ZIP: `zip -r skills.zip my-skill`".into()
            }
            ArchiveFault::Link => "pack what it leads to: `zip -r` follows links".into(),
            ArchiveFault::Privileged => "take the bits away: `chmod -R u-s,g-s,-t my-skill`".into(),
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
