//! What the caller of the sandbox is told.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use ringfence_api::{Denial, DenialEvidence, Operation};
use ringfence_policy::{AbsPath, Access, Decision, Verdict};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::predict::PredictedDenial;
use super::resolve::{self, FinalSymlink, PathResolution};
use crate::apply::helper::{tell, tell_with};
use crate::apply::parked;
use crate::apply::pending_write::PendingWriteInfo;
use crate::apply::{ApprovalMode, SandboxMessage, WriteIntent};
use crate::seccomp::calls::Call;

/// What a call would make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreatedKind {
    /// A file to write, unless it is there already.
    File,
    /// Any other name.
    Name,
    /// Another name for something.
    Renamed,
}

impl CreationRules {
    /// Tells of a call that failed, if the policy is why. Not every failure is a refusal: a
    /// file may be shut by its own mode, and much is looked for that is nowhere.
    pub(super) fn failed(
        &mut self,
        caller: &NotifyCaller<'_>,
        error: Errno,
        (directory, path): (i32, &CStr),
        making: CreatedKind,
    ) -> Result<(), Errno> {
        if !self.denials.is_empty() {
            return Ok(());
        }
        let (path, operation) = meant(caller, directory, path, making)?;
        let decision = self.grants.decide(&path, Access::Write);
        let is_refused = match decision.verdict {
            Verdict::Allowed => {
                self.failed_around(caller, error, operation, &path);
                false
            }
            Verdict::Absent => !self.is_own(&path),
            // In an opened tree it is as on the host that a directory is not there.
            Verdict::Denied | Verdict::ReadOnly => error != Errno::NOENT,
        };
        if is_refused {
            self.refuse(caller, operation, &decision);
        }
        Ok(())
    }

    /// Tells of a name that a rule opens and that cannot be made: it was absent when the sandbox
    /// was made, and nothing may be made in the directory around it.
    fn failed_around(
        &mut self,
        caller: &NotifyCaller<'_>,
        error: Errno,
        operation: Operation,
        path: &AbsPath,
    ) {
        let around = path.parent().map(|around| self.grants.decide(&around, Access::Write));
        let Some(around) = around
            .filter(|around| around.verdict != Verdict::Allowed && !self.is_own(&around.path))
        else {
            return;
        };
        if matches!(error, Errno::ROFS | Errno::ACCESS | Errno::PERM) {
            let (rule, origin, explicit) = Denial::because(&around);
            self.denials.push(denial(
                caller,
                operation,
                path.to_string_lossy().into_owned(),
                (rule, origin),
                explicit,
            ));
        }
    }

    /// Whether what is to get a name is there. If the policy is why it is not, tells so.
    pub(super) fn finds(
        &mut self,
        caller: &NotifyCaller<'_>,
        directory: i32,
        path: &CStr,
    ) -> Result<bool, Errno> {
        let start = resolve::start(caller, directory, path)?;
        if rustix::fs::statat(&start, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(true);
        }
        let (path, _) = meant(caller, directory, path, CreatedKind::Name)?;
        let decision = self.grants.decide(&path, Access::Read);
        if decision.verdict == Verdict::Denied
            || (decision.verdict == Verdict::Absent && !self.is_own(&path))
        {
            self.refuse(caller, Operation::Read, &decision);
        }
        Ok(false)
    }

    fn is_own(&self, path: &AbsPath) -> bool {
        self.own.contain(path)
    }

    /// Tells of a call that a read-only mount refuses, or that a mount is in the way of.
    pub(super) fn foreseen(&mut self, caller: &NotifyCaller<'_>, foreseen: &PredictedDenial) {
        let Ok(path) = path_of_directory(caller.host_proc, foreseen.there.as_fd()) else { return };
        let decision = self.grants.decide(&path, Access::Write);
        let operation = foreseen.operation;
        match decision.verdict {
            // The kernel's own files refuse by themselves.
            Verdict::Absent if path.as_path().starts_with("/proc") => {}
            Verdict::Allowed => {
                let is_opened = self.own.are(&path)
                    || self.grants.rules.iter().any(|rule| rule.root == path && rule.opens());
                let why = match operation {
                    Operation::Connect => Denial::HOST_SOCKET,
                    _ if is_opened => Denial::OPENED_BY_ITSELF,
                    _ => Denial::ANOTHER_NAME,
                };
                self.refuse_since(caller, operation, &path, why);
            }
            _ => self.refuse(caller, operation, &decision),
        }
    }

    pub(super) fn refuse(
        &mut self,
        caller: &NotifyCaller<'_>,
        operation: Operation,
        decision: &Decision,
    ) {
        let (rule, origin, explicit) = Denial::because(decision);
        let target = decision.path.to_string_lossy().into_owned();
        self.denials.push(denial(caller, operation, target, (rule, origin), explicit));
    }

    /// Notes a refusal that follows from what is built in, not from a rule about `path`.
    pub(super) fn refuse_since(
        &mut self,
        caller: &NotifyCaller<'_>,
        operation: Operation,
        path: &AbsPath,
        why: &str,
    ) {
        let because = (why.to_owned(), "built in".to_owned());
        self.denials.push(denial(
            caller,
            operation,
            path.to_string_lossy().into_owned(),
            because,
            true,
        ));
    }

    /// Notes that the filter refuses a call, whatever it is about.
    pub(super) fn refuse_call(&mut self, caller: &NotifyCaller<'_>, call: Call, why: &str) {
        let because = (why.to_owned(), "built in".to_owned());
        self.denials.push(denial(caller, Operation::Call, call.name(), because, false));
    }

    /// Whether somebody can be asked about a call that has failed for one rule.
    pub(super) fn could_plead(&self) -> bool {
        self.asker == ApprovalMode::Somebody && self.denials.len() == 1
    }

    /// Lets a call that is about to fail with `number` wait for an answer, if it failed for a
    /// rule about one path. Answers whether it does.
    pub(super) fn plead(
        &mut self,
        caller: &NotifyCaller<'_>,
        deed: WriteIntent,
        number: i32,
        control: &OwnedFd,
    ) -> bool {
        let [denial] = self.denials.as_slice() else { return false };
        let is_askable = matches!(denial.operation, Operation::Write | Operation::Create)
            && !Denial::OF_THE_SANDBOX.contains(&denial.rule.as_str())
            // What is no text cannot be asked about.
            && !denial.target.contains(char::REPLACEMENT_CHARACTER);
        let Some(path) = AbsPath::new(&denial.target).filter(|_| is_askable) else { return false };
        let call = parked::NotificationInfo {
            id: caller.notification.id,
            pid: caller.notification.pid,
            errno: number,
        };
        let is_told = tell_with(
            control,
            &SandboxMessage::Pleads(Box::new(PendingWriteInfo {
                call,
                denial: denial.clone(),
                path,
                deed,
            })),
            &[],
        );
        if is_told {
            self.denials.clear();
        }
        is_told
    }

    /// Tells the caller of the sandbox what there is to tell.
    pub(super) fn report(&mut self, control: impl AsFd) {
        if let Some(space) = &mut self.space {
            space.report(&control);
        }
        for denial in self.denials.drain(..) {
            tell(&control, &SandboxMessage::Denied(Box::new(denial)));
        }
        for (directory, path, what, birth) in self.made.drain(..) {
            let is_told = directory.is_some_and(|directory| {
                tell_with(
                    &control,
                    &SandboxMessage::Made(path.clone(), what, birth),
                    &[directory.as_fd()],
                )
            });
            if !is_told {
                // Without the descriptor it is still known that there is something to look for.
                tell(&control, &SandboxMessage::Made(path, what, birth));
            }
        }
    }
}

/// What was to be made of it, and how that is called.
fn meant(
    caller: &NotifyCaller<'_>,
    directory: i32,
    path: &CStr,
    making: CreatedKind,
) -> Result<(AbsPath, Operation), Errno> {
    let start = resolve::start(caller, directory, path)?;
    if making == CreatedKind::File
        && let Ok(there) =
            rustix::fs::openat(&start, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    {
        return Ok((path_of_directory(caller.host_proc, there.as_fd())?, Operation::Write));
    }
    let written = path_of_directory(caller.host_proc, start.as_fd())?
        .join(OsStr::from_bytes(path.to_bytes()));
    let last = if making == CreatedKind::File { FinalSymlink::Follow } else { FinalSymlink::Keep };
    let path = match resolve::walk(caller, start, path, last) {
        Ok(PathResolution::Place(place)) => path_of(caller, &place)?,
        // It leads to where nothing is: only what was written is known.
        _ => written,
    };
    Ok((path, if making == CreatedKind::Renamed { Operation::Rename } else { Operation::Create }))
}

pub(super) fn denial(
    caller: &NotifyCaller<'_>,
    operation: Operation,
    target: String,
    (rule, origin): (String, String),
    explicit: bool,
) -> Denial {
    let time_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    let (pid, program) = (caller.notification.pid, caller.program());
    Denial {
        operation,
        target,
        rule,
        origin,
        explicit,
        pid,
        program,
        time_ms,
        evidence: DenialEvidence::Kernel,
        count: 1,
        optional: false,
    }
}
