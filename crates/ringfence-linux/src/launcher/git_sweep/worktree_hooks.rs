//! Hooks in a worktree that a command added to a repository of the user.
//!
//! A relative `core.hooksPath` names a directory in each worktree. The survey protects those of the
//! worktrees that it finds; in a new one the command can write hooks that git on the host would
//! run.

use std::path::{Component, Path};

use ringfence_policy::AbsPath;
use rustix::fs::FileType;

use super::held_dir::{self, HeldDir};
use super::{GitSweep, SweepDir, config};

/// Directory in which husky puts scripts that run those in its parent.
const HUSKY: &str = "_";

impl GitSweep<'_> {
    /// Moves hooks away that differ from those in the main working tree. `git` is the repository at
    /// `common`, and `found_dir` the new worktree.
    pub(super) fn sweep_worktree_hooks(
        &mut self,
        git: &HeldDir,
        common: &AbsPath,
        found_dir: &SweepDir,
    ) {
        let Some(hooks) = held_dir::read(git, "config").ok().and_then(|text| hooks_path(&text))
        else {
            return;
        };
        let hooks = Path::new(&hooks);
        let main = common.parent().filter(|_| common.name().is_some_and(|name| name == ".git"));
        let above =
            hooks.parent().filter(|above| hooks.ends_with(HUSKY) && !above.as_os_str().is_empty());
        for directory in [Some(hooks), above].into_iter().flatten() {
            let Ok(own) = held_dir::open_below(&found_dir.directory, directory) else { continue };
            let theirs = main.as_ref().and_then(|main| self.roots.open(&main.join(directory)));
            for (name, kind) in held_dir::entries(&own).unwrap_or_default() {
                let is_same = || {
                    let theirs =
                        theirs.as_ref().and_then(|theirs| held_dir::read(theirs, &name).ok());
                    kind == FileType::RegularFile
                        && theirs.is_some()
                        && theirs == held_dir::read(&own, &name).ok()
                };
                if kind != FileType::Directory && !is_same() {
                    let reason = "git would run it on the host: it is in the directory of core.hooksPath and differs from the hook of the main worktree";
                    self.quarantine_entry(
                        &own,
                        &name,
                        &found_dir.path.join(directory).join(&name),
                        reason,
                    );
                }
            }
        }
    }
}

/// A relative hooks path, below the working tree.
fn hooks_path(text: &[u8]) -> Option<String> {
    let value = config::hooks_path(text)?;
    let is_below = !value.is_empty()
        && Path::new(&value)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_below.then_some(value)
}
