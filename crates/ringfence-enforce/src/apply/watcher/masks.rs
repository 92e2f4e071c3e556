//! Putting covers over what appeared, inside a sandbox that runs.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_policy::AbsPath;
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_SUID, READ_ONLY};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::net::SendFlags;
use rustix::time::Timespec;

use super::granted::GrantedPaths;
use super::{OWN, QueryId, WatcherMessage, receive, send, send_by};
use crate::apply::Birth;
use crate::apply::build::{masks, put, restrict};
use crate::fuse_nodes::{COVERS, MASKS, tells};
use crate::plan::{FileKind, Overmount, Plan, Step};

/// Where covers are taken from.
pub(super) struct LiveMasker<'a> {
    control: &'a OwnedFd,
    /// The same, for questions.
    talk: Arc<CallerQuery>,
    stock: MaskStock,
    /// The file system that covers are of: what is on it is covered.
    device: u64,
    /// What was opened meanwhile.
    lifted: GrantedPaths,
    /// Which nodes cover what, as long as nobody was told.
    used: Vec<(usize, AbsPath)>,
    count: usize,
}

enum MaskStock {
    /// Nodes of the tripwire, one for each path.
    Wired(Box<FuseMasks>),
    /// Two masks for all.
    Masks(OwnedFd),
}

struct FuseMasks {
    nodes: Arc<OwnedFd>,
    /// What was covered before is covered with the same node.
    known: BTreeMap<(AbsPath, FileKind), usize>,
    files: Receiver<SpareNode>,
    directories: Receiver<SpareNode>,
    /// For want of nodes.
    masks: Option<OwnedFd>,
}

/// A node that is at hand, so that nobody need be waited for when it is needed.
struct SpareNode {
    number: usize,
    mount: OwnedFd,
}

/// So many nodes are asked for at a time.
const SPARE: usize = 16;
/// So many are at hand: in most sandboxes nothing appears, and what is put aside for it takes time
/// from the command.
const AT_HAND: usize = 8;

impl<'a> LiveMasker<'a> {
    pub(super) fn new(
        control: &'a OwnedFd,
        wire: Option<OwnedFd>,
        plan: &Plan,
        lifted: GrantedPaths,
    ) -> io::Result<Self> {
        let talk = Arc::new(CallerQuery {
            socket: Mutex::new(control.try_clone()?),
            asked: AtomicU64::new(0),
        });
        let stock = match wire {
            Some(wire) => {
                let nodes = Arc::new(nodes(&wire, plan)?);
                let [files, directories] = [FileKind::File, FileKind::Directory]
                    .map(|kind| stock(kind, nodes.clone(), talk.clone()));
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
        Ok(Self { control, talk, stock, device, lifted, used: Vec::new(), count: 0 })
    }

    /// Covers what stands at `path`, unless it is covered or gone, or was opened meanwhile.
    pub(super) fn put(&mut self, path: &AbsPath, cover: Overmount) -> io::Result<()> {
        let how = ResolveFlags::NO_SYMLINKS;
        let target = match rustix::fs::openat2(
            CWD,
            path.as_path(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            how,
        ) {
            Ok(target) => target,
            // Gone meanwhile: where it went, it is seen again.
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG,
            ) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Asked once it is open: what is opened is told of before it is mounted, so a mount that
        // was found here is known.
        if self.lifted.is_off(path, cover) {
            return Ok(());
        }
        self.count += 1;
        let covered = match cover {
            Overmount::Deny(_) => self.deny(path, &target),
            Overmount::ReadOnly => protect(&target, MountRecursion::Below),
            Overmount::Shallow => protect(&target, MountRecursion::One),
        };
        match covered {
            // Taken away between the look and the cover.
            Err(Errno::NOENT | Errno::INVAL) if !self.stands(path, &target) => Ok(()),
            other => Ok(other?),
        }
    }

    fn deny(&mut self, path: &AbsPath, target: &OwnedFd) -> rustix::io::Result<()> {
        let status = rustix::fs::fstat(target)?;
        let kind = match FileType::from_raw_mode(status.st_mode) {
            _ if self.is_cover(status.st_dev) => return Ok(()),
            // Nothing can be mounted on a link; what it leads to is covered for itself.
            FileType::Symlink => return Ok(()),
            FileType::Directory => FileKind::Directory,
            _ => FileKind::File,
        };
        let node = self.node(path, kind)?;
        // Getting one may have taken a while.
        if self.lifted.is_off(path, Overmount::Deny(kind)) {
            return Ok(());
        }
        put(&node, target)
    }

    fn is_cover(&self, device: u64) -> bool {
        let masks =
            if let MaskStock::Wired(wired) = &self.stock { wired.masks.as_ref() } else { None };
        device == self.device
            || masks
                .and_then(|masks| rustix::fs::fstat(masks).ok())
                .is_some_and(|status| status.st_dev == device)
    }

    /// A mount of the cover for `path`.
    fn node(&mut self, path: &AbsPath, kind: FileKind) -> rustix::io::Result<OwnedFd> {
        let wired = match &mut self.stock {
            MaskStock::Masks(masks) => return mask(masks, kind),
            MaskStock::Wired(wired) => wired,
        };
        let key = (path.clone(), kind);
        if let Some(number) = wired.known.get(&key) {
            return open_tree(&*wired.nodes, number.to_string(), CLONE);
        }
        let spares = if kind == FileKind::Directory { &wired.directories } else { &wired.files };
        let Ok(SpareNode { number, mount }) = spares.recv_timeout(PATIENCE) else {
            // Nobody gives one: what is shut by a mask is shut as well, and not told of.
            if wired.masks.is_none() {
                wired.masks = Some(attached_masks()?);
            }
            return mask(wired.masks.as_ref().expect("made just above"), kind);
        };
        wired.known.insert(key, number);
        // Told after it is covered: whoever trips it meanwhile says what it wants itself.
        self.used.push((number, path.clone()));
        Ok(mount)
    }

    /// How often something was there to be covered.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Tells which covers were used: when there is time for it.
    pub(super) fn report(&mut self) {
        for (number, path) in self.used.drain(..) {
            send(self.control, &WatcherMessage::Appeared(number, path));
        }
    }

    /// Whether what was found still stands where it was.
    fn stands(&self, path: &AbsPath, target: &OwnedFd) -> bool {
        let now = rustix::fs::lstat(path.as_path());
        let then = rustix::fs::fstat(target);
        matches!((now, then), (Ok(now), Ok(then)) if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino))
    }

    /// Whether the command made a name of git's. Where nobody says so in time, it did not.
    pub(super) fn is_own(&self, birth: Birth) -> bool {
        self.talk.ask(KINSHIP, |question| WatcherMessage::Repository(question, birth)) == Some(OWN)
    }

    /// Lets nobody in the sandbox go on, until [`Sighting::Caught`] is told.
    pub(super) fn halt(&self) {
        // Where nobody answers, the caller is stopped, and what can be done is done.
        self.talk.ask(HALT, WatcherMessage::Overrun);
    }

    /// All was looked through. Told for certain: somebody may have been stopped for it.
    pub(super) fn caught_up(&self) {
        send_by(self.control, &WatcherMessage::Caught, SendFlags::NOSIGNAL);
    }

    pub(super) fn tell(&self, sighting: &WatcherMessage) {
        send(self.control, sighting);
    }

    pub(super) fn control(&self) -> &'a OwnedFd {
        self.control
    }
}

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

/// Questions to the caller, one at a time.
struct CallerQuery {
    socket: Mutex<OwnedFd>,
    asked: AtomicU64,
}

/// So long an answer is waited for: the caller may be stopped, and who looks out must not be.
const PATIENCE: Duration = Duration::from_millis(20);

/// The same for whose a repository is: a wrong answer keeps git from working.
const KINSHIP: Duration = Duration::from_millis(100);

/// The same for everybody to stop.
const HALT: Duration = Duration::from_millis(500);

impl CallerQuery {
    fn ask(
        &self,
        patience: Duration,
        question: impl FnOnce(QueryId) -> WatcherMessage,
    ) -> Option<usize> {
        let until = Instant::now() + patience;
        let socket = loop {
            match self.socket.try_lock() {
                Ok(socket) => break socket,
                Err(_) if Instant::now() > until => return None,
                Err(_) => thread::sleep(PATIENCE / 20),
            }
        };
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        send(&socket, &question(number));
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
            // The answer to a question that was given up may come first.
            let (answered, answer): (QueryId, usize) = receive(&socket)?;
            if answered == number {
                return Some(answer);
            }
        }
    }
}

/// Keeps nodes of a kind at hand, on a thread of its own: to get them, others must be
/// waited for, and those have more to do.
fn stock(
    kind: FileKind,
    nodes: Arc<OwnedFd>,
    talk: Arc<CallerQuery>,
) -> io::Result<Receiver<SpareNode>> {
    let (sender, receiver) = sync_channel(AT_HAND);
    let fill = move || {
        loop {
            let Some(first) =
                talk.ask(PATIENCE, |question| WatcherMessage::Wanted(question, SPARE, kind))
            else {
                thread::sleep(PATIENCE);
                continue;
            };
            for number in first..first + SPARE {
                let Ok(mount) = open_tree(&*nodes, number.to_string(), CLONE) else { return };
                if sender.send(SpareNode { number, mount }).is_err() {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("stock".into()).stack_size(64 * 1024).spawn(fill)?;
    Ok(receiver)
}

/// The same thing over itself, read-only, unless it is.
pub(in crate::apply) fn protect(target: &OwnedFd, reach: MountRecursion) -> rustix::io::Result<()> {
    if rustix::fs::fstatvfs(target)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let tree =
        open_tree(target, "", CLONE | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH)?;
    restrict(&tree, reach, READ_ONLY | NO_SUID | NO_DEV)?;
    put(&tree, target)
}

/// The directory of the tripwire's covers. It stands in the sandbox if one was used before,
/// and where the kernel would not copy it from the tripwire now (before 6.15).
fn nodes(wire: &OwnedFd, plan: &Plan) -> io::Result<OwnedFd> {
    let is_there = plan
        .steps
        .iter()
        .any(|step| matches!(step, Step::Cover { path, cover: Overmount::Deny(_) } if tells(path)));
    if !is_there {
        match open_tree(wire, ringfence_tripwire::COVERS, CLONE) {
            Err(Errno::INVAL) => {}
            covers => attach(&covers?, COVERS)?,
        }
    }
    Ok(rustix::fs::open(COVERS, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Masks that are mounted, so that they can be copied.
pub(in crate::apply) fn attached_masks() -> rustix::io::Result<OwnedFd> {
    let masks = masks()?;
    attach(&masks, MASKS)?;
    Ok(masks)
}

fn mask(masks: &OwnedFd, kind: FileKind) -> rustix::io::Result<OwnedFd> {
    open_tree(masks, if kind == FileKind::Directory { "directory" } else { "file" }, CLONE)
}

fn attach(mount: &OwnedFd, at: &str) -> rustix::io::Result<()> {
    let at = CString::new(at).map_err(|_| Errno::INVAL)?;
    move_mount(mount.as_fd(), "", CWD, at.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
