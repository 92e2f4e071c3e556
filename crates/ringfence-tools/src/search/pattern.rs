//! What is looked for in a line.

use std::time::Instant;

use memchr::memmem::Finder;

use super::SearchParams;
use super::regex::{RegexCase, RegexVm};
use crate::error::ToolError;

/// What is looked for in a line.
pub(super) enum SearchPattern {
    /// A text as it is, which is quicker.
    Text(Finder<'static>),
    /// The same in any case of ASCII letters: in lower case, as the line is made.
    Folded(Finder<'static>),
    Regex(RegexVm),
}

impl SearchPattern {
    pub(super) fn new(wish: &SearchParams) -> Result<SearchPattern, ToolError> {
        const LONGEST: usize = 4096;
        let text = &wish.pattern;
        if text.is_empty() || text.len() > LONGEST {
            return Err(ToolError::Input {
                what: format!("the pattern is empty, or longer than {LONGEST} bytes"),
            });
        }
        let is_plain = wish.literal
            || text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || " _-/\"'<>=,;:!@#%&~`".contains(c));
        Ok(match (is_plain, wish.ignore_case) {
            (true, false) => SearchPattern::Text(Finder::new(text).into_owned()),
            (true, true) => {
                SearchPattern::Folded(Finder::new(&text.to_ascii_lowercase()).into_owned())
            }
            (false, false) => SearchPattern::Regex(RegexVm::new(text, RegexCase::Told)?),
            (false, true) => SearchPattern::Regex(RegexVm::new(text, RegexCase::Same)?),
        })
    }

    /// Where it begins in a line; nowhere if that is not known by `deadline`.
    pub(super) fn find(&self, line: &[u8], deadline: Instant) -> Option<usize> {
        match self {
            SearchPattern::Text(text) => text.find(line),
            SearchPattern::Folded(text) => text.find(&line.to_ascii_lowercase()),
            SearchPattern::Regex(regex) => regex.find(line, deadline),
        }
    }
}
