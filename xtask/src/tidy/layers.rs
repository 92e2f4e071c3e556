//! Dependencies point one way.

use super::Finding;
use super::tree::{From, Package, Tree, When};

/// From the ground up: a crate may use only crates that stand before it.
const LAYERS: &[(&str, &str)] = &[
    (
        "ringfence-policy",
        "the words as written; pure, so that they can be tested without a machine",
    ),
    ("ringfence-api", "the words that go in and come out; pure, and spoken by every layer above"),
    ("ringfence-sys", "one function for each system call; it decides nothing"),
    ("ringfence-shell", "what a persistent shell is told, and how it tells of an end"),
    ("ringfence-tripwire", "a file system that tells who looked; it opens nothing"),
    ("ringfence-egress", "how something outside is reached; why it may be is decided above"),
    ("ringfence-audit", "what is written down of it all; whoever enforces does not wait for it"),
    ("ringfence-enforce", "from grants to a plan, from a plan to a process"),
    (
        "ringfence-tools",
        "what agents do without a shell: the same decisions, on what was really opened",
    ),
    ("ringfence-skills", "what tenants bring: taken in, kept and read; it runs nothing"),
    ("ringfence-provider", "what every place must do"),
    ("ringfence-local", "one such place"),
    ("ringfence-engine", "the life of a command, in any place"),
    (
        "ringfence",
        "the door for programs that embed us, and the words that all doors say what happened in",
    ),
    (
        "ringfence-mcp",
        "the door for agents that speak the Model Context Protocol; it knows no place",
    ),
    ("ringfence-http", "the door for tenants of a service; it knows no place"),
    (
        "ringfence-cli",
        "the door for people, where the place is picked and every other door is started from",
    ),
];

/// What the order alone would let through.
const BARRED: &[(&str, &str, &str)] = &[
    ("ringfence-sys", "ringfence-policy", "a system call knows no policy"),
    ("ringfence-sys", "ringfence-api", "a system call knows no request"),
    (
        "ringfence-enforce",
        "ringfence-audit",
        "what is enforced does not depend on what is written down",
    ),
    ("ringfence-provider", "ringfence-audit", "a place runs commands; the engine records them"),
    ("ringfence-local", "ringfence-audit", "a place runs commands; the engine records them"),
    ("ringfence-engine", "ringfence-local", "the engine knows places by their trait only"),
    ("ringfence-mcp", "ringfence-local", "whoever starts the server picks the place"),
    ("ringfence-http", "ringfence-local", "whoever starts the service picks the place"),
];

/// Used by tests of any layer, and itself free to use any.
const TESTKIT: &str = "ringfence-testkit";
/// Outside the layers: it uses none of them.
const CHORES: &str = "xtask";

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    tree.packages.iter().flat_map(|package| of_package(tree, package)).collect()
}

fn of_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    if rank(&package.name).is_none() && ![TESTKIT, CHORES].contains(&package.name.as_str()) {
        return vec![Finding::new(
            &package.manifest,
            1,
            format!("{} has no place in the layers: give it one, with a reason", package.name),
        )];
    }
    let ours = package.needs.iter().filter(|need| need.from == From::Workspace);
    ours.filter_map(|need| {
        let why = objection(&package.name, &need.name, need.when)?;
        let line = tree
            .file(&package.manifest)
            .and_then(|manifest| line_of(&manifest.text, &need.name))
            .unwrap_or(1);
        Some(Finding::new(
            &package.manifest,
            line,
            format!("{} must not depend on {}: {why}", package.name, need.name),
        ))
    })
    .collect()
}

/// Why `user` must not use `used`, or nothing.
fn objection(user: &str, used: &str, when: When) -> Option<&'static str> {
    if user == CHORES {
        return Some("chores must build when nothing else does");
    }
    if used == TESTKIT {
        return (when != When::Test).then_some("it is for tests only");
    }
    if user == TESTKIT {
        return None;
    }
    if let Some((_, _, why)) = BARRED.iter().find(|(from, to, _)| (*from, *to) == (user, used)) {
        return Some(why);
    }
    (rank(used) >= rank(user) || rank(used).is_none())
        .then_some("dependencies point down the layers only")
}

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|(layer, _)| *layer == name)
}

fn line_of(manifest: &str, name: &str) -> Option<usize> {
    let names =
        |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    manifest.lines().position(names).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;
    use crate::tidy::tree::When::{Always, Build, Test};

    #[test]
    fn dependencies_point_down() {
        check(
            findings,
            &tree(&[]).with(
                "ringfence-cli",
                &[("ringfence-engine", Always), ("ringfence-local", Always)],
            ),
            &[],
        );
        check(
            findings,
            &tree(&[(
                "crates/ringfence-api/Cargo.toml",
                "[dependencies]\nserde = 1\nringfence-sys.workspace = true\n",
            )])
            .with("ringfence-api", &[("ringfence-sys", Always)]),
            &[
                "crates/ringfence-api/Cargo.toml:3: ringfence-api must not depend on ringfence-sys: dependencies point down",
            ],
        );
        check(
            findings,
            &tree(&[])
                .with("ringfence-enforce", &[("ringfence-engine", Build), ("ringfence-cli", Test)]),
            &[
                "crates/ringfence-enforce/Cargo.toml:1: ringfence-enforce must not depend on ringfence-engine",
                "crates/ringfence-enforce/Cargo.toml:1: ringfence-enforce must not depend on ringfence-cli",
            ],
        );
    }

    #[test]
    fn some_pairs_are_barred_although_the_order_lets_them() {
        check(
            findings,
            &tree(&[]).with("ringfence-engine", &[("ringfence-local", Always)]),
            &[
                "crates/ringfence-engine/Cargo.toml:1: ringfence-engine must not depend on ringfence-local: the engine knows",
            ],
        );
        check(
            findings,
            &tree(&[]).with("ringfence-provider", &[("ringfence-local", Always)]),
            &["crates/ringfence-provider/Cargo.toml:1:"],
        );
    }

    #[test]
    fn the_testkit_is_for_tests() {
        check(findings, &tree(&[]).with("ringfence-policy", &[("ringfence-testkit", Test)]), &[]);
        check(
            findings,
            &tree(&[]).with("ringfence-cli", &[("ringfence-testkit", Always)]),
            &[
                "crates/ringfence-cli/Cargo.toml:1: ringfence-cli must not depend on ringfence-testkit: it is for tests only",
            ],
        );
    }

    #[test]
    fn every_crate_has_a_place() {
        check(
            findings,
            &tree(&[]).with("ringfence-new", &[]),
            &["crates/ringfence-new/Cargo.toml:1: ringfence-new has no place"],
        );
        check(
            findings,
            &tree(&[]).with("xtask", &[("ringfence-policy", Always)]),
            &["crates/xtask/Cargo.toml:1: xtask must not"],
        );
    }
}
