//! Paths that a plan creates in a sandbox without a rule.

use ringfence_plan::{Plan, Step};
use ringfence_policy::AbsPath;

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
pub(crate) fn find_provision(plan: &Plan, path: &AbsPath) -> Option<Provision> {
    let at = plan.steps.iter().find_map(|step| provision(step, path));
    let is_ancestor = || {
        plan.steps
            .iter()
            .filter_map(created_path)
            .any(|below| below != path && below.is_within(path))
    };
    at.or_else(|| if is_ancestor() { read_only(DIRECTORY) } else { None })
}

fn provision(step: &Step, path: &AbsPath) -> Option<Provision> {
    let is_below = |root: &str| path.as_path().starts_with(root);
    match step {
        Step::Scratch { path: root } if path.is_within(root) => {
            writable("private to the sandbox, gone when it ends")
        }
        Step::Processes { .. } if is_below("/proc") => writable("the sandbox's own processes"),
        Step::Devices if is_below("/dev") && is_device(path) => writable("a standard device"),
        Step::File { path: at, .. } if at == path => {
            read_only("a file that ringfence generates for the sandbox")
        }
        Step::Directory { path: at } if at == path => read_only(DIRECTORY),
        Step::Symlink { path: at, .. } if at == path => {
            read_only("a symbolic link to an allowed path")
        }
        _ => None,
    }
}

fn is_device(path: &AbsPath) -> bool {
    const DEVICES: [&str; 13] = [
        "null", "zero", "full", "random", "urandom", "tty", "console", "pts", "ptmx", "fd",
        "stdin", "stdout", "stderr",
    ];
    let below = path.as_path().strip_prefix("/dev").ok().and_then(|below| below.iter().next());
    below.is_none_or(|name| DEVICES.iter().any(|device| name == *device))
}

/// Returns the path that a step creates.
fn created_path(step: &Step) -> Option<&AbsPath> {
    match step {
        Step::Symlink { path, .. }
        | Step::File { path, .. }
        | Step::Directory { path }
        | Step::Bind { path, .. }
        | Step::Private { path, .. }
        | Step::Scratch { path }
        | Step::Denied { path, .. }
        | Step::Passage { path } => Some(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expect: Option<Writable>) {
        let at = |text: &str| AbsPath::new(text).unwrap();
        let steps = vec![
            Step::Processes { access: ringfence_plan::MountAccess::ReadWrite },
            Step::Devices,
            Step::Scratch { path: at("/tmp") },
            Step::File { path: at("/etc/passwd"), content: String::new() },
            Step::Directory { path: at("/home/me") },
        ];
        let plan = Plan { steps, gaps: Vec::new() };
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
