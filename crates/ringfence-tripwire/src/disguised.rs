//! Answers for denied nodes that look absent or empty.

use std::ffi::OsStr;

use ringfence_api::Operation;
use ringfence_policy::Disguise;
use rustix::io::Errno;

use crate::Trip;
use crate::desk::Refusal;
use crate::scene::{Prop, PropKind, Scene};
use crate::serve::{NOBODY, Tripwire, WRITE, accessed, wanted};
use crate::wire::{Answer, Ask, Entry, Lasts, Request};

impl Tripwire {
    /// The disguise of a node for the process that asks.
    pub(crate) fn disguise(&self, request: &Request<'_>, prop: &Prop) -> Disguise {
        match prop.kind {
            PropKind::DeniedFile | PropKind::DeniedDirectory => {
                self.watcher.disguise(&prop.path, request.pid)
            }
            _ => Disguise::Deny,
        }
    }

    /// Answers a request to a node that looks absent or empty. Changing it is refused as for any
    /// denied node; `None` if the process waits for an answer of the user.
    pub(crate) fn of_disguised(
        &mut self,
        request: &Request<'_>,
        prop: &Prop,
        scene: &Scene,
        disguise: Disguise,
    ) -> Option<Vec<u8>> {
        let (unique, is_empty) = (request.unique, disguise == Disguise::Empty);
        let refusal = if is_empty { Refusal::Empty } else { Refusal::Error(Errno::NOENT) };
        Some(match request.ask {
            Ask::Attributes if is_empty => {
                Answer::attributes(unique, &self.empty_entry(request.node, prop))
            }
            Ask::Attributes => Answer::error(unique, Errno::NOENT.raw_os_error()),
            Ask::Lookup(name) => match prop.children.get(name) {
                Some(at) => Answer::entry(unique, &self.entry(scene, *at)),
                None => self.absent_below(request, prop, name),
            },
            Ask::Open(flags) if wanted(flags) == Operation::Write => {
                self.refuse(request, &prop.path, Operation::Write)
            }
            Ask::Open(flags) => return self.refuse_or_wait(request, prop, wanted(flags), refusal),
            Ask::OpenDirectory => {
                return self.refuse_or_wait(request, prop, Operation::Read, refusal);
            }
            Ask::List { offset, size, plus, .. } => {
                let own = [".", ".."].map(|name| {
                    (OsStr::new(name), Entry { node: NOBODY, ..self.directory(request.node) })
                });
                let entries = own.into_iter().enumerate().skip(offset as usize);
                Answer::list(
                    unique,
                    size,
                    plus,
                    entries.map(|(number, (name, entry))| (number as u64 + 1, name, entry)),
                )
            }
            Ask::Access(mask) if is_empty && mask & WRITE == 0 => Answer::nothing(unique),
            Ask::Access(_) if is_empty => Answer::error(unique, Errno::ACCESS.raw_os_error()),
            // A loader asks before it reads: only an attempt to open is recorded.
            Ask::Access(0) => Answer::error(unique, Errno::NOENT.raw_os_error()),
            Ask::Access(mask) => self.trip(request, prop, accessed(mask), refusal),
            _ => self.changed(request, &prop.path),
        })
    }

    fn refuse_or_wait(
        &self,
        request: &Request<'_>,
        prop: &Prop,
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
        request: &Request<'_>,
        prop: &Prop,
        operation: Operation,
        refusal: Refusal,
    ) -> Vec<u8> {
        self.watcher.tripped(Trip { path: prop.path.clone(), operation, pid: request.pid });
        refusal.answer(request.unique)
    }

    /// Answers for a name in a directory that looks absent or empty.
    fn absent_below(&self, request: &Request<'_>, prop: &Prop, name: &OsStr) -> Vec<u8> {
        let path = prop.path.join(name);
        if self.watcher.exists(&path) {
            self.watcher.tripped(Trip { path, operation: Operation::Read, pid: request.pid });
        }
        Answer::error(request.unique, Errno::NOENT.raw_os_error())
    }

    fn empty_entry(&self, node: u64, prop: &Prop) -> Entry {
        let mode = if prop.kind == PropKind::DeniedDirectory { 0o040_555 } else { 0o100_444 };
        /// The first day of 2000: archives of some formats know no time before 1980.
        const MODIFIED: u64 = 946_684_800;
        self.as_opened(Entry {
            mode,
            modified: MODIFIED,
            lasts: Lasts::Name,
            ..self.directory(node)
        })
    }
}
