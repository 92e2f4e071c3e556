//! Packed refs: git looks up a ref in this file if the ref has no file of its own. That includes
//! `MERGE_AUTOSTASH`, which git applies at the next commit.
//!
//! In the user's git directories the file changes only by a rename, as git does it. The command may
//! have the renamed file open for writing, so the notify handler puts a checked copy in place.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::inode::inode_id;
use crate::open::{open, open_at};

use ringfence_api::{Denial, Operation};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::execute::SyscallProxy;
use super::resolve::{PathSuffix, ResolvedParent};

/// Largest packed-refs file that a command may put in place.
const MAX_SIZE: u64 = 256 << 20;

impl CreationRules {
    /// True if `place` is the packed-refs file of a git directory of the user.
    pub(super) fn is_packed_refs(&self, place: &ResolvedParent) -> bool {
        place.name.eq_ignore_ascii_case("packed-refs") && self.is_git(place.directory.as_fd())
    }

    /// True if no command may write this file in a git directory of the user: through another name
    /// it could.
    pub(super) fn is_kept_from_links(&self, host_proc: BorrowedFd<'_>, file: &OwnedFd) -> bool {
        let Ok(path) = path_of_directory(host_proc, file.as_fd()) else { return false };
        let (Some(directory), Some(name)) = (path.parent(), path.name()) else { return false };
        if !is_applied_by_git(name) && !name.eq_ignore_ascii_case("packed-refs") {
            return false;
        }
        open(directory.as_path(), OFlags::PATH | OFlags::DIRECTORY)
            .is_ok_and(|directory| self.is_git(directory.as_fd()))
    }
}

impl SyscallProxy<'_, '_> {
    /// Puts a copy of `source` in place of packed-refs, if it names only refs, and removes
    /// `source`.
    pub(super) fn rename_refs(
        &mut self,
        source: &ResolvedParent,
        target: &ResolvedParent,
        flags: RenameFlags,
    ) -> Result<NotifyReply, Errno> {
        let is_plain = (flags - RenameFlags::NOREPLACE).is_empty()
            && source.end == PathSuffix::Plain
            && target.end == PathSuffix::Plain;
        let content = read(source);
        if content.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Err(Errno::NOENT);
        }
        let content = content.ok().filter(|text| is_plain && names_only_refs(text));
        let Some(content) = content else {
            let path = path_of(self.caller, target)?;
            self.rules.refuse_since(
                self.caller,
                Operation::Rename,
                &path,
                Denial::GIT_RESERVED_NAME,
            );
            return Err(Errno::ACCESS);
        };
        let status = rustix::fs::statat(
            &source.directory,
            source.name.as_os_str(),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        let replaced = rustix::fs::statat(
            &target.directory,
            target.name.as_os_str(),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        if replaced.is_ok_and(|replaced| inode_id(&replaced) == inode_id(&status)) {
            // Two names of one file: rename(2) does nothing.
            return Ok(NotifyReply::Value(0));
        }
        let name = format!(".ringfence-refs-{:x}", self.caller.notification.id);
        let options =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy =
            rustix::fs::openat(&target.directory, name.as_str(), options, Mode::RUSR | Mode::WUSR)?;
        let placed = rustix::fs::fchmod(&copy, Mode::from_raw_mode(status.st_mode & 0o777))
            .and_then(|()| {
                write(copy, &content)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })
            .and_then(|()| {
                rustix::fs::renameat_with(
                    &target.directory,
                    name.as_str(),
                    &target.directory,
                    target.name.as_os_str(),
                    flags,
                )
            });
        if let Err(error) = placed {
            let _ = rustix::fs::unlinkat(&target.directory, name.as_str(), AtFlags::empty());
            return Err(error);
        }
        rustix::fs::unlinkat(&source.directory, source.name.as_os_str(), AtFlags::empty())
            .map(|()| NotifyReply::Value(0))
    }
}

/// Writes and syncs, as git does before it renames: otherwise a power loss could leave an empty
/// file.
fn write(file: OwnedFd, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::from(file);
    file.write_all(content)?;
    file.sync_all()
}

fn read(place: &ResolvedParent) -> std::io::Result<Vec<u8>> {
    let file = File::from(open_at(
        &place.directory,
        place.name.as_os_str(),
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK,
    )?);
    if !file.metadata()?.is_file() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        Err(std::io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(text)
    }
}

/// True if every line is a comment, a peeled tag object, or a ref by its full name.
fn names_only_refs(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).all(|line| {
        let name = line.iter().position(|byte| *byte == b' ').map(|space| &line[space + 1..]);
        matches!(line[0], b'#' | b'^') || name.is_some_and(|name| name.starts_with(b"refs/"))
    })
}

/// True if git on the host acts on a file of this name at the next commit: it copies the files that
/// a `MERGE_RR` names, and applies the changes of a `MERGE_AUTOSTASH`.
pub(super) fn is_applied_by_git(name: &OsStr) -> bool {
    ["MERGE_RR", "MERGE_AUTOSTASH"].iter().any(|applied| name.eq_ignore_ascii_case(applied))
}

#[cfg(test)]
mod tests {
    use super::names_only_refs;

    #[test]
    fn packed_refs_with_pseudo_ref_is_rejected() {
        assert!(names_only_refs(
            b"# pack-refs with: peeled \n12 refs/heads/x\n34 refs/tags/y\n^56\n"
        ));
        assert!(names_only_refs(b""));
        for text in ["12 MERGE_AUTOSTASH\n", "12 refs/heads/x\n34 HEAD", "12\tMERGE_AUTOSTASH", "x"]
        {
            assert!(!names_only_refs(text.as_bytes()), "{text}");
        }
    }
}
