//! Answering the kernel.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Disguise};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::desk::{Desk, Opened, Pending, Refusal, Waiting};
use crate::ghosts::{Ghost, Ghosts, Lead};
use crate::post::Post;
use crate::scene::{Prop, PropKind, Scene};
use crate::wire::{Answer, Ask, Entry, Lasts, Request, forgotten};
use crate::{COVERS, ROOT, Trip};

/// Who is told.
pub trait Watcher: Send + Sync {
    /// Somebody looks for `path`, which nothing opens. Answers whether the host has it: to
    /// look for what is nowhere is nothing to tell of.
    fn exists(&self, path: &AbsPath) -> bool;

    /// Something was refused.
    fn tripped(&self, trip: Trip);

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
    fn lead(&self, _path: &AbsPath, _pid: u32) -> Option<Lead> {
        None
    }

    /// Something is about to be refused. The answer may come later, and from anywhere.
    fn ask(&self, trip: Trip, pending: Pending) {
        self.tripped(trip);
        drop(pending);
    }
}

/// The file system, to be served by one thread.
pub struct Tripwire {
    desk: Arc<Desk>,
    scene: Arc<RwLock<Scene>>,
    pub(crate) watcher: Arc<dyn Watcher>,
    owner: (u32, u32),
    is_sealed: bool,
    pub(crate) can_ask: bool,
    ghosts: Ghosts,
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

impl Tripwire {
    /// `device` is an open `/dev/fuse` of a mount that belongs to `owner`.
    pub fn new(
        device: OwnedFd,
        scene: Arc<RwLock<Scene>>,
        watcher: Arc<dyn Watcher>,
        owner: (u32, u32),
    ) -> Self {
        let can_ask = watcher.can_ask();
        Self {
            desk: Arc::new(Desk::new(device)),
            scene,
            watcher,
            owner,
            is_sealed: false,
            can_ask,
            ghosts: Ghosts::default(),
        }
    }

    /// Serves until nobody has it mounted any more. The sandbox is built on `processor`.
    pub fn serve(mut self, processor: Option<usize>) {
        let mut buffer = vec![0; LONGEST];
        let mut post = Post::at(processor);
        loop {
            let length = match rustix::io::read(&self.desk.device, &mut buffer[..]) {
                Ok(length) => length,
                // Nobody waits for it any more: the caller was interrupted before we looked.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(_) => return,
            };
            post.choose();
            let Some(request) = Request::parse(&buffer[..length]) else { return };
            if let Some(answer) = self.answer(&request) {
                // A caller that died meanwhile needs none.
                let _ = post.wake(request.pid, || rustix::io::write(&self.desk.device, &answer));
            }
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Option<Vec<u8>> {
        let unique = request.unique;
        let scene = self.scene.clone();
        let scene = scene.read().unwrap_or_else(PoisonError::into_inner);
        Some(match request.ask {
            Ask::Forget(lookups) => {
                self.ghosts.forget(request.node, lookups);
                return None;
            }
            Ask::ForgetMany(pairs) => {
                forgotten(pairs).for_each(|(node, lookups)| self.ghosts.forget(node, lookups));
                return None;
            }
            Ask::Interrupt(waiting) => {
                self.desk.interrupted(waiting);
                return None;
            }
            Ask::Hello { minor, flags } => {
                Answer::hello(unique, minor, flags, if self.can_ask { AHEAD } else { 0 })
            }
            Ask::Statistics => Answer::statistics(unique),
            Ask::Flush => Answer::nothing(unique),
            Ask::Release(handle) => {
                self.desk.close(handle);
                Answer::nothing(unique)
            }
            Ask::Unknown => Answer::error(unique, Errno::NOSYS.raw_os_error()),
            // A file that reads as empty has no handle.
            Ask::Read { handle: 0, .. } => Answer::nothing(unique),
            Ask::Read { handle, offset, size } => self.read(unique, handle, offset, size),
            Ask::List { handle, offset, size, plus } if handle > 0 => {
                self.listed(unique, handle, offset, size, plus)
            }
            _ if request.node < FIRST => self.top(request, &scene),
            _ => match scene.prop((request.node - FIRST) as usize) {
                Some(prop) => return self.of_prop(request, prop, &scene),
                None => match self.ghosts.find(request.node).cloned() {
                    Some(ghost) => return self.of_ghost(request, &ghost),
                    None => Answer::error(unique, Errno::STALE.raw_os_error()),
                },
            },
        })
    }

    /// The two directories that are nobody's but ours.
    fn top(&mut self, request: &Request<'_>, scene: &Scene) -> Vec<u8> {
        let (unique, node) = (request.unique, request.node);
        match request.ask {
            Ask::Lookup(name) if node == TOP && name == ROOT => {
                Answer::entry(unique, &self.entry(scene, 0))
            }
            Ask::Lookup(name) if node == TOP && name == COVERS => {
                Answer::entry(unique, &self.directory(COVERS_NODE))
            }
            Ask::Lookup(name) if node == COVERS_NODE => match scene.cover_named(name) {
                Some(at) => Answer::entry(unique, &self.entry(scene, at)),
                None => Answer::error(unique, Errno::NOENT.raw_os_error()),
            },
            Ask::Attributes => Answer::attributes(unique, &self.directory(node)),
            Ask::OpenDirectory if !self.is_sealed => Answer::opened(unique),
            Ask::List { offset, size, plus, .. } if node == COVERS_NODE => {
                let left = scene.covers().iter().enumerate().skip(offset as usize);
                // No more than can fit: an entry has at least the length of its head.
                let named: Vec<_> = left
                    .take(size as usize / 24 + 1)
                    .map(|(number, at)| (number, number.to_string(), *at))
                    .collect();
                let listed = named.iter().map(|(number, name, at)| {
                    (*number as u64 + 1, name.as_ref(), self.entry(scene, *at))
                });
                let answer = Answer::list(unique, size, plus, listed);
                // Who builds the sandbox lists them once, to the end.
                self.is_sealed |= offset as usize >= scene.cover_count();
                answer
            }
            Ask::List { .. } => Answer::nothing(unique),
            Ask::Lookup(_) => Answer::error(unique, Errno::NOENT.raw_os_error()),
            _ => Answer::error(unique, Errno::ACCESS.raw_os_error()),
        }
    }

    /// Answers what is not asked about; `None` if whoever wants it waits.
    fn of_prop(&mut self, request: &Request<'_>, prop: &Prop, scene: &Scene) -> Option<Vec<u8>> {
        let unique = request.unique;
        match self.disguise(request, prop) {
            Disguise::Deny => {}
            disguise => return self.of_disguised(request, prop, scene, disguise),
        }
        let refuse = |path: &AbsPath, operation: Operation| self.refuse(request, path, operation);
        Some(match request.ask {
            Ask::Attributes => Answer::attributes(unique, &self.entry_of(request.node, prop)),
            Ask::Lookup(name) => self.lookup(request, prop, name, scene),
            Ask::ReadLink => match &prop.kind {
                PropKind::Link(target) => {
                    Answer::text(unique, target.as_os_str().as_encoded_bytes())
                }
                _ => Answer::error(unique, Errno::INVAL.raw_os_error()),
            },
            Ask::Open(flags) if self.can_ask && prop.kind == PropKind::DeniedFile => {
                return self.wait(
                    request,
                    &prop.path,
                    wanted(flags),
                    Refusal::Error(Errno::ACCESS),
                );
            }
            Ask::Open(flags) => refuse(&prop.path, wanted(flags)),
            Ask::OpenDirectory if prop.kind == PropKind::Directory => Answer::opened(unique),
            Ask::OpenDirectory if self.can_ask => {
                return self.wait(
                    request,
                    &prop.path,
                    Operation::Read,
                    Refusal::Error(Errno::ACCESS),
                );
            }
            Ask::OpenDirectory => refuse(&prop.path, Operation::Read),
            Ask::List { offset, size, plus, .. } => {
                // The kernel makes nothing of these two, but programs expect them.
                let own = [".", ".."].map(|name| {
                    (OsStr::new(name), Entry { node: NOBODY, ..self.directory(request.node) })
                });
                let is_shown = |at: &usize| {
                    scene
                        .prop(*at)
                        .is_none_or(|child| self.disguise(request, child) != Disguise::Hide)
                };
                let shown = prop.children.iter().filter(|(_, at)| is_shown(at));
                let named = shown.map(|(name, at)| (name.as_os_str(), self.entry(scene, *at)));
                let entries = own.into_iter().chain(named).enumerate().skip(offset as usize);
                Answer::list(
                    unique,
                    size,
                    plus,
                    entries.map(|(number, (name, entry))| (number as u64 + 1, name, entry)),
                )
            }
            Ask::Access(mask) => match (&prop.kind, mask) {
                (_, 0) => Answer::nothing(unique),
                (PropKind::DeniedFile | PropKind::DeniedDirectory, mask) => {
                    refuse(&prop.path, accessed(mask))
                }
                // Nothing can be written here, and to ask is not to try.
                (_, mask) if mask & WRITE != 0 => {
                    Answer::error(unique, Errno::ACCESS.raw_os_error())
                }
                (PropKind::Passage, mask) if mask & READ != 0 => {
                    Answer::error(unique, Errno::ACCESS.raw_os_error())
                }
                _ => Answer::nothing(unique),
            },
            _ => self.changed(request, &prop.path),
        })
    }

    /// Nothing is changed here.
    pub(crate) fn changed(&self, request: &Request<'_>, path: &AbsPath) -> Vec<u8> {
        match request.ask {
            Ask::Make(name) => self.refuse(request, &path.join(name), Operation::Create),
            Ask::Remove(name) => self.refuse(request, &path.join(name), Operation::Write),
            Ask::Rename(name) => self.refuse(request, &path.join(name), Operation::Rename),
            Ask::SetAttributes => self.refuse(request, path, Operation::Write),
            _ => Answer::error(request.unique, Errno::NOSYS.raw_os_error()),
        }
    }

    fn of_ghost(&mut self, request: &Request<'_>, ghost: &Ghost) -> Option<Vec<u8>> {
        let unique = request.unique;
        Some(match (request.ask, &ghost.lead) {
            (Ask::Attributes, lead) => {
                Answer::attributes(unique, &self.ghost_entry(request.node, lead))
            }
            (Ask::Lookup(name), Lead::Directory) => {
                let path = ghost.path.join(name);
                self.lead(request, &path, ghost.refusal).unwrap_or_else(|| {
                    self.watcher.tripped(Trip {
                        path,
                        operation: Operation::Read,
                        pid: request.pid,
                    });
                    Answer::error(unique, ghost.refusal.raw_os_error())
                })
            }
            (Ask::ReadLink, Lead::Link(target)) => {
                Answer::text(unique, target.as_os_str().as_encoded_bytes())
            }
            (Ask::Open(flags), Lead::File | Lead::Program) => {
                return self.wait(
                    request,
                    &ghost.path,
                    wanted(flags),
                    Refusal::Error(ghost.refusal),
                );
            }
            (Ask::OpenDirectory, Lead::Directory) => {
                return self.wait(
                    request,
                    &ghost.path,
                    Operation::Read,
                    Refusal::Error(ghost.refusal),
                );
            }
            (Ask::Access(0), _) => Answer::nothing(unique),
            (Ask::Access(mask), _) => self.refuse(request, &ghost.path, accessed(mask)),
            _ => self.changed(request, &ghost.path),
        })
    }

    pub(crate) fn refuse(
        &self,
        request: &Request<'_>,
        path: &AbsPath,
        operation: Operation,
    ) -> Vec<u8> {
        self.watcher.tripped(Trip { path: path.clone(), operation, pid: request.pid });
        Answer::error(request.unique, Errno::ACCESS.raw_os_error())
    }

    /// Lets whoever wants to open something wait.
    pub(crate) fn wait(
        &self,
        request: &Request<'_>,
        path: &AbsPath,
        operation: Operation,
        refusal: Refusal,
    ) -> Option<Vec<u8>> {
        let kind = if request.ask == Ask::OpenDirectory {
            FileType::Directory
        } else {
            FileType::RegularFile
        };
        let waiting = Waiting { unique: request.unique, node: request.node, kind, refusal };
        let pending = Pending::begin(&self.desk, request.pid, waiting);
        self.watcher.ask(Trip { path: path.clone(), operation, pid: request.pid }, pending);
        None
    }

    /// What the host has at `path`, for somebody who is on the way to be asked about.
    fn lead(&mut self, request: &Request<'_>, path: &AbsPath, refusal: Errno) -> Option<Vec<u8>> {
        let lead = self.watcher.lead(path, request.pid).filter(|_| self.can_ask)?;
        let node = self.ghosts.show(path.clone(), lead.clone(), refusal)?;
        Some(Answer::entry(request.unique, &self.ghost_entry(node, &lead)))
    }

    /// A part of what was opened for somebody.
    fn read(&self, unique: u64, handle: u64, offset: u64, size: u32) -> Vec<u8> {
        let Some(opened) = self.desk.opened(handle) else {
            return Answer::error(unique, Errno::BADF.raw_os_error());
        };
        let mut bytes = vec![0; size.min(LONGEST_READ) as usize];
        match rustix::io::retry_on_intr(|| {
            rustix::io::pread(&opened.file, bytes.as_mut_slice(), offset)
        }) {
            Ok(length) => Answer::text(unique, &bytes[..length]),
            Err(error) => Answer::error(unique, error.raw_os_error()),
        }
    }

    fn listed(&self, unique: u64, handle: u64, offset: u64, size: u32, plus: bool) -> Vec<u8> {
        let Some(opened) = self.desk.opened(handle) else {
            return Answer::error(unique, Errno::BADF.raw_os_error());
        };
        let names = opened.names.iter().enumerate().skip(offset as usize);
        // Each asks for itself: of none is more told than that it is there.
        let entries = names.map(|(at, (name, mode))| {
            (at as u64 + 1, name.as_os_str(), Entry { mode: *mode, ..self.directory(NOBODY) })
        });
        Answer::list(unique, size, plus, entries)
    }

    fn lookup(
        &mut self,
        request: &Request<'_>,
        prop: &Prop,
        name: &OsStr,
        scene: &Scene,
    ) -> Vec<u8> {
        let unique = request.unique;
        if let Some(at) = prop.children.get(name) {
            return Answer::entry(unique, &self.entry(scene, *at));
        }
        if name.len() > LONGEST_NAME {
            return Answer::error(unique, Errno::NAMETOOLONG.raw_os_error());
        }
        let path = prop.path.join(name);
        let refusal = if matches!(prop.kind, PropKind::Directory | PropKind::Passage) {
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
            return Answer::absent(unique, if self.can_ask { 0 } else { NOWHERE });
        }
        self.watcher.tripped(Trip { path, operation: Operation::Read, pid: request.pid });
        Answer::error(unique, refusal.raw_os_error())
    }

    pub(crate) fn entry(&self, scene: &Scene, at: usize) -> Entry {
        match scene.prop(at) {
            Some(prop) => self.entry_of(at as u64 + FIRST, prop),
            None => self.directory(at as u64 + FIRST),
        }
    }

    fn entry_of(&self, node: u64, prop: &Prop) -> Entry {
        let size = if let PropKind::Link(target) = &prop.kind {
            target.as_os_str().len() as u64
        } else {
            0
        };
        let entry = Entry { mode: prop.kind.mode(), size, ..self.directory(node) };
        match prop.kind {
            PropKind::DeniedFile | PropKind::DeniedDirectory | PropKind::Passage
                if self.can_ask =>
            {
                self.as_opened(Entry { lasts: Lasts::Name, ..entry })
            }
            // A disguise depends on the process and on the policy of the moment.
            PropKind::DeniedFile | PropKind::DeniedDirectory => {
                Entry { lasts: Lasts::Name, ..entry }
            }
            _ => entry,
        }
    }

    fn ghost_entry(&self, node: u64, lead: &Lead) -> Entry {
        let size = if let Lead::Link(target) = lead { target.as_os_str().len() as u64 } else { 0 };
        self.as_opened(Entry {
            mode: lead.mode(),
            size,
            lasts: Lasts::Once,
            ..self.directory(node)
        })
    }

    /// With the host's own size, as long as somebody has it open: nobody else gets to know.
    pub(crate) fn as_opened(&self, entry: Entry) -> Entry {
        const KIND: u32 = 0o170_000;
        let status = |opened: Arc<Opened>| {
            rustix::fs::fstat(&opened.file)
                .ok()
                .filter(|status| status.st_mode & KIND == entry.mode & KIND)
        };
        match self.desk.open_of(entry.node).and_then(status) {
            Some(status) => Entry {
                mode: status.st_mode,
                size: status.st_size as u64,
                modified: status.st_mtime as u64,
                ..entry
            },
            None => entry,
        }
    }

    pub(crate) fn directory(&self, node: u64) -> Entry {
        let (uid, gid) = self.owner;
        Entry {
            node,
            mode: PropKind::Directory.mode(),
            size: 0,
            uid,
            gid,
            modified: 0,
            lasts: Lasts::Forever,
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
