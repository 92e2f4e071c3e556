//! Opens files for callers.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringfence_api::Operation;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::{privilege, seccomp};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{SyscallProxy, status_of};
use crate::apply::notify::NotifyReply;
use crate::apply::notify::hard_links::Names;
use crate::apply::notify::open_flags::OpenRequest;
use crate::apply::notify::proc_links;
use crate::apply::notify::resolve::{
    self, FinalSymlink, PathAnchor, PathResolution, ResolvedParent,
};
use crate::apply::notify::terminal::{is_own_terminal, is_terminal_of_caller};

impl SyscallProxy<'_, '_> {
    pub(super) fn open(
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
        if !self.rules.is_mediated()
            && resolve::last_name(&path).is_some_and(|name| !self.rules.name_could_matter(name))
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

    pub(super) fn open_place(
        &mut self,
        place: &ResolvedParent,
        request: OpenRequest,
    ) -> Result<NotifyReply, Errno> {
        self.rules.lock.take(self.hold);
        let exists = place.kind().is_some();
        self.rules.check_mediated_open(self.caller, place, &request, exists)?;
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
    pub(super) fn open_through(
        &mut self,
        through: &OwnedFd,
        request: &OpenRequest,
    ) -> Result<NotifyReply, Errno> {
        self.rules.check_mediated_reopen(self.caller, through, request)?;
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
    pub(in crate::apply::notify) fn refuse_shared(
        &mut self,
        through: &OwnedFd,
    ) -> Result<(), Errno> {
        let status = rustix::fs::fstat(through)?;
        if proc_links::writes_to(self.caller, &status)?
            || self.rules.names_of(self.caller, through, &status)? != Names::Outside
        {
            return Ok(());
        }
        Err(self.rules.refuse_shared(self.caller, through))
    }

    pub(super) fn opened(
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
    pub(super) fn open_later(
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
                // Without a pid namespace it would outlive the sandbox.
                if privilege::die_with_parent(libc::SIGKILL).is_err()
                    || self.caller.ensure_waiting().is_err()
                {
                    process::exit_now(0);
                }
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
    pub(super) fn wait_for_reader(
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
}

pub(super) fn is_fifo(opened: &OwnedFd) -> bool {
    rustix::fs::fstat(opened)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
}

pub(super) fn is_pipe(start: BorrowedFd<'_>, path: &CStr) -> bool {
    status_of(start, path)
        .is_some_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
}
