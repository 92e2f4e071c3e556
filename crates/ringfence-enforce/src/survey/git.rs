//! Git directories that were there before: what in them runs programs on the host.

use std::fs;

use ringfence_policy::AbsPath;

use super::Survey;
use crate::plan::Cover;

/// Settings and programs that git obeys, below a git directory.
const PROTECTED: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "info/attributes"];

/// Covers what exists of them and pins the directories around.
pub(super) fn survey(directory: &AbsPath, survey: &mut Survey) {
    if directory.as_path().is_file() {
        // A pointer to a git directory elsewhere: another target would be obeyed just so.
        survey.covers.entry(directory.clone()).or_insert(Cover::ReadOnly);
        return;
    }
    survey.pin(directory);
    survey.pin(&directory.join("info"));
    for name in PROTECTED {
        let path = directory.join(name);
        if path.as_path().symlink_metadata().is_ok_and(|m| !m.is_symlink()) {
            survey.covers.entry(path).or_insert(Cover::ReadOnly);
        }
    }
    let modules = directory.join("modules");
    survey.pin(&modules);
    nested(&modules, 0, survey);
    for worktree in directories(&directory.join("worktrees")) {
        survey.pin(&worktree);
        let own = worktree.join("config.worktree");
        if own.as_path().is_file() {
            survey.covers.entry(own).or_insert(Cover::ReadOnly);
        }
    }
}

/// Submodules' git directories, which may lie several directories deep.
fn nested(modules: &AbsPath, depth: usize, found: &mut Survey) {
    const DEEP: usize = 16;
    if depth == DEEP {
        return;
    }
    for directory in directories(modules) {
        if directory.as_path().join("HEAD").is_file() {
            survey(&directory, found);
        } else {
            found.pin(&directory);
            nested(&directory, depth + 1, found);
        }
    }
}

fn directories(path: &AbsPath) -> Vec<AbsPath> {
    fs::read_dir(path.as_path())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| path.join(entry.file_name()))
        .collect()
}
