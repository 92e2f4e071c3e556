//! Names of git's that the command makes or moves: the watcher asks whose they are, and the
//! sweep looks at them when the command has ended.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::AbsPath;
use rustix::fs::{Access, AtFlags, Mode, OFlags};

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of};
use super::resolve::ResolvedParent;
use crate::apply::{Birth, GitMarker};
use crate::plan::PinReason;

/// Directory of a git directory in which git makes one for each worktree. It never takes one that
/// is there already, so the command cannot make one ahead for the user.
const WORKTREES: &str = "worktrees";

/// Directory of a git directory in which git makes one for each submodule. It takes one that is
/// there already, so the sweep removes what git would obey from those that the command made.
const MODULES: &str = "modules";

/// Names in a git directory: a directory that has one of the first three is not above those of
/// submodules.
const OF_GIT: [&str; 8] =
    ["HEAD", "config", "objects", "branches", "hooks", "info", "logs", "refs"];

/// Use of a directory in which git makes one for each worktree or submodule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    Worktrees,
    Modules,
}

impl Store {
    fn named(name: &OsStr) -> Option<Self> {
        match name.as_bytes() {
            name if name == WORKTREES.as_bytes() => Some(Store::Worktrees),
            name if name == MODULES.as_bytes() => Some(Store::Modules),
            _ => None,
        }
    }
}

impl CreationRules {
    /// Notes that `place`'s name was made just now.
    pub(super) fn made(&mut self, caller: &NotifyCaller<'_>, place: &ResolvedParent) {
        self.took_name();
        self.made_tracked(caller, place);
        let what = match place.name.as_bytes() {
            b".git" => GitMarker::DotGit,
            b"HEAD" => GitMarker::Head,
            _ if self.is_interesting(&place.name) => GitMarker::Setting,
            _ => return self.made_in_store(caller, place),
        };
        let (Ok(path), Ok(status)) = (path_of(caller, place), rustix::fs::fstat(&place.directory))
        else {
            return;
        };
        if what == GitMarker::Setting && !self.is_own_setting(&path) {
            return self.made_in_store(caller, place);
        }
        let Some(directory) = path.parent() else { return };
        let birth = Birth::of(&place.directory, place.name.as_os_str());
        if self.known.insert((status.st_dev, status.st_ino, what, birth)) {
            self.made.push((
                rustix::io::fcntl_dupfd_cloexec(&place.directory, 3).ok(),
                directory,
                what,
                birth,
            ));
        }
    }

    /// Answers whether a directory is the git directory of a submodule that the command made in a
    /// repository of the user.
    pub(super) fn is_own_module(&self, identity: (u64, u64), directory: BorrowedFd<'_>) -> bool {
        self.own_modules
            .get(&identity)
            .is_some_and(|birth| Birth::of_open(directory).as_ref() == Some(birth))
    }

    /// The kind of store that a directory is, by its identity and path.
    fn store(
        &self,
        directory: &ResolvedParent,
        around: (u64, u64),
        path: &AbsPath,
    ) -> Option<Store> {
        let guarded = self
            .guards
            .get(&around)
            .filter(|(_, kind)| *kind == PinReason::Git)
            .map(|(path, _)| path);
        let at = guarded.or(Some(path).filter(|_| self.new_stores.contains(&around)))?;
        // `modules/vendor` is above the git directory of the submodule `vendor/lib`.
        let is_above = || {
            let is_in_modules = at
                .ancestors()
                .skip(1)
                .any(|above| above.name().is_some_and(|name| name == MODULES));
            let has = |name: &str| {
                rustix::fs::accessat(&directory.directory, name, Access::EXISTS, AtFlags::empty())
                    .is_ok()
            };
            is_in_modules
                && !OF_GIT.iter().any(|name| directory.name == *name)
                && !OF_GIT[..3].iter().any(|name| has(name))
        };
        at.name().and_then(Store::named).or_else(|| is_above().then_some(Store::Modules))
    }

    /// Notes a directory that was made where a repository of the user keeps those of its
    /// worktrees and submodules: `git worktree add` and `git submodule update` have to write to it.
    fn made_in_store(&mut self, caller: &NotifyCaller<'_>, place: &ResolvedParent) {
        if self.git_guards.is_empty() {
            return;
        }
        let Ok(around) = rustix::fs::fstat(&place.directory) else { return };
        let around = (around.st_dev, around.st_ino);
        let is_guarded = self.git_guards.contains(&around);
        let is_own_worktree = self.own_worktrees.contains(&around);
        if !is_guarded && !is_own_worktree && !self.new_stores.contains(&around) {
            return;
        }
        let (Ok(path), Some((opened, birth))) = (path_of(caller, place), opened(place)) else {
            return;
        };
        let store = path.parent().and_then(|above| self.store(place, around, &above));
        let named = Store::named(&place.name);
        let is_new_store = store.is_none()
            && ((is_guarded && named.is_some())
                || (is_own_worktree && named == Some(Store::Modules)));
        if !is_new_store && store.is_none() {
            return;
        }
        let Ok(status) = rustix::fs::fstat(&opened) else { return };
        let identity = (status.st_dev, status.st_ino);
        match store {
            Some(Store::Modules) => {
                self.own_modules.insert(identity, birth);
                // Directories of submodules may lie in it.
                self.new_stores.insert(identity);
            }
            Some(Store::Worktrees) => drop(self.own_worktrees.insert(identity)),
            None => drop(self.new_stores.insert(identity)),
        }
        if self.known.insert((identity.0, identity.1, GitMarker::Store, Some(birth))) {
            self.made.push((Some(opened), path, GitMarker::Store, Some(birth)));
        }
    }

    /// Notes a directory that is about to leave a tree which the survey does not walk, so that
    /// the repositories in it are looked through.
    pub(super) fn moved_out(&mut self, what: &ResolvedParent, from: &AbsPath, path: &AbsPath) {
        if !self.excepted.holds(&self.grants, from) || self.excepted.holds(&self.grants, path) {
            return;
        }
        match opened(what) {
            Some((opened, birth)) => {
                let Ok(status) = rustix::fs::fstat(&opened) else { return };
                if self.known.insert((status.st_dev, status.st_ino, GitMarker::Tree, Some(birth))) {
                    self.made.push((Some(opened), path.clone(), GitMarker::Tree, None));
                }
            }
            None => self.made.push((None, path.clone(), GitMarker::Tree, None)),
        }
    }
}

/// The directory that stands at a place.
fn opened(place: &ResolvedParent) -> Option<(OwnedFd, Birth)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened =
        rustix::fs::openat(&place.directory, place.name.as_os_str(), flags, Mode::empty()).ok()?;
    let birth = Birth::of_open(opened.as_fd())?;
    Some((opened, birth))
}
