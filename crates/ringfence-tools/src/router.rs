//! From a tool's name to whoever serves it.

use std::error::Error;
use std::sync::Arc;

use ringfence_policy::Tool;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ToolError;
use crate::{EditParams, FileTools, ListParams, ReadParams, SearchParams, WriteParams};

/// A call of a tool, as agents make it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutedCall {
    /// The tool's name.
    pub tool: String,
    /// What it is to work on.
    #[serde(default)]
    pub input: Value,
}

/// Whoever serves calls that are not for the five tools: an extension, or the session.
pub trait ToolHandler: Send + Sync {
    /// Serves a call. Calls come from any thread, several at once.
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>>;
}

/// Hands calls on by the tool's name.
///
/// | name | goes to |
/// |---|---|
/// | `read`, `write`, `edit`, `list`, `search`, and what agents call them ([`Tool::names`]) | [`Tools`] |
/// | a registered prefix, alone or followed by `__`, `:`, `/` or `.` | that extension; the longest prefix wins |
/// | `mcp` and `skill` in the same way, where nobody is registered | nobody: it is an error |
/// | anything else | the session |
///
/// Names are the same in upper and lower case. A tool that the policy takes away is refused
/// before it goes anywhere, whoever would have served it. Without a shell, nothing goes to the
/// session.
pub struct ToolRouter {
    /// `None` where the sandbox's files cannot be reached from this process.
    tools: Option<Arc<FileTools>>,
    extensions: Vec<(String, Arc<dyn ToolHandler>)>,
    session: Arc<dyn ToolHandler>,
}

/// What belongs to extensions, whether or not there are any: no such call is for a shell.
const RESERVED: [&str; 2] = ["mcp", "skill"];

/// What may stand behind a prefix.
const SEPARATORS: [&str; 4] = ["__", ":", "/", "."];

impl FileTools {
    /// Serves a call of one of the five, by any of its names; `None` if it is for somebody else.
    pub fn serve(&self, call: &RoutedCall) -> Option<Result<Value, ToolError>> {
        Some(match Tool::of(&call.tool)? {
            Tool::Read => meant::<ReadParams>(call).and_then(|wish| done(self.read(&wish))),
            Tool::Write => meant::<WriteParams>(call).and_then(|wish| done(self.write(&wish))),
            Tool::Edit => meant::<EditParams>(call).and_then(|wish| done(self.edit(&wish))),
            Tool::List => meant::<ListParams>(call).and_then(|wish| done(self.list(&wish))),
            Tool::Search => meant::<SearchParams>(call).and_then(|wish| done(self.search(&wish))),
            Tool::Shell => return None,
        })
    }
}

impl ToolRouter {
    /// A router without extensions.
    pub fn new(tools: Arc<FileTools>, session: Arc<dyn ToolHandler>) -> ToolRouter {
        ToolRouter { tools: Some(tools), extensions: Vec::new(), session }
    }

    /// A router for a sandbox whose files are elsewhere: commands and extensions are served, and
    /// the five tools are an error that says so. They are not carried out by commands, which could
    /// keep none of their promises: that links are not followed, edits are whole, and calls are on
    /// record.
    pub fn without_tools(session: Arc<dyn ToolHandler>) -> ToolRouter {
        ToolRouter { tools: None, extensions: Vec::new(), session }
    }

    /// Has an extension serve all tools with a prefix, such as `mcp` or `mcp__github`.
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
            return refuse("it is no name");
        }
        if let Some(tool) = Tool::of(prefix) {
            return refuse(&format!("`{}` is served already", tool.word()));
        }
        if self.extensions.iter().any(|(known, _)| known.eq_ignore_ascii_case(prefix)) {
            return refuse("another one has it");
        }
        self.extensions.push((prefix.to_owned(), extension));
        Ok(())
    }

    /// Serves a call, or has it served.
    pub fn call(&self, call: &RoutedCall) -> Result<Value, ToolError> {
        match &self.tools {
            Some(tools) => tools.serve(call).unwrap_or_else(|| self.hand_on(call)),
            None if Tool::of(&call.tool).is_some_and(|tool| tool != Tool::Shell) => {
                Err(ToolError::Elsewhere { tool: call.tool.clone() })
            }
            None => self.hand_on(call),
        }
    }

    fn must_be_allowed(&self, tool: &str) -> Result<(), ToolError> {
        self.tools.as_ref().map_or(Ok(()), |tools| tools.must_be_allowed(tool))
    }

    fn hand_on(&self, call: &RoutedCall) -> Result<Value, ToolError> {
        self.must_be_allowed(&call.tool)?;
        let handler = match self.extension(&call.tool)? {
            Some(extension) => extension,
            // By whatever name it is called, it is run as a command.
            None => {
                self.must_be_allowed(Tool::Shell.word())?;
                self.session.as_ref()
            }
        };
        self.tools.as_ref().map_or(Ok(()), |tools| tools.journal.hand_on(&call.tool))?;
        handler
            .handle(call)
            .map_err(|source| ToolError::Handler { tool: call.tool.clone(), source })
    }

    /// The extension that serves a tool; `None` if it is for the session.
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

fn meant<T: DeserializeOwned>(call: &RoutedCall) -> Result<T, ToolError> {
    serde_json::from_value(call.input.clone()).map_err(|error| ToolError::Input {
        what: format!("`{}` cannot work on that: {error}", call.tool),
    })
}

fn done<T: Serialize>(result: Result<T, ToolError>) -> Result<Value, ToolError> {
    result.and_then(|value| {
        serde_json::to_value(value).map_err(|error| ToolError::Input {
            what: format!("the result cannot be told: {error}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::has_prefix;

    #[test]
    fn a_prefix_ends_where_a_name_does() {
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
