//! The head of a `SKILL.md`, by the rules of agentskills.io.
//!
//! Authors rely on the behaviour of other programs, so only invalid needs are an error. Other
//! deviations are warnings with their line.

use ringfence_policy::front_matter::{FrontMatterEntry, FrontMatterKind, FrontMatterValue};
use ringfence_policy::{AbsPath, FrontMatter};

use super::SkillWarning;
use crate::needs::{SkillNeeds, SkillNeedsError};

#[derive(Debug)]
pub(crate) struct SkillFrontMatter {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) compatibility: Option<String>,
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    pub(crate) allowed_tools: Vec<String>,
    pub(crate) needs: Result<SkillNeeds, SkillNeedsError>,
    /// Its length in bytes, with both fences.
    pub(crate) length: u64,
    pub(crate) warnings: Vec<SkillWarning>,
}

const KEYS: &[&str] =
    &["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
/// The size limit of a head.
pub(super) const LONGEST_HEAD: usize = 1 << 18;
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1024;
const MAX_COMPATIBILITY: usize = 500;

impl SkillFrontMatter {
    pub(crate) fn none() -> SkillFrontMatter {
        SkillFrontMatter {
            name: None,
            description: None,
            license: None,
            compatibility: None,
            metadata: serde_json::Map::new(),
            allowed_tools: Vec::new(),
            needs: Ok(SkillNeeds::default()),
            length: 0,
            warnings: Vec::new(),
        }
    }

    /// Parses the head of a file; `directory` is the name of the skill's directory.
    pub(crate) fn parse(bytes: &[u8], directory: &str) -> SkillFrontMatter {
        let text = String::from_utf8_lossy(bytes);
        // Errors name a file, and this one has no other meaningful path.
        let file = AbsPath::root().join("SKILL.md");
        let read = match FrontMatter::parse(&text, &file, &[]) {
            Ok(read) => read,
            Err(error) => {
                let what = error.to_string();
                let what = what.strip_prefix(&format!("{file}:")).unwrap_or(&what);
                let head = head_of(&text);
                // The rest of a head that is too long was not checked.
                let is_truncated = head.len() > LONGEST_HEAD;
                let needs = SkillNeeds::refuse_possible_needs(
                    if is_truncated { "hosts" } else { head },
                    what,
                )
                .map(|()| SkillNeeds::default());
                let warning = SkillWarning::at(1, format!("cannot parse its head: {what}"));
                return SkillFrontMatter {
                    needs,
                    warnings: vec![warning],
                    ..SkillFrontMatter::none()
                };
            }
        };
        let mut head = SkillFrontMatter {
            needs: SkillNeeds::from_front_matter(&read),
            length: (text.len() - read.body.len()) as u64,
            ..SkillFrontMatter::none()
        };
        if matches!(text, std::borrow::Cow::Owned(_)) {
            head.warn(1, "it is not UTF-8");
        }
        head.name(&read, directory);
        head.description = head.text(&read, "description", MAX_DESCRIPTION);
        if head.description.is_none() {
            head.warn(1, "`description` is missing: an agent cannot tell when to use the skill");
        }
        head.license = head.text(&read, "license", MAX_DESCRIPTION);
        head.compatibility = head.text(&read, "compatibility", MAX_COMPATIBILITY);
        head.metadata(&read);
        head.tools(&read);
        for entry in read.entries.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
            head.warn(entry.at.0, format!("`{}` is not a known key for skills", entry.key));
        }
        head
    }

    fn warn(&mut self, line: u32, what: impl Into<String>) {
        self.warnings.push(SkillWarning::at(line, what));
    }

    /// The text of a key; an invalid one is taken unchanged, with a warning.
    fn text(&mut self, read: &FrontMatter, key: &str, longest: usize) -> Option<String> {
        let entry = read.get(key)?;
        let line = entry.at.0;
        let text = match &entry.value.kind {
            FrontMatterKind::Text(text) | FrontMatterKind::Raw(text) => text.trim().to_owned(),
            FrontMatterKind::Nothing => String::new(),
            FrontMatterKind::List(_) | FrontMatterKind::Map(_) => {
                self.warn(line, format!("`{key}` is not a text"));
                return None;
            }
        };
        if text.is_empty() {
            self.warn(line, format!("`{key}` is empty"));
            return None;
        }
        if matches!(entry.value.kind, FrontMatterKind::Raw(_)) {
            self.warn(line, format!("`{key}` is not plain YAML: write it in quotation marks"));
        }
        let length = text.chars().count();
        if length > longest {
            self.warn(line, format!("`{key}` has {length} characters, more than {longest}"));
        }
        Some(text)
    }

    fn name(&mut self, read: &FrontMatter, directory: &str) {
        let line = read.get("name").map_or(1, |entry| entry.at.0);
        self.name = self.text(read, "name", MAX_NAME);
        let Some(name) = self.name.clone() else {
            if read.get("name").is_none() {
                self.warn(1, "`name` is missing; the directory's name is used");
            }
            return;
        };
        let is_plain =
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !is_plain || name.starts_with('-') || name.ends_with('-') || name.contains("--") {
            self.warn(
                line,
                "`name` must consist of lower case letters and digits with single hyphens between them",
            );
        }
        if name != directory {
            self.warn(
                line,
                format!(
                    "`name` differs from the directory (`{directory}`), which identifies the skill"
                ),
            );
        }
    }

    fn metadata(&mut self, read: &FrontMatter) {
        let Some(entry) = read.get("metadata") else { return };
        match &entry.value.kind {
            FrontMatterKind::Map(entries) => self.metadata = map(entries),
            FrontMatterKind::Nothing => {}
            FrontMatterKind::Text(text) | FrontMatterKind::Raw(text) => {
                // Many authors write JSON, which is valid YAML.
                match serde_json::from_str(text) {
                    Ok(serde_json::Value::Object(entries)) => self.metadata = entries,
                    _ => self.warn(entry.at.0, "`metadata` is not a valid map of keys and values"),
                }
            }
            FrontMatterKind::List(_) => self.warn(entry.at.0, "`metadata` is a list, not a map"),
        }
    }

    fn tools(&mut self, read: &FrontMatter) {
        let Some(entry) = read.get("allowed-tools") else { return };
        match &entry.value.kind {
            FrontMatterKind::Text(text) | FrontMatterKind::Raw(text) => {
                self.allowed_tools = words(text)
            }
            FrontMatterKind::List(items) => {
                self.allowed_tools = items
                    .iter()
                    .filter_map(|item| {
                        if let FrontMatterKind::Text(text) = &item.kind {
                            Some(text.clone())
                        } else {
                            None
                        }
                    })
                    .collect();
                self.warn(
                    entry.at.0,
                    "`allowed-tools` is a list; it should be words separated by spaces",
                );
            }
            FrontMatterKind::Nothing => {}
            FrontMatterKind::Map(_) => self.warn(
                entry.at.0,
                "`allowed-tools` is a map; it should be words separated by spaces",
            ),
        }
    }
}

/// The text before the second fence; empty without a first fence.
fn head_of(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    let Some(first) = lines.next().filter(|line| is_fence(line)) else { return "" };
    let length: usize = lines.take_while(|line| !is_fence(line)).map(str::len).sum();
    &text[..first.len() + length]
}

fn map(entries: &[FrontMatterEntry]) -> serde_json::Map<String, serde_json::Value> {
    entries.iter().map(|entry| (entry.key.clone(), value(&entry.value))).collect()
}

fn value(of: &FrontMatterValue) -> serde_json::Value {
    match &of.kind {
        FrontMatterKind::Nothing => serde_json::Value::Null,
        FrontMatterKind::Text(text) | FrontMatterKind::Raw(text) => text.as_str().into(),
        FrontMatterKind::List(items) => items.iter().map(value).collect(),
        FrontMatterKind::Map(entries) => map(entries).into(),
    }
}

/// Splits words separated by spaces or commas; text in parentheses stays with its word.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0u32;
    for c in text.chars() {
        depth = match c {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        match c {
            c if depth == 0 && (c.is_whitespace() || c == ',') => words.push(String::new()),
            c => words.last_mut().unwrap_or(&mut String::new()).push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests;
