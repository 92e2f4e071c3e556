//! Placeholder nodes: entries of the host that are not open, shown to a process that is about to
//! open one.
//!
//! The kernel resolves a path name by name, and only the open of the last name shows the intent. So
//! a process whose access may become a question is led there through directories that stay denied.

use std::collections::HashMap;
use std::path::PathBuf;

use ringfence_policy::AbsPath;
use rustix::io::Errno;

/// An entry of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostEntry {
    /// A directory.
    Directory,
    /// A regular file without an execute bit.
    File,
    /// A regular file with an execute bit.
    Program,
    /// A symbolic link.
    Link(PathBuf),
}

impl HostEntry {
    /// File type and permissions, as the kernel writes them: nothing else of the entry is shown.
    pub(crate) fn mode(&self) -> u32 {
        match self {
            HostEntry::Directory => 0o040_111,
            HostEntry::File => 0o100_000,
            HostEntry::Program => 0o100_111,
            HostEntry::Link(_) => 0o120_777,
        }
    }
}

/// A placeholder.
#[derive(Debug, Clone)]
pub(crate) struct PlaceholderNode {
    pub(crate) path: AbsPath,
    pub(crate) lead: HostEntry,
    /// The errno for a denied access.
    pub(crate) refusal: Errno,
    /// Number of lookups that the kernel has not forgotten.
    lookups: u64,
}

/// All placeholders that the kernel knows. The kernel's `Forget` removes them.
#[derive(Debug, Default)]
pub(crate) struct PlaceholderNodes {
    by_node: HashMap<u64, PlaceholderNode>,
    by_path: HashMap<AbsPath, u64>,
    made: u64,
}

/// First node number: the node tree never has as many nodes.
const FIRST: u64 = 1 << 32;

/// Most placeholders: the kernel keeps names as long as it has memory. Beyond it, an access is
/// denied without a question.
const MAX_PLACEHOLDERS: usize = 16 * 1024;

impl PlaceholderNodes {
    /// The node for the entry at `path`; `None` if there are too many.
    pub(crate) fn show(&mut self, path: AbsPath, lead: HostEntry, refusal: Errno) -> Option<u64> {
        if let Some(node) = self.by_path.get(&path)
            && let Some(placeholder) =
                self.by_node.get_mut(node).filter(|placeholder| placeholder.lead == lead)
        {
            placeholder.lookups += 1;
            return Some(*node);
        }
        if self.by_node.len() >= MAX_PLACEHOLDERS {
            return None;
        }
        let node = FIRST + self.made;
        self.made += 1;
        self.by_path.insert(path.clone(), node);
        self.by_node.insert(node, PlaceholderNode { path, lead, refusal, lookups: 1 });
        Some(node)
    }

    pub(crate) fn find(&self, node: u64) -> Option<&PlaceholderNode> {
        self.by_node.get(&node)
    }

    pub(crate) fn forget(&mut self, node: u64, lookups: u64) {
        let Some(placeholder) = self.by_node.get_mut(&node) else { return };
        placeholder.lookups = placeholder.lookups.saturating_sub(lookups);
        if placeholder.lookups > 0 {
            return;
        }
        if self.by_path.get(&placeholder.path) == Some(&node) {
            self.by_path.remove(&placeholder.path);
        }
        self.by_node.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).expect("absolute")
    }

    #[test]
    fn placeholder_stays_until_the_kernel_forgets_it() {
        let mut placeholders = PlaceholderNodes::default();
        let node =
            placeholders.show(path("/a"), HostEntry::File, Errno::NOENT).expect("below the limit");
        assert_eq!(placeholders.show(path("/a"), HostEntry::File, Errno::NOENT), Some(node));
        placeholders.forget(node, 1);
        assert!(placeholders.find(node).is_some());
        placeholders.forget(node, 1);
        assert!(placeholders.find(node).is_none() && placeholders.by_path.is_empty());
    }

    #[test]
    fn changed_entry_gets_a_new_placeholder() {
        let mut placeholders = PlaceholderNodes::default();
        let file =
            placeholders.show(path("/a"), HostEntry::File, Errno::NOENT).expect("below the limit");
        let directory = placeholders
            .show(path("/a"), HostEntry::Directory, Errno::NOENT)
            .expect("below the limit");
        assert_ne!(file, directory);
        placeholders.forget(file, 1);
        assert_eq!(
            placeholders.show(path("/a"), HostEntry::Directory, Errno::NOENT),
            Some(directory)
        );
    }

    #[test]
    fn placeholders_are_bounded() {
        let mut placeholders = PlaceholderNodes::default();
        let shown = (0..MAX_PLACEHOLDERS + 10)
            .filter_map(|number| {
                placeholders.show(path(&format!("/{number}")), HostEntry::File, Errno::NOENT)
            })
            .count();
        assert_eq!((shown, placeholders.by_node.len()), (MAX_PLACEHOLDERS, MAX_PLACEHOLDERS));
    }
}
