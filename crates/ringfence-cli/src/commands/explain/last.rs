//! Why the last command failed: what was refused to it, and what the rules say now.

use std::process::ExitCode;

use ringfence_api::Denial;
use ringfence_audit::{RecordFields, RunRecords, RunSelector, last_run};
use ringfence_engine::policy_digest;
use ringfence_policy::{AbsPath, Grants, Verdict};
use serde_json::{Value, json};

use super::{
    ExplainAccess, ExplainFormat, ExplainVerdict, Explanation, connect, one_as_json, path,
};
use crate::commands::resolve_args::ResolvedArgs;
use crate::denied::from_record;
use crate::error::CliError;
use crate::origins::PolicyOrigins;
use crate::output::{self, ColorMode, printable, short};

pub(super) fn explain(
    meant: &ResolvedArgs,
    session: Option<&str>,
    form: ExplainFormat,
) -> Result<ExitCode, CliError> {
    let grants = &meant.resolved.grants;
    let which = session.map_or(RunSelector::In(grants.workspace.as_path()), RunSelector::Named);
    let Some(run) = last_run(grants.audit.directory.as_path(), which)? else {
        let whose = session.map_or_else(
            || format!("in {}", short(&grants.workspace, &grants.home)),
            |session| format!("called `{session}`"),
        );
        return Err(CliError::Words {
            what: format!("no run {whose} is on record"),
            hint: "`ringfence log` shows those that are".into(),
        });
    };
    let now = policy_digest(grants);
    let is_same = text(&run.begun, "policyDigest") == now;
    let mut refusals = run
        .refused
        .iter()
        .map(|record| PastDenial::of(record, meant, is_same))
        .collect::<Result<Vec<_>, _>>()?;
    refusals.sort_by_key(PastDenial::report_order);
    match form {
        ExplainFormat::Json => output::json(&as_json(&run, &refusals, is_same))?,
        ExplainFormat::Text => {
            output::text(&as_text(&run, &refusals, is_same, grants, ColorMode::for_stdout()))?
        }
    }
    let is_refused = !refusals.is_empty() || text(&run.begun, "result") == "blocked";
    Ok(ExitCode::from(u8::from(is_refused)))
}

fn text<'a>(record: &'a RecordFields, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Something that was refused, and how the same would be decided now.
struct PastDenial<'a> {
    record: &'a RecordFields,
    /// `None` where no rule of the policy was asked.
    now: Option<Explanation>,
    change: DecisionChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionChange {
    None,
    /// Another rule refuses it now.
    OtherRule,
    /// It is allowed now.
    Allowed,
}

impl<'a> PastDenial<'a> {
    fn of(record: &'a RecordFields, meant: &ResolvedArgs, is_same: bool) -> Result<Self, CliError> {
        let grants = &meant.resolved.grants;
        let target = text(record, "target");
        let wish = match text(record, "operation") {
            "read" => ExplainAccess::Read,
            "execute" => ExplainAccess::Exec,
            "write" | "create" | "rename" => ExplainAccess::Write,
            "connect" => ExplainAccess::Connect,
            _ => return Ok(Self { record, now: None, change: DecisionChange::None }),
        };
        // Not for the policy to change.
        let is_ours = Denial::OF_THE_SANDBOX.contains(&text(record, "policy"));
        let is_ruled = !target.starts_with('/') && !target.ends_with("/udp");
        if is_ours || (wish == ExplainAccess::Connect && !is_ruled) {
            return Ok(Self { record, now: None, change: DecisionChange::None });
        }
        if let Some(now) = connect::guarded(target, text(record, "policy"), &grants.network) {
            let change = if now.fate == ExplainVerdict::Allowed {
                DecisionChange::Allowed
            } else {
                DecisionChange::None
            };
            return Ok(Self { record, now: Some(now), change });
        }
        if wish == ExplainAccess::Connect {
            let now = match connect::explain(target, meant, &PolicyOrigins::of(meant)?) {
                // What was asked for is no host, so that no rule speaks of it.
                Err(CliError::Words { .. }) => {
                    return Ok(Self { record, now: None, change: DecisionChange::None });
                }
                now => now?,
            };
            let change = if now.fate == ExplainVerdict::Allowed {
                DecisionChange::Allowed
            } else {
                DecisionChange::None
            };
            return Ok(Self { record, now: Some(now), change });
        }
        let Some(path) = AbsPath::new(target) else {
            return Ok(Self { record, now: None, change: DecisionChange::None });
        };
        let answers = path::by_rules(wish, &path, grants);
        let now = answers
            .iter()
            .find(|answer| answer.fate == ExplainVerdict::Refused)
            .or(answers.first())
            .cloned();
        let change =
            if is_same { DecisionChange::None } else { change(record, &path, wish, grants) };
        Ok(Self { record, now, change })
    }
}

impl PastDenial<'_> {
    /// The likely reason of a failure comes first. A record without an operation on a path or host
    /// is of a call or of the command itself.
    fn report_order(&self) -> u8 {
        from_record(self.record).map_or(0, |denial| denial.report_order())
    }

    fn is_done_without(&self) -> bool {
        from_record(self.record).is_some_and(|denial| denial.is_done_without())
    }
}

/// Whether the rules decide otherwise than they did.
fn change(
    record: &RecordFields,
    path: &AbsPath,
    wish: ExplainAccess,
    grants: &Grants,
) -> DecisionChange {
    let decision = grants.decide(path, path::access(wish));
    let (rule, origin) = match &decision.rule {
        _ if decision.verdict == Verdict::Allowed => return DecisionChange::Allowed,
        Some(because) => (because.origin().text.clone(), because.origin().to_string()),
        None => (Denial::NOTHING_OPENS_IT.to_owned(), "built in".to_owned()),
    };
    if (rule.as_str(), origin.as_str()) == (text(record, "policy"), text(record, "origin")) {
        DecisionChange::None
    } else {
        DecisionChange::OtherRule
    }
}

/// The gap of a run of which not all refusals were told.
const UNTOLD: &str = "denials";

fn has_gap(begun: &RecordFields, what: &str) -> bool {
    begun
        .get("gaps")
        .and_then(Value::as_array)
        .is_some_and(|gaps| gaps.iter().any(|gap| gap == what))
}

/// What came of the whole run, in a sentence.
fn verdict(run: &RunRecords) -> String {
    if text(&run.begun, "result") != "allowed" {
        return format!("it was not started: {}", text(&run.begun, "reason"));
    }
    let Some(ended) = &run.ended else {
        return "it has not ended, or was killed together with ringfence: what was refused is not known".into();
    };
    let status = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let own = match status {
        0 => "the command succeeded".to_owned(),
        124 if ended.get("timedOut") == Some(&true.into()) => {
            "the time limit ended the command".to_owned()
        }
        status => format!("exit status {status} is the program's own"),
    };
    match run.refused.len() {
        _ if ended.contains_key("error") => format!("ringfence failed: {}", text(ended, "reason")),
        0 if run.begun.get("confined") == Some(&false.into()) => {
            format!("nothing was confined, so nothing was refused; {own}")
        }
        // What was opened in vain is not told of without the device.
        0 if has_gap(&run.begun, UNTOLD) => {
            format!(
                "ringfence knows of nothing that was refused, but without /dev/fuse it is not told of reads; {own}"
            )
        }
        0 => format!("ringfence refused nothing; {own}"),
        1 => format!("one thing was refused; exit status {status}"),
        many => format!("{many} things were refused; exit status {status}"),
    }
}

fn policy(is_same: bool) -> &'static str {
    if is_same {
        "the same as now"
    } else {
        "not the same as now: a file was changed since, or the run had other flags"
    }
}

fn as_text(
    run: &RunRecords,
    refusals: &[PastDenial<'_>],
    is_same: bool,
    grants: &Grants,
    paint: ColorMode,
) -> String {
    let line = |label: &str, text: &str| {
        format!("  {} {}\n", paint.faint(&format!("{label:<7}")), printable(text))
    };
    let cwd = text(&run.begun, "cwd");
    let place = AbsPath::new(cwd).map_or_else(|| cwd.to_owned(), |cwd| short(&cwd, &grants.home));
    let mut out = format!(
        "{}\n",
        printable(&format!("the last run in {place}: {}", text(&run.begun, "target")))
    );
    out.push_str(&line("run", text(&run.begun, "session")));
    out.push_str(&line("when", text(&run.begun, "timestamp")));
    out.push_str(&line("policy", policy(is_same)));
    for refusal in refusals {
        let record = refusal.record;
        let target = format!("{} {}", text(record, "operation"), text(record, "target"));
        out.push_str(&format!("\n{}: {}\n", printable(&target), paint.bad("refused")));
        out.push_str(&line("by", &who(record)));
        out.push_str(&line("rule", text(record, "policy")));
        out.push_str(&line("from", text(record, "origin")));
        let said = |label: &str| {
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
                &format!("allowed: {}", said("rule").unwrap_or("nothing is in its way")),
            )),
            DecisionChange::OtherRule => out.push_str(&line(
                "now",
                &format!(
                    "refused by another rule: {}",
                    said("rule").unwrap_or(Denial::NOTHING_OPENS_IT)
                ),
            )),
        }
        if refusal.is_done_without() {
            out.push_str(&line(
                "note",
                "the program runs without it: this is not why the command failed",
            ));
            continue;
        }
        for label in ["why", "change"] {
            if let Some(text) = said(label).filter(|_| refusal.change != DecisionChange::Allowed) {
                out.push_str(&line(label, text));
            }
        }
    }
    for moved in &run.moved {
        let what = format!(
            "{} was moved to {}: {}",
            text(moved, "target"),
            text(moved, "movedTo"),
            text(moved, "reason")
        );
        out.push_str(&format!("\n{}\n", printable(&what)));
    }
    out.push_str(&format!("\n{}\n", printable(&verdict(run))));
    out
}

fn who(record: &RecordFields) -> String {
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
            "now": refusal.now.as_ref().map(one_as_json),
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
    })
}
