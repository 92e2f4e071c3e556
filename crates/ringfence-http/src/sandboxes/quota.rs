//! Counts per tenant, with limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ringfence_skills::SkillName;

use crate::tenants::lock;

/// A count per tenant.
#[derive(Debug, Default)]
pub(super) struct SandboxCounts(Arc<Mutex<HashMap<SkillName, usize>>>);

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountLimit {
    /// The tenant's own limit.
    Own,
    /// The limit of all tenants together.
    All,
}

/// One counted item, until it is dropped.
#[derive(Debug)]
pub(super) struct CountSlot(Arc<Mutex<HashMap<SkillName, usize>>>, SkillName);

impl SandboxCounts {
    /// Counts one more, of at most `own` for this tenant and `all` together.
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
    fn one_tenants_limit_leaves_slots_for_another() {
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
