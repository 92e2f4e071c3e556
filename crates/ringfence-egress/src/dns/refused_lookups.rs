//! Reports one denial per lookup.
//!
//! A program that looks up one name sends many queries: one per address type, and again with each
//! domain of the `search` line. They are one lookup and are reported once. A lookup never repeats a
//! query, so a repeated query is a new lookup and is reported again, even a moment later: it may be
//! from another command.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ringfence_policy::HostName;

/// Maximum duration of one lookup.
const LOOKUP_WINDOW: Duration = Duration::from_secs(2);
/// Lookups remembered. Further ones are reported more than once.
const MAX_LOOKUPS: usize = 64;
/// Queries remembered per lookup.
const MAX_QUERIES: usize = 16;

/// Recently denied lookups.
#[derive(Debug)]
pub(super) struct RefusedLookups {
    search: Vec<HostName>,
    lookups: VecDeque<RefusedLookup>,
}

#[derive(Debug)]
struct RefusedLookup {
    /// The name without search domains.
    base_name: String,
    queries: Vec<(String, u16)>,
    begun: Instant,
}

impl RefusedLookups {
    pub(super) fn new(search: Vec<HostName>) -> Self {
        Self { search, lookups: VecDeque::new() }
    }

    /// True if the denial of this query is to be reported.
    pub(super) fn is_new_lookup(&mut self, name: &str, kind: u16, now: Instant) -> bool {
        self.lookups.retain(|lookup| now.saturating_duration_since(lookup.begun) < LOOKUP_WINDOW);
        let base_name = self.strip_search(name);
        let question = (name.to_owned(), kind);
        if let Some(lookup) = self.lookups.iter_mut().find(|lookup| lookup.base_name == base_name)
            && !lookup.queries.contains(&question)
            && lookup.queries.len() < MAX_QUERIES
        {
            lookup.queries.push(question);
            return false;
        }
        self.lookups.retain(|lookup| lookup.base_name != base_name);
        if self.lookups.len() == MAX_LOOKUPS {
            self.lookups.pop_front();
        }
        self.lookups.push_back(RefusedLookup { base_name, queries: vec![question], begun: now });
        true
    }

    /// `name` without search domains, which may be appended repeatedly.
    fn strip_search(&self, name: &str) -> String {
        let mut base_name = name;
        let shorter = |base_name: &str| {
            let rest = |domain: &HostName| {
                base_name
                    .strip_suffix(domain.as_str())
                    .and_then(|rest| rest.strip_suffix('.'))
                    .map(str::len)
            };
            self.search.iter().find_map(rest).filter(|length| *length > 0)
        };
        while let Some(length) = shorter(base_name) {
            base_name = &base_name[..length];
        }
        base_name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names reported when `questions` are denied at the same time.
    #[track_caller]
    fn check(search: &[&str], questions: &[(&str, u16)], expect: &[&str]) {
        let name = |text: &&str| HostName::new(text).unwrap();
        let mut lookups = RefusedLookups::new(search.iter().map(name).collect());
        let now = Instant::now();
        let news: Vec<&str> = questions
            .iter()
            .filter(|(text, kind)| lookups.is_new_lookup(text, *kind, now))
            .map(|(text, _)| *text)
            .collect();
        assert_eq!(news, expect);
    }

    #[test]
    fn one_lookup_is_reported_once() {
        check(&[], &[("a.example", 1), ("a.example", 28), ("a.example", 65)], &["a.example"]);
        check(&[], &[("a.example", 1), ("b.example", 1)], &["a.example", "b.example"]);
    }

    #[test]
    fn second_lookup_is_reported_at_once() {
        let both = [("a.example", 1), ("a.example", 28), ("a.example", 1), ("a.example", 28)];
        check(&[], &both, &["a.example", "a.example"]);
    }

    #[test]
    fn search_domains_belong_to_the_same_lookup() {
        let dotted = [
            ("a.example", 1),
            ("a.example", 28),
            ("a.example.corp.test", 1),
            ("a.example.corp.test", 28),
            ("a.example.test", 1),
        ];
        check(&["corp.test", "test"], &dotted, &["a.example"]);
        check(
            &["corp.test"],
            &[("box.corp.test", 1), ("box.corp.test.corp.test", 1), ("box", 1)],
            &["box.corp.test"],
        );
        // Only whole labels count, and the search domain itself is a name.
        check(
            &["corp.test"],
            &[("xcorp.test", 1), ("x", 1), ("corp.test", 1)],
            &["xcorp.test", "x", "corp.test"],
        );
    }

    #[test]
    fn lookups_expire_and_are_bounded() {
        let mut lookups = RefusedLookups::new(Vec::new());
        let (name, now) = ("a.example", Instant::now());
        assert!(lookups.is_new_lookup(name, 1, now));
        assert!(lookups.is_new_lookup(name, 28, now + LOOKUP_WINDOW));
        for kind in 0..1000 {
            lookups.is_new_lookup(name, kind, now + LOOKUP_WINDOW);
            lookups.is_new_lookup(&format!("n{kind}.example"), 1, now + LOOKUP_WINDOW);
        }
        assert!(
            lookups.lookups.len() <= MAX_LOOKUPS
                && lookups.lookups.iter().all(|lookup| lookup.queries.len() <= MAX_QUERIES)
        );
    }
}
