//! Serves the requests of the kernel.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, RwLock};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Disguise};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::fuse::fuse_protocol::{
    EntryTtl, FuseEntry, FuseOp, FuseReply, FuseRequest, parse_forget_pairs,
};
use crate::fuse::nodes::{Node, NodeKind, NodeTree};
use crate::fuse::open_table::{OpenRefusal, OpenTable, OpenedFile, ParkedOpen, PendingOpen};
use crate::fuse::placeholders::{HostEntry, PlaceholderNode, PlaceholderNodes};
use crate::fuse::serving_cpu::ServingCpu;
use crate::fuse::{MASKS, ROOT, TripEvent};
use crate::locks::read_lock;

/// Receiver of trips.
pub(crate) trait TripHandler: Send + Sync {
    /// True if the host has `path`, which is not open: a lookup of an absent path is not reported.
    fn exists(&self, path: &AbsPath) -> bool;

    /// Reports a denied access.
    fn report_trip(&self, trip: TripEvent);

    /// The disguise of the denied `path` for the process `pid`.
    fn disguise(&self, _path: &AbsPath, _pid: u32) -> Disguise {
        Disguise::Deny
    }

    /// True if the user can be asked. If not, the other methods are not used.
    fn can_ask(&self) -> bool {
        false
    }

    /// The entry of the host at a path that is not open, if the process `pid` is on its way to open
    /// a path that becomes a question.
    fn host_entry(&self, _path: &AbsPath, _pid: u32) -> Option<HostEntry> {
        None
    }

    /// Handles an open that is about to be denied. The answer may come later, from any thread.
    fn ask(&self, trip: TripEvent, pending: PendingOpen) {
        self.report_trip(trip);
        drop(pending);
    }
}

/// The file system, served by one thread.
pub(crate) struct TripwireFs {
    table: Arc<OpenTable>,
    tree: Arc<RwLock<NodeTree>>,
    pub(crate) handler: Arc<dyn TripHandler>,
    owner: (u32, u32),
    is_sealed: bool,
    pub(crate) can_ask: bool,
    placeholders: PlaceholderNodes,
}

/// The node of the top directory, which holds the two trees.
const TOP: u64 = 1;
const MASKS_NODE: u64 = 2;
/// In a list: a name that the kernel must not cache.
pub(crate) const NO_NODE: u64 = 0;
/// First node number of the node tree.
const FIRST: u64 = 3;

/// Seconds for which the kernel may cache that a name is absent.
const ABSENT_TTL: u64 = 1;

/// Longest name of a file system.
const MAX_NAME: usize = 255;

/// Larger than any request: a name has at most 255 bytes, and nothing can be written here.
const MAX_REQUEST: usize = 64 * 1024;

/// Bytes that the kernel may read ahead.
const READ_AHEAD: u32 = 128 * 1024;

/// Most bytes per read.
const MAX_READ: u32 = 1 << 20;

impl TripwireFs {
    /// `device` is an open `/dev/fuse` of a mount that belongs to `owner`.
    pub(crate) fn new(
        device: OwnedFd,
        tree: Arc<RwLock<NodeTree>>,
        handler: Arc<dyn TripHandler>,
        owner: (u32, u32),
    ) -> Self {
        let can_ask = handler.can_ask();
        Self {
            table: Arc::new(OpenTable::new(device)),
            tree,
            handler,
            owner,
            is_sealed: false,
            can_ask,
            placeholders: PlaceholderNodes::default(),
        }
    }

    /// Serves until the last mount is gone. The sandbox is built on CPU `processor`.
    pub(crate) fn serve(mut self, processor: Option<usize>) {
        let mut buffer = vec![0; MAX_REQUEST];
        let mut serving_cpu = ServingCpu::new(processor);
        loop {
            let length = match rustix::io::read(&self.table.device, &mut buffer[..]) {
                Ok(length) => length,
                // The caller was interrupted before we read the request.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(_) => return,
            };
            serving_cpu.update_pinning();
            let Some(request) = FuseRequest::parse(&buffer[..length]) else { return };
            if let Some(answer) = self.answer(&request) {
                // The caller may have died meanwhile.
                let _ = serving_cpu
                    .wake(request.pid, || rustix::io::write(&self.table.device, &answer));
            }
        }
    }

    fn answer(&mut self, request: &FuseRequest<'_>) -> Option<Vec<u8>> {
        let unique = request.unique;
        let tree = self.tree.clone();
        let tree = read_lock(&tree);
        Some(match request.ask {
            FuseOp::Forget(lookups) => {
                self.placeholders.forget(request.node, lookups);
                return None;
            }
            FuseOp::ForgetMany(pairs) => {
                parse_forget_pairs(pairs)
                    .for_each(|(node, lookups)| self.placeholders.forget(node, lookups));
                return None;
            }
            FuseOp::Interrupt(waiting) => {
                self.table.handle_interrupt(waiting);
                return None;
            }
            FuseOp::Hello { minor, flags } => {
                FuseReply::hello(unique, minor, flags, if self.can_ask { READ_AHEAD } else { 0 })
            }
            FuseOp::Statistics => FuseReply::statistics(unique),
            FuseOp::Flush => FuseReply::nothing(unique),
            FuseOp::Release(handle) => {
                self.table.close(handle);
                FuseReply::nothing(unique)
            }
            FuseOp::Unknown => FuseReply::error(unique, Errno::NOSYS.raw_os_error()),
            // A file that reads as empty has no handle.
            FuseOp::Read { handle: 0, .. } => FuseReply::nothing(unique),
            FuseOp::Read { handle, offset, size } => self.read(unique, handle, offset, size),
            FuseOp::List { handle, offset, size, plus } if handle > 0 => {
                self.list_opened(unique, handle, offset, size, plus)
            }
            _ if request.node < FIRST => self.answer_top(request, &tree),
            _ => match tree.node((request.node - FIRST) as usize) {
                Some(node) => return self.answer_node(request, node, &tree),
                None => match self.placeholders.find(request.node).cloned() {
                    Some(placeholder) => return self.answer_placeholder(request, &placeholder),
                    None => FuseReply::error(unique, Errno::STALE.raw_os_error()),
                },
            },
        })
    }

    /// Answers for the top directory and the mask directory, which only ringfence uses.
    fn answer_top(&mut self, request: &FuseRequest<'_>, tree: &NodeTree) -> Vec<u8> {
        let (unique, node) = (request.unique, request.node);
        match request.ask {
            FuseOp::Lookup(name) if node == TOP && name == ROOT => {
                FuseReply::entry(unique, &self.entry(tree, 0))
            }
            FuseOp::Lookup(name) if node == TOP && name == MASKS => {
                FuseReply::entry(unique, &self.directory(MASKS_NODE))
            }
            FuseOp::Lookup(name) if node == MASKS_NODE => match tree.find_mask(name) {
                Some(at) => FuseReply::entry(unique, &self.entry(tree, at)),
                None => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            },
            FuseOp::Attributes => FuseReply::attributes(unique, &self.directory(node)),
            FuseOp::OpenDirectory if !self.is_sealed => FuseReply::opened(unique),
            FuseOp::List { offset, size, plus, .. } if node == MASKS_NODE => {
                let left = tree.masks().iter().enumerate().skip(offset as usize);
                // No more than can fit: an entry has at least the length of its header.
                let named: Vec<_> = left
                    .take(size as usize / 24 + 1)
                    .map(|(number, at)| (number, number.to_string(), *at))
                    .collect();
                let listed = named.iter().map(|(number, name, at)| {
                    (*number as u64 + 1, name.as_ref(), self.entry(tree, *at))
                });
                let answer = FuseReply::list(unique, size, plus, listed);
                // The process that builds the sandbox lists them once, to the end.
                self.is_sealed |= offset as usize >= tree.mask_count();
                answer
            }
            FuseOp::List { .. } => FuseReply::nothing(unique),
            FuseOp::Lookup(_) => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            _ => FuseReply::error(unique, Errno::ACCESS.raw_os_error()),
        }
    }

    /// Answers for a node of the tree; `None` if the caller waits.
    fn answer_node(
        &mut self,
        request: &FuseRequest<'_>,
        node: &Node,
        tree: &NodeTree,
    ) -> Option<Vec<u8>> {
        let unique = request.unique;
        match self.disguise(request, node) {
            Disguise::Deny => {}
            disguise => return self.answer_disguised(request, node, tree, disguise),
        }
        let refuse = |path: &AbsPath, operation: Operation| self.refuse(request, path, operation);
        Some(match request.ask {
            FuseOp::Attributes => FuseReply::attributes(unique, &self.entry_of(request.node, node)),
            FuseOp::Lookup(name) => self.lookup(request, node, name, tree),
            FuseOp::ReadLink => match &node.kind {
                NodeKind::Link(target) => {
                    FuseReply::text(unique, target.as_os_str().as_encoded_bytes())
                }
                _ => FuseReply::error(unique, Errno::INVAL.raw_os_error()),
            },
            FuseOp::Open(flags) if self.can_ask && node.kind == NodeKind::DeniedFile => {
                return self.wait(
                    request,
                    &node.path,
                    open_operation(flags),
                    OpenRefusal::Error(Errno::ACCESS),
                );
            }
            FuseOp::Open(flags) => refuse(&node.path, open_operation(flags)),
            FuseOp::OpenDirectory if node.kind == NodeKind::Directory => FuseReply::opened(unique),
            FuseOp::OpenDirectory if self.can_ask => {
                return self.wait(
                    request,
                    &node.path,
                    Operation::Read,
                    OpenRefusal::Error(Errno::ACCESS),
                );
            }
            FuseOp::OpenDirectory => refuse(&node.path, Operation::Read),
            FuseOp::List { offset, size, plus, .. } => {
                let listed = self.list_children(request, node, tree);
                FuseReply::list_from(unique, (offset, size, plus), listed)
            }
            FuseOp::Access(mask) => match (&node.kind, mask) {
                (_, 0) => FuseReply::nothing(unique),
                (NodeKind::DeniedFile | NodeKind::DeniedDirectory, mask) => {
                    refuse(&node.path, access_operation(mask))
                }
                // Nothing can be written here, and an access check is not an attempt.
                (_, mask) if mask & WRITE != 0 => {
                    FuseReply::error(unique, Errno::ACCESS.raw_os_error())
                }
                (NodeKind::Passage, mask) if mask & READ != 0 => {
                    FuseReply::error(unique, Errno::ACCESS.raw_os_error())
                }
                _ => FuseReply::nothing(unique),
            },
            _ => self.refuse_change(request, &node.path),
        })
    }

    /// The entries of a directory without hidden ones, `.` and `..` first: the kernel ignores those
    /// two, but programs expect them.
    fn list_children<'a>(
        &self,
        request: &FuseRequest<'_>,
        node: &'a Node,
        tree: &NodeTree,
    ) -> Vec<(&'a OsStr, FuseEntry)> {
        let own = [".", ".."].map(|name| {
            (OsStr::new(name), FuseEntry { node: NO_NODE, ..self.directory(request.node) })
        });
        let is_shown = |at: &usize| {
            tree.node(*at).is_none_or(|child| self.disguise(request, child) != Disguise::Hide)
        };
        let listed = node.children.iter().filter(|(_, at)| is_shown(at));
        let named = listed.map(|(name, at)| (name.as_os_str(), self.entry(tree, *at)));
        own.into_iter().chain(named).collect()
    }

    /// Denies a change.
    pub(crate) fn refuse_change(&self, request: &FuseRequest<'_>, path: &AbsPath) -> Vec<u8> {
        match request.ask {
            FuseOp::Make(name) => self.refuse(request, &path.join(name), Operation::Create),
            FuseOp::Remove(name) => self.refuse(request, &path.join(name), Operation::Write),
            FuseOp::Rename(name) => self.refuse(request, &path.join(name), Operation::Rename),
            FuseOp::SetAttributes => self.refuse(request, path, Operation::Write),
            _ => FuseReply::error(request.unique, Errno::NOSYS.raw_os_error()),
        }
    }

    fn answer_placeholder(
        &mut self,
        request: &FuseRequest<'_>,
        placeholder: &PlaceholderNode,
    ) -> Option<Vec<u8>> {
        let unique = request.unique;
        Some(match (request.ask, &placeholder.lead) {
            (FuseOp::Attributes, lead) => {
                FuseReply::attributes(unique, &self.placeholder_entry(request.node, lead))
            }
            (FuseOp::Lookup(name), HostEntry::Directory) => {
                let path = placeholder.path.join(name);
                self.reply_placeholder(request, &path, placeholder.refusal).unwrap_or_else(|| {
                    self.handler.report_trip(TripEvent {
                        path,
                        operation: Operation::Read,
                        pid: request.pid,
                    });
                    FuseReply::error(unique, placeholder.refusal.raw_os_error())
                })
            }
            (FuseOp::ReadLink, HostEntry::Link(target)) => {
                FuseReply::text(unique, target.as_os_str().as_encoded_bytes())
            }
            (FuseOp::Open(flags), HostEntry::File | HostEntry::Program) => {
                return self.wait(
                    request,
                    &placeholder.path,
                    open_operation(flags),
                    OpenRefusal::Error(placeholder.refusal),
                );
            }
            (FuseOp::OpenDirectory, HostEntry::Directory) => {
                return self.wait(
                    request,
                    &placeholder.path,
                    Operation::Read,
                    OpenRefusal::Error(placeholder.refusal),
                );
            }
            (FuseOp::Access(0), _) => FuseReply::nothing(unique),
            (FuseOp::Access(mask), _) => {
                self.refuse(request, &placeholder.path, access_operation(mask))
            }
            _ => self.refuse_change(request, &placeholder.path),
        })
    }

    pub(crate) fn refuse(
        &self,
        request: &FuseRequest<'_>,
        path: &AbsPath,
        operation: Operation,
    ) -> Vec<u8> {
        self.handler.report_trip(TripEvent { path: path.clone(), operation, pid: request.pid });
        FuseReply::error(request.unique, Errno::ACCESS.raw_os_error())
    }

    /// Parks an open until it is answered.
    pub(crate) fn wait(
        &self,
        request: &FuseRequest<'_>,
        path: &AbsPath,
        operation: Operation,
        refusal: OpenRefusal,
    ) -> Option<Vec<u8>> {
        let kind = if request.ask == FuseOp::OpenDirectory {
            FileType::Directory
        } else {
            FileType::RegularFile
        };
        let waiting = ParkedOpen { unique: request.unique, node: request.node, kind, refusal };
        let pending = PendingOpen::begin(&self.table, request.pid, waiting);
        self.handler.ask(TripEvent { path: path.clone(), operation, pid: request.pid }, pending);
        None
    }

    /// A placeholder for the host's entry at `path`, if the process is on its way to a question.
    fn reply_placeholder(
        &mut self,
        request: &FuseRequest<'_>,
        path: &AbsPath,
        refusal: Errno,
    ) -> Option<Vec<u8>> {
        let lead = self.handler.host_entry(path, request.pid).filter(|_| self.can_ask)?;
        let node = self.placeholders.show(path.clone(), lead.clone(), refusal)?;
        Some(FuseReply::entry(request.unique, &self.placeholder_entry(node, &lead)))
    }

    /// Reads from a file that was opened by an answer.
    fn read(&self, unique: u64, handle: u64, offset: u64, size: u32) -> Vec<u8> {
        let Some(opened) = self.table.opened(handle) else {
            return FuseReply::error(unique, Errno::BADF.raw_os_error());
        };
        let mut bytes = vec![0; size.min(MAX_READ) as usize];
        match rustix::io::retry_on_intr(|| {
            rustix::io::pread(&opened.file, bytes.as_mut_slice(), offset)
        }) {
            Ok(length) => FuseReply::text(unique, &bytes[..length]),
            Err(error) => FuseReply::error(unique, error.raw_os_error()),
        }
    }

    fn list_opened(&self, unique: u64, handle: u64, offset: u64, size: u32, plus: bool) -> Vec<u8> {
        let Some(opened) = self.table.opened(handle) else {
            return FuseReply::error(unique, Errno::BADF.raw_os_error());
        };
        let names = opened.names.iter().enumerate().skip(offset as usize);
        // Each entry needs its own question: only name and type are shown.
        let entries = names.map(|(at, (name, mode))| {
            (at as u64 + 1, name.as_os_str(), FuseEntry { mode: *mode, ..self.directory(NO_NODE) })
        });
        FuseReply::list(unique, size, plus, entries)
    }

    fn lookup(
        &mut self,
        request: &FuseRequest<'_>,
        node: &Node,
        name: &OsStr,
        tree: &NodeTree,
    ) -> Vec<u8> {
        let unique = request.unique;
        if let Some(at) = node.children.get(name) {
            return FuseReply::entry(unique, &self.entry(tree, *at));
        }
        if name.len() > MAX_NAME {
            return FuseReply::error(unique, Errno::NAMETOOLONG.raw_os_error());
        }
        let path = node.path.join(name);
        let refusal = if matches!(node.kind, NodeKind::Directory | NodeKind::Passage) {
            Errno::NOENT
        } else {
            Errno::ACCESS
        };
        if self.can_ask
            && let Some(reply) = self.reply_placeholder(request, &path, refusal)
        {
            return reply;
        }
        if refusal == Errno::NOENT && !self.handler.exists(&path) {
            // With an asker it may be created and mounted in the next moment.
            return FuseReply::absent(unique, if self.can_ask { 0 } else { ABSENT_TTL });
        }
        self.handler.report_trip(TripEvent { path, operation: Operation::Read, pid: request.pid });
        FuseReply::error(unique, refusal.raw_os_error())
    }

    pub(crate) fn entry(&self, tree: &NodeTree, at: usize) -> FuseEntry {
        match tree.node(at) {
            Some(node) => self.entry_of(at as u64 + FIRST, node),
            None => self.directory(at as u64 + FIRST),
        }
    }

    fn entry_of(&self, number: u64, node: &Node) -> FuseEntry {
        let size = if let NodeKind::Link(target) = &node.kind {
            target.as_os_str().len() as u64
        } else {
            0
        };
        let entry = FuseEntry { mode: node.kind.mode(), size, ..self.directory(number) };
        match node.kind {
            NodeKind::DeniedFile | NodeKind::DeniedDirectory | NodeKind::Passage
                if self.can_ask =>
            {
                self.as_opened(FuseEntry { lasts: EntryTtl::Name, ..entry })
            }
            // A disguise depends on the process and on the policy in force.
            NodeKind::DeniedFile | NodeKind::DeniedDirectory => {
                FuseEntry { lasts: EntryTtl::Name, ..entry }
            }
            _ => entry,
        }
    }

    fn placeholder_entry(&self, node: u64, lead: &HostEntry) -> FuseEntry {
        let size =
            if let HostEntry::Link(target) = lead { target.as_os_str().len() as u64 } else { 0 };
        self.as_opened(FuseEntry {
            mode: lead.mode(),
            size,
            lasts: EntryTtl::Once,
            ..self.directory(node)
        })
    }

    /// Adds the host's own size and mode while the file is open: no other caller sees them.
    pub(crate) fn as_opened(&self, entry: FuseEntry) -> FuseEntry {
        const KIND: u32 = 0o170_000;
        let status = |opened: Arc<OpenedFile>| {
            rustix::fs::fstat(&opened.file)
                .ok()
                .filter(|status| status.st_mode & KIND == entry.mode & KIND)
        };
        match self.table.find_open(entry.node).and_then(status) {
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

/// The operation that open flags ask for.
pub(crate) fn open_operation(flags: u32) -> Operation {
    /// The kernel's internal flag for an open to execute.
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

/// The operation that an access check asks for.
pub(crate) fn access_operation(mask: u32) -> Operation {
    if mask & WRITE != 0 {
        Operation::Write
    } else if mask & READ != 0 {
        Operation::Read
    } else {
        Operation::Execute
    }
}
