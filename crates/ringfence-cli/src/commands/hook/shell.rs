//! Sends commands to the sandbox.

use ringfence_api::{DenialEvidence, Operation};
use ringfence_cmdline::{
    ParsedLine, RunConsent as Agreed, SandboxAbility, SandboxChoice, SandboxQuery, SandboxWish,
    UnsandboxedReason, find_refusal, should_use_sandbox,
};
use ringfence_policy::{CommandRules, HookSession};
use serde_json::Value;

use super::HookAgent;
use super::answer::{HookConsent, HookReply, truncate};
use super::call::{HookCall, HookRefusal};
use super::file_rules::FileRules;
use super::rewrite::{CommandRewrite, Conversation, ConversationShell, ShellCwdAfter};
use super::settings::HookSettings;
use crate::error::CliError;

/// The suffix of a denial by a rule of Claude Code's own settings.
const AGENT_SETTING: &str = "; the rule is the agent's own setting";

pub(super) fn answer(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let line = hook_call.input.string_argument("command")?;
    let settings = HookSettings::read(hook_call)?;
    let read = ParsedLine::parse(line);
    let refusal = |rules: &CommandRules, suffix: &str| {
        let refusal = find_refusal(read.as_ref(), rules)?;
        let position = line.get(..refusal.span.start).map_or(0, |before| before.chars().count());
        let more = format!(
            "{}, at character {}. `ringfence explain command` shows how ringfence parses a line{suffix}",
            refusal.reason,
            position + 1
        );
        let (target, rule) = (line.to_owned(), (refusal.rule, refusal.origin.place()));
        Some(HookRefusal {
            operation: Operation::Command,
            target,
            rule,
            evidence: DenialEvidence::Guard,
            more: Some(more),
        })
    };
    let commands = &hook_call.grants().commands;
    let guarded = refusal(commands, "").or_else(|| refusal(&settings.deny, AGENT_SETTING));
    if let Some(refusal) = guarded {
        return hook_call.record_refusal(refusal);
    }
    let needs_consent = find_refusal(read.as_ref(), &settings.ask).is_some();
    let wish = match hook_call.input.arguments.get("dangerouslyDisableSandbox") {
        None | Some(Value::Bool(false) | Value::Null) => SandboxWish::Default,
        Some(_) => SandboxWish::Unsandboxed,
    };
    // Assumed to be available: otherwise the run ends with status 125.
    let platform = hook_call.resolved.surroundings.facts.platform;
    let wanted =
        SandboxQuery { command: line, request: wish, platform, ability: SandboxAbility::Available };
    match should_use_sandbox(&settings.sandbox, wanted) {
        SandboxChoice::Refused => Ok(HookReply::Denied {
            reason: "ringfence: no sandbox is available on this host".into(),
        }),
        SandboxChoice::Sandboxed(agreed) => {
            let consent = if agreed == Agreed::Given && !needs_consent {
                HookConsent::Given
            } else {
                HookConsent::Needed
            };
            inside(hook_call, line, consent, &settings.files)
        }
        SandboxChoice::Unsandboxed(why) => {
            // Without a sandbox, a doubtful command is refused.
            match refusal(&commands.with_doubt_refused(), "")
                .or_else(|| refusal(&settings.deny.with_doubt_refused(), AGENT_SETTING))
            {
                Some(refusal) => hook_call.record_refusal(refusal),
                None => outside(hook_call, line, why),
            }
        }
    }
}

/// Returns the rewritten command.
fn inside(
    hook_call: &HookCall,
    line: &str,
    consent: HookConsent,
    rules: &FileRules,
) -> Result<HookReply, CliError> {
    let grants = hook_call.grants();
    let denied = |reason: String| Ok(HookReply::Denied { reason: format!("ringfence: {reason}") });
    if line.contains('\0') {
        return denied("the command contains a NUL character".into());
    }
    if hook_call.agent == HookAgent::ClaudeCode && !hook_call.cwd.is_within(&grants.workspace) {
        return denied(format!(
            "the shell is in {}, which is not in the project {}",
            hook_call.cwd, grants.workspace
        ));
    }
    let program = hook_call.program()?;
    let flags = [rules.flags(), hook_call.codex_flags()].concat();
    let rewrite = CommandRewrite {
        program: &program,
        project: &grants.workspace,
        start: &hook_call.start,
        rules: &flags,
        agent: hook_call.name(),
        conversation: conversation(hook_call),
        call: hook_call.input.call.as_deref(),
        mode: hook_call.is_planning().then_some("read-only"),
        state: &hook_call.resolved.surroundings.facts.state,
    };
    let afterwards = afterwards(hook_call, line);
    let mut arguments = hook_call.input.arguments.clone();
    if !rewrite.is_rewritten(line, afterwards) {
        let Some(made) = rewrite.rewrite(line, afterwards) else {
            return denied("the path of ringfence or of the project is not UTF-8".into());
        };
        arguments.insert("command".into(), made.into());
    }
    Ok(HookReply::Rewritten { arguments, consent, reason: "runs in the ringfence sandbox".into() })
}

/// Returns the sandbox that the line shares with its conversation. A call without a name gets a
/// separate sandbox: its denials could not be found afterwards.
fn conversation(hook_call: &HookCall) -> Option<Conversation<'_>> {
    let is_shared = hook_call.grants().sandbox.hook_session == HookSession::Conversation
        && hook_call.input.call.is_some();
    let id = hook_call.input.conversation.as_deref().filter(|_| is_shared)?;
    let place = if is_in_foreground(hook_call) {
        ConversationShell::Shared
    } else {
        ConversationShell::Separate
    };
    Some(Conversation { id, place })
}

/// True if the agent waits for the command.
fn is_in_foreground(hook_call: &HookCall) -> bool {
    hook_call.input.tool != "Monitor"
        && hook_call.input.arguments.get("run_in_background") != Some(&Value::Bool(true))
}

/// Decides if the agent's shell follows the line to the directory it ends in.
fn afterwards(hook_call: &HookCall, line: &str) -> ShellCwdAfter {
    // Everything that changes the directory uses one of these words.
    const WORDS: [&str; 6] = ["cd", "pushd", "popd", "source", "eval", ". "];
    let is_plain = hook_call.agent == HookAgent::ClaudeCode
        && hook_call.input.tool == "Bash"
        && is_in_foreground(hook_call);
    // A function that an earlier line of the conversation defined may do so under any name.
    let may_change =
        conversation(hook_call).is_some() || WORDS.iter().any(|word| line.contains(word));
    let may_move = is_plain && hook_call.input.call.is_some() && may_change;
    if may_move { ShellCwdAfter::Follow } else { ShellCwdAfter::Stay }
}

/// Records a command that runs unconfined; the agent asks in its own way.
fn outside(
    hook_call: &HookCall,
    line: &str,
    why: UnsandboxedReason,
) -> Result<HookReply, CliError> {
    let rule = match why {
        UnsandboxedReason::Disabled => "nothing is confined",
        UnsandboxedReason::OtherPlatform => "enabledPlatforms",
        UnsandboxedReason::Unavailable => "failIfUnavailable",
        UnsandboxedReason::Asked => "allowUnsandboxedCommands",
        UnsandboxedReason::Empty => "there is no command",
        UnsandboxedReason::Excluded => "excluded",
    };
    hook_call.allow_unchanged(
        Operation::Command,
        line,
        (rule.to_owned(), "settings".to_owned()),
    )?;
    Ok(match why {
        UnsandboxedReason::Asked => HookReply::Asked {
            reason: format!("asks to run outside the ringfence sandbox: {}", truncate(line)),
        },
        _ => HookReply::Nothing,
    })
}
