//! How well refusals are known: by ringfence, and by the text that commands print.

use std::fmt;

use super::{CorpusEntry, CorpusResult};

/// What is guessed from a command's standard error, as sandboxes without any other means do:
/// that it was stopped if it speaks of permission, whatever its exit status, and at the path
/// in quotes before `: Permission denied`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StderrGuess {
    /// Whether the sandbox stood in the way.
    pub blocked: bool,
    /// At what.
    pub resource: Option<String>,
}

impl StderrGuess {
    /// From this text.
    pub fn from(stderr: &str) -> Self {
        let blocked =
            stderr.contains("Permission denied") || stderr.contains("Operation not permitted");
        let quoted = stderr
            .split_once("': Permission denied")
            .and_then(|(before, _)| before.rsplit_once('\''));
        Self { blocked, resource: quoted.map(|(_, path)| path.to_owned()) }
    }
}

/// Right and wrong answers to one question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ScoreTally {
    /// Yes, and it is so.
    hits: usize,
    /// Yes, and it is not so.
    false_alarms: usize,
    /// No, and it is so.
    misses: usize,
}

impl ScoreTally {
    fn count(&mut self, told: usize, expected: usize, both: usize) {
        self.hits += both;
        self.false_alarms += told - both;
        self.misses += expected - both;
    }

    fn is_perfect(self) -> bool {
        self.hits > 0 && self.false_alarms == 0 && self.misses == 0
    }
}

impl fmt::Display for ScoreTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |of: usize| if of == 0 { 0.0 } else { 100.0 * self.hits as f64 / of as f64 };
        let (precision, recall) =
            (share(self.hits + self.false_alarms), share(self.hits + self.misses));
        write!(
            f,
            "{precision:>7.1} % {recall:>7.1} % {:>6} {:>13} {:>7}",
            self.hits, self.false_alarms, self.misses
        )
    }
}

/// How a whole corpus was answered.
#[derive(Debug, Clone, Default)]
pub struct CorpusScore {
    runs: usize,
    denials: ScoreTally,
    blocked: ScoreTally,
    resource: ScoreTally,
    guessed: ScoreTally,
    guessed_resource: ScoreTally,
    wrong_guesses: Vec<String>,
}

impl CorpusScore {
    /// Adds what came of one entry.
    pub fn add(&mut self, entry: &CorpusEntry, came: &CorpusResult) {
        let guess = StderrGuess::from(&came.stderr);
        self.runs += 1;
        self.denials.count(
            came.refused.len(),
            entry.refused.len(),
            came.refused.intersection(&entry.refused).count(),
        );
        let one = |told: bool| {
            (usize::from(told), usize::from(entry.blocked), usize::from(told && entry.blocked))
        };
        let (told, expected, both) = one(came.blocked);
        self.blocked.count(told, expected, both);
        let (told, expected, both) = one(guess.blocked);
        self.guessed.count(told, expected, both);
        let is_target = |path: &String| {
            entry
                .refused
                .iter()
                .any(|refused| refused.target == *path || refused.target == format!("./{path}"))
        };
        for (tally, resource) in
            [(&mut self.resource, &came.resource), (&mut self.guessed_resource, &guess.resource)]
        {
            let is_right = entry.blocked && resource.as_ref().is_some_and(is_target);
            tally.count(
                usize::from(resource.is_some()),
                usize::from(entry.blocked),
                usize::from(is_right),
            );
        }
        if guess.blocked != entry.blocked {
            let how = if guess.blocked { "false alarm" } else { "missed" };
            self.wrong_guesses.push(format!("{how:<12} {}", entry.line));
        }
    }

    /// Whether every refusal was told of, and nothing else.
    pub fn is_perfect(&self) -> bool {
        [self.denials, self.blocked, self.resource].iter().all(|tally| tally.is_perfect())
    }
}

impl fmt::Display for CorpusScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs {:>31} {:>9} {:>6} {:>13} {:>7}",
            self.runs, "precision", "recall", "hits", "false alarms", "misses"
        )?;
        for (name, tally) in [
            ("ringfence: what was refused", self.denials),
            ("ringfence: blocked", self.blocked),
            ("ringfence: blockedResource", self.resource),
            ("stderr text: blocked", self.guessed),
            ("stderr text: blockedResource", self.guessed_resource),
        ] {
            writeln!(f, "{name:<29} {tally}")?;
        }
        writeln!(f, "\nwhat the text of stderr gets wrong:")?;
        let mut wrong = self.wrong_guesses.clone();
        wrong.sort();
        wrong.dedup();
        wrong.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{ScoreTally, StderrGuess};

    #[track_caller]
    fn check(stderr: &str, blocked: bool, resource: Option<&str>) {
        assert_eq!(
            StderrGuess::from(stderr),
            StderrGuess { blocked, resource: resource.map(str::to_owned) }
        );
    }

    #[test]
    fn the_guess_is_the_text_and_nothing_else() {
        check("cat: .env: Permission denied\n", true, None);
        check("ls: cannot open directory '/x y': Permission denied\n", true, Some("/x y"));
        check("unshare: unshare failed: Operation not permitted", true, None);
        check("touch: cannot touch '/usr/x': Read-only file system", false, None);
        check("", false, None);
    }

    #[test]
    fn one_wrong_answer_is_not_perfect() {
        let mut tally = ScoreTally::default();
        assert!(!tally.is_perfect());
        tally.count(2, 2, 2);
        assert!(tally.is_perfect() && tally.to_string().contains("100.0 %   100.0 %"));
        tally.count(1, 0, 0);
        assert!(!tally.is_perfect());
        assert_eq!(tally, ScoreTally { hits: 2, false_alarms: 1, misses: 0 });
    }
}
