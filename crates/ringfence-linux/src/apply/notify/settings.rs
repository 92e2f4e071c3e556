//! Settings that the user's programs obey: repositories of the user in which none may be created,
//! and settings that the command creates for itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::inode::inode_id;
use crate::open::open_at;

use ringfence_api::Operation;
use ringfence_policy::builtin::{pointer_at, setting_at, settings_below};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Effect, Rule, Verdict};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of};
use super::resolve::ResolvedParent;

/// The components of a path.
fn names(path: &AbsPath) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    path.as_path().iter().map(OsStr::as_bytes)
}

impl CreationRules {
    /// The rule against a setting at the top of a repository that existed before, if `decision`
    /// would allow it and no rule opens it by name.
    pub(super) fn setting_of_tree(
        &self,
        decision: &Decision,
        place: &ResolvedParent,
    ) -> Result<Option<Rule>, Errno> {
        let named =
            matches!(&decision.rule, Some(DecidingRule::Rule(rule)) if rule.root == decision.path);
        if self.trees.is_empty() || named || decision.verdict != Verdict::Allowed {
            return Ok(None);
        }
        let path = &decision.path;
        let Some((setting, count)) = setting_at(names(path)) else { return Ok(None) };
        let tree = if self.is_in_tree(place, count)? { path.ancestors().nth(count) } else { None };
        Ok(tree.map(|tree| setting.rule_in(&tree)))
    }

    /// True if the last `count` components of `place` begin at the top of a repository that existed
    /// before. Compares inodes, so that renaming a parent does not change the answer.
    fn is_in_tree(&self, place: &ResolvedParent, count: usize) -> Result<bool, Errno> {
        let mut above = rustix::io::fcntl_dupfd_cloexec(&place.directory, 3)?;
        for _ in 1..count {
            above = open_at(&above, "..", OFlags::PATH)?;
        }
        let status = rustix::fs::fstat(&above)?;
        Ok(self.trees.contains(&inode_id(&status)))
    }

    /// True if a setting with several components would lie below `path` at the top of a repository
    /// that existed before. A directory or symlink moved there may already contain the last
    /// component.
    pub(super) fn is_above_setting(
        &self,
        place: &ResolvedParent,
        path: &AbsPath,
    ) -> Result<bool, Errno> {
        if self.trees.is_empty() {
            return Ok(false);
        }
        let counts = settings_below(names(path)).map(|(_, count)| count);
        for count in counts {
            if self.is_in_tree(place, count)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks creating a file at `place` that a program would follow to settings elsewhere, where
    /// settings are protected.
    pub(super) fn check_pointer(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        if !self.name_could_matter(&place.name) {
            return Ok(());
        }
        let path = path_of(caller, place)?;
        let Some((_, count)) = pointer_at(names(&path)) else { return Ok(()) };
        if self.is_above_rule(&path) || self.is_in_tree(place, count)? {
            return self.refuse_obstacle(caller, path);
        }
        Ok(())
    }

    /// Checks creating a directory at `place`: a pattern may deny everything below a directory and
    /// yet allow a file of the same name.
    pub(super) fn check_directory(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        if !self.name_could_matter(&place.name) {
            return Ok(());
        }
        let path = path_of(caller, place)?;
        let decision = self.grants.decide(&path.join("x"), Access::Write);
        if decision.verdict == Verdict::Denied
            && matches!(decision.rule, Some(DecidingRule::Pattern(_)))
        {
            let directory = Decision { path, ..decision.clone() };
            if self.may_make_denied(caller, place, &directory) {
                return Ok(());
            }
            self.refuse(caller, Operation::Create, &decision);
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// True if `path` is a setting, or a directory in which a setting may appear, in a writable
    /// tree, and no rule opens it by name.
    pub(super) fn is_own_setting(&self, path: &AbsPath) -> bool {
        let whole = setting_at(names(path)).or_else(|| pointer_at(names(path)));
        let Some((_, count)) = whole.or_else(|| settings_below(names(path)).next()) else {
            return false;
        };
        // A rule on a directory within the setting's own path names the setting.
        let is_work =
            |rule: &Rule| rule.effect == Effect::Write && rule.root.depth() + count <= path.depth();
        self.grants.opening_rule(path).is_some_and(is_work)
            && !self.excepted.contains(&self.grants, path)
    }
}
