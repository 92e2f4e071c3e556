//! Records accesses that are allowed, where the policy asks for it. Decides nothing.
//!
//! The kernel continues these syscalls, and another thread may change a path after it was read
//! here: the report may name another path than was opened, but no denied path becomes accessible.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use crate::clock::now_ms;
use ringfence_api::{Allowance, Operation};
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_plan::seccomp::is_only_observed;
use ringfence_policy::{AbsPath, Access, NetworkMode, Verdict};
use rustix::fs::OFlags;

use super::NotifyReply;
use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::resolve;
use crate::apply::SandboxMessage;
use crate::apply::fd_passing::send_message;
use crate::open::open_at;

/// Accesses that were seen and not reported yet.
#[derive(Default)]
pub(super) struct AccessRecorder {
    allowances: Vec<Allowance>,
    known: HashMap<(String, String, &'static str), usize>,
    dropped: u64,
}

/// A syscall that is recorded.
pub(super) struct ObservedCall {
    call: Call,
    /// True if the notification serves only the recording.
    is_recording_only: bool,
    /// `None` if the syscall names no path, or one that cannot be read: init, which starts the
    /// command, is not dumpable.
    named: Option<ObservedPath>,
}

/// The path that a syscall names.
struct ObservedPath {
    directory: i32,
    path: CString,
    operation: Operation,
    /// The real path of an existing target.
    there: Option<AbsPath>,
}

impl ObservedCall {
    /// Reads the syscall; `None` if it is unknown.
    pub(super) fn from_caller(caller: &NotifyCaller<'_>) -> Option<Self> {
        let notification = caller.notification;
        let call =
            Call::from_number(Arch::from_audit_arch(notification.arch)?, notification.call as u32)?;
        Some(Self {
            call,
            is_recording_only: is_only_observed(call, &notification.arguments),
            named: named(call, caller),
        })
    }

    /// True if the notification serves only the recording.
    pub(super) fn is_recording_only(&self) -> bool {
        self.is_recording_only
    }
}

fn named(call: Call, caller: &NotifyCaller<'_>) -> Option<ObservedPath> {
    use Operation::{Create, Execute, Rename};
    let (directory, path, operation) = match call {
        Call::Open => (None, 0, operation_of_open(caller.int_arg(1))),
        Call::Openat => (Some(0), 1, operation_of_open(caller.int_arg(2))),
        Call::Creat => (None, 0, Operation::Write),
        Call::Execve => (None, 0, Execute),
        Call::Execveat => (Some(0), 1, Execute),
        Call::Mkdir | Call::Mknod => (None, 0, Create),
        Call::Mkdirat | Call::Mknodat => (Some(0), 1, Create),
        Call::Symlink | Call::Link => (None, 1, Create),
        Call::Symlinkat => (Some(1), 2, Create),
        Call::Linkat => (Some(2), 3, Create),
        Call::Rename => (None, 1, Rename),
        Call::Renameat | Call::Renameat2 => (Some(2), 3, Rename),
        _ => return None,
    };
    let directory = directory.map_or(libc::AT_FDCWD, |number| caller.int_arg(number));
    let path = caller.string_arg(path).ok()?;
    let opens = !matches!(operation, Create | Rename);
    let there = opens.then(|| resolve(caller, directory, &path)).flatten();
    Some(ObservedPath { directory, path, operation, there })
}

fn operation_of_open(flags: i32) -> Operation {
    if flags & libc::O_ACCMODE == libc::O_RDONLY { Operation::Read } else { Operation::Write }
}

/// The real path of the file that the caller opens; `None` if it is absent or below the caller's
/// own `/proc` entry.
fn resolve(caller: &NotifyCaller<'_>, directory: i32, path: &CString) -> Option<AbsPath> {
    let opened = if path.is_empty() {
        caller.open_start(directory)
    } else {
        let start = resolve::start(caller, directory, path).ok()?;
        open_at(start, path.as_c_str(), OFlags::PATH)
    };
    path_of_directory(caller.host_proc, opened.ok()?.as_fd()).ok()
}

impl AccessRecorder {
    /// Records a syscall and its reply.
    pub(super) fn note(
        &mut self,
        caller: &NotifyCaller<'_>,
        observed: &ObservedCall,
        reply: &NotifyReply,
        rules: &mut CreationRules,
    ) {
        match (&observed.named, reply) {
            (_, NotifyReply::Error(_)) => {}
            (_, NotifyReply::Continue) if observed.call == Call::Connect => {
                self.record_connect(caller, rules)
            }
            (Some(named), NotifyReply::Continue) => self.record_continued(caller, named, rules),
            (
                Some(named),
                NotifyReply::Value(_) | NotifyReply::Descriptor(..) | NotifyReply::Later,
            ) => self.record_executed(caller, named, rules),
            (None, _) => {}
        }
    }

    /// Records a syscall that the kernel continues.
    fn record_continued(
        &mut self,
        caller: &NotifyCaller<'_>,
        named: &ObservedPath,
        rules: &mut CreationRules,
    ) {
        let access = access(named.operation);
        match &named.there {
            Some(path) if rules.allows(path, access) => {
                self.record_allowed(caller, named.operation, path, rules)
            }
            // An existing path that no rule names belongs to the sandbox itself.
            Some(path) if rules.decide(path, access).verdict == Verdict::Absent => {}
            Some(path) => rules.report_missed(caller, path, named.operation, access),
            None => {
                let start = resolve::start(caller, named.directory, &named.path);
                if let Ok(base) =
                    start.and_then(|start| path_of_directory(caller.host_proc, start.as_fd()))
                {
                    rules.report_missed(
                        caller,
                        &base.join(OsStr::from_bytes(named.path.to_bytes())),
                        named.operation,
                        access,
                    );
                }
            }
        }
    }

    /// Records a syscall that the notify handler executed.
    fn record_executed(
        &mut self,
        caller: &NotifyCaller<'_>,
        named: &ObservedPath,
        rules: &CreationRules,
    ) {
        if let Some(path) = &named.there {
            return self.record_allowed(caller, named.operation, path, rules);
        }
        let made = resolve::resolve_parent(caller, named.directory, &named.path)
            .and_then(|place| path_of(caller, &place));
        if let Ok(path) = made {
            let operation = if named.operation == Operation::Rename {
                Operation::Rename
            } else {
                Operation::Create
            };
            self.record_allowed(caller, operation, &path, rules);
        }
    }

    fn record_allowed(
        &mut self,
        caller: &NotifyCaller<'_>,
        operation: Operation,
        path: &AbsPath,
        rules: &CreationRules,
    ) {
        let decision = rules.decide(path, access(operation));
        // A path that no rule names belongs to the sandbox itself.
        if let (Verdict::Allowed, Some(because)) = (decision.verdict, &decision.rule) {
            let origin = because.origin();
            self.record(
                caller,
                operation,
                path.to_string_lossy().into_owned(),
                (origin.text.clone(), origin.to_string()),
            );
        }
    }

    /// Records a connection before the kernel makes it.
    fn record_connect(&mut self, caller: &NotifyCaller<'_>, rules: &CreationRules) {
        const LONGEST: u64 = 128;
        // In other modes `connect.rs` reports it.
        if rules.network() != NetworkMode::Full {
            return;
        }
        let length = caller.raw_arg(2).min(LONGEST) as usize;
        if let Some(address) =
            caller.read_bytes(caller.raw_arg(1), length).ok().and_then(|bytes| host(&bytes))
        {
            let because = ("network.mode = full".to_owned(), "the policy".to_owned());
            self.record(caller, Operation::Connect, address.to_string(), because);
        }
    }

    fn record(
        &mut self,
        caller: &NotifyCaller<'_>,
        operation: Operation,
        target: String,
        (rule, origin): (String, String),
    ) {
        const CAPACITY: usize = 10_000;
        let program = caller.program();
        let key = (target, program, operation.word());
        if let Some(at) = self.known.get(&key) {
            self.allowances[*at].count += 1;
        } else if self.allowances.len() == CAPACITY {
            self.dropped += 1;
        } else {
            let (target, program, _) = key.clone();
            self.known.insert(key, self.allowances.len());
            self.allowances.push(Allowance {
                operation,
                target,
                rule,
                origin,
                pid: caller.notification.pid,
                program,
                time_ms: now_ms(),
                count: 1,
            });
        }
    }

    /// Reports every access not reported yet.
    pub(super) fn report(&mut self, control: BorrowedFd<'_>) {
        for allowance in self.allowances.iter_mut().filter(|allowance| allowance.count > 0) {
            send_message(control, &SandboxMessage::Allowed(Box::new(allowance.clone())));
            allowance.count = 0;
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            send_message(control, &SandboxMessage::Unlisted(dropped));
        }
    }
}

fn access(operation: Operation) -> Access {
    match operation {
        Operation::Write | Operation::Create | Operation::Rename => Access::Write,
        Operation::Execute => Access::Execute,
        Operation::Read | Operation::Connect | Operation::Call | Operation::Command => Access::Read,
    }
}

/// The host and port of a `sockaddr`; `None` for other families.
fn host(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let address: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => {
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::host;

    #[track_caller]
    fn check(family: i32, rest: &[u8], expect: Option<&str>) {
        let bytes = [&(family as u16).to_ne_bytes(), rest].concat();
        assert_eq!(host(&bytes).map(|address| address.to_string()).as_deref(), expect);
    }

    #[test]
    fn sockaddr_is_parsed_as_the_kernel_does() {
        check(libc::AF_INET, &[1, 187, 10, 0, 0, 1, 0, 0], Some("10.0.0.1:443"));
        check(libc::AF_INET, &[1, 187, 10, 0, 0], None);
        let mut six = [0; 26];
        six[..2].copy_from_slice(&[0, 80]);
        six[6..8].copy_from_slice(&[0x20, 0x01]);
        six[21] = 5;
        check(libc::AF_INET6, &six, Some("[2001::5]:80"));
        check(libc::AF_UNIX, b"/run/x\0", None);
        check(libc::AF_UNSPEC, &[0; 14], None);
    }
}
