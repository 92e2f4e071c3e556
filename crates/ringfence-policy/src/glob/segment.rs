//! Matches one component, and a sequence of components.

use super::{GlobCase, NameMatch};

/// One component of a glob.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GlobSegment {
    /// `**`: any number of components, including none.
    AnyDepth,
    /// A component of the anchor: matches its exact bytes.
    Exact(Vec<u8>),
    /// ASCII characters and `*`, the most common case: matched byte by byte.
    Plain {
        /// Folded if case is ignored.
        bytes: Vec<u8>,
        /// Case sensitivity.
        case: GlobCase,
    },
    /// Plain characters, then one of many endings. Expanded, a list of file types would dominate
    /// the compile time of a policy.
    Endings {
        /// As in `Plain`.
        stem: Vec<u8>,
        /// Endings, separated by commas.
        endings: Vec<u8>,
        /// Case sensitivity.
        case: GlobCase,
    },
    /// A component with other wildcards.
    Name {
        /// Pieces of the component.
        tokens: Vec<GlobToken>,
        /// Case sensitivity.
        case: GlobCase,
    },
}

/// One piece of a component.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GlobToken {
    /// This character, folded if case is ignored.
    Char(char),
    /// `?`
    One,
    /// `*`
    Star,
    /// `[a-z]`
    Class {
        /// Inclusive ranges.
        ranges: Vec<(char, char)>,
        /// `[!…]`
        negated: bool,
    },
}

/// Shape of the last component, for lookup instead of matching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameShape {
    /// Exactly this, folded.
    Literal(Vec<u8>),
    /// Begins with this, folded.
    Prefix(Vec<u8>),
    /// Ends with this, folded.
    Suffix(Vec<u8>),
    /// Contains this, folded.
    Contains(Vec<u8>),
    /// Needs matching.
    Other,
    /// Every name.
    Anything,
}

impl GlobCase {
    /// Folds `c` for comparison. One character stays one: a multi-character lower case keeps the
    /// first.
    pub(crate) fn fold(self, c: char) -> char {
        match self {
            GlobCase::Sensitive => c,
            GlobCase::Insensitive if c.is_ascii() => c.to_ascii_lowercase(),
            GlobCase::Insensitive => c.to_lowercase().next().unwrap_or(c),
        }
    }
}

impl GlobSegment {
    fn matches(&self, name: &[u8]) -> bool {
        match self {
            GlobSegment::AnyDepth => true,
            GlobSegment::Exact(bytes) => bytes == name,
            GlobSegment::Plain { bytes, case: GlobCase::Sensitive } => {
                match_plain(bytes, name, |byte| byte)
            }
            GlobSegment::Plain { bytes, .. } if name.is_ascii() => {
                match_plain(bytes, name, |byte| byte.to_ascii_lowercase())
            }
            GlobSegment::Plain { bytes, .. } => match_plain(bytes, &fold_name(name), |byte| byte),
            GlobSegment::Endings { stem, endings, case: GlobCase::Sensitive } => {
                match_endings(stem, endings, name)
            }
            GlobSegment::Endings { stem, endings, .. } => {
                match_endings(stem, endings, &fold_name(name))
            }
            GlobSegment::Name { tokens, case } => match_tokens(tokens, name, *case),
        }
    }
}

/// True if the whole sequence of components matches.
///
/// Backtracking to the last `**` is enough: an earlier one could not do better with fewer
/// components. The cost is at most the product of both lengths.
pub(crate) fn match_path(segments: &[GlobSegment], parts: &[&[u8]]) -> bool {
    // Most globs reject most names, and then the directories do not matter.
    match (segments, parts) {
        ([GlobSegment::AnyDepth, last], [.., name]) if *last != GlobSegment::AnyDepth => {
            return last.matches(name);
        }
        ([.., last], [.., name]) if !last.matches(name) => return false,
        _ => {}
    }
    let (mut s, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while p < parts.len() {
        match segments.get(s) {
            Some(GlobSegment::AnyDepth) => {
                // A trailing `**` matches paths below the directory, not the directory itself.
                if s + 1 == segments.len() {
                    return true;
                }
                retry = Some((s + 1, p));
                s += 1;
                continue;
            }
            Some(segment) if segment.matches(parts[p]) => {
                s += 1;
                p += 1;
                continue;
            }
            _ => {}
        }
        match retry {
            Some((after, from)) => {
                retry = Some((after, from + 1));
                s = after;
                p = from + 1;
            }
            None => return false,
        }
    }
    s == segments.len()
}

/// Matches the last component of a path.
pub(crate) fn match_name(segments: &[GlobSegment], name: &[u8]) -> NameMatch {
    match segments {
        [GlobSegment::AnyDepth] => NameMatch::Yes,
        [GlobSegment::AnyDepth, last] if last.matches(name) => NameMatch::Yes,
        [.., last] if last.matches(name) => NameMatch::Perhaps,
        _ => NameMatch::No,
    }
}

/// Matches characters and `*` against bytes.
fn match_plain(pattern: &[u8], name: &[u8], fold: impl Fn(u8) -> u8) -> bool {
    let same = |pattern: &[u8], name: &[u8]| {
        pattern.iter().zip(name).all(|(&want, &have)| want == fold(have))
    };
    let Some(first) = pattern.iter().position(|&byte| byte == b'*') else {
        return pattern.len() == name.len() && same(pattern, name);
    };
    let last = pattern.iter().rposition(|&byte| byte == b'*').unwrap_or(first);
    let (head, tail) = (&pattern[..first], &pattern[last + 1..]);
    if name.len() < head.len() + tail.len()
        || !same(head, name)
        || !same(tail, &name[name.len() - tail.len()..])
    {
        return false;
    }
    // Between the ends, the leftmost match of each piece is always sufficient.
    let mut rest = &name[head.len()..name.len() - tail.len()];
    pattern[first..=last].split(|&byte| byte == b'*').filter(|piece| !piece.is_empty()).all(
        |piece| {
            let found = rest.windows(piece.len()).position(|window| same(piece, window));
            rest = found.map_or(&[], |at| &rest[at + piece.len()..]);
            found.is_some()
        },
    )
}

fn match_endings(stem: &[u8], endings: &[u8], name: &[u8]) -> bool {
    endings
        .split(|&byte| byte == b',')
        .filter_map(|ending| name.strip_suffix(ending))
        .any(|rest| match_plain(stem, rest, |byte| byte))
}

/// The name in lower case; invalid bytes stay unchanged.
fn fold_name(name: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(name.len());
    let mut at = 0;
    while at < name.len() {
        let (c, width) = decode(&name[at..]);
        match c {
            Some(c) => folded.extend_from_slice(
                GlobCase::Insensitive.fold(c).encode_utf8(&mut [0; 4]).as_bytes(),
            ),
            None => folded.push(name[at]),
        }
        at += width;
    }
    folded
}

fn match_tokens(tokens: &[GlobToken], name: &[u8], case: GlobCase) -> bool {
    let (mut t, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        let (c, width) = decode(&name[n..]);
        match tokens.get(t) {
            Some(GlobToken::Star) => {
                if t + 1 == tokens.len() {
                    return true;
                }
                retry = Some((t + 1, n));
                t += 1;
                continue;
            }
            Some(token) if token.matches(c, case) => {
                t += 1;
                n += width;
                continue;
            }
            _ => {}
        }
        match retry {
            Some((after, from)) => {
                let next = from + decode(&name[from..]).1;
                retry = Some((after, next));
                t = after;
                n = next;
            }
            None => return false,
        }
    }
    tokens[t..].iter().all(|token| *token == GlobToken::Star)
}

impl GlobToken {
    /// `None` is an invalid byte: only wildcards match it.
    fn matches(&self, c: Option<char>, case: GlobCase) -> bool {
        match (self, c) {
            (GlobToken::One | GlobToken::Star, _) => true,
            (GlobToken::Char(want), Some(have)) => case.fold(have) == *want,
            (GlobToken::Class { ranges, negated }, Some(have)) => {
                in_ranges(ranges, have, case) != *negated
            }
            (GlobToken::Class { negated, .. }, None) => *negated,
            (GlobToken::Char(_), None) => false,
        }
    }
}

fn in_ranges(ranges: &[(char, char)], c: char, case: GlobCase) -> bool {
    let within = |c: char| ranges.iter().any(|&(low, high)| low <= c && c <= high);
    match case {
        GlobCase::Sensitive => within(c),
        GlobCase::Insensitive => {
            within(c) || c.to_lowercase().any(within) || c.to_uppercase().any(within)
        }
    }
}

/// The first character and its width; `None` for a byte that is not UTF-8.
fn decode(bytes: &[u8]) -> (Option<char>, usize) {
    let first = bytes[0];
    if first < 0x80 {
        return (Some(char::from(first)), 1);
    }
    let width = match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return (None, 1),
    };
    let text = bytes.get(..width).and_then(|head| std::str::from_utf8(head).ok());
    match text.and_then(|text| text.chars().next()) {
        Some(c) => (Some(c), width),
        None => (None, 1),
    }
}

impl NameShape {
    pub(crate) fn from_segment(last: Option<&GlobSegment>) -> Self {
        let bytes = match last {
            None | Some(GlobSegment::AnyDepth) => return NameShape::Anything,
            Some(GlobSegment::Name { .. } | GlobSegment::Endings { .. }) => {
                return NameShape::Other;
            }
            Some(GlobSegment::Exact(bytes)) => {
                return NameShape::Literal(bytes.to_ascii_lowercase());
            }
            Some(GlobSegment::Plain { bytes, .. }) => bytes.to_ascii_lowercase(),
        };
        let inner_star = |text: &[u8]| text.contains(&b'*');
        match bytes.as_slice() {
            [b'*'] => NameShape::Anything,
            [b'*', text @ .., b'*'] if !inner_star(text) => NameShape::Contains(text.to_vec()),
            [b'*', text @ ..] if !inner_star(text) => NameShape::Suffix(text.to_vec()),
            [text @ .., b'*'] if !inner_star(text) => NameShape::Prefix(text.to_vec()),
            text if !inner_star(text) => NameShape::Literal(text.to_vec()),
            _ => NameShape::Other,
        }
    }
}
