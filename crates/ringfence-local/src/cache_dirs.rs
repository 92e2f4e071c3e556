//! The places where private caches are kept.
//!
//! What is not a plain directory of ours is left alone: a link in its place would lead the
//! kernel, and with it the command, anywhere.
//!
//! Two overlays that write to one directory lose what is written. So the first of several runs at
//! once locks the store and writes to its own layer. Each further one writes to a layer beside it,
//! with the first's beneath; the next run that has the store to itself puts that into the store.

mod merge;

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use ringfence_enforce::apply::{BESIDE, UPPER, WORK};
use ringfence_enforce::{Plan, Step};
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Runs at once of one project; a further one has caches that end with it.
const MOST: u16 = 256;

/// Locks of the layers that a run writes to. Held until its sandbox has ended.
#[derive(Default)]
pub(crate) struct Locks {
    held: Vec<OwnedFd>,
}

impl Drop for Locks {
    /// overlayfs leaves directories of mode 0, which `rm -rf` cannot enter.
    fn drop(&mut self) {
        for store in &self.held {
            let Ok(mut directory) = plain(store, WORK) else { continue };
            for name in ["work", "incompat", "volatile"] {
                match opened(&directory, name) {
                    Ok(Some(inner)) => directory = inner,
                    _ => break,
                }
            }
        }
    }
}

/// Makes them. Where that is impossible (a home that is not there, or is read-only), the
/// cache lasts as long as the sandbox.
pub(crate) fn make(plan: &mut Plan) -> Locks {
    let mut held = Vec::new();
    for step in &mut plan.steps {
        let Step::Private { path, store, beneath, beside } = step else { continue };
        let made = store_at(store).and_then(|store| match beneath {
            None => share(&store).map(|lock| (lock, None)),
            Some(_) => take(&store).map(|(lock, beside)| (Some(lock), beside)),
        });
        match made {
            Ok((lock, layer)) => {
                held.extend(lock);
                *beside = layer;
            }
            Err(_) => *step = Step::Scratch { path: path.clone() },
        }
    }
    Locks { held }
}

/// Readies a store that is shown as it is, which many can have at the same time.
fn share(store: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let upper = directory(store, UPPER)?;
    let lock = readable(store)?;
    if is_locked(&lock, FlockOperation::NonBlockingLockExclusive)? {
        put_together(store, &upper);
    }
    // Where it is an overlay to another run, which the host's directory was taken from meanwhile,
    // that one may see late what is written here.
    Ok(is_locked(&lock, FlockOperation::NonBlockingLockShared)?.then_some(lock))
}

/// Readies a layer of a store that no other run writes to: its own, or the first beside it.
fn take(store: &OwnedFd) -> io::Result<(OwnedFd, Option<u16>)> {
    let upper = directory(store, UPPER)?;
    let lock = readable(store)?;
    if is_locked(&lock, FlockOperation::NonBlockingLockExclusive)? {
        put_together(store, &upper);
        unmark(&directory(store, WORK)?)?;
        return Ok((lock, None));
    }
    let beside = directory(store, BESIDE)?;
    for number in 1..=MOST {
        let layer = directory(&beside, &number.to_string())?;
        let lock = readable(&layer)?;
        if is_locked(&lock, FlockOperation::NonBlockingLockExclusive)? {
            directory(&layer, UPPER)?;
            unmark(&directory(&layer, WORK)?)?;
            return Ok((lock, Some(number)));
        }
    }
    Err(Errno::AGAIN.into())
}

/// Moves what was written beside a store into it. Layers in use are left for the next time, and so
/// is what cannot be moved.
fn put_together(store: &OwnedFd, upper: &OwnedFd) {
    let Ok(beside) = plain(store, BESIDE) else { return };
    let Ok(entries) = readable(&beside).and_then(Dir::new) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_name().to_bytes().iter().all(u8::is_ascii_digit))
    {
        let Ok(layer) = plain(&beside, entry.file_name()) else { continue };
        let Ok(lock) = readable(&layer) else { continue };
        if is_locked(&lock, FlockOperation::NonBlockingLockExclusive)
            .is_ok_and(|is_locked| is_locked)
            && let Ok(theirs) = plain(&layer, UPPER)
        {
            merge::merge(&theirs, upper);
        }
    }
}

/// Whether the lock could be had.
fn is_locked(lock: &OwnedFd, how: FlockOperation) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(lock, how)) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The same directory, to be listed and locked.
fn readable(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        directory,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn store_at(path: &AbsPath) -> io::Result<OwnedFd> {
    if !path.as_path().is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path.as_path())?;
    }
    Ok(plain(CWD, path.as_path())?)
}

/// The directory of this name, which is made where it is missing.
fn directory(at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(plain(at, name)?),
        Err(error) => Err(error.into()),
    }
}

fn plain(at: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        at,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// A volatile overlay marks where it works (`work/incompat/volatile/dirty`), and refuses a
/// place that was marked before: after a power cut its files might be half written. A cache
/// can live with that.
fn unmark(work: &OwnedFd) -> io::Result<()> {
    let Some(inner) = opened(work, "work")? else { return Ok(()) };
    let Some(incompat) = opened(&inner, "incompat")? else { return Ok(()) };
    if let Some(volatile) = opened(&incompat, "volatile")? {
        match rustix::fs::unlinkat(volatile, "dirty", AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {
                rustix::fs::unlinkat(&incompat, "volatile", AtFlags::REMOVEDIR)?
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::fs::unlinkat(inner, "incompat", AtFlags::REMOVEDIR)?)
}

/// A directory of the kernel's in `at`, if there is one, made accessible: they have mode 0.
fn opened(at: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    match plain(at, name) {
        Ok(directory) => {
            // A descriptor that only names a directory cannot change it but by that name.
            fs::set_permissions(
                format!("/proc/self/fd/{}", directory.as_raw_fd()),
                fs::Permissions::from_mode(0o700),
            )?;
            Ok(Some(directory))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
