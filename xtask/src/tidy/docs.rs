//! Every crate begins by saying what it is.

use super::Finding;
use super::tree::Tree;

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let roots = tree.packages.iter().flat_map(|package| &package.roots);
    let silent =
        roots.filter(|root| !tree.file(root).is_some_and(|file| file.text.starts_with("//! ")));
    silent
        .map(|root| Finding::new(root, 1, "begins without a `//!` line that says what it is"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;

    #[test]
    fn a_crate_says_what_it_is() {
        check(
            findings,
            &tree(&[("crates/a/src/lib.rs", "//! Words.\n\nmod b;\n")]).with("a", &[]),
            &[],
        );
        check(
            findings,
            &tree(&[("crates/a/src/lib.rs", "mod b;\n")]).with("a", &[]),
            &["crates/a/src/lib.rs:1: begins without"],
        );
    }
}
