//! Replaces a protected config on the host by the lock file that a sandboxed program wrote.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use crate::apply::{ConfigChange, STAGED_CONFIG};
use crate::inode::inode_id;
use crate::open::{open, open_at};
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};

use super::change::{self, Repository};
use super::known::KnownConfigs;
use super::{GitConfigEntry, modules, parse};
use crate::launcher::git_sweep::{identity, open_expected};
use crate::launcher::run_registry::RunRegistry;

/// Largest config that is read.
const MAX_SIZE: u64 = 1 << 20;

/// Reason why a config is not replaced.
#[derive(Debug)]
pub(crate) enum ReplaceRefusal {
    /// A command may not change this setting.
    Key(String),
    /// One of the two files is not written as git writes it.
    Unreadable,
    /// The file could not be replaced.
    Failed,
}

impl fmt::Display for ReplaceRefusal {
    /// Suffix to the rule that protects the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceRefusal::Key(key) => {
                write!(f, ", setting {}", key.chars().take(80).collect::<String>())
            }
            ReplaceRefusal::Unreadable => f.write_str(", not in the form that git writes"),
            ReplaceRefusal::Failed => Ok(()),
        }
    }
}

impl<T: Into<std::io::Error>> From<T> for ReplaceRefusal {
    fn from(_: T) -> Self {
        ReplaceRefusal::Failed
    }
}

/// Replaces the config that `wanted` names, if the change is harmless, and removes the lock file.
/// `mask` must mask the new file in the sandbox: the mask of the old file is gone with it.
pub(crate) fn replace(
    wanted: &ConfigChange,
    known: &mut KnownConfigs,
    mask: impl Fn(&AbsPath),
) -> Result<(), ReplaceRefusal> {
    let path = wanted.path();
    let place = path.parent().ok_or(ReplaceRefusal::Failed)?;
    let own = identity(wanted.directory()).ok_or(ReplaceRefusal::Failed)?;
    let directory = open_expected(&place, own).ok_or(ReplaceRefusal::Failed)?;
    let name = path.name().and_then(|name| name.to_str()).ok_or(ReplaceRefusal::Failed)?;
    // Read once: the checked content is the written content.
    let content = read(&File::from(wanted.lock().try_clone_to_owned()?))?;
    // One run at a time compares and writes.
    let runs = known.runs();
    let _turn = runs.as_ref().map(RunRegistry::lock_registry).transpose()?;
    let present = Present::read(&directory, name)?;
    let (before, after) = (parse(&present.content), parse(&content));
    let (Some(before), Some(after)) = (before, after) else {
        return Err(ReplaceRefusal::Unreadable);
    };
    let user = known.look_up(path, &before).user;
    let refused = match name {
        ".gitmodules" => modules::first_refused(&user, &before, &after),
        "config.worktree" => change::first_refused_of_worktree(&before, &after),
        _ => change::first_refused(
            &before,
            &after,
            &Repository { user, ..repository((&directory, &place), &before, known) },
        ),
    };
    if let Some(key) = refused {
        return Err(ReplaceRefusal::Key(key));
    }
    // Recorded before the file changes: if the run is killed in between, the file must not pass for
    // the user's.
    known.note(path, &after)?;
    // A program may remove the new file until it is masked: then it is written once more.
    for _ in 0..3 {
        let written_file = write_staged(&directory, name, &content, &present)?;
        if present.is_there {
            mask(&path.clone());
        }
        let status = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if status.is_ok_and(|status| Some(inode_id(&status)) == identity(&written_file)) {
            // The program may have removed it.
            let _ = rustix::fs::unlinkat(&directory, format!("{name}.lock"), AtFlags::empty());
            return Ok(());
        }
    }
    Err(ReplaceRefusal::Failed)
}

/// The file that is to be replaced.
struct Present {
    is_there: bool,
    content: Vec<u8>,
    mode: Mode,
    /// Owner and group, if the new file would have others.
    owner: Option<(Uid, Gid)>,
}

impl Present {
    fn read(directory: &OwnedFd, name: &str) -> Result<Self, ReplaceRefusal> {
        let file = match open_config(directory, name) {
            Ok(file) => File::from(file),
            // Without a config a directory is not a repository of the user.
            Err(rustix::io::Errno::NOENT) if name != "config" => {
                return Ok(Self {
                    is_there: false,
                    content: Vec::new(),
                    mode: Mode::from_raw_mode(0o644),
                    owner: None,
                });
            }
            Err(_) => return Err(ReplaceRefusal::Failed),
        };
        let status = rustix::fs::fstat(&file)?;
        let content = read(&file)?;
        let owner = Some((Uid::from_raw(status.st_uid), Gid::from_raw(status.st_gid)));
        Ok(Self {
            is_there: true,
            content,
            mode: Mode::from_raw_mode(status.st_mode & 0o777),
            owner,
        })
    }
}

fn open_config(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    open_at(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)
}

fn read(file: &File) -> Result<Vec<u8>, ReplaceRefusal> {
    if !file.metadata()?.is_file() {
        return Err(ReplaceRefusal::Unreadable);
    }
    let mut content = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SIZE { Err(ReplaceRefusal::Unreadable) } else { Ok(content) }
}

/// Replaces the present file. The notify handler lets no program write, move or link a file of the
/// staged name.
fn write_staged(
    directory: &OwnedFd,
    name: &str,
    content: &[u8],
    present: &Present,
) -> Result<OwnedFd, ReplaceRefusal> {
    let staged = format!("{STAGED_CONFIG}{}", std::process::id());
    // Left by a killed run.
    let _ = rustix::fs::unlinkat(directory, staged.as_str(), AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file =
        File::from(rustix::fs::openat(directory, staged.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
    let written = write(&mut file, content, present).and_then(|()| {
        rustix::fs::renameat(directory, staged.as_str(), directory, name)
            .map_err(ReplaceRefusal::from)
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(directory, staged.as_str(), AtFlags::empty());
    }
    written.map(|()| file.into())
}

fn write(file: &mut File, content: &[u8], present: &Present) -> Result<(), ReplaceRefusal> {
    let status = rustix::fs::fstat(&*file)?;
    if let Some((owner, group)) = present.owner
        && (status.st_uid, status.st_gid) != (owner.as_raw(), group.as_raw())
    {
        rustix::fs::fchown(&*file, Some(owner), Some(group))?;
    }
    rustix::fs::fchmod(&*file, present.mode)?;
    file.write_all(content)?;
    Ok(file.sync_all()?)
}

/// The `.gitmodules` of the working trees of a git directory.
fn repository(
    (git, path): (&OwnedFd, &AbsPath),
    config: &[GitConfigEntry],
    known: &mut KnownConfigs,
) -> Repository {
    let named = config
        .iter()
        .rev()
        .find(|entry| entry.name() == "core.worktree")
        .and_then(|entry| entry.value.as_ref());
    let own = match named {
        Some(tree) => Some(path.join(tree)),
        None => path.name().filter(|name| *name == ".git").and_then(|_| path.parent()),
    };
    // A command can create a tree and list it.
    let linked = linked_trees(git, path)
        .into_iter()
        .filter(|tree| known.modules.contains(&tree.join(".gitmodules")));
    let trees: Vec<AbsPath> = own.into_iter().chain(linked).collect();
    let mut modules = Vec::new();
    for tree in &trees {
        let present = modules_of(tree).unwrap_or_default();
        modules.extend(known.user_settings(&tree.join(".gitmodules"), &present));
        modules.push(present);
    }
    Repository {
        user: Vec::new(),
        modules,
        trees: trees.iter().map(|tree| tree.to_string_lossy().into_owned()).collect(),
    }
}

fn modules_of(tree: &AbsPath) -> Option<Vec<GitConfigEntry>> {
    let tree = open(tree.as_path(), OFlags::PATH | OFlags::DIRECTORY).ok()?;
    parse(&read(&File::from(open_config(&tree, ".gitmodules").ok()?)).ok()?)
}

/// Working trees that the git directory lists in `worktrees` and that point back to it.
fn linked_trees(git: &OwnedFd, path: &AbsPath) -> Vec<AbsPath> {
    const MAX_WORKTREES: usize = 64;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(worktrees) = rustix::fs::openat(git, "worktrees", flags, Mode::empty()) else {
        return Vec::new();
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&worktrees) else { return Vec::new() };
    let line = |directory: &OwnedFd, name: &str| {
        String::from_utf8(read(&File::from(open_config(directory, name).ok()?)).ok()?).ok()
    };
    let tree = |name: &std::ffi::CStr| {
        let own = rustix::fs::openat(worktrees.as_fd(), name, flags, Mode::empty()).ok()?;
        let tree = AbsPath::new(line(&own, "gitdir")?.trim_end())?.parent()?;
        let there = rustix::fs::open(tree.as_path(), flags, Mode::empty()).ok()?;
        let back = AbsPath::new(line(&there, ".git")?.strip_prefix("gitdir: ")?.trim_end())?;
        (back == path.join("worktrees").join(name.to_str().ok()?)).then_some(tree)
    };
    let names = entries
        .flatten()
        .filter(|entry| !entry.file_name().to_bytes().starts_with(b"."))
        .take(MAX_WORKTREES);
    names.filter_map(|entry| tree(entry.file_name())).collect()
}
