//! What is left of a command when assignments and wrappers are taken away, one after the other.

use std::ops::Range;

use super::options::{self, Own};
use super::reader::{Read, Reader};
use super::simple::Simple;
use super::word::{self, Piece, Unknown};
use super::wrappers::{Manner, WRAPPERS};
use super::{Assignment, Layer, Part, Way, Word};

/// How many wrappers may stand one inside the other.
const DEEPEST: usize = 32;
/// Where the system has its programs.
const DIRECTORIES: &[&str] = &["/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/"];

/// The name of a program that is called by name, or by its path in a directory of the system.
pub(super) fn system_name(program: &str) -> Option<&str> {
    let name = DIRECTORIES.iter().find_map(|directory| program.strip_prefix(directory)).unwrap_or(program);
    (!name.contains('/')).then_some(name)
}

/// The last component of a program's path.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// What is inside a wrapper.
enum Inside {
    /// It is none, or it runs nothing.
    Nothing,
    /// This, and what was assigned on the way.
    Command(Layer, Vec<Assignment>),
    /// Something that cannot be known.
    Unknown(Range<usize>),
}

impl Reader<'_> {
    /// Makes a part of a command that was read, and follows what it runs.
    pub(super) fn settle_part(&mut self, simple: Simple) -> Read<()> {
        let Simple { span, mut assignments, words, redirects, documents } = simple;
        let mut layers = vec![Layer { wrapper: String::new(), words, is_plain: true }];
        let mut unknown = None;
        while let Some(last) = layers.last() {
            match inside(last) {
                Inside::Nothing => break,
                Inside::Unknown(span) => {
                    unknown = Some(span);
                    break;
                }
                Inside::Command(layer, assigned) => {
                    layers.push(layer);
                    assignments.extend(assigned);
                }
            }
            if layers.len() > DEEPEST {
                return Err(self.problem("too many wrappers one inside the other"));
            }
        }
        let mut part = Part { span, assignments, layers, redirects, way: self.way };
        part.assignments.extend(declared(part.words()));
        self.add(part.clone())?;
        if let Some(span) = unknown {
            return self.unknown(span, "what its wrapper runs");
        }
        self.deeper()?;
        self.follow(&part, documents)?;
        self.depth -= 1;
        Ok(())
    }

    /// A part of which nothing is known but that it may be there.
    pub(super) fn unknown(&mut self, span: Range<usize>, what: &str) -> Read<()> {
        let word = Word::hole(format!("<{what}>"), span.clone(), Unknown::Input);
        let layers = vec![Layer { wrapper: String::new(), words: vec![word], is_plain: false }];
        self.add(Part { span, assignments: Vec::new(), layers, redirects: Vec::new(), way: Way::Followed })
    }
}

/// What `export NAME=value` and its like assign.
fn declared(words: &[Word]) -> Vec<Assignment> {
    let is_declaring = words.first().and_then(Word::literal).is_some_and(|name| super::variables::DECLARING.contains(&name.as_str()));
    let arguments = if is_declaring { &words[1..] } else { &[] };
    arguments.iter().filter_map(assigned).collect()
}

/// `NAME=value` as an argument.
fn assigned(word: &Word) -> Option<Assignment> {
    let prefix = word.prefix();
    let (name, _) = prefix.split_once('=')?;
    let name = name.trim_end_matches('+');
    Some(Assignment { span: word.span.clone(), name: name.to_owned() })
}

fn inside(layer: &Layer) -> Inside {
    let words = &layer.words;
    let Some(program) = words.first().and_then(Word::literal) else { return Inside::Nothing };
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == base_name(&program)) else { return Inside::Nothing };
    let until = match options::skip(words, wrapper.short, wrapper.long) {
        Own::Until(at) => at,
        Own::RunsNothing => return Inside::Nothing,
        Own::Unknown(at) => return Inside::Unknown(words[at].span.clone()),
    };
    let mut at = until;
    let mut assignments = Vec::new();
    if matches!(wrapper.manner, Manner::Assigning | Manner::ElsewhereAssigning) {
        if wrapper.name == "env" && words.get(at).is_some_and(|word| word.is("-")) {
            at += 1;
        }
        while let Some(assignment) = words.get(at).and_then(assigned) {
            assignments.push(assignment);
            at += 1;
        }
    }
    for _ in 0..wrapper.arguments {
        match words.get(at) {
            None => return Inside::Nothing,
            Some(word) if word.literal().is_none() => return Inside::Unknown(word.span.clone()),
            Some(_) => at += 1,
        }
    }
    if at >= words.len() && wrapper.manner != Manner::Input {
        return Inside::Nothing;
    }
    if wrapper.name == "flock" && words[at].literal().is_none_or(|word| word.starts_with('-')) {
        return Inside::Unknown(words[at].span.clone());
    }
    let is_plain = layer.is_plain && matches!(wrapper.manner, Manner::Same | Manner::Assigning) && system_name(&program).is_some();
    let inner = if wrapper.manner == Manner::Input { from_input(words, at) } else { words[at..].to_vec() };
    let wrapper = word::shown(&words[..at]);
    Inside::Command(Layer { wrapper, words: inner, is_plain }, assignments)
}

/// What `xargs` runs: arguments come from its input, at the end or where a sign stands for them.
fn from_input(words: &[Word], at: usize) -> Vec<Word> {
    let span = words[0].span.clone();
    let input = || Word::hole("<input>", span.clone(), Unknown::Input);
    if at >= words.len() {
        return vec![Word::literal_of("echo", span.clone()), input()];
    }
    let signs = ["{}".to_owned()].into_iter().chain(sign(&words[1..at]));
    let replace = |word: &Word| signs.clone().fold(word.clone(), |word, sign| replaced(&word, &sign));
    words[at..].iter().map(replace).chain([input()]).collect()
}

/// A word in which `sign` stands for input.
fn replaced(word: &Word, sign: &str) -> Word {
    let Some(text) = word.literal() else { return word.clone() };
    let mut pieces = Vec::new();
    for (at, between) in text.split(sign).enumerate() {
        if at > 0 {
            pieces.push(Piece::Hole(Unknown::Input));
        }
        pieces.extend(between.chars().map(Piece::Char));
    }
    Word { pieces, ..word.clone() }
}

/// What stands for the input beside `{}`, by the options of `xargs`: `-I X`, `-iX`, `--replace=X`.
fn sign(options: &[Word]) -> Option<String> {
    let mut words = options.iter().filter_map(Word::literal);
    let mut sign = None;
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            continue;
        }
        let attached = |rest: &str| if rest.is_empty() { "{}".to_owned() } else { rest.to_owned() };
        if let Some(rest) = word.strip_prefix("--replace") {
            sign = Some(attached(rest.trim_start_matches('=')));
        } else if word.starts_with("--") {
            continue;
        } else if let Some((_, rest)) = word.split_once('I') {
            sign = Some(if rest.is_empty() { words.next().unwrap_or_default() } else { rest.to_owned() });
        } else if let Some((_, rest)) = word.split_once('i') {
            sign = Some(attached(rest));
        }
    }
    sign.filter(|sign| !sign.is_empty())
}
