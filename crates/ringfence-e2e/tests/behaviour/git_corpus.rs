//! Git inside does what it does bare: the same exit status, the same output and the same tree.
//!
//! Every shape is made by a script with fixed dates, and copied. Each command runs bare in one twin
//! and inside in the other, and then the two are compared on the host: output, exit status, work
//! tree, modes, owners, refs, reflogs, settings and index. A difference that [`exceptions`] does
//! not list is a failure, and so is a listed one that is no difference any more.
//!
//! Two chains of commands run in each shape: one as root, the other as an ordinary user.
//! Neighbouring shapes exchange the two, so that each user meets every shape and every command. All
//! of them as both users would take more than two minutes of a small machine.

mod commands;
mod compare;
mod exceptions;
mod shapes;
mod world;

use ringfence_testkit::{TestUser, fuse_for_all, needs};

use self::commands::{CorpusLine, LOCAL, SHARED};
use self::compare::differences;
use self::exceptions::{EXCEPTIONS, Exception};
use self::shapes::{SHAPES, Shape};
use self::world::World;

/// The name under which the end of a chain is compared.
const END: &str = "end";

/// Commands of one shape that are compared one after the other in the same two worlds.
struct Chain {
    shape: &'static Shape,
    lines: Vec<CorpusLine>,
    user: TestUser,
}

impl Chain {
    /// Runs all commands. The names of those that differ, and the differences.
    fn run(&self) -> Vec<(&'static str, String)> {
        let bare = World::bare(self.shape, self.user);
        let mut inside = bare.twin();
        let before = differences(&bare.state(), &inside.state());
        assert!(
            before.is_empty(),
            "{}: the twins differ before the first command:\n{before}",
            self.shape.name
        );
        let mut found = Vec::new();
        for (step, (name, line)) in self.lines.iter().enumerate() {
            let difference = differences(&bare.command(step, line), &inside.command(step, line));
            if !difference.is_empty() {
                found.push((
                    *name,
                    format!("  {} / {name} ({}):\n{difference}", self.shape.name, self.user),
                ));
                inside.become_like(&bare);
            }
        }
        let difference = differences(&bare.end(), &inside.end());
        if !difference.is_empty() {
            found.push((
                END,
                format!("  {} / {END} ({}):\n{difference}", self.shape.name, self.user),
            ));
        }
        found
    }
}

/// Differences that are not listed, and listed ones that no longer occur.
fn failures(shape: &Shape, found: &[(&'static str, String)]) -> String {
    let is_listed =
        |command: &str| EXCEPTIONS.iter().any(|exception| exception.covers(shape.name, command));
    let unlisted: String = found
        .iter()
        .filter(|(command, _)| !is_listed(command))
        .map(|(_, difference)| difference.as_str())
        .collect();
    let is_over = |exception: &&Exception| {
        exception.is_held_in(shape.name)
            && !found.iter().any(|(command, _)| exception.covers(shape.name, command))
    };
    let over = EXCEPTIONS
        .iter()
        .filter(is_over)
        .map(|exception| format!("  does not differ any more: {exception:?}\n"));
    unlisted + &over.collect::<String>()
}

/// Tries all commands in the shape of this name.
#[track_caller]
fn check(name: &str) {
    if !needs(&["git"]) || !fuse_for_all() {
        return;
    }
    let number = SHAPES
        .iter()
        .position(|shape| shape.name == name)
        .expect("every test is named for a shape");
    let shape = &SHAPES[number];
    let local: Vec<CorpusLine> = shape.own.iter().chain(LOCAL).copied().collect();
    let users = TestUser::all();
    let chains = [local, SHARED.to_vec()].into_iter().enumerate();
    let found: Vec<(&str, String)> = chains
        .flat_map(|(turn, lines)| {
            Chain { shape, lines, user: users[(number + turn) % users.len()] }.run()
        })
        .collect();
    let failures = failures(shape, &found);
    assert!(failures.is_empty(), "git inside differs from git bare:\n{failures}");
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        /// Names of all tests.
        const TESTS: &[&str] = &[$(stringify!($name)),*];
    };
}

tests! {
    plain
    requests_sdist
    tornado_sdist
    urllib3_sdist
    jq_public_key
    rails_app
    vite_app
    django_app
    kubernetes_manifests
    filter_of_the_user
    submodule
    submodule_two_deep
    submodule_not_initialised
    bare_with_worktrees
    linked_worktree
    sparse_checkout
    monorepo_with_nested_repositories
    husky
    hooks
    line_ends
    symbolic_links
    odd_names
    many_files
    shallow_clone
    unborn_head
    detached_head
    merge_conflict
    rebase_conflict
    stashes
    tags_and_notes
    sha256
    reftable
    packed
    split_index
    subdirectory
    source_named_secrets
    committed_settings
    remote_branches
}

#[test]
fn every_shape_has_a_test_and_the_corpus_is_large() {
    let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
    assert_eq!(names, TESTS);
    let commands = LOCAL.len() + SHARED.len();
    assert!(names.len() >= 25 && commands >= 40, "{} shapes, {commands} commands", names.len());
}

#[test]
fn every_exception_names_a_shape_and_a_command() {
    for Exception { shape, command, reason } in EXCEPTIONS {
        assert!(!reason.is_empty() && [*shape, *command] != ["*", "*"], "{shape} {command}");
        assert!(*shape == "*" || TESTS.contains(shape), "{shape}");
        let is_named = |lines: &[CorpusLine]| lines.iter().any(|(name, _)| name == command);
        let is_own = SHAPES.iter().any(|known| known.name == *shape && is_named(known.own));
        assert!(
            [END, "*"].contains(command) || is_named(LOCAL) || is_named(SHARED) || is_own,
            "{command}"
        );
    }
}
