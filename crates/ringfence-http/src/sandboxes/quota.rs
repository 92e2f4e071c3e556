//! How many of something each tenant has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ringfence_skills::SkillName;

use crate::tenants::lock;

/// How many each tenant has.
#[derive(Debug, Default)]
pub(super) struct SandboxCounts(Arc<Mutex<HashMap<SkillName, usize>>>);

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountLimit {
    /// The tenant has as many as it may.
    Own,
    /// All together have.
    All,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct CountSlot(Arc<Mutex<HashMap<SkillName, usize>>>, SkillName);

impl SandboxCounts {
    /// One more, of at most so many of this tenant and so many of all.
    pub(super) fn take(
        &self,
        user: &SkillName,
        own: usize,
        all: usize,
    ) -> Result<CountSlot, CountLimit> {
        let mut counts = lock(&self.0);
        if counts.get(user).copied().unwrap_or_default() >= own {
            return Err(CountLimit::Own);
        }
        if counts.values().sum::<usize>() >= all {
            return Err(CountLimit::All);
        }
        *counts.entry(user.clone()).or_default() += 1;
        Ok(CountSlot(self.0.clone(), user.clone()))
    }
}

impl Drop for CountSlot {
    fn drop(&mut self) {
        let mut counts = lock(&self.0);
        if let Some(own) = counts.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_leaves_room_for_another() {
        let (counts, a, b) = (
            SandboxCounts::default(),
            SkillName::try_from("a").unwrap(),
            SkillName::try_from("b").unwrap(),
        );
        let first = counts.take(&a, 2, 3).unwrap();
        let _second = counts.take(&a, 2, 3).unwrap();
        assert_eq!(counts.take(&a, 2, 3).err(), Some(CountLimit::Own));
        let _third = counts.take(&b, 2, 3).unwrap();
        assert_eq!(counts.take(&b, 2, 3).err(), Some(CountLimit::All));
        drop(first);
        assert!(counts.take(&b, 2, 3).is_ok());
    }
}
