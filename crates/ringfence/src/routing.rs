//! A sandbox as the session that a router hands calls on to.

use std::error::Error;
use std::sync::Arc;

use ringfence_tools::{RoutedCall, ToolHandler, ToolRouter};
use serde::Deserialize;
use serde_json::Value;

use crate::{Command, SandboxBackend, SandboxError};

/// Serves calls with a command to run, in a sandbox's shell: `{"command": …, "timeoutMs": …}`.
struct CommandHandler(Arc<dyn SandboxBackend>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommandInput {
    command: String,
    #[serde(default, alias = "timeout_ms", alias = "timeout")]
    timeout_ms: Option<u64>,
}

impl ToolHandler for CommandHandler {
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_value(self.0.execute_blocking(command(call)?)?)?)
    }
}

/// The command that a call is about.
pub(crate) fn command(call: &RoutedCall) -> Result<Command, serde_json::Error> {
    let CommandInput { command, timeout_ms } = CommandInput::deserialize(&call.input)?;
    let command = Command::new(command);
    Ok(match timeout_ms {
        Some(limit) => command.timeout_ms(limit),
        None => command,
    })
}

/// A router for one agent: the five tools under the policy of `sandbox`, and whatever is no tool
/// of theirs and no extension's is run in its shell.
///
/// A sandbox of another provider may have no such tools, because its files are elsewhere: then
/// commands and extensions are served, and a call of one of the five is an error that says so.
///
/// Extensions are added with [`Router::register`]. It ends with the sandbox: make another for
/// another one.
pub fn router(sandbox: Arc<dyn SandboxBackend>) -> Result<ToolRouter, SandboxError> {
    routed(sandbox.as_ref(), Arc::new(CommandHandler(sandbox.clone())))
}

/// A router with the tools that `sandbox` has, and `session` for the rest.
pub(crate) fn routed(
    sandbox: &dyn SandboxBackend,
    session: Arc<dyn ToolHandler>,
) -> Result<ToolRouter, SandboxError> {
    match sandbox.tools() {
        Ok(tools) => Ok(ToolRouter::new(Arc::new(tools), session)),
        Err(SandboxError::NotOffered { .. }) => Ok(ToolRouter::without_tools(session)),
        Err(error) => Err(error),
    }
}
