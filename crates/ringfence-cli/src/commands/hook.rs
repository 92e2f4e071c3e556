//! `ringfence hook`
//!
//! An agent runs it before and after each of its tools, with what it is about to do on standard
//! input. Whatever goes wrong here must stop the agent: both agents let a call through whose hook
//! fails in any other way than by status 2.

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
pub(crate) use rewrite::link;

/// The status that stops a call, for both agents. Any other lets it through.
pub(crate) const BLOCKED: u8 = 2;

/// Answer an agent's hook: its commands go into the sandbox, its other tools are checked
///
/// Reads one JSON object of the agent's hook protocol from standard input and answers as its
/// documentation demands. `ringfence init` writes the settings that call it; docs/hooks.md says
/// what a hook can hold and what it cannot.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence hook claude-code < input.json

Exit status: 0 answered, 2 the call is to be blocked and standard error says why, 1 an answer that
could block nothing failed.")]
pub(crate) struct HookCommand {
    /// Whose hook it is
    #[arg(value_enum, value_name = "AGENT")]
    agent: HookAgent,
    /// Answer, while the process that started this one waits
    #[arg(long, hide = true)]
    watched: bool,
}

/// Whose hook it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookAgent {
    ClaudeCode,
    Codex,
}

impl HookAgent {
    /// Who acts, in the audit log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            HookAgent::ClaudeCode => "claude-code",
            HookAgent::Codex => "codex",
        }
    }
}

pub(crate) fn run(arguments: &HookCommand) -> ExitCode {
    // A panic would end with a status that lets the call through.
    std::panic::set_hook(Box::new(|what| {
        say(&format!("the hook failed, so the call is blocked: {what}"));
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
            say(&answer::told(&error));
            // What has happened cannot be blocked any more.
            ExitCode::from(if event.is_some_and(HookEvent::is_over) { 1 } else { BLOCKED })
        }
    }
}

fn answer(agent: HookAgent, input: HookInput) -> Result<HookReply, CliError> {
    match input.event {
        HookEvent::Other => Ok(HookReply::Nothing),
        HookEvent::Before => before(&HookCall::of(agent, input)?),
        HookEvent::After | HookEvent::Failed => after::answer(&HookCall::of(agent, input)?),
        HookEvent::End => {
            if let Some(conversation) = &input.conversation {
                end_conversation(conversation)?;
            }
            Ok(HookReply::Nothing)
        }
        HookEvent::Start => Ok(start::answer(&HookCall::of(agent, input)?)),
    }
}

/// What is said of a tool that is about to be used.
fn before(scene: &HookCall) -> Result<HookReply, CliError> {
    let name = scene.input.tool.as_str();
    if let Some(rule) = scene.grants().tools.against(name) {
        return scene.refuse(call::HookRefusal::call(name, rule));
    }
    if let Some(program) = scene.exposed()? {
        let why = "stands where commands may write, so that one of them could replace it: install it elsewhere";
        return Ok(HookReply::Denied { reason: format!("ringfence: {} {why}", program.display()) });
    }
    match (name, Tool::of(name)) {
        // Shells by other names, of which it is not known what they are given.
        (
            "exec_command" | "shell_command" | "local_shell" | "unified_exec" | "container.exec",
            _,
        ) if scene.agent == HookAgent::Codex => Ok(HookReply::Denied {
            reason: format!("ringfence does not know how to confine `{name}`; use Bash"),
        }),
        ("PowerShell", _) => {
            Ok(HookReply::Denied { reason: "ringfence confines no PowerShell; use Bash".into() })
        }
        // It runs a command, too, and tells of what that prints.
        ("Monitor", _) | (_, Some(Tool::Shell)) => shell::answer(scene),
        ("WebFetch", _) => web::answer(scene),
        ("apply_patch", _) => patch::answer(scene),
        ("NotebookRead", _) => {
            files::one(scene, Tool::Read, scene.input.text("notebook_path")?.as_ref())
        }
        (_, Some(tool)) => files::answer(scene, tool),
        // Whoever serves it answers for it.
        (_, None) => Ok(HookReply::Nothing),
    }
}

/// Says why a call is blocked. It is blocked if nobody hears it, too.
fn say(why: &str) {
    let _ = writeln!(io::stderr(), "ringfence: {why}");
}

/// All that the agent has to say.
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

/// Nobody is told that a call may go on who does not hear all of it.
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
