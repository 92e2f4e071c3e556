//! What is looked for in a line.

use super::Search;
use super::regex::{Case, Regex};
use crate::error::ToolError;

/// What is looked for in a line.
pub(super) enum Pattern {
    /// A text as it is, which is quicker.
    Text(Vec<u8>),
    /// The same in any case of ASCII letters.
    Folded(Vec<u8>),
    Regex(Regex),
}

impl Pattern {
    pub(super) fn new(wish: &Search) -> Result<Pattern, ToolError> {
        const LONGEST: usize = 4096;
        let text = &wish.pattern;
        if text.is_empty() || text.len() > LONGEST {
            return Err(ToolError::Input { what: format!("the pattern is empty, or longer than {LONGEST} bytes") });
        }
        let is_plain = wish.literal || text.chars().all(|c| c.is_ascii_alphanumeric() || " _-/\"'<>=,;:!@#%&~`".contains(c));
        Ok(match (is_plain, wish.ignore_case) {
            (true, false) => Pattern::Text(text.as_bytes().to_vec()),
            (true, true) => Pattern::Folded(text.as_bytes().to_vec()),
            (false, false) => Pattern::Regex(Regex::new(text, Case::Told)?),
            (false, true) => Pattern::Regex(Regex::new(text, Case::Same)?),
        })
    }

    /// Where it begins in a line.
    pub(super) fn find(&self, line: &[u8]) -> Option<usize> {
        match self {
            Pattern::Text(text) => line.windows(text.len()).position(|part| part == text),
            Pattern::Folded(text) => line.windows(text.len()).position(|part| part.eq_ignore_ascii_case(text)),
            Pattern::Regex(regex) => regex.find(line),
        }
    }
}
