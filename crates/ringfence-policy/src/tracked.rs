//! Files that git tracks: built-in patterns do not apply to them.
//!
//! A tracked file whose content is the one in git's index can be read from git's objects, so a mask
//! over it protects nothing and only breaks `git status`, `stash` and `checkout`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::builtin;
use crate::grants::{Grants, NameRule, NameRuleEffect, Source};
use crate::path::AbsPath;

/// Effect of built-in patterns on files that git tracks unchanged.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TrackedMode {
    /// Patterns apply to them as to any other file.
    Deny,
    /// No built-in pattern applies to them.
    #[default]
    Open,
}

impl TrackedMode {
    /// The word in policies.
    pub fn word(self) -> &'static str {
        match self {
            TrackedMode::Deny => "deny",
            TrackedMode::Open => "open",
        }
    }
}

/// The files that are open because git tracks them, as found by the survey of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackedFiles {
    /// Effect of built-in patterns on them.
    pub mode: TrackedMode,
    /// Files and symbolic links with a denied name, or in a directory with one.
    pub files: BTreeMap<AbsPath, TrackedFile>,
    /// Directories that a pattern denies and that contain such files. Everything else in them stays
    /// denied.
    pub directories: BTreeSet<AbsPath>,
    /// Directories of those that contain only source code and tracked files, such as `src/secrets`.
    pub sources: BTreeSet<AbsPath>,
    /// The list of contents that commands of the project left in such files: they are open as well.
    pub contents: Option<AbsPath>,
}

/// A tracked file as seen by the survey. Another file at the same path is checked again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedFile {
    /// SHA-256 of its content.
    pub digest: [u8; 32],
    /// Device and inode.
    pub identity: (u64, u64),
    /// Seconds and nanoseconds of its creation, if the file system records them: a new file may get
    /// the inode of a removed one.
    pub born: Option<(i64, u32)>,
}

impl TrackedFiles {
    /// No files yet; `contents` lists the contents that commands left.
    pub(crate) fn new(mode: TrackedMode, contents: AbsPath) -> Self {
        Self { mode, contents: Some(contents), ..Self::default() }
    }

    /// True if a path is one of the open files or directories.
    pub fn opens(&self, path: &AbsPath) -> bool {
        self.files.contains_key(path) || self.directories.contains(path) || self.is_source(path)
    }

    /// True if a path is source code in a directory with nothing else.
    pub fn is_source(&self, path: &AbsPath) -> bool {
        !self.sources.is_empty()
            && path.parent().is_some_and(|directory| self.sources.contains(&directory))
            && path.name().is_some_and(builtin::is_source_name)
    }

    /// True if the survey found no tracked files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty()
    }

    /// Adds the results of another survey.
    pub fn extend(&mut self, found: TrackedFiles) {
        self.files.extend(found.files);
        self.directories.extend(found.directories);
        self.sources.extend(found.sources);
    }
}

impl NameRule {
    /// True if tracked files are open in spite of this pattern: only for a built-in deny.
    pub fn exempts_tracked_files(&self) -> bool {
        self.origin.source == Source::BuiltIn
            && self.effect == NameRuleEffect::Deny
            && !self.is_locked()
    }
}

impl Grants {
    /// The built-in pattern that would deny `path` if git did not track it.
    pub fn pattern_overridden_by_git(&self, path: &AbsPath) -> Option<&NameRule> {
        if !self.tracked.opens(path) || self.pattern_for(path).is_some() {
            return None;
        }
        self.opening_rule(path).filter(|rule| rule.patterns_apply())?;
        self.find_pattern_ignoring_git(path).filter(|pattern| pattern.exempts_tracked_files())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Access, Verdict};
    use crate::testing::{grants_with_builtins, path};

    fn verdicts(grants: &Grants, paths: &[&str]) -> Vec<Verdict> {
        paths.iter().map(|text| grants.verdict(&path(text), Access::Read)).collect()
    }

    fn tracking(lines: &str) -> Grants {
        let mut grants = grants_with_builtins(lines);
        for file in ["/p/a.pem", "/p/secrets/db.yaml"] {
            grants.tracked.files.insert(path(file), TrackedFile::default());
        }
        grants.tracked.directories.insert(path("/p/secrets"));
        grants
    }

    #[test]
    fn only_the_tracked_path_is_open() {
        let grants = tracking("");
        let open = ["/p/a.pem", "/p/secrets", "/p/secrets/db.yaml"];
        assert_eq!(verdicts(&grants, &open), [Verdict::Allowed; 3]);
        assert_eq!(
            verdicts(&grants, &["/p/b.pem", "/p/x/a.pem", "/p/secrets/x.yaml", "/p/a.pem.key"]),
            [Verdict::Denied; 4]
        );
        let lifted = grants
            .pattern_overridden_by_git(&path("/p/a.pem"))
            .map(|pattern| pattern.origin.text.clone());
        assert_eq!(lifted.as_deref(), Some("**/*.pem"));
        assert!(grants.pattern_overridden_by_git(&path("/p/b.pem")).is_none());
    }

    #[test]
    fn explicit_rules_apply_to_tracked_files() {
        for rule in [
            "user deny **/*.pem",
            "project deny **/*.pem",
            "managed locked-deny **/a.*",
            "user deny /p/a.pem",
            "builtin deny /p/a.pem",
        ] {
            assert_eq!(verdicts(&tracking(rule), &["/p/a.pem"]), [Verdict::Denied], "{rule}");
        }
    }

    #[test]
    fn source_code_is_open_in_its_own_directories() {
        let mut grants = grants_with_builtins("");
        grants.tracked.directories.insert(path("/p/src/secrets"));
        grants.tracked.sources.insert(path("/p/src/secrets"));
        assert_eq!(
            verdicts(
                &grants,
                &["/p/src/secrets/mod.rs", "/p/src/secrets/a.d.ts", "/p/src/secrets/A.PY"]
            ),
            [Verdict::Allowed; 3]
        );
        let denied = [
            "/p/src/secrets/a.yaml",
            "/p/src/secrets/x/mod.rs",
            "/p/secrets/mod.rs",
            "/p/src/secrets/id",
            "/p/src/secrets/a.key",
        ];
        assert_eq!(verdicts(&grants, &denied), [Verdict::Denied; 5]);
    }
}
