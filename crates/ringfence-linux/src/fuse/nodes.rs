//! Node tree of the tripwire: mount points, and denied paths.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use ringfence_policy::AbsPath;

/// All nodes of the file system. A lookup never adds one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeTree {
    nodes: Vec<Node>,
    by_path: HashMap<AbsPath, usize>,
    masks: Vec<usize>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its path in the sandbox.
    pub path: AbsPath,
    /// Its kind.
    pub kind: NodeKind,
    pub(crate) children: BTreeMap<OsString, usize>,
}

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A directory that can be listed; the list is its child nodes.
    Directory,
    /// A directory that can be passed through but not listed.
    Passage,
    /// A file as a mount point.
    File,
    /// A symbolic link.
    Link(PathBuf),
    /// A file that a rule denies.
    DeniedFile,
    /// A directory that a rule denies.
    DeniedDirectory,
}

impl Default for NodeTree {
    fn default() -> Self {
        let root =
            Node { path: AbsPath::root(), kind: NodeKind::Directory, children: BTreeMap::new() };
        Self {
            nodes: vec![root],
            by_path: HashMap::from([(AbsPath::root(), 0)]),
            masks: Vec::new(),
        }
    }
}

impl NodeTree {
    /// Puts a node at `path`, and directories above it.
    ///
    /// An existing node stays, unless it was only a directory on the way.
    pub(crate) fn put(&mut self, path: &AbsPath, kind: NodeKind) {
        let at = self.at(path);
        if self.nodes[at].kind == NodeKind::Directory {
            self.nodes[at].kind = kind;
        }
    }

    /// Adds a mask for a denied path in a mounted tree. Returns its name among the masks.
    pub(crate) fn add_mask(&mut self, path: &AbsPath, kind: NodeKind) -> String {
        self.masks.push(self.nodes.len());
        self.nodes.push(Node { path: path.clone(), kind, children: BTreeMap::new() });
        (self.masks.len() - 1).to_string()
    }

    /// Adds `count` masks for paths that are not known yet: [`NodeTree::set_mask_path`] sets them.
    /// Returns the number of the first; the rest follow it.
    pub(crate) fn add_spare_masks(&mut self, count: usize, kind: &NodeKind) -> usize {
        let first = self.masks.len();
        for _ in 0..count {
            self.add_mask(&AbsPath::root(), kind.clone());
        }
        first
    }

    /// Sets the path of a spare mask.
    pub(crate) fn set_mask_path(&mut self, number: usize, path: AbsPath) {
        if let Some(at) = self.masks.get(number) {
            self.nodes[*at].path = path;
        }
    }

    /// Ensures a node at `path` as a mount point: the existing one, or a denied one until the
    /// mount.
    pub(crate) fn ensure_mount_point(&mut self, path: &AbsPath, kind: NodeKind) {
        let above = |at: &usize| {
            path.is_within(&self.nodes[*at].path) && self.nodes[*at].path != AbsPath::root()
        };
        match self.masks.iter().copied().filter(above).max_by_key(|at| self.nodes[*at].path.depth())
        {
            Some(at) => self.add_below_mask(at, path, kind),
            None => self.put(path, kind),
        }
    }

    fn add_below_mask(&mut self, mut at: usize, path: &AbsPath, kind: NodeKind) {
        let Ok(below) =
            path.as_path().strip_prefix(self.nodes[at].path.as_path()).map(PathBuf::from)
        else {
            return;
        };
        for name in &below {
            let next = self.nodes[at].path.join(name);
            let found = self.nodes[at].children.get(name).copied();
            at = found.unwrap_or_else(|| {
                self.nodes.push(Node {
                    path: next,
                    kind: NodeKind::DeniedDirectory,
                    children: BTreeMap::new(),
                });
                let made = self.nodes.len() - 1;
                self.nodes[at].children.insert(name.to_owned(), made);
                made
            });
            if found.is_none() && self.nodes[at].path == *path {
                self.nodes[at].kind = kind.clone();
            }
        }
    }

    /// True if a node that is not denied is below `path`: a mount over `path` would hide it.
    pub(crate) fn has_open_below(&self, path: &AbsPath) -> bool {
        let is_denied =
            |kind: &NodeKind| matches!(kind, NodeKind::DeniedFile | NodeKind::DeniedDirectory);
        self.by_path.iter().any(|(below, at)| {
            below != path && below.is_within(path) && !is_denied(&self.nodes[*at].kind)
        })
    }

    /// The node at `path`.
    #[cfg(test)]
    fn find(&self, path: &AbsPath) -> Option<&Node> {
        self.by_path.get(path).map(|at| &self.nodes[*at])
    }

    /// Number of masks.
    pub(crate) fn mask_count(&self) -> usize {
        self.masks.len()
    }

    fn at(&mut self, path: &AbsPath) -> usize {
        if let Some(at) = self.by_path.get(path) {
            return *at;
        }
        let at = self.nodes.len();
        self.nodes.push(Node {
            path: path.clone(),
            kind: NodeKind::Directory,
            children: BTreeMap::new(),
        });
        self.by_path.insert(path.clone(), at);
        if let (Some(above), Some(name)) = (path.parent(), path.as_path().file_name()) {
            let above = self.at(&above);
            self.nodes[above].children.insert(name.to_owned(), at);
        }
        at
    }

    pub(crate) fn node(&self, at: usize) -> Option<&Node> {
        self.nodes.get(at)
    }

    pub(crate) fn find_mask(&self, name: &OsStr) -> Option<usize> {
        self.masks.get(name.to_str()?.parse::<usize>().ok()?).copied()
    }

    pub(crate) fn masks(&self) -> &[usize] {
        &self.masks
    }
}

impl NodeKind {
    /// File type and permissions, as the kernel writes them.
    pub(crate) fn mode(&self) -> u32 {
        const DIRECTORY: u32 = 0o040_000;
        const FILE: u32 = 0o100_000;
        const LINK: u32 = 0o120_000;
        match self {
            NodeKind::Directory => DIRECTORY | 0o755,
            NodeKind::Passage => DIRECTORY | 0o111,
            NodeKind::File => FILE | 0o644,
            NodeKind::Link(_) => LINK | 0o777,
            // Without an execute bit the kernel itself would refuse to execute it, without a
            // report.
            NodeKind::DeniedFile => FILE | 0o001,
            NodeKind::DeniedDirectory => DIRECTORY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).expect("absolute")
    }

    /// A denied directory of the home, a project in it, and a denied directory of the project.
    fn tree() -> NodeTree {
        let mut tree = NodeTree::default();
        tree.put(&path("/home/.ssh"), NodeKind::DeniedDirectory);
        tree.put(&path("/home/shut"), NodeKind::Passage);
        tree.put(&path("/home/shut/app"), NodeKind::Directory);
        tree.add_mask(&path("/home/shut/app/secrets"), NodeKind::DeniedDirectory);
        tree
    }

    #[test]
    fn mount_point_in_a_denied_directory_is_denied() {
        let mut tree = tree();
        tree.ensure_mount_point(&path("/home/.ssh/id"), NodeKind::DeniedFile);
        assert_eq!(
            tree.find(&path("/home/.ssh")).map(|node| &node.kind),
            Some(&NodeKind::DeniedDirectory)
        );
        assert_eq!(
            tree.find(&path("/home/.ssh/id")).map(|node| &node.kind),
            Some(&NodeKind::DeniedFile)
        );
        // A second call changes nothing.
        let before = tree.clone();
        tree.ensure_mount_point(&path("/home/.ssh/id"), NodeKind::DeniedFile);
        assert_eq!(tree, before);
    }

    #[test]
    fn mount_point_below_a_mask_is_added_to_the_mask() {
        let mut tree = tree();
        tree.ensure_mount_point(&path("/home/shut/app/secrets"), NodeKind::DeniedDirectory);
        let before = tree.nodes.len();
        tree.ensure_mount_point(&path("/home/shut/app/secrets/deep/key"), NodeKind::DeniedFile);
        assert_eq!(tree.nodes.len(), before + 2);
        assert!(tree.find(&path("/home/shut/app/secrets")).is_none(), "it is not in the root tree");
        let mask = tree.node(tree.masks[0]).expect("one mask");
        let deep = tree.node(mask.children[OsStr::new("deep")]).expect("just made");
        let key = tree.node(deep.children[OsStr::new("key")]).expect("just made");
        assert_eq!((&deep.kind, &key.kind), (&NodeKind::DeniedDirectory, &NodeKind::DeniedFile));
    }

    #[test]
    fn nodes_that_a_mount_would_hide_are_known() {
        let mut tree = tree();
        assert!(tree.has_open_below(&path("/home")) && tree.has_open_below(&path("/home/shut")));
        assert!(
            !tree.has_open_below(&path("/home/.ssh"))
                && !tree.has_open_below(&path("/home/shut/app"))
        );
        tree.ensure_mount_point(&path("/home/.ssh/id"), NodeKind::DeniedFile);
        assert!(!tree.has_open_below(&path("/home/.ssh")));
    }
}
