//! The index of a git repository.

mod blobs;
mod cached_trees;
mod faults;
mod split;

use std::path::{Component, Path, PathBuf};

pub use blobs::{GitEntry, GitIndex, parse_blobs};
pub use cached_trees::{has_foreign_trees, without_trees};
pub use faults::{IndexFault, ObjectNames, index_fault};
pub use split::shared_index_name;

/// True for the names of index files in a git directory: a split index has a shared part.
pub fn is_index(name: &[u8]) -> bool {
    name == b"index" || name.starts_with(b"sharedindex.")
}

/// Paths of all index entries that are repositories.
///
/// See gitformat-index(5). A broken index is read as far as possible.
pub fn parse_gitlinks(index: &[u8]) -> Vec<PathBuf> {
    // The length of object names is configured elsewhere. With the wrong length, the result
    // contains only names of nothing.
    let mut found = entries(index, 20);
    found.extend(entries(index, 32));
    found.retain(|path| is_below(path));
    found.sort();
    found.dedup();
    found
}

/// An index entry: a file, and git's last stat of it, each value cut to 32 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// Path below the working tree.
    pub path: PathBuf,
    /// Modification time in seconds.
    pub modified: u32,
    /// Inode number.
    pub inode: u32,
    /// Length in bytes.
    pub size: u32,
}

/// All entries of an index.
///
/// Uses the object name length with which every name has the length its entry declares.
pub fn parse_entries(index: &[u8]) -> Vec<Tracked> {
    let mut found = Vec::new();
    for hash in [20, 32] {
        found.clear();
        let mut is_right = true;
        let end = visit_entries(index, hash, |entry| {
            is_right &= entry.has_declared_length(index);
            let path = path_of(entry.name);
            let [modified, inode, size] =
                [8, 20, 36].map(|at| read_u32(entry.fixed, at).unwrap_or_default());
            found.push(Tracked { path, modified, inode, size });
        });
        if end.is_some() && is_right && found.iter().all(|entry| is_below(&entry.path)) {
            return found;
        }
    }
    Vec::new()
}

/// A name of an index as a path.
#[cfg(unix)]
fn path_of(name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(name).into()
}

/// A name of an index as a path. Git writes names in UTF-8 on systems whose paths are text.
#[cfg(not(unix))]
fn path_of(name: &[u8]) -> PathBuf {
    String::from_utf8_lossy(name).into_owned().into()
}

fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
        && !path.as_os_str().is_empty()
}

fn entries(index: &[u8], hash: usize) -> Vec<PathBuf> {
    const GITLINK: u32 = 0o160_000;
    let mut found = Vec::new();
    visit_entries(index, hash, |entry| {
        if entry.mode() & 0o170_000 == GITLINK {
            found.push(path_of(entry.name));
        }
    });
    found
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Maximum of the name length field in the flags; longer names have this value.
const LONGEST_NAME: usize = 0xfff;

/// A raw index entry.
struct RawEntry<'a> {
    /// Offset in the index.
    at: usize,
    /// Times, device, inode, mode, owner and size.
    fixed: &'a [u8],
    /// Object name of the content.
    object: &'a [u8],
    /// Flags, with the extended ones in the lower half.
    flags: u32,
    /// Name length in the flags, at most [`LONGEST_NAME`].
    flagged_length: usize,
    name: &'a [u8],
}

impl RawEntry<'_> {
    fn mode(&self) -> u32 {
        /// Offset behind times, device and inode.
        const MODE: usize = 24;
        read_u32(self.fixed, MODE).unwrap_or_default()
    }

    /// True if flags and name agree. In version 4 git ignores the length in the flags: a name
    /// continues the previous one.
    fn has_declared_length(&self, index: &[u8]) -> bool {
        read_u32(index, 4) == Some(4) || self.flagged_length == self.name.len().min(LONGEST_NAME)
    }
}

/// An entry as far as it counts in a tree.
struct IndexEntry<'a> {
    mode: u32,
    object: &'a [u8],
    flags: u32,
    name: &'a [u8],
}

impl IndexEntry<'_> {
    /// Zero for a merged entry.
    fn stage(&self) -> u32 {
        split::stage_of(self.flags)
    }

    fn is_intent_to_add(&self) -> bool {
        self.flags & (1 << 13) != 0
    }
}

/// A named part behind the entries.
struct Extension<'a> {
    name: &'a [u8],
    content: &'a [u8],
}

/// The extensions of an index whose entries end at `end`. `None` if one is longer than the index.
fn extensions(index: &[u8], hash: usize, end: usize) -> Option<Vec<Extension<'_>>> {
    let (mut at, mut found) = (end, Vec::new());
    while let (Some(name), Some(length)) = (index.get(at..at + 4), read_u32(index, at + 4)) {
        if at + 8 + hash > index.len() {
            break;
        }
        let content = index.get(at + 8..at + 8 + length as usize)?;
        found.push(Extension { name, content });
        at += 8 + length as usize;
    }
    Some(found)
}

/// Calls `visit` for each entry; returns the end of the last one, or `None` if there are fewer than
/// declared.
fn visit_entries(index: &[u8], hash: usize, mut visit: impl FnMut(RawEntry<'_>)) -> Option<usize> {
    const FIXED: usize = 40;
    let (Some(b"DIRC"), Some(version), Some(count)) =
        (index.get(..4), read_u32(index, 4), read_u32(index, 8))
    else {
        return None;
    };
    let (mut at, mut name) = (12, Vec::new());
    for _ in 0..count {
        let flags_at = at + FIXED + hash;
        let (fixed, flags) = (index.get(at..at + FIXED)?, index.get(flags_at..flags_at + 2)?);
        let mut name_at = flags_at + if flags[0] & 0x40 != 0 { 4 } else { 2 };
        if version == 4 {
            let (dropped, next) = varint(index, name_at)?;
            name.truncate(name.len().saturating_sub(dropped));
            name_at = next;
        } else {
            name.clear();
        }
        let length = index.get(name_at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&index[name_at..name_at + length]);
        let flagged_length = usize::from(u16::from_be_bytes([flags[0], flags[1]])) & LONGEST_NAME;
        let object = index.get(at + FIXED..flags_at)?;
        let extended = if flags[0] & 0x40 == 0 {
            [0, 0]
        } else {
            [*index.get(flags_at + 2)?, *index.get(flags_at + 3)?]
        };
        let all_flags = u32::from_be_bytes([flags[0], flags[1], extended[0], extended[1]]);
        visit(RawEntry { at, fixed, object, flags: all_flags, flagged_length, name: &name });
        let end = name_at + length;
        // Up to seven padding bytes make the length a multiple of eight.
        at = if version == 4 { end + 1 } else { at + ((end - at) / 8 + 1) * 8 };
    }
    Some(at)
}

/// Variable-length number as in packs: seven bits a byte, plus one for each following byte.
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

    /// An index with these entries; in version 4, `drop` is the number of bytes cut from the last
    /// name.
    pub(super) fn index(version: u32, hash: usize, entries: &[(u32, u8, &str)]) -> Vec<u8> {
        let mut index =
            [b"DIRC".as_slice(), &version.to_be_bytes(), &(entries.len() as u32).to_be_bytes()]
                .concat();
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
        let mut found = super::parse_gitlinks(index);
        found.retain(|path| !path.to_string_lossy().contains(['\u{7}', '\u{0}']));
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn gitlinks_are_distinguished_from_files() {
        for hash in [20, 32] {
            let entries = [
                (0o100_644, 0, "a"),
                (0o160_000, 0, "vendor/x"),
                (0o120_000, 0, "z"),
                (0o160_000, 0, "vendor/y"),
            ];
            check(&index(2, hash, &entries), &["vendor/x", "vendor/y"]);
            check(
                &index(
                    4,
                    hash,
                    &[(0o100_644, 0, "vendor/a"), (0o160_000, 1, "xy"), (0o160_000, 2, "z")],
                ),
                &["vendor/xy", "vendor/z"],
            );
        }
    }

    #[test]
    fn broken_index_is_read_as_far_as_possible() {
        let whole = index(2, 20, &[(0o160_000, 0, "x"), (0o160_000, 0, "y")]);
        check(&whole[..whole.len() - 9], &["x"]);
        check(&index(2, 20, &[(0o160_000, 0, "../out"), (0o160_000, 0, "/etc")]), &[]);
        for end in 0..whole.len() {
            super::parse_gitlinks(&whole[..end]);
        }
        check(b"", &[]);
    }

    #[test]
    fn every_index_entry_is_tracked() {
        let paths = |index: &[u8]| {
            super::parse_entries(index).into_iter().map(|entry| entry.path).collect::<Vec<_>>()
        };
        for (version, hash) in [(2, 20), (3, 20), (2, 32), (3, 32)] {
            let whole = index(
                version,
                hash,
                &[(0o100_644, 0, ".env"), (0o100_755, 0, "a/b.pem"), (0o160_000, 0, "lib")],
            );
            assert_eq!(
                paths(&whole),
                [".env", "a/b.pem", "lib"].map(PathBuf::from),
                "{version} {hash}"
            );
        }
        assert_eq!(
            paths(&index(4, 20, &[(0o100_644, 0, "a/x"), (0o100_644, 1, "y")])),
            ["a/x", "a/y"].map(PathBuf::from)
        );
        assert!(paths(b"DIRC").is_empty());
    }
}
