//! `edit`: replaces a piece of text in a file.

use std::path::PathBuf;

use memchr::memmem::Finder;
use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Tool};
use serde::{Deserialize, Serialize};

use crate::atomic_write::{AtomicWrite, FsyncMode};
use crate::error::ToolError;
use crate::read::{ReadResultBody, must_be_file, read_whole_file};
use crate::text::{is_crlf, to_crlf};
use crate::write::must_fit;
use crate::{FileTools, ToolCall};

/// Parameters of an edit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditParams {
    /// The file.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// The existing text, exactly; it must occur once.
    #[serde(alias = "old_string")]
    pub old: String,
    /// The new text.
    #[serde(alias = "new_string")]
    pub new: String,
    /// True if the text may occur several times, and is replaced everywhere.
    #[serde(default, alias = "replace_all")]
    pub replace_all: bool,
}

impl EditParams {
    /// Replaces a text that occurs once.
    pub fn new(
        path: impl Into<PathBuf>,
        old: impl Into<String>,
        new: impl Into<String>,
    ) -> EditParams {
        EditParams { path: path.into(), old: old.into(), new: new.into(), replace_all: false }
    }
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EditResult {
    /// The path of the file, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// The number of replacements.
    pub replacements: usize,
    /// The line of the first replacement, from 1.
    pub line: usize,
    /// The new size of the file.
    pub size: u64,
}

impl FileTools {
    /// Replaces text in a file. All other bytes stay unchanged.
    pub fn edit(&self, params: &EditParams) -> Result<EditResult, ToolError> {
        let problem = match (params.old.as_str(), params.new.as_str()) {
            ("", _) => Some("the text to replace is empty: use `write` to create a file"),
            (old, new) if old == new => Some("the text to replace equals the new text"),
            _ => None,
        };
        match problem {
            Some(what) => Err(ToolError::Input { what: what.into() }),
            None => self.begin_call(Tool::Edit)?.run_attempts(|call| attempt(call, params)),
        }
    }
}

fn attempt(call: &mut ToolCall<'_>, params: &EditParams) -> Result<EditResult, ToolError> {
    let (snapshot, place) = call.find_existing(&params.path, Operation::Write)?;
    let decision = call.judge(&snapshot, &place, Operation::Write)?;
    let node =
        place.target.as_ref().ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
    must_be_file(node, &place.path)?;
    call.record(Operation::Write, decision)?;
    let before = call.without_capabilities(&snapshot, || {
        read_whole_file(node, &place.path, ReadResultBody::MAX_BYTES)
    })?;
    let change = TextChange::find(&before, params, &place.path)?;
    let size = change.size(&before);
    if size > MAX_SIZE {
        return Err(ToolError::TooLarge {
            path: place.path.clone(),
            size: size as u64,
            limit: MAX_SIZE as u64,
        });
    }
    must_fit(&snapshot, &place.path, size as u64)?;
    let after = change.apply(&before);
    call.without_capabilities(&snapshot, || {
        AtomicWrite { place: &place, content: after.as_slice().into(), sync: FsyncMode::Leave }
            .write()
    })?;
    Ok(EditResult {
        replacements: change.at.len(),
        line: change.line(&before),
        size: after.len() as u64,
        path: place.path,
    })
}

/// The size limit of an edited file: one letter may occur a million times.
const MAX_SIZE: usize = 64 << 20;

/// The positions of a text, and its replacement.
struct TextChange {
    at: Vec<usize>,
    length: usize,
    new: String,
}

impl TextChange {
    fn find(text: &[u8], params: &EditParams, path: &AbsPath) -> Result<TextChange, ToolError> {
        // Agents write LF. In a file with CRLF on every line they mean CRLF: a mixture is never
        // intended.
        let (old, new) = if is_crlf(text) {
            (to_crlf(&params.old), to_crlf(&params.new))
        } else {
            (params.old.clone(), params.new.clone())
        };
        let finder = Finder::new(old.as_bytes());
        let first = finder.find(text).ok_or_else(|| ToolError::NoMatch { path: path.clone() })?;
        // Overlapping occurrences are ambiguous.
        let is_one = finder.find(&text[first + 1..]).is_none();
        let at = if is_one { vec![first] } else { finder.find_iter(text).collect::<Vec<usize>>() };
        if is_one || params.replace_all {
            return Ok(TextChange { at, length: old.len(), new });
        }
        Err(ToolError::Ambiguous { path: path.clone(), count: at.len().max(2) })
    }

    /// The size of the new text.
    fn size(&self, text: &[u8]) -> usize {
        (text.len() - self.at.len() * self.length)
            .saturating_add(self.at.len().saturating_mul(self.new.len()))
    }

    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut after = Vec::with_capacity(self.size(text));
        let mut kept = 0;
        for at in &self.at {
            after.extend_from_slice(&text[kept..*at]);
            after.extend_from_slice(self.new.as_bytes());
            kept = at + self.length;
        }
        after.extend_from_slice(&text[kept..]);
        after
    }

    fn line(&self, text: &[u8]) -> usize {
        1 + self
            .at
            .first()
            .map_or(0, |at| text[..*at].iter().filter(|byte| **byte == b'\n').count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(old: &str, new: &str) -> EditParams {
        EditParams::new("f", old, new)
    }

    #[track_caller]
    fn check(text: &str, params: &EditParams, expect: Result<&str, &str>) {
        let path = AbsPath::root().join("f");
        let done = TextChange::find(text.as_bytes(), params, &path)
            .map(|change| String::from_utf8(change.apply(text.as_bytes())).unwrap());
        assert_eq!(done.as_deref().map_err(ToolError::code), expect);
    }

    #[test]
    fn single_occurrence_is_replaced() {
        check("a b c", &params("b", "x"), Ok("a x c"));
        check("abc", &params("abc", ""), Ok(""));
        check("a b c", &params("d", "x"), Err("no-match"));
        check("a b b", &params("b", "x"), Err("ambiguous"));
        check("aaa", &params("aa", "x"), Err("ambiguous"));
    }

    #[test]
    fn replace_all_replaces_every_occurrence() {
        let all = |old: &str, new: &str| EditParams { replace_all: true, ..params(old, new) };
        check("b a b", &all("b", "bb"), Ok("bb a bb"));
        check("aaaa", &all("aa", "b"), Ok("bb"));
        check("aaa", &all("aa", "b"), Ok("ba"));
        check("x", &all("y", "z"), Err("no-match"));
    }

    #[test]
    fn line_endings_and_byte_order_mark_stay() {
        check("\u{feff}a\r\nb\r\n", &params("a\nb", "c\nd"), Ok("\u{feff}c\r\nd\r\n"));
        check("a\r\nb\r\n", &params("a\r\nb", "c"), Ok("c\r\n"));
        check("a\r\nb\n", &params("b\n", "c\n"), Ok("a\r\nc\n"));
        check("a\r\nb\nx", &params("a\nb", "c"), Err("no-match"));
        check("a\nb", &params("a", "x\r\ny"), Ok("x\r\ny\nb"));
    }

    #[test]
    fn search_time_and_result_size_are_bounded() {
        let text = "a".repeat(8 << 20);
        let path = AbsPath::root();
        for old in ["a".repeat(1 << 20), format!("{}b", "a".repeat(1 << 20))] {
            assert!(TextChange::find(text.as_bytes(), &params(&old, "x"), &path).is_err());
        }
        let all = EditParams { replace_all: true, ..params("a", &"x".repeat(1 << 20)) };
        assert_eq!(
            TextChange::find(text.as_bytes(), &all, &path).unwrap().size(text.as_bytes()),
            8 << 40
        );
    }

    #[test]
    fn reported_line_is_that_of_the_first_occurrence() {
        let text = b"a\nb\nc\nb";
        let change = TextChange::find(
            text,
            &EditParams { replace_all: true, ..params("b", "x") },
            &AbsPath::root(),
        )
        .unwrap();
        assert_eq!((change.line(text), change.at.len()), (2, 2));
    }
}
