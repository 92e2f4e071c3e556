//! What is refused, and why. Whatever does not stand here goes through: the walls are the
//! namespaces and mounts; this table takes away what could be used to attack them.

use ringfence_policy::Observe;

use super::bpf::FilterAction;
use super::calls::{Arch, Call};
use super::ioctls::{self, Commands};
use super::{ConnectHandling, FileOwner, FilterOptions, GroupSignals, limited};

/// One line: under this condition, this call is treated so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterRule {
    /// Number of the call.
    pub call: u32,
    /// Under which condition.
    pub when: ArgCondition,
    /// What happens.
    pub action: FilterAction,
    /// Why.
    pub reason: &'static str,
}

/// A condition on the arguments, each compared as 32 bits unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgCondition {
    /// Without condition.
    Always,
    /// The argument is this.
    Equals(u8, u32),
    /// The argument has one of these bits.
    AnyBit(u8, u32),
    /// The argument under the mask is this.
    MaskedEquals(u8, u32, u32),
    /// The argument is a pointer, and not null: all of its 64 bits are compared.
    NotNull(u8),
    /// The argument is none of these.
    NoneOf(u8, &'static [u32]),
    /// The argument is one of these.
    OneOf(u8, &'static [u32]),
    /// The argument is none of these commands, which are in ascending order.
    Unlisted(u8, &'static [Commands]),
    /// Each of two arguments has one of its bits.
    BothBits((u8, u32), (u8, u32)),
    /// The first argument is its value and the second is not its value.
    Both((u8, u32), (u8, u32)),
    /// The first argument is its value and the second is one of its values.
    Among((u8, u32), (u8, &'static [u32])),
}

const PERM: FilterAction = FilterAction::Told(libc::EPERM as u16);
const NONE: FilterAction = FilterAction::Errno(libc::ENOSYS as u16);
const NO_FAMILY: FilterAction = FilterAction::Told(libc::EAFNOSUPPORT as u16);
const NO_WAY: FilterAction = FilterAction::Errno(libc::EOPNOTSUPP as u16);
const NO_COMMAND: FilterAction = FilterAction::Errno(libc::ENOTTY as u16);
/// The flags of a message by which descriptors are handed over, before anybody listens. Whoever
/// else uses them gets around being told of, and no further.
pub(crate) const HANDED_OVER: u32 = (libc::MSG_NOSIGNAL | libc::MSG_EOR) as u32;
const FAST_OPEN: u32 = libc::MSG_FASTOPEN as u32;
const CREATE: u32 = libc::O_CREAT as u32;
/// Opens that could do more than read. Those that only read never wait for anybody.
const MORE_THAN_READ: u32 = CREATE | (libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC) as u32;

/// Bits of a mode by which somebody may execute a file.
pub(crate) const EXECUTE: u32 = 0o111;

/// Bits of `clone` and `unshare` that make namespaces.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Options of IPv4 by which packets take another way: `IP_OPTIONS`, `IP_UNICAST_IF`.
const ROUTES: &[u32] = &[4, 50];
/// The same of IPv6: headers for the way, addresses and interfaces: `2292PKTOPTIONS`, `PKTINFO`,
/// `HOPOPTS`, `RTHDRDSTOPTS`, `RTHDR`, `DSTOPTS`, `UNICAST_IF`.
const ROUTES_6: &[u32] = &[6, 50, 54, 55, 57, 59, 76];
/// `SO_BINDTODEVICE`, `SO_BINDTOIFINDEX`.
const DEVICES: &[u32] = &[25, 62];

pub(super) type TableRow = (Call, ArgCondition, FilterAction, &'static str);

/// Always refused.
const REFUSED: &[TableRow] = &[
    // Namespaces and mounts: the sandbox is made of them.
    (
        Call::Unshare,
        ArgCondition::AnyBit(0, NEW_NAMESPACES | 0x80),
        PERM,
        "a user namespace gives every capability inside it, and with them most of the kernel's attack surface",
    ),
    (Call::Clone, ArgCondition::AnyBit(0, NEW_NAMESPACES), PERM, "the same by another door"),
    (
        Call::Clone3,
        ArgCondition::Always,
        NONE,
        "its flags stand in memory where a filter cannot see them; the C library falls back to clone",
    ),
    (Call::Setns, ArgCondition::Always, PERM, "enters namespaces"),
    (Call::Mount, ArgCondition::Always, PERM, "changes what stands where"),
    (Call::Umount, ArgCondition::Always, PERM, "takes covers off"),
    (Call::Umount2, ArgCondition::Always, PERM, "takes covers off"),
    (Call::PivotRoot, ArgCondition::Always, PERM, "changes the root"),
    (Call::Chroot, ArgCondition::Always, PERM, "changes the root"),
    (Call::OpenTree, ArgCondition::Always, PERM, "copies mounts without their covers"),
    (Call::MoveMount, ArgCondition::Always, PERM, "moves covers away"),
    (Call::Fsopen, ArgCondition::Always, PERM, "makes file systems"),
    (Call::Fsconfig, ArgCondition::Always, PERM, "makes file systems"),
    (Call::Fsmount, ArgCondition::Always, PERM, "makes mounts"),
    (Call::Fspick, ArgCondition::Always, PERM, "reconfigures file systems"),
    (Call::MountSetattr, ArgCondition::Always, PERM, "makes mounts writable"),
    // Ways around what is checked by path or by call.
    (
        Call::OpenByHandleAt,
        ArgCondition::Always,
        PERM,
        "opens files without a path (the shocker escape)",
    ),
    (Call::IoUringSetup, ArgCondition::Always, NONE, "carries out calls that no filter sees"),
    (Call::IoUringEnter, ArgCondition::Always, NONE, "carries out calls that no filter sees"),
    (Call::IoUringRegister, ArgCondition::Always, NONE, "carries out calls that no filter sees"),
    (
        Call::Openat2,
        ArgCondition::Always,
        NONE,
        "its flags stand in memory; callers fall back to openat",
    ),
    (
        Call::Seccomp,
        ArgCondition::AnyBit(1, 8),
        PERM,
        "a listener of its own would answer calls before the usher does",
    ),
    (
        Call::LandlockCreate,
        ArgCondition::Always,
        NONE,
        "the usher makes names for the caller and knows nothing of its rules: better none than some that do not hold",
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
    (Call::PerfEventOpen, ArgCondition::Always, PERM, "sees what others do, and was often broken"),
    (
        Call::Userfaultfd,
        ArgCondition::Always,
        PERM,
        "stops the kernel in the middle: the tool of races",
    ),
    (
        Call::Prlimit64,
        ArgCondition::NoneOf(0, &[0]),
        PERM,
        "limits of another process, such as the sandbox's first, are not the command's",
    ),
    (
        Call::PidfdGetfd,
        ArgCondition::Always,
        PERM,
        "takes what another process has open, such as the output of another command",
    ),
    (Call::FanotifyInit, ArgCondition::Always, PERM, "watches whole file systems"),
    (Call::KexecLoad, ArgCondition::Always, PERM, "replaces the kernel"),
    (Call::KexecFileLoad, ArgCondition::Always, PERM, "replaces the kernel"),
    (Call::InitModule, ArgCondition::Always, PERM, "loads code into the kernel"),
    (Call::FinitModule, ArgCondition::Always, PERM, "loads code into the kernel"),
    (Call::DeleteModule, ArgCondition::Always, PERM, "takes code out of the kernel"),
    (Call::Reboot, ArgCondition::Always, PERM, "ends the machine"),
    (Call::Swapon, ArgCondition::Always, PERM, "changes the machine's memory"),
    (Call::Swapoff, ArgCondition::Always, PERM, "changes the machine's memory"),
    (Call::Iopl, ArgCondition::Always, PERM, "speaks to devices directly"),
    (Call::Ioperm, ArgCondition::Always, PERM, "speaks to devices directly"),
    (Call::Acct, ArgCondition::Always, PERM, "records all processes of the machine"),
    (Call::Settimeofday, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::ClockSettime, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::ClockSettime64, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::Stime, ArgCondition::Always, PERM, "changes the machine's clock"),
    (Call::Quotactl, ArgCondition::Always, PERM, "administers disks"),
    (Call::QuotactlFd, ArgCondition::Always, PERM, "administers disks"),
    (Call::LookupDcookie, ArgCondition::Always, PERM, "a profiler's leftover"),
    (Call::Nfsservctl, ArgCondition::Always, NONE, "gone since Linux 3.1"),
    (Call::Uselib, ArgCondition::Always, NONE, "gone from use since libc 5"),
    (Call::Sysfs, ArgCondition::Always, NONE, "gone from use"),
    (Call::SysctlOld, ArgCondition::Always, NONE, "gone since Linux 5.5"),
    (
        Call::Syslog,
        ArgCondition::Always,
        PERM,
        "the kernel's log tells addresses and others' doings",
    ),
    (Call::Vhangup, ArgCondition::Always, PERM, "hangs up the terminal"),
    (Call::Vm86, ArgCondition::Always, PERM, "a mode of the processor that nothing needs"),
    (Call::Vm86old, ArgCondition::Always, PERM, "a mode of the processor that nothing needs"),
    // The terminal is shared with the person.
    (
        Call::Ioctl,
        ArgCondition::Equals(1, 0x5412),
        PERM,
        "TIOCSTI types into the person's terminal (CVE-2017-5226)",
    ),
    (
        Call::Ioctl,
        ArgCondition::Equals(1, 0x541c),
        PERM,
        "TIOCLINUX pastes into the person's console",
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
        ArgCondition::OneOf(1, ioctls::WHOLE_TREES),
        PERM,
        "makes, copies or removes a whole tree without a call that is judged: denied names, hooks and files without their masks",
    ),
    (
        Call::Ioctl,
        ArgCondition::Unlisted(1, ioctls::ALLOWED),
        NO_COMMAND,
        "what a file system or driver does on command is not judged; see the list",
    ),
    // File handles and page cache of what cannot be opened.
    (
        Call::NameToHandleAt,
        ArgCondition::Always,
        NO_WAY,
        "a handle names a file by its inode; without open_by_handle_at it only tells",
    ),
    (Call::Cachestat, ArgCondition::Always, NONE, "tells which parts of a file others read"),
    // Sockets: those that live in the network namespace, and netlink to ask about it.
    (
        Call::Socket,
        ArgCondition::NoneOf(0, &[1, 2, 10, 16]),
        NO_FAMILY,
        "families such as vsock and alg are in no namespace, or only attack surface",
    ),
    (
        Call::Socket,
        ArgCondition::Both((0, 16), (2, 0)),
        PERM,
        "of netlink, only routes may be asked about",
    ),
    (Call::Socket, ArgCondition::MaskedEquals(1, 0xff, 10), PERM, "packet sockets of old"),
    (Call::Socketpair, ArgCondition::NoneOf(0, &[1]), NO_FAMILY, "only unix sockets come in pairs"),
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
        "the family stands in memory: the usher reads it and makes the socket",
    ),
];

/// Calls that make names: the usher carries them out.
const ASKED: &[TableRow] = &[
    (
        Call::Open,
        ArgCondition::AnyBit(1, MORE_THAN_READ),
        FilterAction::Notify,
        "makes a name, or is told of as below",
    ),
    (Call::Creat, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (
        Call::Openat,
        ArgCondition::AnyBit(2, MORE_THAN_READ),
        FilterAction::Notify,
        "makes a name, or is told of as below",
    ),
    (Call::Mkdir, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Mkdirat, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Mknod, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Mknodat, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Symlink, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Symlinkat, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Link, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Linkat, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Rename, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Renameat, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Renameat2, ArgCondition::Always, FilterAction::Notify, "makes a name"),
    (Call::Bind, ArgCondition::Always, FilterAction::Notify, "a unix socket is a name"),
    (Call::Socketcall, ArgCondition::Equals(0, 2), FilterAction::Notify, "bind of 32-bit programs"),
    (
        Call::Umask,
        ArgCondition::Always,
        FilterAction::Notify,
        "the usher makes files with the caller's mask",
    ),
];

/// Calls that are let through and told of, where the policy wants to know. They follow
/// [`ASKED`], so those that make names have come by already.
const OBSERVED: &[TableRow] = &[
    (Call::Open, ArgCondition::Always, FilterAction::Notify, "opens a file"),
    (Call::Openat, ArgCondition::Always, FilterAction::Notify, "opens a file"),
    (Call::Execve, ArgCondition::Always, FilterAction::Notify, "starts a program"),
    (Call::Execveat, ArgCondition::Always, FilterAction::Notify, "starts a program"),
    (Call::Connect, ArgCondition::Always, FilterAction::Notify, "reaches a host"),
];

/// Calls that are let through at once: by then the usher has let go of what it opened before. The
/// kernel executes nothing that anybody has open to be written. (The calls by a path come by as
/// well, to be told of.)
const AWAITED: &[TableRow] = &[
    (
        Call::Fchmod,
        ArgCondition::AnyBit(1, EXECUTE),
        FilterAction::Notify,
        "can be executed from now on, and the usher may have just opened it",
    ),
    (
        Call::Fsetxattr,
        ArgCondition::Always,
        FilterAction::Notify,
        "the same by an access control list, as `cp -p` does",
    ),
];

/// Whether a call comes by for nothing else.
pub(crate) fn is_only_awaited(call: Call) -> bool {
    AWAITED.iter().any(|line| line.0 == call)
}

/// Where no host can be reached, and nothing is decided by it.
const SHUT: &[TableRow] = &[
    (
        Call::Connect,
        ArgCondition::Always,
        FilterAction::Notify,
        "leads nowhere beyond the loopback, and is told of",
    ),
    (
        Call::Sendto,
        ArgCondition::NotNull(4),
        FilterAction::Notify,
        "may be meant for a socket of the host, or for a host, which is only told of",
    ),
    (
        Call::Sendmmsg,
        ArgCondition::Always,
        FilterAction::Notify,
        "the way in which the C library looks up names; only told of",
    ),
    (
        Call::Socketcall,
        ArgCondition::OneOf(0, &[11, 20]),
        FilterAction::Notify,
        "sendto and sendmmsg of 32-bit programs",
    ),
];

/// Where some hosts can be reached, programs have sockets of the host's network. Each is connected,
/// and must never be connected to anything else: whatever could do so does not go through to the
/// kernel, also if it was judged, since a thread could exchange the socket meanwhile.
const CONNECTED: &[TableRow] = &[
    (Call::Sendto, ArgCondition::AnyBit(3, FAST_OPEN), NO_WAY, "connects as it sends"),
    (Call::Sendmsg, ArgCondition::AnyBit(2, FAST_OPEN), NO_WAY, "connects as it sends"),
    (Call::Sendmmsg, ArgCondition::AnyBit(3, FAST_OPEN), NO_WAY, "connects as it sends"),
    (
        Call::Socketcall,
        ArgCondition::NoneOf(0, &[1, 2]),
        NONE,
        "what is meant stands in memory; the C library has a call for each",
    ),
    (
        Call::Setsockopt,
        ArgCondition::Among((1, 0), (2, ROUTES)),
        PERM,
        "a connection could be led to another host",
    ),
    (
        Call::Setsockopt,
        ArgCondition::Among((1, 41), (2, ROUTES_6)),
        PERM,
        "a connection could be led to another host",
    ),
    (
        Call::Setsockopt,
        ArgCondition::Among((1, 1), (2, DEVICES)),
        PERM,
        "a connection could be led into another network",
    ),
    (Call::Connect, ArgCondition::Always, FilterAction::Notify, "reaches a host"),
    (Call::Listen, ArgCondition::Always, FilterAction::Notify, "would let the host's network in"),
    (
        Call::Sendto,
        ArgCondition::NotNull(4),
        FilterAction::Notify,
        "may be meant for a socket of the host, or for a host, which is only told of",
    ),
    (
        Call::Sendmsg,
        ArgCondition::NoneOf(2, &[HANDED_OVER]),
        FilterAction::Notify,
        "may be meant for a host; only told of",
    ),
    (
        Call::Sendmmsg,
        ArgCondition::Always,
        FilterAction::Notify,
        "may be meant for a host; only told of",
    ),
];

/// A program that runs as its owner, whoever starts it, is a way out for later.
const fn set_ids(bits: u32) -> [TableRow; 4] {
    const WHY: &str = "whoever runs the file would be its owner";
    [
        (Call::Chmod, ArgCondition::AnyBit(1, bits), PERM, WHY),
        (Call::Fchmod, ArgCondition::AnyBit(1, bits), PERM, WHY),
        (Call::Fchmodat, ArgCondition::AnyBit(2, bits), PERM, WHY),
        (Call::Fchmodat2, ArgCondition::AnyBit(2, bits), PERM, WHY),
    ]
}

/// The bit of the group is for directories, too, and git sets it.
const OF_A_PERSON: &[TableRow] = &set_ids(libc::S_ISUID);
const OF_ROOT: &[TableRow] = &set_ids(libc::S_ISUID | libc::S_ISGID);

/// Refused by the notify handler, which is asked about them anyway: the filter stays short where
/// every open passes. Both arguments stand in registers, so nothing can change in between.
const REFUSED_BY_HANDLER: &[TableRow] = &[
    (Call::Open, ArgCondition::BothBits((1, NAMELESS), (2, SET_ID)), PERM, NAMELESS_SET_ID),
    (Call::Openat, ArgCondition::BothBits((2, NAMELESS), (3, SET_ID)), PERM, NAMELESS_SET_ID),
];
/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const NAMELESS: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
const NAMELESS_SET_ID: &str = "linked to a name, the file would run as its owner or group";

fn owned_by(owner: FileOwner) -> &'static [TableRow] {
    match owner {
        FileOwner::Root => OF_ROOT,
        FileOwner::Person => OF_A_PERSON,
    }
}

/// Calls that change what is there or take it away: the usher tells of those that are going
/// to fail and lets them through. Not those by a descriptor (`fchmod`, `fchown`, `futimens`), but
/// for what is [`AWAITED`]: an archiver makes two of them for every file, and what was opened for
/// writing cannot be read-only.
const TOLD: &[TableRow] = &[
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
        "changes times; without a path, those of a descriptor",
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
        "by their length, the addresses that can be a file's and not the internet's",
    ),
    (
        Call::Socketcall,
        ArgCondition::Equals(0, 3),
        FilterAction::Notify,
        "connect of 32-bit programs, whose address stands in memory",
    ),
    (
        Call::Ioctl,
        ArgCondition::OneOf(1, &[ioctls::SET_FLAGS_32, ioctls::SET_FLAGS]),
        FilterAction::Notify,
        "FS_IOC_SETFLAGS changes attributes",
    ),
];

/// Without Landlock's scope, the own process group reaches out of the sandbox.
const GROUP_SIGNALS: &[TableRow] =
    &[(Call::Kill, ArgCondition::Equals(0, 0), PERM, "the process group may have members outside")];

impl ArgCondition {
    /// The argument that it compares, where that is one and is left as it is.
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

    /// Whether it is so of these arguments.
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

/// The error number with which a call is refused and told of, and why; `None` if it came by for
/// another reason.
pub(crate) fn refusal(
    call: Call,
    arguments: &[u64; 6],
    owner: FileOwner,
) -> Option<(i32, &'static str)> {
    let lines = REFUSED
        .iter()
        .chain(REFUSED_BY_HANDLER)
        .chain(owned_by(owner))
        .chain(GROUP_SIGNALS)
        .chain(CONNECTED);
    lines.filter(|line| line.0 == call && line.1.holds(arguments)).find_map(
        |(_, _, action, reason)| match action {
            FilterAction::Told(number) => Some((i32::from(*number), *reason)),
            _ => None,
        },
    )
}

/// Whether a call, seen by an usher that is told of everything, comes by for that alone: no
/// other line speaks of it. A connection may be to a socket of the host, which is judged.
pub(crate) fn is_only_observed(call: Call, arguments: &[u64; 6]) -> bool {
    if call == Call::Connect {
        return false;
    }
    let speaks = |line: &TableRow| line.0 == call && line.1.holds(arguments);
    let mut others = REFUSED.iter().chain(OF_ROOT).chain(GROUP_SIGNALS).chain(ASKED).chain(TOLD);
    OBSERVED.iter().any(speaks) && !others.any(speaks)
}

/// Whether a call that makes nothing is carried out all the same: a protected file that the
/// host replaces has no cover for a moment, and what is opened for writing then stays so. A
/// file without a name is nobody's.
pub(crate) fn is_writing(call: Call, arguments: &[u64; 6]) -> bool {
    const NAMELESS: u32 = libc::O_TMPFILE as u32;
    let flags = match call {
        Call::Open => arguments[1] as u32,
        Call::Openat => arguments[2] as u32,
        _ => return false,
    };
    flags & NAMELESS != NAMELESS
}

/// Whether the usher only tells of a call that comes by.
pub(crate) fn is_only_told(call: Call, arguments: &[u64; 6]) -> bool {
    match call {
        Call::Open => arguments[1] as u32 & CREATE == 0,
        Call::Openat => arguments[2] as u32 & CREATE == 0,
        _ => TOLD.iter().any(|line| line.0 == call && line.1.holds(arguments)),
    }
}

/// The table for one architecture.
pub fn entries(arch: Arch, shape: FilterOptions) -> Vec<FilterRule> {
    let observed = if shape.observe == Observe::All { OBSERVED } else { &[] };
    let signals = if shape.group_signals == GroupSignals::Refused { GROUP_SIGNALS } else { &[] };
    let connected = match shape.connects {
        ConnectHandling::Free => &[],
        ConnectHandling::Shut => SHUT,
        ConnectHandling::Asked => CONNECTED,
    };
    REFUSED
        .iter()
        .chain(limited::lines(shape.disk, shape.memory))
        .chain(connected)
        .chain(owned_by(shape.owner))
        .chain(ASKED)
        .chain(TOLD)
        .chain(signals)
        .chain(AWAITED)
        .chain(observed)
        .filter_map(|(call, when, action, reason)| {
            let call = call.number(arch)?;
            Some(FilterRule { call, when: *when, action: *action, reason })
        })
        .collect()
}
