//! Rules on the text of command lines.
//!
//! They run before the sandbox and never replace it. A deny rule applies if it may match, an allow
//! rule only if it matches for certain. A line that cannot be parsed passes neither.

use std::ops::Range;

use super::arguments;
use super::doubt::Reading;
use super::pattern::{CommandPattern, MatchCertainty};
use super::unwrap::system_name;
use super::word::ShellWord;
use super::{ParseProblem, ParsedLine, ShellDialect, SimpleCommand, can_redirect_program};
use ringfence_policy::{Anchor, CommandRules, Doubt, Origin};

/// Name of the rule that refuses a line that cannot be parsed.
pub const UNREADABLE: &str = "command rules need a line that can be parsed";

/// A refused command line, with the rule and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRefusal {
    /// Position in the line.
    pub span: Range<usize>,
    /// Text at that position.
    pub what: String,
    /// The rule: `deny git push:*`.
    pub rule: String,
    /// Position of the rule in its policy file.
    pub origin: Origin,
    /// Reason for which the rule applies.
    pub reason: String,
}

/// Result of one rule for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRuling {
    /// The rule: `deny git push:*`.
    pub rule: String,
    /// Position of the rule in its policy file.
    pub origin: Origin,
    /// The refusal, if the rule refuses the line.
    pub refusal: Option<GuardRefusal>,
    /// The refusal under `doubt = "refuse"`, if the rule does not refuse otherwise.
    pub doubt: Option<GuardRefusal>,
}

/// One rule on command text.
#[derive(Clone, Copy)]
enum GuardRule<'a> {
    Deny(&'a Origin),
    /// All allowed programs together.
    Binaries(&'a [Origin]),
    Argument(&'a Origin),
    Anchor(&'a Anchor),
}

/// The first refusal of a line, if any. A line that cannot be parsed is refused by all rules
/// together, with [`UNREADABLE`] as the rule.
pub fn find_refusal(
    line: Result<&ParsedLine, &ParseProblem>,
    rules: &CommandRules,
) -> Option<GuardRefusal> {
    let reading = read_leniently(line, rules);
    let refusal = guards(rules).find_map(|guard| guard.refuses(line, reading.as_ref()))?;
    Some(if line.is_err() {
        GuardRefusal { rule: UNREADABLE.to_owned(), ..refusal }
    } else {
        refusal
    })
}

/// The result of each rule for a line.
pub fn check_each_rule(
    line: Result<&ParsedLine, &ParseProblem>,
    rules: &CommandRules,
) -> Vec<GuardRuling> {
    let reading = read_leniently(line, rules);
    let ruling = |guard: GuardRule<'_>| {
        let refusal = guard.refuses(line, reading.as_ref());
        let doubt =
            if refusal.is_none() && reading.is_some() { guard.refuses(line, None) } else { None };
        GuardRuling { rule: guard.shown(), origin: guard.origin().clone(), refusal, doubt }
    };
    guards(rules).map(ruling).collect()
}

/// The first refusal of a line that `doubt = "warn"` suppresses.
pub fn find_doubt(
    line: Result<&ParsedLine, &ParseProblem>,
    rules: &CommandRules,
) -> Option<GuardRefusal> {
    check_each_rule(line, rules).into_iter().find_map(|ruling| ruling.doubt)
}

/// Parses a line in the given dialect for these rules.
///
/// If a doubt does not refuse, bash syntax in a line for `sh` is a doubt, not an error.
pub fn parse_for_rules(
    text: &str,
    dialect: ShellDialect,
    rules: &CommandRules,
) -> Result<ParsedLine, ParseProblem> {
    let read = ParsedLine::parse_as(text, dialect);
    match read {
        Err(problem) if dialect == ShellDialect::Posix && is_lenient(rules) => {
            let mut line =
                ParsedLine::parse_as(text, ShellDialect::Bash).map_err(|_| problem.clone())?;
            line.doubts.push(problem);
            Ok(line)
        }
        read => read,
    }
}

/// True if a doubt does not refuse. Only possible with `deny` alone: the other lists need to know
/// the whole line.
fn is_lenient(rules: &CommandRules) -> bool {
    let is_plain = rules.allow_binaries.is_empty()
        && rules.deny_arguments.is_empty()
        && rules.anchor_arguments.is_none();
    rules.doubt == Doubt::Warn && is_plain
}

fn read_leniently<'a>(
    line: Result<&'a ParsedLine, &ParseProblem>,
    rules: &CommandRules,
) -> Option<Reading<'a>> {
    line.ok().filter(|_| is_lenient(rules) && !rules.deny.is_empty()).map(Reading::new)
}

fn guards(rules: &CommandRules) -> impl Iterator<Item = GuardRule<'_>> {
    let binaries =
        (!rules.allow_binaries.is_empty()).then_some(GuardRule::Binaries(&rules.allow_binaries));
    let deny = rules.deny.iter().map(GuardRule::Deny);
    deny.chain(binaries)
        .chain(rules.deny_arguments.iter().map(GuardRule::Argument))
        .chain(rules.anchor_arguments.iter().map(GuardRule::Anchor))
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
                format!("the line cannot be parsed: {}", problem.reason),
            )),
            Ok(line) => match self {
                GuardRule::Deny(origin) => {
                    let pattern = CommandPattern::parse(&origin.text);
                    reading.map_or_else(
                        || check_denied(line, &pattern),
                        |reading| reading.check_pattern(&pattern),
                    )
                }
                GuardRule::Binaries(allowed) => check_unlisted(line, allowed),
                GuardRule::Argument(origin) => {
                    each_argument(line, |word| arguments::check_contains(word, &origin.text))
                }
                GuardRule::Anchor(anchor) => {
                    each_argument(line, |word| arguments::check_outside(word, &anchor.root))
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

/// Checks whether a part may match a deny pattern.
fn check_denied(line: &ParsedLine, pattern: &CommandPattern) -> GuardMatch {
    let by_part = line.parts.iter().find_map(|part| {
        part.layers.iter().find_map(|layer| denied_words(part, &layer.words, pattern))
    });
    let by_text = || {
        pattern
            .matches_text(&line.text)
            .then(|| (0..line.text.len(), "its text matches the pattern".to_owned()))
    };
    // The construct with the doubt may run the content of a string.
    let by_doubt = || {
        let doubt = line.doubts.first().filter(|_| pattern.is_mentioned(&line.text))?;
        Some((
            doubt.position..doubt.position,
            format!("it may run a denied command: {}", doubt.reason),
        ))
    };
    by_part.or_else(by_text).or_else(by_doubt)
}

fn denied_words(part: &SimpleCommand, words: &[ShellWord], pattern: &CommandPattern) -> GuardMatch {
    // A program called by path is the same program.
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
                "{} is only known at run time and may be a denied command",
                super::word::display_name(word)
            )
        }
        _ => format!("`{}` is denied", super::word::join_quoted(words)),
    };
    Some((part.span.clone(), reason))
}

/// Checks whether a program may run that is not listed.
fn check_unlisted(line: &ParsedLine, allowed: &[Origin]) -> GuardMatch {
    let is_listed = |name: &str| allowed.iter().any(|origin| origin.text == name);
    for part in &line.parts {
        if let Some(assignment) =
            part.assignments.iter().find(|assignment| can_redirect_program(&assignment.name))
        {
            return Some((
                assignment.span.clone(),
                format!("`{}` can make a program run another one", assignment.name),
            ));
        }
        for program in part.layers.iter().filter_map(|layer| layer.words.first()) {
            match program.literal() {
                None => {
                    return Some((
                        part.span.clone(),
                        format!("{} is only known at run time", super::word::display_name(program)),
                    ));
                }
                Some(name) if is_listed(&name) || system_name(&name).is_some_and(is_listed) => {}
                Some(name) => {
                    return Some((
                        part.span.clone(),
                        format!("`{name}` is not listed in `allow-binaries`"),
                    ));
                }
            }
        }
    }
    line.doubts.first().map(|doubt| {
        (doubt.position..doubt.position, format!("it may run another command: {}", doubt.reason))
    })
}

/// Applies `ask` to every argument and every redirection target.
fn each_argument(line: &ParsedLine, ask: impl Fn(&ShellWord) -> Option<String>) -> GuardMatch {
    line.parts.iter().find_map(|part| {
        let words = part.layers.first().map_or(&[][..], |layer| layer.words.as_slice());
        let files = part
            .redirects
            .iter()
            .filter(|redirect| !redirect.operator.starts_with("<<"))
            .map(|redirect| &redirect.target);
        let files = files.filter(|file| !file.is("/dev/null"));
        // An unknown program hides its arguments, too.
        let hidden = words.first().filter(|word| word.unknown().is_some());
        let hidden = hidden.map(|word| (word, format!("`{}` is only known at run time", word.raw)));
        let held = words
            .iter()
            .skip(1)
            .chain(files)
            .find_map(|word| ask(word).map(|reason| (word, reason)));
        hidden.or(held).map(|(word, reason)| (word.span.clone(), reason))
    })
}
