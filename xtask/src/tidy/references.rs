//! Names of code in the documents for contributors exist.

use std::collections::HashSet;

use super::Finding;
use super::tree::{File, Tree};

/// Documents that describe the code: a file, or a directory.
const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals/"];

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let documents =
        tree.files.iter().filter(|file| DOCUMENTS.iter().any(|path| file.path.starts_with(path)));
    let documents: Vec<&File> = documents.filter(|file| file.path.ends_with(".md")).collect();
    if documents.is_empty() {
        return Vec::new();
    }
    let names = names_in_code(tree);
    let mut findings = Vec::new();
    for file in documents {
        for (index, line) in file.text.lines().enumerate() {
            for quoted in line.split('`').skip(1).step_by(2) {
                if let Some(missing) = missing_name(quoted, tree, &names) {
                    let what = format!("`{quoted}`: no `{missing}` in the code");
                    findings.push(Finding::new(&file.path, index + 1, what));
                }
            }
        }
    }
    findings
}

/// Every word of Rust code, and the names of tests that lists spell as text.
fn names_in_code(tree: &Tree) -> HashSet<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let files = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    files.flat_map(|file| file.text.split(move |c: char| !is_part(c))).collect()
}

/// The part of a quoted path (`engine::run`, `notify/resolve.rs`) that does not exist.
fn missing_name<'a>(quoted: &'a str, tree: &Tree, names: &HashSet<&str>) -> Option<&'a str> {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if let Some(path) = quoted.strip_suffix(".rs").map(|_| quoted) {
        let is_plain = path.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
        let exists = tree.paths.iter().any(|known| known.ends_with(path))
            || path.split_once("/src/").is_some_and(|(crate_name, rest)| {
                let full = format!("ringfence-{crate_name}/src/{rest}");
                tree.paths.iter().any(|known| known.ends_with(&full))
            });
        return (is_plain && !exists).then_some(path);
    }
    let call = quoted.trim_end_matches("()");
    let mut parts = call.split("::");
    let is_path = call.contains("::") && call.split("::").all(is_word);
    let is_type = is_word(call)
        && call.chars().skip(1).any(char::is_lowercase)
        && call.chars().filter(|c| c.is_uppercase()).count() > 1
        && call.starts_with(char::is_uppercase);
    if is_path || is_type { parts.find(|part| !names.contains(part)) } else { None }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::testing::{check, tree};
    use super::findings;

    #[test]
    fn names_that_are_gone_are_found() {
        let code = ("crates/ringfence-a/src/b.rs", "struct RunRequest;\nfn run() {}\n");
        let text =
            "`b::run`, `b::gone`, `RunRequest`, `RunRecipe`, `a/src/b.rs`, `a/src/c.rs`, `EPERM`\n";
        let mut tree = tree(&[code, ("ARCHITECTURE.md", text), ("other.md", "`b::gone`\n")]);
        tree.paths = vec![PathBuf::from("crates/ringfence-a/src/b.rs")];
        check(
            findings,
            &tree,
            &[
                "ARCHITECTURE.md:1: `b::run`: no `b`",
                "ARCHITECTURE.md:1: `b::gone`: no `b`",
                "ARCHITECTURE.md:1: `RunRecipe`",
                "ARCHITECTURE.md:1: `a/src/c.rs`",
            ],
        );
    }
}
