//! Refs below `refs/replace`: git reads another object in place of the one that such a ref names. A
//! file of the user's own commit would have other content at the next checkout on the host, and
//! `git status` shows no difference.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::AbsPath;

use super::GitSweep;
use super::held_dir::{self, CrossMounts, DirAccess, HeldDir};

pub(super) const REASON: &str = "makes git read other content in place of the user's own";
/// Longer packed refs are not searched at the start of a run, and so not at its end.
const MAX_SIZE: u64 = 8 << 20;
const PREFIX: &[u8] = b" refs/replace/";

/// Key of a replacement in the baseline.
fn key(name: &[u8]) -> Vec<u8> {
    [b"refs/replace/", name].concat()
}

/// Replacements that exist.
pub(super) fn find_replacements(git: &HeldDir) -> Vec<Vec<u8>> {
    let loose =
        directory(git).and_then(|directory| held_dir::entries(&directory).ok()).unwrap_or_default();
    let packed = held_dir::open_file(git, "packed-refs")
        .and_then(|file| held_dir::read_all(file, MAX_SIZE))
        .unwrap_or_default();
    let packed = packed.split_inclusive(|byte| *byte == b'\n').filter_map(replaced).map(key);
    loose.iter().map(|(name, _)| key(name.as_bytes())).chain(packed).collect()
}

/// Removes lines of packed refs that replace objects and are new; returns their names.
pub(super) fn take_new(lines: &mut Vec<&[u8]>, before: &HashSet<Vec<u8>>) -> Vec<String> {
    if lines.iter().map(|line| line.len() as u64).sum::<u64>() > MAX_SIZE {
        return Vec::new();
    }
    let mut taken = Vec::new();
    lines.retain(|line| match replaced(line).filter(|name| !before.contains(&key(name))) {
        Some(name) => {
            taken.push(String::from_utf8_lossy(name).into_owned());
            false
        }
        None => true,
    });
    taken
}

/// The object that a line of packed refs replaces.
fn replaced(line: &[u8]) -> Option<&[u8]> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    line[space..].strip_prefix(PREFIX).map(<[u8]>::trim_ascii_end)
}

fn directory(git: &HeldDir) -> Option<HeldDir> {
    let refs = held_dir::enter(git, "refs", DirAccess::Look, CrossMounts::Cross).ok()?;
    held_dir::enter(&refs, "replace", DirAccess::Look, CrossMounts::Cross).ok()
}

impl GitSweep<'_> {
    /// Moves away new replacements in a repository of the user.
    pub(super) fn sweep_replacements(&mut self, git: &HeldDir, path: &AbsPath) {
        let Some(directory) = directory(git).filter(|_| self.existed_before(git)) else { return };
        let at = path.join("refs/replace");
        for (name, _) in held_dir::entries(&directory).unwrap_or_default() {
            if !self.baseline.programs.contains(&key(name.as_bytes())) {
                self.quarantine_entry(&directory, &name, &at.join(&name), REASON);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_replacements_are_taken_out_of_packed_refs() {
        let text: &[&[u8]] = &[
            b"# pack-refs\n",
            b"aa refs/heads/main\n",
            b"bb refs/replace/11\n",
            b"cc refs/replace/22\n",
            b"dd refs/tags/replace\n",
        ];
        let mut lines = text.to_vec();
        let before = HashSet::from([key(b"11")]);
        assert_eq!(take_new(&mut lines, &before), ["22"]);
        assert_eq!(lines, [text[0], text[1], text[2], text[4]]);
    }
}
