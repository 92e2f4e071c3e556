//! What a skill says of itself.

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

/// A skill, as its `SKILL.md` describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillInfo {
    /// Its directory.
    pub skill_id: SkillName,
    /// What it calls itself; its directory if it does not.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Under which licence.
    pub license: Option<String>,
    /// What it has to have around it.
    pub compatibility: Option<String>,
    /// Whatever else its author wrote, in that order.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Tools that it is meant to use.
    pub allowed_tools: Vec<String>,
    /// What it may have at most; none if that is not on record, and then nothing should run in it.
    pub needs: Option<SkillNeeds>,
    /// How many bytes of instructions stand below its head.
    pub body_bytes: u64,
    /// Where it departs from the rules for skills.
    pub warnings: Vec<SkillWarning>,
    /// Bytes of all its plain files.
    pub bytes: u64,
    /// Its files of any kind but directories.
    pub files: u64,
    /// When it was uploaded or last edited, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Skills in directories below it, by path.
    #[serde(default)]
    pub nested: Vec<NestedSkill>,
}

/// A `SKILL.md` in a directory below a skill. It is listed, and has no needs or files of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NestedSkill {
    /// Its directory, from the skill's directory on.
    pub path: String,
    /// The name in its head, or else the name of its directory.
    pub name: String,
    /// The description in its head.
    pub description: Option<String>,
    /// Where it departs from the rules for skills.
    pub warnings: Vec<SkillWarning>,
}

/// Something that is not as it should be and stands in nobody's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkillWarning {
    /// The line of `SKILL.md`, from 1, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
    /// In words.
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

/// What is read of a file for its head: a little more than the longest.
const READ: u64 = head::LONGEST_HEAD as u64 + 4096;
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

/// What the version that is held says of itself.
pub(crate) fn describe(held: &HeldVersion, most: u64) -> Result<SkillInfo, StoreError> {
    let usage = count(held.directory.as_fd(), most)
        .map_err(StoreError::system("count", held.skill.path()))?;
    let (head, size) = read(held);
    let card = held.card().ok();
    let mut warnings = head.warnings;
    match (&head.needs, &card) {
        (_, None) => {
            warnings.push(SkillWarning::new("what it may do is not on record: upload it again"))
        }
        (Err(error), Some(_)) => {
            warnings.push(SkillWarning::new(format!("{error}; what holds is what was uploaded")))
        }
        (Ok(says), Some(card)) if *says != card.needs => {
            warnings.push(SkillWarning::new(
                "something that ran in it changed its needs; what holds is what was uploaded",
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

/// The skills below one, at any depth. Programs of a tenant may have made as many as they like, so
/// only so many are read, and the walk ends after `most` names.
fn nested(held: &HeldVersion, most: u64) -> Vec<NestedSkill> {
    const MOST: usize = 256;
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
        if paths.len() < MOST && names <= most {
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

/// The head of the file as it is now; one that is missing is an empty one.
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
    let Ok(file) = tree::readable(&held.directory, path) else {
        return missing("there is no SKILL.md that can be read");
    };
    let Ok(stat) = rustix::fs::fstat(&file) else {
        return missing("there is no SKILL.md that can be read");
    };
    if tree::kind(&stat) != FileType::RegularFile {
        return missing("SKILL.md is no file");
    }
    let mut bytes = Vec::new();
    if File::from(file).take(READ).read_to_end(&mut bytes).is_err() {
        return missing("there is no SKILL.md that can be read");
    }
    (SkillFrontMatter::parse(&bytes, name), stat.st_size as u64)
}

/// What a `SKILL.md` that comes in says it needs.
pub(crate) fn needs_of(bytes: &[u8], skill: &str) -> Result<SkillNeeds, SkillNeedsError> {
    SkillFrontMatter::parse(&bytes[..bytes.len().min(READ as usize)], skill).needs
}
