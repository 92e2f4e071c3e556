//! `ringfence plan`

use std::process::ExitCode;

use clap::Args;
use ringfence_api::{Gap, GapKind};
use ringfence_engine::{
    FilteredVariable, SandboxPreview, WithheldSettings, existing_enclosing_policies,
    filtered_variables, plan, withheld_settings,
};
use ringfence_policy::AbsPath;
use ringfence_provider::{DescribedPath, HardeningLine, PathRole, SandboxDescription};
use serde_json::json;

use super::policy::files::print_enclosing_policies;
use super::resolve_args::{RunOverrides, resolve_for_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable, tilde_path};
use crate::providers::plain_registry;

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
        let steps: Vec<_> = plan.enforced.iter().map(|one| &one.text).collect();
        // The steps appear twice: as text for log readers, and as data for programs.
        let filtered: Vec<_> =
            filtered.iter().map(|one| json!({ "name": one.name, "why": one.why })).collect();
        let withheld: Vec<_> =
            withheld.iter().map(|one| json!({ "path": one.path, "why": one.why })).collect();
        let enclosing: Vec<_> = existing_enclosing_policies(facts)
            .into_iter()
            .map(|around| json!({ "directory": around.directory, "file": around.file }))
            .collect();
        let is_confined = resolved_args.resolved.is_confined();
        let plan = json!({ "confined": is_confined, "steps": steps, "detail": plan.description.detail, "gaps": plan.gaps, "filteredVariables": filtered, "withheldSettings": withheld, "enclosingPolicies": enclosing });
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
    write: Vec<String>,
    private: Vec<String>,
    stores: Vec<AbsPath>,
    scratch: Vec<String>,
    read: Vec<AbsPath>,
    made: Vec<String>,
    deny: Vec<AbsPath>,
    protect: Vec<AbsPath>,
    harden: Vec<String>,
}

fn as_text(plan: &SandboxPreview, filter: Vec<String>, home: &AbsPath, paint: ColorMode) -> String {
    let groups = groups(&plan.description, home);
    let mut text = String::new();
    let mut group = |name: &str, lines: Vec<String>| {
        for (at, line) in lines.iter().flat_map(|line| wrap_line(&printable(line))).enumerate() {
            let label = if at == 0 { name } else { "" };
            text.push_str(&format!("{}{line}\n", paint.strong(&format!("{label:<INDENT$}"))));
        }
    };
    group("isolate", plan.description.isolation.clone());
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
        vec![plan.description.limits.join(", ")]
            .into_iter()
            .filter(|line| !line.is_empty())
            .collect(),
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

fn groups(description: &SandboxDescription, home: &AbsPath) -> PlanGroups {
    let mut groups = PlanGroups::default();
    for DescribedPath { path, role } in &description.paths {
        match role {
            PathRole::ReadWrite => groups.write.push(tilde_path(path, home)),
            PathRole::ReadOnly => groups.read.push(path.clone()),
            PathRole::Private { store, beneath } => {
                groups.private.push(format!(
                    "{}{}",
                    tilde_path(path, home),
                    if beneath.is_some() { " over the host's" } else { "" }
                ));
                groups.stores.extend(store.parent());
            }
            PathRole::Scratch => groups.scratch.push(path.to_string()),
            PathRole::Link { target } => {
                groups.made.push(format!("{path} -> {}", target.display()))
            }
            PathRole::GeneratedFile
            | PathRole::GeneratedDir
            | PathRole::Processes
            | PathRole::Devices { .. } => groups.made.push(tilde_path(path, home)),
            PathRole::Masked | PathRole::Denied => groups.deny.push(path.clone()),
            PathRole::Protected | PathRole::ProtectedShallow => groups.protect.push(path.clone()),
        }
    }
    groups.harden = description.hardening.iter().map(|line| hardening_line(line, home)).collect();
    groups
}

fn hardening_line(line: &HardeningLine, home: &AbsPath) -> String {
    let paths: Vec<String> = line.paths.iter().map(|path| tilde_path(path, home)).collect();
    if paths.is_empty() { line.text.clone() } else { format!("{} {}", line.text, paths.join(", ")) }
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
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn protections_are_grouped_and_files_of_one_directory_share_a_line() {
        let described = |text: &str, role| DescribedPath { path: path(text), role };
        let read = |text: &str| described(text, PathRole::ReadOnly);
        let private = PathRole::Private { store: path("/h/s/.cache"), beneath: None };
        let line = |text: &str, paths| HardeningLine { text: text.into(), paths };
        let description = SandboxDescription {
            isolation: vec!["mounts, processes, ipc, host name, cgroup, network".into()],
            paths: vec![
                read("/usr"),
                read("/etc/a"),
                read("/etc/b"),
                read("/etc/c"),
                read("/etc/d"),
                described("/h/p", PathRole::ReadWrite),
                described("/h/.cache", private),
            ],
            hardening: vec![line("watch", vec![path("/h/p")]), line("seal", Vec::new())],
            ..SandboxDescription::default()
        };
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
harden    watch ~/p
          seal
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
                &SandboxPreview { gaps, description, ..SandboxPreview::default() },
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
