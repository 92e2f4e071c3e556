//! What changes below a directory of a sandbox, as the kernel tells it.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use ringfence_policy::{AbsPath, Access, Verdict};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;

use super::{CountLimit, CountSlot, ServiceSandbox, awaited};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};

/// So many watch at the same time, of all tenants: the kernel gives a person 128 of what each
/// takes, and sandboxes need some.
const WATCHERS: usize = 32;
/// And so many of one.
const OF_ONE: usize = 8;
/// So many directories one watches; the rest is told of as missed.
const DIRECTORIES: usize = 1024;
/// So many names of a directory that has just appeared are told.
const NAMES: usize = 1000;

/// What happened, and to what kind of thing.
const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// What changes below a directory.
pub(crate) struct DirChanges {
    sandbox: Arc<ServiceSandbox>,
    /// The sandbox's directory, held: everything is found below it and through no link.
    root: OwnedFd,
    told: AsyncFd<OwnedFd>,
    paths: HashMap<i32, PathBuf>,
    ready: VecDeque<(&'static str, Value)>,
    is_partial: bool,
    _seat: CountSlot,
}

impl DirChanges {
    /// Begins to watch `path`, which is relative to the sandbox's directory, and all below it.
    pub(crate) fn watch(
        house: &SharedState,
        sandbox: Arc<ServiceSandbox>,
        path: &Path,
    ) -> ApiResult<Self> {
        let full = |_| {
            ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "watchers",
                "nobody more can watch at this moment",
            )
            .hint("try again later")
            .after(5)
        };
        let seat = house.sandboxes.watchers.take(sandbox.user(), OF_ONE, WATCHERS).map_err(full)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(sandbox.workspace.as_path(), flags, Mode::empty())
            .map_err(|_| super::gone())?;
        let instance = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(|_| full(CountLimit::All))?;
        let told = awaited(instance).map_err(|error| ApiError::ours(&error))?;
        let ready = [("watching", json!({ "path": path.to_string_lossy() }))].into();
        let mut changes = Self {
            sandbox,
            root,
            told,
            paths: HashMap::new(),
            ready,
            is_partial: false,
            _seat: seat,
        };
        let absent = || {
            ApiError::absent("not-found", format!("there is no directory `{}`", path.display()))
                .hint("links are not followed")
        };
        if !changes.may_be_seen(path) {
            return Err(absent());
        }
        changes.enter(path.to_owned(), DirAge::Before).map_err(|_| absent())?;
        Ok(changes)
    }

    /// What comes next; `None` after the sandbox's end.
    pub(crate) async fn next(&mut self) -> Option<(&'static str, Value)> {
        let sandbox = self.sandbox.clone();
        let mut ended = std::pin::pin!(sandbox.ended());
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let is_readable = tokio::select! {
                readable = self.told.readable() => match readable {
                    Ok(mut guard) => { guard.clear_ready(); true }
                    Err(_) => false,
                },
                () = &mut ended => false,
            };
            if !is_readable || self.read().is_err() {
                return None;
            }
        }
    }

    fn may_be_seen(&self, path: &Path) -> bool {
        let path = if path.as_os_str().is_empty() {
            self.sandbox.workspace.clone()
        } else {
            self.sandbox.workspace.join(path)
        };
        self.sandbox.opened.policy().grants.verdict(&path, Access::Read) == Verdict::Allowed
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut heard = Vec::new();
        let mut reader = inotify::Reader::new(self.told.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name =
                        event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    heard.push((event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => return Err(error.into()),
            }
        }
        for (number, what, name) in heard {
            self.hear(number, what, name.as_deref());
        }
        Ok(())
    }

    fn hear(&mut self, number: i32, what: ReadFlags, name: Option<&OsStr>) {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.ready.push_back(("missed", json!({ "why": "more happened than could be told" })));
        }
        if what.contains(ReadFlags::IGNORED) {
            self.paths.remove(&number);
        }
        let (Some(directory), Some(name)) = (self.paths.get(&number), name) else { return };
        let path = directory.join(name);
        let words = [
            (ReadFlags::CREATE, "created"),
            (ReadFlags::MOVED_TO, "created"),
            (ReadFlags::CLOSE_WRITE, "changed"),
            (ReadFlags::DELETE, "removed"),
            (ReadFlags::MOVED_FROM, "removed"),
        ];
        let Some((_, word)) = words.iter().find(|(flag, _)| what.contains(*flag)) else { return };
        let is_directory = what.contains(ReadFlags::ISDIR);
        self.tell(word, &path, is_directory);
        if is_directory && *word == "created" && self.may_be_seen(&path) {
            // One that is gone again is told of as that.
            let _ = self.enter(path, DirAge::Now);
        }
    }

    fn tell(&mut self, word: &'static str, path: &Path, is_directory: bool) {
        if self.may_be_seen(path) {
            self.ready.push_back((
                word,
                json!({ "path": path.to_string_lossy(), "isDirectory": is_directory }),
            ));
        }
    }

    /// Watches a directory and those below it. What was made in a new one before it was watched is
    /// told.
    fn enter(&mut self, directory: PathBuf, appeared: DirAge) -> Result<(), Errno> {
        let mut waiting = VecDeque::from([directory]);
        let mut is_first = true;
        while let Some(directory) = waiting.pop_front() {
            match self.enter_one(&directory, appeared, &mut waiting) {
                Err(error) if is_first => return Err(error),
                // It went away meanwhile, or is shut even to its owner.
                Ok(()) | Err(_) => is_first = false,
            }
        }
        Ok(())
    }

    fn enter_one(
        &mut self,
        directory: &Path,
        appeared: DirAge,
        waiting: &mut VecDeque<PathBuf>,
    ) -> Result<(), Errno> {
        if self.paths.len() >= DIRECTORIES {
            if !std::mem::replace(&mut self.is_partial, true) {
                self.ready.push_back((
                    "missed",
                    json!({ "why": format!("more than {DIRECTORIES} directories") }),
                ));
            }
            return Ok(());
        }
        let below = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let through =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(&self.root, below, flags, Mode::empty(), through)?;
        // By the descriptor: the name may be another's by now.
        let number = inotify::add_watch(
            self.told.get_ref(),
            format!("/proc/self/fd/{}", opened.as_raw_fd()),
            WATCHED,
        )?;
        self.paths.insert(number, directory.to_owned());
        for entry in Dir::read_from(&opened)?.take(NAMES) {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let (path, is_directory) =
                (directory.join(name), entry.file_type() == FileType::Directory);
            if appeared == DirAge::Now {
                self.tell("created", &path, is_directory);
            }
            if is_directory && self.may_be_seen(&path) {
                waiting.push_back(path);
            }
        }
        Ok(())
    }
}

/// Whether a directory was there when somebody began to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirAge {
    Before,
    Now,
}

/// A path from the sandbox's directory on, as somebody wrote it; `None` where it leads elsewhere.
pub(crate) fn below(workspace: &AbsPath, path: &str) -> Option<PathBuf> {
    let whole = AbsPath::new(workspace.as_path().join(path))?;
    whole.relative_to(workspace).map(Path::to_owned)
}
