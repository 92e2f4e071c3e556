//! What Claude Code's own settings say of commands.
//!
//! Its rules on commands are asked about the line that a hook returns, in which the command is
//! but a word: those that shut would shut nothing any more. So they are asked here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use ringfence_policy::command::{Platform, SandboxSettings};
use ringfence_policy::{AbsPath, CommandRules, Origin, Source};
use serde_json::{Map, Value};

use super::Agent;
use super::scene::Scene;
use crate::error::CliError;

/// The administrator's.
const MANAGED: &str = "/etc/claude-code/managed-settings.json";

/// What the settings say of commands.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) sandbox: SandboxSettings,
    /// `permissions.deny`
    pub(super) deny: CommandRules,
    /// `permissions.ask`
    pub(super) ask: CommandRules,
}

/// Who wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    /// The person, or who administers the machine.
    Trusted,
    /// Whoever wrote the repository.
    Anybody,
}

impl Settings {
    pub(super) fn read(scene: &Scene) -> Result<Settings, CliError> {
        let grants = scene.grants();
        let mut settings = Settings::default();
        // Whether there is a sandbox is for the policy to say: there, it is another one that is meant.
        settings.sandbox.enabled = grants.is_confined();
        settings.sandbox.excluded_commands = grants.commands.excluded.iter().map(|origin| origin.text.clone()).collect();
        if scene.agent != Agent::ClaudeCode {
            return Ok(settings);
        }
        let project = grants.workspace.as_path().join(".claude");
        let files: [(PathBuf, Author); 4] = [
            (project.join("settings.json"), Author::Anybody),
            (project.join("settings.local.json"), Author::Anybody),
            (scene.config().join("settings.json"), Author::Trusted),
            (MANAGED.into(), Author::Trusted),
        ];
        for (file, author) in &files {
            if let Some(whole) = object(file)? {
                settings.add(&whole, file, *author).map_err(|what| wrong(file, &what))?;
            }
        }
        Ok(settings)
    }

    fn add(&mut self, whole: &Map<String, Value>, file: &Path, author: Author) -> Result<(), String> {
        for (key, rules) in [("deny", &mut self.deny), ("ask", &mut self.ask)] {
            let listed = whole.get("permissions").and_then(|permissions| permissions.get(key));
            for rule in listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
                rules.deny.extend(pattern(rule).map(|text| origin(text, file)));
            }
        }
        let Some(said) = whole.get("sandbox") else { return Ok(()) };
        let said = said.as_object().ok_or("`sandbox` is no object")?;
        let sandbox = &mut self.sandbox;
        for (key, setting) in [
            ("autoAllowBashIfSandboxed", &mut sandbox.auto_allow_bash_if_sandboxed),
            ("allowUnsandboxedCommands", &mut sandbox.allow_unsandboxed_commands),
        ] {
            match said.get(key) {
                None | Some(Value::Null) => {}
                // Anybody may narrow.
                Some(Value::Bool(says)) if author == Author::Trusted || !says => *setting = *says,
                Some(Value::Bool(_)) => {}
                Some(_) => return Err(format!("`sandbox.{key}` is neither true nor false")),
            }
        }
        if author == Author::Trusted {
            let wrong = |key: &str, error: serde_json::Error| format!("`sandbox.{key}`: {error}");
            if let Some(listed) = said.get("excludedCommands") {
                let listed: Vec<String> = serde_json::from_value(listed.clone()).map_err(|error| wrong("excludedCommands", error))?;
                sandbox.excluded_commands.extend(listed);
            }
            if let Some(listed) = said.get("enabledPlatforms") {
                let listed: Vec<Platform> = serde_json::from_value(listed.clone()).map_err(|error| wrong("enabledPlatforms", error))?;
                sandbox.enabled_platforms = Some(listed);
            }
        }
        Ok(())
    }
}

/// What a rule on commands means as a pattern of ours; `None` if it is about another tool.
fn pattern(rule: &str) -> Option<String> {
    let rule = rule.trim();
    if rule == "Bash" {
        return Some("*".into());
    }
    let inner = rule.strip_prefix("Bash(")?.strip_suffix(')')?;
    // A blank and a star at the end are more words or none, as with `:*`.
    Some(inner.strip_suffix(" *").map_or_else(|| inner.to_owned(), |words| format!("{words}:*")))
}

fn origin(text: String, file: &Path) -> Origin {
    Origin { source: Source::User, text, file: AbsPath::new(file), line: None, reason: None }
}

/// A file's object; `None` if there is no file. One that cannot be read may hold rules.
fn object(file: &Path) -> Result<Option<Map<String, Value>>, CliError> {
    const LONGEST: u64 = 4 << 20;
    let fail = |source| CliError::File { what: "read", path: file.display().to_string(), source };
    match fs::metadata(file) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(fail(error)),
        Ok(metadata) if !metadata.is_file() || metadata.len() > LONGEST => {
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file of 4 MiB at most")));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(file).map_err(fail)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    // People write comments into it.
    match jsonc_parser::parse_to_serde_value::<Value>(&text, &ParseOptions::default()) {
        Ok(Value::Object(whole)) => Ok(Some(whole)),
        Ok(_) => Err(wrong(file, "it is no JSON object")),
        Err(error) => Err(wrong(file, &error.to_string())),
    }
}

fn wrong(file: &Path, what: &str) -> CliError {
    CliError::Words {
        what: format!("the settings in {} cannot be read: {what}", file.display()),
        hint: "mend the file: it may hold rules on commands".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_agent_are_patterns_of_ours() {
        for (rule, expect) in [
            ("Bash(rm:*)", Some("rm:*")),
            ("Bash(git push *)", Some("git push:*")),
            ("Bash(npm publish)", Some("npm publish")),
            ("Bash(git * main)", Some("git * main")),
            ("Bash", Some("*")),
            ("Read(./.env)", None),
            ("Bash(rm:*", None),
        ] {
            assert_eq!(pattern(rule).as_deref(), expect, "{rule}");
        }
    }

    #[test]
    fn whoever_wrote_the_repository_can_only_narrow() {
        let said = |text: &str, author: Author| {
            let mut settings = Settings::default();
            let Value::Object(whole) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
            settings.add(&whole, Path::new("/x"), author).map(|()| settings.sandbox)
        };
        let wide = r#"{"sandbox": {"enabled": false, "allowUnsandboxedCommands": true, "excludedCommands": ["curl:*"], "enabledPlatforms": ["macos"]}}"#;
        assert_eq!(said(wide, Author::Anybody), Ok(SandboxSettings::default()));
        let trusted = said(wide, Author::Trusted).unwrap();
        assert!(trusted.enabled && trusted.allow_unsandboxed_commands && trusted.excluded_commands == ["curl:*"]);
        assert!(!said(r#"{"sandbox": {"autoAllowBashIfSandboxed": false}}"#, Author::Anybody).unwrap().auto_allow_bash_if_sandboxed);
        assert!(said(r#"{"sandbox": {"excludedCommands": "x"}}"#, Author::Trusted).is_err());
    }
}
