//! The calls themselves.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringfence_api::Operation;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::{net, seccomp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::Reply;
use super::caller::{Caller, Masks};
use super::foresee::held;
use super::judge::Judge;
use super::place::{self, End, Ground, Last, Lead, Place};
use super::reach;
use super::tell::Making;
use crate::apply::{Deed, OnExecute};
use crate::seccomp::calls::{Arch, Call};

const HERE: i32 = libc::AT_FDCWD;

/// The bits of a mode that are taken over: no file is made to run as its owner or group.
const PLAIN: u32 = 0o1777;

/// Carries out `call` for `caller`, if it may.
pub(super) fn act(call: Call, caller: &Caller<'_>, masks: &mut Masks, judge: &mut Judge) -> Result<Reply, Errno> {
    let acted = carry_out(call, caller, masks, judge);
    for (directory, path) in held_by(call, acted.as_ref().err()) {
        if let Ok(Some(held)) = held(caller, (directory.map_or(HERE, |number| caller.int(number)), *path)) {
            judge.foreseen(caller, &held);
        }
    }
    if let Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::XDEV)) = &acted {
        // Only to be told: whatever it was, it has failed.
        let _ = tell_failed(call, caller, judge, *error);
    }
    acted
}

fn tell_failed(call: Call, caller: &Caller<'_>, judge: &mut Judge, error: Errno) -> Result<(), Errno> {
    let from = |directory: Option<usize>| directory.map_or(HERE, |number| caller.int(number));
    if let Some((directory, path)) = source(call)
        && !judge.finds(caller, from(directory), &caller.text(path)?)?
    {
        return Ok(());
    }
    let Some((directory, path, making)) = form(call).filter(|_| error != Errno::XDEV) else { return Ok(()) };
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
pub(super) fn deed(call: Call, caller: &Caller<'_>, masks: &mut Masks) -> Option<Deed> {
    let (flags, mode) = match call {
        Call::Open => (caller.int(1), caller.raw(2)),
        Call::Creat => (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, caller.raw(1)),
        Call::Openat => (caller.int(2), caller.raw(3)),
        Call::Mkdir => return Some(Deed::MakeDirectory { mode: caller.raw(1) as u32 & PLAIN & !masks.of(caller) }),
        Call::Mkdirat => return Some(Deed::MakeDirectory { mode: caller.raw(2) as u32 & PLAIN & !masks.of(caller) }),
        _ => return None,
    };
    let wish = Wish::new(flags, mode as u32);
    let is_plain = flags & (libc::O_PATH | libc::O_DIRECTORY) == 0;
    is_plain.then(|| Deed::Open {
        flags: wish.flags.bits(),
        mode: wish.mode.as_raw_mode() & !masks.of(caller),
        on_execute: wish.on_execute,
    })
}

/// Where a call says what it makes: the directory, the path, and what making that is.
fn form(call: Call) -> Option<(Option<usize>, usize, Making)> {
    use Making::{File, Name, Renamed};
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

fn carry_out(call: Call, caller: &Caller<'_>, masks: &mut Masks, judge: &mut Judge) -> Result<Reply, Errno> {
    let mut acts = Acts { caller, masks, judge };
    match call {
        Call::Open => acts.open(HERE, 0, caller.int(1), caller.raw(2) as u32),
        Call::Creat => acts.open(HERE, 0, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, caller.raw(1) as u32),
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
        Call::Renameat2 => acts.rename((caller.int(0), 1), (caller.int(2), 3), caller.raw(4) as u32),
        Call::Unlink => acts.unlink(HERE, 0, 0),
        Call::Unlinkat => acts.unlink(caller.int(0), 1, caller.int(2)),
        Call::Bind => acts.bind(caller.int(0), caller.raw(1), caller.raw(2)),
        Call::Socketcall => acts.socketcall(),
        _ => Err(Errno::NOSYS),
    }
}

/// Opens `/dev/null`, if that is what is wanted, or the terminal of somebody who has none.
pub(super) fn open_nothing(caller: &Caller<'_>) -> Option<Reply> {
    let call = Call::from_number(Arch::from_audit(caller.notification.arch)?, caller.notification.call as u32)?;
    let (path, flags) = match call {
        Call::Open => (0, caller.int(1)),
        Call::Openat => (1, caller.int(2)),
        _ => return None,
    };
    let is_plain = flags & (libc::O_PATH | libc::O_EXCL | libc::O_DIRECTORY) == 0;
    let path = caller.text(path).ok().filter(|_| is_plain)?;
    if path.as_c_str() == c"/dev/tty" && caller.terminal(caller.pid())?.1 == 0 {
        return Some(Reply::Error(libc::ENXIO));
    }
    if path.as_c_str() != c"/dev/null" {
        return None;
    }
    let wish = Wish::new(flags, 0).without_making();
    // Nobody ever waits for it.
    let opened = rustix::fs::openat2(caller.at_hand.root().ok()?, c"dev/null", wish.flags, wish.mode, ResolveFlags::NO_SYMLINKS);
    Some(Reply::Descriptor(opened.ok()?, wish.target_flags()))
}

struct Acts<'a, 'b> {
    caller: &'a Caller<'b>,
    masks: &'a mut Masks,
    judge: &'a mut Judge,
}

impl Acts<'_, '_> {
    fn open(&mut self, directory: i32, path: usize, flags: i32, mode: u32) -> Result<Reply, Errno> {
        if flags & libc::O_PATH != 0 {
            // Makes nothing, whatever else it says, and says so in a register.
            return Ok(Reply::Through);
        }
        let path = self.caller.text(path)?;
        let start = place::start(self.caller, directory, &path)?;
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
        if place::last_name(&path).is_some_and(|name| !self.judge.is_interesting(name)) && !self.judge.begins_in_git(&start) {
            match wish.open_at(start.as_fd(), &path) {
                Err(Errno::LOOP) => {}
                other => {
                    // Whoever waits for the other end of a pipe must not keep what the caller has open.
                    let may_wait = wish.only_reads() || matches!(other, Err(Errno::NXIO));
                    let start = if may_wait { Ground::Opened(start.into_opened()?) } else { start };
                    return self.opened(other, &wish, start.as_fd(), &path);
                }
            }
        }
        let follow = if wish.flags.intersects(OFlags::NOFOLLOW) || wish.flags.contains(OFlags::CREATE | OFlags::EXCL) {
            Last::Keep
        } else {
            Last::Follow
        };
        match place::walk(self.caller, start, &path, follow)? {
            Lead::Open(through) => {
                if wish.writes() {
                    self.judge.write_open(self.caller, &through)?;
                }
                let through = format!("self/fd/{}", through.as_raw_fd());
                // Without waiting: a pipe without another end is refused, not waited for.
                let flags = (wish.flags - (OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW)) | OFlags::NONBLOCK;
                let opened = rustix::fs::openat(self.caller.host_proc, through, flags, Mode::empty())?;
                wish.reply(opened)
            }
            Lead::Place(place) => {
                let exists = place.kind().is_some();
                // What exists is opened, not made: should it vanish meanwhile, the call fails
                // rather than making it anew unjudged. Its covers decide who may read it.
                if !exists && !wish.flags.contains(OFlags::CREATE) {
                    return Err(Errno::NOENT);
                } else if !exists {
                    self.judge.make(self.caller, &place, Operation::Create)?;
                } else if wish.flags.contains(OFlags::CREATE | OFlags::EXCL) {
                    return Err(Errno::EXIST);
                } else if wish.writes() {
                    self.judge.write(self.caller, &place)?;
                }
                let name = CString::new(place.name.as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
                let wish = if exists { wish.without_making() } else { wish };
                let opened = wish.open_at(place.directory.as_fd(), &name);
                if !exists && opened.is_ok() {
                    self.judge.made(self.caller, &place);
                }
                self.opened(opened, &wish, place.directory.as_fd(), &name)
            }
        }
    }

    fn opened(&mut self, opened: Result<OwnedFd, Errno>, wish: &Wish, start: BorrowedFd<'_>, path: &CStr) -> Result<Reply, Errno> {
        match opened {
            // A pipe without another end: the caller wants to wait for one, we cannot.
            Err(Errno::NXIO) if !wish.flags.contains(OFlags::NONBLOCK) && is_pipe(start, path) => self.open_later(wish, start, path),
            Err(Errno::NXIO) if is_terminal_of_caller(start, path) => self.open_terminal(wish),
            Err(error) => Err(error),
            Ok(opened) => {
                // Through no link, so it bears its name.
                if place::last_name(path).is_some_and(|name| name == "tty") && is_own_terminal(&opened) {
                    return self.open_terminal(wish);
                }
                if wish.writes() {
                    self.judge.write_lasting(self.caller, &opened)?;
                }
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

    /// `/dev/tty` is another terminal, or none, for each session: the caller's is found by
    /// its number among those of the sandbox, unless its session is ours.
    fn open_terminal(&self, wish: &Wish) -> Result<Reply, Errno> {
        const OURS: i32 = 0;
        let (session, terminal) = self.caller.terminal(self.caller.pid()).ok_or(Errno::NXIO)?;
        let flags = wish.without_making().flags | OFlags::NONBLOCK;
        if self.caller.terminal(OURS).is_some_and(|(ours, _)| ours == session) {
            return wish.reply(rustix::fs::open("/dev/tty", flags, Mode::empty())?);
        }
        match (rustix::fs::major(terminal), rustix::fs::minor(terminal)) {
            (136..=143, number) => wish.reply(rustix::fs::open(format!("/dev/pts/{number}"), flags, Mode::empty())?),
            _ => Err(Errno::NXIO),
        }
    }

    /// Opens in a process of its own, which may wait as long as the caller would have. (Not
    /// in a thread: the warden's children are in another process namespace than it is.)
    fn open_later(&self, wish: &Wish, start: BorrowedFd<'_>, path: &CStr) -> Result<Reply, Errno> {
        let (wish, id, listener) = (wish.without_making(), self.caller.notification.id, self.caller.listener);
        match process::fork().map_err(|_| Errno::AGAIN)? {
            Fork::Parent(_) => Ok(Reply::Later),
            Fork::Child => {
                let opened = if wish.flags.contains(OFlags::WRONLY) {
                    self.wait_for_reader(&wish, start, path)
                } else {
                    rustix::fs::openat2(start, path, wish.flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
                        .map_err(|error| error.raw_os_error())
                };
                let _ = match opened {
                    Ok(opened) => seccomp::answer_with(listener, id, opened.as_fd(), wish.target_flags()),
                    Err(number) => seccomp::answer(listener, id, Err(number)),
                };
                process::exit_now(0)
            }
        }
    }

    /// Tries until the pipe has a reader, the caller is gone, or a signal waits for it.
    fn wait_for_reader(&self, wish: &Wish, start: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, i32> {
        loop {
            match wish.open_at(start, path) {
                Err(Errno::NXIO) => {}
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
    fn place(&mut self, directory: i32, path: usize, operation: Operation) -> Result<Place, Errno> {
        let path = self.caller.text(path)?;
        let place = place::keep(self.caller, directory, &path)?;
        self.caller.still_waits()?;
        self.judge.make(self.caller, &place, operation)?;
        Ok(place)
    }

    /// Answers for a call that made `place`'s name, or did not.
    fn done(&mut self, place: &Place, result: Result<(), Errno>) -> Result<Reply, Errno> {
        result?;
        self.judge.made(self.caller, place);
        Ok(Reply::Value(0))
    }

    /// The same for what is not a directory, and so cannot be written with a slash.
    fn file_place(&mut self, directory: i32, path: usize) -> Result<Place, Errno> {
        let place = self.place(directory, path, Operation::Create)?;
        match (place.end, place.kind()) {
            (End::Slash, None) => Err(Errno::NOENT),
            (End::Slash, Some(_)) => Err(Errno::EXIST),
            (End::Plain, _) => Ok(place),
        }
    }

    fn mkdir(&mut self, directory: i32, path: usize, mode: u32) -> Result<Reply, Errno> {
        let place = self.place(directory, path, Operation::Create)?;
        self.masks.put_on(self.caller);
        let made = rustix::fs::mkdirat(&place.directory, place.name.as_os_str(), Mode::from_raw_mode(mode & 0o7777));
        self.done(&place, made)
    }

    fn mknod(&mut self, directory: i32, path: usize, mode: u32) -> Result<Reply, Errno> {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileType::RegularFile,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            _ => return Err(Errno::PERM),
        };
        let place = self.file_place(directory, path)?;
        self.masks.put_on(self.caller);
        let made = rustix::fs::mknodat(&place.directory, place.name.as_os_str(), kind, Mode::from_raw_mode(mode & PLAIN), 0);
        self.done(&place, made)
    }

    fn symlink(&mut self, target: usize, directory: i32, path: usize) -> Result<Reply, Errno> {
        let target = self.caller.text(target)?;
        let place = self.file_place(directory, path)?;
        self.judge.link_into(self.caller, &place)?;
        let made = rustix::fs::symlinkat(target, &place.directory, place.name.as_os_str());
        self.done(&place, made)
    }

    fn link(&mut self, old: (i32, usize), new: (i32, usize), flags: i32) -> Result<Reply, Errno> {
        if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_FOLLOW) != 0 {
            return Err(Errno::INVAL);
        }
        let path = self.caller.text(old.1)?;
        let source = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            self.caller.directory(old.0)?
        } else {
            let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::Keep };
            match place::walk(self.caller, place::start(self.caller, old.0, &path)?, &path, last)? {
                Lead::Open(source) => source,
                Lead::Place(place) => rustix::fs::openat(
                    &place.directory,
                    place.name.as_os_str(),
                    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?,
            }
        };
        let place = self.file_place(new.0, new.1)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_symlink() {
            self.judge.link_into(self.caller, &place)?;
        }
        let name = format!("self/fd/{}", source.as_raw_fd());
        let made = rustix::fs::linkat(self.caller.host_proc, name, &place.directory, place.name.as_os_str(), AtFlags::SYMLINK_FOLLOW);
        self.done(&place, made)
    }

    fn rename(&mut self, old: (i32, usize), new: (i32, usize), flags: u32) -> Result<Reply, Errno> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let path = self.caller.text(old.1)?;
        // `.` and `..` are somebody's working directory and not to be renamed.
        let busy = |error| if error == Errno::EXIST { Errno::BUSY } else { error };
        let source = place::keep(self.caller, old.0, &path).map_err(busy)?;
        self.judge.leave(self.caller, &source)?;
        let target = self.place(new.0, new.1, Operation::Rename).map_err(busy)?;
        self.judge.moved(self.caller, &source, &target)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            self.judge.moved(self.caller, &target, &source)?;
        }
        let is_slashed = source.end == End::Slash || target.end == End::Slash;
        if is_slashed && source.kind().is_some_and(|kind| kind != FileType::Directory) {
            return Err(Errno::NOTDIR);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            self.judge.leave(self.caller, &target)?;
            self.judge.make(self.caller, &source, Operation::Rename)?;
        }
        let renamed =
            rustix::fs::renameat_with(&source.directory, source.name.as_os_str(), &target.directory, target.name.as_os_str(), flags);
        if renamed.is_ok() && flags.contains(RenameFlags::EXCHANGE) {
            self.judge.made(self.caller, &source);
        }
        self.done(&target, renamed)
    }

    fn unlink(&mut self, directory: i32, path: usize, flags: i32) -> Result<Reply, Errno> {
        let flags = AtFlags::from_bits(flags as u32).filter(|flags| (*flags - AtFlags::REMOVEDIR).is_empty()).ok_or(Errno::INVAL)?;
        let path = self.caller.text(path)?;
        let unnamed = |error| match (error, path.to_bytes().ends_with(b"..")) {
            (Errno::EXIST, true) => Errno::NOTEMPTY,
            (Errno::EXIST, false) => Errno::INVAL,
            (error, _) => error,
        };
        let place = place::keep(self.caller, directory, &path).map_err(unnamed)?;
        self.caller.still_waits()?;
        if place.end == End::Slash && !flags.contains(AtFlags::REMOVEDIR) {
            return Err(if place.kind() == Some(FileType::Directory) { Errno::ISDIR } else { Errno::NOTDIR });
        }
        self.judge.remove(self.caller, &place)?;
        rustix::fs::unlinkat(&place.directory, place.name.as_os_str(), flags).map(|()| Reply::Value(0))
    }

    fn bind(&mut self, socket: i32, address: u64, length: u64) -> Result<Reply, Errno> {
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
        let bind =
            |address: &[u8]| net::bind_raw(socket.as_fd(), address).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        if family != Some(libc::AF_UNIX as u16) && self.judge.is_listed() && !reach::is_of_the_sandbox(&socket)? {
            return Err(Errno::INVAL);
        }
        if family != Some(libc::AF_UNIX as u16) || path.is_empty() {
            return bind(&address).map(|()| Reply::Value(0));
        }
        self.masks.put_on(self.caller);
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        // As it is written, so that the socket tells its name as it was given; but below
        // `/proc`, `self` would be us.
        let is_plain = !path.to_bytes().starts_with(b"/proc/");
        if is_plain && place::last_name(&path).is_some_and(|name| !self.judge.is_interesting(name)) {
            rustix::process::fchdir(self.caller.directory(HERE)?)?;
            self.caller.still_waits()?;
            return bind(&address).map(|()| Reply::Value(0)).inspect_err(|error| {
                let _ = self.judge.failed(self.caller, *error, (HERE, &path), Making::Name);
            });
        }
        let place = place::keep(self.caller, HERE, &path)?;
        self.judge.make(self.caller, &place, Operation::Create)?;
        rustix::process::fchdir(&place.directory)?;
        let name = place.name.as_encoded_bytes();
        bind(&[&(libc::AF_UNIX as u16).to_ne_bytes(), name, b"\0"].concat()).map(|()| Reply::Value(0))
    }

    /// `socket` and `bind` of 32-bit programs, whose arguments stand in memory.
    fn socketcall(&mut self) -> Result<Reply, Errno> {
        const SOCKET: i32 = 1;
        const BIND: i32 = 2;
        let words = self.caller.bytes(self.caller.raw(1), 12)?;
        let word = |i: usize| u32::from_ne_bytes([words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]]);
        match self.caller.int(0) {
            BIND => self.bind(word(0) as i32, word(1).into(), word(2).into()),
            SOCKET => {
                let (family, kind, protocol) = (word(0) as i32, word(1) as i32, word(2) as i32);
                let known =
                    matches!(family, libc::AF_UNIX | libc::AF_INET | libc::AF_INET6) || (family == libc::AF_NETLINK && protocol == 0);
                if !known {
                    return Err(Errno::AFNOSUPPORT);
                }
                self.caller.still_waits()?;
                let socket = net::socket(family, kind | libc::SOCK_CLOEXEC, protocol)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                Ok(Reply::Descriptor(socket, (kind & libc::SOCK_CLOEXEC) as u32))
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// The device that is each session's own terminal.
const TERMINAL: (u32, u32) = (5, 0);

fn is_terminal(status: &rustix::fs::Stat) -> bool {
    let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    is_device && (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev)) == TERMINAL
}

fn is_own_terminal(opened: &OwnedFd) -> bool {
    rustix::fs::fstat(opened).is_ok_and(|status| is_terminal(&status))
}

fn is_terminal_of_caller(start: BorrowedFd<'_>, path: &CStr) -> bool {
    status_of(start, path).is_some_and(|status| is_terminal(&status))
}

fn is_pipe(start: BorrowedFd<'_>, path: &CStr) -> bool {
    status_of(start, path).is_some_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
}

/// What stands at a path, through no link.
fn status_of(start: BorrowedFd<'_>, path: &CStr) -> Option<rustix::fs::Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = rustix::fs::openat2(start, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    rustix::fs::fstat(there).ok()
}

/// How a file is to be opened.
#[derive(Clone, Copy)]
struct Wish {
    flags: OFlags,
    mode: Mode,
    on_execute: OnExecute,
}

impl Wish {
    /// `openat` ignores bits that `openat2` refuses.
    fn new(flags: i32, mode: u32) -> Self {
        const KNOWN: i32 = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_SYNC
            | libc::O_DSYNC
            | libc::O_DIRECT
            | libc::O_DIRECTORY
            | libc::O_NOFOLLOW
            | libc::O_NOATIME;
        let known = OFlags::from_bits_retain((flags & KNOWN) as u32) | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::LARGEFILE;
        let mode = if known.contains(OFlags::CREATE) { Mode::from_raw_mode(mode & PLAIN) } else { Mode::empty() };
        Self { flags: known, mode, on_execute: OnExecute::of(flags) }
    }

    fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
    }

    /// Whether it waits for somebody to write, if it is a pipe.
    fn only_reads(&self) -> bool {
        !self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::NONBLOCK)
    }

    fn without_making(self) -> Self {
        Self { flags: self.flags - (OFlags::CREATE | OFlags::EXCL), mode: Mode::empty(), ..self }
    }

    /// What keeps an open from waiting. What is made anew is a plain file, which never does.
    fn impatience(&self) -> OFlags {
        if self.flags.contains(OFlags::CREATE | OFlags::EXCL) { OFlags::empty() } else { OFlags::NONBLOCK }
    }

    /// Never waits and follows no link.
    fn open_at(&self, directory: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(directory, path, self.flags | self.impatience(), self.mode, ResolveFlags::NO_SYMLINKS)
    }

    fn target_flags(&self) -> u32 {
        self.on_execute.flags()
    }

    /// Takes off the flag with which it was opened so as not to wait.
    fn unblocked(&self, opened: OwnedFd) -> Result<OwnedFd, Errno> {
        if !self.flags.contains(OFlags::NONBLOCK) && !self.impatience().is_empty() {
            rustix::fs::fcntl_setfl(&opened, self.flags & (OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME))?;
        }
        Ok(opened)
    }

    fn reply(&self, opened: OwnedFd) -> Result<Reply, Errno> {
        Ok(Reply::Descriptor(self.unblocked(opened)?, self.target_flags()))
    }
}
