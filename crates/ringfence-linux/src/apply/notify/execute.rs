//! Executes syscalls for callers.

mod bind;
mod open;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringfence_api::Operation;
use ringfence_plan::seccomp::calls::{Arch, Call};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::NotifyReply;
use super::caller::{NotifyCaller, UmaskCache};
use super::creation_rules::CreationRules;
use super::gate::GateAccess;
use super::hard_links::is_only_name_in;
use super::open_flags::{MODE_BITS, OpenRequest};
use super::predict::check_mount_point;
use super::project_lock::LockMode;
use super::report::CreatedKind;
use super::resolve::{self, FinalSymlink, PathResolution, PathSuffix, ResolvedParent};
use super::sockets;
use crate::apply::WriteIntent;

const CWD_FD: i32 = libc::AT_FDCWD;

/// Executes `call` for `caller`, if the policy allows it.
pub(super) fn execute(
    call: Call,
    caller: &NotifyCaller<'_>,
    umasks: &mut UmaskCache,
    rules: &mut CreationRules,
) -> Result<NotifyReply, Errno> {
    rules.carries_tracked = false;
    let acted = dispatch(call, caller, umasks, rules);
    rules.lock.release();
    for (directory, path) in mount_point_args(call, acted.as_ref().err()) {
        if let Ok(Some(mounted)) = check_mount_point(
            caller,
            (directory.map_or(CWD_FD, |number| caller.int_arg(number)), *path),
        ) {
            rules.report_predicted(caller, &mounted);
        }
    }
    if let Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::XDEV)) =
        &acted
    {
        // Only a report: the syscall has failed in any case.
        let _ = report_failed(call, caller, rules, *error);
    }
    acted
}

fn report_failed(
    call: Call,
    caller: &NotifyCaller<'_>,
    rules: &mut CreationRules,
    error: Errno,
) -> Result<(), Errno> {
    let from = |directory: Option<usize>| directory.map_or(CWD_FD, |number| caller.int_arg(number));
    if let Some((directory, path)) = source_args(call)
        && !rules.check_source_exists(caller, from(directory), &caller.string_arg(path)?)?
    {
        return Ok(());
    }
    let Some((directory, path, making)) = created_args(call) else { return Ok(()) };
    rules.report_failed(caller, error, (from(directory), &caller.string_arg(path)?), making)
}

/// The arguments that name the source of a rename or link.
fn source_args(call: Call) -> Option<(Option<usize>, usize)> {
    match call {
        Call::Rename | Call::Link => Some((None, 0)),
        Call::Renameat | Call::Renameat2 | Call::Linkat => Some((Some(0), 1)),
        _ => None,
    }
}

/// The arguments that may name a mount point, which makes the syscall fail.
fn mount_point_args(call: Call, error: Option<&Errno>) -> &'static [(Option<usize>, usize)] {
    match (call, error) {
        (Call::Rename, Some(&Errno::BUSY)) => &[(None, 0), (None, 1)],
        (Call::Renameat | Call::Renameat2, Some(&Errno::BUSY)) => &[(Some(0), 1), (Some(2), 3)],
        // The new name would lie in another mount.
        (Call::Link, Some(&Errno::XDEV)) => &[(None, 0)],
        (Call::Linkat, Some(&Errno::XDEV)) => &[(Some(0), 1)],
        _ => &[],
    }
}

/// The part of a syscall about which the user can be asked: opening for writing, and creating a
/// file or a directory. Every other syscall stays denied: it involves two names, or removes data.
pub(super) fn write_intent(
    call: Call,
    caller: &NotifyCaller<'_>,
    umasks: &mut UmaskCache,
) -> Option<WriteIntent> {
    let (flags, mode) = match call {
        Call::Open => (caller.int_arg(1), caller.raw_arg(2)),
        Call::Creat => (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, caller.raw_arg(1)),
        Call::Openat => (caller.int_arg(2), caller.raw_arg(3)),
        Call::Mkdir => {
            return Some(WriteIntent::MakeDirectory {
                mode: caller.raw_arg(1) as u32 & MODE_BITS & !umasks.umask_for(caller),
            });
        }
        Call::Mkdirat => {
            return Some(WriteIntent::MakeDirectory {
                mode: caller.raw_arg(2) as u32 & MODE_BITS & !umasks.umask_for(caller),
            });
        }
        _ => return None,
    };
    let request = OpenRequest::new(flags, mode as u32);
    let is_plain = flags & (libc::O_PATH | libc::O_DIRECTORY) == 0;
    is_plain.then(|| WriteIntent::Open {
        flags: request.flags.bits(),
        mode: request.mode.as_raw_mode() & !umasks.umask_for(caller),
        on_execute: request.on_execute,
    })
}

/// The arguments that name the created file: directory, path, and kind.
fn created_args(call: Call) -> Option<(Option<usize>, usize, CreatedKind)> {
    use CreatedKind::{File, Name, Renamed};
    Some(match call {
        Call::Open | Call::Creat => (None, 0, File),
        Call::Openat => (Some(0), 1, File),
        Call::Mkdir | Call::Mknod => (None, 0, Name),
        Call::Mkdirat | Call::Mknodat => (Some(0), 1, Name),
        Call::Symlink | Call::Link => (None, 1, Name),
        Call::Symlinkat => (Some(1), 2, Name),
        Call::Linkat => (Some(2), 3, Name),
        Call::Rename => (None, 1, Renamed),
        Call::Renameat | Call::Renameat2 => (Some(2), 3, Renamed),
        _ => return None,
    })
}

fn dispatch(
    call: Call,
    caller: &NotifyCaller<'_>,
    umasks: &mut UmaskCache,
    rules: &mut CreationRules,
) -> Result<NotifyReply, Errno> {
    let mut proxy = SyscallProxy {
        caller,
        umasks,
        rules,
        hold: LockMode::for_call(call),
        began: sockets::now(),
    };
    let arch = Arch::from_audit_arch(caller.notification.arch);
    match call {
        Call::Open => proxy.open(CWD_FD, 0, caller.int_arg(1), caller.raw_arg(2) as u32),
        Call::Creat => proxy.open(
            CWD_FD,
            0,
            libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
            caller.raw_arg(1) as u32,
        ),
        Call::Openat => {
            proxy.open(caller.int_arg(0), 1, caller.int_arg(2), caller.raw_arg(3) as u32)
        }
        Call::Mkdir => proxy.mkdir(CWD_FD, 0, caller.raw_arg(1) as u32),
        Call::Mkdirat => proxy.mkdir(caller.int_arg(0), 1, caller.raw_arg(2) as u32),
        Call::Mknod => proxy.mknod(CWD_FD, 0, caller.raw_arg(1) as u32),
        Call::Mknodat => proxy.mknod(caller.int_arg(0), 1, caller.raw_arg(2) as u32),
        Call::Symlink => proxy.symlink(0, CWD_FD, 1),
        Call::Symlinkat => proxy.symlink(0, caller.int_arg(1), 2),
        Call::Link => proxy.link((CWD_FD, 0), (CWD_FD, 1), 0),
        Call::Linkat => {
            proxy.link((caller.int_arg(0), 1), (caller.int_arg(2), 3), caller.int_arg(4))
        }
        Call::Rename => proxy.rename((CWD_FD, 0), (CWD_FD, 1), 0),
        Call::Renameat => proxy.rename((caller.int_arg(0), 1), (caller.int_arg(2), 3), 0),
        Call::Renameat2 => {
            proxy.rename((caller.int_arg(0), 1), (caller.int_arg(2), 3), caller.raw_arg(4) as u32)
        }
        Call::Unlink => proxy.unlink(CWD_FD, 0, 0),
        Call::Unlinkat => proxy.unlink(caller.int_arg(0), 1, caller.int_arg(2)),
        Call::Rmdir => proxy.unlink(CWD_FD, 0, libc::AT_REMOVEDIR),
        Call::Bind => proxy.bind(caller.int_arg(0), caller.raw_arg(1), caller.raw_arg(2)),
        Call::Socketcall => proxy.socketcall(),
        Call::Truncate if arch == Some(Arch::X86) => proxy.truncate(caller.int_arg(1).into()),
        Call::Truncate => proxy.truncate(caller.raw_arg(1) as i64),
        Call::Truncate64 => {
            proxy.truncate((caller.raw_arg(1) & 0xffff_ffff | caller.raw_arg(2) << 32) as i64)
        }
        Call::Ioctl => proxy.set_flags(),
        _ => Err(Errno::NOSYS),
    }
}

/// Answers opens of `/dev/null`, and of `/dev/tty` by a process without a terminal.
pub(super) fn open_without_policy(caller: &NotifyCaller<'_>) -> Option<NotifyReply> {
    let call = Call::from_number(
        Arch::from_audit_arch(caller.notification.arch)?,
        caller.notification.call as u32,
    )?;
    let (path, flags) = match call {
        Call::Open => (0, caller.int_arg(1)),
        Call::Openat => (1, caller.int_arg(2)),
        _ => return None,
    };
    let is_plain = flags & (libc::O_PATH | libc::O_EXCL | libc::O_DIRECTORY) == 0;
    let path = caller.string_arg(path).ok().filter(|_| is_plain)?;
    if path.as_c_str() == c"/dev/tty" && caller.terminal(caller.pid())?.1 == 0 {
        return Some(NotifyReply::Error(libc::ENXIO));
    }
    if path.as_c_str() != c"/dev/null" {
        return None;
    }
    let request = OpenRequest::new(flags, 0).without_create();
    // It never blocks.
    let opened = rustix::fs::openat2(
        caller.fds.root().ok()?,
        c"dev/null",
        request.flags,
        request.mode,
        ResolveFlags::NO_SYMLINKS,
    );
    Some(NotifyReply::Descriptor(opened.ok()?, request.fd_flags()))
}

pub(super) struct SyscallProxy<'a, 'b> {
    pub(super) caller: &'a NotifyCaller<'b>,
    umasks: &'a mut UmaskCache,
    pub(super) rules: &'a mut CreationRules,
    /// Lock mode of the project lock for this syscall.
    pub(super) hold: LockMode,
    /// The time before anything was opened, by the file systems' clock.
    pub(super) began: Timespec,
}

impl SyscallProxy<'_, '_> {
    /// Resolves and checks the place of a name to be created.
    fn place(
        &mut self,
        directory: i32,
        path: usize,
        operation: Operation,
    ) -> Result<ResolvedParent, Errno> {
        let place = self.resolve(directory, path)?;
        self.rules.lock.take(self.hold);
        self.rules.check_mediated_parent(self.caller, &place)?;
        self.rules.check_create(self.caller, &place, operation)?;
        Ok(place)
    }

    fn resolve(&self, directory: i32, path: usize) -> Result<ResolvedParent, Errno> {
        let path = self.caller.string_arg(path)?;
        let place = resolve::resolve_parent(self.caller, directory, &path)?;
        self.caller.ensure_waiting()?;
        Ok(place)
    }

    /// Notes the created name and replies.
    fn done(
        &mut self,
        place: &ResolvedParent,
        result: Result<(), Errno>,
    ) -> Result<NotifyReply, Errno> {
        result?;
        self.rules.note_created(self.caller, place);
        Ok(NotifyReply::Value(0))
    }

    /// The same for a file that is not a directory: its path must not end in a slash.
    fn file_place(&mut self, directory: i32, path: usize) -> Result<ResolvedParent, Errno> {
        let place = self.place(directory, path, Operation::Create)?;
        self.rules.check_pointer(self.caller, &place)?;
        match (place.end, place.kind()) {
            (PathSuffix::Slash, None) => Err(Errno::NOENT),
            (PathSuffix::Slash, Some(_)) => Err(Errno::EXIST),
            (PathSuffix::Plain, _) => Ok(place),
        }
    }

    fn mkdir(&mut self, directory: i32, path: usize, mode: u32) -> Result<NotifyReply, Errno> {
        let place = self.place(directory, path, Operation::Create)?;
        self.rules.check_directory(self.caller, &place)?;
        self.umasks.adopt(self.caller);
        let made = rustix::fs::mkdirat(
            &place.directory,
            place.name.as_os_str(),
            Mode::from_raw_mode(mode & 0o7777),
        );
        self.done(&place, made)
    }

    fn mknod(&mut self, directory: i32, path: usize, mode: u32) -> Result<NotifyReply, Errno> {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileType::RegularFile,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            _ => return Err(Errno::PERM),
        };
        let place = self.file_place(directory, path)?;
        self.umasks.adopt(self.caller);
        let made = rustix::fs::mknodat(
            &place.directory,
            place.name.as_os_str(),
            kind,
            Mode::from_raw_mode(mode & MODE_BITS),
            0,
        );
        self.done(&place, made)
    }

    fn symlink(
        &mut self,
        target: usize,
        directory: i32,
        path: usize,
    ) -> Result<NotifyReply, Errno> {
        let target = self.caller.string_arg(target)?;
        let place = self.file_place(directory, path)?;
        self.rules.check_symlink(self.caller, &place)?;
        let made = rustix::fs::symlinkat(target, &place.directory, place.name.as_os_str());
        self.done(&place, made)
    }

    fn link(
        &mut self,
        old: (i32, usize),
        new: (i32, usize),
        flags: i32,
    ) -> Result<NotifyReply, Errno> {
        if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_FOLLOW) != 0 {
            return Err(Errno::INVAL);
        }
        let path = self.caller.string_arg(old.1)?;
        let (source, only_name) = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            (self.caller.open_start(old.0)?, None)
        } else {
            let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 {
                FinalSymlink::Follow
            } else {
                FinalSymlink::Keep
            };
            match resolve::walk(
                self.caller,
                resolve::start(self.caller, old.0, &path)?,
                &path,
                last,
            )? {
                PathResolution::Open(source) => (source, None),
                PathResolution::Place(place) => {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    (
                        rustix::fs::openat(
                            &place.directory,
                            place.name.as_os_str(),
                            flags,
                            Mode::empty(),
                        )?,
                        Some(place),
                    )
                }
            }
        };
        self.rules.check_mediated_link(self.caller, &source)?;
        let place = self.file_place(new.0, new.1)?;
        let host_proc = self.caller.host_proc;
        if self.rules.is_kept_from_links(host_proc, &source) {
            return Err(Errno::ACCESS);
        }
        if let Some(decision) = self.rules.protecting_decision(host_proc, &source) {
            self.rules.refuse(self.caller, Operation::Rename, &decision);
            return Err(Errno::ACCESS);
        }
        if FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_symlink() {
            self.rules.check_symlink(self.caller, &place)?;
        }
        let is_inside = only_name.is_some_and(|name| is_only_name(&name, &source))
            || self.rules.is_inside(&source);
        let name = format!("self/fd/{}", source.as_raw_fd());
        let made = rustix::fs::linkat(
            self.caller.host_proc,
            name,
            &place.directory,
            place.name.as_os_str(),
            AtFlags::SYMLINK_FOLLOW,
        );
        if made.is_ok() && is_inside {
            self.rules.note_linked_inside(&source);
        }
        self.done(&place, made)
    }

    fn rename(
        &mut self,
        old: (i32, usize),
        new: (i32, usize),
        flags: u32,
    ) -> Result<NotifyReply, Errno> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let path = self.caller.string_arg(old.1)?;
        // `.` and `..` may be a working directory and cannot be renamed.
        let busy = |error| if error == Errno::EXIST { Errno::BUSY } else { error };
        let source = resolve::resolve_parent(self.caller, old.0, &path).map_err(busy)?;
        let target = self.resolve(new.0, new.1).map_err(busy);
        self.rules.lock.take(self.hold);
        if let Ok(target) = &target {
            self.rules.check_mediated_rename(self.caller, &source, target)?;
        }
        self.rules.check_move_away(self.caller, &source)?;
        let target = target?;
        if let Some(reply) = self.replace_config(&source, &target, flags)? {
            return Ok(reply);
        }
        self.rules.note_rename_source(self.caller, &source);
        self.rules.check_create(self.caller, &target, Operation::Rename)?;
        self.rules.check_move(self.caller, &source, &target)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            self.rules.check_move(self.caller, &target, &source)?;
        }
        let is_slashed = source.end == PathSuffix::Slash || target.end == PathSuffix::Slash;
        if is_slashed && source.kind().is_some_and(|kind| kind != FileType::Directory) {
            return Err(Errno::NOTDIR);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            self.rules.check_move_away(self.caller, &target)?;
            self.rules.check_create(self.caller, &source, Operation::Rename)?;
        }
        self.rules.note_unlink(&target);
        let is_swapped =
            flags.contains(RenameFlags::EXCHANGE) && self.rules.is_packed_refs(&source);
        if is_swapped || self.rules.is_packed_refs(&target) {
            return self.rename_refs(&source, &target, flags);
        }
        // Every checkout replaces the existing `HEAD`.
        let is_new_head = target.name == "HEAD"
            && target.kind() == Some(FileType::RegularFile)
            && flags.is_empty();
        let renamed = rustix::fs::renameat_with(
            &source.directory,
            source.name.as_os_str(),
            &target.directory,
            target.name.as_os_str(),
            flags,
        );
        if is_new_head {
            return renamed.map(|()| NotifyReply::Value(0));
        }
        if renamed.is_ok() && flags.contains(RenameFlags::EXCHANGE) {
            self.rules.note_created(self.caller, &source);
        }
        self.done(&target, renamed)
    }

    fn unlink(&mut self, directory: i32, path: usize, flags: i32) -> Result<NotifyReply, Errno> {
        let flags = AtFlags::from_bits(flags as u32)
            .filter(|flags| (*flags - AtFlags::REMOVEDIR).is_empty())
            .ok_or(Errno::INVAL)?;
        let path = self.caller.string_arg(path)?;
        let unnamed = |error| match (error, path.to_bytes().ends_with(b"..")) {
            (Errno::EXIST, true) => Errno::NOTEMPTY,
            (Errno::EXIST, false) => Errno::INVAL,
            (error, _) => error,
        };
        let place = resolve::resolve_parent(self.caller, directory, &path).map_err(unnamed)?;
        self.caller.ensure_waiting()?;
        if place.end == PathSuffix::Slash && !flags.contains(AtFlags::REMOVEDIR) {
            return Err(if place.kind() == Some(FileType::Directory) {
                Errno::ISDIR
            } else {
                Errno::NOTDIR
            });
        }
        let (change, write) = (GateAccess::Change, Operation::Write);
        self.rules.check_mediated_place(self.caller, &place, change, write)?;
        self.rules.check_remove(self.caller, &place)?;
        self.rules.note_unlink(&place);
        rustix::fs::unlinkat(&place.directory, place.name.as_os_str(), flags)
            .map(|()| NotifyReply::Value(0))
    }
}

/// True if `place` is the file's only name.
fn is_only_name(place: &ResolvedParent, file: &OwnedFd) -> bool {
    rustix::fs::fstat(file)
        .is_ok_and(|status| is_only_name_in(place.directory.as_fd(), &place.name, &status))
}

/// The status of the file at a path without symlinks.
pub(super) fn status_of(start: BorrowedFd<'_>, path: &CStr) -> Option<rustix::fs::Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there =
        rustix::fs::openat2(start, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    rustix::fs::fstat(there).ok()
}
