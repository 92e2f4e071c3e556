//! The places where private caches are kept.
//!
//! What is not a plain directory of ours is left alone: a link in its place would lead the
//! kernel, and with it the command, anywhere.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use ringfence_enforce::apply::{UPPER, WORK};
use ringfence_enforce::{Plan, Step};
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Makes them. Where that is impossible (a home that is not there, or is read-only), the
/// cache lasts as long as the sandbox.
pub(crate) fn make(plan: &mut Plan) {
    for step in &mut plan.steps {
        let Step::Private { path, store, beneath } = step else { continue };
        let made = store_at(store).and_then(|store| match beneath {
            None => directory(&store, UPPER).map(drop),
            Some(_) => directory(&store, UPPER).and_then(|_| unmark(&directory(&store, WORK)?)),
        });
        if made.is_err() {
            *step = Step::Scratch { path: path.clone() };
        }
    }
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
    rustix::fs::openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A volatile overlay marks where it works (`work/incompat/volatile/dirty`), and refuses a
/// place that was marked before: after a power cut its files might be half written. A cache
/// can live with that.
fn unmark(work: &OwnedFd) -> io::Result<()> {
    let Some(inner) = opened(work, "work")? else { return Ok(()) };
    let Some(incompat) = opened(&inner, "incompat")? else { return Ok(()) };
    if let Some(volatile) = opened(&incompat, "volatile")? {
        match rustix::fs::unlinkat(volatile, "dirty", AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => rustix::fs::unlinkat(&incompat, "volatile", AtFlags::REMOVEDIR)?,
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
            fs::set_permissions(format!("/proc/self/fd/{}", directory.as_raw_fd()), fs::Permissions::from_mode(0o700))?;
            Ok(Some(directory))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
