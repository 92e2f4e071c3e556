//! `ringfence learn`

mod policy_output;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ringfence_api::StdioMode;
use ringfence_engine::{LearnedPolicy, LearnedRule, learn, run as run_engine};
use ringfence_local::LocalProvider;
use ringfence_policy::{Asking, Observe};
use serde_json::{Value, json};

use super::resolve_args::{RunOverrides, TypedCommand, agent, meant_to_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::{messages, output};
use policy_output::PolicyOutput;

/// Run a command and propose the smallest policy it can work with
///
/// The command is confined as `run` confines it, and what it opens and is refused is observed.
/// The policy that is printed then opens what was refused, file by file, or directory by
/// directory where several files of one are wanted; behind each line stands who wanted it, how
/// often, and what refused it. Never proposed is what a rule denies or protects, the system, the
/// home directory as a whole and other projects: such wishes stand in comments at the end. What
/// the command prints goes to standard error. A command that gets further may want more: go on
/// with `--policy FILE --output FILE` until nothing is added.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence learn -- npm test
  ringfence learn --output learned.toml -- make
  ringfence learn --policy learned.toml --output learned.toml -- make
  ringfence run --policy learned.toml -- make

Exit status: 0, whatever the command's own; 125 ringfence failed, 126 not executable, 127 not found.")]
pub(crate) struct LearnArgs {
    /// Write the policy to this file: a new one, or one that `learn` wrote
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// End the command after this long (`90s`, `5m`, `2h`)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Print one JSON object with the policy and what was learnt
    #[arg(long)]
    pub(crate) json: bool,
    /// On whose behalf, for the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Run a line of shell instead of a program
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

pub(crate) fn run(arguments: LearnArgs, local: &LocalProvider) -> Result<ExitCode, CliError> {
    // Whoever learns wants to know what is refused, and nobody is asked to change it meanwhile.
    let agent = arguments.agent.or_else(agent);
    let (observe, ask) = (Some(Observe::All), Some(Asking::Never));
    let chosen = RunOverrides {
        timeout: arguments.timeout.as_deref(),
        agent: agent.as_deref(),
        observe,
        ask,
        ..RunOverrides::default()
    };
    let meant = meant_to_run(&arguments.policy, chosen)?;
    if !meant.resolved.grants.is_confined() {
        return Err(CliError::Words {
            what: "the policy is to confine nothing, so nothing can be learnt".into(),
            hint: "leave out `--mode full-access`; `ringfence policy show --origin` says who switched confinement off".into(),
        });
    }
    let output = arguments.output.as_deref().map(PolicyOutput::prepare).transpose()?;
    let typed = TypedCommand { line: arguments.line, command: arguments.command, agent };
    let (asked, resolved) = meant.asked(typed, StdioMode::Inherit);
    let aside = policy_output::SavedStdout::begin()?;
    let ran = run_engine(local, &asked, &resolved, &mut messages::unrecorded);
    aside.end()?;
    let outcome = ran?;
    let learned = learn(&asked, &resolved, &outcome)?;
    let count = |lessons: &[LearnedRule]| lessons.len();
    messages::note(&format!(
        "the command ended with status {}; {} refused, {} proposed, {} left",
        outcome.exit_code(),
        outcome.denials.len(),
        count(&learned.opened),
        count(&learned.left)
    ));
    match &output {
        Some(output) => output.write(&learned.text)?,
        None if !arguments.json => output::text(&learned.text)?,
        None => {}
    }
    if arguments.json {
        output::json(&as_json(&learned, &asked.session, outcome.exit_code()))?;
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
