//! Repositories that git enters by itself: those that an index names.
//!
//! `git status` in a project runs git in each of them and obeys their settings, even below `vendor`
//! or `node_modules`, which the survey does not walk.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use ringfence_plan::{is_index, parse_gitlinks};
use ringfence_policy::AbsPath;

use super::git;

/// Working trees that git enters from the one around `dot_git`.
pub(crate) fn entered_worktrees(dot_git: &AbsPath) -> Vec<AbsPath> {
    let Some(tree) = dot_git.parent().filter(|_| dot_git.name().is_some_and(|name| name == ".git"))
    else {
        return Vec::new();
    };
    let is_file = fs::symlink_metadata(dot_git.as_path()).is_ok_and(|metadata| metadata.is_file());
    let Some(directory) =
        (if is_file { git::gitdir_target(dot_git) } else { Some(dot_git.clone()) })
    else {
        return Vec::new();
    };
    let names = fs::read_dir(directory.as_path()).into_iter().flatten().flatten();
    let indexes = names.filter(|entry| {
        is_index(entry.file_name().as_encoded_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    });
    let links = indexes
        .filter_map(|entry| read_index(&entry.path()).ok())
        .flat_map(|index| parse_gitlinks(&index));
    // Git does not enter through a link.
    let is_straight =
        |path: &AbsPath| fs::canonicalize(path.as_path()).is_ok_and(|real| real == path.as_path());
    links.map(|link| tree.join(link)).filter(is_straight).collect()
}

/// Reads an index, up to a limit beyond any real index: a command may have written it.
pub(crate) fn read_index(index: &Path) -> io::Result<Vec<u8>> {
    const LONGEST: u64 = 1 << 28;
    let mut bytes = Vec::new();
    fs::File::open(index)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}
