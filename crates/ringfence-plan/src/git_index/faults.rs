//! Paths in a git index.
//!
//! Git checks a path when it adds it to the index, and not when it reads the index (read-cache.c,
//! `verify_path`). With an index that a command wrote, `git restore` on the host would write hooks
//! and files outside, `git commit -a` would read them, and `git status` would enter repositories
//! anywhere.

use super::{extensions, read_u32, visit_entries};

/// Reason why git must not read an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexFault {
    /// An entry leads out of the working tree or into the git directory.
    Path(String),
    /// Git does not write such a file.
    Malformed,
}

/// Length of object names in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectNames {
    /// The default of git.
    Sha1,
    /// The configuration mentions SHA-256: an index is checked with both lengths.
    Either,
}

/// Finds an entry that git itself would not have added.
pub fn index_fault(index: &[u8], names: ObjectNames) -> Option<IndexFault> {
    let faults: Vec<Option<IndexFault>> =
        lengths(names).iter().map(|hash| fault(index, *hash)).collect();
    // With the wrong length it is malformed.
    let path = faults.iter().flatten().find(|fault| matches!(fault, IndexFault::Path(_)));
    let is_right = faults.iter().any(Option::is_none);
    path.cloned().or_else(|| (!is_right).then_some(IndexFault::Malformed))
}

/// Lengths of object names with which git can read the index.
pub(super) fn right_lengths(index: &[u8], names: ObjectNames) -> Vec<usize> {
    lengths(names).iter().copied().filter(|hash| fault(index, *hash).is_none()).collect()
}

fn lengths(names: ObjectNames) -> &'static [usize] {
    if names == ObjectNames::Sha1 { &[20] } else { &[20, 32] }
}

fn fault(index: &[u8], hash: usize) -> Option<IndexFault> {
    const SPARSE_DIRECTORY: u32 = 0o040_000;
    if !matches!(read_u32(index, 4), Some(2..=4)) {
        return Some(IndexFault::Malformed);
    }
    let (mut bad, mut is_right, mut starts) = (None, true, Vec::new());
    let end = visit_entries(index, hash, |entry| {
        starts.push(entry.at);
        is_right &= entry.has_declared_length(index);
        let is_sparse = entry.mode() & 0o170_000 == SPARSE_DIRECTORY;
        let name = if is_sparse {
            entry.name.strip_suffix(b"/").unwrap_or(entry.name)
        } else {
            entry.name
        };
        // An entry of a split index that refers to the shared index has no name.
        if !entry.name.is_empty()
            && bad.is_none()
            && !name.split(|byte| *byte == b'/').all(is_plain)
        {
            bad = Some(String::from_utf8_lossy(entry.name).into_owned());
        }
    });
    match (end, bad) {
        (None, _) => Some(IndexFault::Malformed),
        _ if !is_right => Some(IndexFault::Malformed),
        (_, Some(path)) => Some(IndexFault::Path(path)),
        (Some(end), None) => {
            (!has_plain_offsets(index, hash, end, &starts)).then_some(IndexFault::Malformed)
        }
    }
}

/// True if git would add this name: any but the empty one, `.`, `..` and the spellings of `.git` on
/// file systems that ignore case, and blanks and dots at the end.
fn is_plain(name: &[u8]) -> bool {
    let stem = name.split(|byte| *byte == b':').next().unwrap_or(name);
    let trimmed = stem
        .iter()
        .rposition(|byte| !matches!(byte, b' ' | b'.'))
        .map_or(&stem[..0], |last| &stem[..=last]);
    let is_git = trimmed.eq_ignore_ascii_case(b".git") || trimmed.eq_ignore_ascii_case(b"git~1");
    !name.is_empty() && name != b"." && name != b".." && !is_git
}

/// True if the offset extensions (`EOIE`, `IEOT`) point to the checked entries: with several
/// threads, git reads the entries of a large index from these offsets.
fn has_plain_offsets(index: &[u8], hash: usize, end: usize, starts: &[usize]) -> bool {
    // The last extension, before the checksum of the whole.
    let size = 8 + 4 + hash;
    let last = index.len().checked_sub(hash + size).and_then(|at| index.get(at..at + size));
    if last.is_some_and(|last| {
        last.starts_with(b"EOIE") && read_u32(last, 8) != u32::try_from(end).ok()
    }) {
        return false;
    }
    extensions(index, hash, end).is_some_and(|found| {
        found
            .iter()
            .filter(|extension| extension.name == b"IEOT")
            .all(|extension| are_blocks(extension.content, starts))
    })
}

/// True if the offsets of entry blocks are starts of entries.
fn are_blocks(table: &[u8], starts: &[usize]) -> bool {
    let mut first = 0;
    let blocks = table.get(4..).unwrap_or_default();
    let are_right = blocks.chunks(8).all(|block| {
        let (Some(offset), Some(count)) = (read_u32(block, 0), read_u32(block, 4)) else {
            return false;
        };
        let is_right = starts.get(first).is_some_and(|start| *start == offset as usize);
        first += count as usize;
        is_right
    });
    are_right && first == starts.len()
}

#[cfg(test)]
mod tests {
    use super::super::tests::index;
    use super::*;

    const FILE: u32 = 0o100_644;

    fn path_of(bytes: &[u8]) -> Option<String> {
        match index_fault(bytes, ObjectNames::Sha1) {
            Some(IndexFault::Path(path)) => Some(path),
            Some(IndexFault::Malformed) => Some("malformed".to_owned()),
            None => None,
        }
    }

    #[test]
    fn paths_that_git_would_not_add_are_faults() {
        for bad in [
            "../x",
            "a/../b",
            "./a",
            "/etc/x",
            ".git/hooks/x",
            "a/.GIT/config",
            "a//b",
            "a/",
            ".git",
            "git~1/x",
            ".git /x",
            ".git::$I/x",
        ] {
            assert_eq!(
                path_of(&index(2, 20, &[(FILE, 0, "a"), (FILE, 0, bad)])),
                Some(bad.to_owned())
            );
            assert_eq!(path_of(&index(4, 20, &[(FILE, 0, bad)])), Some(bad.to_owned()));
            let sha256 = index(2, 32, &[(FILE, 0, "a"), (0o160_000, 0, bad)]);
            assert_eq!(
                index_fault(&sha256, ObjectNames::Either),
                Some(IndexFault::Path(bad.to_owned()))
            );
        }
        for good in
            ["a", ".gitignore", "a/.gitmodules", "...", "a..b/c", ".github/x", "x.git/y", "git~2"]
        {
            assert_eq!(path_of(&index(2, 20, &[(FILE, 0, "A"), (FILE, 0, good)])), None, "{good}");
        }
        assert_eq!(path_of(&index(3, 20, &[(0o040_000, 0, "sparse/"), (FILE, 0, "")])), None);
        assert_eq!(index_fault(&index(2, 32, &[(FILE, 0, "a")]), ObjectNames::Either), None);
    }

    #[test]
    fn ambiguous_index_is_malformed() {
        let mut whole = index(2, 20, &[(FILE, 0, "abc/d")]);
        for end in 0..whole.len() {
            assert!(
                index_fault(&whole[..end], ObjectNames::Either).is_some() || end + 8 > whole.len(),
                "{end}"
            );
        }
        // The flags have another length than the name.
        whole[12 + 40 + 20 + 1] = 3;
        assert_eq!(path_of(&whole).as_deref(), Some("malformed"));
        let mut other = index(2, 20, &[(FILE, 0, "a"), (FILE, 0, "b")]);
        other[7] = 5;
        assert_eq!(path_of(&other).as_deref(), Some("malformed"));
    }

    #[test]
    fn block_offsets_must_match_the_entries() {
        let entries = index(2, 20, &[(FILE, 0, "a"), (FILE, 0, "b")]);
        let with = |offsets: [u32; 2], end: u32| {
            let table = [
                &1_u32.to_be_bytes()[..],
                &offsets[0].to_be_bytes(),
                &[0, 0, 0, 1],
                &offsets[1].to_be_bytes(),
                &[0, 0, 0, 1],
            ]
            .concat();
            let mut bytes = [
                &entries[..],
                b"IEOT",
                &(table.len() as u32).to_be_bytes(),
                &table,
                b"EOIE",
                &[0, 0, 0, 24],
            ]
            .concat();
            bytes.extend(end.to_be_bytes());
            bytes.extend([0; 20 + 20]);
            bytes
        };
        let (second, end) = (12 + (entries.len() as u32 - 12) / 2, entries.len() as u32);
        assert_eq!(path_of(&with([12, second], end)), None);
        assert!(
            path_of(&with([12, second + 8], end)).is_some()
                && path_of(&with([12, second], end + 8)).is_some()
        );
    }
}
