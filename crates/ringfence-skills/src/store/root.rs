//! Opening a root, and what a crash has left in it.

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
            .map_err(fail("make"))?;
    }
    let found = rustix::fs::lstat(root).map_err(|errno| fail("look at")(errno.into()))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => {}
        FileType::Symlink => return Err(refuse("it is a link")),
        _ => return Err(refuse("it is no directory")),
    }
    let path = root.canonicalize().map_err(fail("look at"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let here = rustix::fs::openat(CWD, &path, flags, Mode::empty())
        .map_err(|errno| fail("open")(errno.into()))?;
    let found = rustix::fs::fstat(&here).map_err(|errno| fail("look at")(errno.into()))?;
    if found.st_mode & 0o022 != 0 {
        return Err(refuse("others may write to it"));
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refuse("it belongs to somebody else"));
    }
    let lock = tree::open(&here, "lock", OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600))
        .map_err(|errno| fail("lock")(errno.into()))?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(
        |errno| match errno {
            Errno::WOULDBLOCK => StoreError::InUse { path: path.clone() },
            errno => fail("lock")(errno.into()),
        },
    )?;
    let part =
        |name: &str| tree::make(&here, name, 0o700).and_then(|()| tree::directory(&here, name));
    let part = |name: &'static str| part(name).map_err(StoreError::system("open", name));
    let opened = StoreRoot {
        skills: part("skills")?,
        cards: part("cards")?,
        staging: part("staging")?,
        trash: part("trash")?,
        lock: File::from(lock),
        path: path.clone(),
    };
    check_exchange(&opened).map_err(|errno| match errno {
        Errno::INVAL | Errno::NOSYS => {
            refuse("two directories cannot change places on its file system")
        }
        Errno::XDEV => refuse("it lies on more than one file system"),
        errno => fail("write to")(errno.into()),
    })?;
    rustix::fs::fsync(&here).map_err(|errno| fail("write to")(errno.into()))?;
    Ok(opened)
}

/// Tries what a replacement will do: that it cannot be done is to be known before the first upload.
fn check_exchange(opened: &StoreRoot) -> Result<(), Errno> {
    // No number, so it is no name of anything else; left by a crash, it is cleared away like that.
    let (one, other) = ("probe-staging", "probe-trash");
    tree::make(&opened.staging, one, 0o700)?;
    // No user can have that name.
    tree::make(&opened.skills, "-probe", 0o700)?;
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

/// Deletes what was on its way, and lets each skill have the card of the version that stands.
pub(super) fn recover(inner: &SkillStoreInner) -> Result<(), StoreError> {
    let past = largest(inner.staging.as_fd()).max(largest(inner.trash.as_fd()));
    inner.next.store(past + 1, std::sync::atomic::Ordering::Relaxed);
    for (bin, shown) in [(inner.staging.as_fd(), "staging"), (inner.trash.as_fd(), "trash")] {
        for name in tree::names(bin).map_err(StoreError::system("list", shown))? {
            let name = name.to_string_lossy();
            tree::delete(bin, &name, || inner.fresh())
                .map_err(StoreError::system("clear away", format!("{shown}/{name}")))?;
        }
    }
    for skill in carded(inner)? {
        let stands = match inner.enter(&skill) {
            Ok((_, number)) => Some(number),
            Err(StoreError::NoSkill { .. }) => None,
            Err(error) => return Err(error),
        };
        SkillMetadata::settle(&inner.cards, &skill, stands)
            .map_err(StoreError::system("settle", format!("cards/{skill}")))?;
    }
    Ok(())
}

/// The largest number that something there has for a name.
fn largest(bin: impl AsFd) -> u64 {
    let names = tree::names(bin).unwrap_or_default();
    names.iter().filter_map(|name| name.to_str().ok()?.parse().ok()).max().unwrap_or(0)
}

/// Every skill that has a card.
fn carded(inner: &SkillStoreInner) -> Result<Vec<SkillId>, StoreError> {
    let children = |path: &str| -> Result<Vec<SkillName>, StoreError> {
        let names = tree::directory(&inner.cards, path)
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
