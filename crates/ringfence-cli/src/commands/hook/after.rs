//! What was refused to a command that has ended, told to the agent.

use ringfence_api::Denial;
use ringfence_api::violations::annotate;
use ringfence_audit::recent_run;
use ringfence_policy::Tool;
use serde_json::Value;

use super::answer::HookReply;
use super::call::HookCall;
use super::input::HookEvent;
use super::rewrite::link;
use crate::denied::from_record;
use crate::error::CliError;

pub(super) fn answer(scene: &HookCall) -> Result<HookReply, CliError> {
    let is_command =
        scene.input.tool == "Monitor" || Tool::of(&scene.input.tool) == Some(Tool::Shell);
    let Some(call) = scene.input.call.as_deref().filter(|_| is_command) else {
        return Ok(HookReply::Nothing);
    };
    // Whoever was to follow it has done so by now.
    let _ = std::fs::remove_file(link(&scene.resolved.surroundings.facts.state, call));
    let Some(run) = recent_run(scene.grants().audit.directory.as_path(), call)? else {
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
        .filter(|denial| !denial.is_done_without())
        .collect();
    if !is_blocked || denials.is_empty() {
        return Ok(HookReply::Nothing);
    }
    let event = match scene.input.event {
        HookEvent::Failed => "PostToolUseFailure",
        _ => "PostToolUse",
    };
    let more = format!(
        "The sandbox refused this, not the program. `ringfence explain --last --session {call}` says which rules did and how a person can change them."
    );
    Ok(HookReply::Context { event, text: format!("{}\n{more}", annotate("", fitting(&denials))) })
}

/// As many as an agent takes in one text.
fn fitting(denials: &[Denial]) -> &[Denial] {
    const LONGEST: usize = 8000;
    let mut length = 0;
    let fits = denials.iter().take_while(|denial| {
        length += denial.target.len() + denial.rule.len() + denial.origin.len() + 40;
        length < LONGEST
    });
    &denials[..fits.count()]
}
