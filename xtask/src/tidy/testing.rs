//! Small trees for the rules' tests.

use super::TidyRule;
use super::tree::{File, From, Need, Package, Tree, When};

/// Asserts what `rule` finds in `tree`, as `path:line: what` without the end of `what`.
#[track_caller]
pub(super) fn check(rule: TidyRule, tree: &Tree, expect: &[&str]) {
    let found: Vec<String> = rule(tree).iter().map(ToString::to_string).collect();
    let fits = found.len() == expect.len()
        && found.iter().zip(expect).all(|(found, expect)| found.starts_with(expect));
    assert!(fits, "found {found:#?}\nexpected {expect:#?}");
}

/// A tree of these files, without packages.
pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
    let files =
        files.iter().map(|(path, text)| File::new((*path).into(), (*text).into())).collect();
    Tree { files, paths: Vec::new(), packages: Vec::new() }
}

impl Tree {
    /// Adds a package that needs these others of the workspace.
    pub(super) fn with(self, name: &str, needs: &[(&str, When)]) -> Tree {
        self.package(name, needs, From::Workspace)
    }

    /// Adds a package that needs these crates from outside.
    pub(super) fn with_outside(self, name: &str, needs: &[(&str, When)]) -> Tree {
        self.package(name, needs, From::Outside)
    }

    fn package(mut self, name: &str, needs: &[(&str, When)], from: From) -> Tree {
        self.packages.push(Package {
            name: name.into(),
            manifest: format!("crates/{name}/Cargo.toml"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            needs: needs
                .iter()
                .map(|(name, when)| Need { name: (*name).into(), when: *when, from })
                .collect(),
        });
        self
    }
}
