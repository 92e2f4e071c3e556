//! Counts of production lines, as `cargo xtask tidy --stats` prints them.

use std::collections::BTreeMap;

use super::tree::Tree;

/// Crates that only tests use.
const TEST_CRATES: &[&str] = &["ringfence-conformance", "ringfence-e2e", "ringfence-testkit"];
/// Files and directories that hold only tests, or code for tests.
const TEST_NAMES: &[&str] = &["tests", "examples", "tests.rs", "testing.rs"];

/// The lines of each crate that ships, without tests, comments and blank lines.
pub(super) fn count_production_lines(tree: &Tree) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (path, code) in tree.rust() {
        let mut names = path.split('/');
        let (Some("crates"), Some(name)) = (names.next(), names.next()) else { continue };
        if TEST_CRATES.contains(&name) || names.any(|part| TEST_NAMES.contains(&part)) {
            continue;
        }
        let text = tree.file(path).map_or("", |file| &file.text);
        *counts.entry(name).or_default() += count_lines(text, code);
    }
    counts
}

/// Counts the lines of one file. In `code`, comments and literals of `text` are blank.
fn count_lines(text: &str, code: &str) -> usize {
    let mut count = 0;
    let mut lines = text.lines().zip(code.lines());
    while let Some((line, _)) = lines.next() {
        let line = line.trim();
        if line.starts_with("#[cfg(test)]") {
            skip_item(&mut lines.by_ref().map(|(_, code)| code));
        } else if !line.is_empty() && !line.starts_with("//") {
            count += 1;
        }
    }
    count
}

/// Skips the item after an attribute: to its closing brace, or to its semicolon.
fn skip_item(lines: &mut dyn Iterator<Item = &str>) {
    let mut depth = 0_usize;
    for line in lines {
        let is_block = depth > 0 || line.contains('{');
        let count = |brace: char| line.matches(brace).count();
        depth = (depth + count('{')).saturating_sub(count('}'));
        if depth == 0 && (is_block || line.trim_end().ends_with(';')) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::count_production_lines;

    #[test]
    fn tests_comments_and_blank_lines_do_not_count() {
        let source = "//! Doc.\n\nuse a::b; // why\n#[cfg(test)]\nuse c::d;\nfn f() {\n    g(\"}\");\n}\n\
            #[cfg(test)]\nmod tests {\n    fn t() {\n        f(\"{\");\n    }\n}\nconst X: u8 = 1;\n";
        let tree = tree(&[
            ("crates/one/src/lib.rs", source),
            ("crates/one/src/more/tests.rs", "fn t() {}\n"),
            ("crates/one/tests/all.rs", "fn t() {}\n"),
            ("crates/ringfence-testkit/src/lib.rs", "fn t() {}\n"),
            ("xtask/src/main.rs", "fn main() {}\n"),
        ]);
        let counts: Vec<_> = count_production_lines(&tree).into_iter().collect();
        assert_eq!(counts, [("one", 5)]);
    }
}
