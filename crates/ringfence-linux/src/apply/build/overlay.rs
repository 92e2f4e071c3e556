//! Overlays of private caches over the host's.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ringfence_plan::{CONCURRENT, UPPER, WORK};
use ringfence_policy::AbsPath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::open_dir_nofollow;

/// Mounts the host's directory as the lower layer, and the project's own writes as the upper one. A
/// run that is concurrent with another (`beside`) has its own layer on top of both.
pub(super) fn overlay(
    store: &AbsPath,
    beneath: &AbsPath,
    concurrent: Option<u16>,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let store = open_dir_nofollow(CWD, store.as_path())?;
    let (store, shared) = match concurrent {
        None => (store, None),
        Some(number) => (
            open_dir_nofollow(open_dir_nofollow(&store, CONCURRENT)?, number.to_string())?,
            Some(open_dir_nofollow(&store, UPPER)?),
        ),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lower = rustix::fs::openat2(
        CWD,
        beneath.as_path(),
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    // Layers are passed as fds: in a path the kernel would follow symlinks, and take a colon in
    // `lowerdir` as a separator.
    let fd_path = |layer: &OwnedFd| format!("/proc/self/fd/{}", layer.as_raw_fd());
    let lower_layers: Vec<String> = shared.iter().chain([&lower]).map(fd_path).collect();
    let (upper, work) = (open_dir_nofollow(&store, UPPER)?, open_dir_nofollow(&store, WORK)?);
    for (name, layers) in [
        ("lowerdir", lower_layers.join(":")),
        ("upperdir", fd_path(&upper)),
        ("workdir", fd_path(&work)),
    ] {
        fsconfig_set_string(context.as_fd(), name, layers)?;
    }
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    // A cache need not survive a power loss, and without this flag the host's file system would be
    // synced at the end of every command.
    fsconfig_set_flag(context.as_fd(), "volatile")?;
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}
