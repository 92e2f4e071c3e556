//! The filter for a sandbox without namespaces.
//!
//! Landlock does not know about metadata, sockets and the host's IPC objects: the filter refuses
//! these syscalls as a whole. With a notify handler, that decides about all paths. Without one,
//! Landlock does, and syscalls that create names pass.

use super::bpf::{BpfAssembler, FilterAction, FilterInsn};
use super::calls::{Arch, Call};
use super::ioctls;
use super::table::{
    ArgCondition, CHANGES_FILES, CREATES_NAMES, FilterRule, GROUP_SIGNALS, REFUSED, TableRow,
    owned_by,
};
use super::{FileOwner, GroupSignals};
use crate::abi;
use crate::landlock::Mediation;

/// Inputs that select the filter without namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainFilterOptions {
    /// Handling of signals to the own process group.
    pub group_signals: GroupSignals,
    /// Owner of files that the command creates.
    pub owner: FileOwner,
    /// Access to the host's network.
    pub network: HostNetwork,
    /// Handling of files that are truncated by path.
    pub truncation: Truncation,
    /// The process that decides about paths.
    pub mediation: Mediation,
}

/// Access to the host's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostNetwork {
    /// No sockets but pairs.
    Closed,
    /// Internet sockets.
    Open,
}

/// Handling of `truncate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncation {
    /// Landlock decides (ABI 3).
    Landlock,
    /// The filter refuses it.
    Refused,
}

const DENIED: FilterAction = FilterAction::Errno(abi::EACCES as u16);
const PERM: FilterAction = FilterAction::Errno(abi::EPERM as u16);
const NONE: FilterAction = FilterAction::Errno(abi::ENOSYS as u16);
const UNSUPPORTED: FilterAction = FilterAction::Errno(abi::EOPNOTSUPP as u16);

/// `F_SETLEASE`.
const SET_LEASE: u32 = 1024;
const SOCKET_TYPE: u32 = 0xf;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;

const SOCKET_PAIRS: &[TableRow] = &[
    (Call::Socketpair, ArgCondition::NoneOf(0, &[1]), DENIED, "only unix socket pairs are allowed"),
    (
        Call::Socketpair,
        ArgCondition::MaskedEquals(1, SOCKET_TYPE, SOCK_DGRAM),
        DENIED,
        "a datagram socket can send to any unix socket of the host",
    ),
    (
        Call::Socketpair,
        ArgCondition::MaskedEquals(1, SOCKET_TYPE, SOCK_RAW),
        DENIED,
        "the kernel makes it a datagram socket",
    ),
    (Call::Socketcall, ArgCondition::Always, NONE, "its arguments are in memory"),
];

const CLOSED_NETWORK: &[TableRow] = &[
    (Call::Socket, ArgCondition::Always, DENIED, "the network is the host's"),
    (Call::Bind, ArgCondition::Always, DENIED, "the names of sockets are the host's"),
    (Call::Connect, ArgCondition::Always, DENIED, "the names of sockets are the host's"),
];

const OPEN_NETWORK: &[TableRow] = &[(
    Call::Socket,
    ArgCondition::NoneOf(0, &[2, 10]),
    DENIED,
    "unix sockets are the host's, and other families are only attack surface",
)];

/// Objects and processes of the host that no namespace hides.
const HOST_OBJECTS: &[TableRow] = &[
    (Call::Shmget, ArgCondition::Always, NONE, "the host's shared memory"),
    (Call::Shmat, ArgCondition::Always, NONE, "the host's shared memory"),
    (Call::Shmctl, ArgCondition::Always, NONE, "the host's shared memory"),
    (Call::Semget, ArgCondition::Always, NONE, "the host's semaphores"),
    (Call::Semop, ArgCondition::Always, NONE, "the host's semaphores"),
    (Call::Semtimedop, ArgCondition::Always, NONE, "the host's semaphores"),
    (Call::Semtimedop64, ArgCondition::Always, NONE, "the host's semaphores"),
    (Call::Semctl, ArgCondition::Always, NONE, "the host's semaphores"),
    (Call::Msgget, ArgCondition::Always, NONE, "the host's message queues"),
    (Call::Msgsnd, ArgCondition::Always, NONE, "the host's message queues"),
    (Call::Msgrcv, ArgCondition::Always, NONE, "the host's message queues"),
    (Call::Msgctl, ArgCondition::Always, NONE, "the host's message queues"),
    (Call::Ipc, ArgCondition::Always, NONE, "the same of 32-bit programs"),
    (Call::MqOpen, ArgCondition::Always, NONE, "the host's message queues have no path"),
    (Call::MqUnlink, ArgCondition::Always, NONE, "the host's message queues have no path"),
    (Call::Setpriority, ArgCondition::NoneOf(0, &[0]), PERM, "reaches processes of the host"),
    (Call::IoprioSet, ArgCondition::NoneOf(0, &[1]), PERM, "reaches processes of the host"),
    (Call::Fcntl, ArgCondition::Equals(1, SET_LEASE), PERM, "lets every open of the file wait"),
    (Call::FcntlOld, ArgCondition::Equals(1, SET_LEASE), PERM, "lets every open of the file wait"),
    (Call::Getxattr, ArgCondition::Always, UNSUPPORTED, "reads attributes of any file"),
    (Call::Lgetxattr, ArgCondition::Always, UNSUPPORTED, "reads attributes of any file"),
    (Call::Listxattr, ArgCondition::Always, UNSUPPORTED, "reads attributes of any file"),
    (Call::Llistxattr, ArgCondition::Always, UNSUPPORTED, "reads attributes of any file"),
    (Call::Setpriority, ArgCondition::NoneOf(1, &[0]), PERM, "reaches processes of the host"),
    (Call::IoprioSet, ArgCondition::NoneOf(1, &[0]), PERM, "reaches processes of the host"),
    (Call::SchedSetparam, ArgCondition::NoneOf(0, &[0]), PERM, "reaches processes of the host"),
    (Call::SchedSetscheduler, ArgCondition::NoneOf(0, &[0]), PERM, "reaches processes of the host"),
    (Call::SchedSetaffinity, ArgCondition::NoneOf(0, &[0]), PERM, "reaches processes of the host"),
    (Call::SchedSetattr, ArgCondition::NoneOf(0, &[0]), PERM, "reaches processes of the host"),
];

/// The notify handler opens every file, and changes the metadata of an open one: Landlock lets a
/// command change that of a file that it can only read.
const MEDIATED: &[TableRow] = &[
    (Call::Open, ArgCondition::Always, FilterAction::Notify, "opens a file"),
    (Call::Openat, ArgCondition::Always, FilterAction::Notify, "opens a file"),
    (Call::Fchmod, ArgCondition::Always, FilterAction::Notify, "changes a mode"),
    (Call::Fchown, ArgCondition::Always, FilterAction::Notify, "changes an owner"),
    (Call::Utimensat, ArgCondition::Always, FilterAction::Notify, "changes times"),
];

/// Changes of an open file that programs do without.
const UNMEDIATED: &[TableRow] = &[
    (Call::Fchown16, ArgCondition::Always, PERM, "changes an owner"),
    (Call::Fsetxattr, ArgCondition::Always, UNSUPPORTED, "changes attributes"),
    (Call::Fremovexattr, ArgCondition::Always, UNSUPPORTED, "changes attributes"),
    (Call::Utimensat64, ArgCondition::Always, NONE, "changes times"),
];

/// Without a handler, also of a file that a command can only read.
const OPEN_FILES: &[TableRow] = &[
    (Call::Fchmod, ArgCondition::Always, PERM, "changes a mode"),
    (Call::Fchown, ArgCondition::Always, PERM, "changes an owner"),
    (Call::Utimensat, ArgCondition::Always, PERM, "changes times"),
    (
        Call::Ioctl,
        ArgCondition::OneOf(1, &[ioctls::SET_FLAGS_32, ioctls::SET_FLAGS]),
        PERM,
        "changes attributes",
    ),
];

/// Without ABI 3, Landlock lets a command truncate what it can read.
const TRUNCATION: &[TableRow] = &[
    (Call::Truncate, ArgCondition::Always, PERM, "Landlock does not restrict it here"),
    (Call::Truncate64, ArgCondition::Always, PERM, "Landlock does not restrict it here"),
];

/// Assembles the filter without namespaces.
pub fn plain_filter(options: PlainFilterOptions) -> Vec<FilterInsn> {
    let mut assembler = BpfAssembler::default();
    for arch in Arch::NATIVE_FIRST {
        assembler.add_architecture(*arch, &plain_rules_for(*arch, options));
    }
    assembler.finish()
}

/// The rules for one architecture.
pub fn plain_rules_for(arch: Arch, options: PlainFilterOptions) -> Vec<FilterRule> {
    let sockets = match options.network {
        HostNetwork::Closed => CLOSED_NETWORK,
        HostNetwork::Open => OPEN_NETWORK,
    };
    let signals = match options.group_signals {
        GroupSignals::Refused => GROUP_SIGNALS,
        GroupSignals::Scoped => &[],
    };
    let truncation = match options.truncation {
        Truncation::Refused => TRUNCATION,
        Truncation::Landlock => &[],
    };
    let is_socket_call = |call| matches!(call, Call::Socket | Call::Socketpair | Call::Socketcall);
    let refused = REFUSED.iter().filter(|row| !is_socket_call(row.0));
    let closed = sockets
        .iter()
        .chain(SOCKET_PAIRS)
        .chain(HOST_OBJECTS)
        .chain(refused)
        .chain(owned_by(options.owner))
        .chain(signals)
        .chain(truncation)
        .chain(UNMEDIATED);
    match options.mediation {
        Mediation::None => closed
            .chain(OPEN_FILES)
            .filter_map(|row| rule(arch, row, refuse_quietly(row.2)?))
            .chain(CHANGES_FILES.iter().filter_map(|row| rule(arch, row, metadata(row.0)?)))
            .collect(),
        Mediation::Handler => closed
            .chain(MEDIATED)
            .chain(CREATES_NAMES.iter().filter(|row| !is_socket_name(row.0)))
            .chain(CHANGES_FILES.iter().filter(|row| !is_socket_name(row.0)))
            .filter_map(|row| rule(arch, row, row.2))
            .collect(),
    }
}

/// True for a syscall that needs a socket which the filter refuses to make.
fn is_socket_name(call: Call) -> bool {
    matches!(call, Call::Bind | Call::Connect | Call::Socketcall)
}

fn rule(
    arch: Arch,
    (call, when, _, reason): &TableRow,
    action: FilterAction,
) -> Option<FilterRule> {
    Some(FilterRule { call: call.number(arch)?, when: *when, action, reason })
}

/// The action where nothing answers a notification; `None` for a syscall that Landlock decides.
fn refuse_quietly(action: FilterAction) -> Option<FilterAction> {
    match action {
        FilterAction::ReportedErrno(number) => Some(FilterAction::Errno(number)),
        FilterAction::Notify => None,
        other => Some(other),
    }
}

/// Refuses changes of metadata by path, which Landlock does not restrict.
fn metadata(call: Call) -> Option<FilterAction> {
    match call {
        Call::Truncate
        | Call::Truncate64
        | Call::Unlink
        | Call::Unlinkat
        | Call::Rmdir
        | Call::Connect
        | Call::Socketcall => None,
        _ => Some(PERM),
    }
}
