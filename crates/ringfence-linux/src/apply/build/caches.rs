//! Mount points inside private caches.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{RootBuilder, SetupError, SetupStep, attach_mount, relative};

impl RootBuilder {
    /// Mounts a tree of the host in a private cache. An earlier command has written the cache, so
    /// every directory on the way is opened without following symlinks, and created if it is
    /// missing.
    pub(super) fn attach_in_cache(
        &mut self,
        source: &OwnedFd,
        path: &AbsPath,
    ) -> Result<(), SetupError> {
        let caches = self.private.iter().filter(|cache| *cache != path && path.is_within(cache));
        let Some(cache) = caches.max_by_key(|cache| cache.depth()).cloned() else { return Ok(()) };
        let kind = rustix::fs::fstat(source).map(|status| FileType::from_raw_mode(status.st_mode));
        let kind = kind.during(|| format!("look at {path}"))?;
        let mounted = || {
            let mut at =
                rustix::fs::openat(&self.base, relative(&cache), NOFOLLOW_PATH, Mode::empty())?;
            let names: Vec<&OsStr> = path.relative_to(&cache).into_iter().flatten().collect();
            for (number, name) in names.iter().enumerate() {
                let is_file = number + 1 == names.len() && !kind.is_dir();
                at = mount_point(
                    &at,
                    name,
                    if is_file { FileType::RegularFile } else { FileType::Directory },
                )?;
            }
            attach_mount(source, &at)
        };
        mounted().during(|| format!("mount {path}"))
    }
}

const NOFOLLOW_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the entry of this type in a directory of the cache. An entry of another type is removed.
fn mount_point(directory: &OwnedFd, name: &OsStr, kind: FileType) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::openat(directory, name, NOFOLLOW_PATH, Mode::empty()) {
        Ok(found) => {
            let is_directory = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).is_dir();
            let is_link = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).is_symlink();
            if is_directory == kind.is_dir() && !is_link {
                return Ok(found);
            }
            if is_directory {
                return Err(Errno::ISDIR);
            }
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    if kind.is_dir() {
        rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o755))?;
    } else {
        rustix::fs::mknodat(directory, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?;
    }
    rustix::fs::openat(directory, name, NOFOLLOW_PATH, Mode::empty())
}
