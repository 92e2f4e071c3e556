//! Guards: what the text of a command may not say.
//!
//! They stand before the sandbox and never instead of it. A rule that shuts holds wherever it may
//! come to apply, a rule that opens only where it certainly does, and a line that cannot be read
//! is let through by neither.

use std::ops::Range;

use super::arguments;
use super::doubt::Reading;
use super::pattern::{CommandPattern, MatchCertainty};
use super::unwrap::system_name;
use super::word::ShellWord;
use super::{ParseProblem, ParsedLine, ShellDialect, SimpleCommand, leads_elsewhere};
use crate::grants::{CommandRules, Doubt, Origin};

/// The programs of `@strict` in `allow-binaries`.
pub const STRICT_BINARIES: &[&str] = &[
    "python3", "bash", "sh", "ls", "cat", "mkdir", "touch", "cp", "mv", "rm", "tee", "echo",
    "grep", "sed", "find", "chmod", "xargs",
];
/// The texts of `@strict` in `deny-arguments`.
pub const STRICT_ARGUMENTS: &[&str] = &[
    "..",
    "/etc/",
    "/root/",
    "/proc/",
    "/dev/",
    "/sys/",
    "/boot/",
    "--privileged",
    "eval",
    "exec",
];

/// The rule that refuses a line that cannot be read.
pub const UNREADABLE: &str = "rules on commands need a line that can be read";

/// Why a command is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRefusal {
    /// Where in the line.
    pub span: Range<usize>,
    /// What stands there.
    pub what: String,
    /// The rule: `deny git push:*`.
    pub rule: String,
    /// Where the rule was written.
    pub origin: Origin,
    /// Why it applies.
    pub reason: String,
}

/// What one rule says of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRuling {
    /// The rule: `deny git push:*`.
    pub rule: String,
    /// Where it was written.
    pub origin: Origin,
    /// What it refuses, if it does.
    pub refusal: Option<GuardRefusal>,
    /// The refusal under `doubt = "refuse"`, if there is none without it.
    pub doubt: Option<GuardRefusal>,
}

/// One rule of those that guard.
#[derive(Clone, Copy)]
enum GuardRule<'a> {
    Deny(&'a Origin),
    /// All names at once.
    Binaries(&'a [Origin]),
    Argument(&'a Origin),
    Anchor(&'a crate::grants::Anchor),
}

impl CommandRules {
    /// Whether there is any rule that may refuse a command.
    pub fn has_guards(&self) -> bool {
        self.guards().next().is_some()
    }

    /// The first refusal, if there is one. A line that cannot be read is refused by all rules
    /// alike, and by none of them in particular.
    pub fn refusal(&self, line: Result<&ParsedLine, &ParseProblem>) -> Option<GuardRefusal> {
        let reading = self.reading(line);
        let refusal = self.guards().find_map(|guard| guard.refuses(line, reading.as_ref()))?;
        Some(if line.is_err() {
            GuardRefusal { rule: UNREADABLE.to_owned(), ..refusal }
        } else {
            refusal
        })
    }

    /// What each rule says.
    pub fn rulings(&self, line: Result<&ParsedLine, &ParseProblem>) -> Vec<GuardRuling> {
        let reading = self.reading(line);
        let ruling = |guard: GuardRule<'_>| {
            let refusal = guard.refuses(line, reading.as_ref());
            let doubt = if refusal.is_none() && reading.is_some() {
                guard.refuses(line, None)
            } else {
                None
            };
            GuardRuling { rule: guard.shown(), origin: guard.origin().clone(), refusal, doubt }
        };
        self.guards().map(ruling).collect()
    }

    /// The first refusal that `doubt = "warn"` turned into none.
    pub fn doubt(&self, line: Result<&ParsedLine, &ParseProblem>) -> Option<GuardRefusal> {
        self.rulings(line).into_iter().find_map(|ruling| ruling.doubt)
    }

    /// The same rules, with doubt refused.
    pub fn strict(&self) -> Self {
        Self { doubt: Doubt::Refuse, ..self.clone() }
    }

    /// Reads a line for a shell of this kind, as these rules need it.
    ///
    /// Takes syntax that only bash has for a doubt in a line for `sh`, where doubt does not refuse.
    pub fn read(&self, text: &str, dialect: ShellDialect) -> Result<ParsedLine, ParseProblem> {
        let read = ParsedLine::parse_as(text, dialect);
        match read {
            Err(problem) if dialect == ShellDialect::Posix && self.is_lenient() => {
                let mut line =
                    ParsedLine::parse_as(text, ShellDialect::Bash).map_err(|_| problem.clone())?;
                line.doubts.push(problem);
                Ok(line)
            }
            read => read,
        }
    }

    /// True where doubt does not refuse. Every list but `deny` needs to know what a line says.
    fn is_lenient(&self) -> bool {
        let is_plain = self.allow_binaries.is_empty()
            && self.deny_arguments.is_empty()
            && self.anchor_arguments.is_none();
        self.doubt == Doubt::Warn && is_plain
    }

    fn reading<'a>(&self, line: Result<&'a ParsedLine, &ParseProblem>) -> Option<Reading<'a>> {
        line.ok().filter(|_| self.is_lenient() && !self.deny.is_empty()).map(Reading::new)
    }

    fn guards(&self) -> impl Iterator<Item = GuardRule<'_>> {
        let binaries =
            (!self.allow_binaries.is_empty()).then_some(GuardRule::Binaries(&self.allow_binaries));
        let deny = self.deny.iter().map(GuardRule::Deny);
        deny.chain(binaries)
            .chain(self.deny_arguments.iter().map(GuardRule::Argument))
            .chain(self.anchor_arguments.iter().map(GuardRule::Anchor))
    }
}

impl GuardRule<'_> {
    fn origin(&self) -> &Origin {
        match self {
            GuardRule::Deny(origin) | GuardRule::Argument(origin) => origin,
            GuardRule::Binaries(origins) => &origins[0],
            GuardRule::Anchor(anchor) => &anchor.origin,
        }
    }

    fn shown(&self) -> String {
        match self {
            GuardRule::Deny(origin) => format!("deny {}", origin.text),
            GuardRule::Binaries(origins) => {
                format!(
                    "allow-binaries {}",
                    origins.iter().map(|origin| origin.text.as_str()).collect::<Vec<_>>().join(" ")
                )
            }
            GuardRule::Argument(origin) => format!("deny-arguments {}", origin.text),
            GuardRule::Anchor(anchor) => format!("anchor-arguments {}", anchor.root),
        }
    }

    fn refuses(
        &self,
        line: Result<&ParsedLine, &ParseProblem>,
        reading: Option<&Reading<'_>>,
    ) -> Option<GuardRefusal> {
        let found = match line {
            Err(problem) => Some((
                problem.position..problem.position,
                format!("the line cannot be read: {}", problem.reason),
            )),
            Ok(line) => match self {
                GuardRule::Deny(origin) => {
                    let pattern = CommandPattern::parse(&origin.text);
                    reading
                        .map_or_else(|| denied(line, &pattern), |reading| reading.refused(&pattern))
                }
                GuardRule::Binaries(allowed) => unlisted(line, allowed),
                GuardRule::Argument(origin) => {
                    each_argument(line, |word| arguments::held(word, &origin.text))
                }
                GuardRule::Anchor(anchor) => {
                    each_argument(line, |word| arguments::outside(word, &anchor.root))
                }
            },
        };
        let (span, reason) = found?;
        let text = line.map_or("", |line| line.text.as_str());
        let what =
            text.get(span.clone()).filter(|what| !what.is_empty()).unwrap_or(text).to_owned();
        Some(GuardRefusal { span, what, rule: self.shown(), origin: self.origin().clone(), reason })
    }
}

type GuardMatch = Option<(Range<usize>, String)>;

/// Whether a part may come to be what a pattern denies.
fn denied(line: &ParsedLine, pattern: &CommandPattern) -> GuardMatch {
    let by_part = line.parts.iter().find_map(|part| {
        part.layers.iter().find_map(|layer| denied_words(part, &layer.words, pattern))
    });
    let by_text = || {
        pattern
            .matches_text(&line.text)
            .then(|| (0..line.text.len(), "it reads like what is denied".to_owned()))
    };
    // What a doubt is about may run what is written in a string.
    let by_doubt = || {
        let doubt = line.doubts.first().filter(|_| pattern.is_mentioned(&line.text))?;
        Some((
            doubt.position..doubt.position,
            format!("it may run what is denied: {}", doubt.reason),
        ))
    };
    by_part.or_else(by_text).or_else(by_doubt)
}

fn denied_words(part: &SimpleCommand, words: &[ShellWord], pattern: &CommandPattern) -> GuardMatch {
    // By whatever path it is called, it is the same program.
    let named = words.first().filter(|program| program.has_slash()).map(|program| {
        [program.after_slash()].into_iter().chain(words[1..].iter().cloned()).collect::<Vec<_>>()
    });
    let is_hit = |words: &[ShellWord]| pattern.matches(words, MatchCertainty::Possibly);
    if !is_hit(words) && !named.is_some_and(|named| is_hit(&named)) {
        return None;
    }
    let reason = match words.iter().find(|word| word.unknown().is_some()) {
        Some(word) if !pattern.matches(words, MatchCertainty::Surely) => {
            format!(
                "{} is not known before it runs, and it may be what is denied",
                super::word::named(word)
            )
        }
        _ => format!("`{}` is denied", super::word::shown(words)),
    };
    Some((part.span.clone(), reason))
}

/// Whether a program may run that is not listed.
fn unlisted(line: &ParsedLine, allowed: &[Origin]) -> GuardMatch {
    let is_listed = |name: &str| allowed.iter().any(|origin| origin.text == name);
    for part in &line.parts {
        if let Some(assignment) =
            part.assignments.iter().find(|assignment| leads_elsewhere(&assignment.name))
        {
            return Some((
                assignment.span.clone(),
                format!("`{}` can lead a program elsewhere", assignment.name),
            ));
        }
        for program in part.layers.iter().filter_map(|layer| layer.words.first()) {
            match program.literal() {
                None => {
                    return Some((
                        part.span.clone(),
                        format!("{} is not known before it runs", super::word::named(program)),
                    ));
                }
                Some(name) if is_listed(&name) || system_name(&name).is_some_and(is_listed) => {}
                Some(name) => {
                    return Some((
                        part.span.clone(),
                        format!("`{name}` is not one of the programs that may run"),
                    ));
                }
            }
        }
    }
    line.doubts.first().map(|doubt| {
        (doubt.position..doubt.position, format!("it may run something else: {}", doubt.reason))
    })
}

/// Asks about every argument, and every file to which a stream is led.
fn each_argument(line: &ParsedLine, ask: impl Fn(&ShellWord) -> Option<String>) -> GuardMatch {
    line.parts.iter().find_map(|part| {
        let words = part.layers.first().map_or(&[][..], |layer| layer.words.as_slice());
        let files = part
            .redirects
            .iter()
            .filter(|redirect| !redirect.operator.starts_with("<<"))
            .map(|redirect| &redirect.target);
        let files = files.filter(|file| !file.is("/dev/null"));
        // A program of which nothing is known hides its arguments, too.
        let hidden = words.first().filter(|word| word.unknown().is_some());
        let hidden =
            hidden.map(|word| (word, format!("`{}` is not known before it runs", word.raw)));
        let held = words
            .iter()
            .skip(1)
            .chain(files)
            .find_map(|word| ask(word).map(|reason| (word, reason)));
        hidden.or(held).map(|(word, reason)| (word.span.clone(), reason))
    })
}
