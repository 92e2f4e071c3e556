//! Findings about the user's policy, settings and project.

use std::time::Duration;

use ringfence_engine::{FilteredVariable, OwnPolicy, WithheldSettings};
use ringfence_policy::{AbsPath, Facts};
use ringfence_provider::{DoctorFinding, FindingState};

use crate::commands::policy::files::{UnusedSettings, unused_reason};
use crate::output;

/// Reports if a sandbox was created, and how long it took.
pub(super) fn report_sandbox(took: Option<&Duration>) -> DoctorFinding {
    match took {
        Some(took) => DoctorFinding::new(
            "sandbox",
            FindingState::Ok,
            format!("created and ended one in {:.1} ms", took.as_secs_f64() * 1000.0),
        ),
        None => {
            DoctorFinding::new("sandbox", FindingState::Missing, "cannot be created: see below")
        }
    }
}

/// Reports proxy and registry variables that are filtered because of their values.
pub(super) fn report_variables(filtered: &[FilteredVariable]) -> Option<DoctorFinding> {
    let judged: Vec<String> = filtered
        .iter()
        .filter_map(|one| Some(format!("{} ({})", output::printable(&one.name), one.why?)))
        .collect();
    let what = format!("not passed to commands: {}", judged.join(", "));
    let fix = "ringfence run --env NAME, if the command may see the value";
    (!judged.is_empty())
        .then(|| DoctorFinding::new("variables", FindingState::Limited, what).fix(fix))
}

/// Reports settings of package managers that have no copy in the sandbox.
pub(super) fn report_settings(withheld: &[WithheldSettings]) -> Option<DoctorFinding> {
    let files: Vec<String> = withheld
        .iter()
        .map(|one| format!("{} ({})", output::printable(&one.path.to_string()), one.why))
        .collect();
    let what = format!("not visible to commands: {}", files.join(", "));
    let fix = "ringfence run --read FILE, if the command may see the file itself";
    (!files.is_empty())
        .then(|| DoctorFinding::new("settings", FindingState::Limited, what).fix(fix))
}

/// Reports denied project files that are in the git object store, where commands can read them.
pub(super) fn report_history(tracked: &[String]) -> DoctorFinding {
    const NAME: &str = "git store";
    const FEW: usize = 3;
    if tracked.is_empty() {
        return DoctorFinding::new(NAME, FindingState::Ok, "no tracked file is denied");
    }
    let mut named =
        tracked.iter().take(FEW).map(|name| output::printable(name)).collect::<Vec<_>>().join(", ");
    if tracked.len() > FEW {
        named.push_str(", …");
    }
    let files =
        if tracked.len() == 1 { "denied file is tracked" } else { "denied files are tracked" };
    DoctorFinding::new(
        NAME,
        FindingState::Limited,
        format!("{} {files}, and readable in `.git`: {named}", tracked.len()),
    )
    .fix("git rm --cached FILE, and replace the secret: history keeps it")
}

/// Reports the user's policies for single projects that are not in use.
pub(super) fn report_own_policies(unused: &[OwnPolicy]) -> Option<DoctorFinding> {
    let first = unused.first()?;
    let more =
        if unused.len() > 1 { format!(", and {} more", unused.len() - 1) } else { String::new() };
    let what = format!("{} is unused: {}{more}", first.file, unused_reason(first));
    Some(
        DoctorFinding::new("own policies", FindingState::Limited, output::printable(&what))
            .fix("ringfence policy list"),
    )
}

/// Reports settings of other tools that are not part of the policy.
pub(super) fn report_other_tools(facts: &Facts) -> Option<DoctorFinding> {
    let unused = UnusedSettings::find(facts)?;
    let text = format!("rules that are not part of the policy: {}", unused.list());
    let finding = DoctorFinding::new("other tools", FindingState::Ok, output::printable(&text));
    Some(finding.fix(output::printable(&unused.command)))
}

/// Reports if the trial run was recorded.
pub(super) fn report_log(directory: &AbsPath, unrecorded: Option<&str>) -> DoctorFinding {
    match unrecorded {
        None => {
            DoctorFinding::new("audit log", FindingState::Ok, format!("written to {directory}"))
        }
        Some(why) => DoctorFinding::new(
            "audit log",
            FindingState::Missing,
            format!("runs are refused unless the policy allows unrecorded runs: {why}"),
        )
        .fix("export XDG_STATE_HOME=DIRECTORY  # a directory that you can write"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracked_secrets_are_counted_and_the_first_are_named() {
        let history = |names: &[&str]| {
            report_history(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(history(&[]).state, FindingState::Ok);
        assert!(history(&["a.pem"]).text.starts_with("1 denied file is tracked"));
        assert!(history(&["a.pem", "b", "c", "d\n"]).text.ends_with(": a.pem, b, c, …"));
        assert!(history(&["a.pem"]).fix.is_some());
    }
}
