//! Merges one overlay layer into another.
//!
//! Commands wrote both: no link in them is followed, and nothing in them is trusted.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, Dir, FileType, RenameFlags, Stat};
use rustix::io::Errno;

use super::{open_plain_dir, reopen_readable};

/// Deepest level at which directories of one name are merged: commands may nest them to any depth,
/// and each level takes two fds.
const MAX_DEPTH: usize = 64;

/// Moves everything in `from` into `into`. Of two files with one name the newer one stays. An entry
/// that cannot be moved, or is too deep, stays where it is.
pub(super) fn merge(from: &OwnedFd, into: &OwnedFd) {
    merge_levels(from, into, MAX_DEPTH);
}

fn merge_levels(from: &OwnedFd, into: &OwnedFd, levels: usize) {
    let Ok(entries) = reopen_readable(from).and_then(Dir::new) else { return };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."));
    for name in names.collect::<Vec<_>>() {
        if rename_entry(from, into, &name, RenameFlags::NOREPLACE) == Err(Errno::EXIST) {
            let _ = reconcile(from, into, &name, levels);
        }
    }
}

/// Resolves a name that both layers have.
fn reconcile(from: &OwnedFd, into: &OwnedFd, name: &CStr, levels: usize) -> rustix::io::Result<()> {
    let theirs = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let ours = rustix::fs::statat(into, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match (is_directory(&theirs), is_directory(&ours)) {
        (true, true) if levels == 0 => Err(Errno::NOTEMPTY),
        (true, true) => {
            merge_directories(
                &open_plain_dir(from, name)?,
                &open_plain_dir(into, name)?,
                levels - 1,
            );
            // Fails if an entry is left in it.
            rustix::fs::unlinkat(from, name, AtFlags::REMOVEDIR)
        }
        // A whiteout does not remove a file that another run has written there.
        _ if is_whiteout(&theirs) => rustix::fs::unlinkat(from, name, AtFlags::empty()),
        (true, false) if is_whiteout(&ours) => {
            rustix::fs::unlinkat(into, name, AtFlags::empty())?;
            rename_entry(from, into, name, RenameFlags::NOREPLACE)
        }
        (false, false) if is_whiteout(&ours) || is_newer(&theirs, &ours) => {
            rename_entry(from, into, name, RenameFlags::empty())
        }
        (false, _) => rustix::fs::unlinkat(from, name, AtFlags::empty()),
        // A directory and a file of one name cannot be merged.
        (true, false) => Err(Errno::EXIST),
    }
}

/// Merges two directories and keeps their modes (Go's module directories are read-only).
fn merge_directories(from: &OwnedFd, into: &OwnedFd, levels: usize) {
    let modes = [from, into]
        .map(|directory| rustix::fs::fstat(directory).map(|status| status.st_mode & 0o7777));
    [from, into].iter().for_each(|directory| set_mode(directory, 0o700));
    merge_levels(from, into, levels);
    if let Ok(mode) = modes[1] {
        set_mode(into, mode);
    }
}

/// Renames an entry, also a read-only directory: a rename rewrites its `..` entry.
fn rename_entry(
    from: &OwnedFd,
    into: &OwnedFd,
    name: &CStr,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(from, name, into, name, flags) {
        Err(Errno::ACCESS) => {
            let directory = open_plain_dir(from, name)?;
            let mode = rustix::fs::fstat(&directory)?.st_mode & 0o7777;
            set_mode(&directory, 0o700);
            let renamed = rustix::fs::renameat_with(from, name, into, name, flags);
            set_mode(&directory, mode);
            renamed
        }
        other => other,
    }
}

/// Sets the mode through /proc/self/fd: `fchmod` fails on an O_PATH fd.
fn set_mode(directory: &OwnedFd, mode: u32) {
    let _ = fs::set_permissions(
        format!("/proc/self/fd/{}", directory.as_raw_fd()),
        fs::Permissions::from_mode(mode),
    );
}

fn is_directory(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Directory
}

/// True for the device node that an overlay leaves where a lower file was removed.
fn is_whiteout(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && status.st_rdev == 0
}

fn is_newer(one: &Stat, other: &Stat) -> bool {
    (one.st_mtime, one.st_mtime_nsec) > (other.st_mtime, other.st_mtime_nsec)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::CWD;

    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }

    #[test]
    fn both_layers_are_kept_and_the_newer_file_stays() {
        let base = std::env::temp_dir().join(format!("rf-merge-{}", std::process::id()));
        let (from, into) = (base.join("from"), base.join("into"));
        for (root, name, text) in [
            (&into, "both/old", "ours"),
            (&into, "both/ours", "ours"),
            (&from, "both/old", "theirs"),
            (&from, "both/theirs", "theirs"),
            (&from, "shut/in/file", "theirs"),
            (&from, "both/newer", "theirs"),
            (&into, "both/newer", "ours"),
        ] {
            write(root, name, text);
        }
        let past = fs::File::options().write(true).open(into.join("both/old")).unwrap();
        past.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let past = fs::File::options().write(true).open(from.join("both/newer")).unwrap();
        past.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        // A link to elsewhere is moved and never followed.
        write(&base, "elsewhere/file", "elsewhere");
        std::os::unix::fs::symlink(base.join("elsewhere"), from.join("link")).unwrap();
        fs::create_dir(into.join("link")).unwrap();
        fs::set_permissions(from.join("shut"), fs::Permissions::from_mode(0o555)).unwrap();
        merge(&open_plain_dir(CWD, &from).unwrap(), &open_plain_dir(CWD, &into).unwrap());
        let read = |name: &str| fs::read_to_string(into.join(name)).unwrap();
        assert_eq!(
            [read("both/old"), read("both/ours"), read("both/theirs"), read("both/newer")],
            ["theirs", "ours", "theirs", "ours"]
        );
        assert_eq!(read("shut/in/file"), "theirs");
        assert_eq!(fs::metadata(into.join("shut")).unwrap().permissions().mode() & 0o777, 0o555);
        assert!(fs::symlink_metadata(into.join("link")).unwrap().is_dir());
        assert_eq!(fs::read_to_string(base.join("elsewhere/file")).unwrap(), "elsewhere");
        fs::set_permissions(into.join("shut"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn merge_stops_at_max_depth() {
        let base = std::env::temp_dir().join(format!("rf-merge-deep-{}", std::process::id()));
        let (from, into) = (base.join("from"), base.join("into"));
        let deep = "d/".repeat(MAX_DEPTH + 8);
        write(&from, &format!("{deep}file"), "theirs");
        write(&from, &format!("{}near", "d/".repeat(MAX_DEPTH)), "theirs");
        write(&into, &format!("{deep}other"), "ours");
        merge(&open_plain_dir(CWD, &from).unwrap(), &open_plain_dir(CWD, &into).unwrap());
        assert!(into.join("d/".repeat(MAX_DEPTH)).join("near").exists());
        assert!(from.join(&deep).join("file").exists() && into.join(&deep).join("other").exists());
        fs::remove_dir_all(base).unwrap();
    }
}
