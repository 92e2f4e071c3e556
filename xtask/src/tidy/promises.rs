//! A promise names a test, and the test is there.

use super::Finding;
use super::tree::Tree;

const DOCUMENT: &str = "PROMISES.md";

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(promises) = tree.file(DOCUMENT) else { return Vec::new() };
    let text = |path: &str| tree.file(path).map_or("", |file| &file.text);
    let tests: Vec<(&str, &str)> = tree
        .rust()
        .flat_map(|(path, code)| {
            tests(code).chain(listed(text(path))).map(move |name| (path, name))
        })
        .collect();
    let mut findings = Vec::new();
    for (index, line) in promises.text.lines().enumerate() {
        for named in named(line) {
            let (place, test) = named.rsplit_once("::").expect("chosen for it");
            if !tests.iter().any(|(path, name)| *name == test && lies_in(path, place)) {
                findings.push(Finding::new(DOCUMENT, index + 1, format!("no test `{named}`")));
            }
        }
    }
    findings
}

/// What stands in backticks on `line` in the form `file::test`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|word| word.contains("::"))
}

/// The names of the functions under `#[test]`, and of checks that every place is put to.
fn tests(code: &str) -> impl Iterator<Item = &str> {
    let functions = code.split("#[test]").skip(1).filter_map(|rest| {
        let name = rest.split_once("fn ")?.1;
        name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
    });
    let checks = code
        .split(" Check::")
        .skip(1)
        .filter_map(|rest| {
            rest.split_once(')')?.0.trim_end_matches([',', ' ', '\n']).rsplit(',').next()
        })
        .map(str::trim);
    functions.chain(checks)
}

/// Those that a test with a `main` of its own lists: `("module::name", name)`.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split('(').filter_map(|entry| {
        let (named, rest) = entry.trim_start().strip_prefix('"')?.split_once("\",")?;
        let function = rest.split_once(')')?.0.trim().trim_end_matches(',');
        (named.rsplit_once("::")?.1 == function).then_some(function)
    })
}

/// Whether `place`, a file (`escape/mount.rs`) or modules (`escape::mount`), leads to `path`.
fn lies_in(path: &str, place: &str) -> bool {
    let place = place.trim_end_matches(".rs").replace("::", "/");
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path == place || path.ends_with(&format!("/{place}"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;

    const CHECKS: (&str, &str) = (
        "crates/a/src/conformance/shells.rs",
        "const ALL: &[Check] = &[\n    Check::shells(\"they_live_on\", they_live_on),\n];",
    );
    const TESTS: (&str, &str) = (
        "crates/a/tests/escape/mount.rs",
        "#[test]\n#[should_panic]\nfn umount_fails() {}\nfn helper() {}\n",
    );

    #[test]
    fn a_promise_names_a_test() {
        check(findings, &tree(&[TESTS]), &[]);
        let checked = "| P1 | it holds | `shells.rs::they_live_on` |\n";
        check(findings, &tree(&[CHECKS, ("PROMISES.md", checked)]), &[]);
        let kept = "| P1 | it holds | `mount::umount_fails`, `escape/mount.rs::umount_fails`, `escape::mount::umount_fails` |\n`/proc`\n";
        check(findings, &tree(&[TESTS, ("PROMISES.md", kept)]), &[]);
        let listed = (
            "crates/a/tests/asks/once.rs",
            "const TESTS: &[Test] = &[\n    (\"once::it_opens\", it_opens),\n    (\"other\", name),\n];\n",
        );
        check(
            findings,
            &tree(&[listed, ("PROMISES.md", "`once::it_opens`, `asks::once::it_opens`\n")]),
            &[],
        );
        check(
            findings,
            &tree(&[listed, ("PROMISES.md", "`once::name`\n")]),
            &["PROMISES.md:1: no test"],
        );
        check(
            findings,
            &tree(&[
                TESTS,
                (
                    "PROMISES.md",
                    "# Promises\n`mount::helper`\n`mount::absent`\n`elsewhere::umount_fails`\n",
                ),
            ]),
            &[
                "PROMISES.md:2: no test `mount::helper`",
                "PROMISES.md:3: no test",
                "PROMISES.md:4: no test",
            ],
        );
    }
}
