//! Stores of private caches.
//!
//! Anything but a plain directory of ours is left alone: a link in its place could lead the kernel,
//! and with it the command, anywhere.
//!
//! Two overlays that write to one directory lose data. So the first of several concurrent runs
//! locks the store and writes to its own layer. Each further run writes to an extra layer, with the
//! first one's as its lower layer. The next run that has the store alone merges the extra layers
//! into it.

mod merge;

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use crate::open::open_at;

use ringfence_plan::{CONCURRENT, UPPER, WORK};
use ringfence_plan::{Plan, Step};
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Most concurrent runs of one project; a further one has caches that end with it.
const MAX_LAYERS: u16 = 256;

/// Locks of the layers that a run writes to. Held until its sandbox has ended.
#[derive(Default)]
pub(crate) struct Locks {
    held: Vec<OwnedFd>,
}

impl Drop for Locks {
    /// Makes the work directories removable: overlayfs leaves directories of mode 0, which `rm -rf`
    /// cannot enter.
    fn drop(&mut self) {
        for store in &self.held {
            let Ok(mut directory) = open_plain_dir(store, WORK) else { continue };
            for name in ["work", "incompat", "volatile"] {
                match open_kernel_dir(&directory, name) {
                    Ok(Some(inner)) => directory = inner,
                    _ => break,
                }
            }
        }
    }
}

/// Creates the stores of a plan. If a store cannot be created (no home, or a read-only one), its
/// cache lasts as long as the sandbox.
pub(crate) fn create_stores(plan: &mut Plan) -> Locks {
    let mut held = Vec::new();
    for step in &mut plan.steps {
        let Step::Private { path, store, beneath, beside } = step else { continue };
        let made = store_at(store).and_then(|store| match beneath {
            None => lock_shared(&store).map(|lock| (lock, None)),
            Some(_) => lock_layer(&store).map(|(lock, layer)| (Some(lock), layer)),
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

/// Prepares a store that is bound as it is, which many runs can share.
fn lock_shared(store: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let upper = directory(store, UPPER)?;
    let lock = reopen_readable(store)?;
    if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? {
        merge_layers(store, &upper);
    }
    // Another run may have it as an overlay, if the host's directory was removed meanwhile. That
    // run may see our writes late.
    Ok(try_lock(&lock, FlockOperation::NonBlockingLockShared)?.then_some(lock))
}

/// Prepares a layer that no other run writes to: the store's own, or the first free extra one.
fn lock_layer(store: &OwnedFd) -> io::Result<(OwnedFd, Option<u16>)> {
    let upper = directory(store, UPPER)?;
    let lock = reopen_readable(store)?;
    if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? {
        merge_layers(store, &upper);
        clear_volatile_mark(&directory(store, WORK)?)?;
        return Ok((lock, None));
    }
    let layers = directory(store, CONCURRENT)?;
    for number in 1..=MAX_LAYERS {
        let layer = directory(&layers, &number.to_string())?;
        let lock = reopen_readable(&layer)?;
        if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? {
            directory(&layer, UPPER)?;
            clear_volatile_mark(&directory(&layer, WORK)?)?;
            return Ok((lock, Some(number)));
        }
    }
    Err(Errno::AGAIN.into())
}

/// Merges the extra layers into a store. Layers in use, and files that cannot be moved, stay for
/// the next time.
fn merge_layers(store: &OwnedFd, upper: &OwnedFd) {
    let Ok(layers) = open_plain_dir(store, CONCURRENT) else { return };
    let Ok(entries) = reopen_readable(&layers).and_then(Dir::new) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_name().to_bytes().iter().all(u8::is_ascii_digit))
    {
        let Ok(layer) = open_plain_dir(&layers, entry.file_name()) else { continue };
        let Ok(lock) = reopen_readable(&layer) else { continue };
        if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)
            .is_ok_and(|is_locked| is_locked)
            && let Ok(theirs) = open_plain_dir(&layer, UPPER)
        {
            merge::merge(&theirs, upper);
        }
    }
}

/// True if the lock was acquired.
fn try_lock(lock: &OwnedFd, how: FlockOperation) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(lock, how)) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reopens a directory to list and lock it.
fn reopen_readable(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    open_at(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY)
}

fn store_at(path: &AbsPath) -> io::Result<OwnedFd> {
    if !path.as_path().is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path.as_path())?;
    }
    Ok(open_plain_dir(CWD, path.as_path())?)
}

/// Opens the directory of this name; creates it if it is missing.
fn directory(at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(open_plain_dir(at, name)?),
        Err(error) => Err(error.into()),
    }
}

fn open_plain_dir(at: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    open_at(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

/// Removes the mark of a volatile overlay (`work/incompat/volatile/dirty`). The kernel refuses a
/// work directory that has it: after a power cut its files may be half written. A cache can live
/// with that.
fn clear_volatile_mark(work: &OwnedFd) -> io::Result<()> {
    let Some(inner) = open_kernel_dir(work, "work")? else { return Ok(()) };
    let Some(incompat) = open_kernel_dir(&inner, "incompat")? else { return Ok(()) };
    if let Some(volatile) = open_kernel_dir(&incompat, "volatile")? {
        match rustix::fs::unlinkat(volatile, "dirty", AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {
                rustix::fs::unlinkat(&incompat, "volatile", AtFlags::REMOVEDIR)?
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::fs::unlinkat(inner, "incompat", AtFlags::REMOVEDIR)?)
}

/// Opens a directory of the kernel's in `at`, if there is one, and makes it accessible: such
/// directories have mode 0.
fn open_kernel_dir(at: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    match open_plain_dir(at, name) {
        Ok(directory) => {
            // `fchmod` fails on an O_PATH fd, so the mode is set through /proc/self/fd.
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
