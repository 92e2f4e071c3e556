//! Differences between git inside and git bare that are known, each with its reason.
//!
//! An entry whose difference is over fails the test, so that the list cannot rot.

/// A command that may differ.
#[derive(Debug)]
pub(super) struct Exception {
    /// The shape's name. `*` is every shape; then the command has to differ in the plain one.
    pub(super) shape: &'static str,
    /// The command's name. `*` is every command; then one of them has to differ.
    pub(super) command: &'static str,
    /// Why it differs.
    pub(super) reason: &'static str,
}

/// All known differences.
pub(super) const EXCEPTIONS: &[Exception] = &[
    all("branch-m", CONFIG),
    all("checkout-remote", CONFIG),
    all("branch-u", CONFIG),
    all("push-u", CONFIG),
    all("branch-m-upstream", CONFIG),
    all("remote-add", CONFIG),
    all("remote-remove", CONFIG),
    all("submodule-add", SUBMODULE),
    all("apply", SUBMODULE),
    all("worktree-remove", WORKTREE),
    whole("filter_of_the_user", FILTER),
    whole("remote_branches", CONFIG),
    whole("split_index", "D1: tracked files are not read from a split index"),
    Exception { shape: "sparse_checkout", command: "worktree-add", reason: "D5: `config.worktree` cannot be copied for a new worktree" },
    Exception { shape: "merge_conflict", command: "am", reason: SUBMODULE },
    Exception { shape: "rebase_conflict", command: "am", reason: SUBMODULE },
    whole("submodule", SUBMODULE),
    whole("submodule_not_initialised", SUBMODULE),
    whole("submodule_two_deep", SUBMODULE),
];

const FILTER: &str = "D2: filters of the user's config are missing inside";
const SUBMODULE: &str = "D3: `.gitmodules` and `.git/modules` cannot be written inside";
const CONFIG: &str = "D4: `.git/config` cannot be written inside";
const WORKTREE: &str = "D5: the empty `.git/worktrees` stays";

const fn all(command: &'static str, reason: &'static str) -> Exception {
    Exception { shape: "*", command, reason }
}

const fn whole(shape: &'static str, reason: &'static str) -> Exception {
    Exception { shape, command: "*", reason }
}

impl Exception {
    /// Covers `command` in `shape`.
    pub(super) fn covers(&self, shape: &str, command: &str) -> bool {
        matches!(self.shape, name if name == shape || name == "*") && matches!(self.command, name if name == command || name == "*")
    }

    /// Must be seen to differ in `shape`.
    pub(super) fn is_held_in(&self, shape: &str) -> bool {
        self.shape == shape || self.shape == "*" && shape == "plain"
    }
}
