//! Reports to the launcher.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::new_denial::new_denial;
use ringfence_api::{Denial, Operation};
use ringfence_plan::seccomp::calls::Call;
use ringfence_policy::{AbsPath, Access, Decision, Verdict};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use tracing::{debug, info};

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::predict::PredictedDenial;
use super::resolve::{self, FinalSymlink, PathResolution};
use crate::apply::fd_passing::{send_message, send_message_with_fds};
use crate::apply::parked;
use crate::apply::pending_write::PendingWriteInfo;
use crate::apply::{ApprovalMode, SandboxMessage, WriteIntent};
use crate::open::open_at;

/// The kind of name that a syscall would create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreatedKind {
    /// A file to write, unless it exists.
    File,
    /// Any other name.
    Name,
    /// Another name for an existing file.
    Renamed,
}

impl CreationRules {
    /// Reports a failed syscall if the policy is the cause. Not every failure is a denial: a file's
    /// own mode may forbid the access, and programs look for many files that do not exist.
    pub(super) fn report_failed(
        &mut self,
        caller: &NotifyCaller<'_>,
        error: Errno,
        (directory, path): (i32, &CStr),
        making: CreatedKind,
    ) -> Result<(), Errno> {
        if !self.denials.is_empty() {
            return Ok(());
        }
        let (path, operation) = target_of_call(caller, directory, path, making)?;
        let decision = self.grants.decide(&path, Access::Write);
        let is_refused = match decision.verdict {
            Verdict::Allowed => {
                self.report_failed_in_readonly_parent(caller, error, operation, &path);
                false
            }
            Verdict::Absent => !self.is_own(&path),
            // In an opened tree a directory is absent because it is absent on the host.
            Verdict::Denied | Verdict::ReadOnly => error != Errno::NOENT,
        };
        if is_refused {
            self.refuse(caller, operation, &decision);
        }
        Ok(())
    }

    /// Reports a name that a rule opens and that cannot be created: it was absent when the sandbox
    /// was built, and its parent directory is not writable.
    fn report_failed_in_readonly_parent(
        &mut self,
        caller: &NotifyCaller<'_>,
        error: Errno,
        operation: Operation,
        path: &AbsPath,
    ) {
        let parent = path.parent().map(|parent| self.grants.decide(&parent, Access::Write));
        let Some(parent) = parent
            .filter(|parent| parent.verdict != Verdict::Allowed && !self.is_own(&parent.path))
        else {
            return;
        };
        if matches!(error, Errno::ROFS | Errno::ACCESS | Errno::PERM) {
            let (rule, origin, explicit) = Denial::rule_from_decision(&parent);
            self.denials.push(denial(
                caller,
                operation,
                path.to_string_lossy().into_owned(),
                (rule, origin),
                explicit,
            ));
        }
    }

    /// True if the source of a rename or link exists. If the policy hides it, reports that.
    pub(super) fn check_source_exists(
        &mut self,
        caller: &NotifyCaller<'_>,
        directory: i32,
        path: &CStr,
    ) -> Result<bool, Errno> {
        let start = resolve::start(caller, directory, path)?;
        if rustix::fs::statat(&start, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(true);
        }
        let (path, _) = target_of_call(caller, directory, path, CreatedKind::Name)?;
        let decision = self.grants.decide(&path, Access::Read);
        if decision.verdict == Verdict::Denied
            || (decision.verdict == Verdict::Absent && !self.is_own(&path))
        {
            self.refuse(caller, Operation::Read, &decision);
        }
        Ok(false)
    }

    fn is_own(&self, path: &AbsPath) -> bool {
        self.own.contains(path)
    }

    /// Reports a syscall that a read-only mount or a mount point makes fail.
    pub(super) fn report_predicted(
        &mut self,
        caller: &NotifyCaller<'_>,
        predicted: &PredictedDenial,
    ) {
        let Ok(path) = path_of_directory(caller.host_proc, predicted.there.as_fd()) else {
            return;
        };
        let decision = self.grants.decide(&path, Access::Write);
        let operation = predicted.operation;
        match decision.verdict {
            // Files in `/proc` deny by themselves.
            Verdict::Absent if path.as_path().starts_with("/proc") => {}
            Verdict::Allowed => {
                let is_opened = self.own.is_own_path(&path)
                    || self.grants.rules.iter().any(|rule| rule.root == path && rule.opens());
                let why = match operation {
                    Operation::Connect => Denial::HOST_SOCKET,
                    _ if is_opened => Denial::IS_MOUNT_POINT,
                    _ => Denial::ALIAS_OF_DENIED,
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
        let (rule, origin, explicit) = Denial::rule_from_decision(decision);
        let target = decision.path.to_string_lossy().into_owned();
        self.denials.push(denial(caller, operation, target, (rule, origin), explicit));
    }

    /// Notes a denial that follows from a built-in reason, not from a rule about `path`.
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

    /// Notes that the seccomp filter denies a syscall, independent of its target.
    pub(super) fn refuse_call(&mut self, caller: &NotifyCaller<'_>, call: Call, why: &str) {
        let because = (why.to_owned(), "built in".to_owned());
        self.denials.push(denial(caller, Operation::Call, call.name(), because, false));
    }

    /// True if the user can be asked about a syscall that failed because of one rule.
    pub(super) fn can_ask(&self) -> bool {
        self.asker == ApprovalMode::Ask && self.denials.len() == 1
    }

    /// Parks a syscall that is about to fail with errno `number` until the user answers, if it
    /// failed because of a rule about one path. True if it is parked.
    pub(super) fn ask_user(
        &mut self,
        caller: &NotifyCaller<'_>,
        intent: WriteIntent,
        number: i32,
        control: &OwnedFd,
    ) -> bool {
        let [denial] = self.denials.as_slice() else { return false };
        let is_askable = matches!(denial.operation, Operation::Write | Operation::Create)
            && !Denial::SANDBOX_RULES.contains(&denial.rule.as_str())
            // A target that is not UTF-8 cannot be shown to the user.
            && !denial.target.contains(char::REPLACEMENT_CHARACTER);
        let Some(path) = AbsPath::new(&denial.target).filter(|_| is_askable) else { return false };
        let call = parked::NotificationInfo {
            id: caller.notification.id,
            pid: caller.notification.pid,
            errno: number,
        };
        let is_sent = send_message_with_fds(
            control,
            &SandboxMessage::PendingWrite(Box::new(PendingWriteInfo {
                call,
                denial: denial.clone(),
                path,
                intent,
            })),
            &[],
        );
        if is_sent {
            debug!(target: "notify", caller = call.pid, "waits for the user's answer");
            self.denials.clear();
        }
        is_sent
    }

    /// Sends everything noted to the launcher.
    pub(super) fn report(&mut self, control: impl AsFd) {
        if let Some(space) = &mut self.space {
            space.report(&control);
        }
        for denial in self.denials.drain(..) {
            log_denial(&denial);
            send_message(&control, &SandboxMessage::Denied(Box::new(denial)));
        }
        for (directory, path, what, birth) in self.made.drain(..) {
            let is_sent = directory.is_some_and(|directory| {
                send_message_with_fds(
                    &control,
                    &SandboxMessage::NameCreated(path.clone(), what, birth),
                    &[directory.as_fd()],
                )
            });
            if !is_sent {
                // Without the fd, the launcher still knows that there is a path to check.
                send_message(&control, &SandboxMessage::NameCreated(path, what, birth));
            }
        }
    }
}

fn log_denial(denial: &Denial) {
    let Denial { operation, target, rule, origin, pid, .. } = denial;
    info!(target: "notify", caller = pid, ?operation, path = target, rule, origin, "denied");
}

/// The path that the syscall would create or write, and the operation.
fn target_of_call(
    caller: &NotifyCaller<'_>,
    directory: i32,
    path: &CStr,
    making: CreatedKind,
) -> Result<(AbsPath, Operation), Errno> {
    let start = resolve::start(caller, directory, path)?;
    if making == CreatedKind::File
        && let Ok(there) = open_at(&start, path, OFlags::PATH)
    {
        return Ok((path_of_directory(caller.host_proc, there.as_fd())?, Operation::Write));
    }
    let written = path_of_directory(caller.host_proc, start.as_fd())?
        .join(OsStr::from_bytes(path.to_bytes()));
    let last = if making == CreatedKind::File { FinalSymlink::Follow } else { FinalSymlink::Keep };
    let path = match resolve::walk(caller, start, path, last) {
        Ok(PathResolution::Place(place)) => path_of(caller, &place)?,
        // The parent is absent: only the path as written is known.
        _ => written,
    };
    Ok((path, if making == CreatedKind::Renamed { Operation::Rename } else { Operation::Create }))
}

pub(super) fn denial(
    caller: &NotifyCaller<'_>,
    operation: Operation,
    target: String,
    because: (String, String),
    explicit: bool,
) -> Denial {
    let caller = (caller.notification.pid, caller.program());
    Denial { explicit, ..new_denial(operation, target, because, caller) }
}
