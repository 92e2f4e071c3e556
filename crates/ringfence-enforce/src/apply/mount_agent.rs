//! The porter: brings something of the host into a sandbox that runs.
//!
//! A process of its own, which the caller starts once somebody has said yes. It takes up the
//! warden's rights, copies the host's mounts to have some of its own, covers there what stays
//! shut, and only then moves the whole to where the command finds it: at no time is anything
//! reachable that a rule shuts. It also covers what a policy that was changed shuts.

mod mask;

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringfence_policy::{AbsPath, Rule};
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_SUID, READ_ONLY};
use ringfence_sys::process;
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{namespace, privilege};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use super::build::{put, restrict};
use super::handle::{LaunchError, failed, helper};
use super::helper::{NOT_FOR_US, all_handed_over, hand_over, is_gone};
use super::watcher::{SandboxFds, attached_masks};
use super::{CONTROL_FD, HELPER, PlanUpdate, PolicyReplacement, SetupError, SetupStep, whole};
use crate::fuse_nodes::COVERS;
use crate::plan::{FileKind, MountAccess, Overmount, PinnedDir};
pub use mask::DirHolder;

/// The argument that makes our binary the porter.
pub(super) const PORTER: &str = "--porter";

/// What is to be brought into a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountGrant {
    /// What, and where: at the same path.
    pub path: AbsPath,
    /// Its device and inode, by which it is known.
    pub identity: (u64, u64),
    /// Whether it may be written there.
    pub access: MountAccess,
    /// What stays shut or protected in it.
    pub covers: Vec<MaskedPath>,
}

/// Something that is covered in what is delivered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MaskedPath {
    /// Where.
    pub path: AbsPath,
    /// How.
    pub cover: Overmount,
    /// The tripwire's node for it, where it has one.
    pub node: Option<usize>,
}

/// What the porter is told to do.
#[derive(Serialize, Deserialize)]
enum MountTask {
    Bring(MountGrant),
    Shut(Vec<MaskedPath>),
}

impl SandboxFds {
    /// Lets those who judge in the sandbox know of more rules and guards.
    pub fn add(&self, rules: Vec<Rule>, guards: Vec<PinnedDir>) -> io::Result<()> {
        Ok(PlanUpdate { guards, rules, revised: None }.append(&self.plan)?)
    }

    /// Lets those who judge in the sandbox judge by another policy from now on.
    pub fn revise(&self, revised: PolicyReplacement, guards: Vec<PinnedDir>) -> io::Result<()> {
        Ok(PlanUpdate { guards, rules: Vec::new(), revised: Some(revised) }.append(&self.plan)?)
    }

    /// Brings something in. `begun` is told the number of the process that does so, before
    /// it sets foot inside.
    pub fn deliver(
        &self,
        delivery: &MountGrant,
        begun: impl FnOnce(i32),
    ) -> Result<(), LaunchError> {
        self.send(&MountTask::Bring(delivery.clone()), begun).map(drop)
    }

    /// Covers things. Answers who stands in one of them, or has it open as a directory, and so
    /// gets past the cover.
    pub fn shut(
        &self,
        covers: Vec<MaskedPath>,
        begun: impl FnOnce(i32),
    ) -> Result<Vec<DirHolder>, LaunchError> {
        self.send(&MountTask::Shut(covers), begun)
    }

    fn send(
        &self,
        task: &MountTask,
        begun: impl FnOnce(i32),
    ) -> Result<Vec<DirHolder>, LaunchError> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(helper("socketpair"))?;
        // Out of the way of the number it is to have.
        let theirs = rustix::io::fcntl_dupfd_cloexec(theirs, 10).map_err(helper("fcntl"))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(helper("open /dev/null"))?;
        let null = rustix::io::fcntl_dupfd_cloexec(null, 10).map_err(helper("fcntl"))?;
        let arguments =
            [HELPER, PORTER].map(|word| CString::new(word).expect("a literal without NUL"));
        let descriptors =
            [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2), (theirs.as_fd(), CONTROL_FD)];
        let list = written(task)?;
        let mask = SignalSet::of(NOT_FOR_US);
        let pid = process::spawn(c"/proc/self/exe", &arguments, &[], &descriptors, &mask)
            .map_err(failed("spawn /proc/self/exe"))?;
        drop(theirs);
        begun(pid);
        let handed = match &self.wire {
            Some(wire) => hand_over(
                &ours,
                [self.user.as_fd(), self.mount.as_fd(), list.as_fd(), wire.as_fd()],
            ),
            None => hand_over(&ours, [self.user.as_fd(), self.mount.as_fd(), list.as_fd()]),
        };
        let told = handed.map_err(helper("brief the porter")).and_then(|()| told(&ours));
        let _ = signal::kill(pid, libc::SIGKILL);
        process::await_end(pid);
        told
    }
}

fn written(task: &MountTask) -> Result<OwnedFd, LaunchError> {
    let failed = failed("write what is to be brought in");
    let bytes = postcard::to_stdvec(task).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("ringfence-delivery", MemfdFlags::CLOEXEC)
            .map_err(helper("memfd_create"))?,
    );
    file.write_all(&bytes).map_err(failed)?;
    Ok(file.into())
}

/// What the porter says in the end.
type MountReply = Result<Vec<DirHolder>, (String, i32)>;

/// How it went, as the porter says; it ends without a word if it was ended.
fn told(socket: &OwnedFd) -> Result<Vec<DirHolder>, LaunchError> {
    let mut buffer = vec![0; 8 * 1024];
    let length = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty())
    })
    .map_or(0, |(length, _)| length);
    match postcard::from_bytes::<MountReply>(buffer.get(..length).unwrap_or_default()) {
        Ok(Ok(holders)) => Ok(holders),
        Ok(Err((what, errno))) => {
            Err(LaunchError::Step { what, source: io::Error::from_raw_os_error(errno) })
        }
        Err(_) => Err(LaunchError::Silent),
    }
}

/// What our binary does as the porter; answers its exit status.
pub(super) fn main(control: &OwnedFd) -> i32 {
    let word: MountReply = carry(control).map_err(|fault| (fault.what, fault.errno));
    if let Ok(bytes) = postcard::to_stdvec(&word) {
        let _ = rustix::net::send(control, &bytes, SendFlags::NOSIGNAL);
    }
    if word.is_ok() { 0 } else { 125 }
}

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);
const CLONE_ALL: OpenTreeFlags =
    CLONE.union(OpenTreeFlags::AT_RECURSIVE).union(OpenTreeFlags::AT_EMPTY_PATH);

fn carry(control: &OwnedFd) -> Result<Vec<DirHolder>, SetupError> {
    privilege::die_with_parent(libc::SIGKILL).during(|| "prctl(PR_SET_PDEATHSIG)".into())?;
    if is_gone(control) {
        return Ok(Vec::new());
    }
    let unreadable =
        || SetupError { what: "read what is to be brought in".into(), errno: libc::EBADMSG };
    let mut given = all_handed_over(control).ok_or_else(unreadable)?.into_iter();
    let (Some(user), Some(mount), Some(list)) = (given.next(), given.next(), given.next()) else {
        return Err(unreadable());
    };
    let task: MountTask =
        whole(&list).and_then(|bytes| postcard::from_bytes(&bytes).ok()).ok_or_else(unreadable)?;
    namespace::enter(user.as_fd(), namespace::USER).during(|| "enter the user namespace".into())?;
    match task {
        MountTask::Bring(delivery) => bring(&delivery, &mount, given.next()).map(|()| Vec::new()),
        MountTask::Shut(covers) => mask::shut(&covers, &mount, given.next().as_ref()),
    }
}

fn bring(delivery: &MountGrant, mount: &OwnedFd, wire: Option<OwnedFd>) -> Result<(), SetupError> {
    let path = &delivery.path;
    // A copy of the host's mounts that is ours: whatever is done in it, the host never sees.
    namespace::unshare(namespace::MOUNT).during(|| "unshare(CLONE_NEWNS)".into())?;
    privilege::die_with_parent(libc::SIGKILL).during(|| "prctl(PR_SET_PDEATHSIG)".into())?;
    let own =
        rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .during(|| "open the mount namespace".into())?;
    let source = found(path).during(|| format!("find {path}"))?;
    let status = rustix::fs::fstat(&source).during(|| format!("look at {path}"))?;
    if (status.st_dev, status.st_ino) != delivery.identity {
        return Err(SetupError {
            what: format!("bring in {path}, which is another by now,"),
            errno: libc::ESTALE,
        });
    }
    let mut tree = open_tree(&source, "", CLONE_ALL).during(|| format!("copy {path}"))?;
    let read_only = if delivery.access == MountAccess::ReadOnly { READ_ONLY } else { 0 };
    restrict(&tree, MountRecursion::Below, read_only | NO_SUID | NO_DEV)
        .during(|| format!("restrict {path}"))?;
    if !delivery.covers.is_empty() {
        enter(mount)?;
        let nodes = nodes(wire.as_ref(), &delivery.covers)?;
        enter(&own)?;
        put(&tree, &source).during(|| format!("stand {path} on itself"))?;
        for (covered, node) in delivery.covers.iter().zip(nodes) {
            cover(covered, node)?;
        }
        tree = found(path)
            .and_then(|covered| open_tree(covered, "", CLONE_ALL))
            .during(|| format!("copy {path}"))?;
    }
    enter(mount)?;
    let target = found(path).during(|| format!("find {path} inside"))?;
    put(&tree, &target).during(|| format!("mount {path}"))
}

fn enter(mount: &OwnedFd) -> Result<(), SetupError> {
    namespace::enter(mount.as_fd(), namespace::MOUNT).during(|| "enter the mount namespace".into())
}

/// What stands at a path, never by way of a link.
fn found(path: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Something to cover each denied thing with: the tripwire's node for it, or a mask.
fn nodes(
    wire: Option<&OwnedFd>,
    covers: &[MaskedPath],
) -> Result<Vec<Option<OwnedFd>>, SetupError> {
    let mut made = None;
    let mut node = |covered: &MaskedPath| -> rustix::io::Result<Option<OwnedFd>> {
        let Overmount::Deny(kind) = covered.cover else { return Ok(None) };
        if let (Some(number), Some(wire)) = (covered.node, wire) {
            // Before 6.15, the kernel copies only what is mounted where we are.
            let there = format!("{}/{number}", ringfence_tripwire::COVERS);
            let node = open_tree(wire, there, CLONE)
                .or_else(|_| open_tree(CWD, format!("{COVERS}/{number}"), CLONE));
            if let Ok(node) = node {
                return Ok(Some(node));
            }
        }
        if made.is_none() {
            made = Some(attached_masks()?);
        }
        let masks = made.as_ref().expect("made just above");
        open_tree(masks, if kind == FileKind::Directory { "directory" } else { "file" }, CLONE)
            .map(Some)
    };
    covers.iter().map(|covered| node(covered).during(|| format!("deny {}", covered.path))).collect()
}

fn cover(covered: &MaskedPath, node: Option<OwnedFd>) -> Result<(), SetupError> {
    let MaskedPath { path, cover, .. } = covered;
    let target = match found(path) {
        Ok(target) => target,
        // Gone meanwhile, or a link by now, on which nothing can be mounted.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error).during(|| format!("cover {path}")),
    };
    let covered = match (cover, node) {
        (Overmount::Deny(_), Some(node)) => put(&node, &target),
        // All of it is read-only: what is to be written has nothing covered in it.
        _ => Ok(()),
    };
    covered.during(|| format!("deny {path}"))
}
