//! Tool results: one JSON object for programs, and the same as text.

use ringfence_api::{ExecuteResult, Permission, ShellState, error_chain, violations};
use ringfence_engine::EngineError;
use ringfence_engine::session::SessionOutcome;
use ringfence_tools::ToolError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Value, json};

use crate::outputs::{Outputs, SHOWN, split_budget};
use crate::schema::{CommandReply, ToolFailure};

/// Bytes shown of the output of earlier commands.
const BACKGROUND_SHOWN: usize = 8 << 10;

/// The most denials listed; the others are counted.
const MAX_DENIALS: usize = 100;

/// The result of a command. `permission` is what the user could be asked for, if not asked yet.
pub(crate) fn command_result(
    executed: SessionOutcome,
    permission: Option<Permission>,
    outputs: &Outputs,
) -> CallToolResult {
    let SessionOutcome { outcome, cwd, background, shell, news } = executed;
    let result = ExecuteResult { background: background.into(), shell, ..outcome.into() };
    let mut warnings = result.warnings;
    warnings.extend(news.changes.iter().map(|change| format!("the policy has changed: {change}")));
    warnings.extend(
        news.problems
            .iter()
            .map(|problem| format!("the policy stays unchanged: {}", problem.message)),
    );
    let dropped = |count: u64| (count > 0).then_some(count);
    let mut denials = result.denials;
    let unlisted = denials
        .split_off(denials.len().min(MAX_DENIALS))
        .iter()
        .map(|denial| denial.count)
        .sum::<u64>();
    let (stdout, stderr) = (result.stdout.text().into_owned(), result.stderr.text().into_owned());
    let (stdout_budget, stderr_budget) = split_budget(stdout.len(), stderr.len());
    let stdout = outputs.show("stdout", stdout, result.stdout.dropped, stdout_budget);
    let stderr = outputs.show("stderr", stderr, result.stderr.dropped, stderr_budget);
    let background =
        outputs.show("background", result.background.text().into_owned(), 0, BACKGROUND_SHOWN);
    let reply = CommandReply {
        stdout: stdout.text,
        stdout_dropped: dropped(stdout.dropped),
        stderr: stderr.text,
        stderr_dropped: dropped(stderr.dropped),
        background: Some(background.text).filter(|text| !text.is_empty()),
        exit_code: result.exit_code,
        timed_out: result.timed_out,
        breaches: result.breaches,
        duration_ms: result.duration_ms,
        cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        shell: match result.shell {
            ShellState::Alive => "lives-on",
            ShellState::Ended => "ended",
        }
        .to_owned(),
        blocked: result.blocked,
        blocked_reason: result.blocked_reason,
        blocked_resource: result.blocked_resource,
        denials,
        denials_dropped: result.denials_dropped + unlisted,
        granted: result.granted,
        permission,
        refusal: result.refusal,
        gaps: result.gaps,
        quarantined: result.quarantined,
        warnings,
    };
    let text = result_text(&reply);
    let content = vec![ContentBlock::text(text)];
    let answer = if reply.exit_code == 0 {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    structured(answer, &reply)
}

/// The text of the result: the output as a terminal shows it, then the notes.
fn result_text(reply: &CommandReply) -> String {
    let mut text = reply.stdout.clone();
    let mut add = |more: &str| {
        let needs_line = !(text.is_empty() || more.is_empty() || text.ends_with('\n'));
        text.push_str(if needs_line { "\n" } else { "" });
        text.push_str(more);
    };
    // Optional denials appear in the structured result only; here they would distract.
    let shown_denials: Vec<_> =
        reply.denials.iter().filter(|denial| !denial.is_tolerated()).cloned().collect();
    add(&violations::annotate(&reply.stderr, &shown_denials));
    if let Some(background) = &reply.background {
        add(&format!("[earlier commands wrote]\n{background}"));
    }
    reply.breaches.iter().for_each(|breach| add(&format!("[{breach}]")));
    if reply.exit_code != 0 {
        add(&format!("[exit status {}]", reply.exit_code));
    }
    if reply.shell == "ended" {
        add("[the shell has ended; the next command starts in a new shell]");
    }
    reply.warnings.iter().for_each(|warning| add(&format!("[{warning}]")));
    text
}

/// The result of a file tool.
pub(crate) fn tool_result(value: Value) -> CallToolResult {
    let mut text = value["text"].as_str().map_or_else(|| value.to_string(), str::to_owned);
    // Cut by this server, not at the caller's request.
    if let (Some(true), Some(size), Some(shown)) =
        (value["truncated"].as_bool(), value["size"].as_u64(), value["text"].as_str())
        && shown.len() + 4 > SHOWN
    {
        text.push_str(&format!("\n[{} of {size} bytes shown; `offset` and `limit` read on by lines, `byteOffset` by bytes]", shown.len()));
    }
    let mut answer = CallToolResult::success(vec![ContentBlock::text(text)]);
    answer.structured_content = Some(value);
    answer
}

/// Adds `value` as structured content.
pub(crate) fn structured(mut answer: CallToolResult, value: &impl Serialize) -> CallToolResult {
    answer.structured_content = serde_json::to_value(value).ok();
    answer
}

/// A failure is a tool result, not a protocol error, so that the agent reads it.
pub(crate) fn failure(failure: &ToolFailure) -> CallToolResult {
    let hint = failure.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let text = format!("ringfence: {}{hint}", failure.message);
    structured(CallToolResult::error(vec![ContentBlock::text(text)]), &json!({ "error": failure }))
}

impl ToolFailure {
    pub(crate) fn new(code: &str, message: impl Into<String>, hint: Option<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint, denial: None }
    }
}

impl From<EngineError> for ToolFailure {
    fn from(error: EngineError) -> Self {
        Self::new(error.code(), error_chain(&error), error.hint())
    }
}

impl From<ToolError> for ToolFailure {
    fn from(error: ToolError) -> Self {
        let denial = error.denial().cloned().map(Box::new);
        Self { denial, ..Self::new(error.code(), error_chain(&error), error.hint()) }
    }
}
