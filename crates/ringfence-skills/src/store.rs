//! The store: a root with skills, and beside them what is on its way in and out.

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

/// Skills of many users on disk. Cheap to clone; every function waits for the disk, and some for
/// others who are at the same skill, so call them from threads that may wait.
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
    /// `USER/AGENT/SKILL/NUMBER`: what is known of the version with that number.
    pub(crate) cards: OwnedFd,
    /// What is not yet a skill, or part of one.
    pub(crate) staging: OwnedFd,
    /// What is one no longer.
    pub(crate) trash: OwnedFd,
    pub(crate) table: VersionTable,
    /// Locked for as long as the store is open.
    _lock: File,
    next: AtomicU64,
}

impl SkillStore {
    /// Opens the store at `root`, and makes what is missing of it for nobody else to look into.
    /// What an earlier service left half done when it was killed is cleared away. Refused are a
    /// root that is a link, that others may write to, that another service has, or on whose file
    /// system two directories cannot change places.
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

    /// What is taken in and handed out at most.
    pub fn bounds(&self) -> &UploadBounds {
        &self.inner.bounds
    }

    /// Every user who has skills.
    pub fn users(&self) -> Result<Vec<SkillName>, StoreError> {
        self.inner.children(".")
    }

    /// Every agent of a user that has skills.
    pub fn agents(&self, user: &SkillName) -> Result<Vec<SkillName>, StoreError> {
        self.inner.children(user.as_str())
    }

    /// What a skill said it needs when it was uploaded or last edited, whatever commands have
    /// made of its `SKILL.md` since.
    pub fn needs(&self, skill: &SkillId) -> Result<SkillNeeds, StoreError> {
        Ok(self.hold(skill)?.card()?.needs)
    }

    /// The version that is the skill now. It stays whole while it is held.
    pub(crate) fn hold(&self, skill: &SkillId) -> Result<HeldVersion, StoreError> {
        let mut state = self.inner.table.state();
        let (directory, number) = self.inner.enter(skill)?;
        state.hold(number);
        drop(state);
        Ok(HeldVersion::new(Arc::clone(&self.inner), skill.clone(), directory, number))
    }
}

impl SkillStoreInner {
    /// A name that nothing in staging or trash has.
    pub(crate) fn fresh(&self) -> String {
        self.next.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Opens the directory of a skill. Only for whoever has the table.
    pub(crate) fn enter(&self, skill: &SkillId) -> Result<(OwnedFd, u64), StoreError> {
        let opened = tree::directory(&self.skills, skill.path()).or_else(|errno| match errno {
            // What ran there took away its own right to read it, which is nobody else's loss.
            Errno::ACCESS => tree::unlocked(&self.skills, &skill.path()),
            errno => Err(errno),
        });
        let directory = opened.map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => {
                StoreError::NoSkill { skill: skill.clone() }
            }
            errno => StoreError::system("open", format!("skills/{skill}"))(errno),
        })?;
        let number = rustix::fs::fstat(&directory)
            .map_err(StoreError::system("look at", skill.path()))?
            .st_ino;
        Ok((directory, number))
    }

    pub(crate) fn claim(
        &self,
        skills: &[SkillId],
        heed: ClaimWait,
    ) -> Result<SkillClaim<'_>, StoreError> {
        let keys = skills.iter().cloned().map(ClaimKey::Skill).collect();
        let busy = |_| StoreError::Busy { skill: skills[0].clone() };
        self.table.claim(keys, heed, self.bounds.patience).map_err(busy)
    }

    /// Has the sum of what a user has alone, so that two changes cannot both fit into what is left.
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

    /// Makes `name` in `from` the skill, in one step; answers whether there was one before.
    pub(crate) fn replace(
        &self,
        from: &OwnedFd,
        name: &str,
        skill: &SkillId,
    ) -> Result<bool, StoreError> {
        let fail = |errno| StoreError::system("replace", format!("skills/{skill}"))(errno);
        let mut state = self.table.state();
        let agent = format!("{}/{}", skill.user, skill.agent);
        tree::make(&self.skills, skill.user.as_str(), 0o700)
            .and_then(|()| tree::make(&self.skills, &agent, 0o700))
            .map_err(fail)?;
        let directory = tree::directory(&self.skills, &agent).map_err(fail)?;
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
                    tree::unlocking(&directory, target, exchange).map_err(fail)?;
                    Some(self.retire(from, name, skill).map_err(fail)?)
                }
                Err(errno) => return Err(fail(errno)),
            };
        let is_replaced = retired.is_some();
        let gone = retired.and_then(|retired| state.retire(retired));
        drop(state);
        for path in [agent.as_str(), skill.user.as_str(), "."] {
            tree::directory(&self.skills, path).and_then(rustix::fs::fsync).map_err(fail)?;
        }
        gone.into_iter().for_each(|gone| self.delete(&gone));
        Ok(is_replaced)
    }

    /// Moves what was a skill into the trash.
    pub(crate) fn retire(
        &self,
        from: impl AsFd,
        name: &str,
        skill: &SkillId,
    ) -> Result<RetiredVersion, Errno> {
        let number = tree::look(&from, name)?.st_ino;
        loop {
            let retired = RetiredVersion { name: self.fresh(), skill: skill.clone(), number };
            let rename = || {
                rustix::fs::renameat_with(
                    &from,
                    name,
                    &self.trash,
                    &retired.name,
                    RenameFlags::NOREPLACE,
                )
            };
            match tree::unlocking(&from, name, rename) {
                Ok(()) => return Ok(retired),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Deletes a version that nobody holds. What cannot be deleted stays in the trash, and is
    /// tried again when the store is next opened.
    pub(crate) fn delete(&self, retired: &RetiredVersion) {
        // Before the directory: its number may be given to the next one that is made.
        SkillMetadata::remove(&self.cards, &retired.skill, retired.number);
        let _ = tree::delete(self.trash.as_fd(), &retired.name, || self.fresh());
    }

    /// Takes the directories of agent and user away with the last skill. Only for whoever has the
    /// table.
    pub(crate) fn tidy(&self, skill: &SkillId) {
        let ways = [format!("{}/{}", skill.user, skill.agent), skill.user.to_string()];
        let _ = ways
            .iter()
            .try_for_each(|way| rustix::fs::unlinkat(&self.skills, way, AtFlags::REMOVEDIR));
    }

    /// The names of directories below a path of `skills`, in order.
    pub(crate) fn children(&self, path: &str) -> Result<Vec<SkillName>, StoreError> {
        let names = match tree::directory(&self.skills, path).and_then(tree::names) {
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

/// A version of a skill that stays whole until this is dropped.
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

    pub(crate) fn card(&self) -> Result<SkillMetadata, StoreError> {
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
