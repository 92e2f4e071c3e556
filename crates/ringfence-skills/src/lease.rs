//! A skill for an execution.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::StoreError;
use crate::name::SkillId;
use crate::needs::Needs;
use crate::store::{Held, Store};

/// A skill that something runs in.
///
/// From [`Store::lease`] until [`Lease::stands`], what is at [`Lease::path`] is one and the same
/// version: mount it meanwhile. Afterwards the path may lead to a newer one, and the version that
/// was mounted stays on disk until the lease is dropped. Dropping the last lease of a replaced
/// version deletes it, which may take a while.
#[derive(Debug)]
pub struct Lease {
    store: Store,
    path: PathBuf,
    is_standing: bool,
    held: Held,
}

impl Store {
    /// Leases a skill. Waits while it is being replaced, for as long as the bounds say.
    pub fn lease(&self, skill: &SkillId) -> Result<Lease, StoreError> {
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
                let held = Held::new(Arc::clone(inner), skill.clone(), directory, number);
                let path = inner.root.join("skills").join(skill.path());
                Ok(Lease { store: self.clone(), path, is_standing: false, held })
            }
            Err(error) => {
                inner.table.stands(skill);
                Err(error)
            }
        }
    }
}

impl Lease {
    /// Where the skill stands on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn skill(&self) -> &SkillId {
        &self.held.skill
    }

    /// What the version that was leased may have at most.
    pub fn needs(&self) -> Result<Needs, StoreError> {
        Ok(self.held.card()?.needs)
    }

    /// The sandbox is made: from here on the skill may be replaced.
    pub fn stands(&mut self) {
        if !std::mem::replace(&mut self.is_standing, true) {
            self.store.inner.table.stands(&self.held.skill);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stands();
    }
}
