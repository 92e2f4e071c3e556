//! From policy files, flags and facts to [`Grants`].
//!
//! Lists add up over the layers. Of single settings the later layer wins, within two
//! bounds: what the managed policy sets is a ceiling, and a project's file, whose author
//! is not the user, may narrow what the user chose but not widen it.

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
    Asking, AuditRules, Effect, Fsync, Grants, Mode, NetworkMode, Observe, OnError, OnGap, Origin,
    Rule, Source,
};
use crate::layer::PolicyLayer;
use crate::network::{HostRule, ListedHost, SniCheck};
use crate::path::AbsPath;
use crate::tools::{ToolRule, ToolRules, is_taken, take_writing};
use crate::tracked::{TrackedFiles, TrackedMode};
use scalar::{LayeredSetting, PermissionSetting};

/// Lays the layers over each other and over what is built in.
///
/// `layers` come weakest first: managed, user, project; files that a file extends stand
/// in front of it.
pub fn resolve(
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
) -> Result<Grants, PolicyError> {
    resolve_as(Purpose::Run, layers, flags, facts)
}

/// The same for showing, checking and changing a policy, and for no command: the directory may be
/// the home directory.
pub fn resolve_to_inspect(
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
) -> Result<Grants, PolicyError> {
    resolve_as(Purpose::Inspect, layers, flags, facts)
}

/// The use of a policy that is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Run,
    Inspect,
}

impl Purpose {
    /// Refuses to run in the home directory or above it; inspecting the policy there only warns.
    fn refuse_broad(self, facts: &Facts, warnings: &mut Vec<String>) -> Result<(), PolicyError> {
        if self == Purpose::Run {
            return Err(PolicyError::WorkspaceTooBroad { workspace: facts.workspace.clone() });
        }
        warnings.push(format!(
            "no command runs in {}: it is the home directory, or holds it; start in a project",
            facts.workspace
        ));
        Ok(())
    }
}

fn resolve_as(
    purpose: Purpose,
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
) -> Result<Grants, PolicyError> {
    let mut warnings = Vec::new();
    let settings = ResolvedSettings::merge(layers, flags, &mut warnings)?;
    let mut lists = files::collect(layers, flags, facts, &mut warnings)?;
    let commands = rest::commands(layers, facts, &mut warnings)?;
    let tools = ToolRules::of(layers);
    let mut environment = rest::environment(layers, flags, &mut warnings);
    let (enabled, sandbox) = settings.sandbox(layers, flags, facts, &mut warnings);
    let chosen = (settings.network, settings.sni);
    let mut network =
        network::network(layers, flags, facts, chosen, &mut environment, &mut warnings)?;
    if settings.ask.value() == Asking::Terminal {
        network.for_asking();
    }
    // What somebody has set stays.
    for (name, value) in network.variables() {
        environment.set.entry(name).or_insert(value);
    }
    let limits = rest::limits(layers, flags);
    let audit = AuditRules {
        fsync: settings.fsync.value(),
        on_error: settings.on_error.value(),
        ..rest::audit(layers, facts, &mut warnings)
    };

    let confined = enabled && settings.mode.value() != Mode::FullAccess;
    // Without a sandbox behind it, doubt is refused.
    let commands = if confined { commands } else { commands.strict() };
    if !confined && settings.observe.value() == Observe::All {
        warnings
            .push("`observe = all` has no effect: nothing is confined, so nothing is seen".into());
    }
    if confined && is_too_broad(&lists.rules, facts) {
        purpose.refuse_broad(facts, &mut warnings)?;
    }
    if settings.mode.ceiling() == Some(Mode::ReadOnly) && !flags.write.is_empty() {
        return Err(PolicyError::BeyondCeiling { flag: "--write", ceiling: "read-only" });
    }
    let writable = writable_parts(settings.mode.value(), &tools);
    writable.narrow(&mut lists.rules, facts, &mut warnings);
    let mut rules = frame(&writable, facts, &mut lists);
    rules.append(&mut lists.rules);
    add_protects(&mut rules, &starts(flags, facts));
    shut_state(&mut rules, &audit);
    warnings.extend(files::without_effect(&rules, &lists.patterns, &lists.exceptions));

    let mut grants = Grants {
        mode: settings.mode.value(),
        workspace: facts.workspace.clone(),
        home: facts.home.clone(),
        rules,
        patterns: lists.patterns,
        exceptions: lists.exceptions,
        tracked: TrackedFiles::remembered_in(
            settings.tracked.value(),
            facts.store.join("runs/.contents"),
        ),
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
    };
    let caught = files::caught_by_patterns(&grants);
    grants.warnings.extend(caught);
    Ok(grants)
}

impl Grants {
    /// Adds what a person granted in the middle; a writable root gets its protects.
    pub fn grant_session(&mut self, root: AbsPath, effect: Effect) {
        let origin = Origin::new(Source::Session, root.to_string());
        self.rules.push(Rule { root, effect, origin, locked: false });
        add_protects(&mut self.rules, &[]);
        shut_state(&mut self.rules, &self.audit);
    }

    /// Adds hosts that a person allowed in the middle. Where no list decides it has no effect, nor
    /// over what is denied.
    pub fn grant_host(&mut self, rule: HostRule) {
        let origin = Origin::new(Source::Session, rule.to_string());
        self.network.allow.push(ListedHost { rule, origin });
    }
}

/// The single settings of a policy.
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

/// What may be written, by mode and tools.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WriteCeiling {
    /// The workspace and what lists say.
    Workspace,
    /// Nothing that goes with the tools for writing, which this rule takes away.
    NotByTools(ToolRule),
    /// What flags of this very run say, nothing else.
    Nothing,
}

fn writable_parts(mode: Mode, tools: &ToolRules) -> WriteCeiling {
    if mode == Mode::ReadOnly {
        WriteCeiling::Nothing
    } else {
        tools
            .against_writing()
            .map_or(WriteCeiling::Workspace, |tool| WriteCeiling::NotByTools(tool.clone()))
    }
}

impl WriteCeiling {
    /// Turns write rules that have no ground here into read rules.
    fn narrow(&self, rules: &mut [Rule], facts: &Facts, warnings: &mut Vec<String>) {
        for rule in rules.iter_mut().filter(|rule| rule.effect == Effect::Write) {
            let (narrowed, why) = match self {
                WriteCeiling::Workspace => (false, ""),
                WriteCeiling::NotByTools(_) => {
                    (is_taken(rule, &facts.workspace), "tools that write are disallowed")
                }
                WriteCeiling::Nothing => {
                    (rule.origin.source != Source::Flag, "the mode is read-only")
                }
            };
            if narrowed {
                rule.effect = Effect::Read;
                warnings.push(format!(
                    "{}: `{}` is readable only: {why}",
                    rule.origin.place(),
                    rule.origin.text
                ));
            }
        }
    }
}

/// The rules that hold before anything a list says.
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
            // Nothing but /tmp is writable in read-only mode, not even a cache of one's own.
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
            .filter(|rule| is_taken(rule, &facts.workspace))
            .for_each(|rule| take_writing(rule, tool));
    }
    rules
}

fn mode_rule(root: &AbsPath, effect: Effect) -> Rule {
    let origin = Origin::new(Source::Mode, root.to_string());
    Rule { root: root.clone(), effect, origin, locked: false }
}

/// Gives every directory that is worked in its built-in protects, where it has none: each writable
/// root, each of `starts` in one, and those between the two.
fn add_protects(rules: &mut Vec<Rule>, starts: &[AbsPath]) {
    let is_work = |rule: &&Rule| rule.effect == Effect::Write && rule.patterns_hold();
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
            rules.extend(builtin::protects(&directory));
        }
    }
}

/// Directories in which agents and editors look for their settings: where they are started.
fn starts(flags: &Flags, facts: &Facts) -> Vec<AbsPath> {
    [Some(&flags.cwd), flags.started_in.as_ref(), Some(&facts.workspace)]
        .into_iter()
        .flatten()
        .cloned()
        .collect()
}

/// They come all or none, so the first tells.
fn has_protects(rules: &[Rule], root: &AbsPath) -> bool {
    let first = builtin::protects(root).next();
    first.is_some_and(|first| rules.contains(&first))
}

/// Keeps what ringfence remembers from those it is about, in whatever tree it lies. Where no
/// tree is opened around it, it is not there at all.
fn shut_state(rules: &mut Vec<Rule>, audit: &AuditRules) {
    let state = audit.directory.parent().unwrap_or_else(AbsPath::root);
    let is_opened = rules
        .iter()
        .any(|rule| rule.opens() && (state.is_within(&rule.root) || rule.root.is_within(&state)));
    if is_opened && !rules.iter().any(|rule| rule.root == state && rule.is_locked()) {
        let reason = Some("it is ringfence's own record of what commands do".to_owned());
        let origin = Origin { reason, ..Origin::new(Source::BuiltIn, state.to_string()) };
        rules.push(Rule { root: state, effect: Effect::Deny, origin, locked: true });
    }
}

/// Whether the workspace holds the home directory and nobody asked for that by name.
fn is_too_broad(rules: &[Rule], facts: &Facts) -> bool {
    let named = rules
        .iter()
        .any(|rule| rule.root == facts.workspace && rule.opens() && rule.origin.source.is_person());
    facts.home.is_within(&facts.workspace) && !named
}
