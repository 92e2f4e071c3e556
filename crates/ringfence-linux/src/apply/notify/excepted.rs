//! Trees in which an exception switches patterns off, such as `node_modules` and `target`.
//!
//! A denied name can be created in such a tree. Moved out with its directory, it would be denied at
//! the new path; moved in, a denied name would become readable. So a directory is searched before
//! it moves across the border.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use ringfence_policy::{AbsPath, Grants, Source};

/// The exceptions that cover whole trees.
#[derive(Default)]
pub(super) struct ExceptedTrees {
    /// Directory names below which everything is excepted: `**/NAME/**`.
    names: BTreeSet<OsString>,
    /// First names of exceptions with more than one directory name: `**/venv/lib/**`.
    first_names: BTreeSet<OsString>,
    /// True if an exception depends on the directory in any other form.
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
                    trees.first_names.extend(names.split('/').next().map(OsString::from));
                }
                // Depends on the file name only.
                Some((rest, None)) if !rest.contains('/') => {}
                _ => trees.has_others = true,
            }
        }
        trees
    }

    /// True if `path` lies in a directory in which everything is excepted.
    pub(super) fn contains(&self, grants: &Grants, path: &AbsPath) -> bool {
        within_tree(grants, path).iter().any(|name| self.names.contains(name))
    }

    /// True if exceptions may apply to one of the two paths and not to the other.
    pub(super) fn differs_between(&self, grants: &Grants, from: &AbsPath, to: &AbsPath) -> bool {
        if self.has_others {
            return true;
        }
        let (from, to) = (within_tree(grants, from), within_tree(grants, to));
        // Both lie in the same excepted directory.
        let mut shared = from.iter().zip(to.iter()).take_while(|(one, other)| one == other);
        if shared.any(|(name, _)| self.names.contains(name)) {
            return false;
        }
        let mentions = |path: &Path| {
            path.iter().any(|name| self.names.contains(name) || self.first_names.contains(name))
        };
        mentions(from) || mentions(to)
    }
}

/// The part of a path to which floating exceptions are compared: a project in `~/vendor` is not
/// itself vendored.
fn within_tree<'a>(grants: &Grants, path: &'a AbsPath) -> &'a Path {
    if let Some(inside) = path.relative_to(&grants.workspace) {
        return inside;
    }
    let openers = grants.rules.iter().filter(|rule| rule.opens() && rule.patterns_apply());
    let root =
        openers.filter(|rule| path.is_within(&rule.root)).min_by_key(|rule| rule.root.depth());
    root.and_then(|rule| path.relative_to(&rule.root)).unwrap_or(path.as_path())
}
