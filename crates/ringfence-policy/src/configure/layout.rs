//! Edits a TOML document and keeps its layout.

use toml_edit::{DocumentMut, Item, Key, Table, TableLike, Value};

/// The text with LF line ends, and whether all line ends were CRLF.
pub(super) fn normalize_line_ends(text: &str) -> (String, bool) {
    let is_dos =
        text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    (if is_dos { text.replace("\r\n", "\n") } else { text.to_owned() }, is_dos)
}

/// Edits the text with LF line ends and restores the original ones.
pub(super) fn edit(
    text: &str,
    change: impl FnOnce(&mut DocumentMut) -> Option<()>,
) -> Option<String> {
    let (plain, is_dos) = normalize_line_ends(text);
    let mut document: DocumentMut = plain.parse().ok()?;
    change(&mut document)?;
    let edited = document.to_string();
    Some(if is_dos { edited.replace('\n', "\r\n") } else { edited })
}

/// The item with this name.
pub(super) fn find<'a>(item: &'a Item, key: &[String]) -> Option<&'a Item> {
    key.iter()
        .try_fold(item, |item, name| item.as_table_like()?.get(name))
        .filter(|item| !item.is_none())
}

/// Sets a value; comments on the line of the old value stay.
pub(super) fn set_value(
    document: &mut DocumentMut,
    key: &[String],
    mut value: Value,
) -> Option<()> {
    let (name, sections) = key.split_last()?;
    if let Some(section) = sections.first().filter(|section| !document.contains_key(section)) {
        // A comment at the end of the file stays before the new table.
        let mut before = document.trailing().as_str().unwrap_or_default().to_owned();
        if !before.is_empty() && !before.ends_with('\n') {
            before.push('\n');
        }
        let mut table = Table::new();
        table.decor_mut().set_prefix(format!("{before}\n"));
        document.set_trailing("");
        document.insert(section, Item::Table(table));
    }
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for section in sections {
        if table.get(section).is_none() {
            table.insert(section, Item::Value(Value::InlineTable(Default::default())));
        }
        table = table.get_mut(section)?.as_table_like_mut()?;
    }
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(_) => return None,
        None => {
            table.insert(name, Item::Value(value));
        }
    }
    Some(())
}

/// Removes a setting; comments above it stay in place.
pub(super) fn remove_value(document: &mut DocumentMut, key: &[String]) -> Option<()> {
    let (name, sections) = key.split_last()?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for section in sections {
        table = table.get_mut(section)?.as_table_like_mut()?;
    }
    let names: Vec<String> = table.iter().map(|(name, _)| name.to_owned()).collect();
    let at = names.iter().position(|known| known == name)?;
    let above = comments(table.key(name)?);
    // An array of tables has no lines above it to keep.
    if !matches!(table.get(name)?, Item::Value(_)) {
        return None;
    }
    table.remove(name);
    if above.is_empty() {
        return Some(());
    }
    let is_value = |name: &&String| matches!(table.get(name), Some(Item::Value(_)));
    match names.get(at + 1).filter(is_value) {
        Some(next) => {
            let mut next = table.key_mut(next)?;
            let own = next
                .leaf_decor()
                .prefix()
                .and_then(|raw| raw.as_str())
                .unwrap_or_default()
                .to_owned();
            next.leaf_decor_mut().set_prefix(above + &own);
        }
        None => leave_behind(document, sections, &above),
    }
    Some(())
}

/// The lines above a key, if they contain a comment.
fn comments(key: &Key) -> String {
    let prefix = key.leaf_decor().prefix().and_then(|raw| raw.as_str()).unwrap_or_default();
    if prefix.contains('#') { prefix.to_owned() } else { String::new() }
}

/// Puts comments after a table: before the next one, or at the end of the file.
fn leave_behind(document: &mut DocumentMut, sections: &[String], above: &str) {
    let position = |item: &Item| item.as_table().and_then(Table::position);
    let own = sections.first().and_then(|section| document.get(section)).and_then(position);
    let next = document
        .iter()
        .filter_map(|(name, item)| {
            Some((position(item).filter(|at| own.is_none_or(|own| *at > own))?, name.to_owned()))
        })
        .min();
    match next.and_then(|(_, name)| document.get_mut(&name)?.as_table_mut()) {
        Some(table) => {
            let own =
                table.decor().prefix().and_then(|raw| raw.as_str()).unwrap_or_default().to_owned();
            table.decor_mut().set_prefix(format!("{above}{own}"));
        }
        None => {
            let own = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing(format!("{above}{own}"));
        }
    }
}
