//! Precision of reported denials: by ringfence, and by the text that commands print.

use std::fmt;

use super::{CorpusEntry, CorpusResult};

/// A guess from a command's standard error, as sandboxes without reports make it: blocked if it
/// mentions permissions, whatever its exit status, at the quoted path before `: Permission denied`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StderrGuess {
    /// True if the sandbox blocked the command.
    pub blocked: bool,
    /// The path.
    pub resource: Option<String>,
}

impl StderrGuess {
    /// Guesses from this text.
    pub fn from(stderr: &str) -> Self {
        let blocked =
            stderr.contains("Permission denied") || stderr.contains("Operation not permitted");
        let quoted = stderr
            .split_once("': Permission denied")
            .and_then(|(before, _)| before.rsplit_once('\''));
        Self { blocked, resource: quoted.map(|(_, path)| path.to_owned()) }
    }
}

/// Correct and wrong answers to one question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ScoreTally {
    /// Reported and expected.
    hits: usize,
    /// Reported and not expected.
    false_alarms: usize,
    /// Expected and not reported.
    misses: usize,
}

impl ScoreTally {
    fn count(&mut self, reported: usize, expected: usize, both: usize) {
        self.hits += both;
        self.false_alarms += reported - both;
        self.misses += expected - both;
    }

    fn is_perfect(self) -> bool {
        self.hits > 0 && self.false_alarms == 0 && self.misses == 0
    }
}

impl fmt::Display for ScoreTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share =
            |total: usize| if total == 0 { 0.0 } else { 100.0 * self.hits as f64 / total as f64 };
        let (precision, recall) =
            (share(self.hits + self.false_alarms), share(self.hits + self.misses));
        write!(
            f,
            "{precision:>7.1} % {recall:>7.1} % {:>6} {:>13} {:>7}",
            self.hits, self.false_alarms, self.misses
        )
    }
}

/// The score of a whole corpus.
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
    /// Adds the result of one entry.
    pub fn add(&mut self, entry: &CorpusEntry, result: &CorpusResult) {
        let guess = StderrGuess::from(&result.stderr);
        self.runs += 1;
        self.denials.count(
            result.refused.len(),
            entry.refused.len(),
            result.refused.intersection(&entry.refused).count(),
        );
        let one = |reported: bool| {
            (
                usize::from(reported),
                usize::from(entry.blocked),
                usize::from(reported && entry.blocked),
            )
        };
        let (reported, expected, both) = one(result.blocked);
        self.blocked.count(reported, expected, both);
        let (reported, expected, both) = one(guess.blocked);
        self.guessed.count(reported, expected, both);
        let is_target = |path: &String| {
            entry
                .refused
                .iter()
                .any(|refused| refused.target == *path || refused.target == format!("./{path}"))
        };
        for (tally, resource) in
            [(&mut self.resource, &result.resource), (&mut self.guessed_resource, &guess.resource)]
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

    /// True if exactly the expected denials were reported.
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
            ("ringfence: denials", self.denials),
            ("ringfence: blocked", self.blocked),
            ("ringfence: blockedResource", self.resource),
            ("stderr text: blocked", self.guessed),
            ("stderr text: blockedResource", self.guessed_resource),
        ] {
            writeln!(f, "{name:<29} {tally}")?;
        }
        writeln!(f, "\nwrong guesses from stderr:")?;
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
    fn guess_depends_only_on_the_text() {
        check("cat: .env: Permission denied\n", true, None);
        check("ls: cannot open directory '/x y': Permission denied\n", true, Some("/x y"));
        check("unshare: unshare failed: Operation not permitted", true, None);
        check("touch: cannot touch '/usr/x': Read-only file system", false, None);
        check("", false, None);
    }

    #[test]
    fn one_wrong_answer_makes_the_score_imperfect() {
        let mut tally = ScoreTally::default();
        assert!(!tally.is_perfect());
        tally.count(2, 2, 2);
        assert!(tally.is_perfect() && tally.to_string().contains("100.0 %   100.0 %"));
        tally.count(1, 0, 0);
        assert!(!tally.is_perfect());
        assert_eq!(tally, ScoreTally { hits: 2, false_alarms: 1, misses: 0 });
    }
}
