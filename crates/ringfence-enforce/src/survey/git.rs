//! Git directories that were there before: what in them runs programs on the host.

use std::fs;

use ringfence_policy::AbsPath;

use super::settings;
use super::surveyor::Surveyor;
use crate::plan::{Cover, GuardKind, Kind};

/// Settings and programs that git obeys, below a git directory.
const PROTECTED: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "info/attributes"];

/// Covers what exists of them and pins the directories around.
pub(super) fn survey(directory: &AbsPath, surveyor: &mut Surveyor<'_>) {
    let Ok(metadata) = fs::symlink_metadata(directory.as_path()) else { return };
    if metadata.is_symlink() {
        // Git follows it. Another in its place would be obeyed just so.
        surveyor.keep(directory);
        if let Some(target) = followed(directory).filter(|target| !surveyor.is_pinned(target)) {
            self::survey(&target, surveyor);
            around(directory, &target, surveyor);
        }
        return;
    }
    if metadata.is_file() {
        // A pointer to a git directory elsewhere: another target would be obeyed just so.
        surveyor.found.covers.entry(directory.clone()).or_insert(Cover::ReadOnly);
        if let Some(target) = pointed_at(directory).filter(|target| target != directory) {
            if !surveyor.is_pinned(&target) {
                self::survey(&target, surveyor);
            }
            around(directory, &target, surveyor);
        }
        return;
    }
    if !metadata.is_dir() {
        surveyor.found.covers.entry(directory.clone()).or_insert(Cover::Deny(Kind::File));
        return;
    }
    surveyor.pin(directory, GuardKind::Git);
    if fs::read_dir(directory.as_path()).is_err() {
        surveyor.found.covers.insert(directory.clone(), Cover::Deny(Kind::Directory));
        return;
    }
    surveyor.pin(&directory.join("info"), GuardKind::Git);
    for name in PROTECTED {
        surveyor.protect(&directory.join(name));
    }
    around(directory, directory, surveyor);
    let modules = directory.join("modules");
    surveyor.pin(&modules, GuardKind::Git);
    nested(&modules, 0, surveyor);
    surveyor.pin(&directory.join("worktrees"), GuardKind::Git);
    for worktree in directories(&directory.join("worktrees")) {
        surveyor.pin(&worktree, GuardKind::Git);
        for name in ["config.worktree", "commondir", "gitdir"] {
            surveyor.protect(&worktree.join(name));
        }
    }
}

/// Protects the hooks that git is told to run from the working tree around `dot_git`, whose
/// files are in `directory`.
fn around(dot_git: &AbsPath, directory: &AbsPath, surveyor: &mut Surveyor<'_>) {
    let common = super::read_small(&directory.join("commondir")).map(|common| directory.join(common.trim()));
    let files = [common.as_ref().unwrap_or(directory).join("config"), directory.join("config.worktree")];
    let said = settings::of(&files, &surveyor.grants.home);
    // A bare repository has no working tree, and git runs its hooks in itself.
    let tree = if dot_git.name().is_some_and(|name| name == ".git") { dot_git.parent() } else { Some(dot_git.clone()) };
    let trees: Vec<AbsPath> = tree.into_iter().chain(said.worktrees.iter().map(|tree| directory.join(tree))).collect();
    let hooks = said.hooks.iter().chain(surveyor.hooks_everywhere());
    let places: Vec<AbsPath> =
        hooks.flat_map(|hooks| trees.iter().map(|tree| settings::expanded(hooks, tree, &surveyor.grants.home))).collect();
    for place in &places {
        surveyor.protect(place);
    }
}

/// Where a link leads, if that is a directory.
fn followed(link: &AbsPath) -> Option<AbsPath> {
    fs::canonicalize(link.as_path()).ok().filter(|path| path.is_dir()).and_then(AbsPath::new)
}

/// Where a `.git` file points, if that is a directory.
fn pointed_at(pointer: &AbsPath) -> Option<AbsPath> {
    let text = super::read_small(pointer)?;
    let target = pointer.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    followed(&target)
}

/// Submodules' git directories, which may lie several directories deep.
fn nested(modules: &AbsPath, depth: usize, found: &mut Surveyor<'_>) {
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
