//! Arguments that come from a program's input, or from what it finds.

use super::Word;
use super::options;
use super::word::{Piece, Unknown};
use super::wrappers::Wrapper;

/// What `xargs` runs, whose own words end at `at`: arguments come from its input, at the end or
/// where a sign stands for them.
pub(super) fn from_input(words: &[Word], at: usize, xargs: &Wrapper) -> Vec<Word> {
    let span = words[0].span.clone();
    let input = || Word::hole("<input>", span.clone(), Unknown::Input);
    if at >= words.len() {
        return vec![Word::literal_of("echo", span.clone()), input()];
    }
    let mut signs = vec!["{}".to_owned()];
    options::each(&words[..at], xargs.short, xargs.long, &mut |name, value| {
        if matches!(name, "I" | "i" | "replace") && !value.is_empty() {
            signs.push(value.to_owned());
        }
    });
    let replace =
        |word: &Word| signs.iter().fold(word.clone(), |word, sign| with_input(&word, sign));
    words[at..].iter().map(replace).chain([input()]).collect()
}

/// A word in which `sign` stands for input.
pub(super) fn with_input(word: &Word, sign: &str) -> Word {
    let sign: Vec<Piece> = sign.chars().map(Piece::Char).collect();
    let mut pieces = Vec::with_capacity(word.pieces.len());
    let mut rest = word.pieces.as_slice();
    while let Some(first) = rest.first() {
        let is_sign = rest.starts_with(&sign);
        pieces.push(if is_sign { Piece::Hole(Unknown::Input) } else { *first });
        rest = &rest[if is_sign { sign.len() } else { 1 }..];
    }
    Word { pieces, ..word.clone() }
}
