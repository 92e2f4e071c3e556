//! What Claude Code's own settings say of commands.
//!
//! Its rules on commands are asked about the line that a hook returns, in which the command is
//! but a word: those that shut would shut nothing any more. So they are asked here.

use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use ringfence_policy::command::{Platform, SandboxSettings};
use ringfence_policy::{AbsPath, CommandRules, Origin, Source};
use serde_json::{Map, Value};

use super::HookAgent;
use super::call::HookCall;
use super::file_rules::{Base, FileRules};
use crate::error::CliError;
use crate::read_file::text_of;

/// The administrator's.
const MANAGED: &str = "/etc/claude-code/managed-settings.json";

/// What the settings say of commands.
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

/// Who wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsAuthor {
    /// The person, or who administers the machine.
    Trusted,
    /// Whoever wrote the repository.
    Anybody,
}

impl HookSettings {
    pub(super) fn read(scene: &HookCall) -> Result<HookSettings, CliError> {
        let grants = scene.grants();
        // Whether there is a sandbox is for the policy to say: there, it is another one that is
        // meant.
        let mut settings =
            HookSettings { sandbox: grants.sandbox_settings(), ..HookSettings::default() };
        // A doubt passes a deny rule, as in a policy, and still asks under an ask rule.
        settings.deny.doubt = grants.commands.doubt;
        if scene.agent != HookAgent::ClaudeCode {
            return Ok(settings);
        }
        let base = Base { grants, mode: scene.mode() };
        for SettingsFile { path, author, anchor } in &files(scene) {
            let Some(text) = text_of(path)?.filter(|text| !text.trim().is_empty()) else {
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
        let Some(said) = whole.get("sandbox") else { return Ok(()) };
        let said = said.as_object().ok_or("`sandbox` is no object")?;
        let denied_hosts = said
            .get("network")
            .and_then(|network| network.get("deniedDomains"))
            .and_then(Value::as_array);
        if denied_hosts.is_some_and(|hosts| hosts.iter().any(|host| host == "*")) {
            self.files.shut_network();
        }
        let sandbox = &mut self.sandbox;
        if let Some(says) = switch(said, "autoAllowBashIfSandboxed")? {
            // Whoever wants to be asked is asked, also where the other file says otherwise.
            sandbox.auto_allow_bash_if_sandboxed &= says;
        }
        if let Some(says) = switch(said, "allowUnsandboxedCommands")? {
            sandbox.allow_unsandboxed_commands =
                says && (author == SettingsAuthor::Trusted || sandbox.allow_unsandboxed_commands);
        }
        if author == SettingsAuthor::Trusted {
            let wrong = |key: &str, error: serde_json::Error| format!("`sandbox.{key}`: {error}");
            if let Some(listed) = said.get("excludedCommands") {
                let listed: Vec<String> = serde_json::from_value(listed.clone())
                    .map_err(|error| wrong("excludedCommands", error))?;
                sandbox.excluded_commands.extend(listed);
            }
            if let Some(listed) = said.get("enabledPlatforms") {
                let listed: Vec<Platform> = serde_json::from_value(listed.clone())
                    .map_err(|error| wrong("enabledPlatforms", error))?;
                sandbox.enabled_platforms = Some(listed);
            }
        }
        Ok(())
    }
}

/// The files that the agent obeys. The project's come last: no other file widens what they narrow.
fn files(scene: &HookCall) -> Vec<SettingsFile> {
    let trusted = |path: PathBuf| SettingsFile {
        path,
        author: SettingsAuthor::Trusted,
        anchor: scene.start.clone(),
    };
    let mut files = vec![trusted(scene.config().join("settings.json")), trusted(MANAGED.into())];
    let mut projects = vec![&scene.grants().workspace, &scene.start];
    projects.dedup();
    for project in projects {
        let own = project.as_path().join(".claude");
        let theirs = |name: &str| SettingsFile {
            path: own.join(name),
            author: SettingsAuthor::Anybody,
            anchor: project.clone(),
        };
        files.extend(["settings.json", "settings.local.json"].map(theirs));
    }
    files
}

/// A file of settings.
struct SettingsFile {
    path: PathBuf,
    author: SettingsAuthor,
    /// The directory that its relative paths are relative to.
    anchor: AbsPath,
}

/// What a key says, if it is there.
fn switch(said: &Map<String, Value>, key: &str) -> Result<Option<bool>, String> {
    match said.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(says)) => Ok(Some(*says)),
        Some(_) => Err(format!("`sandbox.{key}` is neither true nor false")),
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

/// A file's object. One that cannot be read may hold rules.
fn object(file: &Path, text: &str) -> Result<Map<String, Value>, CliError> {
    // People write comments into it.
    match jsonc_parser::parse_to_serde_value::<Value>(text, &ParseOptions::default()) {
        Ok(Value::Object(whole)) => Ok(whole),
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
        let add = |mut settings: HookSettings, text: &str, author: SettingsAuthor| {
            let Value::Object(whole) = serde_json::from_str(text).unwrap() else {
                panic!("{text}")
            };
            settings.add(&whole, Path::new("/x"), author).map(|()| settings)
        };
        let said = |text: &str, author: SettingsAuthor| {
            add(HookSettings::default(), text, author).map(|settings| settings.sandbox)
        };
        let both = |first: &str, then: &str| {
            let settings = add(
                add(HookSettings::default(), first, SettingsAuthor::Trusted).unwrap(),
                then,
                SettingsAuthor::Anybody,
            )
            .unwrap()
            .sandbox;
            (settings.auto_allow_bash_if_sandboxed, settings.allow_unsandboxed_commands)
        };
        let says = |auto: bool, bare: bool| {
            format!(
                r#"{{"sandbox": {{"autoAllowBashIfSandboxed": {auto}, "allowUnsandboxedCommands": {bare}}}}}"#
            )
        };
        assert_eq!(both(&says(true, true), &says(true, true)), (true, true));
        assert_eq!(both(&says(true, true), &says(false, false)), (false, false));
        assert_eq!(both(&says(false, false), &says(true, true)), (false, false));
        let wide = r#"{"sandbox": {"enabled": false, "allowUnsandboxedCommands": true, "excludedCommands": ["curl:*"], "enabledPlatforms": ["macos"]}}"#;
        assert_eq!(said(wide, SettingsAuthor::Anybody), Ok(SandboxSettings::default()));
        let trusted = said(wide, SettingsAuthor::Trusted).unwrap();
        assert!(
            trusted.enabled
                && trusted.allow_unsandboxed_commands
                && trusted.excluded_commands == ["curl:*"]
        );
        assert!(
            !said(r#"{"sandbox": {"autoAllowBashIfSandboxed": false}}"#, SettingsAuthor::Anybody)
                .unwrap()
                .auto_allow_bash_if_sandboxed
        );
        assert!(
            said(r#"{"sandbox": {"excludedCommands": "x"}}"#, SettingsAuthor::Trusted).is_err()
        );
        assert!(
            said(r#"{"sandbox": {"allowUnsandboxedCommands": 1}}"#, SettingsAuthor::Anybody)
                .is_err()
        );
    }
}
