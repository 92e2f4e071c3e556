//! What the runs of a project leave for each other in its store.
//!
//! A run that was killed has not swept. It leaves a mark, and whoever comes next sweeps for
//! it, before what it planted is taken for the person's own.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::time::SystemTime;

use ringfence_api::Quarantined;
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::sweep::{Ground, Look, sweep};

/// The directory of the marks.
pub(crate) struct Runs {
    directory: OwnedFd,
    quarantine: AbsPath,
}

/// A run that has not swept yet. The lock on its file ends with it, however it ends.
pub(crate) struct Mark {
    directory: OwnedFd,
    name: String,
    file: fs::File,
}

const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

impl Runs {
    /// `None` where there is no store: a home that is not there, or is read-only.
    pub(crate) fn open(quarantine: &AbsPath) -> Option<Self> {
        let path = quarantine.parent()?.join("runs");
        let open = || rustix::fs::open(path.as_path(), OFlags::RDONLY | OFlags::DIRECTORY | PLAIN, Mode::empty());
        let directory = open().or_else(|_| {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(path.as_path());
            open()
        });
        Some(Self { directory: directory.ok()?, quarantine: quarantine.clone() })
    }

    /// Sweeps for the runs that could not. `None` if there are none.
    pub(crate) fn sweep_for_the_killed(&self) -> Option<Vec<Quarantined>> {
        let _turn = self.turn().ok()?;
        let mut swept: Option<Vec<Quarantined>> = None;
        for entry in rustix::fs::Dir::read_from(&self.directory).ok()?.flatten() {
            let name = entry.file_name();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            let Ok(file) = rustix::fs::openat(&self.directory, name, OFlags::RDONLY | OFlags::NONBLOCK | PLAIN, Mode::empty()) else {
                continue;
            };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                continue;
            }
            let mut text = Vec::new();
            let is_read = fs::File::from(file).read_to_end(&mut text).is_ok();
            if let Some(ground) = is_read.then(|| Ground::read(&text)).flatten() {
                swept.get_or_insert_default().extend(sweep(Vec::new(), Look::Everywhere, &ground, &self.quarantine));
            }
            let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
        }
        swept
    }

    /// Marks a run that begins now.
    pub(crate) fn mark(&self, ground: &Ground) -> io::Result<Mark> {
        let _turn = self.turn()?;
        let moment = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!("{}-{moment}", std::process::id());
        let directory = rustix::io::fcntl_dupfd_cloexec(&self.directory, 3)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let file = fs::File::from(rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)?);
        let mut mark = Mark { directory, name, file };
        let locked = rustix::fs::flock(&mark.file, FlockOperation::NonBlockingLockExclusive).map_err(Into::into);
        if let Err(error) = locked.and_then(|()| mark.file.write_all(&ground.written())) {
            mark.remove();
            return Err(error);
        }
        Ok(mark)
    }

    /// One at a time: a mark that is half made looks like that of a killed run, and nobody
    /// may go on while somebody else still sweeps for one.
    fn turn(&self) -> Result<Turn<'_>> {
        rustix::fs::flock(&self.directory, FlockOperation::LockExclusive)?;
        Ok(Turn(&self.directory))
    }
}

struct Turn<'a>(&'a OwnedFd);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

impl Mark {
    /// The run has swept.
    pub(crate) fn remove(self) {
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
