//! What a call asks for, and how it is carried out.

use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{OutputStream, ShellCommand};
use ringfence_engine::EngineError;
use ringfence_engine::session::{SessionOutcome, StartDecision};
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

/// Bytes of each stream that are captured, the beginning and the end; answers show fewer.
const KEPT: usize = 1 << 20;

/// What a call asks for.
pub(crate) enum ToolRequest {
    Shell(ShellParams),
    Exec(ExecParams),
    File(RoutedCall),
    Permission(PermissionParams),
}

impl ToolRequest {
    /// What is meant, or what is wrong with it.
    pub(crate) fn read(name: &str, arguments: Option<JsonObject>) -> Result<Self, ErrorData> {
        let input = Value::Object(arguments.unwrap_or_default());
        Ok(match name {
            "shell" => ToolRequest::Shell(given(name, input)?),
            "exec" => {
                let exec: ExecParams = given(name, input)?;
                if exec.command.is_empty() {
                    return Err(ErrorData::invalid_params(
                        "`exec`: `command` names no program",
                        None,
                    ));
                }
                ToolRequest::Exec(exec)
            }
            "request_permission" => ToolRequest::Permission(given(name, input)?),
            name if Tool::of(name).is_some_and(|tool| tool != Tool::Shell) => {
                ToolRequest::File(RoutedCall { tool: name.to_owned(), input })
            }
            name => {
                return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None));
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

    /// Does it, on a thread that may wait.
    pub(crate) fn carry_out(
        self,
        room: &ClientSandbox,
        watched: &Arc<CallState>,
        asks: Option<UnboundedSender<ClientQuestion>>,
    ) -> Result<CallToolResult, ToolFailure> {
        room.tools.must_be_allowed(self.name())?;
        match self {
            ToolRequest::Shell(shell) => {
                let executed = shell.run(room, watched)?;
                Ok(ran(room, executed))
            }
            ToolRequest::Exec(exec) => {
                let executed = exec.run(room, watched)?;
                Ok(ran(room, executed))
            }
            ToolRequest::File(mut call) => match room.tools.serve(bounded(&mut call)) {
                Some(served) => Ok(reply::done(served?)),
                None => Err(ToolFailure::new(
                    "input",
                    format!("there is no tool `{}`", call.tool),
                    None,
                )),
            },
            ToolRequest::Permission(wanted) => permission::request(room, &wanted, asks),
        }
    }
}

/// A file is shown in as many bytes as an answer of a command, unless the caller says how many.
fn bounded(call: &mut RoutedCall) -> &RoutedCall {
    let is_read = Tool::of(&call.tool) == Some(Tool::Read);
    if let Some(input) = call.input.as_object_mut().filter(|_| is_read)
        && !["byteLimit", "byte_limit"].iter().any(|name| input.contains_key(*name))
    {
        input.insert("byteLimit".into(), SHOWN.into());
    }
    call
}

fn given<T: DeserializeOwned>(name: &str, input: Value) -> Result<T, ErrorData> {
    serde_json::from_value(input)
        .map_err(|error| ErrorData::invalid_params(format!("`{name}`: {error}"), None))
}

fn ran(room: &ClientSandbox, executed: SessionOutcome) -> CallToolResult {
    let permission = room.opened.permission(&executed.outcome);
    reply::ran(executed, permission, &room.outputs)
}

/// As the caller says, and the policy.
fn deadline(room: &ClientSandbox, asked: Option<u64>) -> Option<Duration> {
    let wall = room.opened.policy().grants.limits.wall_ms;
    [asked, wall].into_iter().flatten().min().map(Duration::from_millis)
}

impl ShellParams {
    fn run(
        self,
        room: &ClientSandbox,
        watched: &Arc<CallState>,
    ) -> Result<SessionOutcome, EngineError> {
        let line = ShellCommand {
            deadline: deadline(room, self.timeout_ms),
            limit: KEPT,
            ..ShellCommand::new(self.command)
        };
        let mut begun = |reach| {
            room.takes_turn(watched);
            watched.begin(reach)
        };
        let mut sink = |_: OutputStream, bytes: &[u8]| watched.wrote(bytes);
        let executed = room.opened.execute(&line, &mut begun, &mut sink, &mut |_| ());
        watched.end();
        executed
    }
}

impl ExecParams {
    fn run(
        self,
        room: &ClientSandbox,
        watched: &Arc<CallState>,
    ) -> Result<SessionOutcome, EngineError> {
        let command = self.command.into_iter().map(Into::into).collect();
        let streams = ProcessStdio::Pipes {
            input: self.input.unwrap_or_default().into_bytes().into(),
            limit: KEPT,
        };
        let beside =
            room.opened.start(command, streams, deadline(room, self.timeout_ms), &mut |_| ())?;
        if watched.begin(beside.reach()) == StartDecision::Left {
            beside.reach().interrupter.interrupt();
        }
        let mut sink = |_: OutputStream, bytes: &[u8]| watched.wrote(bytes);
        let executed = beside.wait(&mut sink, &mut |_| ());
        watched.end();
        executed
    }
}
