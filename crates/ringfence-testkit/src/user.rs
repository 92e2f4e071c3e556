//! The users that a test is tried as.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;

/// Whom a test is tried as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestUser {
    /// The superuser.
    Root,
    /// Somebody without any privilege.
    User,
}

/// An id that no distribution gives away; it has no line in the password file, as in many
/// containers.
const SOMEBODY: u32 = 61_234;

impl fmt::Display for TestUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TestUser::Root => "root",
            TestUser::User => "an ordinary user",
        })
    }
}

impl TestUser {
    /// Whether the runner of the tests is the superuser.
    pub fn runner_is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Everybody the runner can be.
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
            TestUser::User if TestUser::runner_is_root() => (SOMEBODY, SOMEBODY),
            TestUser::User => {
                (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            }
        }
    }

    /// Lets `command` run as this user.
    pub fn put_on(self, command: &mut Command) {
        if self == TestUser::User && TestUser::runner_is_root() {
            // Supplementary groups go with the change of the user: the standard library
            // clears them when the superuser changes into somebody else.
            command.uid(SOMEBODY).gid(SOMEBODY);
        }
    }

    /// Gives `path` to this user.
    pub fn own(self, path: &Path) {
        if TestUser::runner_is_root() {
            let (uid, gid) = self.ids();
            std::os::unix::fs::lchown(path, Some(uid), Some(gid))
                .unwrap_or_else(|error| panic!("chown {}: {error}", path.display()));
        }
    }
}

/// Tries `body` as the superuser, if the runner is, and as an ordinary user; both are
/// tried even if the first fails.
pub fn each_user(body: impl Fn(TestUser)) {
    let failed = |user: &TestUser| {
        let panic = catch_unwind(AssertUnwindSafe(|| body(*user))).err();
        if panic.is_some() {
            eprintln!("this failed as {user}");
        }
        panic
    };
    let failures: Vec<_> = TestUser::all().iter().filter_map(failed).collect();
    if let Some(first) = failures.into_iter().next() {
        resume_unwind(first);
    }
}
