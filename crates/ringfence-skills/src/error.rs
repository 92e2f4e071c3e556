//! Errors of the skill store.

use std::io;
use std::path::PathBuf;

use crate::archive::ArchiveError;
use crate::name::{SkillId, SkillName};
use crate::needs::SkillNeedsError;

/// The reason a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be the root of a store.
    #[error("{} cannot be a skill store: {what}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// Another service uses the store.
    #[error("{} is used by another service", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The archive is refused; nothing was stored.
    #[error("the archive is refused")]
    Archive {
        /// The reason.
        #[from]
        source: ArchiveError,
    },
    /// The needs of a skill cannot be parsed.
    #[error("cannot parse the needs of skill `{skill}`")]
    Needs {
        /// The skill.
        skill: String,
        /// The problem.
        source: SkillNeedsError,
    },
    /// The needs of the skill at upload are not on record.
    #[error("the permissions of {skill} are not on record")]
    NeedsUnknown {
        /// The skill.
        skill: SkillId,
    },
    /// `SKILL.md` has different needs than at its last upload or edit.
    #[error("a command changed the needs in SKILL.md of {skill}")]
    NeedsChanged {
        /// The skill.
        skill: SkillId,
    },
    /// The skill does not exist.
    #[error("the skill {skill} does not exist")]
    NoSkill {
        /// The skill.
        skill: SkillId,
    },
    /// The file does not exist in the skill.
    #[error("`{path}` does not exist in {skill}")]
    NoFile {
        /// The skill.
        skill: SkillId,
        /// The path as requested.
        path: String,
    },
    /// The path is invalid.
    #[error("`{path}` is not a valid file path in a skill: {what}")]
    Path {
        /// The path as requested.
        path: String,
        /// The problem.
        what: &'static str,
    },
    /// The path is not a regular file.
    #[error("`{path}` in {skill} is {kind}, not a file")]
    NotAFile {
        /// The skill.
        skill: SkillId,
        /// The path as requested.
        path: String,
        /// Its type.
        kind: &'static str,
    },
    /// The file is not a text, so it has no lines.
    #[error("`{path}` in {skill} is not a text, so it has no lines")]
    NotText {
        /// The skill.
        skill: SkillId,
        /// The path as requested.
        path: String,
    },
    /// The lines do not exist, or the range is empty.
    #[error("lines {start} to {end} are out of range: the file has {total} lines")]
    Lines {
        /// The first requested line.
        start: u64,
        /// The last requested line.
        end: u64,
        /// The number of lines.
        total: u64,
    },
    /// It is larger than the limit.
    #[error("{what} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The object.
        what: String,
        /// Its size, or its size after the operation.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The user has more names than can be counted, so no quota can be checked.
    #[error(
        "skills of `{user}` have more than {names} names, or directories that are too deep to count"
    )]
    Uncountable {
        /// The user.
        user: SkillName,
        /// The limit of counted names.
        names: u64,
    },
    /// The user would exceed the quota.
    #[error("the user would have {bytes} bytes, more than the quota of {quota}")]
    Quota {
        /// The size after the operation.
        bytes: u64,
        /// The quota.
        quota: u64,
    },
    /// The file does not match the precondition.
    #[error("`{path}` in {skill} was changed meanwhile")]
    Changed {
        /// The skill.
        skill: SkillId,
        /// The file.
        path: String,
        /// Its current etag; `None` if it does not exist.
        etag: Option<String>,
    },
    /// Other operations held the skill for too long.
    #[error("timed out waiting for {skill}: other operations use it")]
    Busy {
        /// The skill.
        skill: SkillId,
    },
    /// A syscall failed.
    #[error("cannot {what} {path}")]
    System {
        /// The operation.
        what: &'static str,
        /// The path, below the store's root.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl StoreError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Root { .. } => "root",
            StoreError::InUse { .. } => "in-use",
            StoreError::Archive { source } => source.code(),
            StoreError::Needs { .. } => "needs",
            StoreError::NeedsUnknown { .. } => "needs-unknown",
            StoreError::NeedsChanged { .. } => "needs-changed",
            StoreError::NoSkill { .. } => "no-skill",
            StoreError::NoFile { .. } => "no-file",
            StoreError::Path { .. } => "path",
            StoreError::NotAFile { .. } => "not-a-file",
            StoreError::NotText { .. } => "not-text",
            StoreError::Lines { .. } => "lines",
            StoreError::TooLarge { .. } => "too-large",
            StoreError::Quota { .. } | StoreError::Uncountable { .. } => "quota",
            StoreError::Changed { .. } => "changed",
            StoreError::Busy { .. } => "busy",
            StoreError::System { .. } => "system",
        }
    }

    /// The hint.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            StoreError::Root { path, .. } => {
                format!(
                    "run `sudo chown SERVICE-USER {0} && sudo chmod 700 {0}`, or use another directory",
                    path.display()
                )
            }
            StoreError::InUse { .. } => "stop the other service, or use another directory".into(),
            StoreError::Archive { source } => return source.hint(),
            StoreError::Needs { source, .. } => source.hint(),
            StoreError::NeedsUnknown { .. } => {
                "upload the skill again, or write its SKILL.md as a whole".into()
            }
            StoreError::NeedsChanged { .. } => {
                "write SKILL.md as a whole, or upload the skill again".into()
            }
            StoreError::NoSkill { .. } => "list the agent's skills to see the existing ones".into(),
            StoreError::NoFile { .. } => "list the skill's files to see the existing ones".into(),
            StoreError::Path { .. } => {
                "use a path relative to the skill's directory, such as `scripts/run.py`".into()
            }
            StoreError::NotText { .. } => "request it without lines".into(),
            StoreError::Lines { total, .. } => {
                format!("lines are counted from 1 to {total}")
            }
            StoreError::Uncountable { .. } => {
                "replace or remove the skill in which commands created them".into()
            }
            StoreError::Quota { .. } => "remove a skill, or files that commands left in one".into(),
            StoreError::Changed { .. } => "read the file again and repeat the change".into(),
            StoreError::Busy { .. } => "try again".into(),
            StoreError::NotAFile { .. }
            | StoreError::TooLarge { .. }
            | StoreError::System { .. } => return None,
        })
    }

    pub(crate) fn system(
        what: &'static str,
        path: impl Into<String>,
    ) -> impl FnOnce(rustix::io::Errno) -> StoreError {
        let path = path.into();
        move |errno| StoreError::System { what, path, source: errno.into() }
    }

    pub(crate) fn io(
        what: &'static str,
        path: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::System { what, path, source }
    }
}
