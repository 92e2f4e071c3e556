//! Whether a command runs in a sandbox, where somebody has a say in that.

use ringfence_api::Outcome;
use ringfence_engine::{EngineError, ResolvedPolicy};
use ringfence_policy::command::{
    SandboxAbility, SandboxChoice, SandboxQuery, SandboxSettings, SandboxWish, should_use_sandbox,
};
use ringfence_policy::{Origin, Source};
use ringfence_provider::ProviderError;

use crate::args::RunArgs;
use crate::commands::resolve_args::{ResolvedArgs, RunOverrides, meant_to_run};
use crate::error::CliError;

/// Whether somebody says that there is to be a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxFlag {
    /// Nobody does: the policy decides.
    AsWritten,
    /// There is to be one.
    Wanted,
    /// There is to be none.
    Unwanted,
}

/// Who has chosen the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandAuthor {
    /// Whoever runs it, or their own settings.
    Persons,
    /// A file of the project, which is anybody's: it runs in a sandbox or not at all.
    Projects,
}

/// The policy, with a sandbox or without.
pub(super) fn walled(
    arguments: &RunArgs,
    (wall, whose): (SandboxFlag, CommandAuthor),
    chosen: RunOverrides<'_>,
) -> Result<ResolvedArgs, CliError> {
    let meant = match wall {
        SandboxFlag::AsWritten => meant_to_run(&arguments.policy, chosen)?,
        SandboxFlag::Wanted => {
            let meant =
                meant_to_run(&arguments.policy, RunOverrides { sandbox: Some(true), ..chosen })?;
            if !meant.resolved.grants.is_confined() {
                return Err(contradiction());
            }
            meant
        }
        SandboxFlag::Unwanted => {
            let ResolvedPolicy { grants, surroundings, .. } =
                meant_to_run(&arguments.policy, chosen)?.resolved;
            // What the agent itself is, is none of its commands: none of those rules excludes it.
            let settings =
                SandboxSettings { excluded_commands: Vec::new(), ..grants.sandbox_settings() };
            let wanted = SandboxQuery {
                command: "agent",
                wish: SandboxWish::Unsandboxed,
                platform: surroundings.facts.platform,
                ability: SandboxAbility::Available,
            };
            match should_use_sandbox(&settings, wanted) {
                SandboxChoice::Unsandboxed(_) => meant_to_run(
                    &arguments.policy,
                    RunOverrides { sandbox: Some(false), ..chosen },
                )?,
                SandboxChoice::Sandboxed(_) | SandboxChoice::Refused => return Err(not_without()),
            }
        }
    };
    if whose == CommandAuthor::Projects && !meant.resolved.grants.is_confined() {
        return Err(not_the_projects());
    }
    Ok(meant)
}

/// The same policy without a sandbox, where none could be made and the policy accepts that.
pub(super) fn outside(
    ended: &Result<Outcome, EngineError>,
    resolved: &ResolvedPolicy,
    whose: CommandAuthor,
) -> Option<ResolvedPolicy> {
    let rules = &resolved.grants.sandbox;
    let is_unavailable =
        matches!(ended, Err(EngineError::Provider(ProviderError::NotStarted { .. })));
    if !is_unavailable || rules.fail_if_unavailable || whose == CommandAuthor::Projects {
        return None;
    }
    let mut outside = resolved.clone();
    outside.grants.enabled = false;
    outside.grants.sandbox.off =
        Some(Origin::new(Source::User, "fail-if-unavailable = false, and none can be made here"));
    Some(outside)
}

fn contradiction() -> CliError {
    CliError::Words {
        what: "`--sandbox` asks for confinement, and the policy is to confine nothing".into(),
        hint: "`ringfence policy show --origin` says who switched confinement off".into(),
    }
}

fn not_the_projects() -> CliError {
    CliError::Words {
        what: "what a project's definition runs is confined or does not run".into(),
        hint: "add `--sandbox`, or type the command yourself behind `--`".into(),
    }
}

fn not_without() -> CliError {
    CliError::Words {
        what: "the policy does not allow to run without a sandbox".into(),
        hint: "leave out `--no-sandbox`, or `ringfence configure --global set sandbox.allow-unsandboxed-commands true`".into(),
    }
}
