//! Stores the skills of an archive.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::archive::{self, ArchiveEntry, ArchiveEntryKind, CheckedArchive, UnpackSink};
use crate::error::StoreError;
use crate::info::{SKILL_FILE, SkillInfo, SkillWarning, needs_of};
use crate::metadata::SkillMetadata;
use crate::name::{SkillId, SkillName};
use crate::needs::SkillNeeds;
use crate::store::{SkillStore, SkillStoreInner};
use crate::tree;
use crate::versions::ClaimWait;

/// The result of an upload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UploadResult {
    /// Every skill of the archive.
    pub skills: Vec<UploadedSkill>,
    /// Warnings about the archive itself.
    pub warnings: Vec<SkillWarning>,
}

/// An uploaded skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UploadedSkill {
    /// The skill as it is now.
    #[serde(flatten)]
    pub info: SkillInfo,
    /// True if a skill of that name existed.
    pub replaced: bool,
}

/// The number of files above which `syncfs` replaces one fsync per file.
const SYNCFS_THRESHOLD: usize = 64;

impl SkillStore {
    /// Stores the skills of an archive: its top-level directories. Skills of the same names are
    /// replaced, each atomically; other skills of the agent stay. An archive with any fault is
    /// refused without changes. With a `quota`, the user has at most that many bytes afterwards.
    pub fn upload(
        &self,
        user: &SkillName,
        agent: &SkillName,
        mut archive: impl Read + Seek,
        quota: Option<u64>,
    ) -> Result<UploadResult, StoreError> {
        let inner = &self.inner;
        let judged = archive::check_archive(&mut archive, &inner.bounds)?;
        let staged = StagingDir::new(inner)?;
        let needs = staged.fill(&mut archive, &judged)?;
        let skill_of = |skill: &SkillName| SkillId {
            user: user.clone(),
            agent: agent.clone(),
            skill: skill.clone(),
        };
        let skills: Vec<SkillId> = judged.skills.iter().map(skill_of).collect();

        let _user = quota.map(|_| inner.claim_user(&skills[0])).transpose()?;
        if let Some(quota) = quota {
            let size = judged.entries.iter().map(|entry| entry.packed.size).sum();
            self.check_quota(user, size, 0, &skills, quota)?;
        }
        let _claim = inner.claim(&skills, ClaimWait::Setups)?;
        for (skill, needs) in skills.iter().zip(needs) {
            let number = tree::stat(&staged.directory, skill.skill.as_str())
                .map_err(StoreError::system("stat", skill.path()))?
                .st_ino;
            let written = SkillMetadata::new(needs).write(
                inner.cards.as_fd(),
                inner.staging.as_fd(),
                &inner.unique_name(),
                skill,
                number,
            );
            written.map_err(StoreError::io("write", format!("cards/{skill}")))?;
        }
        let mut taken = Vec::new();
        for skill in &skills {
            let replaced = inner.replace(&staged.directory, skill.skill.as_str(), skill)?;
            taken.push((skill, replaced));
        }
        // Still under the claim: the result describes the uploaded versions.
        let taken = taken
            .into_iter()
            .map(|(skill, replaced)| Ok(UploadedSkill { info: self.info(skill)?, replaced }));
        Ok(UploadResult {
            skills: taken.collect::<Result<_, StoreError>>()?,
            warnings: judged.warnings,
        })
    }
}

/// A private directory in staging, removed when dropped.
struct StagingDir<'a> {
    inner: &'a SkillStoreInner,
    name: String,
    directory: OwnedFd,
}

impl<'a> StagingDir<'a> {
    fn new(inner: &'a SkillStoreInner) -> Result<StagingDir<'a>, StoreError> {
        let name = inner.unique_name();
        let made = tree::create_directory(&inner.staging, &name, 0o700)
            .and_then(|()| tree::open_directory(&inner.staging, &name));
        let directory = made.map_err(StoreError::system("create", format!("staging/{name}")))?;
        Ok(StagingDir { inner, name, directory })
    }

    /// Unpacks everything and syncs it. Returns the needs of each skill.
    fn fill(
        &self,
        from: &mut (impl Read + Seek),
        archive: &CheckedArchive,
    ) -> Result<Vec<SkillNeeds>, StoreError> {
        let is_many = archive.entries.len() > SYNCFS_THRESHOLD;
        let mut tree = StagedTree {
            staged: self,
            made: HashSet::new(),
            file: None,
            path: String::new(),
            written: Vec::new(),
            is_many,
        };
        archive::unpack(from, archive, &mut tree)?;
        let mut made: Vec<String> = std::mem::take(&mut tree.made).into_iter().collect();
        let fail = || StoreError::system("write", format!("staging/{}", self.name));
        if is_many {
            rustix::fs::syncfs(&self.directory).map_err(fail())?;
        } else {
            // All at the end: the first fsync writes most of what the others wait for.
            tree.written
                .iter()
                .try_for_each(File::sync_all)
                .map_err(StoreError::io("write", format!("staging/{}", self.name)))?;
            made.push(".".into());
            for path in made {
                tree::open_directory(&self.directory, &path)
                    .and_then(rustix::fs::fsync)
                    .map_err(fail())?;
            }
        }
        archive.skills.iter().map(|skill| self.needs(skill)).collect()
    }

    fn needs(&self, skill: &SkillName) -> Result<SkillNeeds, StoreError> {
        let path = format!("{skill}/{SKILL_FILE}");
        let mut bytes = Vec::new();
        let opened = tree::open_readable(&self.directory, &path)
            .map_err(StoreError::system("read", &path))?;
        File::from(opened).read_to_end(&mut bytes).map_err(StoreError::io("read", &path))?;
        needs_of(&bytes, skill.as_str())
            .map_err(|source| StoreError::Needs { skill: skill.to_string(), source })
    }
}

impl Drop for StagingDir<'_> {
    fn drop(&mut self) {
        let _ = tree::delete(self.inner.staging.as_fd(), &self.name, || self.inner.unique_name());
    }
}

/// Creates files and directories.
struct StagedTree<'a> {
    staged: &'a StagingDir<'a>,
    made: HashSet<String>,
    file: Option<File>,
    path: String,
    /// Files that need an fsync.
    written: Vec<File>,
    is_many: bool,
}

impl StagedTree<'_> {
    fn directories(&mut self, path: &str) -> Result<(), StoreError> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let parent = &path[..end];
            if !self.made.contains(parent) {
                tree::create_directory(&self.staged.directory, parent, 0o755)
                    .map_err(StoreError::system("create", parent))?;
                self.made.insert(parent.to_owned());
            }
        }
        Ok(())
    }
}

impl UnpackSink for StagedTree<'_> {
    fn begin(&mut self, entry: &ArchiveEntry) -> Result<(), StoreError> {
        entry.name.clone_into(&mut self.path);
        if entry.kind == ArchiveEntryKind::Directory {
            return self.directories(&entry.name);
        }
        if let Some((directory, _)) = entry.name.rsplit_once('/') {
            self.directories(directory)?;
        }
        let mode = Mode::from_raw_mode(if entry.kind == ArchiveEntryKind::Program {
            0o755
        } else {
            0o644
        });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = tree::open(
            &self.staged.directory,
            entry.name.as_str(),
            flags,
            Mode::from_raw_mode(0o600),
        );
        let made = made.and_then(|made| rustix::fs::fchmod(&made, mode).map(|()| made));
        self.file = Some(File::from(made.map_err(StoreError::system("create", &self.path))?));
        Ok(())
    }

    fn more(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .as_mut()
            .map_or(Ok(()), |file| file.write_all(bytes))
            .map_err(StoreError::io("write", &self.path))
    }

    fn end(&mut self) -> Result<(), StoreError> {
        self.written.extend(self.file.take().filter(|_| !self.is_many));
        Ok(())
    }
}
