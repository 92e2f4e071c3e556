//! Reports the denials of a command that has ended to the agent.

use ringfence_api::Denial;
use ringfence_api::violations::annotate;
use ringfence_audit::recent_run;
use ringfence_policy::Tool;
use serde_json::Value;

use super::answer::HookReply;
use super::call::HookCall;
use super::input::HookEvent;
use super::rewrite::cwd_link_path;
use crate::denied::from_record;
use crate::error::CliError;

pub(super) fn answer(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let is_command = hook_call.input.tool == "Monitor"
        || Tool::from_name(&hook_call.input.tool) == Some(Tool::Shell);
    let Some(call) = hook_call.input.call.as_deref().filter(|_| is_command) else {
        return Ok(HookReply::Nothing);
    };
    // The agent's shell has followed the link by now.
    let _ = std::fs::remove_file(cwd_link_path(&hook_call.resolved.surroundings.facts.state, call));
    let Some(run) = recent_run(hook_call.grants().audit.directory.as_path(), call)? else {
        return Ok(HookReply::Nothing);
    };
    let is_blocked = run
        .ended
        .as_ref()
        .is_some_and(|ended| ended.get("result").and_then(Value::as_str) == Some("blocked"));
    let denials: Vec<Denial> = run
        .refused
        .iter()
        .filter_map(from_record)
        .filter(|denial| !denial.is_tolerated())
        .collect();
    if !is_blocked || denials.is_empty() {
        return Ok(HookReply::Nothing);
    }
    let event = match hook_call.input.event {
        HookEvent::Failed => "PostToolUseFailure",
        _ => "PostToolUse",
    };
    let more = format!(
        "The sandbox denied this access; the program did not fail by itself. `ringfence explain --last --session {call}` shows the rules and how the user can change them."
    );
    Ok(HookReply::Context { event, text: format!("{}\n{more}", annotate("", shorten(&denials))) })
}

/// Returns as many denials as fit into one text for the agent.
fn shorten(denials: &[Denial]) -> &[Denial] {
    const LONGEST: usize = 8000;
    let mut length = 0;
    let fits = denials.iter().take_while(|denial| {
        length += denial.target.len() + denial.rule.len() + denial.origin.len() + 40;
        length < LONGEST
    });
    &denials[..fits.count()]
}
