//! Comments of a proposed policy.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_api::{Denial, GapKind, Outcome, is_hidden};
use ringfence_policy::propose::NotProposed;
use ringfence_policy::{AbsPath, Decision, Verdict};

use super::{FIRST_LINE, LearnedRule};
use crate::recorder::command_line;
use crate::{ResolvedPolicy, RunRequest};

/// The comment of each line, by its key.
#[derive(Default)]
pub(super) struct RuleComments(BTreeMap<String, String>);

impl RuleComments {
    pub(super) fn set(&mut self, key: String, comment: String) {
        self.0.insert(key, escape_hidden(&comment));
    }

    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }
}

/// Text without line breaks or control characters: a command may choose file names freely.
pub(super) fn escape_hidden(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// The comment above the policy.
pub(super) fn header_comment(
    request: &RunRequest,
    outcome: &Outcome,
    opened: &[LearnedRule],
    left: &[LearnedRule],
) -> String {
    let mut text =
        format!("{FIRST_LINE} for: {}\n", escape_hidden(&command_line(&request.command)));
    let refused = outcome.denials.len();
    let counted = match (refused, opened.len(), left.len()) {
        (0, ..) => "nothing was denied.".to_owned(),
        (_, 0, _) => format!("denied accesses: {refused}; this policy allows none of them."),
        (_, _, 0) => format!("denied accesses: {refused}; this policy allows all of them."),
        (_, _, left) => format!(
            "denied accesses: {refused}; this policy allows all but {left}, listed at the end."
        ),
    };
    text.push_str(&format!("# Exit status {}; {counted}\n", outcome.exit_code()));
    for gap in outcome.gaps.iter().filter(|gap| gap.kind == GapKind::Reporting) {
        text.push_str(&format!(
            "# More accesses may be denied than reported: {}\n",
            escape_hidden(&gap.why)
        ));
    }
    if let Some(observed) = outcome.observed.as_ref().filter(|observed| observed.dropped > 0) {
        text.push_str(&format!(
            "# {} further allowed accesses are not counted below.\n",
            observed.dropped
        ));
    }
    text.push_str("# Use it with `ringfence run --policy FILE`, or copy its lines to the file marked `yours, here` in\n");
    text.push_str("# `ringfence policy list`. Later steps of the command may need more: repeat with\n# `ringfence learn --policy FILE`.\n\n");
    text
}

/// `read 3 times by cat; nothing opens it`, for several denials.
pub(super) fn describe_denials(denials: &[&Denial], folded: Option<usize>) -> String {
    let operations: BTreeSet<&str> = denials.iter().map(|denial| verb(denial)).collect();
    let count: u64 = denials.iter().map(|denial| denial.count).sum();
    let programs = programs(denials.iter().map(|denial| denial.program.as_str()));
    let rules: BTreeSet<String> = denials.iter().map(|denial| rule(denial)).collect();
    let things = folded.map_or_else(String::new, |things| format!("{things} paths in it, "));
    let operations = operations.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "{things}{} by {programs}; {}",
        times(&operations, count),
        rules.into_iter().collect::<Vec<_>>().join(", ")
    )
}

/// The program, the number of attempts, and the rule that denied.
pub(super) fn describe_denial(denial: &Denial) -> String {
    format!(
        "{} by {}; {}",
        times(verb(denial), denial.count),
        program(&denial.program),
        rule(denial)
    )
}

fn verb(denial: &Denial) -> &'static str {
    use ringfence_api::Operation::{Call, Command, Connect, Create, Execute, Read, Rename, Write};
    match denial.operation {
        Read => "read",
        Write => "written",
        Create => "created",
        Rename => "renamed",
        Execute => "started",
        Connect => "connected to",
        Call => "called",
        Command => "requested",
    }
}

fn rule(denial: &Denial) -> String {
    if denial.rule == Denial::NO_RULE_ALLOWS {
        return denial.rule.clone();
    }
    format!("denied by `{}` ({})", denial.rule, denial.origin)
}

pub(super) fn times(verb: &str, count: u64) -> String {
    if count == 1 { format!("{verb} once") } else { format!("{verb} {count} times") }
}

/// The name of a program without its directory.
pub(super) fn program(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "a program" } else { name }
}

pub(super) fn programs<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 3;
    let names: BTreeSet<&str> = all.map(program).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let few = names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    if more == 0 { few } else { format!("{few} and {more} more") }
}

/// The reason a denial stays, and the program.
pub(super) fn not_proposed_reason(
    why: &NotProposed,
    denial: &Denial,
    resolved: &ResolvedPolicy,
) -> String {
    let place = |path: &AbsPath| display_path(path, resolved);
    let reason = match why {
        NotProposed::OnPurpose(decision) => return on_purpose(decision, denial),
        NotProposed::System => "it is part of the system, which stays read-only".into(),
        NotProposed::Kernel => "it is a kernel interface that programs do not need".into(),
        NotProposed::Toolchain => {
            "it is part of a tool that you also run outside the sandbox".into()
        }
        NotProposed::ReadOnly => "the policy makes it read-only".into(),
        NotProposed::TooBroad(root) => format!("it needs a grant for all of {}", place(root)),
        NotProposed::Project(project) => {
            format!("it would allow another project, {}", place(project))
        }
        NotProposed::AroundDenied(denied) => {
            format!("it would allow the surroundings of {}, which is denied", place(denied))
        }
        NotProposed::NoFile => "it is a socket, pipe or device of the host".into(),
        NotProposed::Gone => "it no longer exists".into(),
        NotProposed::Unwritable => "a policy cannot contain its name".into(),
        NotProposed::Allowed => {
            "the policy allows it; something other than the policy failed".into()
        }
    };
    format!("not proposed: {reason}; {}", describe_denial(denial))
}

fn on_purpose(decision: &Decision, denial: &Denial) -> String {
    let word = if decision.verdict == Verdict::Denied { "denied" } else { "protected" };
    let rule = decision
        .rule
        .as_ref()
        .map(|because| format!(" by `{}` ({})", because.origin().text, because.origin()));
    let attempts = times(verb(denial), denial.count);
    format!(
        "{word} on purpose, not proposed: {word}{}; {attempts} by {}",
        rule.unwrap_or_default(),
        program(&denial.program)
    )
}

/// A path for display.
pub(super) fn display_path(path: &AbsPath, resolved: &ResolvedPolicy) -> String {
    short(path, &resolved.grants.workspace, &resolved.grants.home)
}

/// A path as users write it: relative to the project, to home, or absolute.
pub(super) fn short(path: &AbsPath, workspace: &AbsPath, home: &AbsPath) -> String {
    let below = |directory: &AbsPath, start: &str| {
        let below = path.relative_to(directory)?.to_string_lossy();
        Some(if below.is_empty() { start.to_owned() } else { format!("{start}/{below}") })
    };
    let from_home = || below(home, "~").filter(|_| home.depth() > 0);
    below(workspace, ".").or_else(from_home).unwrap_or_else(|| path.to_string())
}
