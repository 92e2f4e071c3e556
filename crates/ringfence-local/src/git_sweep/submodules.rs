//! Repositories that git enters by itself, since an index names them. A command can add to an
//! index, and write to what it adds: a repository of the person where the survey did not look.

use std::collections::HashSet;
use std::path::Path;

use ringfence_enforce::apply::GitMarker;
use ringfence_enforce::{gitlinks, is_index};
use ringfence_policy::AbsPath;
use rustix::fs::FileType;
use std::os::unix::ffi::OsStrExt;

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::{Came, GitSweep, PathTrust, SweepDir};

impl GitSweep<'_> {
    /// Looks at those that were not entered before.
    pub(super) fn entered_by_git(&mut self) {
        let mut seen = HashSet::new();
        let before: Vec<AbsPath> = self.ground.trees.clone();
        let mut waiting: Vec<AbsPath> =
            before.iter().flat_map(|tree| self.gitlinks(tree, IndexFiles::Changed)).collect();
        while let Some(path) = waiting.pop() {
            if !seen.insert(path.clone()) || self.ground.covered.contains(&path.join(".git")) {
                continue;
            }
            let Some(directory) = self.roots.open(&path) else { continue };
            let git = held_dir::enter(&directory, ".git", DirAccess::Look, CrossMounts::Cross);
            if git.is_ok_and(|git| self.was_before(&git)) {
                continue;
            }
            self.look_at(
                &SweepDir {
                    directory,
                    path: path.clone(),
                    standing: PathTrust::OnHost,
                    came: Came::Alone,
                },
                GitMarker::DotGit,
            );
            waiting.extend(self.gitlinks(&path, IndexFiles::All));
        }
    }

    /// The working trees that git enters from `tree`.
    fn gitlinks(&self, tree: &AbsPath, which: IndexFiles) -> Vec<AbsPath> {
        /// The largest there are have some hundred megabytes.
        const LONGEST: u64 = 1 << 30;
        let Some(git) = self.git_of(tree) else { return Vec::new() };
        let names = held_dir::entries(&git)
            .unwrap_or_default()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| is_index(name.as_bytes()));
        let files = names.filter_map(|name| held_dir::open_file(&git, Path::new(&name)).ok());
        let wanted = files.filter(|file| {
            which == IndexFiles::All || self.ground.begun.may_precede_change_of(file)
        });
        let links = wanted
            .filter_map(|file| held_dir::read_all(file, LONGEST).ok())
            .flat_map(|index| gitlinks(&index));
        links.map(|link| tree.join(link)).collect()
    }

    /// The git directory of a working tree.
    fn git_of(&self, tree: &AbsPath) -> Option<HeldDir> {
        let directory = self.roots.open(tree)?;
        match kind(&directory, ".git")? {
            FileType::Directory => {
                held_dir::enter(&directory, ".git", DirAccess::Look, CrossMounts::Cross).ok()
            }
            _ => self.roots.open(&super::pointer::target(&directory, tree)?),
        }
    }
}

/// Which files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexFiles {
    All,
    /// Since the command began.
    Changed,
}
