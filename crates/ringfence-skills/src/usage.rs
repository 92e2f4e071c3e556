//! How much a user has.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::{SkillId, SkillName};
use crate::store::SkillStore;
use crate::tree::{self, UnreadableDirs};

/// How much a user has, what commands left in the skills included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageUsage {
    /// Bytes of plain files and of large directories. A file counts by its length, or by the blocks
    /// that it takes on the disk where those are more or fewer by one at least.
    pub bytes: u64,
    /// Files of any kind but directories.
    pub files: u64,
    /// Skills.
    pub skills: u64,
    /// Whether that is all: there may be more names than are counted, or paths that are too long
    /// to be followed.
    pub is_complete: bool,
}

/// What lies below a directory. Directories that commands have locked are opened for it:
/// otherwise they would be where a quota ends.
pub(crate) fn count(directory: BorrowedFd<'_>, most: u64) -> Result<StorageUsage, Errno> {
    count_except(directory, most, &[])
}

/// The same without some directories.
fn count_except(
    directory: BorrowedFd<'_>,
    most: u64,
    except: &[String],
) -> Result<StorageUsage, Errno> {
    let mut usage = StorageUsage::default();
    let mut names = 0;
    usage.is_complete = tree::walk_except(directory, UnreadableDirs::Open, except, |found| {
        let kind = tree::kind(&found.stat);
        usage.files += u64::from(kind != FileType::Directory);
        usage.bytes = usage.bytes.saturating_add(charged(kind, &found.stat));
        // By name and not by file: a file with a million links is a million steps for each walk.
        names += 1;
        if names > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(usage)
}

/// Bytes that something counts for.
fn charged(kind: FileType, stat: &Stat) -> u64 {
    const SECTOR: u64 = 512;
    let length = u64::try_from(stat.st_size).unwrap_or_default();
    let taken = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(SECTOR);
    let block = u64::try_from(stat.st_blksize).unwrap_or_default().clamp(4096, 1 << 20);
    match kind {
        FileType::RegularFile if taken.abs_diff(length) < block => length,
        FileType::RegularFile => taken,
        // Names take room, too, where there are many.
        FileType::Directory if taken > block => taken,
        _ => 0,
    }
}

impl SkillStore {
    /// How much a user has; nothing for one who is not there.
    pub fn usage(&self, user: &SkillName) -> Result<StorageUsage, StoreError> {
        let mut usage = self.usage_except(user, &[])?;
        for agent in self.agents(user)? {
            usage.skills += self.inner.children(&format!("{user}/{agent}"))?.len() as u64;
        }
        Ok(usage)
    }

    /// The same without some skills, and without their number.
    fn usage_except(
        &self,
        user: &SkillName,
        skills: &[SkillId],
    ) -> Result<StorageUsage, StoreError> {
        let fail = |errno| StoreError::system("count", format!("skills/{user}"))(errno);
        let except: Vec<String> =
            skills.iter().map(|skill| format!("{}/{}", skill.agent, skill.skill)).collect();
        match tree::directory(&self.inner.skills, user.as_str()) {
            Ok(directory) => {
                count_except(directory.as_fd(), self.inner.bounds.counted, &except).map_err(fail)
            }
            Err(Errno::NOENT) => Ok(StorageUsage { is_complete: true, ..StorageUsage::default() }),
            Err(errno) => Err(fail(errno)),
        }
    }

    /// Whether a user may have `more` bytes in the place of what `skills` have, or of `less`. A
    /// skill that is replaced is not counted, so it can be replaced also if it cannot be counted.
    pub(crate) fn afford(
        &self,
        user: &SkillName,
        more: u64,
        less: u64,
        skills: &[SkillId],
        quota: u64,
    ) -> Result<(), StoreError> {
        let usage = self.usage_except(user, skills)?;
        let bytes = usage.bytes.saturating_sub(less).saturating_add(more);
        match usage.is_complete {
            false => Err(StoreError::Uncountable {
                user: user.clone(),
                names: self.inner.bounds.counted,
            }),
            true if bytes > quota => Err(StoreError::Quota { bytes, quota }),
            true => Ok(()),
        }
    }
}
