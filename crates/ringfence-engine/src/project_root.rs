//! The search for the project's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use ringfence_policy::AbsPath;

use crate::files::read_policy_file;
use crate::host::{config_directory_in, system};
use crate::own_policy::own_policy_name;

/// The project around `cwd`: the nearest directory with a repository's policy, else the nearest one
/// with a repository or with the user's own policy for it. Never the home directory.
pub(crate) fn find_project(
    cwd: &AbsPath,
    home: &AbsPath,
    variables: &BTreeMap<String, String>,
) -> AbsPath {
    // Owned by this user or by the owner of `cwd`. Another user could create a project above, such
    // as in `/tmp`, and so open everything in it.
    let owner_of_cwd = fs::metadata(cwd.as_path()).ok().and_then(|found| system::owner(&found));
    let is_ours = |found: &fs::Metadata| {
        let owner = system::owner(found);
        owner.is_some() && [system::user_id(), owner_of_cwd].contains(&owner)
    };
    // A policy wins, at any level: a repository created below it must not hide it.
    let nearest_with = |has: &dyn Fn(&AbsPath) -> bool| {
        let up = cwd.ancestors().take_while(|directory| !home.is_within(directory));
        up.into_iter().find(|directory| has(directory))
    };
    let has_policy = |directory: &AbsPath| {
        fs::metadata(directory.join(".ringfence").as_path())
            .is_ok_and(|found| found.is_dir() && is_ours(&found))
    };
    let has_repository = |directory: &AbsPath| {
        fs::metadata(directory.join(".git").as_path()).is_ok_and(|found| is_ours(&found))
            && is_repository(directory)
    };
    // A repository that a command creates in a directory above must not take the project from it.
    let has_own_policy = |directory: &AbsPath| {
        let settings = config_directory_in(variables, home, directory);
        settings.join("ringfence/projects").join(own_policy_name(directory)).as_path().is_file()
    };
    nearest_with(&has_policy)
        .or_else(|| {
            nearest_with(&|directory| has_repository(directory) || has_own_policy(directory))
        })
        .unwrap_or_else(|| cwd.clone())
}

/// True if `.git` in a directory is a git directory or points to one. An empty directory or file is
/// neither.
fn is_repository(directory: &AbsPath) -> bool {
    let dot_git = directory.join(".git");
    if dot_git.as_path().is_dir() {
        return is_git_directory(&dot_git);
    }
    let text = read_policy_file(&dot_git).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(target) = text.as_deref().and_then(|text| text.strip_prefix("gitdir:")).map(str::trim)
    else {
        return false;
    };
    let git_dir = directory.join(target);
    // Commands can remove a git directory that is in their project.
    !target.is_empty() && (git_dir.is_within(directory) || is_git_directory(&git_dir))
}

/// True if a directory has a part of a git directory.
///
/// One part is enough: a command can remove `HEAD` in its repository, and must not get the
/// directory around it as its next project. It cannot remove `config`, which is protected.
fn is_git_directory(path: &AbsPath) -> bool {
    const PARTS: [&str; 5] = ["HEAD", "config", "commondir", "objects", "refs"];
    let is_there = |part: &str| match fs::symlink_metadata(path.join(part).as_path()) {
        Ok(_) => true,
        // A command can also make its git directory unreadable.
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    };
    PARTS.iter().any(|part| is_there(part))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing::TestHome;

    /// Checks the project of `p/sub` in a home directory, with `p` a repository.
    #[track_caller]
    fn check(prepare: impl Fn(&Path), expect: &str) {
        let home = TestHome::new();
        let facts = home.facts();
        let sub = facts.workspace.join("sub");
        fs::create_dir_all(sub.as_path()).unwrap();
        fs::create_dir_all(facts.workspace.join(".git/refs").as_path()).unwrap();
        prepare(sub.as_path());
        assert_eq!(find_project(&sub, &facts.home, &facts.variables), home.0.join(expect));
    }

    #[test]
    fn empty_marker_is_no_project() {
        check(|_| (), "p");
        check(|sub| fs::create_dir(sub.join(".git")).unwrap(), "p");
        check(|sub| fs::write(sub.join(".git"), "").unwrap(), "p");
        check(|sub| fs::write(sub.join(".git"), "gitdir:\n").unwrap(), "p");
        check(|sub| fs::write(sub.join(".git"), "gitdir: ../none\n").unwrap(), "p");
    }

    /// A command must not widen its next project by damage to its repository.
    #[test]
    fn damaged_repository_stays_the_project() {
        let with = |part: &'static str| {
            move |sub: &Path| {
                fs::create_dir(sub.join(".git")).unwrap();
                fs::write(sub.join(".git").join(part), "").unwrap();
            }
        };
        check(with("HEAD"), "p/sub");
        check(with("config"), "p/sub");
        check(|sub| fs::write(sub.join(".git"), "gitdir: real\n").unwrap(), "p/sub");
        check(|sub| fs::write(sub.join(".git"), "gitdir: ../.git\n").unwrap(), "p/sub");
    }

    /// A repository that is created above it must not hide the user's policy for it.
    #[test]
    fn own_policy_makes_a_directory_a_project() {
        let own = |sub: &Path| {
            let settings = sub.ancestors().nth(2).unwrap().join(".config/ringfence/projects");
            fs::create_dir_all(&settings).unwrap();
            fs::write(settings.join(own_policy_name(&AbsPath::new(sub).unwrap())), "").unwrap();
        };
        check(own, "p/sub");
    }
}
