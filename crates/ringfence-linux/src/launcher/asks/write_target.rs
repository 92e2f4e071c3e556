//! Target of a write or create on the host. Held open from the question to the answer, so that the
//! write goes to the file the user was asked about.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use crate::apply::{PendingWrite, WriteIntent};
use crate::inode::{InodeId, inode_id, inode_of};
use crate::locks::lock;
use crate::open::open_at;
use ringfence_api::Operation;
use ringfence_plan::FileKind;
use ringfence_policy::AbsPath;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// A name in a directory, and the file that it is to become.
#[derive(Debug)]
pub(crate) struct WriteTarget {
    /// On the host, without links.
    pub(crate) path: AbsPath,
    /// The kind of the file, existing or to be created.
    pub(crate) kind: FileKind,
    pub(crate) operation: Operation,
    directory: OwnedFd,
    name: OsString,
    state: Mutex<TargetState>,
}

/// The entry at the name.
#[derive(Debug)]
enum TargetState {
    Nothing,
    /// Held open, so that no other file gets its inode.
    Found {
        identity: InodeId,
        _held: OwnedFd,
    },
    /// Created for the requests that wait.
    Made {
        identity: InodeId,
        _held: OwnedFd,
        created_by: CreatedBy,
    },
}

/// The receiver of a created file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreatedBy {
    /// No request has it yet: the first one must find it new.
    NoRequest,
    SomeRequest,
}

/// Result of one write request.
pub(crate) enum WriteResult {
    Opened { file: OwnedFd, origin: TargetOrigin },
    Made,
}

/// Marks a name that existed before, or a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetOrigin {
    Old,
    New,
}

/// Names by which git takes a directory for a repository. The git sweep checks those that a command
/// creates, but does not look here.
const GIT_NAMES: &[&str] = &[".git", "HEAD"];

impl WriteTarget {
    /// The target of `pending` on the host; `None` if the user could not do that either, or if no
    /// single answer can cover it.
    pub(crate) fn find(pending: &PendingWrite) -> Option<Self> {
        let deed = pending.intent();
        let path = resolve(pending.path(), deed)?;
        let (above, name) = (path.parent()?, path.name()?.to_owned());
        let directory = open_without_links(&above, OFlags::PATH | OFlags::DIRECTORY)?;
        let is_permitted =
            |what: Access| rustix::fs::accessat(&directory, &name, what, AtFlags::empty()).is_ok();
        let (kind, operation, state) = match (open_entry(&directory, &name), deed) {
            (Ok((status, held)), WriteIntent::Open { flags, .. }) => {
                let flags = OFlags::from_bits_retain(flags);
                let is_read = flags.contains(OFlags::RDWR) || !flags.contains(OFlags::WRONLY);
                let wanted =
                    if is_read { Access::WRITE_OK | Access::READ_OK } else { Access::WRITE_OK };
                let is_single_file = FileType::from_raw_mode(status.st_mode)
                    == FileType::RegularFile
                    && status.st_nlink == 1;
                let is_to_be_new = flags.contains(OFlags::CREATE | OFlags::EXCL);
                if !is_single_file || is_to_be_new || !writes(flags) || !is_permitted(wanted) {
                    return None;
                }
                (
                    FileKind::File,
                    Operation::Write,
                    TargetState::Found { identity: inode_id(&status), _held: held },
                )
            }
            (Err(Errno::NOENT), deed) => {
                let makes = !matches!(deed, WriteIntent::Open { flags, .. } if !OFlags::from_bits_retain(flags).contains(OFlags::CREATE));
                let may_be_made = rustix::fs::accessat(
                    &directory,
                    ".",
                    Access::WRITE_OK | Access::EXEC_OK,
                    AtFlags::empty(),
                )
                .is_ok();
                if !makes
                    || !may_be_made
                    || GIT_NAMES.iter().any(|git_name| name.eq_ignore_ascii_case(git_name))
                {
                    return None;
                }
                let kind = if matches!(deed, WriteIntent::MakeDirectory { .. }) {
                    FileKind::Directory
                } else {
                    FileKind::File
                };
                (kind, Operation::Create, TargetState::Nothing)
            }
            _ => return None,
        };
        Some(Self { path, kind, operation, directory, name, state: Mutex::new(state) })
    }

    /// True if the directory is still at its path.
    fn is_in_place(&self) -> bool {
        let now = self
            .path
            .parent()
            .and_then(|above| open_without_links(&above, OFlags::PATH | OFlags::DIRECTORY));
        let id_of = |directory: &OwnedFd| inode_of(directory).ok();
        now.is_some_and(|now| id_of(&now).is_some() && id_of(&now) == id_of(&self.directory))
    }

    /// Performs the write, if the target is unchanged; `None` if it changed or the write failed.
    pub(crate) fn carry_out(&self, deed: WriteIntent) -> Option<WriteResult> {
        if !self.is_in_place() {
            return None;
        }
        match deed {
            WriteIntent::Open { flags, mode, .. } => {
                self.open(OFlags::from_bits_retain(flags), mode).ok()
            }
            WriteIntent::MakeDirectory { mode } => self.make_directory(mode).ok(),
        }
    }

    /// Identity of the file. A missing file is created as `deed` says; `None` without a `deed`, or
    /// if the target changed.
    pub(crate) fn ensure_exists(&self, deed: Option<WriteIntent>) -> Option<InodeId> {
        let mut state = lock(&self.state);
        if matches!(*state, TargetState::Nothing) {
            let Some(WriteIntent::Open { flags, mode, .. }) = deed.filter(|_| self.is_in_place())
            else {
                return None;
            };
            *state = self.make(OFlags::from_bits_retain(flags), mode).ok()?.1;
        }
        match *state {
            TargetState::Nothing => None,
            TargetState::Found { identity, .. } | TargetState::Made { identity, .. } => {
                Some(identity)
            }
        }
    }

    fn open_at(&self, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        // NONBLOCK: the name may be a FIFO by now. No TRUNC: it may be another file by now.
        let flags = (flags - OFlags::TRUNC)
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(
            &self.directory,
            &self.name,
            flags,
            Mode::from_raw_mode(mode),
            resolve_flags,
        )
    }

    fn make(&self, wanted: OFlags, mode: u32) -> Result<(OwnedFd, TargetState), Errno> {
        let file = self.open_at(wanted | OFlags::CREATE | OFlags::EXCL, mode)?;
        let status = rustix::fs::fstat(&file)?;
        // Our umask is not the caller's.
        if Mode::from_raw_mode(status.st_mode) != Mode::from_raw_mode(mode) {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        // Held with O_PATH, not with this fd: a file open for writing cannot be executed (ETXTBSY).
        let (again, held) = open_entry(&self.directory, &self.name)?;
        if inode_id(&again) != inode_id(&status) {
            return Err(Errno::STALE);
        }
        Ok((
            file,
            TargetState::Made {
                identity: inode_id(&status),
                _held: held,
                created_by: CreatedBy::NoRequest,
            },
        ))
    }

    fn open(&self, wanted: OFlags, mode: u32) -> Result<WriteResult, Errno> {
        let mut state = lock(&self.state);
        let (file, origin) = match &*state {
            TargetState::Nothing => {
                let (file, made) = self.make(wanted, mode)?;
                *state = made;
                (file, TargetOrigin::New)
            }
            TargetState::Made { created_by: CreatedBy::SomeRequest, .. }
                if wanted.contains(OFlags::EXCL) =>
            {
                return Err(Errno::EXIST);
            }
            TargetState::Found { identity: known, .. }
            | TargetState::Made { identity: known, .. } => {
                let file = self.open_at(wanted - (OFlags::CREATE | OFlags::EXCL), 0)?;
                let status = rustix::fs::fstat(&file)?;
                if inode_id(&status) != *known || status.st_nlink != 1 {
                    return Err(Errno::STALE);
                }
                if wanted.contains(OFlags::TRUNC) {
                    rustix::fs::ftruncate(&file, 0)?;
                }
                (file, TargetOrigin::Old)
            }
        };
        if let TargetState::Made { created_by, .. } = &mut *state {
            *created_by = CreatedBy::SomeRequest;
        }
        drop(state);
        if !wanted.contains(OFlags::NONBLOCK) {
            let kept = wanted & (OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME);
            rustix::fs::fcntl_setfl(&file, kept).inspect_err(|_| self.undo(origin))?;
        }
        Ok(WriteResult::Opened { file, origin })
    }

    fn make_directory(&self, mode: u32) -> Result<WriteResult, Errno> {
        rustix::fs::mkdirat(&self.directory, &self.name, Mode::from_raw_mode(mode))?;
        let (status, held) = open_entry(&self.directory, &self.name)?;
        *lock(&self.state) = TargetState::Made {
            identity: inode_id(&status),
            _held: held,
            created_by: CreatedBy::SomeRequest,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Our umask is not the caller's. Without read permission the mode stays as it is.
        if let Ok(made) = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            let inherited = Mode::from_raw_mode(status.st_mode) & Mode::SGID;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(mode) | inherited)?;
        }
        Ok(WriteResult::Made)
    }

    /// Removes a file created for a request that was interrupted, unless it has contents by now.
    pub(crate) fn undo(&self, origin: TargetOrigin) {
        let mut state = lock(&self.state);
        let TargetState::Made { identity: made, .. } = *state else { return };
        if origin == TargetOrigin::Old {
            return;
        }
        let Ok((status, _)) = open_entry(&self.directory, &self.name) else { return };
        let flags = if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        if inode_id(&status) == made && (status.st_size == 0 || flags == AtFlags::REMOVEDIR) {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, flags);
            *state = TargetState::Nothing;
        }
    }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Opens the entry at a name with O_PATH; a link is not followed.
fn open_entry(directory: &OwnedFd, name: &OsString) -> Result<(Stat, OwnedFd), Errno> {
    let held = open_at(directory, name, OFlags::PATH | OFlags::NOFOLLOW)?;
    Ok((rustix::fs::fstat(&held)?, held))
}

/// Resolves a path on the host. A link at its end is followed, unless the flags forbid it.
fn resolve(path: &AbsPath, deed: WriteIntent) -> Option<AbsPath> {
    let keeps_link = match deed {
        WriteIntent::Open { flags, .. } => {
            OFlags::from_bits_retain(flags).intersects(OFlags::NOFOLLOW | OFlags::EXCL)
        }
        WriteIntent::MakeDirectory { .. } => true,
    };
    let resolved = fs::canonicalize(path.as_path()).ok().filter(|_| !keeps_link);
    resolved.and_then(AbsPath::new).or_else(|| {
        Some(AbsPath::new(fs::canonicalize(path.parent()?.as_path()).ok()?)?.join(path.name()?))
    })
}

fn open_without_links(path: &AbsPath, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::openat2(
        CWD,
        path.as_path(),
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )
    .ok()
}
