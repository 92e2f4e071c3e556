//! `edit`: replaces a piece of text in a file.

use std::path::PathBuf;

use memchr::memmem::Finder;
use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Tool};
use serde::{Deserialize, Serialize};

use crate::atomic_write::{AtomicWrite, FsyncMode};
use crate::error::ToolError;
use crate::read::{ReadResultBody, must_be_file, whole};
use crate::text::{is_crlf, to_crlf};
use crate::write::must_fit;
use crate::{FileTools, ToolCall};

/// What is to be changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditParams {
    /// In which file.
    #[serde(alias = "file_path")]
    pub path: PathBuf,
    /// The text that is there, exactly; it must stand there once.
    #[serde(alias = "old_string")]
    pub old: String,
    /// What is to stand there instead.
    #[serde(alias = "new_string")]
    pub new: String,
    /// Whether it may stand there several times, and is replaced everywhere.
    #[serde(default, alias = "replace_all")]
    pub replace_all: bool,
}

impl EditParams {
    /// A piece of text that stands in a file once, and what is to stand there instead.
    pub fn new(
        path: impl Into<PathBuf>,
        old: impl Into<String>,
        new: impl Into<String>,
    ) -> EditParams {
        EditParams { path: path.into(), old: old.into(), new: new.into(), replace_all: false }
    }
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EditResult {
    /// Where the file is, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// How often the text was replaced.
    pub replacements: usize,
    /// The line in which the first one begins, from 1.
    pub line: usize,
    /// How large the file is now.
    pub size: u64,
}

impl FileTools {
    /// Replaces a piece of text in a file. Everything else in it stays as it is, byte by byte.
    pub fn edit(&self, wish: &EditParams) -> Result<EditResult, ToolError> {
        let problem = match (wish.old.as_str(), wish.new.as_str()) {
            ("", _) => Some("the text to be replaced is empty: use `write` to make a file"),
            (old, new) if old == new => Some("the text to be replaced is the same as the new one"),
            _ => None,
        };
        match problem {
            Some(what) => Err(ToolError::Input { what: what.into() }),
            None => self.errand(Tool::Edit)?.carry_out(|errand| attempt(errand, wish)),
        }
    }
}

fn attempt(errand: &mut ToolCall<'_>, wish: &EditParams) -> Result<EditResult, ToolError> {
    let (ground, place) = errand.found(&wish.path, Operation::Write)?;
    let decision = errand.judge(&ground, &place, Operation::Write)?;
    let node =
        place.there.as_ref().ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
    must_be_file(node, &place.path)?;
    errand.record(Operation::Write, decision)?;
    let before = errand.plainly(&ground, || whole(node, &place.path, ReadResultBody::MOST))?;
    let change = TextChange::find(&before, wish, &place.path)?;
    let size = change.size(&before);
    if size > LARGEST {
        return Err(ToolError::TooLarge {
            path: place.path.clone(),
            size: size as u64,
            limit: LARGEST as u64,
        });
    }
    must_fit(&ground, &place.path, size as u64)?;
    let after = change.apply(&before);
    errand.plainly(&ground, || {
        AtomicWrite { place: &place, content: after.as_slice().into(), sync: FsyncMode::Leave }
            .make()
    })?;
    Ok(EditResult {
        replacements: change.at.len(),
        line: change.line(&before),
        size: after.len() as u64,
        path: place.path,
    })
}

/// No edit makes a file larger than this: a letter can stand in one a million times.
const LARGEST: usize = 64 << 20;

/// Where a piece of text stands, and what comes in its place.
struct TextChange {
    at: Vec<usize>,
    length: usize,
    new: String,
}

impl TextChange {
    fn find(text: &[u8], wish: &EditParams, path: &AbsPath) -> Result<TextChange, ToolError> {
        // Agents write line feeds. In a file whose lines all end as Windows has it they mean
        // that, and a mixture would be nobody's wish.
        let (old, new) = if is_crlf(text) {
            (to_crlf(&wish.old), to_crlf(&wish.new))
        } else {
            (wish.old.clone(), wish.new.clone())
        };
        let finder = Finder::new(old.as_bytes());
        let first = finder.find(text).ok_or_else(|| ToolError::NoMatch { path: path.clone() })?;
        // Pieces that overlap are several, and which one is meant cannot be known.
        let is_one = finder.find(&text[first + 1..]).is_none();
        let at = if is_one { vec![first] } else { finder.find_iter(text).collect::<Vec<usize>>() };
        if is_one || wish.replace_all {
            return Ok(TextChange { at, length: old.len(), new });
        }
        Err(ToolError::Ambiguous { path: path.clone(), count: at.len().max(2) })
    }

    /// How large the text will be.
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

    fn wish(old: &str, new: &str) -> EditParams {
        EditParams::new("f", old, new)
    }

    #[track_caller]
    fn check(text: &str, wish: &EditParams, expect: Result<&str, &str>) {
        let path = AbsPath::root().join("f");
        let done = TextChange::find(text.as_bytes(), wish, &path)
            .map(|change| String::from_utf8(change.apply(text.as_bytes())).unwrap());
        assert_eq!(done.as_deref().map_err(ToolError::code), expect);
    }

    #[test]
    fn a_piece_that_stands_there_once_is_replaced() {
        check("a b c", &wish("b", "x"), Ok("a x c"));
        check("abc", &wish("abc", ""), Ok(""));
        check("a b c", &wish("d", "x"), Err("no-match"));
        check("a b b", &wish("b", "x"), Err("ambiguous"));
        check("aaa", &wish("aa", "x"), Err("ambiguous"));
    }

    #[test]
    fn all_are_replaced_where_that_is_asked_for() {
        let all = |old: &str, new: &str| EditParams { replace_all: true, ..wish(old, new) };
        check("b a b", &all("b", "bb"), Ok("bb a bb"));
        check("aaaa", &all("aa", "b"), Ok("bb"));
        check("aaa", &all("aa", "b"), Ok("ba"));
        check("x", &all("y", "z"), Err("no-match"));
    }

    #[test]
    fn line_ends_and_byte_order_mark_stay() {
        check("\u{feff}a\r\nb\r\n", &wish("a\nb", "c\nd"), Ok("\u{feff}c\r\nd\r\n"));
        check("a\r\nb\r\n", &wish("a\r\nb", "c"), Ok("c\r\n"));
        check("a\r\nb\n", &wish("b\n", "c\n"), Ok("a\r\nc\n"));
        check("a\r\nb\nx", &wish("a\nb", "c"), Err("no-match"));
        check("a\nb", &wish("a", "x\r\ny"), Ok("x\r\ny\nb"));
    }

    #[test]
    fn no_piece_takes_for_ever_and_no_text_grows_without_end() {
        let text = "a".repeat(8 << 20);
        let path = AbsPath::root();
        for old in ["a".repeat(1 << 20), format!("{}b", "a".repeat(1 << 20))] {
            assert!(TextChange::find(text.as_bytes(), &wish(&old, "x"), &path).is_err());
        }
        let all = EditParams { replace_all: true, ..wish("a", &"x".repeat(1 << 20)) };
        assert_eq!(
            TextChange::find(text.as_bytes(), &all, &path).unwrap().size(text.as_bytes()),
            8 << 40
        );
    }

    #[test]
    fn the_line_is_that_of_the_first() {
        let text = b"a\nb\nc\nb";
        let change = TextChange::find(
            text,
            &EditParams { replace_all: true, ..wish("b", "x") },
            &AbsPath::root(),
        )
        .unwrap();
        assert_eq!((change.line(text), change.at.len()), (2, 2));
    }
}
