//! Directories in which a repository keeps those of its submodules and worktrees.

use ringfence_policy::AbsPath;

use super::held::{self, Held, Mounts, Next, Want, kind};
use super::{Sweep, identity, looks_like_git, repository_around};

impl Sweep<'_> {
    /// The git directories of submodules that are below a name in another one, at any depth.
    pub(super) fn submodules(&mut self, git: &Held, path: &AbsPath, name: &str) {
        let Ok(top) = held::enter(git, name, Want::Look, Mounts::Cross) else { return };
        let path = path.join(name);
        let seen = held::walk(top, Mounts::Cross, |directory, way| {
            // Once, however many repositories there are around it.
            if !identity(directory).is_some_and(|identity| self.done.insert(identity)) {
                return Ok(Next::Past);
            }
            if looks_like_git(directory)
                && repository_around(directory).is_none()
                && !self.was_before(directory)
            {
                let path = path.join(way);
                self.settings(directory, &path);
                self.links(directory, &path);
            }
            Ok(Next::Below)
        });
        if seen.is_err() {
            self.not_looked_through(&path);
        }
    }

    /// Sweeps the directories of submodules and worktrees that were made in a repository of the user,
    /// also those that are not yet repositories: the next survey would take them for the user's, and a
    /// later command could add the missing `HEAD`.
    pub(super) fn stores(&mut self, git: &Held, path: &AbsPath) {
        let at = path.join("modules");
        if let Ok(modules) = held::enter(git, "modules", Want::Look, Mounts::Cross) {
            self.module_stores(modules, &at);
        }
        let at = path.join("worktrees");
        let Ok(worktrees) = held::enter(git, "worktrees", Want::Look, Mounts::Cross) else {
            return;
        };
        for (name, _) in held::entries(&worktrees).unwrap_or_default() {
            let Ok(own) = held::enter(&worktrees, &name, Want::Look, Mounts::Cross) else {
                continue;
            };
            if !self.was_before(&own) {
                self.worktree(&own, &at.join(&name));
                self.stores(&own, &at.join(&name));
            }
        }
    }

    fn module_stores(&mut self, modules: Held, path: &AbsPath) {
        let seen = held::walk(modules, Mounts::Cross, |directory, way| {
            let is_git =
                ["HEAD", "config", "objects"].iter().any(|name| kind(directory, name).is_some());
            if way.as_os_str().is_empty() || !is_git {
                return Ok(Next::Below);
            }
            if !self.was_before(directory) {
                let (directory, path) = (held::hold(directory, Want::Look)?, path.join(way));
                self.settings(&directory, &path);
                self.links(&directory, &path);
                self.stores(&directory, &path);
            }
            Ok(Next::Past)
        });
        if seen.is_err() {
            self.not_looked_through(path);
        }
    }
}
