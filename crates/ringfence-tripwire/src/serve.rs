//! Answering the kernel.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ringfence_api::Operation;
use ringfence_policy::AbsPath;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CpuSet;

use crate::company::{Company, only};
use crate::scene::{Prop, PropKind, Scene};
use crate::wire::{Answer, Ask, Entry, Request};
use crate::{COVERS, ROOT, Trip};

/// Who is told.
pub trait Watcher: Send + Sync {
    /// Somebody looks for `path`, which nothing opens. Answers whether the host has it: to
    /// look for what is nowhere is nothing to tell of.
    fn exists(&self, path: &AbsPath) -> bool;

    /// Something was refused.
    fn tripped(&self, trip: Trip);
}

/// The file system, to be served by one thread.
pub struct Tripwire {
    device: OwnedFd,
    scene: Arc<RwLock<Scene>>,
    watcher: Arc<dyn Watcher>,
    owner: (u32, u32),
    is_sealed: bool,
}

/// The node of the file system's own top, which holds the two trees.
const TOP: u64 = 1;
const COVERS_NODE: u64 = 2;
/// In a list: a name that is not to be remembered.
const NOBODY: u64 = 0;
/// Props follow.
const FIRST: u64 = 3;

/// How long the kernel may believe that a name is nowhere: it cannot be opened either way.
const NOWHERE: u64 = 1;

/// The longest name that file systems have.
const LONGEST_NAME: usize = 255;

/// Larger than any request: a name is at most 255 bytes, and nothing can be written here.
const LONGEST: usize = 64 * 1024;

impl Tripwire {
    /// `device` is an open `/dev/fuse` of a mount that belongs to `owner`.
    pub fn new(device: OwnedFd, scene: Arc<RwLock<Scene>>, watcher: Arc<dyn Watcher>, owner: (u32, u32)) -> Self {
        Self { device, scene, watcher, owner, is_sealed: false }
    }

    /// Serves until nobody has it mounted any more. The sandbox is built on `processor`.
    pub fn serve(mut self, processor: Option<usize>) {
        let mut buffer = vec![0; LONGEST];
        let mut post = Post::at(processor);
        loop {
            let length = match rustix::io::read(&self.device, &mut buffer[..]) {
                Ok(length) => length,
                // Nobody waits for it any more: the caller was interrupted before we looked.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(_) => return,
            };
            post.choose();
            let Some(request) = Request::parse(&buffer[..length]) else { return };
            if let Some(answer) = self.answer(&request) {
                // A caller that died meanwhile needs none.
                let _ = post.wake(request.pid, || rustix::io::write(&self.device, &answer));
            }
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Option<Vec<u8>> {
        let unique = request.unique;
        let scene = self.scene.clone();
        let scene = scene.read().unwrap_or_else(PoisonError::into_inner);
        Some(match request.ask {
            Ask::Silent => return None,
            Ask::Hello { minor, flags } => Answer::hello(unique, minor, flags),
            Ask::Statistics => Answer::statistics(unique),
            Ask::Release => Answer::nothing(unique),
            Ask::Unknown => Answer::error(unique, Errno::NOSYS.raw_os_error()),
            _ if request.node < FIRST => self.top(request, &scene),
            _ => match scene.prop((request.node - FIRST) as usize) {
                Some(prop) => self.of_prop(request, prop, &scene),
                None => Answer::error(unique, Errno::STALE.raw_os_error()),
            },
        })
    }

    /// The two directories that are nobody's but ours.
    fn top(&mut self, request: &Request<'_>, scene: &Scene) -> Vec<u8> {
        let (unique, node) = (request.unique, request.node);
        match request.ask {
            Ask::Lookup(name) if node == TOP && name == ROOT => Answer::entry(unique, &self.entry(scene, 0)),
            Ask::Lookup(name) if node == TOP && name == COVERS => Answer::entry(unique, &self.directory(COVERS_NODE)),
            Ask::Lookup(name) if node == COVERS_NODE => match scene.cover_named(name) {
                Some(at) => Answer::entry(unique, &self.entry(scene, at)),
                None => Answer::error(unique, Errno::NOENT.raw_os_error()),
            },
            Ask::Attributes => Answer::attributes(unique, &self.directory(node)),
            Ask::OpenDirectory if !self.is_sealed => Answer::opened(unique),
            Ask::List { offset, size, plus } if node == COVERS_NODE => {
                let left = scene.covers().iter().enumerate().skip(offset as usize);
                // No more than can fit: an entry has at least the length of its head.
                let named: Vec<_> = left.take(size as usize / 24 + 1).map(|(number, at)| (number, number.to_string(), *at)).collect();
                let listed = named.iter().map(|(number, name, at)| (*number as u64 + 1, name.as_ref(), self.entry(scene, *at)));
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

    fn of_prop(&self, request: &Request<'_>, prop: &Prop, scene: &Scene) -> Vec<u8> {
        let unique = request.unique;
        let refuse = |path: &AbsPath, operation: Operation| {
            self.watcher.tripped(Trip { path: path.clone(), operation, pid: request.pid });
            Answer::error(unique, Errno::ACCESS.raw_os_error())
        };
        match request.ask {
            Ask::Attributes => Answer::attributes(unique, &self.entry_of(request.node, prop)),
            Ask::Lookup(name) => self.lookup(request, prop, name, scene),
            Ask::ReadLink => match &prop.kind {
                PropKind::Link(target) => Answer::text(unique, target.as_os_str().as_encoded_bytes()),
                _ => Answer::error(unique, Errno::INVAL.raw_os_error()),
            },
            Ask::Open(flags) => refuse(&prop.path, wanted(flags)),
            Ask::OpenDirectory if prop.kind == PropKind::Directory => Answer::opened(unique),
            Ask::OpenDirectory => refuse(&prop.path, Operation::Read),
            Ask::List { offset, size, plus } => {
                // The kernel makes nothing of these two, but programs expect them.
                let own = [".", ".."].map(|name| (OsStr::new(name), Entry { node: NOBODY, ..self.directory(request.node) }));
                let named = prop.children.iter().map(|(name, at)| (name.as_os_str(), self.entry(scene, *at)));
                let entries = own.into_iter().chain(named).enumerate().skip(offset as usize);
                Answer::list(unique, size, plus, entries.map(|(number, (name, entry))| (number as u64 + 1, name, entry)))
            }
            Ask::Access(mask) => match (&prop.kind, mask) {
                (_, 0) => Answer::nothing(unique),
                (PropKind::DeniedFile | PropKind::DeniedDirectory, mask) => refuse(&prop.path, accessed(mask)),
                // Nothing can be written here, and to ask is not to try.
                (_, mask) if mask & WRITE != 0 => Answer::error(unique, Errno::ACCESS.raw_os_error()),
                (PropKind::Passage, mask) if mask & READ != 0 => Answer::error(unique, Errno::ACCESS.raw_os_error()),
                _ => Answer::nothing(unique),
            },
            Ask::Make(name) => refuse(&prop.path.join(name), Operation::Create),
            Ask::Remove(name) => refuse(&prop.path.join(name), Operation::Write),
            Ask::Rename(name) => refuse(&prop.path.join(name), Operation::Rename),
            Ask::SetAttributes => refuse(&prop.path, Operation::Write),
            _ => Answer::error(unique, Errno::NOSYS.raw_os_error()),
        }
    }

    fn lookup(&self, request: &Request<'_>, prop: &Prop, name: &OsStr, scene: &Scene) -> Vec<u8> {
        let unique = request.unique;
        if let Some(at) = prop.children.get(name) {
            return Answer::entry(unique, &self.entry(scene, *at));
        }
        if name.len() > LONGEST_NAME {
            return Answer::error(unique, Errno::NAMETOOLONG.raw_os_error());
        }
        let path = prop.path.join(name);
        let trip = |operation| self.watcher.tripped(Trip { path: path.clone(), operation, pid: request.pid });
        match prop.kind {
            PropKind::Directory | PropKind::Passage if self.watcher.exists(&path) => {
                trip(Operation::Read);
                Answer::error(unique, Errno::NOENT.raw_os_error())
            }
            PropKind::Directory | PropKind::Passage => Answer::absent(unique, NOWHERE),
            _ => {
                trip(Operation::Read);
                Answer::error(unique, Errno::ACCESS.raw_os_error())
            }
        }
    }

    fn entry(&self, scene: &Scene, at: usize) -> Entry {
        match scene.prop(at) {
            Some(prop) => self.entry_of(at as u64 + FIRST, prop),
            None => self.directory(at as u64 + FIRST),
        }
    }

    fn entry_of(&self, node: u64, prop: &Prop) -> Entry {
        let size = if let PropKind::Link(target) = &prop.kind { target.as_os_str().len() as u64 } else { 0 };
        Entry { mode: prop.kind.mode(), size, ..self.directory(node) }
    }

    fn directory(&self, node: u64) -> Entry {
        let (uid, gid) = self.owner;
        Entry { node, mode: PropKind::Directory.mode(), size: 0, uid, gid }
    }
}

/// Where we wait for questions. On the processor of whoever asks, one is answered by a switch
/// to us and back; elsewhere, each time a processor would have to be woken.
///
/// While a sandbox is built, one question follows the other, all from one processor. Later
/// we stay where we are as long as nobody else runs, and bring there who asks.
struct Post {
    company: Option<Company>,
    /// Where else we may be.
    away: Option<CpuSet>,
    is_kept: bool,
    since: Instant,
}

impl Post {
    /// So long a sandbox may take to be built.
    const BUILT: Duration = Duration::from_millis(20);

    fn at(processor: Option<usize>) -> Self {
        let proc = rustix::fs::open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let company = proc.and_then(|proc| Company::of(proc.as_fd()));
        let away = rustix::thread::sched_getaffinity(None).ok();
        let mut post = Self { company, away, is_kept: false, since: Instant::now() };
        post.is_kept = processor.is_some_and(|processor| post.keep(processor));
        post
    }

    fn keep(&self, processor: usize) -> bool {
        self.away.is_some() && rustix::thread::sched_setaffinity(None, &only(processor)).is_ok()
    }

    /// Stays, or goes wherever there is room.
    fn choose(&mut self) {
        if self.since.elapsed() < Self::BUILT {
            return;
        }
        match (self.company.as_ref().is_some_and(Company::is_none), self.is_kept) {
            (true, false) => self.is_kept = self.keep(rustix::thread::sched_getcpu()),
            (false, true) => self.is_kept = self.away.as_ref().is_none_or(|away| rustix::thread::sched_setaffinity(None, away).is_err()),
            _ => {}
        }
    }

    fn wake<T>(&self, other: u32, wake: impl FnOnce() -> T) -> T {
        match &self.company {
            Some(company) if self.is_kept && self.since.elapsed() >= Self::BUILT => company.wake(other as i32, wake),
            _ => wake(),
        }
    }
}

const READ: u32 = 4;
const WRITE: u32 = 2;

/// What an open with these flags is for.
fn wanted(flags: u32) -> Operation {
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
fn accessed(mask: u32) -> Operation {
    if mask & WRITE != 0 {
        Operation::Write
    } else if mask & READ != 0 {
        Operation::Read
    } else {
        Operation::Execute
    }
}
