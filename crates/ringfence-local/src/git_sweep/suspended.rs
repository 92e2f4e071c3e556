//! Programs in unfinished operations between two commands of a session. The user may continue an
//! operation on the host meanwhile, and git would run them there; the next command of the session
//! finds them again, so that `git rebase --exec` goes on inside.
//!
//! What is left when the session ends is moved to quarantine like that of any other command.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::SweepBaseline;
use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::index::{BadIndex, bad_indexes};
use super::state;

/// Largest file of state that is kept in memory.
const LARGEST: u64 = 64 << 20;

/// Unfinished operations between two commands.
#[derive(Debug, Default)]
pub(crate) struct Suspension {
    taken: Vec<Suspended>,
    /// Programs that were there when the last command began: those of the user, who may have begun
    /// a rebase on the host meanwhile.
    known: HashSet<Vec<u8>>,
}

/// A file of state that was taken away, or of which some lines were.
#[derive(Debug)]
struct Suspended {
    git: AbsPath,
    /// Name of the directory in the git directory; the empty one is the git directory itself.
    directory: &'static str,
    name: OsString,
    original: Vec<u8>,
    /// Content that was left in its place; `None` if the file was removed.
    left: Option<Vec<u8>>,
}

impl Suspension {
    /// Takes programs away that the last command left in the repositories of the user.
    pub(crate) fn begin(&mut self, ground: &SweepBaseline) {
        let known: HashSet<Vec<u8>> = ground.programs.union(&self.known).cloned().collect();
        for path in &ground.gits {
            let Some(git) = ground.roots.open(path) else { continue };
            state::each(&git, |directory, place| {
                if kind(directory, place.name) != Some(FileType::RegularFile) {
                    return;
                }
                let file = held_dir::open_file(directory, place.name);
                let Ok(original) = file.and_then(|file| held_dir::read_all(file, LARGEST)) else {
                    return;
                };
                let Some(left) = state::without_programs(&known, place, &original) else { return };
                if put(directory, place.name, left.as_deref()).is_ok() {
                    self.taken.push(Suspended {
                        git: path.clone(),
                        directory: place.directory,
                        name: place.name.into(),
                        original,
                        left,
                    });
                }
            });
            for BadIndex { name, .. } in bad_indexes(ground, &git) {
                let file = held_dir::open_file(&git, &name);
                // One that is too large to be kept in memory goes: git never writes such an index.
                let original =
                    file.and_then(|file| held_dir::read_all(file, LARGEST)).unwrap_or_default();
                if put(&git, &name, None).is_ok() {
                    self.taken.push(Suspended {
                        git: path.clone(),
                        directory: "",
                        name,
                        original,
                        left: None,
                    });
                }
            }
        }
    }

    /// Puts back what was taken away, before the next command.
    pub(crate) fn end(&mut self, ground: &SweepBaseline) {
        let gits = ground.gits.iter().filter_map(|path| ground.roots.open(path));
        self.known = gits.flat_map(|git| state::programs(&git)).collect();
        put_back(ground, std::mem::take(&mut self.taken));
    }
}

/// Puts files back that were not changed since.
fn put_back(ground: &SweepBaseline, taken: Vec<Suspended>) {
    for Suspended { git, directory, name, original, left } in taken {
        let Some(directory) = ground.roots.open(&git).and_then(|git| entered(&git, directory))
        else {
            continue;
        };
        let is_unchanged = match &left {
            Some(left) => held_dir::read(&directory, &name).is_ok_and(|now| now == *left),
            None => kind(&directory, &name).is_none(),
        };
        if is_unchanged {
            let _ = put(&directory, &name, Some(&original));
        }
    }
}

fn entered(git: &HeldDir, directory: &str) -> Option<HeldDir> {
    let name = if directory.is_empty() { "." } else { directory };
    held_dir::enter(git, name, DirAccess::Look, CrossMounts::Cross).ok()
}

/// Puts a file with this content in the place of the one that is there, or removes that. If it
/// fails, the old file is there as it was.
fn put(
    directory: &HeldDir,
    name: impl AsRef<OsStr>,
    content: Option<&[u8]>,
) -> std::io::Result<()> {
    let name = name.as_ref();
    let Some(content) = content else { return remove(directory, name) };
    let mut new = name.to_owned();
    new.push(".ringfence");
    remove(directory, &new)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = held_dir::change(directory, || {
        rustix::fs::openat(directory, &new, flags, Mode::from_raw_mode(0o644))
    })?;
    let written = fs::File::from(made).write_all(content);
    let placed = written.and_then(|()| {
        Ok(held_dir::change(directory, || rustix::fs::renameat(directory, &new, directory, name))?)
    });
    placed.inspect_err(|_| drop(remove(directory, &new)))
}

fn remove(directory: &HeldDir, name: &OsStr) -> std::io::Result<()> {
    match held_dir::change(directory, || rustix::fs::unlinkat(directory, name, AtFlags::empty())) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
