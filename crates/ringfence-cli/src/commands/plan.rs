//! `ringfence plan`

use std::process::ExitCode;

use clap::Args;
use ringfence_api::{Gap, GapKind};
use ringfence_enforce::{MountAccess, NetworkNamespace, Overmount, Plan as Enforced, Step};
use ringfence_engine::{FilteredVariable, filtered_variables, plan};
use ringfence_local::LocalProvider;
use ringfence_policy::AbsPath;
use serde_json::json;

use super::resolve_args::{RunOverrides, meant_to_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable, short};

/// Show what would be enforced, and the gaps
///
/// Looks at the host and runs nothing. A gap is something that the policy asks for and that cannot
/// be enforced here; `run` refuses unless the policy accepts it. What is `untold` is enforced, and
/// stops nobody: it is only not told of.
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
    let meant = meant_to_run(&arguments.policy, RunOverrides::default())?;
    let plan = plan(&LocalProvider::default(), &meant.resolved)?;
    let filtered = filtered_variables(&meant.resolved);
    if arguments.json {
        let steps = plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>();
        // The same twice: for people who read logs, and for programs.
        let filtered: Vec<_> =
            filtered.iter().map(|one| json!({ "name": one.name, "why": one.why })).collect();
        let is_confined = meant.resolved.grants.is_confined();
        let plan = json!({ "confined": is_confined, "steps": steps, "detail": plan.steps, "gaps": plan.gaps, "filteredVariables": filtered });
        output::json(&plan)?;
    } else if meant.resolved.grants.is_confined() {
        output::text(&as_text(
            &plan,
            &filtered,
            &meant.resolved.grants.home,
            ColorMode::for_stdout(),
        ))?;
    } else {
        output::text("nothing is confined: a command can do whatever you can\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the second column begins.
const INDENT: usize = 10;
/// Where lines are broken.
const WIDTH: usize = 80;

/// What stands behind each word.
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
    walls: Vec<String>,
}

fn as_text(
    plan: &Enforced,
    filtered: &[FilteredVariable],
    home: &AbsPath,
    paint: ColorMode,
) -> String {
    let groups = groups(plan, home);
    let mut text = String::new();
    let mut group = |name: &str, lines: Vec<String>| {
        for (at, line) in lines.iter().flat_map(|line| wrapped(&printable(line))).enumerate() {
            let label = if at == 0 { name } else { "" };
            text.push_str(&format!("{}{line}\n", paint.strong(&format!("{label:<INDENT$}"))));
        }
    };
    group("isolate", groups.isolate);
    group("write", groups.write);
    group("private", private(groups.private, &groups.stores, home));
    group("scratch", groups.scratch);
    group("read", folded(&groups.read, home));
    group(
        "make",
        vec![groups.made.join(", ")].into_iter().filter(|line| !line.is_empty()).collect(),
    );
    group("deny", folded(&groups.deny, home));
    group("protect", folded(&groups.protect, home));
    group(
        "limit",
        vec![groups.limits.join(", ")].into_iter().filter(|line| !line.is_empty()).collect(),
    );
    group("walls", groups.walls);
    group("filter", filtered_lines(filtered));
    let gaps = |loss| plan.gaps.iter().filter(move |gap| gap.loss == loss);
    let lines = |gap: &Gap| [format!("{}: {}", gap.what, gap.why), format!("  {}", gap.hint)];
    group("GAP", gaps(GapKind::Enforcement).flat_map(lines).collect());
    group("untold", gaps(GapKind::Telling).flat_map(lines).collect());
    text
}

/// The variables that stay outside: those whose values are the reason on lines of their own.
fn filtered_lines(filtered: &[FilteredVariable]) -> Vec<String> {
    let names: Vec<&str> =
        filtered.iter().filter(|one| one.why.is_none()).map(|one| one.name.as_str()).collect();
    let judged = filtered.iter().filter_map(|one| Some(format!("{}: {}", one.name, one.why?)));
    let listed = (!names.is_empty()).then(|| format!("variables {}", names.join(", ")));
    judged.chain(listed).collect()
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
                groups.write.push(short(path, home))
            }
            Step::Bind { path, access: MountAccess::ReadOnly, .. } => {
                groups.read.push(path.clone())
            }
            Step::Private { path, store, beneath, .. } => {
                groups.private.push(format!(
                    "{}{}",
                    short(path, home),
                    if beneath.is_some() { " over the host's" } else { "" }
                ));
                groups.stores.extend(store.parent());
            }
            Step::Scratch { path } => groups.scratch.push(path.to_string()),
            Step::Symlink { path, target } => {
                groups.made.push(format!("{path} -> {}", target.display()))
            }
            Step::File { path, .. } | Step::Directory { path } => {
                groups.made.push(short(path, home))
            }
            Step::Processes { .. } => groups.made.push("/proc".into()),
            Step::Devices => groups.made.push("/dev".into()),
            Step::Cover { path, cover: Overmount::Deny(_) }
            | Step::Denied { path, .. }
            | Step::Passage { path } => groups.deny.push(path.clone()),
            Step::Cover { path, cover: Overmount::ReadOnly | Overmount::Shallow } => {
                groups.protect.push(path.clone())
            }
            Step::Tripwire => {
                groups.walls.push("watch: whoever looks for anything else is told of".into())
            }
            Step::Lookout { trees } => {
                let trees: Vec<String> = trees.iter().map(|tree| short(tree, home)).collect();
                groups.walls.push(format!(
                    "look out: what is denied or protected and appears in {} is covered",
                    trees.join(", ")
                ));
            }
            Step::Limit { limit, most } => {
                groups.limits.push(format!("{limit} {}", limit.show(*most)))
            }
            Step::Seal => groups.walls.push("seal everything else".into()),
            Step::Lock => groups.walls.push("lock the mounts, drop every capability".into()),
            Step::Landlock => {
                groups.walls.push("Landlock: no signals or abstract sockets out".into())
            }
            Step::Guards(_)
            | Step::Egress
            | Step::Secret { .. }
            | Step::Instead { .. }
            | Step::Proxy
            | Step::Observe
            | Step::Seccomp => {
                groups.walls.push(step.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
            }
        }
    }
    groups
}

/// The places of their own, and the one directory they are kept in.
fn private(mut places: Vec<String>, stores: &[AbsPath], home: &AbsPath) -> Vec<String> {
    if let Some(store) = stores.first() {
        places = vec![places.join(", ")];
        places.push(format!("kept in {}", short(store, home)));
    }
    places
}

/// Many files of one directory take one line.
fn folded(paths: &[AbsPath], home: &AbsPath) -> Vec<String> {
    const FEW: usize = 3;
    let mut lines: Vec<String> = Vec::new();
    let mut done: Vec<AbsPath> = Vec::new();
    for path in paths {
        let Some(parent) = path.parent() else {
            lines.push(path.to_string());
            continue;
        };
        let beside: Vec<&AbsPath> =
            paths.iter().filter(|other| other.parent().as_ref() == Some(&parent)).collect();
        if beside.len() <= FEW {
            lines.push(short(path, home));
        } else if !done.contains(&parent) {
            let names: Vec<_> = beside
                .iter()
                .filter_map(|path| path.name())
                .map(|name| name.to_string_lossy())
                .collect();
            lines.push(format!("{}: {}", short(&parent, home), names.join(", ")));
            done.push(parent);
        }
    }
    lines
}

/// Broken at spaces, so that all of it stays in the second column.
fn wrapped(line: &str) -> Vec<String> {
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
    use ringfence_enforce::FileKind;

    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn steps_are_grouped_and_files_of_one_directory_folded() {
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
        let gap = |what: &str, loss| Gap {
            what: what.into(),
            why: "cannot".into(),
            hint: "do y".into(),
            loss,
        };
        let gaps = vec![gap("t", GapKind::Telling), gap("x", GapKind::Enforcement)];
        let variable = |name: &str, why| FilteredVariable { name: name.into(), why };
        let filtered =
            [variable("A", None), variable("B", None), variable("PIP_INDEX_URL", Some("a token"))];
        let expect = "\
isolate   mounts, processes, ipc, host name, cgroup, network
write     ~/p
private   ~/.cache
          kept in ~/s
read      /usr
          /etc: a, b, c, d
walls     seal everything else
filter    PIP_INDEX_URL: a token
          variables A, B
GAP       x: cannot
            do y
untold    t: cannot
            do y
";
        assert_eq!(
            as_text(&Enforced { steps, gaps }, &filtered, &path("/h"), ColorMode::Plain),
            expect
        );
    }

    #[test]
    fn long_lines_are_broken() {
        let long = "word ".repeat(40);
        assert!(wrapped(&long).iter().all(|line| line.chars().count() <= WIDTH - INDENT + 2));
        assert_eq!(wrapped(&long).join("").replace(' ', "").len(), 160);
        assert_eq!(wrapped(&"x".repeat(200)).len(), 1);
    }
}
