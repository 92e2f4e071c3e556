//! Globs over paths: parser, and a matcher that is linear in the path.
//!
//! An own matcher instead of a regex engine: a policy has some thirty globs and is compiled at each
//! start, where building automata would cost more than the whole rest of the policy.

mod compile;
mod segment;

use std::ffi::OsStr;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::path::AbsPath;
use segment::GlobSegment;
pub(crate) use segment::NameShape;

/// A compiled glob.
///
/// `*` and `?` match within a component, `**` is a whole component and matches any number of them,
/// `[a-z]`, `[!a]` and `{a,b}` work as in a shell. A glob without `/` matches the last component at
/// any depth.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "GlobText", into = "GlobText")]
pub struct Glob {
    written: GlobText,
    alternatives: Vec<Vec<GlobSegment>>,
}

/// Case sensitivity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GlobCase {
    /// `A` does not match `a`.
    #[default]
    Sensitive,
    /// `A` matches `a`.
    Insensitive,
}

/// Result of matching the last component alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameMatch {
    /// No path with this last component matches.
    No,
    /// The result depends on the directories.
    Perhaps,
    /// Every path with this last component matches.
    Yes,
}

/// Reason for which a text is no glob; `at` is the byte offset of the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum GlobError {
    #[error("the glob is empty")]
    Empty,
    #[error("the glob contains a NUL byte at position {at}")]
    Nul { at: usize },
    #[error("the glob is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("`[` at position {at} is never closed")]
    UnclosedClass { at: usize },
    #[error("`{{` at position {at} is never closed")]
    UnclosedBrace { at: usize },
    #[error("`**` at position {at} is not a whole component")]
    DoubleStarInName { at: usize },
    #[error("the range at position {at} is reversed")]
    BadRange { at: usize },
    #[error("the braces expand to more than {limit} alternatives")]
    TooManyAlternatives { limit: usize },
    #[error("`..` at position {at} cannot be matched")]
    ParentComponent { at: usize },
    #[error("the glob is relative, but there is no directory it could be relative to")]
    NoAnchor,
}

impl GlobError {
    /// A stable word for this error.
    pub fn code(&self) -> &'static str {
        match self {
            GlobError::Empty => "glob-empty",
            GlobError::Nul { .. } => "glob-nul",
            GlobError::TooLong { .. } => "glob-too-long",
            GlobError::UnclosedClass { .. } => "glob-unclosed-class",
            GlobError::UnclosedBrace { .. } => "glob-unclosed-brace",
            GlobError::DoubleStarInName { .. } => "glob-double-star",
            GlobError::BadRange { .. } => "glob-bad-range",
            GlobError::TooManyAlternatives { .. } => "glob-too-many-alternatives",
            GlobError::ParentComponent { .. } => "glob-parent",
            GlobError::NoAnchor => "glob-no-anchor",
        }
    }

    /// A hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            GlobError::Empty => "write a path or a glob such as `**/.env`",
            GlobError::Nul { .. } => "remove the NUL byte: no path can contain one",
            GlobError::TooLong { .. } | GlobError::TooManyAlternatives { .. } => {
                "split it into several entries"
            }
            GlobError::UnclosedClass { .. } => {
                "close it with `]`, or write `[[]` for the character"
            }
            GlobError::UnclosedBrace { .. } => {
                "close it with `}`, or write `[{]` for the character"
            }
            GlobError::DoubleStarInName { .. } => {
                "write `a*b` within a name, `a/**/b` across directories"
            }
            GlobError::BadRange { .. } => "write the smaller character first, as in `[a-z]`",
            GlobError::ParentComponent { .. } => "write the path without `..`",
            GlobError::NoAnchor => "begin it with `/` or `**/`",
        }
    }

    /// Byte offset of the error in the glob, if there is one.
    pub fn position(&self) -> Option<usize> {
        match *self {
            GlobError::Nul { at }
            | GlobError::UnclosedClass { at }
            | GlobError::UnclosedBrace { at }
            | GlobError::DoubleStarInName { at }
            | GlobError::ParentComponent { at }
            | GlobError::BadRange { at } => Some(at),
            GlobError::Empty
            | GlobError::TooLong { .. }
            | GlobError::TooManyAlternatives { .. }
            | GlobError::NoAnchor => None,
        }
    }
}

impl Glob {
    /// Compiles `text`.
    ///
    /// A text that begins with `/` is absolute. A text without `/`, or that begins with `**/`,
    /// applies everywhere. Any other text is relative to `anchor`. The caller must expand `~`
    /// first.
    pub fn new(text: &str, anchor: Option<&AbsPath>, case: GlobCase) -> Result<Self, GlobError> {
        let written = GlobText { text: text.to_owned(), anchor: anchor.cloned(), case };
        Self::try_from(written)
    }

    /// A glob that matches exactly `text`.
    pub fn escape(text: &str) -> String {
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            if is_special(c) {
                escaped.extend(['[', c, ']']);
            } else {
                escaped.push(c);
            }
        }
        escaped
    }

    /// True if `text` contains a glob character.
    pub fn is_glob(text: &str) -> bool {
        text.contains(is_special)
    }

    /// The glob as written.
    pub fn text(&self) -> &str {
        &self.written.text
    }

    /// True if the whole path matches.
    pub fn matches(&self, path: &AbsPath) -> bool {
        self.matches_components(&components(path))
    }

    /// True if the path or one of its parents matches.
    pub fn covers(&self, path: &AbsPath) -> bool {
        let parts = components(path);
        (0..=parts.len()).any(|depth| self.matches_components(&parts[..depth]))
    }

    /// Matches the last component alone: for scans that do not build paths.
    pub fn matches_name(&self, name: &OsStr) -> NameMatch {
        let name = name.as_encoded_bytes();
        self.alternatives
            .iter()
            .map(|segments| segment::match_name(segments, name))
            .max()
            .unwrap_or(NameMatch::No)
    }

    /// True if the glob applies at any depth.
    pub(crate) fn applies_at_any_depth(&self) -> bool {
        self.alternatives.iter().all(|segments| segments.first() == Some(&GlobSegment::AnyDepth))
    }

    /// Like [`Glob::matches`], on a path that is already split.
    pub(crate) fn matches_components(&self, parts: &[&[u8]]) -> bool {
        self.alternatives.iter().any(|segments| segment::match_path(segments, parts))
    }

    /// The shapes of the last component, one per alternative.
    pub(crate) fn name_shapes(&self) -> impl Iterator<Item = NameShape> + '_ {
        self.alternatives.iter().map(|segments| NameShape::from_segment(segments.last()))
    }
}

/// The components of the path without the root.
pub(crate) fn components(path: &AbsPath) -> Vec<&[u8]> {
    path.as_bytes().split(|&b| b == b'/').filter(|part| !part.is_empty()).collect()
}

fn is_special(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | '{')
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written.text)
    }
}

/// The serialized form of a glob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct GlobText {
    text: String,
    anchor: Option<AbsPath>,
    case: GlobCase,
}

impl TryFrom<GlobText> for Glob {
    type Error = GlobError;

    fn try_from(written: GlobText) -> Result<Self, GlobError> {
        let alternatives = compile::compile(&written.text, written.anchor.as_ref(), written.case)?;
        Ok(Self { written, alternatives })
    }
}

impl From<Glob> for GlobText {
    fn from(glob: Glob) -> Self {
        glob.written
    }
}

#[cfg(test)]
mod tests;
