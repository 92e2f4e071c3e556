//! The users of a test.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;

/// The user of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestUser {
    /// Root.
    Root,
    /// A user without privileges.
    User,
}

/// A uid that no distribution uses; without an entry in the password file, as in many containers.
const TEST_UID: u32 = 61_234;

impl fmt::Display for TestUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TestUser::Root => "root",
            TestUser::User => "an ordinary user",
        })
    }
}

impl TestUser {
    /// True if the test runner is root.
    pub fn runner_is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Every user that the runner can be.
    pub fn all() -> &'static [TestUser] {
        if TestUser::runner_is_root() {
            &[TestUser::User, TestUser::Root]
        } else {
            &[TestUser::User]
        }
    }

    /// User and group id.
    pub fn ids(self) -> (u32, u32) {
        match self {
            TestUser::Root => (0, 0),
            TestUser::User if TestUser::runner_is_root() => (TEST_UID, TEST_UID),
            TestUser::User => {
                (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            }
        }
    }

    /// Makes `command` run as this user.
    pub fn apply_to(self, command: &mut Command) {
        if self == TestUser::User && TestUser::runner_is_root() {
            // The standard library clears the supplementary groups when root changes to another
            // user.
            command.uid(TEST_UID).gid(TEST_UID);
        }
    }

    /// Changes the owner of `path` to this user.
    pub fn chown(self, path: &Path) {
        if TestUser::runner_is_root() {
            let (uid, gid) = self.ids();
            std::os::unix::fs::lchown(path, Some(uid), Some(gid))
                .unwrap_or_else(|error| panic!("chown {}: {error}", path.display()));
        }
    }
}

/// Runs `body` as root, if the runner is root, and as an ordinary user; both run even if the first
/// fails.
pub fn each_user(body: impl Fn(TestUser)) {
    let failed = |user: &TestUser| {
        let panic = catch_unwind(AssertUnwindSafe(|| body(*user))).err();
        if panic.is_some() {
            eprintln!("failed as {user}");
        }
        panic
    };
    let failures: Vec<_> = TestUser::all().iter().filter_map(failed).collect();
    if let Some(first) = failures.into_iter().next() {
        resume_unwind(first);
    }
}
