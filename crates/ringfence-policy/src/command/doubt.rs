//! `deny` where doubt does not refuse: the sandbox holds whatever the line turns out to be.
//!
//! A line is refused if a part of it is what is denied, also after its own variables are put in,
//! or if it has a doubt and everything that the pattern says is written somewhere in it.

use std::ops::Range;

use super::pattern::{CommandPattern, MatchCertainty};
use super::unwrap::base_name;
use super::word::{ShellWord, UnknownWord, WordPiece};
use super::{ParsedLine, guess, output};

/// Stands for what is not known: no pattern names it, and `*` matches it.
const UNKNOWN: char = '\u{1}';

/// A line with all that can be told of it.
pub(super) struct Reading<'a> {
    line: &'a ParsedLine,
    guesses: Vec<ParsedLine>,
    texts: Vec<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(line: &'a ParsedLine) -> Self {
        let guesses = guess::lines(line);
        let mut texts = decoded(&line.text);
        texts.extend(guesses.iter().map(|guess| guess.text.clone()));
        Self { line, guesses, texts }
    }

    /// Where and why `pattern` refuses the line.
    pub(super) fn refused(&self, pattern: &CommandPattern) -> Option<(Range<usize>, String)> {
        let whole = 0..self.line.text.len();
        if let Some((span, shown)) = part_of(self.line, pattern) {
            return Some((span, format!("`{shown}` is denied")));
        }
        if pattern.matches_text(&self.line.text) {
            return Some((whole, "it reads like what is denied".to_owned()));
        }
        if let Some((_, shown)) = self.guesses.iter().find_map(|guess| part_of(guess, pattern)) {
            return Some((whole, format!("it comes to `{shown}`, which is denied")));
        }
        let (span, reason) = self.doubt(pattern)?;
        let is_mentioned = self.texts.iter().any(|text| pattern.is_mentioned(text));
        is_mentioned
            .then(|| (span, format!("it may run what is denied, which is written in it: {reason}")))
    }

    /// Why it cannot be told whether `pattern` applies.
    fn doubt(&self, pattern: &CommandPattern) -> Option<(Range<usize>, String)> {
        let of_part = self.line.parts.iter().find_map(|part| {
            let layer = part
                .layers
                .iter()
                .find(|layer| pattern.matches(&layer.words, MatchCertainty::Possibly))?;
            let word = layer.words.iter().find(|word| word.unknown().is_some())?;
            Some((
                part.span.clone(),
                format!("{} is not known before it runs", super::word::named(word)),
            ))
        });
        let of_line = || {
            self.line
                .doubts
                .first()
                .map(|doubt| (doubt.position..doubt.position, doubt.reason.clone()))
        };
        of_part.or_else(of_line)
    }
}

/// The part that is what is denied, and where it stands.
fn part_of(line: &ParsedLine, pattern: &CommandPattern) -> Option<(Range<usize>, String)> {
    line.parts.iter().find_map(|part| {
        let layer = part.layers.iter().find(|layer| is_hit(&layer.words, pattern))?;
        Some((part.span.clone(), super::word::shown(&layer.words)))
    })
}

fn is_hit(words: &[ShellWord], pattern: &CommandPattern) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let arguments: Vec<ShellWord> =
        arguments.iter().map(|word| without_holes(word, &[UnknownWord::Brace])).collect();
    let called = |program: ShellWord| {
        // A program whose name is all unknown is a doubt, and no hit.
        let name = program.after_slash();
        let is_named =
            name.pieces.iter().any(|piece| matches!(piece, WordPiece::Char(c) if *c != UNKNOWN));
        let is_spelled = is_named
            || name.unknown() == Some(UnknownWord::Brace)
            || program.prefix().contains('/');
        is_spelled
            && pattern.matches(
                &[program].into_iter().chain(arguments.iter().cloned()).collect::<Vec<_>>(),
                MatchCertainty::Possibly,
            )
    };
    let program = without_holes(program, &[UnknownWord::Brace, UnknownWord::Glob]);
    program.has_slash() && called(program.after_slash()) || called(program)
}

/// A word in which only the holes of these kinds may be anything.
fn without_holes(word: &ShellWord, kept: &[UnknownWord]) -> ShellWord {
    let piece = |piece: &WordPiece| match piece {
        WordPiece::Hole(why) if !kept.contains(why) => WordPiece::Char(UNKNOWN),
        piece => *piece,
    };
    ShellWord { pieces: word.pieces.iter().map(piece).collect(), ..word.clone() }
}

/// The text, the text without quotes, and what is encoded in it.
fn decoded(text: &str) -> Vec<String> {
    let bare: String = text.chars().filter(|c| !"'\"\\".contains(*c)).collect();
    let is_code = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c);
    let codes = text.split(|c| !is_code(c)).filter(|word| word.len() >= 4);
    let words: Vec<String> = codes
        .flat_map(|word| {
            [output::base64(word), output::hexadecimal(word), Some(word.chars().rev().collect())]
        })
        .flatten()
        .filter(|word| word.chars().all(|c| !c.is_control() || c.is_whitespace()))
        .collect();
    // A program that decodes is needed as well.
    let decodes = ["base64", "xxd", "openssl", "rev", "tr "]
        .iter()
        .any(|program| text.contains(base_name(program)));
    let joined = if decodes { words.join(" ") } else { String::new() };
    vec![text.to_owned(), bare, output::unescaped(text), joined]
}
