//! Edits one file of a skill.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringfence_policy::is_hidden;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::content::{check_path, etag, open};
use crate::error::StoreError;
use crate::info::{SKILL_FILE, SkillFrontMatter, SkillWarning, needs_of};
use crate::lines::{self, LineRange};
use crate::metadata::SkillMetadata;
use crate::name::SkillId;
use crate::needs::SkillNeeds;
use crate::store::{HeldVersion, SkillStore};
use crate::tree;
use crate::versions::ClaimWait;

/// An edit of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillEdit {
    /// The path below the skill's directory.
    pub path: String,
    /// The new content.
    pub change: Replacement,
    /// The precondition.
    pub expect: EditPrecondition,
}

/// The new content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// The whole file. A missing file is created with its parent directories.
    Whole {
        /// The content.
        bytes: Vec<u8>,
    },
    /// Some lines of a text; the line after the last appends.
    Lines {
        /// The lines.
        range: LineRange,
        /// The new text; empty removes the lines.
        text: String,
    },
}

/// The precondition of an edit, against lost updates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EditPrecondition {
    /// None.
    #[default]
    Anything,
    /// The file must not exist.
    Absent,
    /// The file must have this etag.
    Etag(String),
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillEditResult {
    /// The path as requested.
    pub path: String,
    /// The new etag.
    pub etag: String,
    /// The new size.
    pub bytes: u64,
    /// The number of lines, if it is a text.
    pub total_lines: Option<u64>,
    /// True if the file is new.
    pub created: bool,
    /// For `SKILL.md`: deviations from the rules for skills.
    pub warnings: Vec<SkillWarning>,
}

/// The previous content of a file.
struct FileBefore {
    bytes: Vec<u8>,
    mode: u32,
}

impl SkillStore {
    /// Edits one file atomically. Its mode stays. With a `quota`, the user has at most that many
    /// bytes afterwards. A new `SKILL.md` defines the skill's needs. Some lines of it can be
    /// replaced only if no command has changed the needs in it.
    pub fn edit(
        &self,
        skill: &SkillId,
        edit: &SkillEdit,
        quota: Option<u64>,
    ) -> Result<SkillEditResult, StoreError> {
        let inner = &self.inner;
        check_path(&edit.path, &inner.bounds)?;
        if edit.path.contains(is_hidden) || edit.path.split('/').count() > inner.bounds.depth {
            let path = edit.path.chars().filter(|c| !is_hidden(*c)).take(200).collect();
            return Err(StoreError::Path {
                path,
                what: "it contains hidden characters or is too deep",
            });
        }
        let _user = quota.map(|_| inner.claim_user(skill)).transpose()?;
        let _claim = inner.claim(std::slice::from_ref(skill), ClaimWait::Changes)?;
        let held = self.hold(skill)?;
        let before = self.before(&held, &edit.path)?;
        let now = before.as_ref().map(|before| etag(&before.bytes));
        let is_expected = match &edit.expect {
            EditPrecondition::Anything => true,
            EditPrecondition::Absent => now.is_none(),
            EditPrecondition::Etag(expected) => {
                now.as_ref().is_some_and(|now| now.eq_ignore_ascii_case(expected))
            }
        };
        if !is_expected {
            return Err(StoreError::Changed {
                skill: skill.clone(),
                path: edit.path.clone(),
                etag: now,
            });
        }
        let after = after(skill, edit, before.as_ref())?;
        let size = after.len() as u64;
        if size > inner.bounds.file {
            return Err(StoreError::TooLarge {
                what: format!("`{}`", edit.path),
                size,
                limit: inner.bounds.file,
            });
        }
        let less = before.as_ref().map_or(0, |before| before.bytes.len() as u64);
        if let Some(quota) = quota.filter(|_| size > less) {
            self.check_quota(&skill.user, size, less, &[], quota)?;
        }
        let needs = self.needs_after(&held, edit, before.as_ref(), &after)?;
        let mode = before.as_ref().map_or(0o644, |before| before.mode);
        self.put(&held, &edit.path, &after, mode, needs)?;
        let warnings = if edit.path == SKILL_FILE {
            SkillFrontMatter::parse(&after, skill.skill.as_str()).warnings
        } else {
            Vec::new()
        };
        let text = std::str::from_utf8(&after).ok().filter(|text| !text.contains('\0'));
        Ok(SkillEditResult {
            path: edit.path.clone(),
            etag: etag(&after),
            bytes: size,
            total_lines: text.map(lines::count),
            created: before.is_none(),
            warnings,
        })
    }

    fn before(&self, held: &HeldVersion, path: &str) -> Result<Option<FileBefore>, StoreError> {
        let (file, stat) = match open(held, path) {
            Ok(opened) => opened,
            Err(StoreError::NoFile { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let limit = self.inner.bounds.file;
        let mut bytes = Vec::new();
        file.take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(StoreError::io("read", format!("skills/{}/{path}", held.skill)))?;
        if bytes.len() as u64 > limit {
            return Err(StoreError::TooLarge {
                what: format!("`{path}`"),
                size: stat.st_size as u64,
                limit,
            });
        }
        Ok(Some(FileBefore { bytes, mode: stat.st_mode & 0o777 }))
    }

    /// The new needs of the skill, if they change.
    fn needs_after(
        &self,
        held: &HeldVersion,
        edit: &SkillEdit,
        before: Option<&FileBefore>,
        after: &[u8],
    ) -> Result<Option<SkillNeeds>, StoreError> {
        if edit.path != SKILL_FILE {
            return Ok(None);
        }
        let name = held.skill.skill.as_str();
        let needs = needs_of(after, name)
            .map_err(|source| StoreError::Needs { skill: name.to_owned(), source })?;
        // The author of a line edit has not confirmed the other lines: a command may have added
        // needs there and wait for a confirmation.
        if matches!(edit.change, Replacement::Lines { .. }) {
            let old_needs =
                before.map_or(Ok(SkillNeeds::default()), |before| needs_of(&before.bytes, name));
            if old_needs.ok() != Some(held.metadata()?.needs) {
                return Err(StoreError::NeedsChanged { skill: held.skill.clone() });
            }
        }
        Ok(Some(needs))
    }

    /// Writes the file to staging, and renames it to its path.
    fn put(
        &self,
        held: &HeldVersion,
        path: &str,
        bytes: &[u8],
        mode: u32,
        needs: Option<SkillNeeds>,
    ) -> Result<(), StoreError> {
        let inner = &self.inner;
        let shown = || format!("skills/{}/{path}", held.skill);
        let (directory, name) = parent(held, path).map_err(|errno| match errno {
            Errno::NOTDIR | Errno::LOOP => {
                StoreError::Path { path: path.to_owned(), what: "a parent is not a directory" }
            }
            errno => StoreError::system("create a directory for", shown())(errno),
        })?;
        let temporary = inner.unique_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = tree::open(&inner.staging, &temporary, flags, Mode::from_raw_mode(0o600))
            .map_err(StoreError::system("create", shown()))?;
        let mut file = File::from(made);
        let placed = (|| {
            file.write_all(bytes).map_err(StoreError::io("write", shown()))?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
                .map_err(StoreError::system("write", shown()))?;
            file.sync_all().map_err(StoreError::io("write", shown()))?;
            // The needs first, then the text: after a crash in between, the requested needs are in
            // force. A skill without metadata stays so until its `SKILL.md` is written.
            if let Some(needs) = needs.or_else(|| held.metadata().ok().map(|card| card.needs)) {
                let written = SkillMetadata::new(needs).write(
                    inner.cards.as_fd(),
                    inner.staging.as_fd(),
                    &inner.unique_name(),
                    &held.skill,
                    held.number,
                );
                written.map_err(StoreError::io("write", format!("cards/{}", held.skill)))?;
            }
            rustix::fs::renameat(&inner.staging, &temporary, &directory, &name)
                .map_err(StoreError::system("replace", shown()))?;
            rustix::fs::fsync(&directory).map_err(StoreError::system("write", shown()))
        })();
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&inner.staging, &temporary, AtFlags::empty());
        }
        placed
    }
}

fn after(
    skill: &SkillId,
    edit: &SkillEdit,
    before: Option<&FileBefore>,
) -> Result<Vec<u8>, StoreError> {
    let (range, text) = match &edit.change {
        Replacement::Whole { bytes } => return Ok(bytes.clone()),
        Replacement::Lines { range, text } => (*range, text),
    };
    let before = before
        .ok_or_else(|| StoreError::NoFile { skill: skill.clone(), path: edit.path.clone() })?;
    let old = std::str::from_utf8(&before.bytes).ok().filter(|old| !old.contains('\0'));
    let old =
        old.ok_or_else(|| StoreError::NotText { skill: skill.clone(), path: edit.path.clone() })?;
    Ok(lines::replace(old, range, text)?.into_bytes())
}

/// The parent directory of a path, created if it is missing, and the last component.
fn parent(held: &HeldVersion, path: &str) -> Result<(OwnedFd, String), Errno> {
    let mut here = tree::open_directory(&held.directory, ".")?;
    let mut parts = path.split('/').peekable();
    let mut last = String::new();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            part.clone_into(&mut last);
            break;
        }
        here = match tree::open_directory(&here, part) {
            Err(Errno::NOENT) => {
                tree::create_directory(&here, part, 0o755)?;
                tree::open_directory(&here, part)?
            }
            opened => opened?,
        };
    }
    Ok((here, last))
}
