//! Git directories that were there before: what in them runs programs on the host.

use std::fs;

use ringfence_policy::AbsPath;

use super::build::SurveyBuilder;
use super::git_config;
use crate::plan::{FileKind, Overmount, PinReason};

/// Settings and programs that git obeys, below a git directory, and those of Sapling and lazygit,
/// which keep their own there. The files in `remotes` and `branches` say where `git push` goes.
const PROTECTED: [&str; 10] = [
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "info/attributes",
    "remotes",
    "branches",
    "lazygit.yml",
    "sl/config",
    "sl/sharedpath",
];

/// Names in a git directory with which comes what git obeys.
pub(crate) const OBEYED: [&str; 11] = [
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "info",
    "attributes",
    "remotes",
    "branches",
    "lazygit.yml",
    "modules",
    "worktrees",
];

/// So many settings of a kind are looked at.
const MANY: usize = 24;

/// Covers what exists of them and pins the directories around.
pub(super) fn survey(directory: &AbsPath, surveyor: &mut SurveyBuilder<'_>) {
    let Ok(metadata) = fs::symlink_metadata(directory.as_path()) else { return };
    if surveyor.is_made(directory) {
        return;
    }
    if metadata.is_symlink() {
        // Git follows it. Another in its place would be obeyed just so, and so would the
        // directory that git finds further up once it is gone.
        surveyor.keep(directory);
        surveyor.pin(directory, PinReason::Link);
        if let Some(target) = followed(directory).filter(|target| !surveyor.is_pinned(target)) {
            self::survey(&target, surveyor);
            around(directory, &target, surveyor);
        }
        return;
    }
    if metadata.is_file() {
        // A pointer to a git directory elsewhere: another target would be obeyed just so.
        surveyor.found.covers.entry(directory.clone()).or_insert(Overmount::ReadOnly);
        if let Some(target) = pointed_at(directory).filter(|target| target != directory) {
            if !surveyor.is_pinned(&target) {
                self::survey(&target, surveyor);
            }
            around(directory, &target, surveyor);
        }
        return;
    }
    if !metadata.is_dir() {
        surveyor.found.covers.entry(directory.clone()).or_insert(Overmount::Deny(FileKind::File));
        return;
    }
    surveyor.pin(directory, PinReason::Git);
    if !super::is_searchable(directory) {
        surveyor.found.covers.insert(directory.clone(), Overmount::Deny(FileKind::Directory));
        return;
    }
    surveyor.pin(&directory.join("info"), PinReason::Git);
    surveyor.pin(&directory.join("hooks"), PinReason::Git);
    for name in PROTECTED {
        surveyor.protect(&directory.join(name));
    }
    around(directory, directory, surveyor);
    submodules(directory, surveyor);
    surveyor.pin(&directory.join("worktrees"), PinReason::Git);
    for worktree in directories(&directory.join("worktrees"), surveyor) {
        if surveyor.is_made(&worktree) {
            continue;
        }
        surveyor.pin(&worktree, PinReason::Git);
        for name in ["config.worktree", "commondir", "gitdir"] {
            surveyor.protect(&worktree.join(name));
        }
        submodules(&worktree, surveyor);
    }
}

/// Protects the git directories of submodules, which git keeps in that of the working tree they
/// stand in: a linked worktree has its own.
fn submodules(directory: &AbsPath, surveyor: &mut SurveyBuilder<'_>) {
    let modules = directory.join("modules");
    surveyor.pin(&modules, PinReason::Git);
    nested(&modules, 0, surveyor);
}

/// Protects the hooks that git is told to run from the working tree around `dot_git`, whose
/// files are in `directory`.
fn around(dot_git: &AbsPath, directory: &AbsPath, surveyor: &mut SurveyBuilder<'_>) {
    let common =
        super::read_small(&directory.join("commondir")).map(|common| directory.join(common.trim()));
    let files =
        [common.as_ref().unwrap_or(directory).join("config"), directory.join("config.worktree")];
    let said = git_config::of(&files, &surveyor.grants.home);
    // A bare repository has no working tree, and git runs its hooks in itself.
    let tree = if dot_git.name().is_some_and(|name| name == ".git") {
        dot_git.parent()
    } else {
        Some(dot_git.clone())
    };
    // Git obeys the last of each, and somebody could write thousands.
    let worktrees = said.worktrees.iter().rev().take(MANY).map(|tree| directory.join(tree));
    let trees: Vec<AbsPath> = tree.into_iter().chain(worktrees).collect();
    let hooks = said.hooks.iter().rev().take(MANY).chain(surveyor.hooks_everywhere());
    let places: Vec<AbsPath> = hooks
        .flat_map(|hooks| {
            trees.iter().map(|tree| git_config::expanded(hooks, tree, &surveyor.grants.home))
        })
        .collect();
    let own = directory.join("hooks");
    for place in places.iter().chain([&own]) {
        surveyor.protect(place);
        scripts(place, &trees, surveyor);
    }
    for file in &said.included {
        surveyor.protect(file);
    }
    for (word, tree) in
        said.words.iter().flat_map(|word| trees.iter().map(move |tree| (word, tree)))
    {
        // In a git directory, a single word such as `HEAD` names a file that git itself writes.
        let is_in_tree = word.contains('/') || tree != directory;
        let place = git_config::expanded(word, tree, &surveyor.grants.home);
        if is_in_tree && place.as_path().is_file() {
            surveyor.protect(&place);
        }
    }
}

/// What hooks are made of: links are followed, and those of husky run what lies beside them.
fn scripts(hooks: &AbsPath, trees: &[AbsPath], surveyor: &mut SurveyBuilder<'_>) {
    for entry in fs::read_dir(hooks.as_path()).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            surveyor.protect(&hooks.join(entry.file_name()));
        }
    }
    if hooks.name().is_some_and(|name| name == "_")
        && let Some(above) = hooks.parent().filter(|above| !trees.contains(above))
    {
        surveyor.protect(&above);
    }
}

/// Where a link leads, if that is a directory.
pub(super) fn followed(link: &AbsPath) -> Option<AbsPath> {
    fs::canonicalize(link.as_path()).ok().filter(|path| path.is_dir()).and_then(AbsPath::new)
}

/// Where a `.git` file points, if that is a directory.
pub(super) fn pointed_at(pointer: &AbsPath) -> Option<AbsPath> {
    let text = super::read_small(pointer)?;
    let target = pointer.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    followed(&target)
}

/// Submodules' git directories, which may lie several directories deep.
fn nested(modules: &AbsPath, depth: usize, found: &mut SurveyBuilder<'_>) {
    const DEEP: usize = 16;
    if depth == DEEP {
        return;
    }
    for directory in directories(modules, found) {
        // Whatever it lacks could be added to it later.
        if ["HEAD", "config", "objects"]
            .iter()
            .any(|name| directory.as_path().join(name).symlink_metadata().is_ok())
        {
            survey(&directory, found);
        } else if !found.is_made(&directory) {
            found.pin(&directory, PinReason::Git);
            nested(&directory, depth + 1, found);
        }
    }
}

/// The directories in one of git's; one that cannot be looked into is shut.
fn directories(path: &AbsPath, surveyor: &mut SurveyBuilder<'_>) -> Vec<AbsPath> {
    if !super::is_searchable(path) {
        surveyor.found.covers.insert(path.clone(), Overmount::Deny(FileKind::Directory));
        return Vec::new();
    }
    fs::read_dir(path.as_path())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| path.join(entry.file_name()))
        .collect()
}
