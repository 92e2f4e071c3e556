//! What is left of a command when assignments and wrappers are taken away, one after the other.

use std::ops::Range;

use super::input;
use super::options::{self, WrapperArgs};
use super::reader::{LineReader, ReadResult};
use super::simple::RawCommand;
use super::word::{self, UnknownWord};
use super::wrappers::{WRAPPERS, WrapperManner, WrapperProgram};
use super::{Assignment, ReachedBy, ShellWord, SimpleCommand, UnwrappedCommand};

/// How many wrappers may stand one inside the other.
const DEEPEST: usize = 32;
/// How many words there may be in all layers of a command that has a wrapper.
const MOST_WORDS: usize = 200_000;
/// Where the system has its programs.
const DIRECTORIES: &[&str] =
    &["/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/"];

/// The name of a program that is called by name, or by its path in a directory of the system.
pub(super) fn system_name(program: &str) -> Option<&str> {
    let name =
        DIRECTORIES.iter().find_map(|directory| program.strip_prefix(directory)).unwrap_or(program);
    (!name.contains('/')).then_some(name)
}

/// The last component of a program's path.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// What is inside a wrapper.
enum WrapperContent {
    /// It is none, or it runs nothing.
    Nothing,
    /// This, and what was assigned on the way.
    Command(UnwrappedCommand, Vec<Assignment>),
    /// Something that cannot be known.
    Unknown(Range<usize>),
}

impl LineReader<'_> {
    /// Makes a part of a command that was read, and follows what it runs.
    pub(super) fn settle_part(&mut self, simple: RawCommand) -> ReadResult<()> {
        let RawCommand { span, mut assignments, words, redirects, documents } = simple;
        let mut layers = vec![UnwrappedCommand { wrapper: String::new(), words, is_plain: true }];
        let mut unknown = None;
        while let Some(last) = layers.last() {
            match inside(last) {
                WrapperContent::Nothing => break,
                WrapperContent::Unknown(span) => {
                    unknown = Some(span);
                    break;
                }
                WrapperContent::Command(layer, assigned) => {
                    layers.push(layer);
                    assignments.extend(assigned);
                }
            }
            if layers.len() > DEEPEST
                || layers.iter().map(|layer| layer.words.len()).sum::<usize>() > MOST_WORDS
            {
                return Err(self.problem("too many wrappers one inside the other"));
            }
        }
        let mut part = SimpleCommand { span, assignments, layers, redirects, way: self.way };
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
    pub(super) fn unknown(&mut self, span: Range<usize>, what: &str) -> ReadResult<()> {
        let word = ShellWord::hole(format!("<{what}>"), span.clone(), UnknownWord::Input);
        let layers =
            vec![UnwrappedCommand { wrapper: String::new(), words: vec![word], is_plain: false }];
        self.add(SimpleCommand {
            span,
            assignments: Vec::new(),
            layers,
            redirects: Vec::new(),
            way: ReachedBy::Followed,
        })
    }
}

/// What `export NAME=value` and its like assign.
fn declared(words: &[ShellWord]) -> Vec<Assignment> {
    let is_declaring = words
        .first()
        .and_then(ShellWord::literal)
        .is_some_and(|name| super::variables::DECLARING.contains(&name.as_str()));
    let arguments = if is_declaring { &words[1..] } else { &[] };
    arguments.iter().filter_map(assigned).collect()
}

/// `NAME=value` as an argument.
fn assigned(word: &ShellWord) -> Option<Assignment> {
    let prefix = word.prefix();
    let (name, _) = prefix.split_once('=')?;
    let name = name.trim_end_matches('+');
    Some(Assignment { span: word.span.clone(), name: name.to_owned() })
}

fn inside(layer: &UnwrappedCommand) -> WrapperContent {
    let words = &layer.words;
    let Some(program) = words.first().and_then(ShellWord::literal) else {
        return WrapperContent::Nothing;
    };
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == base_name(&program)) else {
        return WrapperContent::Nothing;
    };
    // What comes before the options.
    let first = usize::from(
        wrapper.name == "setarch"
            && words.get(1).and_then(ShellWord::literal).is_some_and(|word| !word.starts_with('-')),
    );
    let until = match options::skip(&words[first..], wrapper.short, wrapper.long) {
        WrapperArgs::Until(at) => first + at,
        WrapperArgs::RunsNothing => return WrapperContent::Nothing,
        WrapperArgs::Unknown(at) => return WrapperContent::Unknown(words[first + at].span.clone()),
    };
    let mut at = until;
    let mut assignments = Vec::new();
    if matches!(wrapper.manner, WrapperManner::Assigning | WrapperManner::ElsewhereAssigning) {
        if wrapper.name == "env" && words.get(at).is_some_and(|word| word.is("-")) {
            at += 1;
        }
        while let Some(assignment) = words.get(at).and_then(assigned) {
            // A value that is not known may be several words, of which the second is the program.
            if words[at].literal().is_none() {
                return WrapperContent::Unknown(words[at].span.clone());
            }
            assignments.push(assignment);
            at += 1;
        }
    }
    for _ in 0..wrapper.arguments {
        match words.get(at) {
            None => return WrapperContent::Nothing,
            Some(word) if word.literal().is_none_or(|text| !is_argument(wrapper, &text)) => {
                return WrapperContent::Unknown(word.span.clone());
            }
            Some(_) => at += 1,
        }
    }
    if at >= words.len() && wrapper.manner != WrapperManner::Input {
        return WrapperContent::Nothing;
    }
    if wrapper.name == "flock" && words[at].literal().is_none_or(|word| word.starts_with('-')) {
        return WrapperContent::Unknown(words[at].span.clone());
    }
    let is_plain = layer.is_plain
        && matches!(wrapper.manner, WrapperManner::Same | WrapperManner::Assigning)
        && system_name(&program).is_some();
    let inner = if wrapper.manner == WrapperManner::Input {
        input::from_input(words, at, wrapper)
    } else {
        words[at..].to_vec()
    };
    let wrapper = word::shown(&words[..at]);
    WrapperContent::Command(UnwrappedCommand { wrapper, words: inner, is_plain }, assignments)
}

/// Whether this can be what a wrapper wants before the program: some versions of `chrt` want no
/// priority, and what is no number is the program already.
fn is_argument(wrapper: &WrapperProgram, text: &str) -> bool {
    wrapper.name != "chrt" || text.chars().all(|c| c.is_ascii_digit())
}
