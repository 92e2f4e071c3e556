//! The parts of the host that a sandbox shows, for providers that mount them.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use ringfence_policy::{AbsPath, Access, Effect, Grants, Verdict};

/// The content of a path in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TreeMount {
    /// A file that no command can read.
    HiddenFile,
    /// A directory that no command can read.
    HiddenDir,
    /// The host's, to read.
    ReadOnly,
    /// The host's, to read and write.
    ReadWrite,
    /// Another directory of the host, to read and write.
    Private {
        /// The directory.
        store: AbsPath,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        target: AbsPath,
    },
}

/// The mounts that show what `grants` allow, outer before inner; everything else is absent.
///
/// They hold for the host as it is now, so they are made anew for each command: files that match a
/// denied name are hidden, also the target of a link with such a name, and directories above hidden or read-only paths are mounts, so that no
/// command can rename them. Names that do not exist yet are not covered (the gap
/// `filesystem.names`). Private directories show nothing of the host.
///
/// # Errors
///
/// The store of a private directory cannot be created.
pub fn find_mounts(grants: &Grants) -> io::Result<BTreeMap<AbsPath, TreeMount>> {
    let mut table = MountTable { grants, mounts: BTreeMap::new() };
    let links = table.add_trees();
    table.add_private()?;
    for rule in &grants.rules {
        if !rule.opens() {
            table.cover(&rule.root);
        } else if rule.patterns_apply()
            && let Some(tree) = real_path(&rule.root).filter(|tree| tree.as_path().is_dir())
        {
            table.cover_names(&tree);
        }
    }
    grants.suspects.iter().for_each(|suspect| table.cover(suspect));
    table.pin_directories();
    for (path, target) in links {
        if table.enclosing(&path).is_none() {
            table.mounts.insert(path, TreeMount::Link { target });
        }
    }
    Ok(table.mounts)
}

struct MountTable<'a> {
    grants: &'a Grants,
    mounts: BTreeMap<AbsPath, TreeMount>,
}

impl MountTable<'_> {
    /// Adds the granted trees at their real paths. Returns links to them.
    fn add_trees(&mut self) -> Vec<(AbsPath, AbsPath)> {
        let mut links = Vec::new();
        for rule in &self.grants.rules {
            let is_tree = matches!(rule.effect, Effect::Read | Effect::Write);
            let Some(real) = real_path(&rule.root).filter(|_| is_tree) else { continue };
            let content = self.content(&real);
            if content < TreeMount::ReadOnly {
                continue;
            }
            if real != rule.root {
                links.push((rule.root.clone(), real.clone()));
            }
            self.mounts.insert(real, content);
        }
        links
    }

    /// Adds private directories, unless the mount would create a directory on the host.
    fn add_private(&mut self) -> io::Result<()> {
        for rule in &self.grants.rules {
            let Effect::Private { store, .. } = &rule.effect else { continue };
            let is_free = self.enclosing(&rule.root).is_none() || rule.root.as_path().is_dir();
            if is_free && self.grants.verdict(&rule.root, Access::Write) == Verdict::Allowed {
                fs::create_dir_all(store.as_path())?;
                let private = TreeMount::Private { store: store.clone() };
                self.mounts.insert(rule.root.clone(), private);
            }
        }
        Ok(())
    }

    /// The content that the grants allow at `path`.
    fn content(&self, path: &AbsPath) -> TreeMount {
        let is_allowed = |access| self.grants.verdict(path, access) == Verdict::Allowed;
        let is_suspect = self.grants.suspects.iter().any(|suspect| path.is_within(suspect));
        match (is_allowed(Access::Read) && !is_suspect, is_allowed(Access::Write)) {
            (true, true) => TreeMount::ReadWrite,
            (true, false) => TreeMount::ReadOnly,
            (false, _) if path.as_path().is_dir() => TreeMount::HiddenDir,
            (false, _) => TreeMount::HiddenFile,
        }
    }

    /// The mount that shows `path`.
    fn enclosing(&self, path: &AbsPath) -> Option<&TreeMount> {
        path.ancestors().find_map(|above| self.mounts.get(&above))
    }

    /// Takes away what a tree of the host shows at `path` beyond the grants.
    fn cover(&mut self, path: &AbsPath) {
        let Some(real) = real_path(path) else { return };
        let content = self.content(path).min(self.content(&real));
        let is_shown = |mount| matches!(mount, &TreeMount::ReadOnly | &TreeMount::ReadWrite);
        if self.enclosing(&real).is_some_and(|mount| is_shown(mount) && content < *mount) {
            if content == TreeMount::HiddenDir {
                self.drop_covers_within(&real);
            }
            self.mounts.insert(real, content);
        }
    }

    /// Removes the mounts that would show a part of `hidden`, except granted trees. A link with a
    /// denied name may hide a directory after the files in it are covered.
    fn drop_covers_within(&mut self, hidden: &AbsPath) {
        let is_tree = |path: &AbsPath| {
            let mut trees = self.grants.rules.iter().filter(|rule| rule.opens());
            trees.any(|rule| real_path(&rule.root).as_ref() == Some(path))
        };
        self.mounts.retain(|path, mount| {
            *mount != TreeMount::ReadOnly || !path.is_within(hidden) || is_tree(path)
        });
    }

    /// Covers everything below `directory` whose name is denied or protected. Hides a directory that
    /// cannot be listed.
    fn cover_names(&mut self, directory: &AbsPath) {
        let is_hidden = |mount| matches!(mount, &TreeMount::HiddenDir | &TreeMount::HiddenFile);
        if self.enclosing(directory).is_none_or(is_hidden) {
            return;
        }
        let entries = match fs::read_dir(directory.as_path()).and_then(Iterator::collect) {
            Ok::<Vec<_>, _>(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => {
                self.mounts.insert(directory.clone(), TreeMount::HiddenDir);
                return;
            }
        };
        for entry in entries {
            let (path, kind) = (directory.join(entry.file_name()), entry.file_type());
            self.cover(&path);
            if kind.is_ok_and(|kind| kind.is_dir()) {
                self.cover_names(&path);
            }
        }
    }

    /// Makes each writable directory above a mount a mount of its own: the kernel refuses to rename
    /// it.
    fn pin_directories(&mut self) {
        for path in self.mounts.keys().cloned().collect::<Vec<_>>() {
            for above in path.ancestors().skip(1) {
                if self.enclosing(&above) == Some(&TreeMount::ReadWrite) {
                    self.mounts.entry(above).or_insert(TreeMount::ReadWrite);
                }
            }
        }
    }
}

/// The path without symbolic links; `None` if nothing is there.
fn real_path(path: &AbsPath) -> Option<AbsPath> {
    AbsPath::new(fs::canonicalize(path.as_path()).ok()?)
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{Facts, Flags, resolve};

    use super::*;

    /// A directory that is removed at the end.
    struct ScratchDir(AbsPath);

    impl ScratchDir {
        fn new(name: &str) -> Self {
            let name = format!("ringfence-{name}-{}", std::process::id());
            let path = AbsPath::new(std::env::temp_dir().canonicalize().unwrap().join(name));
            Self(path.unwrap())
        }
    }

    impl Drop for ScratchDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.as_path());
        }
    }

    #[test]
    fn hidden_and_protected_names_are_covered_and_their_directories_pinned() {
        let base = ScratchDir::new("mounts");
        let at = |name: &str| base.0.join(name);
        for name in ["app/.env", "app/a/b/x.pem", "app/a/plain", "app/.git/config", "out/shut/x"] {
            fs::create_dir_all(at(name).parent().unwrap().as_path()).unwrap();
            fs::write(at(name).as_path(), "x").unwrap();
        }
        let mounts = mounts_below(&base.0, |flags| {
            flags.read = vec![at("out").to_string()];
            flags.deny = vec![at("out/shut").to_string()];
        });
        let expect = [
            ("app", TreeMount::ReadWrite),
            ("app/.env", TreeMount::HiddenFile),
            ("app/.git", TreeMount::ReadWrite),
            ("app/.git/config", TreeMount::ReadOnly),
            ("app/a", TreeMount::ReadWrite),
            ("app/a/b", TreeMount::ReadWrite),
            ("app/a/b/x.pem", TreeMount::HiddenFile),
            ("out", TreeMount::ReadOnly),
            ("out/shut", TreeMount::HiddenDir),
        ];
        assert_eq!(mounts, expect.map(|(path, mount)| (path.to_owned(), mount)));
    }

    #[test]
    fn hidden_target_of_a_link_shows_no_protected_file() {
        let base = ScratchDir::new("links");
        let at = |name: &str| base.0.join(name);
        let mut expect = vec![("app".to_owned(), TreeMount::ReadWrite)];
        for number in 10..30 {
            let vault = format!("app/vault{number}");
            fs::create_dir_all(at(&vault).join(".git").as_path()).unwrap();
            fs::write(at(&vault).join(".git/config").as_path(), "x").unwrap();
            let link = at(&format!("app/.env.{number}"));
            std::os::unix::fs::symlink(at(&vault).as_path(), link.as_path()).unwrap();
            expect.push((vault, TreeMount::HiddenDir));
        }
        assert_eq!(mounts_below(&base.0, |_| ()), expect);
    }

    /// The mounts below `base` of a policy for its directory `app`, except private directories.
    fn mounts_below(base: &AbsPath, change: impl FnOnce(&mut Flags)) -> Vec<(String, TreeMount)> {
        let facts = Facts::minimal(base.join("app"), base.join("home"), base.join("store"));
        let mut flags = Flags::none(base.join("app"));
        change(&mut flags);
        let mounts = find_mounts(&resolve(&[], &flags, &facts).unwrap()).unwrap();
        mounts
            .into_iter()
            .filter(|(path, mount)| {
                path.is_within(base) && !matches!(mount, TreeMount::Private { .. })
            })
            .map(|(path, mount)| (path.relative_to(base).unwrap().display().to_string(), mount))
            .collect()
    }
}
