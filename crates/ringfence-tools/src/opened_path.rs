//! From a path to a name in a directory that is held, and to what stands there.
//!
//! Each component is opened by itself and without following anything; links are read and
//! followed here. What is decided about is where the kernel says that the opened things are,
//! and what is then read or replaced is those very things. There is no moment between looking
//! and opening in which another file could come into the place of the one that was looked at.

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
    /// Where it is, without links.
    pub(crate) path: AbsPath,
    /// The directory, held.
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
    /// Links that were followed to it.
    pub(crate) links: Vec<AbsPath>,
    /// What stands there, held; `None` if nothing does.
    pub(crate) there: Option<PathHandle>,
}

/// Something that is held, without being open yet: what only holds never blocks and changes
/// nothing, be it a pipe or a device.
pub(crate) struct PathHandle {
    pub(crate) held: OwnedFd,
    pub(crate) status: Stat,
}

/// Why a path leads to no place.
pub(crate) enum PathLookupError {
    /// It leads to where nothing may be seen.
    Shut { path: AbsPath },
    /// A directory on the way is missing.
    Missing { place: Box<OpenedPath> },
    /// It cannot be followed.
    Broken(ToolError),
}

impl From<ToolError> for PathLookupError {
    fn from(error: ToolError) -> Self {
        PathLookupError::Broken(error)
    }
}

/// What only holds.
const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The kernel's `PATH_MAX`.
const LONGEST: usize = 4096;

/// Whoever swaps names all the time is tried again so often.
const TRIES: usize = 64;

impl OpenedPath {
    /// Where `path`, which is absolute, leads. `shows` says whether a name may be seen at all;
    /// nothing is looked for at one that may not.
    pub(crate) fn find(
        path: &Path,
        shows: &dyn Fn(&AbsPath) -> bool,
    ) -> Result<OpenedPath, PathLookupError> {
        let asked = AbsPath::new(path)
            .ok_or_else(|| ToolError::Input { what: format!("{} is no path", path.display()) })?;
        // No longer than the kernel takes them: it will be on record.
        if path.as_os_str().len() > LONGEST {
            return Err(
                ToolError::Input { what: format!("a path of more than {LONGEST} bytes") }.into()
            );
        }
        for _ in 0..TRIES {
            let place = follow(path, &asked, shows)?;
            if place.is_settled()? {
                return Ok(place);
            }
        }
        Err(ToolError::Unsettled { path: asked }.into())
    }

    /// A name in a directory that is held already; links are not followed. `None` if it is gone,
    /// or elsewhere by now.
    pub(crate) fn within(
        directory: BorrowedFd<'_>,
        at: &AbsPath,
        name: &OsStr,
    ) -> Result<Option<OpenedPath>, ToolError> {
        let path = at.join(name);
        let directory = rustix::io::fcntl_dupfd_cloexec(directory, 3).during("hold", at)?;
        let there = match hold(directory.as_fd(), name) {
            Ok(node) => node,
            Err(_) => return Ok(None),
        };
        let place = OpenedPath {
            path,
            directory,
            name: name.to_owned(),
            links: Vec::new(),
            there: Some(there),
        };
        Ok(place.is_settled()?.then_some(place))
    }

    /// Whether the kernel says that what is held is where the walk went.
    fn is_settled(&self) -> Result<bool, ToolError> {
        Ok(self.stands()?
            && self.there.as_ref().map_or(Ok(true), |node| is_at(node.held.as_fd(), &self.path))?)
    }

    /// Whether the directory is where it was.
    pub(crate) fn stands(&self) -> Result<bool, ToolError> {
        self.path.parent().map_or(Ok(true), |above| is_at(self.directory.as_fd(), &above))
    }
}

impl PathHandle {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.status.st_mode)
    }

    /// Which file it is.
    pub(crate) fn identity(&self) -> (u64, u64) {
        identity(&self.status)
    }

    /// Opens the very thing that is held.
    pub(crate) fn open(&self, flags: OFlags, path: &AbsPath) -> Result<OwnedFd, ToolError> {
        // What was a plain file when it was held is one still, so nothing is waited for; the
        // flag is for file systems that would.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, by_descriptor(self.held.as_fd()), flags, Mode::empty())
            .during("open", path)
    }
}

pub(crate) fn identity(status: &Stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

/// The name by which the kernel finds what a descriptor stands for, wherever it is.
pub(crate) fn by_descriptor(held: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// Whether the kernel says that something is at `path`.
pub(crate) fn is_at(held: BorrowedFd<'_>, path: &AbsPath) -> Result<bool, ToolError> {
    match rustix::fs::readlinkat(CWD, by_descriptor(held), Vec::new()) {
        Ok(text) => Ok(text.as_bytes() == path.as_bytes()),
        // Deeper than a path can be long.
        Err(Errno::NAMETOOLONG) => Ok(false),
        Err(error) => Err(error).during("find out where the kernel has", path),
    }
}

/// Holds what stands at a name, be it a link.
pub(crate) fn hold(directory: BorrowedFd<'_>, name: &OsStr) -> Result<PathHandle, Errno> {
    let through = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let held = rustix::fs::openat2(directory, name, HOLD, Mode::empty(), through)?;
    let status = rustix::fs::fstat(&held)?;
    Ok(PathHandle { held, status })
}

fn root() -> Result<OwnedFd, ToolError> {
    rustix::fs::open("/", HOLD | OFlags::DIRECTORY, Mode::empty()).during("open", &AbsPath::root())
}

/// The walk itself, once.
fn follow(
    path: &Path,
    asked: &AbsPath,
    shows: &dyn Fn(&AbsPath) -> bool,
) -> Result<OpenedPath, PathLookupError> {
    const LINKS: usize = 40;
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
            return Err(PathLookupError::Shut {
                path: rest
                    .iter()
                    .take_while(|name| *name != "..")
                    .fold(next, |path, name| path.join(name)),
            });
        }
        let node = match hold(here.as_fd(), &name) {
            Ok(node) => node,
            Err(Errno::NOENT) => {
                let place = OpenedPath { path: next, directory: here, name, links, there: None };
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
                if links.len() == LINKS {
                    return Err(io::Error::from(Errno::LOOP))
                        .during("follow", asked)
                        .map_err(PathLookupError::Broken);
                }
                let target = rustix::fs::readlinkat(&node.held, "", Vec::new())
                    .during("follow", &next)?
                    .into_bytes();
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
                    there: Some(node),
                });
            }
            FileType::Directory => (here, real) = (node.held, next),
            _ => {
                return Err(ToolError::NotFound {
                    path: rest.iter().fold(next, |path, name| path.join(name)),
                }
                .into());
            }
        }
    }
    // It ended at the root, or with `..`: what is meant is the directory itself.
    let status = rustix::fs::fstat(&here).during("look at", &real)?;
    let directory = above(&here).during("open", &real)?;
    let name = real.name().map(OsStr::to_owned).unwrap_or_default();
    Ok(OpenedPath {
        path: real,
        directory,
        name,
        links,
        there: Some(PathHandle { held: here, status }),
    })
}

fn above(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, "..", HOLD | OFlags::DIRECTORY, Mode::empty())
}

fn components(path: &[u8]) -> VecDeque<OsString> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(|part| OsString::from_vec(part.to_vec())).collect()
}
