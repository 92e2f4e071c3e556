//! The last look: repositories the command made are its own to use, but what in them would
//! run a program on the host is moved away before anybody there runs git.
//!
//! Works on directories held open and never follows a link: what it looks at was made by
//! somebody who is not trusted.

mod config;

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_api::Quarantined;
use ringfence_enforce::apply::{Made, Planted};
use ringfence_enforce::{Plan, Step};
use ringfence_policy::{AbsPath, Effect, Grants};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Where something was seen to be made.
    Made,
    /// In every writable tree: not all that was made was seen.
    Everywhere,
}

/// Looks through what the command made of git's. `plan` knows what was there before.
pub(crate) fn sweep(made: Vec<Made>, look: Look, plan: &Plan, grants: &Grants, quarantine: &AbsPath) -> Vec<Quarantined> {
    let roots: Vec<(u64, u64)> =
        grants.rules.iter().filter(|rule| rule.effect == Effect::Write).filter_map(|rule| identity(rule.root.as_path())).collect();
    let before = plan.guards().iter().map(|guard| (guard.device, guard.inode)).collect();
    let moment = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut sweep = Sweep { quarantine: quarantine.join(moment.to_string()), moved: Vec::new(), before, roots };
    for Made { directory, path, what } in made {
        let Some(directory) = directory else { continue };
        let path = path_of(&directory).unwrap_or(path);
        let directory = by_path(&directory, &path).unwrap_or(directory);
        match what {
            Planted::DotGit => sweep.dot_git(&directory, &path),
            Planted::Head => sweep.head(&directory, &path),
        }
    }
    if look == Look::Everywhere {
        let covered: HashSet<&AbsPath> = plan
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Cover { path, .. } => Some(path),
                _ => None,
            })
            .collect();
        for rule in grants.rules.iter().filter(|rule| rule.effect == Effect::Write) {
            sweep.everywhere(&rule.root, &covered);
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
    /// Git directories that were there before.
    before: HashSet<(u64, u64)>,
    /// Writable roots.
    roots: Vec<(u64, u64)>,
}

const ONLY_LOOK: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl Sweep {
    /// A whole tree, for what was not there before.
    fn everywhere(&mut self, root: &AbsPath, covered: &HashSet<&AbsPath>) {
        let mut waiting = vec![root.clone()];
        while let Some(path) = waiting.pop() {
            let Ok(directory) = open_directory_at(&path) else { continue };
            let is_new = |name: &str| kind(&directory, name).is_some() && !covered.contains(&path.join(name));
            if is_new(".git") && !self.was_before(&directory, ".git") {
                self.dot_git(&directory, &path);
            }
            if is_new("HEAD") && !self.was_before(&directory, ".") {
                self.head(&directory, &path);
            }
            let below = names(&directory)
                .into_iter()
                .filter(|name| kind(&directory, name) == Some(FileType::Directory) && name.as_os_str() != ".git");
            waiting.extend(below.map(|name| path.join(name)));
        }
    }

    fn was_before(&self, directory: &OwnedFd, name: &str) -> bool {
        rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|status| self.before.contains(&(status.st_dev, status.st_ino)))
    }

    /// A directory with a `HEAD`, which may make it a bare repository.
    fn head(&mut self, directory: &OwnedFd, path: &AbsPath) {
        let is_inside_git = path.as_path().components().any(|part| part.as_os_str() == ".git");
        if is_inside_git || !looks_like_git(directory) {
            return;
        }
        let is_root = rustix::fs::fstat(directory).is_ok_and(|status| self.roots.contains(&(status.st_dev, status.st_ino)));
        self.bare(directory, path, if is_root { Bare::Planted } else { Bare::Own });
    }

    /// `.git` in `directory`, whatever it is.
    fn dot_git(&mut self, directory: &OwnedFd, path: &AbsPath) {
        let at = path.join(".git");
        match kind(directory, ".git") {
            Some(FileType::Directory) => match open_directory(directory, ".git") {
                Ok(git) => self.repository(&git, &at),
                Err(_) => self.move_away(directory, ".git", &at, "cannot be looked into"),
            },
            Some(FileType::RegularFile) if !self.is_worktree_pointer(directory, path) => {
                self.move_away(directory, ".git", &at, "points git at a directory that is no worktree's");
            }
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => self.move_away(directory, ".git", &at, "leads git somewhere else"),
            Some(_) => self.move_away(directory, ".git", &at, "is nothing that git knows"),
        }
    }

    fn bare(&mut self, directory: &OwnedFd, path: &AbsPath, bare: Bare) {
        if bare == Bare::Planted {
            for name in ["HEAD", "config", "hooks", "commondir", "config.worktree"] {
                if kind(directory, name).is_some() {
                    self.move_away(directory, name, &path.join(name), "makes git take the project for a bare repository");
                }
            }
        } else {
            self.repository(directory, path);
        }
    }

    /// Whether a `.git` file is what `git worktree add` writes: it points at a directory that
    /// points back, and whose settings are those of the repository around it, which was
    /// there before or is looked through as well.
    fn is_worktree_pointer(&mut self, directory: &OwnedFd, path: &AbsPath) -> bool {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
        let Some(pointer) = read(directory, Path::new(".git")).ok().and_then(text) else { return false };
        let Some(target) = pointer.strip_prefix("gitdir:").map(|target| path.join(target.trim())) else { return false };
        let worktrees = target.parent().filter(|above| above.name().is_some_and(|name| name == "worktrees"));
        let Some(common) = worktrees.and_then(|above| above.parent()) else { return false };
        let file = |name: &str| fs::read_to_string(target.as_path().join(name)).ok();
        let points_back = file("commondir").is_some_and(|text| target.join(text.trim()) == common)
            && file("gitdir").is_some_and(|text| AbsPath::new(text.trim()) == Some(path.join(".git")));
        let Ok(repository) = rustix::fs::open(common.as_path(), ONLY_LOOK | OFlags::DIRECTORY, Mode::empty()) else { return false };
        if !points_back {
            return false;
        }
        // Named as git names it, so that no other directory passes for a repository.
        let is_named_so = common.name().is_some_and(|name| name == ".git");
        if !self.was_before(&repository, ".") && is_named_so {
            self.repository(&repository, &common);
        }
        is_named_so || self.was_before(&repository, ".")
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
        if let Ok(worktrees) = open_directory(git, "worktrees") {
            for name in names(&worktrees) {
                self.worktree(&worktrees, &name, path);
            }
        }
        if let Ok(modules) = open_directory(git, "modules") {
            self.modules(&modules, &path.join("modules"), 0);
        }
    }

    /// A worktree's own directory below the repository at `path`.
    fn worktree(&mut self, worktrees: &OwnedFd, name: &Path, path: &AbsPath) {
        let Ok(own) = open_directory(worktrees, name) else { return };
        let at = path.join("worktrees").join(name);
        self.config(&own, "config.worktree", &at.join("config.worktree"));
        let common = read(&own, Path::new("commondir")).ok().and_then(|text| String::from_utf8(text).ok());
        if common.is_some_and(|common| at.join(common.trim()) != *path) {
            self.move_away(&own, "commondir", &at.join("commondir"), "makes git obey the settings of another directory");
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
        let target = self.free_place(path);
        // Whoever made the directory may have taken the right to change it away.
        let _ = rustix::fs::fchmod(directory, Mode::from_raw_mode(0o755));
        let moved = match rustix::fs::renameat(directory, name, rustix::fs::CWD, target.as_path()) {
            Err(Errno::XDEV) => copy_away(directory, name, &target),
            other => other,
        };
        let moved_to = if moved.is_ok() {
            target.to_string_lossy().into_owned()
        } else if remove(directory, name, path) {
            "nowhere: it could not be kept and was removed".into()
        } else {
            "nowhere: IT IS STILL THERE and could be neither moved nor removed".into()
        };
        self.moved.push(Quarantined { path: path.to_string_lossy().into_owned(), moved_to, reason: reason.into() });
    }

    /// A path in quarantine that nothing stands at.
    fn free_place(&self, path: &AbsPath) -> AbsPath {
        let target = self.quarantine.join(path.as_path().strip_prefix("/").unwrap_or(path.as_path()));
        if let Some(above) = target.parent() {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(above.as_path());
        }
        let is_free = target.as_path().symlink_metadata().is_err();
        if is_free { target } else { self.quarantine.join(format!("{}-{}", self.moved.len(), path.name().unwrap_or_default().display())) }
    }
}

fn remove(directory: &OwnedFd, name: &Path, path: &AbsPath) -> bool {
    rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok() || fs::remove_dir_all(path.as_path()).is_ok()
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

/// Opens a directory; one that was made unreadable is made readable first.
fn open_directory(directory: &OwnedFd, name: impl AsRef<Path>) -> rustix::io::Result<OwnedFd> {
    let name = name.as_ref();
    let open = || rustix::fs::openat(directory, name, ONLY_LOOK | OFlags::DIRECTORY, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            let shut =
                rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            // Through the descriptor, so that no link can be put in its place.
            let link = format!("/proc/self/fd/{}", shut.as_raw_fd());
            rustix::fs::chmod(link, Mode::from_raw_mode(0o755))?;
            open()
        }
        other => other,
    }
}

fn open_directory_at(path: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    open_directory(&root, path.as_path().strip_prefix("/").unwrap_or(path.as_path()))
}

/// The same directory by the host's own path: things can be renamed out of it, which the
/// sandbox's mounts do not allow.
fn by_path(directory: &OwnedFd, path: &AbsPath) -> Option<OwnedFd> {
    let found = rustix::fs::open(path.as_path(), ONLY_LOOK | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).ok().map(|status| (status.st_dev, status.st_ino));
    (identity(&found) == identity(directory)).then_some(found)
}

/// By what git goes by: where there is a `commondir`, the rest is elsewhere.
fn looks_like_git(directory: &OwnedFd) -> bool {
    let has = |name: &str| kind(directory, name).is_some();
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
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
