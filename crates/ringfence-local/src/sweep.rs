//! The last look: repositories the command made are its own to use, but what in them would
//! run a program on the host is moved away before anybody there runs git.
//!
//! Works on directories held open and never follows a link: what it looks at was made by
//! somebody who is not trusted.

mod config;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ringfence_api::Quarantined;
use ringfence_enforce::apply::{Made, Planted};
use ringfence_policy::{AbsPath, Effect, Grants, Rule};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Looks through the directories in which names of git's were made.
pub(crate) fn sweep(made: &[Made], grants: &Grants, quarantine: &AbsPath) -> Vec<Quarantined> {
    let mut sweep = Sweep { quarantine: quarantine.clone(), moved: Vec::new() };
    for Made { directory, path, what } in made {
        let path = path_of(directory).unwrap_or_else(|| path.clone());
        let is_inside_git = path.as_path().components().any(|part| part.as_os_str() == ".git");
        match what {
            Planted::DotGit => sweep.dot_git(directory, &path),
            Planted::Head if !is_inside_git && looks_like_git(directory) => {
                let is_root = |rule: &Rule| {
                    rule.effect == Effect::Write
                        && identity(rule.root.as_path()) == rustix::fs::fstat(directory).ok().map(|s| (s.st_dev, s.st_ino))
                };
                sweep.bare(directory, &path, if grants.rules.iter().any(is_root) { Bare::Planted } else { Bare::Own });
            }
            Planted::Head => {}
        }
    }
    sweep.moved
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    rustix::fs::stat(path).ok().map(|status| (status.st_dev, status.st_ino))
}

/// Whether a bare repository may stay where it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    /// Its files lie about in the project itself: git would obey them there.
    Planted,
    /// A directory of its own.
    Own,
}

struct Sweep {
    quarantine: AbsPath,
    moved: Vec<Quarantined>,
}

const ONLY_LOOK: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl Sweep {
    /// `.git` in `directory`, whatever it is.
    fn dot_git(&mut self, directory: &OwnedFd, path: &AbsPath) {
        let at = path.join(".git");
        match kind(directory, ".git") {
            Some(FileType::Directory) => {
                if let Ok(git) = open_directory(directory, ".git") {
                    self.repository(&git, &at);
                }
            }
            Some(FileType::RegularFile) if !is_worktree_pointer(directory, path) => {
                self.move_away(directory, ".git", &at, "points git at a directory that is no worktree's");
            }
            Some(FileType::Symlink) => self.move_away(directory, ".git", &at, "leads git somewhere else"),
            _ => {}
        }
    }

    fn bare(&mut self, directory: &OwnedFd, path: &AbsPath, bare: Bare) {
        if bare == Bare::Planted {
            for name in ["HEAD", "config", "hooks"] {
                if kind(directory, name).is_some() {
                    self.move_away(directory, name, &path.join(name), "makes git take the project for a bare repository");
                }
            }
        } else {
            self.repository(directory, path);
        }
    }

    /// Hooks and settings of a git directory, and of the submodules in it.
    fn repository(&mut self, git: &OwnedFd, path: &AbsPath) {
        self.hooks(git, path);
        for name in ["config", "config.worktree"] {
            self.config(git, name, &path.join(name));
        }
        if kind(git, "commondir").is_some() {
            self.move_away(git, "commondir", &path.join("commondir"), "makes git obey the settings of another directory");
        }
        if let Ok(modules) = open_directory(git, "modules") {
            self.modules(&modules, &path.join("modules"), 0);
        }
    }

    fn modules(&mut self, directory: &OwnedFd, path: &AbsPath, depth: usize) {
        const DEEP: usize = 16;
        for name in names(directory) {
            let Ok(below) = open_directory(directory, &name) else { continue };
            if looks_like_git(&below) {
                self.repository(&below, &path.join(&name));
            } else if depth < DEEP {
                self.modules(&below, &path.join(&name), depth + 1);
            }
        }
    }

    fn hooks(&mut self, git: &OwnedFd, path: &AbsPath) {
        let at = path.join("hooks");
        if kind(git, "hooks").is_some_and(|kind| kind != FileType::Directory) {
            self.move_away(git, "hooks", &at, "stands for hooks elsewhere");
        }
        let Ok(hooks) = open_directory(git, "hooks") else { return };
        for name in names(&hooks) {
            let is_sample = name.as_os_str().as_bytes().ends_with(b".sample");
            if !is_sample {
                self.move_away(&hooks, &name, &at.join(&name), "git would run it on the host");
            }
        }
    }

    /// Rewrites a config file without what makes git run programs.
    fn config(&mut self, git: &OwnedFd, name: &str, path: &AbsPath) {
        match kind(git, name) {
            None => return,
            Some(FileType::RegularFile) => {}
            Some(_) => return self.move_away(git, name, path, "is not a plain file"),
        }
        let Ok(text) = read(git, Path::new(name)) else { return self.move_away(git, name, path, "cannot be read") };
        let filtered = config::filter(&text);
        if filtered.dropped.is_empty() {
            return;
        }
        self.move_away(git, name, path, &format!("makes git run programs or read other settings: {}", filtered.dropped.join(", ")));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::openat(git, name, flags, Mode::from_raw_mode(0o644)) {
            let _ = fs::File::from(file).write_all(&filtered.kept);
        }
    }

    /// Moves an entry into quarantine. What cannot be kept is removed all the same.
    fn move_away(&mut self, directory: &OwnedFd, name: impl AsRef<Path>, path: &AbsPath, reason: &str) {
        let name = name.as_ref();
        let target = self.quarantine.join(path.as_path().strip_prefix("/").unwrap_or(path.as_path()));
        let target = (0..1000).map(|n| {
            if n == 0 { target.clone() } else { target.parent().unwrap_or_else(AbsPath::root).join(format!("{}.{n}", name.display())) }
        });
        let Some(target) = target.into_iter().find(|target| target.as_path().symlink_metadata().is_err()) else { return };
        if let Some(above) = target.parent() {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(above.as_path());
        }
        let moved = match rustix::fs::renameat(directory, name, rustix::fs::CWD, target.as_path()) {
            Err(Errno::XDEV) => copy_away(directory, name, &target),
            other => other,
        };
        let moved_to = match moved {
            Ok(()) => target.to_string_lossy().into_owned(),
            Err(_) => {
                let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
                "nowhere: it could not be kept and was removed".into()
            }
        };
        self.moved.push(Quarantined { path: path.to_string_lossy().into_owned(), moved_to, reason: reason.into() });
    }
}

/// Where a directory is now. The sandbox's mounts may be gone already, and with them the
/// upper part of what the kernel says: believed only if it leads back.
fn path_of(directory: &OwnedFd) -> Option<AbsPath> {
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()?;
    let own = rustix::fs::fstat(directory).ok()?;
    AbsPath::new(path).filter(|path| identity(path.as_path()) == Some((own.st_dev, own.st_ino)))
}

fn kind(directory: &OwnedFd, name: impl AsRef<Path>) -> Option<FileType> {
    let status = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(status.st_mode))
}

fn open_directory(directory: &OwnedFd, name: impl AsRef<Path>) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name.as_ref(), ONLY_LOOK | OFlags::DIRECTORY, Mode::empty())
}

fn looks_like_git(directory: &OwnedFd) -> bool {
    kind(directory, "HEAD").is_some() && kind(directory, "objects").is_some() && kind(directory, "refs").is_some()
}

fn names(directory: &OwnedFd) -> Vec<PathBuf> {
    let Ok(copy) = open_directory(directory, ".") else { return Vec::new() };
    let Ok(entries) = rustix::fs::Dir::read_from(&copy) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| PathBuf::from(std::ffi::OsStr::from_bytes(entry.file_name().to_bytes())))
        .filter(|name| name.as_os_str() != "." && name.as_os_str() != "..")
        .collect()
}

/// At most a megabyte: a longer config is not one.
fn read(directory: &OwnedFd, name: &Path) -> std::io::Result<Vec<u8>> {
    const LONGEST: u64 = 1 << 20;
    let file = rustix::fs::openat(directory, name, ONLY_LOOK, Mode::empty())?;
    let mut text = Vec::new();
    fs::File::from(file).take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

fn copy_away(directory: &OwnedFd, name: &Path, target: &AbsPath) -> rustix::io::Result<()> {
    let copied = || -> std::io::Result<()> {
        let text = read(directory, name)?;
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(target.as_path())?.write_all(&text)
    };
    copied().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::fs::unlinkat(directory, name, AtFlags::empty())
}

/// Whether a `.git` file is what `git worktree add` writes: it points at a directory that
/// points back, and whose settings are those of the repository around it.
fn is_worktree_pointer(directory: &OwnedFd, path: &AbsPath) -> bool {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let Some(pointer) = read(directory, Path::new(".git")).ok().and_then(text) else { return false };
    let Some(target) = pointer.strip_prefix("gitdir:").map(|target| path.join(target.trim())) else { return false };
    let Some(common) =
        target.parent().filter(|above| above.name().is_some_and(|name| name == "worktrees")).and_then(|above| above.parent())
    else {
        return false;
    };
    let file = |name: &str| fs::read_to_string(target.as_path().join(name)).ok();
    file("commondir").is_some_and(|text| target.join(text.trim()) == common)
        && file("gitdir").is_some_and(|text| AbsPath::new(text.trim()) == Some(path.join(".git")))
        && common.as_path().symlink_metadata().is_ok_and(|m| m.is_dir())
}
