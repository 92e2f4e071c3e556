//! A tool call's parsed request, and its execution.

use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{ExecuteResult, Outcome, OutputStream, ShellCommand};
use ringfence_engine::session::StartDecision;
use ringfence_engine::{EngineError, NoticeFn};
use ringfence_policy::Tool;
use ringfence_provider::ProcessStdio;
use ringfence_tools::RoutedCall;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, JsonObject};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use crate::call::CallState;
use crate::outputs::SHOWN;
use crate::questions::ClientQuestion;
use crate::sandbox::ClientSandbox;
use crate::schema::{ExecParams, PermissionParams, ShellParams, ToolFailure};
use crate::{permission, reply};

/// Bytes captured of each stream, from its beginning and its end; answers show fewer.
const CAPTURED: usize = 1 << 20;

/// A parsed tool call.
pub(crate) enum ToolRequest {
    Shell(ShellParams),
    Exec(ExecParams),
    File(RoutedCall),
    Permission(PermissionParams),
}

impl ToolRequest {
    /// Parses a call.
    pub(crate) fn parse(name: &str, arguments: Option<JsonObject>) -> Result<Self, ErrorData> {
        let input = Value::Object(arguments.unwrap_or_default());
        Ok(match name {
            "shell" => ToolRequest::Shell(parse_params(name, input)?),
            "exec" => {
                let exec: ExecParams = parse_params(name, input)?;
                if exec.command.is_empty() {
                    return Err(ErrorData::invalid_params("`exec`: `command` is empty", None));
                }
                ToolRequest::Exec(exec)
            }
            "request_permission" => ToolRequest::Permission(parse_params(name, input)?),
            name if Tool::from_name(name).is_some_and(|tool| tool != Tool::Shell) => {
                ToolRequest::File(RoutedCall { tool: name.to_owned(), input })
            }
            name => {
                return Err(ErrorData::invalid_params(format!("no such tool: `{name}`"), None));
            }
        })
    }

    fn name(&self) -> &str {
        match self {
            ToolRequest::Shell(_) => "shell",
            ToolRequest::Exec(_) => "exec",
            ToolRequest::File(call) => &call.tool,
            ToolRequest::Permission(_) => "request_permission",
        }
    }

    /// Executes the request on a thread that may block.
    pub(crate) fn execute(
        self,
        sandbox: &ClientSandbox,
        call_state: &Arc<CallState>,
        asks: Option<UnboundedSender<ClientQuestion>>,
    ) -> Result<CallToolResult, ToolFailure> {
        sandbox.tools.check_tool_allowed(self.name())?;
        match self {
            ToolRequest::Shell(shell) => {
                Ok(to_result(sandbox, |warn| shell.run(sandbox, call_state, warn))?)
            }
            ToolRequest::Exec(exec) => {
                Ok(to_result(sandbox, |warn| exec.run(sandbox, call_state, warn))?)
            }
            ToolRequest::File(mut call) => match sandbox.tools.serve(limit_bytes(&mut call)) {
                Some(served) => Ok(reply::tool_result(served?)),
                None => {
                    Err(ToolFailure::new("input", format!("no such tool: `{}`", call.tool), None))
                }
            },
            ToolRequest::Permission(wanted) => permission::request(sandbox, &wanted, asks),
        }
    }
}

/// Limits a file to as many bytes as command output, unless the caller sets a limit.
fn limit_bytes(call: &mut RoutedCall) -> &RoutedCall {
    let is_read = Tool::from_name(&call.tool) == Some(Tool::Read);
    if let Some(input) = call.input.as_object_mut().filter(|_| is_read)
        && !["byteLimit", "byte_limit"].iter().any(|name| input.contains_key(*name))
    {
        input.insert("byteLimit".into(), SHOWN.into());
    }
    call
}

fn parse_params<T: DeserializeOwned>(name: &str, input: Value) -> Result<T, ErrorData> {
    serde_json::from_value(input)
        .map_err(|error| ErrorData::invalid_params(format!("`{name}`: {error}"), None))
}

fn to_result(
    sandbox: &ClientSandbox,
    run: impl FnOnce(&mut NoticeFn<'_>) -> Result<Outcome, EngineError>,
) -> Result<CallToolResult, EngineError> {
    let mut warnings = Vec::new();
    let outcome = run(&mut |notice| warnings.push(notice.to_string()))?;
    warnings.extend(outcome.policy.warnings());
    let permission = sandbox.session.permission(&outcome);
    let result = ExecuteResult { permission, warnings, ..outcome.into() };
    Ok(reply::command_result(result, &sandbox.outputs))
}

/// The shorter of the caller's and the policy's time limit.
fn deadline(sandbox: &ClientSandbox, requested: Option<u64>) -> Option<Duration> {
    let wall = sandbox.session.policy().grants.limits.wall_ms;
    [requested, wall].into_iter().flatten().min().map(Duration::from_millis)
}

impl ShellParams {
    fn run(
        self,
        sandbox: &ClientSandbox,
        call_state: &Arc<CallState>,
        warn: &mut NoticeFn<'_>,
    ) -> Result<Outcome, EngineError> {
        let line = ShellCommand {
            deadline: deadline(sandbox, self.timeout_ms),
            limit: CAPTURED,
            ..ShellCommand::new(self.command)
        };
        let mut on_start = |reach| {
            sandbox.give_shell_to(call_state);
            call_state.begin(reach)
        };
        let mut sink = |_: OutputStream, bytes: &[u8]| call_state.record_output(bytes);
        let outcome = sandbox.session.execute(&line, &mut on_start, &mut sink, warn);
        call_state.end();
        outcome
    }
}

impl ExecParams {
    fn run(
        self,
        sandbox: &ClientSandbox,
        call_state: &Arc<CallState>,
        warn: &mut NoticeFn<'_>,
    ) -> Result<Outcome, EngineError> {
        let command = self.command.into_iter().map(Into::into).collect();
        let streams = ProcessStdio::Pipes {
            input: self.input.unwrap_or_default().into_bytes().into(),
            limit: CAPTURED,
        };
        let deadline = deadline(sandbox, self.timeout_ms);
        let process = sandbox.session.start(command, streams, deadline)?;
        if call_state.begin(process.control()) == StartDecision::Left {
            process.control().interrupter.interrupt();
        }
        let mut sink = |_: OutputStream, bytes: &[u8]| call_state.record_output(bytes);
        let outcome = process.wait(&mut sink, warn);
        call_state.end();
        outcome
    }
}
