//! What there is to see: the names that stand for what is mounted over them, and those
//! that are denied.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use ringfence_policy::AbsPath;

/// Everything the file system shows. Nothing is ever added to it by looking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTree {
    props: Vec<Node>,
    by_path: HashMap<AbsPath, usize>,
    covers: Vec<usize>,
}

/// One thing to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its path in the sandbox.
    pub path: AbsPath,
    /// What it is.
    pub kind: NodeKind,
    pub(crate) children: BTreeMap<OsString, usize>,
}

/// What a thing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory that leads on; its list is what the scene has below it.
    Directory,
    /// A directory that leads on and is not listed.
    Passage,
    /// A file for something to be mounted over.
    File,
    /// A symbolic link.
    Link(PathBuf),
    /// A file that a rule shuts.
    DeniedFile,
    /// A directory that a rule shuts.
    DeniedDirectory,
}

impl Default for NodeTree {
    fn default() -> Self {
        let root =
            Node { path: AbsPath::root(), kind: NodeKind::Directory, children: BTreeMap::new() };
        Self {
            props: vec![root],
            by_path: HashMap::from([(AbsPath::root(), 0)]),
            covers: Vec::new(),
        }
    }
}

impl NodeTree {
    /// Puts something at `path`, and directories above it.
    ///
    /// What stands there already stays, unless it was only a directory on the way.
    pub fn put(&mut self, path: &AbsPath, kind: NodeKind) {
        let at = self.at(path);
        if self.props[at].kind == NodeKind::Directory {
            self.props[at].kind = kind;
        }
    }

    /// Something that is denied in a tree that is mounted: it stands beside the rest, to be
    /// mounted over what it shuts. Answers its name among the covers.
    pub fn cover(&mut self, path: &AbsPath, kind: NodeKind) -> String {
        self.covers.push(self.props.len());
        self.props.push(Node { path: path.clone(), kind, children: BTreeMap::new() });
        (self.covers.len() - 1).to_string()
    }

    /// So many covers more, for things that are not known yet: [`Scene::name_cover`] tells
    /// what they cover. Answers the name of the first among the covers; the rest follow it.
    pub fn spare_covers(&mut self, count: usize, kind: &NodeKind) -> usize {
        let first = self.covers.len();
        for _ in 0..count {
            self.cover(&AbsPath::root(), kind.clone());
        }
        first
    }

    /// Says what a spare cover covers.
    pub fn name_cover(&mut self, number: usize, path: AbsPath) {
        if let Some(at) = self.covers.get(number) {
            self.props[*at].path = path;
        }
    }

    /// Lets something stand at `path` for it to be mounted over: what is there already, or
    /// something that is denied as long as it is not.
    pub fn stand(&mut self, path: &AbsPath, kind: NodeKind) {
        let above = |at: &usize| {
            path.is_within(&self.props[*at].path) && self.props[*at].path != AbsPath::root()
        };
        match self
            .covers
            .iter()
            .copied()
            .filter(above)
            .max_by_key(|at| self.props[*at].path.depth())
        {
            Some(at) => self.stand_below(at, path, kind),
            None => self.put(path, kind),
        }
    }

    fn stand_below(&mut self, mut at: usize, path: &AbsPath, kind: NodeKind) {
        let Ok(below) =
            path.as_path().strip_prefix(self.props[at].path.as_path()).map(PathBuf::from)
        else {
            return;
        };
        for name in &below {
            let next = self.props[at].path.join(name);
            let found = self.props[at].children.get(name).copied();
            at = found.unwrap_or_else(|| {
                self.props.push(Node {
                    path: next,
                    kind: NodeKind::DeniedDirectory,
                    children: BTreeMap::new(),
                });
                let made = self.props.len() - 1;
                self.props[at].children.insert(name.to_owned(), made);
                made
            });
            if found.is_none() && self.props[at].path == *path {
                self.props[at].kind = kind.clone();
            }
        }
    }

    /// Whether something other than what is denied stands below `path`: mounting over `path`
    /// would hide it.
    pub fn holds_more(&self, path: &AbsPath) -> bool {
        let is_denied =
            |kind: &NodeKind| matches!(kind, NodeKind::DeniedFile | NodeKind::DeniedDirectory);
        self.by_path.iter().any(|(below, at)| {
            below != path && below.is_within(path) && !is_denied(&self.props[*at].kind)
        })
    }

    /// What stands at `path`.
    pub fn find(&self, path: &AbsPath) -> Option<&Node> {
        self.by_path.get(path).map(|at| &self.props[*at])
    }

    /// Whether `path` leads on, so that it should be listed once before it is used.
    pub fn directories(&self) -> impl Iterator<Item = &AbsPath> {
        self.props.iter().filter(|prop| !prop.children.is_empty()).map(|prop| &prop.path)
    }

    /// How many covers there are.
    pub fn cover_count(&self) -> usize {
        self.covers.len()
    }

    fn at(&mut self, path: &AbsPath) -> usize {
        if let Some(at) = self.by_path.get(path) {
            return *at;
        }
        let at = self.props.len();
        self.props.push(Node {
            path: path.clone(),
            kind: NodeKind::Directory,
            children: BTreeMap::new(),
        });
        self.by_path.insert(path.clone(), at);
        if let (Some(above), Some(name)) = (path.parent(), path.as_path().file_name()) {
            let above = self.at(&above);
            self.props[above].children.insert(name.to_owned(), at);
        }
        at
    }

    pub(crate) fn prop(&self, at: usize) -> Option<&Node> {
        self.props.get(at)
    }

    pub(crate) fn cover_named(&self, name: &OsStr) -> Option<usize> {
        self.covers.get(name.to_str()?.parse::<usize>().ok()?).copied()
    }

    pub(crate) fn covers(&self) -> &[usize] {
        &self.covers
    }
}

impl NodeKind {
    /// Its kind and permissions, as the kernel writes them.
    pub(crate) fn mode(&self) -> u32 {
        const DIRECTORY: u32 = 0o040_000;
        const FILE: u32 = 0o100_000;
        const LINK: u32 = 0o120_000;
        match self {
            NodeKind::Directory => DIRECTORY | 0o755,
            NodeKind::Passage => DIRECTORY | 0o111,
            NodeKind::File => FILE | 0o644,
            NodeKind::Link(_) => LINK | 0o777,
            // Without any such bit the kernel would refuse to start it by itself, untold.
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
    fn scene() -> NodeTree {
        let mut scene = NodeTree::default();
        scene.put(&path("/home/.ssh"), NodeKind::DeniedDirectory);
        scene.put(&path("/home/shut"), NodeKind::Passage);
        scene.put(&path("/home/shut/app"), NodeKind::Directory);
        scene.cover(&path("/home/shut/app/secrets"), NodeKind::DeniedDirectory);
        scene
    }

    #[test]
    fn what_is_to_be_mounted_over_stands_in_what_is_denied() {
        let mut scene = scene();
        scene.stand(&path("/home/.ssh/id"), NodeKind::DeniedFile);
        assert_eq!(
            scene.find(&path("/home/.ssh")).map(|prop| &prop.kind),
            Some(&NodeKind::DeniedDirectory)
        );
        assert_eq!(
            scene.find(&path("/home/.ssh/id")).map(|prop| &prop.kind),
            Some(&NodeKind::DeniedFile)
        );
        // Twice is once.
        let before = scene.clone();
        scene.stand(&path("/home/.ssh/id"), NodeKind::DeniedFile);
        assert_eq!(scene, before);
    }

    #[test]
    fn what_is_covered_stands_in_its_cover() {
        let mut scene = scene();
        scene.stand(&path("/home/shut/app/secrets"), NodeKind::DeniedDirectory);
        let before = scene.props.len();
        scene.stand(&path("/home/shut/app/secrets/deep/key"), NodeKind::DeniedFile);
        assert_eq!(scene.props.len(), before + 2);
        assert!(scene.find(&path("/home/shut/app/secrets")).is_none(), "it is no name of the root");
        let cover = scene.prop(scene.covers[0]).expect("there is one");
        let deep = scene.prop(cover.children[OsStr::new("deep")]).expect("just made");
        let key = scene.prop(deep.children[OsStr::new("key")]).expect("just made");
        assert_eq!((&deep.kind, &key.kind), (&NodeKind::DeniedDirectory, &NodeKind::DeniedFile));
    }

    #[test]
    fn what_would_hide_something_is_known() {
        let mut scene = scene();
        assert!(scene.holds_more(&path("/home")) && scene.holds_more(&path("/home/shut")));
        assert!(
            !scene.holds_more(&path("/home/.ssh")) && !scene.holds_more(&path("/home/shut/app"))
        );
        scene.stand(&path("/home/.ssh/id"), NodeKind::DeniedFile);
        assert!(!scene.holds_more(&path("/home/.ssh")));
    }
}
