//! Commands: they go into the sandbox.

use ringfence_api::{DenialEvidence, Operation};
use ringfence_policy::command::{
    ParsedLine, RunConsent as Agreed, SandboxAbility, SandboxChoice, SandboxQuery, SandboxWish,
    UnsandboxedReason, should_use_sandbox,
};
use ringfence_policy::{CommandRules, HookSession};
use serde_json::Value;

use super::HookAgent;
use super::answer::{HookConsent, HookReply, short};
use super::call::{HookCall, HookRefusal};
use super::file_rules::FileRules;
use super::rewrite::{CommandRewrite, Conversation, Place, ShellCwdAfter};
use super::settings::HookSettings;
use crate::error::CliError;

/// Added to a refusal by a rule of Claude Code's own settings.
const OF_THE_AGENT: &str = "; the rule is the agent's own setting";

pub(super) fn answer(scene: &HookCall) -> Result<HookReply, CliError> {
    let line = scene.input.text("command")?;
    let settings = HookSettings::read(scene)?;
    let read = ParsedLine::parse(line);
    let refusal = |rules: &CommandRules, told: &str| {
        let refusal = rules.refusal(read.as_ref())?;
        let position = line.get(..refusal.span.start).map_or(0, |before| before.chars().count());
        let more = format!(
            "{}, at character {}. `ringfence explain command` shows how a line is read{told}",
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
    let commands = &scene.grants().commands;
    let guarded = refusal(commands, "").or_else(|| refusal(&settings.deny, OF_THE_AGENT));
    if let Some(refusal) = guarded {
        return scene.refuse(refusal);
    }
    let is_to_be_asked = settings.ask.refusal(read.as_ref()).is_some();
    let wish = match scene.input.arguments.get("dangerouslyDisableSandbox") {
        None | Some(Value::Bool(false) | Value::Null) => SandboxWish::Default,
        Some(_) => SandboxWish::Unsandboxed,
    };
    // Whether a sandbox can be made is seen when it is: a run without one ends with status 125.
    let platform = scene.resolved.surroundings.facts.platform;
    let wanted = SandboxQuery { command: line, wish, platform, ability: SandboxAbility::Available };
    match should_use_sandbox(&settings.sandbox, wanted) {
        SandboxChoice::Refused => {
            Ok(HookReply::Denied { reason: "ringfence: no sandbox can be made here".into() })
        }
        SandboxChoice::Sandboxed(agreed) => {
            let consent = if agreed == Agreed::Given && !is_to_be_asked {
                HookConsent::Given
            } else {
                HookConsent::Needed
            };
            inside(scene, line, consent, &settings.files)
        }
        SandboxChoice::Unsandboxed(why) => {
            // No sandbox holds what is in doubt there.
            match refusal(&commands.strict(), "")
                .or_else(|| refusal(&settings.deny.strict(), OF_THE_AGENT))
            {
                Some(refusal) => scene.refuse(refusal),
                None => outside(scene, line, why),
            }
        }
    }
}

/// The command, rewritten.
fn inside(
    scene: &HookCall,
    line: &str,
    consent: HookConsent,
    rules: &FileRules,
) -> Result<HookReply, CliError> {
    let grants = scene.grants();
    let denied = |reason: String| Ok(HookReply::Denied { reason: format!("ringfence: {reason}") });
    if line.contains('\0') {
        return denied("a command with a NUL in it is none".into());
    }
    if scene.agent == HookAgent::ClaudeCode && !scene.cwd.is_within(&grants.workspace) {
        return denied(format!(
            "the shell stands in {}, which is not in the project {}",
            scene.cwd, grants.workspace
        ));
    }
    let program = scene.program()?;
    let flags = rules.flags();
    let rewrite = CommandRewrite {
        program: &program,
        project: &grants.workspace,
        start: &scene.start,
        rules: &flags,
        agent: scene.name(),
        conversation: conversation(scene),
        call: scene.input.call.as_deref(),
        mode: scene.is_planning().then_some("read-only"),
        state: &scene.resolved.surroundings.facts.state,
    };
    let afterwards = afterwards(scene, line);
    let mut arguments = scene.input.arguments.clone();
    if !rewrite.made(line, afterwards) {
        let Some(made) = rewrite.of(line, afterwards) else {
            return denied("the path of ringfence or of the project is no text".into());
        };
        arguments.insert("command".into(), made.into());
    }
    Ok(HookReply::Rewritten { arguments, consent, reason: "runs in ringfence's sandbox".into() })
}

/// The sandbox that the line shares with others of its conversation. Nothing could be told about a
/// call without a name, so such a call has a sandbox of its own.
fn conversation(scene: &HookCall) -> Option<Conversation<'_>> {
    let is_shared = scene.grants().sandbox.hook_session == HookSession::Conversation
        && scene.input.call.is_some();
    let id = scene.input.conversation.as_deref().filter(|_| is_shared)?;
    Some(Conversation { id, place: if is_in_front(scene) { Place::Shell } else { Place::Beside } })
}

/// Answers whether the agent waits for the command.
fn is_in_front(scene: &HookCall) -> bool {
    scene.input.tool != "Monitor"
        && scene.input.arguments.get("run_in_background") != Some(&Value::Bool(true))
}

/// Whether whoever runs the line goes on in the directory in which it ended.
fn afterwards(scene: &HookCall, line: &str) -> ShellCwdAfter {
    // Whatever else changes the directory does so by one of these words.
    const WORDS: [&str; 6] = ["cd", "pushd", "popd", "source", "eval", ". "];
    let is_plain =
        scene.agent == HookAgent::ClaudeCode && scene.input.tool == "Bash" && is_in_front(scene);
    // A function that an earlier line of the conversation made may change it by any word.
    let may_say_so = conversation(scene).is_some() || WORDS.iter().any(|word| line.contains(word));
    let may_move = is_plain && scene.input.call.is_some() && may_say_so;
    if may_move { ShellCwdAfter::Follow } else { ShellCwdAfter::Stay }
}

/// A command that is not confined, which the agent asks about in its own way.
fn outside(scene: &HookCall, line: &str, why: UnsandboxedReason) -> Result<HookReply, CliError> {
    let rule = match why {
        UnsandboxedReason::Disabled => "nothing is confined",
        UnsandboxedReason::OtherPlatform => "enabledPlatforms",
        UnsandboxedReason::Unavailable => "failIfUnavailable",
        UnsandboxedReason::Asked => "allowUnsandboxedCommands",
        UnsandboxedReason::Empty => "there is no command",
        UnsandboxedReason::Excluded => "excluded",
    };
    scene.pass(Operation::Command, line, (rule.to_owned(), "settings".to_owned()))?;
    Ok(match why {
        UnsandboxedReason::Asked => HookReply::Asked {
            reason: format!("asks to run outside of ringfence's sandbox: {}", short(line)),
        },
        _ => HookReply::Nothing,
    })
}
