//! From the text of a policy file to a [`Layer`].

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Place, PolicyError};
use crate::glob::{Case, Glob};
use crate::grants::Source;
use crate::keys;
use crate::layer::Layer;
use crate::path::AbsPath;
use crate::policy::{Amount, PathEntry, Policy, VERSION};

/// Reads the text of a policy file.
///
/// Keys are checked before values: a misspelt `deny` must never pass as an absent one.
pub fn parse(text: &str, file: &AbsPath, source: Source) -> Result<Layer, PolicyError> {
    let lines = Lines::new(text, file);
    let table = DeTable::parse(text)
        .map_err(|error| PolicyError::Syntax { at: lines.place(error.span().unwrap_or_default()), message: error.message().to_owned() })?;
    check_version(table.get_ref(), &lines)?;
    let mut places = BTreeMap::new();
    walk(table.get_ref(), "", &lines, &mut places)?;
    let policy = Policy::deserialize(toml::Deserializer::from(table)).map_err(|error| PolicyError::WrongType {
        at: lines.place(error.span().unwrap_or_default()),
        message: error.message().to_owned(),
    })?;
    let layer = Layer { policy, source, file: file.clone(), places };
    check_values(&layer)?;
    Ok(layer)
}

/// As [`parse`], from the bytes of a file.
pub fn parse_bytes(bytes: &[u8], file: &AbsPath, source: Source) -> Result<Layer, PolicyError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, file, source),
        Err(error) => {
            let offset = error.valid_up_to();
            let valid = String::from_utf8_lossy(&bytes[..offset]);
            let at = Lines::new(&valid, file).place(offset..offset);
            Err(PolicyError::NotUtf8 { at, offset })
        }
    }
}

/// A file of another version may have other keys: its version is the error to report.
fn check_version(table: &DeTable<'_>, lines: &Lines<'_>) -> Result<(), PolicyError> {
    let Some(version) = table.get("version") else {
        return Err(PolicyError::NoVersion { at: lines.place(0..0) });
    };
    match version.get_ref() {
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(found) if found == i64::from(VERSION) => Ok(()),
            _ => Err(PolicyError::BadVersion { at: lines.place(version.span()), found: number.to_string() }),
        },
        _ => Ok(()),
    }
}

/// Refuses unknown keys and notes where everything stands.
fn walk(table: &DeTable<'_>, section: &str, lines: &Lines<'_>, places: &mut BTreeMap<String, (u32, u32)>) -> Result<(), PolicyError> {
    let known = keys::of_section(section).unwrap_or_default();
    for (key, value) in in_order(table) {
        let name = key.get_ref().as_ref();
        check_key(key, known, lines)?;
        let full = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
        places.insert(full.clone(), lines.at(value.span().start));
        match value.get_ref() {
            DeValue::Table(inner) if section.is_empty() => walk(inner, name, lines, places)?,
            DeValue::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    places.insert(format!("{full}.{i}"), lines.at(item.span().start));
                    if let ("filesystem", DeValue::Table(entry)) = (section, item.get_ref()) {
                        in_order(entry).into_iter().try_for_each(|(key, _)| check_key(key, keys::ENTRY_KEYS, lines))?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

type Item<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// By position, so that the first fault of the file is the one reported.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Item<'a, 'i>> {
    let mut items: Vec<_> = table.iter().collect();
    items.sort_by_key(|(key, _)| key.span().start);
    items
}

fn check_key(key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str], lines: &Lines<'_>) -> Result<(), PolicyError> {
    let name = key.get_ref().as_ref();
    if known.contains(&name) {
        return Ok(());
    }
    let at = lines.place(key.span());
    Err(PolicyError::UnknownKey { at, key: name.to_owned(), nearest: keys::nearest(name, known) })
}

/// What the types cannot say.
fn check_values(layer: &Layer) -> Result<(), PolicyError> {
    let files = &layer.policy.filesystem;
    let lists =
        [("read", &files.read), ("write", &files.write), ("deny", &files.deny), ("protect", &files.protect), ("except", &files.except)];
    for (list, entries) in lists {
        for (i, entry) in entries.iter().enumerate() {
            check_entry(layer, &format!("filesystem.{list}.{i}"), entry)?;
        }
    }
    let network = &layer.policy.network;
    for (list, hosts) in [("allow", &network.allow), ("deny", &network.deny)] {
        for (i, host) in hosts.iter().enumerate() {
            layer.host_rule(&format!("network.{list}.{i}"), host)?;
        }
    }
    check_limits(layer)?;
    check_audit(layer)
}

fn check_entry(layer: &Layer, key: &str, entry: &PathEntry) -> Result<(), PolicyError> {
    if entry.is_locked() && layer.source != Source::Managed {
        return Err(PolicyError::LockedOutsideManaged { at: layer.place(key) });
    }
    // Where the entry will be anchored does not matter for its form.
    match Glob::new(entry.path(), Some(&AbsPath::root()), Case::Sensitive) {
        Err(error) if Glob::is_glob(entry.path()) || entry.path().is_empty() => {
            let mut at = layer.place(key);
            if let (PathEntry::Text(text), Some(position)) = (entry, error.position()) {
                let before = text.get(..position).map_or(0, |head| head.chars().count());
                at.column = at.column.map(|column| column + 1 + u32::try_from(before).unwrap_or(0));
            }
            Err(PolicyError::BadGlob { at, entry: entry.path().to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn check_limits(layer: &Layer) -> Result<(), PolicyError> {
    let limits = &layer.policy.limits;
    let durations = [("wall", &limits.wall), ("cpu", &limits.cpu)];
    let sizes = [("memory", &limits.memory), ("file-size", &limits.file_size), ("disk", &limits.disk), ("output", &limits.output)];
    let bad = |name: &str, amount: &Amount, expected| bad_amount(layer, &format!("limits.{name}"), amount, expected);
    for (name, amount) in durations {
        if let Some(amount) = amount.as_ref().filter(|amount| amount.milliseconds().is_none()) {
            return Err(bad(name, amount, "a duration such as `\"500ms\"`, `\"300s\"`, `\"5m\"` or `\"2h\"`"));
        }
    }
    for (name, amount) in sizes {
        if let Some(amount) = amount.as_ref().filter(|amount| amount.bytes().is_none()) {
            return Err(bad(name, amount, "a size such as `\"512MiB\"` or `\"2GB\"`"));
        }
    }
    Ok(())
}

/// Smaller files than this would fill a directory with names.
const SMALLEST_FILE: u64 = 64 << 10;

fn check_audit(layer: &Layer) -> Result<(), PolicyError> {
    match &layer.policy.audit.rotate_size {
        Some(size) if size.bytes().is_none_or(|bytes| bytes < SMALLEST_FILE) => {
            Err(bad_amount(layer, "audit.rotate-size", size, "a size of at least 64 KiB, such as `\"64MiB\"`"))
        }
        _ => Ok(()),
    }
}

fn bad_amount(layer: &Layer, key: &str, amount: &Amount, expected: &'static str) -> PolicyError {
    let value = match amount {
        Amount::Number(number) => number.to_string(),
        Amount::Text(text) => text.clone(),
    };
    PolicyError::BadValue { at: layer.place(key), key: key.to_owned(), value, expected }
}

/// Lines and columns from byte positions.
struct Lines<'a> {
    text: &'a str,
    file: &'a AbsPath,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, file: &'a AbsPath) -> Self {
        let starts = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, file, starts }
    }

    fn at(&self, offset: usize) -> (u32, u32) {
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = self.starts[line.saturating_sub(1)];
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }

    fn place(&self, span: Range<usize>) -> Place {
        let (line, column) = self.at(span.start);
        Place { file: Some(self.file.clone()), line: Some(line), column: Some(column) }
    }
}

#[cfg(test)]
mod tests;
