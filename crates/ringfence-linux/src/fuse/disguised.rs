//! Answers for denied nodes that look absent or empty.

use std::ffi::OsStr;

use ringfence_api::Operation;
use ringfence_policy::Disguise;
use rustix::io::Errno;

use crate::fuse::TripEvent;
use crate::fuse::fuse_protocol::{EntryTtl, FuseEntry, FuseOp, FuseReply, FuseRequest};
use crate::fuse::nodes::{Node, NodeKind, NodeTree};
use crate::fuse::open_table::OpenRefusal;
use crate::fuse::serve::{NO_NODE, TripwireFs, WRITE, access_operation, open_operation};

impl TripwireFs {
    /// The disguise of a node for the process that asks.
    pub(crate) fn disguise(&self, request: &FuseRequest<'_>, node: &Node) -> Disguise {
        match node.kind {
            NodeKind::DeniedFile | NodeKind::DeniedDirectory => {
                self.handler.disguise(&node.path, request.pid)
            }
            _ => Disguise::Deny,
        }
    }

    /// Answers a request to a node that looks absent or empty. A change is denied as for any denied
    /// node; `None` if the process waits for the user's answer.
    pub(crate) fn answer_disguised(
        &mut self,
        request: &FuseRequest<'_>,
        node: &Node,
        tree: &NodeTree,
        disguise: Disguise,
    ) -> Option<Vec<u8>> {
        let (unique, is_empty) = (request.unique, disguise == Disguise::Empty);
        let refusal = if is_empty { OpenRefusal::Empty } else { OpenRefusal::Error(Errno::NOENT) };
        Some(match request.ask {
            FuseOp::Attributes if is_empty => {
                FuseReply::attributes(unique, &self.empty_entry(request.node, node))
            }
            FuseOp::Attributes => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            FuseOp::Lookup(name) => match node.children.get(name) {
                Some(at) => FuseReply::entry(unique, &self.entry(tree, *at)),
                None => self.absent_below(request, node, name),
            },
            FuseOp::Open(flags) if open_operation(flags) == Operation::Write => {
                self.refuse(request, &node.path, Operation::Write)
            }
            FuseOp::Open(flags) => {
                return self.refuse_or_wait(request, node, open_operation(flags), refusal);
            }
            FuseOp::OpenDirectory => {
                return self.refuse_or_wait(request, node, Operation::Read, refusal);
            }
            FuseOp::List { offset, size, plus, .. } => {
                let own = [".", ".."].map(|name| {
                    (OsStr::new(name), FuseEntry { node: NO_NODE, ..self.directory(request.node) })
                });
                FuseReply::list_from(unique, (offset, size, plus), own)
            }
            FuseOp::Access(mask) if is_empty && mask & WRITE == 0 => FuseReply::nothing(unique),
            FuseOp::Access(_) if is_empty => FuseReply::error(unique, Errno::ACCESS.raw_os_error()),
            // A loader checks access before it reads: only an open is recorded.
            FuseOp::Access(0) => FuseReply::error(unique, Errno::NOENT.raw_os_error()),
            FuseOp::Access(mask) => self.trip(request, node, access_operation(mask), refusal),
            _ => self.refuse_change(request, &node.path),
        })
    }

    fn refuse_or_wait(
        &self,
        request: &FuseRequest<'_>,
        node: &Node,
        operation: Operation,
        refusal: OpenRefusal,
    ) -> Option<Vec<u8>> {
        if self.can_ask {
            self.wait(request, &node.path, operation, refusal)
        } else {
            Some(self.trip(request, node, operation, refusal))
        }
    }

    /// Records the attempt and gives the disguised answer.
    fn trip(
        &self,
        request: &FuseRequest<'_>,
        node: &Node,
        operation: Operation,
        refusal: OpenRefusal,
    ) -> Vec<u8> {
        self.handler.report_trip(TripEvent {
            path: node.path.clone(),
            operation,
            pid: request.pid,
        });
        refusal.reply(request.unique)
    }

    /// Answers for a name in a directory that looks absent or empty.
    fn absent_below(&self, request: &FuseRequest<'_>, node: &Node, name: &OsStr) -> Vec<u8> {
        let path = node.path.join(name);
        if self.handler.exists(&path) {
            self.handler.report_trip(TripEvent {
                path,
                operation: Operation::Read,
                pid: request.pid,
            });
        }
        FuseReply::error(request.unique, Errno::NOENT.raw_os_error())
    }

    fn empty_entry(&self, number: u64, node: &Node) -> FuseEntry {
        let mode = if node.kind == NodeKind::DeniedDirectory { 0o040_555 } else { 0o100_444 };
        /// 2000-01-01: some archive formats know no time before 1980.
        const MODIFIED: u64 = 946_684_800;
        self.as_opened(FuseEntry {
            mode,
            modified: MODIFIED,
            lasts: EntryTtl::Name,
            ..self.directory(number)
        })
    }
}
