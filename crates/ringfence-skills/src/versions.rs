//! Who is at which skill, within the one process that has the store.
//!
//! Whoever changes a skill has it alone. An execution that is being set up has a share in it, for
//! the moment in which paths are looked up and mounted; whoever replaces the skill waits for
//! those, and new ones wait for them in turn, so that neither waits for ever. Whoever reads or
//! runs holds a *version*: the directory itself, which stays until the last of them has gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::name::{SkillId, SkillName};

/// What somebody has alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ClaimKey {
    /// Changing how much a user has.
    User(SkillName),
    /// Changing a skill.
    Skill(SkillId),
}

/// Whom one who changes a skill waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimWait {
    /// Others who change it.
    Changes,
    /// These, and executions that are being set up.
    Setups,
}

/// A version that is no longer the skill, and goes with the last who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetiredVersion {
    /// Its name in the trash.
    pub(crate) name: String,
    /// Which skill it was.
    pub(crate) skill: SkillId,
    /// Its number.
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

/// Nobody became free in time.
#[derive(Debug)]
pub(crate) struct ClaimTimeout;

impl VersionTable {
    /// A thread that panics leaves the table whole: each change of it is one step.
    pub(crate) fn state(&self) -> MutexGuard<'_, VersionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all of `keys` alone, at once, so that two who want the same never have half each.
    pub(crate) fn claim(
        &self,
        keys: Vec<ClaimKey>,
        heed: ClaimWait,
        patience: Duration,
    ) -> Result<SkillClaim<'_>, ClaimTimeout> {
        let skills: Vec<SkillId> = keys
            .iter()
            .filter_map(
                |key| if let ClaimKey::Skill(skill) = key { Some(skill.clone()) } else { None },
            )
            .collect();
        let skills = if heed == ClaimWait::Setups { skills } else { Vec::new() };
        let mut state = self.state();
        for skill in &skills {
            *state.waiting.entry(skill.clone()).or_default() += 1;
        }
        let is_free = |state: &mut VersionState| {
            keys.iter().all(|key| !state.held.contains(key))
                && skills.iter().all(|skill| !state.setups.contains_key(skill))
        };
        let (mut state, is_had) = self.wait(state, patience, is_free);
        for skill in &skills {
            less(&mut state.waiting, skill);
        }
        if !is_had {
            self.freed.notify_all();
            return Err(ClaimTimeout);
        }
        state.held.extend(keys.iter().cloned());
        Ok(SkillClaim { table: self, keys })
    }

    /// Has a share in `skill`: nobody replaces it until [`Table::stands`].
    pub(crate) fn set_up(
        &self,
        skill: &SkillId,
        patience: Duration,
    ) -> Result<MutexGuard<'_, VersionState>, ClaimTimeout> {
        let key = ClaimKey::Skill(skill.clone());
        let is_free = |state: &mut VersionState| {
            !state.held.contains(&key) && !state.waiting.contains_key(skill)
        };
        let (mut state, is_had) = self.wait(self.state(), patience, is_free);
        if !is_had {
            return Err(ClaimTimeout);
        }
        *state.setups.entry(skill.clone()).or_default() += 1;
        Ok(state)
    }

    /// Gives the share up.
    pub(crate) fn stands(&self, skill: &SkillId) {
        less(&mut self.state().setups, skill);
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

fn less(counts: &mut HashMap<SkillId, u32>, skill: &SkillId) {
    if let Some(count) = counts.get_mut(skill) {
        *count -= 1;
        if *count == 0 {
            counts.remove(skill);
        }
    }
}

impl VersionState {
    /// One more holds this version.
    pub(crate) fn hold(&mut self, number: u64) {
        self.versions.entry(number).or_default().holders += 1;
    }

    /// One less; what is to be deleted for that.
    pub(crate) fn release(&mut self, number: u64) -> Option<RetiredVersion> {
        let version = self.versions.get_mut(&number)?;
        version.holders -= 1;
        if version.holders > 0 {
            return None;
        }
        self.versions.remove(&number)?.retired
    }

    /// It is no longer the skill; given back if nobody holds it, to be deleted.
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

/// What somebody has alone until it is dropped.
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
