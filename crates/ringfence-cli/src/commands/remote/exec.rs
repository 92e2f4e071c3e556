//! Commands on a service.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use ringfence_api::typed;
use serde_json::{Value, json};

use super::skills::{SkillArgs, list_of, text};
use super::url::{path, query};
use super::wire::{HttpResponse, RequestBody, ServiceClient};
use super::{RemoteError, RemoteOutput, sse};
use crate::commands::resolve_args::duration;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, cell, printable};

/// Run a command in a skill, and show what it writes as it comes
///
/// It runs in a sandbox of its own on the service's machine. Whoever ends this ends the command,
/// unless it is async.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote exec alice helper csv -- python3 convert.py data.csv
  ringfence remote exec alice helper csv --timeout 2m -c 'make && ./check | tail'
  ringfence remote exec alice helper csv --async -c 'make all'

Exit status: the command's own; 124 time limit, 125 if it could not be run.")]
pub(super) struct RemoteExecArgs {
    #[command(flatten)]
    skill: SkillArgs,
    /// End it after this long; never later than five minutes
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Have what is about to be refused wait for somebody's answer (`ringfence remote asks`)
    #[arg(long)]
    ask: bool,
    /// Print its id and do not wait for it
    #[arg(long = "async")]
    is_async: bool,
    /// A line for bash
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
    let words = || arguments.command.iter().map(|word| typed(word)).collect::<Vec<_>>().join(" ");
    let mut command =
        json!({ "command": arguments.line.clone().unwrap_or_else(words), "ask": arguments.ask });
    if let Some(timeout) = &arguments.timeout {
        command["timeoutMs"] = duration(timeout)?.into();
    }
    let path = arguments.skill.path(&["execute"]);
    if arguments.is_async {
        let begun = service.json("POST", &(path + "?async=true"), &RequestBody::Json(&command))?;
        match shown {
            RemoteOutput::AsJson => output::json(&begun)?,
            RemoteOutput::ForPeople => output::text(&format!("{}\n", text(&begun, "id")))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let result = match shown {
        RemoteOutput::AsJson => {
            let result = service.json("POST", &path, &RequestBody::Json(&command))?;
            output::json(&result)?;
            result
        }
        RemoteOutput::ForPeople => {
            let stream =
                service.send("POST", &path, "text/event-stream", &RequestBody::Json(&command))?;
            let result = watched(stream)?;
            tell(&result);
            result
        }
    };
    // A status that no process can have is none of a command's.
    let status =
        result["exitCode"].as_i64().and_then(|status| u8::try_from(status).ok()).unwrap_or(125);
    Ok(ExitCode::from(status))
}

/// Passes on what a command writes, until it has a result.
fn watched(mut stream: HttpResponse) -> Result<Value, CliError> {
    let mut has_said = false;
    while let Some(event) = sse::next(&mut stream)? {
        match event.name.as_str() {
            "stdout" => output::bytes(&sse::bytes(&event.data))?,
            "stderr" => {
                has_said = true;
                // Where nobody reads it there is nobody to be told.
                let _ = std::io::stderr().lock().write_all(&sse::bytes(&event.data));
            }
            "missed" => messages::warning(
                "the command wrote faster than it could be told; some of it is missing here",
            ),
            "error" => return Err(refused(&event.data).into()),
            "result" => {
                // Refused before anything ran: there was nothing to come.
                if !has_said && event.data["refusal"].is_object() {
                    messages::verbatim(
                        event.data["stderr"].as_str().unwrap_or_default().as_bytes(),
                    );
                }
                return Ok(event.data);
            }
            _ => {}
        }
    }
    Err(RemoteError::Broken {
        authority: "the other end".into(),
        source: std::io::ErrorKind::UnexpectedEof.into(),
    }
    .into())
}

fn refused(problem: &Value) -> RemoteError {
    let hint = problem["hint"].as_str().map(printable);
    RemoteError::Refused { code: text(problem, "code"), message: text(problem, "message"), hint }
}

/// What a person should know of a command that has ended.
fn tell(result: &Value) {
    for gap in list_of(result, "gaps").filter(|gap| gap["loss"] == "enforcement") {
        messages::warning(&format!("not enforced: {}: {}", text(gap, "what"), text(gap, "why")));
    }
    if result["blocked"] == true {
        messages::warning(&format!(
            "{} was refused: {}",
            text(result, "blockedResource"),
            text(result, "blockedReason")
        ));
    }
    for moved in list_of(result, "quarantined") {
        messages::warning(&format!(
            "{} was moved to {}: {}",
            text(moved, "path"),
            text(moved, "movedTo"),
            text(moved, "reason")
        ));
    }
    for breach in list_of(result, "breaches") {
        messages::warning(&format!("the limit `{}` ended it", text(breach, "limit")));
    }
    for warning in list_of(result, "warnings").filter_map(Value::as_str) {
        messages::warning(&printable(warning));
    }
}

/// List commands that run, and the last that have ended
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote executions")]
pub(super) struct RemoteExecutionsArgs {
    /// Only this tenant's
    #[arg(value_name = "USER")]
    user: Option<String>,
    /// Only those that wait or run
    #[arg(long)]
    running: bool,
}

pub(super) fn executions(
    service: &ServiceClient,
    arguments: &RemoteExecutionsArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let running = arguments.running.then(|| "true".to_owned());
    let listed = service.get(
        &(path(&["v1", "executions"])
            + &query(&[("userId", arguments.user.clone()), ("running", running)])),
    )?;
    if shown == RemoteOutput::AsJson {
        return output::json(&listed);
    }
    for execution in list_of(&listed, "executions") {
        let whose = format!(
            "{}/{}/{}",
            text(execution, "userId"),
            text(execution, "agentId"),
            text(execution, "skillId")
        );
        let status = execution["result"]["exitCode"]
            .as_i64()
            .map_or(String::new(), |status| format!(" → {status}"));
        let columns = [
            cell(&text(execution, "id"), 24),
            cell(&text(execution, "state"), 8),
            cell(&whose, 32),
        ];
        output::text(&format!("{}  {}{status}\n", columns.join("  "), text(execution, "command")))?;
    }
    Ok(())
}

/// Cancel a command
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote cancel 01a1e457-19da-7474-b701-731d3c2a0d03")]
pub(super) struct RemoteCancelArgs {
    /// Which, as `executions` and `exec --async` tell it
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) fn cancel(
    service: &ServiceClient,
    arguments: &RemoteCancelArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let told = service.json(
        "DELETE",
        &path(&["v1", "executions", &arguments.id]),
        &RequestBody::Nothing,
    )?;
    if shown == RemoteOutput::AsJson { output::json(&told) } else { Ok(()) }
}
