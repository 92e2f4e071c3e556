//! Opens a sandbox for a program's options, and turns outcomes into results.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Denial, ShellCommand, StdioMode};
use ringfence_engine::session::{CommandControl, PolicyResolver, Session, StartDecision};
use ringfence_engine::{
    EngineError, PolicyFiles, ProviderRegistry, ResolvedPolicy, RunRequest, resolve_for, resolve_in,
};
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, Flags, Grants, HostRule, ListedHost, Mode, NetworkMode,
    NetworkRules, Origin, ProviderSpec, Source, ToolRule, Verdict,
};
use ringfence_provider::Interrupter;
use serde_json::{Map, Value};

use super::{CommonOptions, Confinement, SandboxSpec};
use crate::protocol::{GrantAccess, SandboxGrant};
use crate::{Command, ExecuteResult, SandboxError};

/// An opened sandbox.
pub(super) struct OpenSession {
    pub(super) opened: Arc<Session>,
    /// Warnings for the first result.
    notes: Vec<String>,
}

pub(super) fn open(
    id: &str,
    provider: &str,
    registry: ProviderRegistry,
    spec: SandboxSpec,
) -> Result<OpenSession, SandboxError> {
    let SandboxSpec { cwd, policy, granted, protected, asker, confinement, provider_options } =
        spec;
    let options: CommonOptions = serde_json::from_value(Value::Object(provider_options))
        .map_err(|source| SandboxError::Options { provider: provider.to_owned(), source })?;
    if policy.network.allow_network {
        return Err(SandboxError::Network);
    }
    let cwd = directory(&cwd)?;
    let mut flags = Flags::none(cwd.clone());
    match confinement {
        Confinement::Unconfined => flags.mode = Some(Mode::FullAccess),
        Confinement::Sandbox => {
            flags.mode = options.mode;
            flags.provider = Some(provider_spec(provider, options.provider));
        }
    }
    flags.on_gap = options.on_gap;
    flags.read = options.read;
    flags.deny = policy.filesystem.blacklist;
    flags.protect = protected
        .iter()
        .chain(&options.policy_file)
        .map(|file| protect_entry(file))
        .collect::<Result<_, _>>()?;
    let files = PolicyFiles {
        project: options.policy_file.as_deref().map(absolute).transpose()?,
        agent: options.agent.clone(),
        ..PolicyFiles::default()
    };
    let hosts =
        if asker.is_some() { NetworkRules::prepare_for_prompts } else { |_: &mut NetworkRules| {} };
    let rules = ProgramRules {
        is_elsewhere: confinement == Confinement::Sandbox
            && ![ProviderSpec::LOCAL, ProviderSpec::PROCESS].contains(&provider),
        whitelist: policy.filesystem.whitelist,
        granted,
        tools: options.disallowed_tools,
        hosts,
    };
    let resolved = resolve_for(&cwd, &flags, &files).and_then(|it| rules.require_provider(it));
    let mut resolved = resolved.map_err(SandboxError::not_created)?;
    let mut notes = std::mem::take(&mut resolved.grants.warnings);
    rules.apply(&mut resolved, &mut notes)?;
    let resolve = resolver(flags.clone(), files.clone(), rules);
    let stdio = StdioMode::Capture { limit: ShellCommand::new("").limit };
    let request = RunRequest {
        command: Vec::new(),
        cwd,
        flags,
        files,
        stdio,
        asker,
        agent: options.agent,
        session: id.to_owned(),
    };
    let program = options.shell.unwrap_or_else(|| "bash".into()).into();
    let opened = Session::open_with(Box::new(registry), request, resolved, program, resolve)
        .map_err(SandboxError::not_created)?;
    Ok(OpenSession { opened: Arc::new(opened), notes })
}

/// The choice of a provider by the program.
fn provider_spec(name: &str, options: Map<String, Value>) -> ProviderSpec {
    let text = |(key, value)| match value {
        Value::String(text) => (key, text),
        value => (key, value.to_string()),
    };
    ProviderSpec { name: name.to_owned(), options: options.into_iter().map(text).collect() }
}

/// The program's own rules, in addition to the policy files.
struct ProgramRules {
    /// True if the program has chosen a provider of its own.
    is_elsewhere: bool,
    whitelist: Vec<String>,
    granted: Vec<SandboxGrant>,
    /// Tools to remove.
    tools: Vec<String>,
    hosts: fn(&mut NetworkRules),
}

impl ProgramRules {
    /// Keeps the commands at the program's own provider. A policy that turns the sandbox off, now
    /// or where the provider fails, would run them on this machine, with all rights of the user.
    fn require_provider(&self, resolved: ResolvedPolicy) -> Result<ResolvedPolicy, EngineError> {
        if self.is_elsewhere && !resolved.grants.is_confined() {
            return Err(EngineError::SandboxOff);
        }
        Ok(resolved)
    }

    /// Applies all rules, even if one is invalid: tools are removed after everything is opened.
    fn apply(
        &self,
        resolved: &mut ResolvedPolicy,
        notes: &mut Vec<String>,
    ) -> Result<(), SandboxError> {
        let whitelist = apply_whitelist(resolved, &self.whitelist, notes);
        let granted = apply_grants(resolved, &self.granted, notes);
        let rule = |name: &String| ToolRule {
            name: name.clone(),
            origin: Origin::new(Source::Flag, name.clone()),
        };
        resolved.grants = resolved.grants.clone().without_tools(self.tools.iter().map(rule));
        (self.hosts)(&mut resolved.grants.network);
        whitelist.and(granted)
    }
}

/// Resolves the same policy again after a policy file has changed.
fn resolver(flags: Flags, files: PolicyFiles, rules: ProgramRules) -> Box<PolicyResolver> {
    Box::new(move |before| {
        let resolved = resolve_in(before.surroundings.clone(), &flags, &files)?;
        let mut resolved = rules.require_provider(resolved)?;
        // Every entry was valid before.
        let _ = rules.apply(&mut resolved, &mut Vec::new());
        Ok(resolved)
    })
}

impl OpenSession {
    /// Runs a command; `on_start` gets its interrupter.
    pub(super) fn execute(
        &mut self,
        command: Command,
        on_start: &mut dyn FnMut(Box<dyn Interrupter>),
    ) -> Result<ExecuteResult, EngineError> {
        let Command { mut line, mut sink } = command;
        self.opened.follow_policy();
        let limits = self.opened.policy().grants.limits;
        line.deadline =
            [line.deadline, limits.wall_ms.map(Duration::from_millis)].into_iter().flatten().min();
        line.limit = limits
            .output
            .and_then(|most| usize::try_from(most).ok())
            .map_or(line.limit, |most| line.limit.min(most));
        let mut warnings = Vec::new();
        let mut pass_on = |stream, bytes: &[u8]| {
            if let Some(sink) = &mut sink {
                sink(stream, bytes);
            }
        };
        let mut start = |control: CommandControl| {
            on_start(control.interrupter);
            StartDecision::Taken
        };
        let outcome = self.opened.execute(&line, &mut start, &mut pass_on, &mut |notice| {
            warnings.push(notice.to_string())
        })?;
        warnings.extend(std::mem::take(&mut self.notes));
        warnings.extend(outcome.policy.warnings());
        let permission = self.opened.permission(&outcome);
        Ok(ExecuteResult { permission, warnings, ..outcome.into() })
    }
}

/// The widest effect of a grant: in mode `read-only` no grant allows writing.
fn widest_effect(grants: &Grants, opens: GrantAccess) -> Effect {
    if opens == GrantAccess::Write && grants.mode != Mode::ReadOnly {
        Effect::Write
    } else {
        Effect::Read
    }
}

/// Opens the whitelist, except what the blacklist, policy files or built-in rules deny.
fn apply_whitelist(
    resolved: &mut ResolvedPolicy,
    list: &[String],
    notes: &mut Vec<String>,
) -> Result<(), SandboxError> {
    for entry in list {
        let path = resolve_entry(entry, &resolved.surroundings.facts)?;
        let grants = &mut resolved.grants;
        // As if the parent directory were open: a pattern does not apply to a closed path.
        let before = grants.rules.len();
        grants.grant_session(path.parent().unwrap_or_else(AbsPath::root), Effect::Read);
        let is_denied = grants.verdict(&path, Access::Read) == Verdict::Denied;
        grants.rules.truncate(before);
        if is_denied {
            notes.push(format!(
                "`{entry}` of the whitelist stays denied: a deny rule takes precedence"
            ));
        } else {
            let effect = widest_effect(grants, GrantAccess::Write);
            grants.grant_session(path, effect);
        }
    }
    Ok(())
}

/// Opens what the user granted, except locked paths.
fn apply_grants(
    resolved: &mut ResolvedPolicy,
    granted: &[SandboxGrant],
    notes: &mut Vec<String>,
) -> Result<(), SandboxError> {
    for SandboxGrant { path: entry, access: opens } in granted {
        if *opens == GrantAccess::Connect {
            grant_host(resolved, entry, notes);
            continue;
        }
        let path = resolve_entry(entry, &resolved.surroundings.facts)?;
        let grants = &mut resolved.grants;
        let is_taken_back = |source: &Source| *source == Source::Flag;
        grants.rules.retain(|rule| {
            rule.effect != Effect::Deny || rule.root != path || !is_taken_back(&rule.origin.source)
        });
        let effect = widest_effect(grants, *opens);
        grants.grant_session(path.clone(), effect);
        let wanted = if *opens == GrantAccess::Write { Access::Write } else { Access::Read };
        let decision = grants.decide(&path, wanted);
        if decision.verdict != Verdict::Allowed {
            let by = decision
                .rule
                .map_or_else(String::new, |rule| format!(" by `{}`", rule.origin().text));
            notes.push(format!("`{entry}` was granted but stays denied{by}"));
        }
    }
    Ok(())
}

/// Allows a host that the user granted, unless a rule denies it or the list is locked.
fn grant_host(resolved: &mut ResolvedPolicy, entry: &str, notes: &mut Vec<String>) {
    let network = &mut resolved.grants.network;
    let Ok(rule) = HostRule::parse(entry) else {
        return notes.push(format!("`{entry}` was granted but is not a host"));
    };
    if let Some(by) = &network.locked {
        return notes.push(format!("`{entry}` was granted but stays denied by `{}`", by.text));
    }
    network.prepare_for_prompts();
    network.allow.push(ListedHost { rule, origin: Origin::new(Source::Session, entry) });
    if network.mode == NetworkMode::None {
        notes.push(format!("`{entry}` was granted but stays denied by `{}`", Denial::NETWORK_NONE));
    }
}

/// The path of an entry, with `~` and variables expanded.
fn resolve_entry(entry: &str, facts: &Facts) -> Result<AbsPath, SandboxError> {
    let wrong = |why| SandboxError::Path { entry: entry.to_owned(), why };
    let text = entry.strip_suffix("/**").unwrap_or(entry);
    let text = match text.strip_prefix('$') {
        Some(rest) => {
            let (name, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let value =
                facts.variables.get(name).ok_or_else(|| wrong("no such environment variable"))?;
            format!("{value}{below}")
        }
        None => text.to_owned(),
    };
    let path = match text.strip_prefix('~') {
        Some(below) if below.is_empty() || below.starts_with('/') => {
            Some(facts.home.join(below.trim_start_matches('/')))
        }
        Some(_) => None,
        None => AbsPath::new(&text),
    };
    let path = path.ok_or_else(|| wrong("not absolute"))?;
    if text.contains(['*', '?', '[', '{']) && !path.as_path().exists() {
        return Err(wrong("a pattern cannot be opened; name a directory"));
    }
    Ok(path)
}

/// The canonical path of a directory.
fn directory(path: &Path) -> Result<AbsPath, SandboxError> {
    let fail =
        |source| SandboxError::File { what: "enter", file: path.display().to_string(), source };
    let real = fs::canonicalize(path).map_err(fail)?;
    if !real.is_dir() {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    AbsPath::new(real).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))
}

/// The policy entry for exactly this file.
fn protect_entry(file: &Path) -> Result<String, SandboxError> {
    let path = absolute(file)?;
    let wrong = |why| SandboxError::Path { entry: path.to_string(), why };
    let text =
        path.as_path().to_str().ok_or_else(|| wrong("not UTF-8, so it cannot be protected"))?;
    if text.contains(['*', '?', '[', '{', '$', '\\']) {
        return Err(wrong("it reads as a pattern, so it cannot be protected"));
    }
    Ok(text.to_owned())
}

fn absolute(path: &Path) -> Result<AbsPath, SandboxError> {
    let fail =
        |source| SandboxError::File { what: "find", file: path.display().to_string(), source };
    AbsPath::new(std::path::absolute(path).map_err(fail)?)
        .ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))
}
