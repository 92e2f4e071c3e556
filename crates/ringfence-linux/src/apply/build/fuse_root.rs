//! The tripwire as the root: the launcher serves its names, and the sandbox's own files are in a
//! separate tmpfs and are mounted over them.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use ringfence_plan::Step;
use ringfence_policy::AbsPath;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount,
};

use super::devices::{DEVICE_LINKS, DEVICES};
use super::{RootBuilder, abs, new_mount, relative, write_all_to};
use crate::apply::{SetupError, SetupStep};
use crate::fuse_nodes::{BUILD_DIR, REPORTING_MASK_DIR, reports_access};
use crate::open::open_at;

/// State of a root on the tripwire.
pub(super) struct FuseRoot {
    /// The directory of masks, until it is mounted.
    masks: Option<OwnedFd>,
    /// The phase in which it can be mounted.
    mounted: MaskMountPhase,
    /// The tmpfs with our own files and devices, once there are any.
    own: Option<OwnedFd>,
    /// Number of files in it.
    files: usize,
    /// Number of masks used.
    used_masks: usize,
    /// Directories with so many mount points that the kernel should read all names at once.
    dense_dirs: DenseDirs,
}

/// The phase in which the masks can be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaskMountPhase {
    /// At the first denied path, also by the watcher.
    OnDemand,
    /// Only while the root is built.
    DuringBuild,
}

/// The two trees of the tripwire: the root's, and the masks'.
///
/// Before Linux 6.15 the kernel fails with `EINVAL` when cloning from a detached mount: then it is
/// mounted at `place` meanwhile, and cannot be cloned later.
pub(super) fn trees(
    wire: &OwnedFd,
    place: &str,
) -> Result<([OwnedFd; 2], MaskMountPhase), SetupError> {
    let both = || -> Result<_, SetupError> {
        Ok([tree(wire, crate::fuse::ROOT)?, tree(wire, crate::fuse::MASKS)?])
    };
    match both() {
        Err(fault) if fault.errno == libc::EINVAL => {}
        trees => return Ok((trees?, MaskMountPhase::OnDemand)),
    }
    move_mount(wire, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .during(|| format!("mount the tripwire at {place}"))?;
    let trees = both()?;
    unmount(place, UnmountFlags::DETACH).during(|| format!("unmount {place}"))?;
    Ok((trees, MaskMountPhase::DuringBuild))
}

/// Clones the tree at `name` in a mount.
fn tree(mount: &OwnedFd, name: &str) -> Result<OwnedFd, SetupError> {
    open_tree(mount, name, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .during("open the tripwire")
}

impl FuseRoot {
    pub(super) fn new(masks: OwnedFd, mounted: MaskMountPhase, steps: &[Step]) -> Self {
        Self {
            masks: Some(masks),
            mounted,
            own: None,
            files: 0,
            used_masks: 0,
            dense_dirs: find_dense_dirs(steps),
        }
    }
}

impl RootBuilder {
    /// True if the tripwire serves `path`, so that it need not be created.
    pub(super) fn is_shown(&self, path: &AbsPath) -> bool {
        self.wired.is_some()
            && !self.is_mounted_late(path)
            && !path.is_within(&abs("/dev").join("shm"))
    }

    /// Makes the kernel read all names of the dense directories above `path`: each single lookup
    /// would be a FUSE round trip.
    pub(super) fn read_names_above(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        let Some(wired) = &mut self.wired else { return Ok(()) };
        let mut above: Vec<_> = path
            .ancestors()
            .skip(1)
            .filter_map(|above| wired.dense_dirs.remove_entry(&above))
            .collect();
        while let Some((directory, names)) = above.pop() {
            list(&self.base, &directory, Some(names))?;
        }
        Ok(())
    }

    /// Mounts a file of ours over its name.
    pub(super) fn mount_file(&mut self, path: &AbsPath, content: &str) -> Result<(), SetupError> {
        self.mount_own_files()?;
        let Some(FuseRoot { own: Some(own), files, .. }) = &mut self.wired else { return Ok(()) };
        let name = files.to_string();
        *files += 1;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*own, &name, flags, Mode::from_raw_mode(0o644))
            .during(|| format!("write {path}"))?;
        write_all_to(&file, content).during(|| format!("write {path}"))?;
        let tree = tree(own, &name)?;
        self.attach(&tree, path)
    }

    /// Mounts `/dev`, still without the devices.
    pub(super) fn stage_devices(&mut self) -> Result<(), SetupError> {
        self.mount_own_files()?;
        let Some(FuseRoot { own: Some(own), .. }) = &self.wired else { return Ok(()) };
        let made = || -> rustix::io::Result<()> {
            for directory in ["dev", "dev/pts", "dev/shm"] {
                rustix::fs::mkdirat(own, directory, Mode::from_raw_mode(0o755))?;
            }
            for name in DEVICES.iter().chain(&["console"]) {
                let mode = Mode::from_raw_mode(0o644);
                rustix::fs::mknodat(
                    own,
                    format!("dev/{name}"),
                    rustix::fs::FileType::RegularFile,
                    mode,
                    0,
                )?;
            }
            for (name, target) in DEVICE_LINKS {
                rustix::fs::symlinkat(*target, own, format!("dev/{name}"))?;
            }
            Ok(())
        };
        made().during("make /dev")?;
        let tree = tree(own, "dev")?;
        self.attach(&tree, &abs("/dev"))
    }

    /// Mounts the tmpfs for our own files, which no process inside can enter.
    fn mount_own_files(&mut self) -> Result<(), SetupError> {
        if !matches!(&self.wired, Some(FuseRoot { own: None, .. })) {
            return Ok(());
        }
        let own =
            new_mount("tmpfs", &[("mode", "0"), ("size", "1m")], &[], MountAttrFlags::empty())
                .during("mount our own files")?;
        self.attach(&own, &abs(BUILD_DIR))?;
        if let Some(wired) = &mut self.wired {
            wired.own = Some(own);
        }
        Ok(())
    }

    /// Mounts the masks for the watcher, if it could not do so later.
    pub(super) fn mount_masks(&mut self) -> Result<(), SetupError> {
        let wired =
            self.wired.as_mut().filter(|wired| wired.mounted == MaskMountPhase::DuringBuild);
        wired
            .and_then(|wired| wired.masks.take())
            .map_or(Ok(()), |masks| self.attach(&masks, &abs(REPORTING_MASK_DIR)))
    }

    /// The next mask, if accesses to `path` are reported.
    pub(super) fn next_mask(&mut self, path: &AbsPath) -> Result<Option<AbsPath>, SetupError> {
        if !reports_access(path) {
            return Ok(None);
        }
        let at = abs(REPORTING_MASK_DIR);
        if let Some(masks) = self.wired.as_mut().and_then(|wired| wired.masks.take()) {
            self.attach(&masks, &at)?;
            list(&self.base, &at, None)?;
        }
        Ok(self.wired.as_mut().map(|wired| {
            let name = at.join(wired.used_masks.to_string());
            wired.used_masks += 1;
            name
        }))
    }
}

/// Directories with many mount points, and the names of these.
type DenseDirs = BTreeMap<AbsPath, HashSet<Vec<u8>>>;

fn find_dense_dirs(steps: &[Step]) -> DenseDirs {
    const MANY: usize = 5;
    let mut dense_dirs = DenseDirs::new();
    for step in steps {
        if let Step::Bind { path, .. }
        | Step::File { path, .. }
        | Step::Private { path, .. }
        | Step::Scratch { path } = step
        {
            let name = path.as_path().file_name().unwrap_or_default();
            dense_dirs
                .entry(path.parent().unwrap_or_else(AbsPath::root))
                .or_default()
                .insert(name.as_bytes().to_vec());
        }
    }
    dense_dirs.retain(|path, names| names.len() >= MANY || *path == AbsPath::root());
    dense_dirs.entry(AbsPath::root()).or_default();
    dense_dirs
}

/// Lists a directory until all these names are read, or to its end.
fn list(
    base: &OwnedFd,
    directory: &AbsPath,
    mut names: Option<HashSet<Vec<u8>>>,
) -> Result<(), SetupError> {
    let opened = open_at(base, relative(directory), OFlags::RDONLY | OFlags::DIRECTORY)
        .during(|| format!("list {directory}"))?;
    let mut space = Vec::with_capacity(32 * 1024);
    let mut entries = rustix::fs::RawDir::new(opened, space.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.during(|| format!("list {directory}"))?;
        // Reading further would be another FUSE round trip.
        if names
            .as_mut()
            .is_some_and(|names| names.remove(entry.file_name().to_bytes()) && names.is_empty())
        {
            break;
        }
    }
    Ok(())
}
