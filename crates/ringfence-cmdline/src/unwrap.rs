//! Removes assignments and wrappers from a command, one after the other.

use std::ops::Range;

use super::input;
use super::options::{self, WrapperArgs};
use super::reader::{LineReader, ReadResult};
use super::simple::RawCommand;
use super::word::{self, UnknownWord};
use super::wrappers::{WRAPPERS, WrapperManner, WrapperProgram};
use super::{Assignment, ReachedBy, ShellWord, SimpleCommand, UnwrappedCommand};

/// Maximum number of nested wrappers.
const DEEPEST: usize = 32;
/// Maximum number of words in all layers of a wrapped command.
const MOST_WORDS: usize = 200_000;
/// System directories of programs.
const DIRECTORIES: &[&str] =
    &["/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/"];

/// Name of a program called by name, or by its path in a system directory.
pub(super) fn system_name(program: &str) -> Option<&str> {
    let name =
        DIRECTORIES.iter().find_map(|directory| program.strip_prefix(directory)).unwrap_or(program);
    (!name.contains('/')).then_some(name)
}

/// The last component of a program's path.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Content of a wrapper.
enum WrapperContent {
    /// No wrapper, or a wrapper that runs nothing.
    Nothing,
    /// The wrapped command, and the assignments in front of it.
    Command(UnwrappedCommand, Vec<Assignment>),
    /// An unknown command.
    Unknown(Range<usize>),
}

impl LineReader<'_> {
    /// Adds a parsed command as a part and follows the commands that it runs.
    pub(super) fn add_part(&mut self, simple: RawCommand) -> ReadResult<()> {
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
                return Err(self.problem("too many nested wrappers"));
            }
        }
        let mut part = SimpleCommand { span, assignments, layers, redirects, reached_by: self.way };
        part.assignments.extend(declared(part.words()));
        self.add(part.clone())?;
        if let Some(span) = unknown {
            return self.add_unknown(span, "the command of its wrapper");
        }
        self.enter_level()?;
        self.follow(&part, documents)?;
        self.depth -= 1;
        Ok(())
    }

    /// Adds a placeholder part for a command that is not known.
    pub(super) fn add_unknown(&mut self, span: Range<usize>, what: &str) -> ReadResult<()> {
        let word = ShellWord::hole(format!("<{what}>"), span.clone(), UnknownWord::Input);
        let layers =
            vec![UnwrappedCommand { wrapper: String::new(), words: vec![word], is_plain: false }];
        self.add(SimpleCommand {
            span,
            assignments: Vec::new(),
            layers,
            redirects: Vec::new(),
            reached_by: ReachedBy::Followed,
        })
    }
}

/// Assignments of `export NAME=value` and similar builtins.
fn declared(words: &[ShellWord]) -> Vec<Assignment> {
    let is_declaring = words
        .first()
        .and_then(ShellWord::literal)
        .is_some_and(|name| super::variables::DECLARING.contains(&name.as_str()));
    let arguments = if is_declaring { &words[1..] } else { &[] };
    arguments.iter().filter_map(assigned).collect()
}

/// Parses an argument `NAME=value`.
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
    // Arguments before the options.
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
            // An unknown value may expand to several words, and the second would be the program.
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
    let wrapper = word::join_quoted(&words[..at]);
    WrapperContent::Command(UnwrappedCommand { wrapper, words: inner, is_plain }, assignments)
}

/// True if this can be the argument that a wrapper takes before the program. Some versions of
/// `chrt` take no priority, so a word that is no number is already the program.
fn is_argument(wrapper: &WrapperProgram, text: &str) -> bool {
    wrapper.name != "chrt" || text.chars().all(|c| c.is_ascii_digit())
}
