//! Other tools whose settings a policy file can extend by name.

use crate::import::ImportFormat;

/// A tool with its own settings, as named in `extends`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignTool {
    /// Claude Code: `settings.json`.
    ClaudeCode,
    /// Codex: `config.toml`.
    Codex,
    /// UDS: `.uds/config.yaml`.
    Uds,
    /// Synapse: `sandbox.json`.
    Synapse,
}

impl ForeignTool {
    /// Every tool.
    pub const ALL: [ForeignTool; 4] = [Self::ClaudeCode, Self::Codex, Self::Uds, Self::Synapse];

    /// The name in `extends`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Uds => "uds",
            Self::Synapse => "synapse",
        }
    }

    /// The tool with this name in `extends`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The format of the tool's settings.
    pub fn format(self) -> ImportFormat {
        match self {
            Self::ClaudeCode => ImportFormat::SettingsJson,
            Self::Codex => ImportFormat::CodexToml,
            Self::Uds => ImportFormat::UdsYaml,
            Self::Synapse => ImportFormat::SandboxJson,
        }
    }

    /// The names of all tools, for messages.
    pub fn known_names() -> String {
        Self::ALL.map(|tool| format!("`{}`", tool.name())).join(", ")
    }
}

/// True if an entry of `extends` is the name of a tool and not of a file: a file name has a `/` or
/// a `.`.
pub(crate) fn is_tool_name(entry: &str) -> bool {
    !entry.contains(['/', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_files_are_no_names() {
        for tool in ForeignTool::ALL {
            assert_eq!(ForeignTool::from_name(tool.name()), Some(tool));
            assert!(is_tool_name(tool.name()));
        }
        for file in ["base.toml", "./base", "/etc/x", "../x"] {
            assert!(!is_tool_name(file), "{file}");
        }
        assert_eq!(ForeignTool::known_names(), "`claude-code`, `codex`, `uds`, `synapse`");
    }
}
