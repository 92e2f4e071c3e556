//! Files that the runs of a project leave for each other in its store.
//!
//! A killed run has not swept. It leaves a marker, and the next run sweeps for it, before planted
//! files pass for the user's own. Each run also lists the repositories that its command created.

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

use crate::launcher::git_sweep::{FoundGitDir, SweepBaseline, SweepResult, SweepScope, sweep};
pub(crate) use created_repos::CreatedRepos;

/// Directory of the run markers.
pub(crate) struct RunRegistry {
    directory: Arc<OwnedFd>,
    quarantine: AbsPath,
}

/// Marker of a run that has not swept yet. The lock on its file ends with the run in any case.
pub(crate) struct RunMarker {
    directory: Arc<OwnedFd>,
    name: String,
    file: fs::File,
}

/// No marker begins with a dot.
const LOCK: &str = ".lock";

/// The user's settings in the git configs that commands changed.
const CONFIGS: &str = ".configs";

const NO_LINK_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

impl RunRegistry {
    /// Opens or creates the registry; `None` without a store: no home, or a read-only one.
    pub(crate) fn open_or_create(quarantine: &AbsPath) -> Option<Self> {
        Self::open(quarantine).or_else(|| {
            let _ = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(runs_dir(quarantine)?.as_path());
            Self::open(quarantine)
        })
    }

    /// Opens the registry; `None` also if no command has run yet.
    pub(crate) fn open(quarantine: &AbsPath) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | NO_LINK_FLAGS;
        let directory =
            rustix::fs::open(runs_dir(quarantine)?.as_path(), flags, Mode::empty()).ok()?;
        Some(Self { directory: Arc::new(directory), quarantine: quarantine.clone() })
    }

    /// The file that the notify handlers of the project's sandboxes lock, opened anew for each.
    /// Without a store there is none, and two concurrent runs can race each other's decisions.
    pub(crate) fn open_notify_lock(&self) -> Option<OwnedFd> {
        // Writable: NFS has no other exclusive lock.
        let flags = OFlags::RDWR | OFlags::CREATE | NO_LINK_FLAGS;
        rustix::fs::openat(&*self.directory, LOCK, flags, Mode::RUSR | Mode::WUSR).ok()
    }

    /// Sweeps for killed runs. `None` if there are none.
    pub(crate) fn sweep_killed_runs(&self) -> Option<Vec<QuarantinedFile>> {
        let turn = self.lock_registry().ok()?;
        let (mut swept, mut found): (Option<Vec<QuarantinedFile>>, Vec<FoundGitDir>) =
            (None, Vec::new());
        for (name, file) in self.marks() {
            if is_held(&file) {
                continue;
            }
            let mut text = Vec::new();
            let is_read = fs::File::from(file).read_to_end(&mut text).is_ok();
            if let Some(baseline) = is_read.then(|| SweepBaseline::from_bytes(&text)).flatten() {
                // Also repositories of earlier commands: the killed one could write to them.
                let (mut made, _) = self.created_markers_locked(&CreatedRepos::default());
                made.retain(|made| !baseline.is_masked(made));
                let SweepResult { moved, spotted } =
                    sweep(made, SweepScope::Everywhere, &baseline, &self.quarantine);
                swept.get_or_insert_default().extend(moved);
                found.extend(spotted);
            }
            let _ = rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty());
        }
        drop(turn);
        self.add_to_list(found, &CreatedRepos::default(), None);
        swept
    }

    /// The markers, opened one after the other: there may be more than the fd limit.
    fn marks(&self) -> impl Iterator<Item = (CString, OwnedFd)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | NO_LINK_FLAGS;
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

    /// True if another run began and has not swept. `own` is the marker of the caller.
    pub(crate) fn has_other_runs(&self, own: Option<&RunMarker>) -> bool {
        let is_own = |name: &CString| own.is_some_and(|own| own.name.as_bytes() == name.to_bytes());
        self.marks().any(|(name, file)| !is_own(&name) && is_held(&file))
    }

    /// Marks a run that begins now.
    pub(crate) fn create_marker(&self, baseline: &SweepBaseline) -> io::Result<RunMarker> {
        let _turn = self.lock_registry()?;
        let moment = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let name = format!("{}-{moment}", std::process::id());
        let directory = self.directory.clone();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NO_LINK_FLAGS;
        let file =
            fs::File::from(rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)?);
        let mut mark = RunMarker { directory, name, file };
        let locked = rustix::fs::flock(&mark.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(Into::into);
        if let Err(error) = locked.and_then(|()| mark.file.write_all(&baseline.to_bytes())) {
            mark.remove();
            return Err(error);
        }
        Ok(mark)
    }

    /// Reads the list of known git configs.
    pub(crate) fn read_configs(&self) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | NO_LINK_FLAGS;
        let mut text = Vec::new();
        fs::File::from(rustix::fs::openat(&*self.directory, CONFIGS, flags, Mode::empty()).ok()?)
            .read_to_end(&mut text)
            .ok()?;
        Some(text)
    }

    /// Replaces the list of known git configs.
    pub(crate) fn write_configs(&self, text: &[u8]) -> io::Result<()> {
        let next = format!("{CONFIGS}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | NO_LINK_FLAGS;
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

    /// Locks the registry: a half-written marker looks like that of a killed run, and no run may
    /// continue while another still sweeps.
    pub(crate) fn lock_registry(&self) -> Result<RegistryLock<'_>> {
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
    /// Removes the marker once the run has swept.
    pub(crate) fn remove(self) {
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

fn runs_dir(quarantine: &AbsPath) -> Option<AbsPath> {
    Some(quarantine.parent()?.join("runs"))
}

fn is_held(mark: &OwnedFd) -> bool {
    rustix::fs::flock(mark, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}
