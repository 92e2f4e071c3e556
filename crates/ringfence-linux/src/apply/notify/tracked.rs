//! Files with a denied name that git tracks, and those that git itself creates.
//!
//! `git checkout`, `merge` and `clone` unlink and create files by any name the repository gives
//! them. A command can make git write any content that the command knows, so such a file holds no
//! secret from it. Other programs create a denied name only where a tracked file of that name is
//! open.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_api::{Denial, Operation};
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, TrackedFile, TrackedMode, Verdict,
};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::resolve::{PathAnchor, ResolvedParent};
use crate::apply::{FileIdentity, NameKind};
use crate::inode::inode_id;
use crate::open::open_at;

/// Maximum number of noted files. No repository has more with such names.
const MAX_FILES: usize = 100_000;

impl CreationRules {
    /// True if `place` lies in a directory with a denied name that is open for the tracked files in
    /// it.
    pub(super) fn is_opened_by_git(
        &self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> bool {
        let directories = &self.grants.tracked.directories;
        !directories.is_empty()
            && path_of_directory(caller.host_proc, place.directory.as_fd())
                .is_ok_and(|directory| directories.contains(&directory))
    }

    /// True if the path as written could lead into such a directory.
    pub(super) fn may_enter_opened(
        &self,
        caller: &NotifyCaller<'_>,
        start: &PathAnchor<'_>,
        path: &CStr,
    ) -> bool {
        let directories = &self.grants.tracked.directories;
        if directories.is_empty() {
            return false;
        }
        let mut names = path.to_bytes().split(|byte| *byte == b'/');
        names.any(|name| name == b".." || self.name_could_matter(OsStr::from_bytes(name)))
            || path_of_directory(caller.host_proc, start.as_fd())
                .map_or(true, |start| directories.contains(&start))
    }

    /// Checks creating a name that a built-in pattern denies, and notes it if it is allowed.
    pub(super) fn may_make_denied(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
        decision: &Decision,
    ) -> bool {
        let is_spared = matches!(&decision.rule, Some(DecidingRule::Pattern(pattern)) if pattern.exempts_tracked_files());
        let tracked = &self.grants.tracked;
        if !is_spared || tracked.mode == TrackedMode::Deny || tracked.files.len() >= MAX_FILES {
            return false;
        }
        if tracked.opens(&decision.path) {
            return true;
        }
        if !self.is_next_to_tracked(caller, place) && !self.carries_tracked && !is_git(caller) {
            return false;
        }
        self.grants.tracked.files.insert(decision.path.clone(), TrackedFile::default());
        // Another rule may deny the name as well.
        let is_open = self.grants.verdict(&decision.path, Access::Write) == Verdict::Allowed;
        if !is_open {
            self.grants.tracked.files.remove(&decision.path);
        }
        is_open
    }

    /// True if a name is denied only by that of its directory, which is open for tracked files.
    pub(super) fn is_next_to_tracked(
        &self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> bool {
        !self.name_could_matter(&place.name) && self.is_opened_by_git(caller, place)
    }

    /// True if only a built-in pattern denies `path`, to which a tracked file moves from `was`.
    pub(super) fn is_moved_tracked(&self, was: &AbsPath, path: &AbsPath) -> bool {
        let is_spared = |decision: Decision| matches!(decision.rule, Some(DecidingRule::Pattern(pattern)) if pattern.exempts_tracked_files());
        self.grants.tracked.opens(was) && is_spared(self.grants.decide(path, Access::Read))
    }

    /// Notes if the current syscall renames a tracked file: its content is the same under any name.
    pub(super) fn note_rename_source(
        &mut self,
        caller: &NotifyCaller<'_>,
        source: &ResolvedParent,
    ) {
        let files = &self.grants.tracked.files;
        self.carries_tracked = !files.is_empty()
            && path_of(caller, source).is_ok_and(|path| files.contains_key(&path));
    }

    /// Notes that a file or directory was created that only git tracking opens: it is the command's
    /// own, and the watcher must not mask it. True if it is one.
    pub(super) fn note_created_tracked(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> bool {
        self.carries_tracked = false;
        if self.grants.tracked.is_empty() {
            return false;
        }
        let Ok(path) = path_of(caller, place) else { return false };
        if !self.grants.tracked.opens(&path) {
            return false;
        }
        if place.kind() == Some(FileType::Directory) {
            self.grants.tracked.files.remove(&path);
            self.grants.tracked.directories.insert(path.clone());
        }
        self.note_own(path, FileIdentity::from_entry(&place.directory, place.name.as_os_str()));
        true
    }

    /// Notes that a tracked file is about to be written, unless the host has replaced it: the
    /// host's file may hold a secret until the watcher has checked it.
    pub(super) fn note_written_tracked(&mut self, place: &ResolvedParent, path: &AbsPath) {
        let Some(file) = self.grants.tracked.files.get(path) else { return };
        if is_surveyed(place.directory.as_fd(), place.name.as_ref(), file) {
            self.note_own(
                path.clone(),
                FileIdentity::from_entry(&place.directory, place.name.as_os_str()),
            );
        }
    }

    /// True if the host has replaced a tracked file. Until the watcher has checked the new one, it
    /// may hold a secret, which must not get another name.
    pub(super) fn is_replaced_by_host(&self, place: &ResolvedParent, path: &AbsPath) -> bool {
        let Some(file) = self.grants.tracked.files.get(path) else { return false };
        self.is_foreign(place.directory.as_fd(), place.name.as_ref(), (path, file))
    }

    /// True if the file at the path of a tracked one, seen from `directory` as `name`, is neither
    /// the file of the survey nor one that a command created or wrote.
    fn is_foreign(
        &self,
        directory: BorrowedFd<'_>,
        name: &Path,
        (path, file): (&AbsPath, &TrackedFile),
    ) -> bool {
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => return false,
            Err(_) => return true,
            Ok(_) => {}
        }
        let is_own = || {
            FileIdentity::from_entry(directory, name)
                .is_some_and(|birth| self.own_files.contains(&(path.clone(), birth)))
        };
        !is_surveyed(directory, name, file) && !is_own()
    }

    /// Denies moving the directory `what` at `from` if it contains such a file of the host.
    pub(super) fn refuse_foreign_move(
        &mut self,
        caller: &NotifyCaller<'_>,
        what: &ResolvedParent,
        from: &AbsPath,
    ) -> Result<(), Errno> {
        if !self.contains_foreign(what, from)? {
            return Ok(());
        }
        self.refuse_since(caller, Operation::Rename, from, Denial::CONTAINS_DENIED);
        Err(Errno::ACCESS)
    }

    /// True if the directory `what` at `from` contains a file of the host that only its path
    /// denies: one that replaced a tracked file, or one next to tracked files in a directory with a
    /// denied name. Under another path it could be read.
    fn contains_foreign(&self, what: &ResolvedParent, from: &AbsPath) -> Result<bool, Errno> {
        let tracked = &self.grants.tracked;
        if tracked.is_empty() {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(&what.directory, what.name.as_os_str(), flags, Mode::empty())?;
        let is_foreign = |(path, file): (&AbsPath, &TrackedFile)| {
            path.relative_to(from)
                .is_some_and(|name| self.is_foreign(opened.as_fd(), name, (path, file)))
        };
        if tracked.files.iter().any(is_foreign) {
            return Ok(true);
        }
        let mut left = MAX_FILES;
        for directory in &tracked.directories {
            let Some(name) = directory.relative_to(from) else { continue };
            if self.contains_denied(opened.as_fd(), name, directory, &mut left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if `directory`, seen from `above` as `name`, has a denied entry. `left` is the number
    /// of entries that may still be checked; at zero the answer is true.
    fn contains_denied(
        &self,
        above: BorrowedFd<'_>,
        name: &Path,
        directory: &AbsPath,
        left: &mut usize,
    ) -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        let opened =
            match rustix::fs::openat2(above, name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            {
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
                // A directory that cannot be read must not move.
                Err(_) => return Ok(true),
                Ok(opened) => opened,
            };
        for entry in rustix::fs::Dir::read_from(&opened)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            *left = left.saturating_sub(1);
            if *left == 0
                || self.grants.verdict(&directory.join(name), Access::Read) == Verdict::Denied
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes the tracked files that move with a directory.
    pub(super) fn note_moved_tracked(&mut self, from: &AbsPath, to: &AbsPath) {
        let tracked = &self.grants.tracked;
        let moved = |path: &AbsPath| Some(to.join(path.relative_to(from)?));
        let directories: Vec<AbsPath> = tracked.directories.iter().filter_map(moved).collect();
        let sources: Vec<AbsPath> = tracked.sources.iter().filter_map(moved).collect();
        let files: Vec<_> = tracked
            .files
            .iter()
            .filter_map(|(path, file)| Some((path.clone(), moved(path)?, *file)))
            .collect();
        for (was, path, file) in files {
            let birth = FileIdentity::from_entry(CWD, was.as_path());
            let is_own =
                || birth.is_some_and(|birth| self.own_files.contains(&(was.clone(), birth)));
            if is_surveyed(CWD, was.as_path(), &file) || is_own() {
                self.note_own(path.clone(), birth);
            }
            self.grants.tracked.files.insert(path, file);
        }
        self.grants.tracked.directories.extend(directories);
        self.grants.tracked.sources.extend(sources);
    }

    fn note_own(&mut self, path: AbsPath, birth: Option<FileIdentity>) {
        let Some(birth) = birth else { return };
        if self.own_files.len() < MAX_FILES && self.own_files.insert((path.clone(), birth)) {
            self.made.push((None, path, NameKind::DeniedFile, Some(birth)));
        }
    }
}

/// True if `name` is the file that the survey saw.
fn is_surveyed(directory: BorrowedFd<'_>, name: &Path, file: &TrackedFile) -> bool {
    let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    status.is_ok_and(|status| inode_id(&status) == file.identity)
        && FileIdentity::from_entry(directory, name)
            .is_some_and(|birth| birth.birth_time() == file.born)
}

/// True if the caller is git, from a mount that no command can write to.
fn is_git(caller: &NotifyCaller<'_>) -> bool {
    let Ok(program) = open_at(caller.host_proc, format!("{}/exe", caller.pid()), OFlags::PATH)
    else {
        return false;
    };
    let Ok(path) = path_of_directory(caller.host_proc, program.as_fd()) else { return false };
    let is_named = path.name().is_some_and(|name| name == "git")
        || path.parent().is_some_and(|above| above.name().is_some_and(|name| name == "git-core"));
    let is_read_only = rustix::fs::fstatvfs(&program)
        .is_ok_and(|status| status.f_flag.contains(StatVfsMountFlags::RDONLY));
    is_named && is_read_only && caller.ensure_waiting().is_ok()
}
