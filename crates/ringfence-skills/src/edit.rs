//! Changing one file of a skill.

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

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillEdit {
    /// From the skill's directory on.
    pub path: String,
    /// What it is to become.
    pub change: Replacement,
    /// What it has to be before.
    pub expect: EditPrecondition,
}

/// What is put into a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// Everything. A file that is not there is made, and the directories that it lies in.
    Whole {
        /// What stands in it then.
        bytes: Vec<u8>,
    },
    /// Some lines of a text; the line behind the last is where something is added.
    Lines {
        /// Which.
        range: LineRange,
        /// What stands there then; nothing takes them away.
        text: String,
    },
}

/// What a file has to be before it is changed, against changes that somebody else made meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EditPrecondition {
    /// Whatever it is.
    #[default]
    Anything,
    /// It is not there.
    Absent,
    /// It has this etag.
    Etag(String),
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillEditResult {
    /// As it was asked for.
    pub path: String,
    /// What the next change may expect.
    pub etag: String,
    /// How long the file is now.
    pub bytes: u64,
    /// How many lines it has, if it is a text.
    pub total_lines: Option<u64>,
    /// Whether it was not there before.
    pub created: bool,
    /// For `SKILL.md`: where it departs from the rules for skills.
    pub warnings: Vec<SkillWarning>,
}

/// A file as it was.
struct FileBefore {
    bytes: Vec<u8>,
    mode: u32,
}

impl SkillStore {
    /// Changes one file, as a whole or not at all. Its mode stays. With a `quota`, the user has no
    /// more bytes than that afterwards. A new `SKILL.md` is what the skill needs from then on;
    /// some lines of it can be replaced only if no command has changed its needs in it.
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
                what: "it has characters that do not show, or lies too deep",
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
            self.afford(&skill.user, size, less, &[], quota)?;
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

    /// What the skill needs from then on, if that changes.
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
        // Whoever replaces some lines has not said what the others are: a command may have put
        // needs of its own there and wait for somebody to confirm them.
        if matches!(edit.change, Replacement::Lines { .. }) {
            let said =
                before.map_or(Ok(SkillNeeds::default()), |before| needs_of(&before.bytes, name));
            if said.ok() != Some(held.card()?.needs) {
                return Err(StoreError::NeedsChanged { skill: held.skill.clone() });
            }
        }
        Ok(Some(needs))
    }

    /// Writes the file beside the skill, and lets it take its place in one step.
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
            Errno::NOTDIR | Errno::LOOP => StoreError::Path {
                path: path.to_owned(),
                what: "it lies in something that is no directory",
            },
            errno => StoreError::system("make a directory for", shown())(errno),
        })?;
        let fresh = inner.fresh();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = tree::open(&inner.staging, &fresh, flags, Mode::from_raw_mode(0o600))
            .map_err(StoreError::system("make", shown()))?;
        let mut file = File::from(made);
        let placed = (|| {
            file.write_all(bytes).map_err(StoreError::io("write", shown()))?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
                .map_err(StoreError::system("write", shown()))?;
            file.sync_all().map_err(StoreError::io("write", shown()))?;
            // First what holds, then what is shown: a crash in between leaves what was asked for
            // in force, and the text behind it.
            // A skill that nothing is known of stays that until its `SKILL.md` is written.
            if let Some(needs) = needs.or_else(|| held.card().ok().map(|card| card.needs)) {
                let written = SkillMetadata::new(needs).write(
                    inner.cards.as_fd(),
                    inner.staging.as_fd(),
                    &inner.fresh(),
                    &held.skill,
                    held.number,
                );
                written.map_err(StoreError::io("write", format!("cards/{}", held.skill)))?;
            }
            rustix::fs::renameat(&inner.staging, &fresh, &directory, &name)
                .map_err(StoreError::system("replace", shown()))?;
            rustix::fs::fsync(&directory).map_err(StoreError::system("write", shown()))
        })();
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&inner.staging, &fresh, AtFlags::empty());
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

/// The directory that a path lies in, made where it is missing, and the path's last part.
fn parent(held: &HeldVersion, path: &str) -> Result<(OwnedFd, String), Errno> {
    let mut here = tree::directory(&held.directory, ".")?;
    let mut parts = path.split('/').peekable();
    let mut last = String::new();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            part.clone_into(&mut last);
            break;
        }
        here = match tree::directory(&here, part) {
            Err(Errno::NOENT) => {
                tree::make(&here, part, 0o755)?;
                tree::directory(&here, part)?
            }
            opened => opened?,
        };
    }
    Ok((here, last))
}
