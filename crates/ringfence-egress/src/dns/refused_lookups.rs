//! One refusal for one lookup.
//!
//! A program that looks up one name asks many questions: for each kind of address, and again with
//! every domain of the `search` line behind the name. They are one lookup, and are told of once.
//! No lookup puts the same question twice, so one that comes again is another lookup, which is
//! told of even if the first was a moment ago: it may be another command's.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ringfence_policy::HostName;

/// How long a lookup may go on asking.
const LASTS: Duration = Duration::from_secs(2);
/// How many lookups are remembered. Those beyond are told of more than once.
const MOST: usize = 64;
/// How many questions of one lookup are remembered.
const QUESTIONS: usize = 16;

/// The lookups of late that were refused.
#[derive(Debug)]
pub(super) struct RefusedLookups {
    search: Vec<HostName>,
    lookups: VecDeque<RefusedLookup>,
}

#[derive(Debug)]
struct RefusedLookup {
    /// What was meant: the name without what `search` puts behind it.
    meant: String,
    asked: Vec<(String, u16)>,
    begun: Instant,
}

impl RefusedLookups {
    pub(super) fn new(search: Vec<HostName>) -> Self {
        Self { search, lookups: VecDeque::new() }
    }

    /// Whether a refusal of this question is to be told.
    pub(super) fn is_news(&mut self, name: &str, kind: u16, now: Instant) -> bool {
        self.lookups.retain(|lookup| now.saturating_duration_since(lookup.begun) < LASTS);
        let meant = self.meant(name);
        let question = (name.to_owned(), kind);
        if let Some(lookup) = self.lookups.iter_mut().find(|lookup| lookup.meant == meant)
            && !lookup.asked.contains(&question)
            && lookup.asked.len() < QUESTIONS
        {
            lookup.asked.push(question);
            return false;
        }
        self.lookups.retain(|lookup| lookup.meant != meant);
        if self.lookups.len() == MOST {
            self.lookups.pop_front();
        }
        self.lookups.push_back(RefusedLookup { meant, asked: vec![question], begun: now });
        true
    }

    /// `name` without the domains of the search line, however often they stand behind it.
    fn meant(&self, name: &str) -> String {
        let mut meant = name;
        let shorter = |meant: &str| {
            let rest = |domain: &HostName| {
                meant
                    .strip_suffix(domain.as_str())
                    .and_then(|rest| rest.strip_suffix('.'))
                    .map(str::len)
            };
            self.search.iter().find_map(rest).filter(|length| *length > 0)
        };
        while let Some(length) = shorter(meant) {
            meant = &meant[..length];
        }
        meant.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of `questions`, put at once, is told.
    #[track_caller]
    fn check(search: &[&str], questions: &[(&str, u16)], expect: &[&str]) {
        let name = |text: &&str| HostName::new(text).unwrap();
        let mut told = RefusedLookups::new(search.iter().map(name).collect());
        let now = Instant::now();
        let news: Vec<&str> = questions
            .iter()
            .filter(|(text, kind)| told.is_news(text, *kind, now))
            .map(|(text, _)| *text)
            .collect();
        assert_eq!(news, expect);
    }

    #[test]
    fn one_lookup_is_told_of_once() {
        check(&[], &[("a.example", 1), ("a.example", 28), ("a.example", 65)], &["a.example"]);
        check(&[], &[("a.example", 1), ("b.example", 1)], &["a.example", "b.example"]);
    }

    #[test]
    fn a_second_lookup_is_told_of_at_once() {
        let both = [("a.example", 1), ("a.example", 28), ("a.example", 1), ("a.example", 28)];
        check(&[], &both, &["a.example", "a.example"]);
    }

    #[test]
    fn what_search_puts_behind_a_name_is_the_same_lookup() {
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
        // Only whole labels count, and the domain itself is a name.
        check(
            &["corp.test"],
            &[("xcorp.test", 1), ("x", 1), ("corp.test", 1)],
            &["xcorp.test", "x", "corp.test"],
        );
    }

    #[test]
    fn a_lookup_ends_and_many_are_not_remembered() {
        let mut told = RefusedLookups::new(Vec::new());
        let (name, now) = ("a.example", Instant::now());
        assert!(told.is_news(name, 1, now));
        assert!(told.is_news(name, 28, now + LASTS));
        for kind in 0..1000 {
            told.is_news(name, kind, now + LASTS);
            told.is_news(&format!("n{kind}.example"), 1, now + LASTS);
        }
        assert!(
            told.lookups.len() <= MOST
                && told.lookups.iter().all(|lookup| lookup.asked.len() <= QUESTIONS)
        );
    }
}
