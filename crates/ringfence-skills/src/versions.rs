//! Concurrent access to skills, in the one process that has the store open.
//!
//! A change of a skill has exclusive access. An execution in setup has shared access while it
//! resolves and mounts paths. A replacement waits for running setups, and new setups wait for the
//! replacement, so neither starves. A reader or a running command holds a *version*: the directory
//! itself, which stays until its last holder is gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::name::{SkillId, SkillName};

/// A key of exclusive access.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ClaimKey {
    /// The usage of a user.
    User(SkillName),
    /// A skill.
    Skill(SkillId),
}

/// The operations that a change waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimWait {
    /// Other changes.
    Changes,
    /// Other changes, and executions in setup.
    Setups,
}

/// A version that is no longer the skill. It is deleted after its last holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetiredVersion {
    /// Its name in the trash.
    pub(crate) name: String,
    /// The skill.
    pub(crate) skill: SkillId,
    /// Its inode number.
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct VersionState {
    held: HashSet<ClaimKey>,
    setups: HashMap<SkillId, u32>,
    waiting: HashMap<SkillId, u32>,
    versions: HashMap<u64, VersionEntry>,
}

#[derive(Debug, Default)]
struct VersionEntry {
    holders: u32,
    retired: Option<RetiredVersion>,
}

#[derive(Debug, Default)]
pub(crate) struct VersionTable {
    state: Mutex<VersionState>,
    freed: Condvar,
}

/// The time limit was reached.
#[derive(Debug)]
pub(crate) struct ClaimTimeout;

impl VersionTable {
    /// A panic leaves the table consistent: each change is one step.
    pub(crate) fn state(&self) -> MutexGuard<'_, VersionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of `keys` at once, so that two callers never hold half each.
    pub(crate) fn claim(
        &self,
        keys: Vec<ClaimKey>,
        wait: ClaimWait,
        patience: Duration,
    ) -> Result<SkillClaim<'_>, ClaimTimeout> {
        let skills: Vec<SkillId> = keys
            .iter()
            .filter_map(
                |key| if let ClaimKey::Skill(skill) = key { Some(skill.clone()) } else { None },
            )
            .collect();
        let skills = if wait == ClaimWait::Setups { skills } else { Vec::new() };
        let mut state = self.state();
        for skill in &skills {
            *state.waiting.entry(skill.clone()).or_default() += 1;
        }
        let is_free = |state: &mut VersionState| {
            keys.iter().all(|key| !state.held.contains(key))
                && skills.iter().all(|skill| !state.setups.contains_key(skill))
        };
        let (mut state, is_acquired) = self.wait(state, patience, is_free);
        for skill in &skills {
            decrement(&mut state.waiting, skill);
        }
        if !is_acquired {
            self.freed.notify_all();
            return Err(ClaimTimeout);
        }
        state.held.extend(keys.iter().cloned());
        Ok(SkillClaim { table: self, keys })
    }

    /// Takes shared access to `skill`: it is not replaced until [`VersionTable::end_setup`].
    pub(crate) fn begin_setup(
        &self,
        skill: &SkillId,
        patience: Duration,
    ) -> Result<MutexGuard<'_, VersionState>, ClaimTimeout> {
        let key = ClaimKey::Skill(skill.clone());
        let is_free = |state: &mut VersionState| {
            !state.held.contains(&key) && !state.waiting.contains_key(skill)
        };
        let (mut state, is_acquired) = self.wait(self.state(), patience, is_free);
        if !is_acquired {
            return Err(ClaimTimeout);
        }
        *state.setups.entry(skill.clone()).or_default() += 1;
        Ok(state)
    }

    /// Ends the shared access.
    pub(crate) fn end_setup(&self, skill: &SkillId) {
        decrement(&mut self.state().setups, skill);
        self.freed.notify_all();
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, VersionState>,
        patience: Duration,
        mut is_free: impl FnMut(&mut VersionState) -> bool,
    ) -> (MutexGuard<'a, VersionState>, bool) {
        let until = Instant::now() + patience;
        loop {
            if is_free(&mut state) {
                return (state, true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (state, false);
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn decrement(counts: &mut HashMap<SkillId, u32>, skill: &SkillId) {
    if let Some(count) = counts.get_mut(skill) {
        *count -= 1;
        if *count == 0 {
            counts.remove(skill);
        }
    }
}

impl VersionState {
    /// Adds a holder of this version.
    pub(crate) fn hold(&mut self, number: u64) {
        self.versions.entry(number).or_default().holders += 1;
    }

    /// Removes a holder. Returns the version if it must be deleted now.
    pub(crate) fn release(&mut self, number: u64) -> Option<RetiredVersion> {
        let version = self.versions.get_mut(&number)?;
        version.holders -= 1;
        if version.holders > 0 {
            return None;
        }
        self.versions.remove(&number)?.retired
    }

    /// Marks a version as replaced. Returns it if it has no holders and must be deleted now.
    pub(crate) fn retire(&mut self, retired: RetiredVersion) -> Option<RetiredVersion> {
        match self.versions.get_mut(&retired.number) {
            Some(version) => {
                version.retired = Some(retired);
                None
            }
            None => Some(retired),
        }
    }
}

/// Exclusive access until dropped.
#[derive(Debug)]
pub(crate) struct SkillClaim<'a> {
    table: &'a VersionTable,
    keys: Vec<ClaimKey>,
}

impl Drop for SkillClaim<'_> {
    fn drop(&mut self) {
        let mut state = self.table.state();
        for key in &self.keys {
            state.held.remove(key);
        }
        drop(state);
        self.table.freed.notify_all();
    }
}
