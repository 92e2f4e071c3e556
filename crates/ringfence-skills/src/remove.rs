//! Taking a skill away.

use crate::error::StoreError;
use crate::name::SkillId;
use crate::store::SkillStore;
use crate::tree;
use crate::versions::ClaimWait;

impl SkillStore {
    /// Removes a skill. What runs in it keeps the files it has until it ends.
    pub fn remove(&self, skill: &SkillId) -> Result<(), StoreError> {
        let inner = &self.inner;
        let _claim = inner.claim(std::slice::from_ref(skill), ClaimWait::Setups)?;
        let mut state = inner.table.state();
        inner.enter(skill)?;
        let fail = |errno| StoreError::system("remove", format!("skills/{skill}"))(errno);
        let agent = format!("{}/{}", skill.user, skill.agent);
        let directory = tree::directory(&inner.skills, &agent).map_err(fail)?;
        let retired = inner.retire(&directory, skill.skill.as_str(), skill).map_err(fail)?;
        let gone = state.retire(retired);
        rustix::fs::fsync(&directory).map_err(fail)?;
        inner.tidy(skill);
        drop(state);
        gone.into_iter().for_each(|gone| inner.delete(&gone));
        Ok(())
    }
}
