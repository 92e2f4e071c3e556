//! Substitutes the variables that a line assigns itself.
//!
//! The result is a guess: it ignores the order of assignments and tries every value that a variable
//! may have. Guesses only add lines for `deny` to check. Allow rules never see them.

use std::collections::BTreeSet;

use super::expand_word::{self, HOLE, SPLIT};
use super::output;
use super::unwrap::base_name;
use super::word::{UnknownWord, WordPiece};
use super::{ParsedLine, ShellWord, SimpleCommand, strings};

/// Maximum number of guessed lines per line.
const MOST_LINES: usize = 200;
/// Maximum number of rounds in which a guess leads to further guesses.
const DEEPEST: usize = 4;
/// Maximum number of value combinations per command.
const MOST_VARIANTS: usize = 32;
/// Shells that run their standard input.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish"];

/// Variables with the words assigned to them.
#[derive(Debug, Default)]
pub(super) struct Values {
    bound: Vec<(String, Vec<String>)>,
}

impl Values {
    /// Every list of words that `name` may hold.
    pub(super) fn lists<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [String]> + 'a {
        self.bound.iter().filter(move |(bound, _)| bound == name).map(|(_, raws)| raws.as_slice())
    }

    fn bind(&mut self, name: &str, raws: Vec<String>) {
        let entry = (name.to_owned(), raws);
        if self.bound.len() < MOST_LINES && !self.bound.contains(&entry) {
            self.bound.push(entry);
        }
    }

    fn learn(&mut self, line: &ParsedLine) {
        for binding in &line.bindings {
            self.bind(&binding.name, binding.raws.clone());
        }
        for part in &line.parts {
            self.learn_part(part, &line.functions);
        }
    }

    /// Records declarations, `read`, `printf -v` and positional parameters.
    fn learn_part(&mut self, part: &SimpleCommand, functions: &[String]) {
        let outer = part.layers.first().map_or(&[][..], |layer| layer.words.as_slice());
        for (name, value) in outer.iter().filter_map(|word| word.raw.split_once('=')) {
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.bind(name, vec![value.to_owned()]);
            }
        }
        let words = part.words();
        let raws =
            |from: usize| words.iter().skip(from).map(|word| word.raw.clone()).collect::<Vec<_>>();
        let Some(program) = words.first().and_then(ShellWord::literal) else { return };
        match base_name(&program) {
            "set" => {
                self.bind_positional(&raws(if words.get(1).is_some_and(|word| word.is("--")) {
                    2
                } else {
                    1
                }))
            }
            "read" => {
                let given = part.redirects.iter().filter(|redirect| redirect.operator == "<<<");
                for text in given.map(|redirect| redirect.target.raw.clone()) {
                    raws(1).iter().for_each(|name| self.bind(name, vec![text.clone()]));
                }
            }
            "printf" if words.get(1).is_some_and(|word| word.is("-v")) => {
                if let Some(name) = words.get(2).and_then(ShellWord::literal) {
                    raws(3).into_iter().for_each(|raw| self.bind(&name, vec![raw]));
                }
            }
            name if SHELLS.contains(&name) => {
                if let Some(at) = words
                    .iter()
                    .position(|word| word.prefix().starts_with('-') && word.prefix().ends_with('c'))
                {
                    raws(at + 2).into_iter().take(1).for_each(|raw| self.bind("0", vec![raw]));
                    self.bind_positional(&raws(at + 3));
                }
            }
            name if functions.iter().any(|function| function == name) => {
                self.bind_positional(&raws(1))
            }
            _ => {}
        }
    }

    fn bind_positional(&mut self, raws: &[String]) {
        for (at, raw) in raws.iter().enumerate() {
            self.bind(&(at + 1).to_string(), vec![raw.clone()]);
        }
        for name in ["@", "*"] {
            self.bind(name, raws.to_vec());
        }
    }
}

/// Lines that `line` may run, with its own variables substituted.
pub(super) fn guess_lines(line: &ParsedLine) -> Vec<ParsedLine> {
    let mut values = Values::default();
    let mut guesses: Vec<ParsedLine> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut current = vec![line.clone()];
    for _ in 0..DEEPEST {
        current.iter().for_each(|line| values.learn(line));
        let mut next = Vec::new();
        for line in &current {
            for guess in from_line(line, &values) {
                if guesses.len() + next.len() < MOST_LINES && seen.insert(guess.text.clone()) {
                    next.push(guess);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        guesses.extend(next.iter().cloned());
        current = next;
    }
    guesses
}

fn from_line(line: &ParsedLine, values: &Values) -> Vec<ParsedLine> {
    let mut guesses = Vec::new();
    for part in &line.parts {
        let words = part.layers.first().map_or(&[][..], |layer| layer.words.as_slice());
        if words.iter().any(|word| word.unknown().is_some()) {
            guesses.extend(
                filled(words, values)
                    .into_iter()
                    .filter_map(|words| ParsedLine::from_words(words).ok()),
            );
        }
        guesses.extend(
            strings::commands(part.words()).iter().filter_map(|text| ParsedLine::parse(text).ok()),
        );
        guesses.extend(here_string_lines(part, values));
    }
    guesses.extend(piped_lines(line, values));
    guesses
}

/// The command with its variables substituted, once per combination of values.
fn filled(words: &[ShellWord], values: &Values) -> Vec<Vec<ShellWord>> {
    let mut variants: Vec<Vec<ShellWord>> = vec![Vec::new()];
    for word in words {
        // Placeholders such as `<input>` have no text to expand.
        let texts = if word.raw.starts_with('<') {
            vec![HOLE.to_string()]
        } else {
            expand_word::texts(&word.raw, values)
        };
        let mut more = Vec::new();
        for (variant, text) in
            variants.iter().flat_map(|variant| texts.iter().map(move |text| (variant, text)))
        {
            if more.len() < MOST_VARIANTS {
                more.push(variant.iter().cloned().chain(fields(text)).collect());
            }
        }
        variants = more;
    }
    variants.retain(|words| words.first().is_some_and(|word| !word.pieces.is_empty()));
    variants
}

fn fields(text: &str) -> impl Iterator<Item = ShellWord> + '_ {
    let is_whole = !text.contains(SPLIT);
    text.split(SPLIT).filter(move |field| is_whole && !field.is_empty() || !field.is_empty()).map(
        |field| {
            let piece = |c: char| {
                if c == HOLE { WordPiece::Hole(UnknownWord::Expansion) } else { WordPiece::Char(c) }
            };
            let word = ShellWord::from_literal(&field.replace(HOLE, "…"), 0..0);
            ShellWord { pieces: field.chars().map(piece).collect(), ..word }
        },
    )
}

/// Lines of a shell that reads a here-string with variables.
fn here_string_lines(part: &SimpleCommand, values: &Values) -> Vec<ParsedLine> {
    let is_shell = part
        .words()
        .first()
        .and_then(ShellWord::literal)
        .is_some_and(|name| SHELLS.contains(&base_name(&name)));
    let given = part.redirects.iter().filter(|redirect| is_shell && redirect.operator == "<<<");
    let texts = given.flat_map(|redirect| expand_word::texts(&redirect.target.raw, values));
    texts.filter_map(|text| ParsedLine::parse(&text.replace([SPLIT, HOLE], " ")).ok()).collect()
}

/// Lines that a pipeline feeds to a shell or to `xargs`.
fn piped_lines(line: &ParsedLine, values: &Values) -> Vec<ParsedLine> {
    let mut guesses = Vec::new();
    for chain in output::pipelines(line) {
        for (at, part) in chain.iter().enumerate().skip(1) {
            let Some(text) = output::pipeline_output(&chain[..at], values) else { continue };
            let words = part.words();
            let Some(program) = words.first().and_then(ShellWord::literal) else { continue };
            if SHELLS.contains(&base_name(&program))
                || matches!(base_name(&program), "source" | ".")
            {
                guesses.extend(ParsedLine::parse(&text).ok());
            }
            if part.layers.len() > 1
                && words.last().is_some_and(|word| word.unknown() == Some(UnknownWord::Input))
            {
                let given = text.split_whitespace().map(|word| ShellWord::from_literal(word, 0..0));
                let words = words[..words.len() - 1].iter().cloned().chain(given).collect();
                guesses.extend(ParsedLine::from_words(words).ok());
            }
        }
    }
    guesses
}
