//! Information about a skill, from its `SKILL.md`.

mod head;

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::{SkillId, SkillName};
use crate::needs::{SkillNeeds, SkillNeedsError};
use crate::store::{HeldVersion, SkillStore};
use crate::tree::{self, UnreadableDirs};
use crate::usage::count;

pub(crate) use head::SkillFrontMatter;

/// A skill, as described in its `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillInfo {
    /// The name of its directory.
    pub skill_id: SkillName,
    /// The name in its head; by default that of its directory.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// The licence.
    pub license: Option<String>,
    /// The required environment.
    pub compatibility: Option<String>,
    /// Other metadata of its author, in order.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// The tools that it intends to use.
    pub allowed_tools: Vec<String>,
    /// The upper limit of its permissions; `None` if that is not on record. Then nothing should run
    /// in it.
    pub needs: Option<SkillNeeds>,
    /// The size of the instructions below its head.
    pub body_bytes: u64,
    /// Deviations from the rules for skills.
    pub warnings: Vec<SkillWarning>,
    /// Bytes of all its regular files.
    pub bytes: u64,
    /// The number of its files of any type except directories.
    pub files: u64,
    /// The time of the upload or last edit, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Skills in directories below it, by path.
    #[serde(default)]
    pub nested: Vec<NestedSkill>,
}

/// A `SKILL.md` in a directory below a skill. It is listed, but has no needs or files of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NestedSkill {
    /// Its directory, relative to the skill's directory.
    pub path: String,
    /// The name in its head, or else the name of its directory.
    pub name: String,
    /// The description in its head.
    pub description: Option<String>,
    /// Deviations from the rules for skills.
    pub warnings: Vec<SkillWarning>,
}

/// A deviation that prevents nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkillWarning {
    /// The line of `SKILL.md`, from 1, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
    /// The message.
    pub what: String,
}

impl SkillWarning {
    pub(crate) fn new(what: impl Into<String>) -> SkillWarning {
        SkillWarning { line: None, what: what.into() }
    }

    pub(crate) fn at(line: u32, what: impl Into<String>) -> SkillWarning {
        SkillWarning { line: Some(line), what: what.into() }
    }
}

/// The number of bytes read for the head: a little more than the longest head.
const MAX_HEAD_READ: u64 = head::LONGEST_HEAD as u64 + 4096;
pub(crate) const SKILL_FILE: &str = "SKILL.md";

impl SkillStore {
    /// The skills of an agent, by name.
    pub fn list(&self, user: &SkillName, agent: &SkillName) -> Result<Vec<SkillInfo>, StoreError> {
        let mut infos = Vec::new();
        for skill in self.inner.children(&format!("{user}/{agent}"))? {
            match self.info(&SkillId { user: user.clone(), agent: agent.clone(), skill }) {
                Ok(info) => infos.push(info),
                Err(StoreError::NoSkill { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(infos)
    }

    /// One skill.
    pub fn info(&self, skill: &SkillId) -> Result<SkillInfo, StoreError> {
        let held = self.hold(skill)?;
        describe(&held, self.inner.bounds.counted)
    }
}

/// The information about a held version.
pub(crate) fn describe(held: &HeldVersion, most: u64) -> Result<SkillInfo, StoreError> {
    let usage = count(held.directory.as_fd(), most)
        .map_err(StoreError::system("count", held.skill.path()))?;
    let (head, size) = read(held);
    let card = held.metadata().ok();
    let mut warnings = head.warnings;
    match (&head.needs, &card) {
        (_, None) => {
            warnings.push(SkillWarning::new("its permissions are not on record: upload it again"))
        }
        (Err(error), Some(_)) => warnings
            .push(SkillWarning::new(format!("{error}; the needs of the upload stay in force"))),
        (Ok(says), Some(card)) if *says != card.needs => {
            warnings.push(SkillWarning::new(
                "a command changed its needs; the needs of the upload stay in force",
            ));
        }
        _ => {}
    }
    Ok(SkillInfo {
        skill_id: held.skill.skill.clone(),
        name: head.name.unwrap_or_else(|| held.skill.skill.to_string()),
        description: head.description,
        license: head.license,
        compatibility: head.compatibility,
        metadata: head.metadata,
        allowed_tools: head.allowed_tools,
        updated_ms: card.as_ref().map_or(0, |card| card.updated_ms),
        needs: card.map(|card| card.needs),
        body_bytes: size.saturating_sub(head.length),
        warnings,
        bytes: usage.bytes,
        files: usage.files,
        nested: nested(held, most),
    })
}

/// The skills below one, at any depth. A tenant's programs may create any number of them, so at
/// most 256 are read, and the walk ends after `most` names.
fn nested(held: &HeldVersion, most: u64) -> Vec<NestedSkill> {
    const MAX_NESTED: usize = 256;
    let mut paths: Vec<String> = Vec::new();
    let mut names = 0;
    let _ = tree::walk(held.directory.as_fd(), UnreadableDirs::Leave, |found| {
        let directory = std::str::from_utf8(found.path)
            .ok()
            .and_then(|path| path.strip_suffix(SKILL_FILE)?.strip_suffix('/'));
        if let Some(directory) =
            directory.filter(|_| tree::kind(&found.stat) == FileType::RegularFile)
        {
            paths.push(directory.to_owned());
        }
        names += 1;
        if paths.len() < MAX_NESTED && names <= most {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    paths.sort_unstable();
    let describe = |path: String| {
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let (head, _) = read_at(held, &format!("{path}/{SKILL_FILE}"), &name);
        NestedSkill {
            path,
            name: head.name.unwrap_or(name),
            description: head.description,
            warnings: head.warnings,
        }
    };
    paths.into_iter().map(describe).collect()
}

/// The head of the current file; a missing file has an empty head.
fn read(held: &HeldVersion) -> (SkillFrontMatter, u64) {
    read_at(held, SKILL_FILE, held.skill.skill.as_str())
}

fn read_at(held: &HeldVersion, path: &str, name: &str) -> (SkillFrontMatter, u64) {
    let missing = |what: &str| {
        (
            SkillFrontMatter {
                warnings: vec![SkillWarning::new(what)],
                ..SkillFrontMatter::none()
            },
            0,
        )
    };
    let Ok(file) = tree::open_readable(&held.directory, path) else {
        return missing("there is no readable SKILL.md");
    };
    let Ok(stat) = rustix::fs::fstat(&file) else {
        return missing("there is no readable SKILL.md");
    };
    if tree::kind(&stat) != FileType::RegularFile {
        return missing("SKILL.md is not a regular file");
    }
    let mut bytes = Vec::new();
    if File::from(file).take(MAX_HEAD_READ).read_to_end(&mut bytes).is_err() {
        return missing("there is no readable SKILL.md");
    }
    (SkillFrontMatter::parse(&bytes, name), stat.st_size as u64)
}

/// The needs in an incoming `SKILL.md`.
pub(crate) fn needs_of(bytes: &[u8], skill: &str) -> Result<SkillNeeds, SkillNeedsError> {
    SkillFrontMatter::parse(&bytes[..bytes.len().min(MAX_HEAD_READ as usize)], skill).needs
}
