//! `unsafe` stands in one crate, and the others cannot have it.

use super::Finding;
use super::source::find_word;
use super::tree::{Package, Tree};

const FENCED: &str = "ringfence-sys";

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let inside = format!("crates/{FENCED}/");
    let mut findings = Vec::new();
    for (path, code) in tree.rust().filter(|(path, _)| !path.starts_with(&inside)) {
        for (index, _) in
            code.lines().enumerate().filter(|(_, line)| find_word(line, "unsafe").is_some())
        {
            findings.push(Finding::new(path, index + 1, format!("unsafe code outside {FENCED}")));
        }
    }
    let unfenced =
        tree.packages.iter().filter(|package| package.name != FENCED && !fenced(tree, package));
    findings.extend(unfenced.map(|package| {
        Finding::new(
            &package.manifest,
            1,
            format!("{} does not forbid unsafe code: `[lints] workspace = true`", package.name),
        )
    }));
    findings
}

/// True if the compiler is told to refuse `unsafe`, by the workspace's lints or in every root.
fn fenced(tree: &Tree, package: &Package) -> bool {
    let has = |path: &str, section: &str, entry: &str| {
        tree.file(path).is_some_and(|file| in_section(&file.text, section, entry))
    };
    let by_lints = has(&package.manifest, "[lints]", "workspace = true")
        && has("Cargo.toml", "[workspace.lints.rust]", "unsafe_code = \"forbid\"");
    let in_root = |root: &String| {
        tree.file(root)
            .and_then(|file| file.code.as_deref())
            .is_some_and(|code| code.contains("#![forbid(unsafe_code)]"))
    };
    by_lints || package.roots.iter().all(in_root)
}

fn in_section(manifest: &str, section: &str, entry: &str) -> bool {
    let after = manifest.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
    after.take_while(|line| !line.starts_with('[')).any(|line| line == entry)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;

    const WORKSPACE: (&str, &str) =
        ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n");

    #[test]
    fn unsafe_stands_in_sys_only() {
        check(findings, &tree(&[("crates/ringfence-sys/src/lib.rs", "unsafe fn f() {}")]), &[]);
        check(
            findings,
            &tree(&[(
                "crates/a/src/lib.rs",
                "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";",
            )]),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/a/src/lib.rs",
                "fn f() {\n    unsafe { g() }\n}\nunsafe impl Send for A {}",
            )]),
            &["crates/a/src/lib.rs:2: unsafe code", "crates/a/src/lib.rs:4: unsafe code"],
        );
    }

    #[test]
    fn every_other_crate_forbids_it() {
        let lints = ("crates/a/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n");
        check(findings, &tree(&[WORKSPACE, lints]).with("a", &[]), &[]);
        check(
            findings,
            &tree(&[("crates/a/src/lib.rs", "#![forbid(unsafe_code)]\n")]).with("a", &[]),
            &[],
        );
        check(
            findings,
            &tree(&[lints]).with("a", &[]),
            &["crates/a/Cargo.toml:1: a does not forbid"],
        );
        check(
            findings,
            &tree(&[WORKSPACE, ("crates/a/Cargo.toml", "[dependencies]\nworkspace = true\n")])
                .with("a", &[]),
            &["crates/a/Cargo.toml:1: a does not forbid"],
        );
    }
}
