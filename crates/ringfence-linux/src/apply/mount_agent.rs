//! The mount agent: mounts a path of the host into a running sandbox.
//!
//! A process of its own, which the launcher starts once the user has granted a path. It enters the
//! supervisor's user namespace, copies the host's mounts into its own mount namespace, masks denied
//! paths there, and only then moves the tree into the sandbox: at no time is a denied path
//! reachable. It also mounts the masks of a changed policy.

mod mask;

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringfence_plan::{FileKind, MountAccess, Overmount, PinnedDir};
use ringfence_policy::{AbsPath, Rule};
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_SUID, READ_ONLY};
use ringfence_sys::process::SpawnIsolation;
use ringfence_sys::{namespace, privilege};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use tracing::{error, info};

use super::build::{attach_mount, restrict_mount};
use super::fd_passing::{is_peer_gone, receive_all_fds, relay_log, send_fds};
use super::handle::{LaunchError, helper_error, helper_io_error};
use super::watcher::{SandboxFds, attached_masks};
use super::{PlanUpdate, PolicyReplacement, SetupError, SetupStep, read_whole};
use crate::apply::helper_process::{kill_and_reap, start_helper};
use crate::fuse_nodes::REPORTING_MASK_DIR;
use crate::inode::inode_id;
use crate::open::open;
pub(crate) use mask::DirHolder;

/// The argument that starts our binary as the mount agent.
pub(super) const MOUNT_AGENT: &str = "--mount-agent";

/// A path to be mounted into a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MountGrant {
    /// The path, on the host and in the sandbox.
    pub path: AbsPath,
    /// Its device and inode, to detect a replacement.
    pub identity: (u64, u64),
    /// Read-only or writable.
    pub access: MountAccess,
    /// Denied and protected paths in it.
    pub masks: Vec<MaskedPath>,
}

/// A path that is masked in a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MaskedPath {
    /// The path.
    pub path: AbsPath,
    /// The kind of mask.
    pub mask: Overmount,
    /// The tripwire's node for it, if it has one.
    pub node: Option<usize>,
}

/// The task of the mount agent.
#[derive(Serialize, Deserialize)]
enum MountTask {
    Bring(MountGrant),
    Shut(Vec<MaskedPath>),
}

impl SandboxFds {
    /// Appends rules and guards to the plan file, for the notify handler and the watcher.
    pub(crate) fn add_rules(&self, rules: Vec<Rule>, guards: Vec<PinnedDir>) -> io::Result<()> {
        Ok(PlanUpdate { guards, rules, revised: None }.append(&self.plan)?)
    }

    /// Replaces the policy of the notify handler and the watcher.
    pub(crate) fn replace_policy(
        &self,
        revised: PolicyReplacement,
        guards: Vec<PinnedDir>,
    ) -> io::Result<()> {
        Ok(PlanUpdate { guards, rules: Vec::new(), revised: Some(revised) }.append(&self.plan)?)
    }

    /// Mounts a path into the sandbox. `on_started` gets the pid of the mount agent, before it
    /// enters the sandbox.
    pub(crate) fn mount_grant(
        &self,
        grant: &MountGrant,
        on_started: impl FnOnce(i32),
    ) -> Result<(), LaunchError> {
        self.send(&MountTask::Bring(grant.clone()), on_started).map(drop)
    }

    /// Masks paths in the sandbox. Returns the processes that have a masked directory open or as
    /// their working directory, and so bypass the mask.
    pub(crate) fn mask_paths(
        &self,
        masks: Vec<MaskedPath>,
        on_started: impl FnOnce(i32),
    ) -> Result<Vec<DirHolder>, LaunchError> {
        self.send(&MountTask::Shut(masks), on_started)
    }

    fn send(
        &self,
        task: &MountTask,
        on_started: impl FnOnce(i32),
    ) -> Result<Vec<DirHolder>, LaunchError> {
        let list = write_task(task)?;
        let environment = ringfence_log::helper_environment(self.sandbox);
        let (ours, pid) = start_helper(MOUNT_AGENT, SpawnIsolation::SameSession, &environment)?;
        on_started(pid);
        let fds = [&self.user, &self.mount, &list].into_iter().chain(&self.wire);
        let sent = send_fds(&ours, fds.map(AsFd::as_fd));
        let result = sent
            .map_err(helper_error("send fds to the mount agent"))
            .and_then(|()| receive_result(&ours));
        kill_and_reap(pid);
        result
    }
}

fn write_task(task: &MountTask) -> Result<OwnedFd, LaunchError> {
    let failed = helper_io_error("write the mount task");
    let bytes = postcard::to_stdvec(task).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("ringfence-grant", MemfdFlags::CLOEXEC)
            .map_err(helper_error("memfd_create"))?,
    );
    file.write_all(&bytes).map_err(failed)?;
    Ok(file.into())
}

/// The result of a task.
type MountReply = Result<Vec<DirHolder>, (String, i32)>;

/// A message of the mount agent.
#[derive(Serialize, Deserialize)]
enum MountMessage {
    /// A line for the log.
    Log(Vec<u8>),
    /// The last message.
    Done(MountReply),
}

/// Receives the result. A mount agent that was killed sends none.
fn receive_result(socket: &OwnedFd) -> Result<Vec<DirHolder>, LaunchError> {
    let mut buffer = vec![0; 8 * 1024];
    loop {
        let length = rustix::io::retry_on_intr(|| {
            rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty())
        })
        .map_or(0, |(length, _)| length);
        match postcard::from_bytes(buffer.get(..length).unwrap_or_default()) {
            Ok(MountMessage::Log(line)) => ringfence_log::write_line(&line),
            Ok(MountMessage::Done(Ok(holders))) => return Ok(holders),
            Ok(MountMessage::Done(Err((what, errno)))) => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(LaunchError::Step { what, source });
            }
            Err(_) => return Err(LaunchError::Silent),
        }
    }
}

/// Entry point of the mount agent process. Returns its exit status.
pub(super) fn main(control: &OwnedFd) -> i32 {
    relay_log(control, MountMessage::Log);
    let reply: MountReply = run(control).map_err(|fault| {
        error!(target: "mount_agent", errno = fault.errno, "cannot {}", fault.what);
        (fault.what, fault.errno)
    });
    let status = if reply.is_ok() { 0 } else { 125 };
    if let Ok(bytes) = postcard::to_stdvec(&MountMessage::Done(reply)) {
        let _ = rustix::net::send(control, &bytes, SendFlags::NOSIGNAL);
    }
    status
}

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);
const CLONE_ALL: OpenTreeFlags =
    CLONE.union(OpenTreeFlags::AT_RECURSIVE).union(OpenTreeFlags::AT_EMPTY_PATH);

fn run(control: &OwnedFd) -> Result<Vec<DirHolder>, SetupError> {
    privilege::die_with_parent(libc::SIGKILL).during("prctl(PR_SET_PDEATHSIG)")?;
    if is_peer_gone(control) {
        return Ok(Vec::new());
    }
    let unreadable = || SetupError::new("read the mount task", libc::EBADMSG);
    let mut given = receive_all_fds(control).ok_or_else(unreadable)?.into_iter();
    let (Some(user), Some(mount), Some(list)) = (given.next(), given.next(), given.next()) else {
        return Err(unreadable());
    };
    let task: MountTask = read_whole(&list)
        .and_then(|bytes| postcard::from_bytes(&bytes).ok())
        .ok_or_else(unreadable)?;
    namespace::enter(user.as_fd(), namespace::USER).during("enter the user namespace")?;
    match task {
        MountTask::Bring(grant) => mount_grant(&grant, &mount, given.next()).map(|()| Vec::new()),
        MountTask::Shut(masks) => mask::mask_paths(&masks, &mount, given.next().as_ref()),
    }
}

fn mount_grant(
    grant: &MountGrant,
    mount: &OwnedFd,
    wire: Option<OwnedFd>,
) -> Result<(), SetupError> {
    let path = &grant.path;
    // A private copy of the host's mounts: changes in it never reach the host.
    namespace::unshare(namespace::MOUNT).during("unshare(CLONE_NEWNS)")?;
    privilege::die_with_parent(libc::SIGKILL).during("prctl(PR_SET_PDEATHSIG)")?;
    let own = open("/proc/self/ns/mnt", OFlags::RDONLY).during("open the mount namespace")?;
    let source = open_path(path).during(|| format!("find {path}"))?;
    let status = rustix::fs::fstat(&source).during(|| format!("look at {path}"))?;
    if inode_id(&status) != grant.identity {
        return Err(SetupError {
            what: format!("mount {path} (the host has replaced it meanwhile)"),
            errno: libc::ESTALE,
        });
    }
    let mut tree = open_tree(&source, "", CLONE_ALL).during(|| format!("copy {path}"))?;
    let read_only = if grant.access == MountAccess::ReadOnly { READ_ONLY } else { 0 };
    restrict_mount(&tree, MountRecursion::Below, read_only | NO_SUID | NO_DEV)
        .during(|| format!("restrict {path}"))?;
    if !grant.masks.is_empty() {
        enter(mount)?;
        let nodes = mask_mounts(wire.as_ref(), &grant.masks)?;
        enter(&own)?;
        attach_mount(&tree, &source).during(|| format!("bind-mount {path} onto itself"))?;
        for (masked, node) in grant.masks.iter().zip(nodes) {
            attach_mask(masked, node)?;
        }
        tree = open_path(path)
            .and_then(|masked| open_tree(masked, "", CLONE_ALL))
            .during(|| format!("copy {path}"))?;
    }
    enter(mount)?;
    let target = open_path(path).during(|| format!("find {path} inside"))?;
    attach_mount(&tree, &target).during(|| format!("mount {path}"))?;
    info!(target: "mount_agent", %path, access = ?grant.access, "mounted");
    Ok(())
}

fn enter(mount: &OwnedFd) -> Result<(), SetupError> {
    namespace::enter(mount.as_fd(), namespace::MOUNT).during("enter the mount namespace")
}

/// Opens the file at a path without following symlinks.
fn open_path(path: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// The mounts that cover the denied paths: the tripwire's nodes, or plain masks.
fn mask_mounts(
    wire: Option<&OwnedFd>,
    masks: &[MaskedPath],
) -> Result<Vec<Option<OwnedFd>>, SetupError> {
    let mut masks_mount = None;
    let mut node = |masked: &MaskedPath| -> rustix::io::Result<Option<OwnedFd>> {
        let Overmount::Deny(kind) = masked.mask else { return Ok(None) };
        if let (Some(number), Some(wire)) = (masked.node, wire) {
            // Before Linux 6.15 the kernel clones only mounts of our own mount namespace.
            let there = format!("{}/{number}", crate::fuse::MASKS);
            let node = open_tree(wire, there, CLONE)
                .or_else(|_| open_tree(CWD, format!("{REPORTING_MASK_DIR}/{number}"), CLONE));
            if let Ok(node) = node {
                return Ok(Some(node));
            }
        }
        if masks_mount.is_none() {
            masks_mount = Some(attached_masks()?);
        }
        let masks = masks_mount.as_ref().expect("made just above");
        open_tree(masks, if kind == FileKind::Directory { "directory" } else { "file" }, CLONE)
            .map(Some)
    };
    masks.iter().map(|masked| node(masked).during(|| format!("deny {}", masked.path))).collect()
}

fn attach_mask(masked: &MaskedPath, node: Option<OwnedFd>) -> Result<(), SetupError> {
    let MaskedPath { path, mask, .. } = masked;
    let target = match open_path(path) {
        Ok(target) => target,
        // Gone meanwhile, or a symlink by now, which cannot be a mount point.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error).during(|| format!("mask {path}")),
    };
    let done = match (mask, node) {
        (Overmount::Deny(_), Some(node)) => attach_mount(&node, &target),
        // The whole tree is read-only: a writable grant contains no protected paths.
        _ => Ok(()),
    };
    done.during(|| format!("deny {path}"))
}
