//! Linux and macOS.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::{Account, FileNumbers, FileStamp};

/// The variable with the home directory.
pub(super) const HOME_VARIABLE: &str = "HOME";
/// The managed policy.
pub(crate) const MANAGED_POLICY: &str = "/etc/ringfence/policy.toml";

/// The user that runs ringfence; `None` where users have no numbers.
pub(crate) fn user_id() -> Option<u32> {
    Some(geteuid().as_raw())
}

/// The owner of a file; `None` if it is not known.
pub(crate) fn owner(file: &Metadata) -> Option<u32> {
    Some(file.uid())
}

/// Reads `/etc/passwd`: a static binary cannot use the name service.
pub(super) fn account() -> Account {
    let uid = geteuid().as_raw();
    let file = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = file.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, shell] = fields.as_slice() else { return None };
        (id.parse() == Ok(uid)).then(|| Account {
            name: (*name).into(),
            home: (*home).into(),
            shell: (*shell).into(),
        })
    });
    found.unwrap_or_else(|| Account {
        name: std::env::var("USER").unwrap_or_else(|_| uid.to_string()),
        home: "/".into(),
        shell: "/bin/sh".into(),
    })
}

/// The version of a file.
pub(crate) fn stamp(file: &Metadata) -> FileStamp {
    let device = file.dev() as rustix::fs::Dev;
    FileStamp {
        numbers: Some(FileNumbers {
            device: (rustix::fs::major(device), rustix::fs::minor(device)),
            inode: file.ino(),
        }),
        size: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    }
}

/// Opens a file for reading. A pipe that replaced it does not block.
pub(crate) fn open_nonblocking(file: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(file)
}

/// Creates a directory for this user only, and the missing ones above it.
pub(crate) fn create_private_dir(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Opens a file of this user only for writing, and creates it if it is missing. Follows no link.
pub(crate) fn open_private_file(file: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(file)
}

/// Gives `file` the owner and the mode of another; without one, access for this user only.
pub(crate) fn copy_access(kept: Option<&Metadata>, file: &File) -> io::Result<()> {
    let Some(kept) = kept else { return file.set_permissions(Permissions::from_mode(0o600)) };
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (kept.uid(), kept.gid()) {
        fchown(file, Some(kept.uid()), Some(kept.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(kept.mode() & 0o7777))
}
