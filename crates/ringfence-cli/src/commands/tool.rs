//! `ringfence tool`

use std::io::{self, Read};
use std::process::ExitCode;

use clap::Args;
use ringfence_api::causes;
use ringfence_audit::RecordSubject;
use ringfence_policy::{Origin, Source, Tool, ToolRule};
use ringfence_tools::{FileTools, RoutedCall, ToolError};
use serde_json::{Value, json};

use super::resolve_args::{ResolvedArgs, RunOverrides, agent, meant_to_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::{messages, output};

/// Read, write, edit, list or search files as an agent's tool, under the policy
///
/// For agents and their hooks that call tools rather than a shell. Nothing is run: ringfence does
/// it itself, for one call, with the decisions and records that a command would have. Input and
/// output are JSON; docs/tools.md has the keys.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence tool read '{\"path\": \"README.md\", \"limit\": 20}'
  ringfence tool edit '{\"path\": \"main.py\", \"old\": \"1\", \"new\": \"2\"}'
  ringfence tool search '{\"pattern\": \"fn main\", \"glob\": \"*.rs\"}'
  echo '{\"path\": \"notes\", \"content\": \"x\"}' | ringfence tool write

Exit status: 0 done, 1 refused or failed, 125 ringfence failed.")]
pub(crate) struct ToolCommand {
    /// read, write, edit, list or search
    #[arg(value_name = "TOOL")]
    tool: String,
    /// What it is to work on, as a JSON object [default: what comes from standard input]
    #[arg(value_name = "JSON")]
    input: Option<String>,
    /// On whose behalf, for the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The name of the session that the call belongs to, for the audit log
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Take a tool away from this agent; `*` and `?` stand for any characters
    #[arg(long, value_name = "TOOL")]
    disallow: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(arguments: ToolCommand) -> Result<ExitCode, CliError> {
    if !Tool::of(&arguments.tool).is_some_and(|tool| tool != Tool::Shell) {
        return Err(CliError::Words {
            what: format!("there is no tool `{}`", arguments.tool),
            hint: "the tools are read, write, edit, list and search; `ringfence run` runs commands"
                .into(),
        });
    }
    let input = input(arguments.input)?;
    let agent = arguments.agent.or_else(agent);
    let ResolvedArgs { cwd, resolved, .. } = meant_to_run(
        &arguments.policy,
        RunOverrides { agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let rule = |name: &String| ToolRule {
        name: name.clone(),
        origin: Origin::new(Source::Flag, format!("--disallow {name}")),
    };
    let grants = resolved.grants.without_tools(arguments.disallow.iter().map(rule));
    let session = arguments.session.unwrap_or_else(ringfence_audit::session_id);
    let who = RecordSubject { agent, session };
    let tools = FileTools::open(grants, who, cwd, Box::new(messages::unrecorded))
        .map_err(ringfence_engine::EngineError::from)?;
    let call = RoutedCall { tool: arguments.tool, input };
    match tools.serve(&call) {
        Some(Ok(done)) => output::json(&done).map(|()| ExitCode::SUCCESS),
        Some(Err(ToolError::Audit { source })) => {
            Err(ringfence_engine::EngineError::Audit { source }.into())
        }
        Some(Err(error)) => {
            output::json(&json!({ "error": told(&error) })).map(|()| ExitCode::FAILURE)
        }
        None => unreachable!("it was looked at before"),
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
    serde_json::from_str(&text).map_err(|error| CliError::Words {
        what: format!("the input is no JSON: {error}"),
        hint: "write an object such as '{\"path\": \"README.md\"}'".into(),
    })
}

/// An error for programs; a refusal with all that is known of it.
fn told(error: &ToolError) -> Value {
    let mut told = json!({ "code": error.code(), "message": error.to_string(), "causes": causes(error), "hint": error.hint() });
    if let Some(denial) = error.denial() {
        told["denial"] = json!(denial);
    }
    told
}
