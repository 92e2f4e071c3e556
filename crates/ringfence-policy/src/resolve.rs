//! Resolves policy files, flags and facts into [`Grants`].
//!
//! Lists add up over the layers. For a single setting the later layer wins, within two bounds: the
//! managed policy sets a ceiling, and a project's file, whose author is not the user, may narrow
//! the user's choice but not widen it.

mod files;
mod network;
mod rest;
mod sandbox;
mod scalar;
#[cfg(test)]
pub(crate) mod tests;

use crate::builtin;
use crate::error::PolicyError;
use crate::facts::{Facts, Flags};
use crate::grants::{
    Asking, AuditRules, Effect, EnvironmentRules, Fsync, Grants, Mode, NetworkMode, Observe,
    OnError, OnGap, Origin, Rule, Source,
};
use crate::layer::PolicyLayer;
use crate::network::{HostRule, ListedHost, NetworkRules, SniCheck};
use crate::path::AbsPath;
use crate::tools::{ToolRule, ToolRules, needs_writing_tool, reduce_to_read};
use crate::tracked::{TrackedFiles, TrackedMode};
use scalar::{LayeredSetting, PermissionSetting};
use tracing::trace_span;

/// Merges the layers with the built-in rules.
///
/// `layers` are ordered from weakest to strongest: managed, user, project. The files that a file
/// extends come before it.
pub fn resolve(
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
) -> Result<Grants, PolicyError> {
    resolve_as(ResolvePurpose::Run, layers, flags, facts)
}

/// Like [`resolve`], to show, check or edit a policy without running a command: the directory may
/// be the home directory.
pub fn resolve_to_inspect(
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
) -> Result<Grants, PolicyError> {
    resolve_as(ResolvePurpose::Inspect, layers, flags, facts)
}

/// Purpose of a resolved policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResolvePurpose {
    Run,
    Inspect,
}

impl ResolvePurpose {
    /// Refuses to run in the home directory or above it. To inspect the policy there only warns.
    fn refuse_broad(self, facts: &Facts, warnings: &mut Vec<String>) -> Result<(), PolicyError> {
        if self == ResolvePurpose::Run {
            return Err(PolicyError::WorkspaceTooBroad { workspace: facts.workspace.clone() });
        }
        warnings.push(format!(
            "refusing to run in {}: it is, or contains, the home directory; start in a project directory",
            facts.workspace
        ));
        Ok(())
    }
}

fn resolve_as(
    purpose: ResolvePurpose,
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
) -> Result<Grants, PolicyError> {
    let _stage = trace_span!(target: "stage", "resolve_as").entered();
    let mut warnings = layers.iter().flat_map(|layer| layer.warnings.clone()).collect();
    let settings = ResolvedSettings::merge(layers, flags, &mut warnings)?;
    let mut lists = files::collect(layers, flags, facts, &mut warnings)?;
    let commands = rest::commands(layers, facts, &mut warnings)?;
    let tools = ToolRules::from_layers(layers);
    let mut environment = rest::environment(layers, flags, &mut warnings);
    let (enabled, sandbox) = settings.sandbox(layers, flags, facts, &mut warnings)?;
    let chosen = (settings.network, settings.sni);
    let mut network =
        network::network(layers, flags, facts, chosen, &mut environment, &mut warnings)?;
    if settings.ask.value() == Asking::Terminal {
        network.prepare_for_prompts();
    }
    set_variables(&mut environment, &network);
    let limits = rest::limits(layers, flags);
    let audit = AuditRules {
        fsync: settings.fsync.value(),
        on_error: settings.on_error.value(),
        ..rest::audit(layers, facts, &mut warnings)
    };

    let confined = enabled && settings.mode.value() != Mode::FullAccess;
    // Without a sandbox, a doubtful line is refused.
    let commands = if confined { commands } else { commands.with_doubt_refused() };
    if !confined && settings.observe.value() == Observe::All {
        warnings.push("`observe = all` has no effect: the sandbox is off".into());
    }
    if confined && is_too_broad(&lists.rules, layers, facts) {
        purpose.refuse_broad(facts, &mut warnings)?;
    }
    refuse_write_flags(settings.mode.ceiling(), flags)?;
    let writable = writable_parts(settings.mode.value(), &tools);
    writable.narrow(&mut lists.rules, facts, &mut warnings);
    let mut rules = frame(&writable, facts, &mut lists);
    rules.append(&mut lists.rules);
    add_protects(&mut rules, &starts(flags, facts));
    shut_state(&mut rules, &audit);
    warnings.extend(files::warn_without_effect(&rules, &lists.patterns, &lists.exceptions));

    Ok(warn_of_patterns(Grants {
        mode: settings.mode.value(),
        workspace: facts.workspace.clone(),
        home: facts.home.clone(),
        rules,
        patterns: lists.patterns,
        exceptions: lists.exceptions,
        tracked: tracked_files(settings.tracked.value(), facts),
        disguises: lists.disguises,
        suspects: crate::presets::suspects(facts),
        environment,
        network,
        commands,
        tools,
        limits,
        on_gap: settings.on_gap.value(),
        observe: settings.observe.value(),
        ask: settings.ask.value(),
        audit,
        enabled,
        sandbox,
        warnings,
    }))
}

/// Refuses `--write` where the managed policy allows reading only.
fn refuse_write_flags(ceiling: Option<Mode>, flags: &Flags) -> Result<(), PolicyError> {
    if ceiling == Some(Mode::ReadOnly) && !flags.write.is_empty() {
        return Err(PolicyError::BeyondCeiling { flag: "--write", ceiling: "read-only".into() });
    }
    Ok(())
}

/// Adds a warning for each opened path that a pattern denies.
fn warn_of_patterns(mut grants: Grants) -> Grants {
    let caught = files::warn_caught_by_patterns(&grants);
    grants.warnings.extend(caught);
    grants
}

/// Adds the variables that programs need for the network. An explicitly set variable keeps its
/// value.
fn set_variables(environment: &mut EnvironmentRules, network: &NetworkRules) {
    for (name, value) in network.environment_variables() {
        environment.set.entry(name).or_insert(value);
    }
}

fn tracked_files(mode: TrackedMode, facts: &Facts) -> TrackedFiles {
    TrackedFiles::new(mode, facts.store.join("runs/.contents"))
}

impl Grants {
    /// Adds a grant that the user gave during the session; a writable root gets its built-in
    /// protect rules.
    pub fn grant_session(&mut self, root: AbsPath, effect: Effect) {
        let origin = Origin::new(Source::Session, root.to_string());
        self.rules.push(Rule { root, effect, origin, locked: false });
        add_protects(&mut self.rules, &[]);
        shut_state(&mut self.rules, &self.audit);
    }

    /// Adds hosts that the user allowed during the session. Without effect if the mode is not an
    /// allow list, or for denied hosts.
    pub fn grant_host(&mut self, rule: HostRule) {
        let origin = Origin::new(Source::Session, rule.to_string());
        self.network.allow.push(ListedHost { rule, origin });
    }
}

/// Single-valued settings of a policy.
struct ResolvedSettings {
    mode: LayeredSetting<Mode>,
    on_gap: LayeredSetting<OnGap>,
    observe: LayeredSetting<Observe>,
    ask: LayeredSetting<Asking>,
    enabled: LayeredSetting<bool>,
    fail: LayeredSetting<bool>,
    unsandboxed: LayeredSetting<PermissionSetting>,
    auto_allow: LayeredSetting<PermissionSetting>,
    network: LayeredSetting<NetworkMode>,
    sni: LayeredSetting<SniCheck>,
    fsync: LayeredSetting<Fsync>,
    on_error: LayeredSetting<OnError>,
    tracked: LayeredSetting<TrackedMode>,
}

impl ResolvedSettings {
    fn merge(
        layers: &[PolicyLayer],
        flags: &Flags,
        warnings: &mut Vec<String>,
    ) -> Result<Self, PolicyError> {
        let mut settings = Self {
            mode: LayeredSetting::new("mode", Mode::WorkspaceWrite),
            on_gap: LayeredSetting::new("on-gap", OnGap::Refuse),
            observe: LayeredSetting::new("observe", Observe::Denials),
            ask: LayeredSetting::new("ask", Asking::Never),
            enabled: LayeredSetting::new("sandbox.enabled", true),
            fail: LayeredSetting::new("sandbox.fail-if-unavailable", true),
            unsandboxed: LayeredSetting::new(
                "sandbox.allow-unsandboxed-commands",
                PermissionSetting(false),
            ),
            auto_allow: LayeredSetting::new(
                "sandbox.auto-allow-bash-if-sandboxed",
                PermissionSetting(true),
            ),
            network: LayeredSetting::new("network.mode", NetworkMode::None),
            sni: LayeredSetting::new("network.sni", SniCheck::Check),
            fsync: LayeredSetting::new("audit.fsync", Fsync::Never),
            on_error: LayeredSetting::new("audit.on-error", OnError::Refuse),
            tracked: LayeredSetting::new("filesystem.tracked", TrackedMode::Open),
        };
        for layer in layers {
            let policy = &layer.policy;
            settings.mode.offer(layer, policy.mode, warnings);
            settings.on_gap.offer(layer, policy.on_gap, warnings);
            settings.observe.offer(layer, policy.observe, warnings);
            settings.ask.offer(layer, policy.ask, warnings);
            settings.enabled.offer(layer, policy.sandbox.enabled, warnings);
            settings.fail.offer(layer, policy.sandbox.fail_if_unavailable, warnings);
            settings.unsandboxed.offer(
                layer,
                policy.sandbox.allow_unsandboxed_commands.map(PermissionSetting),
                warnings,
            );
            settings.auto_allow.offer(
                layer,
                policy.sandbox.auto_allow_bash_if_sandboxed.map(PermissionSetting),
                warnings,
            );
            settings.network.offer(layer, policy.network.mode, warnings);
            settings.sni.offer(layer, policy.network.sni, warnings);
            settings.fsync.offer(layer, policy.audit.fsync, warnings);
            settings.on_error.offer(layer, policy.audit.on_error, warnings);
            settings.tracked.offer(layer, policy.filesystem.tracked, warnings);
        }
        settings.enabled.flag("--no-sandbox", flags.enabled)?;
        settings.mode.flag("--mode", flags.mode)?;
        settings.on_gap.flag("--on-gap", flags.on_gap)?;
        settings.observe.flag("--observe", flags.observe)?;
        settings.ask.flag("--ask", flags.ask)?;
        settings.network.flag("--net", flags.net)?;
        Ok(settings)
    }
}

/// Upper bound of write access, from the mode and the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WriteCeiling {
    /// The workspace and the listed paths.
    Workspace,
    /// Nothing that needs a writing tool, which this rule disallows.
    NotByTools(ToolRule),
    /// Only paths from flags of this run.
    Nothing,
}

fn writable_parts(mode: Mode, tools: &ToolRules) -> WriteCeiling {
    if mode == Mode::ReadOnly {
        WriteCeiling::Nothing
    } else {
        tools
            .rule_against_writing()
            .map_or(WriteCeiling::Workspace, |tool| WriteCeiling::NotByTools(tool.clone()))
    }
}

impl WriteCeiling {
    /// Turns write rules above the bound into read rules.
    fn narrow(&self, rules: &mut [Rule], facts: &Facts, warnings: &mut Vec<String>) {
        for rule in rules.iter_mut().filter(|rule| rule.effect == Effect::Write) {
            let (narrowed, why) = match self {
                WriteCeiling::Workspace => (false, ""),
                WriteCeiling::NotByTools(_) => {
                    (needs_writing_tool(rule, &facts.workspace), "tools that write are disallowed")
                }
                WriteCeiling::Nothing => {
                    (rule.origin.source != Source::Flag, "the mode is read-only")
                }
            };
            if narrowed {
                rule.effect = Effect::Read;
                warnings.push(format!(
                    "{}: `{}` is read-only: {why}",
                    rule.origin.place(),
                    rule.origin.text
                ));
            }
        }
    }
}

/// The rules that apply before any list.
fn frame(writable: &WriteCeiling, facts: &Facts, lists: &mut files::PathLists) -> Vec<Rule> {
    let workspace = match writable {
        WriteCeiling::Workspace | WriteCeiling::NotByTools(_) => Effect::Write,
        WriteCeiling::Nothing => Effect::Read,
    };
    let mut rules = Vec::with_capacity(256);
    rules.push(mode_rule(&facts.workspace, workspace.clone()));
    rules.extend(builtin::rules(&facts.home));
    rules.extend(crate::presets::rules(facts).into_iter().filter_map(|rule| {
        match (writable, &rule.effect) {
            // In read-only mode only /tmp is writable, not even a private cache.
            (WriteCeiling::Nothing, Effect::Private { host_beneath: false, .. }) => None,
            (WriteCeiling::Nothing, Effect::Private { .. }) => {
                Some(Rule { effect: Effect::Read, ..rule })
            }
            _ => Some(rule),
        }
    }));
    let on_path = crate::presets::path_rules(facts, &rules);
    rules.extend(on_path);
    if facts.git.is_some() {
        files::open_git(facts, workspace, &mut rules, lists);
    }
    if let WriteCeiling::NotByTools(tool) = writable {
        rules
            .iter_mut()
            .filter(|rule| needs_writing_tool(rule, &facts.workspace))
            .for_each(|rule| reduce_to_read(rule, tool));
    }
    rules
}

fn mode_rule(root: &AbsPath, effect: Effect) -> Rule {
    let origin = Origin::new(Source::Mode, root.to_string());
    Rule { root: root.clone(), effect, origin, locked: false }
}

/// Adds the built-in protect rules to every working directory without them: each writable root,
/// each of `starts` below one, and the directories between the two.
fn add_protects(rules: &mut Vec<Rule>, starts: &[AbsPath]) {
    let is_work = |rule: &&Rule| rule.effect == Effect::Write && rule.patterns_apply();
    let mut directories: Vec<AbsPath> =
        rules.iter().filter(is_work).map(|rule| rule.root.clone()).collect();
    let roots = directories.clone();
    for start in starts {
        directories.extend(
            start.ancestors().take_while(|above| roots.iter().any(|root| above.is_within(root))),
        );
    }
    directories.sort();
    directories.dedup();
    for directory in directories {
        if !has_protects(rules, &directory) {
            rules.extend(builtin::protect_rules(&directory));
        }
    }
}

/// Directories in which agents and editors look for their settings: their start directories.
fn starts(flags: &Flags, facts: &Facts) -> Vec<AbsPath> {
    [Some(&flags.cwd), flags.started_in.as_ref(), Some(&facts.workspace)]
        .into_iter()
        .flatten()
        .cloned()
        .collect()
}

/// The protect rules are added together, so the first one is enough to check.
fn has_protects(rules: &[Rule], root: &AbsPath) -> bool {
    let first = builtin::protect_rules(root).next();
    first.is_some_and(|first| rules.contains(&first))
}

/// Denies commands access to ringfence's state and audit log in any opened tree. Outside opened
/// trees they are absent anyway.
fn shut_state(rules: &mut Vec<Rule>, audit: &AuditRules) {
    let state = audit.directory.parent().unwrap_or_else(AbsPath::root);
    let is_opened = rules
        .iter()
        .any(|rule| rule.opens() && (state.is_within(&rule.root) || rule.root.is_within(&state)));
    if is_opened && !rules.iter().any(|rule| rule.root == state && rule.is_locked()) {
        let reason = Some("it is the audit log of ringfence".to_owned());
        let origin = Origin { reason, ..Origin::new(Source::BuiltIn, state.to_string()) };
        rules.push(Rule { root: state, effect: Effect::Deny, origin, locked: true });
    }
}

/// True if the workspace contains the home directory, and the user did not name it explicitly: the
/// settings of another tool name it for every directory alike.
fn is_too_broad(rules: &[Rule], layers: &[PolicyLayer], facts: &Facts) -> bool {
    let is_of_tool = |origin: &Origin| {
        let mut others = layers.iter().filter(|layer| layer.tool.is_some());
        others.any(|layer| origin.file.as_ref() == Some(&layer.file))
    };
    let named = rules.iter().any(|rule| {
        rule.root == facts.workspace
            && rule.opens()
            && rule.origin.source.is_user_choice()
            && !is_of_tool(&rule.origin)
    });
    facts.home.is_within(&facts.workspace) && !named
}
