//! Each promise is held by a test, and each tag names a promise.

use super::Finding;
use super::tree::Tree;
use crate::promises::{CATALOGUE, PromiseTest, read_catalogue, read_tags};

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(catalogue) = tree.file(CATALOGUE) else { return Vec::new() };
    let promises = read_catalogue(&catalogue.text);
    let tests = tagged_tests(tree);
    let mut findings = Vec::new();
    for test in &tests {
        if test.name.is_none() {
            findings.push(Finding::new(test.path, test.line, "no test below this promise"));
        }
        for id in &test.promises {
            if !promises.iter().any(|promise| promise.id == *id) {
                let what = format!("no promise `{id}` in {CATALOGUE}");
                findings.push(Finding::new(test.path, test.line, what));
            }
        }
    }
    for promise in &promises {
        if !tests.iter().any(|test| test.promises.contains(&promise.id)) {
            let what = format!("no test holds promise `{}`", promise.id);
            findings.push(Finding::new(CATALOGUE, promise.line, what));
        }
    }
    findings
}

/// The tagged tests of the workspace; `xtask` has tags in the texts of its own tests.
fn tagged_tests(tree: &Tree) -> Vec<PromiseTest<'_>> {
    let files = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    files
        .filter(|file| !file.path.starts_with("xtask/"))
        .flat_map(|file| read_tags(&file.path, &file.text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;
    use crate::promises::CATALOGUE;

    #[test]
    fn promise_without_a_test_is_found() {
        let test = ("crates/a/tests/x.rs", "/// Promise: held\n#[test]\nfn x() {}\n");
        check(findings, &tree(&[test, (CATALOGUE, "# Files\nheld: It holds.\n")]), &[]);
        check(
            findings,
            &tree(&[test, (CATALOGUE, "held: It holds.\nlost: It does not.\n")]),
            &["xtask/promises.txt:2: no test holds promise `lost`"],
        );
    }

    #[test]
    fn tag_without_a_promise_or_a_test_is_found() {
        let lost = ("crates/a/tests/x.rs", "/// Promise: lost\nfn x() {}\n/// Promise: held\n");
        check(
            findings,
            &tree(&[lost, (CATALOGUE, "held: It holds.\n")]),
            &[
                "crates/a/tests/x.rs:1: no promise `lost`",
                "crates/a/tests/x.rs:3: no test below this promise",
            ],
        );
    }
}
