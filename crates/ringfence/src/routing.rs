//! A tool router that runs commands in a sandbox.

use std::error::Error;
use std::sync::Arc;

use ringfence_tools::{RoutedCall, ToolHandler, ToolRouter};
use serde::Deserialize;
use serde_json::Value;

use crate::{Command, SandboxBackend, SandboxError};

/// Runs the `command` of a call in a sandbox's shell: `{"command": …, "timeoutMs": …}`.
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
        Ok(serde_json::to_value(self.0.execute_blocking(parse_command(call)?)?)?)
    }
}

/// The command in a call.
pub(crate) fn parse_command(call: &RoutedCall) -> Result<Command, serde_json::Error> {
    let CommandInput { command, timeout_ms } = CommandInput::deserialize(&call.input)?;
    let command = Command::new(command);
    Ok(match timeout_ms {
        Some(limit) => command.timeout_ms(limit),
        None => command,
    })
}

/// A router for one agent: the five file tools run under the policy of `sandbox`; calls of neither
/// a file tool nor an extension run in its shell.
///
/// A sandbox of another provider may lack the file tools, because its files are on another machine:
/// then only commands and extensions are served, and a call of a file tool is an error.
///
/// Add extensions with [`ToolRouter::register`](crate::tools::ToolRouter::register). The router
/// ends with the sandbox.
pub fn router(sandbox: Arc<dyn SandboxBackend>) -> Result<ToolRouter, SandboxError> {
    build_router(sandbox.as_ref(), Arc::new(CommandHandler(sandbox.clone())))
}

/// A router with the tools of `sandbox`, and `session` for the rest.
pub(crate) fn build_router(
    sandbox: &dyn SandboxBackend,
    session: Arc<dyn ToolHandler>,
) -> Result<ToolRouter, SandboxError> {
    match sandbox.tools() {
        Ok(tools) => Ok(ToolRouter::new(Arc::new(tools), session)),
        Err(SandboxError::NotOffered { .. }) => Ok(ToolRouter::without_tools(session)),
        Err(error) => Err(error),
    }
}
