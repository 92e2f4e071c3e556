//! What the tripwire shows: the names of everything that is mounted, linked or denied.

use ringfence_policy::AbsPath;
use ringfence_tripwire::{NodeKind, NodeTree};

use crate::plan::{FileKind, Overmount, Plan, Step};

/// Where what is only needed to build the sandbox stands.
pub(crate) const OWN: &str = "/run/ringfence/own";
/// Where covers stand that tell nothing.
pub(crate) const MASKS: &str = "/run/ringfence/masks";
/// Where the covers stand.
pub(crate) const COVERS: &str = "/run/ringfence/covers";

/// The scene for a plan.
pub fn scene(plan: &Plan) -> NodeTree {
    let mut draft = NodeTreeBuilder { scene: NodeTree::default(), mounted: Vec::new() };
    for own in [OWN, COVERS, MASKS, "/proc", "/dev"] {
        draft.put(
            &AbsPath::new(own).expect("written here as an absolute path"),
            NodeKind::Directory,
        );
    }
    for step in &plan.steps {
        draft.step(step);
    }
    draft.scene
}

/// Whether a cover is one that tells. Files of `/proc` are nobody's secret, only root's
/// business, and no rule of the policy names them.
pub(crate) fn tells(path: &AbsPath) -> bool {
    !path.as_path().starts_with("/proc")
}

struct NodeTreeBuilder {
    scene: NodeTree,
    /// Trees that will be mounted: what is in them is not ours to show.
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
            Step::Cover { path, cover: Overmount::Deny(kind) } if tells(path) => {
                drop(self.scene.cover(path, denied(*kind)))
            }
            _ => {}
        }
    }

    fn put(&mut self, path: &AbsPath, kind: NodeKind) {
        if !self.mounted.iter().any(|above| path.is_within(above)) {
            self.scene.put(path, kind);
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
