//! Programs in unfinished operations between two commands of a session. The user may continue an
//! operation on the host in between, and git would run them there. They are taken away and put back
//! before the next command, so that `git rebase --exec` continues inside.
//!
//! The rest at the end of the session is moved to quarantine like that of any other command.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use ringfence_policy::AbsPath;
use rustix::fs::FileType;

use super::SweepBaseline;
use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::index::{self, BadIndex, bad_indexes};
use super::state;

/// Largest file of state that is kept in memory.
const MAX_SIZE: u64 = 64 << 20;

/// Unfinished operations between two commands.
#[derive(Debug, Default)]
pub(crate) struct Suspension {
    taken: Vec<Suspended>,
    /// Programs that existed when the last command began: those of the user, who may have begun a
    /// rebase on the host.
    known: HashSet<Vec<u8>>,
}

/// A file of state that was taken away, in whole or in part.
#[derive(Debug)]
struct Suspended {
    git: AbsPath,
    /// Directory in the git directory; empty for the git directory itself.
    directory: &'static str,
    name: OsString,
    original: Vec<u8>,
    /// Content left in its place; `None` if the file was removed.
    left: Option<Vec<u8>>,
}

impl Suspension {
    /// Takes programs away that the last command left in the repositories of the user.
    pub(crate) fn begin(&mut self, baseline: &SweepBaseline) {
        let known: HashSet<Vec<u8>> = baseline.programs.union(&self.known).cloned().collect();
        for path in &baseline.gits {
            let Some(git) = baseline.roots.open(path) else { continue };
            state::for_each_state_file(&git, |directory, state_file| {
                if kind(directory, state_file.name) != Some(FileType::RegularFile) {
                    return;
                }
                let file = held_dir::open_file(directory, state_file.name);
                let Ok(original) = file.and_then(|file| held_dir::read_all(file, MAX_SIZE)) else {
                    return;
                };
                let Some(left) = state::without_programs(&known, state_file, &original) else {
                    return;
                };
                if replace_file(directory, state_file.name, left.as_deref()).is_ok() {
                    self.taken.push(Suspended {
                        git: path.clone(),
                        directory: state_file.directory,
                        name: state_file.name.into(),
                        original,
                        left,
                    });
                }
            });
            for BadIndex { name, kept, .. } in bad_indexes(baseline, &git) {
                let file = held_dir::open_file(&git, &name);
                // One too large for memory is removed: git never writes such an index.
                let original = file
                    .and_then(|file| held_dir::read_all(file, index::MAX_SIZE))
                    .unwrap_or_default();
                if replace_file(&git, &name, kept.as_deref()).is_ok() {
                    self.taken.push(Suspended {
                        git: path.clone(),
                        directory: "",
                        name,
                        original,
                        left: kept,
                    });
                }
            }
        }
    }

    /// Puts the files back before the next command.
    pub(crate) fn end(&mut self, baseline: &SweepBaseline) {
        let gits = baseline.gits.iter().filter_map(|path| baseline.roots.open(path));
        self.known = gits.flat_map(|git| state::programs(&git)).collect();
        restore(baseline, std::mem::take(&mut self.taken));
    }
}

/// Puts files back that did not change since.
fn restore(baseline: &SweepBaseline, taken: Vec<Suspended>) {
    for Suspended { git, directory, name, original, left } in taken {
        let Some(directory) =
            baseline.roots.open(&git).and_then(|git| open_state_dir(&git, directory))
        else {
            continue;
        };
        let is_unchanged = match &left {
            Some(left) => held_dir::open_file(&directory, &name)
                .and_then(|file| held_dir::read_all(file, index::MAX_SIZE))
                .is_ok_and(|now| now == *left),
            None => kind(&directory, &name).is_none(),
        };
        if is_unchanged {
            let _ = replace_file(&directory, &name, Some(&original));
        }
    }
}

fn open_state_dir(git: &HeldDir, directory: &str) -> Option<HeldDir> {
    let name = if directory.is_empty() { "." } else { directory };
    held_dir::enter(git, name, DirAccess::Look, CrossMounts::Cross).ok()
}

/// Replaces a file by this content, or removes it. On failure the old file is unchanged.
fn replace_file(
    directory: &HeldDir,
    name: impl AsRef<OsStr>,
    content: Option<&[u8]>,
) -> std::io::Result<()> {
    let name = name.as_ref();
    let Some(content) = content else { return held_dir::remove_file(directory, name) };
    let new = held_dir::write_beside(directory, name, content)?;
    let renamed = held_dir::with_write_permission(directory, || {
        rustix::fs::renameat(directory, &new, directory, name)
    });
    Ok(renamed.inspect_err(|_| drop(held_dir::remove_file(directory, &new)))?)
}
