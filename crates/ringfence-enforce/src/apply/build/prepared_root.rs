//! What every sandbox has, built before it is known what else: the caller is still reading
//! the policy meanwhile.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ringfence_policy::AbsPath;
use rustix::fs::CWD;
use rustix::mount::{
    FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_reconfigure,
    fsconfig_set_string, fspick, move_mount, unmount,
};

use super::fuse_root::{self, FuseRoot};
use super::{MountSource, RootBuilder, make};
use crate::apply::{SetupError, SetupStep, probe};
use crate::linux::standard;
use crate::plan::Step;
use crate::support::FuseSupport;

/// A root with the system in it, at a place where it does no harm yet.
pub(in crate::apply) struct PreparedRoot {
    /// The root, unless it is to be the tripwire.
    root: Option<RootBuilder>,
    pub(super) processes: Option<OwnedFd>,
    pub(super) terminals: Option<OwnedFd>,
    pub(super) scratch: Vec<OwnedFd>,
    /// How much each of them may hold, where that is limited.
    most: Option<u64>,
    /// Steps that were prepared already, in the order of every plan.
    done: Vec<Step>,
    place: &'static str,
}

/// Directories that hosts have, to put the new root over until it is the root.
const PLACES: &[&str] =
    &["/tmp", "/mnt", "/media", "/srv", "/var", "/run", "/home", "/opt", "/usr"];

impl PreparedRoot {
    pub(in crate::apply) fn lay() -> Result<Self, SetupError> {
        let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let loud = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = [("ptmxmode", "0666"), ("mode", "0620")];
        let place = place(&[])?;
        let mut ground = Self {
            root: None,
            processes: Some(
                make("proc", &[], &[], quiet | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                    .during(|| "mount /proc".into())?,
            ),
            terminals: Some(
                make("devpts", &terminals, &["newinstance"], loud)
                    .during(|| "mount /dev/pts".into())?,
            ),
            scratch: vec![scratch(None)?, scratch(None)?],
            most: None,
            done: Vec::new(),
            place,
        };
        // With a tripwire for a root there is nothing yet to stand on.
        if probe::fuse() != FuseSupport::Opens {
            let mut root = root(place)?;
            for step in standard() {
                root.prepare(&step, &MountSource::There)?;
                ground.done.push(step);
            }
            ground.root = Some(root);
        }
        Ok(ground)
    }

    /// What is memory holds no more than this, and nor does what was made already.
    pub(super) fn limit(&mut self, most: u64) {
        self.most = Some(most);
        // What cannot be told so is made anew.
        self.scratch.retain(|mount| resize(mount, most).is_ok());
    }

    /// One place for scratch more than every sandbox has.
    pub(super) fn more_scratch(&self) -> Result<OwnedFd, SetupError> {
        scratch(self.most)
    }

    /// Whether everything done is also what the plan says.
    fn is_part_of(&self, steps: &[Step]) -> bool {
        let mut done = self.done.iter().peekable();
        for step in steps {
            done.next_if_eq(&step);
        }
        done.peek().is_none()
    }

    /// The root for a plan, and what of the plan is in it already.
    pub(super) fn root(
        &mut self,
        wire: Option<&OwnedFd>,
        steps: &[Step],
    ) -> Result<(RootBuilder, Vec<Step>), SetupError> {
        let is_of_use = wire.is_none() && self.is_part_of(steps);
        if let Some(root) = self.root.take() {
            if is_of_use {
                return Ok((root, std::mem::take(&mut self.done)));
            }
            // The policy leaves out something that most sandboxes have.
            rustix::process::chdir("/").during(|| "leave the root".into())?;
            unmount(self.place, UnmountFlags::DETACH)
                .during(|| format!("unmount {}", self.place))?;
        }
        let root = match wire {
            Some(wire) => {
                let ([root, covers], mounted) = fuse_root::trees(wire, self.place)?;
                stand(root, self.place, Some(FuseRoot::new(covers, mounted, steps)))?
            }
            None => root(self.place)?,
        };
        Ok((root, Vec::new()))
    }

    /// Moves the root elsewhere if it stands over something the plan needs.
    pub(super) fn uncover(&mut self, root: &RootBuilder, steps: &[Step]) -> Result<(), SetupError> {
        let needed: Vec<&AbsPath> = steps.iter().flat_map(sources).collect();
        if !covers(self.place, &needed) {
            return Ok(());
        }
        self.place = place(&needed)?;
        move_mount(&root.base, "", CWD, self.place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .during(|| format!("move the new root to {}", self.place))
    }
}

/// Where on the host a step takes something from.
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
    PLACES
        .iter()
        .copied()
        .find(|place| !covers(place, needed) && Path::new(place).is_dir())
        .ok_or_else(|| SetupError {
            what: "find a place for the new root".into(),
            errno: libc::ENOENT,
        })
}

fn root(place: &str) -> Result<RootBuilder, SetupError> {
    let base = make("tmpfs", &[("mode", "0755"), ("size", "64m")], &[], MountAttrFlags::empty())
        .during(|| "mount the new root".into())?;
    stand(base, place, None)
}

/// Puts a new root at a place, and us into it.
fn stand(base: OwnedFd, place: &str, wired: Option<FuseRoot>) -> Result<RootBuilder, SetupError> {
    move_mount(&base, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .during(|| format!("mount the new root at {place}"))?;
    rustix::process::fchdir(&base).during(|| "enter the new root".into())?;
    Ok(RootBuilder {
        base,
        made: BTreeSet::from([AbsPath::root()]),
        bound: BTreeSet::new(),
        outermost: BTreeSet::new(),
        writable: BTreeSet::new(),
        private: BTreeSet::new(),
        mask: None,
        wired,
    })
}

fn resize(mount: &OwnedFd, most: u64) -> rustix::io::Result<()> {
    let context = fspick(mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_string(context.as_fd(), "size", most.to_string())?;
    fsconfig_reconfigure(context.as_fd())
}

/// A place that is memory, of so many bytes at most where that is said.
fn scratch(most: Option<u64>) -> Result<OwnedFd, SetupError> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let size = most.map(|most| most.to_string());
    let options: Vec<_> =
        [("mode", "1777")].into_iter().chain(size.as_deref().map(|size| ("size", size))).collect();
    make("tmpfs", &options, &[], quiet).during(|| "mount a place for scratch".into())
}
