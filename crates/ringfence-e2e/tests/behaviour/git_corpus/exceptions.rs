//! Differences between git inside and git bare that are known, each with its reason.
//!
//! An entry whose difference no longer occurs fails the test, so that the list stays current.

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
    all("remote-remove", REMOTE),
    all("submodule-add", SUBMODULE_URL),
    all("apply", GITMODULES),
    all("worktree-remove", WORKTREES),
    one("merge_conflict", "am", GITMODULES),
    one("rebase_conflict", "am", GITMODULES),
    one(
        "sparse_checkout",
        "worktree-add",
        "`config.worktree` of a new worktree cannot be written, so it is not sparse",
    ),
    one("split_index", "*", "tracked files are not read from a split index, and stay denied"),
];

const REMOTE: &str = "a remote can be added to the user's config inside, and not removed from it";
const SUBMODULE_URL: &str =
    "`submodule.*.url` outside of the project is not written to the user's config";
const GITMODULES: &str = "a `.gitmodules` that stands is mounted over, and cannot be unlinked";
const WORKTREES: &str = "the empty `.git/worktrees` stays when each command is a run of its own";

const fn all(command: &'static str, reason: &'static str) -> Exception {
    Exception { shape: "*", command, reason }
}

const fn one(shape: &'static str, command: &'static str, reason: &'static str) -> Exception {
    Exception { shape, command, reason }
}

impl Exception {
    /// Covers `command` in `shape`.
    pub(super) fn covers(&self, shape: &str, command: &str) -> bool {
        matches!(self.shape, name if name == shape || name == "*")
            && matches!(self.command, name if name == command || name == "*")
    }

    /// Must be seen to differ in `shape`.
    pub(super) fn is_held_in(&self, shape: &str) -> bool {
        self.shape == shape || self.shape == "*" && shape == "plain"
    }
}
