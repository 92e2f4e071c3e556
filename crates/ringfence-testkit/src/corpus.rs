//! The corpus: commands of every day, and exactly what of each is refused.
//!
//! The data stand in `corpus/commands.txt`, where their form is told. They are tried by the
//! tests of the command line and by `cargo xtask precision`.

mod score;
mod trial;

pub use score::{CorpusScore, StderrGuess};
pub use trial::CorpusResult;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::project::SEARCHED;

const COMMANDS: &str = include_str!("corpus/commands.txt");

/// A command, and what is to come of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorpusEntry {
    /// The section it stands in.
    pub section: String,
    /// The command line.
    pub line: String,
    /// A program without which it says nothing.
    pub needs: Option<String>,
    /// What is run outside of the sandbox first.
    pub before: Option<String>,
    /// Further flags of `ringfence run`.
    pub flags: Vec<String>,
    /// What is refused, and nothing else.
    pub refused: BTreeSet<ExpectedDenial>,
    /// Whether the result says that the sandbox stood in the way.
    pub blocked: bool,
}

/// Something that is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedDenial {
    /// What was tried.
    pub operation: String,
    /// On what; `.` is the project and `~` the home.
    pub target: String,
    /// By which rule.
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

/// Panics where the text is not in its form: the data are part of the program.
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
                assert!(entry.refused.insert(refused), "line {}: stands there twice", number + 1);
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

/// The program a line begins with; `None` if that is the shell's own or a file of the line's.
fn first_program(line: &str) -> Option<String> {
    const OF_THE_SHELL: &[&str] = &["cd", "echo", "exit", "kill", "printf", "trap", "umask"];
    let word = line.split(' ').next()?;
    (!word.starts_with(['(', '.', '~']) && !OF_THE_SHELL.contains(&word)).then(|| word.into())
}

impl CorpusEntry {
    /// The program that the entry needs and this machine lacks.
    pub fn lacks(&self) -> Option<&str> {
        let program = self.needs.as_deref()?;
        let own = std::env::var_os("PATH").unwrap_or_default();
        let mut searched: Vec<_> = std::env::split_paths(SEARCHED).collect();
        // A toolchain is where whoever runs the tests has it, and is handed on.
        searched.extend(std::env::split_paths(&own).filter(|_| program == "cargo"));
        let is_there = Path::new(program).exists()
            || searched.iter().any(|directory| directory.join(program).is_file());
        (!is_there).then_some(program)
    }
}

#[cfg(test)]
mod tests {
    use super::{corpus, parse};

    #[test]
    fn it_is_large_and_half_of_it_is_refused_nothing() {
        let entries = corpus();
        assert!(entries.len() >= 120, "{}", entries.len());
        let refused = entries.iter().filter(|entry| !entry.refused.is_empty()).count();
        assert!(refused >= 60 && entries.len() - refused >= 60, "{refused} of {}", entries.len());
    }

    #[test]
    fn nothing_is_blocked_that_is_refused_nothing() {
        for entry in corpus().iter().filter(|entry| entry.blocked) {
            assert!(!entry.refused.is_empty(), "{}", entry.line);
        }
    }

    #[test]
    fn the_form_is_what_it_says() {
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
