//! Git directories that existed before: files in them that make git run programs on the host.

use std::fs;

use ringfence_plan::{FileKind, Overmount, PinReason};
use ringfence_policy::AbsPath;

use super::build::SurveyBuilder;
use super::git_config;

/// Settings and programs that git obeys, below a git directory, and those of Sapling and lazygit
/// there. Files in `remotes` and `branches` set the target of `git push`.
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

/// Names in a git directory whose creation adds settings that git obeys.
pub const OBEYED_NAMES: [&str; 11] = [
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

/// Maximum of settings of one kind to examine.
const MAX_SETTINGS: usize = 24;

/// Masks the existing ones and pins the directories around them.
pub(crate) fn survey(directory: &AbsPath, surveyor: &mut SurveyBuilder<'_>) {
    let Ok(metadata) = fs::symlink_metadata(directory.as_path()) else { return };
    if surveyor.is_made_by_command(directory) {
        return;
    }
    if metadata.is_symlink() {
        // Git follows this link. Git would also obey a replacement, or a directory further up once
        // the link is gone.
        surveyor.forbid_creation(directory);
        surveyor.pin(directory, PinReason::Link);
        if let Some(target) =
            link_target_dir(directory).filter(|target| !surveyor.is_pinned(target))
        {
            self::survey(&target, surveyor);
            around(directory, &target, surveyor);
        }
        return;
    }
    if metadata.is_file() {
        // A pointer to a git directory elsewhere: git would also obey another target.
        surveyor.found.masks.entry(directory.clone()).or_insert(Overmount::ReadOnly);
        if let Some(target) = gitdir_target(directory).filter(|target| target != directory) {
            if !surveyor.is_pinned(&target) {
                self::survey(&target, surveyor);
            }
            around(directory, &target, surveyor);
        }
        return;
    }
    if !metadata.is_dir() {
        surveyor.found.masks.entry(directory.clone()).or_insert(Overmount::Deny(FileKind::File));
        return;
    }
    surveyor.pin(directory, PinReason::Git);
    if !super::is_searchable_dir(directory) {
        surveyor.found.masks.insert(directory.clone(), Overmount::Deny(FileKind::Directory));
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
        if surveyor.is_made_by_command(&worktree) {
            continue;
        }
        surveyor.pin(&worktree, PinReason::Git);
        for name in ["config.worktree", "commondir", "gitdir"] {
            surveyor.protect(&worktree.join(name));
        }
        submodules(&worktree, surveyor);
    }
}

/// Protects the git directories of submodules, which git keeps in the git directory of the working
/// tree around them: a linked worktree has its own.
fn submodules(directory: &AbsPath, surveyor: &mut SurveyBuilder<'_>) {
    let modules = directory.join("modules");
    surveyor.pin(&modules, PinReason::Git);
    nested(&modules, 0, surveyor);
}

/// Protects the hooks that git runs from the working tree around `dot_git`, whose files are in
/// `directory`.
fn around(dot_git: &AbsPath, directory: &AbsPath, surveyor: &mut SurveyBuilder<'_>) {
    let common =
        super::read_small(&directory.join("commondir")).map(|common| directory.join(common.trim()));
    let files =
        [common.as_ref().unwrap_or(directory).join("config"), directory.join("config.worktree")];
    let facts = git_config::read_files(&files, &surveyor.grants.home);
    // A bare repository has no working tree, and git runs its hooks in itself.
    let tree = if dot_git.name().is_some_and(|name| name == ".git") {
        dot_git.parent()
    } else {
        Some(dot_git.clone())
    };
    // Git obeys the last of each, and a file could contain thousands.
    let worktrees =
        facts.worktrees.iter().rev().take(MAX_SETTINGS).map(|tree| directory.join(tree));
    let trees: Vec<AbsPath> = tree.into_iter().chain(worktrees).collect();
    let hooks = facts.hooks.iter().rev().take(MAX_SETTINGS).chain(surveyor.global_hooks());
    let places: Vec<AbsPath> = hooks
        .flat_map(|hooks| {
            trees.iter().map(|tree| git_config::resolve_path(hooks, tree, &surveyor.grants.home))
        })
        .collect();
    let own = directory.join("hooks");
    for place in places.iter().chain([&own]) {
        surveyor.protect(place);
        scripts(place, &trees, surveyor);
    }
    for file in &facts.included {
        surveyor.protect(file);
    }
    for (word, tree) in
        facts.words.iter().flat_map(|word| trees.iter().map(move |tree| (word, tree)))
    {
        // In a git directory, a single word such as `HEAD` names a file that git itself writes.
        let is_in_tree = word.contains('/') || tree != directory;
        let place = git_config::resolve_path(word, tree, &surveyor.grants.home);
        if is_in_tree && place.as_path().is_file() {
            surveyor.protect(&place);
        }
    }
}

/// Protects hook scripts: links are followed, and husky hooks run files in the directory above.
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

/// Target of a link, if it is a directory.
pub(crate) fn link_target_dir(link: &AbsPath) -> Option<AbsPath> {
    fs::canonicalize(link.as_path()).ok().filter(|path| path.is_dir()).and_then(AbsPath::new)
}

/// Target of a `.git` file, if it is a directory.
pub(crate) fn gitdir_target(pointer: &AbsPath) -> Option<AbsPath> {
    let text = super::read_small(pointer)?;
    let target = pointer.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    link_target_dir(&target)
}

/// Git directories of submodules, which may be several directories deep.
fn nested(modules: &AbsPath, depth: usize, found: &mut SurveyBuilder<'_>) {
    const DEEP: usize = 16;
    if depth == DEEP {
        return;
    }
    for directory in directories(modules, found) {
        // Missing parts could be added later.
        if ["HEAD", "config", "objects"]
            .iter()
            .any(|name| directory.as_path().join(name).symlink_metadata().is_ok())
        {
            survey(&directory, found);
        } else if !found.is_made_by_command(&directory) {
            found.pin(&directory, PinReason::Git);
            nested(&directory, depth + 1, found);
        }
    }
}

/// Subdirectories of a git directory; a directory that cannot be searched is denied.
fn directories(path: &AbsPath, surveyor: &mut SurveyBuilder<'_>) -> Vec<AbsPath> {
    if !super::is_searchable_dir(path) {
        surveyor.found.masks.insert(path.clone(), Overmount::Deny(FileKind::Directory));
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
