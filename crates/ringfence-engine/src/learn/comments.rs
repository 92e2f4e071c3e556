//! What is said of a lesson.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_api::{Denial, GapKind, Outcome, is_hidden};
use ringfence_policy::propose::NotProposed;
use ringfence_policy::{AbsPath, Decision, Verdict};

use super::{FIRST_LINE, LearnedRule};
use crate::recorder::line;
use crate::{ResolvedPolicy, RunRequest};

/// What stands behind each line, by its key.
#[derive(Default)]
pub(super) struct RuleComments(BTreeMap<String, String>);

impl RuleComments {
    pub(super) fn set(&mut self, key: String, comment: String) {
        self.0.insert(key, clean(&comment));
    }

    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }
}

/// Text that stays in its line and steers no terminal: names of files are anybody's.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// What stands above the policy.
pub(super) fn head(
    asked: &RunRequest,
    outcome: &Outcome,
    opened: &[LearnedRule],
    left: &[LearnedRule],
) -> String {
    let mut text = format!("{FIRST_LINE} for: {}\n", clean(&line(&asked.command)));
    let refused = outcome.denials.len();
    let counted = match (refused, opened.len(), left.len()) {
        (0, ..) => "nothing was refused.".to_owned(),
        (_, 0, _) => format!("{refused} things were refused, and none of them is to be opened."),
        (_, _, 0) => format!("{refused} things were refused; what is below opens them all."),
        (_, _, left) => format!(
            "{refused} things were refused; what is below opens them but for {left}, which stand at the end."
        ),
    };
    text.push_str(&format!("# It ended with status {}; {counted}\n", outcome.exit_code()));
    for gap in outcome.gaps.iter().filter(|gap| gap.loss == GapKind::Telling) {
        text.push_str(&format!("# More may be refused than is known: {}\n", clean(&gap.why)));
    }
    if let Some(observed) = outcome.observed.as_ref().filter(|observed| observed.dropped > 0) {
        text.push_str(&format!(
            "# {} further accesses that were allowed are not counted in what follows.\n",
            observed.dropped
        ));
    }
    text.push_str("# Use it by `ringfence run --policy FILE`, or put its lines into the file that `ringfence policy list` calls\n");
    text.push_str("# `yours, here`. A command that gets further may want more: go on with `ringfence learn --policy FILE`.\n\n");
    text
}

/// `read 3 times by cat; nothing opens it`, of several things.
pub(super) fn wanted(denials: &[&Denial], folded: Option<usize>) -> String {
    let operations: BTreeSet<&str> = denials.iter().map(|denial| verb(denial)).collect();
    let count: u64 = denials.iter().map(|denial| denial.count).sum();
    let programs = programs(denials.iter().map(|denial| denial.program.as_str()));
    let rules: BTreeSet<String> = denials.iter().map(|denial| rule(denial)).collect();
    let things = folded.map_or_else(String::new, |things| format!("{things} things in it, "));
    let operations = operations.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "{things}{} by {programs}; {}",
        times(&operations, count),
        rules.into_iter().collect::<Vec<_>>().join(", ")
    )
}

/// Who wanted it, how often, and which rule refused.
pub(super) fn who(denial: &Denial) -> String {
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
        Create => "made",
        Rename => "renamed",
        Execute => "started",
        Connect => "connected to",
        Call => "called",
        Command => "asked for",
    }
}

fn rule(denial: &Denial) -> String {
    if denial.rule == Denial::NOTHING_OPENS_IT {
        return denial.rule.clone();
    }
    format!("refused by `{}` ({})", denial.rule, denial.origin)
}

pub(super) fn times(verb: &str, count: u64) -> String {
    if count == 1 { format!("{verb} once") } else { format!("{verb} {count} times") }
}

/// The name of a program, without where it is.
pub(super) fn program(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "a program" } else { name }
}

pub(super) fn programs<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const FEW: usize = 3;
    let names: BTreeSet<&str> = all.map(program).collect();
    let more = names.len().saturating_sub(FEW);
    let few = names.into_iter().take(FEW).collect::<Vec<_>>().join(", ");
    if more == 0 { few } else { format!("{few} and {more} more") }
}

/// Why a wish stays refused, and whose it was.
pub(super) fn why(why: &NotProposed, denial: &Denial, resolved: &ResolvedPolicy) -> String {
    let place = |path: &AbsPath| place(path, resolved);
    let reason = match why {
        NotProposed::OnPurpose(decision) => return on_purpose(decision, denial),
        NotProposed::System => "it is part of the system, which is not for writing".into(),
        NotProposed::Kernel => "it is the kernel's, and programs do without it".into(),
        NotProposed::Toolchain => "it is part of a tool that you run, too".into(),
        NotProposed::ReadOnly => "the policy lets nothing be written there".into(),
        NotProposed::TooBroad(root) => format!("it would take opening {}", place(root)),
        NotProposed::Project(project) => {
            format!("it would open another project, {}", place(project))
        }
        NotProposed::AroundDenied(denied) => {
            format!("it would open whatever is around {}, which is denied", place(denied))
        }
        NotProposed::NoFile => "it is a socket, pipe or device of the host".into(),
        NotProposed::Gone => "it is not there any more".into(),
        NotProposed::Unwritable => "its name cannot be written in a policy".into(),
        NotProposed::Allowed => "the policy allows it, and something else stood in the way".into(),
    };
    format!("not proposed: {reason}; {}", who(denial))
}

fn on_purpose(decision: &Decision, denial: &Denial) -> String {
    let word = if decision.verdict == Verdict::Denied { "denied" } else { "protected" };
    let rule = decision
        .rule
        .as_ref()
        .map(|because| format!(" by `{}` ({})", because.origin().text, because.origin()));
    let wish = times(verb(denial), denial.count);
    format!(
        "{word} on purpose, not proposed: {word}{}; {wish} by {}",
        rule.unwrap_or_default(),
        program(&denial.program)
    )
}

/// A path for people.
pub(super) fn place(path: &AbsPath, resolved: &ResolvedPolicy) -> String {
    short(path, &resolved.grants.workspace, &resolved.grants.home)
}

/// A path as one would write it: from the project, from home, or from the root.
pub(super) fn short(path: &AbsPath, workspace: &AbsPath, home: &AbsPath) -> String {
    let below = |directory: &AbsPath, start: &str| {
        let below = path.relative_to(directory)?.to_string_lossy();
        Some(if below.is_empty() { start.to_owned() } else { format!("{start}/{below}") })
    };
    let from_home = || below(home, "~").filter(|_| home.depth() > 0);
    below(workspace, ".").or_else(from_home).unwrap_or_else(|| path.to_string())
}
