//! How many of something each tenant has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ringfence_skills::Name;

use crate::tenants::lock;

/// How many each tenant has.
#[derive(Debug, Default)]
pub(super) struct Counts(Arc<Mutex<HashMap<Name, usize>>>);

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The tenant has as many as it may.
    Own,
    /// All together have.
    All,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Mutex<HashMap<Name, usize>>>, Name);

impl Counts {
    /// One more, of at most so many of this tenant and so many of all.
    pub(super) fn take(&self, user: &Name, own: usize, all: usize) -> Result<Place, Full> {
        let mut counts = lock(&self.0);
        if counts.get(user).copied().unwrap_or_default() >= own {
            return Err(Full::Own);
        }
        if counts.values().sum::<usize>() >= all {
            return Err(Full::All);
        }
        *counts.entry(user.clone()).or_default() += 1;
        Ok(Place(self.0.clone(), user.clone()))
    }
}

impl Drop for Place {
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
        let (counts, a, b) =
            (Counts::default(), Name::try_from("a").unwrap(), Name::try_from("b").unwrap());
        let first = counts.take(&a, 2, 3).unwrap();
        let _second = counts.take(&a, 2, 3).unwrap();
        assert_eq!(counts.take(&a, 2, 3).err(), Some(Full::Own));
        let _third = counts.take(&b, 2, 3).unwrap();
        assert_eq!(counts.take(&b, 2, 3).err(), Some(Full::All));
        drop(first);
        assert!(counts.take(&b, 2, 3).is_ok());
    }
}
