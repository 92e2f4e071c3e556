//! Globs over paths: parsing, and matching that stays linear in the path.
//!
//! An own matcher instead of a regex engine: a policy has some thirty globs and is
//! compiled at each start, where building automata would cost more than the whole
//! rest of the policy.

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
/// `*` and `?` stay within a component, `**` is a whole component and stands for any
/// number of them, `[a-z]`, `[!a]` and `{a,b}` work as in a shell. A glob without `/`
/// matches the last component at any depth.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "GlobText", into = "GlobText")]
pub struct Glob {
    written: GlobText,
    alternatives: Vec<Vec<GlobSegment>>,
}

/// Whether upper and lower case are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GlobCase {
    /// `A` is not `a`.
    #[default]
    Sensitive,
    /// `A` is `a`.
    Insensitive,
}

/// What the last component alone says about a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameMatch {
    /// No path that ends with this name matches.
    No,
    /// It depends on the directories.
    Perhaps,
    /// Every path that ends with this name matches.
    Yes,
}

/// Why a text is not a glob; `at` is the byte position of the fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum GlobError {
    #[error("the glob is empty")]
    Empty,
    #[error("the glob holds a NUL byte at position {at}")]
    Nul { at: usize },
    #[error("the glob is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("`[` at position {at} is never closed")]
    UnclosedClass { at: usize },
    #[error("`{{` at position {at} is never closed")]
    UnclosedBrace { at: usize },
    #[error("`**` at position {at} is not a whole component")]
    DoubleStarInName { at: usize },
    #[error("the range at position {at} runs backwards")]
    BadRange { at: usize },
    #[error("the braces stand for more than {limit} alternatives")]
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

    /// What to write instead.
    pub fn hint(&self) -> &'static str {
        match self {
            GlobError::Empty => "write a path or a glob such as `**/.env`",
            GlobError::Nul { .. } => "remove the NUL byte: no path can hold one",
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

    /// Byte position of the fault in the glob, where there is one.
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
    /// A text that begins with `/` is absolute, one without `/` or with `**/` in front
    /// holds everywhere, any other is relative to `anchor`. Whoever knows the home
    /// directory has replaced `~` before.
    pub fn new(text: &str, anchor: Option<&AbsPath>, case: GlobCase) -> Result<Self, GlobError> {
        let written = GlobText { text: text.to_owned(), anchor: anchor.cloned(), case };
        Self::try_from(written)
    }

    /// `text` as a glob that matches exactly `text`.
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

    /// Whether `text` holds a character that is special in globs.
    pub fn is_glob(text: &str) -> bool {
        text.contains(is_special)
    }

    /// The glob as it was written.
    pub fn text(&self) -> &str {
        &self.written.text
    }

    /// Whether the whole path matches.
    pub fn matches(&self, path: &AbsPath) -> bool {
        self.matches_components(&components(path))
    }

    /// Whether the path or a directory above it matches.
    pub fn covers(&self, path: &AbsPath) -> bool {
        let parts = components(path);
        (0..=parts.len()).any(|depth| self.matches_components(&parts[..depth]))
    }

    /// What the last component alone says: for scanning trees without building paths.
    pub fn matches_name(&self, name: &OsStr) -> NameMatch {
        let name = name.as_encoded_bytes();
        self.alternatives
            .iter()
            .map(|segments| segment::match_name(segments, name))
            .max()
            .unwrap_or(NameMatch::No)
    }

    /// Whether it holds at any depth, whatever stands above.
    pub(crate) fn floats(&self) -> bool {
        self.alternatives.iter().all(|segments| segments.first() == Some(&GlobSegment::AnyDepth))
    }

    /// As [`Glob::matches`], on a path already split.
    pub(crate) fn matches_components(&self, parts: &[&[u8]]) -> bool {
        self.alternatives.iter().any(|segments| segment::match_path(segments, parts))
    }

    /// The shapes of the last component, one for each alternative.
    pub(crate) fn name_shapes(&self) -> impl Iterator<Item = NameShape> + '_ {
        self.alternatives.iter().map(|segments| NameShape::of(segments.last()))
    }
}

/// The path's components without the root.
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

/// What a glob is made from, and all of it that is ever stored.
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
