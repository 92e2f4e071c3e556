//! The life of a command, from the words of a door to an outcome.
//!
//! Gathers what the policy has to know, resolves it, opens a place, refuses what cannot be
//! enforced, records, runs. Prints nothing and knows no operating system by name.

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

pub use agents::{AgentDefinition, UnreadableDefinition, agent, agents};
pub use asking::{is_asked_about, permission};
pub use caches::{Cleared, ProjectCaches, caches, clear_caches};
pub use command_guard::telling_directory;
pub use company::{FilteredVariable, filtered_variables, value_decision};
pub use configure::{
    PolicyScope, SettingChange, SettingEdit, configure, configured, policy_file, replace_policy,
};
pub use error::EngineError;
pub use files::{PolicyFiles, layers, layers_of, of_the_person, places, read_plain};
pub use host::{HostEnvironment, gather, platform};
pub use learn::{LearnedPolicy, LearnedRule, learn};
pub use own_policy::{
    OwnPolicy, OwnPolicyState, new_own_policy, own_policies, own_policy_file, own_policy_file_of,
};
pub use permanent_grant::{
    AllowError, Amendment, GrantTarget, PermanentGrant, Permitted, allow_permanent, open_for_good,
};
pub use policy_cache::CachedPolicy;
pub use recorder::policy_digest;
pub use run_streamed::{RunObserver, run_watched};

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Asker, CommandRequest, Gap, GapKind, Outcome, StdioMode};
use ringfence_audit::AuditError;
use ringfence_enforce::{Plan, SettingsCopy};
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, Flags, Grants, OnGap, Origin, PolicyError, PolicyLayer, Rule,
    Source, Verdict, resolve, resolve_to_inspect,
};
use ringfence_provider::{PreparedSandbox, Provider};

use asking::RecordingAsker;
use files::layers_and_agent;
use recorder::RunRecorder;

/// What a door asks for.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Program and arguments; never empty.
    pub command: Vec<OsString>,
    /// Where the person stands.
    pub cwd: AbsPath,
    /// The flags of this run.
    pub flags: Flags,
    /// Which policy files count.
    pub files: PolicyFiles,
    /// Where input and output go.
    pub stdio: StdioMode,
    /// Who is asked about what is refused, if anybody is.
    pub asker: Option<Arc<dyn Asker>>,
    /// On whose behalf, if they said.
    pub agent: Option<String>,
    /// The name of this run; see [`ringfence_audit::session_id`].
    pub session: String,
}

/// A policy as it stands for one command.
#[derive(Debug, Clone)]
pub struct ResolvedPolicy {
    /// What the policy means here.
    pub grants: Grants,
    /// The machine, the user, the project.
    pub surroundings: HostEnvironment,
    /// The policy files that count, weakest first.
    pub files: Vec<AbsPath>,
}

impl ResolvedPolicy {
    /// Copies of package managers' settings without their secrets, which the sandbox has in place
    /// of the files.
    pub fn settings_copies(&self) -> Vec<SettingsCopy> {
        package_settings::copies(&self.surroundings.facts, &self.grants)
    }
}

/// Reads the policy files and resolves them for `cwd`.
pub fn resolve_for(
    cwd: &AbsPath,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    resolve_in(gather(cwd)?, flags, files)
}

/// The same where it is known what is around.
pub fn resolve_in(
    surroundings: HostEnvironment,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    resolve_with(resolve, surroundings, flags, files)
}

/// The same for showing what holds, where no command is to run: also in the home directory.
pub fn inspect_in(
    surroundings: HostEnvironment,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    resolve_with(resolve_to_inspect, surroundings, flags, files)
}

type Resolve = fn(&[PolicyLayer], &Flags, &Facts) -> Result<Grants, PolicyError>;

fn resolve_with(
    resolve: Resolve,
    surroundings: HostEnvironment,
    flags: &Flags,
    files: &PolicyFiles,
) -> Result<ResolvedPolicy, EngineError> {
    let (layers, described) = layers_and_agent(files, &surroundings.facts)?;
    let mut grants = resolve(&layers, flags, &surroundings.facts)?;
    let settings = host::config_directory(&surroundings.facts).join("ringfence");
    let asked = surroundings
        .facts
        .variables
        .get("XDG_CONFIG_HOME")
        .and_then(AbsPath::new)
        .map(|config| config.join("ringfence"));
    if asked.is_some_and(|asked| asked != settings && asked.as_path().exists()) {
        grants.warnings.push("XDG_CONFIG_HOME leads into the project, and what is there does not speak for you: it is not obeyed".into());
    }
    if grants.rules.iter().all(|rule| rule.root != settings) {
        // As for `~/.config/ringfence`, wherever it was moved.
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
            "the project belongs to user {owner}, and root in a sandbox has no power over other people's files: run ringfence as that user"
        ));
    }
    Ok(ResolvedPolicy {
        grants,
        surroundings,
        files: layers.into_iter().map(|layer| layer.file).collect(),
    })
}

/// What would be enforced.
pub fn plan(provider: &dyn Provider, resolved: &ResolvedPolicy) -> Result<Plan, EngineError> {
    let mut plan = open(provider, resolved)?.plan().clone();
    plan.gaps.extend(output_gap(&resolved.grants, StdioMode::Inherit));
    Ok(plan)
}

fn open(
    provider: &dyn Provider,
    resolved: &ResolvedPolicy,
) -> Result<Box<dyn PreparedSandbox>, EngineError> {
    Ok(provider.open(&resolved.grants, &resolved.surroundings.person(&resolved.grants))?)
}

/// The whole life of one command.
///
/// `tell` hears what could not be recorded and stops nobody: because the policy says so, or
/// because the command has run already.
pub fn run(
    provider: &dyn Provider,
    asked: &RunRequest,
    resolved: &ResolvedPolicy,
    tell: &mut dyn FnMut(&AuditError),
) -> Result<Outcome, EngineError> {
    let mut book = RunRecorder::open(asked, resolved, tell)?;
    let result = attempt(provider, asked, resolved, &mut book);
    book.finish(&result);
    result
}

fn attempt(
    provider: &dyn Provider,
    asked: &RunRequest,
    resolved: &ResolvedPolicy,
    book: &mut RunRecorder<'_>,
) -> Result<Outcome, EngineError> {
    let grants = &resolved.grants;
    if let Some(refused) =
        command_guard::refused(grants, command_guard::CommandText::Words(&asked.command))
    {
        return Ok(refused);
    }
    let mut session = open(provider, resolved)?;
    let of_output = output_gap(grants, asked.stdio);
    let gaps: Vec<Gap> = session.plan().gaps.iter().cloned().chain(of_output.clone()).collect();
    accept(&gaps, grants.on_gap)?;
    let request = CommandRequest {
        command: asked.command.clone(),
        cwd: asked.cwd.clone(),
        variables: variables(grants, &asked.cwd, resolved),
        stdio: kept(asked.stdio, grants.limits.output),
        deadline: grants.limits.wall_ms.map(Duration::from_millis),
    };
    // Written before the command starts: a crash leaves a record of what was about to
    // happen, never a command without a record.
    book.begin(&gaps)?;
    if let Some(asker) = &asked.asker {
        session.ask(Arc::new(RecordingAsker::new(asker.clone(), asked, resolved, Arc::default())));
    }
    match session.run(&request) {
        Ok(mut outcome) => {
            outcome.gaps.extend(of_output);
            Ok(outcome)
        }
        Err(error) => {
            book.refused_before = session.refused();
            Err(error.into())
        }
    }
}

/// Refuses what the policy does not accept. What is only not told of stops nobody.
pub fn accept(gaps: &[Gap], on_gap: OnGap) -> Result<(), EngineError> {
    let refusing: Vec<Gap> = gaps.iter().filter(|gap| gap.refuses()).cloned().collect();
    match on_gap {
        OnGap::Refuse if !refusing.is_empty() => Err(EngineError::Gaps { gaps: refusing }),
        OnGap::Refuse | OnGap::Run => Ok(()),
    }
}

/// No more of the output is kept than the policy says.
fn kept(stdio: StdioMode, limit: Option<u64>) -> StdioMode {
    match (stdio, limit.and_then(|limit| usize::try_from(limit).ok())) {
        (StdioMode::Capture { limit }, Some(most)) => StdioMode::Capture { limit: limit.min(most) },
        (stdio, _) => stdio,
    }
}

/// What a command writes to the person's own streams cannot be counted.
fn output_gap(grants: &Grants, stdio: StdioMode) -> Option<Gap> {
    let is_asked =
        grants.is_confined() && grants.limits.output.is_some() && stdio == StdioMode::Inherit;
    is_asked.then(|| Gap {
        what: "limits.output".into(),
        why: "the command has your own standard streams, and what it writes there is not counted"
            .into(),
        hint: "use `--json`, remove it from [limits], or accept with `--on-gap run`".into(),
        loss: GapKind::Enforcement,
    })
}

/// The variables that pass, and those that say where things are inside.
fn variables(
    grants: &Grants,
    cwd: &AbsPath,
    resolved: &ResolvedPolicy,
) -> Vec<(OsString, OsString)> {
    if !grants.is_confined() {
        return resolved.surroundings.variables.clone();
    }
    let mut variables = grants.environment.filter(resolved.surroundings.variables.iter().cloned());
    // A shell looks where its person was before as soon as it starts: nobody asked for that.
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
    // A service has homes for nobody to live in, and its policy names another.
    if !grants.environment.set.contains_key("HOME") {
        set("HOME", grants.home.as_path().into());
    }
    if !grants.environment.clean {
        set("TMPDIR", "/tmp".into());
        set("RINGFENCE", "1".into());
        company::add_public(&mut variables, resolved);
        git_environment::add_settings(&mut variables);
        stop_update_checks(&mut variables);
        tool_directories::add_settings(&mut variables, grants);
        fail_fast::add_settings(&mut variables, &grants.network);
    }
    variables
}

/// Keeps npm from asking the registry for a newer npm. Where the network is shut, the refusal would
/// be taken for the reason why a command failed. It does not depend on the network: that may change
/// while a session stands, and the variables of its shell do not.
fn stop_update_checks(variables: &mut Vec<(OsString, OsString)>) {
    const NAME: &str = "npm_config_update_notifier";
    if !variables.iter().any(|(name, _)| name.eq_ignore_ascii_case(NAME)) {
        variables.push((NAME.into(), "false".into()));
    }
}
