//! File names consist of printable ASCII characters.

use std::os::unix::ffi::OsStrExt;

use super::Finding;
use super::tree::Tree;

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
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
        check(findings, &tree, &[r"src/K#wUQ\x1d:1: a name", r"\xff:1: a name"]);
    }
}
