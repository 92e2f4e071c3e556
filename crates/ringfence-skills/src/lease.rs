//! A skill leased for an execution.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::StoreError;
use crate::name::SkillId;
use crate::needs::SkillNeeds;
use crate::store::{HeldVersion, SkillStore};

/// A lease of a skill, for a command that runs in it.
///
/// From [`SkillStore::lease`] until [`SkillLease::sandbox_started`], [`SkillLease::path`] is one
/// version: mount it in that time. Afterwards the path may lead to a newer version, and the mounted
/// one stays on disk until the lease is dropped. Dropping the last lease of a replaced version
/// deletes it, which may take a while.
#[derive(Debug)]
pub struct SkillLease {
    store: SkillStore,
    path: PathBuf,
    is_standing: bool,
    held: HeldVersion,
}

impl SkillStore {
    /// Leases a skill. Waits while it is replaced, up to the limit in the bounds.
    pub fn lease(&self, skill: &SkillId) -> Result<SkillLease, StoreError> {
        let inner = &self.inner;
        let busy = |_| StoreError::Busy { skill: skill.clone() };
        let mut state = inner.table.begin_setup(skill, inner.bounds.patience).map_err(busy)?;
        let entered = inner.open_skill(skill);
        if let Ok((_, number)) = &entered {
            state.hold(*number);
        }
        drop(state);
        match entered {
            Ok((directory, number)) => {
                let held = HeldVersion::new(Arc::clone(inner), skill.clone(), directory, number);
                let path = inner.root.join("skills").join(skill.path());
                Ok(SkillLease { store: self.clone(), path, is_standing: false, held })
            }
            Err(error) => {
                inner.table.end_setup(skill);
                Err(error)
            }
        }
    }
}

impl SkillLease {
    /// The path of the skill on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The skill.
    pub fn skill(&self) -> &SkillId {
        &self.held.skill
    }

    /// The upper limit of permissions of the leased version.
    pub fn needs(&self) -> Result<SkillNeeds, StoreError> {
        Ok(self.held.metadata()?.needs)
    }

    /// Reports that the sandbox is started: from now on the skill may be replaced.
    pub fn sandbox_started(&mut self) {
        if !std::mem::replace(&mut self.is_standing, true) {
            self.store.inner.table.end_setup(&self.held.skill);
        }
    }
}

impl Drop for SkillLease {
    fn drop(&mut self) {
        self.sandbox_started();
    }
}
