//! Adds one grant to a policy file and keeps everything else.
//!
//! A permanent grant goes into the user's own file: comments, order and layout stay.

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
use crate::policy::{PathEntry, Policy, PortChoice};

/// An entry of `read` or `write`, of `allow` for hosts or variables, or of `localhost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyEntryEdit {
    section: &'static str,
    key: &'static str,
    text: String,
    /// For a port: all ports of a file that has no list yet.
    ports: Vec<u16>,
}

impl PolicyEntryEdit {
    /// The entry that opens exactly this path; `None` if no text would mean that path and nothing
    /// else.
    ///
    /// It never begins with `./`: a relative entry in the user's file applies to every project, and
    /// would open the same name in all of them.
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
        let means_it = entry.path(facts).is_ok_and(|resolved| resolved == *path);
        // A replacement character stands for any byte, so the name is unknown.
        let shows = !text.chars().any(|c| is_hidden(c) || c == char::REPLACEMENT_CHARACTER);
        (means_it && shows).then_some(Self { section: FILES, key, text, ports: Vec::new() })
    }

    /// The entry that opens hosts.
    pub fn host(rule: &HostRule) -> Self {
        Self { section: HOSTS, key: "allow", text: rule.to_string(), ports: Vec::new() }
    }

    /// The entry that opens a port of the host's loopback. A list replaces those of weaker files:
    /// a new one repeats their ports, `inherited`.
    pub fn localhost(port: u16, inherited: &[u16]) -> Self {
        let mut ports = inherited.to_vec();
        ports.push(port);
        ports.sort_unstable();
        ports.dedup();
        Self { section: HOSTS, key: LOCALHOST, text: port.to_string(), ports }
    }

    /// The entry that passes a variable.
    pub fn variable(name: &str) -> Self {
        Self { section: VARIABLES, key: "allow", text: name.to_owned(), ports: Vec::new() }
    }

    /// The key of its list: `read`, `write`, `allow` or `localhost`.
    pub fn key(&self) -> &'static str {
        self.key
    }

    /// The entry as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds the entry to `policy`; returns false if it was already there.
    fn enter(&self, policy: &mut Policy) -> bool {
        let files = &mut policy.filesystem;
        let list = match (self.section, self.key) {
            (HOSTS, LOCALHOST) => return self.enter_port(&mut policy.network.localhost),
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

    /// Adds the port to a list; false if it was already open.
    fn enter_port(&self, choice: &mut Option<PortChoice>) -> bool {
        let port: u16 = self.text.parse().unwrap_or_default();
        match choice {
            Some(PortChoice::All(true)) => return false,
            Some(PortChoice::Some(ports)) if ports.contains(&port) => return false,
            Some(PortChoice::Some(ports)) => ports.push(port),
            Some(PortChoice::All(false)) | None => {
                *choice = Some(PortChoice::Some(self.ports.clone()))
            }
        }
        true
    }

    /// The entry as a value.
    fn value(&self) -> Value {
        match self.text.parse::<i64>() {
            Ok(port) if self.key == LOCALHOST => Value::from(port),
            _ => Value::from(self.text.as_str()),
        }
    }

    /// The list of a file that has none yet.
    fn new_list(&self) -> Array {
        if self.key == LOCALHOST {
            self.ports.iter().map(|port| i64::from(*port)).collect()
        } else {
            [self.value()].into_iter().collect()
        }
    }
}

/// The key of the host's open ports.
const LOCALHOST: &str = "localhost";
const FILES: &str = "filesystem";
const HOSTS: &str = "network";
const VARIABLES: &str = "environment";

/// An empty policy file.
const EMPTY: &str = "version = 1\n";

/// `text` with one more entry; `None` if it already has that entry. A missing file has no text.
///
/// The result means exactly the old text plus the entry, or the call fails.
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

/// True if two policies mean the same. An entry can be written in two ways.
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
    // The edit uses LF line ends and restores the original ones.
    let is_dos =
        text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    let plain = if is_dos { text.replace("\r\n", "\n") } else { text.to_owned() };
    let mut document: DocumentMut = plain.parse().ok()?;
    if !document.contains_key(permit.section) {
        // A comment at the end of the file stays before the new table.
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
            section.insert(permit.key, Item::Value(Value::Array(permit.new_list())));
        }
        Some(Item::Value(Value::Array(list))) => push(list, permit.value()),
        Some(Item::ArrayOfTables(list)) if permit.section == FILES => {
            let mut entry = Table::new();
            entry.insert("path", toml_edit::value(permit.text.as_str()));
            list.push(entry);
        }
        Some(_) => return None,
    }
    Some(())
}

/// Appends `value` to a list on one line or many, with or without comments after its entries.
fn push(list: &mut Array, mut value: Value) {
    let has_comma = list.trailing_comma();
    let is_open = has_comma || list.is_empty();
    let tail = if is_open {
        raw(Some(list.trailing()))
    } else {
        raw(last(list).and_then(|last| last.decor().suffix()))
    };
    let before = raw(last(list).and_then(|last| last.decor().prefix()));
    let end = if tail.contains('\n') || before.contains('\n') {
        // Text after the last entry, such as a comment on it, stays after it.
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
