//! Checks of the names in an archive, alone and together.

use std::collections::BTreeMap;
use std::collections::HashMap;

use ringfence_policy::is_hidden;
use unicode_normalization::UnicodeNormalization;

use super::fault::{ArchiveError, ArchiveFault};
use super::record::{CentralRecord, DEFLATED};
use super::{ArchiveEntry, ArchiveEntryKind, PackedRange};
use crate::bounds::UploadBounds;
use crate::info::SkillWarning;
use crate::name::SkillName;

/// Files that some systems add to every archive.
const IGNORED_NAMES: &[&str] = &["__MACOSX", ".DS_Store"];
/// The size up to which the compression ratio is not checked.
const SMALL: u64 = 1 << 20;

/// The entries by name, and warnings about entries left out.
pub(super) fn check_names(
    records: Vec<CentralRecord>,
    bounds: &UploadBounds,
) -> Result<(Vec<ArchiveEntry>, Vec<SkillWarning>), ArchiveError> {
    let mut entries = BTreeMap::new();
    let mut known = KnownNames::default();
    let (mut total, mut ignored) = (0u64, 0u64);
    for record in records {
        let fail = |fault: ArchiveFault| fault.for_entry(&record.name);
        let entry = check_record(&record, bounds).map_err(fail)?;
        total = total.saturating_add(entry.packed.size);
        if total > bounds.total {
            return Err(fail(ArchiveFault::TotalSize { size: total, limit: bounds.total }));
        }
        if entry.name.split('/').any(|part| IGNORED_NAMES.contains(&part)) {
            ignored += 1;
            continue;
        }
        known.add(&entry).map_err(fail)?;
        entries.insert(entry.name.clone(), entry);
    }
    let warnings = (ignored > 0).then(|| {
        SkillWarning::new(format!("left out {ignored} entries of `__MACOSX` and `.DS_Store`"))
    });
    Ok((entries.into_values().collect(), warnings.into_iter().collect()))
}

/// The skills at the top level.
pub(super) fn skills(
    entries: &[ArchiveEntry],
    bounds: &UploadBounds,
) -> Result<Vec<SkillName>, ArchiveError> {
    let mut skills: Vec<SkillName> = Vec::new();
    for entry in entries {
        let (top, is_top) =
            entry.name.split_once('/').map_or((entry.name.as_str(), true), |(top, _)| (top, false));
        if is_top && entry.kind != ArchiveEntryKind::Directory {
            let fault = if top.eq_ignore_ascii_case("SKILL.md") {
                ArchiveFault::SkillAtTop
            } else {
                ArchiveFault::TopLevelFile
            };
            return Err(fault.for_entry(top.as_bytes()));
        }
        if skills.last().is_none_or(|last| last.as_str() != top)
            && !skills.iter().any(|skill| skill.as_str() == top)
        {
            skills.push(
                SkillName::try_from(top).map_err(|source| {
                    ArchiveFault::SkillName { source }.for_entry(top.as_bytes())
                })?,
            );
        }
        if skills.len() > bounds.skills {
            return Err(ArchiveFault::Skills {
                count: skills.len() as u64,
                limit: bounds.skills as u64,
            }
            .for_archive());
        }
    }
    for skill in &skills {
        let file = format!("{skill}/SKILL.md");
        if !entries
            .iter()
            .any(|entry| entry.name == file && entry.kind != ArchiveEntryKind::Directory)
        {
            return Err(ArchiveFault::NoSkillFile.for_entry(skill.as_str().as_bytes()));
        }
    }
    if skills.is_empty() { Err(ArchiveFault::Empty.for_archive()) } else { Ok(skills) }
}

/// Checks one record alone.
fn check_record(
    record: &CentralRecord,
    bounds: &UploadBounds,
) -> Result<ArchiveEntry, ArchiveFault> {
    let name = std::str::from_utf8(&record.name).map_err(|_| ArchiveFault::NotUtf8)?;
    let (name, is_directory) = name.strip_suffix('/').map_or((name, false), |name| (name, true));
    check_name(name, bounds)?;
    let kind = kind(record, is_directory)?;
    if kind == ArchiveEntryKind::Directory && (record.size != 0 || record.length > 2) {
        return Err(ArchiveFault::TwoKinds);
    }
    if record.size > bounds.file {
        return Err(ArchiveFault::FileSize { size: record.size, limit: bounds.file });
    }
    if record.size > SMALL && (record.size - SMALL) / record.length.max(1) > bounds.ratio {
        return Err(ArchiveFault::Ratio { limit: bounds.ratio });
    }
    let packed = PackedRange {
        at: record.data,
        length: record.length,
        size: record.size,
        checksum: record.checksum,
        is_deflated: record.method == DEFLATED,
    };
    Ok(ArchiveEntry { name: name.to_owned(), kind, packed })
}

fn check_name(name: &str, bounds: &UploadBounds) -> Result<(), ArchiveFault> {
    if name.starts_with('/') {
        return Err(ArchiveFault::Absolute);
    }
    if name.contains('\\') {
        return Err(ArchiveFault::Backslash);
    }
    if name.as_bytes().get(1) == Some(&b':') && name.as_bytes()[0].is_ascii_alphabetic() {
        return Err(ArchiveFault::Drive);
    }
    if let Some(character) = name.chars().find(|c| is_hidden(*c)) {
        return Err(ArchiveFault::Character { character });
    }
    if name.is_empty() {
        return Err(ArchiveFault::Nameless);
    }
    let mut depth = 0;
    for part in name.split('/') {
        match part {
            ".." => return Err(ArchiveFault::Upwards),
            "" | "." => return Err(ArchiveFault::EmptyPart),
            part if part.len() > bounds.component => {
                return Err(ArchiveFault::TooLong { limit: bounds.component });
            }
            _ => depth += 1,
        }
    }
    if name.len() > bounds.name {
        return Err(ArchiveFault::TooLong { limit: bounds.name });
    }
    if depth > bounds.depth { Err(ArchiveFault::TooDeep { limit: bounds.depth }) } else { Ok(()) }
}

/// The type of an entry, by its name, its mode and its DOS attributes, which must agree. The mode
/// is checked whatever system made the archive, as some unpackers do.
fn kind(record: &CentralRecord, is_directory: bool) -> Result<ArchiveEntryKind, ArchiveFault> {
    let mode = record.attributes >> 16;
    match mode & 0o170_000 {
        0 => {}
        0o040_000 if is_directory => {}
        0o100_000 if !is_directory => {}
        0o040_000 | 0o100_000 => return Err(ArchiveFault::TwoKinds),
        0o120_000 => return Err(ArchiveFault::Link),
        _ => return Err(ArchiveFault::Special),
    }
    if mode & 0o7000 != 0 {
        return Err(ArchiveFault::Privileged);
    }
    if record.attributes & 0x10 != 0 && !is_directory {
        return Err(ArchiveFault::TwoKinds);
    }
    Ok(match is_directory {
        true => ArchiveEntryKind::Directory,
        false if mode & 0o111 != 0 => ArchiveEntryKind::Program,
        false => ArchiveEntryKind::File,
    })
}

/// The names so far, with their parent directories.
#[derive(Default)]
struct KnownNames {
    /// By the normalized name.
    names: HashMap<String, (String, KnownKind)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownKind {
    File,
    /// It has its own entry.
    Directory,
    /// It is a parent of an entry.
    Parent,
}

impl KnownNames {
    fn add(&mut self, entry: &ArchiveEntry) -> Result<(), ArchiveFault> {
        for (at, _) in entry.name.match_indices('/') {
            match self.put(&entry.name[..at], KnownKind::Parent)? {
                Some(KnownKind::File) => return Err(ArchiveFault::FileAndDirectory),
                Some(KnownKind::Directory) | None => {}
                Some(KnownKind::Parent) => {}
            }
        }
        let is = if entry.kind == ArchiveEntryKind::Directory {
            KnownKind::Directory
        } else {
            KnownKind::File
        };
        match (is, self.put(&entry.name, is)?) {
            (_, None) | (KnownKind::Directory, Some(KnownKind::Parent)) => Ok(()),
            (KnownKind::File, Some(KnownKind::File))
            | (KnownKind::Directory, Some(KnownKind::Directory)) => Err(ArchiveFault::Twice),
            _ => Err(ArchiveFault::FileAndDirectory),
        }
    }

    /// Adds a name and returns its previous kind. The kind `Directory` is never replaced.
    fn put(&mut self, name: &str, is: KnownKind) -> Result<Option<KnownKind>, ArchiveFault> {
        let key = normal_form(name);
        let Some((spelt, was)) = self.names.get_mut(&key) else {
            self.names.insert(key, (name.to_owned(), is));
            return Ok(None);
        };
        if spelt != name {
            return Err(ArchiveFault::Alike { other: spelt.clone() });
        }
        let before = *was;
        if is == KnownKind::Directory && before == KnownKind::Parent {
            *was = KnownKind::Directory;
        }
        Ok(Some(before))
    }
}

/// The normal form of a name: equal for names that some system treats as the same (case, composed
/// and decomposed characters).
fn normal_form(name: &str) -> String {
    name.nfkd().collect::<String>().to_uppercase().to_lowercase().nfkd().collect()
}
