//! What is kept about a skill where nothing that runs in it can write.
//!
//! A card has the number of the directory that it is about (its inode) for a name. It is written
//! before that directory becomes the skill, so one step changes both: whoever opens the skill's
//! directory finds the card of that very version, also when a crash came in between.

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
    /// What holds, whatever stands in `SKILL.md` by now.
    pub(crate) needs: SkillNeeds,
    /// When it was uploaded or last edited.
    pub(crate) updated_ms: u64,
}

/// A larger one is none of ours.
const LARGEST: u64 = 1 << 20;

impl SkillMetadata {
    pub(crate) fn new(needs: SkillNeeds) -> SkillMetadata {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SkillMetadata { needs, updated_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The card of the version `number` of a skill.
    pub(crate) fn read(
        cards: impl AsFd,
        skill: &SkillId,
        number: u64,
    ) -> std::io::Result<SkillMetadata> {
        let file = File::from(tree::readable(cards, path(skill, number))?);
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Writes it as a whole: into `staging` under the name `fresh` first.
    pub(crate) fn write(
        &self,
        cards: BorrowedFd<'_>,
        staging: BorrowedFd<'_>,
        fresh: &str,
        skill: &SkillId,
        number: u64,
    ) -> std::io::Result<()> {
        let mut way = String::new();
        for name in [&skill.user, &skill.agent, &skill.skill] {
            way.push_str(name.as_str());
            tree::make(cards, &way, 0o700)?;
            way.push('/');
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
        Ok(rustix::fs::fsync(tree::directory(cards, &way[..way.len() - 1])?)?)
    }

    /// Takes it away; one that is not there is no matter.
    pub(crate) fn remove(cards: impl AsFd, skill: &SkillId, number: u64) {
        let _ = rustix::fs::unlinkat(&cards, path(skill, number), AtFlags::empty());
    }

    /// Makes the cards of a skill those of the version that stands, after a crash or after all
    /// was put back from a copy, in which directories have other numbers.
    pub(crate) fn settle(
        cards: impl AsFd,
        skill: &SkillId,
        stands: Option<u64>,
    ) -> Result<(), Errno> {
        let there: Vec<u64> = match tree::directory(&cards, skill.path()).and_then(tree::names) {
            Ok(names) => names.iter().filter_map(|name| name.to_str().ok()?.parse().ok()).collect(),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if let (Some(stands), [only]) = (stands, there.as_slice()) {
            if *only != stands {
                rustix::fs::renameat(&cards, path(skill, *only), &cards, path(skill, stands))?;
            }
            return Ok(());
        }
        for number in there.into_iter().filter(|number| Some(*number) != stands) {
            SkillMetadata::remove(&cards, skill, number);
        }
        if stands.is_none() {
            // Each goes with the last that was in it.
            let ways =
                [skill.path(), format!("{}/{}", skill.user, skill.agent), skill.user.to_string()];
            let _ = ways
                .iter()
                .try_for_each(|way| rustix::fs::unlinkat(&cards, way, AtFlags::REMOVEDIR));
        }
        Ok(())
    }
}

fn path(skill: &SkillId, number: u64) -> String {
    format!("{}/{number}", skill.path())
}
