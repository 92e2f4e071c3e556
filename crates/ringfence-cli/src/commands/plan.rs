//! `ringfence plan`

use std::process::ExitCode;

use clap::Args;
use ringfence_api::{Gap, GapKind};
use ringfence_engine::{
    FilteredVariable, WithheldSettings, existing_enclosing_policies, filtered_variables, plan,
    withheld_settings,
};
use ringfence_plan::{MountAccess, NetworkNamespace, Overmount, Plan as Enforced, Step};
use ringfence_policy::AbsPath;
use serde_json::json;

use super::policy::files::print_enclosing_policies;
use super::resolve_args::{RunOverrides, resolve_for_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable, tilde_path};
use crate::providers::{is_unconfined, plain_registry};

/// Show the enforcement steps, and the gaps
///
/// Inspects the host and runs nothing. A gap is a part of the policy that cannot be enforced on
/// this host; `run` refuses unless the policy accepts it. A `silent` line is enforced, but denials
/// of that kind are not reported.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence plan
  ringfence plan --net full
  ringfence plan --json | jq '.gaps'")]
pub(crate) struct PlanArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

pub(crate) fn run(arguments: PlanArgs) -> Result<ExitCode, CliError> {
    let resolved_args = resolve_for_run(&arguments.policy, RunOverrides::default())?;
    let plan = plan(&plain_registry(), &resolved_args.resolved)?;
    let filtered = filtered_variables(&resolved_args.resolved);
    let withheld = withheld_settings(&resolved_args.resolved);
    let facts = &resolved_args.resolved.surroundings.facts;
    if arguments.json {
        let steps = plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>();
        // The steps appear twice: as text for log readers, and as data for programs.
        let filtered: Vec<_> =
            filtered.iter().map(|one| json!({ "name": one.name, "why": one.why })).collect();
        let withheld: Vec<_> =
            withheld.iter().map(|one| json!({ "path": one.path, "why": one.why })).collect();
        let enclosing: Vec<_> = existing_enclosing_policies(facts)
            .into_iter()
            .map(|around| json!({ "directory": around.directory, "file": around.file }))
            .collect();
        let is_confined = !is_unconfined(&resolved_args.resolved.grants);
        let plan = json!({ "confined": is_confined, "steps": steps, "detail": plan.steps, "gaps": plan.gaps, "filteredVariables": filtered, "withheldSettings": withheld, "enclosingPolicies": enclosing });
        output::print_json(&plan)?;
    } else if resolved_args.resolved.grants.is_confined() {
        print_enclosing_policies(facts);
        output::print_text(&as_text(
            &plan,
            filter_lines(&filtered, &withheld, &resolved_args.resolved.grants.home),
            &resolved_args.resolved.grants.home,
            ColorMode::for_stdout(),
        ))?;
    } else {
        output::print_text("nothing is confined: a command has all your permissions\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The column of the second field.
const INDENT: usize = 10;
/// The maximum line width.
const WIDTH: usize = 80;

/// The lines of each group.
#[derive(Default)]
struct PlanGroups {
    isolate: Vec<String>,
    write: Vec<String>,
    private: Vec<String>,
    stores: Vec<AbsPath>,
    scratch: Vec<String>,
    read: Vec<AbsPath>,
    made: Vec<String>,
    deny: Vec<AbsPath>,
    protect: Vec<AbsPath>,
    limits: Vec<String>,
    harden: Vec<String>,
}

fn as_text(plan: &Enforced, filter: Vec<String>, home: &AbsPath, paint: ColorMode) -> String {
    let groups = groups(plan, home);
    let mut text = String::new();
    let mut group = |name: &str, lines: Vec<String>| {
        for (at, line) in lines.iter().flat_map(|line| wrap_line(&printable(line))).enumerate() {
            let label = if at == 0 { name } else { "" };
            text.push_str(&format!("{}{line}\n", paint.strong(&format!("{label:<INDENT$}"))));
        }
    };
    group("isolate", groups.isolate);
    group("write", groups.write);
    group("private", private_lines(groups.private, &groups.stores, home));
    group("scratch", groups.scratch);
    group("read", fold_siblings(&groups.read, home));
    group(
        "make",
        vec![groups.made.join(", ")].into_iter().filter(|line| !line.is_empty()).collect(),
    );
    group("deny", fold_siblings(&groups.deny, home));
    group("protect", fold_siblings(&groups.protect, home));
    group(
        "limit",
        vec![groups.limits.join(", ")].into_iter().filter(|line| !line.is_empty()).collect(),
    );
    group("harden", groups.harden);
    group("filter", filter);
    let gaps = |kind| plan.gaps.iter().filter(move |gap| gap.kind == kind);
    let lines = |gap: &Gap| [format!("{}: {}", gap.what, gap.why), format!("  {}", gap.hint)];
    group("GAP", gaps(GapKind::Enforcement).flat_map(lines).collect());
    group("silent", gaps(GapKind::Reporting).flat_map(lines).collect());
    text
}

/// Formats the filtered variables and settings files. A variable filtered because of its value gets
/// a line of its own.
fn filter_lines(
    filtered: &[FilteredVariable],
    withheld: &[WithheldSettings],
    home: &AbsPath,
) -> Vec<String> {
    let names: Vec<&str> =
        filtered.iter().filter(|one| one.why.is_none()).map(|one| one.name.as_str()).collect();
    let judged = filtered.iter().filter_map(|one| Some(format!("{}: {}", one.name, one.why?)));
    let listed = (!names.is_empty()).then(|| format!("variables {}", names.join(", ")));
    let files = withheld.iter().map(|one| format!("{}: {}", tilde_path(&one.path, home), one.why));
    judged.chain(files).chain(listed).collect()
}

fn groups(plan: &Enforced, home: &AbsPath) -> PlanGroups {
    let mut groups = PlanGroups::default();
    for step in &plan.steps {
        match step {
            Step::Namespaces { network: NetworkNamespace::Own } => {
                groups.isolate.push("mounts, processes, ipc, host name, cgroup, network".into())
            }
            Step::Namespaces { network: NetworkNamespace::Host } => groups.isolate.push(
                "mounts, processes, ipc, host name, cgroup; the network is the host's".into(),
            ),
            Step::Identity(id) => groups.isolate.push(format!("as uid {}, gid {}", id.uid, id.gid)),
            Step::Bind { path, access: MountAccess::ReadWrite, .. } => {
                groups.write.push(tilde_path(path, home))
            }
            Step::Bind { path, access: MountAccess::ReadOnly, .. } => {
                groups.read.push(path.clone())
            }
            Step::Private { path, store, beneath, .. } => {
                groups.private.push(format!(
                    "{}{}",
                    tilde_path(path, home),
                    if beneath.is_some() { " over the host's" } else { "" }
                ));
                groups.stores.extend(store.parent());
            }
            Step::Scratch { path } => groups.scratch.push(path.to_string()),
            Step::Symlink { path, target } => {
                groups.made.push(format!("{path} -> {}", target.display()))
            }
            Step::File { path, .. } | Step::Directory { path } => {
                groups.made.push(tilde_path(path, home))
            }
            Step::Processes { .. } => groups.made.push("/proc".into()),
            Step::Devices => groups.made.push("/dev".into()),
            Step::Mask { path, mask: Overmount::Deny(_) }
            | Step::Denied { path, .. }
            | Step::Passage { path } => groups.deny.push(path.clone()),
            Step::Mask { path, mask: Overmount::ReadOnly | Overmount::Shallow } => {
                groups.protect.push(path.clone())
            }
            Step::Tripwire => groups.harden.push("watch: report access to any other path".into()),
            Step::Watcher { trees } => {
                let trees: Vec<String> = trees.iter().map(|tree| tilde_path(tree, home)).collect();
                groups.harden.push(format!(
                    "watch: mask denied or protected paths that appear in {}",
                    trees.join(", ")
                ));
            }
            Step::Limit { limit, most } => {
                groups.limits.push(format!("{limit} {}", limit.format_amount(*most)))
            }
            Step::Seal => groups.harden.push("seal everything else".into()),
            Step::Lock => groups.harden.push("lock the mounts, drop every capability".into()),
            Step::Landlock => {
                groups.harden.push("Landlock: no signals or abstract sockets out".into())
            }
            Step::Guards(_)
            | Step::Egress
            | Step::Secret { .. }
            | Step::Instead { .. }
            | Step::Proxy
            | Step::Observe
            | Step::Seccomp => groups
                .harden
                .push(step.to_string().split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
    groups
}

/// Formats the private paths, and the directory that stores them.
fn private_lines(mut paths: Vec<String>, stores: &[AbsPath], home: &AbsPath) -> Vec<String> {
    if let Some(store) = stores.first() {
        paths = vec![paths.join(", ")];
        paths.push(format!("kept in {}", tilde_path(store, home)));
    }
    paths
}

/// Formats paths; more than three of one directory share one line.
fn fold_siblings(paths: &[AbsPath], home: &AbsPath) -> Vec<String> {
    const FEW: usize = 3;
    let mut lines: Vec<String> = Vec::new();
    let mut done: Vec<AbsPath> = Vec::new();
    for path in paths {
        let Some(parent) = path.parent() else {
            lines.push(path.to_string());
            continue;
        };
        let siblings: Vec<&AbsPath> =
            paths.iter().filter(|other| other.parent().as_ref() == Some(&parent)).collect();
        if siblings.len() <= FEW {
            lines.push(tilde_path(path, home));
        } else if !done.contains(&parent) {
            let names: Vec<_> = siblings
                .iter()
                .filter_map(|path| path.name())
                .map(|name| name.to_string_lossy())
                .collect();
            lines.push(format!("{}: {}", tilde_path(&parent, home), names.join(", ")));
            done.push(parent);
        }
    }
    lines
}

/// Breaks a line at spaces, so that it stays in the second column.
fn wrap_line(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = lines.len() - 1;
        let is_full =
            lines[last].chars().count() + word.trim_end().chars().count() > WIDTH - INDENT;
        if is_full && !lines[last].trim().is_empty() {
            lines.push(format!("  {word}"));
        } else {
            lines[last].push_str(word);
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use ringfence_plan::FileKind;

    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn steps_are_grouped_and_files_of_one_directory_share_a_line() {
        let read = |text: &str| Step::Bind {
            path: path(text),
            access: MountAccess::ReadOnly,
            kind: FileKind::Directory,
        };
        let steps = vec![
            Step::Namespaces { network: NetworkNamespace::Own },
            read("/usr"),
            read("/etc/a"),
            read("/etc/b"),
            read("/etc/c"),
            read("/etc/d"),
            Step::Bind {
                path: path("/h/p"),
                access: MountAccess::ReadWrite,
                kind: FileKind::Directory,
            },
            Step::Private {
                path: path("/h/.cache"),
                store: path("/h/s/.cache"),
                beneath: None,
                beside: None,
            },
            Step::Seal,
        ];
        let gap = |what: &str, kind| Gap {
            what: what.into(),
            why: "cannot".into(),
            hint: "do y".into(),
            kind,
        };
        let gaps = vec![gap("t", GapKind::Reporting), gap("x", GapKind::Enforcement)];
        let variable = |name: &str, why| FilteredVariable { name: name.into(), why };
        let withheld =
            [WithheldSettings { path: path("/h/.m2/settings.xml"), why: "not understood" }];
        let filtered =
            [variable("A", None), variable("B", None), variable("PIP_INDEX_URL", Some("a token"))];
        let expect = "\
isolate   mounts, processes, ipc, host name, cgroup, network
write     ~/p
private   ~/.cache
          kept in ~/s
read      /usr
          /etc: a, b, c, d
harden    seal everything else
filter    PIP_INDEX_URL: a token
          ~/.m2/settings.xml: not understood
          variables A, B
GAP       x: cannot
            do y
silent    t: cannot
            do y
";
        assert_eq!(
            as_text(
                &Enforced { steps, gaps },
                filter_lines(&filtered, &withheld, &path("/h")),
                &path("/h"),
                ColorMode::Plain
            ),
            expect
        );
    }

    #[test]
    fn long_lines_are_broken() {
        let long = "word ".repeat(40);
        assert!(wrap_line(&long).iter().all(|line| line.chars().count() <= WIDTH - INDENT + 2));
        assert_eq!(wrap_line(&long).join("").replace(' ', "").len(), 160);
        assert_eq!(wrap_line(&"x".repeat(200)).len(), 1);
    }
}
