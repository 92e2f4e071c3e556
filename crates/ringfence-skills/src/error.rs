//! Why the store did not do what was asked.

use std::io;
use std::path::PathBuf;

use crate::archive::ArchiveError;
use crate::name::{SkillId, SkillName};
use crate::needs::SkillNeedsError;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be the root of a store.
    #[error("{} cannot hold skills: {what}", path.display())]
    Root {
        /// Which directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Another service has it.
    #[error("{} is used by another service", path.display())]
    InUse {
        /// Which directory.
        path: PathBuf,
    },
    /// An archive is refused; nothing of it was kept.
    #[error("the archive is refused")]
    Archive {
        /// Why.
        #[from]
        source: ArchiveError,
    },
    /// What a skill says it needs cannot be read.
    #[error("the needs of skill `{skill}` cannot be read")]
    Needs {
        /// Which skill.
        skill: String,
        /// What is wrong with them.
        source: SkillNeedsError,
    },
    /// Nobody knows what the skill was allowed when it was uploaded.
    #[error("what {skill} may do is not on record")]
    NeedsUnknown {
        /// Which skill.
        skill: SkillId,
    },
    /// `SKILL.md` says something else of needs than when it was last uploaded or edited.
    #[error("the needs in SKILL.md of {skill} were changed by something that ran there")]
    NeedsChanged {
        /// Which skill.
        skill: SkillId,
    },
    /// There is no such skill.
    #[error("there is no skill {skill}")]
    NoSkill {
        /// Which one.
        skill: SkillId,
    },
    /// There is no such file in the skill.
    #[error("there is no `{path}` in {skill}")]
    NoFile {
        /// In which skill.
        skill: SkillId,
        /// As it was asked for.
        path: String,
    },
    /// A path leads nowhere in a skill.
    #[error("`{path}` is no path of a file in a skill: {what}")]
    Path {
        /// As it was asked for.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Something else than a file stands there.
    #[error("`{path}` in {skill} is {kind}, not a file")]
    NotAFile {
        /// In which skill.
        skill: SkillId,
        /// As it was asked for.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// It is no text, so it has no lines.
    #[error("`{path}` in {skill} is no text, so it has no lines")]
    NotText {
        /// In which skill.
        skill: SkillId,
        /// As it was asked for.
        path: String,
    },
    /// The lines are not there, or are none.
    #[error("lines {start} to {end} are none of {total} lines")]
    Lines {
        /// The first that was asked for.
        start: u64,
        /// The last.
        end: u64,
        /// How many there are.
        total: u64,
    },
    /// It is larger than what is taken.
    #[error("{what} has {size} bytes, and at most {limit} are taken")]
    TooLarge {
        /// What it is.
        what: String,
        /// How large it is, or would be.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The user has more than can be counted, which fits into no quota.
    #[error(
        "skills of `{user}` have more than {names} names, or directories that are too deep to count"
    )]
    Uncountable {
        /// The user.
        user: SkillName,
        /// How many names are counted.
        names: u64,
    },
    /// The user would have more than allowed.
    #[error("the user would have {bytes} bytes, and {quota} are allowed")]
    Quota {
        /// How much it would be.
        bytes: u64,
        /// How much it may be.
        quota: u64,
    },
    /// The file is not what the caller thinks it is.
    #[error("`{path}` in {skill} was changed meanwhile")]
    Changed {
        /// In which skill.
        skill: SkillId,
        /// Which file.
        path: String,
        /// What it is now; nothing if it is not there.
        etag: Option<String>,
    },
    /// Others were at it for too long.
    #[error("{skill} is in use by others and did not become free")]
    Busy {
        /// Which skill.
        skill: SkillId,
    },
    /// The operating system refused.
    #[error("cannot {what} {path}")]
    System {
        /// What was tried.
        what: &'static str,
        /// On what; below the store's root.
        path: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl StoreError {
    /// A stable word for it.
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

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            StoreError::Root { path, .. } => {
                format!(
                    "chmod 700 {0}, and make it the service's own; or name another directory",
                    path.display()
                )
            }
            StoreError::InUse { .. } => "stop the other service, or name another directory".into(),
            StoreError::Archive { source } => return source.hint(),
            StoreError::Needs { source, .. } => source.hint(),
            StoreError::NeedsUnknown { .. } => {
                "upload the skill again, or write its SKILL.md as a whole".into()
            }
            StoreError::NeedsChanged { .. } => {
                "write SKILL.md as a whole, or upload the skill again".into()
            }
            StoreError::NoSkill { .. } => {
                "the list of the agent's skills names those that are there".into()
            }
            StoreError::NoFile { .. } => {
                "the list of the skill's files names those that are there".into()
            }
            StoreError::Path { .. } => {
                "write it from the skill's directory on, such as `scripts/run.py`".into()
            }
            StoreError::NotText { .. } => "ask for it without lines".into(),
            StoreError::Lines { total, .. } => {
                format!("lines are counted from 1; there are {total}")
            }
            StoreError::Uncountable { .. } => {
                "replace or remove the skill in which commands made them".into()
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
