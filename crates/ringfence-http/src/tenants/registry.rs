//! All tokens, indexed by digest and by id.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::StoredToken;

/// Tokens by id and by digest.
///
/// A digest is an HMAC with a key that only the service knows. A caller who guesses tokens does not
/// know their digests, so the time of a lookup reveals nothing about a token.
#[derive(Debug, Clone, Default)]
pub(super) struct Registry {
    /// In the order of creation.
    by_number: BTreeMap<u64, StoredToken>,
    by_id: HashMap<String, u64>,
    by_digest: HashMap<String, u64>,
    next: u64,
}

impl Registry {
    pub(super) fn from_tokens(tokens: Vec<StoredToken>) -> Self {
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

    /// The id of the token and of all tokens it created, directly or indirectly.
    pub(super) fn descendants(&self, id: &str) -> HashSet<String> {
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

    /// A copy without some tokens.
    pub(super) fn without(&self, is_gone: impl Fn(&StoredToken) -> bool) -> Self {
        Self::from_tokens(self.all().filter(|token| !is_gone(token)).cloned().collect())
    }
}
