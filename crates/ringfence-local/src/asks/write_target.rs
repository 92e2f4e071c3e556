//! Where somebody wants to write or make something, on the host: held from the question to
//! the answer, so that what is written to is what the person was asked about.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_api::Operation;
use ringfence_enforce::FileKind;
use ringfence_enforce::apply::{PendingWrite, WriteIntent};
use ringfence_policy::AbsPath;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

type InodeId = (u64, u64);

/// A name in a directory, and what it is to become.
#[derive(Debug)]
pub(crate) struct WriteTarget {
    /// On the host, without links.
    pub(crate) path: AbsPath,
    /// What it is or is to be.
    pub(crate) kind: FileKind,
    pub(crate) operation: Operation,
    directory: OwnedFd,
    name: OsString,
    there: Mutex<TargetState>,
}

/// What stands at the name.
#[derive(Debug)]
enum TargetState {
    Nothing,
    /// Held: as long as it is, nothing else gets its inode.
    Found {
        identity: InodeId,
        _held: OwnedFd,
    },
    /// Made for those who asked.
    Made {
        identity: InodeId,
        _held: OwnedFd,
        for_whom: CreatedBy,
    },
}

/// Who has what was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreatedBy {
    /// Nobody yet: whoever comes first is to find it new.
    Nobody,
    Somebody,
}

/// What was done for one who asked.
pub(crate) enum WriteResult {
    Opened { file: OwnedFd, origin: TargetOrigin },
    Made,
}

/// Whether a name was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetOrigin {
    Old,
    New,
}

/// Names by which git takes a directory for a repository. What a command makes of them is
/// looked through when it has ended, and nobody would look here.
const OF_GIT: &[&str] = &[".git", "HEAD"];

impl WriteTarget {
    /// Where `plea` leads on the host; `None` if the person could not do that either, or if it
    /// is about nothing that one answer could be about.
    pub(crate) fn find(plea: &PendingWrite) -> Option<Self> {
        let deed = plea.deed();
        let path = real(plea.path(), deed)?;
        let (above, name) = (path.parent()?, path.name()?.to_owned());
        let directory = found(&above, OFlags::PATH | OFlags::DIRECTORY)?;
        let may =
            |what: Access| rustix::fs::accessat(&directory, &name, what, AtFlags::empty()).is_ok();
        let (kind, operation, there) = match (held(&directory, &name), deed) {
            (Ok((status, held)), WriteIntent::Open { flags, .. }) => {
                let flags = OFlags::from_bits_retain(flags);
                let is_read = flags.contains(OFlags::RDWR) || !flags.contains(OFlags::WRONLY);
                let wanted =
                    if is_read { Access::WRITE_OK | Access::READ_OK } else { Access::WRITE_OK };
                let is_one = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
                    && status.st_nlink == 1;
                let is_to_be_new = flags.contains(OFlags::CREATE | OFlags::EXCL);
                if !is_one || is_to_be_new || !writes(flags) || !may(wanted) {
                    return None;
                }
                (
                    FileKind::File,
                    Operation::Write,
                    TargetState::Found { identity: identity(&status), _held: held },
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
                    || OF_GIT.iter().any(|of_git| name.eq_ignore_ascii_case(of_git))
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
        Some(Self { path, kind, operation, directory, name, there: Mutex::new(there) })
    }

    fn there(&self) -> MutexGuard<'_, TargetState> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the directory still stands where it did.
    fn stands(&self) -> bool {
        let now =
            self.path.parent().and_then(|above| found(&above, OFlags::PATH | OFlags::DIRECTORY));
        let of =
            |directory: &OwnedFd| rustix::fs::fstat(directory).ok().map(|status| identity(&status));
        now.is_some_and(|now| of(&now).is_some() && of(&now) == of(&self.directory))
    }

    /// Does what was asked for, if all is as it was; `None` if it is not, or could not be done.
    pub(crate) fn carry_out(&self, deed: WriteIntent) -> Option<WriteResult> {
        if !self.stands() {
            return None;
        }
        match deed {
            WriteIntent::Open { flags, mode, .. } => {
                self.open(OFlags::from_bits_retain(flags), mode).ok()
            }
            WriteIntent::MakeDirectory { mode } => self.make_directory(mode).ok(),
        }
    }

    /// Which file it is; if there is none, it is made as the `deed` of somebody who waits says.
    /// `None` if nobody does, or it is not what it was.
    pub(crate) fn ready(&self, deed: Option<WriteIntent>) -> Option<InodeId> {
        let mut there = self.there();
        if matches!(*there, TargetState::Nothing) {
            let Some(WriteIntent::Open { flags, mode, .. }) = deed.filter(|_| self.stands()) else {
                return None;
            };
            *there = self.make(OFlags::from_bits_retain(flags), mode).ok()?.1;
        }
        match *there {
            TargetState::Nothing => None,
            TargetState::Found { identity, .. } | TargetState::Made { identity, .. } => {
                Some(identity)
            }
        }
    }

    fn open_at(&self, how: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        // What is neither file nor new must not be waited for, and what is another by now must
        // not be emptied.
        let how = (how - OFlags::TRUNC)
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let through = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.directory, &self.name, how, Mode::from_raw_mode(mode), through)
    }

    fn make(&self, wanted: OFlags, mode: u32) -> Result<(OwnedFd, TargetState), Errno> {
        let file = self.open_at(wanted | OFlags::CREATE | OFlags::EXCL, mode)?;
        let status = rustix::fs::fstat(&file)?;
        // Our own mask is not the caller's.
        if Mode::from_raw_mode(status.st_mode) != Mode::from_raw_mode(mode) {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        // Held by its name and not by this descriptor: nobody could start what somebody writes.
        let (again, held) = held(&self.directory, &self.name)?;
        if identity(&again) != identity(&status) {
            return Err(Errno::STALE);
        }
        Ok((
            file,
            TargetState::Made {
                identity: identity(&status),
                _held: held,
                for_whom: CreatedBy::Nobody,
            },
        ))
    }

    fn open(&self, wanted: OFlags, mode: u32) -> Result<WriteResult, Errno> {
        let mut there = self.there();
        let (file, origin) = match &*there {
            TargetState::Nothing => {
                let (file, made) = self.make(wanted, mode)?;
                *there = made;
                (file, TargetOrigin::New)
            }
            TargetState::Made { for_whom: CreatedBy::Somebody, .. }
                if wanted.contains(OFlags::EXCL) =>
            {
                return Err(Errno::EXIST);
            }
            TargetState::Found { identity: known, .. }
            | TargetState::Made { identity: known, .. } => {
                let file = self.open_at(wanted - (OFlags::CREATE | OFlags::EXCL), 0)?;
                let status = rustix::fs::fstat(&file)?;
                if identity(&status) != *known || status.st_nlink != 1 {
                    return Err(Errno::STALE);
                }
                if wanted.contains(OFlags::TRUNC) {
                    rustix::fs::ftruncate(&file, 0)?;
                }
                (file, TargetOrigin::Old)
            }
        };
        if let TargetState::Made { for_whom, .. } = &mut *there {
            *for_whom = CreatedBy::Somebody;
        }
        drop(there);
        if !wanted.contains(OFlags::NONBLOCK) {
            let kept = wanted & (OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME);
            rustix::fs::fcntl_setfl(&file, kept).inspect_err(|_| self.undo(origin))?;
        }
        Ok(WriteResult::Opened { file, origin })
    }

    fn make_directory(&self, mode: u32) -> Result<WriteResult, Errno> {
        rustix::fs::mkdirat(&self.directory, &self.name, Mode::from_raw_mode(mode))?;
        let (status, held) = held(&self.directory, &self.name)?;
        *self.there() = TargetState::Made {
            identity: identity(&status),
            _held: held,
            for_whom: CreatedBy::Somebody,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Our own mask is not the caller's. Without the right to read it, it stays as it is.
        if let Ok(made) = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            let inherited = Mode::from_raw_mode(status.st_mode) & Mode::SGID;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(mode) | inherited)?;
        }
        Ok(WriteResult::Made)
    }

    /// Takes away what was made for one who never heard of it, unless somebody has written to it.
    pub(crate) fn undo(&self, origin: TargetOrigin) {
        let mut there = self.there();
        let TargetState::Made { identity: made, .. } = *there else { return };
        if origin == TargetOrigin::Old {
            return;
        }
        let Ok((status, _)) = held(&self.directory, &self.name) else { return };
        let flags = if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        if identity(&status) == made && (status.st_size == 0 || flags == AtFlags::REMOVEDIR) {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, flags);
            *there = TargetState::Nothing;
        }
    }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

fn identity(status: &Stat) -> InodeId {
    (status.st_dev, status.st_ino)
}

/// What stands at a name, be it a link.
fn held(directory: &OwnedFd, name: &OsString) -> Result<(Stat, OwnedFd), Errno> {
    let held = rustix::fs::openat(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok((rustix::fs::fstat(&held)?, held))
}

/// Where a path leads on the host. A link at its end is one more step, unless the call says
/// that it must not be one.
fn real(path: &AbsPath, deed: WriteIntent) -> Option<AbsPath> {
    let keeps = match deed {
        WriteIntent::Open { flags, .. } => {
            OFlags::from_bits_retain(flags).intersects(OFlags::NOFOLLOW | OFlags::EXCL)
        }
        WriteIntent::MakeDirectory { .. } => true,
    };
    let whole = fs::canonicalize(path.as_path()).ok().filter(|_| !keeps);
    whole.and_then(AbsPath::new).or_else(|| {
        Some(AbsPath::new(fs::canonicalize(path.parent()?.as_path()).ok()?)?.join(path.name()?))
    })
}

fn found(path: &AbsPath, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::openat2(
        CWD,
        path.as_path(),
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )
    .ok()
}
