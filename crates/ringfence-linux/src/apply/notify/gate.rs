//! The policy's decision about the paths of a syscall, in a sandbox without mounts.
//!
//! Landlock opens whole trees for reading and nothing for writing, so this decides about every
//! denied and protected path in them. The handler executes all syscalls that open files or change
//! names, one after the other. No process of the sandbox can exchange a name between the decision
//! and the syscall.

mod kernel_files;
mod metadata;

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use ringfence_api::{Denial, Operation};
use ringfence_plan::seccomp::calls::Call;
use ringfence_plan::{Overmount, Plan, Step};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Effect, Source, Verdict};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::open_flags::OpenRequest;
use super::proc_links;
use super::resolve::{self, FinalSymlink, PathResolution, ResolvedParent};

const CWD: i32 = libc::AT_FDCWD;

/// The parts of a sandbox without mounts that no rule opens.
#[derive(Debug, Clone)]
pub(in crate::apply) struct OwnParts {
    /// The pid of init.
    pub(in crate::apply) init: i32,
    /// The directory for temporary files.
    pub(in crate::apply) scratch: Option<AbsPath>,
    /// Paths that were found denied or protected at the start, also by another name.
    closed: Vec<(AbsPath, Overmount)>,
    /// Files that have another content in the sandbox.
    files: HashMap<AbsPath, String>,
}

impl OwnParts {
    /// The parts of a sandbox with this `plan`.
    pub(in crate::apply) fn new(init: i32, plan: &Plan) -> Self {
        let mut parts = Self { init, scratch: None, closed: Vec::new(), files: HashMap::new() };
        for step in &plan.steps {
            match step {
                Step::Scratch { path } => parts.scratch = Some(path.clone()),
                Step::Mask { path, mask } => parts.closed.push((path.clone(), *mask)),
                Step::File { path, content } => {
                    parts.files.insert(path.clone(), content.clone());
                }
                _ => {}
            }
        }
        for step in &plan.steps {
            if let Step::Instead { path, with } = step
                && let Some(content) = parts.files.get(with).cloned()
            {
                parts.files.insert(path.clone(), content);
            }
        }
        parts
    }

    /// The state of a path at the start: denied, or protected.
    fn closing(&self, path: &AbsPath) -> Option<Overmount> {
        let mut around = self.closed.iter().filter(|(closed, mask)| match mask {
            Overmount::Deny(_) | Overmount::ReadOnly => path.is_within(closed),
            Overmount::Shallow => path == closed,
        });
        let first = around.next()?.1;
        let is_denied = |mask: &Overmount| matches!(mask, Overmount::Deny(_));
        Some(around.map(|(_, mask)| *mask).find(is_denied).unwrap_or(first))
    }
}

/// Decides about the paths of `call`. `None` if the policy allows them and the handler executes it.
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

/// A syscall that the policy allows.
enum GatedCall {
    /// It is done.
    Answered(NotifyReply),
    /// The handler executes it.
    Allowed,
}

/// The access that a syscall needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateAccess {
    /// Open for reading.
    Read,
    /// Open for writing.
    Write,
    /// Change a name or metadata.
    Change,
}

impl GateAccess {
    fn of_rules(self) -> Access {
        match self {
            GateAccess::Read => Access::Read,
            GateAccess::Write | GateAccess::Change => Access::Write,
        }
    }
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
            Call::Open => return self.open(CWD, 0, int(1)),
            Call::Openat => return self.open(int(0), 1, int(2)),
            Call::Creat => {
                return self.open(CWD, 0, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC);
            }
            Call::Mkdir | Call::Mknod => self.create(CWD, 0)?,
            Call::Mkdirat | Call::Mknodat => self.create(int(0), 1)?,
            Call::Symlink => self.create(CWD, 1)?,
            Call::Symlinkat => self.create(int(1), 2)?,
            Call::Link => {
                self.link_source(CWD, 0, 0)?;
                self.create(CWD, 1)?;
            }
            Call::Linkat => {
                self.link_source(int(0), 1, int(4))?;
                let (directory, path) = (int(2), 3);
                self.create(directory, path)?;
            }
            Call::Rename => self.rename((CWD, 0), (CWD, 1))?,
            Call::Renameat | Call::Renameat2 => self.rename((int(0), 1), (int(2), 3))?,
            Call::Unlink | Call::Rmdir => self.remove(CWD, 0)?,
            Call::Unlinkat => self.remove(int(0), 1)?,
            Call::Truncate | Call::Truncate64 => {
                let file = self.target(CWD, 0, FinalSymlink::Follow)?;
                self.check_opened(&file, GateAccess::Write, Operation::Write)?;
            }
            _ => return metadata::change(self, call),
        }
        Ok(GatedCall::Allowed)
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
        let text = self.caller.string_arg(path)?;
        let last = if request.flags.intersects(OFlags::NOFOLLOW)
            || request.flags.contains(OFlags::CREATE | OFlags::EXCL)
        {
            FinalSymlink::Keep
        } else {
            FinalSymlink::Follow
        };
        let start = resolve::start(self.caller, directory, &text)?;
        self.caller.ensure_waiting()?;
        match resolve::walk(self.caller, start, &text, last)? {
            PathResolution::Open(through) => {
                self.check_opened(&through, GateAccess::Write, Operation::Write)?;
                if request.flags.contains(OFlags::RDWR) {
                    self.check_opened(&through, GateAccess::Read, Operation::Read)?;
                }
            }
            PathResolution::Place(place) if place.kind().is_some() => {
                self.check_place(&place, GateAccess::Write, Operation::Write)?;
                if request.flags.contains(OFlags::RDWR) {
                    self.check_place(&place, GateAccess::Read, Operation::Read)?;
                }
            }
            PathResolution::Place(place) => self.check_parent(&place)?,
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
        self.check_opened(&found, GateAccess::Read, Operation::Read)?;
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
                request.reply(own).map(Some)
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

    /// Checks a name to be created; an existing one is an error of the syscall itself.
    fn create(&mut self, directory: i32, path: usize) -> Result<(), Errno> {
        let place = self.place(directory, path)?;
        self.check_parent(&place)
    }

    fn remove(&mut self, directory: i32, path: usize) -> Result<(), Errno> {
        // `.` and `..` get the error of the syscall itself.
        match self.place(directory, path) {
            Ok(place) => self.check_place(&place, GateAccess::Change, Operation::Write),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn rename(&mut self, old: (i32, usize), new: (i32, usize)) -> Result<(), Errno> {
        let (source, target) = match (self.place(old.0, old.1), self.place(new.0, new.1)) {
            (Err(Errno::EXIST), _) | (_, Err(Errno::EXIST)) => return Ok(()),
            (source, target) => (source?, target?),
        };
        self.check_place(&source, GateAccess::Change, Operation::Rename)?;
        if target.kind().is_some() {
            self.check_place(&target, GateAccess::Change, Operation::Rename)
        } else {
            self.check_parent(&target)
        }
    }

    /// Checks a file that gets another name: whatever the new name allows, the file itself must be
    /// readable and writable.
    fn link_source(&mut self, directory: i32, path: usize, flags: i32) -> Result<(), Errno> {
        let text = self.caller.string_arg(path)?;
        let file = if text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            self.caller.open_start(directory)?
        } else {
            let is_followed = flags & libc::AT_SYMLINK_FOLLOW != 0;
            let last = if is_followed { FinalSymlink::Follow } else { FinalSymlink::Keep };
            self.target(directory, path, last)?
        };
        self.check_opened(&file, GateAccess::Read, Operation::Read)?;
        self.check_opened(&file, GateAccess::Change, Operation::Rename)
    }

    /// Checks access to an opened file, by its current path.
    fn check_opened(
        &mut self,
        file: &OwnedFd,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        let status = rustix::fs::fstat(file)?;
        let path = path_of_directory(self.caller.host_proc, file.as_fd());
        let Some(path) = path.ok().filter(|_| status.st_nlink > 0) else {
            // A pipe, a socket or a removed file has no path. The caller may have found it among the
            // fds of any process, so it must be one of its own.
            let is_own = proc_links::has_open(self.caller, &status)?;
            return if is_own { Ok(()) } else { Err(Errno::ACCESS) };
        };
        let directory = path.parent().unwrap_or_else(AbsPath::root);
        self.check_path(&path, &directory, wanted, operation)
    }

    fn check_place(
        &mut self,
        place: &ResolvedParent,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        let path = path_of(self.caller, place)?;
        let directory = path.parent().unwrap_or_else(AbsPath::root);
        self.check_path(&path, &directory, wanted, operation)
    }

    /// Checks the directory of a name to be created. The creation rules decide about the name.
    fn check_parent(&mut self, place: &ResolvedParent) -> Result<(), Errno> {
        let directory = path_of_directory(self.caller.host_proc, place.directory.as_fd())?;
        let path = directory.clone();
        self.check_path(&path, &directory, GateAccess::Change, Operation::Create)
    }

    /// Checks access to a path, which is in `directory` or the directory itself.
    fn check_path(
        &mut self,
        path: &AbsPath,
        directory: &AbsPath,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        if let Some(scratch) = self.parts.scratch.as_ref().filter(|it| path.is_within(it)) {
            let is_fixed =
                path == scratch && wanted == GateAccess::Change && operation != Operation::Create;
            return if is_fixed { Err(Errno::ACCESS) } else { Ok(()) };
        }
        if let Some(is_open) = kernel_files::is_open(path, wanted, self.caller, self.parts) {
            return if is_open { Ok(()) } else { Err(Errno::ACCESS) };
        }
        let decision = self.rules.decide(path, wanted.of_rules());
        match decision.verdict {
            Verdict::Allowed => return self.check_allowed(&decision, wanted, operation),
            Verdict::ReadOnly if self.is_in_own_repository(&decision, directory)? => {
                return Ok(());
            }
            _ => {}
        }
        self.rules.refuse(self.caller, operation, &decision);
        Err(match (decision.verdict, wanted) {
            (Verdict::Absent, GateAccess::Read) => Errno::NOENT,
            (Verdict::ReadOnly, _) => Errno::ROFS,
            _ => Errno::ACCESS,
        })
    }

    /// Checks what a mount would change about an allowed path.
    fn check_allowed(
        &mut self,
        decision: &Decision,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        let path = &decision.path;
        let opening = self.rules.grants.opening_rule(path).map(|rule| rule.effect.clone());
        let (why, error) = match (self.parts.closing(path), opening) {
            (Some(Overmount::Deny(_)), _) => (Denial::ALIAS_OF_DENIED, Errno::ACCESS),
            (Some(_), _) if wanted != GateAccess::Read => (Denial::ALIAS_OF_DENIED, Errno::ROFS),
            (_, Some(Effect::Private { .. })) if wanted != GateAccess::Read => {
                (Denial::NEEDS_MOUNT, Errno::ROFS)
            }
            (_, Some(Effect::Private { host_beneath: false, .. })) => return Err(Errno::NOENT),
            _ => return Ok(()),
        };
        self.rules.refuse_since(self.caller, operation, path, why);
        Err(error)
    }

    /// True if only a built-in rule about git protects the path, in a writable repository that the
    /// command created: the sweep checks it at the end.
    fn is_in_own_repository(
        &self,
        decision: &Decision,
        directory: &AbsPath,
    ) -> Result<bool, Errno> {
        let is_built_in = matches!(
            &decision.rule,
            Some(DecidingRule::Pattern(pattern))
                if pattern.origin.source == Source::BuiltIn && pattern.glob.text().contains(".git/")
        );
        let opening = self.rules.grants.opening_rule(&decision.path);
        if !is_built_in || !opening.is_some_and(|rule| rule.effect == Effect::Write) {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = crate::open::open(directory.as_path(), flags)?;
        let place = ResolvedParent {
            directory,
            name: decision.path.name().unwrap_or_default().to_owned(),
            end: resolve::PathSuffix::Plain,
        };
        Ok(!self.rules.is_protected(decision, &place)?)
    }
}
