//! A skill for an execution.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::StoreError;
use crate::name::SkillId;
use crate::needs::SkillNeeds;
use crate::store::{HeldVersion, SkillStore};

/// A skill that something runs in.
///
/// From [`Store::lease`] until [`Lease::stands`], what is at [`Lease::path`] is one and the same
/// version: mount it meanwhile. Afterwards the path may lead to a newer one, and the version that
/// was mounted stays on disk until the lease is dropped. Dropping the last lease of a replaced
/// version deletes it, which may take a while.
#[derive(Debug)]
pub struct SkillLease {
    store: SkillStore,
    path: PathBuf,
    is_standing: bool,
    held: HeldVersion,
}

impl SkillStore {
    /// Leases a skill. Waits while it is being replaced, for as long as the bounds say.
    pub fn lease(&self, skill: &SkillId) -> Result<SkillLease, StoreError> {
        let inner = &self.inner;
        let busy = |_| StoreError::Busy { skill: skill.clone() };
        let mut state = inner.table.set_up(skill, inner.bounds.patience).map_err(busy)?;
        let entered = inner.enter(skill);
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
                inner.table.stands(skill);
                Err(error)
            }
        }
    }
}

impl SkillLease {
    /// Where the skill stands on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn skill(&self) -> &SkillId {
        &self.held.skill
    }

    /// What the version that was leased may have at most.
    pub fn needs(&self) -> Result<SkillNeeds, StoreError> {
        Ok(self.held.card()?.needs)
    }

    /// The sandbox is made: from here on the skill may be replaced.
    pub fn stands(&mut self) {
        if !std::mem::replace(&mut self.is_standing, true) {
            self.store.inner.table.stands(&self.held.skill);
        }
    }
}

impl Drop for SkillLease {
    fn drop(&mut self) {
        self.stands();
    }
}
