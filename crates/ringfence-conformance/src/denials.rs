//! Reports of a provider: enforced steps, gaps, denials and quarantined files.

use std::fs;

use ringfence_api::{Gap, GapKind, Operation};
use ringfence_policy::{AbsPath, HostRuleError, Limits, ListedHost, NetworkMode, Origin, Source};

use super::CheckResult;
use super::check_run::{
    CheckOutput, CheckRun, CheckStep, difference, expect_equal, expect_no_host_file,
};
use super::fixture::SECRET;
use super::host::HostListeners;

checks! {
    Files: enforced_steps_are_reported,
    Files | Names | Network | Processes | Reports: built_in_policy_has_no_gaps,
    Core: broken_rule_is_a_gap,
    Core: limit_holds_or_is_a_gap,
    Core: host_list_holds_or_is_a_gap,
    Reports: denial_is_reported_exactly,
    Core: printed_permission_error_is_not_a_denial,
    Reports: planted_files_are_quarantined,
    Reports: files_planted_by_two_commands_are_quarantined,
}

fn enforced_steps_are_reported(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    expect_equal("something is enforced", prepared.sandbox.enforced().is_empty(), false)?;
    for _ in 0..2 {
        let ran = prepared.sh("echo over")?;
        ran.expect_output("over")?;
        let enforced: Vec<String> =
            prepared.sandbox.enforced().iter().map(|one| one.text.clone()).collect();
        expect_equal("the protections in the outcome", &ran.outcome.enforced, &enforced)?;
        expect_equal(
            "the gaps in the outcome",
            ran.outcome.gaps.as_slice(),
            prepared.sandbox.gaps(),
        )?;
        expect_equal("the number of denials", ran.outcome.denials.len(), 0)?;
    }
    Ok(())
}

fn built_in_policy_has_no_gaps(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let gaps = prepared.sandbox.gaps().iter();
    let refusing: Vec<Gap> = gaps.filter(|gap| gap.refuses_run()).cloned().collect();
    expect_equal("gaps in the built-in policy", refusing, Vec::new())?;
    let ran = prepared.sh("cat ~/.ssh/id_rsa 2>/dev/null; echo over")?;
    ran.expect_output("over").map(drop)
}

/// A rule of the built-in policy that a command can break must be a gap that refuses runs.
fn broken_rule_is_a_gap(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let is_gap = prepared.sandbox.gaps().iter().any(Gap::refuses_run);
    let line = "cat ~/.ssh/id_rsa .env; echo x > .mcp.json; echo x > .env.local;
        mkdir -p own/.git/hooks own/.git/objects own/.git/refs; echo 'ref: refs/heads/main' > own/.git/HEAD;
        echo '#!/bin/sh' > own/.git/hooks/post-checkout; chmod +x own/.git/hooks/post-checkout";
    let ran = prepared.sh(&format!("({line}) 2>/dev/null; echo over"))?;
    expect_equal("the command ran to its end", ran.text().ends_with("over"), true)?;
    let is_made = |name: &str| check_run.path(name).as_path().exists();
    let broken = [
        ("a secret is read", ran.text().contains(SECRET)),
        ("a protected name is created", is_made(".mcp.json")),
        ("a denied name is created", is_made(".env.local")),
        ("a git hook is planted", is_made("own/.git/hooks/post-checkout")),
    ];
    match broken.iter().find(|(_, is_broken)| *is_broken && !is_gap) {
        Some((what, _)) => Err(difference(*what, "a gap that refuses runs", "none")),
        None => Ok(()),
    }
}

/// True if the gap is listed with its reason and a hint.
fn has_gap(gaps: &[Gap], what: &str) -> bool {
    gaps.iter().any(|gap| gap.what == what && !gap.why.is_empty() && !gap.hint.is_empty())
}

/// A limit, the name of its gap, and a command that exceeds it.
struct LimitCase {
    gap: &'static str,
    limits: Limits,
    line: &'static str,
    /// True if the command stayed within the limit.
    is_held: fn(&CheckOutput) -> bool,
}

fn number(ran: &CheckOutput) -> u64 {
    ran.text().trim().parse().unwrap_or(u64::MAX)
}

fn limit_holds_or_is_a_gap(check_run: &CheckRun<'_>) -> CheckResult {
    const MEBIBYTE: u64 = 1 << 20;
    let none = Limits::default();
    let ceilings = [
        LimitCase {
            gap: "limits.file-size",
            limits: Limits { file_size: Some(MEBIBYTE), ..none },
            line: "head -c 4194304 /dev/zero > big 2>/dev/null; wc -c < big",
            is_held: |ran| number(ran) <= MEBIBYTE,
        },
        LimitCase {
            gap: "limits.open-files",
            limits: Limits { open_files: Some(16), ..none },
            line: "ulimit -n",
            is_held: |ran| number(ran) <= 16,
        },
        LimitCase {
            gap: "limits.memory",
            limits: Limits { memory: Some(32 * MEBIBYTE), ..none },
            line: "head -c 100000000 /dev/zero | tail -c 100000000 | wc -c",
            is_held: |ran| ran.text().trim() != "100000000",
        },
    ];
    for LimitCase { gap, limits, line, is_held } in ceilings {
        let mut grants = check_run.grants(|_| {})?;
        grants.limits = limits;
        let mut prepared = check_run.open_with_grants(&grants)?;
        let ran = prepared.sh(&format!("echo alive >&2; {line}"))?;
        expect_equal("the command ran", ran.stderr().contains("alive"), true)?;
        let is_gap = has_gap(prepared.sandbox.gaps(), gap);
        expect_equal(
            "the outcome reports the gap as the plan does",
            has_gap(&ran.outcome.gaps, gap),
            is_gap,
        )?;
        if !is_gap && !is_held(&ran) {
            return Err(difference(gap, "the limit holds or is a gap", ran.text()));
        }
    }
    Ok(())
}

fn host_list_holds_or_is_a_gap(check_run: &CheckRun<'_>) -> CheckResult {
    let mut grants = check_run.grants(|_| {})?;
    grants.network.mode = NetworkMode::AllowList;
    let rule = "allowed.example".parse().map_err(|error: HostRuleError| {
        difference("a rule on hosts", "a valid rule", error.to_string())
    })?;
    grants.network.allow =
        vec![ListedHost { rule, origin: Origin::new(Source::Flag, "allowed.example") }];
    let mut prepared = check_run.open_with_grants(&grants)?;
    prepared.sh("echo over")?.expect_output("over")?;
    if has_gap(prepared.sandbox.gaps(), "network.allow-list") {
        return Ok(());
    }
    let listeners = HostListeners::open().during("listen on the host's network")?;
    listeners.connect_from(&mut prepared)?;
    expect_equal("connections to the host", listeners.received(), Vec::new())
}

fn denial_is_reported_exactly(check_run: &CheckRun<'_>) -> CheckResult {
    let target = check_run.path(".mcp.json");
    let ran = check_run.open()?.sh("(echo x > .mcp.json) 2>/dev/null; echo over; exit 3")?;
    ran.expect_status(3)?.expect_output("over")?;
    let outcome = &ran.outcome;
    let Some(denial) = outcome.denials.iter().find(|denial| denial.target == target.to_string())
    else {
        return Err(difference(
            "denials",
            &format!("one of {target}"),
            format!("{:?}", outcome.denials),
        ));
    };
    expect_equal("the operation", denial.operation, Operation::Create)?;
    expect_equal("a written rule refused", denial.explicit, true)?;
    for (what, text) in
        [("rule", &denial.rule), ("rule's origin", &denial.origin), ("program", &denial.program)]
    {
        expect_equal(format!("the {what} is reported"), text.is_empty(), false)?;
    }
    expect_equal("the command counts as blocked", outcome.is_blocked(), true)
}

fn printed_permission_error_is_not_a_denial(check_run: &CheckRun<'_>) -> CheckResult {
    for name in ["README", ".env"] {
        let ran =
            check_run.open()?.sh(&format!("echo 'cat: {name}: Permission denied' >&2; exit 1"))?;
        ran.expect_status(1)?;
        expect_equal("standard error", ran.stderr(), format!("cat: {name}: Permission denied"))?;
        // A provider that declares incomplete reporting may guess a denial from the message of a
        // failed command.
        let may_guess =
            ran.outcome.gaps.iter().any(|gap| gap.kind == GapKind::Reporting) && name == ".env";
        if !may_guess {
            expect_equal("the number of denials", ran.outcome.denials.len(), 0)?;
            expect_equal("the command counts as blocked", ran.outcome.is_blocked(), false)?;
        }
    }
    Ok(())
}

/// The command owns a repository it creates, but git on the host must not run what was put into it.
fn planted_files_are_quarantined(check_run: &CheckRun<'_>) -> CheckResult {
    let line = "mkdir -p own/.git/hooks own/.git/objects own/.git/refs && echo 'ref: refs/heads/main' > own/.git/HEAD &&
        printf '[core]\\n\\tbare = false\\n\\tfsmonitor = ./evil\\n' > own/.git/config &&
        echo '#!/bin/sh' > own/.git/hooks/post-checkout && chmod +x own/.git/hooks/post-checkout && echo over";
    let ran = check_run.open()?.sh(line)?;
    ran.expect_status(0)?.expect_output("over")?;
    expect_no_host_file(&check_run.path("own/.git/hooks/post-checkout"))?;
    let config = fs::read_to_string(check_run.path("own/.git/config").as_path())
        .during("read the planted file")?;
    expect_equal("a setting that runs a program is left", config.contains("fsmonitor"), false)?;
    expect_equal(
        "the outcome reports the quarantined files",
        ran.outcome.quarantined.is_empty(),
        false,
    )?;
    for moved in &ran.outcome.quarantined {
        let is_there = AbsPath::new(&moved.moved_to).is_some_and(|path| path.as_path().exists());
        expect_equal(format!("{} is kept", moved.path), is_there, true)?;
        expect_equal(
            format!("a reason for moving {} is given", moved.path),
            moved.reason.is_empty(),
            false,
        )?;
    }
    Ok(())
}

fn files_planted_by_two_commands_are_quarantined(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let line = "mkdir -p own/.git/hooks own/.git/objects own/.git/refs && echo 'ref: refs/heads/main' > own/.git/HEAD && echo over";
    prepared.sh(line)?.expect_status(0)?.expect_output("over")?;
    prepared
        .sh("(echo '#!/bin/sh' > own/.git/hooks/post-checkout; chmod +x own/.git/hooks/post-checkout) 2>/dev/null; echo over")?
        .expect_output("over")?;
    expect_no_host_file(&check_run.path("own/.git/hooks/post-checkout"))
}
