//! One more grant in a policy file, and everything else in it as it was.
//!
//! What a person allows for good is written into the file that they wrote themselves: their
//! comments, their order and their layout stay.

#[cfg(test)]
mod tests;

use toml_edit::{Array, DocumentMut, Item, RawString, Table, TableLike, Value};

use crate::decide::Access;
use crate::display::is_hidden;
use crate::error::{PolicyError, SourcePosition};
use crate::expand::ExpandedEntry;
use crate::facts::Facts;
use crate::grants::Source;
use crate::network::HostRule;
use crate::parse::parse;
use crate::path::AbsPath;
use crate::policy::{PathEntry, Policy};

/// An entry of `read` or `write`, or of `allow` for hosts or variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyEntryEdit {
    section: &'static str,
    key: &'static str,
    text: String,
}

impl PolicyEntryEdit {
    /// The entry that opens this very path; `None` where no text would mean that path and
    /// nothing else.
    ///
    /// It never begins with `./`: what is relative in a person's file speaks of whatever is
    /// worked on, and would open the same name in every project.
    pub fn new(path: &AbsPath, access: Access, facts: &Facts) -> Option<Self> {
        let below = |directory: &AbsPath, start: &str| {
            Some(format!("{start}{}", path.relative_to(directory)?.to_str()?))
        };
        let from_home = below(&facts.home, "~/").filter(|_| facts.home.depth() > 0);
        let text = from_home.or_else(|| below(&AbsPath::root(), "/"))?;
        let key = if access == Access::Write { "write" } else { "read" };
        let entry = ExpandedEntry {
            text: &text,
            key,
            anchor: &facts.workspace,
            at: SourcePosition::default(),
        };
        let means_it = entry.path(facts).is_ok_and(|meant| meant == *path);
        // A replaced byte stands for any byte, so the name is not known.
        let shows = !text.chars().any(|c| is_hidden(c) || c == char::REPLACEMENT_CHARACTER);
        (means_it && shows).then_some(Self { section: FILES, key, text })
    }

    /// The entry that opens hosts.
    pub fn host(rule: &HostRule) -> Self {
        Self { section: HOSTS, key: "allow", text: rule.to_string() }
    }

    /// The entry that lets a variable pass.
    pub fn variable(name: &str) -> Self {
        Self { section: VARIABLES, key: "allow", text: name.to_owned() }
    }

    /// The list it stands in: `read`, `write` or `allow`.
    pub fn key(&self) -> &'static str {
        self.key
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds it to `policy`; whether it was not there yet.
    fn enter(&self, policy: &mut Policy) -> bool {
        let files = &mut policy.filesystem;
        let list = match (self.section, self.key) {
            (HOSTS | VARIABLES, _) => {
                let list = if self.section == HOSTS {
                    &mut policy.network.allow
                } else {
                    &mut policy.environment.allow
                };
                let is_new = list.iter().all(|entry| *entry != self.text);
                list.push(self.text.clone());
                return is_new;
            }
            (_, "write") => &mut files.write,
            _ => &mut files.read,
        };
        let is_new = list.iter().all(|entry| entry.path() != self.text);
        list.push(PathEntry::Text(self.text.clone()));
        is_new
    }
}

const FILES: &str = "filesystem";
const HOSTS: &str = "network";
const VARIABLES: &str = "environment";

/// A policy file that says nothing.
const EMPTY: &str = "version = 1\n";

/// `text` with one more entry; `None` if it has that entry already. A file that is not there
/// has no text.
///
/// What comes out means what `text` means and the entry, or it does not come out.
pub fn edit_policy_entry(
    text: Option<&str>,
    file: &AbsPath,
    permit: &PolicyEntryEdit,
) -> Result<Option<String>, PolicyError> {
    let text = text.unwrap_or(EMPTY);
    let mut expected = parse(text, file, Source::User)?.policy;
    if !permit.enter(&mut expected) {
        return Ok(None);
    }
    let unfit = || PolicyError::NotAmendable {
        at: SourcePosition { file: Some(file.clone()), line: None, column: None },
        entry: permit.text.clone(),
    };
    let amended = edit(text, permit).ok_or_else(unfit)?;
    let is_right =
        parse(&amended, file, Source::User).is_ok_and(|layer| same(layer.policy, expected));
    if is_right { Ok(Some(amended)) } else { Err(unfit()) }
}

/// Whether two policies say the same. An entry may be written in two ways.
fn same(mut one: Policy, mut other: Policy) -> bool {
    for policy in [&mut one, &mut other] {
        for list in [&mut policy.filesystem.read, &mut policy.filesystem.write] {
            for entry in
                list.iter_mut().filter(|entry| entry.reason().is_none() && !entry.is_locked())
            {
                *entry = PathEntry::Text(entry.path().to_owned());
            }
        }
    }
    one == other
}

fn edit(text: &str, permit: &PolicyEntryEdit) -> Option<String> {
    // What is edited has plain line ends, and gets its own back.
    let is_dos =
        text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    let plain = if is_dos { text.replace("\r\n", "\n") } else { text.to_owned() };
    let mut document: DocumentMut = plain.parse().ok()?;
    if !document.contains_key(permit.section) {
        // A comment at the end of the file stays before what comes behind it.
        let mut before = document.trailing().as_str().unwrap_or_default().to_owned();
        if !before.is_empty() && !before.ends_with('\n') {
            before.push('\n');
        }
        let mut section = Table::new();
        section.decor_mut().set_prefix(format!("{before}\n"));
        document.set_trailing("");
        document.insert(permit.section, Item::Table(section));
    }
    let section = document.get_mut(permit.section)?.as_table_like_mut()?;
    add(section, permit)?;
    let edited = document.to_string();
    Some(if is_dos { edited.replace('\n', "\r\n") } else { edited })
}

fn add(section: &mut dyn TableLike, permit: &PolicyEntryEdit) -> Option<()> {
    match section.get_mut(permit.key) {
        None => {
            let list: Array = [permit.text.as_str()].into_iter().collect();
            section.insert(permit.key, Item::Value(Value::Array(list)));
        }
        Some(Item::Value(Value::Array(list))) => push(list, &permit.text),
        Some(Item::ArrayOfTables(list)) if permit.section == FILES => {
            let mut entry = Table::new();
            entry.insert("path", toml_edit::value(permit.text.as_str()));
            list.push(entry);
        }
        Some(_) => return None,
    }
    Some(())
}

/// Puts `text` at the end of a list that goes over one line or many, with comments behind its
/// entries or not.
fn push(list: &mut Array, text: &str) {
    let has_comma = list.trailing_comma();
    let is_open = has_comma || list.is_empty();
    let tail = if is_open {
        raw(Some(list.trailing()))
    } else {
        raw(last(list).and_then(|last| last.decor().suffix()))
    };
    let before = raw(last(list).and_then(|last| last.decor().prefix()));
    let mut value = Value::from(text);
    let end = if tail.contains('\n') || before.contains('\n') {
        // What stands behind the last entry, such as a comment on it, stays behind it.
        let indent = before.rsplit_once('\n').map_or("  ", |(_, indent)| indent);
        value.decor_mut().set_prefix(format!("{}\n{indent}", tail.trim_end()));
        tail.rfind('\n').map_or(String::new(), |at| tail[at..].to_owned())
    } else {
        let gap = if list.is_empty() { tail.clone() } else { " ".to_owned() };
        value.decor_mut().set_prefix(gap);
        tail.clone()
    };
    let count = list.len();
    if !is_open && let Some(last) = list.get_mut(count - 1) {
        last.decor_mut().set_suffix("");
    }
    let goes_on = has_comma || (list.is_empty() && tail.contains('\n'));
    if goes_on {
        list.set_trailing(end);
    } else {
        list.set_trailing("");
        value.decor_mut().set_suffix(end);
    }
    list.push_formatted(value);
    list.set_trailing_comma(goes_on);
}

fn last(list: &Array) -> Option<&Value> {
    list.get(list.len().checked_sub(1)?)
}

fn raw(text: Option<&RawString>) -> String {
    text.and_then(RawString::as_str).unwrap_or_default().to_owned()
}
