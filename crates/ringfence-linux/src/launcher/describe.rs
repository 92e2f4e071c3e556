//! A plan in plain words, for the provider protocol.

use ringfence_api::Enforcement;
use ringfence_plan::{MountAccess, NetworkNamespace, Overmount, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_provider::{DescribedPath, HardeningLine, PathRole, SandboxDescription};
use serde_json::json;

/// The entries of a sandbox's `/dev`.
const DEVICES: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "tty", "console", "pts", "ptmx", "fd", "stdin",
    "stdout", "stderr",
];

/// The steps of `plan` in plain words.
pub(crate) fn enforcements(plan: &Plan) -> Vec<Enforcement> {
    plan.steps.iter().map(|step| Enforcement::new(kind(step), step.to_string())).collect()
}

/// The kind of a step, as a stable word.
fn kind(step: &Step) -> &'static str {
    match step {
        Step::Restrict => "restrict",
        Step::Mediate => "mediate",
        Step::Namespaces { .. } => "namespaces",
        Step::Identity(_) => "identity",
        Step::Symlink { .. } => "link",
        Step::File { .. } => "file",
        Step::Directory { .. } => "directory",
        Step::Tripwire => "tripwire",
        Step::Bind { access: MountAccess::ReadOnly, .. } => "read",
        Step::Bind { access: MountAccess::ReadWrite, .. } => "write",
        Step::Private { .. } => "private",
        Step::Scratch { .. } => "scratch",
        Step::Processes { .. } => "processes",
        Step::Devices => "devices",
        Step::Mask { mask: Overmount::Deny(_), .. } | Step::Denied { .. } => "deny",
        Step::Mask { mask: Overmount::ReadOnly | Overmount::Shallow, .. } => "protect",
        Step::Instead { .. } => "replace",
        Step::Passage { .. } => "pass",
        Step::Watcher { .. } => "watcher",
        Step::Seal => "seal",
        Step::Lock => "lock",
        Step::Landlock => "landlock",
        Step::Guards(_) => "guards",
        Step::Egress => "egress",
        Step::Secret { .. } => "secret",
        Step::Proxy => "proxy",
        Step::Observe => "observe",
        Step::Limit { .. } => "limit",
        Step::Seccomp => "seccomp",
    }
}

/// The paths and protections of `plan`.
pub(crate) fn describe(plan: &Plan) -> SandboxDescription {
    let mut description =
        SandboxDescription { detail: json!(plan.steps), ..SandboxDescription::default() };
    for step in &plan.steps {
        if let Some(described) = describe_path(step) {
            description.paths.push(described);
        } else if let Some(line) = describe_isolation(step) {
            description.isolation.push(line);
        } else if let Step::Limit { limit, most } = step {
            description.limits.push(format!("{limit} {}", limit.format_amount(*most)));
        } else {
            description.hardening.push(describe_hardening(step));
        }
    }
    description
}

fn describe_path(step: &Step) -> Option<DescribedPath> {
    let (path, role) = match step {
        Step::Bind { path, access: MountAccess::ReadWrite, .. } => (path, PathRole::ReadWrite),
        Step::Bind { path, access: MountAccess::ReadOnly, .. } => (path, PathRole::ReadOnly),
        Step::Private { path, store, beneath, .. } => {
            (path, PathRole::Private { store: store.clone(), beneath: beneath.clone() })
        }
        Step::Scratch { path } => (path, PathRole::Scratch),
        Step::Symlink { path, target } => (path, PathRole::Link { target: target.clone() }),
        Step::File { path, .. } => (path, PathRole::GeneratedFile),
        Step::Directory { path } => (path, PathRole::GeneratedDir),
        Step::Processes { .. } => (&AbsPath::root().join("proc"), PathRole::Processes),
        Step::Devices => (&AbsPath::root().join("dev"), PathRole::Devices { names: DEVICES }),
        Step::Mask { path, mask: Overmount::Deny(_) } => (path, PathRole::Masked),
        Step::Denied { path, .. } | Step::Passage { path } => (path, PathRole::Denied),
        Step::Mask { path, mask: Overmount::ReadOnly } => (path, PathRole::Protected),
        Step::Mask { path, mask: Overmount::Shallow } => (path, PathRole::ProtectedShallow),
        _ => return None,
    };
    Some(DescribedPath { path: path.clone(), role })
}

fn describe_isolation(step: &Step) -> Option<String> {
    Some(match step {
        Step::Namespaces { network: NetworkNamespace::Own } => {
            "mounts, processes, ipc, host name, cgroup, network".into()
        }
        Step::Namespaces { network: NetworkNamespace::Host } => {
            "mounts, processes, ipc, host name, cgroup; the network is the host's".into()
        }
        Step::Restrict => "files by Landlock; no namespaces".into(),
        Step::Identity(id) => format!("as uid {}, gid {}", id.uid, id.gid),
        _ => return None,
    })
}

fn describe_hardening(step: &Step) -> HardeningLine {
    let (text, paths) = match step {
        Step::Tripwire => ("watch: report access to any other path".into(), Vec::new()),
        Step::Watcher { trees } => {
            ("watch: mask denied or protected paths that appear in".into(), trees.clone())
        }
        Step::Seal => ("seal everything else".into(), Vec::new()),
        Step::Lock => ("lock the mounts, drop every capability".into(), Vec::new()),
        Step::Landlock => ("Landlock: no signals or abstract sockets out".into(), Vec::new()),
        other => {
            let text = other.to_string();
            (text.split_whitespace().collect::<Vec<_>>().join(" "), Vec::new())
        }
    };
    HardeningLine { text, paths }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_step_is_described_once() {
        let path = AbsPath::new("/p").unwrap();
        let plan = Plan {
            steps: vec![
                Step::Namespaces { network: NetworkNamespace::Own },
                Step::Bind {
                    path: path.clone(),
                    access: MountAccess::ReadOnly,
                    kind: ringfence_plan::FileKind::Directory,
                },
                Step::Devices,
                Step::Mask { path: path.clone(), mask: Overmount::ReadOnly },
                Step::Watcher { trees: vec![path.clone()] },
                Step::Limit { limit: ringfence_policy::Limit::OpenFiles, most: 7 },
                Step::Guards(Vec::new()),
                Step::Seccomp,
            ],
            gaps: Vec::new(),
        };
        let description = describe(&plan);
        let roles: Vec<_> = description.paths.iter().map(|one| &one.role).collect();
        let devices = PathRole::Devices { names: DEVICES };
        assert_eq!(roles, [&PathRole::ReadOnly, &devices, &PathRole::Protected]);
        assert_eq!(description.isolation.len(), 1);
        assert_eq!(description.limits, ["open-files 7"]);
        let hardening: Vec<_> = description.hardening.iter().map(|one| one.paths.len()).collect();
        assert_eq!(hardening, [1, 0, 0]);
        assert_eq!(description.detail.as_array().map(Vec::len), Some(plan.steps.len()));
        let kinds: HashSet<String> = enforcements(&plan).into_iter().map(|one| one.what).collect();
        assert_eq!(kinds.len(), plan.steps.len());
    }
}
