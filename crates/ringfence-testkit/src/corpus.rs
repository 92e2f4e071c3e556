//! The corpus: everyday commands, and the exact denials of each.
//!
//! The data and their format are in `corpus/commands.txt`. The CLI's tests and `cargo xtask
//! precision` run them.

mod score;
mod trial;

pub use score::{CorpusScore, StderrGuess};
pub use trial::CorpusResult;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::project::SEARCH_PATH;

const COMMANDS: &str = include_str!("corpus/commands.txt");

/// A command, and its expected result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorpusEntry {
    /// The section of the file.
    pub section: String,
    /// The command line.
    pub line: String,
    /// A program without which the entry is skipped.
    pub needs: Option<String>,
    /// A line that runs outside the sandbox first.
    pub before: Option<String>,
    /// Further flags of `ringfence run`.
    pub flags: Vec<String>,
    /// The exact set of denials.
    pub refused: BTreeSet<ExpectedDenial>,
    /// True if the result must report `blocked`.
    pub blocked: bool,
}

/// An expected denial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedDenial {
    /// The operation.
    pub operation: String,
    /// The target; `.` is the project and `~` the home directory.
    pub target: String,
    /// The rule.
    pub rule: String,
}

impl fmt::Display for ExpectedDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} by {}", self.operation, self.target, self.rule)
    }
}

/// The whole corpus.
pub fn corpus() -> Vec<CorpusEntry> {
    parse(COMMANDS)
}

/// Panics on a format error: the data are part of the program.
fn parse(text: &str) -> Vec<CorpusEntry> {
    let mut entries: Vec<CorpusEntry> = Vec::new();
    let mut section = "";
    for (number, line) in
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, entries.last_mut()) {
            ("==", _) => section = rest,
            ("$", _) => entries.push(CorpusEntry {
                section: section.into(),
                line: rest.into(),
                needs: first_program(rest),
                ..CorpusEntry::default()
            }),
            ("needs", Some(entry)) => entry.needs = (rest != "nothing").then(|| rest.into()),
            ("before", Some(entry)) => entry.before = Some(rest.into()),
            ("with", Some(entry)) => entry.flags = rest.split(' ').map(str::to_owned).collect(),
            ("blocked", Some(entry)) => entry.blocked = true,
            ("refused", Some(entry)) => {
                let refused = ExpectedDenial::parse(rest)
                    .unwrap_or_else(|| panic!("line {}: {line}", number + 1));
                assert!(entry.refused.insert(refused), "line {}: duplicate entry", number + 1);
            }
            _ => panic!("line {}: {line}", number + 1),
        }
    }
    entries
}

impl ExpectedDenial {
    fn parse(text: &str) -> Option<Self> {
        let (what, rule) = text.split_once(" by ")?;
        let (operation, target) = what.split_once(' ')?;
        Some(Self { operation: operation.into(), target: target.into(), rule: rule.into() })
    }
}

/// The first program of a line; `None` if it is a shell builtin or a file of the entry.
fn first_program(line: &str) -> Option<String> {
    const SHELL_BUILTINS: &[&str] = &["cd", "echo", "exit", "kill", "printf", "trap", "umask"];
    let word = line.split(' ').next()?;
    (!word.starts_with(['(', '.', '~']) && !SHELL_BUILTINS.contains(&word)).then(|| word.into())
}

impl CorpusEntry {
    /// The needed program that is not installed.
    pub fn missing_program(&self) -> Option<&str> {
        let program = self.needs.as_deref()?;
        let own = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<_> = std::env::split_paths(SEARCH_PATH).collect();
        // The toolchain is on the `PATH` of the test runner.
        directories.extend(std::env::split_paths(&own).filter(|_| program == "cargo"));
        let is_there = Path::new(program).exists()
            || directories.iter().any(|directory| directory.join(program).is_file());
        (!is_there).then_some(program)
    }
}

#[cfg(test)]
mod tests {
    use super::{corpus, parse};

    #[test]
    fn corpus_is_large_and_half_of_it_has_no_denial() {
        let entries = corpus();
        assert!(entries.len() >= 120, "{}", entries.len());
        let refused = entries.iter().filter(|entry| !entry.refused.is_empty()).count();
        assert!(refused >= 60 && entries.len() - refused >= 60, "{refused} of {}", entries.len());
    }

    #[test]
    fn every_blocked_entry_has_a_denial() {
        for entry in corpus().iter().filter(|entry| entry.blocked) {
            assert!(!entry.refused.is_empty(), "{}", entry.line);
        }
    }

    #[test]
    fn entry_format_is_parsed() {
        let [entry] = &parse(
            "# about\n== s\n\n$ cat a b\nneeds dog\nbefore x; y\nwith --a b\nrefused read ./a b by r s\nblocked\n",
        )[..] else {
            panic!("one entry")
        };
        let refused: Vec<String> = entry.refused.iter().map(ToString::to_string).collect();
        assert_eq!(
            (entry.section.as_str(), entry.line.as_str(), entry.needs.as_deref()),
            ("s", "cat a b", Some("dog"))
        );
        assert_eq!(
            (entry.before.as_deref(), entry.flags.join(" ").as_str(), entry.blocked),
            (Some("x; y"), "--a b", true)
        );
        assert_eq!(refused, ["read ./a b by r s"]);
    }
}
