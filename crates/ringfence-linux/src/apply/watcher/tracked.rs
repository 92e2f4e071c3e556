//! Files that are open because git tracks them, while a command runs.
//!
//! The host may replace one: the new file is masked, unless git tracks its content too, or the
//! command itself made it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use ringfence_policy::{AbsPath, Access, DecidingRule, Grants, TrackedMode, Verdict};
use rustix::fs::CWD;

use crate::apply::FileIdentity;
use ringfence_survey::{RememberedFiles, TrackedLookup};

/// Inode, size and times of a file.
type TrackedStamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// Watches the tracked files of a sandbox.
pub(super) struct TrackedWatch<'a> {
    grants: &'a Grants,
    /// Their contents when the sandbox was planned.
    surveyed: RememberedFiles,
    /// Their paths by directory.
    by_directory: HashMap<AbsPath, Vec<AbsPath>>,
    /// Files found open, with their state at the last check.
    checked: HashMap<AbsPath, TrackedStamp>,
}

impl<'a> TrackedWatch<'a> {
    pub(super) fn new(grants: &'a Grants) -> Self {
        let surveyed =
            grants.tracked.files.iter().map(|(path, file)| (path.clone(), file.digest)).collect();
        let mut by_directory: HashMap<AbsPath, Vec<AbsPath>> = HashMap::new();
        for path in grants.tracked.files.keys() {
            by_directory
                .entry(path.parent().unwrap_or_else(|| path.clone()))
                .or_default()
                .push(path.clone());
        }
        Self { grants, surveyed, by_directory, checked: HashMap::new() }
    }

    pub(super) fn files(&self) -> Vec<AbsPath> {
        self.surveyed.keys().cloned().collect()
    }

    /// The files in one directory.
    pub(super) fn files_in(&self, directory: &AbsPath) -> Vec<AbsPath> {
        self.by_directory.get(directory).cloned().unwrap_or_default()
    }

    /// True if the pattern that denies `path` permits files that git made.
    pub(super) fn permits_tracked(&self, path: &AbsPath) -> bool {
        if self.grants.tracked.mode == TrackedMode::Deny {
            return false;
        }
        let denied =
            [path.clone(), path.join("x")].map(|path| self.grants.decide(&path, Access::Read));
        let denied = denied.into_iter().find(|decision| decision.verdict == Verdict::Denied);
        matches!(denied.and_then(|decision| decision.rule), Some(DecidingRule::Pattern(pattern)) if pattern.exempts_tracked_files())
    }

    /// True if `path` is a tracked file with content that neither git nor the command knows.
    pub(super) fn is_replaced(
        &mut self,
        path: &AbsPath,
        trees: &[AbsPath],
        is_own: impl FnOnce(FileIdentity) -> bool,
    ) -> bool {
        if !self.surveyed.contains_key(path) || self.grants.tracked.is_source(path) {
            return false;
        }
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return false };
        let stamp = (
            metadata.dev(),
            metadata.ino(),
            metadata.size(),
            (metadata.mtime(), metadata.mtime_nsec()),
            (metadata.ctime(), metadata.ctime_nsec()),
        );
        if self.checked.get(path) == Some(&stamp) {
            return false;
        }
        let is_tracked =
            TrackedLookup::new(self.grants, trees, &self.surveyed).open_file(path).is_some();
        let is_open =
            is_tracked || FileIdentity::from_entry(CWD, path.as_path()).is_some_and(is_own);
        if is_open {
            self.checked.insert(path.clone(), stamp);
        }
        !is_open
    }
}
