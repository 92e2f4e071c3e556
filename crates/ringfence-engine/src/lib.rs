//! The lifecycle of a command, from a frontend's request to an outcome.
//!
//! Gathers the facts, resolves the policy, opens a sandbox, refuses unenforceable policies, records
//! and runs. Prints nothing and has no code for a specific operating system.

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
mod git_environment;
mod gitconfig;
mod host;
pub mod learn;
mod own_policy;
mod package_settings;
mod permanent_grant;
mod policy_cache;
mod recorder;
mod run_streamed;
pub mod session;
#[cfg(test)]
mod testing;
mod tool_directories;

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
    PolicyFiles, policy_file_paths, read_file_layers, read_layers, read_regular_file,
    user_policy_file,
};
pub use host::{HostEnvironment, gather_host_environment, platform};
pub use learn::{LearnedPolicy, LearnedRule, learn};
pub use own_policy::{
    OwnPolicy, OwnPolicyState, new_own_policy, own_policies, own_policy_file, own_policy_file_for,
};
pub use permanent_grant::{
    AllowError, Amendment, GrantTarget, PermanentGrant, Permitted, allow_permanent,
    allow_target_permanent,
};
pub use policy_cache::CachedPolicy;
pub use recorder::policy_digest;
pub use run_streamed::{RunObserver, run_streamed};

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Asker, CommandRequest, Gap, GapKind, Outcome, StdioMode};
use ringfence_audit::AuditError;
use ringfence_plan::{Plan, SettingsCopy};
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, Flags, Grants, OnGap, Origin, PolicyError, PolicyLayer, Rule,
    Source, Verdict, resolve, resolve_to_inspect,
};
use ringfence_provider::{PreparedSandbox, Provider};
use tracing::{debug, info};

use asking::RecordingAsker;
use files::read_layers_and_agent;
use recorder::RunRecorder;

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
    /// The policy files that apply, weakest first.
    pub files: Vec<AbsPath>,
}

impl ResolvedPolicy {
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
    let (layers, described) = read_layers_and_agent(files, &surroundings.facts)?;
    for layer in &layers {
        debug!(target: "engine", file = %layer.file, "read a policy file");
    }
    let mut grants = resolve(&layers, flags, &surroundings.facts)?;
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
    if let Some(described) = &described {
        described.refuse_writable(&grants)?;
    }
    if let Some(owner) = host::foreign_owner(&surroundings.facts.workspace) {
        grants.warnings.push(format!(
            "the project belongs to user {owner}, and root in a sandbox cannot access files of other users: run ringfence as that user"
        ));
    }
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
    })
}

/// The plan: the rules that would be enforced, and the gaps.
pub fn plan(provider: &dyn Provider, resolved: &ResolvedPolicy) -> Result<Plan, EngineError> {
    let mut plan = open(provider, resolved)?.plan().clone();
    plan.gaps.extend(output_gap(&resolved.grants, StdioMode::Inherit));
    Ok(plan)
}

fn open(
    provider: &dyn Provider,
    resolved: &ResolvedPolicy,
) -> Result<Box<dyn PreparedSandbox>, EngineError> {
    let user = resolved.surroundings.sandbox_user(&resolved.grants);
    let prepared = provider.open(&resolved.grants, &user)?;
    let plan = prepared.plan();
    let (steps, gaps) = (plan.steps.len(), plan.gaps.len());
    debug!(target: "engine", backend = provider.name(), steps, gaps, "planned the sandbox");
    for gap in &plan.gaps {
        info!(target: "engine", what = gap.what, why = gap.why, "gap");
    }
    Ok(prepared)
}

/// Runs one command, from the first audit record to the last.
///
/// `on_audit_error` receives audit errors that do not stop the run: the policy says so, or the
/// command has already run.
pub fn run(
    provider: &dyn Provider,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    on_audit_error: &mut dyn FnMut(&AuditError),
) -> Result<Outcome, EngineError> {
    let mut recorder = RunRecorder::open(request, resolved, on_audit_error)?;
    let result = run_recorded(provider, request, resolved, &mut recorder);
    recorder.finish(&result);
    result
}

fn run_recorded(
    provider: &dyn Provider,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    recorder: &mut RunRecorder<'_>,
) -> Result<Outcome, EngineError> {
    let grants = &resolved.grants;
    if let Some(refused) =
        command_guard::check_command(grants, command_guard::CommandText::Words(&request.command))
    {
        return Ok(refused);
    }
    let mut session = open(provider, resolved)?;
    let output_gaps = output_gap(grants, request.stdio);
    let gaps: Vec<Gap> = session.plan().gaps.iter().cloned().chain(output_gaps.clone()).collect();
    check_gaps(&gaps, grants.on_gap)?;
    let command_request = CommandRequest {
        command: request.command.clone(),
        cwd: request.cwd.clone(),
        variables: variables(grants, &request.cwd, resolved),
        stdio: limit_capture(request.stdio, grants.limits.output),
        deadline: grants.limits.wall_ms.map(Duration::from_millis),
    };
    // Written before the command starts: a crash may leave a record without a command, never a
    // command without a record.
    recorder.begin(&gaps)?;
    if let Some(asker) = &request.asker {
        session.set_asker(Arc::new(RecordingAsker::new(
            asker.clone(),
            request,
            resolved,
            Arc::default(),
        )));
    }
    match session.run(&command_request) {
        Ok(mut outcome) => {
            outcome.gaps.extend(output_gaps);
            Ok(outcome)
        }
        Err(error) => {
            recorder.refused_before = session.take_denials();
            Err(error.into())
        }
    }
}

/// Refuses gaps that the policy does not accept. A gap in reporting only is always accepted.
pub fn check_gaps(gaps: &[Gap], on_gap: OnGap) -> Result<(), EngineError> {
    let refusing: Vec<Gap> = gaps.iter().filter(|gap| gap.refuses_run()).cloned().collect();
    match on_gap {
        OnGap::Refuse if !refusing.is_empty() => Err(EngineError::Gaps { gaps: refusing }),
        OnGap::Refuse | OnGap::Run => Ok(()),
    }
}

/// Limits the captured output to the policy's limit.
fn limit_capture(stdio: StdioMode, limit: Option<u64>) -> StdioMode {
    match (stdio, limit.and_then(|limit| usize::try_from(limit).ok())) {
        (StdioMode::Capture { limit }, Some(most)) => StdioMode::Capture { limit: limit.min(most) },
        (stdio, _) => stdio,
    }
}

/// The gap of `limits.output` with inherited standard streams, which cannot be counted.
fn output_gap(grants: &Grants, stdio: StdioMode) -> Option<Gap> {
    let is_uncounted =
        grants.is_confined() && grants.limits.output.is_some() && stdio == StdioMode::Inherit;
    is_uncounted.then(|| Gap {
        what: "limits.output".into(),
        why: "the command writes to your own standard streams, which ringfence does not count"
            .into(),
        hint: "use `--json`, remove it from [limits], or accept with `--on-gap run`".into(),
        loss: GapKind::Enforcement,
    })
}

/// The environment variables that pass the filter, and those set by ringfence.
fn variables(
    grants: &Grants,
    cwd: &AbsPath,
    resolved: &ResolvedPolicy,
) -> Vec<(OsString, OsString)> {
    if !grants.is_confined() {
        return resolved.surroundings.variables.clone();
    }
    let mut variables = grants.environment.filter(resolved.surroundings.variables.iter().cloned());
    // A shell accesses `OLDPWD` when it starts. The command did not ask for that access.
    let is_open = |path: &OsString| {
        AbsPath::new(path)
            .is_some_and(|path| grants.verdict(&path, Access::Read) == Verdict::Allowed)
    };
    variables.retain(|(name, value)| {
        name != "OLDPWD" || grants.environment.set.contains_key("OLDPWD") || is_open(value)
    });
    let mut set = |name: &str, value: OsString| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value));
    };
    set("PWD", cwd.as_path().into());
    // In a service the policy sets `HOME`, because tenants have no home directory.
    if !grants.environment.set.contains_key("HOME") {
        set("HOME", grants.home.as_path().into());
    }
    if !grants.environment.clean {
        set("TMPDIR", "/tmp".into());
        set("RINGFENCE", "1".into());
        company::add_public_variables(&mut variables, resolved);
        git_environment::add_settings(&mut variables);
        stop_update_checks(&mut variables);
        tool_directories::add_settings(&mut variables, grants);
        fail_fast::add_settings(&mut variables, &grants.network);
    }
    variables
}

/// Keeps npm from querying the registry for a newer npm: without network the denial would look like
/// the reason of a failure. Independent of the network rules, because these may change during a
/// session and the environment of its shell does not.
fn stop_update_checks(variables: &mut Vec<(OsString, OsString)>) {
    const NAME: &str = "npm_config_update_notifier";
    if !variables.iter().any(|(name, _)| name.eq_ignore_ascii_case(NAME)) {
        variables.push((NAME.into(), "false".into()));
    }
}
