//! How much a user has.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::{Name, SkillId};
use crate::store::Store;
use crate::tree::{self, Locked};

/// How much a user has, what commands left in the skills included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Bytes of plain files, each by its length.
    pub bytes: u64,
    /// Files of any kind but directories.
    pub files: u64,
    /// Skills.
    pub skills: u64,
    /// Whether that is all: there may be more files than are counted, or paths that are too long
    /// to be followed.
    pub is_complete: bool,
}

/// What lies below a directory. Directories that commands have locked are opened for it:
/// otherwise they would be where a quota ends.
pub(crate) fn count(directory: BorrowedFd<'_>, most: u64) -> Result<Usage, Errno> {
    let mut usage = Usage::default();
    let mut seen = 0;
    usage.is_complete = tree::walk(directory, Locked::Open, |found| {
        match tree::kind(&found.stat) {
            FileType::Directory => {}
            kind => {
                usage.files += 1;
                usage.bytes = usage.bytes.saturating_add(if kind == FileType::RegularFile { found.stat.st_size as u64 } else { 0 });
            }
        }
        seen += 1;
        if seen > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(usage)
}

impl Store {
    /// How much a user has; nothing for one who is not there.
    pub fn usage(&self, user: &Name) -> Result<Usage, StoreError> {
        let fail = |errno| StoreError::system("count", format!("skills/{user}"))(errno);
        let mut usage = match tree::directory(&self.inner.skills, user.as_str()) {
            Ok(directory) => count(directory.as_fd(), self.inner.bounds.counted).map_err(fail)?,
            Err(Errno::NOENT) => Usage { is_complete: true, ..Usage::default() },
            Err(errno) => return Err(fail(errno)),
        };
        for agent in self.agents(user)? {
            usage.skills += self.inner.children(&format!("{user}/{agent}"))?.len() as u64;
        }
        Ok(usage)
    }

    /// Whether a user may have `more` bytes in the place of what `skills` have, or of `less`.
    pub(crate) fn afford(&self, user: &Name, more: u64, less: u64, skills: &[SkillId], quota: u64) -> Result<(), StoreError> {
        let usage = self.usage(user)?;
        let mut gone = less;
        for skill in skills {
            match self.hold(skill) {
                Ok(held) => {
                    gone +=
                        count(held.directory.as_fd(), self.inner.bounds.counted).map_err(StoreError::system("count", skill.path()))?.bytes
                }
                Err(StoreError::NoSkill { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let bytes = usage.bytes.saturating_sub(gone).saturating_add(more);
        if bytes > quota || !usage.is_complete { Err(StoreError::Quota { bytes, quota }) } else { Ok(()) }
    }
}
