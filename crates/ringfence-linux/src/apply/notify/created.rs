//! Git marker names that the command creates or moves: the watcher asks if the command made them,
//! and the sweep checks them when the command has ended.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use ringfence_plan::PinReason;
use ringfence_policy::AbsPath;
use rustix::fs::{Access, AtFlags, OFlags};

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of};
use super::resolve::ResolvedParent;
use crate::apply::{FileIdentity, NameKind};
use crate::inode::inode_id;
use crate::open::open_at;

/// Subdirectory of a git directory in which git creates one directory per worktree. Git never takes
/// over an existing one, so the command cannot prepare one for the user.
const WORKTREES: &str = "worktrees";

/// Subdirectory of a git directory in which git creates one directory per submodule. Git takes over
/// an existing one, so the sweep removes the settings git would obey from those that the command
/// made.
const MODULES: &str = "modules";

/// Names in a git directory. A directory that has one of the first three is not a parent of
/// submodule git directories.
const GIT_DIR_NAMES: [&str; 8] =
    ["HEAD", "config", "objects", "branches", "hooks", "info", "logs", "refs"];

/// Kind of a directory in which git creates one directory per worktree or submodule.
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
    /// Notes that the name at `place` was just created.
    pub(super) fn note_created(&mut self, caller: &NotifyCaller<'_>, place: &ResolvedParent) {
        self.count_name();
        self.note_created_tracked(caller, place);
        let what = match place.name.as_bytes() {
            b".git" => NameKind::DotGit,
            b"HEAD" => NameKind::Head,
            _ if self.name_could_matter(&place.name) => NameKind::Setting,
            _ => return self.note_created_in_store(caller, place),
        };
        let (Ok(path), Ok(status)) = (path_of(caller, place), rustix::fs::fstat(&place.directory))
        else {
            return;
        };
        if what == NameKind::Setting && !self.is_own_setting(&path) {
            return self.note_created_in_store(caller, place);
        }
        let Some(directory) = path.parent() else { return };
        let birth = FileIdentity::from_entry(&place.directory, place.name.as_os_str());
        if self.known.insert((status.st_dev, status.st_ino, what, birth)) {
            self.made.push((
                rustix::io::fcntl_dupfd_cloexec(&place.directory, 3).ok(),
                directory,
                what,
                birth,
            ));
        }
    }

    /// True if the directory is the git directory of a submodule that the command made in a
    /// repository of the user.
    pub(super) fn is_own_module(&self, identity: (u64, u64), directory: BorrowedFd<'_>) -> bool {
        self.own_modules
            .get(&identity)
            .is_some_and(|birth| FileIdentity::from_fd(directory).as_ref() == Some(birth))
    }

    /// The kind of store that a directory is, by its inode and path.
    fn store(
        &self,
        directory: &ResolvedParent,
        parent: (u64, u64),
        path: &AbsPath,
    ) -> Option<Store> {
        let guarded = self
            .guards
            .get(&parent)
            .filter(|(_, kind)| *kind == PinReason::Git)
            .map(|(path, _)| path);
        let at = guarded.or(Some(path).filter(|_| self.new_stores.contains(&parent)))?;
        // `modules/vendor` is a parent of the git directory of the submodule `vendor/lib`.
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
                && !GIT_DIR_NAMES.iter().any(|name| directory.name == *name)
                && !GIT_DIR_NAMES[..3].iter().any(|name| has(name))
        };
        at.name().and_then(Store::named).or_else(|| is_above().then_some(Store::Modules))
    }

    /// Notes a directory that was created where a repository of the user keeps its worktrees and
    /// submodules: `git worktree add` and `git submodule update` have to write to it.
    fn note_created_in_store(&mut self, caller: &NotifyCaller<'_>, place: &ResolvedParent) {
        if self.git_guards.is_empty() {
            return;
        }
        let Ok(parent) = rustix::fs::fstat(&place.directory) else { return };
        let parent = inode_id(&parent);
        let is_guarded = self.git_guards.contains(&parent);
        let is_own_worktree = self.own_worktrees.contains(&parent);
        if !is_guarded && !is_own_worktree && !self.new_stores.contains(&parent) {
            return;
        }
        let (Ok(path), Some((opened, birth))) = (path_of(caller, place), open_directory(place))
        else {
            return;
        };
        let store = path.parent().and_then(|above| self.store(place, parent, &above));
        let named = Store::named(&place.name);
        let is_new_store = store.is_none()
            && ((is_guarded && named.is_some())
                || (is_own_worktree && named == Some(Store::Modules)));
        if !is_new_store && store.is_none() {
            return;
        }
        let Ok(status) = rustix::fs::fstat(&opened) else { return };
        let identity = inode_id(&status);
        match store {
            Some(Store::Modules) => {
                self.own_modules.insert(identity, birth);
                // Git directories of nested submodules may lie in it.
                self.new_stores.insert(identity);
            }
            Some(Store::Worktrees) => drop(self.own_worktrees.insert(identity)),
            None => drop(self.new_stores.insert(identity)),
        }
        if self.known.insert((identity.0, identity.1, NameKind::Store, Some(birth))) {
            self.made.push((Some(opened), path, NameKind::Store, Some(birth)));
        }
    }

    /// Notes a directory that is about to leave a tree which the survey does not walk, so that the
    /// repositories in it are checked.
    pub(super) fn note_moved_out(&mut self, what: &ResolvedParent, from: &AbsPath, path: &AbsPath) {
        if !self.excepted.contains(&self.grants, from) || self.excepted.contains(&self.grants, path)
        {
            return;
        }
        match open_directory(what) {
            Some((opened, birth)) => {
                let Ok(status) = rustix::fs::fstat(&opened) else { return };
                if self.known.insert((status.st_dev, status.st_ino, NameKind::Tree, Some(birth))) {
                    self.made.push((Some(opened), path.clone(), NameKind::Tree, None));
                }
            }
            None => self.made.push((None, path.clone(), NameKind::Tree, None)),
        }
    }
}

/// Opens the directory at `place`.
fn open_directory(place: &ResolvedParent) -> Option<(OwnedFd, FileIdentity)> {
    let opened = open_at(
        &place.directory,
        place.name.as_os_str(),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
    )
    .ok()?;
    let birth = FileIdentity::from_fd(opened.as_fd())?;
    Some((opened, birth))
}
