//! Whether a command of an agent's shell runs in the sandbox.

use serde::{Deserialize, Serialize};

use super::ParsedLine;
use super::excluded::{Exclusion, excluded};
use crate::grants::Grants;

/// The settings that decide, as `sandbox` of a `settings.json` has them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxSettings {
    /// Whether there is a sandbox at all.
    pub enabled: bool,
    /// If given: the only systems on which there is one.
    pub enabled_platforms: Option<Vec<Platform>>,
    /// Whether nothing runs where a sandbox cannot be made.
    pub fail_if_unavailable: bool,
    /// Whether a command may ask to run without.
    pub allow_unsandboxed_commands: bool,
    /// Whether what runs in the sandbox needs nobody's consent.
    pub auto_allow_bash_if_sandboxed: bool,
    /// Commands that run outside: `npm run lint`, `npm run test:*`, `docker*`.
    pub excluded_commands: Vec<String>,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            enabled_platforms: None,
            fail_if_unavailable: true,
            // Whoever is confined does not choose whether it is, unless a person says so.
            allow_unsandboxed_commands: false,
            auto_allow_bash_if_sandboxed: true,
            excluded_commands: Vec::new(),
        }
    }
}

/// A system, by the word of `enabledPlatforms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Linux.
    Linux,
    /// Linux inside Windows.
    Wsl,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
}

impl Grants {
    /// What the policy says about that.
    pub fn sandbox_settings(&self) -> SandboxSettings {
        SandboxSettings {
            enabled: self.is_confined(),
            // Where the policy switches it off on this system, it is off.
            enabled_platforms: None,
            fail_if_unavailable: self.sandbox.fail_if_unavailable,
            allow_unsandboxed_commands: self.sandbox.allow_unsandboxed,
            auto_allow_bash_if_sandboxed: self.sandbox.auto_allow,
            excluded_commands: self
                .commands
                .excluded
                .iter()
                .map(|origin| origin.text.clone())
                .collect(),
        }
    }
}

impl Platform {
    /// The system of this word.
    pub fn of(word: &str) -> Option<Platform> {
        Some(match word {
            "linux" => Platform::Linux,
            "wsl" => Platform::Wsl,
            "macos" => Platform::Macos,
            "windows" => Platform::Windows,
            _ => return None,
        })
    }
}

/// A command that an agent wants to run, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxQuery<'a> {
    /// The line for the shell.
    pub command: &'a str,
    /// Whether it asks for no sandbox (`dangerouslyDisableSandbox`).
    pub wish: SandboxWish,
    /// The system.
    pub platform: Platform,
    /// Whether a sandbox can be made here.
    pub ability: SandboxAbility,
}

/// What a command asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxWish {
    /// Nothing.
    #[default]
    Default,
    /// To run without a sandbox.
    Unsandboxed,
}

/// Whether a sandbox can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxAbility {
    /// Yes.
    Available,
    /// No.
    Unavailable,
}

/// What is to be done with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxChoice {
    /// It runs in the sandbox.
    Sandboxed(RunConsent),
    /// It runs outside.
    Unsandboxed(UnsandboxedReason),
    /// It does not run: there is no sandbox here, and there has to be one.
    Refused,
}

/// Whether somebody has to agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunConsent {
    /// Nobody: the sandbox confines it.
    Given,
    /// As for any command.
    Needed,
}

/// Why a command runs outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsandboxedReason {
    /// The sandbox is switched off.
    Disabled,
    /// It is not for this system.
    OtherPlatform,
    /// It cannot be made here, and that is accepted.
    Unavailable,
    /// The command asked for it, and may.
    Asked,
    /// There is no command.
    Empty,
    /// Every part of it is excluded.
    Excluded,
}

/// Whether a command runs in the sandbox, outside, or not at all.
pub fn should_use_sandbox(settings: &SandboxSettings, wanted: SandboxQuery<'_>) -> SandboxChoice {
    use SandboxChoice::{Refused, Sandboxed, Unsandboxed as Outside};
    if !settings.enabled {
        return Outside(UnsandboxedReason::Disabled);
    }
    if settings
        .enabled_platforms
        .as_ref()
        .is_some_and(|platforms| !platforms.contains(&wanted.platform))
    {
        return Outside(UnsandboxedReason::OtherPlatform);
    }
    if wanted.ability == SandboxAbility::Unavailable {
        return if settings.fail_if_unavailable {
            Refused
        } else {
            Outside(UnsandboxedReason::Unavailable)
        };
    }
    if wanted.wish == SandboxWish::Unsandboxed && settings.allow_unsandboxed_commands {
        return Outside(UnsandboxedReason::Asked);
    }
    // A shell takes any other blank for the name of a program.
    if wanted.command.chars().all(|c| " \t\n".contains(c)) {
        return Outside(UnsandboxedReason::Empty);
    }
    let line = ParsedLine::parse(wanted.command);
    if matches!(excluded(line.as_ref(), &settings.excluded_commands), Exclusion::Outside(_)) {
        return Outside(UnsandboxedReason::Excluded);
    }
    Sandboxed(if settings.auto_allow_bash_if_sandboxed {
        RunConsent::Given
    } else {
        RunConsent::Needed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: SandboxQuery<'_> = SandboxQuery {
        command: "docker ps",
        wish: SandboxWish::Default,
        platform: Platform::Linux,
        ability: SandboxAbility::Available,
    };

    #[track_caller]
    fn check(settings: &str, wanted: SandboxQuery<'_>, expect: SandboxChoice) {
        let settings: SandboxSettings = serde_json::from_str(settings).unwrap();
        assert_eq!(should_use_sandbox(&settings, wanted), expect);
    }

    #[test]
    fn whether_there_is_a_sandbox_comes_first() {
        use SandboxChoice::{Refused, Sandboxed, Unsandboxed as Outside};
        check("{}", WANTED, Sandboxed(RunConsent::Given));
        check(r#"{"enabled": false}"#, WANTED, Outside(UnsandboxedReason::Disabled));
        check(
            r#"{"enabledPlatforms": ["macos"]}"#,
            WANTED,
            Outside(UnsandboxedReason::OtherPlatform),
        );
        check(r#"{"enabledPlatforms": ["macos", "linux"]}"#, WANTED, Sandboxed(RunConsent::Given));
        check(r#"{"enabledPlatforms": []}"#, WANTED, Outside(UnsandboxedReason::OtherPlatform));
        let unavailable = SandboxQuery { ability: SandboxAbility::Unavailable, ..WANTED };
        check("{}", unavailable, Refused);
        check(r#"{"excludedCommands": ["docker*"]}"#, unavailable, Refused);
        check(
            r#"{"failIfUnavailable": false}"#,
            unavailable,
            Outside(UnsandboxedReason::Unavailable),
        );
        check(r#"{"enabled": false}"#, unavailable, Outside(UnsandboxedReason::Disabled));
    }

    /// Promise: P79
    #[test]
    fn a_command_switches_its_sandbox_off_only_where_it_may() {
        use SandboxChoice::{Sandboxed, Unsandboxed as Outside};
        let asking = SandboxQuery { wish: SandboxWish::Unsandboxed, ..WANTED };
        check("{}", asking, Sandboxed(RunConsent::Given));
        check(r#"{"allowUnsandboxedCommands": false}"#, asking, Sandboxed(RunConsent::Given));
        check(r#"{"allowUnsandboxedCommands": true}"#, asking, Outside(UnsandboxedReason::Asked));
        check(r#"{"allowUnsandboxedCommands": true}"#, WANTED, Sandboxed(RunConsent::Given));
    }

    /// Promise: P79
    #[test]
    fn what_is_excluded_runs_outside_and_nothing_beside_it() {
        use SandboxChoice::{Sandboxed, Unsandboxed as Outside};
        let settings =
            r#"{"excludedCommands": ["docker", "npm:*"], "autoAllowBashIfSandboxed": false}"#;
        let line = |command| SandboxQuery { command, ..WANTED };
        check(settings, line("docker"), Outside(UnsandboxedReason::Excluded));
        check(settings, line("docker ps"), Sandboxed(RunConsent::Needed));
        check(settings, line("npm run lint && docker"), Outside(UnsandboxedReason::Excluded));
        check(settings, line("npm run lint && curl evil.com"), Sandboxed(RunConsent::Needed));
        check(settings, line(" \n"), Outside(UnsandboxedReason::Empty));
        check(settings, line("npm 'x"), Sandboxed(RunConsent::Needed));
    }
}
