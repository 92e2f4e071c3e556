//! Resolves a path to a name in a directory held open, and to the file there.
//!
//! Each component is opened by itself without following links; links are read and followed here.
//! The policy decides about the path that the kernel reports for the opened fds, and the same fds
//! are then read or replaced. So no other file can take the place of the checked one in between.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use ringfence_policy::AbsPath;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::{ToolError, ToolStep};

/// A name in a directory.
pub(crate) struct OpenedPath {
    /// The path, without links.
    pub(crate) path: AbsPath,
    /// The directory, as an `O_PATH` fd.
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
    /// The links followed on the way.
    pub(crate) links: Vec<AbsPath>,
    /// The file at that name, as an `O_PATH` fd; `None` if there is none.
    pub(crate) target: Option<PathHandle>,
}

/// An `O_PATH` fd: opening it never blocks and has no effect, even for a pipe or a device.
pub(crate) struct PathHandle {
    pub(crate) fd: OwnedFd,
    pub(crate) status: Stat,
}

/// The reason a path cannot be resolved.
pub(crate) enum PathLookupError {
    /// The path is not visible under the policy.
    Shut { path: AbsPath },
    /// A parent directory is missing.
    Missing { place: Box<OpenedPath> },
    /// A component cannot be followed.
    Broken(ToolError),
}

impl From<ToolError> for PathLookupError {
    fn from(error: ToolError) -> Self {
        PathLookupError::Broken(error)
    }
}

/// Flags of an `O_PATH` fd.
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The kernel's `PATH_MAX`.
const PATH_MAX: usize = 4096;

/// The number of attempts while names keep changing.
const MAX_ATTEMPTS: usize = 64;

impl OpenedPath {
    /// Resolves `path`, which is absolute. `shows` decides if a name is visible; an invisible name
    /// is never looked up.
    pub(crate) fn find(
        path: &Path,
        shows: &dyn Fn(&AbsPath) -> bool,
    ) -> Result<OpenedPath, PathLookupError> {
        let requested = AbsPath::new(path).ok_or_else(|| ToolError::Input {
            what: format!("{} is not a valid path", path.display()),
        })?;
        // Limited like in the kernel: the path goes to the audit log.
        if path.as_os_str().len() > PATH_MAX {
            return Err(
                ToolError::Input { what: format!("a path of more than {PATH_MAX} bytes") }.into()
            );
        }
        for _ in 0..MAX_ATTEMPTS {
            let place = follow(path, &requested, shows)?;
            if place.is_unmoved()? {
                return Ok(place);
            }
        }
        Err(ToolError::Unsettled { path: requested }.into())
    }

    /// A name in a directory that is already open, without following links. `None` if it is gone or
    /// was moved.
    pub(crate) fn within(
        directory: BorrowedFd<'_>,
        at: &AbsPath,
        name: &OsStr,
    ) -> Result<Option<OpenedPath>, ToolError> {
        let path = at.join(name);
        let directory = rustix::io::fcntl_dupfd_cloexec(directory, 3).during("hold", at)?;
        let target = match open_path_fd(directory.as_fd(), name) {
            Ok(node) => node,
            Err(_) => return Ok(None),
        };
        let place = OpenedPath {
            path,
            directory,
            name: name.to_owned(),
            links: Vec::new(),
            target: Some(target),
        };
        Ok(place.is_unmoved()?.then_some(place))
    }

    /// True if the kernel reports the fds at the resolved path.
    fn is_unmoved(&self) -> Result<bool, ToolError> {
        Ok(self.is_directory_unmoved()?
            && self
                .target
                .as_ref()
                .map_or(Ok(true), |node| is_at_path(node.fd.as_fd(), &self.path))?)
    }

    /// True if the directory was not moved.
    pub(crate) fn is_directory_unmoved(&self) -> Result<bool, ToolError> {
        self.path.parent().map_or(Ok(true), |above| is_at_path(self.directory.as_fd(), &above))
    }
}

impl PathHandle {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.status.st_mode)
    }

    /// Device and inode.
    pub(crate) fn identity(&self) -> (u64, u64) {
        identity(&self.status)
    }

    /// Opens exactly this file.
    pub(crate) fn open(&self, flags: OFlags, path: &AbsPath) -> Result<OwnedFd, ToolError> {
        // A regular file never blocks; the flag is for file systems that would.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, proc_fd_path(self.fd.as_fd()), flags, Mode::empty())
            .during("open", path)
    }
}

pub(crate) fn identity(status: &Stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

/// The path by which the kernel finds the file of an fd.
pub(crate) fn proc_fd_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// True if the kernel reports the fd at `path`.
pub(crate) fn is_at_path(fd: BorrowedFd<'_>, path: &AbsPath) -> Result<bool, ToolError> {
    match rustix::fs::readlinkat(CWD, proc_fd_path(fd), Vec::new()) {
        Ok(text) => Ok(text.as_bytes() == path.as_bytes()),
        // The path is longer than `PATH_MAX`.
        Err(Errno::NAMETOOLONG) => Ok(false),
        Err(error) => Err(error).during("read the real path of", path),
    }
}

/// Opens an `O_PATH` fd of a name, even if it is a link.
pub(crate) fn open_path_fd(directory: BorrowedFd<'_>, name: &OsStr) -> Result<PathHandle, Errno> {
    let through = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = rustix::fs::openat2(directory, name, PATH_FLAGS, Mode::empty(), through)?;
    let status = rustix::fs::fstat(&fd)?;
    Ok(PathHandle { fd, status })
}

fn root() -> Result<OwnedFd, ToolError> {
    rustix::fs::open("/", PATH_FLAGS | OFlags::DIRECTORY, Mode::empty())
        .during("open", &AbsPath::root())
}

/// The target of a symlink at `path`, unless `count` links were followed before.
fn read_link(
    link: &PathHandle,
    path: &AbsPath,
    (count, requested): (usize, &AbsPath),
) -> Result<Vec<u8>, PathLookupError> {
    const MAX_LINKS: usize = 40;
    if count == MAX_LINKS {
        return Err(io::Error::from(Errno::LOOP))
            .during("follow", requested)
            .map_err(PathLookupError::Broken);
    }
    let target = rustix::fs::readlinkat(&link.fd, "", Vec::new()).during("follow", path)?;
    Ok(target.into_bytes())
}

/// The directory itself, for a path that ends at the root or with `..`.
fn opened_directory(
    here: OwnedFd,
    real: AbsPath,
    links: Vec<AbsPath>,
) -> Result<OpenedPath, PathLookupError> {
    let status = rustix::fs::fstat(&here).during("stat", &real)?;
    let directory = above(&here).during("open", &real)?;
    let name = real.name().map(OsStr::to_owned).unwrap_or_default();
    let target = Some(PathHandle { fd: here, status });
    Ok(OpenedPath { path: real, directory, name, links, target })
}

/// One pass of the lookup.
fn follow(
    path: &Path,
    requested: &AbsPath,
    shows: &dyn Fn(&AbsPath) -> bool,
) -> Result<OpenedPath, PathLookupError> {
    let mut here = root()?;
    let mut real = AbsPath::root();
    let mut rest = components(path.as_os_str().as_bytes());
    let mut links = Vec::new();
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            here = above(&here).during("open", &real)?;
            real = real.parent().unwrap_or_else(AbsPath::root);
            continue;
        }
        let next = real.join(&name);
        if !shows(&next) {
            let below = rest.iter().take_while(|name| *name != "..");
            return Err(PathLookupError::Shut {
                path: below.fold(next, |path, name| path.join(name)),
            });
        }
        let node = match open_path_fd(here.as_fd(), &name) {
            Ok(node) => node,
            Err(Errno::NOENT) => {
                let place = OpenedPath { path: next, directory: here, name, links, target: None };
                return if rest.is_empty() {
                    Ok(place)
                } else {
                    Err(PathLookupError::Missing { place: Box::new(place) })
                };
            }
            Err(error) => return Err(error).during("open", &next).map_err(PathLookupError::Broken),
        };
        match node.kind() {
            FileType::Symlink => {
                let target = read_link(&node, &next, (links.len(), requested))?;
                links.push(next);
                if target.starts_with(b"/") {
                    (here, real) = (root()?, AbsPath::root());
                }
                for part in components(&target).into_iter().rev() {
                    rest.push_front(part);
                }
            }
            _ if rest.is_empty() => {
                return Ok(OpenedPath {
                    path: next,
                    directory: here,
                    name,
                    links,
                    target: Some(node),
                });
            }
            FileType::Directory => (here, real) = (node.fd, next),
            _ => {
                return Err(ToolError::NotFound {
                    path: rest.iter().fold(next, |path, name| path.join(name)),
                }
                .into());
            }
        }
    }
    opened_directory(here, real, links)
}

fn above(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, "..", PATH_FLAGS | OFlags::DIRECTORY, Mode::empty())
}

fn components(path: &[u8]) -> VecDeque<OsString> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(|part| OsString::from_vec(part.to_vec())).collect()
}
