//! The quarantine, which keeps planted files for the user to inspect.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::SystemTime;

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, WalkControl};
use super::roots::WritableRoots;

/// Quarantine directory of one sweep, created when there is a file to keep.
pub(super) struct Quarantine {
    path: AbsPath,
    directory: Option<OwnedFd>,
    kept: usize,
}

impl Quarantine {
    pub(super) fn new(quarantine: &AbsPath) -> Self {
        let moment = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        Self { path: quarantine.join(moment.to_string()), directory: None, kept: 0 }
    }

    /// A path next to it, for files that are needed only during the sweep.
    pub(super) fn scratch(&self) -> AbsPath {
        let name = self.path.name().unwrap_or_default().to_string_lossy().into_owned();
        self.path
            .parent()
            .unwrap_or_else(AbsPath::root)
            .join(format!(".{name}-{}", std::process::id()))
    }

    /// Moves the entry at `name` into the quarantine; `path` is its path for the user.
    pub(super) fn take(
        &mut self,
        directory: &HeldDir,
        name: &Path,
        path: &AbsPath,
        roots: &WritableRoots,
    ) -> Result<AbsPath> {
        if self.directory.is_none() {
            self.directory = Some(create_dir(&self.path, roots)?);
        }
        let Some(store) = &self.directory else { return Err(Errno::NOENT) };
        self.kept += 1;
        let dest = label(self.kept, path);
        let moved = held_dir::with_write_permission(directory, || {
            rustix::fs::renameat(directory, name, store, &dest)
        });
        // A rename fails between file systems, and for a directory that we may not write; its files
        // may still be ours.
        if moved.is_err() {
            let copied = copy(directory, name, store, Path::new(&dest))
                .and_then(|()| held_dir::remove(directory, name));
            if let Err(error) = copied {
                if let Ok(store) = held_dir::open_held(store, DirAccess::Look) {
                    let _ = held_dir::remove(&store, Path::new(&dest));
                }
                return Err(error);
            }
        }
        make_inaccessible(store, Path::new(&dest));
        Ok(self.path.join(&dest))
    }
}

/// Makes a kept directory inaccessible, so that it has no effect here either: a shell prompt runs
/// git in every directory that the user enters.
fn make_inaccessible(store: &OwnedFd, name: &Path) {
    if held_dir::kind(store, name) == Some(FileType::Directory) {
        let _ = rustix::fs::chmodat(store, name, Mode::empty(), AtFlags::empty());
    }
}

/// A name that shows the origin and has no meaning to git.
fn label(number: usize, path: &AbsPath) -> OsString {
    const MAX_LENGTH: usize = 200;
    let names: Vec<&[u8]> = path.as_path().iter().map(|name| name.as_bytes()).collect();
    let last = names[names.len().saturating_sub(3)..].join(&b'+');
    let last = &last[last.len().saturating_sub(MAX_LENGTH)..];
    let last = last.iter().map(|byte| if *byte == b'/' { b'+' } else { *byte });
    OsString::from_vec(format!("{number}-").into_bytes().into_iter().chain(last).collect())
}

/// Creates the directory at `path`. Links on the way are the user's own, except below a tree that
/// commands write to.
pub(super) fn create_dir(path: &AbsPath, roots: &WritableRoots) -> Result<OwnedFd> {
    const STEP: OFlags =
        OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let existing = path
        .ancestors()
        .find(|above| above.as_path().symlink_metadata().is_ok())
        .unwrap_or_else(AbsPath::root);
    let start = if roots.root_of(path).is_some() {
        AbsPath::root()
    } else {
        fs::canonicalize(existing.as_path()).ok().and_then(AbsPath::new).ok_or(Errno::NOENT)?
    };
    let rest = if start == AbsPath::root() {
        path.relative_to(&start)
    } else {
        path.relative_to(&existing)
    };
    let mut current = rustix::fs::openat2(
        rustix::fs::CWD,
        start.as_path(),
        STEP,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    for name in rest.unwrap_or(Path::new("")) {
        match rustix::fs::mkdirat(&current, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            // An existing directory need not be ours to create.
            Err(error) if held_dir::kind(&current, name).is_none() => return Err(error),
            Err(_) => {}
        }
        current = rustix::fs::openat(&current, name, STEP, Mode::empty())?;
    }
    Ok(current)
}

/// Limits of a copy, beyond which an entry is not kept.
struct CopyBudget {
    entries: usize,
    bytes: u64,
}

/// Copies an entry, without devices, pipes and sockets.
fn copy(directory: &HeldDir, name: &Path, store: &OwnedFd, dest: &Path) -> Result<()> {
    let mut budget = CopyBudget { entries: 4096, bytes: 64 << 20 };
    match held_dir::kind(directory, name) {
        Some(FileType::Directory) => {
            let top = held_dir::enter(directory, name, DirAccess::Look, CrossMounts::Stay)?;
            held_dir::walk(top, CrossMounts::Stay, |current, relative| {
                let at = if relative.as_os_str().is_empty() {
                    dest.to_owned()
                } else {
                    dest.join(relative)
                };
                rustix::fs::mkdirat(store, &at, Mode::RWXU)?;
                for (name, kind) in held_dir::entries(current)? {
                    if kind != FileType::Directory {
                        copy_entry(current, Path::new(&name), store, &at.join(&name), &mut budget)?;
                    }
                }
                Ok(WalkControl::Below)
            })
        }
        Some(_) => copy_entry(directory, name, store, dest, &mut budget),
        None => Err(Errno::NOENT),
    }
}

fn copy_entry(
    directory: &HeldDir,
    name: &Path,
    store: &OwnedFd,
    dest: &Path,
    budget: &mut CopyBudget,
) -> Result<()> {
    budget.entries = budget.entries.checked_sub(1).ok_or(Errno::FBIG)?;
    match held_dir::kind(directory, name) {
        Some(FileType::RegularFile) => copy_file(directory, name, store, dest, budget),
        Some(FileType::Symlink) => {
            let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
            rustix::fs::symlinkat(target, store, dest)
        }
        _ => Ok(()),
    }
}

fn copy_file(
    directory: &HeldDir,
    name: &Path,
    store: &OwnedFd,
    dest: &Path,
    budget: &mut CopyBudget,
) -> Result<()> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let from = held_dir::open_file(directory, name).map_err(errno)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let into = rustix::fs::openat2(store.as_fd(), dest, flags, Mode::RUSR | Mode::WUSR, resolve)?;
    let copied = std::io::copy(&mut from.take(budget.bytes + 1), &mut fs::File::from(into))
        .map_err(errno)?;
    budget.bytes = budget.bytes.checked_sub(copied).ok_or(Errno::FBIG)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use ringfence_policy::AbsPath;

    use super::super::roots::WritableRoots;

    #[test]
    fn links_below_writable_trees_are_not_followed() {
        let base =
            std::env::temp_dir().join(format!("quarantine-of-a-test-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(base.join("elsewhere")).unwrap();
        fs::create_dir_all(base.join("home")).unwrap();
        symlink("../elsewhere", base.join("home/cache")).unwrap();
        let at = |name: &str| AbsPath::new(fs::canonicalize(&base).unwrap()).unwrap().join(name);
        let is_made =
            |roots: &WritableRoots| super::create_dir(&at("home/cache/q/1"), roots).is_ok();
        assert!(!is_made(&WritableRoots::at(at("home"))));
        assert!(!base.join("elsewhere/q").exists());
        assert!(is_made(&WritableRoots::at(at("other"))));
        assert!(base.join("elsewhere/q/1").is_dir());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn label_shows_the_origin() {
        let label =
            |path: &str| super::label(7, &AbsPath::new(path).unwrap()).into_string().unwrap();
        assert_eq!(label("/p/own/.git/hooks/x"), "7-.git+hooks+x");
        assert_eq!(label("/x"), "7-++x");
        assert!(label(&format!("/{}/{}", "a".repeat(250), "b".repeat(250))).len() < 255);
    }
}
