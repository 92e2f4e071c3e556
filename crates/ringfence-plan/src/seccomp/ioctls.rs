//! Allowed `ioctl` commands.
//!
//! An allow list: file systems define commands that create, copy, swap or remove whole trees, and
//! the filter cannot know future ones. The sandbox has no devices but terminals and the random
//! number generator (every tree is mounted `nodev`), so commands of other drivers are not listed.
//! Any other command fails with `ENOTTY`, the errno of a file system without the command, so
//! programs fall back.

/// A range of commands, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commands {
    /// First command.
    pub first: u32,
    /// Last command.
    pub last: u32,
    /// The reason.
    pub reason: &'static str,
}

const fn single_command(command: u32, reason: &'static str) -> Commands {
    Commands { first: command, last: command, reason }
}

const fn command_range(first: u32, last: u32, reason: &'static str) -> Commands {
    Commands { first, last, reason }
}

/// `FS_IOC_SETFLAGS` of 64-bit programs. The notify handler carries it out.
pub const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC32_SETFLAGS`.
pub const SET_FLAGS_32: u32 = 0x4004_6602;

/// All allowed commands, in ascending order for a binary search.
pub const ALLOWED: &[Commands] = &[
    single_command(0x2, "FIGETBSZ: block size"),
    command_range(
        0x5401,
        0x5411,
        "TCGETS to TIOCOUTQ: modes, flow control, foreground group and session of a terminal",
    ),
    // Not 0x5412 TIOCSTI.
    command_range(
        0x5413,
        0x541b,
        "TIOCGWINSZ to FIONREAD: window size, modem lines, bytes that wait",
    ),
    // Not 0x541c TIOCLINUX, 0x541d TIOCCONS, and the two of serial ports.
    command_range(0x5420, 0x5422, "TIOCPKT, FIONBIO, TIOCNOTTY"),
    // Not 0x5423 TIOCSETD.
    command_range(0x5424, 0x5425, "TIOCGETD, TCSBRKP"),
    command_range(0x5427, 0x5429, "TIOCSBRK, TIOCCBRK, TIOCGSID"),
    // Not 0x5437 TIOCVHANGUP.
    single_command(0x5441, "TIOCGPTPEER: the other end of a pseudoterminal"),
    command_range(0x5450, 0x5452, "FIONCLEX, FIOCLEX, FIOASYNC: flags of the fd itself"),
    single_command(0x5460, "FIOQSIZE: size of a file"),
    command_range(
        0x8901,
        0x8907,
        "FIOSETOWN to SIOCGSTAMPNS: owner of a socket's signals, urgent mark, time of the last packet",
    ),
    single_command(0x8910, "SIOCGIFNAME"),
    command_range(0x8912, 0x8913, "SIOCGIFCONF, SIOCGIFFLAGS"),
    single_command(0x8915, "SIOCGIFADDR"),
    single_command(0x8917, "SIOCGIFDSTADDR"),
    single_command(0x8919, "SIOCGIFBRDADDR"),
    single_command(0x891b, "SIOCGIFNETMASK"),
    single_command(0x891d, "SIOCGIFMETRIC"),
    single_command(0x8921, "SIOCGIFMTU"),
    single_command(0x8927, "SIOCGIFHWADDR"),
    single_command(0x8933, "SIOCGIFINDEX: if_nametoindex"),
    single_command(0x8942, "SIOCGIFTXQLEN"),
    single_command(0x8946, "SIOCETHTOOL: psutil asks for the speed; changes need CAP_NET_ADMIN"),
    single_command(0x894b, "SIOCOUTQNSD: bytes not sent yet"),
    single_command(0x8970, "SIOCGIFMAP: ifconfig"),
    command_range(
        0xb701,
        0xb704,
        "NS_GET_*: lsns; the kernel answers only for namespaces within the caller's own",
    ),
    single_command(0x4004_5431, "TIOCSPTLCK: unlockpt"),
    single_command(
        0x4004_5436,
        "TIOCSIG: a signal to the pseudoterminal that the caller has the master of",
    ),
    single_command(SET_FLAGS_32, "FS_IOC32_SETFLAGS: chattr; the handler carries it out"),
    single_command(
        0x4004_9409,
        "FICLONE: cp; needs the target open for writing, and its blocks count as the target's",
    ),
    single_command(SET_FLAGS, "FS_IOC_SETFLAGS: chattr; the handler carries it out"),
    single_command(0x4020_940d, "FICLONERANGE: the same for a part"),
    command_range(0x402c_542b, 0x402c_542d, "TCSETS2, TCSETSW2, TCSETSF2"),
    single_command(0x8004_5200, "RNDGETENTCNT: how much entropy there is"),
    single_command(0x8004_5430, "TIOCGPTN: ptsname"),
    single_command(0x8004_5432, "TIOCGDEV: device number of a terminal"),
    command_range(0x8004_5438, 0x8004_5439, "TIOCGPKT, TIOCGPTLCK"),
    single_command(0x8004_5440, "TIOCGEXCL"),
    single_command(0x8004_6601, "FS_IOC32_GETFLAGS: lsattr"),
    single_command(0x8004_7601, "FS_IOC32_GETVERSION: lsattr -v"),
    single_command(0x8008_6601, "FS_IOC_GETFLAGS: lsattr"),
    single_command(0x8008_7601, "FS_IOC_GETVERSION: lsattr -v"),
    single_command(0x800c_581e, "XFS_IOC_DIOINFO: alignment for O_DIRECT"),
    command_range(0x8010_8906, 0x8010_8907, "SIOCGSTAMP_NEW, SIOCGSTAMPNS_NEW"),
    single_command(
        0x801c_581f,
        "FS_IOC_FSGETXATTR: reads flags and the project id; setting them would change whose quota pays",
    ),
    single_command(0x802c_542a, "TCGETS2: isatty of newer C libraries"),
    single_command(0xc018_9436, "FIDEDUPERANGE: shares blocks that are equal already"),
    single_command(0xc020_660b, "FS_IOC_FIEMAP: where a file has holes"),
];

/// Commands that create, copy or remove a whole tree in one call. They are refused like any
/// unlisted command, but reported, so that `btrfs subvolume create` shows the reason.
pub const WHOLE_TREE_COMMANDS: &[u32] = &[
    0x5000_9401, // BTRFS_IOC_SNAP_CREATE
    0x5000_940e, // BTRFS_IOC_SUBVOL_CREATE
    0x5000_940f, // BTRFS_IOC_SNAP_DESTROY
    0x5000_9417, // BTRFS_IOC_SNAP_CREATE_V2
    0x5000_9418, // BTRFS_IOC_SUBVOL_CREATE_V2
    0x5000_943f, // BTRFS_IOC_SNAP_DESTROY_V2
    0x4020_bc10, // BCH_IOCTL_SUBVOLUME_CREATE
    0x4020_bc11, // BCH_IOCTL_SUBVOLUME_DESTROY
    0x4018_6f04, // OCFS2_IOC_REFLINK
];

/// True if `command` is in `commands`.
pub fn is_allowed(commands: &[Commands], command: u32) -> bool {
    commands.iter().any(|known| (known.first..=known.last).contains(&command))
}
