//! Braces and globs in a word.

use std::ops::Range;

use super::word::{RawChar, UnknownWord, WordPiece};

/// Replaces braces and globs with holes.
pub(super) fn expanded(raws: &[RawChar]) -> Vec<WordPiece> {
    let mut pieces = Vec::with_capacity(raws.len());
    let mut at = 0;
    let brace = brace_expansion(raws);
    let last = raws.iter().rposition(|raw| *raw == RawChar::Bare(']')).unwrap_or(0);
    while at < raws.len() {
        match raws[at] {
            RawChar::Bare('{') if brace.as_ref().is_some_and(|brace| brace.start == at) => {
                pieces.push(WordPiece::Hole(UnknownWord::Brace));
                at = brace.as_ref().map_or(at, |brace| brace.end - 1);
            }
            RawChar::Bare('*' | '?') => pieces.push(WordPiece::Hole(UnknownWord::Glob)),
            RawChar::Bare('[') if last > at => {
                pieces.push(WordPiece::Hole(UnknownWord::Glob));
                at = last;
            }
            RawChar::Bare(c) | RawChar::Quoted(c) => pieces.push(WordPiece::Char(c)),
            RawChar::Hole(why) => pieces.push(WordPiece::Hole(why)),
            RawChar::Nothing => {}
        }
        at += 1;
    }
    pieces
}

/// Range from the first brace to the last, if a shell may expand it to several words.
fn brace_expansion(raws: &[RawChar]) -> Option<Range<usize>> {
    let start = raws.iter().position(|raw| *raw == RawChar::Bare('{'))?;
    let end = raws.iter().rposition(|raw| *raw == RawChar::Bare('}')).filter(|end| *end > start)?;
    let inside = &raws[start..end];
    let has_list = inside.contains(&RawChar::Bare(','));
    let has_range = inside.windows(2).any(|pair| pair == [RawChar::Bare('.'), RawChar::Bare('.')]);
    (has_list || has_range).then_some(start..end + 1)
}
