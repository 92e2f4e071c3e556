//! The part that every sandbox has, built before the plan is known: the launcher is still reading
//! the policy meanwhile.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ringfence_plan::linux::standard_steps;
use ringfence_plan::{FuseSupport, Step};
use ringfence_policy::{AbsPath, Grants};
use rustix::fs::CWD;
use rustix::mount::{
    FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_reconfigure,
    fsconfig_set_string, fspick, move_mount, unmount,
};

use super::fuse_root::{self, FuseRoot};
use super::{MountSource, RootBuilder, new_mount};
use crate::apply::{SetupError, SetupStep, probe};
use ringfence_survey::resolve_rule_roots;

/// A root with the system in it, mounted over a host directory until it becomes the root.
pub(in crate::apply) struct PreparedRoot {
    /// The root, unless the tripwire is to be the root.
    root: Option<RootBuilder>,
    pub(super) processes: Option<OwnedFd>,
    pub(super) terminals: Option<OwnedFd>,
    pub(super) scratch: Vec<OwnedFd>,
    /// Size limit of each of them, if there is one.
    max_size: Option<u64>,
    /// Steps that are done, in the order of every plan.
    done: Vec<Step>,
    place: &'static str,
}

/// Host directories over which the new root can be mounted until it is the root.
const MOUNT_POINTS: &[&str] =
    &["/tmp", "/mnt", "/media", "/srv", "/var", "/run", "/home", "/opt", "/usr"];

impl PreparedRoot {
    pub(in crate::apply) fn new() -> Result<Self, SetupError> {
        let no_suid_dev = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let no_suid_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = [("ptmxmode", "0666"), ("mode", "0620")];
        let place = place(&[])?;
        let mut prepared = Self {
            root: None,
            processes: Some(
                new_mount("proc", &[], &[], no_suid_dev | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                    .during("mount /proc")?,
            ),
            terminals: Some(
                new_mount("devpts", &terminals, &["newinstance"], no_suid_exec)
                    .during("mount /dev/pts")?,
            ),
            scratch: vec![scratch(None)?, scratch(None)?],
            max_size: None,
            done: Vec::new(),
            place,
        };
        // With the tripwire as the root there is nothing to prepare yet.
        if probe::fuse() != FuseSupport::Opens {
            let mut root = new_root(place)?;
            let grants = Grants::system_only();
            for step in standard_steps(&grants, &resolve_rule_roots(&grants)) {
                root.prepare(&step, &MountSource::There)?;
                prepared.done.push(step);
            }
            prepared.root = Some(root);
        }
        Ok(prepared)
    }

    /// Limits the size of every tmpfs, including the existing ones.
    pub(super) fn limit(&mut self, max_size: u64) {
        self.max_size = Some(max_size);
        // One that cannot be resized is created again.
        self.scratch.retain(|mount| resize(mount, max_size).is_ok());
    }

    /// Creates another scratch tmpfs.
    pub(super) fn more_scratch(&self) -> Result<OwnedFd, SetupError> {
        scratch(self.max_size)
    }

    /// True if every prepared step is part of the plan.
    fn is_part_of(&self, steps: &[Step]) -> bool {
        let mut done = self.done.iter().peekable();
        for step in steps {
            done.next_if_eq(&step);
        }
        done.peek().is_none()
    }

    /// The root for a plan, and the steps that are done.
    pub(super) fn root_for(
        &mut self,
        wire: Option<&OwnedFd>,
        steps: &[Step],
    ) -> Result<(RootBuilder, Vec<Step>), SetupError> {
        let is_usable = wire.is_none() && self.is_part_of(steps);
        if let Some(root) = self.root.take() {
            if is_usable {
                return Ok((root, std::mem::take(&mut self.done)));
            }
            // The policy leaves out a step that most sandboxes have.
            rustix::process::chdir("/").during("leave the root")?;
            unmount(self.place, UnmountFlags::DETACH)
                .during(|| format!("unmount {}", self.place))?;
        }
        let root = match wire {
            Some(wire) => {
                let ([root, masks], mounted) = fuse_root::trees(wire, self.place)?;
                mount_root(root, self.place, Some(FuseRoot::new(masks, mounted, steps)))?
            }
            None => new_root(self.place)?,
        };
        Ok((root, Vec::new()))
    }

    /// Moves the root if it covers a path that the plan needs.
    pub(super) fn move_off_needed(
        &mut self,
        root: &RootBuilder,
        steps: &[Step],
    ) -> Result<(), SetupError> {
        let needed: Vec<&AbsPath> = steps.iter().flat_map(sources).collect();
        if !covers(self.place, &needed) {
            return Ok(());
        }
        self.place = place(&needed)?;
        move_mount(&root.base, "", CWD, self.place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .during(|| format!("move the new root to {}", self.place))
    }
}

/// The host paths that a step mounts.
fn sources(step: &Step) -> Vec<&AbsPath> {
    match step {
        Step::Bind { path, .. } => vec![path],
        Step::Private { store, beneath, .. } => [store].into_iter().chain(beneath).collect(),
        _ => Vec::new(),
    }
}

fn covers(place: &str, needed: &[&AbsPath]) -> bool {
    needed.iter().any(|path| path.as_path().starts_with(place))
}

fn place(needed: &[&AbsPath]) -> Result<&'static str, SetupError> {
    MOUNT_POINTS
        .iter()
        .copied()
        .find(|place| !covers(place, needed) && Path::new(place).is_dir())
        .ok_or_else(|| SetupError::new("find a mount point for the new root", libc::ENOENT))
}

fn new_root(place: &str) -> Result<RootBuilder, SetupError> {
    let base =
        new_mount("tmpfs", &[("mode", "0755"), ("size", "64m")], &[], MountAttrFlags::empty())
            .during("mount the new root")?;
    mount_root(base, place, None)
}

/// Mounts a new root at `place`, and makes it the working directory.
fn mount_root(
    base: OwnedFd,
    place: &str,
    wired: Option<FuseRoot>,
) -> Result<RootBuilder, SetupError> {
    move_mount(&base, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .during(|| format!("mount the new root at {place}"))?;
    rustix::process::fchdir(&base).during("enter the new root")?;
    Ok(RootBuilder {
        base,
        created: BTreeSet::from([AbsPath::root()]),
        bound: BTreeSet::new(),
        outermost: BTreeSet::new(),
        writable: BTreeSet::new(),
        private: BTreeSet::new(),
        mask: None,
        wired,
    })
}

fn resize(mount: &OwnedFd, max_size: u64) -> rustix::io::Result<()> {
    let context = fspick(mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_string(context.as_fd(), "size", max_size.to_string())?;
    fsconfig_reconfigure(context.as_fd())
}

/// A scratch tmpfs, with a size limit if given.
fn scratch(max_size: Option<u64>) -> Result<OwnedFd, SetupError> {
    let no_suid_dev = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let size = max_size.map(|max_size| max_size.to_string());
    let options: Vec<_> =
        [("mode", "1777")].into_iter().chain(size.as_deref().map(|size| ("size", size))).collect();
    new_mount("tmpfs", &options, &[], no_suid_dev).during("mount a scratch tmpfs")
}
