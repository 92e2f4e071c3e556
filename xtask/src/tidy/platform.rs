//! The system is chosen in a few files; all other code is the same on every system.

use super::Finding;
use super::source::find_word;
use super::tree::Tree;

/// Where a system is chosen: the syscalls and the crate that applies a plan with them, and in the
/// portable crates the named files. Below `unix.rs`, Linux and macOS differ in a few calls.
const CHOOSING: &[&str] = &[
    "crates/ringfence-sys/",
    "crates/ringfence-linux/",
    "crates/ringfence-survey/",
    "crates/ringfence-audit/src/platform.rs",
    "crates/ringfence-audit/src/platform/unix.rs",
    "crates/ringfence-client/src/lib.rs",
    "crates/ringfence-client/src/session.rs",
    "crates/ringfence-engine/src/caches.rs",
    "crates/ringfence-engine/src/host.rs",
    "crates/ringfence-log/src/platform.rs",
    "crates/ringfence-log/src/platform/unix.rs",
    "crates/ringfence-plan/src/git_index.rs",
    "crates/ringfence-policy/src/path.rs",
    "crates/ringfence-provider/src/process.rs",
];

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in
        tree.rust().filter(|(path, _)| !CHOOSING.iter().any(|choosing| path.starts_with(choosing)))
    {
        for (index, _) in code.lines().enumerate().filter(|(_, line)| chooses_system(line)) {
            findings.push(Finding::new(
                path,
                index + 1,
                "a system is chosen here: do it in a `platform` module, with the same functions on every system",
            ));
        }
    }
    findings
}

fn chooses_system(line: &str) -> bool {
    let has = |word: &&str| find_word(line, word).is_some();
    let in_cfg = ["cfg", "cfg_attr"].iter().any(has) && ["unix", "windows"].iter().any(has);
    in_cfg || ["target_os", "target_family"].iter().any(has)
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
                "crates/ringfence-linux/src/lib.rs",
                "#[cfg(target_os = \"linux\")]\nmod apply;",
            )]),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/ringfence-audit/src/platform.rs",
                "#[cfg(unix)]\nmod unix;\n#[cfg(windows)]\nmod windows;",
            )]),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/ringfence-audit/src/log.rs",
                "use std::os::unix::fs::MetadataExt;\n// cfg(target_os)\nfn windows() {}",
            )]),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/a/src/lib.rs",
                "#[cfg(not(target_os = \"linux\"))]\nfn f() {\n    cfg!(any(target_os = \"macos\"))\n}",
            )]),
            &["crates/a/src/lib.rs:1: a system", "crates/a/src/lib.rs:3: a system"],
        );
        check(
            findings,
            &tree(&[(
                "crates/ringfence-audit/src/log.rs",
                "#[cfg(unix)]\nfn f() {}\n#[cfg_attr(not(windows), path = \"x\")]\nmod g;",
            )]),
            &[
                "crates/ringfence-audit/src/log.rs:1: a system",
                "crates/ringfence-audit/src/log.rs:3: a system",
            ],
        );
    }
}
