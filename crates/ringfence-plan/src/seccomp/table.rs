//! The rules of the filter, with reasons. Other syscalls are allowed: namespaces and mounts are the
//! boundary; this table removes syscalls that could attack them.

use ringfence_policy::Observe;

use super::bpf::FilterAction;
use super::calls::{Arch, Call};
use super::ioctls::{self, Commands};
use super::{ConnectHandling, FileOwner, FilterOptions, GroupSignals, limited};
use crate::abi;

/// One rule: a syscall, a condition and an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterRule {
    /// Syscall number.
    pub call: u32,
    /// The condition.
    pub when: ArgCondition,
    /// The action.
    pub action: FilterAction,
    /// The reason.
    pub reason: &'static str,
}

/// A condition on the arguments, compared as 32 bits unless noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgCondition {
    /// Without condition.
    Always,
    /// The argument has this value.
    Equals(u8, u32),
    /// The argument has one of these bits.
    AnyBit(u8, u32),
    /// The masked argument has this value.
    MaskedEquals(u8, u32, u32),
    /// The argument is a non-null pointer: all 64 bits are compared.
    NotNull(u8),
    /// The argument has none of these values.
    NoneOf(u8, &'static [u32]),
    /// The argument has one of these values.
    OneOf(u8, &'static [u32]),
    /// The argument is none of these commands, which are in ascending order.
    Unlisted(u8, &'static [Commands]),
    /// Each of two arguments has one of its bits.
    BothBits((u8, u32), (u8, u32)),
    /// The first argument has its value and the second does not.
    Both((u8, u32), (u8, u32)),
    /// The first argument has its value and the second has one of its values.
    Among((u8, u32), (u8, &'static [u32])),
}

const PERM: FilterAction = FilterAction::ReportedErrno(abi::EPERM as u16);
const NONE: FilterAction = FilterAction::Errno(abi::ENOSYS as u16);
const NO_FAMILY: FilterAction = FilterAction::ReportedErrno(abi::EAFNOSUPPORT as u16);
const NO_WAY: FilterAction = FilterAction::Errno(abi::EOPNOTSUPP as u16);
const NO_COMMAND: FilterAction = FilterAction::Errno(abi::ENOTTY as u16);
/// Flags of the message that passes fds before the notify handler runs. A program that uses them
/// only avoids the report.
pub const FD_PASSING_FLAGS: u32 = (abi::MSG_NOSIGNAL | abi::MSG_EOR) as u32;
const FAST_OPEN: u32 = abi::MSG_FASTOPEN as u32;
const CREATE: u32 = abi::O_CREAT as u32;
/// Opens that could do more than read. Read-only opens never wait for the notify handler.
const MORE_THAN_READ: u32 = CREATE | (abi::O_WRONLY | abi::O_RDWR | abi::O_TRUNC) as u32;

/// Execute bits of a mode.
pub const EXECUTE_BITS: u32 = 0o111;

/// Bits of `clone` and `unshare` that create namespaces.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// IPv4 options that change the route of packets: `IP_OPTIONS`, `IP_UNICAST_IF`.
const ROUTES: &[u32] = &[4, 50];
/// IPv6 options that change the route, addresses or interface: `2292PKTOPTIONS`, `PKTINFO`,
/// `HOPOPTS`, `RTHDRDSTOPTS`, `RTHDR`, `DSTOPTS`, `UNICAST_IF`.
const ROUTES_6: &[u32] = &[6, 50, 54, 55, 57, 59, 76];
/// `SO_BINDTODEVICE`, `SO_BINDTOIFINDEX`.
const DEVICES: &[u32] = &[25, 62];

pub(super) type TableRow = (Call, ArgCondition, FilterAction, &'static str);

/// Always refused.
pub(super) const REFUSED: &[TableRow] = &[
    // Namespaces and mounts: the sandbox consists of them.
    (
        Call::Unshare,
        ArgCondition::AnyBit(0, NEW_NAMESPACES | 0x80),
        PERM,
        "a user namespace gives every capability inside it, and with them most of the kernel's attack surface",
    ),
    (
        Call::Clone,
        ArgCondition::AnyBit(0, NEW_NAMESPACES),
        PERM,
        "clone creates namespaces as well",
    ),
    (
        Call::Clone3,
        ArgCondition::Always,
        NONE,
        "its flags are in memory where a filter cannot see them; the C library falls back to clone",
    ),
    (Call::Setns, ArgCondition::Always, PERM, "enters namespaces"),
    (Call::Mount, ArgCondition::Always, PERM, "changes mounts"),
    (Call::Umount, ArgCondition::Always, PERM, "removes masks"),
    (Call::Umount2, ArgCondition::Always, PERM, "removes masks"),
    (Call::PivotRoot, ArgCondition::Always, PERM, "changes the root"),
    (Call::Chroot, ArgCondition::Always, PERM, "changes the root"),
    (Call::OpenTree, ArgCondition::Always, PERM, "copies mounts without their masks"),
    (Call::MoveMount, ArgCondition::Always, PERM, "moves masks away"),
    (Call::Fsopen, ArgCondition::Always, PERM, "makes file systems"),
    (Call::Fsconfig, ArgCondition::Always, PERM, "makes file systems"),
    (Call::Fsmount, ArgCondition::Always, PERM, "makes mounts"),
    (Call::Fspick, ArgCondition::Always, PERM, "reconfigures file systems"),
    (Call::MountSetattr, ArgCondition::Always, PERM, "makes mounts writable"),
    // Bypasses of checks by path or by syscall.
    (
        Call::OpenByHandleAt,
        ArgCondition::Always,
        PERM,
        "opens files without a path (the shocker escape)",
    ),
    (Call::IoUringSetup, ArgCondition::Always, NONE, "runs syscalls that no filter sees"),
    (Call::IoUringEnter, ArgCondition::Always, NONE, "runs syscalls that no filter sees"),
    (Call::IoUringRegister, ArgCondition::Always, NONE, "runs syscalls that no filter sees"),
    (
        Call::Openat2,
        ArgCondition::Always,
        NONE,
        "its flags are in memory; callers fall back to openat",
    ),
    (
        Call::Seccomp,
        ArgCondition::AnyBit(1, 8),
        PERM,
        "a listener of the command would answer syscalls before the notify handler does",
    ),
    (
        Call::LandlockCreate,
        ArgCondition::Always,
        NONE,
        "the notify handler creates files for the caller and cannot apply the caller's own Landlock rules",
    ),
    // The process group may have members outside.
    (
        Call::Setpriority,
        ArgCondition::Equals(0, 1),
        PERM,
        "reaches the process group's members outside",
    ),
    (
        Call::IoprioSet,
        ArgCondition::Equals(0, 2),
        PERM,
        "reaches the process group's members outside",
    ),
    // Keys of the host's sessions.
    (Call::Keyctl, ArgCondition::Always, PERM, "the kernel's keyrings are not in a namespace"),
    (Call::AddKey, ArgCondition::Always, PERM, "the kernel's keyrings are not in a namespace"),
    (Call::RequestKey, ArgCondition::Always, PERM, "runs a program of the host to find a key"),
    // Attack surface that a command does not need.
    (Call::Bpf, ArgCondition::Always, PERM, "loads code into the kernel"),
    (
        Call::PerfEventOpen,
        ArgCondition::Always,
        PERM,
        "observes other processes, and had many vulnerabilities",
    ),
    (
        Call::Userfaultfd,
        ArgCondition::Always,
        PERM,
        "pauses the kernel within a syscall, which helps to win races",
    ),
    (
        Call::Prlimit64,
        ArgCondition::NoneOf(0, &[0]),
        PERM,
        "changes the limits of another process, such as the sandbox's init",
    ),
    (
        Call::PidfdGetfd,
        ArgCondition::Always,
        PERM,
        "takes an fd of another process, such as the output of another command",
    ),
    (Call::FanotifyInit, ArgCondition::Always, PERM, "watches whole file systems"),
    (Call::KexecLoad, ArgCondition::Always, PERM, "replaces the kernel"),
    (Call::KexecFileLoad, ArgCondition::Always, PERM, "replaces the kernel"),
    (Call::InitModule, ArgCondition::Always, PERM, "loads code into the kernel"),
    (Call::FinitModule, ArgCondition::Always, PERM, "loads code into the kernel"),
    (Call::DeleteModule, ArgCondition::Always, PERM, "removes code from the kernel"),
    (Call::Reboot, ArgCondition::Always, PERM, "reboots the machine"),
    (Call::Swapon, ArgCondition::Always, PERM, "changes the machine's swap"),
    (Call::Swapoff, ArgCondition::Always, PERM, "changes the machine's swap"),
    (Call::Iopl, ArgCondition::Always, PERM, "accesses I/O ports"),
    (Call::Ioperm, ArgCondition::Always, PERM, "accesses I/O ports"),
    (Call::Acct, ArgCondition::Always, PERM, "records all processes of the machine"),
    (Call::Settimeofday, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::ClockSettime, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::ClockSettime64, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::Stime, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::Quotactl, ArgCondition::Always, PERM, "manages disk quotas"),
    (Call::QuotactlFd, ArgCondition::Always, PERM, "manages disk quotas"),
    (Call::LookupDcookie, ArgCondition::Always, PERM, "obsolete profiler syscall"),
    (Call::Nfsservctl, ArgCondition::Always, NONE, "gone since Linux 3.1"),
    (Call::Uselib, ArgCondition::Always, NONE, "gone from use since libc 5"),
    (Call::Sysfs, ArgCondition::Always, NONE, "gone from use"),
    (Call::SysctlOld, ArgCondition::Always, NONE, "gone since Linux 5.5"),
    (
        Call::Syslog,
        ArgCondition::Always,
        PERM,
        "the kernel log reveals addresses and other users' activity",
    ),
    (Call::Vhangup, ArgCondition::Always, PERM, "hangs up the terminal"),
    (Call::Vm86, ArgCondition::Always, PERM, "an obsolete CPU mode"),
    (Call::Vm86old, ArgCondition::Always, PERM, "an obsolete CPU mode"),
    // The terminal is shared with the user.
    (
        Call::Ioctl,
        ArgCondition::Equals(1, 0x5412),
        PERM,
        "TIOCSTI types into the user's terminal (CVE-2017-5226)",
    ),
    (
        Call::Ioctl,
        ArgCondition::Equals(1, 0x541c),
        PERM,
        "TIOCLINUX pastes into the user's console",
    ),
    (Call::Ioctl, ArgCondition::Equals(1, 0x541d), PERM, "TIOCCONS takes the console's output"),
    (
        Call::Ioctl,
        ArgCondition::Equals(1, 0x5423),
        PERM,
        "TIOCSETD loads line disciplines into the kernel",
    ),
    (
        Call::Ioctl,
        ArgCondition::OneOf(1, ioctls::WHOLE_TREE_COMMANDS),
        PERM,
        "creates, copies or removes a whole tree in one call, without a check for denied names, hooks and masks",
    ),
    (
        Call::Ioctl,
        ArgCondition::Unlisted(1, ioctls::ALLOWED),
        NO_COMMAND,
        "the ioctl command is not on the allow list",
    ),
    // File handles and page cache of files that cannot be opened.
    (
        Call::NameToHandleAt,
        ArgCondition::Always,
        NO_WAY,
        "a file handle reveals an inode, and is useless without open_by_handle_at",
    ),
    (
        Call::Cachestat,
        ArgCondition::Always,
        NONE,
        "reveals which parts of a file other processes read",
    ),
    // Sockets: families within the network namespace, and netlink to query it.
    (
        Call::Socket,
        ArgCondition::NoneOf(0, &[1, 2, 10, 16]),
        NO_FAMILY,
        "families such as vsock and alg are in no namespace, or are only attack surface",
    ),
    (Call::Socket, ArgCondition::Both((0, 16), (2, 0)), PERM, "only NETLINK_ROUTE is allowed"),
    (Call::Socket, ArgCondition::MaskedEquals(1, 0xff, 10), PERM, "obsolete packet sockets"),
    (
        Call::Socketpair,
        ArgCondition::NoneOf(0, &[1]),
        NO_FAMILY,
        "only unix socket pairs are allowed",
    ),
    (
        Call::Socketcall,
        ArgCondition::Equals(0, 8),
        NONE,
        "a pair of any family; the C library falls back to socketpair",
    ),
    (
        Call::Socketcall,
        ArgCondition::Equals(0, 1),
        FilterAction::Notify,
        "the family is in memory: the notify handler reads it and creates the socket",
    ),
];

/// Syscalls that create names: the notify handler executes them.
pub(super) const CREATES_NAMES: &[TableRow] = &[
    (
        Call::Open,
        ArgCondition::AnyBit(1, MORE_THAN_READ),
        FilterAction::Notify,
        "creates a name, or is reported as below",
    ),
    (Call::Creat, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (
        Call::Openat,
        ArgCondition::AnyBit(2, MORE_THAN_READ),
        FilterAction::Notify,
        "creates a name, or is reported as below",
    ),
    (Call::Mkdir, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Mkdirat, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Mknod, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Mknodat, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Symlink, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Symlinkat, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Link, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Linkat, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Rename, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Renameat, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Renameat2, ArgCondition::Always, FilterAction::Notify, "creates a name"),
    (Call::Bind, ArgCondition::Always, FilterAction::Notify, "a unix socket is a name"),
    (Call::Socketcall, ArgCondition::Equals(0, 2), FilterAction::Notify, "bind of 32-bit programs"),
    (
        Call::Umask,
        ArgCondition::Always,
        FilterAction::Notify,
        "the notify handler creates files with the caller's umask",
    ),
];

/// Syscalls that are allowed and reported if the policy observes everything. They follow [`CREATES_NAMES`],
/// so those that create names are handled before.
const OBSERVED: &[TableRow] = &[
    (Call::Open, ArgCondition::Always, FilterAction::Notify, "opens a file"),
    (Call::Openat, ArgCondition::Always, FilterAction::Notify, "opens a file"),
    (Call::Execve, ArgCondition::Always, FilterAction::Notify, "starts a program"),
    (Call::Execveat, ArgCondition::Always, FilterAction::Notify, "starts a program"),
    (Call::Connect, ArgCondition::Always, FilterAction::Notify, "reaches a host"),
];

/// Syscalls that are allowed after the notify handler has closed its own fds: `execve` fails with
/// ETXTBSY while any process has the file open for writing. (The variants with a path are notified
/// as well, for reports.)
const AFTER_CLOSE: &[TableRow] = &[
    (
        Call::Fchmod,
        ArgCondition::AnyBit(1, EXECUTE_BITS),
        FilterAction::Notify,
        "becomes executable, and the notify handler may still have it open",
    ),
    (
        Call::Fsetxattr,
        ArgCondition::Always,
        FilterAction::Notify,
        "the same by an access control list, as `cp -p` does",
    ),
];

/// True if a syscall is notified for this reason only.
pub fn is_notified_for_close_only(call: Call) -> bool {
    AFTER_CLOSE.iter().any(|line| line.0 == call)
}

/// Rules for a network without reachable hosts: nothing to decide, only to report.
const WITHOUT_EGRESS: &[TableRow] = &[
    (
        Call::Connect,
        ArgCondition::Always,
        FilterAction::Notify,
        "reaches only loopback, and is reported",
    ),
    (
        Call::Sendto,
        ArgCondition::NotNull(4),
        FilterAction::Notify,
        "may address a unix socket of the host, or a remote host, which is only reported",
    ),
    (
        Call::Sendmmsg,
        ArgCondition::Always,
        FilterAction::Notify,
        "used by the C library for DNS; only reported",
    ),
    (
        Call::Socketcall,
        ArgCondition::OneOf(0, &[11, 20]),
        FilterAction::Notify,
        "sendto and sendmmsg of 32-bit programs",
    ),
];

/// Rules for a network with allowed hosts, where programs have sockets of the host's network. Each
/// is connected and must never be connected to anything else: a syscall that could do so never
/// reaches the kernel, even if it was judged, since a thread could swap the socket meanwhile.
const WITH_EGRESS: &[TableRow] = &[
    (Call::Sendto, ArgCondition::AnyBit(3, FAST_OPEN), NO_WAY, "connects as it sends"),
    (Call::Sendmsg, ArgCondition::AnyBit(2, FAST_OPEN), NO_WAY, "connects as it sends"),
    (Call::Sendmmsg, ArgCondition::AnyBit(3, FAST_OPEN), NO_WAY, "connects as it sends"),
    (
        Call::Socketcall,
        ArgCondition::NoneOf(0, &[1, 2]),
        NONE,
        "its arguments are in memory; the C library has a syscall for each",
    ),
    (
        Call::Setsockopt,
        ArgCondition::Among((1, 0), (2, ROUTES)),
        PERM,
        "could redirect a connection to another host",
    ),
    (
        Call::Setsockopt,
        ArgCondition::Among((1, 41), (2, ROUTES_6)),
        PERM,
        "could redirect a connection to another host",
    ),
    (
        Call::Setsockopt,
        ArgCondition::Among((1, 1), (2, DEVICES)),
        PERM,
        "could redirect a connection to another network",
    ),
    (Call::Connect, ArgCondition::Always, FilterAction::Notify, "reaches a host"),
    (
        Call::Listen,
        ArgCondition::Always,
        FilterAction::Notify,
        "would accept connections from the host's network",
    ),
    (
        Call::Sendto,
        ArgCondition::NotNull(4),
        FilterAction::Notify,
        "may address a unix socket of the host, or a remote host, which is only reported",
    ),
    (
        Call::Sendmsg,
        ArgCondition::NoneOf(2, &[FD_PASSING_FLAGS]),
        FilterAction::Notify,
        "may address a remote host; only reported",
    ),
    (
        Call::Sendmmsg,
        ArgCondition::Always,
        FilterAction::Notify,
        "may address a remote host; only reported",
    ),
];

/// A set-uid file would be a way out of the sandbox for later.
const fn set_ids(bits: u32) -> [TableRow; 4] {
    const WHY: &str = "a set-uid file runs as its owner";
    [
        (Call::Chmod, ArgCondition::AnyBit(1, bits), PERM, WHY),
        (Call::Fchmod, ArgCondition::AnyBit(1, bits), PERM, WHY),
        (Call::Fchmodat, ArgCondition::AnyBit(2, bits), PERM, WHY),
        (Call::Fchmodat2, ArgCondition::AnyBit(2, bits), PERM, WHY),
    ]
}

/// The set-gid bit is also used for directories, and git sets it.
const SET_IDS_OF_USER: &[TableRow] = &set_ids(abi::S_ISUID);
const SET_IDS_OF_ROOT: &[TableRow] = &set_ids(abi::S_ISUID | abi::S_ISGID);

/// Refused by the notify handler, which gets these syscalls anyway: the filter stays short where
/// every open passes. Both arguments are in registers, so they cannot change in between.
const REFUSED_BY_HANDLER: &[TableRow] = &[
    (Call::Open, ArgCondition::BothBits((1, NAMELESS), (2, SET_ID)), PERM, NAMELESS_SET_ID),
    (Call::Openat, ArgCondition::BothBits((2, NAMELESS), (3, SET_ID)), PERM, NAMELESS_SET_ID),
];
/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const NAMELESS: u32 = (abi::O_TMPFILE & !abi::O_DIRECTORY) as u32;
const SET_ID: u32 = abi::S_ISUID | abi::S_ISGID;
const NAMELESS_SET_ID: &str = "once linked, the file would run as its owner or group";

pub(super) fn owned_by(owner: FileOwner) -> &'static [TableRow] {
    match owner {
        FileOwner::Root => SET_IDS_OF_ROOT,
        FileOwner::User => SET_IDS_OF_USER,
    }
}

/// Syscalls that change or remove files: the notify handler reports those that will fail and lets
/// them through. Without the fd variants (`fchmod`, `fchown`, `futimens`), except [`AFTER_CLOSE`]: an
/// archiver makes two of them per file, and a file opened for writing cannot be read-only.
pub(super) const CHANGES_FILES: &[TableRow] = &[
    (Call::Truncate, ArgCondition::Always, FilterAction::Notify, "writes a file"),
    (Call::Truncate64, ArgCondition::Always, FilterAction::Notify, "writes a file"),
    (Call::Unlink, ArgCondition::Always, FilterAction::Notify, "takes a name away"),
    (Call::Unlinkat, ArgCondition::Always, FilterAction::Notify, "takes a name away"),
    (Call::Rmdir, ArgCondition::Always, FilterAction::Notify, "takes a name away"),
    (Call::Chmod, ArgCondition::Always, FilterAction::Notify, "changes a mode"),
    (Call::Fchmodat, ArgCondition::Always, FilterAction::Notify, "changes a mode"),
    (Call::Fchmodat2, ArgCondition::Always, FilterAction::Notify, "changes a mode"),
    (Call::Chown, ArgCondition::Always, FilterAction::Notify, "changes an owner"),
    (Call::Lchown, ArgCondition::Always, FilterAction::Notify, "changes an owner"),
    (Call::Chown16, ArgCondition::Always, FilterAction::Notify, "the same of old 32-bit programs"),
    (Call::Lchown16, ArgCondition::Always, FilterAction::Notify, "the same of old 32-bit programs"),
    (Call::Fchownat, ArgCondition::Always, FilterAction::Notify, "changes an owner"),
    (Call::Utime, ArgCondition::Always, FilterAction::Notify, "changes times"),
    (Call::Utimes, ArgCondition::Always, FilterAction::Notify, "changes times"),
    (Call::Futimesat, ArgCondition::Always, FilterAction::Notify, "changes times"),
    (
        Call::Utimensat,
        ArgCondition::NotNull(1),
        FilterAction::Notify,
        "changes times; without a path, those of an fd",
    ),
    (
        Call::Utimensat64,
        ArgCondition::NotNull(1),
        FilterAction::Notify,
        "the same of 32-bit programs",
    ),
    (Call::Setxattr, ArgCondition::Always, FilterAction::Notify, "changes attributes"),
    (Call::Lsetxattr, ArgCondition::Always, FilterAction::Notify, "changes attributes"),
    (Call::Removexattr, ArgCondition::Always, FilterAction::Notify, "changes attributes"),
    (Call::Lremovexattr, ArgCondition::Always, FilterAction::Notify, "changes attributes"),
    (
        Call::Connect,
        ArgCondition::NoneOf(2, &[16, 28]),
        FilterAction::Notify,
        "address lengths of unix sockets",
    ),
    (
        Call::Socketcall,
        ArgCondition::Equals(0, 3),
        FilterAction::Notify,
        "connect of 32-bit programs, whose address is in memory",
    ),
    (
        Call::Ioctl,
        ArgCondition::OneOf(1, &[ioctls::SET_FLAGS_32, ioctls::SET_FLAGS]),
        FilterAction::Notify,
        "FS_IOC_SETFLAGS changes attributes",
    ),
];

/// Without Landlock's scope, signals to the own process group leave the sandbox.
pub(super) const GROUP_SIGNALS: &[TableRow] =
    &[(Call::Kill, ArgCondition::Equals(0, 0), PERM, "the process group may have members outside")];

impl ArgCondition {
    /// The argument it compares, if it is only one and is not modified.
    pub(super) fn sole_argument(self) -> Option<u8> {
        match self {
            ArgCondition::Equals(number, _)
            | ArgCondition::AnyBit(number, _)
            | ArgCondition::NoneOf(number, _)
            | ArgCondition::OneOf(number, _)
            | ArgCondition::Unlisted(number, _) => Some(number),
            ArgCondition::Always
            | ArgCondition::NotNull(_)
            | ArgCondition::MaskedEquals(..)
            | ArgCondition::BothBits(..)
            | ArgCondition::Both(..)
            | ArgCondition::Among(..) => None,
        }
    }

    /// True if the condition holds for these arguments.
    fn holds(self, arguments: &[u64; 6]) -> bool {
        let word = |number: u8| arguments[usize::from(number)] as u32;
        match self {
            ArgCondition::Always => true,
            ArgCondition::Equals(number, value) => word(number) == value,
            ArgCondition::AnyBit(number, bits) => word(number) & bits != 0,
            ArgCondition::MaskedEquals(number, mask, value) => word(number) & mask == value,
            ArgCondition::NotNull(number) => arguments[usize::from(number)] != 0,
            ArgCondition::NoneOf(number, values) => !values.contains(&word(number)),
            ArgCondition::OneOf(number, values) => values.contains(&word(number)),
            ArgCondition::Unlisted(number, commands) => !ioctls::is_allowed(commands, word(number)),
            ArgCondition::BothBits((one, bits), (other, others)) => {
                word(one) & bits != 0 && word(other) & others != 0
            }
            ArgCondition::Both((one, value), (other, none)) => {
                word(one) == value && word(other) != none
            }
            ArgCondition::Among((one, value), (other, values)) => {
                word(one) == value && values.contains(&word(other))
            }
        }
    }
}

/// Errno and reason of a refused and reported syscall; `None` if it was notified for another
/// reason.
pub fn find_refusal(
    call: Call,
    arguments: &[u64; 6],
    owner: FileOwner,
) -> Option<(i32, &'static str)> {
    let lines = REFUSED
        .iter()
        .chain(REFUSED_BY_HANDLER)
        .chain(owned_by(owner))
        .chain(GROUP_SIGNALS)
        .chain(WITH_EGRESS);
    lines.filter(|line| line.0 == call && line.1.holds(arguments)).find_map(
        |(_, _, action, reason)| match action {
            FilterAction::ReportedErrno(number) => Some((i32::from(*number), *reason)),
            _ => None,
        },
    )
}

/// True if an observed syscall matches no other rule. A connect may target a unix socket of the
/// host, which is judged.
pub fn is_only_observed(call: Call, arguments: &[u64; 6]) -> bool {
    if call == Call::Connect {
        return false;
    }
    let speaks = |line: &TableRow| line.0 == call && line.1.holds(arguments);
    let mut others = REFUSED
        .iter()
        .chain(SET_IDS_OF_ROOT)
        .chain(GROUP_SIGNALS)
        .chain(CREATES_NAMES)
        .chain(CHANGES_FILES);
    OBSERVED.iter().any(speaks) && !others.any(speaks)
}

/// True if an open that creates nothing is executed by the notify handler all the same: a protected
/// file that the host replaces has no mask for a moment, and an fd opened for writing then would
/// stay. Not for a file without a name.
pub fn opens_for_writing(call: Call, arguments: &[u64; 6]) -> bool {
    const NAMELESS: u32 = abi::O_TMPFILE as u32;
    let flags = match call {
        Call::Open => arguments[1] as u32,
        Call::Openat => arguments[2] as u32,
        _ => return false,
    };
    flags & NAMELESS != NAMELESS
}

/// True if the notify handler only reports this syscall.
pub fn is_only_reported(call: Call, arguments: &[u64; 6]) -> bool {
    match call {
        Call::Open => arguments[1] as u32 & CREATE == 0,
        Call::Openat => arguments[2] as u32 & CREATE == 0,
        _ => CHANGES_FILES.iter().any(|line| line.0 == call && line.1.holds(arguments)),
    }
}

/// The rules for one architecture.
pub fn rules_for(arch: Arch, shape: FilterOptions) -> Vec<FilterRule> {
    let observed = if shape.observe == Observe::All { OBSERVED } else { &[] };
    let signals = if shape.group_signals == GroupSignals::Refused { GROUP_SIGNALS } else { &[] };
    let connected = match shape.connects {
        ConnectHandling::KernelExceptUnixPaths => &[],
        ConnectHandling::Isolated => WITHOUT_EGRESS,
        ConnectHandling::Notified => WITH_EGRESS,
    };
    REFUSED
        .iter()
        .chain(limited::rows(shape.disk, shape.memory))
        .chain(connected)
        .chain(owned_by(shape.owner))
        .chain(CREATES_NAMES)
        .chain(CHANGES_FILES)
        .chain(signals)
        .chain(AFTER_CLOSE)
        .chain(observed)
        .filter_map(|(call, when, action, reason)| {
            let call = call.number(arch)?;
            Some(FilterRule { call, when: *when, action: *action, reason })
        })
        .collect()
}
