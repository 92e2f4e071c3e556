//! What the runs of a project leave for each other in its store.
//!
//! A run that was killed has not swept. It leaves a mark, and whoever comes next sweeps for
//! it, before what it planted is taken for the person's own. And each tells which
//! repositories its command made.

mod created_repos;

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::SystemTime;

use ringfence_api::QuarantinedFile;
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::git_sweep::{FoundGitDir, SweepBaseline, SweepResult, SweepScope, sweep};
pub(crate) use created_repos::CreatedRepos;

/// The directory of the marks.
pub(crate) struct RunRegistry {
    directory: Arc<OwnedFd>,
    quarantine: AbsPath,
}

/// A run that has not swept yet. The lock on its file ends with it, however it ends.
pub(crate) struct RunMarker {
    directory: Arc<OwnedFd>,
    name: String,
    file: fs::File,
}

/// No mark begins with a dot.
const LOCK: &str = ".lock";

/// Settings of the user in the git configs that commands changed.
const CONFIGS: &str = ".configs";

const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

impl RunRegistry {
    /// `None` where there is no store: a home that is not there, or is read-only.
    pub(crate) fn make(quarantine: &AbsPath) -> Option<Self> {
        Self::open(quarantine).or_else(|| {
            let _ = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(place(quarantine)?.as_path());
            Self::open(quarantine)
        })
    }

    /// `None` also where no command has run yet.
    pub(crate) fn open(quarantine: &AbsPath) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | PLAIN;
        let directory =
            rustix::fs::open(place(quarantine)?.as_path(), flags, Mode::empty()).ok()?;
        Some(Self { directory: Arc::new(directory), quarantine: quarantine.clone() })
    }

    /// The file that the notify handlers of the project's sandboxes lock, opened anew for each.
    /// Without a store there is none, and two runs at once can race each other's judgements.
    pub(crate) fn lock(&self) -> Option<OwnedFd> {
        // Writable: NFS locks nothing else exclusively.
        let flags = OFlags::RDWR | OFlags::CREATE | PLAIN;
        rustix::fs::openat(&*self.directory, LOCK, flags, Mode::RUSR | Mode::WUSR).ok()
    }

    /// Sweeps for the runs that could not. `None` if there are none.
    pub(crate) fn sweep_for_the_killed(&self) -> Option<Vec<QuarantinedFile>> {
        let turn = self.turn().ok()?;
        let (mut swept, mut found): (Option<Vec<QuarantinedFile>>, Vec<FoundGitDir>) =
            (None, Vec::new());
        for (name, file) in self.marks() {
            if is_held(&file) {
                continue;
            }
            let mut text = Vec::new();
            let is_read = fs::File::from(file).read_to_end(&mut text).is_ok();
            if let Some(ground) = is_read.then(|| SweepBaseline::read(&text)).flatten() {
                // Also what earlier commands made: the killed one could write to it.
                let (mut made, _) = self.made_until_now(&CreatedRepos::default());
                made.retain(|made| !ground.is_covered(made));
                let SweepResult { moved, spotted } =
                    sweep(made, SweepScope::Everywhere, &ground, &self.quarantine);
                swept.get_or_insert_default().extend(moved);
                found.extend(spotted);
            }
            let _ = rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty());
        }
        drop(turn);
        self.note(found, &CreatedRepos::default(), None);
        swept
    }

    /// Opened one after the other: there may be more than we may have open.
    fn marks(&self) -> impl Iterator<Item = (CString, OwnedFd)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | PLAIN;
        let entries = rustix::fs::Dir::read_from(&self.directory).into_iter().flatten().flatten();
        let names = entries
            .map(|entry| entry.file_name().to_owned())
            .filter(|name| !name.to_bytes().starts_with(b"."));
        let open = move |name| {
            Some((rustix::fs::openat(&*self.directory, &name, flags, Mode::empty()).ok()?, name))
        };
        names
            .collect::<Vec<CString>>()
            .into_iter()
            .filter_map(open)
            .map(|(file, name)| (name, file))
    }

    /// Whether another run began and has not swept. `own` is the mark of the one that asks.
    pub(crate) fn others_go_on(&self, own: Option<&RunMarker>) -> bool {
        let is_own = |name: &CString| own.is_some_and(|own| own.name.as_bytes() == name.to_bytes());
        self.marks().any(|(name, file)| !is_own(&name) && is_held(&file))
    }

    /// Marks a run that begins now.
    pub(crate) fn mark(&self, ground: &SweepBaseline) -> io::Result<RunMarker> {
        let _turn = self.turn()?;
        let moment = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let name = format!("{}-{moment}", std::process::id());
        let directory = self.directory.clone();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let file =
            fs::File::from(rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)?);
        let mut mark = RunMarker { directory, name, file };
        let locked = rustix::fs::flock(&mark.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(Into::into);
        if let Err(error) = locked.and_then(|()| mark.file.write_all(&ground.written())) {
            mark.remove();
            return Err(error);
        }
        Ok(mark)
    }

    /// Reads the list of known git configs.
    pub(crate) fn read_configs(&self) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | PLAIN;
        let mut text = Vec::new();
        fs::File::from(rustix::fs::openat(&*self.directory, CONFIGS, flags, Mode::empty()).ok()?)
            .read_to_end(&mut text)
            .ok()?;
        Some(text)
    }

    /// Replaces the list of known git configs.
    pub(crate) fn write_configs(&self, text: &[u8]) -> io::Result<()> {
        let next = format!("{CONFIGS}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | PLAIN;
        let mut file = fs::File::from(rustix::fs::openat(
            &*self.directory,
            &next,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?);
        let written = file.write_all(text);
        match written.and_then(|()| {
            Ok(rustix::fs::renameat(&*self.directory, &next, &*self.directory, CONFIGS)?)
        }) {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&*self.directory, &next, AtFlags::empty());
                Err(error)
            }
        }
    }

    /// One at a time: a mark that is half made looks like that of a killed run, and nobody
    /// may go on while somebody else still sweeps for one.
    pub(crate) fn turn(&self) -> Result<RegistryLock<'_>> {
        rustix::fs::flock(&self.directory, FlockOperation::LockExclusive)?;
        Ok(RegistryLock(&self.directory))
    }
}

pub(crate) struct RegistryLock<'a>(&'a OwnedFd);

impl Drop for RegistryLock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

impl RunMarker {
    /// The run has swept.
    pub(crate) fn remove(self) {
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

fn place(quarantine: &AbsPath) -> Option<AbsPath> {
    Some(quarantine.parent()?.join("runs"))
}

fn is_held(mark: &OwnedFd) -> bool {
    rustix::fs::flock(mark, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}
