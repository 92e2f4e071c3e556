//! Trees in which an exception switches patterns off, such as `node_modules` and `target`.
//!
//! A denied name can be made in such a tree. Moved out with a directory it would be denied where it
//! arrives, and moved in, a denied one would be open: both are looked through before.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use ringfence_policy::{AbsPath, Grants, Source};

/// The exceptions that speak of a whole tree.
#[derive(Default)]
pub(super) struct ExceptedTrees {
    /// Names of directories in which everything is excepted: `**/NAME/**`.
    names: BTreeSet<OsString>,
    /// First names of exceptions that name more than one directory: `**/venv/lib/**`.
    begun: BTreeSet<OsString>,
    /// Whether one is written in any other way that depends on the directory.
    has_others: bool,
}

impl ExceptedTrees {
    pub(super) fn new(grants: &Grants) -> Self {
        let mut trees = Self::default();
        for exception in &grants.exceptions {
            let text = exception.glob.text();
            let floating = text.strip_prefix("**/");
            let is_plain = |name: &str| !name.contains(['*', '?', '[', '{']);
            match floating.map(|rest| (rest, rest.strip_suffix("/**"))) {
                Some((_, Some(name))) if !name.contains('/') && is_plain(name) => {
                    trees.names.insert(name.into());
                }
                Some((_, Some(names)))
                    if is_plain(names) && exception.origin.source == Source::BuiltIn =>
                {
                    trees.begun.extend(names.split('/').next().map(OsString::from));
                }
                // By the name of the file alone.
                Some((rest, None)) if !rest.contains('/') => {}
                _ => trees.has_others = true,
            }
        }
        trees
    }

    /// Whether a path lies in a directory in which everything is excepted.
    pub(super) fn holds(&self, grants: &Grants, path: &AbsPath) -> bool {
        within_tree(grants, path).iter().any(|name| self.names.contains(name))
    }

    /// Whether exceptions may hold at one of two places and not at the other.
    pub(super) fn differs(&self, grants: &Grants, from: &AbsPath, to: &AbsPath) -> bool {
        if self.has_others {
            return true;
        }
        let (from, to) = (within_tree(grants, from), within_tree(grants, to));
        // In the same excepted directory before and after.
        let mut shared = from.iter().zip(to.iter()).take_while(|(one, other)| one == other);
        if shared.any(|(name, _)| self.names.contains(name)) {
            return false;
        }
        let mentions = |path: &Path| {
            path.iter().any(|name| self.names.contains(name) || self.begun.contains(name))
        };
        mentions(from) || mentions(to)
    }
}

/// The part of a path to which floating exceptions are compared: a project in `~/vendor` is not
/// vendored itself.
fn within_tree<'a>(grants: &Grants, path: &'a AbsPath) -> &'a Path {
    if let Some(inside) = path.relative_to(&grants.workspace) {
        return inside;
    }
    let openers = grants.rules.iter().filter(|rule| rule.opens() && rule.patterns_hold());
    let root =
        openers.filter(|rule| path.is_within(&rule.root)).min_by_key(|rule| rule.root.depth());
    root.and_then(|rule| path.relative_to(&rule.root)).unwrap_or(path.as_path())
}
