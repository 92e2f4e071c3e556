//! Agent definitions: Markdown files with front matter, as in Claude Code.
//!
//! The tool settings of a definition become a policy layer with the source of the file.
//! [`resolve()`](crate::resolve()) merges it with the others, so a definition of a project can
//! remove tools but not add any.

use std::collections::BTreeMap;

use crate::display::is_hidden;
use crate::error::{PolicyError, SourcePosition};
use crate::front_matter::{FrontMatter, FrontMatterEntry, FrontMatterKind, FrontMatterValue};
use crate::grants::Source;
use crate::keys;
use crate::layer::PolicyLayer;
use crate::path::AbsPath;
use crate::policy::{Policy, ToolsSection};

/// An agent definition.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// Name of the agent.
    pub name: String,
    /// Purpose of the agent.
    pub description: Option<String>,
    /// If set, the only tools of the agent.
    pub tools: Option<Vec<String>>,
    /// Tools that the agent does not have.
    pub disallowed: Vec<String>,
    /// A policy file for the agent, relative to the directory of the definition.
    pub policy: Option<String>,
    /// The default command of the agent.
    pub command: Option<AgentProgram>,
    /// The file of the definition.
    pub file: AbsPath,
    /// The layer of the file.
    pub source: Source,
    places: BTreeMap<String, (u32, u32)>,
}

/// Command of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentProgram {
    /// A shell command line.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

/// ringfence's keys, with their other spellings.
const KEYS: &[(&str, &[&str])] = &[
    ("name", &[]),
    ("description", &[]),
    ("tools", &[]),
    ("disallowed-tools", &["disallowedTools"]),
    ("policy", &[]),
    ("command", &[]),
];

/// Keys that are parsed strictly, because rules depend on them.
const STRICT: &[&str] =
    &["name", "tools", "disallowed-tools", "disallowedTools", "policy", "command"];

impl AgentSpec {
    /// Parses a definition. Without a `name`, the agent has the name of the file.
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
                    reader.wrong(twice.at, "`disallowed-tools` is given twice, in two spellings")
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
                "the name must consist of at most 64 letters, digits, `-`, `_`, `.` and `:`",
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

    /// The tool settings as a policy layer with the source of the file.
    pub fn layer(&self) -> PolicyLayer {
        let tools =
            ToolsSection { allowed: self.tools.clone(), disallowed: self.disallowed.clone() };
        let places = self.places.clone();
        let policy = Policy { tools, ..Policy::default() };
        PolicyLayer { places, ..PolicyLayer::new(policy, self.file.clone(), self.source.clone()) }
    }
}

/// True if a text can be an agent's name: it appears in records, messages and variables.
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

    /// Rejects keys that look like a misspelt key of ringfence, because the agent would get more
    /// access than its author intended. Other keys belong to other programs and are ignored.
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
        match same.or_else(|| keys::nearest_word(&entry.key, &known)) {
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
            _ => Err(self.wrong(entry.value.at, &format!("`{}` must be a text", entry.key))),
        }
    }

    /// Parses tool names: a list, or a text separated by commas.
    fn tools(&mut self, entry: &FrontMatterEntry, key: &str) -> Result<Vec<String>, PolicyError> {
        let names: Vec<(String, (u32, u32))> = match &entry.value.kind {
            FrontMatterKind::Text(text) => {
                apart(text).map(|name| (plain(name.trim()).to_owned(), entry.value.at)).collect()
            }
            FrontMatterKind::List(items) => {
                items.iter().map(|item| (plain(&plain_text(item)).to_owned(), item.at)).collect()
            }
            FrontMatterKind::Nothing => {
                return Err(self.wrong(
                    entry.at,
                    &format!("`{}` has no value: write `[]` for an empty list", entry.key),
                ));
            }
            FrontMatterKind::Map(_) | FrontMatterKind::Raw(_) => {
                return Err(
                    self.wrong(entry.value.at, &format!("`{}` must be a list of names", entry.key))
                );
            }
        };
        self.places.insert(key.to_owned(), entry.value.at);
        for (i, (name, at)) in names.iter().enumerate() {
            if name.contains('(') {
                let what = format!(
                    "`{name}` is a rule with an argument, but only tool names are allowed here; write such rules into the `policy`"
                );
                return Err(self.wrong(*at, &what));
            }
            if name.is_empty()
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-*?:/.".contains(c))
            {
                return Err(self.wrong(*at, &format!("`{name}` is no tool name")));
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
                if words.first().is_some_and(|word| !plain_text(word).is_empty()) =>
            {
                Ok(AgentProgram::Words(words.iter().map(plain_text).collect()))
            }
            _ => Err(self.wrong(
                entry.value.at,
                "`command` must be a shell command line, or a list of a program and its arguments",
            )),
        }
    }
}

/// Splits a text at commas outside parentheses.
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

/// Drops the argument of `Agent(worker, researcher)`: the caller decides which agents may start.
fn plain(name: &str) -> &str {
    ["Agent", "Task"]
        .into_iter()
        .find(|tool| {
            name.strip_prefix(tool).is_some_and(|rest| rest.starts_with('(') && rest.ends_with(')'))
        })
        .unwrap_or(name)
}

fn plain_text(value: &FrontMatterValue) -> String {
    match &value.kind {
        FrontMatterKind::Text(text) => text.clone(),
        _ => String::new(),
    }
}

/// The key in lower case without `-`, `_` and `.`, for comparison.
fn fold(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_' | '.')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests;
