//! Paths that a sandbox has without a rule.

use ringfence_policy::AbsPath;
use ringfence_provider::{DescribedPath, PathRole, SandboxDescription};

/// A path that every sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Provision {
    /// A description for the user.
    pub(crate) what: &'static str,
    pub(crate) writable: Writable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writable {
    Yes,
    No,
}

const fn writable(what: &'static str) -> Option<Provision> {
    Some(Provision { what, writable: Writable::Yes })
}

const fn read_only(what: &'static str) -> Option<Provision> {
    Some(Provision { what, writable: Writable::No })
}

const DIRECTORY: &str = "a directory of the sandbox that shows only allowed entries";

/// Returns the provision at `path`, for a path that no rule allows.
pub(crate) fn find_provision(sandbox: &SandboxDescription, path: &AbsPath) -> Option<Provision> {
    let at = sandbox.paths.iter().find_map(|described| provision(described, path));
    let is_ancestor = || {
        let mut created = sandbox.paths.iter().filter(|described| is_created(&described.role));
        created.any(|below| below.path != *path && below.path.is_within(path))
    };
    at.or_else(|| if is_ancestor() { read_only(DIRECTORY) } else { None })
}

fn provision(described: &DescribedPath, path: &AbsPath) -> Option<Provision> {
    let DescribedPath { path: root, role } = described;
    match role {
        PathRole::Scratch if path.is_within(root) => {
            writable("private to the sandbox, gone when it ends")
        }
        PathRole::Processes if path.is_within(root) => writable("the sandbox's own processes"),
        PathRole::Devices { names } if is_device(root, names, path) => {
            writable("a standard device")
        }
        PathRole::GeneratedFile if root == path => {
            read_only("a file that ringfence generates for the sandbox")
        }
        PathRole::GeneratedDir if root == path => read_only(DIRECTORY),
        PathRole::Link { .. } if root == path => read_only("a symbolic link to an allowed path"),
        _ => None,
    }
}

/// True if `path` is the directory of devices, or is one of these devices or below one.
fn is_device(root: &AbsPath, names: &[&str], path: &AbsPath) -> bool {
    path.relative_to(root).is_some_and(|below| {
        below.iter().next().is_none_or(|first| names.iter().any(|name| first == *name))
    })
}

/// True if the sandbox creates a path of this role, and the directories above it.
fn is_created(role: &PathRole) -> bool {
    match role {
        PathRole::ReadWrite
        | PathRole::ReadOnly
        | PathRole::Private { .. }
        | PathRole::Scratch
        | PathRole::Link { .. }
        | PathRole::GeneratedFile
        | PathRole::GeneratedDir
        | PathRole::Denied => true,
        PathRole::Processes
        | PathRole::Devices { .. }
        | PathRole::Masked
        | PathRole::Protected
        | PathRole::ProtectedShallow => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expect: Option<Writable>) {
        let at = |text: &str| AbsPath::new(text).unwrap();
        let described = |path, role| DescribedPath { path: at(path), role };
        let paths = vec![
            described("/proc", PathRole::Processes),
            described("/dev", PathRole::Devices { names: &["null", "pts"] }),
            described("/tmp", PathRole::Scratch),
            described("/etc/passwd", PathRole::GeneratedFile),
            described("/home/me", PathRole::GeneratedDir),
        ];
        let plan = SandboxDescription { paths, ..SandboxDescription::default() };
        assert_eq!(find_provision(&plan, &at(path)).map(|found| found.writable), expect, "{path}");
    }

    #[test]
    fn provisioned_path_needs_no_rule() {
        check("/tmp/x", Some(Writable::Yes));
        check("/etc/passwd", Some(Writable::No));
        check("/etc/passwd2", None);
        check("/home", Some(Writable::No));
        check("/home/me/x", None);
        check("/home/other", None);
        check("/dev/null", Some(Writable::Yes));
        check("/dev/sda", None);
        check("/dev/pts/0", Some(Writable::Yes));
        check("/proc/self/status", Some(Writable::Yes));
    }
}
