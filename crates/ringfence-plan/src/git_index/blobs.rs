//! Contents that an index names.

use std::collections::BTreeMap;

use super::visit_entries;

/// Index entries by path: regular files and links, without unmerged and intent-to-add ones.
pub type GitIndex = BTreeMap<Vec<u8>, GitEntry>;

/// A file or symbolic link in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitEntry {
    /// True for a symbolic link, whose blob is its target.
    pub is_link: bool,
    /// Object name of its blob.
    pub object: Vec<u8>,
}

/// The blobs of an index. `None` if it cannot be parsed to its end, or is split in two files.
pub fn parse_blobs(bytes: &[u8]) -> Option<GitIndex> {
    [20, 32].into_iter().find_map(|length| parse_with(bytes, length))
}

fn parse_with(bytes: &[u8], object_length: usize) -> Option<GitIndex> {
    const STAGE: u32 = 0x3000 << 16;
    const INTENT_TO_ADD: u32 = 1 << 13;
    let (mut entries, mut is_whole) = (GitIndex::new(), true);
    visit_entries(bytes, object_length, |entry| {
        is_whole &= entry.has_declared_length(bytes) && !entry.name.is_empty();
        let is_link = match entry.mode() & 0o170_000 {
            0o100_000 => false,
            0o120_000 => true,
            _ => return,
        };
        if entry.flags & (STAGE | INTENT_TO_ADD) == 0 {
            entries
                .insert(entry.name.to_vec(), GitEntry { is_link, object: entry.object.to_vec() });
        }
    })?;
    is_whole.then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::super::tests::index;
    use super::parse_blobs;

    #[test]
    fn only_merged_blobs_are_tracked() {
        let mut whole =
            index(3, 20, &[(0o100_644, 0, "a.pem"), (0o120_000, 0, "b.key"), (0o160_000, 0, "c")]);
        let names = |bytes: &[u8]| {
            parse_blobs(bytes).map(|index| {
                index.into_keys().map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!(names(&whole), Some(vec!["a.pem".to_owned(), "b.key".to_owned()]));
        // The first entry gets stage 2.
        whole[12 + 40 + 20] |= 0x20;
        assert_eq!(names(&whole), Some(vec!["b.key".to_owned()]));
        assert_eq!(names(&whole[..whole.len() - 9]), None);
        assert_eq!(names(&index(2, 20, &[(0o100_644, 0, "")])), None);
    }
}
