//! The skill store: a root directory with skills, metadata, staging and trash.

mod root;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::bounds::UploadBounds;
use crate::error::StoreError;
use crate::metadata::SkillMetadata;
use crate::name::{SkillId, SkillName};
use crate::needs::SkillNeeds;
use crate::tree;
use crate::versions::{ClaimKey, ClaimWait, RetiredVersion, SkillClaim, VersionTable};

/// Skills of many users on disk. Cheap to clone. Every function blocks on the disk, and some on
/// other operations on the same skill, so call them from threads that may block.
#[derive(Debug, Clone)]
pub struct SkillStore {
    pub(crate) inner: Arc<SkillStoreInner>,
}

#[derive(Debug)]
pub(crate) struct SkillStoreInner {
    pub(crate) root: PathBuf,
    pub(crate) bounds: UploadBounds,
    /// `USER/AGENT/SKILL/`
    pub(crate) skills: OwnedFd,
    /// `USER/AGENT/SKILL/NUMBER`: the metadata of the version with that number.
    pub(crate) cards: OwnedFd,
    /// Incoming skills and files.
    pub(crate) staging: OwnedFd,
    /// Removed skills.
    pub(crate) trash: OwnedFd,
    pub(crate) table: VersionTable,
    /// Locked while the store is open.
    _lock: File,
    next: AtomicU64,
}

impl SkillStore {
    /// Opens the store at `root`, and creates missing directories with private modes. Removes what
    /// a killed service left half done. Refuses a root that is a link, is writable by other users,
    /// is used by another service, or whose file system does not support `RENAME_EXCHANGE`.
    pub fn open(root: &Path, bounds: UploadBounds) -> Result<SkillStore, StoreError> {
        let opened = root::open(root)?;
        let inner = SkillStoreInner {
            root: opened.path,
            bounds,
            skills: opened.skills,
            cards: opened.cards,
            staging: opened.staging,
            trash: opened.trash,
            table: VersionTable::default(),
            _lock: opened.lock,
            next: AtomicU64::new(0),
        };
        root::recover(&inner)?;
        Ok(SkillStore { inner: Arc::new(inner) })
    }

    /// The limits.
    pub fn bounds(&self) -> &UploadBounds {
        &self.inner.bounds
    }

    /// All users with skills.
    pub fn users(&self) -> Result<Vec<SkillName>, StoreError> {
        self.inner.children(".")
    }

    /// All agents of a user with skills.
    pub fn agents(&self, user: &SkillName) -> Result<Vec<SkillName>, StoreError> {
        self.inner.children(user.as_str())
    }

    /// The needs of a skill at its upload or last edit, whatever commands have changed in its
    /// `SKILL.md` since.
    pub fn needs(&self, skill: &SkillId) -> Result<SkillNeeds, StoreError> {
        Ok(self.hold(skill)?.metadata()?.needs)
    }

    /// The current version. It stays complete while it is held.
    pub(crate) fn hold(&self, skill: &SkillId) -> Result<HeldVersion, StoreError> {
        let mut state = self.inner.table.state();
        let (directory, number) = self.inner.open_skill(skill)?;
        state.hold(number);
        drop(state);
        Ok(HeldVersion::new(Arc::clone(&self.inner), skill.clone(), directory, number))
    }
}

impl SkillStoreInner {
    /// A unique name in staging and trash.
    pub(crate) fn unique_name(&self) -> String {
        self.next.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Opens the directory of a skill. The caller holds the table.
    pub(crate) fn open_skill(&self, skill: &SkillId) -> Result<(OwnedFd, u64), StoreError> {
        let opened =
            tree::open_directory(&self.skills, skill.path()).or_else(|errno| match errno {
                // A command removed its own read permission, which must not affect others.
                Errno::ACCESS => tree::open_unlocked(&self.skills, &skill.path()),
                errno => Err(errno),
            });
        let directory = opened.map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => {
                StoreError::NoSkill { skill: skill.clone() }
            }
            errno => StoreError::system("open", format!("skills/{skill}"))(errno),
        })?;
        let number =
            rustix::fs::fstat(&directory).map_err(StoreError::system("stat", skill.path()))?.st_ino;
        Ok((directory, number))
    }

    pub(crate) fn claim(
        &self,
        skills: &[SkillId],
        wait: ClaimWait,
    ) -> Result<SkillClaim<'_>, StoreError> {
        let keys = skills.iter().cloned().map(ClaimKey::Skill).collect();
        let busy = |_| StoreError::Busy { skill: skills[0].clone() };
        self.table.claim(keys, wait, self.bounds.patience).map_err(busy)
    }

    /// Locks the usage of a user, so that two changes cannot use the same free quota.
    pub(crate) fn claim_user(&self, skill: &SkillId) -> Result<SkillClaim<'_>, StoreError> {
        let busy = |_| StoreError::Busy { skill: skill.clone() };
        self.table
            .claim(
                vec![ClaimKey::User(skill.user.clone())],
                ClaimWait::Changes,
                self.bounds.patience,
            )
            .map_err(busy)
    }

    /// Makes `name` in `from` the skill atomically. Returns true if there was one before.
    pub(crate) fn replace(
        &self,
        from: &OwnedFd,
        name: &str,
        skill: &SkillId,
    ) -> Result<bool, StoreError> {
        let fail = |errno| StoreError::system("replace", format!("skills/{skill}"))(errno);
        let mut state = self.table.state();
        let agent = format!("{}/{}", skill.user, skill.agent);
        tree::create_directory(&self.skills, skill.user.as_str(), 0o700)
            .and_then(|()| tree::create_directory(&self.skills, &agent, 0o700))
            .map_err(fail)?;
        let directory = tree::open_directory(&self.skills, &agent).map_err(fail)?;
        let target = skill.skill.as_str();
        let retired =
            match rustix::fs::renameat_with(from, name, &directory, target, RenameFlags::NOREPLACE)
            {
                Ok(()) => None,
                Err(Errno::EXIST) => {
                    let exchange = || {
                        rustix::fs::renameat_with(
                            from,
                            name,
                            &directory,
                            target,
                            RenameFlags::EXCHANGE,
                        )
                    };
                    tree::rename_unlocking(&directory, target, exchange).map_err(fail)?;
                    Some(self.retire(from, name, skill).map_err(fail)?)
                }
                Err(errno) => return Err(fail(errno)),
            };
        let is_replaced = retired.is_some();
        let gone = retired.and_then(|retired| state.retire(retired));
        drop(state);
        for path in [agent.as_str(), skill.user.as_str(), "."] {
            tree::open_directory(&self.skills, path).and_then(rustix::fs::fsync).map_err(fail)?;
        }
        gone.into_iter().for_each(|gone| self.delete(&gone));
        Ok(is_replaced)
    }

    /// Moves a former skill to the trash.
    pub(crate) fn retire(
        &self,
        from: impl AsFd,
        name: &str,
        skill: &SkillId,
    ) -> Result<RetiredVersion, Errno> {
        let number = tree::stat(&from, name)?.st_ino;
        loop {
            let retired = RetiredVersion { name: self.unique_name(), skill: skill.clone(), number };
            let rename = || {
                rustix::fs::renameat_with(
                    &from,
                    name,
                    &self.trash,
                    &retired.name,
                    RenameFlags::NOREPLACE,
                )
            };
            match tree::rename_unlocking(&from, name, rename) {
                Ok(()) => return Ok(retired),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Deletes a version without holders. On failure it stays in the trash until the store is
    /// opened again.
    pub(crate) fn delete(&self, retired: &RetiredVersion) {
        // Before the directory: its inode number may be reused.
        SkillMetadata::remove(&self.cards, &retired.skill, retired.number);
        let _ = tree::delete(self.trash.as_fd(), &retired.name, || self.unique_name());
    }

    /// Removes the directories of the agent and the user after the last skill. The caller holds the
    /// table.
    pub(crate) fn remove_empty_parents(&self, skill: &SkillId) {
        let paths = [format!("{}/{}", skill.user, skill.agent), skill.user.to_string()];
        let _ = paths
            .iter()
            .try_for_each(|path| rustix::fs::unlinkat(&self.skills, path, AtFlags::REMOVEDIR));
    }

    /// The sorted names of directories below a path of `skills`.
    pub(crate) fn children(&self, path: &str) -> Result<Vec<SkillName>, StoreError> {
        let names = match tree::open_directory(&self.skills, path).and_then(tree::names) {
            Ok(names) => names,
            Err(Errno::NOENT) => Vec::new(),
            Err(errno) => return Err(StoreError::system("list", format!("skills/{path}"))(errno)),
        };
        let mut names: Vec<SkillName> =
            names.iter().filter_map(|name| SkillName::try_from(name.to_str().ok()?).ok()).collect();
        names.sort();
        Ok(names)
    }
}

/// A version of a skill that stays complete until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldVersion {
    inner: Arc<SkillStoreInner>,
    pub(crate) skill: SkillId,
    pub(crate) directory: OwnedFd,
    pub(crate) number: u64,
}

impl HeldVersion {
    pub(crate) fn new(
        inner: Arc<SkillStoreInner>,
        skill: SkillId,
        directory: OwnedFd,
        number: u64,
    ) -> HeldVersion {
        HeldVersion { inner, skill, directory, number }
    }

    pub(crate) fn metadata(&self) -> Result<SkillMetadata, StoreError> {
        SkillMetadata::read(&self.inner.cards, &self.skill, self.number)
            .map_err(|_| StoreError::NeedsUnknown { skill: self.skill.clone() })
    }
}

impl Drop for HeldVersion {
    fn drop(&mut self) {
        let gone = self.inner.table.state().release(self.number);
        gone.into_iter().for_each(|gone| self.inner.delete(&gone));
    }
}
