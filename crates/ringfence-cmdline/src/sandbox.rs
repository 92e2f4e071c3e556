//! Decides if a command of an agent's shell runs in the sandbox.

use ringfence_policy::{Grants, Platform, ProviderSpec};
use serde::Deserialize;

use super::ParsedLine;
use super::excluded::{Exclusion, check_exclusion};

/// Settings for the decision, as in `sandbox` of a `settings.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxSettings {
    /// True if the sandbox is enabled.
    pub enabled: bool,
    /// If set, the only platforms with a sandbox.
    pub enabled_platforms: Option<Vec<Platform>>,
    /// True if nothing runs when no sandbox can be created.
    pub fail_if_unavailable: bool,
    /// True if a command may request to run unsandboxed.
    pub allow_unsandboxed_commands: bool,
    /// True if sandboxed commands need no consent of the user.
    pub auto_allow_bash_if_sandboxed: bool,
    /// Commands that run outside the sandbox: `npm run lint`, `npm run test:*`, `docker*`.
    pub excluded_commands: Vec<String>,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            enabled_platforms: None,
            fail_if_unavailable: true,
            // A confined agent must not disable its own sandbox unless the user permits it.
            allow_unsandboxed_commands: false,
            auto_allow_bash_if_sandboxed: true,
            excluded_commands: Vec::new(),
        }
    }
}

impl SandboxSettings {
    /// The settings of a resolved policy.
    pub fn from_grants(grants: &Grants) -> Self {
        Self {
            enabled: grants.is_confined(),
            // `enabled` already accounts for the platform.
            enabled_platforms: None,
            fail_if_unavailable: grants.sandbox.fail_if_unavailable,
            allow_unsandboxed_commands: grants.sandbox.allow_unsandboxed,
            // Without confinement the user's consent is needed.
            auto_allow_bash_if_sandboxed: grants.sandbox.auto_allow
                && grants.sandbox.provider.name != ProviderSpec::PROCESS,
            excluded_commands: grants
                .commands
                .excluded
                .iter()
                .map(|origin| origin.text.clone())
                .collect(),
        }
    }
}

/// A command that an agent wants to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxQuery<'a> {
    /// The shell command line.
    pub command: &'a str,
    /// Requested sandbox use (`dangerouslyDisableSandbox`).
    pub request: SandboxWish,
    /// The current platform.
    pub platform: Platform,
    /// Availability of the sandbox on this host.
    pub ability: SandboxAbility,
}

/// Requested sandbox use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxWish {
    /// No request.
    #[default]
    Default,
    /// Run without a sandbox.
    Unsandboxed,
}

/// Availability of the sandbox on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxAbility {
    /// A sandbox can be created.
    Available,
    /// No sandbox can be created.
    Unavailable,
}

/// Decision for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxChoice {
    /// Run in the sandbox.
    Sandboxed(RunConsent),
    /// Run outside the sandbox.
    Unsandboxed(UnsandboxedReason),
    /// Do not run: a sandbox is required and not available.
    Refused,
}

/// Need for the user's consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunConsent {
    /// No consent needed: the sandbox confines the command.
    Given,
    /// Consent needed, as for any command.
    Needed,
}

/// Reason for which a command runs outside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsandboxedReason {
    /// The sandbox is disabled.
    Disabled,
    /// The sandbox is not enabled on this platform.
    OtherPlatform,
    /// The sandbox is not available, and the settings accept that.
    Unavailable,
    /// The command requested it, and the settings permit it.
    Asked,
    /// The command line is empty.
    Empty,
    /// Every part of the command is excluded.
    Excluded,
}

/// Decides if a command runs in the sandbox, outside, or not at all.
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
    if wanted.request == SandboxWish::Unsandboxed && settings.allow_unsandboxed_commands {
        return Outside(UnsandboxedReason::Asked);
    }
    // A shell reads any other whitespace as the name of a program.
    if wanted.command.chars().all(|c| " \t\n".contains(c)) {
        return Outside(UnsandboxedReason::Empty);
    }
    let line = ParsedLine::parse(wanted.command);
    if matches!(check_exclusion(line.as_ref(), &settings.excluded_commands), Exclusion::Outside(_))
    {
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
    use ringfence_policy::{AbsPath, Facts, Flags, Origin, Source, resolve};

    use super::*;

    const WANTED: SandboxQuery<'_> = SandboxQuery {
        command: "docker ps",
        request: SandboxWish::Default,
        platform: Platform::Linux,
        ability: SandboxAbility::Available,
    };

    #[track_caller]
    fn check(settings: &str, wanted: SandboxQuery<'_>, expect: SandboxChoice) {
        let settings: SandboxSettings = serde_json::from_str(settings).unwrap();
        assert_eq!(should_use_sandbox(&settings, wanted), expect);
    }

    #[test]
    fn settings_follow_resolved_policy() {
        let path = |text| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(path("/home/me/p"), path("/home/me"), path("/home/me/.cache/p"));
        let mut grants = resolve(&[], &Flags::none(path("/home/me/p")), &facts).unwrap();
        assert_eq!(SandboxSettings::from_grants(&grants), SandboxSettings::default());
        grants.enabled = false;
        grants.sandbox.fail_if_unavailable = false;
        grants.sandbox.allow_unsandboxed = true;
        grants.sandbox.auto_allow = false;
        grants.commands.excluded = vec![Origin::new(Source::User, "docker*")];
        let expect = SandboxSettings {
            enabled: false,
            enabled_platforms: None,
            fail_if_unavailable: false,
            allow_unsandboxed_commands: true,
            auto_allow_bash_if_sandboxed: false,
            excluded_commands: vec!["docker*".into()],
        };
        assert_eq!(SandboxSettings::from_grants(&grants), expect);
    }

    #[test]
    fn availability_of_sandbox_is_checked_first() {
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

    /// Promise: excluded-lines
    #[test]
    fn unsandboxed_request_needs_permission() {
        use SandboxChoice::{Sandboxed, Unsandboxed as Outside};
        let asking = SandboxQuery { request: SandboxWish::Unsandboxed, ..WANTED };
        check("{}", asking, Sandboxed(RunConsent::Given));
        check(r#"{"allowUnsandboxedCommands": false}"#, asking, Sandboxed(RunConsent::Given));
        check(r#"{"allowUnsandboxedCommands": true}"#, asking, Outside(UnsandboxedReason::Asked));
        check(r#"{"allowUnsandboxedCommands": true}"#, WANTED, Sandboxed(RunConsent::Given));
    }

    /// Promise: excluded-lines
    #[test]
    fn only_fully_excluded_lines_run_outside_sandbox() {
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
