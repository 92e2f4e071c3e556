//! What lies in a skill.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::SkillId;
use crate::store::SkillStore;
use crate::tree::{self, UnreadableDirs};

/// What lies in a skill, by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFiles {
    /// Everything but the skill's own directory.
    pub files: Vec<FileInfo>,
    /// Whether there is more: more than is listed, paths that are too long to be followed, or
    /// directories that cannot be looked into.
    pub truncated: bool,
}

/// A file or something else that has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileInfo {
    /// From the skill's directory on. What is no UTF-8 shows as `�`, and cannot be asked for.
    pub path: String,
    /// What it is.
    pub kind: SkillFileKind,
    /// How long a file is.
    pub bytes: u64,
    /// When it was last written, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Whether its owner may run it.
    pub executable: bool,
}

/// What has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SkillFileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A link, which is never followed.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl SkillStore {
    /// What lies in a skill, at whatever depth.
    pub fn files(&self, skill: &SkillId) -> Result<SkillFiles, StoreError> {
        let held = self.hold(skill)?;
        let mut files = Vec::new();
        let most = self.inner.bounds.listed;
        let walked = tree::walk(held.directory.as_fd(), UnreadableDirs::Leave, |found| {
            if files.len() == most {
                return ControlFlow::Break(());
            }
            let kind = match tree::kind(&found.stat) {
                FileType::RegularFile => SkillFileKind::File,
                FileType::Directory => SkillFileKind::Directory,
                FileType::Symlink => SkillFileKind::Link,
                _ => SkillFileKind::Other,
            };
            files.push(FileInfo {
                path: String::from_utf8_lossy(found.path).into_owned(),
                kind,
                bytes: if kind == SkillFileKind::File { found.stat.st_size as u64 } else { 0 },
                modified_ms: tree::modified_ms(&found.stat),
                executable: kind == SkillFileKind::File && found.stat.st_mode & 0o100 != 0,
            });
            ControlFlow::Continue(())
        });
        let is_all = walked.map_err(StoreError::system("list", format!("skills/{skill}")))?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(SkillFiles { files, truncated: !is_all })
    }
}
