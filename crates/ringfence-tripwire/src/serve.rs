//! Answering the kernel.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Disguise};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::fuse_protocol::{EntryTtl, FuseEntry, FuseOp, FuseReply, FuseRequest, forgotten};
use crate::nodes::{Node, NodeKind, NodeTree};
use crate::open_table::{OpenTable, OpenedFile, ParkedOpen, PendingOpen, Refusal};
use crate::placeholders::{HostEntry, PlaceholderNode, PlaceholderNodes};
use crate::serving_cpu::ServingCpu;
use crate::{COVERS, ROOT, TripEvent};

/// Who is told.
pub trait TripHandler: Send + Sync {
    /// Somebody looks for `path`, which nothing opens. Answers whether the host has it: to
    /// look for what is nowhere is nothing to tell of.
    fn exists(&self, path: &AbsPath) -> bool;

    /// Something was refused.
    fn tripped(&self, trip: TripEvent);

    /// The answer to the process `pid` when it reads `path`, which a rule denies.
    fn disguise(&self, _path: &AbsPath, _pid: u32) -> Disguise {
        Disguise::Deny
    }

    /// Whether anybody can be asked. If not, the rest is not wanted.
    fn can_ask(&self) -> bool {
        false
    }

    /// Somebody looks for a path that nothing opens. Answers what the host has there, if the
    /// process of this number is on its way to open something that is to be asked about.
    fn lead(&self, _path: &AbsPath, _pid: u32) -> Option<HostEntry> {
        None
    }

    /// Something is about to be refused. The answer may come later, and from anywhere.
    fn ask(&self, trip: TripEvent, pending: PendingOpen) {
        self.tripped(trip);
        drop(pending);
    }
}

/// The file system, to be served by one thread.
pub struct TripwireFs {
    desk: Arc<OpenTable>,
    scene: Arc<RwLock<NodeTree>>,
    pub(crate) watcher: Arc<dyn TripHandler>,
    owner: (u32, u32),
    is_sealed: bool,
    pub(crate) can_ask: bool,
    ghosts: PlaceholderNodes,
}

/// The node of the file system's own top, which holds the two trees.
const TOP: u64 = 1;
const COVERS_NODE: u64 = 2;
/// In a list: a name that is not to be remembered.
pub(crate) const NOBODY: u64 = 0;
/// Props follow.
const FIRST: u64 = 3;

/// How long the kernel may believe that a name is nowhere: it cannot be opened either way.
const NOWHERE: u64 = 1;

/// The longest name that file systems have.
const LONGEST_NAME: usize = 255;

/// Larger than any request: a name is at most 255 bytes, and nothing can be written here.
const LONGEST: usize = 64 * 1024;

/// How much the kernel may read before somebody wants it.
const AHEAD: u32 = 128 * 1024;

/// The most that is read at a time.
const LONGEST_READ: u32 = 1 << 20;

impl TripwireFs {
    /// `device` is an open `/dev/fuse` of a mount that belongs to `owner`.
    pub fn new(
        device: OwnedFd,
        scene: Arc<RwLock<NodeTree>>,
        watcher: Arc<dyn TripHandler>,
        owner: (u32, u32),
    ) -> Self {
        let can_ask = watcher.can_ask();
        Self {
            desk: Arc::new(OpenTable::new(device)),
            scene,
            watcher,
            owner,
            is_sealed: false,
            can_ask,
            ghosts: PlaceholderNodes::default(),
        }
    }

    /// Serves until nobody has it mounted any more. The sandbox is built on `processor`.
    pub fn serve(mut self, processor: Option<usize>) {
        let mut buffer = vec![0; LONGEST];
        let mut post = ServingCpu::at(processor);
        loop {
            let length = match rustix::io::read(&self.desk.device, &mut buffer[..]) {
                Ok(length) => length,
                // Nobody waits for it any more: the caller was interrupted before we looked.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(_) => return,
            };
            post.choose();
            let Some(request) = FuseRequest::parse(&buffer[..length]) else { return };
            if let Some(answer) = self.answer(&request) {
                // A caller that died meanwhile needs none.
                let _ = post.wake(request.pid, || rustix::io::write(&self.desk.device, &answer));
            }
        }
    }

    fn answer(&mut self, request: &FuseRequest<'_>) -> Option<Vec<u8>> {
        let unique = request.unique;
        let scene = self.scene.clone();
        let scene = scene.read().unwrap_or_else(PoisonError::into_inner);
        Some(match request.ask {
            FuseOp::Forget(lookups) => {
                self.ghosts.forget(request.node, lookups);
                return None;
            }
            FuseOp::ForgetMany(pairs) => {
                forgotten(pairs).for_each(|(node, lookups)| self.ghosts.forget(node, lookups));
                return None;
            }
            FuseOp::Interrupt(waiting) => {
                self.desk.interrupted(waiting);
                return None;
            }
            FuseOp::Hello { minor, flags } => {
                FuseReply::hello(unique, minor, flags, if self.can_ask { AHEAD } else { 0 })
            }
            FuseOp::Statistics => FuseReply::statistics(unique),
            FuseOp::Flush => FuseReply::nothing(unique),
            FuseOp::Release(handle) => {
                self.desk.close(handle);
                FuseReply::nothing(unique)
            }
            FuseOp::Unknown => FuseReply::error(unique, Errno::NOSYS.raw_os_error()),
            // A file that reads as empty has no handle.
            FuseOp::Read { handle: 0, .. } => FuseReply::nothing(unique),
            FuseOp::Read { handle, offset, size } => self.read(unique, handle, offset, size),
            FuseOp::List { handle, offset, size, plus } if handle > 0 => {
                self.listed(unique, handle, offset, size, plus)
            }
            _ if request.node < FIRST => self.top(request, &scene),
            _ => match scene.prop((request.node - FIRST) as usize) {
                Some(prop) => return self.of_prop(request, prop, &scene),
                None => match self.ghosts.find(request.node).cloned() {
                    Some(ghost) => return self.of_ghost(request, &ghost),
                    None => FuseReply::error(unique, Errno::STALE.raw_os_error()),
                },
            },
        })
    }

    /// The two directories that are nobody's but ours.
    fn top(&mut self, request: &FuseRequest<'_>, scene: &NodeTree) -> Vec<u8> {
        let (unique, node) = (request.unique, request.node);
        match request.ask {
            FuseOp::Lookup(name) if node == TOP && name == ROOT => {
                FuseReply::entry(unique, &self.entry(scene, 0))
            }
            FuseOp::Lookup(name) if node == TOP && name == COVERS => {
                FuseReply::entry(unique, &self.directory(COVERS_NODE))
            }
            FuseOp::Lookup(name) if node == COVERS_NODE => match scene.cover_named(name) {
                Some(at) => FuseReply::entry(unique, &self.entry(scene, at)),
                None => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            },
            FuseOp::Attributes => FuseReply::attributes(unique, &self.directory(node)),
            FuseOp::OpenDirectory if !self.is_sealed => FuseReply::opened(unique),
            FuseOp::List { offset, size, plus, .. } if node == COVERS_NODE => {
                let left = scene.covers().iter().enumerate().skip(offset as usize);
                // No more than can fit: an entry has at least the length of its head.
                let named: Vec<_> = left
                    .take(size as usize / 24 + 1)
                    .map(|(number, at)| (number, number.to_string(), *at))
                    .collect();
                let listed = named.iter().map(|(number, name, at)| {
                    (*number as u64 + 1, name.as_ref(), self.entry(scene, *at))
                });
                let answer = FuseReply::list(unique, size, plus, listed);
                // Who builds the sandbox lists them once, to the end.
                self.is_sealed |= offset as usize >= scene.cover_count();
                answer
            }
            FuseOp::List { .. } => FuseReply::nothing(unique),
            FuseOp::Lookup(_) => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            _ => FuseReply::error(unique, Errno::ACCESS.raw_os_error()),
        }
    }

    /// Answers what is not asked about; `None` if whoever wants it waits.
    fn of_prop(
        &mut self,
        request: &FuseRequest<'_>,
        prop: &Node,
        scene: &NodeTree,
    ) -> Option<Vec<u8>> {
        let unique = request.unique;
        match self.disguise(request, prop) {
            Disguise::Deny => {}
            disguise => return self.of_disguised(request, prop, scene, disguise),
        }
        let refuse = |path: &AbsPath, operation: Operation| self.refuse(request, path, operation);
        Some(match request.ask {
            FuseOp::Attributes => FuseReply::attributes(unique, &self.entry_of(request.node, prop)),
            FuseOp::Lookup(name) => self.lookup(request, prop, name, scene),
            FuseOp::ReadLink => match &prop.kind {
                NodeKind::Link(target) => {
                    FuseReply::text(unique, target.as_os_str().as_encoded_bytes())
                }
                _ => FuseReply::error(unique, Errno::INVAL.raw_os_error()),
            },
            FuseOp::Open(flags) if self.can_ask && prop.kind == NodeKind::DeniedFile => {
                return self.wait(
                    request,
                    &prop.path,
                    wanted(flags),
                    Refusal::Error(Errno::ACCESS),
                );
            }
            FuseOp::Open(flags) => refuse(&prop.path, wanted(flags)),
            FuseOp::OpenDirectory if prop.kind == NodeKind::Directory => FuseReply::opened(unique),
            FuseOp::OpenDirectory if self.can_ask => {
                return self.wait(
                    request,
                    &prop.path,
                    Operation::Read,
                    Refusal::Error(Errno::ACCESS),
                );
            }
            FuseOp::OpenDirectory => refuse(&prop.path, Operation::Read),
            FuseOp::List { offset, size, plus, .. } => {
                // The kernel makes nothing of these two, but programs expect them.
                let own = [".", ".."].map(|name| {
                    (OsStr::new(name), FuseEntry { node: NOBODY, ..self.directory(request.node) })
                });
                let is_shown = |at: &usize| {
                    scene
                        .prop(*at)
                        .is_none_or(|child| self.disguise(request, child) != Disguise::Hide)
                };
                let shown = prop.children.iter().filter(|(_, at)| is_shown(at));
                let named = shown.map(|(name, at)| (name.as_os_str(), self.entry(scene, *at)));
                let entries = own.into_iter().chain(named).enumerate().skip(offset as usize);
                FuseReply::list(
                    unique,
                    size,
                    plus,
                    entries.map(|(number, (name, entry))| (number as u64 + 1, name, entry)),
                )
            }
            FuseOp::Access(mask) => match (&prop.kind, mask) {
                (_, 0) => FuseReply::nothing(unique),
                (NodeKind::DeniedFile | NodeKind::DeniedDirectory, mask) => {
                    refuse(&prop.path, accessed(mask))
                }
                // Nothing can be written here, and to ask is not to try.
                (_, mask) if mask & WRITE != 0 => {
                    FuseReply::error(unique, Errno::ACCESS.raw_os_error())
                }
                (NodeKind::Passage, mask) if mask & READ != 0 => {
                    FuseReply::error(unique, Errno::ACCESS.raw_os_error())
                }
                _ => FuseReply::nothing(unique),
            },
            _ => self.changed(request, &prop.path),
        })
    }

    /// Nothing is changed here.
    pub(crate) fn changed(&self, request: &FuseRequest<'_>, path: &AbsPath) -> Vec<u8> {
        match request.ask {
            FuseOp::Make(name) => self.refuse(request, &path.join(name), Operation::Create),
            FuseOp::Remove(name) => self.refuse(request, &path.join(name), Operation::Write),
            FuseOp::Rename(name) => self.refuse(request, &path.join(name), Operation::Rename),
            FuseOp::SetAttributes => self.refuse(request, path, Operation::Write),
            _ => FuseReply::error(request.unique, Errno::NOSYS.raw_os_error()),
        }
    }

    fn of_ghost(&mut self, request: &FuseRequest<'_>, ghost: &PlaceholderNode) -> Option<Vec<u8>> {
        let unique = request.unique;
        Some(match (request.ask, &ghost.lead) {
            (FuseOp::Attributes, lead) => {
                FuseReply::attributes(unique, &self.ghost_entry(request.node, lead))
            }
            (FuseOp::Lookup(name), HostEntry::Directory) => {
                let path = ghost.path.join(name);
                self.lead(request, &path, ghost.refusal).unwrap_or_else(|| {
                    self.watcher.tripped(TripEvent {
                        path,
                        operation: Operation::Read,
                        pid: request.pid,
                    });
                    FuseReply::error(unique, ghost.refusal.raw_os_error())
                })
            }
            (FuseOp::ReadLink, HostEntry::Link(target)) => {
                FuseReply::text(unique, target.as_os_str().as_encoded_bytes())
            }
            (FuseOp::Open(flags), HostEntry::File | HostEntry::Program) => {
                return self.wait(
                    request,
                    &ghost.path,
                    wanted(flags),
                    Refusal::Error(ghost.refusal),
                );
            }
            (FuseOp::OpenDirectory, HostEntry::Directory) => {
                return self.wait(
                    request,
                    &ghost.path,
                    Operation::Read,
                    Refusal::Error(ghost.refusal),
                );
            }
            (FuseOp::Access(0), _) => FuseReply::nothing(unique),
            (FuseOp::Access(mask), _) => self.refuse(request, &ghost.path, accessed(mask)),
            _ => self.changed(request, &ghost.path),
        })
    }

    pub(crate) fn refuse(
        &self,
        request: &FuseRequest<'_>,
        path: &AbsPath,
        operation: Operation,
    ) -> Vec<u8> {
        self.watcher.tripped(TripEvent { path: path.clone(), operation, pid: request.pid });
        FuseReply::error(request.unique, Errno::ACCESS.raw_os_error())
    }

    /// Lets whoever wants to open something wait.
    pub(crate) fn wait(
        &self,
        request: &FuseRequest<'_>,
        path: &AbsPath,
        operation: Operation,
        refusal: Refusal,
    ) -> Option<Vec<u8>> {
        let kind = if request.ask == FuseOp::OpenDirectory {
            FileType::Directory
        } else {
            FileType::RegularFile
        };
        let waiting = ParkedOpen { unique: request.unique, node: request.node, kind, refusal };
        let pending = PendingOpen::begin(&self.desk, request.pid, waiting);
        self.watcher.ask(TripEvent { path: path.clone(), operation, pid: request.pid }, pending);
        None
    }

    /// What the host has at `path`, for somebody who is on the way to be asked about.
    fn lead(
        &mut self,
        request: &FuseRequest<'_>,
        path: &AbsPath,
        refusal: Errno,
    ) -> Option<Vec<u8>> {
        let lead = self.watcher.lead(path, request.pid).filter(|_| self.can_ask)?;
        let node = self.ghosts.show(path.clone(), lead.clone(), refusal)?;
        Some(FuseReply::entry(request.unique, &self.ghost_entry(node, &lead)))
    }

    /// A part of what was opened for somebody.
    fn read(&self, unique: u64, handle: u64, offset: u64, size: u32) -> Vec<u8> {
        let Some(opened) = self.desk.opened(handle) else {
            return FuseReply::error(unique, Errno::BADF.raw_os_error());
        };
        let mut bytes = vec![0; size.min(LONGEST_READ) as usize];
        match rustix::io::retry_on_intr(|| {
            rustix::io::pread(&opened.file, bytes.as_mut_slice(), offset)
        }) {
            Ok(length) => FuseReply::text(unique, &bytes[..length]),
            Err(error) => FuseReply::error(unique, error.raw_os_error()),
        }
    }

    fn listed(&self, unique: u64, handle: u64, offset: u64, size: u32, plus: bool) -> Vec<u8> {
        let Some(opened) = self.desk.opened(handle) else {
            return FuseReply::error(unique, Errno::BADF.raw_os_error());
        };
        let names = opened.names.iter().enumerate().skip(offset as usize);
        // Each asks for itself: of none is more told than that it is there.
        let entries = names.map(|(at, (name, mode))| {
            (at as u64 + 1, name.as_os_str(), FuseEntry { mode: *mode, ..self.directory(NOBODY) })
        });
        FuseReply::list(unique, size, plus, entries)
    }

    fn lookup(
        &mut self,
        request: &FuseRequest<'_>,
        prop: &Node,
        name: &OsStr,
        scene: &NodeTree,
    ) -> Vec<u8> {
        let unique = request.unique;
        if let Some(at) = prop.children.get(name) {
            return FuseReply::entry(unique, &self.entry(scene, *at));
        }
        if name.len() > LONGEST_NAME {
            return FuseReply::error(unique, Errno::NAMETOOLONG.raw_os_error());
        }
        let path = prop.path.join(name);
        let refusal = if matches!(prop.kind, NodeKind::Directory | NodeKind::Passage) {
            Errno::NOENT
        } else {
            Errno::ACCESS
        };
        if self.can_ask
            && let Some(led) = self.lead(request, &path, refusal)
        {
            return led;
        }
        if refusal == Errno::NOENT && !self.watcher.exists(&path) {
            // With an asker it may be made and mounted in the next moment.
            return FuseReply::absent(unique, if self.can_ask { 0 } else { NOWHERE });
        }
        self.watcher.tripped(TripEvent { path, operation: Operation::Read, pid: request.pid });
        FuseReply::error(unique, refusal.raw_os_error())
    }

    pub(crate) fn entry(&self, scene: &NodeTree, at: usize) -> FuseEntry {
        match scene.prop(at) {
            Some(prop) => self.entry_of(at as u64 + FIRST, prop),
            None => self.directory(at as u64 + FIRST),
        }
    }

    fn entry_of(&self, node: u64, prop: &Node) -> FuseEntry {
        let size = if let NodeKind::Link(target) = &prop.kind {
            target.as_os_str().len() as u64
        } else {
            0
        };
        let entry = FuseEntry { mode: prop.kind.mode(), size, ..self.directory(node) };
        match prop.kind {
            NodeKind::DeniedFile | NodeKind::DeniedDirectory | NodeKind::Passage
                if self.can_ask =>
            {
                self.as_opened(FuseEntry { lasts: EntryTtl::Name, ..entry })
            }
            // A disguise depends on the process and on the policy of the moment.
            NodeKind::DeniedFile | NodeKind::DeniedDirectory => {
                FuseEntry { lasts: EntryTtl::Name, ..entry }
            }
            _ => entry,
        }
    }

    fn ghost_entry(&self, node: u64, lead: &HostEntry) -> FuseEntry {
        let size =
            if let HostEntry::Link(target) = lead { target.as_os_str().len() as u64 } else { 0 };
        self.as_opened(FuseEntry {
            mode: lead.mode(),
            size,
            lasts: EntryTtl::Once,
            ..self.directory(node)
        })
    }

    /// With the host's own size, as long as somebody has it open: nobody else gets to know.
    pub(crate) fn as_opened(&self, entry: FuseEntry) -> FuseEntry {
        const KIND: u32 = 0o170_000;
        let status = |opened: Arc<OpenedFile>| {
            rustix::fs::fstat(&opened.file)
                .ok()
                .filter(|status| status.st_mode & KIND == entry.mode & KIND)
        };
        match self.desk.open_of(entry.node).and_then(status) {
            Some(status) => FuseEntry {
                mode: status.st_mode,
                size: status.st_size as u64,
                modified: status.st_mtime as u64,
                ..entry
            },
            None => entry,
        }
    }

    pub(crate) fn directory(&self, node: u64) -> FuseEntry {
        let (uid, gid) = self.owner;
        FuseEntry {
            node,
            mode: NodeKind::Directory.mode(),
            size: 0,
            uid,
            gid,
            modified: 0,
            lasts: EntryTtl::Forever,
        }
    }
}

const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;

/// What an open with these flags is for.
pub(crate) fn wanted(flags: u32) -> Operation {
    /// The kernel's own mark of an open that is for executing.
    const EXECUTE: u32 = 0x20;
    const WRITING: u32 = 3;
    if flags & EXECUTE != 0 {
        Operation::Execute
    } else if flags & WRITING != 0 {
        Operation::Write
    } else {
        Operation::Read
    }
}

/// What a question whether one may is about.
pub(crate) fn accessed(mask: u32) -> Operation {
    if mask & WRITE != 0 {
        Operation::Write
    } else if mask & READ != 0 {
        Operation::Read
    } else {
        Operation::Execute
    }
}
