//! What a place tells of its own doing: what it enforces, what it cannot, what it refused.

use std::fs;

use ringfence_api::{Gap, GapKind, Operation};
use ringfence_policy::{AbsPath, HostRuleError, Limits, ListedHost, NetworkMode, Origin, Source};

use super::host::HostListeners;
use super::trial::{CheckOutput, CheckRun, CheckStep, differs, host_lacks, same};
use super::{CheckResult, ConformanceCheck};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::confinement("what_is_enforced_is_told", what_is_enforced_is_told),
    ConformanceCheck::confinement("a_limit_holds_or_is_a_gap", a_limit_holds_or_is_a_gap),
    ConformanceCheck::confinement(
        "a_list_of_hosts_holds_or_is_a_gap",
        a_list_of_hosts_holds_or_is_a_gap,
    ),
    ConformanceCheck::confinement("a_denial_is_told_exactly", a_denial_is_told_exactly),
    ConformanceCheck::running(
        "text_about_permissions_is_no_denial",
        text_about_permissions_is_no_denial,
    ),
    ConformanceCheck::confinement("what_was_planted_is_moved_away", what_was_planted_is_moved_away),
    ConformanceCheck::confinement(
        "what_was_planted_in_two_commands_does_not_stay",
        what_was_planted_in_two_commands_does_not_stay,
    ),
];

fn what_is_enforced_is_told(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    same("whether the plan has steps", session.session.plan().steps.is_empty(), false)?;
    let refusing: Vec<&Gap> =
        session.session.plan().gaps.iter().filter(|gap| gap.refuses()).collect();
    same("gaps in the built-in policy", refusing, Vec::new())?;
    for _ in 0..2 {
        let ran = session.sh("echo over")?;
        ran.says("over")?;
        let planned: Vec<String> =
            session.session.plan().steps.iter().map(ToString::to_string).collect();
        same("the steps that the outcome tells of", &ran.outcome.enforced, &planned)?;
        same(
            "the gaps that the outcome tells of",
            &ran.outcome.gaps,
            &session.session.plan().gaps,
        )?;
        same("what was refused", ran.outcome.denials.len(), 0)?;
    }
    Ok(())
}

/// A gap that says what, why and what helps.
fn is_told(gaps: &[Gap], what: &str) -> bool {
    gaps.iter().any(|gap| gap.what == what && !gap.why.is_empty() && !gap.hint.is_empty())
}

/// A ceiling, the word for its gap, and a command that goes beyond it.
struct LimitCase {
    gap: &'static str,
    limits: Limits,
    line: &'static str,
    /// Whether the command was kept below it.
    held: fn(&CheckOutput) -> bool,
}

fn number(ran: &CheckOutput) -> u64 {
    ran.text().trim().parse().unwrap_or(u64::MAX)
}

fn a_limit_holds_or_is_a_gap(trial: &CheckRun<'_>) -> CheckResult {
    const MEBIBYTE: u64 = 1 << 20;
    let none = Limits::default();
    let ceilings = [
        LimitCase {
            gap: "limits.file-size",
            limits: Limits { file_size: Some(MEBIBYTE), ..none },
            line: "head -c 4194304 /dev/zero > big 2>/dev/null; wc -c < big",
            held: |ran| number(ran) <= MEBIBYTE,
        },
        LimitCase {
            gap: "limits.open-files",
            limits: Limits { open_files: Some(16), ..none },
            line: "ulimit -n",
            held: |ran| number(ran) <= 16,
        },
        LimitCase {
            gap: "limits.memory",
            limits: Limits { memory: Some(32 * MEBIBYTE), ..none },
            line: "head -c 100000000 /dev/zero | tail -c 100000000 | wc -c",
            held: |ran| ran.text().trim() != "100000000",
        },
    ];
    for LimitCase { gap, limits, line, held } in ceilings {
        let mut grants = trial.grants(|_| {})?;
        grants.limits = limits;
        let mut session = trial.open_for(&grants)?;
        let ran = session.sh(&format!("echo alive >&2; {line}"))?;
        same("whether the command ran", ran.talk().contains("alive"), true)?;
        let is_gap = is_told(&session.session.plan().gaps, gap);
        same(
            "whether the outcome tells of the gap as the plan does",
            is_told(&ran.outcome.gaps, gap),
            is_gap,
        )?;
        if !is_gap && !held(&ran) {
            return Err(differs(gap, "that it holds, or a gap", ran.text()));
        }
    }
    Ok(())
}

fn a_list_of_hosts_holds_or_is_a_gap(trial: &CheckRun<'_>) -> CheckResult {
    let mut grants = trial.grants(|_| {})?;
    grants.network.mode = NetworkMode::AllowList;
    let rule = "allowed.example".parse().map_err(|error: HostRuleError| {
        differs("a rule on hosts", "that it is one", error.to_string())
    })?;
    grants.network.allow =
        vec![ListedHost { rule, origin: Origin::new(Source::Flag, "allowed.example") }];
    let mut session = trial.open_for(&grants)?;
    session.sh("echo over")?.says("over")?;
    if is_told(&session.session.plan().gaps, "network.allow-list") {
        return Ok(());
    }
    let ears = HostListeners::open().during("listen on the host's network")?;
    ears.call(&mut session)?;
    same("what reached the host", ears.heard(), Vec::new())
}

fn a_denial_is_told_exactly(trial: &CheckRun<'_>) -> CheckResult {
    let target = trial.at(".mcp.json");
    let ran = trial.open()?.sh("(echo x > .mcp.json) 2>/dev/null; echo over; exit 3")?;
    ran.ends(3)?.says("over")?;
    let outcome = &ran.outcome;
    let Some(denial) = outcome.denials.iter().find(|denial| denial.target == target.to_string())
    else {
        return Err(differs(
            "denials",
            &format!("one of {target}"),
            format!("{:?}", outcome.denials),
        ));
    };
    same("the operation", denial.operation, Operation::Create)?;
    same("whether a written rule refused", denial.explicit, true)?;
    for (what, text) in
        [("rule", &denial.rule), ("rule's origin", &denial.origin), ("program", &denial.program)]
    {
        same(format!("whether the {what} is told"), text.is_empty(), false)?;
    }
    same("whether the command counts as blocked", outcome.blocked(), true)
}

fn text_about_permissions_is_no_denial(trial: &CheckRun<'_>) -> CheckResult {
    for name in ["README", ".env"] {
        let ran =
            trial.open()?.sh(&format!("echo 'cat: {name}: Permission denied' >&2; exit 1"))?;
        ran.ends(1)?;
        same("standard error", ran.talk(), format!("cat: {name}: Permission denied"))?;
        // A place that owns up to hearing not of all may take a failed command at its word
        // about what the policy shuts.
        let guesses =
            ran.outcome.gaps.iter().any(|gap| gap.loss == GapKind::Telling) && name == ".env";
        if !guesses {
            same("what was refused", ran.outcome.denials.len(), 0)?;
            same("whether the command counts as blocked", ran.outcome.blocked(), false)?;
        }
    }
    Ok(())
}

/// A repository that the command makes is its own, but git on the host must not run what
/// was put into it.
fn what_was_planted_is_moved_away(trial: &CheckRun<'_>) -> CheckResult {
    let line = "mkdir -p own/.git/hooks own/.git/objects own/.git/refs && echo 'ref: refs/heads/main' > own/.git/HEAD &&
        printf '[core]\\n\\tbare = false\\n\\tfsmonitor = ./evil\\n' > own/.git/config &&
        echo '#!/bin/sh' > own/.git/hooks/post-checkout && chmod +x own/.git/hooks/post-checkout && echo over";
    let ran = trial.open()?.sh(line)?;
    ran.ends(0)?.says("over")?;
    host_lacks(&trial.at("own/.git/hooks/post-checkout"))?;
    let config = fs::read_to_string(trial.at("own/.git/config").as_path())
        .during("read what was planted")?;
    same("whether a setting that runs a program is left", config.contains("fsmonitor"), false)?;
    same("whether what was moved is told", ran.outcome.quarantined.is_empty(), false)?;
    for moved in &ran.outcome.quarantined {
        let is_there = AbsPath::new(&moved.moved_to).is_some_and(|path| path.as_path().exists());
        same(format!("whether {} is kept", moved.path), is_there, true)?;
        same(
            format!("whether it is said why {} was moved", moved.path),
            moved.reason.is_empty(),
            false,
        )?;
    }
    Ok(())
}

fn what_was_planted_in_two_commands_does_not_stay(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let line = "mkdir -p own/.git/hooks own/.git/objects own/.git/refs && echo 'ref: refs/heads/main' > own/.git/HEAD && echo over";
    session.sh(line)?.ends(0)?.says("over")?;
    session
        .sh("(echo '#!/bin/sh' > own/.git/hooks/post-checkout; chmod +x own/.git/hooks/post-checkout) 2>/dev/null; echo over")?
        .says("over")?;
    host_lacks(&trial.at("own/.git/hooks/post-checkout"))
}
