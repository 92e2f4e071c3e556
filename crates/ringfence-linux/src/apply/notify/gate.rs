//! The policy's decision about the paths of a syscall, in a sandbox without mounts.
//!
//! Landlock opens whole trees for reading and nothing for writing, so the handler decides about
//! every path in them: where it opens, creates, moves or removes something, for the directory that
//! it has open, or for the opened file. A path is never resolved a second time after a decision: the
//! calling process can exchange its working directory and its fds at any time.

mod access;
mod kernel_files;
mod metadata;

use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use ringfence_api::Operation;
use ringfence_plan::seccomp::calls::Call;
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of};
use super::open_flags::OpenRequest;
use super::resolve::{self, FinalSymlink, ResolvedParent};
pub(super) use access::GateAccess;
pub(in crate::apply) use access::OwnParts;

const CWD: i32 = libc::AT_FDCWD;

/// Answers syscalls that only read, or change metadata. `None` for the others: the handler executes
/// them, and checks each path as it does.
pub(super) fn reply(
    call: Call,
    caller: &NotifyCaller<'_>,
    rules: &mut CreationRules,
    parts: &OwnParts,
) -> Option<NotifyReply> {
    match (Gate { caller, rules, parts }).check(call) {
        Ok(GatedCall::Allowed) => None,
        Ok(GatedCall::Answered(reply)) => Some(reply),
        Err(error) => Some(NotifyReply::from(error)),
    }
}

/// The state of a syscall after the gate.
enum GatedCall {
    /// It is done.
    Answered(NotifyReply),
    /// The handler executes it.
    Allowed,
}

struct Gate<'a, 'b> {
    caller: &'a NotifyCaller<'b>,
    rules: &'a mut CreationRules,
    parts: &'a OwnParts,
}

impl Gate<'_, '_> {
    fn check(&mut self, call: Call) -> Result<GatedCall, Errno> {
        let int = |number| self.caller.int_arg(number);
        match call {
            Call::Open => self.open(CWD, 0, int(1)),
            Call::Openat => self.open(int(0), 1, int(2)),
            _ => metadata::change(self, call),
        }
    }

    fn open(&mut self, directory: i32, path: usize, flags: i32) -> Result<GatedCall, Errno> {
        if flags & libc::O_PATH != 0 {
            // It gives no access to the content.
            return Ok(GatedCall::Answered(NotifyReply::Continue));
        }
        let request = OpenRequest::new(flags, 0);
        if !request.writes() && !request.flags.contains(OFlags::CREATE) {
            return self.open_to_read(directory, path, request);
        }
        Ok(GatedCall::Allowed)
    }

    /// Opens a file or directory; the decision is about the opened one.
    fn open_to_read(
        &mut self,
        directory: i32,
        path: usize,
        request: OpenRequest,
    ) -> Result<GatedCall, Errno> {
        let text = self.caller.string_arg(path)?;
        if let Some(reply) = self.own_stream(&text, &request)? {
            return Ok(GatedCall::Answered(reply));
        }
        let is_kept = request.flags.contains(OFlags::NOFOLLOW);
        let last = if is_kept { FinalSymlink::Keep } else { FinalSymlink::Follow };
        if let Some(content) = self.own_file(directory, &text)? {
            return request.reply(content).map(GatedCall::Answered);
        }
        let found = self.target(directory, path, last)?;
        self.rules.check_mediated_file(self.caller, &found, GateAccess::Read, Operation::Read)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        match kind {
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::RegularFile | FileType::Directory => {}
            // Terminals and pipes: opening may wait.
            _ => return Ok(GatedCall::Allowed),
        }
        let name = format!("self/fd/{}", found.as_raw_fd());
        let flags = request.flags - OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(self.caller.host_proc, name, flags, Mode::empty())?;
        request.reply(opened).map(GatedCall::Answered)
    }

    /// A copy of the caller's own fd, if the path names one that has no path: a pipe, a socket or a
    /// terminal.
    fn own_stream(&self, path: &CStr, request: &OpenRequest) -> Result<Option<NotifyReply>, Errno> {
        let number = match path.to_bytes() {
            b"/dev/stdin" => Some(0),
            bytes => [b"/dev/fd/".as_slice(), b"/proc/self/fd/"]
                .iter()
                .find_map(|directory| bytes.strip_prefix(*directory))
                .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok()),
        };
        let Some(number) = number else { return Ok(None) };
        let own = self.caller.copy_fd(number)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&own)?.st_mode);
        match kind {
            FileType::Fifo | FileType::Socket | FileType::CharacterDevice => {
                // A copy shares the flags of the caller's own fd.
                Ok(Some(NotifyReply::Descriptor(own, request.fd_flags())))
            }
            _ => Ok(None),
        }
    }

    /// A file with the content that the sandbox has at a path, if that differs from the host's.
    fn own_file(&self, directory: i32, path: &CStr) -> Result<Option<OwnedFd>, Errno> {
        let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = OsStr::from_bytes(name);
        if !self.parts.files.keys().any(|file| file.name() == Some(name)) {
            return Ok(None);
        }
        let Ok(place) = resolve::resolve_parent(self.caller, directory, path) else {
            return Ok(None);
        };
        self.caller.ensure_waiting()?;
        let Some(content) = self.parts.files.get(&path_of(self.caller, &place)?) else {
            return Ok(None);
        };
        let file = rustix::fs::memfd_create("file", MemfdFlags::CLOEXEC)?;
        std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(&file, 0)?)
            .write_all(content.as_bytes())
            .map_err(|_| Errno::IO)?;
        let name = format!("self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(self.caller.host_proc, name, flags, Mode::empty()).map(Some)
    }

    /// The file or directory that a path leads to, with `O_PATH`.
    fn target(&self, directory: i32, path: usize, last: FinalSymlink) -> Result<OwnedFd, Errno> {
        let text = self.caller.string_arg(path)?;
        let found = resolve::open(self.caller, directory, &text, last)?;
        self.caller.ensure_waiting()?;
        Ok(found)
    }

    fn place(&self, directory: i32, path: usize) -> Result<ResolvedParent, Errno> {
        let text = self.caller.string_arg(path)?;
        let place = resolve::resolve_parent(self.caller, directory, &text)?;
        self.caller.ensure_waiting()?;
        Ok(place)
    }
}
