//! Replaces a protected config on the host by what a sandboxed program wrote into its lock file.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringfence_enforce::apply::{ConfigChange, STAGED_CONFIG};
use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};

use super::change::{self, Repository};
use super::known::KnownConfigs;
use super::{Entry, modules, parse};
use crate::git_sweep::{identity, led_to};
use crate::run_registry::RunRegistry;

/// Largest config that is read.
const LARGEST: u64 = 1 << 20;

/// Why a config stays as it is.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A command may not change this setting.
    Key(String),
    /// One of the two files is not written as git writes it.
    Unreadable,
    /// The file could not be replaced.
    Failed,
}

impl fmt::Display for Refusal {
    /// Behind the rule that protects the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Key(key) => {
                write!(f, ", setting {}", key.chars().take(80).collect::<String>())
            }
            Refusal::Unreadable => f.write_str(", not in the form that git writes"),
            Refusal::Failed => Ok(()),
        }
    }
}

impl<T: Into<std::io::Error>> From<T> for Refusal {
    fn from(_: T) -> Self {
        Refusal::Failed
    }
}

/// Replaces the config that `wanted` names, if the change is harmless, and removes the lock file.
/// `cover` protects the new file in the sandbox: the mount on the old one is gone with it.
pub(crate) fn replace(
    wanted: &ConfigChange,
    known: &mut KnownConfigs,
    cover: impl Fn(&AbsPath),
) -> Result<(), Refusal> {
    let path = wanted.path();
    let place = path.parent().ok_or(Refusal::Failed)?;
    let own = identity(wanted.directory()).ok_or(Refusal::Failed)?;
    let directory = led_to(&place, own).ok_or(Refusal::Failed)?;
    let name = path.name().and_then(|name| name.to_str()).ok_or(Refusal::Failed)?;
    // Read once: what was checked is what is written.
    let content = read(&File::from(wanted.lock().try_clone_to_owned()?))?;
    // One run at a time compares and writes.
    let runs = known.runs();
    let _turn = runs.as_ref().map(RunRegistry::turn).transpose()?;
    let present = Present::read(&directory, name)?;
    let (before, after) = (parse(&present.content), parse(&content));
    let (Some(before), Some(after)) = (before, after) else { return Err(Refusal::Unreadable) };
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
        return Err(Refusal::Key(key));
    }
    // Before the file is there: a run that is killed meanwhile must not leave it to be taken for
    // the user's.
    known.note(path, &after)?;
    // A program may remove the new file until it is covered: then it is put there once more.
    for _ in 0..3 {
        let placed = put(&directory, name, &content, &present)?;
        if present.is_there {
            cover(&path.clone());
        }
        let status = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if status.is_ok_and(|status| Some((status.st_dev, status.st_ino)) == identity(&placed)) {
            // Gone already if the program removed it.
            let _ = rustix::fs::unlinkat(&directory, format!("{name}.lock"), AtFlags::empty());
            return Ok(());
        }
    }
    Err(Refusal::Failed)
}

/// The file that is to be replaced.
struct Present {
    is_there: bool,
    content: Vec<u8>,
    mode: Mode,
    /// Owner and group, where the new file would have others.
    owner: Option<(Uid, Gid)>,
}

impl Present {
    fn read(directory: &OwnedFd, name: &str) -> Result<Self, Refusal> {
        let file = match open(directory, name) {
            Ok(file) => File::from(file),
            // Without a config a directory is no repository of the user.
            Err(rustix::io::Errno::NOENT) if name != "config" => {
                return Ok(Self {
                    is_there: false,
                    content: Vec::new(),
                    mode: Mode::from_raw_mode(0o644),
                    owner: None,
                });
            }
            Err(_) => return Err(Refusal::Failed),
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

fn open(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn read(file: &File) -> Result<Vec<u8>, Refusal> {
    if !file.metadata()?.is_file() {
        return Err(Refusal::Unreadable);
    }
    let mut content = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST { Err(Refusal::Unreadable) } else { Ok(content) }
}

/// Puts a file with this content in the place of the present one. The notify handler lets no
/// program write, move or link a file of the staged name.
fn put(
    directory: &OwnedFd,
    name: &str,
    content: &[u8],
    present: &Present,
) -> Result<OwnedFd, Refusal> {
    let staged = format!("{STAGED_CONFIG}{}", std::process::id());
    // Left by a run that was killed.
    let _ = rustix::fs::unlinkat(directory, staged.as_str(), AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file =
        File::from(rustix::fs::openat(directory, staged.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
    let written = write(&mut file, content, present).and_then(|()| {
        rustix::fs::renameat(directory, staged.as_str(), directory, name).map_err(Refusal::from)
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(directory, staged.as_str(), AtFlags::empty());
    }
    written.map(|()| file.into())
}

fn write(file: &mut File, content: &[u8], present: &Present) -> Result<(), Refusal> {
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
    config: &[Entry],
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
    // A command can make a tree and list it.
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

fn modules_of(tree: &AbsPath) -> Option<Vec<Entry>> {
    let tree = rustix::fs::open(
        tree.as_path(),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    parse(&read(&File::from(open(&tree, ".gitmodules").ok()?)).ok()?)
}

/// The working trees that the git directory lists in `worktrees` and that lead back to it.
fn linked_trees(git: &OwnedFd, path: &AbsPath) -> Vec<AbsPath> {
    const MANY: usize = 64;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(worktrees) = rustix::fs::openat(git, "worktrees", flags, Mode::empty()) else {
        return Vec::new();
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&worktrees) else { return Vec::new() };
    let line = |directory: &OwnedFd, name: &str| {
        String::from_utf8(read(&File::from(open(directory, name).ok()?)).ok()?).ok()
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
        .take(MANY);
    names.filter_map(|entry| tree(entry.file_name())).collect()
}
