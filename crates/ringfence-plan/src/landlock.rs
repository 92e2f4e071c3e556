//! The plan without namespaces: the same policy, held by Landlock and seccomp.
//!
//! It is the plan of [`linux::plan`](crate::linux::plan) without the steps that need a mount or a
//! process of their own. A tree is opened by a Landlock rule instead of a bind mount. What Landlock
//! cannot hold is a gap.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{AbsPath, Grants, Limit};

use crate::plan::{FileKind, MountAccess, NetworkNamespace, Overmount, Plan, Step};
use crate::support::HostSupport;

/// Files of `/proc` that describe the machine and no process.
pub const MACHINE_FILES: &[&str] =
    &["cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version"];

/// Files of `/etc` that the other engine generates, and that programs need. The rest of the
/// generated files describe the network.
const USER_FILES: &[&str] = &["/etc/passwd", "/etc/group"];

/// The inputs of a plan without namespaces.
#[derive(Debug, Clone, Copy)]
pub struct Restriction<'a> {
    /// An absent path: a directory that is created for the command, and removed at its end.
    pub scratch: &'a AbsPath,
    /// The process that decides about paths.
    pub mediation: Mediation,
}

/// The process that decides about paths which Landlock cannot distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mediation {
    /// The notify handler, which executes every open and every change of a name.
    Handler,
    /// None: a directory above a denied path is closed for new names.
    None,
}

/// The plan for Landlock, from the `plan` for namespaces.
///
/// Landlock is available (`support.landlock` is not 0).
pub fn plan(
    plan: Plan,
    grants: &Grants,
    support: &HostSupport,
    Restriction { scratch, mediation }: Restriction<'_>,
) -> Plan {
    let is_mediated = mediation == Mediation::Handler;
    let mut steps = vec![Step::Restrict];
    if is_mediated {
        steps.push(Step::Mediate);
    }
    let mut gaps: Vec<Gap> =
        plan.gaps.iter().filter(|gap| gap.what != "denials").cloned().collect();
    gaps.push(metadata_gap(mediation));
    if !is_mediated {
        gaps.extend(unmediated_gaps());
    }
    gaps.extend(of_kernel(support));
    let mut opened: Vec<(AbsPath, MountAccess)> = Vec::new();
    let enclosing = |opened: &[(AbsPath, MountAccess)], path: &AbsPath| {
        let around = opened.iter().filter(|(root, _)| path.is_within(root));
        around.max_by_key(|(root, _)| root.depth()).map(|(_, access)| *access)
    };
    let closed =
        |path: &AbsPath| Step::Mask { path: path.clone(), mask: Overmount::Deny(FileKind::File) };
    for step in &plan.steps {
        match step {
            Step::Namespaces { network: NetworkNamespace::Host } => steps.push(step.clone()),
            Step::Bind { path, access, .. } => {
                let is_narrower = *access == MountAccess::ReadOnly
                    && enclosing(&opened, path) == Some(MountAccess::ReadWrite);
                opened.push((path.clone(), *access));
                steps.push(match is_narrower {
                    true => Step::Mask { path: path.clone(), mask: Overmount::ReadOnly },
                    false => step.clone(),
                });
            }
            // The host's cache, which cannot be written: a write would be seen by the user.
            Step::Private { path, beneath, .. } => match (beneath, enclosing(&opened, path)) {
                (Some(_), None) => steps.push(Step::Bind {
                    path: path.clone(),
                    access: MountAccess::ReadOnly,
                    kind: FileKind::Directory,
                }),
                (_, Some(MountAccess::ReadWrite)) => {
                    steps.push(Step::Mask { path: path.clone(), mask: Overmount::ReadOnly })
                }
                _ => {}
            },
            Step::File { path, content } if path.as_path().ends_with(".gitconfig") => {
                let (path, content) = (scratch.join(".gitconfig"), content.clone());
                steps.push(Step::File { path, content });
            }
            // The notify handler shows the content.
            Step::File { .. } | Step::Instead { .. } if is_mediated => steps.push(step.clone()),
            Step::File { path, .. } if USER_FILES.iter().any(|file| path.as_path() == *file) => {
                steps.push(readable(path.clone(), FileKind::File))
            }
            // The copy is shown by a mount; the file itself stays closed.
            Step::File { path, .. } | Step::Instead { path, .. }
                if enclosing(&opened, path).is_some() =>
            {
                steps.push(closed(path))
            }
            Step::Processes { .. } => steps.extend(MACHINE_FILES.iter().map(|name| {
                let kind = if *name == "sys" { FileKind::Directory } else { FileKind::File };
                readable(AbsPath::root().join("proc").join(name), kind)
            })),
            Step::Scratch { path } if path.as_path() == "/tmp" => {
                steps.push(Step::Scratch { path: scratch.clone() })
            }
            Step::Identity(_)
            | Step::Devices
            | Step::Mask { .. }
            | Step::Landlock
            | Step::Seccomp => steps.push(step.clone()),
            Step::Limit { limit: Limit::OpenFiles | Limit::FileSize | Limit::Wall, .. } => {
                steps.push(step.clone())
            }
            Step::Limit { limit, .. } => gaps.push(gap(
                &format!("limits.{limit}"),
                "it is not enforced by the landlock engine yet",
                "remove it from [limits]",
            )),
            Step::Guards(_) if is_mediated => steps.push(step.clone()),
            Step::Guards(_) => gaps.push(gap(
                "filesystem.names",
                "Landlock cannot forbid a name in an opened directory: denied and protected names can be created in directories that have none yet",
                "ringfence doctor",
            )),
            Step::Egress => gaps.push(gap(
                "network.allow-list",
                "the landlock engine opens no host yet: the network is closed",
                "use `--net none`",
            )),
            Step::Secret { env, .. } => gaps.push(gap(
                "secrets",
                &format!("{env} is not inserted into requests: the network is closed"),
                "remove [[secrets]] from the policy",
            )),
            Step::Observe => gaps.push(Gap {
                kind: GapKind::Reporting,
                ..gap("observe", "Landlock does not report allowed accesses", "remove `observe`")
            }),
            _ => {}
        }
    }
    if plan.network() == NetworkNamespace::Own {
        gaps.push(Gap {
            kind: GapKind::Reporting,
            ..gap(
                "network.loopback",
                "the network is the host's, so it is closed: programs of the sandbox cannot connect to each other",
                "ringfence doctor",
            )
        });
    }
    if !grants.network.unix_sockets.is_empty() {
        gaps.push(gap(
            "network.unix-sockets",
            "Landlock cannot open single sockets: all unix sockets are closed",
            "remove `unix-sockets` from [network]",
        ));
    }
    Plan { steps, gaps }
}

fn readable(path: AbsPath, kind: FileKind) -> Step {
    Step::Bind { path, access: MountAccess::ReadOnly, kind }
}

fn gap(what: &str, why: &str, hint: &str) -> Gap {
    Gap {
        what: what.into(),
        why: why.into(),
        hint: format!("{hint}, or accept with `--on-gap run`"),
        kind: GapKind::Enforcement,
    }
}

fn metadata_gap(mediation: Mediation) -> Gap {
    let listing = match mediation {
        Mediation::Handler => "",
        Mediation::None => "; and it can list the names in a denied directory below an opened one",
    };
    gap(
        "filesystem.metadata",
        &format!(
            "Landlock does not restrict stat, readlink and inotify: a command can test if a path exists, and read its size and times{listing}"
        ),
        "ringfence doctor",
    )
}

/// The gaps in reports if no handler decides about paths.
fn unmediated_gaps() -> [Gap; 2] {
    let reporting =
        |what, why| Gap { kind: GapKind::Reporting, ..gap(what, why, "ringfence doctor") };
    [
        reporting(
            "denials",
            "everything else is enforced, but denied accesses are only guessed from the standard error of a failed command",
        ),
        reporting(
            "filesystem.create",
            "no command can create or remove a name in a directory that has a denied or protected path at any depth below it, nor change modes, owners and times by path",
        ),
    ]
}

/// The gaps of older versions of Landlock.
fn of_kernel(support: &HostSupport) -> Vec<Gap> {
    let rows = [
        (3, "filesystem.truncate", "a command can truncate readable files that it cannot write"),
        (6, "processes", "a command can send signals to your other processes"),
    ];
    let kernels = [(3, "6.2"), (6, "6.12")];
    let kernel = |abi| kernels.iter().find(|(known, _)| *known == abi).map_or("", |(_, name)| name);
    rows.iter()
        .filter(|(abi, ..)| support.landlock < *abi)
        .map(|(abi, what, why)| {
            let hint = format!("use Linux {} or later", kernel(*abi));
            gap(
                what,
                &format!("this kernel has version {} of Landlock: {why}", support.landlock),
                &hint,
            )
        })
        .collect()
}
