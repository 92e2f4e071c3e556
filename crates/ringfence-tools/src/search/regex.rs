//! Regular expressions for single lines.
//!
//! `regex-syntax` parses them; a Thompson NFA simulates all paths at once, so no expression takes
//! longer than its size times the length of the line.

use std::time::Instant;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::error::ToolError;

/// A compiled expression.
pub(super) struct RegexVm {
    steps: Vec<RegexInsn>,
}

/// One instruction.
enum RegexInsn {
    /// Matches one character of these ranges.
    One(Vec<(u32, u32)>),
    /// Matches if the surrounding characters satisfy this.
    Here(Look),
    /// Continues at both instructions.
    Both(usize, usize),
    Found,
}

/// The limit of instructions: each character is tried against all of them.
const MAX_STEPS: usize = 10_000;

/// Stands for a byte that is not part of a character: no range contains it.
const NO_CHARACTER: u32 = 0x11_0000;

/// Case sensitivity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegexCase {
    Sensitive,
    Insensitive,
}

impl RegexVm {
    pub(super) fn new(text: &str, case: RegexCase) -> Result<RegexVm, ToolError> {
        let wrong = |what: String| ToolError::Input {
            what: format!("`{text}` is not a valid regular expression: {what}"),
        };
        let parsed = ParserBuilder::new()
            .case_insensitive(case == RegexCase::Insensitive)
            .nest_limit(100)
            .build()
            .parse(text);
        let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
        let mut regex = RegexVm { steps: Vec::new() };
        regex
            .add(&parsed)
            .map_err(|()| wrong(format!("it compiles to more than {MAX_STEPS} steps")))?;
        regex.steps.push(RegexInsn::Found);
        Ok(regex)
    }

    fn push(&mut self, step: RegexInsn) -> Result<usize, ()> {
        self.steps.push(step);
        if self.steps.len() > MAX_STEPS { Err(()) } else { Ok(self.steps.len() - 1) }
    }

    /// Adds the instructions of a part. They continue at the next instruction.
    fn add(&mut self, part: &Hir) -> Result<(), ()> {
        match part.kind() {
            HirKind::Empty => Ok(()),
            HirKind::Literal(literal) => characters(&literal.0)
                .try_for_each(|(_, c)| self.push(RegexInsn::One(vec![(c, c)])).map(drop)),
            HirKind::Class(Class::Unicode(class)) => self
                .push(RegexInsn::One(
                    class.iter().map(|range| (range.start() as u32, range.end() as u32)).collect(),
                ))
                .map(drop),
            HirKind::Class(Class::Bytes(class)) => self
                .push(RegexInsn::One(
                    class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
                ))
                .map(drop),
            HirKind::Look(look) => self.push(RegexInsn::Here(*look)).map(drop),
            HirKind::Capture(capture) => self.add(&capture.sub),
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.add(part)),
            HirKind::Alternation(parts) => self.either(parts),
            HirKind::Repetition(repetition) => {
                for _ in 0..repetition.min {
                    self.add(&repetition.sub)?;
                }
                match repetition.max {
                    None => {
                        let start = self.push(RegexInsn::Both(0, 0))?;
                        self.add(&repetition.sub)?;
                        self.push(RegexInsn::Both(start, start))?;
                        self.steps[start] = RegexInsn::Both(start + 1, self.steps.len());
                        Ok(())
                    }
                    Some(max) => {
                        let mut exits = Vec::new();
                        for _ in repetition.min..max {
                            exits.push(self.push(RegexInsn::Both(0, 0))?);
                            self.add(&repetition.sub)?;
                        }
                        let end = self.steps.len();
                        exits
                            .into_iter()
                            .for_each(|at| self.steps[at] = RegexInsn::Both(at + 1, end));
                        Ok(())
                    }
                }
            }
        }
    }

    fn either(&mut self, parts: &[Hir]) -> Result<(), ()> {
        let mut ends = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            if index + 1 == parts.len() {
                self.add(part)?;
                break;
            }
            let fork = self.push(RegexInsn::Both(0, 0))?;
            self.add(part)?;
            ends.push(self.push(RegexInsn::Both(0, 0))?);
            self.steps[fork] = RegexInsn::Both(fork + 1, self.steps.len());
        }
        let end = self.steps.len();
        ends.into_iter().for_each(|at| self.steps[at] = RegexInsn::Both(end, end));
        Ok(())
    }

    /// The position of the first match in bytes; `None` also after `deadline`.
    pub(super) fn find(&self, line: &[u8], deadline: Instant) -> Option<usize> {
        /// The number of characters between checks of the clock.
        const CLOCK_INTERVAL: usize = 1024;
        let mut passed = 0;
        let (mut now, mut next) =
            (RegexThreads::new(self.steps.len()), RegexThreads::new(self.steps.len()));
        let mut found = None;
        let mut before = None;
        let mut rest = characters(line);
        loop {
            let here = rest.next();
            passed += 1;
            if passed % CLOCK_INTERVAL == 0 && Instant::now() > deadline {
                return None;
            }
            let around = (before, here.map(|(_, c)| c));
            let at = here.map_or(line.len(), |(at, _)| at);
            if found.is_none() {
                now.enter(self, 0, at, around);
            }
            next.clear();
            // Threads are ordered by their start, so those after a match did not start earlier.
            for (step, start) in std::mem::take(&mut now.arrived) {
                match &self.steps[step] {
                    RegexInsn::Found => {
                        found = Some(start);
                        break;
                    }
                    RegexInsn::One(ranges) if around.1.is_some_and(|c| contains(ranges, c)) => {
                        next.pending.push((step + 1, start))
                    }
                    _ => {}
                }
            }
            let Some((_, c)) = here else { return found };
            if next.pending.is_empty() && found.is_some() {
                return found;
            }
            before = Some(c);
            std::mem::swap(&mut now, &mut next);
            let after = rest.clone().next().map(|(_, c)| c);
            for (step, start) in std::mem::take(&mut now.pending) {
                now.enter(self, step, start, (before, after));
            }
        }
    }
}

/// The active instructions.
struct RegexThreads {
    arrived: Vec<(usize, usize)>,
    pending: Vec<(usize, usize)>,
    visited: Vec<bool>,
}

impl RegexThreads {
    fn new(steps: usize) -> RegexThreads {
        RegexThreads { arrived: Vec::new(), pending: Vec::new(), visited: vec![false; steps] }
    }

    fn clear(&mut self) {
        self.arrived.clear();
        self.pending.clear();
        self.visited.fill(false);
    }

    /// Adds an instruction, and all that follow without a character.
    fn enter(
        &mut self,
        regex: &RegexVm,
        step: usize,
        start: usize,
        around: (Option<u32>, Option<u32>),
    ) {
        let mut stack = vec![step];
        while let Some(step) = stack.pop() {
            if std::mem::replace(&mut self.visited[step], true) {
                continue;
            }
            match &regex.steps[step] {
                RegexInsn::Both(one, other) => stack.extend([*other, *one]),
                RegexInsn::Here(look) => {
                    if look_matches(*look, around) {
                        stack.push(step + 1);
                    }
                }
                RegexInsn::One(_) | RegexInsn::Found => self.arrived.push((step, start)),
            }
        }
    }
}

fn contains(ranges: &[(u32, u32)], c: u32) -> bool {
    ranges
        .binary_search_by(|(first, last)| {
            if c < *first {
                std::cmp::Ordering::Greater
            } else if c > *last {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Equal
            }
        })
        .is_ok()
}

/// True if the surrounding characters satisfy `look`.
fn look_matches(look: Look, (before, behind): (Option<u32>, Option<u32>)) -> bool {
    let ascii = |c: Option<u32>| {
        c.and_then(char::from_u32).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let any = |c: Option<u32>| {
        c.and_then(char::from_u32).is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    match look {
        Look::Start | Look::StartLF | Look::StartCRLF => before.is_none(),
        Look::End | Look::EndLF | Look::EndCRLF => behind.is_none(),
        Look::WordAscii => ascii(before) != ascii(behind),
        Look::WordAsciiNegate => ascii(before) == ascii(behind),
        Look::WordUnicode => any(before) != any(behind),
        Look::WordUnicodeNegate => any(before) == any(behind),
        Look::WordStartAscii => !ascii(before) && ascii(behind),
        Look::WordEndAscii => ascii(before) && !ascii(behind),
        Look::WordStartUnicode => !any(before) && any(behind),
        Look::WordEndUnicode => any(before) && !any(behind),
        Look::WordStartHalfAscii => !ascii(before),
        Look::WordEndHalfAscii => !ascii(behind),
        Look::WordStartHalfUnicode => !any(before),
        Look::WordEndHalfUnicode => !any(behind),
    }
}

/// The characters of a line with their positions; an invalid byte is one character.
fn characters(line: &[u8]) -> impl Iterator<Item = (usize, u32)> + Clone {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = line.get(at..).filter(|rest| !rest.is_empty())?;
        let place = at;
        if rest[0].is_ascii() {
            at += 1;
            return Some((place, rest[0].into()));
        }
        let first = rest[..rest.len().min(4)].utf8_chunks().next()?.valid().chars().next();
        at += first.map_or(1, char::len_utf8);
        Some((place, first.map_or(NO_CHARACTER, u32::from)))
    })
}

#[cfg(test)]
mod tests;
