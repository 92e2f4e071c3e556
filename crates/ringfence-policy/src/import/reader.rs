//! Typed access to a foreign document, with positions for errors.

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use super::ImportError;

/// A table of the document with its path from the top level.
#[derive(Clone, Copy)]
pub(super) struct ImportReader<'a> {
    text: &'a str,
    table: Option<&'a Map<String, Value>>,
    path: &'a str,
}

/// JSON without any extension.
pub(super) const STRICT_JSON: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_trailing_commas: false,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parses JSON with comments and trailing commas.
pub(super) fn json(text: &str) -> Result<Value, ImportError> {
    // Accepts only the extensions that editors of these files write: a typing error must be
    // reported.
    let options = ParseOptions { allow_comments: true, allow_trailing_commas: true, ..STRICT_JSON };
    jsonc_parser::parse_to_serde_value::<Value>(text, &options).map_err(|error| {
        ImportError::Malformed {
            language: "JSON",
            line: number(error.line_display()),
            column: number(error.column_display()),
            message: error.kind().to_string(),
        }
    })
}

pub(super) fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl<'a> ImportReader<'a> {
    /// The top-level table of the document.
    pub(super) fn top(text: &'a str, value: &'a Value) -> Result<Self, ImportError> {
        match value {
            Value::Object(table) => Ok(Self { text, table: Some(table), path: "" }),
            Value::Null => Ok(Self { text, table: None, path: "" }),
            _ => Err(ImportError::WrongType {
                key: String::new(),
                expected: "a table",
                line: 1,
                column: 1,
            }),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.table?.get(key).filter(|value| !value.is_null())
    }

    /// The key with its path.
    pub(super) fn full_key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The table at `key`, with the full path `path`; empty if missing.
    pub(super) fn table(&self, key: &str, path: &'a str) -> Result<ImportReader<'a>, ImportError> {
        match self.get(key) {
            None => Ok(ImportReader { text: self.text, table: None, path }),
            Some(Value::Object(table)) => {
                Ok(ImportReader { text: self.text, table: Some(table), path })
            }
            Some(_) => Err(self.type_error(key, "a table")),
        }
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.type_error(key, "true or false")),
        }
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'a str>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(self.type_error(key, "a text")),
        }
    }

    pub(super) fn strings(&self, key: &str) -> Result<Vec<&'a str>, ImportError> {
        let wrong = || self.type_error(key, "a list of texts");
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// The keys that are not among `known`.
    pub(super) fn unknown(&self, known: &[&str]) -> Vec<String> {
        let keys = self.table.into_iter().flat_map(Map::keys);
        keys.filter(|key| !known.contains(&key.as_str())).map(|key| self.full_key(key)).collect()
    }

    fn type_error(&self, key: &str, expected: &'static str) -> ImportError {
        let key = self.full_key(key);
        let (line, column) = locate(self.text, &key);
        ImportError::WrongType { key, expected, line, column }
    }
}

/// Position of a dotted key.
fn locate(text: &str, key: &str) -> (u32, u32) {
    position(text, key_offset(text, key))
}

/// Position of an entry of the list at `key`, as written in the file; of the key, if the entry is
/// empty or spelt in another way.
pub(super) fn locate_entry(text: &str, key: &str, entry: &str) -> (u32, u32) {
    let start = key_offset(text, key);
    let spellings = [Value::from(entry).to_string(), format!("'{entry}'"), entry.to_owned()];
    let found = spellings.iter().filter(|_| !entry.is_empty()).find_map(|spelling| {
        let ends = |c: char| c.is_whitespace() || "\"',[]#".contains(c);
        let is_whole = |(offset, _): &(usize, &str)| {
            let (before, after) = text[start..].split_at(*offset);
            let after = &after[spelling.len()..];
            before.ends_with(ends) && (after.is_empty() || after.starts_with(ends))
        };
        text[start..].match_indices(spelling.as_str()).find(is_whole).map(|(offset, _)| offset)
    });
    position(text, start + found.unwrap_or(0))
}

/// Searches each part of a dotted key after the previous one.
fn key_offset(text: &str, key: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut at = 0;
    for part in key.split('.') {
        let words = || {
            text[at..].match_indices(part).map(|(offset, _)| at + offset).filter(|start| {
                !text[..*start].ends_with(is_word)
                    && !text[start + part.len()..].starts_with(is_word)
            })
        };
        // A word in a value is no key.
        let is_key = |start: &usize| {
            let after = text[start + part.len()..].trim_start_matches(['"', '\'']).trim_start();
            after.starts_with([':', '=', ']', '.'])
        };
        at = words().find(is_key).or_else(|| words().next()).unwrap_or(at);
    }
    at
}

/// Line and column of a byte offset, both from 1; the column in characters.
pub(super) fn position(text: &str, at: usize) -> (u32, u32) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[line_start..].chars().count() + 1;
    (number(before.matches('\n').count() + 1), number(column))
}
