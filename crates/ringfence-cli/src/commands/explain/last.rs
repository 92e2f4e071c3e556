//! Explains why the last command failed: its denials, and what the rules decide now.

use std::process::ExitCode;

use ringfence_api::Denial;
use ringfence_audit::{RecordFields, RunRecords, RunSelector, last_run};
use ringfence_engine::policy_digest;
use ringfence_policy::{AbsPath, Grants, Verdict};
use serde_json::{Value, json};

use super::pushed::pushed_repository;
use super::{
    ExplainAccess, ExplainFormat, ExplainVerdict, Explanation, connect, explanation_json, path,
};
use crate::commands::resolve_args::ResolvedArgs;
use crate::commands::test::is_test_run;
use crate::denied::from_record;
use crate::error::CliError;
use crate::origins::PolicyOrigins;
use crate::output::{self, ColorMode, printable, tilde_path};

pub(super) fn explain(
    resolved_args: &ResolvedArgs,
    session: Option<&str>,
    form: ExplainFormat,
) -> Result<ExitCode, CliError> {
    let grants = &resolved_args.resolved.grants;
    let which = session.map_or(RunSelector::In(grants.workspace.as_path()), RunSelector::Named);
    // A run that is named is meant, even one of `ringfence test`.
    let is_skipped = if session.is_some() { |_: &RecordFields| false } else { is_test_run };
    let Some(run) = last_run(grants.audit.directory.as_path(), which, is_skipped)? else {
        let selection = session.map_or_else(
            || format!("in {}", tilde_path(&grants.workspace, &grants.home)),
            |session| format!("with the session `{session}`"),
        );
        return Err(CliError::Usage {
            what: format!("the audit log has no run {selection}"),
            hint: "`ringfence log` shows the recorded runs".into(),
        });
    };
    let now = policy_digest(grants);
    let is_same = text(&run.begun, "policyDigest") == now;
    let mut refusals = run
        .refused
        .iter()
        .map(|record| PastDenial::of(record, &run, resolved_args, is_same))
        .collect::<Result<Vec<_>, _>>()?;
    refusals.sort_by_key(PastDenial::report_order);
    match form {
        ExplainFormat::Json => output::print_json(&as_json(&run, &refusals, is_same))?,
        ExplainFormat::Text => {
            output::print_text(&as_text(&run, &refusals, is_same, grants, ColorMode::for_stdout()))?
        }
    }
    let is_refused = !refusals.is_empty() || text(&run.begun, "result") == "blocked";
    Ok(ExitCode::from(u8::from(is_refused)))
}

pub(super) fn text<'a>(record: &'a RecordFields, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A recorded denial, and the decision about the same access now.
struct PastDenial<'a> {
    record: &'a RecordFields,
    /// `None` if no policy rule caused the denial.
    now: Option<Explanation>,
    change: DecisionChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionChange {
    None,
    /// Another rule denies it now.
    OtherRule,
    /// It is allowed now.
    Allowed,
}

impl<'a> PastDenial<'a> {
    fn of(
        record: &'a RecordFields,
        run: &RunRecords,
        resolved_args: &ResolvedArgs,
        is_same: bool,
    ) -> Result<Self, CliError> {
        let grants = &resolved_args.resolved.grants;
        let target = text(record, "target");
        let query = match text(record, "operation") {
            "read" => ExplainAccess::Read,
            "execute" => ExplainAccess::Exec,
            "write" | "create" | "rename" => ExplainAccess::Write,
            "connect" => ExplainAccess::Connect,
            _ => return Ok(Self { record, now: None, change: DecisionChange::None }),
        };
        // The policy cannot change a denial by the sandbox itself.
        let is_by_sandbox = Denial::SANDBOX_RULES.contains(&text(record, "policy"));
        let is_ruled = !target.starts_with('/') && !target.ends_with("/udp");
        if is_by_sandbox || (query == ExplainAccess::Connect && !is_ruled) {
            return Ok(Self { record, now: None, change: DecisionChange::None });
        }
        if let Some(now) =
            connect::explain_guarded_address(target, text(record, "policy"), &grants.network)
        {
            let change = if now.result == ExplainVerdict::Allowed {
                DecisionChange::Allowed
            } else {
                DecisionChange::None
            };
            return Ok(Self { record, now: Some(now), change });
        }
        if query == ExplainAccess::Connect {
            let now =
                match connect::explain(target, resolved_args, &PolicyOrigins::read(resolved_args)?)
                {
                    // The recorded target is not a valid host, so no rule applies to it.
                    Err(CliError::Usage { .. }) => {
                        return Ok(Self { record, now: None, change: DecisionChange::None });
                    }
                    now => now?,
                };
            let change = if now.result == ExplainVerdict::Allowed {
                DecisionChange::Allowed
            } else {
                DecisionChange::None
            };
            return Ok(Self { record, now: Some(now), change });
        }
        let Some(path) = AbsPath::new(target) else {
            return Ok(Self { record, now: None, change: DecisionChange::None });
        };
        let answers = match pushed_repository(record, &path, &run.refused) {
            Some(repository) => path::explain_by_rules(ExplainAccess::Write, &repository, grants),
            None => path::explain_by_rules(query, &path, grants),
        };
        let now = answers
            .iter()
            .find(|answer| answer.result == ExplainVerdict::Refused)
            .or(answers.first())
            .cloned();
        let change =
            if is_same { DecisionChange::None } else { change(record, &path, query, grants) };
        Ok(Self { record, now, change })
    }
}

impl PastDenial<'_> {
    /// Sorts the likely cause of a failure first. A record without an operation on a path or host
    /// belongs to a syscall or to the command itself.
    fn report_order(&self) -> u8 {
        from_record(self.record).map_or(0, |denial| denial.report_order())
    }

    fn is_done_without(&self) -> bool {
        from_record(self.record).is_some_and(|denial| denial.is_tolerated())
    }
}

/// Compares the recorded decision with the current one.
fn change(
    record: &RecordFields,
    path: &AbsPath,
    query: ExplainAccess,
    grants: &Grants,
) -> DecisionChange {
    let decision = grants.decide(path, path::access_for_query(query));
    let (rule, origin) = match &decision.rule {
        _ if decision.verdict == Verdict::Allowed => return DecisionChange::Allowed,
        Some(because) => (because.origin().text.clone(), because.origin().to_string()),
        None => (Denial::NO_RULE_ALLOWS.to_owned(), "built in".to_owned()),
    };
    if (rule.as_str(), origin.as_str()) == (text(record, "policy"), text(record, "origin")) {
        DecisionChange::None
    } else {
        DecisionChange::OtherRule
    }
}

/// The gap of a run whose denials were not all reported.
const UNREPORTED: &str = "denials";

fn has_gap(begun: &RecordFields, what: &str) -> bool {
    begun
        .get("gaps")
        .and_then(Value::as_array)
        .is_some_and(|gaps| gaps.iter().any(|gap| gap == what))
}

/// Summarizes the run in one sentence.
fn verdict(run: &RunRecords) -> String {
    if text(&run.begun, "result") != "allowed" {
        return format!("the command was not started: {}", text(&run.begun, "reason"));
    }
    let Some(ended) = &run.ended else {
        return "the command is still running, or was killed together with ringfence: its denials are unknown".into();
    };
    let status = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let own = match status {
        0 => "the command succeeded".to_owned(),
        124 if ended.get("timedOut") == Some(&true.into()) => {
            "the command reached its time limit".to_owned()
        }
        status => format!("the program itself returned exit status {status}"),
    };
    match run.refused.len() {
        _ if ended.contains_key("error") => format!("ringfence failed: {}", text(ended, "reason")),
        0 if run.begun.get("confined") == Some(&false.into()) => {
            format!("nothing was confined, so nothing was denied; {own}")
        }
        // Without /dev/fuse, failed opens are not reported.
        0 if has_gap(&run.begun, UNREPORTED) => {
            format!(
                "no denials were recorded, but without /dev/fuse denied reads go unreported; {own}"
            )
        }
        0 => match run.failed.len() {
            0 => format!("no denials; {own}"),
            1 => format!("no denials, but 1 allowed connection failed; {own}"),
            many => format!("no denials, but {many} allowed connections failed; {own}"),
        },
        1 => format!("1 denial; exit status {status}"),
        many => format!("{many} denials; exit status {status}"),
    }
}

fn policy(is_same: bool) -> &'static str {
    if is_same {
        "unchanged since the run"
    } else {
        "changed since the run: a policy file was edited, or the run had other flags"
    }
}

fn as_text(
    run: &RunRecords,
    refusals: &[PastDenial<'_>],
    is_same: bool,
    grants: &Grants,
    paint: ColorMode,
) -> String {
    let line = |label: &str, text: &str| label_line(label, text, paint);
    let cwd = text(&run.begun, "cwd");
    let cwd =
        AbsPath::new(cwd).map_or_else(|| cwd.to_owned(), |cwd| tilde_path(&cwd, &grants.home));
    let mut out = format!(
        "{}\n",
        printable(&format!("the last run in {cwd}: {}", text(&run.begun, "target")))
    );
    out.push_str(&line("run", text(&run.begun, "session")));
    out.push_str(&line("when", text(&run.begun, "timestamp")));
    out.push_str(&line("policy", policy(is_same)));
    for refusal in refusals {
        let record = refusal.record;
        let target = format!("{} {}", text(record, "operation"), text(record, "target"));
        out.push_str(&format!("\n{}: {}\n", printable(&target), paint.bad("refused")));
        out.push_str(&line("by", &program_and_count(record)));
        out.push_str(&line("rule", text(record, "policy")));
        out.push_str(&line("from", text(record, "origin")));
        let value = |label: &str| {
            refusal
                .now
                .iter()
                .flat_map(|now| &now.lines)
                .find(|line| line.label == label)
                .map(|line| line.text.as_str())
        };
        match refusal.change {
            DecisionChange::None => {}
            DecisionChange::Allowed => out.push_str(&line(
                "now",
                &format!("allowed: {}", value("rule").unwrap_or("no rule denies it")),
            )),
            DecisionChange::OtherRule => out.push_str(&line(
                "now",
                &format!(
                    "denied by another rule: {}",
                    value("rule").unwrap_or(Denial::NO_RULE_ALLOWS)
                ),
            )),
        }
        if refusal.is_done_without() {
            out.push_str(&line(
                "note",
                "the program works without it: this is not why the command failed",
            ));
            continue;
        }
        for label in ["why", "change"] {
            if let Some(text) = value(label).filter(|_| refusal.change != DecisionChange::Allowed) {
                out.push_str(&line(label, text));
            }
        }
    }
    out.extend(run.failed.iter().map(|record| failed_text(record, paint)));
    out.extend(run.moved.iter().map(moved_line));
    out.push_str(&format!("\n{}\n", printable(&verdict(run))));
    out
}

fn label_line(label: &str, text: &str, paint: ColorMode) -> String {
    format!("  {} {}\n", paint.faint(&format!("{label:<7}")), printable(text))
}

/// A connection to an allowed host that failed. It is no denial.
fn failed_text(record: &RecordFields, paint: ColorMode) -> String {
    let target = printable(&format!("connect {}", text(record, "target")));
    let reason = text(record, "reason");
    let why = format!("the host is allowed, and the connection failed: {reason}");
    let lines = [
        ("by", program_and_count(record)),
        ("rule", text(record, "policy").to_owned()),
        ("from", text(record, "origin").to_owned()),
        ("why", why),
    ];
    let lines = lines.iter().map(|(label, text)| label_line(label, text, paint));
    format!("\n{target}: {}\n{}", paint.bad("failed"), lines.collect::<String>())
}

/// A file that the sweep moved to quarantine.
fn moved_line(moved: &RecordFields) -> String {
    let [target, moved_to, reason] = ["target", "movedTo", "reason"].map(|key| text(moved, key));
    format!("\n{}\n", printable(&format!("{target} was moved to {moved_to}: {reason}")))
}

fn program_and_count(record: &RecordFields) -> String {
    let program = text(record, "program");
    match record.get("count").and_then(Value::as_u64) {
        Some(count) if count > 1 => format!("{program}, {count} times"),
        _ => program.to_owned(),
    }
}

fn as_json(run: &RunRecords, refusals: &[PastDenial<'_>], is_same: bool) -> Value {
    let one = |refusal: &PastDenial<'_>| {
        let get = |key: &str| refusal.record.get(key).cloned().unwrap_or_default();
        json!({
            "operation": get("operation"),
            "target": get("target"),
            "rule": get("policy"),
            "origin": get("origin"),
            "explicit": get("explicit"),
            "program": get("program"),
            "count": get("count"),
            "optional": refusal.is_done_without(),
            "changed": refusal.change != DecisionChange::None,
            "now": refusal.now.as_ref().map(explanation_json),
        })
    };
    let failed = |record: &RecordFields| {
        let get = |key: &str| record.get(key).cloned().unwrap_or_default();
        json!({
            "target": get("target"),
            "rule": get("policy"),
            "origin": get("origin"),
            "program": get("program"),
            "count": get("count"),
            "reason": get("reason"),
        })
    };
    let begun = |key: &str| run.begun.get(key).cloned().unwrap_or_default();
    json!({
        "session": begun("session"),
        "timestamp": begun("timestamp"),
        "command": begun("command"),
        "cwd": begun("cwd"),
        "exitCode": run.ended.as_ref().and_then(|ended| ended.get("exitCode")),
        "verdict": verdict(run),
        "samePolicy": is_same,
        "denials": refusals.iter().map(one).collect::<Vec<_>>(),
        "failedConnections": run.failed.iter().map(failed).collect::<Vec<_>>(),
    })
}
