//! Lines of a text, counted from 1.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// Lines of a text, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRange {
    /// The first line, from 1.
    pub start: u64,
    /// The last line; `None` for the end of the text.
    pub end: Option<u64>,
}

impl LineRange {
    /// Refuses an empty or invalid range, for a text of `total` lines.
    pub(crate) fn check(self, total: u64) -> Result<(), StoreError> {
        let end = self.end.unwrap_or(u64::MAX);
        if self.start == 0 || end < self.start { Err(self.none_of(total)) } else { Ok(()) }
    }

    pub(crate) fn none_of(self, total: u64) -> StoreError {
        StoreError::Lines { start: self.start, end: self.end.unwrap_or(total), total }
    }

    pub(crate) fn has(self, line: u64) -> bool {
        line >= self.start && self.end.is_none_or(|end| line <= end)
    }
}

/// The number of lines, with an unterminated last line.
pub(crate) fn count(text: &str) -> u64 {
    text.split_inclusive('\n').count() as u64
}

/// Replaces lines by `new`. The line after the last one appends.
///
/// The new text gets the line endings of the old text, and ends with one unless it becomes the last
/// line of a text without one.
pub(crate) fn replace(text: &str, range: LineRange, new: &str) -> Result<String, StoreError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let total = lines.len() as u64;
    range.check(total)?;
    if range.start > total + 1 {
        return Err(range.none_of(total));
    }
    let end = range.end.unwrap_or(total).min(total);
    let (before, rest) = lines.split_at(range.start as usize - 1);
    let (old, after) = rest.split_at((end + 1).saturating_sub(range.start) as usize);
    let ending =
        if lines.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" };
    let mut new = if ending == "\r\n" {
        new.replace("\r\n", "\n").replace('\n', "\r\n")
    } else {
        new.to_owned()
    };
    let was_ended = old.last().or(before.last()).is_none_or(|line| line.ends_with('\n'));
    if !new.is_empty()
        && !new.ends_with('\n')
        && (!after.is_empty() || (was_ended && !text.is_empty()))
    {
        new.push_str(ending);
    }
    let mut whole = before.concat();
    if !new.is_empty() && !whole.is_empty() && !whole.ends_with('\n') {
        whole.push_str(ending);
    }
    whole.push_str(&new);
    whole.push_str(&after.concat());
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, start: u64, end: Option<u64>, new: &str, expect: &str) {
        assert_eq!(
            replace(text, LineRange { start, end }, new).unwrap(),
            expect,
            "{text:?} {start} {end:?} {new:?}"
        );
    }

    #[test]
    fn selected_lines_are_replaced_and_others_stay() {
        check("a\nb\nc\n", 2, Some(2), "x", "a\nx\nc\n");
        check("a\nb\nc\n", 2, Some(2), "x\ny\n", "a\nx\ny\nc\n");
        check("a\nb\nc\n", 1, None, "x\n", "x\n");
        check("a\nb\nc\n", 2, Some(99), "", "a\n");
        check("a\nb\nc", 3, Some(3), "x", "a\nb\nx");
        check("a\nb\nc", 2, Some(2), "x", "a\nx\nc");
        check("a\r\nb\r\n", 2, Some(2), "x\ny", "a\r\nx\r\ny\r\n");
        check("a\nb\n", 3, None, "c", "a\nb\nc\n");
        check("a\nb", 3, Some(3), "c", "a\nb\nc");
        check("", 1, None, "a", "a");
        check("", 1, Some(1), "a\n", "a\n");
    }

    #[test]
    fn lines_out_of_range_are_an_error() {
        for (start, end) in [(0, None), (4, None), (2, Some(1)), (0, Some(0))] {
            let error = replace("a\nb\n", LineRange { start, end }, "x").unwrap_err();
            assert_eq!(error.code(), "lines", "{start} {end:?}");
        }
    }

    proptest! {
        #[test]
        fn lines_outside_the_range_stay(lines in prop::collection::vec("[a-c]{0,3}", 1..8), start in 1u64..9, length in 0u64..4, new in "[x\n]{0,5}") {
            let text = lines.join("\n");
            let range = LineRange { start, end: Some(start + length) };
            let total = count(&text);
            match replace(&text, range, &new) {
                Err(_) => prop_assert!(start > total + 1),
                Ok(whole) => {
                    let old: Vec<&str> = text.split_inclusive('\n').collect();
                    let before: String = old.iter().take(start as usize - 1).copied().collect();
                    let after: String = old.iter().skip((start + length) as usize).copied().collect();
                    prop_assert!(whole.starts_with(&before));
                    prop_assert!(whole.ends_with(&after));
                }
            }
        }
    }
}
