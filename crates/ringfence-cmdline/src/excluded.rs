//! Lines that run outside the sandbox.
//!
//! An excluded line is not confined at all, so every part must match an exclusion for certain, and
//! the line must do nothing else.

use std::ops::Range;

use super::pattern::{CommandPattern, MatchCertainty};
use super::word::{ShellWord, UnknownWord};
use super::{ParseProblem, ParsedLine, Redirect, SimpleCommand, can_redirect_program};
use ringfence_policy::is_hidden;

/// Result of the exclusion check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// The line runs outside the sandbox. Holds the index of the matching pattern for each part;
    /// `None` for a part that only redirects to `/dev/null` or to another fd.
    Outside(Vec<Option<usize>>),
    /// The line runs in the sandbox.
    Inside {
        /// Position of the obstacle.
        span: Range<usize>,
        /// The obstacle.
        reason: String,
    },
}

/// Checks whether `patterns` exclude a parsed line.
pub fn check_exclusion<S: AsRef<str>>(
    line: Result<&ParsedLine, &ParseProblem>,
    patterns: &[S],
) -> Exclusion {
    let patterns: Vec<CommandPattern> =
        patterns.iter().map(|pattern| CommandPattern::parse(pattern.as_ref())).collect();
    let line = match line {
        Ok(line) => line,
        Err(problem) => {
            return inside(
                problem.position..problem.position,
                format!("the line cannot be parsed: {}", problem.reason),
            );
        }
    };
    if let Some(doubt) = line.doubts.first() {
        return inside(
            doubt.position..doubt.position,
            format!("it may run another command: {}", doubt.reason),
        );
    }
    if let Some(function) = line.functions.first() {
        return inside(
            0..line.text.len(),
            format!("it defines `{function}`, and a function can replace a program"),
        );
    }
    if line.parts.is_empty() {
        return inside(0..line.text.len(), "the line contains no command".into());
    }
    let mut by = Vec::new();
    for part in &line.parts {
        match by_pattern(part, &patterns) {
            Ok(pattern) => by.push(pattern),
            Err((span, reason)) => return inside(span, reason),
        }
    }
    Exclusion::Outside(by)
}

fn inside(span: Range<usize>, reason: String) -> Exclusion {
    Exclusion::Inside { span, reason }
}

/// Returns the index of the pattern that excludes a part, or the obstacle.
fn by_pattern(
    part: &SimpleCommand,
    patterns: &[CommandPattern],
) -> Result<Option<usize>, (Range<usize>, String)> {
    if let Some(assignment) =
        part.assignments.iter().find(|assignment| can_redirect_program(&assignment.name))
    {
        return Err((
            assignment.span.clone(),
            format!("`{}` can make a program run another one", assignment.name),
        ));
    }
    if let Some(redirect) = part.redirects.iter().find(|redirect| !is_harmless(redirect)) {
        return Err((
            redirect.span.clone(),
            "the shell would open a file outside the sandbox".into(),
        ));
    }
    if part.words().is_empty() && part.assignments.is_empty() {
        return Ok(None);
    }
    let fits = |pattern: &CommandPattern| fits(part, pattern);
    patterns
        .iter()
        .position(fits)
        .map(Some)
        .ok_or_else(|| (part.span.clone(), format!("`{}` is not excluded", part.to_shell_text())))
}

/// True if a pattern matches the command without its wrappers, or with wrappers that the pattern
/// names.
fn fits(part: &SimpleCommand, pattern: &CommandPattern) -> bool {
    let last = part.layers.len() - 1;
    part.layers.iter().enumerate().any(|(at, layer)| {
        let Some(program) = layer.words.first().and_then(ShellWord::literal) else { return false };
        // `docker*` matches neither a program by path nor a program name that contains whitespace.
        let is_odd = program.contains(|c: char| c == '/' || c.is_whitespace() || is_hidden(c));
        let is_named = !is_odd || pattern.program().is_some_and(|named| named == program);
        let is_reached = part.layers[..=at].iter().all(|layer| layer.is_plain);
        is_reached
            && is_named
            && pattern.matches(&layer.words, MatchCertainty::Surely)
            && (at == last || names_inner(part, at, pattern))
    })
}

/// True if a pattern that matches a wrapper would not match the same wrapper with another program.
fn names_inner(part: &SimpleCommand, at: usize, pattern: &CommandPattern) -> bool {
    let (outer, inner) = (&part.layers[at].words, part.words());
    let kept = outer.len().saturating_sub(inner.len());
    let other = ShellWord::hole("", part.span.clone(), UnknownWord::Input);
    let words: Vec<ShellWord> = outer[..kept].iter().cloned().chain([other]).collect();
    !pattern.matches(&words, MatchCertainty::Surely)
}

/// True if a redirection opens no file.
fn is_harmless(redirect: &Redirect) -> bool {
    match redirect.operator.as_str() {
        "<<" | "<<-" | "<<<" => true,
        ">&" | "<&" => redirect.target.literal().is_some_and(|text| {
            text == "-" || !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
        }),
        _ => redirect.target.is("/dev/null"),
    }
}
