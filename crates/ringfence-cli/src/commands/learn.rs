//! `ringfence learn`

mod policy_output;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ringfence_engine::{LearnedPolicy, LearnedRule, ProviderRegistry, learn, run as run_engine};
use ringfence_policy::{Asking, Observe};
use serde_json::{Value, json};

use super::resolve_args::{
    ResolvedArgs, RunOverrides, agent_from_env, command_words, resolve_for_run,
};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::{messages, output};
use policy_output::PolicyOutput;

/// Run a command and propose the smallest policy that it needs
///
/// ringfence confines the command as `run` does, and records the files it opens and its denials.
/// The printed policy allows the denied accesses: single files, or a directory if the command needs
/// several files in it. A comment after each line names the program, the count and the rule that
/// denied the access. Paths that a rule denies or protects, system paths, the whole home directory
/// and other projects are never proposed; they appear as comments at the end. The command's output
/// goes to standard error. A command that gets further may need more: repeat with
/// `--policy FILE --output FILE` until nothing is added.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence learn -- npm test
  ringfence learn --output learned.toml -- make
  ringfence learn --policy learned.toml --output learned.toml -- make
  ringfence run --policy learned.toml -- make

Exit status: 0, also if the command fails; 125 ringfence failed, 126 not executable, 127 not found.")]
pub(crate) struct LearnArgs {
    /// Write the policy to this file: a new one, or one written by `learn`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// End the command after this long (`90s`, `5m`, `2h`)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Print one JSON object with the policy and the observed accesses
    #[arg(long)]
    pub(crate) json: bool,
    /// The agent name to record in the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Run a shell command line instead of a program
    #[arg(
        short = 'c',
        value_name = "STRING",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    line: Option<String>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(arguments: LearnArgs, registry: &ProviderRegistry) -> Result<ExitCode, CliError> {
    // Denials are what `learn` records, so no question may change them during the run.
    let agent = arguments.agent.or_else(agent_from_env);
    let (observe, ask) = (Some(Observe::All), Some(Asking::Never));
    let chosen = RunOverrides {
        timeout: arguments.timeout.as_deref(),
        agent: agent.as_deref(),
        observe,
        ask,
        ..RunOverrides::default()
    };
    let ResolvedArgs { mut request, resolved } = resolve_for_run(&arguments.policy, chosen)?;
    if !resolved.is_confined() {
        return Err(CliError::Usage {
            what: "cannot learn a policy: the current policy confines nothing".into(),
            hint: "omit `--mode full-access` and `--provider`; `ringfence policy show --origin` shows which file or flag turned the sandbox off".into(),
        });
    }
    let output = arguments.output.as_deref().map(PolicyOutput::prepare).transpose()?;
    request.command = command_words(arguments.line, arguments.command);
    let saved_stdout = policy_output::SavedStdout::begin()?;
    let result = run_engine(registry, &request, &resolved, &mut messages::print_notice);
    saved_stdout.end()?;
    let outcome = result?;
    let learned = learn(&request, &resolved, &outcome)?;
    let count = |lessons: &[LearnedRule]| lessons.len();
    messages::print_note(&format!(
        "the command ended with status {}; {} denied, {} proposed, {} not proposed",
        outcome.exit_code(),
        outcome.denials.len(),
        count(&learned.opened),
        count(&learned.left)
    ));
    match &output {
        Some(output) => output.write(&learned.text)?,
        None if !arguments.json => output::print_text(&learned.text)?,
        None => {}
    }
    if arguments.json {
        output::print_json(&as_json(&learned, &request.session, outcome.exit_code()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(learned: &LearnedPolicy, session: &str, status: i32) -> Value {
    let list = |lessons: &[LearnedRule]| {
        lessons
            .iter()
            .map(|lesson| json!({ "what": lesson.what, "why": lesson.why }))
            .collect::<Vec<_>>()
    };
    json!({ "session": session, "exitCode": status, "policy": learned.text, "proposed": list(&learned.opened), "left": list(&learned.left) })
}
