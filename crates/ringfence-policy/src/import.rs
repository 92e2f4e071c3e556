//! Imports policies of other tools, with their own merge rules.
//!
//! A setting without a counterpart in ringfence is never dropped silently: the import returns a
//! note.

mod codex_sandbox_policy;
mod codex_toml;
mod live;
mod reader;
mod sandbox_json;
mod settings_json;
mod uds_yaml;
mod withheld;

pub use live::LiveSettings;

use crate::policy::Policy;
pub use codex_sandbox_policy::{CodexPolicyError, CodexSandboxPolicy};
pub use withheld::reason_to_withhold_write;

/// File format of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// `sandbox.json`: white list, black list, provider.
    SandboxJson,
    /// `.uds/config.yaml`
    UdsYaml,
    /// `settings.json`: `sandbox.*` and `permissions`.
    SettingsJson,
    /// Settings file of srt: `network` and `filesystem` at the top level.
    SrtJson,
    /// Codex `config.toml`
    CodexToml,
}

/// A policy imported from another tool's file.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedPolicy {
    /// The equivalent policy.
    pub policy: Policy,
    /// Differences to the original.
    pub notes: Vec<ImportNote>,
    /// The sources of entries and settings.
    sources: Vec<EntrySource>,
    /// Settings of the policy that the file does not contain: the other tool's defaults.
    defaults: Vec<&'static str>,
    /// True if the file denies every host.
    denies_all_hosts: bool,
}

/// The part of the file that an entry or a setting of the policy comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EntrySource {
    /// The list or setting of the policy: `filesystem.deny`, `mode`.
    list: &'static str,
    /// The entry in the policy; empty for a setting with one value.
    entry: String,
    /// The key in the file.
    key: String,
    /// The entry in the file; empty for a setting with one value.
    written: String,
}

/// A setting that was not imported unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNote {
    /// Severity of the note.
    pub kind: ImportNoteKind,
    /// The setting in the other tool's file; empty for the file as a whole.
    pub key: String,
    /// The difference and its reason.
    pub text: String,
}

/// Severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportNoteKind {
    /// The file was not usable as it is.
    Warning,
    /// The setting has no counterpart.
    NotCarried,
    /// The setting has another meaning in ringfence.
    Changed,
}

/// Reason for which a file cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ImportError {
    #[error("{line}:{column}: not valid {language}: {message}")]
    Malformed { language: &'static str, line: u32, column: u32, message: String },
    #[error("{line}:{column}: `{key}` is not {expected}")]
    WrongType { key: String, expected: &'static str, line: u32, column: u32 },
}

impl ImportError {
    /// A stable word for this error.
    pub fn code(&self) -> &'static str {
        match self {
            ImportError::Malformed { .. } => "import-malformed",
            ImportError::WrongType { .. } => "import-wrong-type",
        }
    }

    /// A hint for the user.
    pub fn hint(&self) -> String {
        match self {
            ImportError::Malformed { line, .. } => {
                format!("fix line {line} of the file and import it again")
            }
            ImportError::WrongType { key, expected, .. } => format!("write {expected} at `{key}`"),
        }
    }

    /// Line, from 1.
    pub fn line(&self) -> u32 {
        match self {
            ImportError::Malformed { line, .. } | ImportError::WrongType { line, .. } => *line,
        }
    }

    /// Column, from 1.
    pub fn column(&self) -> u32 {
        match self {
            ImportError::Malformed { column, .. } | ImportError::WrongType { column, .. } => {
                *column
            }
        }
    }
}

/// Imports `text` in the given format.
///
/// A malformed `sandbox.json` is no error: by its own rule it gives a warning and the defaults.
pub fn import(text: &str, format: ImportFormat) -> Result<ImportedPolicy, ImportError> {
    read(text, format).map(ImportedPolicy::without_opened_denies)
}

/// As [`import`], with entries that would open a built-in denial.
fn read(text: &str, format: ImportFormat) -> Result<ImportedPolicy, ImportError> {
    match format {
        ImportFormat::SandboxJson => Ok(sandbox_json::import(text)),
        ImportFormat::UdsYaml => uds_yaml::import(text),
        ImportFormat::SettingsJson => settings_json::import(text),
        ImportFormat::SrtJson => settings_json::import_srt(text),
        ImportFormat::CodexToml => codex_toml::import(text),
    }
}

/// Guesses the format from the file name and the content.
pub fn detect(file_name: &str, text: &str) -> Option<ImportFormat> {
    let name = file_name.rsplit('/').next().unwrap_or(file_name);
    match name.rsplit_once('.')?.1 {
        "toml" => {
            (name == "config.toml" || text.contains("sandbox_")).then_some(ImportFormat::CodexToml)
        }
        "yaml" | "yml" => {
            text.lines().any(|line| line.starts_with("sandbox:")).then_some(ImportFormat::UdsYaml)
        }
        "json" | "jsonc" => detect_json(name, text),
        _ => None,
    }
}

fn detect_json(name: &str, text: &str) -> Option<ImportFormat> {
    let has = |key: &str| reader::json(text).is_ok_and(|value| value.get(key).is_some());
    if name == "sandbox.json" || has("policy") {
        Some(ImportFormat::SandboxJson)
    } else if has("sandbox")
        || has("permissions")
        || (name.starts_with("settings") && !has("filesystem"))
    {
        Some(ImportFormat::SettingsJson)
    } else if has("filesystem") || has("network") || name.contains("srt") {
        Some(ImportFormat::SrtJson)
    } else {
        None
    }
}

impl ImportedPolicy {
    fn new() -> Self {
        Self {
            policy: Policy::default(),
            notes: Vec::new(),
            sources: Vec::new(),
            defaults: Vec::new(),
            denies_all_hosts: false,
        }
    }

    fn note(&mut self, kind: ImportNoteKind, key: impl Into<String>, text: impl Into<String>) {
        self.notes.push(ImportNote { kind, key: key.into(), text: text.into() });
    }

    /// Records the source of an entry of a list.
    fn entry_from(&mut self, list: &'static str, entry: &str, key: &str, written: &str) {
        self.sources.push(EntrySource {
            list,
            entry: entry.to_owned(),
            key: key.to_owned(),
            written: written.to_owned(),
        });
    }

    /// Records the source of a setting with one value, or that it is a default of the other tool.
    fn setting_from(&mut self, setting: &'static str, key: &str, is_written: bool) {
        if is_written {
            self.entry_from(setting, "", key, "");
        } else {
            self.defaults.push(setting);
        }
    }

    fn not_carried(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.note(ImportNoteKind::NotCarried, key, text);
    }

    fn changed(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.note(ImportNoteKind::Changed, key, text);
    }

    fn unknown(&mut self, keys: Vec<String>) {
        for key in keys {
            self.not_carried(key, "this importer does not support it");
        }
    }
}
