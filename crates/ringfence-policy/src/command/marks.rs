//! What braces and patterns leave open in a word.

use std::ops::Range;

use super::word::{Piece, Raw, Unknown};

/// Marks what braces and patterns leave open.
pub(super) fn expanded(raws: &[Raw]) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(raws.len());
    let mut at = 0;
    let brace = brace_expansion(raws);
    let last = raws.iter().rposition(|raw| *raw == Raw::Bare(']')).unwrap_or(0);
    while at < raws.len() {
        match raws[at] {
            Raw::Bare('{') if brace.as_ref().is_some_and(|brace| brace.start == at) => {
                pieces.push(Piece::Hole(Unknown::Brace));
                at = brace.as_ref().map_or(at, |brace| brace.end - 1);
            }
            Raw::Bare('*' | '?') => pieces.push(Piece::Hole(Unknown::Glob)),
            Raw::Bare('[') if last > at => {
                pieces.push(Piece::Hole(Unknown::Glob));
                at = last;
            }
            Raw::Bare(c) | Raw::Quoted(c) => pieces.push(Piece::Char(c)),
            Raw::Hole(why) => pieces.push(Piece::Hole(why)),
            Raw::Nothing => {}
        }
        at += 1;
    }
    pieces
}

/// From the first brace to the last, if a shell might make several words of what is in between.
fn brace_expansion(raws: &[Raw]) -> Option<Range<usize>> {
    let start = raws.iter().position(|raw| *raw == Raw::Bare('{'))?;
    let end = raws.iter().rposition(|raw| *raw == Raw::Bare('}')).filter(|end| *end > start)?;
    let inside = &raws[start..end];
    let has_list = inside.contains(&Raw::Bare(','));
    let has_range = inside.windows(2).any(|pair| pair == [Raw::Bare('.'), Raw::Bare('.')]);
    (has_list || has_range).then_some(start..end + 1)
}
