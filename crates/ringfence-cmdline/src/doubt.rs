//! `deny` with `doubt = "warn"`: the sandbox confines any line that `deny` lets pass.
//!
//! ringfence refuses a line if one of its parts matches a deny pattern, also after the line's own
//! variables are substituted, or if it has a doubt and all the text of the pattern occurs in the
//! line.

use std::ops::Range;

use super::pattern::{CommandPattern, MatchCertainty};
use super::unwrap::base_name;
use super::word::{ShellWord, UnknownWord, WordPiece};
use super::{ParsedLine, guess, output};

/// Placeholder for unknown text: no literal matches it, `*` does.
const UNKNOWN: char = '\u{1}';

/// A line with its guesses and decoded texts.
pub(super) struct Reading<'a> {
    line: &'a ParsedLine,
    guesses: Vec<ParsedLine>,
    texts: Vec<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(line: &'a ParsedLine) -> Self {
        let guesses = guess::guess_lines(line);
        let mut texts = decoded(&line.text);
        texts.extend(guesses.iter().map(|guess| guess.text.clone()));
        Self { line, guesses, texts }
    }

    /// Returns the position and the reason if `pattern` refuses the line.
    pub(super) fn check_pattern(&self, pattern: &CommandPattern) -> Option<(Range<usize>, String)> {
        let whole = 0..self.line.text.len();
        if let Some((span, shown)) = part_of(self.line, pattern) {
            return Some((span, format!("`{shown}` is denied")));
        }
        if pattern.matches_text(&self.line.text) {
            return Some((whole, "its text matches the pattern".to_owned()));
        }
        if let Some((_, shown)) = self.guesses.iter().find_map(|guess| part_of(guess, pattern)) {
            return Some((whole, format!("it expands to `{shown}`, which is denied")));
        }
        let (span, reason) = self.doubt(pattern)?;
        let is_mentioned = self.texts.iter().any(|text| pattern.is_mentioned(text));
        is_mentioned
            .then(|| (span, format!("it contains the denied text and may run it: {reason}")))
    }

    /// Returns the position and the reason if it is uncertain whether `pattern` applies.
    fn doubt(&self, pattern: &CommandPattern) -> Option<(Range<usize>, String)> {
        let of_part = self.line.parts.iter().find_map(|part| {
            let layer = part
                .layers
                .iter()
                .find(|layer| pattern.matches(&layer.words, MatchCertainty::Possibly))?;
            let word = layer.words.iter().find(|word| word.unknown().is_some())?;
            Some((
                part.span.clone(),
                format!("{} is only known at run time", super::word::display_name(word)),
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

/// The part that matches the deny pattern, with its position.
fn part_of(line: &ParsedLine, pattern: &CommandPattern) -> Option<(Range<usize>, String)> {
    line.parts.iter().find_map(|part| {
        let layer = part.layers.iter().find(|layer| is_hit(&layer.words, pattern))?;
        Some((part.span.clone(), super::word::join_quoted(&layer.words)))
    })
}

fn is_hit(words: &[ShellWord], pattern: &CommandPattern) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let arguments: Vec<ShellWord> =
        arguments.iter().map(|word| without_holes(word, &[UnknownWord::Brace])).collect();
    let called = |program: ShellWord| {
        // A program whose name is fully unknown is a doubt, not a match.
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

/// Keeps only holes of the given kinds; all others become [`UNKNOWN`].
fn without_holes(word: &ShellWord, kept: &[UnknownWord]) -> ShellWord {
    let piece = |piece: &WordPiece| match piece {
        WordPiece::Hole(why) if !kept.contains(why) => WordPiece::Char(UNKNOWN),
        piece => *piece,
    };
    ShellWord { pieces: word.pieces.iter().map(piece).collect(), ..word.clone() }
}

/// The text, the text without quotes, and the decoded strings in it.
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
    // Counts only if the line also names a program that decodes.
    let decodes = ["base64", "xxd", "openssl", "rev", "tr "]
        .iter()
        .any(|program| text.contains(base_name(program)));
    let joined = if decodes { words.join(" ") } else { String::new() };
    vec![text.to_owned(), bare, output::unescaped(text), joined]
}
