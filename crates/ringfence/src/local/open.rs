//! From what a program asks for to a sandbox, and from an outcome to what it is told.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Denial, ShellCommand, StdioMode};
use ringfence_engine::session::{CommandControl, PolicyResolver, Session, StartDecision};
use ringfence_engine::{
    EngineError, PolicyFiles, ResolvedPolicy, RunRequest, resolve_for, resolve_in,
};
use ringfence_local::LocalProvider;
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, Flags, Grants, HostRule, ListedHost, Mode, NetworkMode,
    NetworkRules, Origin, Source, ToolRule, Verdict,
};
use ringfence_provider::Interrupter;
use serde_json::Value;

use super::{LocalOptions, LocalSandboxProvider};
use crate::protocol::{Confinement, GrantAccess, SandboxCreateOptions, SandboxGrant};
use crate::{Command, ExecuteResult, SandboxError};

/// What the result of every command that is not confined says.
const UNCONFINED: &str = "nothing is confined: this command could do whatever you can";

/// A sandbox that was opened.
pub(super) struct OpenSession {
    pub(super) opened: Arc<Session>,
    is_confined: bool,
    /// For the first result.
    notes: Vec<String>,
}

pub(super) fn open(id: &str, options: SandboxCreateOptions) -> Result<OpenSession, SandboxError> {
    let SandboxCreateOptions {
        cwd,
        policy,
        granted,
        protected,
        asker,
        confinement,
        provider_options,
    } = options;
    let own: LocalOptions =
        serde_json::from_value(Value::Object(provider_options)).map_err(|source| {
            SandboxError::Options { provider: LocalSandboxProvider::NAME.into(), source }
        })?;
    if policy.network.allow_network {
        return Err(SandboxError::Network);
    }
    let cwd = directory(&cwd)?;
    let mut flags = Flags::none(cwd.clone());
    flags.mode =
        if confinement == Confinement::Unconfined { Some(Mode::FullAccess) } else { own.mode };
    flags.read = own.read;
    flags.deny = policy.filesystem.blacklist;
    flags.protect = protected
        .iter()
        .chain(&own.policy_file)
        .map(|file| protection(file))
        .collect::<Result<_, _>>()?;
    let files = PolicyFiles {
        project: own.policy_file.as_deref().map(absolute).transpose()?,
        agent: own.agent.clone(),
        ..PolicyFiles::default()
    };
    let mut resolved = resolve_for(&cwd, &flags, &files).map_err(SandboxError::not_created)?;
    let mut notes = std::mem::take(&mut resolved.grants.warnings);
    let hosts = if asker.is_some() { NetworkRules::for_asking } else { |_: &mut NetworkRules| {} };
    let said = ProgramRules {
        white: policy.filesystem.whitelist,
        granted,
        tools: own.disallowed_tools,
        hosts,
    };
    said.apply(&mut resolved, &mut notes)?;
    let resolve = resolver(flags.clone(), files.clone(), said);
    let is_confined = resolved.grants.is_confined();
    let stdio = StdioMode::Capture { limit: ShellCommand::new("").limit };
    let asked = RunRequest {
        command: Vec::new(),
        cwd,
        flags,
        files,
        stdio,
        asker,
        agent: own.agent,
        session: id.to_owned(),
    };
    let program = own.shell.unwrap_or_else(|| "bash".into()).into();
    let opened =
        Session::open_with(Box::new(LocalProvider::default()), asked, resolved, program, resolve)
            .map_err(SandboxError::not_created)?;
    Ok(OpenSession { opened: Arc::new(opened), is_confined, notes })
}

/// What a program says beside the policy files.
struct ProgramRules {
    white: Vec<String>,
    granted: Vec<SandboxGrant>,
    /// Tools that are taken away.
    tools: Vec<String>,
    hosts: fn(&mut NetworkRules),
}

impl ProgramRules {
    /// All of it, also if a part means nothing: tools are taken away after all that is opened.
    fn apply(
        &self,
        resolved: &mut ResolvedPolicy,
        notes: &mut Vec<String>,
    ) -> Result<(), SandboxError> {
        let white = whiten(resolved, &self.white, notes);
        let granted = grant(resolved, &self.granted, notes);
        let rule = |name: &String| ToolRule {
            name: name.clone(),
            origin: Origin::new(Source::Flag, name.clone()),
        };
        resolved.grants = resolved.grants.clone().without_tools(self.tools.iter().map(rule));
        (self.hosts)(&mut resolved.grants.network);
        white.and(granted)
    }
}

/// The same policy anew, when a file of it was changed.
fn resolver(flags: Flags, files: PolicyFiles, said: ProgramRules) -> Box<PolicyResolver> {
    Box::new(move |before| {
        let mut resolved = resolve_in(before.surroundings.clone(), &flags, &files)?;
        // Every entry meant something before.
        let _ = said.apply(&mut resolved, &mut Vec::new());
        Ok(resolved)
    })
}

impl OpenSession {
    /// `begun` gets what interrupts the command.
    pub(super) fn execute(
        &mut self,
        command: Command,
        begun: &mut dyn FnMut(Box<dyn Interrupter>),
    ) -> Result<ExecuteResult, EngineError> {
        let Command { mut line, mut sink } = command;
        self.opened.follow();
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
        let mut begin = |reach: CommandControl| {
            begun(reach.interrupter);
            StartDecision::Taken
        };
        let executed = self.opened.execute(&line, &mut begin, &mut pass_on, &mut |error| {
            warnings.push(error.to_string())
        })?;
        warnings.splice(0..0, std::mem::take(&mut self.notes));
        warnings.extend(
            executed.news.changes.iter().map(|change| format!("the policy was changed: {change}")),
        );
        warnings.extend(
            executed
                .news
                .problems
                .iter()
                .map(|problem| format!("the policy stays as it was: {}", problem.message)),
        );
        if !self.is_confined {
            warnings.insert(0, UNCONFINED.into());
        }
        let permission = self.opened.permission(&executed.outcome);
        Ok(ExecuteResult {
            permission,
            cwd: executed.cwd.map(|cwd| cwd.as_path().to_owned()),
            background: executed.background.into(),
            shell: executed.shell,
            confined: self.is_confined,
            warnings,
            ..executed.outcome.into()
        })
    }
}

/// What grants may open: where nothing may be written, they do not change that.
fn widest(grants: &Grants, opens: GrantAccess) -> Effect {
    if opens == GrantAccess::Writing && grants.mode != Mode::ReadOnly {
        Effect::Write
    } else {
        Effect::Read
    }
}

/// Opens the white list, but for what is shut: by the black list, by policy files, or built in.
fn whiten(
    resolved: &mut ResolvedPolicy,
    list: &[String],
    notes: &mut Vec<String>,
) -> Result<(), SandboxError> {
    for entry in list {
        let path = meant(entry, &resolved.surroundings.facts)?;
        let grants = &mut resolved.grants;
        // As if the directory around it were open: a pattern says nothing of what is not.
        let before = grants.rules.len();
        grants.grant_session(path.parent().unwrap_or_else(AbsPath::root), Effect::Read);
        let is_shut = grants.verdict(&path, Access::Read) == Verdict::Denied;
        grants.rules.truncate(before);
        if is_shut {
            notes.push(format!(
                "`{entry}` of the white list stays shut: what is on the black list goes before"
            ));
        } else {
            let effect = widest(grants, GrantAccess::Writing);
            grants.grant_session(path, effect);
        }
    }
    Ok(())
}

/// Opens what a person granted, but for what is locked.
fn grant(
    resolved: &mut ResolvedPolicy,
    granted: &[SandboxGrant],
    notes: &mut Vec<String>,
) -> Result<(), SandboxError> {
    for SandboxGrant { path: entry, opens } in granted {
        if *opens == GrantAccess::Connecting {
            connect(resolved, entry, notes);
            continue;
        }
        let path = meant(entry, &resolved.surroundings.facts)?;
        let grants = &mut resolved.grants;
        let is_taken_back = |source: &Source| *source == Source::Flag;
        grants.rules.retain(|rule| {
            rule.effect != Effect::Deny || rule.root != path || !is_taken_back(&rule.origin.source)
        });
        let effect = widest(grants, *opens);
        grants.grant_session(path.clone(), effect);
        let wanted = if *opens == GrantAccess::Writing { Access::Write } else { Access::Read };
        let decision = grants.decide(&path, wanted);
        if decision.verdict != Verdict::Allowed {
            let by = decision
                .rule
                .map_or_else(String::new, |rule| format!(" by `{}`", rule.origin().text));
            notes.push(format!("`{entry}` was granted and stays shut{by}"));
        }
    }
    Ok(())
}

/// Opens a host that a person granted, unless a rule denies it or the list is locked.
fn connect(resolved: &mut ResolvedPolicy, entry: &str, notes: &mut Vec<String>) {
    let network = &mut resolved.grants.network;
    let Ok(rule) = HostRule::parse(entry) else {
        return notes.push(format!("`{entry}` was granted and is no host"));
    };
    if let Some(by) = &network.locked {
        return notes.push(format!("`{entry}` was granted and stays shut by `{}`", by.text));
    }
    network.for_asking();
    network.allow.push(ListedHost { rule, origin: Origin::new(Source::Session, entry) });
    if network.mode == NetworkMode::None {
        notes.push(format!("`{entry}` was granted and stays shut by `{}`", Denial::NETWORK_SHUT));
    }
}

/// The path that an entry means.
fn meant(entry: &str, facts: &Facts) -> Result<AbsPath, SandboxError> {
    let wrong = |why| SandboxError::Path { entry: entry.to_owned(), why };
    let text = entry.strip_suffix("/**").unwrap_or(entry);
    let text = match text.strip_prefix('$') {
        Some(rest) => {
            let (name, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let value =
                facts.variables.get(name).ok_or_else(|| wrong("there is no such variable"))?;
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
    let path = path.ok_or_else(|| wrong("it is not absolute"))?;
    if text.contains(['*', '?', '[', '{']) && !path.as_path().exists() {
        return Err(wrong("a directory is opened by its name, not by a pattern"));
    }
    Ok(path)
}

/// A directory to stand in, without symbolic links on the way.
fn directory(path: &Path) -> Result<AbsPath, SandboxError> {
    let fail =
        |source| SandboxError::File { what: "enter", file: path.display().to_string(), source };
    let real = fs::canonicalize(path).map_err(fail)?;
    if !real.is_dir() {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    AbsPath::new(real).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))
}

/// The entry that means exactly this file.
fn protection(file: &Path) -> Result<String, SandboxError> {
    let path = absolute(file)?;
    let wrong = |why| SandboxError::Path { entry: path.to_string(), why };
    let text = path
        .as_path()
        .to_str()
        .ok_or_else(|| wrong("it is not UTF-8, and so cannot be protected"))?;
    if text.contains(['*', '?', '[', '{', '$', '\\']) {
        return Err(wrong("it reads as a pattern, and so cannot be protected"));
    }
    Ok(text.to_owned())
}

fn absolute(path: &Path) -> Result<AbsPath, SandboxError> {
    let fail =
        |source| SandboxError::File { what: "find", file: path.display().to_string(), source };
    AbsPath::new(std::path::absolute(path).map_err(fail)?)
        .ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))
}
