//! Check of git indexes: git on the host would follow the paths in them anywhere, and commit the
//! trees that they name. See [`ringfence_plan::index_fault`] and
//! [`ringfence_plan::has_foreign_trees`].

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_plan::{
    IndexFault, ObjectNames, has_foreign_trees, index_fault, is_index, shared_index_name,
    without_trees,
};
use ringfence_policy::AbsPath;
use rustix::fs::{FileType, RenameFlags};

use super::held_dir::{self, HeldDir};
use super::{GitSweep, SweepBaseline, repository_around};

/// The largest known indexes have some hundred megabytes.
pub(super) const MAX_SIZE: u64 = 512 << 20;

const MALFORMED: &str =
    "is malformed, and git may follow paths in it; run `git reset` to write a new one";

/// An index that git must not read.
pub(super) struct BadIndex {
    pub(super) name: OsString,
    reason: String,
    /// Its content without the fault, if git can do without the rest.
    pub(super) kept: Option<Vec<u8>>,
}

/// Checks the indexes of a git directory that changed since the command began.
pub(super) fn bad_indexes(baseline: &SweepBaseline, git: &HeldDir) -> Vec<BadIndex> {
    let check = IndexCheck { baseline, git, names: object_names(git) };
    let mut found: Vec<(OsString, FileType)> = held_dir::entries(git).unwrap_or_default();
    found.retain(|(name, _)| is_index(name.as_bytes()));
    // A split index means other entries when a shared one changes.
    let has_changed = found.iter().any(|(name, _)| check.has_changed(name));
    if !has_changed {
        found.retain(|(_, kind)| *kind != FileType::RegularFile);
    }
    found.into_iter().filter_map(|(name, kind)| check.bad_index(name, kind)).collect()
}

/// Check of the indexes in one git directory.
struct IndexCheck<'a> {
    baseline: &'a SweepBaseline,
    git: &'a HeldDir,
    names: ObjectNames,
}

impl IndexCheck<'_> {
    /// True for a file that changed, or cannot be read.
    fn has_changed(&self, name: &OsString) -> bool {
        held_dir::open_file(self.git, name)
            .map_or(true, |file| self.baseline.begun.may_precede_change_of(&file))
    }

    fn bad_index(&self, name: OsString, kind: FileType) -> Option<BadIndex> {
        let bad = |reason: &str| {
            Some(BadIndex { name: name.clone(), reason: reason.to_owned(), kept: None })
        };
        if kind != FileType::RegularFile {
            return bad("is not a plain file");
        }
        let has_changed = self.has_changed(&name);
        if !has_changed && name != "index" {
            return None;
        }
        let Ok(file) = held_dir::open_file(self.git, &name) else { return bad("cannot be read") };
        let Ok(index) = held_dir::read_all(file, MAX_SIZE) else {
            return bad("is too large to check");
        };
        match index_fault(&index, self.names).filter(|_| has_changed) {
            Some(IndexFault::Path(path)) => bad(&format!(
                "makes git follow the path {path:?}, which leads out of the working tree or into .git; run `git reset` to write a new one"
            )),
            Some(IndexFault::Malformed) => bad(MALFORMED),
            None if !self.has_foreign_trees(&index) => None,
            // Git never looks for trees in a shared index. Its name is its checksum.
            None if name != "index" => bad(MALFORMED),
            None => match without_trees(&index, self.names) {
                None => bad(MALFORMED),
                kept => Some(BadIndex {
                    name,
                    reason: "names trees that are not those of its entries, and git would commit \
                             them; an index without them is in its place"
                        .to_owned(),
                    kept,
                }),
            },
        }
    }

    fn has_foreign_trees(&self, index: &[u8]) -> bool {
        let shared = shared_index_name(index, self.names)
            .and_then(|shared| held_dir::open_file(self.git, Path::new(&shared)).ok())
            .and_then(|file| held_dir::read_all(file, MAX_SIZE).ok());
        has_foreign_trees(index, shared.as_deref(), self.names)
    }
}

/// Object name length, by the config of the repository, or the one around a worktree.
fn object_names(git: &HeldDir) -> ObjectNames {
    let around = || repository_around(git).and_then(|git| held_dir::read(git, "config").ok());
    let config =
        held_dir::read(git, "config").ok().or_else(around).unwrap_or_default().to_ascii_lowercase();
    let mentions_sha256 = config.windows(6).any(|word| word == b"sha256");
    if mentions_sha256 { ObjectNames::Either } else { ObjectNames::Sha1 }
}

impl GitSweep<'_> {
    /// Moves indexes away that git must not read.
    pub(super) fn sweep_indexes(&mut self, git: &HeldDir, path: &AbsPath) {
        for BadIndex { name, reason, kept } in bad_indexes(self.baseline, git) {
            let path = path.join(&name);
            let new = kept.and_then(|kept| held_dir::write_beside(git, &name, &kept).ok());
            let Some(new) = new else {
                self.quarantine_entry(git, &name, &path, &reason);
                continue;
            };
            // At every moment there is an index: without one, git would commit the removal of all
            // files.
            let exchanged = held_dir::with_write_permission(git, || {
                rustix::fs::renameat_with(git, &new, git, &name, RenameFlags::EXCHANGE)
            });
            if exchanged.is_ok() {
                self.quarantine_entry(git, &new, &path, &reason);
            } else {
                self.quarantine_entry(git, &name, &path, &reason);
                let _ = held_dir::with_write_permission(git, || {
                    rustix::fs::renameat(git, &new, git, &name)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use ringfence_plan::{
        ObjectNames, has_foreign_trees, index_fault, shared_index_name, without_trees,
    };
    use ringfence_testkit::needs;

    /// A repository in its own directory, with commits that have fixed names.
    struct IndexRepository(PathBuf);

    impl IndexRepository {
        fn make(name: &str, setup: &str) -> Self {
            let path = std::env::temp_dir().join(format!("index-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("r")).unwrap();
            let made = Self(path);
            made.sh(setup);
            made.sh("mkdir -p a/b/c a-b d e/f; for n in a/x a/b/x a/b/c/x a-b/x a.b d/x d/y e/f/x z; do echo $n > $n; done; git add -A; git commit -qm 1; git branch old; echo 2 > a/x; git rm -q d/x; git commit -qam 2");
            made
        }

        fn sh(&self, line: &str) -> String {
            let ran = Command::new("/bin/sh")
                .args(["-c", line])
                .current_dir(self.0.join("r"))
                .env("HOME", &self.0)
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a")])
                .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a")])
                .output()
                .unwrap();
            String::from_utf8_lossy(&ran.stdout).trim().to_owned()
        }

        /// Checks an index as the sweep does. Returns the trees that it names.
        #[track_caller]
        fn check(&self, git: &str, names: ObjectNames, after: &str) -> usize {
            let git = self.0.join("r").join(git);
            let Ok(index) = fs::read(git.join("index")) else { return 0 };
            let shared =
                shared_index_name(&index, names).map(|name| fs::read(git.join(name)).unwrap());
            let is_foreign = |index: &[u8]| has_foreign_trees(index, shared.as_deref(), names);
            assert_eq!(index_fault(&index, names), None, "{git:?} after `{after}`");
            assert!(!is_foreign(&index), "{git:?} after `{after}`");
            let ids = tree_ids(&index, names);
            for id in &ids {
                let mut forged = index.clone();
                forged[*id] ^= 1;
                assert!(is_foreign(&forged), "byte {id} of {git:?} after `{after}`");
                let clean = without_trees(&forged, names).unwrap();
                assert!(!is_foreign(&clean) && tree_ids(&clean, names).is_empty());
            }
            ids.len()
        }
    }

    impl Drop for IndexRepository {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Offsets of the object names in the cache-tree.
    fn tree_ids(index: &[u8], names: ObjectNames) -> Vec<usize> {
        let hash = if names == ObjectNames::Sha1 { 20 } else { 32 };
        let Some(start) = index.windows(4).rposition(|name| name == b"TREE") else {
            return Vec::new();
        };
        let length = u32::from_be_bytes(index[start + 4..start + 8].try_into().unwrap()) as usize;
        let (mut at, mut found) = (start + 8, Vec::new());
        while at < start + 8 + length {
            at += index[at..].iter().position(|byte| *byte == 0).unwrap() + 1;
            let is_valid = index[at] != b'-';
            at += index[at..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
            if is_valid {
                found.push(at);
                at += hash;
            }
        }
        found
    }

    /// Git compares nothing when it commits: the object names that it writes are those of
    /// `git write-tree`.
    ///
    /// Promise: index-trees
    #[test]
    fn trees_in_indexes_of_git_follow_from_the_entries() {
        const STEPS: &[&str] = &[
            "echo $$ >> a/b/c/x; git add a",
            "git add -N .; git status",
            "mkdir -p n; echo n > n/new; git add -N n/new; git write-tree",
            "git commit -qam x",
            "git rm -qr --cached a/b; git write-tree",
            "git rm -qrf e",
            "git mv d moved; git status",
            "git checkout -q old; git write-tree",
            "git checkout -qf main",
            "git reset -q --hard",
            "git reset -q old; git reset -q main",
            "git read-tree old; git read-tree -m main",
            "git stash -q -u; git stash pop -q",
            "echo 3 > a/x; git commit -qam 3; git checkout -qf old; echo 4 > a/x; git commit -qam 4; git merge -q main",
            "git merge --abort; git checkout -qf main; git cherry-pick old",
            "git rebase -q old; git rebase --abort; git checkout -qf main",
            "rm -rf d; git commit -qm y d; git update-index --assume-unchanged a/x",
            "printf 'y\\n' | git add -p; git commit -qm z",
            "git rm -qrf .; git write-tree; git reset -q --hard old; git checkout -qf main",
            "chmod +x z; ln -s x a/link; git add -A; git write-tree",
            "git init -q own; git -C own commit -qm x --allow-empty; git add own; git write-tree",
        ];
        if !needs(&["git"]) {
            return;
        }
        for (name, setup) in [
            ("plain", "git init -q -b main"),
            ("sha256", "git init -q -b main --object-format=sha256"),
            (
                "split",
                "git init -q -b main; git config core.splitIndex true; git config splitIndex.maxPercentChange 60",
            ),
            (
                "v4",
                "git init -q -b main; git config index.version 4; git config index.skipHash true; git config core.untrackedCache true",
            ),
            (
                "sparse",
                "git init -q -b main; git sparse-checkout init --cone --sparse-index; git sparse-checkout set a d",
            ),
        ] {
            let names = if name == "sha256" { ObjectNames::Either } else { ObjectNames::Sha1 };
            let repository = IndexRepository::make(name, setup);
            if name == "sparse" {
                repository.sh("git sparse-checkout set a; git status");
            }
            let is_split = |index: Vec<u8>| shared_index_name(&index, names).is_some();
            let index = repository.0.join("r/.git/index");
            assert_eq!(fs::read(index).is_ok_and(is_split), name == "split");
            let mut trees = repository.check(".git", names, setup);
            let mut random = 7_usize;
            for step in 0..45 {
                random = random.wrapping_mul(0x5851_F42D).wrapping_add(0x1405_7B7F) % (1 << 31);
                let line = STEPS.get(step).unwrap_or(&STEPS[(random >> 12) % STEPS.len()]);
                repository.sh(line);
                trees += repository.check(".git", names, line);
                trees += repository.check(".git/worktrees/tree", names, line);
            }
            repository.sh("git worktree add -qf ../tree old; cd ../tree && echo 5 >> a/x && git commit -qam 5");
            trees += repository.check(".git/worktrees/tree", names, "git worktree add");
            assert!(trees > 100, "{name}: git wrote {trees} trees");
        }
    }

    /// Promise: index-trees
    #[test]
    fn index_without_trees_is_the_same_to_git() {
        if !needs(&["git"]) {
            return;
        }
        for (name, setup) in [
            ("kept", "git init -q -b main; git config index.threads 4"),
            ("kept-sha256", "git init -q -b main --object-format=sha256"),
        ] {
            let names = if name == "kept" { ObjectNames::Sha1 } else { ObjectNames::Either };
            let repository = IndexRepository::make(name, setup);
            let before = repository.sh("git ls-files -s --debug; git write-tree");
            let index = repository.0.join("r/.git/index");
            let clean = without_trees(&fs::read(&index).unwrap(), names).unwrap();
            fs::write(&index, clean).unwrap();
            assert_eq!(
                repository.sh("git fsck 2>&1; git ls-files -s --debug; git write-tree"),
                before
            );
        }
    }
}
