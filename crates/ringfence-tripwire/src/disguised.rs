//! Answers for denied nodes that look absent or empty.

use std::ffi::OsStr;

use ringfence_api::Operation;
use ringfence_policy::Disguise;
use rustix::io::Errno;

use crate::TripEvent;
use crate::fuse_protocol::{EntryTtl, FuseEntry, FuseOp, FuseReply, FuseRequest};
use crate::nodes::{Node, NodeKind, NodeTree};
use crate::open_table::Refusal;
use crate::serve::{NOBODY, TripwireFs, WRITE, accessed, wanted};

impl TripwireFs {
    /// The disguise of a node for the process that asks.
    pub(crate) fn disguise(&self, request: &FuseRequest<'_>, prop: &Node) -> Disguise {
        match prop.kind {
            NodeKind::DeniedFile | NodeKind::DeniedDirectory => {
                self.watcher.disguise(&prop.path, request.pid)
            }
            _ => Disguise::Deny,
        }
    }

    /// Answers a request to a node that looks absent or empty. Changing it is refused as for any
    /// denied node; `None` if the process waits for an answer of the user.
    pub(crate) fn of_disguised(
        &mut self,
        request: &FuseRequest<'_>,
        prop: &Node,
        scene: &NodeTree,
        disguise: Disguise,
    ) -> Option<Vec<u8>> {
        let (unique, is_empty) = (request.unique, disguise == Disguise::Empty);
        let refusal = if is_empty { Refusal::Empty } else { Refusal::Error(Errno::NOENT) };
        Some(match request.ask {
            FuseOp::Attributes if is_empty => {
                FuseReply::attributes(unique, &self.empty_entry(request.node, prop))
            }
            FuseOp::Attributes => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            FuseOp::Lookup(name) => match prop.children.get(name) {
                Some(at) => FuseReply::entry(unique, &self.entry(scene, *at)),
                None => self.absent_below(request, prop, name),
            },
            FuseOp::Open(flags) if wanted(flags) == Operation::Write => {
                self.refuse(request, &prop.path, Operation::Write)
            }
            FuseOp::Open(flags) => {
                return self.refuse_or_wait(request, prop, wanted(flags), refusal);
            }
            FuseOp::OpenDirectory => {
                return self.refuse_or_wait(request, prop, Operation::Read, refusal);
            }
            FuseOp::List { offset, size, plus, .. } => {
                let own = [".", ".."].map(|name| {
                    (OsStr::new(name), FuseEntry { node: NOBODY, ..self.directory(request.node) })
                });
                let entries = own.into_iter().enumerate().skip(offset as usize);
                FuseReply::list(
                    unique,
                    size,
                    plus,
                    entries.map(|(number, (name, entry))| (number as u64 + 1, name, entry)),
                )
            }
            FuseOp::Access(mask) if is_empty && mask & WRITE == 0 => FuseReply::nothing(unique),
            FuseOp::Access(_) if is_empty => FuseReply::error(unique, Errno::ACCESS.raw_os_error()),
            // A loader asks before it reads: only an attempt to open is recorded.
            FuseOp::Access(0) => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            FuseOp::Access(mask) => self.trip(request, prop, accessed(mask), refusal),
            _ => self.changed(request, &prop.path),
        })
    }

    fn refuse_or_wait(
        &self,
        request: &FuseRequest<'_>,
        prop: &Node,
        operation: Operation,
        refusal: Refusal,
    ) -> Option<Vec<u8>> {
        if self.can_ask {
            self.wait(request, &prop.path, operation, refusal)
        } else {
            Some(self.trip(request, prop, operation, refusal))
        }
    }

    /// Records the attempt and gives the disguised answer.
    fn trip(
        &self,
        request: &FuseRequest<'_>,
        prop: &Node,
        operation: Operation,
        refusal: Refusal,
    ) -> Vec<u8> {
        self.watcher.tripped(TripEvent { path: prop.path.clone(), operation, pid: request.pid });
        refusal.answer(request.unique)
    }

    /// Answers for a name in a directory that looks absent or empty.
    fn absent_below(&self, request: &FuseRequest<'_>, prop: &Node, name: &OsStr) -> Vec<u8> {
        let path = prop.path.join(name);
        if self.watcher.exists(&path) {
            self.watcher.tripped(TripEvent { path, operation: Operation::Read, pid: request.pid });
        }
        FuseReply::error(request.unique, Errno::NOENT.raw_os_error())
    }

    fn empty_entry(&self, node: u64, prop: &Node) -> FuseEntry {
        let mode = if prop.kind == NodeKind::DeniedDirectory { 0o040_555 } else { 0o100_444 };
        /// The first day of 2000: archives of some formats know no time before 1980.
        const MODIFIED: u64 = 946_684_800;
        self.as_opened(FuseEntry {
            mode,
            modified: MODIFIED,
            lasts: EntryTtl::Name,
            ..self.directory(node)
        })
    }
}
