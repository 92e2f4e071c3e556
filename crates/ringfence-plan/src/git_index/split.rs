//! Split indexes: most entries are in a shared file, and the index changes them (`link`,
//! split-index.c).

use std::collections::BTreeMap;

use super::{Extension, ObjectNames, extensions, faults, read_u32, visit_entries};

/// File name of the entries that a split index shares; `None` for an index of one file.
pub fn shared_index_name(index: &[u8], names: ObjectNames) -> Option<String> {
    faults::right_lengths(index, names).into_iter().find_map(|hash| {
        let end = visit_entries(index, hash, |_| ())?;
        let split = SplitIndex::parse(&extensions(index, hash, end)?, hash)??;
        let hex: String = split.base.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("sharedindex.{hex}"))
    })
}

/// Content of the extension `link`.
pub(super) struct SplitIndex {
    /// Checksum of the shared index.
    base: Vec<u8>,
    deleted: Vec<usize>,
    replaced: Vec<usize>,
}

impl SplitIndex {
    /// `None` if it cannot be parsed, `Some(None)` for an index of one file.
    pub(super) fn parse(found: &[Extension<'_>], hash: usize) -> Option<Option<Self>> {
        let mut links = found.iter().filter(|extension| extension.name == b"link");
        let (link, second) = (links.next(), links.next());
        let Some(link) = link else { return Some(None) };
        if second.is_some() {
            return None;
        }
        let base = link.content.get(..hash)?.to_vec();
        let rest = &link.content[hash..];
        if base.iter().all(|byte| *byte == 0) {
            return Some(None);
        }
        if rest.is_empty() {
            return Some(Some(Self { base, deleted: Vec::new(), replaced: Vec::new() }));
        }
        let (deleted, length) = bits(rest)?;
        let (replaced, second) = bits(&rest[length..])?;
        (length + second == rest.len()).then_some(Some(Self { base, deleted, replaced }))
    }
}

/// Positions of the bits that are set in a compressed bitmap (EWAH), and its length in bytes.
fn bits(bytes: &[u8]) -> Option<(Vec<usize>, usize)> {
    /// More entries than the largest index that is read.
    const MAX_BITS: u64 = 16 << 20;
    let words = read_u32(bytes, 4)? as usize;
    let end = 8 + words.checked_mul(8)?;
    // The position of the last run word follows.
    bytes.get(end..end + 4)?;
    let mut words = bytes[8..end]
        .chunks_exact(8)
        .map(|word| word.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)));
    let (mut found, mut at) = (Vec::new(), 0_u64);
    while let Some(run) = words.next() {
        let (is_set, length, literals) = (run & 1 == 1, run >> 1 & 0xffff_ffff, run >> 33);
        let after = at + length * 64;
        if after + literals * 64 > MAX_BITS {
            return None;
        }
        if is_set {
            found.extend((at..after).map(|bit| bit as usize));
        }
        at = after;
        for _ in 0..literals {
            let word = words.next()?;
            found.extend((0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| (at + bit) as usize));
            at += 64;
        }
    }
    Some((found, end + 4))
}

/// Name and stage.
type EntryKey = (Vec<u8>, u32);

/// An entry without its name.
#[derive(Clone)]
pub(super) struct EntryContent {
    pub(super) mode: u32,
    pub(super) object: Vec<u8>,
    pub(super) flags: u32,
}

/// Stage of an entry with these flags.
pub(super) fn stage_of(flags: u32) -> u32 {
    flags >> 28 & 3
}

/// The entries that git makes of both files.
pub(super) fn merged_entries(
    index: &[u8],
    shared: &[u8],
    split: &SplitIndex,
    max_names: usize,
) -> Option<BTreeMap<EntryKey, EntryContent>> {
    let hash = split.base.len();
    if !shared.ends_with(&split.base) {
        return None;
    }
    let own = owned_entries(index, hash, max_names)?;
    let mut base: Vec<Option<(Vec<u8>, EntryContent)>> =
        owned_entries(shared, hash, max_names)?.into_iter().map(Some).collect();
    let mut own = own.into_iter();
    for at in &split.replaced {
        let (name, content) = own.next()?;
        let (_, replaced) = base.get_mut(*at)?.as_mut().filter(|_| name.is_empty())?;
        *replaced = content;
    }
    for at in &split.deleted {
        *base.get_mut(*at)? = None;
    }
    let mut merged = BTreeMap::new();
    for (name, content) in base.into_iter().flatten().chain(own) {
        if name.is_empty() {
            return None;
        }
        // A merged entry replaces unmerged ones.
        if stage_of(content.flags) == 0 {
            for stage in 1..=3 {
                merged.remove(&(name.clone(), stage));
            }
        }
        merged.insert((name, stage_of(content.flags)), content);
    }
    Some(merged)
}

fn owned_entries(
    index: &[u8],
    hash: usize,
    max_names: usize,
) -> Option<Vec<(Vec<u8>, EntryContent)>> {
    let (mut found, mut names) = (Vec::new(), 0_usize);
    visit_entries(index, hash, |entry| {
        names = names.saturating_add(entry.name.len());
        if names <= max_names {
            let (mode, flags) = (entry.mode(), entry.flags);
            let content = EntryContent { mode, object: entry.object.to_vec(), flags };
            found.push((entry.name.to_vec(), content));
        }
    })?;
    (names <= max_names).then_some(found)
}
