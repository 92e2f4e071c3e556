//! What is looked for in a line.

use crate::error::ToolError;
use crate::search::Search;

/// What is looked for in a line.
pub(super) enum Pattern {
    Text { text: Vec<u8>, ignore_case: bool },
}

impl Pattern {
    pub(super) fn new(wish: &Search) -> Result<Pattern, ToolError> {
        if wish.pattern.is_empty() {
            return Err(ToolError::Input { what: "the pattern is empty".into() });
        }
        Ok(Pattern::Text { text: wish.pattern.as_bytes().to_vec(), ignore_case: wish.ignore_case })
    }

    /// Where it begins in a line.
    pub(super) fn find(&self, line: &[u8]) -> Option<usize> {
        match self {
            Pattern::Text { text, ignore_case: true } => line.windows(text.len()).position(|part| part.eq_ignore_ascii_case(text)),
            Pattern::Text { text, ignore_case: false } => line.windows(text.len()).position(|part| part == text),
        }
    }
}
