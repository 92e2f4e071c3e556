//! Who is at which skill, within the one process that has the store.
//!
//! Whoever changes a skill has it alone. An execution that is being set up has a share in it, for
//! the moment in which paths are looked up and mounted; whoever replaces the skill waits for
//! those, and new ones wait for them in turn, so that neither waits for ever. Whoever reads or
//! runs holds a *version*: the directory itself, which stays until the last of them has gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::name::{Name, SkillId};

/// What somebody has alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Changing how much a user has.
    User(Name),
    /// Changing a skill.
    Skill(SkillId),
}

/// Whom one who changes a skill waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heed {
    /// Others who change it.
    Changes,
    /// These, and executions that are being set up.
    Setups,
}

/// A version that is no longer the skill, and goes with the last who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retired {
    /// Its name in the trash.
    pub(crate) name: String,
    /// Which skill it was.
    pub(crate) skill: SkillId,
    /// Its number.
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    held: HashSet<Key>,
    setups: HashMap<SkillId, u32>,
    waiting: HashMap<SkillId, u32>,
    versions: HashMap<u64, Version>,
}

#[derive(Debug, Default)]
struct Version {
    holders: u32,
    retired: Option<Retired>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    state: Mutex<State>,
    freed: Condvar,
}

/// Nobody became free in time.
#[derive(Debug)]
pub(crate) struct Late;

impl Table {
    /// A thread that panics leaves the table whole: each change of it is one step.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all of `keys` alone, at once, so that two who want the same never have half each.
    pub(crate) fn claim(
        &self,
        keys: Vec<Key>,
        heed: Heed,
        patience: Duration,
    ) -> Result<Claim<'_>, Late> {
        let skills: Vec<SkillId> = keys
            .iter()
            .filter_map(|key| if let Key::Skill(skill) = key { Some(skill.clone()) } else { None })
            .collect();
        let skills = if heed == Heed::Setups { skills } else { Vec::new() };
        let mut state = self.state();
        for skill in &skills {
            *state.waiting.entry(skill.clone()).or_default() += 1;
        }
        let is_free = |state: &mut State| {
            keys.iter().all(|key| !state.held.contains(key))
                && skills.iter().all(|skill| !state.setups.contains_key(skill))
        };
        let (mut state, is_had) = self.wait(state, patience, is_free);
        for skill in &skills {
            less(&mut state.waiting, skill);
        }
        if !is_had {
            self.freed.notify_all();
            return Err(Late);
        }
        state.held.extend(keys.iter().cloned());
        Ok(Claim { table: self, keys })
    }

    /// Has a share in `skill`: nobody replaces it until [`Table::stands`].
    pub(crate) fn set_up(
        &self,
        skill: &SkillId,
        patience: Duration,
    ) -> Result<MutexGuard<'_, State>, Late> {
        let key = Key::Skill(skill.clone());
        let is_free =
            |state: &mut State| !state.held.contains(&key) && !state.waiting.contains_key(skill);
        let (mut state, is_had) = self.wait(self.state(), patience, is_free);
        if !is_had {
            return Err(Late);
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
        mut state: MutexGuard<'a, State>,
        patience: Duration,
        mut is_free: impl FnMut(&mut State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
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

impl State {
    /// One more holds this version.
    pub(crate) fn hold(&mut self, number: u64) {
        self.versions.entry(number).or_default().holders += 1;
    }

    /// One less; what is to be deleted for that.
    pub(crate) fn release(&mut self, number: u64) -> Option<Retired> {
        let version = self.versions.get_mut(&number)?;
        version.holders -= 1;
        if version.holders > 0 {
            return None;
        }
        self.versions.remove(&number)?.retired
    }

    /// It is no longer the skill; given back if nobody holds it, to be deleted.
    pub(crate) fn retire(&mut self, retired: Retired) -> Option<Retired> {
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
pub(crate) struct Claim<'a> {
    table: &'a Table,
    keys: Vec<Key>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.table.state();
        for key in &self.keys {
            state.held.remove(key);
        }
        drop(state);
        self.table.freed.notify_all();
    }
}
