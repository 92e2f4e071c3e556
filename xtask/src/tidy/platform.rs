//! Which system we run on is the business of two crates.

use super::Finding;
use super::source::find_word;
use super::tree::Tree;

/// Where `target_os` may be asked for: the calls, and what applies a plan with them.
const KNOWING: &[&str] = &["crates/ringfence-sys/", "crates/ringfence-enforce/"];

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in
        tree.rust().filter(|(path, _)| !KNOWING.iter().any(|knowing| path.starts_with(knowing)))
    {
        for (index, _) in
            code.lines().enumerate().filter(|(_, line)| find_word(line, "target_os").is_some())
        {
            findings.push(Finding::new(
                path,
                index + 1,
                "target_os outside sys and enforce: shared code is the same on every system",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;

    #[test]
    fn shared_code_is_the_same_on_every_system() {
        check(
            findings,
            &tree(&[(
                "crates/ringfence-enforce/src/lib.rs",
                "#[cfg(target_os = \"linux\")]\nmod apply;",
            )]),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/ringfence-policy/src/path.rs",
                "#[cfg(unix)]\n// cfg(target_os)\nfn f() {}",
            )]),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/a/src/lib.rs",
                "#[cfg(not(target_os = \"linux\"))]\nfn f() {\n    cfg!(any(target_os = \"macos\"))\n}",
            )]),
            &["crates/a/src/lib.rs:1: target_os", "crates/a/src/lib.rs:3: target_os"],
        );
    }
}
