//! Autostashes: commits whose changes git puts into the working tree by itself, when a rebase ends
//! or, for a `MERGE_AUTOSTASH`, at the next commit.
//!
//! An autostash that git made stays, so that the user can finish the operation. One that would
//! change a protected name goes to quarantine, and so does one that cannot be checked. Git itself
//! compares the commits, in a git directory of our own that has no settings, hooks or refs, with
//! the objects of the repository.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ringfence_policy::AbsPath;
use ringfence_policy::builtin::GuardedNames;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::{GitSweep, WritableRoots, quarantine, repository_around};

/// Time for git to compare two trees.
const GIT_LIMIT: Duration = Duration::from_secs(10);

/// Largest list of changed files that is read.
const MAX_LIST_BYTES: u64 = 16 << 20;

impl GitSweep<'_> {
    /// True if an autostash is one that git made, and leaves protected names alone.
    pub(super) fn is_plain_autostash(&self, git: &HeldDir, path: &AbsPath, text: &[u8]) -> bool {
        let Some(id) = object_id(text) else { return false };
        let around = if kind(git, "commondir").is_some() { repository_around(git) } else { None };
        let (common, path) = match around {
            Some(around) => match (
                held_dir::open_held(around, DirAccess::Look),
                path.parent().and_then(|above| above.parent()),
            ) {
                (Ok(common), Some(path)) => (common, path),
                _ => return false,
            },
            None => match held_dir::open_held(git, DirAccess::Look) {
                Ok(common) => (common, path.clone()),
                Err(_) => return false,
            },
        };
        if kind(&common, "objects") != Some(FileType::Directory) || has_substitutes(&common) {
            return false;
        }
        let Some(program) = program(self.roots) else { return false };
        let changed_paths =
            BareRepo::make(self.store.scratch(), self.roots, id.len()).and_then(|bare| {
                let objects = path.join("objects");
                changed(&StashCompare { program: &program, bare: &bare, objects: &objects, id })
            });
        let guarded = GuardedNames::default();
        changed_paths.is_ok_and(|changed| changed.iter().all(|path| !guarded.contains(path)))
    }
}

/// The object id in a file.
fn object_id(text: &[u8]) -> Option<&str> {
    let id = std::str::from_utf8(text).ok()?.trim_end_matches('\n');
    let is_hex = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (matches!(id.len(), 40 | 64) && is_hex).then_some(id)
}

/// True if git may read another object in place of one, or if that cannot be checked.
fn has_substitutes(common: &HeldDir) -> bool {
    const MAX_PACKED_REFS: u64 = 64 << 20;
    let Ok(refs) = held_dir::enter(common, "refs", DirAccess::Look, CrossMounts::Cross) else {
        return true;
    };
    let is_replaced = kind(&refs, "replace").is_some_and(|_| {
        let replace = held_dir::enter(&refs, "replace", DirAccess::Look, CrossMounts::Cross);
        replace
            .and_then(|replace| held_dir::entries(&replace))
            .map_or(true, |entries| !entries.is_empty())
    });
    let packed = kind(common, "packed-refs").is_some_and(|_| {
        let text = held_dir::open_file(common, "packed-refs")
            .and_then(|file| held_dir::read_all(file, MAX_PACKED_REFS));
        let name = b" refs/replace/";
        text.map_or(true, |text| text.windows(name.len()).any(|part| part == name))
    });
    let info = held_dir::enter(common, "info", DirAccess::Look, CrossMounts::Cross);
    let has_grafts = info.is_ok_and(|info| kind(&info, "grafts").is_some());
    is_replaced || packed || has_grafts || kind(common, "reftable").is_some()
}

/// The first git on `PATH`, if no command could have written it.
fn program(roots: &WritableRoots) -> Option<PathBuf> {
    let is_outside =
        |path: &Path| AbsPath::new(path).is_some_and(|path| roots.root_of(&path).is_none());
    let directories = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&directories).filter(|directory| directory.is_absolute());
    let programs = found.filter_map(|directory| fs::canonicalize(directory.join("git")).ok());
    programs.into_iter().find(|program| program.is_file()).filter(|program| is_outside(program))
}

/// A temporary git directory without contents, removed on drop.
struct BareRepo {
    path: AbsPath,
    directory: OwnedFd,
}

impl BareRepo {
    fn make(path: AbsPath, roots: &WritableRoots, id_length: usize) -> io::Result<Self> {
        let directory = quarantine::create_dir(&path, roots)?;
        let bare = Self { path, directory };
        for name in ["objects", "refs"] {
            rustix::fs::mkdirat(&bare.directory, name, Mode::RWXU)?;
        }
        let format = if id_length == 64 {
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
        } else {
            ""
        };
        for (name, text) in [("HEAD", "ref: refs/heads/main\n"), ("config", format)] {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fs::File::from(rustix::fs::openat(
                &bare.directory,
                name,
                flags,
                Mode::RUSR | Mode::WUSR,
            )?)
            .write_all(text.as_bytes())?;
        }
        Ok(bare)
    }
}

impl Drop for BareRepo {
    fn drop(&mut self) {
        for (name, flags) in [
            ("HEAD", AtFlags::empty()),
            ("config", AtFlags::empty()),
            ("objects", AtFlags::REMOVEDIR),
            ("refs", AtFlags::REMOVEDIR),
        ] {
            let _ = rustix::fs::unlinkat(&self.directory, name, flags);
        }
        let _ = fs::remove_dir(self.path.as_path());
    }
}

/// A commit to compare with its base.
struct StashCompare<'a> {
    program: &'a Path,
    bare: &'a BareRepo,
    objects: &'a AbsPath,
    id: &'a str,
}

/// Files in which a stash differs from its base commit.
fn changed(question: &StashCompare<'_>) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    // A commit graph and a multi-pack index can be forged. Git trusts them unless the user's
    // settings forbid it, so both ways are checked.
    for trusts_caches in ["true", "false"] {
        let parents = question
            .ask(trusts_caches, &["rev-list", "--parents", "--max-count=1", question.id])?;
        let parents = String::from_utf8(parents).map_err(|_| io::ErrorKind::InvalidData)?;
        // The files of a third parent would be put into the working tree as well.
        let [id, base, _] = parents.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if id != question.id {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let names = question.ask(
            trusts_caches,
            &["diff-tree", "-r", "-z", "--no-renames", "--name-only", base, id],
        )?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        found.extend(names.map(|name| PathBuf::from(OsStr::from_bytes(name))));
    }
    Ok(found)
}

impl StashCompare<'_> {
    /// Runs git without the caller's environment; fails unless git succeeds in time.
    fn ask(&self, trusts_caches: &str, args: &[&str]) -> io::Result<Vec<u8>> {
        let mut child = Command::new(self.program)
            .args([
                "-c",
                &format!("core.commitGraph={trusts_caches}"),
                "-c",
                &format!("core.multiPackIndex={trusts_caches}"),
            ])
            .args(args)
            .env_clear()
            .env("GIT_DIR", self.bare.path.as_path())
            .env("GIT_OBJECT_DIRECTORY", self.objects.as_path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .current_dir(self.bare.path.as_path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            let read = output.take(MAX_LIST_BYTES + 1).read_to_end(&mut text).map(|_| text);
            let _ = sender.send(read);
        });
        let text = receiver
            .recv_timeout(GIT_LIMIT)
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let is_whole = text.as_ref().is_ok_and(|text| text.len() as u64 <= MAX_LIST_BYTES);
        if !is_whole {
            let _ = child.kill();
        }
        let status = child.wait()?;
        let _ = reader.join();
        if is_whole && status.success() { text } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::object_id;

    #[test]
    fn only_a_full_object_id_is_accepted() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(object_id(format!("{id}\n").as_bytes()), Some(id));
        for text in ["", "--index", "stash@{0}", "1234abcd", &id.to_uppercase()] {
            assert_eq!(object_id(text.as_bytes()), None, "{text}");
        }
    }
}
