//! Mounts masks over denied files that appear in a running sandbox.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_plan::{FileKind, Overmount, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_SUID, READ_ONLY};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::net::SendFlags;
use rustix::time::Timespec;
use tracing::info;

use super::granted::GrantedPaths;
use super::{OWN, QueryId, WatcherMessage, receive, send, send_with_flags};
use crate::apply::FileIdentity;
use crate::apply::build::{attach_mount, new_masks, restrict_mount};
use crate::fuse_nodes::{REPORTING_MASK_DIR, SILENT_MASK_DIR, reports_access};
use crate::inode::inode_id;
use crate::open::open;

/// Mounts masks in the live sandbox.
pub(super) struct LiveMasker<'a> {
    control: &'a OwnedFd,
    /// Queries to the launcher, over the same socket.
    queries: Arc<LauncherQueries>,
    stock: MaskStock,
    /// The file system of the masks: a file on it is a mask.
    device: u64,
    /// Paths granted meanwhile.
    granted: GrantedPaths,
    /// Used nodes and their paths, not yet reported.
    used: Vec<(usize, AbsPath)>,
    count: usize,
}

enum MaskStock {
    /// Nodes of the tripwire, one for each path.
    Wired(Box<FuseMasks>),
    /// Two masks for all paths: a file and a directory.
    Masks(OwnedFd),
}

struct FuseMasks {
    nodes: Arc<OwnedFd>,
    /// A path that is masked again gets the same node.
    known: BTreeMap<(AbsPath, FileKind), usize>,
    files: Receiver<SpareNode>,
    directories: Receiver<SpareNode>,
    /// Used if no node is available.
    masks: Option<OwnedFd>,
}

/// A node that is mounted in advance, so that masking does not wait for the launcher.
struct SpareNode {
    number: usize,
    mount: OwnedFd,
}

/// Number of nodes requested at a time.
const BATCH: usize = 16;
/// Number of nodes prepared in advance: in most sandboxes no denied file appears, and preparing
/// nodes takes CPU time from the command.
const PREPARED: usize = 8;

impl<'a> LiveMasker<'a> {
    pub(super) fn new(
        control: &'a OwnedFd,
        wire: Option<OwnedFd>,
        plan: &Plan,
        granted: GrantedPaths,
    ) -> io::Result<Self> {
        let queries = Arc::new(LauncherQueries {
            socket: Mutex::new(control.try_clone()?),
            next_id: AtomicU64::new(0),
        });
        let stock = match wire {
            Some(wire) => {
                let nodes = Arc::new(open_nodes(&wire, plan)?);
                let [files, directories] = [FileKind::File, FileKind::Directory]
                    .map(|kind| prepare_nodes(kind, nodes.clone(), queries.clone()));
                MaskStock::Wired(Box::new(FuseMasks {
                    nodes,
                    known: BTreeMap::new(),
                    files: files?,
                    directories: directories?,
                    masks: None,
                }))
            }
            None => MaskStock::Masks(attached_masks()?),
        };
        let base = match &stock {
            MaskStock::Wired(wired) => &wired.nodes,
            MaskStock::Masks(masks) => masks,
        };
        let device = rustix::fs::fstat(base)?.st_dev;
        Ok(Self { control, queries, stock, device, granted, used: Vec::new(), count: 0 })
    }

    /// Masks the file at `path`, unless it is masked, gone or granted meanwhile.
    pub(super) fn mask(&mut self, path: &AbsPath, mask: Overmount) -> io::Result<()> {
        let how = ResolveFlags::NO_SYMLINKS;
        let target = match rustix::fs::openat2(
            CWD,
            path.as_path(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            how,
        ) {
            Ok(target) => target,
            // Gone meanwhile: at its new path it is seen again.
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG,
            ) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Checked after the open: a grant is written to the plan file before it is mounted, so a
        // granted mount that was opened here is known.
        if self.granted.is_granted(path, mask) {
            return Ok(());
        }
        self.count += 1;
        let result = match mask {
            Overmount::Deny(_) => self.deny(path, &target),
            Overmount::ReadOnly => mount_read_only(&target, MountRecursion::Below),
            Overmount::Shallow => mount_read_only(&target, MountRecursion::One),
        };
        match result {
            // Removed between the open and the mount.
            Err(Errno::NOENT | Errno::INVAL) if !self.is_unchanged(path, &target) => Ok(()),
            other => Ok(other?),
        }
    }

    fn deny(&mut self, path: &AbsPath, target: &OwnedFd) -> rustix::io::Result<()> {
        let status = rustix::fs::fstat(target)?;
        let kind = match FileType::from_raw_mode(status.st_mode) {
            _ if self.is_mask(status.st_dev) => return Ok(()),
            // A symlink cannot be a mount point; its target is masked separately.
            FileType::Symlink => return Ok(()),
            FileType::Directory => FileKind::Directory,
            _ => FileKind::File,
        };
        let node = self.node(path, kind)?;
        // Getting a node may have taken a while.
        if self.granted.is_granted(path, Overmount::Deny(kind)) {
            return Ok(());
        }
        attach_mount(&node, target)
    }

    fn is_mask(&self, device: u64) -> bool {
        let masks =
            if let MaskStock::Wired(wired) = &self.stock { wired.masks.as_ref() } else { None };
        device == self.device
            || masks
                .and_then(|masks| rustix::fs::fstat(masks).ok())
                .is_some_and(|status| status.st_dev == device)
    }

    /// A detached mount of the mask for `path`.
    fn node(&mut self, path: &AbsPath, kind: FileKind) -> rustix::io::Result<OwnedFd> {
        let wired = match &mut self.stock {
            MaskStock::Masks(masks) => return mask(masks, kind),
            MaskStock::Wired(wired) => wired,
        };
        let key = (path.clone(), kind);
        if let Some(number) = wired.known.get(&key) {
            return open_tree(&*wired.nodes, number.to_string(), CLONE);
        }
        let prepared = if kind == FileKind::Directory { &wired.directories } else { &wired.files };
        let Ok(SpareNode { number, mount }) = prepared.recv_timeout(TIMEOUT) else {
            // No node in time: the plain mask denies as well, but its denials are not reported.
            if wired.masks.is_none() {
                wired.masks = Some(attached_masks()?);
            }
            return mask(wired.masks.as_ref().expect("made just above"), kind);
        };
        wired.known.insert(key, number);
        // Reported after the mask is mounted: until then, the tripwire reports an access with the
        // path that it sees.
        self.used.push((number, path.clone()));
        Ok(mount)
    }

    /// Number of calls of [`Self::mask`] that found a file.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Reports the used masks to the launcher. Called after each batch of events and when idle.
    pub(super) fn report(&mut self) {
        for (number, path) in self.used.drain(..) {
            send(self.control, &WatcherMessage::Masked(number, path.clone()));
            info!(target: "watcher", %path, node = number, "masked");
        }
    }

    /// True if the opened file is still at its path.
    fn is_unchanged(&self, path: &AbsPath, target: &OwnedFd) -> bool {
        let now = rustix::fs::lstat(path.as_path());
        let then = rustix::fs::fstat(target);
        matches!((now, then), (Ok(now), Ok(then)) if inode_id(&now) == inode_id(&then))
    }

    /// True if the command made this file. If the launcher does not answer in time: false.
    pub(super) fn is_own(&self, identity: FileIdentity) -> bool {
        self.queries.ask(OWNERSHIP_TIMEOUT, |query| WatcherMessage::Origin(query, identity))
            == Some(OWN)
    }

    /// Asks the launcher to pause the sandbox, until [`WatcherMessage::ScanComplete`] is sent.
    pub(super) fn pause(&self) {
        // Without an answer the launcher is stopped; scan anyway.
        self.queries.ask(PAUSE_TIMEOUT, WatcherMessage::Overrun);
    }

    /// Reports that the scan is complete. Blocks until sent: the sandbox may be paused for it.
    pub(super) fn report_scan_complete(&self) {
        send_with_flags(self.control, &WatcherMessage::ScanComplete, SendFlags::NOSIGNAL);
    }

    pub(super) fn send_message(&self, message: &WatcherMessage) {
        send(self.control, message);
    }

    pub(super) fn control(&self) -> &'a OwnedFd {
        self.control
    }
}

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

/// Queries to the launcher, one at a time.
struct LauncherQueries {
    socket: Mutex<OwnedFd>,
    next_id: AtomicU64,
}

/// Timeout of a query: the launcher may be stopped, and the watcher must go on.
const TIMEOUT: Duration = Duration::from_millis(20);

/// Timeout for [`WatcherMessage::Origin`]: a wrong answer keeps git from working.
const OWNERSHIP_TIMEOUT: Duration = Duration::from_millis(100);

/// Timeout for pausing the sandbox.
const PAUSE_TIMEOUT: Duration = Duration::from_millis(500);

impl LauncherQueries {
    fn ask(
        &self,
        timeout: Duration,
        query: impl FnOnce(QueryId) -> WatcherMessage,
    ) -> Option<usize> {
        let until = Instant::now() + timeout;
        let socket = loop {
            match self.socket.try_lock() {
                Ok(socket) => break socket,
                Err(_) if Instant::now() > until => return None,
                Err(_) => thread::sleep(TIMEOUT / 20),
            }
        };
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        send(&socket, &query(number));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let mut ends = [PollFd::new(&*socket, PollFlags::IN)];
            match poll(&mut ends, Some(&left)) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            // The answer to an abandoned query may come first.
            let (answered, answer): (QueryId, usize) = receive(&socket)?;
            if answered == number {
                return Some(answer);
            }
        }
    }
}

/// Prepares nodes of a kind on a thread of its own, because the answers of the launcher take time.
fn prepare_nodes(
    kind: FileKind,
    nodes: Arc<OwnedFd>,
    queries: Arc<LauncherQueries>,
) -> io::Result<Receiver<SpareNode>> {
    let (sender, receiver) = sync_channel(PREPARED);
    let fill = move || {
        loop {
            let Some(first) =
                queries.ask(TIMEOUT, |query| WatcherMessage::Wanted(query, BATCH, kind))
            else {
                thread::sleep(TIMEOUT);
                continue;
            };
            for number in first..first + BATCH {
                let Ok(mount) = open_tree(&*nodes, number.to_string(), CLONE) else { return };
                if sender.send(SpareNode { number, mount }).is_err() {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("mask-nodes".into()).stack_size(64 * 1024).spawn(fill)?;
    Ok(receiver)
}

/// Bind-mounts `target` over itself read-only, unless it is read-only already.
pub(in crate::apply) fn mount_read_only(
    target: &OwnedFd,
    reach: MountRecursion,
) -> rustix::io::Result<()> {
    if rustix::fs::fstatvfs(target)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let tree =
        open_tree(target, "", CLONE | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH)?;
    restrict_mount(&tree, reach, READ_ONLY | NO_SUID | NO_DEV)?;
    attach_mount(&tree, target)
}

/// Opens the directory of the tripwire's masks. It is mounted in the sandbox if a mask was used
/// before, or if the kernel would refuse to clone it from the tripwire now (before Linux 6.15).
fn open_nodes(wire: &OwnedFd, plan: &Plan) -> io::Result<OwnedFd> {
    let is_there = plan
        .steps
        .iter()
        .any(|step| matches!(step, Step::Mask { path, mask: Overmount::Deny(_) } if reports_access(path)));
    if !is_there {
        match open_tree(wire, crate::fuse::MASKS, CLONE) {
            Err(Errno::INVAL) => {}
            masks => attach(&masks?, REPORTING_MASK_DIR)?,
        }
    }
    Ok(open(REPORTING_MASK_DIR, OFlags::PATH | OFlags::DIRECTORY)?)
}

/// Mounts the plain masks, so that they can be cloned.
pub(in crate::apply) fn attached_masks() -> rustix::io::Result<OwnedFd> {
    let masks = new_masks()?;
    attach(&masks, SILENT_MASK_DIR)?;
    Ok(masks)
}

fn mask(masks: &OwnedFd, kind: FileKind) -> rustix::io::Result<OwnedFd> {
    open_tree(masks, if kind == FileKind::Directory { "directory" } else { "file" }, CLONE)
}

fn attach(mount: &OwnedFd, at: &str) -> rustix::io::Result<()> {
    let at = CString::new(at).map_err(|_| Errno::INVAL)?;
    move_mount(mount.as_fd(), "", CWD, at.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
