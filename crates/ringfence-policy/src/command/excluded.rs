//! Which lines run outside the sandbox.
//!
//! What is excluded is confined by nothing, so everything has to be certain here: every part of
//! the line is one that somebody excluded, and nothing in it does anything else.

use std::ops::Range;

use super::pattern::{CommandPattern, MatchCertainty};
use super::word::{ShellWord, UnknownWord};
use super::{ParseProblem, ParsedLine, Redirect, SimpleCommand, leads_elsewhere};
use crate::display::is_hidden;

/// What is said of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// It runs outside; for each part, which of the patterns says so. One that only leads streams
    /// to nowhere or to each other needs none.
    Outside(Vec<Option<usize>>),
    /// It does not, because of this.
    Inside {
        /// What stands in the way.
        span: Range<usize>,
        /// Why.
        reason: String,
    },
}

/// Whether a line, as it was read, is excluded by `patterns`.
pub fn excluded<S: AsRef<str>>(
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
                format!("it cannot be read: {}", problem.reason),
            );
        }
    };
    if let Some(doubt) = line.doubts.first() {
        return inside(
            doubt.position..doubt.position,
            format!("it may run something else: {}", doubt.reason),
        );
    }
    if let Some(function) = line.functions.first() {
        return inside(
            0..line.text.len(),
            format!("it defines `{function}`, and a function takes a program's place"),
        );
    }
    if line.parts.is_empty() {
        return inside(0..line.text.len(), "there is no command in it".into());
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

/// The pattern that excludes a part, or what stands in the way.
fn by_pattern(
    part: &SimpleCommand,
    patterns: &[CommandPattern],
) -> Result<Option<usize>, (Range<usize>, String)> {
    if let Some(assignment) =
        part.assignments.iter().find(|assignment| leads_elsewhere(&assignment.name))
    {
        return Err((
            assignment.span.clone(),
            format!("`{}` can lead a program elsewhere", assignment.name),
        ));
    }
    if let Some(redirect) = part.redirects.iter().find(|redirect| !is_harmless(redirect)) {
        return Err((redirect.span.clone(), "the shell itself would open a file outside".into()));
    }
    if part.words().is_empty() && part.assignments.is_empty() {
        return Ok(None);
    }
    let fits = |pattern: &CommandPattern| fits(part, pattern);
    patterns
        .iter()
        .position(fits)
        .map(Some)
        .ok_or_else(|| (part.span.clone(), format!("`{}` is not excluded", part.shown())))
}

/// Whether a pattern names what runs: the command without its wrappers, or with those that it
/// names itself.
fn fits(part: &SimpleCommand, pattern: &CommandPattern) -> bool {
    let last = part.layers.len() - 1;
    part.layers.iter().enumerate().any(|(at, layer)| {
        let Some(program) = layer.words.first().and_then(ShellWord::literal) else { return false };
        // `docker*` names no program in a directory that somebody chose, nor one that reads as
        // if it were a program and its arguments.
        let is_odd = program.contains(|c: char| c == '/' || c.is_whitespace() || is_hidden(c));
        let is_named = !is_odd || pattern.program().is_some_and(|named| named == program);
        let is_reached = part.layers[..=at].iter().all(|layer| layer.is_plain);
        is_reached
            && is_named
            && pattern.matches(&layer.words, MatchCertainty::Surely)
            && (at == last || names_inner(part, at, pattern))
    })
}

/// Whether a pattern that matches a wrapper would not match it with another program inside.
fn names_inner(part: &SimpleCommand, at: usize, pattern: &CommandPattern) -> bool {
    let (outer, inner) = (&part.layers[at].words, part.words());
    let kept = outer.len().saturating_sub(inner.len());
    let other = ShellWord::hole("", part.span.clone(), UnknownWord::Input);
    let words: Vec<ShellWord> = outer[..kept].iter().cloned().chain([other]).collect();
    !pattern.matches(&words, MatchCertainty::Surely)
}

/// Whether a redirection opens no file.
fn is_harmless(redirect: &Redirect) -> bool {
    match redirect.operator.as_str() {
        "<<" | "<<-" | "<<<" => true,
        ">&" | "<&" => redirect.target.literal().is_some_and(|text| {
            text == "-" || !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
        }),
        _ => redirect.target.is("/dev/null"),
    }
}
