//! Git directories that were there before: what in them runs programs on the host.

use std::fs;

use ringfence_policy::AbsPath;

use super::Survey;
use crate::plan::{Cover, GuardKind, Kind};

/// Settings and programs that git obeys, below a git directory.
const PROTECTED: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "info/attributes"];

/// Covers what exists of them and pins the directories around.
pub(super) fn survey(directory: &AbsPath, survey: &mut Survey) {
    let Ok(metadata) = fs::symlink_metadata(directory.as_path()) else { return };
    if metadata.is_file() {
        // A pointer to a git directory elsewhere: another target would be obeyed just so.
        survey.covers.entry(directory.clone()).or_insert(Cover::ReadOnly);
        if let Some(target) = pointed_at(directory)
            && target != *directory
            && !survey.is_pinned(&target)
        {
            self::survey(&target, survey);
        }
        return;
    }
    if !metadata.is_dir() {
        survey.covers.entry(directory.clone()).or_insert(Cover::Deny(Kind::File));
        return;
    }
    survey.pin(directory, GuardKind::Git);
    if fs::read_dir(directory.as_path()).is_err() {
        survey.covers.insert(directory.clone(), Cover::Deny(Kind::Directory));
        return;
    }
    survey.pin(&directory.join("info"), GuardKind::Git);
    for name in PROTECTED {
        survey.protect(&directory.join(name));
    }
    if let Some(hooks) = hooks_path(directory) {
        survey.protect(&hooks);
    }
    let modules = directory.join("modules");
    survey.pin(&modules, GuardKind::Git);
    nested(&modules, 0, survey);
    survey.pin(&directory.join("worktrees"), GuardKind::Git);
    for worktree in directories(&directory.join("worktrees")) {
        survey.pin(&worktree, GuardKind::Git);
        for name in ["config.worktree", "commondir", "gitdir"] {
            survey.protect(&worktree.join(name));
        }
    }
}

/// Where a `.git` file points, if that is a directory.
fn pointed_at(pointer: &AbsPath) -> Option<AbsPath> {
    let text = super::read_small(pointer)?;
    let target = pointer.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    fs::canonicalize(target.as_path()).ok().filter(|path| path.is_dir()).and_then(AbsPath::new)
}

/// The directory that `core.hooksPath` names.
fn hooks_path(directory: &AbsPath) -> Option<AbsPath> {
    let text = super::read_small(&directory.join("config"))?;
    let value = text.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim().eq_ignore_ascii_case("hookspath"))?.1;
    // Relative to the working tree, which is around a `.git` and is the directory itself else.
    let around = if directory.name().is_some_and(|name| name == ".git") { directory.parent()? } else { directory.clone() };
    Some(around.join(value.trim().trim_matches('"')))
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
            found.pin(&directory, GuardKind::Git);
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
