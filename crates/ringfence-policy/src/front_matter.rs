//! Front matter: the part between two lines of `---` at the top of a Markdown file.
//!
//! The syntax is YAML, with an own parser: real agent files contain descriptions that are not valid
//! YAML (colons, quotes, whole dialogues), and the programs they were written for accept them. Keys
//! with an effect are parsed strictly, and an ambiguous value is an error with its position. The
//! value of any other key that cannot be parsed is kept as raw text.

mod value;

use crate::error::{PolicyError, SourcePosition};
use crate::path::AbsPath;

/// The front matter of a Markdown file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontMatter {
    /// Entries in the order of the file, without duplicate keys.
    pub entries: Vec<FrontMatterEntry>,
    /// The text after the front matter.
    pub body: String,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontMatterEntry {
    /// The key without quotes.
    pub key: String,
    /// Line and column of the key, both from 1.
    pub at: (u32, u32),
    /// The value.
    pub value: FrontMatterValue,
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontMatterValue {
    /// Line and column, both from 1.
    pub at: (u32, u32),
    /// The content.
    pub kind: FrontMatterKind,
}

/// Content of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrontMatterKind {
    /// No value.
    Nothing,
    /// A text, quoted or not. Numbers and booleans are texts, too.
    Text(String),
    /// `[a, b]`, or lines with dashes.
    List(Vec<FrontMatterValue>),
    /// Lines with nested keys.
    Map(Vec<FrontMatterEntry>),
    /// A value that could not be parsed, of a key without strict parsing.
    Raw(String),
}

/// Maximum length of the front matter, in bytes. No real file is longer.
const LONGEST: usize = 1 << 18;

/// Position and description of an error in a value.
pub(crate) type FrontMatterFault = ((u32, u32), String);

/// One line without its line break.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontMatterRow<'a> {
    pub(crate) number: u32,
    /// Number of characters of the line before `text`.
    pub(crate) before: u32,
    pub(crate) text: &'a str,
}

impl<'a> FrontMatterRow<'a> {
    /// Indentation of the line.
    pub(crate) fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start_matches(' ').len()
    }

    pub(crate) fn is_blank(&self) -> bool {
        let text = self.text.trim();
        text.is_empty() || text.starts_with('#')
    }

    /// The row from the byte `offset` on.
    pub(crate) fn from(&self, offset: usize) -> FrontMatterRow<'a> {
        let before = self.text[..offset].chars().count();
        FrontMatterRow {
            number: self.number,
            before: self.before + u32::try_from(before).unwrap_or(0),
            text: &self.text[offset..],
        }
    }

    pub(crate) fn at(&self) -> (u32, u32) {
        (self.number, self.before + 1)
    }
}

impl FrontMatter {
    /// Parses the front matter of `text`. The keys in `strict` are parsed strictly.
    pub fn parse(text: &str, file: &AbsPath, strict: &[&str]) -> Result<FrontMatter, PolicyError> {
        let fail = |(at, what): FrontMatterFault| {
            let at =
                SourcePosition { file: Some(file.clone()), line: Some(at.0), column: Some(at.1) };
            PolicyError::FrontMatter { at, what }
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rows: Vec<FrontMatterRow<'_>> = Vec::new();
        let mut offset = 0;
        let mut end = None;
        for (i, line) in text.split_inclusive('\n').enumerate() {
            offset += line.len();
            let plain = line.trim_end_matches(['\n', '\r']);
            let is_fence = plain.trim_end() == "---";
            if i == 0 && !is_fence {
                break;
            }
            if i > 0 && is_fence {
                end = Some(offset);
                break;
            }
            if offset > LONGEST {
                return Err(fail(((1, 1), "the front matter is longer than 256 KiB".into())));
            }
            rows.push(FrontMatterRow {
                number: u32::try_from(i + 1).unwrap_or(u32::MAX),
                before: 0,
                text: plain,
            });
        }
        let Some(end) = end else {
            let what = if rows.is_empty() {
                "the file does not begin with `---`"
            } else {
                "the front matter that begins here has no end"
            };
            return Err(fail((
                (1, 1),
                format!("{what}: write the keys between two lines of `---`"),
            )));
        };
        let entries = entries(&rows[1..], FrontMatterRules { strict, depth: 0 }).map_err(fail)?;
        Ok(FrontMatter { entries, body: text[end..].to_owned() })
    }

    /// The entry with this key.
    pub fn get(&self, key: &str) -> Option<&FrontMatterEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// The strict keys, and the nesting depth.
#[derive(Clone, Copy)]
pub(crate) struct FrontMatterRules<'a> {
    pub(crate) strict: &'a [&'a str],
    pub(crate) depth: u32,
}

impl FrontMatterRules<'_> {
    /// True if the value of this key is parsed strictly. Inside a strict value everything is
    /// strict.
    fn is_strict(&self, key: &str) -> bool {
        self.depth > 0 || self.strict.contains(&key)
    }
}

/// Groups rows by key: each key with the rows that belong to it.
pub(crate) fn entries(
    rows: &[FrontMatterRow<'_>],
    rules: FrontMatterRules<'_>,
) -> Result<Vec<FrontMatterEntry>, FrontMatterFault> {
    let mut entries: Vec<FrontMatterEntry> = Vec::new();
    let mut next = 0;
    while next < rows.len() {
        let row = rows[next];
        if row.is_blank() {
            next += 1;
            continue;
        }
        let (key, value) = key(row)?;
        let is_strict = rules.is_strict(&key);
        let more =
            rows[next + 1..].iter().take_while(|row| continues_value(row, is_strict)).count();
        let below = &rows[next + 1..=next + more];
        if let Some(first) = entries.iter().find(|entry| entry.key == key) {
            return Err((row.at(), format!("`{key}` is already set in line {}", first.at.0)));
        }
        let read = value::read(value, below, rules.depth);
        let value = match read {
            Ok(value) => value,
            Err(fault) if is_strict => return Err(fault),
            Err(_) => {
                FrontMatterValue { at: value.at(), kind: FrontMatterKind::Raw(raw(value, below)) }
            }
        };
        entries.push(FrontMatterEntry { key, at: row.at(), value });
        next += more + 1;
    }
    Ok(entries)
}

/// True if a row continues the previous value. Unindented prose continues a text that is not
/// strict.
fn continues_value(row: &FrontMatterRow<'_>, is_strict: bool) -> bool {
    let is_indented = row.text.starts_with([' ', '\t']);
    is_indented
        || row.text.trim().is_empty()
        || row.text.starts_with(['#', ']'])
        || is_item(row.text)
        || (!is_strict && key(*row).is_err())
}

/// True if the text is a list item.
pub(crate) fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// The key of a row, and the text after the colon.
fn key<'a>(row: FrontMatterRow<'a>) -> Result<(String, FrontMatterRow<'a>), FrontMatterFault> {
    let wrong = || (row.at(), "expected a line such as `key: value`".to_owned());
    let quote = row.text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let (key, rest) = match quote {
        Some(quote) => {
            let close = row.text[1..].find(quote).ok_or_else(wrong)? + 1;
            (&row.text[1..close], close + 1)
        }
        None => {
            let end = row.text.find(|c: char| !is_of_key(c)).ok_or_else(wrong)?;
            (&row.text[..end], end)
        }
    };
    let blank = row.text[rest..].len() - row.text[rest..].trim_start_matches(' ').len();
    let colon = rest + blank;
    let behind = row.text[colon..].strip_prefix(':').ok_or_else(wrong)?;
    if key.is_empty()
        || !key.chars().all(is_of_key)
        || !(behind.is_empty() || behind.starts_with([' ', '\t']))
    {
        return Err(wrong());
    }
    let value = colon + 1 + behind.len() - behind.trim_start().len();
    Ok((key.to_owned(), row.from(value)))
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn raw(first: FrontMatterRow<'_>, below: &[FrontMatterRow<'_>]) -> String {
    let mut lines = vec![first.text];
    lines.extend(below.iter().map(|row| row.text));
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests;
