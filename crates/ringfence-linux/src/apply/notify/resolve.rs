//! Resolves a caller's path to a directory fd and a last component, which no other process can
//! exchange.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::open::open_at;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::proc_links;

/// A directory and the name of an entry that exists there or would be created.
pub(super) struct ResolvedParent {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
    pub(super) end: PathSuffix,
}

/// The end of a path as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathSuffix {
    Plain,
    /// With a slash: the path names a directory.
    Slash,
}

impl ResolvedParent {
    /// True if this is a directory with entries.
    pub(super) fn has_entries(&self) -> bool {
        let opened = open_at(
            &self.directory,
            self.name.as_os_str(),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW,
        );
        let entries = opened.and_then(rustix::fs::Dir::new);
        entries.is_ok_and(|entries| {
            entries.flatten().any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
        })
    }

    /// The type of the entry; `None` if it is absent.
    pub(super) fn kind(&self) -> Option<FileType> {
        let status =
            rustix::fs::statat(&self.directory, self.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
                .ok()?;
        Some(FileType::from_raw_mode(status.st_mode))
    }
}

/// Handling of a symlink at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinalSymlink {
    Follow,
    Keep,
}

/// Result of resolving a path.
pub(super) enum PathResolution {
    /// A name in a directory.
    Place(ResolvedParent),
    /// An open file behind a magic link of `/proc`: nothing can be created there.
    Open(OwnedFd),
}

const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl PathResolution {
    fn place(directory: OwnedFd, name: OsString) -> Self {
        Self::Place(ResolvedParent { directory, name, end: PathSuffix::Plain })
    }
}

/// The last component of a path as written; `None` if it is `.`, `..` or empty.
pub(super) fn last_name(path: &CStr) -> Option<&OsStr> {
    let bytes = path.to_bytes();
    let name = bytes.rsplit(|byte| *byte == b'/').next()?;
    (!matches!(name, b"" | b"." | b"..")).then(|| OsStr::from_bytes(name))
}

/// The directory at which a path begins. Absolute paths begin at the sandbox's root, which is also
/// the notify handler's root.
pub(super) fn start<'a>(
    caller: &NotifyCaller<'a>,
    directory: i32,
    path: &CStr,
) -> Result<PathAnchor<'a>, Errno> {
    if path.to_bytes().is_empty() {
        return Err(Errno::NOENT);
    }
    if path.to_bytes().starts_with(b"/") {
        return caller.fds.root().map(PathAnchor::Root);
    }
    caller.start_directory(directory).map(PathAnchor::Opened)
}

/// The start of a path.
pub(super) enum PathAnchor<'a> {
    Root(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for PathAnchor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            PathAnchor::Root(root) => *root,
            PathAnchor::Opened(directory) => directory.as_fd(),
        }
    }
}

impl PathAnchor<'_> {
    /// Converts to an fd that may be kept.
    pub(super) fn into_opened(self) -> Result<OwnedFd, Errno> {
        match self {
            PathAnchor::Root(root) => rustix::io::fcntl_dupfd_cloexec(root, 0),
            // Not a copy of the caller's open file: keeping that would keep its locks.
            PathAnchor::Opened(directory) => {
                rustix::fs::openat(directory, c".", PATH_FLAGS | OFlags::DIRECTORY, Mode::empty())
            }
        }
    }
}

/// Resolves a path without following its last component (`mkdir`, `rename`, …).
pub(super) fn resolve_parent(
    caller: &NotifyCaller<'_>,
    directory: i32,
    path: &CStr,
) -> Result<ResolvedParent, Errno> {
    let start = start(caller, directory, path)?;
    // A trailing slash behind a directory's name has no effect.
    let bytes = path.to_bytes();
    let trimmed = &bytes[..bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |end| end + 1)];
    let end = if trimmed.len() < bytes.len() { PathSuffix::Slash } else { PathSuffix::Plain };
    let trimmed = CString::new(trimmed).map_err(|_| Errno::INVAL)?;
    // `.`, `..` and `/` always exist.
    let Some(name) = last_name(&trimmed) else { return Err(Errno::EXIST) };
    let above = &trimmed.to_bytes()[..trimmed.to_bytes().len() - name.len()];
    let above = if above.is_empty() {
        c".".to_owned()
    } else {
        CString::new(above).map_err(|_| Errno::INVAL)?
    };
    let flags = PATH_FLAGS | OFlags::DIRECTORY;
    match rustix::fs::openat2(
        &start,
        above.as_c_str(),
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    ) {
        Ok(directory) => Ok(ResolvedParent { directory, name: name.to_owned(), end }),
        Err(Errno::LOOP) => match walk(caller, start, &trimmed, FinalSymlink::Keep)? {
            PathResolution::Place(place) => Ok(ResolvedParent { end, ..place }),
            PathResolution::Open(_) => Err(Errno::EXIST),
        },
        Err(error) => Err(error),
    }
}

/// Opens the target of a path with `O_PATH`, as the caller would: `/proc/self` is the caller.
pub(super) fn open(
    caller: &NotifyCaller<'_>,
    directory: i32,
    path: &CStr,
    last: FinalSymlink,
) -> Result<OwnedFd, Errno> {
    let start = start(caller, directory, path)?;
    let nofollow = if last == FinalSymlink::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
    match rustix::fs::openat2(
        &start,
        path,
        PATH_FLAGS | nofollow,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    ) {
        Err(Errno::LOOP) => {}
        opened => return opened,
    }
    if let PathAnchor::Root(root) = start {
        // A path that stays in the root's own file system does not cross `/proc`.
        let opened = rustix::fs::openat2(
            root,
            path,
            PATH_FLAGS | nofollow,
            Mode::empty(),
            ResolveFlags::NO_XDEV,
        );
        if matches!(opened, Ok(_) | Err(Errno::NOENT)) {
            return opened;
        }
    }
    match walk(caller, start, path, last)? {
        PathResolution::Open(through) => Ok(through),
        PathResolution::Place(place) => rustix::fs::openat(
            &place.directory,
            place.name.as_os_str(),
            PATH_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        ),
    }
}

/// Resolves a path that contains no symlink.
pub(super) fn resolve_without_symlinks(
    start: BorrowedFd<'_>,
    path: &CStr,
) -> Result<ResolvedParent, Errno> {
    let name = last_name(path).ok_or(Errno::INVAL)?;
    let above = &path.to_bytes()[..path.to_bytes().len() - name.len()];
    let above = if above.is_empty() {
        c".".to_owned()
    } else {
        CString::new(above).map_err(|_| Errno::INVAL)?
    };
    let directory = rustix::fs::openat2(
        start,
        above.as_c_str(),
        PATH_FLAGS | OFlags::DIRECTORY,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    Ok(ResolvedParent { directory, name: name.to_owned(), end: PathSuffix::Plain })
}

/// Walks a path component by component, as the kernel would for the caller: `/proc/self` is the
/// caller, not the notify handler.
pub(super) fn walk(
    caller: &NotifyCaller<'_>,
    start: PathAnchor<'_>,
    path: &CStr,
    last: FinalSymlink,
) -> Result<PathResolution, Errno> {
    const LINKS: usize = 40;
    let mut here = start.into_opened()?;
    let mut rest = components(path.to_bytes());
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let is_last = rest.is_empty();
        if name == ".." || name == "." {
            here = rustix::fs::openat(
                &here,
                name.as_os_str(),
                PATH_FLAGS | OFlags::DIRECTORY,
                Mode::empty(),
            )?;
            continue;
        }
        let next = match rustix::fs::openat(
            &here,
            name.as_os_str(),
            PATH_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        ) {
            Ok(next) => next,
            Err(Errno::NOENT) if is_last => {
                return Ok(PathResolution::place(here, name));
            }
            Err(error) => return Err(error),
        };
        let is_link = FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode).is_symlink();
        if !is_link {
            if is_last {
                return Ok(PathResolution::place(here, name));
            }
            here = next;
            continue;
        }
        if is_last && last == FinalSymlink::Keep {
            return Ok(PathResolution::place(here, name));
        }
        links += 1;
        if links > LINKS {
            return Err(Errno::LOOP);
        }
        let target = match proc_link(caller, here.as_fd(), &name)? {
            ProcLink::No => rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes(),
            ProcLink::Text(text) => text.into_bytes(),
            ProcLink::Magic => {
                let through = proc_links::open_magic_link(caller, here.as_fd(), &name)?;
                if is_last {
                    return Ok(PathResolution::Open(through));
                }
                here = through;
                continue;
            }
        };
        if target.starts_with(b"/") {
            here = PathAnchor::Root(caller.fds.root()?).into_opened()?;
        }
        for part in components(&target).into_iter().rev() {
            rest.push_front(part);
        }
    }
    Err(Errno::ISDIR)
}

enum ProcLink {
    No,
    Text(String),
    Magic,
}

/// Classifies a link in `/proc`.
fn proc_link(
    caller: &NotifyCaller<'_>,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<ProcLink, Errno> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    const ROOT_INODE: u64 = 1;
    if rustix::fs::fstatfs(directory)?.f_type as i64 != PROC_SUPER_MAGIC {
        return Ok(ProcLink::No);
    }
    let is_root = rustix::fs::fstat(directory)?.st_ino == ROOT_INODE;
    if is_root && (name == "self" || name == "thread-self") {
        let ids = caller.ids().ok_or(Errno::SRCH)?;
        let process = ids.leader_inside;
        return Ok(ProcLink::Text(if name == "self" {
            process
        } else {
            format!("{process}/task/{}", ids.thread_inside)
        }));
    }
    // `/proc/mounts` and similar links are plain symlinks; those of processes are not.
    if is_root {
        let text = rustix::fs::readlinkat(directory, name, Vec::new())?;
        let text = text.to_string_lossy().into_owned();
        return Ok(ProcLink::Text(text.replacen(
            "self/",
            &format!("{}/", caller.ids().ok_or(Errno::SRCH)?.leader_inside),
            1,
        )));
    }
    Ok(ProcLink::Magic)
}

fn components(path: &[u8]) -> VecDeque<OsString> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}
