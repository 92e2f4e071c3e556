//! Checks of names that are about to be moved or removed.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringfence_api::{Denial, Operation};
use ringfence_plan::PinReason;
use ringfence_policy::{AbsPath, Access, DecidingRule, Effect, NameRule, Source, Verdict};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{CreationRules, path_of};
use crate::apply::notify::caller::NotifyCaller;
use crate::apply::notify::config_lock::is_staged;
use crate::apply::notify::resolve::ResolvedParent;
use crate::inode::inode_id;

impl CreationRules {
    /// Checks moving away the file at `place`.
    pub(in crate::apply::notify) fn check_move_away(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let Ok(status) =
            rustix::fs::statat(&place.directory, place.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
        else {
            return Ok(());
        };
        if let Some((path, kind)) = self.guards.get(&inode_id(&status)) {
            let why = match kind {
                PinReason::Git => Denial::GIT_DIRECTORY_IS_FIXED,
                PinReason::Above | PinReason::Tree => Denial::CONTAINS_DENIED,
                PinReason::Link => Denial::LINK_IS_FIXED,
            };
            self.refuse_since(caller, Operation::Rename, &path.clone(), why);
            return Err(Errno::ACCESS);
        }
        if !self.name_could_matter(&place.name) && !self.is_opened_by_git(caller, place) {
            return Ok(());
        }
        let decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
        let refused = match decision.verdict {
            Verdict::Denied => true,
            Verdict::ReadOnly => self.is_protected(&decision, place)?,
            Verdict::Allowed => {
                is_staged(&place.name) || self.is_replaced_by_host(place, &decision.path)
            }
            Verdict::Absent => is_staged(&place.name),
        };
        if refused {
            self.refuse(caller, Operation::Rename, &decision);
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// Checks removing a name.
    pub(in crate::apply::notify) fn check_remove(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let Ok(status) =
            rustix::fs::statat(&place.directory, place.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
        else {
            return Ok(());
        };
        let identity = inode_id(&status);
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind.is_dir() && self.git_guards.contains(&identity) {
            // The kernel denies it by itself. `git worktree remove` tries it each time.
            if place.has_entries() {
                return Err(Errno::NOTEMPTY);
            }
            if place.name == "worktrees" {
                return Err(Errno::ACCESS);
            }
            let path = path_of(caller, place)?;
            self.refuse_since(caller, Operation::Write, &path, Denial::GIT_DIRECTORY_IS_FIXED);
            return Err(Errno::ACCESS);
        }
        if kind.is_symlink() && self.guards.contains_key(&identity) {
            let decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
            self.refuse(caller, Operation::Write, &decision);
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// Checks moving `what` to `place`.
    pub(in crate::apply::notify) fn check_move(
        &mut self,
        caller: &NotifyCaller<'_>,
        what: &ResolvedParent,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        match what.kind() {
            Some(FileType::Directory) => self.check_directory_move(caller, what, place),
            Some(FileType::Symlink) => self.check_symlink(caller, place),
            _ => self.check_pointer(caller, place),
        }
    }

    /// Checks creating a symlink at `place`: git creates none among its own files, and one would
    /// lead git to settings under another name.
    pub(in crate::apply::notify) fn check_symlink(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let path = path_of(caller, place)?;
        if self.is_above_rule(&path)
            || self.is_above_setting(place, &path)?
            || self.is_in_guarded_git(place.directory.as_fd())?
        {
            return self.refuse_obstacle(caller, path);
        }
        Ok(())
    }

    /// Checks moving a whole directory to `place`: it brings files created under other names, so no
    /// protected or denied path may lie below, existing or not.
    pub(super) fn check_directory_move(
        &mut self,
        caller: &NotifyCaller<'_>,
        what: &ResolvedParent,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        self.check_directory(caller, place)?;
        let (path, from) = (path_of(caller, place)?, path_of(caller, what)?);
        self.refuse_foreign_move(caller, what, &from)?;
        let is_above = self.is_above_rule(&path) || self.is_above_setting(place, &path)?;
        if is_above
            || self.is_in_guarded_git(place.directory.as_fd())?
            || self.contains_matched(what, &from, &path)?
        {
            return self.refuse_obstacle(caller, path);
        }
        self.note_moved_out(what, &from, &path);
        self.note_moved_tracked(&from, &path);
        Ok(())
    }

    /// True if a denied or protected path lies, or would lie, below `path`.
    pub(in crate::apply::notify) fn is_above_rule(&self, path: &AbsPath) -> bool {
        let mut rules = self
            .grants
            .rules
            .iter()
            .filter(|rule| matches!(rule.effect, Effect::Protect | Effect::Deny));
        rules.any(|rule| rule.root != *path && rule.root.is_within(path))
    }

    /// True if a pattern matches by full path an entry that would lie below `path` after the move
    /// of `what`, or would no longer match one it matches now. Patterns that match by name alone
    /// match in both places, unless an exception applies to one of them.
    pub(super) fn contains_matched(
        &self,
        what: &ResolvedParent,
        from: &AbsPath,
        path: &AbsPath,
    ) -> Result<bool, Errno> {
        const MAX_ENTRIES: usize = 1_000_000;
        let by_path = |pattern: &&NameRule| {
            let text = pattern.glob.text();
            text.strip_prefix("**/").unwrap_or(text).contains('/')
                && pattern.origin.source != Source::BuiltIn
        };
        if self.grants.patterns.iter().find(by_path).is_none()
            && !self.excepted.differs_between(&self.grants, from, path)
        {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(&what.directory, what.name.as_os_str(), flags, Mode::empty())?;
        let mut waiting = vec![PathBuf::new()];
        let mut seen = 0;
        while let Some(below) = waiting.pop() {
            let directory = if below.as_os_str().is_empty() {
                rustix::io::fcntl_dupfd_cloexec(&opened, 3)
            } else {
                rustix::fs::openat2(
                    &opened,
                    &below,
                    flags,
                    Mode::empty(),
                    ResolveFlags::NO_SYMLINKS,
                )
            };
            let directory = match directory {
                Ok(directory) => directory,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                // A directory that cannot be read is not let in.
                Err(_) => return Ok(true),
            };
            for entry in rustix::fs::Dir::read_from(&directory)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                seen += 1;
                let there = below.join(name);
                if seen > MAX_ENTRIES
                    || (self.index.may_match(name)
                        && self.is_matched(&from.join(&there), &path.join(&there)))
                {
                    return Ok(true);
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    waiting.push(there);
                }
            }
        }
        Ok(false)
    }

    /// True if a file that moves from `was` to `path` is denied or protected at either. The
    /// built-in protect rules for git apply in repositories that existed before, which keep their
    /// names.
    pub(super) fn is_matched(&self, was: &AbsPath, path: &AbsPath) -> bool {
        let decision = self.grants.decide(path, Access::Write);
        let is_of_git = || {
            matches!(&decision.rule, Some(DecidingRule::Pattern(pattern))
                if pattern.origin.source == Source::BuiltIn && pattern.glob.text().contains(".git/"))
        };
        match decision.verdict {
            Verdict::Denied if self.is_moved_tracked(was, path) => false,
            Verdict::Denied => true,
            Verdict::ReadOnly if !is_of_git() => true,
            _ => self.grants.verdict(was, Access::Read) == Verdict::Denied,
        }
    }

    pub(in crate::apply::notify) fn refuse_obstacle(
        &mut self,
        caller: &NotifyCaller<'_>,
        path: AbsPath,
    ) -> Result<(), Errno> {
        self.refuse_since(caller, Operation::Rename, &path, Denial::ABOVE_DENIED);
        Err(Errno::ACCESS)
    }
}
