//! Commands: they go into the sandbox.

use ringfence_api::{Evidence, Operation};
use ringfence_policy::command::{
    Ability, Consent as Agreed, Line, SandboxChoice, Unsandboxed, Wanted, Wish, should_use_sandbox,
};
use ringfence_policy::{CommandRules, HookSession};
use serde_json::Value;

use super::Agent;
use super::answer::{Answer, Consent, short};
use super::file_rules::FileRules;
use super::rewrite::{Afterwards, Conversation, Place, Rewrite};
use super::scene::{Refusal, Scene};
use super::settings::Settings;
use crate::error::CliError;

/// Added to a refusal by a rule of Claude Code's own settings.
const OF_THE_AGENT: &str = "; the rule is the agent's own setting";

pub(super) fn answer(scene: &Scene) -> Result<Answer, CliError> {
    let line = scene.input.text("command")?;
    let settings = Settings::read(scene)?;
    let read = Line::parse(line);
    let refusal = |rules: &CommandRules, told: &str| {
        let refusal = rules.refusal(read.as_ref())?;
        let position = line.get(..refusal.span.start).map_or(0, |before| before.chars().count());
        let more = format!(
            "{}, at character {}. `ringfence explain command` shows how a line is read{told}",
            refusal.reason,
            position + 1
        );
        let (target, rule) = (line.to_owned(), (refusal.rule, refusal.origin.place()));
        Some(Refusal {
            operation: Operation::Command,
            target,
            rule,
            evidence: Evidence::Guard,
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
        None | Some(Value::Bool(false) | Value::Null) => Wish::Default,
        Some(_) => Wish::Unsandboxed,
    };
    // Whether a sandbox can be made is seen when it is: a run without one ends with status 125.
    let platform = scene.resolved.surroundings.facts.platform;
    let wanted = Wanted { command: line, wish, platform, ability: Ability::Available };
    match should_use_sandbox(&settings.sandbox, wanted) {
        SandboxChoice::Refused => {
            Ok(Answer::Denied { reason: "ringfence: no sandbox can be made here".into() })
        }
        SandboxChoice::Sandboxed(agreed) => {
            let consent = if agreed == Agreed::Given && !is_to_be_asked {
                Consent::Given
            } else {
                Consent::Needed
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
    scene: &Scene,
    line: &str,
    consent: Consent,
    rules: &FileRules,
) -> Result<Answer, CliError> {
    let grants = scene.grants();
    let denied = |reason: String| Ok(Answer::Denied { reason: format!("ringfence: {reason}") });
    if line.contains('\0') {
        return denied("a command with a NUL in it is none".into());
    }
    if scene.agent == Agent::ClaudeCode && !scene.cwd.is_within(&grants.workspace) {
        return denied(format!(
            "the shell stands in {}, which is not in the project {}",
            scene.cwd, grants.workspace
        ));
    }
    let program = scene.program()?;
    let flags = rules.flags();
    let rewrite = Rewrite {
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
    Ok(Answer::Rewritten { arguments, consent, reason: "runs in ringfence's sandbox".into() })
}

/// The sandbox that the line shares with others of its conversation. Nothing could be told about a call
/// without a name, so such a call has a sandbox of its own.
fn conversation(scene: &Scene) -> Option<Conversation<'_>> {
    let is_shared = scene.grants().sandbox.hook_session == HookSession::Conversation
        && scene.input.call.is_some();
    let id = scene.input.conversation.as_deref().filter(|_| is_shared)?;
    Some(Conversation { id, place: if is_in_front(scene) { Place::Shell } else { Place::Beside } })
}

/// Answers whether the agent waits for the command.
fn is_in_front(scene: &Scene) -> bool {
    scene.input.tool != "Monitor"
        && scene.input.arguments.get("run_in_background") != Some(&Value::Bool(true))
}

/// Whether whoever runs the line goes on in the directory in which it ended.
fn afterwards(scene: &Scene, line: &str) -> Afterwards {
    // Whatever else changes the directory does so by one of these words.
    const WORDS: [&str; 6] = ["cd", "pushd", "popd", "source", "eval", ". "];
    let is_plain =
        scene.agent == Agent::ClaudeCode && scene.input.tool == "Bash" && is_in_front(scene);
    // A function that an earlier line of the conversation made may change it by any word.
    let may_say_so = conversation(scene).is_some() || WORDS.iter().any(|word| line.contains(word));
    let may_move = is_plain && scene.input.call.is_some() && may_say_so;
    if may_move { Afterwards::Follow } else { Afterwards::Stay }
}

/// A command that is not confined, which the agent asks about in its own way.
fn outside(scene: &Scene, line: &str, why: Unsandboxed) -> Result<Answer, CliError> {
    let rule = match why {
        Unsandboxed::Disabled => "nothing is confined",
        Unsandboxed::OtherPlatform => "enabledPlatforms",
        Unsandboxed::Unavailable => "failIfUnavailable",
        Unsandboxed::Asked => "allowUnsandboxedCommands",
        Unsandboxed::Empty => "there is no command",
        Unsandboxed::Excluded => "excluded",
    };
    scene.pass(Operation::Command, line, (rule.to_owned(), "settings".to_owned()))?;
    Ok(match why {
        Unsandboxed::Asked => Answer::Asked {
            reason: format!("asks to run outside of ringfence's sandbox: {}", short(line)),
        },
        _ => Answer::Nothing,
    })
}
