//! What goes through: looked at where the policy wants to know, and decided nothing by.
//!
//! The kernel carries these calls out as they stand, and another thread may change a path
//! after it was read here: what is told may be another path than was opened, and nothing
//! that is shut is open for it.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use ringfence_api::{Allowance, Operation};
use ringfence_policy::{AbsPath, Access, NetworkMode, Verdict};
use rustix::fs::{Mode, OFlags};

use super::NotifyReply;
use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::resolve;
use crate::apply::SandboxMessage;
use crate::apply::helper::tell;
use crate::seccomp::calls::{Arch, Call};
use crate::seccomp::is_only_observed;

/// What was seen and has not been told yet.
#[derive(Default)]
pub(super) struct AccessRecorder {
    kept: Vec<Allowance>,
    known: HashMap<(String, String, &'static str), usize>,
    dropped: u64,
}

/// A call that is looked at.
pub(super) struct ObservedCall {
    call: Call,
    /// Whether it comes by for nothing else.
    is_all: bool,
    /// `None` if it is about no path, or one that cannot be read: the sandbox's first process,
    /// which starts the command, lets nobody look.
    named: Option<ObservedPath>,
}

/// What a call names.
struct ObservedPath {
    directory: i32,
    path: CString,
    operation: Operation,
    /// Where the path leads, if it does.
    there: Option<AbsPath>,
}

impl ObservedCall {
    /// What the caller is about; `None` if its call is unknown.
    pub(super) fn at(caller: &NotifyCaller<'_>) -> Option<Self> {
        let notification = caller.notification;
        let call =
            Call::from_number(Arch::from_audit(notification.arch)?, notification.call as u32)?;
        Some(Self {
            call,
            is_all: is_only_observed(call, &notification.arguments),
            named: named(call, caller),
        })
    }

    /// Whether the call comes by for nothing but being looked at.
    pub(super) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether what was noted is to be told now: at a call that is made seldom, and by the
    /// sandbox's first process when all is over.
    pub(super) fn is_end(&self) -> bool {
        self.call == Call::Umask
    }
}

fn named(call: Call, caller: &NotifyCaller<'_>) -> Option<ObservedPath> {
    use Operation::{Create, Execute, Rename};
    let (directory, path, operation) = match call {
        Call::Open => (None, 0, wanted(caller.int(1))),
        Call::Openat => (Some(0), 1, wanted(caller.int(2))),
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
    let directory = directory.map_or(libc::AT_FDCWD, |number| caller.int(number));
    let path = caller.text(path).ok()?;
    let opens = !matches!(operation, Create | Rename);
    let there = opens.then(|| resolve(caller, directory, &path)).flatten();
    Some(ObservedPath { directory, path, operation, there })
}

fn wanted(flags: i32) -> Operation {
    if flags & libc::O_ACCMODE == libc::O_RDONLY { Operation::Read } else { Operation::Write }
}

/// The real path of what the caller opens; `None` if there is nothing, or nothing but what
/// is the caller's own below `/proc`.
fn resolve(caller: &NotifyCaller<'_>, directory: i32, path: &CString) -> Option<AbsPath> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = if path.is_empty() {
        caller.directory(directory)
    } else {
        let start = resolve::start(caller, directory, path).ok()?;
        rustix::fs::openat(start, path.as_c_str(), flags, Mode::empty())
    };
    path_of_directory(caller.host_proc, opened.ok()?.as_fd()).ok()
}

impl AccessRecorder {
    /// Notes a call that was answered so.
    pub(super) fn note(
        &mut self,
        caller: &NotifyCaller<'_>,
        look: &ObservedCall,
        reply: &NotifyReply,
        judge: &mut CreationRules,
    ) {
        match (&look.named, reply) {
            (_, NotifyReply::Error(_)) => {}
            (_, NotifyReply::Through) if look.call == Call::Connect => self.connects(caller, judge),
            (Some(named), NotifyReply::Through) => self.passes(caller, named, judge),
            (
                Some(named),
                NotifyReply::Value(_) | NotifyReply::Descriptor(..) | NotifyReply::Later,
            ) => self.done(caller, named, judge),
            (None, _) => {}
        }
    }

    /// What goes through by itself, before it does.
    fn passes(
        &mut self,
        caller: &NotifyCaller<'_>,
        named: &ObservedPath,
        judge: &mut CreationRules,
    ) {
        let access = access(named.operation);
        match &named.there {
            Some(path) if judge.allows(path, access) => {
                self.allowed(caller, named.operation, path, judge)
            }
            // What no rule speaks of and is there is the sandbox's own.
            Some(path) if judge.decide(path, access).verdict == Verdict::Absent => {}
            Some(path) => judge.missed(caller, path, named.operation, access),
            None => {
                let start = resolve::start(caller, named.directory, &named.path);
                if let Ok(base) =
                    start.and_then(|start| path_of_directory(caller.host_proc, start.as_fd()))
                {
                    judge.missed(
                        caller,
                        &base.join(OsStr::from_bytes(named.path.to_bytes())),
                        named.operation,
                        access,
                    );
                }
            }
        }
    }

    /// What the usher has done for the caller.
    fn done(&mut self, caller: &NotifyCaller<'_>, named: &ObservedPath, judge: &CreationRules) {
        if let Some(path) = &named.there {
            return self.allowed(caller, named.operation, path, judge);
        }
        let made = resolve::keep(caller, named.directory, &named.path)
            .and_then(|place| path_of(caller, &place));
        if let Ok(path) = made {
            let operation = if named.operation == Operation::Rename {
                Operation::Rename
            } else {
                Operation::Create
            };
            self.allowed(caller, operation, &path, judge);
        }
    }

    fn allowed(
        &mut self,
        caller: &NotifyCaller<'_>,
        operation: Operation,
        path: &AbsPath,
        judge: &CreationRules,
    ) {
        let decision = judge.decide(path, access(operation));
        // What no rule speaks of is the sandbox's own.
        if let (Verdict::Allowed, Some(because)) = (decision.verdict, &decision.rule) {
            let origin = because.origin();
            self.add(
                caller,
                operation,
                path.to_string_lossy().into_owned(),
                (origin.text.clone(), origin.to_string()),
            );
        }
    }

    /// A connection, before the kernel tries to make it.
    fn connects(&mut self, caller: &NotifyCaller<'_>, judge: &CreationRules) {
        const LONGEST: u64 = 128;
        // Elsewhere the handler has told of it.
        if judge.network() != NetworkMode::Full {
            return;
        }
        let length = caller.raw(2).min(LONGEST) as usize;
        if let Some(address) =
            caller.bytes(caller.raw(1), length).ok().and_then(|bytes| host(&bytes))
        {
            let because = ("network.mode = full".to_owned(), "the policy".to_owned());
            self.add(caller, Operation::Connect, address.to_string(), because);
        }
    }

    fn add(
        &mut self,
        caller: &NotifyCaller<'_>,
        operation: Operation,
        target: String,
        (rule, origin): (String, String),
    ) {
        const MANY: usize = 10_000;
        let program = caller.program();
        let key = (target, program, operation.word());
        if let Some(at) = self.known.get(&key) {
            self.kept[*at].count += 1;
        } else if self.kept.len() == MANY {
            self.dropped += 1;
        } else {
            let (target, program, _) = key.clone();
            self.known.insert(key, self.kept.len());
            let time_ms = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64);
            self.kept.push(Allowance {
                operation,
                target,
                rule,
                origin,
                pid: caller.notification.pid,
                program,
                time_ms,
                count: 1,
            });
        }
    }

    /// Tells what has not been told.
    pub(super) fn report(&mut self, control: BorrowedFd<'_>) {
        for allowance in self.kept.iter_mut().filter(|allowance| allowance.count > 0) {
            tell(control, &SandboxMessage::Passed(Box::new(allowance.clone())));
            allowance.count = 0;
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            tell(control, &SandboxMessage::Unlisted(dropped));
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
    fn addresses_are_read_as_the_kernel_reads_them() {
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
