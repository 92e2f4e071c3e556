//! Files that point git at a directory. They are parsed as git parses them, and trusted only if the
//! directories agree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use ringfence_policy::AbsPath;

use super::held_dir::{self, HeldDir, kind};
use super::{GitSweep, PathTrust, SweepDir, is_plain_commondir, looks_like_git, repository_around};

/// True for an empty `.git`, which uv writes into its cache so that git tools leave it alone. Git
/// rejects it as a pointer. A second hard link could be written later without a report.
pub(super) fn is_empty_marker(directory: &HeldDir) -> bool {
    let metadata = held_dir::open_file(directory, ".git").and_then(|file| file.metadata());
    metadata.is_ok_and(|metadata| metadata.len() == 0 && metadata.nlink() == 1)
}

impl GitSweep<'_> {
    /// True if a path is a submodule's git directory: in a repository that existed before, where no
    /// command can create files that git obeys, or in one that a command created and the sweep
    /// checks, if the submodule's config names the directory of the pointer.
    fn is_submodule(&mut self, at: &AbsPath, found_dir: &SweepDir) -> bool {
        let modules =
            at.ancestors().skip(1).find(|above| above.name().is_some_and(|name| name == "modules"));
        let Some(git) = modules.and_then(|modules| modules.parent()) else { return false };
        let (Some(own), Some(opened)) = (self.roots.open(at), self.roots.open(&git)) else {
            return false;
        };
        let levels_up = at.depth() - git.depth();
        let mut current = held_dir::open_parent(&own).ok();
        for _ in 1..levels_up {
            current = current.and_then(|current| held_dir::open_parent(&current).ok());
        }
        let is_below = current
            .is_some_and(|current| held_dir::identity(&current) == held_dir::identity(&opened));
        if !is_below || kind(&own, "config").is_none() {
            return false;
        }
        if self.is_owned_by_user(&opened, &git, found_dir.origin) {
            return true;
        }
        let is_repository = |git: &HeldDir| looks_like_git(git) && kind(git, "commondir").is_none();
        // A linked worktree has submodules of its own.
        let is_worktree = looks_like_git(&opened)
            && is_plain_commondir(&opened)
            && repository_around(&opened).is_some();
        let is_around = is_worktree || is_repository(&opened);
        if !is_repository(&own)
            || !is_around
            || self.tree_of(&own, at).is_none_or(|(_, tree)| tree != found_dir.path)
        {
            return false;
        }
        if is_worktree {
            self.sweep_worktree(&opened, &git);
            self.sweep_submodules(&opened, &git, "modules");
        } else {
            self.sweep_repository(&opened, &git);
        }
        true
    }

    /// The working tree that a submodule's config names, as written and as a path, if the `.git`
    /// there points back to the submodule's directory `git`.
    pub(super) fn tree_of(&self, git: &HeldDir, path: &AbsPath) -> Option<(String, AbsPath)> {
        path.ancestors()
            .skip(1)
            .find(|above| above.name().is_some_and(|name| name == "modules"))?;
        let written = super::config::worktree(&held_dir::read(git, "config").ok()?)?;
        let tree = resolve_pointer(path, written.as_bytes())?;
        let back = read_pointer(&self.roots.open(&tree)?, &tree)?;
        (held_dir::identity(self.roots.open(&back)?) == held_dir::identity(git))
            .then_some((written, tree))
    }

    /// True if a `.git` file is as `git worktree add` writes it: it points at a directory that
    /// points back and whose settings are those of the repository around it, which existed before
    /// or is checked as well.
    pub(super) fn is_worktree_pointer(&mut self, found_dir: &SweepDir) -> bool {
        if found_dir.trust == PathTrust::Adrift {
            return false;
        }
        let Some(at) = read_pointer(&found_dir.directory, &found_dir.path) else { return false };
        if self.is_submodule(&at, found_dir) {
            return true;
        }
        let Some(worktrees) =
            at.parent().filter(|above| above.name().is_some_and(|name| name == "worktrees"))
        else {
            return false;
        };
        let Some(common) = worktrees.parent() else { return false };
        let (Some(own), Some(git)) = (self.roots.open(&at), self.roots.open(&common)) else {
            return false;
        };
        let is_around = || {
            let above = held_dir::open_parent(&own).ok()?;
            (held_dir::identity(held_dir::open_parent(&above).ok()?) == held_dir::identity(&git))
                .then_some(())
        };
        let points_back = || {
            let back = resolve_pointer(&at, &held_dir::read(&own, "gitdir").ok()?)?;
            let directory = self.roots.open(&back.parent()?)?;
            let is_it = back.name()? == ".git"
                && held_dir::identity(&directory) == held_dir::identity(&found_dir.directory);
            is_it.then_some(())
        };
        if is_around().is_none() || points_back().is_none() || !is_plain_commondir(&own) {
            return false;
        }
        if !self.existed_before(&own) {
            self.sweep_worktree(&own, &at);
        }
        if self.is_owned_by_user(&git, &common, found_dir.origin) {
            self.sweep_worktree_hooks(&git, &common, found_dir);
            return true;
        }
        let is_repository = looks_like_git(&git) && kind(&git, "commondir").is_none();
        if is_repository {
            self.sweep_repository(&git, &common);
        }
        is_repository
    }
}

/// The target of the `.git` file of a directory.
pub(super) fn read_pointer(directory: &HeldDir, path: &AbsPath) -> Option<AbsPath> {
    resolve_pointer(path, held_dir::read(directory, ".git").ok()?.strip_prefix(b"gitdir: ")?)
}

/// Resolves the text of a pointer from `path`.
///
/// `None` unless it goes up first and then down, as git writes it: any other `..` could be behind a
/// link later.
pub(super) fn resolve_pointer(path: &AbsPath, text: &[u8]) -> Option<AbsPath> {
    let text = Path::new(OsStr::from_bytes(without_line_end(text)));
    let mut has_gone_down = false;
    for part in text.components() {
        match part {
            Component::ParentDir if has_gone_down || text.is_absolute() => return None,
            Component::Normal(_) => has_gone_down = true,
            Component::ParentDir
            | Component::RootDir
            | Component::CurDir
            | Component::Prefix(_) => {}
        }
    }
    let is_text = !text.as_os_str().is_empty() && !text.as_os_str().as_bytes().contains(&0);
    is_text.then(|| path.join(text))
}

/// Strips the line end as git does, and nothing else: a name may end in a space.
pub(super) fn without_line_end(text: &[u8]) -> &[u8] {
    let end =
        text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use ringfence_policy::AbsPath;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let path = AbsPath::new("/p/sub").unwrap();
        assert_eq!(
            super::resolve_pointer(&path, text.as_bytes()).map(|lead| lead.to_string()),
            expected.map(str::to_owned),
            "{text:?}"
        );
    }

    #[test]
    fn pointer_goes_up_and_then_down() {
        check("/p/.git/worktrees/w\n", Some("/p/.git/worktrees/w"));
        check("../.git/worktrees/w\r\n", Some("/p/.git/worktrees/w"));
        check("../.. \n", Some("/p/.. "));
        check("../..\n", Some("/"));
    }

    #[test]
    fn other_pointers_are_rejected() {
        for text in ["", "\n", "/p/x/../.git", "../x/../.git", "x/..", "/p/.git\0x"] {
            check(text, None);
        }
    }
}
