//! Lists the files of a skill.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::SkillId;
use crate::store::SkillStore;
use crate::tree::{self, UnreadableDirs};

/// The files of a skill, by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFiles {
    /// Everything except the skill's own directory.
    pub files: Vec<FileInfo>,
    /// True if there is more: more entries than the limit, paths that are too long, or unreadable
    /// directories.
    pub truncated: bool,
}

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileInfo {
    /// The path below the skill's directory. Invalid UTF-8 is shown as `�`, and cannot be
    /// requested.
    pub path: String,
    /// The type.
    pub kind: SkillFileKind,
    /// The size of a file.
    pub bytes: u64,
    /// The modification time, in milliseconds since 1970.
    pub modified_ms: u64,
    /// True if its owner may execute it.
    pub executable: bool,
}

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SkillFileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; it is never followed.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl SkillStore {
    /// The files of a skill, at any depth.
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
