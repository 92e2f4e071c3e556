//! Removes a skill.

use crate::error::StoreError;
use crate::name::SkillId;
use crate::store::SkillStore;
use crate::tree;
use crate::versions::ClaimWait;

impl SkillStore {
    /// Removes a skill. Running commands keep their files until they end.
    pub fn remove(&self, skill: &SkillId) -> Result<(), StoreError> {
        let inner = &self.inner;
        let _claim = inner.claim(std::slice::from_ref(skill), ClaimWait::Setups)?;
        let mut state = inner.table.state();
        inner.open_skill(skill)?;
        let fail = |errno| StoreError::system("remove", format!("skills/{skill}"))(errno);
        let agent = format!("{}/{}", skill.user, skill.agent);
        let directory = tree::open_directory(&inner.skills, &agent).map_err(fail)?;
        let retired = inner.retire(&directory, skill.skill.as_str(), skill).map_err(fail)?;
        let gone = state.retire(retired);
        rustix::fs::fsync(&directory).map_err(fail)?;
        inner.remove_empty_parents(skill);
        drop(state);
        gone.into_iter().for_each(|gone| inner.delete(&gone));
        Ok(())
    }
}
