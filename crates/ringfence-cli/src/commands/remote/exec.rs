//! Commands on a server.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use ringfence_api::{OutputStream, shell_word};
use ringfence_client::{CommandEvents, RemoteEvent, ServiceClient};
use serde_json::{Value, json};

use super::RemoteOutput;
use super::skills::{SkillArgs, array_field, text_field};
use crate::commands::resolve_args::parse_duration_ms;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, fit_cell, printable};

/// Run a command in a skill, and stream its output
///
/// The command runs in its own sandbox on the server. Interrupting this client ends the command,
/// unless `--async` is set.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote exec alice helper csv -- python3 convert.py data.csv
  ringfence remote exec alice helper csv --timeout 2m -c 'make && ./check | tail'
  ringfence remote exec alice helper csv --async -c 'make all'

Exit status: the command's own; 124 time limit, 125 if the command could not be run.")]
pub(super) struct RemoteExecArgs {
    #[command(flatten)]
    skill: SkillArgs,
    /// End the command after this long, at most five minutes
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Ask before an access is denied; the command waits for the answer (`ringfence remote asks`)
    #[arg(long)]
    ask: bool,
    /// Print the command's id and do not wait
    #[arg(long = "async")]
    is_async: bool,
    /// A bash command line
    #[arg(
        short = 'c',
        value_name = "STRING",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    line: Option<String>,
    /// A program and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

pub(super) fn exec(
    service: &ServiceClient,
    arguments: &RemoteExecArgs,
    shown: RemoteOutput,
) -> Result<ExitCode, CliError> {
    let words =
        || arguments.command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    let mut command =
        json!({ "command": arguments.line.clone().unwrap_or_else(words), "ask": arguments.ask });
    if let Some(timeout) = &arguments.timeout {
        command["timeoutMs"] = parse_duration_ms(timeout)?.into();
    }
    let path = arguments.skill.path(&["execute"]);
    let run = |query| service.json("POST", &path, query, Some(&command));
    if arguments.is_async {
        let begun = run(&[("async", Some("true".into()))])?;
        match shown {
            RemoteOutput::AsJson => output::print_json(&begun)?,
            RemoteOutput::ForPeople => {
                output::print_text(&format!("{}\n", text_field(&begun, "id")))?
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let result = match shown {
        RemoteOutput::AsJson => {
            let result = run(&[])?;
            output::print_json(&result)?;
            result
        }
        RemoteOutput::ForPeople => {
            let result = forward_output(service.run(&path, &command)?)?;
            print_warnings(&result);
            result
        }
    };
    // A number outside the range of exit statuses is not a command's status.
    let status =
        result["exitCode"].as_i64().and_then(|status| u8::try_from(status).ok()).unwrap_or(125);
    Ok(ExitCode::from(status))
}

/// Forwards the command's output until its result arrives.
fn forward_output(mut events: CommandEvents) -> Result<Value, CliError> {
    let mut has_stderr = false;
    loop {
        match events.next_event()? {
            RemoteEvent::Output { stream: OutputStream::Out, data } => output::print_bytes(&data)?,
            RemoteEvent::Output { stream: OutputStream::Err, data } => {
                has_stderr = true;
                // A closed standard error is not an error.
                let _ = std::io::stderr().lock().write_all(&data);
            }
            RemoteEvent::Missed => messages::print_warning(
                "part of the output is missing: the command wrote faster than the server could send",
            ),
            RemoteEvent::Result(result) => {
                // A refused command has no output events; the result holds the reason.
                if !has_stderr && result["refusal"].is_object() {
                    messages::print_bytes(result["stderr"].as_str().unwrap_or_default().as_bytes());
                }
                return Ok(result);
            }
        }
    }
}

/// Prints warnings about a command that has ended.
fn print_warnings(result: &Value) {
    for gap in array_field(result, "gaps").filter(|gap| gap["loss"] == "enforcement") {
        messages::print_warning(&format!(
            "not enforced: {}: {}",
            text_field(gap, "what"),
            text_field(gap, "why")
        ));
    }
    if result["blocked"] == true {
        messages::print_warning(&format!(
            "{} was denied: {}",
            text_field(result, "blockedResource"),
            text_field(result, "blockedReason")
        ));
    }
    for moved in array_field(result, "quarantined") {
        messages::print_warning(&format!(
            "{} was moved to {}: {}",
            text_field(moved, "path"),
            text_field(moved, "movedTo"),
            text_field(moved, "reason")
        ));
    }
    for breach in array_field(result, "breaches") {
        messages::print_warning(&format!("ended by the limit `{}`", text_field(breach, "limit")));
    }
    for warning in array_field(result, "warnings").filter_map(Value::as_str) {
        messages::print_warning(&printable(warning));
    }
}

/// List the running commands, and the last that have ended
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote executions")]
pub(super) struct RemoteExecutionsArgs {
    /// Only commands of this tenant
    #[arg(value_name = "USER")]
    user: Option<String>,
    /// Only queued and running commands
    #[arg(long)]
    running: bool,
}

pub(super) fn executions(
    service: &ServiceClient,
    arguments: &RemoteExecutionsArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let running = arguments.running.then(|| "true".to_owned());
    let query = [("userId", arguments.user.clone()), ("running", running)];
    let listed = service.get(&["v1", "executions"], &query)?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&listed);
    }
    for execution in array_field(&listed, "executions") {
        let skill = format!(
            "{}/{}/{}",
            text_field(execution, "userId"),
            text_field(execution, "agentId"),
            text_field(execution, "skillId")
        );
        let status = execution["result"]["exitCode"]
            .as_i64()
            .map_or(String::new(), |status| format!(" → {status}"));
        let columns = [
            fit_cell(&text_field(execution, "id"), 24),
            fit_cell(&text_field(execution, "state"), 8),
            fit_cell(&skill, 32),
        ];
        output::print_text(&format!(
            "{}  {}{status}\n",
            columns.join("  "),
            text_field(execution, "command")
        ))?;
    }
    Ok(())
}

/// Cancel a command
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote cancel 01a1e457-19da-7474-b701-731d3c2a0d03")]
pub(super) struct RemoteCancelArgs {
    /// The id, as printed by `executions` and `exec --async`
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) fn cancel(
    service: &ServiceClient,
    arguments: &RemoteCancelArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let response = service.json("DELETE", &["v1", "executions", &arguments.id], &[], None)?;
    if shown == RemoteOutput::AsJson { output::print_json(&response) } else { Ok(()) }
}
