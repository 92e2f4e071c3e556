//! Syscalls with disk or memory usage that no process is charged for.
//!
//! They are refused under a limit, with an errno at which programs fall back to counted syscalls.
//! `write`, `sendfile`, `splice`, direct writes and dirty pages of mappings are counted by
//! `write_bytes` of `/proc/PID/io`.

use super::Uncounted;
use super::bpf::FilterAction;
use super::calls::Call;
use super::table::{ArgCondition, TableRow};
use crate::abi;

const UNSUPPORTED: FilterAction = FilterAction::Errno(abi::EOPNOTSUPP as u16);
const OTHER_DEVICE: FilterAction = FilterAction::Errno(abi::EXDEV as u16);
const ABSENT: FilterAction = FilterAction::Errno(abi::ENOSYS as u16);

/// `_IOW(0x94, 9, int)` and `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;

const DISK: &[TableRow] = &[
    (
        Call::Fallocate,
        ArgCondition::Always,
        UNSUPPORTED,
        "allocates blocks without writing; the C library writes zeroes instead",
    ),
    (
        Call::Ioctl,
        ArgCondition::Equals(1, FICLONE),
        UNSUPPORTED,
        "a reflink allocates no blocks until one copy changes",
    ),
    (
        Call::Ioctl,
        ArgCondition::Equals(1, FICLONERANGE),
        UNSUPPORTED,
        "a reflink allocates no blocks until one copy changes",
    ),
    (
        Call::CopyFileRange,
        ArgCondition::Always,
        OTHER_DEVICE,
        "a reflink, or a copy by the server, where the file system can; callers copy",
    ),
];

const MEMORY: &[TableRow] = &[
    (
        Call::MemfdCreate,
        ArgCondition::Always,
        ABSENT,
        "in flight between sockets, a memfd belongs to no process; callers fall back to /dev/shm",
    ),
    (Call::MemfdSecret, ArgCondition::Always, ABSENT, "like memfd_create"),
    (
        Call::Vmsplice,
        ArgCondition::Always,
        ABSENT,
        "a pipe holds whole huge pages that are unmapped from their process",
    ),
];

/// The rows for limits on disk space and on memory.
pub(super) fn rows(disk: Uncounted, memory: Uncounted) -> impl Iterator<Item = &'static TableRow> {
    let only =
        |rows: &'static [TableRow], calls| if calls == Uncounted::Refused { rows } else { &[] };
    only(DISK, disk).iter().chain(only(MEMORY, memory))
}
