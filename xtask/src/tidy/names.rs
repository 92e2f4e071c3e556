//! Tracked files have printable names and a known kind.

use std::os::unix::ffi::OsStrExt;

use super::Finding;
use super::tree::Tree;

/// Extensions of tracked files.
const KINDS: &[&str] = &[
    "c", "css", "html", "js", "json", "lock", "md", "mjs", "png", "py", "rs", "sh", "svg", "toml",
    "ts", "txt",
];
/// Tracked files without an extension.
const PLAIN: &[&str] = &[
    "run",
    "clients",
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    ".gitignore",
    ".git-blame-ignore-revs",
];

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = unprintable(tree);
    findings.extend(unknown_kinds(tree));
    findings
}

fn unknown_kinds(tree: &Tree) -> impl Iterator<Item = Finding> {
    let unknown = tree.paths.iter().filter(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let name = path.file_name().and_then(|name| name.to_str());
        !extension.is_some_and(|extension| KINDS.contains(&extension))
            && !name.is_some_and(|name| PLAIN.contains(&name))
    });
    unknown.map(|path| Finding::new(&path.to_string_lossy(), 1, "a file of an unknown kind"))
}

fn unprintable(tree: &Tree) -> Vec<Finding> {
    let odd = tree.paths.iter().filter(|path| {
        path.as_os_str().as_bytes().iter().any(|byte| !(b' '..=b'~').contains(byte))
    });
    odd.map(|path| {
        Finding::new(
            &path.as_os_str().as_bytes().escape_ascii().to_string(),
            1,
            "a name that cannot be printed",
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::super::testing::{check, tree};
    use super::findings;

    #[test]
    fn unprintable_names_are_found() {
        let mut tree = tree(&[]);
        tree.paths = [&b"src/a b.rs"[..], b"src/K#wUQ\x1d", b"\xff"]
            .map(|name| PathBuf::from(OsStr::from_bytes(name)))
            .into();
        check(super::unprintable, &tree, &[r"src/K#wUQ\x1d:1: a name", r"\xff:1: a name"]);
    }

    #[test]
    fn file_of_an_unknown_kind_is_found() {
        let mut tree = tree(&[]);
        tree.paths = ["a/b.rs", ".ci/run", "core.1234", "a/out"].map(PathBuf::from).into();
        check(findings, &tree, &["core.1234:1: a file", "a/out:1: a file"]);
    }
}
