//! The tripwire as the root: its names are shown by whoever serves it, and what is ours
//! alone stands in a file system of its own and is mounted over them.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::AbsPath;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount,
};

use super::{DEVICES, RootBuilder, fill, here, make, relative};
use crate::apply::{SetupError, SetupStep};
use crate::fuse_nodes::{COVERS, OWN, tells};
use crate::plan::Step;

/// What a root on the tripwire has beside it.
pub(super) struct FuseRoot {
    /// The covers' directory, until it is mounted.
    covers: Option<OwnedFd>,
    /// Until when that can be done.
    mounted: CoverMountPhase,
    /// Our own files and devices, once there are any.
    own: Option<OwnedFd>,
    /// How many files are in it.
    files: usize,
    /// How many covers were used.
    covered: usize,
    /// Directories with so many names that the kernel should learn all of them at once.
    crowded: DenseDirs,
}

/// Until when the covers can be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CoverMountPhase {
    /// Whenever something is denied, by the lookout too.
    AtNeed,
    /// While the root is built.
    Now,
}

/// The two trees of the tripwire: the root's, and the covers'.
///
/// Before 6.15 the kernel answers `EINVAL` to whoever copies from a mount that stands nowhere:
/// there it stands at `place` meanwhile, and nobody can copy from it later.
pub(super) fn trees(
    wire: &OwnedFd,
    place: &str,
) -> Result<([OwnedFd; 2], CoverMountPhase), SetupError> {
    let both = || -> Result<_, SetupError> {
        Ok([tree(wire, ringfence_tripwire::ROOT)?, tree(wire, ringfence_tripwire::COVERS)?])
    };
    match both() {
        Err(fault) if fault.errno == libc::EINVAL => {}
        trees => return Ok((trees?, CoverMountPhase::AtNeed)),
    }
    move_mount(wire, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .during(|| format!("mount the tripwire at {place}"))?;
    let trees = both()?;
    unmount(place, UnmountFlags::DETACH).during(|| format!("unmount {place}"))?;
    Ok((trees, CoverMountPhase::Now))
}

/// A copy of what stands at `name` in a mount.
fn tree(mount: &OwnedFd, name: &str) -> Result<OwnedFd, SetupError> {
    open_tree(mount, name, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .during(|| "open the tripwire".into())
}

impl FuseRoot {
    pub(super) fn new(covers: OwnedFd, mounted: CoverMountPhase, steps: &[Step]) -> Self {
        Self {
            covers: Some(covers),
            mounted,
            own: None,
            files: 0,
            covered: 0,
            crowded: crowded(steps),
        }
    }
}

impl RootBuilder {
    /// Whether the tripwire shows what stands at `path`, so that it need not be made.
    pub(super) fn is_shown(&self, path: &AbsPath) -> bool {
        self.wired.is_some() && !self.is_late(path) && !path.is_within(&here("/dev").join("shm"))
    }

    /// Lets the kernel learn all names of a crowded directory above `path`: each by itself
    /// would be a conversation of its own.
    pub(super) fn prime_above(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        let Some(wired) = &mut self.wired else { return Ok(()) };
        let mut above: Vec<_> = path
            .ancestors()
            .skip(1)
            .filter_map(|above| wired.crowded.remove_entry(&above))
            .collect();
        while let Some((directory, names)) = above.pop() {
            list(&self.base, &directory, Some(names))?;
        }
        Ok(())
    }

    /// A file of ours over the name that stands for it.
    pub(super) fn lay_over(&mut self, path: &AbsPath, content: &str) -> Result<(), SetupError> {
        self.own_place()?;
        let Some(FuseRoot { own: Some(own), files, .. }) = &mut self.wired else { return Ok(()) };
        let name = files.to_string();
        *files += 1;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*own, &name, flags, Mode::from_raw_mode(0o644))
            .during(|| format!("write {path}"))?;
        fill(&file, content).during(|| format!("write {path}"))?;
        let tree = tree(own, &name)?;
        self.attach(&tree, path)
    }

    /// `/dev`, still without the devices.
    pub(super) fn stage_devices(&mut self) -> Result<(), SetupError> {
        self.own_place()?;
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
            for (name, target) in super::DEVICE_LINKS {
                rustix::fs::symlinkat(*target, own, format!("dev/{name}"))?;
            }
            Ok(())
        };
        made().during(|| "make /dev".into())?;
        let tree = tree(own, "dev")?;
        self.attach(&tree, &here("/dev"))
    }

    /// Where our own files stand: nobody inside can enter it.
    fn own_place(&mut self) -> Result<(), SetupError> {
        if !matches!(&self.wired, Some(FuseRoot { own: None, .. })) {
            return Ok(());
        }
        let own = make("tmpfs", &[("mode", "0"), ("size", "1m")], &[], MountAttrFlags::empty())
            .during(|| "mount our own files".into())?;
        self.attach(&own, &here(OWN))?;
        if let Some(wired) = &mut self.wired {
            wired.own = Some(own);
        }
        Ok(())
    }

    /// Mounts the covers for the lookout, where it could not.
    pub(super) fn leave_covers(&mut self) -> Result<(), SetupError> {
        let wired = self.wired.as_mut().filter(|wired| wired.mounted == CoverMountPhase::Now);
        wired
            .and_then(|wired| wired.covers.take())
            .map_or(Ok(()), |covers| self.attach(&covers, &here(COVERS)))
    }

    /// The cover for the next thing that is denied, if it is one that tells.
    pub(super) fn next_cover(&mut self, path: &AbsPath) -> Result<Option<AbsPath>, SetupError> {
        if !tells(path) {
            return Ok(None);
        }
        let at = here(COVERS);
        if let Some(covers) = self.wired.as_mut().and_then(|wired| wired.covers.take()) {
            self.attach(&covers, &at)?;
            list(&self.base, &at, None)?;
        }
        Ok(self.wired.as_mut().map(|wired| {
            let name = at.join(wired.covered.to_string());
            wired.covered += 1;
            name
        }))
    }
}

/// Directories in which much will be mounted, and at which names.
type DenseDirs = BTreeMap<AbsPath, HashSet<Vec<u8>>>;

fn crowded(steps: &[Step]) -> DenseDirs {
    const MANY: usize = 5;
    let mut crowded = DenseDirs::new();
    for step in steps {
        if let Step::Bind { path, .. }
        | Step::File { path, .. }
        | Step::Private { path, .. }
        | Step::Scratch { path } = step
        {
            let name = path.as_path().file_name().unwrap_or_default();
            crowded
                .entry(path.parent().unwrap_or_else(AbsPath::root))
                .or_default()
                .insert(name.as_bytes().to_vec());
        }
    }
    crowded.retain(|path, names| names.len() >= MANY || *path == AbsPath::root());
    crowded.entry(AbsPath::root()).or_default();
    crowded
}

/// Lists a directory until all these names are known, or to its end.
fn list(
    base: &OwnedFd,
    directory: &AbsPath,
    mut names: Option<HashSet<Vec<u8>>>,
) -> Result<(), SetupError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(base, relative(directory), flags, Mode::empty())
        .during(|| format!("list {directory}"))?;
    let mut space = Vec::with_capacity(32 * 1024);
    let mut entries = rustix::fs::RawDir::new(opened, space.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.during(|| format!("list {directory}"))?;
        // To ask whether there is more is another conversation.
        if names
            .as_mut()
            .is_some_and(|names| names.remove(entry.file_name().to_bytes()) && names.is_empty())
        {
            break;
        }
    }
    Ok(())
}
