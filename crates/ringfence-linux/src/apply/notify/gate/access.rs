//! Decisions about single paths in a sandbox without mounts. With mounts, nothing is decided here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringfence_api::{Denial, Operation};
use ringfence_plan::{Overmount, Plan, Step};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Effect, Source, Verdict};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::kernel_files;
use crate::apply::notify::caller::NotifyCaller;
use crate::apply::notify::creation_rules::CreationRules;
use crate::apply::notify::open_flags::OpenRequest;
use crate::apply::notify::proc_links;
use crate::apply::notify::resolve::{self, ResolvedParent};
use crate::inode::inode_id;

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
    pub(super) files: HashMap<AbsPath, String>,
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

/// The access that a syscall needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::apply::notify) enum GateAccess {
    /// Open for reading.
    Read,
    /// Open for writing.
    Write,
    /// Change a name or metadata.
    Change,
}

impl GateAccess {
    /// The access that an open needs, and how its denial is reported.
    fn of_open(request: &OpenRequest) -> impl Iterator<Item = (Self, Operation)> + use<> {
        let write = request.writes().then_some((GateAccess::Write, Operation::Write));
        let read = request.reads().then_some((GateAccess::Read, Operation::Read));
        write.into_iter().chain(read)
    }

    fn of_rules(self) -> Access {
        match self {
            GateAccess::Read => Access::Read,
            GateAccess::Write | GateAccess::Change => Access::Write,
        }
    }
}

impl CreationRules {
    /// True in a sandbox without mounts.
    pub(in crate::apply::notify) fn is_mediated(&self) -> bool {
        self.parts.is_some()
    }

    /// Checks opening the entry at `place`, or creating it if it does not exist.
    pub(in crate::apply::notify) fn check_mediated_open(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
        request: &OpenRequest,
        exists: bool,
    ) -> Result<(), Errno> {
        if !exists {
            return self.check_mediated_parent(caller, place);
        }
        GateAccess::of_open(request).try_for_each(|(wanted, operation)| {
            self.check_mediated_place(caller, place, wanted, operation)
        })
    }

    /// Checks opening a file that a magic link of `/proc` leads to.
    pub(in crate::apply::notify) fn check_mediated_reopen(
        &mut self,
        caller: &NotifyCaller<'_>,
        file: &OwnedFd,
        request: &OpenRequest,
    ) -> Result<(), Errno> {
        GateAccess::of_open(request).try_for_each(|(wanted, operation)| {
            self.check_mediated_file(caller, file, wanted, operation)
        })
    }

    /// Checks a file that gets another name: whatever the new name allows, the file itself must be
    /// readable and writable.
    pub(in crate::apply::notify) fn check_mediated_link(
        &mut self,
        caller: &NotifyCaller<'_>,
        file: &OwnedFd,
    ) -> Result<(), Errno> {
        self.check_mediated_file(caller, file, GateAccess::Read, Operation::Read)?;
        self.check_mediated_file(caller, file, GateAccess::Change, Operation::Rename)
    }

    /// Checks access to an opened file, by its current path.
    pub(in crate::apply::notify) fn check_mediated_file(
        &mut self,
        caller: &NotifyCaller<'_>,
        file: &OwnedFd,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        let Some(parts) = self.parts.clone() else { return Ok(()) };
        let Some(path) = current_path(caller.host_proc, file)? else {
            // A pipe, a socket or a removed file. The caller may have found it among the fds of any
            // process, so it must be one of its own, with the same access.
            let mode = if wanted == GateAccess::Read { Mode::RUSR } else { Mode::WUSR };
            let is_own = proc_links::has_open(caller, &rustix::fs::fstat(file)?, mode)?;
            return if is_own { Ok(()) } else { Err(Errno::ACCESS) };
        };
        let directory = path.parent().unwrap_or_else(AbsPath::root);
        self.check_path(caller, &parts, &path, &directory, wanted, operation)
    }

    /// Checks access to an entry of an open directory.
    pub(in crate::apply::notify) fn check_mediated_place(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        let Some(parts) = self.parts.clone() else { return Ok(()) };
        let directory = directory_of(caller.host_proc, place)?;
        let path = directory.join(&place.name);
        self.check_path(caller, &parts, &path, &directory, wanted, operation)
    }

    /// Checks the directory of a name to be created. The creation rules decide about the name.
    pub(in crate::apply::notify) fn check_mediated_parent(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let Some(parts) = self.parts.clone() else { return Ok(()) };
        let path = directory_of(caller.host_proc, place)?;
        let directory = path.clone();
        let (change, create) = (GateAccess::Change, Operation::Create);
        self.check_path(caller, &parts, &path, &directory, change, create)
    }

    /// Checks a rename: the moved entry, and the name that it gets. A rule about a path below would
    /// not move with it.
    pub(in crate::apply::notify) fn check_mediated_rename(
        &mut self,
        caller: &NotifyCaller<'_>,
        source: &ResolvedParent,
        target: &ResolvedParent,
    ) -> Result<(), Errno> {
        let Some(parts) = self.parts.clone() else { return Ok(()) };
        self.check_mediated_place(caller, source, GateAccess::Change, Operation::Rename)?;
        if target.kind().is_some() {
            self.check_mediated_place(caller, target, GateAccess::Change, Operation::Rename)?;
        } else {
            self.check_mediated_parent(caller, target)?;
        }
        let [from, to] = [source, target]
            .map(|place| directory_of(caller.host_proc, place).map(|it| it.join(&place.name)));
        let (from, to) = (from?, to?);
        let is_in_scratch =
            |path: &AbsPath| parts.scratch.as_ref().is_some_and(|it| path.is_within(it));
        if is_in_scratch(&from) != is_in_scratch(&to) {
            // No rule holds in the directory for temporary files: `mv` copies, file by file.
            return Err(Errno::XDEV);
        }
        for path in [from, to] {
            let is_below = |other: &AbsPath| *other != path && other.is_within(&path);
            let has_rule = parts.closed.iter().any(|(closed, _)| is_below(closed))
                || self
                    .grants
                    .rules
                    .iter()
                    .any(|rule| rule.effect != Effect::Write && is_below(&rule.root));
            if has_rule {
                let why = Denial::CONTAINS_DENIED;
                self.refuse_since(caller, Operation::Rename, &path, why);
                return Err(Errno::ACCESS);
            }
        }
        Ok(())
    }

    /// Checks access to a path, which is in `directory` or the directory itself.
    fn check_path(
        &mut self,
        caller: &NotifyCaller<'_>,
        parts: &OwnParts,
        path: &AbsPath,
        directory: &AbsPath,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        if let Some(scratch) = parts.scratch.as_ref().filter(|it| path.is_within(it)) {
            let is_fixed =
                path == scratch && wanted == GateAccess::Change && operation != Operation::Create;
            return if is_fixed { Err(Errno::ACCESS) } else { Ok(()) };
        }
        if let Some(is_open) = kernel_files::is_open(path, wanted, caller, parts) {
            return if is_open { Ok(()) } else { Err(Errno::ACCESS) };
        }
        let decision = self.decide(path, wanted.of_rules());
        match decision.verdict {
            Verdict::Allowed => {
                return self.check_allowed(caller, parts, &decision, wanted, operation);
            }
            Verdict::ReadOnly if self.is_in_own_repository(&decision, directory)? => {
                return Ok(());
            }
            _ => {}
        }
        self.refuse(caller, operation, &decision);
        Err(match (decision.verdict, wanted) {
            (Verdict::Absent, GateAccess::Read) => Errno::NOENT,
            (Verdict::ReadOnly, _) => Errno::ROFS,
            _ => Errno::ACCESS,
        })
    }

    /// Checks what a mount would change about an allowed path.
    fn check_allowed(
        &mut self,
        caller: &NotifyCaller<'_>,
        parts: &OwnParts,
        decision: &Decision,
        wanted: GateAccess,
        operation: Operation,
    ) -> Result<(), Errno> {
        let path = &decision.path;
        let opening = self.grants.opening_rule(path).map(|rule| rule.effect.clone());
        let (why, error) = match (parts.closing(path), opening) {
            (Some(Overmount::Deny(_)), _) => (Denial::ALIAS_OF_DENIED, Errno::ACCESS),
            (Some(_), _) if wanted != GateAccess::Read => (Denial::ALIAS_OF_DENIED, Errno::ROFS),
            (_, Some(Effect::Private { .. })) if wanted != GateAccess::Read => {
                (Denial::NEEDS_MOUNT, Errno::ROFS)
            }
            (_, Some(Effect::Private { host_beneath: false, .. })) => return Err(Errno::NOENT),
            _ => return Ok(()),
        };
        self.refuse_since(caller, operation, path, why);
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
        let opening = self.grants.opening_rule(&decision.path);
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
        Ok(!self.is_protected(decision, &place)?)
    }
}

/// The path of an open file or directory; `None` if it has none. Fails if another file is there: the
/// path may be that of another mount namespace, or the file may have been replaced.
fn current_path(host_proc: BorrowedFd<'_>, file: impl AsFd) -> Result<Option<AbsPath>, Errno> {
    let status = rustix::fs::fstat(&file)?;
    let name = format!("self/fd/{}", file.as_fd().as_raw_fd());
    let text = rustix::fs::readlinkat(host_proc, name, Vec::new())?;
    let path = AbsPath::new(PathBuf::from(OsStr::from_bytes(text.to_bytes())));
    let Some(path) = path.filter(|_| status.st_nlink > 0) else { return Ok(None) };
    let there = rustix::fs::statat(CWD, path.as_path(), AtFlags::SYMLINK_NOFOLLOW);
    if there.is_ok_and(|there| inode_id(&there) == inode_id(&status)) {
        Ok(Some(path))
    } else {
        Err(Errno::ACCESS)
    }
}

/// The path of the directory of `place`.
fn directory_of(host_proc: BorrowedFd<'_>, place: &ResolvedParent) -> Result<AbsPath, Errno> {
    current_path(host_proc, &place.directory)?.ok_or(Errno::NOENT)
}
