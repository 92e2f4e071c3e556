//! The pattern of a search.

use std::time::Instant;

use memchr::memmem::Finder;

use super::SearchParams;
use super::regex::{RegexCase, RegexVm};
use crate::error::ToolError;

/// The pattern of a search.
pub(super) enum SearchPattern {
    /// Plain text, which is faster.
    Text(Finder<'static>),
    /// Plain text in lower case, for lines converted to lower case (ASCII only).
    Folded(Finder<'static>),
    Regex(RegexVm),
}

impl SearchPattern {
    pub(super) fn new(params: &SearchParams) -> Result<SearchPattern, ToolError> {
        const MAX_LENGTH: usize = 4096;
        let text = &params.pattern;
        if text.is_empty() || text.len() > MAX_LENGTH {
            return Err(ToolError::Input {
                what: format!("the pattern is empty or longer than {MAX_LENGTH} bytes"),
            });
        }
        let is_plain = params.literal
            || text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || " _-/\"'<>=,;:!@#%&~`".contains(c));
        Ok(match (is_plain, params.ignore_case) {
            (true, false) => SearchPattern::Text(Finder::new(text).into_owned()),
            (true, true) => {
                SearchPattern::Folded(Finder::new(&text.to_ascii_lowercase()).into_owned())
            }
            (false, false) => SearchPattern::Regex(RegexVm::new(text, RegexCase::Sensitive)?),
            (false, true) => SearchPattern::Regex(RegexVm::new(text, RegexCase::Insensitive)?),
        })
    }

    /// The position of the match in a line; `None` also after `deadline`.
    pub(super) fn find(&self, line: &[u8], deadline: Instant) -> Option<usize> {
        match self {
            SearchPattern::Text(text) => text.find(line),
            SearchPattern::Folded(text) => text.find(&line.to_ascii_lowercase()),
            SearchPattern::Regex(regex) => regex.find(line, deadline),
        }
    }
}
