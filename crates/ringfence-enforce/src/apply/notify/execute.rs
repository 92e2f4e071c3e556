//! The calls themselves.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringfence_api::Operation;
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
use super::open_flags::{PLAIN, Wish};
use super::predict::held;
use super::proc_links;
use super::project_lock::Hold;
use super::report::CreatedKind;
use super::resolve::{self, FinalSymlink, PathAnchor, PathResolution, PathSuffix, ResolvedParent};
use super::sockets;
use super::terminal::{is_own_terminal, is_terminal_of_caller};
use crate::apply::WriteIntent;
use crate::seccomp::calls::{Arch, Call};

const HERE: i32 = libc::AT_FDCWD;

/// Carries out `call` for `caller`, if it may.
pub(super) fn act(
    call: Call,
    caller: &NotifyCaller<'_>,
    masks: &mut UmaskCache,
    judge: &mut CreationRules,
) -> Result<NotifyReply, Errno> {
    judge.carries_tracked = false;
    let acted = carry_out(call, caller, masks, judge);
    judge.lock.release();
    for (directory, path) in held_by(call, acted.as_ref().err()) {
        if let Ok(Some(held)) =
            held(caller, (directory.map_or(HERE, |number| caller.int(number)), *path))
        {
            judge.foreseen(caller, &held);
        }
    }
    if let Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::XDEV)) =
        &acted
    {
        // Only to be told: whatever it was, it has failed.
        let _ = tell_failed(call, caller, judge, *error);
    }
    acted
}

fn tell_failed(
    call: Call,
    caller: &NotifyCaller<'_>,
    judge: &mut CreationRules,
    error: Errno,
) -> Result<(), Errno> {
    let from = |directory: Option<usize>| directory.map_or(HERE, |number| caller.int(number));
    if let Some((directory, path)) = source(call)
        && !judge.finds(caller, from(directory), &caller.text(path)?)?
    {
        return Ok(());
    }
    let Some((directory, path, making)) = form(call) else { return Ok(()) };
    judge.failed(caller, error, (from(directory), &caller.text(path)?), making)
}

/// Where a call says to what it gives a name.
fn source(call: Call) -> Option<(Option<usize>, usize)> {
    match call {
        Call::Rename | Call::Link => Some((None, 0)),
        Call::Renameat | Call::Renameat2 | Call::Linkat => Some((Some(0), 1)),
        _ => None,
    }
}

/// Which names of a call may have let it fail because a mount stands on them.
fn held_by(call: Call, error: Option<&Errno>) -> &'static [(Option<usize>, usize)] {
    match (call, error) {
        (Call::Rename, Some(&Errno::BUSY)) => &[(None, 0), (None, 1)],
        (Call::Renameat | Call::Renameat2, Some(&Errno::BUSY)) => &[(Some(0), 1), (Some(2), 3)],
        // Another name would be in another mount.
        (Call::Link, Some(&Errno::XDEV)) => &[(None, 0)],
        (Call::Linkat, Some(&Errno::XDEV)) => &[(Some(0), 1)],
        _ => &[],
    }
}

/// What somebody could be asked to let this call do: opening to write, and making a file or a
/// directory. All else stays refused: it is about two names at a time, or about what is there
/// and would be gone.
pub(super) fn deed(
    call: Call,
    caller: &NotifyCaller<'_>,
    masks: &mut UmaskCache,
) -> Option<WriteIntent> {
    let (flags, mode) = match call {
        Call::Open => (caller.int(1), caller.raw(2)),
        Call::Creat => (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, caller.raw(1)),
        Call::Openat => (caller.int(2), caller.raw(3)),
        Call::Mkdir => {
            return Some(WriteIntent::MakeDirectory {
                mode: caller.raw(1) as u32 & PLAIN & !masks.of(caller),
            });
        }
        Call::Mkdirat => {
            return Some(WriteIntent::MakeDirectory {
                mode: caller.raw(2) as u32 & PLAIN & !masks.of(caller),
            });
        }
        _ => return None,
    };
    let wish = Wish::new(flags, mode as u32);
    let is_plain = flags & (libc::O_PATH | libc::O_DIRECTORY) == 0;
    is_plain.then(|| WriteIntent::Open {
        flags: wish.flags.bits(),
        mode: wish.mode.as_raw_mode() & !masks.of(caller),
        on_execute: wish.on_execute,
    })
}

/// Where a call says what it makes: the directory, the path, and what making that is.
fn form(call: Call) -> Option<(Option<usize>, usize, CreatedKind)> {
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

fn carry_out(
    call: Call,
    caller: &NotifyCaller<'_>,
    masks: &mut UmaskCache,
    judge: &mut CreationRules,
) -> Result<NotifyReply, Errno> {
    let mut acts =
        SyscallProxy { caller, masks, judge, hold: Hold::of(call), began: sockets::now() };
    let arch = Arch::from_audit(caller.notification.arch);
    match call {
        Call::Open => acts.open(HERE, 0, caller.int(1), caller.raw(2) as u32),
        Call::Creat => {
            acts.open(HERE, 0, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, caller.raw(1) as u32)
        }
        Call::Openat => acts.open(caller.int(0), 1, caller.int(2), caller.raw(3) as u32),
        Call::Mkdir => acts.mkdir(HERE, 0, caller.raw(1) as u32),
        Call::Mkdirat => acts.mkdir(caller.int(0), 1, caller.raw(2) as u32),
        Call::Mknod => acts.mknod(HERE, 0, caller.raw(1) as u32),
        Call::Mknodat => acts.mknod(caller.int(0), 1, caller.raw(2) as u32),
        Call::Symlink => acts.symlink(0, HERE, 1),
        Call::Symlinkat => acts.symlink(0, caller.int(1), 2),
        Call::Link => acts.link((HERE, 0), (HERE, 1), 0),
        Call::Linkat => acts.link((caller.int(0), 1), (caller.int(2), 3), caller.int(4)),
        Call::Rename => acts.rename((HERE, 0), (HERE, 1), 0),
        Call::Renameat => acts.rename((caller.int(0), 1), (caller.int(2), 3), 0),
        Call::Renameat2 => {
            acts.rename((caller.int(0), 1), (caller.int(2), 3), caller.raw(4) as u32)
        }
        Call::Unlink => acts.unlink(HERE, 0, 0),
        Call::Unlinkat => acts.unlink(caller.int(0), 1, caller.int(2)),
        Call::Rmdir => acts.unlink(HERE, 0, libc::AT_REMOVEDIR),
        Call::Bind => acts.bind(caller.int(0), caller.raw(1), caller.raw(2)),
        Call::Socketcall => acts.socketcall(),
        Call::Truncate if arch == Some(Arch::X86) => acts.truncate(caller.int(1).into()),
        Call::Truncate => acts.truncate(caller.raw(1) as i64),
        Call::Truncate64 => {
            acts.truncate((caller.raw(1) & 0xffff_ffff | caller.raw(2) << 32) as i64)
        }
        Call::Ioctl => acts.set_flags(),
        _ => Err(Errno::NOSYS),
    }
}

/// Opens `/dev/null`, if that is what is wanted, or the terminal of somebody who has none.
pub(super) fn open_nothing(caller: &NotifyCaller<'_>) -> Option<NotifyReply> {
    let call = Call::from_number(
        Arch::from_audit(caller.notification.arch)?,
        caller.notification.call as u32,
    )?;
    let (path, flags) = match call {
        Call::Open => (0, caller.int(1)),
        Call::Openat => (1, caller.int(2)),
        _ => return None,
    };
    let is_plain = flags & (libc::O_PATH | libc::O_EXCL | libc::O_DIRECTORY) == 0;
    let path = caller.text(path).ok().filter(|_| is_plain)?;
    if path.as_c_str() == c"/dev/tty" && caller.terminal(caller.pid())?.1 == 0 {
        return Some(NotifyReply::Error(libc::ENXIO));
    }
    if path.as_c_str() != c"/dev/null" {
        return None;
    }
    let wish = Wish::new(flags, 0).without_making();
    // Nobody ever waits for it.
    let opened = rustix::fs::openat2(
        caller.at_hand.root().ok()?,
        c"dev/null",
        wish.flags,
        wish.mode,
        ResolveFlags::NO_SYMLINKS,
    );
    Some(NotifyReply::Descriptor(opened.ok()?, wish.target_flags()))
}

pub(super) struct SyscallProxy<'a, 'b> {
    pub(super) caller: &'a NotifyCaller<'b>,
    masks: &'a mut UmaskCache,
    pub(super) judge: &'a mut CreationRules,
    /// How the call holds the project's lock.
    pub(super) hold: Hold,
    /// The time before anything was opened, by the clock of file systems.
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
            // Makes nothing, whatever else it says, and says so in a register.
            return Ok(NotifyReply::Through);
        }
        let path = self.caller.text(path)?;
        let start = resolve::start(self.caller, directory, &path)?;
        self.caller.still_waits()?;
        if path.to_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR);
        }
        let wish = Wish::new(flags, mode);
        if wish.flags.contains(OFlags::CREATE) {
            self.masks.put_on(self.caller);
        }
        // No link on the way and a name that matters to nobody: one call, as the caller
        // would have made it. The name made is the one read, whatever happens meanwhile.
        if resolve::last_name(&path).is_some_and(|name| !self.judge.is_interesting(name))
            && !self.judge.begins_in_git(&start)
            && !self.judge.may_enter_opened(self.caller, &start, &path)
        {
            // What is new has no other name and nothing to take away. What was there the last time
            // is likely to be there again.
            if wish.flags.contains(OFlags::CREATE | OFlags::TRUNC)
                && self.judge.expects_new
                && let Ok(made) = wish.exclusively().open_at(start.as_fd(), &path)
            {
                self.judge.took_name();
                return wish.exclusively().reply(made);
            }
            match wish.open_at(start.as_fd(), &path) {
                Err(Errno::LOOP) => {}
                other => {
                    // Whoever waits for the other end of a pipe must not keep what the caller has
                    // open.
                    let may_wait = wish.only_reads() || matches!(other, Err(Errno::NXIO));
                    let start =
                        if may_wait { PathAnchor::Opened(start.into_opened()?) } else { start };
                    self.judge.count_opened(&wish, &other);
                    return self.opened(other, &wish, start.as_fd(), &path);
                }
            }
        }
        let follow = if wish.flags.intersects(OFlags::NOFOLLOW)
            || wish.flags.contains(OFlags::CREATE | OFlags::EXCL)
        {
            FinalSymlink::Keep
        } else {
            FinalSymlink::Follow
        };
        match resolve::walk(self.caller, start, &path, follow)? {
            PathResolution::Open(through) => self.open_through(&through, &wish),
            PathResolution::Place(place) => self.open_place(&place, wish),
        }
    }

    fn open_place(&mut self, place: &ResolvedParent, wish: Wish) -> Result<NotifyReply, Errno> {
        self.judge.lock.take(self.hold);
        let exists = place.kind().is_some();
        // What exists is opened, not made: should it vanish meanwhile, the call fails
        // rather than making it anew unjudged. Its covers decide who may read it.
        if !exists && !wish.flags.contains(OFlags::CREATE) {
            return Err(Errno::NOENT);
        } else if !exists {
            self.judge.make(self.caller, place, Operation::Create)?;
            self.judge.point(self.caller, place)?;
        } else if wish.flags.contains(OFlags::CREATE | OFlags::EXCL) {
            return Err(Errno::EXIST);
        } else if wish.writes() {
            self.judge.write(self.caller, place)?;
        }
        let name = CString::new(place.name.as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
        let wish = if exists { wish.without_making() } else { wish };
        let opened = wish.open_at(place.directory.as_fd(), &name);
        if !exists && opened.is_ok() {
            self.judge.made(self.caller, place);
        }
        self.judge.lock.release();
        self.opened(opened, &wish, place.directory.as_fd(), &name)
    }

    /// Opens again what one of `/proc`'s links leads to.
    fn open_through(&mut self, through: &OwnedFd, wish: &Wish) -> Result<NotifyReply, Errno> {
        if wish.writes() {
            self.judge.write_open(self.caller, through)?;
            self.refuse_shared(through)?;
        }
        let through = format!("self/fd/{}", through.as_raw_fd());
        // Without waiting: a pipe without another end is refused, not waited for.
        let flags =
            (wish.flags - (OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW)) | OFlags::NONBLOCK;
        wish.reply(rustix::fs::openat(self.caller.host_proc, through, flags, Mode::empty())?)
    }

    /// Refuses to open a file for writing that has a name outside: it has none here that could be
    /// given a copy. A caller that has it open for writing gains nothing, such as by `/dev/stdout`.
    pub(super) fn refuse_shared(&mut self, through: &OwnedFd) -> Result<(), Errno> {
        let status = rustix::fs::fstat(through)?;
        if proc_links::writes_to(self.caller, &status)?
            || self.judge.names_of(self.caller, through, &status)? != Names::Outside
        {
            return Ok(());
        }
        Err(self.judge.refuse_shared(self.caller, through))
    }

    fn opened(
        &mut self,
        opened: Result<OwnedFd, Errno>,
        wish: &Wish,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<NotifyReply, Errno> {
        match opened {
            // A pipe without another end: the caller wants to wait for one, we cannot.
            Err(Errno::NXIO) if !wish.flags.contains(OFlags::NONBLOCK) && is_pipe(start, path) => {
                self.open_later(wish, start, path)
            }
            Err(Errno::NXIO) if is_terminal_of_caller(start, path) => self.open_terminal(wish),
            Err(error) => Err(error),
            Ok(opened) => {
                // Through no link, so it bears its name.
                if resolve::last_name(path).is_some_and(|name| name == "tty")
                    && is_own_terminal(&opened)
                {
                    return self.open_terminal(wish);
                }
                let opened = if wish.writes() {
                    self.prepare_writing(opened, wish, start, path)?
                } else {
                    opened
                };
                // Opened for reading, a pipe does not tell whether it has a writer yet; in
                // the other directions it is open as the caller would have had it.
                if wish.only_reads() {
                    let kind = FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode);
                    if kind == FileType::Fifo {
                        drop(opened);
                        return self.open_later(wish, start, path);
                    }
                }
                wish.reply(opened)
            }
        }
    }

    /// Opens in a process of its own, which may wait as long as the caller would have. (Not
    /// in a thread: the warden's children are in another process namespace than it is.)
    fn open_later(
        &self,
        wish: &Wish,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<NotifyReply, Errno> {
        let (wish, id, listener) =
            (wish.without_making(), self.caller.notification.id, self.caller.listener);
        match process::fork().map_err(|_| Errno::AGAIN)? {
            Fork::Parent(_) => Ok(NotifyReply::Later),
            Fork::Child => {
                let opened = if wish.flags.contains(OFlags::WRONLY) {
                    self.wait_for_reader(&wish, start, path)
                } else {
                    rustix::fs::openat2(
                        start,
                        path,
                        wish.flags - OFlags::TRUNC,
                        Mode::empty(),
                        ResolveFlags::NO_SYMLINKS,
                    )
                    .map_err(|error| error.raw_os_error())
                };
                let _ = match opened {
                    Ok(opened) => {
                        seccomp::answer_with(listener, id, opened.as_fd(), wish.target_flags())
                    }
                    Err(number) => seccomp::answer(listener, id, Err(number)),
                };
                process::exit_now(0)
            }
        }
    }

    /// Tries until the pipe has a reader, the caller is gone, or a signal waits for it.
    fn wait_for_reader(
        &self,
        wish: &Wish,
        start: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<OwnedFd, i32> {
        loop {
            match wish.open_at(start, path) {
                Err(Errno::NXIO) => {}
                // Whatever took the pipe's place was not judged.
                Ok(opened) if !is_fifo(&opened) => return Err(libc::ENXIO),
                Ok(opened) => return wish.unblocked(opened).map_err(Errno::raw_os_error),
                Err(error) => return Err(error.raw_os_error()),
            }
            if self.caller.still_waits().is_err() {
                process::exit_now(0);
            }
            if let Some(whose) = self.caller.signal() {
                return Err(whose.number());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The place a name will be made at, judged.
    fn place(
        &mut self,
        directory: i32,
        path: usize,
        operation: Operation,
    ) -> Result<ResolvedParent, Errno> {
        let place = self.resolve(directory, path)?;
        self.judge.lock.take(self.hold);
        self.judge.make(self.caller, &place, operation)?;
        Ok(place)
    }

    fn resolve(&self, directory: i32, path: usize) -> Result<ResolvedParent, Errno> {
        let path = self.caller.text(path)?;
        let place = resolve::keep(self.caller, directory, &path)?;
        self.caller.still_waits()?;
        Ok(place)
    }

    /// Answers for a call that made `place`'s name, or did not.
    fn done(
        &mut self,
        place: &ResolvedParent,
        result: Result<(), Errno>,
    ) -> Result<NotifyReply, Errno> {
        result?;
        self.judge.made(self.caller, place);
        Ok(NotifyReply::Value(0))
    }

    /// The same for what is not a directory, and so cannot be written with a slash.
    fn file_place(&mut self, directory: i32, path: usize) -> Result<ResolvedParent, Errno> {
        let place = self.place(directory, path, Operation::Create)?;
        self.judge.point(self.caller, &place)?;
        match (place.end, place.kind()) {
            (PathSuffix::Slash, None) => Err(Errno::NOENT),
            (PathSuffix::Slash, Some(_)) => Err(Errno::EXIST),
            (PathSuffix::Plain, _) => Ok(place),
        }
    }

    fn mkdir(&mut self, directory: i32, path: usize, mode: u32) -> Result<NotifyReply, Errno> {
        let place = self.place(directory, path, Operation::Create)?;
        self.judge.make_directory(self.caller, &place)?;
        self.masks.put_on(self.caller);
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
        self.masks.put_on(self.caller);
        let made = rustix::fs::mknodat(
            &place.directory,
            place.name.as_os_str(),
            kind,
            Mode::from_raw_mode(mode & PLAIN),
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
        let target = self.caller.text(target)?;
        let place = self.file_place(directory, path)?;
        self.judge.link_into(self.caller, &place)?;
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
        let path = self.caller.text(old.1)?;
        let (source, only_name) = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            (self.caller.directory(old.0)?, None)
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
        if self.judge.is_kept_from_links(host_proc, &source) {
            return Err(Errno::ACCESS);
        }
        if let Some(decision) = self.judge.protecting(host_proc, &source) {
            self.judge.refuse(self.caller, Operation::Rename, &decision);
            return Err(Errno::ACCESS);
        }
        if FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_symlink() {
            self.judge.link_into(self.caller, &place)?;
        }
        let is_inside = only_name.is_some_and(|name| is_only_name(&name, &source))
            || self.judge.is_inside(&source);
        let name = format!("self/fd/{}", source.as_raw_fd());
        let made = rustix::fs::linkat(
            self.caller.host_proc,
            name,
            &place.directory,
            place.name.as_os_str(),
            AtFlags::SYMLINK_FOLLOW,
        );
        if made.is_ok() && is_inside {
            self.judge.linked_inside(&source);
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
        let path = self.caller.text(old.1)?;
        // `.` and `..` are somebody's working directory and not to be renamed.
        let busy = |error| if error == Errno::EXIST { Errno::BUSY } else { error };
        let source = resolve::keep(self.caller, old.0, &path).map_err(busy)?;
        let target = self.resolve(new.0, new.1).map_err(busy);
        self.judge.lock.take(self.hold);
        self.judge.leave(self.caller, &source)?;
        let target = target?;
        if let Some(reply) = self.replace_config(&source, &target, flags)? {
            return Ok(reply);
        }
        self.judge.carry(self.caller, &source);
        self.judge.make(self.caller, &target, Operation::Rename)?;
        self.judge.moved(self.caller, &source, &target)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            self.judge.moved(self.caller, &target, &source)?;
        }
        let is_slashed = source.end == PathSuffix::Slash || target.end == PathSuffix::Slash;
        if is_slashed && source.kind().is_some_and(|kind| kind != FileType::Directory) {
            return Err(Errno::NOTDIR);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            self.judge.leave(self.caller, &target)?;
            self.judge.make(self.caller, &source, Operation::Rename)?;
        }
        self.judge.unlinks(&target);
        let is_swapped =
            flags.contains(RenameFlags::EXCHANGE) && self.judge.is_packed_refs(&source);
        if is_swapped || self.judge.is_packed_refs(&target) {
            return self.rename_refs(&source, &target, flags);
        }
        // Every checkout puts another `HEAD` in the place of the one that is there.
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
            self.judge.made(self.caller, &source);
        }
        self.done(&target, renamed)
    }

    fn unlink(&mut self, directory: i32, path: usize, flags: i32) -> Result<NotifyReply, Errno> {
        let flags = AtFlags::from_bits(flags as u32)
            .filter(|flags| (*flags - AtFlags::REMOVEDIR).is_empty())
            .ok_or(Errno::INVAL)?;
        let path = self.caller.text(path)?;
        let unnamed = |error| match (error, path.to_bytes().ends_with(b"..")) {
            (Errno::EXIST, true) => Errno::NOTEMPTY,
            (Errno::EXIST, false) => Errno::INVAL,
            (error, _) => error,
        };
        let place = resolve::keep(self.caller, directory, &path).map_err(unnamed)?;
        self.caller.still_waits()?;
        if place.end == PathSuffix::Slash && !flags.contains(AtFlags::REMOVEDIR) {
            return Err(if place.kind() == Some(FileType::Directory) {
                Errno::ISDIR
            } else {
                Errno::NOTDIR
            });
        }
        self.judge.remove(self.caller, &place)?;
        self.judge.unlinks(&place);
        rustix::fs::unlinkat(&place.directory, place.name.as_os_str(), flags)
            .map(|()| NotifyReply::Value(0))
    }

    fn bind(&mut self, socket: i32, address: u64, length: u64) -> Result<NotifyReply, Errno> {
        const LONGEST: u64 = 128;
        if length > LONGEST {
            return Err(Errno::INVAL);
        }
        let address = self.caller.bytes(address, length as usize)?;
        let socket = self.caller.descriptor(socket)?;
        self.caller.still_waits()?;
        let family = address.get(..2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
        let path = address.get(2..).unwrap_or_default();
        let path = &path[..path.iter().position(|byte| *byte == 0).unwrap_or(path.len())];
        let bind = |address: &[u8]| {
            net::bind_raw(socket.as_fd(), address)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        if family != Some(libc::AF_UNIX as u16)
            && self.judge.is_listed()
            && !connect::is_of_the_sandbox(&socket)?
        {
            return Err(Errno::INVAL);
        }
        if family != Some(libc::AF_UNIX as u16) || path.is_empty() {
            return bind(&address).map(|()| NotifyReply::Value(0));
        }
        self.masks.put_on(self.caller);
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        // As it is written, so that the socket tells its name as it was given; but below
        // `/proc`, `self` would be us.
        let is_plain = !path.to_bytes().starts_with(b"/proc/");
        if is_plain
            && resolve::last_name(&path).is_some_and(|name| !self.judge.is_interesting(name))
        {
            rustix::process::fchdir(self.caller.directory(HERE)?)?;
            self.caller.still_waits()?;
            return bind(&address).map(|()| NotifyReply::Value(0)).inspect_err(|error| {
                let _ = self.judge.failed(self.caller, *error, (HERE, &path), CreatedKind::Name);
            });
        }
        let place = resolve::keep(self.caller, HERE, &path)?;
        self.judge.lock.take(self.hold);
        self.judge.make(self.caller, &place, Operation::Create)?;
        rustix::process::fchdir(&place.directory)?;
        let name = place.name.as_encoded_bytes();
        bind(&[&(libc::AF_UNIX as u16).to_ne_bytes(), name, b"\0"].concat())
            .map(|()| NotifyReply::Value(0))
    }

    /// `socket` and `bind` of 32-bit programs, whose arguments stand in memory.
    fn socketcall(&mut self) -> Result<NotifyReply, Errno> {
        const SOCKET: i32 = 1;
        const BIND: i32 = 2;
        let words = self.caller.bytes(self.caller.raw(1), 12)?;
        let word = |i: usize| {
            u32::from_ne_bytes([words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]])
        };
        match self.caller.int(0) {
            BIND => self.bind(word(0) as i32, word(1).into(), word(2).into()),
            SOCKET => {
                let (family, kind, protocol) = (word(0) as i32, word(1) as i32, word(2) as i32);
                let known = matches!(family, libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)
                    || (family == libc::AF_NETLINK && protocol == 0);
                if !known {
                    return Err(Errno::AFNOSUPPORT);
                }
                self.caller.still_waits()?;
                let socket = net::socket(family, kind | libc::SOCK_CLOEXEC, protocol)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                Ok(NotifyReply::Descriptor(socket, (kind & libc::SOCK_CLOEXEC) as u32))
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Whether a file has the name `place` and no other.
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

/// What stands at a path, through no link.
pub(super) fn status_of(start: BorrowedFd<'_>, path: &CStr) -> Option<rustix::fs::Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there =
        rustix::fs::openat2(start, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    rustix::fs::fstat(there).ok()
}
