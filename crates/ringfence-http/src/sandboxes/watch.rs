//! Watches a directory of a sandbox with inotify.

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

use super::{CountLimit, CountSlot, ServiceSandbox, async_fd};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};

/// Watches of all tenants at once: the kernel gives a user 128 inotify instances, and sandboxes
/// need some.
const WATCHERS: usize = 32;
/// Watches of one tenant at once.
const WATCHERS_PER_TENANT: usize = 8;
/// Directories per watch; changes in further ones are reported as missed.
const DIRECTORIES: usize = 1024;
/// Names reported for a directory that has just appeared.
const NAMES: usize = 1000;

/// The inotify events to watch.
const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// A watch on a directory tree.
pub(crate) struct DirChanges {
    sandbox: Arc<ServiceSandbox>,
    /// The sandbox's directory as an fd: all paths are opened beneath it, without links.
    root: OwnedFd,
    inotify_fd: AsyncFd<OwnedFd>,
    paths: HashMap<i32, PathBuf>,
    ready: VecDeque<(&'static str, Value)>,
    is_partial: bool,
    _slot: CountSlot,
}

impl DirChanges {
    /// Starts to watch `path`, relative to the sandbox's directory, and everything below it.
    pub(crate) fn open(
        app: &SharedState,
        sandbox: Arc<ServiceSandbox>,
        path: &Path,
    ) -> ApiResult<Self> {
        let full = |_| {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "watchers", "too many directory watches")
                .hint("try again later")
                .retry_after(5)
        };
        let slot = app
            .sandboxes
            .watchers
            .take(sandbox.user(), WATCHERS_PER_TENANT, WATCHERS)
            .map_err(full)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(sandbox.workspace.as_path(), flags, Mode::empty())
            .map_err(|_| super::gone_error())?;
        let instance = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(|_| full(CountLimit::All))?;
        let inotify_fd = async_fd(instance).map_err(|error| ApiError::internal(&error))?;
        let ready = [("watching", json!({ "path": path.to_string_lossy() }))].into();
        let mut changes = Self {
            sandbox,
            root,
            inotify_fd,
            paths: HashMap::new(),
            ready,
            is_partial: false,
            _slot: slot,
        };
        let absent = || {
            ApiError::not_found("not-found", format!("no such directory: `{}`", path.display()))
                .hint("links are not followed")
        };
        if !changes.is_readable_path(path) {
            return Err(absent());
        }
        changes.watch_tree(path.to_owned(), DirAge::Before).map_err(|_| absent())?;
        Ok(changes)
    }

    /// The next event; `None` after the end of the sandbox.
    pub(crate) async fn next(&mut self) -> Option<(&'static str, Value)> {
        let sandbox = self.sandbox.clone();
        let mut ended = std::pin::pin!(sandbox.ended());
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let is_readable = tokio::select! {
                readable = self.inotify_fd.readable() => match readable {
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

    fn is_readable_path(&self, path: &Path) -> bool {
        let path = if path.as_os_str().is_empty() {
            self.sandbox.workspace.clone()
        } else {
            self.sandbox.workspace.join(path)
        };
        self.sandbox.session.policy().grants.verdict(&path, Access::Read) == Verdict::Allowed
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = Vec::new();
        let mut reader = inotify::Reader::new(self.inotify_fd.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name =
                        event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    events.push((event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => return Err(error.into()),
            }
        }
        for (number, what, name) in events {
            self.handle_event(number, what, name.as_deref());
        }
        Ok(())
    }

    fn handle_event(&mut self, number: i32, what: ReadFlags, name: Option<&OsStr>) {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.ready
                .push_back(("missed", json!({ "why": "the kernel's event queue overflowed" })));
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
        self.report(word, &path, is_directory);
        if is_directory && *word == "created" && self.is_readable_path(&path) {
            // If the directory is gone again, its removal is reported as well.
            let _ = self.watch_tree(path, DirAge::Now);
        }
    }

    fn report(&mut self, word: &'static str, path: &Path, is_directory: bool) {
        if self.is_readable_path(path) {
            self.ready.push_back((
                word,
                json!({ "path": path.to_string_lossy(), "isDirectory": is_directory }),
            ));
        }
    }

    /// Watches a directory and those below it. Entries created in a new directory before the watch
    /// are reported.
    fn watch_tree(&mut self, directory: PathBuf, age: DirAge) -> Result<(), Errno> {
        let mut waiting = VecDeque::from([directory]);
        let mut is_first = true;
        while let Some(directory) = waiting.pop_front() {
            match self.watch_directory(&directory, age, &mut waiting) {
                Err(error) if is_first => return Err(error),
                // It is gone, or not readable even for its owner.
                Ok(()) | Err(_) => is_first = false,
            }
        }
        Ok(())
    }

    fn watch_directory(
        &mut self,
        directory: &Path,
        age: DirAge,
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
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(&self.root, below, flags, Mode::empty(), resolve)?;
        // By fd: another directory may have the name by now.
        let number = inotify::add_watch(
            self.inotify_fd.get_ref(),
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
            if age == DirAge::Now {
                self.report("created", &path, is_directory);
            }
            if is_directory && self.is_readable_path(&path) {
                waiting.push_back(path);
            }
        }
        Ok(())
    }
}

/// States if a directory existed before the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirAge {
    Before,
    Now,
}

/// A path relative to the sandbox's directory; `None` if it leads outside.
pub(crate) fn relative_path(workspace: &AbsPath, path: &str) -> Option<PathBuf> {
    let whole = AbsPath::new(workspace.as_path().join(path))?;
    whole.relative_to(workspace).map(Path::to_owned)
}
