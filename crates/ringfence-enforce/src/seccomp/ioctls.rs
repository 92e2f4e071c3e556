//! The `ioctl` commands that go through.
//!
//! An allow list: file systems define commands that make, copy, swap or remove whole trees, and the
//! filter cannot know those of tomorrow. The sandbox has no devices but terminals and the random
//! number generator (every tree is mounted `nodev`), so commands of other drivers are not listed.
//! Everything else fails with `ENOTTY`, which is what a file system answers that lacks a command,
//! so programs fall back.

/// Neighbouring commands, and why they go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commands {
    /// The first of them.
    pub first: u32,
    /// The last of them.
    pub last: u32,
    /// The reason.
    pub reason: &'static str,
}

const fn one(command: u32, reason: &'static str) -> Commands {
    Commands { first: command, last: command, reason }
}

const fn run(first: u32, last: u32, reason: &'static str) -> Commands {
    Commands { first, last, reason }
}

/// `FS_IOC_SETFLAGS` of 64-bit programs. The notify handler carries it out.
pub(crate) const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC32_SETFLAGS`.
pub(crate) const SET_FLAGS_32: u32 = 0x4004_6602;

/// All of them, in ascending order: the filter searches by halves.
pub(crate) const ALLOWED: &[Commands] = &[
    one(0x2, "FIGETBSZ: block size"),
    run(
        0x5401,
        0x5411,
        "TCGETS to TIOCOUTQ: modes, flow control, foreground group and session of a terminal",
    ),
    // Not 0x5412 TIOCSTI.
    run(0x5413, 0x541b, "TIOCGWINSZ to FIONREAD: window size, modem lines, bytes that wait"),
    // Not 0x541c TIOCLINUX, 0x541d TIOCCONS, and the two of serial ports.
    run(0x5420, 0x5422, "TIOCPKT, FIONBIO, TIOCNOTTY"),
    // Not 0x5423 TIOCSETD.
    run(0x5424, 0x5425, "TIOCGETD, TCSBRKP"),
    run(0x5427, 0x5429, "TIOCSBRK, TIOCCBRK, TIOCGSID"),
    // Not 0x5437 TIOCVHANGUP.
    one(0x5441, "TIOCGPTPEER: the other end of a pseudoterminal"),
    run(0x5450, 0x5452, "FIONCLEX, FIOCLEX, FIOASYNC: flags of the fd itself"),
    one(0x5460, "FIOQSIZE: size of a file"),
    run(
        0x8901,
        0x8907,
        "FIOSETOWN to SIOCGSTAMPNS: owner of a socket's signals, urgent mark, time of the last packet",
    ),
    one(0x8910, "SIOCGIFNAME"),
    run(0x8912, 0x8913, "SIOCGIFCONF, SIOCGIFFLAGS"),
    one(0x8915, "SIOCGIFADDR"),
    one(0x8917, "SIOCGIFDSTADDR"),
    one(0x8919, "SIOCGIFBRDADDR"),
    one(0x891b, "SIOCGIFNETMASK"),
    one(0x891d, "SIOCGIFMETRIC"),
    one(0x8921, "SIOCGIFMTU"),
    one(0x8927, "SIOCGIFHWADDR"),
    one(0x8933, "SIOCGIFINDEX: if_nametoindex"),
    one(0x8942, "SIOCGIFTXQLEN"),
    one(0x8946, "SIOCETHTOOL: psutil asks for the speed; changes need CAP_NET_ADMIN"),
    one(0x894b, "SIOCOUTQNSD: bytes not sent yet"),
    one(0x8970, "SIOCGIFMAP: ifconfig"),
    run(
        0xb701,
        0xb704,
        "NS_GET_*: lsns; the kernel answers only for namespaces within the caller's own",
    ),
    one(0x4004_5431, "TIOCSPTLCK: unlockpt"),
    one(0x4004_5436, "TIOCSIG: a signal to the pseudoterminal that the caller has the master of"),
    one(SET_FLAGS_32, "FS_IOC32_SETFLAGS: chattr; the handler carries it out"),
    one(
        0x4004_9409,
        "FICLONE: cp; needs the target open for writing, and its blocks count as the target's",
    ),
    one(SET_FLAGS, "FS_IOC_SETFLAGS: chattr; the handler carries it out"),
    one(0x4020_940d, "FICLONERANGE: the same for a part"),
    run(0x402c_542b, 0x402c_542d, "TCSETS2, TCSETSW2, TCSETSF2"),
    one(0x8004_5200, "RNDGETENTCNT: how much entropy there is"),
    one(0x8004_5430, "TIOCGPTN: ptsname"),
    one(0x8004_5432, "TIOCGDEV: device number of a terminal"),
    run(0x8004_5438, 0x8004_5439, "TIOCGPKT, TIOCGPTLCK"),
    one(0x8004_5440, "TIOCGEXCL"),
    one(0x8004_6601, "FS_IOC32_GETFLAGS: lsattr"),
    one(0x8004_7601, "FS_IOC32_GETVERSION: lsattr -v"),
    one(0x8008_6601, "FS_IOC_GETFLAGS: lsattr"),
    one(0x8008_7601, "FS_IOC_GETVERSION: lsattr -v"),
    one(0x800c_581e, "XFS_IOC_DIOINFO: alignment for O_DIRECT"),
    run(0x8010_8906, 0x8010_8907, "SIOCGSTAMP_NEW, SIOCGSTAMPNS_NEW"),
    one(
        0x801c_581f,
        "FS_IOC_FSGETXATTR: reads flags and the project id; setting them would change whose quota pays",
    ),
    one(0x802c_542a, "TCGETS2: isatty of newer C libraries"),
    one(0xc018_9436, "FIDEDUPERANGE: shares blocks that are equal already"),
    one(0xc020_660b, "FS_IOC_FIEMAP: where a file has holes"),
];

/// Commands that make, copy or remove a whole tree in one call. They are refused like any that is
/// not listed, but reported: `btrfs subvolume create` should say why it fails.
pub(crate) const WHOLE_TREES: &[u32] = &[
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

/// Whether a command is one of the list.
pub(crate) fn is_allowed(commands: &[Commands], command: u32) -> bool {
    commands.iter().any(|known| (known.first..=known.last).contains(&command))
}
