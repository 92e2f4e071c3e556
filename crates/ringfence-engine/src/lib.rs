//! The lifecycle of a command, from a frontend's request to an outcome.
//!
//! Gathers the facts, resolves the policy, opens a sandbox, refuses unenforceable policies, records
//! and runs. Prints nothing; `host` and `caches` have the code for a specific operating system.

#![forbid(unsafe_code)]

mod agents;
mod asking;
mod caches;
mod command_config;
mod command_guard;
mod company;
mod configure;
mod direct_exec;
mod error;
mod fail_fast;
mod files;
mod foreign;
mod git_environment;
mod gitconfig;
mod host;
pub mod learn;
mod own_policy;
mod package_settings;
mod permanent_grant;
mod policy_cache;
mod project_root;
mod provider_registry;
mod recorder;
mod run;
mod run_streamed;
pub mod session;
#[cfg(test)]
mod testing;
mod tool_directories;
mod variables;

pub use agents::{AgentDefinition, UnreadableDefinition, find_agent, list_agents};
pub use asking::{can_be_asked, permission_for_outcome};
pub use caches::{Cleared, ProjectCaches, clear_caches, list_caches};
pub use command_guard::with_directory_report;
pub use company::{FilteredVariable, filtered_variables, value_decision};
pub use configure::{
    PolicyScope, SettingChange, SettingEdit, configure, configured_settings, policy_file,
    replace_policy,
};
pub use error::EngineError;
pub use files::{
    PolicyFiles, policy_file_paths, read_file_and_settings, read_file_layers, read_layers,
    read_regular_file, user_policy_file,
};
pub use foreign::{AppliedSettings, FoundSettings, found_settings, settings_files};
pub use host::{HostEnvironment, gather_host_environment, platform};
pub use learn::{LearnedPolicy, LearnedRule, learn};
pub use own_policy::{
    EnclosingPolicy, OwnPolicy, OwnPolicyState, existing_enclosing_policies, is_enclosing_policy,
    new_own_policy, own_policies, own_policy_file, own_policy_file_for,
};
pub use package_settings::{WithheldSettings, withheld_settings};
pub use permanent_grant::{
    AllowError, Amendment, GrantTarget, PermanentGrant, Permitted, allow_permanent,
    allow_target_permanent,
};
pub use policy_cache::CachedPolicy;
pub use provider_registry::ProviderRegistry;
pub use recorder::policy_digest;
pub use run::{NoticeFn, RunNotice, SandboxPreview, plan, run};
pub use run_streamed::{RunObserver, run_streamed};

use std::ffi::OsString;
use std::sync::Arc;

use ringfence_api::{Asker, SettingsCopy, StdioMode};
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, Flags, Grants, Origin, PolicyError, PolicyLayer, ProviderSpec,
    Rule, Source, Verdict, resolve, resolve_to_inspect,
};
use tracing::{debug, info, trace_span};

use files::read_layers_and_agent;
use foreign::ExtendedLayers;

/// A request of a frontend.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Program and arguments; never empty.
    pub command: Vec<OsString>,
    /// The caller's working directory.
    pub cwd: AbsPath,
    /// The flags of this run.
    pub flags: Flags,
    /// The policy files that apply.
    pub files: PolicyFiles,
    /// The standard streams of the command.
    pub stdio: StdioMode,
    /// Asks the user about denials, if set.
    pub asker: Option<Arc<dyn Asker>>,
    /// The agent that made the request, if it is known.
    pub agent: Option<String>,
    /// The name of this run; see [`ringfence_audit::session_id`].
    pub session: String,
}

/// The policy as resolved for one command.
#[derive(Debug, Clone)]
pub struct ResolvedPolicy {
    /// The resolved rules.
    pub grants: Grants,
    /// The host, the user and the project.
    pub surroundings: HostEnvironment,
    /// The policy files that apply, weakest first, with the settings of other tools that they
    /// extend.
    pub files: Vec<AbsPath>,
    /// Settings of other tools that would apply if they existed.
    pub absent: Vec<AbsPath>,
}

impl ResolvedPolicy {
    /// The same policy with the sandbox turned off; `off` is recorded as the reason.
    pub fn without_sandbox(mut self, off: Origin) -> Self {
        self.grants.enabled = false;
        self.grants.sandbox.off = Some(off);
        self
    }

    /// False if commands run without a sandbox: by the policy, or by its provider.
    pub fn is_confined(&self) -> bool {
        self.grants.is_confined() && self.grants.sandbox.provider.name != ProviderSpec::PROCESS
    }

    /// Copies of package managers' settings without secrets. The sandbox sees them instead of the
    /// files.
    pub fn settings_copies(&self) -> Vec<SettingsCopy> {
        package_settings::settings_copies(&self.surroundings.facts, &self.grants)
    }
}

/// Reads the policy files and resolves them for `cwd`.
pub fn resolve_for(
    cwd: &AbsPath,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    resolve_in(gather_host_environment(cwd)?, flags, files)
}

/// As [`resolve_for`], with the host environment already known.
pub fn resolve_in(
    surroundings: HostEnvironment,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    resolve_with(resolve, surroundings, flags, files)
}

/// As [`resolve_in`], to show the policy without a command. Also allowed in the home directory.
pub fn inspect_in(
    surroundings: HostEnvironment,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    resolve_with(resolve_to_inspect, surroundings, flags, files)
}

type ResolveFn = fn(&[PolicyLayer], &Flags, &Facts) -> Result<Grants, PolicyError>;

fn resolve_with(
    resolve: ResolveFn,
    surroundings: HostEnvironment,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    let _stage = trace_span!(target: "stage", "resolve_with").entered();
    let (extended, described) = read_layers_and_agent(files, &surroundings.facts)?;
    let ExtendedLayers { layers, absent } = extended;
    for layer in &layers {
        debug!(target: "engine", file = %layer.file, "read a policy file");
    }
    let mut grants = resolve(&layers, flags, &surroundings.facts)?;
    if flags.enabled == Some(false) {
        let plain = Flags { enabled: None, ..flags.clone() };
        let plain = resolve(&layers, &plain, &surroundings.facts)?;
        if plain.is_confined() && !plain.sandbox.allow_unsandboxed {
            return Err(EngineError::SandboxRequired);
        }
    }
    let settings = host::config_directory(&surroundings.facts).join("ringfence");
    let configured = surroundings
        .facts
        .variables
        .get("XDG_CONFIG_HOME")
        .and_then(AbsPath::new)
        .map(|config| config.join("ringfence"));
    if configured.is_some_and(|configured| configured != settings && configured.as_path().exists())
    {
        grants.warnings.push("ignored XDG_CONFIG_HOME: it points into the project, whose files do not have your authority".into());
    }
    if grants.rules.iter().all(|rule| rule.root != settings) {
        // The same rule as for `~/.config/ringfence`, for a moved directory.
        let origin = Origin::new(Source::BuiltIn, settings.to_string());
        grants.rules.push(Rule { root: settings, effect: Effect::Deny, origin, locked: false });
    }
    if files.service.is_none() {
        own_policy::protect_targets(&mut grants, &surroundings.facts);
    }
    foreign::protect_settings(&mut grants, &layers, &absent, &surroundings.facts);
    if let Some(described) = &described {
        described.refuse_writable(&grants)?;
    }
    if let Some(owner) = host::foreign_owner(&surroundings.facts.workspace) {
        grants.warnings.push(format!(
            "the project belongs to user {owner}, and root in a sandbox cannot access files of other users: run ringfence as that user"
        ));
    }
    refuse_writable_log(&grants)?;
    info!(
        target: "engine",
        workspace = %grants.workspace,
        mode = ?grants.mode,
        network = ?grants.network.mode,
        rules = grants.rules.len(),
        "resolved the policy"
    );
    Ok(ResolvedPolicy {
        grants,
        surroundings,
        files: layers.into_iter().map(|layer| layer.file).collect(),
        absent,
    })
}

/// Refuses a log file that commands can write: they could forge lines, or put a link in its place.
fn refuse_writable_log(grants: &Grants) -> Result<(), EngineError> {
    let Some(file) = ringfence_log::log_file().and_then(AbsPath::new) else { return Ok(()) };
    let is_written_on_host =
        grants.opening_rule(&file).is_some_and(|rule| rule.effect == Effect::Write);
    match grants.verdict(&file, Access::Write) {
        Verdict::Allowed if grants.is_confined() && is_written_on_host => {
            Err(EngineError::LogExposed { file })
        }
        _ => Ok(()),
    }
}
