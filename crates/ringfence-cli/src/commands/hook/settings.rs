//! Command rules of Claude Code's own settings.
//!
//! Claude Code applies its command rules to the line that a hook returns, in which the command is
//! only one quoted word: its deny rules would no longer match. So ringfence applies them here.

use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use ringfence_cmdline::SandboxSettings;
use ringfence_policy::{AbsPath, CommandRules, Origin, Platform, Source};
use serde_json::{Map, Value};

use super::HookAgent;
use super::call::HookCall;
use super::file_rules::{Base, FileRules};
use crate::error::CliError;
use crate::read_file::read_text;

/// The administrator's settings.
const MANAGED: &str = "/etc/claude-code/managed-settings.json";

/// The command rules of the settings.
#[derive(Debug, Default)]
pub(super) struct HookSettings {
    pub(super) sandbox: SandboxSettings,
    /// `permissions.deny`
    pub(super) deny: CommandRules,
    /// `permissions.ask`
    pub(super) ask: CommandRules,
    /// Rules on files and hosts.
    pub(super) files: FileRules,
}

/// The author of a settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsAuthor {
    /// The user, or the administrator of the machine.
    Trusted,
    /// The author of the repository.
    Untrusted,
}

impl HookSettings {
    pub(super) fn read(hook_call: &HookCall) -> Result<HookSettings, CliError> {
        let grants = hook_call.grants();
        // The policy decides about the sandbox: `sandbox.enabled` in the settings is about
        // Claude Code's own sandbox.
        let mut settings = HookSettings {
            sandbox: SandboxSettings::from_grants(grants),
            ..HookSettings::default()
        };
        // In doubt, a deny rule lets the command pass, as in a policy; an ask rule still asks.
        settings.deny.doubt = grants.commands.doubt;
        if hook_call.agent != HookAgent::ClaudeCode {
            return Ok(settings);
        }
        let base = Base { grants, mode: hook_call.mode() };
        for SettingsFile { path, author, anchor } in &files(hook_call) {
            let Some(text) = read_text(path)?.filter(|text| !text.trim().is_empty()) else {
                continue;
            };
            settings
                .add(&object(path, &text)?, path, *author)
                .map_err(|what| wrong(path, &what))?;
            settings.files.add(&text, anchor, *author, base).map_err(|what| wrong(path, &what))?;
        }
        Ok(settings)
    }

    fn add(
        &mut self,
        whole: &Map<String, Value>,
        file: &Path,
        author: SettingsAuthor,
    ) -> Result<(), String> {
        for (key, rules) in [("deny", &mut self.deny), ("ask", &mut self.ask)] {
            let listed = whole.get("permissions").and_then(|permissions| permissions.get(key));
            for rule in
                listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
            {
                rules.deny.extend(pattern(rule).map(|text| origin(text, file)));
            }
        }
        let Some(sandbox_keys) = whole.get("sandbox") else { return Ok(()) };
        let sandbox_keys = sandbox_keys.as_object().ok_or("`sandbox` is not an object")?;
        let denied_hosts = sandbox_keys
            .get("network")
            .and_then(|network| network.get("deniedDomains"))
            .and_then(Value::as_array);
        if denied_hosts.is_some_and(|hosts| hosts.iter().any(|host| host == "*")) {
            self.files.disable_network();
        }
        let sandbox = &mut self.sandbox;
        if let Some(value) = switch(sandbox_keys, "autoAllowBashIfSandboxed")? {
            // If any file wants the user to be asked, the user is asked.
            sandbox.auto_allow_bash_if_sandboxed &= value;
        }
        if let Some(value) = switch(sandbox_keys, "allowUnsandboxedCommands")? {
            sandbox.allow_unsandboxed_commands =
                value && (author == SettingsAuthor::Trusted || sandbox.allow_unsandboxed_commands);
        }
        if author == SettingsAuthor::Trusted {
            let wrong = |key: &str, error: serde_json::Error| format!("`sandbox.{key}`: {error}");
            if let Some(listed) = sandbox_keys.get("excludedCommands") {
                let listed: Vec<String> = serde_json::from_value(listed.clone())
                    .map_err(|error| wrong("excludedCommands", error))?;
                sandbox.excluded_commands.extend(listed);
            }
            if let Some(listed) = sandbox_keys.get("enabledPlatforms") {
                let listed: Vec<Platform> = serde_json::from_value(listed.clone())
                    .map_err(|error| wrong("enabledPlatforms", error))?;
                sandbox.enabled_platforms = Some(listed);
            }
        }
        Ok(())
    }
}

/// Returns the settings files that the agent reads. The project's come last: none can undo them.
fn files(hook_call: &HookCall) -> Vec<SettingsFile> {
    let trusted = |path: PathBuf| SettingsFile {
        path,
        author: SettingsAuthor::Trusted,
        anchor: hook_call.start.clone(),
    };
    let mut files =
        vec![trusted(hook_call.config().join("settings.json")), trusted(MANAGED.into())];
    let mut projects = vec![&hook_call.grants().workspace, &hook_call.start];
    projects.dedup();
    for project in projects {
        let own = project.as_path().join(".claude");
        let untrusted = |name: &str| SettingsFile {
            path: own.join(name),
            author: SettingsAuthor::Untrusted,
            anchor: project.clone(),
        };
        files.extend(["settings.json", "settings.local.json"].map(untrusted));
    }
    files
}

/// A settings file.
struct SettingsFile {
    path: PathBuf,
    author: SettingsAuthor,
    /// The directory that its relative paths are relative to.
    anchor: AbsPath,
}

/// Returns a boolean setting, if it is there.
fn switch(object: &Map<String, Value>, key: &str) -> Result<Option<bool>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(format!("`sandbox.{key}` is neither true nor false")),
    }
}

/// Converts a command rule to a ringfence pattern; `None` for a rule about another tool.
fn pattern(rule: &str) -> Option<String> {
    let rule = rule.trim();
    if rule == "Bash" {
        return Some("*".into());
    }
    let inner = rule.strip_prefix("Bash(")?.strip_suffix(')')?;
    // A trailing ` *` matches more words or none, as `:*` does.
    Some(inner.strip_suffix(" *").map_or_else(|| inner.to_owned(), |words| format!("{words}:*")))
}

fn origin(text: String, file: &Path) -> Origin {
    Origin { source: Source::User, text, file: AbsPath::new(file), line: None, reason: None }
}

/// Parses a settings file. A parse error is fatal: the file may contain rules.
fn object(file: &Path, text: &str) -> Result<Map<String, Value>, CliError> {
    // The file may contain comments.
    match jsonc_parser::parse_to_serde_value::<Value>(text, &ParseOptions::default()) {
        Ok(Value::Object(whole)) => Ok(whole),
        Ok(_) => Err(wrong(file, "it is not a JSON object")),
        Err(error) => Err(wrong(file, &error.to_string())),
    }
}

fn wrong(file: &Path, what: &str) -> CliError {
    CliError::Usage {
        what: format!("cannot parse the settings in {}: {what}", file.display()),
        hint: "fix the file: it may contain command rules".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_rules_become_ringfence_patterns() {
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
    fn author_of_the_repository_can_only_narrow() {
        let add = |mut settings: HookSettings, text: &str, author: SettingsAuthor| {
            let Value::Object(whole) = serde_json::from_str(text).unwrap() else {
                panic!("{text}")
            };
            settings.add(&whole, Path::new("/x"), author).map(|()| settings)
        };
        let sandbox = |text: &str, author: SettingsAuthor| {
            add(HookSettings::default(), text, author).map(|settings| settings.sandbox)
        };
        let both = |first: &str, then: &str| {
            let settings = add(
                add(HookSettings::default(), first, SettingsAuthor::Trusted).unwrap(),
                then,
                SettingsAuthor::Untrusted,
            )
            .unwrap()
            .sandbox;
            (settings.auto_allow_bash_if_sandboxed, settings.allow_unsandboxed_commands)
        };
        let settings = |auto: bool, bare: bool| {
            format!(
                r#"{{"sandbox": {{"autoAllowBashIfSandboxed": {auto}, "allowUnsandboxedCommands": {bare}}}}}"#
            )
        };
        assert_eq!(both(&settings(true, true), &settings(true, true)), (true, true));
        assert_eq!(both(&settings(true, true), &settings(false, false)), (false, false));
        assert_eq!(both(&settings(false, false), &settings(true, true)), (false, false));
        let wide = r#"{"sandbox": {"enabled": false, "allowUnsandboxedCommands": true, "excludedCommands": ["curl:*"], "enabledPlatforms": ["macos"]}}"#;
        assert_eq!(sandbox(wide, SettingsAuthor::Untrusted), Ok(SandboxSettings::default()));
        let trusted = sandbox(wide, SettingsAuthor::Trusted).unwrap();
        assert!(
            trusted.enabled
                && trusted.allow_unsandboxed_commands
                && trusted.excluded_commands == ["curl:*"]
        );
        assert!(
            !sandbox(
                r#"{"sandbox": {"autoAllowBashIfSandboxed": false}}"#,
                SettingsAuthor::Untrusted
            )
            .unwrap()
            .auto_allow_bash_if_sandboxed
        );
        assert!(
            sandbox(r#"{"sandbox": {"excludedCommands": "x"}}"#, SettingsAuthor::Trusted).is_err()
        );
        assert!(
            sandbox(r#"{"sandbox": {"allowUnsandboxedCommands": 1}}"#, SettingsAuthor::Untrusted)
                .is_err()
        );
    }
}
