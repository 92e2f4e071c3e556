//! Executes syscalls for callers.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringfence_api::Operation;
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_sys::process::{self, Fork};
use ringfence_sys::{net, seccomp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::NotifyReply;
use super::caller::{NotifyCaller, UmaskCache};
use super::connect;
use super::creation_rules::CreationRules;
use super::hard_links::{Names, is_only_name_in};
use super::open_flags::{MODE_BITS, OpenRequest};
use super::predict::check_mount_point;
use super::proc_links;
use super::project_lock::LockMode;
use super::report::CreatedKind;
use super::resolve::{self, FinalSymlink, PathAnchor, PathResolution, PathSuffix, ResolvedParent};
use super::sockets;
use super::terminal::{is_own_terminal, is_terminal_of_caller};
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
    fn open(
        &mut self,
        directory: i32,
        path: usize,
        flags: i32,
        mode: u32,
    ) -> Result<NotifyReply, Errno> {
        if flags & libc::O_PATH != 0 {
            // `O_PATH` creates nothing, and is passed in a register.
            return Ok(NotifyReply::Continue);
        }
        let path = self.caller.string_arg(path)?;
        let start = resolve::start(self.caller, directory, &path)?;
        self.caller.ensure_waiting()?;
        if path.to_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR);
        }
        let request = OpenRequest::new(flags, mode);
        if request.flags.contains(OFlags::CREATE) {
            self.umasks.adopt(self.caller);
        }
        // No symlink in the path and a name that matters to no rule: one syscall, as the caller
        // would make it. It creates exactly the name that was read.
        if resolve::last_name(&path).is_some_and(|name| !self.rules.name_could_matter(name))
            && !self.rules.begins_in_git(&start)
            && !self.rules.may_enter_opened(self.caller, &start, &path)
        {
            // A new file has no other name and no content. If the last such open found an existing
            // file, the next one probably does too.
            if request.flags.contains(OFlags::CREATE | OFlags::TRUNC)
                && self.rules.expects_new
                && let Ok(made) = request.with_excl().open_at(start.as_fd(), &path)
            {
                self.rules.count_name();
                return request.with_excl().reply(made);
            }
            match request.open_at(start.as_fd(), &path) {
                Err(Errno::LOOP) => {}
                other => {
                    // A process that waits for the other end of a FIFO must not keep the caller's
                    // open file.
                    let may_wait =
                        request.may_wait_for_writer() || matches!(other, Err(Errno::NXIO));
                    let start =
                        if may_wait { PathAnchor::Opened(start.into_opened()?) } else { start };
                    self.rules.count_opened(&request, &other);
                    return self.opened(other, &request, start.as_fd(), &path);
                }
            }
        }
        let follow = if request.flags.intersects(OFlags::NOFOLLOW)
            || request.flags.contains(OFlags::CREATE | OFlags::EXCL)
        {
            FinalSymlink::Keep
        } else {
            FinalSymlink::Follow
        };
        match resolve::walk(self.caller, start, &path, follow)? {
            PathResolution::Open(through) => self.open_through(&through, &request),
            PathResolution::Place(place) => self.open_place(&place, request),
        }
    }

    fn open_place(
        &mut self,
        place: &ResolvedParent,
        request: OpenRequest,
    ) -> Result<NotifyReply, Errno> {
        self.rules.lock.take(self.hold);
        let exists = place.kind().is_some();
        // An existing file is opened, not created: if it vanishes meanwhile, the open fails instead
        // of creating an unchecked file. Masks decide about reading.
        if !exists && !request.flags.contains(OFlags::CREATE) {
            return Err(Errno::NOENT);
        } else if !exists {
            self.rules.check_create(self.caller, place, Operation::Create)?;
            self.rules.check_pointer(self.caller, place)?;
        } else if request.flags.contains(OFlags::CREATE | OFlags::EXCL) {
            return Err(Errno::EXIST);
        } else if request.writes() {
            self.rules.check_write(self.caller, place)?;
        }
        let name = CString::new(place.name.as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
        let request = if exists { request.without_create() } else { request };
        let opened = request.open_at(place.directory.as_fd(), &name);
        if !exists && opened.is_ok() {
            self.rules.note_created(self.caller, place);
        }
        self.rules.lock.release();
        self.opened(opened, &request, place.directory.as_fd(), &name)
    }

    /// Reopens the target of a magic link of `/proc`.
    fn open_through(
        &mut self,
        through: &OwnedFd,
        request: &OpenRequest,
    ) -> Result<NotifyReply, Errno> {
        if request.writes() {
            self.rules.check_write_open(self.caller, through)?;
            self.refuse_shared(through)?;
        }
        let through = format!("self/fd/{}", through.as_raw_fd());
        // Without blocking: a FIFO without another end gives an error.
        let flags =
            (request.flags - (OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW)) | OFlags::NONBLOCK;
        request.reply(rustix::fs::openat(self.caller.host_proc, through, flags, Mode::empty())?)
    }

    /// Denies opening for writing a file that also has a name outside: it has no name here that
    /// could get a copy. A caller that already has it open for writing gains nothing, for example
    /// through `/dev/stdout`.
    pub(super) fn refuse_shared(&mut self, through: &OwnedFd) -> Result<(), Errno> {
        let status = rustix::fs::fstat(through)?;
        if proc_links::writes_to(self.caller, &status)?
            || self.rules.names_of(self.caller, through, &status)? != Names::Outside
        {
            return Ok(());
        }
        Err(self.rules.refuse_shared(self.caller, through))
    }

    fn opened(
        &mut self,
        opened: Result<OwnedFd, Errno>,
        request: &OpenRequest,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<NotifyReply, Errno> {
        match opened {
            // A FIFO without another end: the caller wants to wait, the notify handler must not.
            Err(Errno::NXIO)
                if !request.flags.contains(OFlags::NONBLOCK) && is_pipe(start, path) =>
            {
                self.open_later(request, start, path)
            }
            Err(Errno::NXIO) if is_terminal_of_caller(start, path) => self.open_terminal(request),
            Err(error) => Err(error),
            Ok(opened) => {
                // The path has no symlink, so its last component is the file's name.
                if resolve::last_name(path).is_some_and(|name| name == "tty")
                    && is_own_terminal(&opened)
                {
                    return self.open_terminal(request);
                }
                let opened = if request.writes() {
                    self.prepare_writing(opened, request, start, path)?
                } else {
                    opened
                };
                // For a FIFO opened for reading it is unknown if there is a writer yet; for other
                // modes the fd is as the caller expects it.
                if request.may_wait_for_writer() {
                    let kind = FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode);
                    if kind == FileType::Fifo {
                        drop(opened);
                        return self.open_later(request, start, path);
                    }
                }
                request.reply(opened)
            }
        }
    }

    /// Opens in a child process, which may wait as long as the caller would. A child, not a thread:
    /// the supervisor's children are in another pid namespace than the supervisor itself.
    fn open_later(
        &self,
        request: &OpenRequest,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<NotifyReply, Errno> {
        let (request, id, listener) =
            (request.without_create(), self.caller.notification.id, self.caller.listener);
        match process::fork().map_err(|_| Errno::AGAIN)? {
            Fork::Parent(_) => Ok(NotifyReply::Later),
            Fork::Child => {
                let opened = if request.flags.contains(OFlags::WRONLY) {
                    self.wait_for_reader(&request, start, path)
                } else {
                    rustix::fs::openat2(
                        start,
                        path,
                        request.flags - OFlags::TRUNC,
                        Mode::empty(),
                        ResolveFlags::NO_SYMLINKS,
                    )
                    .map_err(|error| error.raw_os_error())
                };
                let _ = match opened {
                    Ok(opened) => {
                        seccomp::answer_with_fd(listener, id, opened.as_fd(), request.fd_flags())
                    }
                    Err(number) => seccomp::answer(listener, id, Err(number)),
                };
                process::exit_now(0)
            }
        }
    }

    /// Tries until the FIFO has a reader, the caller is gone, or a signal is pending for it.
    fn wait_for_reader(
        &self,
        request: &OpenRequest,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<OwnedFd, i32> {
        loop {
            match request.open_at(start, path) {
                Err(Errno::NXIO) => {}
                // A file that replaced the FIFO was not checked.
                Ok(opened) if !is_fifo(&opened) => return Err(libc::ENXIO),
                Ok(opened) => return request.clear_nonblock(opened).map_err(Errno::raw_os_error),
                Err(error) => return Err(error.raw_os_error()),
            }
            if self.caller.ensure_waiting().is_err() {
                process::exit_now(0);
            }
            if let Some(whose) = self.caller.pending_signal() {
                return Err(whose.number());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Resolves and checks the place of a name to be created.
    fn place(
        &mut self,
        directory: i32,
        path: usize,
        operation: Operation,
    ) -> Result<ResolvedParent, Errno> {
        let place = self.resolve(directory, path)?;
        self.rules.lock.take(self.hold);
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
        self.rules.check_remove(self.caller, &place)?;
        self.rules.note_unlink(&place);
        rustix::fs::unlinkat(&place.directory, place.name.as_os_str(), flags)
            .map(|()| NotifyReply::Value(0))
    }

    fn bind(&mut self, socket: i32, address: u64, length: u64) -> Result<NotifyReply, Errno> {
        const LONGEST: u64 = 128;
        if length > LONGEST {
            return Err(Errno::INVAL);
        }
        let address = self.caller.read_bytes(address, length as usize)?;
        let socket = self.caller.copy_fd(socket)?;
        self.caller.ensure_waiting()?;
        let family = address.get(..2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
        let path = address.get(2..).unwrap_or_default();
        let path = &path[..path.iter().position(|byte| *byte == 0).unwrap_or(path.len())];
        let bind = |address: &[u8]| {
            net::bind_raw(socket.as_fd(), address)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        if family != Some(libc::AF_UNIX as u16)
            && self.rules.has_egress()
            && !connect::is_sandbox_socket(&socket)?
        {
            return Err(Errno::INVAL);
        }
        if family != Some(libc::AF_UNIX as u16) || path.is_empty() {
            return bind(&address).map(|()| NotifyReply::Value(0));
        }
        self.umasks.adopt(self.caller);
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        // The address as written, so that `getsockname` returns it; but below `/proc`, `self` would
        // be the notify handler.
        let is_plain = !path.to_bytes().starts_with(b"/proc/");
        if is_plain
            && resolve::last_name(&path).is_some_and(|name| !self.rules.name_could_matter(name))
        {
            rustix::process::fchdir(self.caller.open_start(CWD_FD)?)?;
            self.caller.ensure_waiting()?;
            return bind(&address).map(|()| NotifyReply::Value(0)).inspect_err(|error| {
                let _ = self.rules.report_failed(
                    self.caller,
                    *error,
                    (CWD_FD, &path),
                    CreatedKind::Name,
                );
            });
        }
        let place = resolve::resolve_parent(self.caller, CWD_FD, &path)?;
        self.rules.lock.take(self.hold);
        self.rules.check_create(self.caller, &place, Operation::Create)?;
        rustix::process::fchdir(&place.directory)?;
        let name = place.name.as_encoded_bytes();
        bind(&[&(libc::AF_UNIX as u16).to_ne_bytes(), name, b"\0"].concat())
            .map(|()| NotifyReply::Value(0))
    }

    /// `socket` and `bind` of 32-bit programs, whose arguments are in memory.
    fn socketcall(&mut self) -> Result<NotifyReply, Errno> {
        const SOCKET: i32 = 1;
        const BIND: i32 = 2;
        let words = self.caller.read_bytes(self.caller.raw_arg(1), 12)?;
        let word = |i: usize| {
            u32::from_ne_bytes([words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]])
        };
        match self.caller.int_arg(0) {
            BIND => self.bind(word(0) as i32, word(1).into(), word(2).into()),
            SOCKET => {
                let (family, kind, protocol) = (word(0) as i32, word(1) as i32, word(2) as i32);
                let known = matches!(family, libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)
                    || (family == libc::AF_NETLINK && protocol == 0);
                if !known {
                    return Err(Errno::AFNOSUPPORT);
                }
                self.caller.ensure_waiting()?;
                let socket = net::socket(family, kind | libc::SOCK_CLOEXEC, protocol)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                Ok(NotifyReply::Descriptor(socket, (kind & libc::SOCK_CLOEXEC) as u32))
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// True if `place` is the file's only name.
fn is_only_name(place: &ResolvedParent, file: &OwnedFd) -> bool {
    rustix::fs::fstat(file)
        .is_ok_and(|status| is_only_name_in(place.directory.as_fd(), &place.name, &status))
}

fn is_fifo(opened: &OwnedFd) -> bool {
    rustix::fs::fstat(opened)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
}

fn is_pipe(start: BorrowedFd<'_>, path: &CStr) -> bool {
    status_of(start, path)
        .is_some_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
}

/// The status of the file at a path without symlinks.
pub(super) fn status_of(start: BorrowedFd<'_>, path: &CStr) -> Option<rustix::fs::Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there =
        rustix::fs::openat2(start, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    rustix::fs::fstat(there).ok()
}
