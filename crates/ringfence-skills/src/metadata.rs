//! Metadata of a skill, stored where commands in the skill cannot write.
//!
//! The file name is the inode number of the skill's directory. It is written before that directory
//! becomes the skill, so one rename changes both: a reader of the directory finds the metadata of
//! exactly that version, even after a crash in between.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::name::SkillId;
use crate::needs::SkillNeeds;
use crate::tree;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkillMetadata {
    /// The needs in force, whatever `SKILL.md` says now.
    pub(crate) needs: SkillNeeds,
    /// The time of the upload or last edit.
    pub(crate) updated_ms: u64,
}

/// The size limit of the file.
const MAX_SIZE: u64 = 1 << 20;

impl SkillMetadata {
    pub(crate) fn new(needs: SkillNeeds) -> SkillMetadata {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SkillMetadata { needs, updated_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Reads the metadata of version `number` of a skill.
    pub(crate) fn read(
        cards: impl AsFd,
        skill: &SkillId,
        number: u64,
    ) -> std::io::Result<SkillMetadata> {
        let file = File::from(tree::open_readable(cards, path(skill, number))?);
        let mut bytes = Vec::new();
        file.take(MAX_SIZE).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Writes it atomically: to `fresh` in `staging` first.
    pub(crate) fn write(
        &self,
        cards: BorrowedFd<'_>,
        staging: BorrowedFd<'_>,
        fresh: &str,
        skill: &SkillId,
        number: u64,
    ) -> std::io::Result<()> {
        let mut path_so_far = String::new();
        for name in [&skill.user, &skill.agent, &skill.skill] {
            path_so_far.push_str(name.as_str());
            tree::create_directory(cards, &path_so_far, 0o700)?;
            path_so_far.push('/');
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = File::from(tree::open(staging, fresh, flags, Mode::from_raw_mode(0o600))?);
        let written = file.write_all(&serde_json::to_vec(self)?).and_then(|()| file.sync_all());
        let written = written
            .and_then(|()| Ok(rustix::fs::renameat(staging, fresh, cards, path(skill, number))?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(staging, fresh, AtFlags::empty());
        }
        written?;
        Ok(rustix::fs::fsync(tree::open_directory(cards, &path_so_far[..path_so_far.len() - 1])?)?)
    }

    /// Removes it; a missing file is ignored.
    pub(crate) fn remove(cards: impl AsFd, skill: &SkillId, number: u64) {
        let _ = rustix::fs::unlinkat(&cards, path(skill, number), AtFlags::empty());
    }

    /// Keeps only the metadata of the current version, after a crash or after a restore from a
    /// backup, in which inode numbers differ.
    pub(crate) fn keep_only_current(
        cards: impl AsFd,
        skill: &SkillId,
        current: Option<u64>,
    ) -> Result<(), Errno> {
        let found: Vec<u64> = match tree::open_directory(&cards, skill.path()).and_then(tree::names)
        {
            Ok(names) => names.iter().filter_map(|name| name.to_str().ok()?.parse().ok()).collect(),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if let (Some(current), [only]) = (current, found.as_slice()) {
            if *only != current {
                rustix::fs::renameat(&cards, path(skill, *only), &cards, path(skill, current))?;
            }
            return Ok(());
        }
        for number in found.into_iter().filter(|number| Some(*number) != current) {
            SkillMetadata::remove(&cards, skill, number);
        }
        if current.is_none() {
            // Each directory is removed when it is empty.
            let directories =
                [skill.path(), format!("{}/{}", skill.user, skill.agent), skill.user.to_string()];
            let _ = directories.iter().try_for_each(|path_so_far| {
                rustix::fs::unlinkat(&cards, path_so_far, AtFlags::REMOVEDIR)
            });
        }
        Ok(())
    }
}

fn path(skill: &SkillId, number: u64) -> String {
    format!("{}/{number}", skill.path())
}
