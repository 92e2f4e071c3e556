//! Names of git's that the command makes or moves: the watcher asks whose they are, and the
//! sweep looks at them when the command has ended.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::AbsPath;
use rustix::fs::{Mode, OFlags};

use super::caller::Caller;
use super::judge::{Judge, path_of};
use super::place::Place;
use crate::apply::{Birth, Planted};
use crate::plan::GuardKind;

/// Directory of a git directory in which git makes one for each worktree. It never takes one that
/// is there already, so the command cannot make one ahead for the user. That is not so of those
/// in `modules`.
const WORKTREES: &str = "worktrees";

impl Judge {
    /// Notes that `place`'s name was made just now.
    pub(super) fn made(&mut self, caller: &Caller<'_>, place: &Place) {
        self.took_name();
        if self.made_tracked(caller, place) {
            return;
        }
        let what = match place.name.as_bytes() {
            b".git" => Planted::DotGit,
            b"HEAD" => Planted::Head,
            _ if self.is_interesting(&place.name) => Planted::Setting,
            _ => return self.made_in_store(caller, place),
        };
        let (Ok(path), Ok(status)) = (path_of(caller, place), rustix::fs::fstat(&place.directory)) else { return };
        if what == Planted::Setting && !self.is_own_setting(&path) {
            return self.made_in_store(caller, place);
        }
        let Some(directory) = path.parent() else { return };
        let birth = Birth::of(&place.directory, place.name.as_os_str());
        if self.known.insert((status.st_dev, status.st_ino, what, birth)) {
            self.made.push((rustix::io::fcntl_dupfd_cloexec(&place.directory, 3).ok(), directory, what, birth));
        }
    }

    /// Notes a directory that was made where a repository of the user keeps those of its
    /// worktrees: `git worktree add` has to write to it.
    fn made_in_store(&mut self, caller: &Caller<'_>, place: &Place) {
        if self.git_guards.is_empty() {
            return;
        }
        let Ok(around) = rustix::fs::fstat(&place.directory) else { return };
        let around = (around.st_dev, around.st_ino);
        let guarded = self.guards.get(&around).filter(|(_, kind)| *kind == GuardKind::Git).map(|(path, _)| path);
        let is_new_store = guarded.is_some() && place.name == WORKTREES;
        let is_store = |path: &AbsPath| path.name().is_some_and(|name| name == WORKTREES);
        let is_in_store = self.new_stores.contains(&around) || guarded.is_some_and(is_store);
        if !is_new_store && !is_in_store {
            return;
        }
        let (Ok(path), Some((opened, birth))) = (path_of(caller, place), opened(place)) else { return };
        let Ok(status) = rustix::fs::fstat(&opened) else { return };
        let identity = (status.st_dev, status.st_ino);
        if is_new_store {
            self.new_stores.insert(identity);
        }
        if self.known.insert((identity.0, identity.1, Planted::Store, Some(birth))) {
            self.made.push((Some(opened), path, Planted::Store, Some(birth)));
        }
    }

    /// Notes a directory that is about to leave a tree which the survey does not walk, so that
    /// the repositories in it are looked through.
    pub(super) fn moved_out(&mut self, what: &Place, from: &AbsPath, path: &AbsPath) {
        if !self.excepted.holds(&self.grants, from) || self.excepted.holds(&self.grants, path) {
            return;
        }
        match opened(what) {
            Some((opened, birth)) => {
                let Ok(status) = rustix::fs::fstat(&opened) else { return };
                if self.known.insert((status.st_dev, status.st_ino, Planted::Tree, Some(birth))) {
                    self.made.push((Some(opened), path.clone(), Planted::Tree, None));
                }
            }
            None => self.made.push((None, path.clone(), Planted::Tree, None)),
        }
    }
}

/// The directory that stands at a place.
fn opened(place: &Place) -> Option<(OwnedFd, Birth)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&place.directory, place.name.as_os_str(), flags, Mode::empty()).ok()?;
    let birth = Birth::of_open(opened.as_fd())?;
    Some((opened, birth))
}
