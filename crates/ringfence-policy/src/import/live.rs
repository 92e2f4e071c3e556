//! Another tool's settings as a layer of the policy, read at each run.

use std::collections::BTreeMap;

use super::reader::locate_entry;
use super::{ImportError, ImportFormat, ImportNoteKind, ImportedPolicy, read};
use crate::error::{PolicyError, SourcePosition};
use crate::foreign::ForeignTool;
use crate::grants::{Mode, Source};
use crate::layer::PolicyLayer;
use crate::path::AbsPath;
use crate::policy::{PathEntry, Policy, SandboxSection};

/// A settings file of another tool.
#[derive(Debug, Clone)]
pub struct LiveSettings<'a> {
    /// The tool.
    pub tool: ForeignTool,
    /// The file.
    pub file: &'a AbsPath,
    /// The authority of its author, and of the file that extends it.
    pub source: Source,
    /// The base directory of its relative entries.
    pub directory: &'a AbsPath,
}

impl LiveSettings<'_> {
    /// Parses the file. A malformed `sandbox.json` is a warning; any other malformed file is an
    /// error with its line.
    pub fn layer(&self, bytes: &[u8]) -> Result<PolicyLayer, PolicyError> {
        // By the rule of `sandbox.json` text that cannot be parsed means its defaults.
        let is_lenient = self.tool.format() == ImportFormat::SandboxJson;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) if is_lenient => "",
            Err(error) => return Err(self.not_utf8(bytes, error.valid_up_to())),
        };
        let mut imported = read(text, self.tool.format()).map_err(|error| self.error(&error))?;
        // An exception of a project applies only to patterns of the project.
        let kept = match self.source {
            Source::Project => std::mem::take(&mut imported.policy.filesystem.except),
            _ => Vec::new(),
        };
        let mut imported = imported.without_opened_denies().for_live_use(self.tool);
        imported.policy.filesystem.except.extend(kept);
        let warnings = imported.restrictions_lost();
        let places = imported.places(text);
        let named = |warning: String| format!("{}: {warning}", self.file);
        Ok(PolicyLayer {
            tool: Some(self.tool),
            anchor: Some(self.directory.clone()),
            warnings: warnings.into_iter().map(named).collect(),
            places,
            ..PolicyLayer::new(imported.policy, self.file.clone(), self.source.clone())
        })
    }

    fn error(&self, error: &ImportError) -> PolicyError {
        let text = error.to_string();
        // The text begins with the position.
        let message = text.split_once(": ").map_or(text.as_str(), |(_, message)| message);
        let at = SourcePosition {
            file: Some(self.file.clone()),
            line: Some(error.line()),
            column: Some(error.column()),
        };
        PolicyError::Foreign { at, code: error.code(), message: message.to_owned() }
    }

    fn not_utf8(&self, bytes: &[u8], offset: usize) -> PolicyError {
        let newlines = bytes[..offset].iter().filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(newlines + 1).ok();
        let at = SourcePosition { file: Some(self.file.clone()), line, column: None };
        PolicyError::NotUtf8 { at, offset }
    }
}

impl ImportedPolicy {
    /// The same policy without the other tool's defaults, and without settings that turn
    /// confinement off: those concern the tool's own sandbox.
    fn for_live_use(mut self, tool: ForeignTool) -> Self {
        let sandbox = std::mem::take(&mut self.policy.sandbox);
        self.policy.sandbox = SandboxSection {
            auto_allow_bash_if_sandboxed: sandbox.auto_allow_bash_if_sandboxed.filter(|on| !on),
            ..SandboxSection::default()
        };
        self.policy.commands.excluded.clear();
        // Users of ringfence turn off the sandbox of Claude Code.
        if sandbox.enabled == Some(false) && tool != ForeignTool::ClaudeCode {
            self.ignored_switch("enabled", "`[sandbox] enabled = false`");
        }
        if self.policy.mode == Some(Mode::FullAccess) {
            self.policy.mode = None;
            self.ignored_switch("sandbox_mode", "`mode = \"full-access\"`");
        }
        for setting in std::mem::take(&mut self.defaults) {
            match setting {
                "mode" => self.policy.mode = None,
                "network.mode" => self.policy.network.mode = None,
                "network.localhost" => self.policy.network.localhost = None,
                "network.git" => self.policy.network.git = None,
                other => unreachable!("`{other}` is never a default"),
            }
        }
        self
    }

    fn ignored_switch(&mut self, key: &str, instead: &str) {
        let text = format!("turns the sandbox off and is ignored; write {instead} in the policy");
        self.note(ImportNoteKind::Warning, key, text);
    }

    /// Warnings: a malformed file, restrictions without a counterpart, and grants of denied paths.
    fn restrictions_lost(&self) -> Vec<String> {
        let is_restriction = |key: &str| {
            matches!(key, "permissions.deny" | "filesystem.read" | "filesystem.write")
                || key.ends_with("deniedDomains")
        };
        let lost = self.notes.iter().filter(|note| match note.kind {
            ImportNoteKind::Warning => true,
            ImportNoteKind::NotCarried => is_restriction(&note.key),
            ImportNoteKind::Changed => false,
        });
        lost.map(|note| match note.key.as_str() {
            "" => note.text.clone(),
            key => format!("{key}: {}", note.text),
        })
        .collect()
    }

    /// Line and column of each entry and setting in the file.
    fn places(&self, text: &str) -> BTreeMap<String, (u32, u32)> {
        let mut places = BTreeMap::new();
        for (list, entries) in lists(&self.policy) {
            for (i, entry) in entries.iter().enumerate() {
                let found = self.sources.iter().find(|one| one.list == list && one.entry == *entry);
                if let Some(found) = found {
                    let at = locate_entry(text, &found.key, &found.written);
                    places.insert(format!("{list}.{i}"), at);
                }
            }
        }
        for one in self.sources.iter().filter(|one| one.entry.is_empty()) {
            places.insert(one.list.to_owned(), locate_entry(text, &one.key, &one.written));
        }
        places
    }
}

/// Every list that an import fills, with its key.
fn lists(policy: &Policy) -> Vec<(&'static str, Vec<&str>)> {
    fn paths(entries: &[PathEntry]) -> Vec<&str> {
        entries.iter().map(PathEntry::path).collect()
    }
    fn texts(entries: &[String]) -> Vec<&str> {
        entries.iter().map(String::as_str).collect()
    }
    let (files, network) = (&policy.filesystem, &policy.network);
    vec![
        ("filesystem.read", paths(&files.read)),
        ("filesystem.write", paths(&files.write)),
        ("filesystem.deny", paths(&files.deny)),
        ("filesystem.protect", paths(&files.protect)),
        ("filesystem.except", paths(&files.except)),
        ("environment.allow", texts(&policy.environment.allow)),
        ("environment.deny", texts(&policy.environment.deny)),
        ("network.allow", texts(&network.allow)),
        ("network.deny", texts(&network.deny)),
        ("network.unix-sockets", texts(&network.unix_sockets)),
        ("commands.deny", texts(&policy.commands.deny)),
        ("tools.disallowed", texts(&policy.tools.disallowed)),
    ]
}

#[cfg(test)]
mod tests;
