//! Repositories that git enters by itself: those that an index names.
//!
//! `git status` in a project runs git in each of them, and so what their settings say, also
//! where nobody else looks: below `vendor` or `node_modules`.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use ringfence_policy::AbsPath;

use super::git;

/// The working trees that are entered from the one around `dot_git`.
pub(super) fn of(dot_git: &AbsPath) -> Vec<AbsPath> {
    let Some(tree) = dot_git.parent().filter(|_| dot_git.name().is_some_and(|name| name == ".git")) else { return Vec::new() };
    let is_file = fs::symlink_metadata(dot_git.as_path()).is_ok_and(|metadata| metadata.is_file());
    let Some(directory) = (if is_file { git::pointed_at(dot_git) } else { Some(dot_git.clone()) }) else { return Vec::new() };
    let names = fs::read_dir(directory.as_path()).into_iter().flatten().flatten();
    let indexes =
        names.filter(|entry| is_index(entry.file_name().as_encoded_bytes()) && entry.file_type().is_ok_and(|kind| kind.is_file()));
    let links = indexes.filter_map(|entry| read(&entry.path()).ok()).flat_map(|index| gitlinks(&index));
    // Where a link is on the way, git does not enter.
    let is_straight = |path: &AbsPath| fs::canonicalize(path.as_path()).is_ok_and(|real| real == path.as_path());
    links.map(|link| tree.join(link)).filter(is_straight).collect()
}

/// An index, or the beginning of one that no repository has: a command may write it.
fn read(index: &Path) -> io::Result<Vec<u8>> {
    const LONGEST: u64 = 1 << 28;
    let mut bytes = Vec::new();
    fs::File::open(index)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file in a git directory has this name: one may hold only what another lacks.
pub fn is_index(name: &[u8]) -> bool {
    name == b"index" || name.starts_with(b"sharedindex.")
}

/// The paths of all entries of an index that are repositories.
///
/// See gitformat-index(5). What cannot be read to the end is read as far as it goes.
pub fn gitlinks(index: &[u8]) -> Vec<PathBuf> {
    // How long names of objects are is written elsewhere. What is read by the wrong length
    // are names of nothing.
    let mut found = entries(index, 20);
    found.extend(entries(index, 32));
    let is_below = |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_))) && !path.as_os_str().is_empty();
    found.retain(is_below);
    found.sort();
    found.dedup();
    found
}

fn entries(index: &[u8], hash: usize) -> Vec<PathBuf> {
    /// Times, device, inode; then the mode, owner and size.
    const MODE: usize = 24;
    const FIXED: usize = 40;
    const GITLINK: u32 = 0o160_000;
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let mut found = Vec::new();
    let (Some(b"DIRC"), Some(version), Some(count)) = (index.get(..4), number(4), number(8)) else { return found };
    let (mut at, mut name) = (12, Vec::new());
    for _ in 0..count {
        let flags_at = at + FIXED + hash;
        let (Some(mode), Some(flags)) = (number(at + MODE), index.get(flags_at..flags_at + 2)) else { break };
        let mut name_at = flags_at + if version >= 3 && flags[0] & 0x40 != 0 { 4 } else { 2 };
        if version == 4 {
            let Some((dropped, next)) = varint(index, name_at) else { break };
            name.truncate(name.len().saturating_sub(dropped));
            name_at = next;
        } else {
            name.clear();
        }
        let Some(length) = index.get(name_at..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else { break };
        name.extend_from_slice(&index[name_at..name_at + length]);
        if mode & 0o170_000 == GITLINK {
            found.push(PathBuf::from(std::ffi::OsString::from_vec(name.clone())));
        }
        let end = name_at + length;
        // Up to seven more make the length a multiple of eight.
        at = if version == 4 { end + 1 } else { at + ((end - at) / 8 + 1) * 8 };
    }
    found
}

/// A number as packs have it: seven bits a byte, and one is added for each byte that follows.
fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    /// An index with these entries; in version 4, `drop` tells what of the last name goes.
    fn index(version: u32, hash: usize, entries: &[(u32, u8, &str)]) -> Vec<u8> {
        let mut index = [b"DIRC".as_slice(), &version.to_be_bytes(), &(entries.len() as u32).to_be_bytes()].concat();
        for (mode, drop, name) in entries {
            let start = index.len();
            index.extend([7; 24]);
            index.extend(mode.to_be_bytes());
            index.resize(start + 40 + hash, 7);
            index.extend([0, name.len() as u8]);
            if version == 4 {
                index.push(*drop);
            }
            index.extend(name.bytes());
            index.push(0);
            while version != 4 && (index.len() - start) % 8 != 0 {
                index.push(0);
            }
        }
        index
    }

    #[track_caller]
    fn check(index: &[u8], expected: &[&str]) {
        let mut found = super::gitlinks(index);
        found.retain(|path| !path.to_string_lossy().contains(['\u{7}', '\u{0}']));
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn repositories_are_told_from_files() {
        for hash in [20, 32] {
            let entries = [(0o100_644, 0, "a"), (0o160_000, 0, "vendor/x"), (0o120_000, 0, "z"), (0o160_000, 0, "vendor/y")];
            check(&index(2, hash, &entries), &["vendor/x", "vendor/y"]);
            check(&index(4, hash, &[(0o100_644, 0, "vendor/a"), (0o160_000, 1, "xy"), (0o160_000, 2, "z")]), &["vendor/xy", "vendor/z"]);
        }
    }

    #[test]
    fn what_is_broken_is_read_as_far_as_it_goes() {
        let whole = index(2, 20, &[(0o160_000, 0, "x"), (0o160_000, 0, "y")]);
        check(&whole[..whole.len() - 9], &["x"]);
        check(&index(2, 20, &[(0o160_000, 0, "../out"), (0o160_000, 0, "/etc")]), &[]);
        for end in 0..whole.len() {
            super::gitlinks(&whole[..end]);
        }
        check(b"", &[]);
    }
}
