//! Things of the host that nothing opens, shown to those who are about to open one of them.
//!
//! The kernel finds a file name by name, and only opening the last of them says what is
//! wanted. So whoever may be asked about is led there, past directories that stay shut.

use std::collections::HashMap;
use std::path::PathBuf;

use ringfence_policy::AbsPath;
use rustix::io::Errno;

/// What stands at a name of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEntry {
    /// A directory.
    Directory,
    /// A plain file that nobody may start.
    File,
    /// One that is a program.
    Program,
    /// A symbolic link.
    Link(PathBuf),
}

impl HostEntry {
    /// Its kind and permissions, as the kernel writes them: no more of it is shown.
    pub(crate) fn mode(&self) -> u32 {
        match self {
            HostEntry::Directory => 0o040_111,
            HostEntry::File => 0o100_000,
            HostEntry::Program => 0o100_111,
            HostEntry::Link(_) => 0o120_777,
        }
    }
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct PlaceholderNode {
    pub(crate) path: AbsPath,
    pub(crate) lead: HostEntry,
    /// What whoever may not have it is told.
    pub(crate) refusal: Errno,
    /// How often the kernel was told of it, and has not forgotten.
    lookups: u64,
}

/// All that the kernel knows of. They go when it forgets them.
#[derive(Debug, Default)]
pub(crate) struct PlaceholderNodes {
    by_node: HashMap<u64, PlaceholderNode>,
    by_path: HashMap<AbsPath, u64>,
    made: u64,
}

/// Where their numbers begin: there are never as many props.
const FIRST: u64 = 1 << 32;

/// The kernel keeps names as long as it has memory. Somebody who looks for more than this is
/// refused as if nobody could be asked.
const MANY: usize = 16 * 1024;

impl PlaceholderNodes {
    /// The node for what stands at `path`; `None` if there are too many.
    pub(crate) fn show(&mut self, path: AbsPath, lead: HostEntry, refusal: Errno) -> Option<u64> {
        if let Some(node) = self.by_path.get(&path)
            && let Some(ghost) = self.by_node.get_mut(node).filter(|ghost| ghost.lead == lead)
        {
            ghost.lookups += 1;
            return Some(*node);
        }
        if self.by_node.len() >= MANY {
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
        let Some(ghost) = self.by_node.get_mut(&node) else { return };
        ghost.lookups = ghost.lookups.saturating_sub(lookups);
        if ghost.lookups > 0 {
            return;
        }
        if self.by_path.get(&ghost.path) == Some(&node) {
            self.by_path.remove(&ghost.path);
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
    fn a_ghost_stays_until_the_kernel_has_forgotten_it() {
        let mut ghosts = PlaceholderNodes::default();
        let node = ghosts.show(path("/a"), HostEntry::File, Errno::NOENT).expect("room for one");
        assert_eq!(ghosts.show(path("/a"), HostEntry::File, Errno::NOENT), Some(node));
        ghosts.forget(node, 1);
        assert!(ghosts.find(node).is_some());
        ghosts.forget(node, 1);
        assert!(ghosts.find(node).is_none() && ghosts.by_path.is_empty());
    }

    #[test]
    fn what_is_another_thing_is_another_ghost() {
        let mut ghosts = PlaceholderNodes::default();
        let file = ghosts.show(path("/a"), HostEntry::File, Errno::NOENT).expect("room for one");
        let directory =
            ghosts.show(path("/a"), HostEntry::Directory, Errno::NOENT).expect("room for two");
        assert_ne!(file, directory);
        ghosts.forget(file, 1);
        assert_eq!(ghosts.show(path("/a"), HostEntry::Directory, Errno::NOENT), Some(directory));
    }

    #[test]
    fn there_is_an_end_to_them() {
        let mut ghosts = PlaceholderNodes::default();
        let shown = (0..MANY + 10)
            .filter_map(|number| {
                ghosts.show(path(&format!("/{number}")), HostEntry::File, Errno::NOENT)
            })
            .count();
        assert_eq!((shown, ghosts.by_node.len()), (MANY, MANY));
    }
}
