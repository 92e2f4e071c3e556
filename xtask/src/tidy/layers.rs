//! Dependencies point one way.

use std::collections::{HashSet, VecDeque};

use super::Finding;
use super::tree::{From, Need, Package, Tree, When};

/// From the ground up: a crate may use only crates that stand before it.
const LAYERS: &[(&str, &str)] = &[
    ("ringfence-policy", "policies and decisions; pure"),
    ("ringfence-api", "requests and outcomes; pure"),
    ("ringfence-client", "speaks to a ringfence that runs elsewhere, also from a backend"),
    ("ringfence-cmdline", "the shell-line parser and the rules on its text; pure"),
    ("ringfence-plan", "from grants to a plan, for any host; pure"),
    ("ringfence-sys", "one function per syscall; it decides nothing"),
    ("ringfence-log", "filter, format and output of log events; it decides nothing"),
    ("ringfence-shell", "the protocol of a persistent shell"),
    ("ringfence-egress", "connections to the outside; the decision is made above"),
    ("ringfence-audit", "the audit log; enforcement does not depend on it"),
    ("ringfence-survey", "reads the host for a policy; it changes nothing"),
    ("ringfence-skills", "skills of tenants on disk; it runs nothing"),
    ("ringfence-provider", "the trait of every backend"),
    ("ringfence-conformance", "the checks of every backend; for tests only"),
    ("ringfence-linux", "the backend for this machine: it surveys the host and carries out plans"),
    ("ringfence-engine", "the pipeline of a command, with any backend"),
    ("ringfence-tools", "file tools in process: the same decisions, on opened files"),
    ("ringfence", "the library for programs that embed ringfence"),
    ("ringfence-mcp", "the MCP server; it knows no backend"),
    ("ringfence-http", "the HTTP service; it knows no backend"),
    ("ringfence-cli", "the command line; it picks the backend and starts the servers"),
    ("ringfence-e2e", "end-to-end tests; nothing depends on it"),
];

/// Dependencies that the order alone would allow, or whose reason is more than the order; neither
/// direct nor through another crate.
const BARRED: &[(&str, &str, &str)] = &[
    ("ringfence-sys", "ringfence-policy", "a system call knows no policy"),
    ("ringfence-sys", "ringfence-api", "a system call knows no request"),
    ("ringfence-sys", "ringfence-cmdline", "a system call knows no shell line"),
    ("ringfence-sys", "ringfence-plan", "a system call knows no plan"),
    ("ringfence-client", "ringfence-linux", "a client starts no sandbox"),
    ("ringfence-client", "ringfence-engine", "a client decides nothing"),
    ("ringfence-plan", "ringfence-sys", "a plan is data for any host: it makes no syscall"),
    ("ringfence-plan", "ringfence-linux", "a plan is made from a survey, not from the host"),
    ("ringfence-plan", "ringfence-cmdline", "rules on text run before the sandbox"),
    ("ringfence-provider", "ringfence-linux", "a backend may confine by other means than Linux's"),
    ("ringfence-linux", "ringfence-cmdline", "rules on text run before the sandbox"),
    ("ringfence-provider", "ringfence-audit", "a backend runs commands; the engine records them"),
    ("ringfence-linux", "ringfence-audit", "a backend runs commands; the engine records them"),
    ("ringfence-engine", "ringfence-linux", "the engine knows backends by their trait only"),
    ("ringfence-engine", "ringfence-sys", "the engine compiles for systems that are not Linux"),
    ("ringfence-provider", "ringfence-sys", "a backend may confine by other means than Linux's"),
    ("ringfence-audit", "ringfence-sys", "the audit log compiles for systems that are not Linux"),
    ("ringfence-mcp", "ringfence-linux", "the caller picks the backend"),
    ("ringfence-http", "ringfence-linux", "the caller picks the backend"),
];

/// Used by tests of any layer, and itself free to use any.
const TESTKIT: &str = "ringfence-testkit";
/// Used by tests only; its own tests are free to use any layer.
const CONFORMANCE: &str = "ringfence-conformance";
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
    let user = &package.name;
    let direct = our_needs(package).filter_map(|need| {
        let why = objection(user, &need.name, need.when)?;
        Some((need.name.as_str(), format!("{user} must not depend on {}: {why}", need.name)))
    });
    let indirect = BARRED.iter().filter(|(from, ..)| from == user).filter_map(|(_, used, why)| {
        let route = route_to(tree, package, used)?;
        let through = route.join(", ");
        Some((route[0], format!("{user} must not depend on {used} through {through}: {why}")))
    });
    direct
        .chain(indirect)
        .map(|(need, what)| {
            let manifest = tree.file(&package.manifest);
            let line = manifest.and_then(|manifest| line_of(&manifest.text, need)).unwrap_or(1);
            Finding::new(&package.manifest, line, what)
        })
        .collect()
}

fn our_needs(package: &Package) -> impl Iterator<Item = &Need> {
    package.needs.iter().filter(|need| need.from == From::Workspace)
}

/// The crates through which `user` reaches `used`, on the shortest way; `None` without a way or
/// with a direct dependency. The tests of another crate are no way: cargo does not build them.
fn route_to<'a>(tree: &'a Tree, user: &'a Package, used: &str) -> Option<Vec<&'a str>> {
    let starts = || our_needs(user).map(|need| need.name.as_str()).filter(|name| *name != TESTKIT);
    if starts().any(|name| name == used) {
        return None;
    }
    let mut seen: HashSet<&str> = starts().collect();
    let mut routes: VecDeque<Vec<&str>> = starts().map(|name| vec![name]).collect();
    while let Some(route) = routes.pop_front() {
        let last =
            tree.packages.iter().find(|package| Some(&package.name.as_str()) == route.last());
        let needs = last.into_iter().flat_map(our_needs).filter(|need| need.when != When::Test);
        for need in needs {
            if need.name == used {
                return Some(route);
            }
            if seen.insert(&need.name) {
                routes.push_back(route.iter().copied().chain([need.name.as_str()]).collect());
            }
        }
    }
    None
}

/// Why `user` must not use `used`, or nothing.
fn objection(user: &str, used: &str, when: When) -> Option<&'static str> {
    if user == CHORES {
        return Some("chores must build when nothing else does");
    }
    if [TESTKIT, CONFORMANCE].contains(&used) && user != CONFORMANCE && when != When::Test {
        return Some("it is for tests only");
    }
    if [user, used].contains(&TESTKIT) || (user == CONFORMANCE && when == When::Test) {
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
                &[("ringfence-engine", Always), ("ringfence-linux", Always)],
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
                .with("ringfence-linux", &[("ringfence-engine", Build), ("ringfence-cli", Test)]),
            &[
                "crates/ringfence-linux/Cargo.toml:1: ringfence-linux must not depend on ringfence-engine",
                "crates/ringfence-linux/Cargo.toml:1: ringfence-linux must not depend on ringfence-cli",
            ],
        );
    }

    #[test]
    fn some_pairs_are_barred_although_the_order_lets_them() {
        check(
            findings,
            &tree(&[]).with("ringfence-engine", &[("ringfence-linux", Always)]),
            &[
                "crates/ringfence-engine/Cargo.toml:1: ringfence-engine must not depend on ringfence-linux: the engine knows",
            ],
        );
        check(
            findings,
            &tree(&[]).with("ringfence-provider", &[("ringfence-linux", Always)]),
            &["crates/ringfence-provider/Cargo.toml:1:"],
        );
    }

    #[test]
    fn barred_crate_is_not_reached_through_another() {
        let below = |engine_needs| {
            tree(&[(
                "crates/ringfence-mcp/Cargo.toml",
                "[dependencies]\nringfence-engine = 1\nringfence.workspace = true\n",
            )])
            .with("ringfence-linux", &[("ringfence-policy", Always)])
            .with("ringfence", &[("ringfence-linux", engine_needs)])
            .with("ringfence-mcp", &[("ringfence-engine", Always), ("ringfence", Always)])
        };
        let through = "crates/ringfence-mcp/Cargo.toml:3: ringfence-mcp must not depend on ringfence-linux through ringfence: the caller";
        check(findings, &below(Always), &[through]);
        check(findings, &below(Build), &[through]);
        check(findings, &below(Test), &[]);
        // Two crates between; the first is needed by tests only.
        check(
            findings,
            &tree(&[])
                .with("ringfence-sys", &[])
                .with("ringfence-linux", &[("ringfence-sys", Always)])
                .with("ringfence-provider", &[("ringfence-linux", Always)])
                .with("ringfence-engine", &[("ringfence-provider", Test)]),
            &[
                "crates/ringfence-provider/Cargo.toml:1: ringfence-provider must not depend on ringfence-linux: a backend",
                "crates/ringfence-provider/Cargo.toml:1: ringfence-provider must not depend on ringfence-sys through ringfence-linux: a backend",
                "crates/ringfence-engine/Cargo.toml:1: ringfence-engine must not depend on ringfence-linux through ringfence-provider: the engine knows",
                "crates/ringfence-engine/Cargo.toml:1: ringfence-engine must not depend on ringfence-sys through ringfence-provider, ringfence-linux: the engine compiles",
            ],
        );
    }

    #[test]
    fn plans_are_made_without_the_host() {
        check(
            findings,
            &tree(&[])
                .with("ringfence-plan", &[("ringfence-sys", Always), ("ringfence-linux", Test)])
                .with("ringfence-provider", &[("ringfence-linux", Always)]),
            &[
                "crates/ringfence-plan/Cargo.toml:1: ringfence-plan must not depend on ringfence-sys: a plan is data",
                "crates/ringfence-plan/Cargo.toml:1: ringfence-plan must not depend on ringfence-linux: a plan is",
                "crates/ringfence-provider/Cargo.toml:1: ringfence-provider must not depend on ringfence-linux",
            ],
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
    fn conformance_checks_ship_with_nothing() {
        fn needs(user: &str, needs: &[(&str, super::When)]) -> super::Tree {
            tree(&[]).with(user, needs)
        }
        let checks = "ringfence-conformance";
        check(findings, &needs("ringfence-linux", &[(checks, Test)]), &[]);
        check(
            findings,
            &needs(checks, &[("ringfence-testkit", Always), ("ringfence-linux", Test)]),
            &[],
        );
        check(
            findings,
            &needs("ringfence-cli", &[(checks, Always)]),
            &[
                "crates/ringfence-cli/Cargo.toml:1: ringfence-cli must not depend on ringfence-conformance: it is for tests only",
            ],
        );
        check(
            findings,
            &needs(checks, &[("ringfence-linux", Always)]),
            &[
                "crates/ringfence-conformance/Cargo.toml:1: ringfence-conformance must not depend on ringfence-linux: dependencies point down",
            ],
        );
        check(
            findings,
            &needs("ringfence-policy", &[(checks, Test)]),
            &[
                "crates/ringfence-policy/Cargo.toml:1: ringfence-policy must not depend on ringfence-conformance: dependencies point down",
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
