//! `ringfence tool`

use std::io::{self, Read};
use std::process::ExitCode;

use clap::Args;
use ringfence_api::causes;
use ringfence_audit::RecordSubject;
use ringfence_policy::{Origin, Source, Tool, ToolRule};
use ringfence_tools::{FileTools, RoutedCall, ToolError};
use serde_json::{Value, json};

use super::resolve_args::{ResolvedArgs, RunOverrides, agent_from_env, resolve_for_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::{messages, output};

/// Read, write, edit, list or search files as an agent's tool, under the policy
///
/// For agents and hooks that call tools instead of a shell. Runs no program: ringfence performs one
/// call itself, with the same decisions and records as for a command. Input and output are JSON;
/// docs/tools.md describes the keys.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence tool read '{\"path\": \"README.md\", \"limit\": 20}'
  ringfence tool edit '{\"path\": \"main.py\", \"old\": \"1\", \"new\": \"2\"}'
  ringfence tool search '{\"pattern\": \"fn main\", \"glob\": \"*.rs\"}'
  echo '{\"path\": \"notes\", \"content\": \"x\"}' | ringfence tool write

Exit status: 0 done, 1 denied or failed, 125 ringfence failed.")]
pub(crate) struct ToolCommand {
    /// read, write, edit, list or search
    #[arg(value_name = "TOOL")]
    tool: String,
    /// The tool's input, as a JSON object [default: read from standard input]
    #[arg(value_name = "JSON")]
    input: Option<String>,
    /// The agent name to record in the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The session id to record in the audit log
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Deny a tool to this agent; `*` and `?` are wildcards
    #[arg(long, value_name = "TOOL")]
    disallow: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(arguments: ToolCommand) -> Result<ExitCode, CliError> {
    if !Tool::from_name(&arguments.tool).is_some_and(|tool| tool != Tool::Shell) {
        return Err(CliError::Usage {
            what: format!("unknown tool `{}`", arguments.tool),
            hint: "the tools are read, write, edit, list and search; `ringfence run` runs commands"
                .into(),
        });
    }
    let input = input(arguments.input)?;
    let agent = arguments.agent.or_else(agent_from_env);
    let ResolvedArgs { cwd, resolved, .. } = resolve_for_run(
        &arguments.policy,
        RunOverrides { agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let rule = |name: &String| ToolRule {
        name: name.clone(),
        origin: Origin::new(Source::Flag, format!("--disallow {name}")),
    };
    let grants = resolved.grants.without_tools(arguments.disallow.iter().map(rule));
    let session = arguments.session.unwrap_or_else(ringfence_audit::session_id);
    let subject = RecordSubject { agent, session };
    let tools = FileTools::open(grants, subject, cwd, Box::new(messages::warn_unrecorded))?;
    let call = RoutedCall { tool: arguments.tool, input };
    match tools.serve(&call) {
        Some(Ok(done)) => output::print_json(&done).map(|()| ExitCode::SUCCESS),
        Some(Err(ToolError::Audit { source })) => {
            Err(ringfence_engine::EngineError::Audit { source }.into())
        }
        Some(Err(error)) => {
            output::print_json(&json!({ "error": as_json(&error) })).map(|()| ExitCode::FAILURE)
        }
        None => unreachable!("the tool name was checked above"),
    }
}

fn input(given: Option<String>) -> Result<Value, CliError> {
    let text = match given {
        Some(text) => text,
        None => {
            let mut text = String::new();
            let read = io::stdin().lock().read_to_string(&mut text);
            read.map_err(|source| CliError::File {
                what: "read",
                path: "standard input".into(),
                source,
            })?;
            text
        }
    };
    serde_json::from_str(&text).map_err(|error| CliError::Usage {
        what: format!("the input is not JSON: {error}"),
        hint: "pass an object such as '{\"path\": \"README.md\"}'".into(),
    })
}

/// Formats an error as JSON, with the denial, if it is one.
fn as_json(error: &ToolError) -> Value {
    let mut object = json!({ "code": error.code(), "message": error.to_string(), "causes": causes(error), "hint": error.hint() });
    if let Some(denial) = error.denial() {
        object["denial"] = json!(denial);
    }
    object
}
