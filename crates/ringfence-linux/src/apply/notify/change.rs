//! Syscalls that change the content or the flags of an existing file.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::inode::inode_id;
use crate::open::open_at;

use ringfence_api::{Denial, Operation};
use rustix::fs::{AtFlags, FileType, IFlags, Mode, OFlags, Stat, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::creation_rules::path_of_directory;
use super::execute::SyscallProxy;
use super::gate::GateAccess;
use super::hard_links::{Names, is_only_name_in, is_settled};
use super::open_flags::{MODE_BITS, OpenRequest};
use super::resolve::{self, FinalSymlink, PathAnchor, PathResolution, ResolvedParent};

/// Largest file that is copied: every other syscall waits meanwhile.
const LARGEST: i64 = 256 << 20;

/// `FS_CASEFOLD_FL`.
const IGNORES_CASE: IFlags = IFlags::from_bits_retain(0x4000_0000);

/// Content of a separated copy: kept, or dropped for `O_TRUNC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileContent {
    Kept,
    Dropped,
}

impl SyscallProxy<'_, '_> {
    /// Checks a file that was opened for writing at `path`, and truncates it if the caller asked
    /// for it.
    ///
    /// A file that also has names outside the writable trees is not written: its name here gets a
    /// copy of its own, as after `cp`. Tools that fill a project with hard links use them as
    /// copies; denying the write would break programs that work without a sandbox.
    pub(super) fn prepare_writing(
        &mut self,
        opened: OwnedFd,
        request: &OpenRequest,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<OwnedFd, Errno> {
        let status = rustix::fs::fstat(&opened)?;
        self.rules.check_still_linked(self.caller, &opened, &status)?;
        // A newly created name is the only one.
        let is_new = request.flags.contains(OFlags::CREATE | OFlags::EXCL);
        let is_own =
            is_new || is_settled(&status, self.began) || is_named_only(start, path, &status);
        let is_shared =
            !is_own && self.rules.names_of(self.caller, &opened, &status)? == Names::Outside;
        self.rules.expects_new = is_untouched(&status);
        if !is_shared {
            request.truncate(self.caller.host_proc, &opened, &status)?;
            return Ok(opened);
        }
        let content = if request.flags.contains(OFlags::TRUNC) {
            FileContent::Dropped
        } else {
            FileContent::Kept
        };
        let separated = resolve::resolve_without_symlinks(start, path).and_then(|place| {
            self.separate(&place, &opened, content)?;
            let name = CString::new(place.name.as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
            request.without_create().open_at(place.directory.as_fd(), &name)
        });
        separated.map_err(|_| self.rules.refuse_shared(self.caller, &opened))
    }

    /// Replaces `shared` at its name by a copy, so that its other names keep the file.
    fn separate(
        &mut self,
        place: &ResolvedParent,
        shared: &OwnedFd,
        content: FileContent,
    ) -> Result<(), Errno> {
        let status = rustix::fs::fstat(shared)?;
        let is_ours = status.st_uid == rustix::process::geteuid().as_raw();
        if !is_ours || (content == FileContent::Kept && status.st_size > LARGEST) {
            return Err(Errno::ACCESS);
        }
        if content == FileContent::Kept {
            self.rules.count_copy(status.st_size.unsigned_abs())?;
        }
        let name = format!(".ringfence-{:x}-{:x}", status.st_ino, self.caller.notification.id);
        if self.rules.name_could_matter(name.as_ref()) {
            return Err(Errno::ACCESS);
        }
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy =
            rustix::fs::openat(&place.directory, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let copied = copy_to(&copy, place, &status, content).and_then(|()| {
            rustix::fs::renameat(
                &place.directory,
                name.as_str(),
                &place.directory,
                place.name.as_os_str(),
            )
        });
        if copied.is_err() {
            let _ = rustix::fs::unlinkat(&place.directory, name.as_str(), AtFlags::empty());
        }
        copied
    }

    /// `truncate` by a path: opens the file, checks it, and truncates it.
    pub(super) fn truncate(&mut self, length: i64) -> Result<NotifyReply, Errno> {
        let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
        let path = self.caller.string_arg(0)?;
        let start = resolve::start(self.caller, libc::AT_FDCWD, &path)?;
        self.caller.ensure_waiting()?;
        let opened = self.open_to_truncate(start, &path)?;
        let size = rustix::fs::fstat(&opened)?.st_size;
        // The notify handler's own RLIMIT_FSIZE is not the caller's.
        if length > size.unsigned_abs()
            && self.caller.largest_file().is_some_and(|largest| length > largest)
        {
            return Err(Errno::FBIG);
        }
        rustix::fs::ftruncate(&opened, length).map(|()| NotifyReply::Value(0))
    }

    /// Opens the file as [`SyscallProxy::open`] does: in one syscall, if the path has no symlink
    /// and the name matters to no rule.
    fn open_to_truncate(&mut self, start: PathAnchor<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        let request = OpenRequest::new(libc::O_WRONLY | libc::O_NONBLOCK, 0);
        if !self.rules.is_mediated()
            && resolve::last_name(path).is_some_and(|name| !self.rules.name_could_matter(name))
            && !self.rules.begins_in_git(&start)
        {
            match request.open_at(start.as_fd(), path) {
                Err(Errno::LOOP) => {}
                Err(Errno::NXIO) => return Err(Errno::INVAL),
                opened => {
                    return self.prepare_writing(
                        require_regular_file(opened?)?,
                        &request,
                        start.as_fd(),
                        path,
                    );
                }
            }
        }
        match resolve::walk(self.caller, start, path, FinalSymlink::Follow)? {
            PathResolution::Place(place) => {
                self.rules.lock.take(self.hold);
                match place.kind() {
                    Some(FileType::RegularFile) => {}
                    Some(FileType::Directory) => return Err(Errno::ISDIR),
                    Some(_) => return Err(Errno::INVAL),
                    None => return Err(Errno::NOENT),
                }
                let (write, operation) = (GateAccess::Write, Operation::Write);
                self.rules.check_mediated_place(self.caller, &place, write, operation)?;
                self.rules.check_write(self.caller, &place)?;
                let name = CString::new(place.name.as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
                let opened =
                    require_regular_file(request.open_at(place.directory.as_fd(), &name)?)?;
                self.rules.lock.release();
                self.prepare_writing(opened, &request, place.directory.as_fd(), &name)
            }
            PathResolution::Open(through) => {
                self.rules.check_mediated_reopen(self.caller, &through, &request)?;
                self.rules.check_write_open(self.caller, &through)?;
                self.refuse_shared(&through)?;
                let through = format!("self/fd/{}", through.as_raw_fd());
                require_regular_file(rustix::fs::openat(
                    self.caller.host_proc,
                    through,
                    request.flags,
                    Mode::empty(),
                )?)
            }
        }
    }

    /// `FS_IOC_SETFLAGS`: everything except making a directory ignore case, because rules are
    /// case-sensitive.
    pub(super) fn set_flags(&mut self) -> Result<NotifyReply, Errno> {
        let file = self.caller.copy_fd(self.caller.int_arg(0))?;
        let word = self.caller.read_bytes(self.caller.raw_arg(2), 4)?;
        self.caller.ensure_waiting()?;
        let flags =
            IFlags::from_bits_retain(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        if flags.contains(IGNORES_CASE)
            && !rustix::fs::ioctl_getflags(&file)?.contains(IGNORES_CASE)
        {
            let path = path_of_directory(self.caller.host_proc, file.as_fd())?;
            self.rules.refuse_since(
                self.caller,
                Operation::Write,
                &path,
                Denial::CASEFOLD_DIRECTORY,
            );
            return Err(Errno::PERM);
        }
        rustix::fs::ioctl_setflags(&file, flags).map(|()| NotifyReply::Value(0))
    }
}

/// True if `path` is still the only name of the file that was opened by it.
fn is_named_only(start: BorrowedFd<'_>, path: &CStr, status: &Stat) -> bool {
    if status.st_nlink != 1 || FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return false;
    }
    match resolve::last_name(path) {
        Some(name) if name.len() == path.count_bytes() => is_only_name_in(start, name, status),
        Some(name) => resolve::resolve_without_symlinks(start, path)
            .is_ok_and(|place| is_only_name_in(place.directory.as_fd(), name, status)),
        None => false,
    }
}

/// True if the file is unchanged since its creation.
pub(super) fn is_untouched(status: &Stat) -> bool {
    let times = [
        (status.st_atime, status.st_atime_nsec),
        (status.st_mtime, status.st_mtime_nsec),
        (status.st_ctime, status.st_ctime_nsec),
    ];
    status.st_size == 0 && times[0] == times[1] && times[1] == times[2]
}

/// Passes on a regular file; everything else fails with EINVAL, because it cannot be truncated.
fn require_regular_file(opened: OwnedFd) -> Result<OwnedFd, Errno> {
    match FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode) {
        FileType::RegularFile => Ok(opened),
        _ => Err(Errno::INVAL),
    }
}

/// Copies content, owner, attributes, mode and times of the file at `place` to `copy`.
fn copy_to(
    copy: &OwnedFd,
    place: &ResolvedParent,
    status: &Stat,
    content: FileContent,
) -> Result<(), Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let source = open_at(
        &place.directory,
        place.name.as_os_str(),
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK,
    )?;
    let found = rustix::fs::fstat(&source)?;
    if inode_id(&found) != inode_id(status) {
        return Err(Errno::AGAIN);
    }
    if content == FileContent::Kept && rustix::fs::ioctl_ficlone(copy, &source).is_err() {
        let (mut from, mut to) = (
            File::from(source.try_clone().map_err(failed)?),
            File::from(copy.try_clone().map_err(failed)?),
        );
        std::io::copy(&mut from, &mut to).map_err(failed)?;
    }
    copy_attributes(&source, copy)?;
    let mut mode = Mode::from_raw_mode(status.st_mode & MODE_BITS);
    let is_of_group = rustix::fs::fstat(copy)?.st_gid == status.st_gid;
    if !is_of_group
        && rustix::fs::fchown(copy, None, Some(rustix::fs::Gid::from_raw(status.st_gid))).is_err()
    {
        // Group permissions must not apply to another group.
        mode -= Mode::RWXG;
    }
    rustix::fs::fchmod(copy, mode)?;
    if content == FileContent::Kept {
        let last_access =
            Timespec { tv_sec: status.st_atime as _, tv_nsec: status.st_atime_nsec as _ };
        let last_modification =
            Timespec { tv_sec: status.st_mtime as _, tv_nsec: status.st_mtime_nsec as _ };
        rustix::fs::futimens(copy, &Timestamps { last_access, last_modification })?;
    }
    Ok(())
}

/// Copies user attributes and the access control list. The kernel sets the others: labels, and
/// capabilities, which a write removes.
fn copy_attributes(source: &OwnedFd, copy: &OwnedFd) -> Result<(), Errno> {
    const LARGEST: usize = 64 << 10;
    let mut names = vec![0; LARGEST];
    let length = match rustix::fs::flistxattr(source, names.as_mut_slice()) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        length => length?,
    };
    for name in names[..length].split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") && name != b"system.posix_acl_access" {
            continue;
        }
        let mut value = vec![0; LARGEST];
        let length = rustix::fs::fgetxattr(source, name, value.as_mut_slice())?;
        rustix::fs::fsetxattr(copy, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}
