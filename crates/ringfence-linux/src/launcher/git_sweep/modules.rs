//! Git directories of submodules and worktrees inside a repository.

use ringfence_policy::AbsPath;

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, WalkControl, kind};
use super::{GitSweep, identity, looks_like_git, repository_around};

impl GitSweep<'_> {
    /// Checks the git directories of submodules below a name in another one, at any depth.
    pub(super) fn sweep_submodules(&mut self, git: &HeldDir, path: &AbsPath, name: &str) {
        let Ok(top) = held_dir::enter(git, name, DirAccess::Look, CrossMounts::Cross) else {
            return;
        };
        let path = path.join(name);
        let seen = held_dir::walk(top, CrossMounts::Cross, |directory, relative| {
            // Once, even if several repositories contain it.
            if !identity(directory).is_some_and(|identity| self.done.insert(identity)) {
                return Ok(WalkControl::Past);
            }
            if looks_like_git(directory)
                && repository_around(directory).is_none()
                && !self.existed_before(directory)
            {
                let path = path.join(relative);
                self.sweep_git_dir(directory, &path);
                self.sweep_links(directory, &path);
            }
            Ok(WalkControl::Below)
        });
        if seen.is_err() {
            self.report_unchecked(&path);
        }
    }

    /// Checks the directories of submodules and worktrees that were created in a repository of the
    /// user, also incomplete ones: the next survey would take them for the user's, and a later
    /// command could add the missing `HEAD`.
    pub(super) fn sweep_stores(&mut self, git: &HeldDir, path: &AbsPath) {
        let at = path.join("modules");
        if let Ok(modules) = held_dir::enter(git, "modules", DirAccess::Look, CrossMounts::Cross) {
            self.module_stores(modules, &at);
        }
        let at = path.join("worktrees");
        let Ok(worktrees) = held_dir::enter(git, "worktrees", DirAccess::Look, CrossMounts::Cross)
        else {
            return;
        };
        for (name, _) in held_dir::entries(&worktrees).unwrap_or_default() {
            let Ok(own) = held_dir::enter(&worktrees, &name, DirAccess::Look, CrossMounts::Cross)
            else {
                continue;
            };
            if !self.existed_before(&own) {
                self.sweep_worktree(&own, &at.join(&name));
                self.sweep_stores(&own, &at.join(&name));
            }
        }
    }

    fn module_stores(&mut self, modules: HeldDir, path: &AbsPath) {
        let seen = held_dir::walk(modules, CrossMounts::Cross, |directory, relative| {
            let is_git =
                ["HEAD", "config", "objects"].iter().any(|name| kind(directory, name).is_some());
            if relative.as_os_str().is_empty() || !is_git {
                return Ok(WalkControl::Below);
            }
            if !self.existed_before(directory) {
                let (directory, path) =
                    (held_dir::open_held(directory, DirAccess::Look)?, path.join(relative));
                self.sweep_git_dir(&directory, &path);
                self.sweep_links(&directory, &path);
                self.sweep_stores(&directory, &path);
            }
            Ok(WalkControl::Past)
        });
        if seen.is_err() {
            self.report_unchecked(path);
        }
    }
}
