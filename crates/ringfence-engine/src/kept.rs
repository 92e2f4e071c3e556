//! Whether a policy still says what it said.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ringfence_policy::{AbsPath, Flags};

use crate::files::{self, Files};
use crate::{EngineError, Resolved, Surroundings, resolve_in};

/// By what a file is known to be the same: device, inode, size and times; `None` if it is not there.
pub(crate) type Stamp = Option<[i64; 7]>;

pub(crate) fn stamp(file: &AbsPath) -> Stamp {
    let found = fs::metadata(file.as_path()).ok()?;
    let identity = [found.dev() as i64, found.ino() as i64, found.len() as i64];
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let mut stamp = [0; 7];
    stamp[..3].copy_from_slice(&identity);
    stamp[3..].copy_from_slice(&times);
    Some(stamp)
}

fn stamped(files: Vec<AbsPath>) -> Vec<(AbsPath, Stamp)> {
    files.into_iter().map(|file| (file.clone(), stamp(&file))).collect()
}

/// The files that count, and those that would if they were there.
pub(crate) fn stamps(files: &Files, resolved: &Resolved) -> Vec<(AbsPath, Stamp)> {
    let mut all = files::places(files, &resolved.surroundings.facts);
    all.extend(resolved.files.iter().cloned());
    all.sort();
    all.dedup();
    stamped(all)
}

/// A policy for the same surroundings again and again, which is read anew when one of its files has
/// become another.
#[derive(Debug)]
pub struct Kept {
    resolved: Resolved,
    seen: Vec<(AbsPath, Stamp)>,
}

impl Kept {
    /// Resolves it. There is nothing to keep of one whose files change meanwhile, or name others.
    pub fn resolve(surroundings: Surroundings, flags: &Flags, files: &Files) -> Result<(Resolved, Option<Self>), EngineError> {
        let seen = stamped(files::places(files, &surroundings.facts));
        let resolved = resolve_in(surroundings, flags, files)?;
        let is_known = |file: &AbsPath| seen.iter().any(|(known, _)| known == file);
        let is_kept = files.agent.is_none() && resolved.files.iter().all(is_known);
        let kept = is_kept.then(|| Self { resolved: resolved.clone(), seen }).filter(|kept| kept.current().is_some());
        Ok((resolved, kept))
    }

    /// What it says, if none of its files is another by now.
    pub fn current(&self) -> Option<&Resolved> {
        self.seen.iter().all(|(file, seen)| stamp(file) == *seen).then_some(&self.resolved)
    }
}
