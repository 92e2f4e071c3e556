//! Files that git tracks: built-in patterns do not hold for them.
//!
//! A tracked file whose content is the one in git's index can be read from git's objects, so a mask
//! over it protects nothing and only breaks `git status`, `stash` and `checkout`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::grants::{Grants, Pattern, PatternEffect, Source};
use crate::path::AbsPath;

/// Effect of built-in patterns on files that git tracks unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrackedMode {
    /// Patterns hold for them as for any other file.
    Deny,
    /// No built-in pattern holds for them.
    #[default]
    Open,
}

impl TrackedMode {
    /// The value as it is written in a policy.
    pub fn word(self) -> &'static str {
        match self {
            TrackedMode::Deny => "deny",
            TrackedMode::Open => "open",
        }
    }
}

/// The files that are open because git tracks them, as the survey of the host found them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackedFiles {
    /// Effect of built-in patterns on them.
    pub mode: TrackedMode,
    /// Files and symbolic links with a denied name, or in a directory with one.
    pub files: BTreeMap<AbsPath, TrackedFile>,
    /// Directories that a pattern denies and that hold such files. All else in them stays denied.
    pub directories: BTreeSet<AbsPath>,
    /// The list of contents that commands of the project left in such files: they are open as well.
    pub contents: Option<AbsPath>,
}

/// A tracked file as the survey saw it. Another file at the same path is judged anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedFile {
    /// SHA-256 of its content.
    pub digest: [u8; 32],
    /// Device and inode.
    pub identity: (u64, u64),
}

impl TrackedFiles {
    /// Tells whether a path is one of the open files or directories.
    pub fn opens(&self, path: &AbsPath) -> bool {
        self.files.contains_key(path) || self.directories.contains(path)
    }

    /// Tells whether the survey found none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty()
    }

    /// Adds what another look at the host found.
    pub fn extend(&mut self, found: TrackedFiles) {
        self.files.extend(found.files);
        self.directories.extend(found.directories);
    }
}

impl Pattern {
    /// Tells whether tracked files are open in spite of this pattern: only for a built-in deny.
    pub fn spares_tracked(&self) -> bool {
        self.origin.source == Source::BuiltIn && self.effect == PatternEffect::Deny && !self.is_locked()
    }
}

impl Grants {
    /// The built-in pattern that would deny `path` if git did not track it.
    pub fn pattern_lifted_by_git(&self, path: &AbsPath) -> Option<&Pattern> {
        if !self.tracked.opens(path) || self.pattern_for(path).is_some() {
            return None;
        }
        self.opener(path).filter(|rule| rule.patterns_hold())?;
        self.caught_untracked(path).filter(|pattern| pattern.spares_tracked())
    }
}
