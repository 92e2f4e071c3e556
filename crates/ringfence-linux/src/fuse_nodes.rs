//! The FUSE tree of the tripwire: the names of all mounted, linked and denied paths.

use crate::fuse::{NodeKind, NodeTree};
use ringfence_plan::{FileKind, Overmount, Plan, Step};
use ringfence_policy::AbsPath;

/// Directory for objects needed only to build the sandbox.
pub(crate) const BUILD_DIR: &str = "/run/ringfence/own";
/// Directory for masks that do not report access.
pub(crate) const SILENT_MASK_DIR: &str = "/run/ringfence/masks";
/// Directory for masks that report access.
pub(crate) const REPORTING_MASK_DIR: &str = "/run/ringfence/covers";

/// The FUSE tree for a plan.
pub(crate) fn node_tree(plan: &Plan) -> NodeTree {
    let mut draft = NodeTreeBuilder { nodes: NodeTree::default(), mounted: Vec::new() };
    for own in [BUILD_DIR, REPORTING_MASK_DIR, SILENT_MASK_DIR, "/proc", "/dev"] {
        draft.put(
            &AbsPath::new(own).expect("written here as an absolute path"),
            NodeKind::Directory,
        );
    }
    for step in &plan.steps {
        draft.step(step);
    }
    draft.nodes
}

/// True if access to a mask at `path` is reported. Files of `/proc` are excluded: no rule of the
/// policy names them.
pub(crate) fn reports_access(path: &AbsPath) -> bool {
    !path.as_path().starts_with("/proc")
}

struct NodeTreeBuilder {
    nodes: NodeTree,
    /// Trees that will be mounted: their content is not part of the FUSE tree.
    mounted: Vec<AbsPath>,
}

impl NodeTreeBuilder {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Symlink { path, target } => self.put(path, NodeKind::Link(target.clone())),
            Step::File { path, .. } => self.put(path, NodeKind::File),
            Step::Directory { path } => self.put(path, NodeKind::Directory),
            Step::Denied { path, kind } => self.put(path, denied(*kind)),
            Step::Passage { path } => self.put(path, NodeKind::Passage),
            Step::Bind { path, kind, .. } => self.mount(
                path,
                if *kind == FileKind::Directory { NodeKind::Directory } else { NodeKind::File },
            ),
            Step::Scratch { path } | Step::Private { path, .. } => {
                self.mount(path, NodeKind::Directory)
            }
            Step::Mask { path, mask: Overmount::Deny(kind) } if reports_access(path) => {
                drop(self.nodes.add_mask(path, denied(*kind)))
            }
            _ => {}
        }
    }

    fn put(&mut self, path: &AbsPath, kind: NodeKind) {
        if !self.mounted.iter().any(|above| path.is_within(above)) {
            self.nodes.put(path, kind);
        }
    }

    fn mount(&mut self, path: &AbsPath, kind: NodeKind) {
        self.put(path, kind);
        self.mounted.push(path.clone());
    }
}

fn denied(kind: FileKind) -> NodeKind {
    match kind {
        FileKind::Directory => NodeKind::DeniedDirectory,
        FileKind::File => NodeKind::DeniedFile,
    }
}
