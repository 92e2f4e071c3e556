//! Parses the text of a policy file into a [`PolicyLayer`].

mod values;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{PolicyError, SourcePosition};
use crate::grants::Source;
use crate::keys;
use crate::layer::PolicyLayer;
use crate::path::AbsPath;
use crate::policy::{Policy, VERSION};

/// Parses the text of a policy file.
///
/// Keys are checked before values: a misspelt `deny` must never pass as an absent one.
pub fn parse(text: &str, file: &AbsPath, source: Source) -> Result<PolicyLayer, PolicyError> {
    let lines = LineIndex::new(text, file);
    let table = DeTable::parse(text).map_err(|error| PolicyError::Syntax {
        at: lines.place(error.span().unwrap_or_default()),
        message: error.message().to_owned(),
    })?;
    check_version(table.get_ref(), &lines)?;
    let mut places = BTreeMap::new();
    walk(table.get_ref(), "", keys::section_keys("").unwrap_or_default(), &lines, &mut places)?;
    let policy = Policy::deserialize(toml::Deserializer::from(table)).map_err(|error| {
        PolicyError::WrongType {
            at: lines.place(error.span().unwrap_or_default()),
            message: error.message().to_owned(),
        }
    })?;
    let layer = PolicyLayer { places, ..PolicyLayer::new(policy, file.clone(), source) };
    values::check(&layer)?;
    Ok(layer)
}

/// Like [`parse`], from the bytes of a file.
pub fn parse_bytes(
    bytes: &[u8],
    file: &AbsPath,
    source: Source,
) -> Result<PolicyLayer, PolicyError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, file, source),
        Err(error) => {
            let offset = error.valid_up_to();
            let valid = String::from_utf8_lossy(&bytes[..offset]);
            let at = LineIndex::new(&valid, file).place(offset..offset);
            Err(PolicyError::NotUtf8 { at, offset })
        }
    }
}

/// Checks the version first: a file of another version may have other keys.
fn check_version(table: &DeTable<'_>, lines: &LineIndex<'_>) -> Result<(), PolicyError> {
    let Some(version) = table.get("version") else {
        return Err(PolicyError::NoVersion { at: lines.place(0..0) });
    };
    match version.get_ref() {
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(found) if found == i64::from(VERSION) => Ok(()),
            _ => Err(PolicyError::BadVersion {
                at: lines.place(version.span()),
                found: number.to_string(),
            }),
        },
        _ => Ok(()),
    }
}

/// Rejects unknown keys and records the position of each value, under `prefix` and its key.
fn walk(
    table: &DeTable<'_>,
    prefix: &str,
    known: &[&str],
    lines: &LineIndex<'_>,
    places: &mut PositionMap,
) -> Result<(), PolicyError> {
    for (key, value) in in_order(table) {
        let name = key.get_ref().as_ref();
        check_key(key, known, lines)?;
        let full = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        places.insert(full.clone(), lines.at(value.span().start));
        match value.get_ref() {
            DeValue::Table(inner) if prefix.is_empty() => {
                if let Some(known) = keys::section_keys(name) {
                    walk(inner, name, known, lines, places)?;
                }
            }
            DeValue::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let full = format!("{full}.{i}");
                    places.insert(full.clone(), lines.at(item.span().start));
                    if let (Some(known), DeValue::Table(entry)) =
                        (keys::entry_keys(prefix, name), item.get_ref())
                    {
                        walk(entry, &full, known, lines, places)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

type PositionMap = BTreeMap<String, (u32, u32)>;

type ParseItem<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// Items ordered by position, so that the first error in the file is reported.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<ParseItem<'a, 'i>> {
    let mut items: Vec<_> = table.iter().collect();
    items.sort_by_key(|(key, _)| key.span().start);
    items
}

fn check_key(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    known: &[&str],
    lines: &LineIndex<'_>,
) -> Result<(), PolicyError> {
    let name = key.get_ref().as_ref();
    if known.contains(&name) {
        return Ok(());
    }
    let at = lines.place(key.span());
    Err(PolicyError::UnknownKey { at, key: name.to_owned(), nearest: keys::nearest(name, known) })
}

/// Converts byte offsets into lines and columns.
struct LineIndex<'a> {
    text: &'a str,
    file: &'a AbsPath,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str, file: &'a AbsPath) -> Self {
        let starts =
            [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, file, starts }
    }

    fn at(&self, offset: usize) -> (u32, u32) {
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = self.starts[line.saturating_sub(1)];
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }

    fn place(&self, span: Range<usize>) -> SourcePosition {
        let (line, column) = self.at(span.start);
        SourcePosition { file: Some(self.file.clone()), line: Some(line), column: Some(column) }
    }
}

#[cfg(test)]
mod tests;
