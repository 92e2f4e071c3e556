//! `ringfence hook`
//!
//! An agent runs it before and after each tool call, with the call on standard input. Every failure
//! here must stop the agent: both agents let a call through if its hook fails with any status other
//! than 2.

mod after;
mod answer;
mod call;
mod file_rules;
mod files;
mod input;
mod patch;
mod rewrite;
mod settings;
mod shell;
mod start;
mod watch;
mod web;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_policy::Tool;

use super::session::conversation::end as end_conversation;
use crate::error::CliError;
use answer::HookReply;
use call::HookCall;
use input::{HookEvent, HookInput};
pub(crate) use rewrite::cwd_link_path;

/// The status that blocks a call, for both agents. Any other status lets it through.
pub(crate) const BLOCKED: u8 = 2;

/// Handle an agent's hook: commands go into the sandbox, other tools are checked
///
/// Reads one JSON object of the agent's hook protocol from standard input and prints the reply.
/// `ringfence init` writes the settings that call it; docs/hooks.md lists what a hook can and
/// cannot enforce.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence hook claude-code < input.json

Exit status: 0 replied, 2 block the call (the reason is on standard error), 1 failed on an event that
cannot be blocked.")]
pub(crate) struct HookCommand {
    /// The agent
    #[arg(value_enum, value_name = "AGENT")]
    agent: HookAgent,
    /// Reply, while the parent process waits
    #[arg(long, hide = true)]
    watched: bool,
}

/// The agent whose hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookAgent {
    ClaudeCode,
    Codex,
}

impl HookAgent {
    /// Returns the agent name for the audit log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            HookAgent::ClaudeCode => "claude-code",
            HookAgent::Codex => "codex",
        }
    }
}

pub(crate) fn run(arguments: &HookCommand) -> ExitCode {
    // A panic would exit with a status that lets the call through.
    std::panic::set_hook(Box::new(|what| {
        print_reason(&format!("the hook failed, so the call is blocked: {what}"));
        std::process::exit(BLOCKED.into());
    }));
    if !arguments.watched {
        return ExitCode::from(watch::watch(arguments.agent));
    }
    let (event, answer) = match read().and_then(|text| HookInput::parse(&text)) {
        Ok(input) => (Some(input.event), answer(arguments.agent, input)),
        Err(error) => (None, Err(error)),
    };
    match answer.and_then(|answer| print(arguments.agent, &answer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_reason(&answer::error_text(&error));
            // An event after the call cannot be blocked.
            ExitCode::from(if event.is_some_and(HookEvent::is_unblockable) { 1 } else { BLOCKED })
        }
    }
}

fn answer(agent: HookAgent, input: HookInput) -> Result<HookReply, CliError> {
    match input.event {
        HookEvent::Other => Ok(HookReply::Nothing),
        HookEvent::Before => before(&HookCall::new(agent, input)?),
        HookEvent::After | HookEvent::Failed => after::answer(&HookCall::new(agent, input)?),
        HookEvent::End => {
            if let Some(conversation) = &input.conversation {
                end_conversation(conversation)?;
            }
            Ok(HookReply::Nothing)
        }
        HookEvent::Start => Ok(start::answer(&HookCall::new(agent, input)?)),
    }
}

/// Replies to a tool call before it runs.
fn before(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let name = hook_call.input.tool.as_str();
    if let Some(rule) = hook_call.grants().tools.rule_against(name) {
        return hook_call.record_refusal(call::HookRefusal::call(name, rule));
    }
    if let Some(program) = hook_call.replaceable_program()? {
        let why = "is in a writable directory, so a command could replace it: install it elsewhere";
        return Ok(HookReply::Denied { reason: format!("ringfence: {} {why}", program.display()) });
    }
    match (name, Tool::from_name(name)) {
        // Other shells, whose arguments have an unknown format.
        (
            "exec_command" | "shell_command" | "local_shell" | "unified_exec" | "container.exec",
            _,
        ) if hook_call.agent == HookAgent::Codex => {
            Ok(HookReply::Denied { reason: format!("ringfence cannot confine `{name}`; use Bash") })
        }
        ("PowerShell", _) => {
            Ok(HookReply::Denied { reason: "ringfence cannot confine PowerShell; use Bash".into() })
        }
        // Monitor also runs a command, and reports its output.
        ("Monitor", _) | (_, Some(Tool::Shell)) => shell::answer(hook_call),
        ("WebFetch", _) => web::answer(hook_call),
        ("apply_patch", _) => patch::answer(hook_call),
        ("NotebookRead", _) => files::check_file(
            hook_call,
            Tool::Read,
            hook_call.input.string_argument("notebook_path")?.as_ref(),
        ),
        (_, Some(tool)) => files::answer(hook_call, tool),
        // The server of an unknown tool is responsible for it.
        (_, None) => Ok(HookReply::Nothing),
    }
}

/// Prints the reason why a call is blocked. A write error does not unblock the call.
fn print_reason(why: &str) {
    let _ = writeln!(io::stderr(), "ringfence: {why}");
}

/// Reads the whole input.
fn read() -> Result<String, CliError> {
    const LONGEST: u64 = 64 << 20;
    let fail = |source| CliError::File { what: "read", path: "the hook's input".into(), source };
    let mut text = String::new();
    let length = io::stdin().lock().take(LONGEST).read_to_string(&mut text).map_err(fail)?;
    if length as u64 == LONGEST {
        return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64 MiB")));
    }
    Ok(text)
}

/// Prints the reply. A partly written reply is an error, which blocks the call.
fn print(agent: HookAgent, answer: &HookReply) -> Result<(), CliError> {
    let Some(value) = answer.json(agent) else { return Ok(()) };
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{value}").and_then(|()| out.flush());
    written.map_err(|source| CliError::File {
        what: "write to",
        path: "standard output".into(),
        source,
    })
}
