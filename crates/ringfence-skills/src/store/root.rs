//! Opens a root, and removes what a crash left in it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::SkillStoreInner;
use crate::error::StoreError;
use crate::metadata::SkillMetadata;
use crate::name::{SkillId, SkillName};
use crate::tree;

pub(super) struct StoreRoot {
    pub(super) path: PathBuf,
    pub(super) skills: OwnedFd,
    pub(super) cards: OwnedFd,
    pub(super) staging: OwnedFd,
    pub(super) trash: OwnedFd,
    pub(super) lock: File,
}

pub(super) fn open(root: &Path) -> Result<StoreRoot, StoreError> {
    let refuse = |what| StoreError::Root { path: root.to_owned(), what };
    let fail = |what| StoreError::io(what, root.display().to_string());
    if std::fs::symlink_metadata(root).is_err() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root)
            .map_err(fail("create"))?;
    }
    let found = rustix::fs::lstat(root).map_err(|errno| fail("stat")(errno.into()))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => {}
        FileType::Symlink => return Err(refuse("it is a link")),
        _ => return Err(refuse("it is not a directory")),
    }
    let path = root.canonicalize().map_err(fail("stat"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let here = rustix::fs::openat(CWD, &path, flags, Mode::empty())
        .map_err(|errno| fail("open")(errno.into()))?;
    let found = rustix::fs::fstat(&here).map_err(|errno| fail("stat")(errno.into()))?;
    if found.st_mode & 0o022 != 0 {
        return Err(refuse("other users can write to it"));
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refuse("it belongs to another user"));
    }
    let lock = tree::open(&here, "lock", OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600))
        .map_err(|errno| fail("lock")(errno.into()))?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(
        |errno| match errno {
            Errno::WOULDBLOCK => StoreError::InUse { path: path.clone() },
            errno => fail("lock")(errno.into()),
        },
    )?;
    let store_part = |name: &str| {
        tree::create_directory(&here, name, 0o700).and_then(|()| tree::open_directory(&here, name))
    };
    let store_part =
        |name: &'static str| store_part(name).map_err(StoreError::system("open", name));
    let opened = StoreRoot {
        skills: store_part("skills")?,
        cards: store_part("cards")?,
        staging: store_part("staging")?,
        trash: store_part("trash")?,
        lock: File::from(lock),
        path: path.clone(),
    };
    check_exchange(&opened).map_err(|errno| match errno {
        Errno::INVAL | Errno::NOSYS => refuse("its file system does not support RENAME_EXCHANGE"),
        Errno::XDEV => refuse("it spans more than one file system"),
        errno => fail("write to")(errno.into()),
    })?;
    rustix::fs::fsync(&here).map_err(|errno| fail("write to")(errno.into()))?;
    Ok(opened)
}

/// Tries the rename of a replacement, so that a failure is known before the first upload.
fn check_exchange(opened: &StoreRoot) -> Result<(), Errno> {
    // Not a number, so it is unique; after a crash it is removed like the rest.
    let (one, other) = ("probe-staging", "probe-trash");
    tree::create_directory(&opened.staging, one, 0o700)?;
    // No user can have that name.
    tree::create_directory(&opened.skills, "-probe", 0o700)?;
    rustix::fs::renameat_with(
        &opened.staging,
        one,
        &opened.skills,
        "-probe",
        RenameFlags::EXCHANGE,
    )?;
    rustix::fs::renameat(&opened.staging, one, &opened.trash, other)?;
    rustix::fs::unlinkat(&opened.trash, other, AtFlags::REMOVEDIR)?;
    rustix::fs::unlinkat(&opened.skills, "-probe", AtFlags::REMOVEDIR)
}

/// Deletes unfinished work, and keeps for each skill only the metadata of its current version.
pub(super) fn recover(inner: &SkillStoreInner) -> Result<(), StoreError> {
    let past = largest(inner.staging.as_fd()).max(largest(inner.trash.as_fd()));
    inner.next.store(past + 1, std::sync::atomic::Ordering::Relaxed);
    for (bin, shown) in [(inner.staging.as_fd(), "staging"), (inner.trash.as_fd(), "trash")] {
        for name in tree::names(bin).map_err(StoreError::system("list", shown))? {
            let name = name.to_string_lossy();
            tree::delete(bin, &name, || inner.unique_name())
                .map_err(StoreError::system("remove", format!("{shown}/{name}")))?;
        }
    }
    for skill in skills_with_metadata(inner)? {
        let current = match inner.open_skill(&skill) {
            Ok((_, number)) => Some(number),
            Err(StoreError::NoSkill { .. }) => None,
            Err(error) => return Err(error),
        };
        SkillMetadata::keep_only_current(&inner.cards, &skill, current)
            .map_err(StoreError::system("repair", format!("cards/{skill}")))?;
    }
    Ok(())
}

/// The largest number used as a name there.
fn largest(bin: impl AsFd) -> u64 {
    let names = tree::names(bin).unwrap_or_default();
    names.iter().filter_map(|name| name.to_str().ok()?.parse().ok()).max().unwrap_or(0)
}

/// Every skill with metadata.
fn skills_with_metadata(inner: &SkillStoreInner) -> Result<Vec<SkillId>, StoreError> {
    let children = |path: &str| -> Result<Vec<SkillName>, StoreError> {
        let names = tree::open_directory(&inner.cards, path)
            .and_then(tree::names)
            .map_err(StoreError::system("list", format!("cards/{path}")))?;
        Ok(names.iter().filter_map(|name| SkillName::try_from(name.to_str().ok()?).ok()).collect())
    };
    let mut skills = Vec::new();
    for user in children(".")? {
        for agent in children(user.as_str())? {
            for skill in children(&format!("{user}/{agent}"))? {
                skills.push(SkillId { user: user.clone(), agent: agent.clone(), skill });
            }
        }
    }
    Ok(skills)
}
