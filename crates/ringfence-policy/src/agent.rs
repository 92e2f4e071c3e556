//! Definitions of agents: Markdown files with a head, as Claude Code has them.
//!
//! What a definition says of tools becomes a policy like any other, written by whoever the file
//! belongs to: it is laid over the others by [`resolve`](crate::resolve), so a project's can
//! take tools away and cannot give any.

use std::collections::BTreeMap;

use crate::display::is_hidden;
use crate::error::{PolicyError, SourcePosition};
use crate::front_matter::{FrontMatter, FrontMatterEntry, FrontMatterKind, FrontMatterValue};
use crate::grants::Source;
use crate::keys;
use crate::layer::PolicyLayer;
use crate::path::AbsPath;
use crate::policy::{Policy, ToolsSection};

/// An agent as somebody has described it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// If given: the only tools that it has.
    pub tools: Option<Vec<String>>,
    /// Tools that it does not have.
    pub disallowed: Vec<String>,
    /// A policy file of its own, seen from the directory of this one.
    pub policy: Option<String>,
    /// What is run for it where nobody says otherwise.
    pub command: Option<AgentProgram>,
    /// The file it stands in.
    pub file: AbsPath,
    /// Whose file it is.
    pub source: Source,
    places: BTreeMap<String, (u32, u32)>,
}

/// What is run for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentProgram {
    /// A line for the shell.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

/// The keys that are ours, with other spellings of the same.
const KEYS: &[(&str, &[&str])] = &[
    ("name", &[]),
    ("description", &[]),
    ("tools", &[]),
    ("disallowed-tools", &["disallowedTools"]),
    ("policy", &[]),
    ("command", &[]),
];

/// Keys that are read strictly: something depends on each.
const STRICT: &[&str] =
    &["name", "tools", "disallowed-tools", "disallowedTools", "policy", "command"];

impl AgentSpec {
    /// Reads a definition. A file without a `name` is called as the file is.
    pub fn parse(bytes: &[u8], file: &AbsPath, source: Source) -> Result<AgentSpec, PolicyError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line =
                bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            let at = SourcePosition {
                file: Some(file.clone()),
                line: u32::try_from(line).ok(),
                column: None,
            };
            PolicyError::NotUtf8 { at, offset: error.valid_up_to() }
        })?;
        let head = FrontMatter::parse(text, file, STRICT)?;
        let mut reader = AgentReader { file, places: BTreeMap::new() };
        for entry in &head.entries {
            reader.check_key(entry)?;
        }
        let get = |key: &str| head.get(key);
        let disallowed = match (get("disallowed-tools"), get("disallowedTools")) {
            (Some(_), Some(twice)) => {
                return Err(
                    reader.wrong(twice.at, "`disallowed-tools` is said twice, in two spellings")
                );
            }
            (one, other) => one.or(other),
        };
        let name = get("name").map(|entry| reader.text(entry)).transpose()?;
        let name = name.or_else(|| stem(file)).unwrap_or_default();
        if !is_name(&name) {
            let at = get("name").map_or((1, 1), |entry| entry.value.at);
            return Err(reader.wrong(
                at,
                "a name of letters, digits, `-`, `_`, `.` and `:` is needed, 64 at most",
            ));
        }
        let description = get("description").and_then(|entry| match &entry.value.kind {
            FrontMatterKind::Text(text) | FrontMatterKind::Raw(text) => Some(text.clone()),
            _ => None,
        });
        let tools = get("tools").map(|entry| reader.tools(entry, "tools.allowed")).transpose()?;
        let disallowed = disallowed
            .map(|entry| reader.tools(entry, "tools.disallowed"))
            .transpose()?
            .unwrap_or_default();
        let policy = get("policy").map(|entry| reader.text(entry)).transpose()?;
        let command = get("command").map(|entry| reader.command(entry)).transpose()?;
        let places = reader.places;
        Ok(AgentSpec {
            name,
            description,
            tools,
            disallowed,
            policy,
            command,
            file: file.clone(),
            source,
            places,
        })
    }

    /// What it says of tools, as a policy of whoever the file belongs to.
    pub fn layer(&self) -> PolicyLayer {
        let tools =
            ToolsSection { allowed: self.tools.clone(), disallowed: self.disallowed.clone() };
        let places = self.places.clone();
        PolicyLayer {
            policy: Policy { tools, ..Policy::default() },
            source: self.source.clone(),
            file: self.file.clone(),
            places,
        }
    }
}

/// Whether something can be an agent's name: it stands in records, messages and variables.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| (c.is_alphanumeric() || "-_.:".contains(c)) && !is_hidden(c);
    !name.is_empty()
        && name.chars().count() <= 64
        && name.chars().all(is_plain)
        && !name.starts_with(['-', '.'])
}

fn stem(file: &AbsPath) -> Option<String> {
    Some(file.as_path().file_stem()?.to_str()?.to_owned())
}

struct AgentReader<'a> {
    file: &'a AbsPath,
    places: BTreeMap<String, (u32, u32)>,
}

impl AgentReader<'_> {
    fn place(&self, at: (u32, u32)) -> SourcePosition {
        SourcePosition { file: Some(self.file.clone()), line: Some(at.0), column: Some(at.1) }
    }

    fn wrong(&self, at: (u32, u32), what: &str) -> PolicyError {
        PolicyError::FrontMatter { at: self.place(at), what: what.to_owned() }
    }

    /// Other programs have keys of their own here, and those are theirs. But what looks like one
    /// of ours and is not would leave an agent with more than its author meant.
    fn check_key(&self, entry: &FrontMatterEntry) -> Result<(), PolicyError> {
        let is_ours = KEYS
            .iter()
            .any(|(key, spellings)| *key == entry.key || spellings.contains(&entry.key.as_str()));
        if is_ours {
            return Ok(());
        }
        let folded = fold(&entry.key);
        let known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
        let same = known.iter().find(|key| fold(key) == folded).map(|key| (*key).to_owned());
        match same.or_else(|| keys::nearest_of(&entry.key, &known)) {
            Some(nearest) => Err(PolicyError::UnknownKey {
                at: self.place(entry.at),
                key: entry.key.clone(),
                nearest: Some(nearest),
            }),
            None => Ok(()),
        }
    }

    fn text(&self, entry: &FrontMatterEntry) -> Result<String, PolicyError> {
        match &entry.value.kind {
            FrontMatterKind::Text(text) if !text.is_empty() => Ok(text.clone()),
            _ => Err(self.wrong(entry.value.at, &format!("`{}` is a text", entry.key))),
        }
    }

    /// Names of tools: a list, or a text with commas between them.
    fn tools(&mut self, entry: &FrontMatterEntry, key: &str) -> Result<Vec<String>, PolicyError> {
        let names: Vec<(String, (u32, u32))> = match &entry.value.kind {
            FrontMatterKind::Text(text) => {
                apart(text).map(|name| (plain(name.trim()).to_owned(), entry.value.at)).collect()
            }
            FrontMatterKind::List(items) => {
                items.iter().map(|item| (plain(&said(item)).to_owned(), item.at)).collect()
            }
            FrontMatterKind::Nothing => {
                return Err(self.wrong(
                    entry.at,
                    &format!("`{}` has no value: `[]` is none at all", entry.key),
                ));
            }
            FrontMatterKind::Map(_) | FrontMatterKind::Raw(_) => {
                return Err(
                    self.wrong(entry.value.at, &format!("`{}` is a list of names", entry.key))
                );
            }
        };
        self.places.insert(key.to_owned(), entry.value.at);
        for (i, (name, at)) in names.iter().enumerate() {
            if name.contains('(') {
                let what = format!(
                    "`{name}` is a rule on what a tool works on, and only names stand here; write such rules into the `policy`"
                );
                return Err(self.wrong(*at, &what));
            }
            if name.is_empty()
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-*?:/.".contains(c))
            {
                return Err(self.wrong(*at, &format!("`{name}` is no name of a tool")));
            }
            self.places.insert(format!("{key}.{i}"), *at);
        }
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    fn command(&self, entry: &FrontMatterEntry) -> Result<AgentProgram, PolicyError> {
        match &entry.value.kind {
            FrontMatterKind::Text(line) if !line.trim().is_empty() => {
                Ok(AgentProgram::Line(line.clone()))
            }
            FrontMatterKind::List(words)
                if words.first().is_some_and(|word| !said(word).is_empty()) =>
            {
                Ok(AgentProgram::Words(words.iter().map(said).collect()))
            }
            _ => Err(self.wrong(
                entry.value.at,
                "`command` is a line for the shell, or a list of a program and its arguments",
            )),
        }
    }
}

/// Parts with commas between them, where those within parentheses divide nothing.
fn apart(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Which agents may be started (`Agent(worker, researcher)`) is for whoever starts them to say.
fn plain(name: &str) -> &str {
    ["Agent", "Task"]
        .into_iter()
        .find(|tool| {
            name.strip_prefix(tool).is_some_and(|rest| rest.starts_with('(') && rest.ends_with(')'))
        })
        .unwrap_or(name)
}

fn said(value: &FrontMatterValue) -> String {
    match &value.kind {
        FrontMatterKind::Text(text) => text.clone(),
        _ => String::new(),
    }
}

/// A key without what people write differently.
fn fold(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_' | '.')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests;
