//! Words that must not be left in a file.

use super::Finding;
use super::source::find_word;
use super::tree::Tree;

/// Anywhere in a line.
const MARKS: &[(&str, &str)] = &[
    ("todo!(", "unfinished"),
    ("unimplemented!(", "unfinished"),
    ("dbg!(", "left from looking for a fault"),
    ("#[ignore", "a test that does not run holds nothing"),
];

/// As words of their own, so that the template of mktemp(1) stays possible.
const NOTES: &[&str] = &["FIXME", "XXX"];

/// Build directories of one machine.
const MACHINES: &[&str] = &["/builds/", "/home/runner/"];

/// The one file that has to spell them.
const HERE: &str = "xtask/src/tidy/words.rs";

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != HERE) {
        for (index, line) in file.text.lines().enumerate() {
            findings.extend(
                objections(line).into_iter().map(|what| Finding::new(&file.path, index + 1, what)),
            );
        }
    }
    findings
}

fn objections(line: &str) -> Vec<String> {
    let marks = MARKS
        .iter()
        .filter(|(mark, _)| line.contains(mark))
        .map(|(mark, why)| format!("`{mark}`: {why}"));
    let notes = NOTES
        .iter()
        .filter(|note| find_word(line, note).is_some())
        .map(|note| format!("`{note}`: do it, or write an issue"));
    let machines = MACHINES
        .iter()
        .filter(|path| starts_path(line, path))
        .map(|path| format!("`{path}`: a path of one machine"));
    marks.chain(notes).chain(machines).collect()
}

/// True if a path begins with `prefix` somewhere in `line`.
fn starts_path(line: &str, prefix: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || "_-.~/}*".contains(c);
    line.match_indices(prefix).any(|(at, _)| !line[..at].chars().next_back().is_some_and(inner))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;

    #[test]
    fn marks_are_found_in_any_text() {
        check(
            findings,
            &tree(&[("a.rs", "fn f() {\n    todo!()\n}"), ("a.md", "XXX: later\n")]),
            &["a.rs:2: `todo!(`", "a.md:1: `XXX`"],
        );
        check(
            findings,
            &tree(&[("a.rs", "#[ignore = \"slow\"]\ndbg!(x); // FIXME")]),
            &["a.rs:1: `#[ignore`", "a.rs:2: `dbg!(`", "a.rs:2: `FIXME`"],
        );
        check(findings, &tree(&[("a.sh", "mktemp -d /tmp/x.XXXXXX"), (super::HERE, "XXX")]), &[]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        check(
            findings,
            &tree(&[("a.md", "see /builds/main\n`/builds/x`\n")]),
            &["a.md:1: `/builds/`", "a.md:2: `/builds/`"],
        );
        check(
            findings,
            &tree(&[("a.md", "~/builds/x https://a.example/builds/x $D/builds/ ${D}/builds/")]),
            &[],
        );
    }
}
