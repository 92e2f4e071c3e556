//! Tool results: one JSON object for programs, and the same as text.

use ringfence_api::{ExecuteResult, ShellState, error_chain, violations};
use ringfence_engine::EngineError;
use ringfence_tools::ToolError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Value, json};

use crate::outputs::{Outputs, SHOWN, split_budget};
use crate::schema::ToolFailure;

/// Bytes shown of the output of earlier commands.
const BACKGROUND_SHOWN: usize = 8 << 10;

/// The most denials listed; the others are counted.
const MAX_DENIALS: usize = 100;

/// The result of a command, short enough for an agent to read.
pub(crate) fn command_result(mut result: ExecuteResult, outputs: &Outputs) -> CallToolResult {
    let unlisted = result.denials.split_off(result.denials.len().min(MAX_DENIALS));
    result.denials_dropped += unlisted.iter().map(|denial| denial.count).sum::<u64>();
    // The audit log has the connections, and `ringfence plan` the protections.
    result.connections_dropped += std::mem::take(&mut result.connections).len() as u64;
    result.enforced.clear();
    let (stdout, stderr) = (result.stdout.text().into_owned(), result.stderr.text().into_owned());
    let (stdout_budget, stderr_budget) = split_budget(stdout.len(), stderr.len());
    let background = result.background.text().into_owned();
    result.stdout = outputs.show("stdout", stdout, result.stdout.dropped, stdout_budget).into();
    result.stderr = outputs.show("stderr", stderr, result.stderr.dropped, stderr_budget).into();
    result.background = outputs.show("background", background, 0, BACKGROUND_SHOWN).into();
    let content = vec![ContentBlock::text(result_text(&result))];
    let answer = if result.exit_code == 0 {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    structured(answer, &result)
}

/// The text of the result: the output as a terminal shows it, then the notes.
fn result_text(result: &ExecuteResult) -> String {
    let mut text = result.stdout.to_string();
    let mut add = |more: &str| {
        let needs_line = !(text.is_empty() || more.is_empty() || text.ends_with('\n'));
        text.push_str(if needs_line { "\n" } else { "" });
        text.push_str(more);
    };
    // Optional denials appear in the structured result only; here they would distract.
    let shown_denials: Vec<_> =
        result.denials.iter().filter(|denial| !denial.is_tolerated()).cloned().collect();
    add(&violations::annotate(&result.stderr.text(), &shown_denials));
    if !result.background.bytes.is_empty() {
        add(&format!("[earlier commands wrote]\n{}", result.background));
    }
    result.breaches.iter().for_each(|breach| add(&format!("[{breach}]")));
    if result.exit_code != 0 {
        add(&format!("[exit status {}]", result.exit_code));
    }
    if result.shell == ShellState::Ended {
        add("[the shell has ended; the next command starts in a new shell]");
    }
    result.warnings.iter().for_each(|warning| add(&format!("[{warning}]")));
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
