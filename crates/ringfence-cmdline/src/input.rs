//! Arguments that come from standard input (`xargs`) or from found files (`find`).

use super::ShellWord;
use super::options;
use super::word::{UnknownWord, WordPiece};
use super::wrappers::WrapperProgram;

/// The command that `xargs` runs; its own words end at `at`. Arguments from input replace a
/// placeholder or are appended.
pub(super) fn from_input(words: &[ShellWord], at: usize, xargs: &WrapperProgram) -> Vec<ShellWord> {
    let span = words[0].span.clone();
    let input = || ShellWord::hole("<input>", span.clone(), UnknownWord::Input);
    if at >= words.len() {
        return vec![ShellWord::from_literal("echo", span.clone()), input()];
    }
    let mut signs = vec!["{}".to_owned()];
    options::each(&words[..at], xargs.short, xargs.long, &mut |name, value| {
        if matches!(name, "I" | "i" | "replace") && !value.is_empty() {
            signs.push(value.to_owned());
        }
    });
    let replace =
        |word: &ShellWord| signs.iter().fold(word.clone(), |word, sign| with_input(&word, sign));
    words[at..].iter().map(replace).chain([input()]).collect()
}

/// The word with each placeholder `sign` replaced by a hole for input.
pub(super) fn with_input(word: &ShellWord, sign: &str) -> ShellWord {
    let sign: Vec<WordPiece> = sign.chars().map(WordPiece::Char).collect();
    let mut pieces = Vec::with_capacity(word.pieces.len());
    let mut rest = word.pieces.as_slice();
    while let Some(first) = rest.first() {
        let is_sign = rest.starts_with(&sign);
        pieces.push(if is_sign { WordPiece::Hole(UnknownWord::Input) } else { *first });
        rest = &rest[if is_sign { sign.len() } else { 1 }..];
    }
    ShellWord { pieces, ..word.clone() }
}
