//! What a call answers: one object for programs, and the same in words.

use ringfence::ExecuteResult;
use ringfence_api::{Permission, ShellState, violations, whole};
use ringfence_engine::EngineError;
use ringfence_engine::session::SessionOutcome;
use ringfence_tools::ToolError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Value, json};

use crate::outputs::{Outputs, SHOWN, shares};
use crate::schema::{CommandReply, ToolFailure};

/// Bytes that are shown of what earlier commands wrote.
const BACKGROUND: usize = 8 << 10;

/// As many refusals as anybody reads; the others are counted.
const DENIALS: usize = 100;

/// What became of a command; with what a person could be asked, where nobody was.
pub(crate) fn ran(
    executed: SessionOutcome,
    permission: Option<Permission>,
    outputs: &Outputs,
) -> CallToolResult {
    let SessionOutcome { outcome, cwd, background, shell, news } = executed;
    let result = ExecuteResult { background: background.into(), shell, ..outcome.into() };
    let mut warnings = result.warnings;
    warnings.extend(news.changes.iter().map(|change| format!("the policy was changed: {change}")));
    warnings.extend(
        news.problems
            .iter()
            .map(|problem| format!("the policy stays as it was: {}", problem.message)),
    );
    let dropped = |count: u64| (count > 0).then_some(count);
    let mut denials = result.denials;
    let beyond = denials
        .split_off(denials.len().min(DENIALS))
        .iter()
        .map(|denial| denial.count)
        .sum::<u64>();
    let (stdout, stderr) = (result.stdout.text().into_owned(), result.stderr.text().into_owned());
    let (of_stdout, of_stderr) = shares(stdout.len(), stderr.len());
    let stdout = outputs.show("stdout", stdout, result.stdout.dropped, of_stdout);
    let stderr = outputs.show("stderr", stderr, result.stderr.dropped, of_stderr);
    let background =
        outputs.show("background", result.background.text().into_owned(), 0, BACKGROUND);
    let ran = CommandReply {
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
            ShellState::LivesOn => "lives-on",
            ShellState::Ended => "ended",
        }
        .to_owned(),
        blocked: result.blocked,
        blocked_reason: result.blocked_reason,
        blocked_resource: result.blocked_resource,
        denials,
        denials_dropped: result.denials_dropped + beyond,
        granted: result.granted,
        permission,
        refusal: result.refusal,
        gaps: result.gaps,
        quarantined: result.quarantined,
        warnings,
    };
    let text = words(&ran);
    let content = vec![ContentBlock::text(text)];
    let answer = if ran.exit_code == 0 {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    structured(answer, &ran)
}

/// What a terminal would show, and what is behind it.
fn words(ran: &CommandReply) -> String {
    let mut text = ran.stdout.clone();
    let mut add = |more: &str| {
        let needs_line = !(text.is_empty() || more.is_empty() || text.ends_with('\n'));
        text.push_str(if needs_line { "\n" } else { "" });
        text.push_str(more);
    };
    // The rest stands in the structured result: it would only distract.
    let told: Vec<_> =
        ran.denials.iter().filter(|denial| !denial.is_done_without()).cloned().collect();
    add(&violations::annotate(&ran.stderr, &told));
    if let Some(background) = &ran.background {
        add(&format!("[earlier commands wrote]\n{background}"));
    }
    ran.breaches.iter().for_each(|breach| add(&format!("[{breach}]")));
    if ran.exit_code != 0 {
        add(&format!("[exit status {}]", ran.exit_code));
    }
    if ran.shell == "ended" {
        add("[the shell has ended; the next command starts in a new one]");
    }
    ran.warnings.iter().for_each(|warning| add(&format!("[{warning}]")));
    text
}

/// What a tool has done, as it says so itself.
pub(crate) fn done(value: Value) -> CallToolResult {
    let mut text = value["text"].as_str().map_or_else(|| value.to_string(), str::to_owned);
    // Cut by us, and not by what the caller asked for.
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

/// The same, in the words of `text`.
pub(crate) fn structured(mut answer: CallToolResult, value: &impl Serialize) -> CallToolResult {
    answer.structured_content = serde_json::to_value(value).ok();
    answer
}

/// What is wrong is for the agent to read, so it is an answer, and no error of the protocol.
pub(crate) fn failed(failure: &ToolFailure) -> CallToolResult {
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
        Self::new(error.code(), whole(&error), error.hint())
    }
}

impl From<ToolError> for ToolFailure {
    fn from(error: ToolError) -> Self {
        let denial = error.denial().cloned().map(Box::new);
        Self { denial, ..Self::new(error.code(), whole(&error), error.hint()) }
    }
}
