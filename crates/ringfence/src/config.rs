//! What a program is configured with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_engine::layers_of;
use ringfence_policy::import::{ImportFormat, ImportNoteKind, import};
use ringfence_policy::{AbsPath, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{LocalSandboxProvider, SandboxError};

/// Which sandboxes a program uses, and what they open and shut beside what the policy files
/// and what is built in say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// Whether commands are confined at all. Where they are not, every result says so.
    pub enabled: bool,
    /// The provider's name.
    pub provider: String,
    /// What is opened and shut.
    pub policy: SandboxPolicy,
    /// What only the provider knows; see [`LocalOptions`](crate::LocalOptions).
    pub provider_options: Map<String, Value>,
    /// Whether a command that was blocked may be run again outside, once a person said so.
    pub allow_unsandboxed_commands: bool,
    /// The `sandbox.json` that it came from: no command changes it.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// What of the file means something else here, or nothing. The first result tells it.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// What a sandbox opens and shuts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SandboxPolicy {
    /// Files and directories.
    pub filesystem: FilesystemLists,
    /// The network.
    pub network: NetworkSwitch,
}

/// Files and directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FilesystemLists {
    /// Directories that may be read and written.
    pub whitelist: Vec<String>,
    /// Paths and patterns that may not even be read. It goes before the white list, and what
    /// is built in before both.
    pub blacklist: Vec<String>,
}

/// The network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetworkSwitch {
    /// Always false: `true` is an error. A policy file can open the network.
    pub allow_network: bool,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            provider: LocalSandboxProvider::NAME.into(),
            policy: SandboxPolicy::default(),
            provider_options: Map::new(),
            allow_unsandboxed_commands: false,
            file: None,
            notes: Vec::new(),
        }
    }
}

impl SandboxConfig {
    /// Out of the text of a `sandbox.json`, by its own rules: lists add to what is built in,
    /// the network stays shut, and of a malformed text only a note is left.
    pub fn from_sandbox_json(text: &str) -> Self {
        let mut config = Self::default();
        let Ok(imported) = import(text, ImportFormat::SandboxJson) else { return config };
        let paths = |entries: &[ringfence_policy::policy::PathEntry]| {
            entries.iter().map(|entry| entry.path().to_owned()).collect()
        };
        config.enabled = imported.policy.sandbox.enabled.unwrap_or(true);
        config.policy.filesystem.whitelist = paths(&imported.policy.filesystem.write);
        config.policy.filesystem.blacklist = paths(&imported.policy.filesystem.deny);
        let mut whole: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        let is_malformed = imported.notes.iter().any(|note| note.kind == ImportNoteKind::Warning);
        if !is_malformed {
            if let Some(Value::String(provider)) = whole.remove("provider") {
                config.provider = provider;
            }
            if let Some(Value::Object(options)) = whole.remove("providerOptions") {
                config.provider_options = options;
            }
            config.allow_unsandboxed_commands =
                whole.remove("allowUnsandboxedCommands") == Some(Value::Bool(true));
        }
        // What the policy has no word for has one here.
        const OWN: &[&str] = &["provider", "providerOptions", "allowUnsandboxedCommands"];
        let told = imported
            .notes
            .into_iter()
            .filter(|note| is_malformed || !OWN.contains(&note.key.as_str()));
        let told = told.filter(|note| note.key != "policy.filesystem.blacklist");
        config.notes = told
            .map(|note| {
                if note.key.is_empty() { note.text } else { format!("{}: {}", note.key, note.text) }
            })
            .collect();
        config
    }

    /// Reads a `sandbox.json`; one that is not there means the defaults.
    pub fn from_sandbox_json_file(file: impl Into<PathBuf>) -> Result<Self, SandboxError> {
        let file = file.into();
        let config = match fs::read_to_string(&file) {
            Ok(text) => Self::from_sandbox_json(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(source) => {
                return Err(SandboxError::File {
                    what: "read",
                    file: file.display().to_string(),
                    source,
                });
            }
        };
        Ok(Self { file: Some(file), ..config })
    }

    /// Takes a policy file of ringfence's own, which then stands in for the project's.
    pub fn from_policy_file(file: impl AsRef<Path>) -> Result<Self, SandboxError> {
        let fail = |source| SandboxError::File {
            what: "find",
            file: file.as_ref().display().to_string(),
            source,
        };
        let whole = std::path::absolute(&file).map_err(fail)?;
        let at = AbsPath::new(&whole).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        // Read again when a sandbox is made; what is wrong with it is told now.
        layers_of(&at, &Source::User).map_err(SandboxError::not_created)?;
        let mut config = Self::default();
        config.provider_options.insert("policyFile".into(), whole.to_string_lossy().into());
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::SandboxConfig;

    #[test]
    fn the_documents_example() {
        let config = SandboxConfig::from_sandbox_json(
            r#"{ "enabled": true, "provider": "daytona", "providerOptions": { "region": "eu" },
                 "policy": { "filesystem": { "whitelist": ["/var/data"], "blacklist": ["~/.kube"] }, "network": { "allowNetwork": true } } }"#,
        );
        assert_eq!((config.provider.as_str(), config.enabled), ("daytona", true));
        assert_eq!(config.provider_options["region"], "eu");
        assert_eq!(config.policy.filesystem.whitelist, ["/var/data"]);
        assert_eq!(config.policy.filesystem.blacklist, ["~/.kube"]);
        assert!(!config.policy.network.allow_network);
        assert!(
            config.notes.iter().any(|note| note.contains("allowNetwork")),
            "{:?}",
            config.notes
        );
    }

    #[test]
    fn a_malformed_file_means_the_defaults_and_a_note() {
        let config = SandboxConfig::from_sandbox_json("{ \"enabled\": false, ");
        assert!(config.enabled);
        assert!(config.notes.iter().any(|note| note.contains("malformed")), "{:?}", config.notes);
        assert_eq!(SandboxConfig { notes: Vec::new(), ..config }, SandboxConfig::default());
    }
}
