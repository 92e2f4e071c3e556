//! All tokens, found by their digest or their id without looking at the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::StoredToken;

/// Tokens by id, and the ids by digest.
///
/// A digest is an HMAC with a key that only the service knows. A caller who guesses words does not
/// know their digests, so the time a look-up takes tells nothing about a word.
#[derive(Debug, Clone, Default)]
pub(super) struct Registry {
    /// In the order in which they were made.
    by_number: BTreeMap<u64, StoredToken>,
    by_id: HashMap<String, u64>,
    by_digest: HashMap<String, u64>,
    next: u64,
}

impl Registry {
    pub(super) fn of(tokens: Vec<StoredToken>) -> Self {
        let mut registry = Self::default();
        tokens.into_iter().for_each(|token| registry.add(token));
        registry
    }

    pub(super) fn add(&mut self, token: StoredToken) {
        self.by_id.insert(token.id.clone(), self.next);
        self.by_digest.insert(token.digest().to_owned(), self.next);
        self.by_number.insert(self.next, token);
        self.next += 1;
    }

    pub(super) fn with_digest(&self, digest: &str) -> Option<&StoredToken> {
        self.by_number.get(self.by_digest.get(digest)?)
    }

    pub(super) fn with_id(&self, id: &str) -> Option<&StoredToken> {
        self.by_number.get(self.by_id.get(id)?)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &StoredToken> {
        self.by_number.values()
    }

    /// The token of this id and every token that it minted, directly or through others.
    pub(super) fn descent(&self, id: &str) -> HashSet<String> {
        let mut children: HashMap<&str, Vec<&str>> = HashMap::new();
        for token in self.all() {
            if let Some(minter) = &token.minted_by {
                children.entry(minter).or_default().push(&token.id);
            }
        }
        let (mut found, mut waiting) = (HashSet::new(), vec![id]);
        while let Some(id) = waiting.pop() {
            if found.insert(id.to_owned()) {
                waiting.extend(children.get(id).into_iter().flatten());
            }
        }
        found
    }

    /// The same without some.
    pub(super) fn without(&self, is_gone: impl Fn(&StoredToken) -> bool) -> Self {
        Self::of(self.all().filter(|token| !is_gone(token)).cloned().collect())
    }
}
