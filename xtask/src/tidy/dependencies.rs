//! Every crate from outside is accounted for in one document, and named in one table.

use super::Finding;
use super::tree::{From, Tree};

const MANIFEST: &str = "Cargo.toml";
const DOCUMENT: &str = "docs/dependencies.md";

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let lines = |path: &str| tree.file(path).map_or("", |file| &file.text).lines();
    let taken: Vec<(usize, &str)> = taken(lines(MANIFEST)).collect();
    let explained: Vec<(usize, &str)> = explained(lines(DOCUMENT)).collect();
    let names = |list: &[(usize, &str)], name: &str| list.iter().any(|(_, listed)| *listed == name);

    let mut findings = Vec::new();
    for (line, name) in taken.iter().filter(|(_, name)| !names(&explained, name)) {
        findings.push(Finding::new(MANIFEST, *line, format!("{name} has no line in {DOCUMENT}")));
    }
    for (line, name) in explained.iter().filter(|(_, name)| !names(&taken, name)) {
        findings.push(Finding::new(DOCUMENT, *line, format!("{name} is not in {MANIFEST}")));
    }
    for package in &tree.packages {
        let outside = package
            .needs
            .iter()
            .filter(|need| need.from == From::Outside && !names(&taken, &need.name));
        findings.extend(outside.map(|need| {
            Finding::new(
                &package.manifest,
                1,
                format!("{} is not taken from the workspace", need.name),
            )
        }));
    }
    findings
}

/// The crates from outside in `[workspace.dependencies]`, one on each line.
fn taken<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (usize, &'a str)> {
    let section =
        lines.enumerate().skip_while(|(_, line)| line.trim() != "[workspace.dependencies]").skip(1);
    section.take_while(|(_, line)| !line.starts_with('[')).filter_map(|(index, line)| {
        let (name, value) = line.split_once('=')?;
        let outside = !name.starts_with('#') && !value.contains("path =");
        outside.then_some((index + 1, name.trim()))
    })
}

/// The crates of the document's first table; the one below its `##` heading tells what was left
/// out.
fn explained<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (usize, &'a str)> {
    let table = lines.enumerate().take_while(|(_, line)| !line.starts_with("## "));
    table.filter_map(|(index, line)| Some((index + 1, row(line)?)))
}

/// The crate that a row of the table is about: its first cell, in backticks.
fn row(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;
    use crate::tidy::tree::When::Always;

    const MANIFEST: (&str, &str) = (
        "Cargo.toml",
        "[workspace.dependencies]\nringfence-api = { path = \"x\" }\nserde = \"1\"\n# y = 1\nlibc = { version = \"0.2\" }\n\n[profile.dev]\ndebug = 1\n",
    );

    #[test]
    fn the_document_and_the_manifest_agree() {
        check(
            findings,
            &tree(&[
                MANIFEST,
                (
                    "docs/dependencies.md",
                    "| crate | why |\n|---|---|\n| `serde` | x |\n| `libc` | x |\n## Not\n| `nix` | x |\n",
                ),
            ]),
            &[],
        );
        check(
            findings,
            &tree(&[MANIFEST, ("docs/dependencies.md", "| `serde` | x |\n| `rand` | x |\n")]),
            &[
                "Cargo.toml:5: libc has no line",
                "docs/dependencies.md:2: rand is not in Cargo.toml",
            ],
        );
    }

    #[test]
    fn a_crate_takes_nothing_past_the_workspace() {
        let rows = ("docs/dependencies.md", "| `serde` | x |\n| `libc` | x |\n");
        check(findings, &tree(&[MANIFEST, rows]).with_outside("a", &[("serde", Always)]), &[]);
        check(
            findings,
            &tree(&[MANIFEST, rows]).with_outside("a", &[("rand", Always)]),
            &["crates/a/Cargo.toml:1: rand is not taken"],
        );
    }
}
