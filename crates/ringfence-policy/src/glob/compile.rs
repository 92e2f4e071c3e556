//! Compiles the text of a glob into segments.

use super::segment::{GlobSegment, GlobToken};
use super::{GlobCase, GlobError};
use crate::path::AbsPath;

const LONGEST: usize = 4096;
const MOST_ALTERNATIVES: usize = 1000;

/// Number of endings from which `*.{rs,py,…}` stays one segment and is not expanded.
const MANY_ENDINGS: usize = 7;

/// A character and its byte offset in the text, which is short.
type PlacedChar = (u16, char);

pub(super) fn compile(
    text: &str,
    anchor: Option<&AbsPath>,
    case: GlobCase,
) -> Result<Vec<Vec<GlobSegment>>, GlobError> {
    if text.is_empty() {
        return Err(GlobError::Empty);
    }
    if text.len() > LONGEST {
        return Err(GlobError::TooLong { limit: LONGEST });
    }
    if let Some(at) = text.find('\0') {
        return Err(GlobError::Nul { at });
    }
    let placed: Vec<PlacedChar> = text.char_indices().map(|(at, c)| (at as u16, c)).collect();
    let expanded = if text.contains('{') { expand(&placed)? } else { vec![placed] };
    expanded.iter().map(|alternative| segments(alternative, anchor, case)).collect()
}

/// Expands braces, outermost first.
fn expand(text: &[PlacedChar]) -> Result<Vec<Vec<PlacedChar>>, GlobError> {
    let Some(open) = find_open_brace(text)? else {
        return Ok(vec![text.to_vec()]);
    };
    let (close, commas) = find_close_brace(text, open)?;
    if close + 1 == text.len()
        && commas.len() >= MANY_ENDINGS
        && endings(last_component(text), GlobCase::Sensitive).is_some()
    {
        return Ok(vec![text.to_vec()]);
    }
    let tails = expand(&text[close + 1..])?;
    let mut choices = Vec::new();
    let mut start = open + 1;
    for end in commas.into_iter().chain([close]) {
        choices.extend(expand(&text[start..end])?);
        start = end + 1;
    }
    if choices.len() * tails.len() > MOST_ALTERNATIVES {
        return Err(GlobError::TooManyAlternatives { limit: MOST_ALTERNATIVES });
    }
    let head = &text[..open];
    let joined = choices
        .iter()
        .flat_map(|choice| tails.iter().map(move |tail| [head, choice, tail].concat()));
    Ok(joined.collect())
}

fn find_open_brace(text: &[PlacedChar]) -> Result<Option<usize>, GlobError> {
    let mut i = 0;
    while i < text.len() {
        match text[i].1 {
            '[' => i = class_end(text, i)?,
            '{' => return Ok(Some(i)),
            _ => {}
        }
        i += 1;
    }
    Ok(None)
}

/// The brace that closes the one at `open`, and its commas.
fn find_close_brace(text: &[PlacedChar], open: usize) -> Result<(usize, Vec<usize>), GlobError> {
    let mut depth = 0;
    let mut commas = Vec::new();
    let mut i = open + 1;
    while i < text.len() {
        match text[i].1 {
            '[' => i = class_end(text, i)?,
            '{' => depth += 1,
            '}' if depth == 0 => return Ok((i, commas)),
            '}' => depth -= 1,
            ',' if depth == 0 => commas.push(i),
            _ => {}
        }
        i += 1;
    }
    Err(GlobError::UnclosedBrace { at: usize::from(text[open].0) })
}

/// The `]` that closes the class at `open`; a `]` in first position is a member.
fn class_end(text: &[PlacedChar], open: usize) -> Result<usize, GlobError> {
    let mut i = open + 1;
    if matches!(text.get(i), Some((_, '!' | '^'))) {
        i += 1;
    }
    if matches!(text.get(i), Some((_, ']'))) {
        i += 1;
    }
    while let Some(&(_, c)) = text.get(i) {
        match c {
            ']' => return Ok(i),
            '/' => break,
            _ => i += 1,
        }
    }
    Err(GlobError::UnclosedClass { at: usize::from(text[open].0) })
}

fn segments(
    text: &[PlacedChar],
    anchor: Option<&AbsPath>,
    case: GlobCase,
) -> Result<Vec<GlobSegment>, GlobError> {
    let mut segments = Vec::new();
    let floats = text.iter().all(|&(_, c)| c != '/') || starts_with(text, "**/");
    if floats {
        segments.push(GlobSegment::AnyDepth);
    } else if !starts_with(text, "/") {
        let anchor = anchor.ok_or(GlobError::NoAnchor)?;
        segments.extend(
            super::components(anchor).into_iter().map(|part| GlobSegment::Exact(part.to_vec())),
        );
    }
    for part in text.split(|&(_, c)| c == '/') {
        push_segment(&mut segments, part, case)?;
    }
    if segments.is_empty() { Err(GlobError::Empty) } else { Ok(segments) }
}

fn starts_with(text: &[PlacedChar], prefix: &str) -> bool {
    prefix.chars().enumerate().all(|(i, c)| text.get(i).is_some_and(|&(_, have)| have == c))
}

fn push_segment(
    segments: &mut Vec<GlobSegment>,
    part: &[PlacedChar],
    case: GlobCase,
) -> Result<(), GlobError> {
    let is = |text: &str| part.len() == text.len() && starts_with(part, text);
    if part.is_empty() || is(".") {
        return Ok(());
    }
    if is("..") {
        return Err(GlobError::ParentComponent { at: usize::from(part[0].0) });
    }
    if is("**") {
        if segments.last() != Some(&GlobSegment::AnyDepth) {
            segments.push(GlobSegment::AnyDepth);
        }
        return Ok(());
    }
    segments.push(if let Some(segment) = endings(part, case) {
        segment
    } else if let Some(bytes) = plain(part, case) {
        GlobSegment::Plain { bytes, case }
    } else {
        GlobSegment::Name { tokens: tokens(part, case)?, case }
    });
    Ok(())
}

fn last_component(text: &[PlacedChar]) -> &[PlacedChar] {
    text.rsplit(|&(_, c)| c == '/').next().unwrap_or_default()
}

/// Parses `*.{rs,py}`: plain characters, then a choice of plain endings.
fn endings(part: &[PlacedChar], case: GlobCase) -> Option<GlobSegment> {
    let (&(_, '}'), inner) = part.split_last()? else { return None };
    let open = inner.iter().position(|&(_, c)| c == '{')?;
    let stem = plain(&inner[..open], case)?;
    let endings = plain(&inner[open + 1..], case)?;
    let simple = !endings.iter().any(|byte| matches!(byte, b'*' | b'{' | b'}'));
    (simple && stem != b"**").then_some(GlobSegment::Endings { stem, endings, case })
}

/// The component as folded bytes, if it is ASCII and its only wildcard is a single `*`.
fn plain(part: &[PlacedChar], case: GlobCase) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(part.len());
    for &(_, c) in part {
        let doubled = c == '*' && bytes.last() == Some(&b'*');
        if doubled || !c.is_ascii() || matches!(c, '?' | '[') {
            return None;
        }
        bytes.push(case.fold(c) as u8);
    }
    Some(bytes)
}

fn tokens(part: &[PlacedChar], case: GlobCase) -> Result<Vec<GlobToken>, GlobError> {
    let mut tokens = Vec::with_capacity(part.len());
    let mut i = 0;
    while i < part.len() {
        let (at, c) = part[i];
        match c {
            '*' if tokens.last() == Some(&GlobToken::Star) => {
                return Err(GlobError::DoubleStarInName { at: usize::from(at) - 1 });
            }
            '*' => tokens.push(GlobToken::Star),
            '?' => tokens.push(GlobToken::One),
            '[' => {
                let end = class_end(part, i)?;
                tokens.push(class(&part[i + 1..end])?);
                i = end;
            }
            _ => tokens.push(GlobToken::Char(case.fold(c))),
        }
        i += 1;
    }
    Ok(tokens)
}

fn class(inner: &[PlacedChar]) -> Result<GlobToken, GlobError> {
    let negated = matches!(inner.first(), Some((_, '!' | '^'))) && inner.len() > 1;
    let members = if negated { &inner[1..] } else { inner };
    let mut ranges = Vec::new();
    let mut i = 0;
    while i < members.len() {
        let (at, low) = members[i];
        let high = match members.get(i + 1..i + 3) {
            Some([(_, '-'), (_, high)]) => {
                i += 2;
                *high
            }
            _ => low,
        };
        if high < low {
            return Err(GlobError::BadRange { at: usize::from(at) });
        }
        ranges.push((low, high));
        i += 1;
    }
    Ok(GlobToken::Class { ranges, negated })
}
