//! Refs below `refs/replace`: git reads another object in the place of the one they are named for.
//! A file of the user's own commit would have another content at the next checkout on the host, and
//! `git status` shows no difference.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::AbsPath;

use super::GitSweep;
use super::held_dir::{self, CrossMounts, DirAccess, HeldDir};

pub(super) const REASON: &str = "makes git read other content in the place of the user's own";
/// Packed refs that are longer are not searched at the start of a run, and so not at its end.
const LONGEST: u64 = 8 << 20;
const PREFIX: &[u8] = b" refs/replace/";

/// A replacement as the list of what was there before has it.
fn key(name: &[u8]) -> Vec<u8> {
    [b"refs/replace/", name].concat()
}

/// Replacements that are there.
pub(super) fn known(git: &HeldDir) -> Vec<Vec<u8>> {
    let loose =
        directory(git).and_then(|directory| held_dir::entries(&directory).ok()).unwrap_or_default();
    let packed = held_dir::open_file(git, "packed-refs")
        .and_then(|file| held_dir::read_all(file, LONGEST))
        .unwrap_or_default();
    let packed = packed.split_inclusive(|byte| *byte == b'\n').filter_map(replaced).map(key);
    loose.iter().map(|(name, _)| key(name.as_bytes())).chain(packed).collect()
}

/// Takes lines of packed refs out that replace objects and were not there before; answers their
/// names.
pub(super) fn take_new(lines: &mut Vec<&[u8]>, before: &HashSet<Vec<u8>>) -> Vec<String> {
    if lines.iter().map(|line| line.len() as u64).sum::<u64>() > LONGEST {
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
    /// Moves away replacements in a repository of the user that were not there before.
    pub(super) fn replacements(&mut self, git: &HeldDir, path: &AbsPath) {
        let Some(directory) = directory(git).filter(|_| self.was_before(git)) else { return };
        let at = path.join("refs/replace");
        for (name, _) in held_dir::entries(&directory).unwrap_or_default() {
            if !self.ground.programs.contains(&key(name.as_bytes())) {
                self.move_away(&directory, &name, &at.join(&name), REASON);
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
