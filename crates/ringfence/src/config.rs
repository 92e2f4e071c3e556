//! The configuration of an embedding program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_engine::read_file_layers;
use ringfence_policy::import::{ImportFormat, ImportNoteKind, import};
use ringfence_policy::{AbsPath, ProviderSpec, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::SandboxError;

/// Selects the provider, and adds to the policy files and the built-in rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// False to run commands unconfined; every result then says so.
    pub enabled: bool,
    /// The provider's name in the [`SandboxProviderRegistry`](crate::SandboxProviderRegistry).
    pub provider: String,
    /// Paths to allow and deny.
    pub policy: SandboxPolicy,
    /// [`CommonOptions`](crate::CommonOptions), and options of the provider.
    pub provider_options: Map<String, Value>,
    /// True if a blocked command may be run again outside the sandbox with the user's consent.
    pub allow_unsandboxed_commands: bool,
    /// The `sandbox.json` it was read from: no command can change this file.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Entries of the file with another meaning here, or none. The first result has them as
    /// warnings.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The paths and network access of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SandboxPolicy {
    /// Files and directories.
    pub filesystem: FilesystemLists,
    /// The network.
    pub network: NetworkSwitch,
}

/// Path lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FilesystemLists {
    /// Directories that may be read and written.
    pub whitelist: Vec<String>,
    /// Paths and patterns that may not be read. They take precedence over `whitelist`; built-in
    /// rules take precedence over both.
    pub blacklist: Vec<String>,
}

/// The network switch.
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
            provider: ProviderSpec::LOCAL.into(),
            policy: SandboxPolicy::default(),
            provider_options: Map::new(),
            allow_unsandboxed_commands: false,
            file: None,
            notes: Vec::new(),
        }
    }
}

impl SandboxConfig {
    /// Parses a `sandbox.json` by its own rules: lists add to the built-in ones, the network stays
    /// closed, and a malformed text leaves only a note.
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
        // Keys that only this configuration has.
        const OWN: &[&str] = &["provider", "providerOptions", "allowUnsandboxedCommands"];
        let reported = imported
            .notes
            .into_iter()
            .filter(|note| is_malformed || !OWN.contains(&note.key.as_str()));
        let reported = reported.filter(|note| note.key != "policy.filesystem.blacklist");
        config.notes = reported
            .map(|note| {
                if note.key.is_empty() { note.text } else { format!("{}: {}", note.key, note.text) }
            })
            .collect();
        config
    }

    /// Reads a `sandbox.json`; a missing file means the defaults.
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

    /// Uses a ringfence policy file in place of the project's own.
    pub fn from_policy_file(file: impl AsRef<Path>) -> Result<Self, SandboxError> {
        let fail = |source| SandboxError::File {
            what: "find",
            file: file.as_ref().display().to_string(),
            source,
        };
        let whole = std::path::absolute(&file).map_err(fail)?;
        let at = AbsPath::new(&whole).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        // Parsed again when a sandbox is created; parsed here to report errors early.
        read_file_layers(&at, &Source::User).map_err(SandboxError::not_created)?;
        let mut config = Self::default();
        config.provider_options.insert("policyFile".into(), whole.to_string_lossy().into());
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::SandboxConfig;

    #[test]
    fn sandbox_json_example_is_read() {
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
    fn malformed_file_gives_defaults_and_a_note() {
        let config = SandboxConfig::from_sandbox_json("{ \"enabled\": false, ");
        assert!(config.enabled);
        assert!(config.notes.iter().any(|note| note.contains("malformed")), "{:?}", config.notes);
        assert_eq!(SandboxConfig { notes: Vec::new(), ..config }, SandboxConfig::default());
    }
}
