//! Repositories that git enters by itself because an index names them. A command can add entries to
//! an index, and write to the repository that they name: one of the user's in a skipped tree.

use std::collections::HashSet;
use std::path::Path;

use crate::apply::NameKind;
use ringfence_plan::{is_index, parse_gitlinks};
use ringfence_policy::AbsPath;
use rustix::fs::FileType;
use std::os::unix::ffi::OsStrExt;

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::{GitSweep, NameOrigin, PathTrust, SweepDir};

impl GitSweep<'_> {
    /// Checks those that git did not enter before.
    pub(super) fn check_submodule_trees(&mut self) {
        let mut seen = HashSet::new();
        let before: Vec<AbsPath> = self.baseline.trees.clone();
        let mut waiting: Vec<AbsPath> =
            before.iter().flat_map(|tree| self.gitlinks(tree, IndexFiles::Changed)).collect();
        while let Some(path) = waiting.pop() {
            if !seen.insert(path.clone()) || self.baseline.masked.contains(&path.join(".git")) {
                continue;
            }
            let Some(directory) = self.roots.open(&path) else { continue };
            let git = held_dir::enter(&directory, ".git", DirAccess::Look, CrossMounts::Cross);
            if git.is_ok_and(|git| self.existed_before(&git)) {
                continue;
            }
            self.check_marker(
                &SweepDir {
                    directory,
                    path: path.clone(),
                    trust: PathTrust::OnHost,
                    origin: NameOrigin::Alone,
                },
                NameKind::DotGit,
            );
            waiting.extend(self.gitlinks(&path, IndexFiles::All));
        }
    }

    /// The working trees that git enters from `tree`.
    fn gitlinks(&self, tree: &AbsPath, which: IndexFiles) -> Vec<AbsPath> {
        /// The largest known indexes have some hundred megabytes.
        const MAX_SIZE: u64 = 1 << 30;
        let Some(git) = self.git_of(tree) else { return Vec::new() };
        let names = held_dir::entries(&git)
            .unwrap_or_default()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| is_index(name.as_bytes()));
        let files = names.filter_map(|name| held_dir::open_file(&git, Path::new(&name)).ok());
        let wanted = files.filter(|file| {
            which == IndexFiles::All || self.baseline.begun.may_precede_change_of(file)
        });
        let links = wanted
            .filter_map(|file| held_dir::read_all(file, MAX_SIZE).ok())
            .flat_map(|index| parse_gitlinks(&index));
        links.map(|link| tree.join(link)).collect()
    }

    /// The git directory of a working tree.
    fn git_of(&self, tree: &AbsPath) -> Option<HeldDir> {
        let directory = self.roots.open(tree)?;
        match kind(&directory, ".git")? {
            FileType::Directory => {
                held_dir::enter(&directory, ".git", DirAccess::Look, CrossMounts::Cross).ok()
            }
            _ => self.roots.open(&super::pointer::read_pointer(&directory, tree)?),
        }
    }
}

/// Choice of the index files to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexFiles {
    All,
    /// Changed since the command began.
    Changed,
}
