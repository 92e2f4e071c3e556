//! Resolves symbolic links one by one, so that each can be created again inside.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use ringfence_plan::{FileKind, ResolvedRoot};
use ringfence_policy::AbsPath;

use super::kind_of;

/// Cached path lookups: rules share their upper directories.
#[derive(Default)]
pub(crate) struct SymlinkCache {
    seen: HashMap<AbsPath, Option<PathNode>>,
    plain: HashMap<AbsPath, ParentState>,
}

/// State of the directory above a path.
#[derive(Clone, Copy)]
enum ParentState {
    Missing,
    Linked,
    Plain,
}

/// Resolution of a path.
pub(crate) struct SymlinkTrail {
    /// Symbolic links on the way, outermost first.
    pub(crate) links: Vec<(AbsPath, PathBuf)>,
    /// The resolved path.
    pub(crate) end: AbsPath,
    /// Kind of the resolved path; `None` if nothing is there.
    pub(crate) kind: Option<FileKind>,
}

#[derive(Clone)]
enum PathNode {
    Link(PathBuf),
    Other(fs::FileType),
}

impl PathNode {
    fn at(path: &AbsPath) -> Option<Self> {
        let metadata = fs::symlink_metadata(path.as_path()).ok()?;
        if metadata.is_symlink() {
            fs::read_link(path.as_path()).ok().map(PathNode::Link)
        } else {
            Some(PathNode::Other(metadata.file_type()))
        }
    }
}

impl SymlinkCache {
    /// Resolves `path`; `None` if it leads nowhere.
    pub(crate) fn resolve_root(&mut self, path: &AbsPath) -> Option<ResolvedRoot> {
        // Most rules are in a handful of directories, which are resolved once.
        let above = path.parent()?;
        let plain = match self.plain.get(&above) {
            Some(plain) => *plain,
            None => {
                let found = self.walk(&above);
                let plain = match &found {
                    None => ParentState::Missing,
                    Some(found) if found.links.is_empty() => ParentState::Plain,
                    Some(_) => ParentState::Linked,
                };
                self.plain.insert(above, plain);
                plain
            }
        };
        match plain {
            ParentState::Missing => None,
            ParentState::Linked => self.walk(path),
            ParentState::Plain => match PathNode::at(path)? {
                PathNode::Other(file_type) => Some(ResolvedRoot {
                    links: Vec::new(),
                    real: path.clone(),
                    kind: kind_of(file_type),
                }),
                PathNode::Link(_) => self.walk(path),
            },
        }
    }

    fn walk(&mut self, path: &AbsPath) -> Option<ResolvedRoot> {
        let SymlinkTrail { links, end, kind } = self.resolve_trail(path)?;
        Some(ResolvedRoot { links, real: end, kind: kind? })
    }

    /// Resolves `path`, even if nothing is at its end; `None` for a loop.
    pub(crate) fn resolve_trail(&mut self, path: &AbsPath) -> Option<SymlinkTrail> {
        const ENOUGH: usize = 40;
        let mut links = Vec::new();
        let mut real = AbsPath::root();
        let mut rest: VecDeque<OsString> = parts(path.as_path());
        let mut kind = FileKind::Directory;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                real = real.parent().unwrap_or_else(AbsPath::root);
                continue;
            }
            let next = real.join(&name);
            match self.look(&next) {
                None => {
                    let end = rest.iter().fold(next, |end, name| end.join(name));
                    return Some(SymlinkTrail { links, end, kind: None });
                }
                Some(PathNode::Link(target)) => {
                    if links.len() == ENOUGH {
                        return None;
                    }
                    if target.is_absolute() {
                        real = AbsPath::root();
                    }
                    for part in parts(&target).into_iter().rev() {
                        rest.push_front(part);
                    }
                    links.push((next, target));
                }
                Some(PathNode::Other(file_type)) => {
                    kind = kind_of(file_type);
                    real = next;
                }
            }
        }
        Some(SymlinkTrail { links, end: real, kind: Some(kind) })
    }

    fn look(&mut self, path: &AbsPath) -> Option<PathNode> {
        if let Some(known) = self.seen.get(path) {
            return known.clone();
        }
        // If the directory above is missing, no syscall is needed.
        let node = match path.parent().and_then(|above| self.seen.get(&above)) {
            Some(None) => None,
            _ => PathNode::at(path),
        };
        self.seen.insert(path.clone(), node.clone());
        node
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}
