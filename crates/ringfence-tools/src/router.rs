//! Routes a call by the tool's name.

use std::error::Error;
use std::sync::Arc;

use ringfence_policy::Tool;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ToolError;
use crate::{EditParams, FileTools, ListParams, ReadParams, SearchParams, WriteParams};

/// A tool call of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutedCall {
    /// The tool's name.
    pub tool: String,
    /// The parameters.
    #[serde(default)]
    pub input: Value,
}

/// Handles calls of other tools than the five: an extension, or the session.
pub trait ToolHandler: Send + Sync {
    /// Handles a call. Calls come from any thread, several at once.
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>>;
}

/// Routes calls by the tool's name.
///
/// | name | goes to |
/// |---|---|
/// | `read`, `write`, `edit`, `list`, `search` and aliases ([`Tool::names`]) | [`FileTools`] |
/// | a registered prefix, alone or before `__`, `:`, `/`, `.` | the extension (longest prefix) |
/// | `mcp` and `skill` in the same way, without a registered extension | an error |
/// | anything else | the session |
///
/// Names are case-insensitive. A tool that the policy removes is refused before it is routed.
/// Without a shell tool, no call goes to the session.
pub struct ToolRouter {
    /// `None` if this process cannot access the sandbox's files.
    tools: Option<Arc<FileTools>>,
    extensions: Vec<(String, Arc<dyn ToolHandler>)>,
    session: Arc<dyn ToolHandler>,
}

/// Prefixes of extensions, registered or not: such a call never goes to a shell.
const RESERVED: [&str; 2] = ["mcp", "skill"];

/// Separators after a prefix.
const SEPARATORS: [&str; 4] = ["__", ":", "/", "."];

impl FileTools {
    /// Handles a call of one of the five, by any of its names; `None` for other tools.
    pub fn serve(&self, call: &RoutedCall) -> Option<Result<Value, ToolError>> {
        Some(match Tool::from_name(&call.tool)? {
            Tool::Read => {
                parse_params::<ReadParams>(call).and_then(|params| to_json(self.read(&params)))
            }
            Tool::Write => {
                parse_params::<WriteParams>(call).and_then(|params| to_json(self.write(&params)))
            }
            Tool::Edit => {
                parse_params::<EditParams>(call).and_then(|params| to_json(self.edit(&params)))
            }
            Tool::List => {
                parse_params::<ListParams>(call).and_then(|params| to_json(self.list(&params)))
            }
            Tool::Search => {
                parse_params::<SearchParams>(call).and_then(|params| to_json(self.search(&params)))
            }
            Tool::Shell => return None,
        })
    }
}

impl ToolRouter {
    /// A router without extensions.
    pub fn new(tools: Arc<FileTools>, session: Arc<dyn ToolHandler>) -> ToolRouter {
        ToolRouter { tools: Some(tools), extensions: Vec::new(), session }
    }

    /// A router for a sandbox whose files this process cannot access: commands and extensions work,
    /// and the five tools return an error. Commands do not replace them: they could not guarantee
    /// that links are not followed, edits are atomic, and calls are recorded.
    pub fn without_tools(session: Arc<dyn ToolHandler>) -> ToolRouter {
        ToolRouter { tools: None, extensions: Vec::new(), session }
    }

    /// Registers an extension for all tools with a prefix, such as `mcp` or `mcp__github`.
    pub fn register(
        &mut self,
        prefix: &str,
        extension: Arc<dyn ToolHandler>,
    ) -> Result<(), ToolError> {
        let refuse = |why: &str| {
            Err(ToolError::Input {
                what: format!("`{prefix}` cannot be an extension's prefix: {why}"),
            })
        };
        if prefix.is_empty()
            || !prefix.chars().all(|c| c.is_ascii_alphanumeric() || "_-:/.".contains(c))
        {
            return refuse("it is not a valid name");
        }
        if let Some(tool) = Tool::from_name(prefix) {
            return refuse(&format!("it is a name of the tool `{}`", tool.word()));
        }
        if self.extensions.iter().any(|(known, _)| known.eq_ignore_ascii_case(prefix)) {
            return refuse("it is already registered");
        }
        self.extensions.push((prefix.to_owned(), extension));
        Ok(())
    }

    /// Handles a call, or routes it.
    pub fn call(&self, call: &RoutedCall) -> Result<Value, ToolError> {
        match &self.tools {
            Some(tools) => tools.serve(call).unwrap_or_else(|| self.route(call)),
            None if Tool::from_name(&call.tool).is_some_and(|tool| tool != Tool::Shell) => {
                Err(ToolError::Elsewhere { tool: call.tool.clone() })
            }
            None => self.route(call),
        }
    }

    fn must_be_allowed(&self, tool: &str) -> Result<(), ToolError> {
        self.tools.as_ref().map_or(Ok(()), |tools| tools.check_tool_allowed(tool))
    }

    fn route(&self, call: &RoutedCall) -> Result<Value, ToolError> {
        self.must_be_allowed(&call.tool)?;
        let handler = match self.extension(&call.tool)? {
            Some(extension) => extension,
            // Under any other name, it runs as a command.
            None => {
                self.must_be_allowed(Tool::Shell.word())?;
                self.session.as_ref()
            }
        };
        self.tools.as_ref().map_or(Ok(()), |tools| tools.journal.record_routed(&call.tool))?;
        handler
            .handle(call)
            .map_err(|source| ToolError::Handler { tool: call.tool.clone(), source })
    }

    /// The extension for a tool; `None` if the call goes to the session.
    fn extension(&self, tool: &str) -> Result<Option<&dyn ToolHandler>, ToolError> {
        let served = self
            .extensions
            .iter()
            .filter(|(prefix, _)| has_prefix(tool, prefix))
            .max_by_key(|(prefix, _)| prefix.len());
        match served {
            Some((_, extension)) => Ok(Some(extension.as_ref())),
            None if RESERVED.iter().any(|prefix| has_prefix(tool, prefix)) => {
                Err(ToolError::NoExtension { tool: tool.to_owned() })
            }
            None => Ok(None),
        }
    }
}

fn has_prefix(tool: &str, prefix: &str) -> bool {
    let is_start = tool.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    is_start
        && (tool.len() == prefix.len()
            || SEPARATORS.iter().any(|separator| tool[prefix.len()..].starts_with(separator)))
}

fn parse_params<T: DeserializeOwned>(call: &RoutedCall) -> Result<T, ToolError> {
    serde_json::from_value(call.input.clone()).map_err(|error| ToolError::Input {
        what: format!("invalid parameters for `{}`: {error}", call.tool),
    })
}

fn to_json<T: Serialize>(result: Result<T, ToolError>) -> Result<Value, ToolError> {
    result.and_then(|value| {
        serde_json::to_value(value).map_err(|error| ToolError::Input {
            what: format!("cannot serialize the result: {error}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::has_prefix;

    #[test]
    fn prefix_matches_only_before_a_separator() {
        for tool in ["mcp", "mcp__github__merge", "mcp:github", "MCP__x", "mcp/x", "mcp.x"] {
            assert!(has_prefix(tool, "mcp"), "{tool}");
        }
        for tool in ["mcpx", "mcp_x", "mc", "xmcp__y", "mcp-x", "мcp"] {
            assert!(!has_prefix(tool, "mcp"), "{tool}");
        }
        assert!(has_prefix("mcp__github__merge", "mcp__github"));
        assert!(!has_prefix("mcp__githubs", "mcp__github"));
    }
}
