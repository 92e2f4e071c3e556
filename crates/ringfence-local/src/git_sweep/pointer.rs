//! Files that point git at a directory: what they say is read as git reads it, and believed
//! only of the directories it leads to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use ringfence_policy::AbsPath;

use super::held_dir::{self, HeldDir, kind};
use super::{GitSweep, PathTrust, SweepDir, is_two_up, looks_like_git, repository_around};

/// True for an empty `.git`, which uv writes into its cache so that git tools leave it alone. Git
/// refuses it as a pointer. With a second name it could be written later, unseen.
pub(super) fn is_empty_marker(directory: &HeldDir) -> bool {
    let metadata = held_dir::open_file(directory, ".git").and_then(|file| file.metadata());
    metadata.is_ok_and(|metadata| metadata.len() == 0 && metadata.nlink() == 1)
}

impl GitSweep<'_> {
    /// Answers whether a path is that of a submodule's directory: in a repository that was there
    /// before, where no command can make what git obeys, or in one that a command made, which
    /// is looked through, if the submodule's config names the directory of the pointer.
    fn is_submodule(&mut self, at: &AbsPath, spot: &SweepDir) -> bool {
        let modules =
            at.ancestors().skip(1).find(|above| above.name().is_some_and(|name| name == "modules"));
        let Some(git) = modules.and_then(|modules| modules.parent()) else { return false };
        let (Some(own), Some(opened)) = (self.roots.open(at), self.roots.open(&git)) else {
            return false;
        };
        let ups = at.depth() - git.depth();
        let mut here = held_dir::around(&own).ok();
        for _ in 1..ups {
            here = here.and_then(|here| held_dir::around(&here).ok());
        }
        let is_below =
            here.is_some_and(|here| held_dir::identity(&here) == held_dir::identity(&opened));
        if !is_below || kind(&own, "config").is_none() {
            return false;
        }
        if self.is_users(&opened, &git, spot.came) {
            return true;
        }
        let is_repository = |git: &HeldDir| looks_like_git(git) && kind(git, "commondir").is_none();
        // A linked worktree has submodules of its own.
        let is_worktree =
            looks_like_git(&opened) && is_two_up(&opened) && repository_around(&opened).is_some();
        let is_around = is_worktree || is_repository(&opened);
        if !is_repository(&own)
            || !is_around
            || self.tree_of(&own, at).is_none_or(|(_, tree)| tree != spot.path)
        {
            return false;
        }
        if is_worktree {
            self.worktree(&opened, &git);
            self.submodules(&opened, &git, "modules");
        } else {
            self.repository(&opened, &git);
        }
        true
    }

    /// The working tree that a submodule's config names, as it is written and where it is, if
    /// the `.git` there leads back to the submodule's directory `git`.
    pub(super) fn tree_of(&self, git: &HeldDir, path: &AbsPath) -> Option<(String, AbsPath)> {
        path.ancestors()
            .skip(1)
            .find(|above| above.name().is_some_and(|name| name == "modules"))?;
        let written = super::config::worktree(&held_dir::read(git, "config").ok()?)?;
        let tree = lead(path, written.as_bytes())?;
        let back = target(&self.roots.open(&tree)?, &tree)?;
        (held_dir::identity(self.roots.open(&back)?) == held_dir::identity(git))
            .then_some((written, tree))
    }

    /// Whether a `.git` file is what `git worktree add` writes: it points at a directory
    /// that points back, and whose settings are those of the repository around it, which
    /// was there before or is looked through as well.
    pub(super) fn is_worktree_pointer(&mut self, spot: &SweepDir) -> bool {
        if spot.standing == PathTrust::Adrift {
            return false;
        }
        let Some(at) = target(&spot.directory, &spot.path) else { return false };
        if self.is_submodule(&at, spot) {
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
            let above = held_dir::around(&own).ok()?;
            (held_dir::identity(held_dir::around(&above).ok()?) == held_dir::identity(&git))
                .then_some(())
        };
        let points_back = || {
            let back = lead(&at, &held_dir::read(&own, "gitdir").ok()?)?;
            let directory = self.roots.open(&back.parent()?)?;
            let is_it = back.name()? == ".git"
                && held_dir::identity(&directory) == held_dir::identity(&spot.directory);
            is_it.then_some(())
        };
        if is_around().is_none() || points_back().is_none() || !is_two_up(&own) {
            return false;
        }
        if !self.was_before(&own) {
            self.worktree(&own, &at);
        }
        if self.is_users(&git, &common, spot.came) {
            self.worktree_hooks(&git, &common, spot);
            return true;
        }
        let is_repository = looks_like_git(&git) && kind(&git, "commondir").is_none();
        if is_repository {
            self.repository(&git, &common);
        }
        is_repository
    }
}

/// Where the `.git` file of a directory leads.
pub(super) fn target(directory: &HeldDir, path: &AbsPath) -> Option<AbsPath> {
    lead(path, held_dir::read(directory, ".git").ok()?.strip_prefix(b"gitdir: ")?)
}

/// Where the text of a pointer leads from `path`.
///
/// `None` unless it goes up first and then down, as git writes it: behind any other `..`
/// there may be a link tomorrow.
pub(super) fn lead(path: &AbsPath, text: &[u8]) -> Option<AbsPath> {
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

/// As git takes it off, and nothing else: a name may end in a space.
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
            super::lead(&path, text.as_bytes()).map(|lead| lead.to_string()),
            expected.map(str::to_owned),
            "{text:?}"
        );
    }

    #[test]
    fn a_pointer_goes_up_and_then_down() {
        check("/p/.git/worktrees/w\n", Some("/p/.git/worktrees/w"));
        check("../.git/worktrees/w\r\n", Some("/p/.git/worktrees/w"));
        check("../.. \n", Some("/p/.. "));
        check("../..\n", Some("/"));
    }

    #[test]
    fn anything_else_leads_nowhere() {
        for text in ["", "\n", "/p/x/../.git", "../x/../.git", "x/..", "/p/.git\0x"] {
            check(text, None);
        }
    }
}
