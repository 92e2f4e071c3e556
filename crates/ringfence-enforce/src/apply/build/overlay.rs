//! Caches over the host's.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ringfence_policy::AbsPath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::plain;
use crate::apply::{BESIDE, UPPER, WORK};

/// The host's directory underneath, the project's own writes above. What runs `beside` another one
/// has a layer of its own on top of both.
pub(super) fn overlay(
    store: &AbsPath,
    beneath: &AbsPath,
    beside: Option<u16>,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let store = plain(CWD, store.as_path())?;
    let (store, shared) = match beside {
        None => (store, None),
        Some(number) => {
            (plain(plain(&store, BESIDE)?, number.to_string())?, Some(plain(&store, UPPER)?))
        }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lower = rustix::fs::openat2(
        CWD,
        beneath.as_path(),
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    // By descriptor: the kernel would follow links in a path, and it takes a colon in
    // `lowerdir` for the end of one.
    let by_number = |layer: &OwnedFd| format!("/proc/self/fd/{}", layer.as_raw_fd());
    let lower_layers: Vec<String> = shared.iter().chain([&lower]).map(by_number).collect();
    let (upper, work) = (plain(&store, UPPER)?, plain(&store, WORK)?);
    for (name, layers) in [
        ("lowerdir", lower_layers.join(":")),
        ("upperdir", by_number(&upper)),
        ("workdir", by_number(&work)),
    ] {
        fsconfig_set_string(context.as_fd(), name, layers)?;
    }
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    // A cache need not survive a power cut, and everybody's disk would be flushed at the
    // end of every command.
    fsconfig_set_flag(context.as_fd(), "volatile")?;
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}
