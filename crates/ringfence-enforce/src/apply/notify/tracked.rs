//! Files with a denied name that git tracks, and those that git itself makes.
//!
//! `git checkout`, `merge` and `clone` unlink and make files by whatever name the repository gives
//! them. A command can make git write any content that the command knows, so such a file holds no
//! secret from it. Other programs make a denied name only where a tracked file with it is open.

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
use crate::apply::{Birth, GitMarker};

/// So many files are noted. No repository has more with such names.
const MOST: usize = 100_000;

impl CreationRules {
    /// Tells whether a place lies in a directory that has a denied name and is open for the tracked
    /// files in it.
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

    /// Tells whether a path as it is written could lead into such a directory.
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
        names.any(|name| name == b".." || self.is_interesting(OsStr::from_bytes(name)))
            || path_of_directory(caller.host_proc, start.as_fd())
                .map_or(true, |start| directories.contains(&start))
    }

    /// Judges making a name that a built-in pattern denies, and notes it if the call may.
    pub(super) fn may_make_denied(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
        decision: &Decision,
    ) -> bool {
        let is_spared = matches!(&decision.rule, Some(DecidingRule::Pattern(pattern)) if pattern.spares_tracked());
        let tracked = &self.grants.tracked;
        if !is_spared || tracked.mode == TrackedMode::Deny || tracked.files.len() >= MOST {
            return false;
        }
        if tracked.opens(&decision.path) {
            return true;
        }
        if !self.is_beside_tracked(caller, place) && !self.carries_tracked && !is_git(caller) {
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

    /// Tells whether a name is denied only by that of its directory, which is open for tracked
    /// files.
    pub(super) fn is_beside_tracked(
        &self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> bool {
        !self.is_interesting(&place.name) && self.is_opened_by_git(caller, place)
    }

    /// Tells whether a built-in pattern alone denies `path`, to which a tracked file moves from
    /// `was`.
    pub(super) fn is_moved_tracked(&self, was: &AbsPath, path: &AbsPath) -> bool {
        let is_spared = |decision: Decision| matches!(decision.rule, Some(DecidingRule::Pattern(pattern)) if pattern.spares_tracked());
        self.grants.tracked.opens(was) && is_spared(self.grants.decide(path, Access::Read))
    }

    /// Notes whether the call in hand renames a tracked file: under any name it holds what it held.
    pub(super) fn carry(&mut self, caller: &NotifyCaller<'_>, source: &ResolvedParent) {
        let files = &self.grants.tracked.files;
        self.carries_tracked = !files.is_empty()
            && path_of(caller, source).is_ok_and(|path| files.contains_key(&path));
    }

    /// Notes that a file or directory was made that only git's tracking opens: it is the command's
    /// own, and the watcher must not mask it. Answers whether it is one.
    pub(super) fn made_tracked(
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
        self.note_own(path, Birth::of(&place.directory, place.name.as_os_str()));
        true
    }

    /// Notes that a tracked file is about to be written, unless another one has taken its place:
    /// the host's may hold a secret until the watcher has looked at it.
    pub(super) fn wrote_tracked(&mut self, place: &ResolvedParent, path: &AbsPath) {
        let Some(file) = self.grants.tracked.files.get(path) else { return };
        if is_surveyed(place.directory.as_fd(), place.name.as_ref(), file) {
            self.note_own(path.clone(), Birth::of(&place.directory, place.name.as_os_str()));
        }
    }

    /// Tells whether the host has put another file in the place of a tracked one. Until the watcher
    /// has looked at it, it may hold a secret, which must not get another name.
    pub(super) fn is_replaced_by_host(&self, place: &ResolvedParent, path: &AbsPath) -> bool {
        let Some(file) = self.grants.tracked.files.get(path) else { return false };
        self.is_foreign(place.directory.as_fd(), place.name.as_ref(), (path, file))
    }

    /// Tells whether the file that stands at the path of a tracked one, seen from `directory` as
    /// `name`, is neither the file of the survey nor one that a command made or wrote.
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
            Birth::of(directory, name)
                .is_some_and(|birth| self.own_files.contains(&(path.clone(), birth)))
        };
        !is_surveyed(directory, name, file) && !is_own()
    }

    /// Refuses to move the directory `what` at `from` if it holds such a file of the host.
    pub(super) fn keep_foreign(
        &mut self,
        caller: &NotifyCaller<'_>,
        what: &ResolvedParent,
        from: &AbsPath,
    ) -> Result<(), Errno> {
        if !self.holds_foreign(what, from)? {
            return Ok(());
        }
        self.refuse_since(caller, Operation::Rename, from, Denial::HOLDS_DENIED);
        Err(Errno::ACCESS)
    }

    /// Tells whether the directory `what` at `from` holds a file of the host that only its path
    /// denies: one in the place of a tracked file, or beside tracked files in a directory with a
    /// denied name. Under another path it could be read.
    fn holds_foreign(&self, what: &ResolvedParent, from: &AbsPath) -> Result<bool, Errno> {
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
        let mut left = MOST;
        for directory in &tracked.directories {
            let Some(name) = directory.relative_to(from) else { continue };
            if self.holds_denied(opened.as_fd(), name, directory, &mut left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells whether `directory`, seen from `above` as `name`, has an entry that is denied. `left`
    /// counts the entries that may still be looked at; behind the last, the answer is yes.
    fn holds_denied(
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
                // A directory that cannot be looked through keeps its name.
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

    /// Notes the tracked files that move along with a directory.
    pub(super) fn moved_tracked(&mut self, from: &AbsPath, to: &AbsPath) {
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
            let birth = Birth::of(CWD, was.as_path());
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

    fn note_own(&mut self, path: AbsPath, birth: Option<Birth>) {
        let Some(birth) = birth else { return };
        if self.own_files.len() < MOST && self.own_files.insert((path.clone(), birth)) {
            self.made.push((None, path, GitMarker::File, Some(birth)));
        }
    }
}

/// Tells whether a name stands for the file that the survey saw.
fn is_surveyed(directory: BorrowedFd<'_>, name: &Path, file: &TrackedFile) -> bool {
    let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    status.is_ok_and(|status| (status.st_dev, status.st_ino) == file.identity)
        && Birth::of(directory, name).is_some_and(|birth| birth.born() == file.born)
}

/// Tells whether the caller is git, from a mount that no command can write to.
fn is_git(caller: &NotifyCaller<'_>) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(program) =
        rustix::fs::openat(caller.host_proc, format!("{}/exe", caller.pid()), flags, Mode::empty())
    else {
        return false;
    };
    let Ok(path) = path_of_directory(caller.host_proc, program.as_fd()) else { return false };
    let is_named = path.name().is_some_and(|name| name == "git")
        || path.parent().is_some_and(|above| above.name().is_some_and(|name| name == "git-core"));
    let is_read_only = rustix::fs::fstatvfs(&program)
        .is_ok_and(|status| status.f_flag.contains(StatVfsMountFlags::RDONLY));
    is_named && is_read_only && caller.still_waits().is_ok()
}
