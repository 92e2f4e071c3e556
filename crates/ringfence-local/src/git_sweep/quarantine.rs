//! The quarantine: where planted things are kept for a person to look at.

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

/// One sweep's part of the quarantine, made when there is something to keep.
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

    /// A path beside it, for files that are needed only during the sweep.
    pub(super) fn scratch(&self) -> AbsPath {
        let name = self.path.name().unwrap_or_default().to_string_lossy().into_owned();
        self.path
            .parent()
            .unwrap_or_else(AbsPath::root)
            .join(format!(".{name}-{}", std::process::id()))
    }

    /// Moves what stands at `name` here; `path` is where a person would look for it.
    pub(super) fn take(
        &mut self,
        directory: &HeldDir,
        name: &Path,
        path: &AbsPath,
        roots: &WritableRoots,
    ) -> Result<AbsPath> {
        if self.directory.is_none() {
            self.directory = Some(make(&self.path, roots)?);
        }
        let Some(store) = &self.directory else { return Err(Errno::NOENT) };
        self.kept += 1;
        let place = label(self.kept, path);
        let moved =
            held_dir::change(directory, || rustix::fs::renameat(directory, name, store, &place));
        // Between file systems nothing can be renamed. Nor can a directory that is not ours
        // to change; its files may be.
        if moved.is_err() {
            let copied = copy(directory, name, store, Path::new(&place))
                .and_then(|()| held_dir::remove(directory, name));
            if let Err(error) = copied {
                if let Ok(store) = held_dir::hold(store, DirAccess::Look) {
                    let _ = held_dir::remove(&store, Path::new(&place));
                }
                return Err(error);
            }
        }
        defuse(store, Path::new(&place));
        Ok(self.path.join(&place))
    }
}

/// What is kept must not work from here either: a shell's prompt asks git about whatever
/// directory a person enters.
fn defuse(store: &OwnedFd, name: &Path) {
    if held_dir::kind(store, name) == Some(FileType::Directory) {
        let _ = rustix::fs::chmodat(store, name, Mode::empty(), AtFlags::empty());
    }
}

/// A name that tells where it came from, and that git knows nothing by.
fn label(number: usize, path: &AbsPath) -> OsString {
    const LONGEST: usize = 200;
    let names: Vec<&[u8]> = path.as_path().iter().map(|name| name.as_bytes()).collect();
    let last = names[names.len().saturating_sub(3)..].join(&b'+');
    let last = &last[last.len().saturating_sub(LONGEST)..];
    let last = last.iter().map(|byte| if *byte == b'/' { b'+' } else { *byte });
    OsString::from_vec(format!("{number}-").into_bytes().into_iter().chain(last).collect())
}

/// Makes the directory at `path`. Links on the way are the person's own, but for those
/// below a tree that commands write to.
pub(super) fn make(path: &AbsPath, roots: &WritableRoots) -> Result<OwnedFd> {
    const STEP: OFlags =
        OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let there = path
        .ancestors()
        .find(|above| above.as_path().symlink_metadata().is_ok())
        .unwrap_or_else(AbsPath::root);
    let start = if roots.around(path).is_some() {
        AbsPath::root()
    } else {
        fs::canonicalize(there.as_path()).ok().and_then(AbsPath::new).ok_or(Errno::NOENT)?
    };
    let rest =
        if start == AbsPath::root() { path.relative_to(&start) } else { path.relative_to(&there) };
    let mut here = rustix::fs::openat2(
        rustix::fs::CWD,
        start.as_path(),
        STEP,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    for name in rest.unwrap_or(Path::new("")) {
        match rustix::fs::mkdirat(&here, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            // What is there already need not be ours to make.
            Err(error) if held_dir::kind(&here, name).is_none() => return Err(error),
            Err(_) => {}
        }
        here = rustix::fs::openat(&here, name, STEP, Mode::empty())?;
    }
    Ok(here)
}

/// How much is copied before it is no longer worth keeping.
struct CopyBudget {
    entries: usize,
    bytes: u64,
}

/// Copies what stands at `name`, without what is neither file, link nor directory.
fn copy(directory: &HeldDir, name: &Path, store: &OwnedFd, place: &Path) -> Result<()> {
    let mut budget = CopyBudget { entries: 4096, bytes: 64 << 20 };
    match held_dir::kind(directory, name) {
        Some(FileType::Directory) => {
            let top = held_dir::enter(directory, name, DirAccess::Look, CrossMounts::Stay)?;
            held_dir::walk(top, CrossMounts::Stay, |here, way| {
                let at =
                    if way.as_os_str().is_empty() { place.to_owned() } else { place.join(way) };
                rustix::fs::mkdirat(store, &at, Mode::RWXU)?;
                for (name, kind) in held_dir::entries(here)? {
                    if kind != FileType::Directory {
                        entry(here, Path::new(&name), store, &at.join(&name), &mut budget)?;
                    }
                }
                Ok(WalkControl::Below)
            })
        }
        Some(_) => entry(directory, name, store, place, &mut budget),
        None => Err(Errno::NOENT),
    }
}

fn entry(
    directory: &HeldDir,
    name: &Path,
    store: &OwnedFd,
    place: &Path,
    budget: &mut CopyBudget,
) -> Result<()> {
    budget.entries = budget.entries.checked_sub(1).ok_or(Errno::FBIG)?;
    match held_dir::kind(directory, name) {
        Some(FileType::RegularFile) => file(directory, name, store, place, budget),
        Some(FileType::Symlink) => {
            let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
            rustix::fs::symlinkat(target, store, place)
        }
        _ => Ok(()),
    }
}

fn file(
    directory: &HeldDir,
    name: &Path,
    store: &OwnedFd,
    place: &Path,
    budget: &mut CopyBudget,
) -> Result<()> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let from = held_dir::open_file(directory, name).map_err(errno)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let into = rustix::fs::openat2(store.as_fd(), place, flags, Mode::RUSR | Mode::WUSR, resolve)?;
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
    fn a_link_counts_only_where_no_command_could_have_made_it() {
        let base =
            std::env::temp_dir().join(format!("quarantine-of-a-test-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(base.join("elsewhere")).unwrap();
        fs::create_dir_all(base.join("home")).unwrap();
        symlink("../elsewhere", base.join("home/cache")).unwrap();
        let at = |name: &str| AbsPath::new(fs::canonicalize(&base).unwrap()).unwrap().join(name);
        let is_made = |roots: &WritableRoots| super::make(&at("home/cache/q/1"), roots).is_ok();
        assert!(!is_made(&WritableRoots::at(at("home"))));
        assert!(!base.join("elsewhere/q").exists());
        assert!(is_made(&WritableRoots::at(at("other"))));
        assert!(base.join("elsewhere/q/1").is_dir());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_label_tells_where_it_came_from() {
        let label =
            |path: &str| super::label(7, &AbsPath::new(path).unwrap()).into_string().unwrap();
        assert_eq!(label("/p/own/.git/hooks/x"), "7-.git+hooks+x");
        assert_eq!(label("/x"), "7-++x");
        assert!(label(&format!("/{}/{}", "a".repeat(250), "b".repeat(250))).len() < 255);
    }
}
