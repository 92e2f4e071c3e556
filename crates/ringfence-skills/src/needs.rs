//! The needs that a skill declares: hosts, writable paths, limits.
//!
//! They are an upper limit. So anything that may be a need and cannot be parsed is an error, never
//! treated as no need.

use ringfence_policy::front_matter::{FrontMatterEntry, FrontMatterKind, FrontMatterValue};
use ringfence_policy::{FrontMatter, HostRule, HostRuleError, Limit, is_hidden};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The needs that a skill declares, under `metadata` in its `SKILL.md`. `None` means not declared;
/// an empty list means that nothing is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillNeeds {
    /// Hosts, as rules of a policy.
    pub hosts: Option<Vec<String>>,
    /// Paths relative to the skill's directory; `.` is all of it.
    pub writes: Option<Vec<String>>,
    /// Limits of a policy with their values.
    pub limits: Option<Vec<(String, String)>>,
}

/// The reason needs cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillNeedsError {
    /// A possible need is in a head that cannot be parsed.
    #[error("line {line}: `{key}` is in a head that cannot be parsed: {what}")]
    Unreadable {
        /// The line, from 1.
        line: u32,
        /// The key.
        key: &'static str,
        /// The reason.
        what: String,
    },
    /// The key is not under `metadata`, or is misspelled.
    #[error("line {line}: `{key}` is not allowed here")]
    Misplaced {
        /// The line, from 1.
        line: u32,
        /// The key as written.
        key: String,
    },
    /// The value has the wrong type.
    #[error("line {line}: `{key}` is neither a text nor a list of texts")]
    Shape {
        /// The line, from 1.
        line: u32,
        /// The key.
        key: &'static str,
    },
    /// A host is invalid.
    #[error("line {line}: `{text}` is not a valid host: {source}")]
    Host {
        /// The line, from 1.
        line: u32,
        /// The text.
        text: String,
        /// The reason.
        source: HostRuleError,
    },
    /// A path is not below the skill's directory.
    #[error("line {line}: `{text}` is not a path below the skill's directory")]
    Write {
        /// The line, from 1.
        line: u32,
        /// The text.
        text: String,
    },
    /// A limit is unknown, repeated or has no value.
    #[error("line {line}: `{text}` is not a valid limit")]
    Limit {
        /// The line, from 1.
        line: u32,
        /// The text.
        text: String,
        /// The expected text.
        expected: String,
    },
}

impl SkillNeedsError {
    /// The hint.
    pub fn hint(&self) -> String {
        match self {
            SkillNeedsError::Unreadable { .. } => {
                "write the head as plain YAML between two lines of `---`, each key once".into()
            }
            SkillNeedsError::Misplaced { key, .. } => {
                format!("write `{}` under `metadata`", key.to_ascii_lowercase())
            }
            SkillNeedsError::Shape { .. } => "write `a, b`, or a list with dashes".into(),
            SkillNeedsError::Host { source, .. } => source.hint(),
            SkillNeedsError::Write { .. } => {
                "write paths such as `out/reports`, without `..`, `~`, `$` or wildcards".into()
            }
            SkillNeedsError::Limit { expected, .. } => expected.clone(),
        }
    }
}

const KEYS: [&str; 3] = ["hosts", "writes", "limits"];

impl SkillNeeds {
    /// True if no need is declared.
    pub fn is_empty(&self) -> bool {
        *self == SkillNeeds::default()
    }

    /// Parses them from a head.
    pub(crate) fn from_front_matter(head: &FrontMatter) -> Result<SkillNeeds, SkillNeedsError> {
        if let Some(entry) = head.entries.iter().find(|entry| key_of(&entry.key).is_some()) {
            return Err(SkillNeedsError::Misplaced { line: entry.at.0, key: entry.key.clone() });
        }
        let mut needs = SkillNeeds::default();
        let Some(metadata) = head.get("metadata") else { return Ok(needs) };
        let entries = match &metadata.value.kind {
            FrontMatterKind::Map(entries) => entries,
            FrontMatterKind::Nothing => return Ok(needs),
            FrontMatterKind::Raw(text) | FrontMatterKind::Text(text) => {
                return find_key(text).map_or(Ok(needs), |(line, key)| {
                    Err(unreadable(metadata.value.at.0 + line, key, "`metadata` is not a map"))
                });
            }
            FrontMatterKind::List(items) => {
                let texts =
                    items.iter().filter_map(|item| Some((item.at.0, find_key(&text(item)?)?.1)));
                return texts.into_iter().next().map_or(Ok(needs), |(line, key)| {
                    Err(unreadable(line, key, "`metadata` is not a map"))
                });
            }
        };
        for entry in entries {
            match key_of(&entry.key) {
                Some(key) if key != entry.key => {
                    return Err(SkillNeedsError::Misplaced {
                        line: entry.at.0,
                        key: entry.key.clone(),
                    });
                }
                Some("hosts") => needs.hosts = Some(hosts(entry)?),
                Some("writes") => needs.writes = Some(writes(entry)?),
                Some(_) => needs.limits = Some(limits(entry)?),
                None => {}
            }
        }
        Ok(needs)
    }

    /// Refuses a head that cannot be parsed if it may contain needs.
    pub(crate) fn refuse_possible_needs(head: &str, what: &str) -> Result<(), SkillNeedsError> {
        find_key(head).map_or(Ok(()), |(line, key)| Err(unreadable(line + 1, key, what)))
    }
}

fn unreadable(line: u32, key: &'static str, what: &str) -> SkillNeedsError {
    SkillNeedsError::Unreadable { line, key, what: what.to_owned() }
}

fn key_of(word: &str) -> Option<&'static str> {
    KEYS.into_iter().find(|key| key.eq_ignore_ascii_case(word))
}

/// The line, from 0, that contains one of the keys as a word.
fn find_key(text: &str) -> Option<(u32, &'static str)> {
    let mut lines = (0u32..).zip(text.lines());
    lines.find_map(|(i, line)| {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
        words.find_map(key_of).map(|key| (i, key))
    })
}

fn text(value: &FrontMatterValue) -> Option<String> {
    if let FrontMatterKind::Text(text) = &value.kind { Some(text.clone()) } else { None }
}

/// Texts with their lines: `a, b`, or a list.
fn texts(
    entry: &FrontMatterEntry,
    key: &'static str,
    between: &[char],
) -> Result<Vec<(u32, String)>, SkillNeedsError> {
    let line = entry.value.at.0;
    let shape = |line| SkillNeedsError::Shape { line, key };
    let whole: Vec<(u32, String)> = match &entry.value.kind {
        FrontMatterKind::Nothing => return Ok(Vec::new()),
        FrontMatterKind::Text(text) => text
            .split(between)
            .map(|part| (line, part.trim().to_owned()))
            .filter(|(_, part)| !part.is_empty())
            .collect(),
        FrontMatterKind::List(items) => {
            let read = items.iter().map(|item| {
                Ok((item.at.0, text(item).ok_or_else(|| shape(item.at.0))?.trim().to_owned()))
            });
            read.collect::<Result<_, SkillNeedsError>>()?
        }
        FrontMatterKind::Map(_) | FrontMatterKind::Raw(_) => return Err(shape(line)),
    };
    Ok(whole)
}

fn hosts(entry: &FrontMatterEntry) -> Result<Vec<String>, SkillNeedsError> {
    let mut hosts = Vec::new();
    for (line, text) in texts(entry, "hosts", &[',', ' ', '\n'])? {
        HostRule::parse(&text).map_err(|source| SkillNeedsError::Host {
            line,
            text: text.clone(),
            source,
        })?;
        hosts.push(text);
    }
    Ok(hosts)
}

fn writes(entry: &FrontMatterEntry) -> Result<Vec<String>, SkillNeedsError> {
    let mut writes = Vec::new();
    for (line, text) in texts(entry, "writes", &[',', '\n'])? {
        let path = text.trim_end_matches('/');
        let path = path.strip_prefix("./").unwrap_or(path);
        // Characters with a meaning in a policy are refused.
        let is_plain = !path.contains(|c: char| is_hidden(c) || "*?[]{}$~!\\".contains(c))
            && !path.starts_with('@');
        let is_below = !text.starts_with('/')
            && (path == "." || path.split('/').all(|part| !matches!(part, "" | "." | "..")));
        if !is_plain || !is_below {
            return Err(SkillNeedsError::Write { line, text });
        }
        writes.push(path.to_owned());
    }
    Ok(writes)
}

fn limits(entry: &FrontMatterEntry) -> Result<Vec<(String, String)>, SkillNeedsError> {
    let pairs: Vec<(u32, String, String)> = match &entry.value.kind {
        FrontMatterKind::Map(entries) => {
            let read = entries.iter().map(|entry| {
                let amount = text(&entry.value)
                    .ok_or(SkillNeedsError::Shape { line: entry.at.0, key: "limits" })?;
                Ok((entry.at.0, entry.key.clone(), amount))
            });
            read.collect::<Result<_, SkillNeedsError>>()?
        }
        _ => {
            let read =
                texts(entry, "limits", &[',', '\n'])?.into_iter().map(|(line, text)| {
                    let expected = "write each as `wall=60s`".to_owned();
                    let (word, amount) = text
                        .split_once(['=', ':'])
                        .ok_or(SkillNeedsError::Limit { line, text: text.clone(), expected })?;
                    Ok((line, word.trim().to_owned(), amount.trim().to_owned()))
                });
            read.collect::<Result<_, SkillNeedsError>>()?
        }
    };
    let mut limits: Vec<(String, String)> = Vec::new();
    for (line, word, amount) in pairs {
        let fail = |expected: String| SkillNeedsError::Limit {
            line,
            text: format!("{word}={amount}"),
            expected,
        };
        let all = || Limit::ALL.iter().map(|limit| limit.word()).collect::<Vec<_>>().join(", ");
        let limit: Limit = word.parse().map_err(|()| fail(format!("write one of {}", all())))?;
        if limit.parse_amount(&amount).is_none() {
            return Err(fail(format!("write {}", limit.expected_format())));
        }
        if limits.iter().any(|(there, _)| *there == word) {
            return Err(fail("write each limit once".into()));
        }
        limits.push((word, amount));
    }
    Ok(limits)
}
