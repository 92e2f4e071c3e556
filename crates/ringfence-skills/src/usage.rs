//! Storage usage of a user.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::{SkillId, SkillName};
use crate::store::SkillStore;
use crate::tree::{self, UnreadableDirs};

/// The storage usage of a user, with files that commands left in the skills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageUsage {
    /// Bytes of regular files and large directories. A file counts by its length, or by its
    /// allocated blocks if these differ by at least one block.
    pub bytes: u64,
    /// The number of files of any type except directories.
    pub files: u64,
    /// The number of skills.
    pub skills: u64,
    /// True if everything was counted. False if there are more names than the limit, or paths that
    /// are too long.
    pub is_complete: bool,
}

/// The usage below a directory. Unreadable directories get the owner's permissions, else they would
/// escape the quota.
pub(crate) fn count(directory: BorrowedFd<'_>, most: u64) -> Result<StorageUsage, Errno> {
    count_except(directory, most, &[])
}

/// As [`count`], without some directories.
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
        // By name, not by file: a file with a million hard links takes a million steps per walk.
        names += 1;
        if names > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(usage)
}

/// The number of bytes charged for an entry.
fn charged(kind: FileType, stat: &Stat) -> u64 {
    const SECTOR: u64 = 512;
    let length = u64::try_from(stat.st_size).unwrap_or_default();
    let taken = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(SECTOR);
    let block = u64::try_from(stat.st_blksize).unwrap_or_default().clamp(4096, 1 << 20);
    match kind {
        FileType::RegularFile if taken.abs_diff(length) < block => length,
        FileType::RegularFile => taken,
        // Large directories take space too.
        FileType::Directory if taken > block => taken,
        _ => 0,
    }
}

impl SkillStore {
    /// The usage of a user; zero for an unknown user.
    pub fn usage(&self, user: &SkillName) -> Result<StorageUsage, StoreError> {
        let mut usage = self.usage_except(user, &[])?;
        for agent in self.agents(user)? {
            usage.skills += self.inner.children(&format!("{user}/{agent}"))?.len() as u64;
        }
        Ok(usage)
    }

    /// As [`SkillStore::usage`], without some skills, and without the number of skills.
    fn usage_except(
        &self,
        user: &SkillName,
        skills: &[SkillId],
    ) -> Result<StorageUsage, StoreError> {
        let fail = |errno| StoreError::system("count", format!("skills/{user}"))(errno);
        let except: Vec<String> =
            skills.iter().map(|skill| format!("{}/{}", skill.agent, skill.skill)).collect();
        match tree::open_directory(&self.inner.skills, user.as_str()) {
            Ok(directory) => {
                count_except(directory.as_fd(), self.inner.bounds.counted, &except).map_err(fail)
            }
            Err(Errno::NOENT) => Ok(StorageUsage { is_complete: true, ..StorageUsage::default() }),
            Err(errno) => Err(fail(errno)),
        }
    }

    /// Checks the quota for `more` bytes that replace `skills` or `less` bytes. A replaced skill is
    /// not counted, so an uncountable skill can be replaced.
    pub(crate) fn check_quota(
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
