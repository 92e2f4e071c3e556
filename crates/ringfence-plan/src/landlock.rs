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
    plan: &Plan,
    grants: &Grants,
    support: &HostSupport,
    Restriction { scratch, mediation }: Restriction<'_>,
) -> Plan {
    let is_mediated = mediation == Mediation::Handler;
    let mut draft = RestrictedPlan {
        scratch,
        is_mediated,
        steps: vec![Step::Restrict],
        gaps: plan.gaps.iter().filter(|gap| gap.what != "denials").cloned().collect(),
        opened: Vec::new(),
    };
    draft.gaps.extend(of_kernel(support, mediation));
    draft.gaps.push(metadata_gap(mediation));
    if is_mediated {
        draft.steps.push(Step::Mediate);
    } else {
        draft.gaps.push(denials_gap());
    }
    for step in &plan.steps {
        draft.add_path(step);
        draft.add_other(step);
    }
    if !grants.network.unix_sockets.is_empty() {
        draft.gaps.push(gap(
            "network.unix-sockets",
            "Landlock cannot open single sockets: all unix sockets are closed",
            "remove `unix-sockets` from [network]",
        ));
    }
    Plan { steps: draft.steps, gaps: draft.gaps }
}

struct RestrictedPlan<'a> {
    scratch: &'a AbsPath,
    is_mediated: bool,
    steps: Vec<Step>,
    gaps: Vec<Gap>,
    /// The opened trees so far.
    opened: Vec<(AbsPath, MountAccess)>,
}

impl RestrictedPlan<'_> {
    /// Adds a step about a path.
    fn add_path(&mut self, step: &Step) {
        match step {
            Step::Bind { path, access, .. } => {
                let is_narrower = *access == MountAccess::ReadOnly
                    && self.enclosing(path) == Some(MountAccess::ReadWrite);
                self.opened.push((path.clone(), *access));
                let step = if is_narrower { protected(path) } else { step.clone() };
                self.steps.push(step);
            }
            // The host's cache, which cannot be written: a write would be seen by the user.
            Step::Private { path, beneath, .. } => match (beneath, self.enclosing(path)) {
                (Some(_), None) => self.steps.push(readable(path.clone(), FileKind::Directory)),
                (_, Some(MountAccess::ReadWrite)) => self.steps.push(protected(path)),
                _ => {}
            },
            Step::File { path, content } => self.add_file(path, content),
            // The notify handler shows the content.
            Step::Instead { .. } if self.is_mediated => self.steps.push(step.clone()),
            Step::Instead { path, .. } => self.close(path),
            Step::Processes { .. } => self.steps.extend(MACHINE_FILES.iter().map(|name| {
                let kind = if *name == "sys" { FileKind::Directory } else { FileKind::File };
                readable(AbsPath::root().join("proc").join(name), kind)
            })),
            Step::Scratch { path } if path.as_path() == "/tmp" => {
                self.steps.push(Step::Scratch { path: self.scratch.clone() })
            }
            Step::Devices | Step::Mask { .. } => self.steps.push(step.clone()),
            _ => {}
        }
    }

    /// Adds a file that the other engine generates.
    fn add_file(&mut self, path: &AbsPath, content: &str) {
        let file = |path| Step::File { path, content: content.to_owned() };
        if path.as_path().ends_with(".gitconfig") {
            self.steps.push(file(self.scratch.join(".gitconfig")));
        } else if self.is_mediated {
            self.steps.push(file(path.clone()));
        } else if USER_FILES.iter().any(|file| path.as_path() == *file) {
            self.steps.push(readable(path.clone(), FileKind::File));
        } else {
            self.close(path);
        }
    }

    /// Denies a file of an opened tree: without a mount it cannot have another content.
    fn close(&mut self, path: &AbsPath) {
        if self.enclosing(path).is_some() {
            let mask = Overmount::Deny(FileKind::File);
            self.steps.push(Step::Mask { path: path.clone(), mask });
        }
    }

    fn enclosing(&self, path: &AbsPath) -> Option<MountAccess> {
        let around = self.opened.iter().filter(|(root, _)| path.is_within(root));
        around.max_by_key(|(root, _)| root.depth()).map(|(_, access)| *access)
    }

    /// Adds a step that is not about a path, or the gap in its place.
    fn add_other(&mut self, step: &Step) {
        let missing = match step {
            Step::Namespaces { network: NetworkNamespace::Host }
            | Step::Identity(_)
            | Step::Landlock
            | Step::Seccomp
            | Step::Limit { limit: Limit::OpenFiles | Limit::FileSize | Limit::Wall, .. } => {
                return self.steps.push(step.clone());
            }
            Step::Guards(_) if self.is_mediated => return self.steps.push(step.clone()),
            Step::Guards(found) => {
                self.steps.push(Step::Repositories(found.clone()));
                gap(
                    "filesystem.names",
                    "Landlock cannot forbid a name in an opened directory: denied and protected names can be created in directories that have none yet",
                    "ringfence doctor",
                )
            }
            Step::Limit { limit, .. } => gap(
                &format!("limits.{limit}"),
                "the landlock engine does not enforce it yet",
                "remove it from [limits]",
            ),
            Step::Egress => gap(
                "network.allow-list",
                "the landlock engine opens no host yet: the network is closed",
                "use `--net none`",
            ),
            Step::Secret { env, .. } => gap(
                "secrets",
                &format!("{env} is not inserted into requests: the network is closed"),
                "remove [[secrets]] from the policy",
            ),
            Step::Observe => Gap {
                kind: GapKind::Reporting,
                ..gap(
                    "observe",
                    "the landlock engine does not report allowed accesses",
                    "remove `observe`",
                )
            },
            _ => return,
        };
        self.gaps.push(missing);
    }
}

fn protected(path: &AbsPath) -> Step {
    Step::Mask { path: path.clone(), mask: Overmount::ReadOnly }
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

/// The gap in reports if no handler decides about paths.
fn denials_gap() -> Gap {
    Gap {
        kind: GapKind::Reporting,
        ..gap(
            "denials",
            "everything else is enforced, but denied accesses are only guessed from the standard error of a failed command",
            "ringfence doctor",
        )
    }
}

/// The gaps of older versions of Landlock.
fn of_kernel(support: &HostSupport, mediation: Mediation) -> Vec<Gap> {
    let rows = [
        (3, "filesystem.truncate", "a command can truncate readable files that it cannot write"),
        (6, "processes", "a command can send signals to your other processes"),
    ];
    let kernels = [(3, "6.2"), (6, "6.12")];
    let kernel = |abi| kernels.iter().find(|(known, _)| *known == abi).map_or("", |(_, name)| name);
    rows.iter()
        .filter(|(abi, ..)| support.landlock < *abi)
        .filter(|(abi, ..)| *abi > 3 || mediation == Mediation::None)
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

#[cfg(test)]
mod tests {
    use ringfence_policy::{Facts, Flags, resolve};

    use super::*;
    use crate::plan::UserIds;
    use crate::support::{FuseSupport, PidAllocation, ProcAccounting};

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    /// The steps and the names of the gaps for a plan of namespaces, with version `landlock`.
    fn restrict(landlock: u32, mediation: Mediation, steps: Vec<Step>) -> (Vec<Step>, Vec<String>) {
        let facts = Facts::minimal(path("/home/me/app"), path("/home/me"), path("/store"));
        let grants = resolve(&[], &Flags::none(path("/home/me/app")), &facts).unwrap();
        let support = HostSupport {
            uid: 1000,
            gid: 1000,
            landlock,
            fuse: FuseSupport::Absent,
            accounts: ProcAccounting::Full,
            numbers: PidAllocation::Shared,
        };
        let restriction = Restriction { scratch: &path("/tmp/own"), mediation };
        let made = plan(&Plan { steps, gaps: Vec::new() }, &grants, &support, restriction);
        (made.steps, made.gaps.into_iter().map(|gap| gap.what).collect())
    }

    fn bind(text: &str, access: MountAccess) -> Step {
        Step::Bind { path: path(text), access, kind: FileKind::Directory }
    }

    #[test]
    fn each_demand_is_a_step_or_a_gap() {
        let steps = || {
            vec![
                Step::Namespaces { network: NetworkNamespace::Own },
                Step::Tripwire,
                Step::Guards(Vec::new()),
                Step::Egress,
                Step::Observe,
                Step::Limit { limit: Limit::Memory, most: 1 },
                Step::Limit { limit: Limit::FileSize, most: 1 },
                Step::Seccomp,
            ]
        };
        let kept = |first: &[Step], guards: Step| {
            let limit = Step::Limit { limit: Limit::FileSize, most: 1 };
            [first, &[guards, limit, Step::Seccomp]].concat()
        };
        let common = ["network.allow-list", "observe", "limits.memory"];
        let (made, gaps) = restrict(7, Mediation::Handler, steps());
        assert_eq!(made, kept(&[Step::Restrict, Step::Mediate], Step::Guards(Vec::new())));
        assert_eq!(gaps, [&["filesystem.metadata"][..], &common].concat());
        let (made, gaps) = restrict(7, Mediation::None, steps());
        assert_eq!(made, kept(&[Step::Restrict], Step::Repositories(Vec::new())));
        let first = ["filesystem.metadata", "denials", "filesystem.names"];
        assert_eq!(gaps, [&first[..], &common].concat());
    }

    #[test]
    fn older_kernels_have_more_gaps() {
        let gaps = |landlock, mediation| restrict(landlock, mediation, Vec::new()).1;
        assert_eq!(gaps(6, Mediation::Handler), ["filesystem.metadata"]);
        assert_eq!(gaps(3, Mediation::Handler), ["processes", "filesystem.metadata"]);
        let oldest = ["filesystem.truncate", "processes", "filesystem.metadata", "denials"];
        assert_eq!(gaps(2, Mediation::None), oldest);
        // The handler executes every open, and `truncate`.
        assert_eq!(gaps(2, Mediation::Handler), ["processes", "filesystem.metadata"]);
    }

    #[test]
    fn narrower_paths_in_a_writable_tree_are_protected() {
        let private = |text: &str, beneath: bool| Step::Private {
            path: path(text),
            store: path("/store/x"),
            beneath: beneath.then(|| path(text)),
            beside: None,
        };
        let (made, _) = restrict(
            7,
            Mediation::None,
            vec![
                bind("/w", MountAccess::ReadWrite),
                bind("/w/in", MountAccess::ReadOnly),
                private("/w/cache", false),
                private("/home/me/.cache", true),
                private("/home/me/.npm", false),
                Step::Identity(UserIds { uid: 1, gid: 1 }),
            ],
        );
        let expect = [
            Step::Restrict,
            bind("/w", MountAccess::ReadWrite),
            protected(&path("/w/in")),
            protected(&path("/w/cache")),
            bind("/home/me/.cache", MountAccess::ReadOnly),
            Step::Identity(UserIds { uid: 1, gid: 1 }),
        ];
        assert_eq!(made, expect);
    }

    #[test]
    fn generated_files_are_shown_by_the_handler_or_closed() {
        let file = |text: &str| Step::File { path: path(text), content: "x".into() };
        let steps = || {
            vec![
                bind("/etc/ssl", MountAccess::ReadOnly),
                file("/etc/passwd"),
                file("/etc/ssl/own.pem"),
                file("/home/me/.gitconfig"),
                Step::Instead { path: path("/etc/ssl/host.pem"), with: path("/etc/ssl/own.pem") },
                Step::Scratch { path: path("/tmp") },
                Step::Scratch { path: path("/dev/shm") },
            ]
        };
        let closed =
            |text: &str| Step::Mask { path: path(text), mask: Overmount::Deny(FileKind::File) };
        let scratch = Step::Scratch { path: path("/tmp/own") };
        let config = file("/tmp/own/.gitconfig");
        let (plain, _) = restrict(7, Mediation::None, steps());
        let expect = [
            Step::Restrict,
            bind("/etc/ssl", MountAccess::ReadOnly),
            readable(path("/etc/passwd"), FileKind::File),
            closed("/etc/ssl/own.pem"),
            config.clone(),
            closed("/etc/ssl/host.pem"),
            scratch.clone(),
        ];
        assert_eq!(plain, expect);
        let (mediated, _) = restrict(7, Mediation::Handler, steps());
        let own = steps();
        let expect =
            [&[Step::Restrict, Step::Mediate], &own[..3], &[config, own[4].clone(), scratch]];
        assert_eq!(mediated, expect.concat());
    }
}
