//! Tree objects that an index names for its directories (`TREE`, cache-tree.c).
//!
//! `git commit` and `git stash` take the tree of a valid node without a look at the entries below
//! it, and `git status` and `git diff` show only entries. With a forged node they would write files
//! of a command into a commit of the user.

use std::collections::HashMap;

use sha1::{Digest, Sha1};
use sha2::Sha256;

use super::split::{SplitIndex, merged_entries};
use super::{IndexEntry, ObjectNames, extensions, faults, visit_entries};

/// Sum of the name lengths of the entries that are compared. The largest known repositories have a
/// tenth of that.
const MAX_NAMES: usize = 256 << 20;

/// True if a directory's tree is not the one that its entries make.
///
/// `shared`: the file that [`shared_index_name`](super::shared_index_name) names. An index without
/// trees has none that are wrong. The index has no [`IndexFault`](super::IndexFault).
pub fn has_foreign_trees(index: &[u8], shared: Option<&[u8]>, names: ObjectNames) -> bool {
    faults::right_lengths(index, names)
        .into_iter()
        .any(|hash| are_right(index, shared, hash).is_none())
}

/// The index without its trees, which git computes again. `None` if it can be read in two ways.
pub fn without_trees(index: &[u8], names: ObjectNames) -> Option<Vec<u8>> {
    let [hash] = faults::right_lengths(index, names)[..] else { return None };
    let end = visit_entries(index, hash, |_| ())?;
    let mut kept = index[..end].to_vec();
    for extension in extensions(index, hash, end)? {
        // Offsets of the entries and a checksum of the extensions: git reads an index without them.
        if !matches!(extension.name, b"TREE" | b"EOIE" | b"IEOT") {
            kept.extend_from_slice(extension.name);
            kept.extend(u32::try_from(extension.content.len()).ok()?.to_be_bytes());
            kept.extend_from_slice(extension.content);
        }
    }
    let checksum = digest(hash, &[&kept]);
    kept.extend(checksum);
    Some(kept)
}

/// `Some` if all trees follow from the entries.
fn are_right(index: &[u8], shared: Option<&[u8]>, hash: usize) -> Option<()> {
    let end = visit_entries(index, hash, |_| ())?;
    let found = extensions(index, hash, end)?;
    for tree in found.iter().filter(|extension| extension.name == b"TREE") {
        let mut comparison = TreeComparison::new(CachedTrees::parse(tree.content, hash)?, hash);
        match SplitIndex::parse(&found, hash)? {
            None => drop(visit_entries(index, hash, |entry| {
                comparison.add(&IndexEntry {
                    mode: entry.mode(),
                    object: entry.object,
                    flags: entry.flags,
                    name: entry.name,
                })
            })),
            Some(split) => {
                for (name, entry) in &merged_entries(index, shared?, &split, MAX_NAMES)? {
                    comparison.add(&IndexEntry {
                        mode: entry.mode,
                        object: &entry.object,
                        flags: entry.flags,
                        name: &name.0,
                    });
                }
            }
        }
        comparison.finish().then_some(())?;
    }
    Some(())
}

/// A node of the extension.
struct CachedTree<'a> {
    /// Number of entries and object name; `None` for an invalid node.
    valid: Option<(usize, &'a [u8])>,
    is_compared: bool,
}

/// All nodes of the extension; the first is the root.
struct CachedTrees<'a> {
    nodes: Vec<CachedTree<'a>>,
    /// Nodes by parent and name.
    below: HashMap<(usize, &'a [u8]), usize>,
}

impl<'a> CachedTrees<'a> {
    /// Parses what git writes; `None` for anything else.
    fn parse(content: &'a [u8], hash: usize) -> Option<Self> {
        let mut trees = Self { nodes: Vec::new(), below: HashMap::new() };
        // Without recursion: a command decides about the depth.
        let (mut rest, mut open) = (content, Vec::<(usize, usize)>::new());
        loop {
            let (name, after) = split_at(rest, 0)?;
            let (line, mut after) = split_at(after, b'\n')?;
            let (entries, children) = split_at(line, b' ')?;
            let valid = if entries == b"-1" {
                None
            } else {
                let id = after.get(..hash)?;
                after = &after[hash..];
                Some((decimal(entries)?, id))
            };
            rest = after;
            let this = trees.nodes.len();
            trees.nodes.push(CachedTree { valid, is_compared: false });
            match open.last_mut() {
                None if name.is_empty() => {}
                Some((parent, left)) if !name.is_empty() && !name.contains(&b'/') => {
                    *left -= 1;
                    if trees.below.insert((*parent, name), this).is_some() {
                        return None;
                    }
                }
                _ => return None,
            }
            open.push((this, decimal(children)?));
            while open.last().is_some_and(|(_, left)| *left == 0) {
                open.pop();
            }
            if open.is_empty() {
                return rest.is_empty().then_some(trees);
            }
        }
    }
}

fn split_at(bytes: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == end)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// A number in plain decimal digits.
fn decimal(text: &[u8]) -> Option<usize> {
    let is_plain = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// A directory whose entries are being read.
struct OpenTree {
    /// Length of its path, with the slash at the end.
    length: usize,
    /// Content of its tree object.
    content: Vec<u8>,
    entries: usize,
    /// False if git writes no tree with these entries: unmerged, or intended to be added.
    is_whole: bool,
    /// Object name in a sparse index, in place of the content.
    sparse: Option<Vec<u8>>,
    /// Its node in the extension.
    node: Option<usize>,
}

/// Computes the trees of sorted entries and compares them with the extension.
struct TreeComparison<'a> {
    cached: CachedTrees<'a>,
    hash: usize,
    open: Vec<OpenTree>,
    last: Option<(Vec<u8>, u32)>,
    names: usize,
    is_right: bool,
}

impl<'a> TreeComparison<'a> {
    fn new(cached: CachedTrees<'a>, hash: usize) -> Self {
        let mut comparison =
            Self { cached, hash, open: Vec::new(), last: None, names: 0, is_right: true };
        comparison.open_tree(0, Some(0));
        comparison
    }

    fn open_tree(&mut self, length: usize, node: Option<usize>) {
        self.open.push(OpenTree {
            length,
            content: Vec::new(),
            entries: 0,
            is_whole: true,
            sparse: None,
            node,
        });
    }

    fn add(&mut self, entry: &IndexEntry<'_>) {
        const SPARSE_DIRECTORY: u32 = 0o040_000;
        self.names = self.names.saturating_add(entry.name.len());
        let is_sorted = self
            .last
            .as_ref()
            .is_none_or(|(name, stage)| (name.as_slice(), *stage) < (entry.name, entry.stage()));
        self.is_right &= is_sorted && self.names <= MAX_NAMES;
        if !self.is_right {
            return;
        }
        self.enter(entry.name);
        let is_merged = entry.stage() == 0 && !entry.is_intent_to_add();
        let Some(tree) = self.open.last_mut() else { return };
        let name = &entry.name[tree.length..];
        tree.entries += 1;
        tree.is_whole &= is_merged;
        if name.is_empty() && entry.mode == SPARSE_DIRECTORY {
            tree.sparse = Some(entry.object.to_vec());
        } else {
            add_to_tree(&mut tree.content, entry.mode, name, entry.object);
        }
        self.last = Some((entry.name.to_vec(), entry.stage()));
    }

    /// Closes directories that do not hold `name`, and opens those that do.
    fn enter(&mut self, name: &[u8]) {
        let shared = self.last.as_ref().map_or(0, |(last, _)| {
            last.iter().zip(name).take_while(|(last, this)| last == this).count()
        });
        while self.open.last().is_some_and(|tree| tree.length > shared) {
            self.close();
        }
        while let Some(tree) = self.open.last() {
            let Some(slash) = name[tree.length..].iter().position(|byte| *byte == b'/') else {
                break;
            };
            let own = &name[tree.length..tree.length + slash];
            let length = tree.length + slash + 1;
            let node = tree.node.and_then(|node| self.cached.below.get(&(node, own)).copied());
            self.open_tree(length, node);
        }
    }

    /// Compares the innermost directory and adds it to the one around it.
    fn close(&mut self) {
        let Some(tree) = self.open.pop() else { return };
        let is_whole = tree.is_whole && (tree.sparse.is_none() || tree.entries == 1);
        let id = match tree.sparse {
            Some(id) => id,
            None if is_whole => tree_name(self.hash, &tree.content),
            None => Vec::new(),
        };
        if let Some(node) = tree.node.and_then(|node| self.cached.nodes.get_mut(node)) {
            node.is_compared = true;
            self.is_right &= node.valid.is_none_or(|(entries, tree_id)| {
                is_whole && entries == tree.entries && tree_id == id
            });
        }
        if let (Some(around), Some((last, _))) = (self.open.last_mut(), &self.last) {
            around.entries += tree.entries;
            around.is_whole &= is_whole;
            let name = &last[around.length..tree.length - 1];
            add_to_tree(&mut around.content, 0o040_000, name, &id);
        }
    }

    /// True if no node names another tree than its entries, or has none.
    fn finish(mut self) -> bool {
        while !self.open.is_empty() {
            self.close();
        }
        let empty = tree_name(self.hash, b"");
        let is_nothing = |node: &CachedTree<'_>| {
            node.valid.is_none_or(|(entries, id)| entries == 0 && id == empty)
        };
        self.is_right && self.cached.nodes.iter().all(|node| node.is_compared || is_nothing(node))
    }
}

fn add_to_tree(content: &mut Vec<u8>, mode: u32, name: &[u8], id: &[u8]) {
    content.extend(format!("{mode:o} ").bytes());
    content.extend_from_slice(name);
    content.push(0);
    content.extend_from_slice(id);
}

/// Object name of a tree with this content.
fn tree_name(hash: usize, content: &[u8]) -> Vec<u8> {
    digest(hash, &[format!("tree {}\0", content.len()).as_bytes(), content])
}

fn digest(hash: usize, parts: &[&[u8]]) -> Vec<u8> {
    fn all<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
        parts.iter().fold(D::new(), |hasher, part| hasher.chain_update(part)).finalize().to_vec()
    }
    if hash == 20 { all::<Sha1>(parts) } else { all::<Sha256>(parts) }
}
