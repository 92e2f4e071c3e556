//! Expands a word with the values that its line assigns to variables.

use super::guess::Values;
use super::{decode, output};

/// Placeholder for unknown text.
pub(super) const HOLE: char = '\u{1}';
/// Marks a position where the shell splits a text into words.
pub(super) const SPLIT: char = '\0';
/// Maximum number of texts per word.
const MOST_TEXTS: usize = 32;
/// Maximum depth of values that refer to each other.
const DEEPEST: usize = 6;
/// Maximum length of an expanded text.
const LONGEST: usize = 16 * 1024;

/// Quoting, which decides the word splitting of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Bare,
    Double,
}

/// All texts that a word may expand to.
pub(super) fn texts(raw: &str, values: &Values) -> Vec<String> {
    Expander { values, depth: 0 }.word(raw, Quotes::Bare)
}

struct Expander<'a> {
    values: &'a Values,
    depth: usize,
}

impl Expander<'_> {
    fn deeper(&self) -> Option<Self> {
        (self.depth < DEEPEST).then_some(Self { values: self.values, depth: self.depth + 1 })
    }

    fn word(&self, raw: &str, quotes: Quotes) -> Vec<String> {
        let mut texts = vec![String::new()];
        let mut quotes = quotes;
        let mut rest = raw;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            let (found, left) = match c {
                '\'' if quotes == Quotes::Bare => {
                    let end = after.find('\'').unwrap_or(after.len());
                    (vec![after[..end].to_owned()], after.get(end + 1..).unwrap_or(""))
                }
                '"' => {
                    quotes = if quotes == Quotes::Bare { Quotes::Double } else { Quotes::Bare };
                    (vec![String::new()], after)
                }
                '\\' => {
                    let next = after.chars().next();
                    (
                        vec![next.map(String::from).unwrap_or_default()],
                        &after[next.map_or(0, char::len_utf8)..],
                    )
                }
                '$' => self.dollar(after, quotes),
                '`' => {
                    let end = after.find('`').unwrap_or(after.len());
                    (self.output(&after[..end], quotes), after.get(end + 1..).unwrap_or(""))
                }
                _ => (vec![c.to_string()], after),
            };
            texts = combined(&texts, &found);
            rest = left;
        }
        texts
    }

    /// Expands after a dollar sign. Returns the texts and the rest of the word.
    fn dollar<'r>(&self, rest: &'r str, quotes: Quotes) -> (Vec<String>, &'r str) {
        let name_length =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        match rest.chars().next() {
            Some('\'') if quotes == Quotes::Bare => match decode::escapes(&rest[1..]) {
                Ok((text, length)) => (vec![text], &rest[1 + length..]),
                Err(_) => (vec![HOLE.to_string()], ""),
            },
            Some('(') => {
                let end = closing(rest, '(', ')');
                (self.output(&rest[1..end], quotes), rest.get(end + 1..).unwrap_or(""))
            }
            Some('{') => {
                let end = closing(rest, '{', '}');
                (self.parameter(&rest[1..end], quotes), rest.get(end + 1..).unwrap_or(""))
            }
            Some(c) if "@*#?$!-".contains(c) || c.is_ascii_digit() => {
                (self.value(&rest[..1], quotes), &rest[1..])
            }
            Some(_) if name_length > 0 => {
                (self.value(&rest[..name_length], quotes), &rest[name_length..])
            }
            _ => (vec!["$".to_owned()], rest),
        }
    }

    /// Output of a command substitution.
    fn output(&self, line: &str, quotes: Quotes) -> Vec<String> {
        match output::line_output(line, self.values) {
            Some(text) => vec![self.split(&text, quotes)],
            None => vec![HOLE.to_string()],
        }
    }

    /// Values of a variable. A variable that the line does not set may be empty.
    fn value(&self, name: &str, quotes: Quotes) -> Vec<String> {
        let mut texts = Vec::new();
        let joint = if quotes == Quotes::Bare || name == "@" { SPLIT } else { ' ' };
        if let Some(inner) = self.deeper() {
            for raws in self.values.lists(name) {
                let mut lists = vec![String::new()];
                for (at, raw) in raws.iter().enumerate() {
                    let before = if at > 0 { joint.to_string() } else { String::new() };
                    let words: Vec<String> = inner
                        .word(raw, Quotes::Bare)
                        .iter()
                        .map(|text| before.clone() + &self.split(text, quotes))
                        .collect();
                    lists = combined(&lists, &words);
                }
                texts.extend(lists);
            }
        }
        if texts.is_empty() && name == "IFS" {
            return vec![self.split(" ", quotes)];
        }
        if texts.is_empty() {
            texts = vec![HOLE.to_string(), String::new()];
        }
        texts.truncate(MOST_TEXTS);
        texts
    }

    /// Marks the positions where the shell splits a value.
    fn split(&self, text: &str, quotes: Quotes) -> String {
        if quotes == Quotes::Double {
            return text.replace(SPLIT, " ");
        }
        let separators: String = self
            .values
            .lists("IFS")
            .flatten()
            .flat_map(|raw| raw.chars())
            .filter(|c| !"'\"$\\".contains(*c))
            .collect();
        text.chars()
            .map(|c| if c.is_whitespace() || separators.contains(c) { SPLIT } else { c })
            .collect()
    }

    /// Expands the content of `${…}`.
    fn parameter(&self, text: &str, quotes: Quotes) -> Vec<String> {
        let (is_indirect, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text));
        let end =
            text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let end = if end == 0 { text.chars().next().map_or(0, char::len_utf8) } else { end };
        let (name, mut operator) = text.split_at(end);
        let mut item = None;
        let mut is_list = name == "@";
        if let Some((subscript, after)) =
            operator.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        {
            item = subscript.parse::<usize>().ok();
            is_list |= subscript == "@";
            operator = after;
        }
        // The shell applies the operator before it splits the value, except for a list, whose items
        // are words.
        let before = if is_list { Quotes::Bare } else { Quotes::Double };
        let values = match item {
            Some(at) => self.item(name, at, before),
            None if is_indirect => self
                .value(name, before)
                .iter()
                .flat_map(|inner| self.value(inner, before))
                .collect(),
            None => self.value(name, before),
        };
        let after = if is_list { Quotes::Bare } else { quotes };
        self.changed(values, operator, quotes)
            .iter()
            .map(|value| self.split(value, after))
            .collect()
    }

    fn item(&self, name: &str, at: usize, quotes: Quotes) -> Vec<String> {
        let Some(inner) = self.deeper() else { return vec![HOLE.to_string()] };
        let items = self.values.lists(name).filter_map(|raws| raws.get(at));
        let texts: Vec<String> = items
            .flat_map(|raw| inner.word(raw, Quotes::Bare))
            .map(|text| self.split(&text, quotes))
            .collect();
        if texts.is_empty() { vec![HOLE.to_string(), String::new()] } else { texts }
    }

    /// Applies the operator of `${name…}`.
    fn changed(&self, values: Vec<String>, operator: &str, quotes: Quotes) -> Vec<String> {
        let Some(inner) = self.deeper() else { return values };
        let each =
            |change: &dyn Fn(&str) -> String| values.iter().map(|value| change(value)).collect();
        let bare = operator.strip_prefix(':').unwrap_or(operator);
        match bare.chars().next() {
            None => values,
            Some('-' | '=' | '+') => {
                let given = inner
                    .word(&bare[1..], quotes)
                    .into_iter()
                    .map(|text| self.split(&text, quotes));
                given.chain(values.iter().cloned()).take(MOST_TEXTS).collect()
            }
            Some(',') => each(&|value| value.to_lowercase()),
            Some('^') => each(&|value| value.to_uppercase()),
            Some('/') => {
                let pattern = bare.trim_start_matches('/');
                let (from, to) = pattern.split_once('/').unwrap_or((pattern, ""));
                if from.is_empty() { values } else { each(&|value| value.replace(from, to)) }
            }
            Some('#') => each(&|value| {
                value.strip_prefix(bare.trim_start_matches('#')).unwrap_or(value).to_owned()
            }),
            Some('%') => each(&|value| {
                value.strip_suffix(bare.trim_start_matches('%')).unwrap_or(value).to_owned()
            }),
            Some(c) if c.is_ascii_digit() && operator.starts_with(':') => {
                let (offset, length) = bare.split_once(':').unwrap_or((bare, ""));
                let (offset, length) =
                    (offset.parse().unwrap_or(0), length.parse().unwrap_or(usize::MAX));
                each(&|value| value.chars().skip(offset).take(length).collect())
            }
            Some(_) => values,
        }
    }
}

/// Concatenates every text with every continuation.
fn combined(texts: &[String], found: &[String]) -> Vec<String> {
    let pairs = texts.iter().flat_map(|text| found.iter().map(move |more| (text, more)));
    pairs
        .take(MOST_TEXTS)
        .map(|(text, more)| {
            if text.len() + more.len() > LONGEST {
                HOLE.to_string()
            } else {
                format!("{text}{more}")
            }
        })
        .collect()
}

/// Offset of the bracket that closes the first one, or the end of the text.
fn closing(text: &str, open: char, close: char) -> usize {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match (c, quote) {
            _ if is_escaped => is_escaped = false,
            ('\\', None | Some('"')) => is_escaped = true,
            (c, Some(mark)) if c == mark => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            (c, None) if c == open => depth += 1,
            (c, None) if c == close => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}
