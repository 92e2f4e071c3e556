//! The choice between running in a sandbox and running without one.

use ringfence_api::Outcome;
use ringfence_cmdline::{
    SandboxAbility, SandboxChoice, SandboxQuery, SandboxSettings, SandboxWish, should_use_sandbox,
};
use ringfence_engine::{EngineError, ResolvedPolicy};
use ringfence_policy::{Origin, Source};
use ringfence_provider::ProviderError;

use crate::args::RunArgs;
use crate::commands::resolve_args::{ResolvedArgs, RunOverrides, resolve_for_run};
use crate::error::CliError;

/// The value of `--sandbox` and `--no-sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxFlag {
    /// Neither flag: the policy decides.
    FromPolicy,
    /// `--sandbox`.
    Required,
    /// `--no-sandbox`.
    Disabled,
}

/// The author of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandAuthor {
    /// The user, or the user's own settings.
    User,
    /// A file of the project, which is untrusted: the command runs in a sandbox or not at all.
    Project,
}

/// Resolves the policy, with a sandbox or without one.
pub(super) fn resolve_policy(
    arguments: &RunArgs,
    (sandbox_flag, author): (SandboxFlag, CommandAuthor),
    chosen: RunOverrides<'_>,
) -> Result<ResolvedArgs, CliError> {
    let mut resolved_args = match sandbox_flag {
        SandboxFlag::FromPolicy => resolve_for_run(&arguments.policy, chosen)?,
        SandboxFlag::Required => {
            let resolved_args =
                resolve_for_run(&arguments.policy, RunOverrides { sandbox: Some(true), ..chosen })?;
            if !resolved_args.resolved.grants.is_confined() {
                return Err(sandbox_contradicts_policy());
            }
            resolved_args
        }
        SandboxFlag::Disabled => {
            let ResolvedPolicy { grants, surroundings, .. } =
                resolve_for_run(&arguments.policy, chosen)?.resolved;
            // The rules for excluded commands are for the agent's commands, not for the agent.
            let settings = SandboxSettings {
                excluded_commands: Vec::new(),
                ..SandboxSettings::from_grants(&grants)
            };
            let wanted = SandboxQuery {
                command: "agent",
                request: SandboxWish::Unsandboxed,
                platform: surroundings.facts.platform,
                ability: SandboxAbility::Available,
            };
            match should_use_sandbox(&settings, wanted) {
                SandboxChoice::Unsandboxed(_) => resolve_for_run(
                    &arguments.policy,
                    RunOverrides { sandbox: Some(false), ..chosen },
                )?,
                SandboxChoice::Sandboxed(_) | SandboxChoice::Refused => {
                    return Err(sandbox_is_required());
                }
            }
        }
    };
    if author == CommandAuthor::Project && !resolved_args.resolved.grants.is_confined() {
        return Err(project_command_unconfined());
    }
    resolved_args.resolved.grants.sandbox.is_required |= author == CommandAuthor::Project;
    Ok(resolved_args)
}

/// Returns the policy without a sandbox, if none could be created and the policy accepts that.
pub(super) fn without_sandbox(
    ended: &Result<Outcome, EngineError>,
    resolved: &ResolvedPolicy,
    author: CommandAuthor,
) -> Option<ResolvedPolicy> {
    let rules = &resolved.grants.sandbox;
    let is_unavailable =
        matches!(ended, Err(EngineError::Provider(ProviderError::NotStarted { .. })));
    if !is_unavailable || rules.fail_if_unavailable || author == CommandAuthor::Project {
        return None;
    }
    let mut outside = resolved.clone();
    outside.grants.enabled = false;
    outside.grants.sandbox.off =
        Some(Origin::new(Source::User, "fail-if-unavailable = false, and no sandbox is available"));
    Some(outside)
}

fn sandbox_contradicts_policy() -> CliError {
    CliError::Usage {
        what: "`--sandbox` requires a sandbox, but the policy turns it off".into(),
        hint: "`ringfence policy show --origin` shows which file or flag turned it off".into(),
    }
}

fn project_command_unconfined() -> CliError {
    CliError::Usage {
        what: "a command from a project's agent definition must run in a sandbox".into(),
        hint: "add `--sandbox`, or type the command yourself after `--`".into(),
    }
}

fn sandbox_is_required() -> CliError {
    CliError::Usage {
        what: "the policy does not allow running without a sandbox".into(),
        hint: "omit `--no-sandbox`, or run `ringfence configure --global set sandbox.allow-unsandboxed-commands true`".into(),
    }
}
