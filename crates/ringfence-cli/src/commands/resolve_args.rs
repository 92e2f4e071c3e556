//! Resolves the command line's policy arguments.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;

use ringfence_api::{StdioMode, shell_word};
use ringfence_audit::session_id;
use ringfence_engine::{
    EngineError, HostEnvironment, PolicyFiles, ResolvedPolicy, RunRequest, gather_host_environment,
    inspect_in, resolve_in,
};
use ringfence_linux::EngineChoice;
use ringfence_policy::{
    AbsPath, Access, Asking, Effect, Flags, Fsync, Grants, Limit, Limits, Mode, NetworkMode,
    Observe, OnError, OnGap, ProviderSpec, Rule, SandboxRules, Source, Verdict,
};

use crate::args::{EngineArg, ModeArg, NetArg, OnGapArg, PolicyArgs};
use crate::error::CliError;
use crate::messages;
use crate::providers::plain_registry;

/// A request as far as the arguments define it, and its policy. The caller adds the command.
pub(crate) struct ResolvedArgs {
    pub(crate) request: RunRequest,
    pub(crate) resolved: ResolvedPolicy,
}

/// The words of a command as typed: a shell line, or words.
pub(crate) fn command_words(line: Option<String>, command: Vec<OsString>) -> Vec<OsString> {
    match line {
        Some(line) => vec!["/bin/sh".into(), "-c".into(), line.into()],
        None => command,
    }
}

/// Returns the agent name from the environment.
pub(crate) fn agent_from_env() -> Option<String> {
    std::env::var_os("RINGFENCE_AGENT")
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !name.is_empty())
}

/// Resolves the policy for display; no command runs under it.
pub(crate) fn resolve_for_display(arguments: &PolicyArgs) -> Result<ResolvedArgs, CliError> {
    resolve_args(inspect_in, arguments, RunOverrides::default())
}

/// Returns warnings about flags that have no effect.
fn flags_without_effect(arguments: &PolicyArgs, resolved: &ResolvedPolicy) -> Vec<String> {
    let ResolvedPolicy { grants, surroundings, .. } = resolved;
    let root = |entry: &String| {
        grants.rules.iter().find(|rule| {
            rule.origin.source == Source::Flag && rule.origin.text == format!("--read {entry}")
        })
    };
    let is_absent = |rule: &&Rule| {
        fs::symlink_metadata(rule.root.as_path())
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let absent = arguments.read.iter().filter(|entry| root(entry).filter(is_absent).is_some());
    let unset = arguments.env.iter().filter(|word| {
        !word.contains(['=', '*'])
            && !surroundings.variables.iter().any(|(name, _)| name == word.as_str())
    });
    let paths = absent
        .map(|entry| format!("--read {entry} has no effect: there is no such file or directory"));
    paths
        .chain(unset.map(|name| format!("--env {name} has no effect: the variable is not set")))
        .collect()
}

/// Settings that only commands that run have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunOverrides<'a> {
    pub(crate) timeout: Option<&'a str>,
    /// The agent whose definition applies.
    pub(crate) agent: Option<&'a str>,
    /// The value of `--sandbox` and `--no-sandbox`, if given.
    pub(crate) sandbox: Option<bool>,
    pub(crate) observe: Option<Observe>,
    pub(crate) ask: Option<Asking>,
}

/// Resolves the policy for a command to run.
pub(crate) fn resolve_for_run(
    arguments: &PolicyArgs,
    chosen: RunOverrides<'_>,
) -> Result<ResolvedArgs, CliError> {
    let resolved_args = resolve_args(resolve_in, arguments, chosen)?;
    let provider = &resolved_args.resolved.grants.sandbox.provider;
    plain_registry().get(provider).map_err(EngineError::from)?;
    Ok(resolved_args)
}

type ResolveMode = fn(HostEnvironment, &Flags, &PolicyFiles) -> Result<ResolvedPolicy, EngineError>;

fn resolve_args(
    resolve: ResolveMode,
    arguments: &PolicyArgs,
    chosen: RunOverrides<'_>,
) -> Result<ResolvedArgs, CliError> {
    let cwd = canonical_directory(arguments.directory.as_deref())?;
    let mut flags = Flags::none(cwd.clone());
    flags.mode = arguments.mode.map(|mode| match mode {
        ModeArg::ReadOnly => Mode::ReadOnly,
        ModeArg::WorkspaceWrite => Mode::WorkspaceWrite,
        ModeArg::FullAccess => Mode::FullAccess,
    });
    flags.net = arguments.net.map(|net| match net {
        NetArg::None => NetworkMode::None,
        NetArg::AllowList => NetworkMode::AllowList,
        NetArg::Full => NetworkMode::Full,
    });
    flags.allow_host = arguments.allow_host.clone();
    flags.deny_host = arguments.deny_host.clone();
    flags.allow_localhost = arguments.allow_localhost.clone();
    flags.bind = arguments.bind.clone();
    flags.on_gap = arguments.on_gap.map(|on_gap| match on_gap {
        OnGapArg::Refuse => OnGap::Refuse,
        OnGapArg::Run => OnGap::Run,
    });
    flags.started_in = arguments
        .started_in
        .as_deref()
        .map(|start| canonical_directory(Some(start)))
        .transpose()?;
    flags.enabled = chosen.sandbox;
    flags.provider = arguments.provider.clone();
    flags.observe = chosen.observe;
    flags.ask = chosen.ask;
    flags.read = arguments.read.clone();
    flags.write = arguments.write.clone();
    flags.deny = arguments.deny.clone();
    flags.hide = arguments.hide.clone();
    flags.protect = arguments.protect.clone();
    flags.except = arguments.except.clone();
    flags.env = arguments.env.iter().map(|word| variable(word)).collect::<Result<_, _>>()?;
    flags.limits = limits(&arguments.limit)?;
    if let Some(timeout) = chosen.timeout {
        flags.limits.wall_ms = Some(parse_duration_ms(timeout)?);
    }
    let files = PolicyFiles {
        project: arguments.policy.as_deref().map(absolute_path).transpose()?,
        agent: chosen.agent.map(str::to_owned),
        ..PolicyFiles::default()
    };
    let mut resolved =
        resolve(gather_host_environment(&project(arguments, &cwd)?)?, &flags, &files)?;
    stay_within(arguments, &cwd, &resolved)?;
    apply_engine(arguments.engine, &mut resolved.grants)?;
    check_absent_writes(&resolved.grants)?;
    for warning in
        resolved.grants.warnings.iter().chain(&flags_without_effect(arguments, &resolved))
    {
        messages::print_warning(warning);
    }
    let (command, stdio, session) = (Vec::new(), StdioMode::Inherit, session_id());
    let (asker, agent) = (None, files.agent.clone());
    let request = RunRequest { command, cwd, flags, files, stdio, asker, agent, session };
    Ok(ResolvedArgs { request, resolved })
}

/// Returns the directory to search for the project from.
fn project(arguments: &PolicyArgs, cwd: &AbsPath) -> Result<AbsPath, CliError> {
    arguments
        .project
        .as_deref()
        .map_or_else(|| Ok(cwd.clone()), |project| canonical_directory(Some(project)))
}

/// Refuses a working directory outside the project given with `--project`.
fn stay_within(
    arguments: &PolicyArgs,
    cwd: &AbsPath,
    resolved: &ResolvedPolicy,
) -> Result<(), CliError> {
    let workspace = &resolved.grants.workspace;
    if arguments.project.is_none() || cwd.is_within(workspace) {
        return Ok(());
    }
    Err(CliError::Usage {
        what: format!("{cwd} is not in the project {workspace}"),
        hint: format!("run `cd {workspace}` first"),
    })
}

/// Applies `--engine`, an option of the provider `local`. The managed policy's choice stays.
fn apply_engine(engine: EngineArg, grants: &mut Grants) -> Result<(), CliError> {
    let name = match engine {
        EngineArg::Auto => return Ok(()),
        EngineArg::Namespaces => "namespaces",
        EngineArg::Landlock => "landlock",
    };
    let refuse = |why: String, hint: &str| {
        Err(CliError::Usage { what: format!("`--engine {name}` {why}"), hint: hint.into() })
    };
    if !grants.is_confined() {
        return refuse(
            "requires a sandbox, but the policy turns it off".into(),
            "omit `--engine`; `ringfence policy show --origin` shows which file or flag turned the sandbox off",
        );
    }
    let SandboxRules { provider, provider_origin, .. } = &mut grants.sandbox;
    if provider.name != ProviderSpec::LOCAL {
        return refuse(
            format!("requires the provider `local`, but the policy chooses `{}`", provider.name),
            "omit `--engine`, or use `--provider local`",
        );
    }
    let is_managed = provider_origin.source == Source::Managed;
    if is_managed && provider.options.get(EngineChoice::OPTION) != Some(name) {
        return refuse(
            format!("is not the choice of the managed policy ({provider_origin})"),
            "omit `--engine`",
        );
    }
    provider.options.set(EngineChoice::OPTION, name);
    Ok(())
}

/// Refuses a `--write` that can have no effect in this run.
///
/// A path is allowed by mounting it, so it must exist, or its directory must be writable. An entry
/// of a policy file may be for later; a flag is for now.
fn check_absent_writes(grants: &Grants) -> Result<(), CliError> {
    let is_flag = |rule: &&Rule| rule.effect == Effect::Write && rule.origin.source == Source::Flag;
    for rule in grants.rules.iter().filter(is_flag).filter(|_| grants.is_confined()) {
        let around = rule.root.parent().unwrap_or_else(AbsPath::root);
        if fs::symlink_metadata(rule.root.as_path()).is_ok()
            || grants.verdict(&around, Access::Write) == Verdict::Allowed
        {
            continue;
        }
        let path = shell_word(&rule.root.to_string_lossy());
        return Err(CliError::Usage {
            what: format!(
                "`{}` has no effect: {} does not exist, and {around} is not writable",
                rule.origin.text, rule.root
            ),
            hint: format!("create it first: `mkdir -p {path}` or `touch {path}`"),
        });
    }
    Ok(())
}

/// Returns the policy word.
pub(crate) fn gap_word(on_gap: OnGap) -> &'static str {
    match on_gap {
        OnGap::Refuse => "refuse",
        OnGap::Run => "run",
    }
}

/// Returns the policy word.
pub(crate) fn fsync_word(fsync: Fsync) -> &'static str {
    match fsync {
        Fsync::Always => "always",
        Fsync::End => "end",
        Fsync::Never => "never",
    }
}

/// Returns the policy word.
pub(crate) fn on_error_word(on_error: OnError) -> &'static str {
    match on_error {
        OnError::Refuse => "refuse",
        OnError::Run => "run",
    }
}

/// Resolves a directory to an absolute path without symbolic links.
pub(crate) fn canonical_directory(given: Option<&Path>) -> Result<AbsPath, CliError> {
    let path = given.unwrap_or(Path::new("."));
    let fail = |source| CliError::File { what: "enter", path: path.display().to_string(), source };
    let real = fs::canonicalize(path).map_err(fail)?;
    if !real.is_dir() {
        return Err(fail(std::io::ErrorKind::NotADirectory.into()));
    }
    AbsPath::new(real).ok_or_else(|| fail(std::io::ErrorKind::InvalidInput.into()))
}

/// Makes a path absolute, relative to the current directory.
pub(crate) fn absolute_path(path: &Path) -> Result<AbsPath, CliError> {
    let fail = |source| CliError::File { what: "find", path: path.display().to_string(), source };
    let here = env::current_dir().map_err(fail)?;
    AbsPath::new(here.join(path)).ok_or_else(|| fail(std::io::ErrorKind::InvalidInput.into()))
}

/// Makes a path absolute: relative to `cwd`, or to `home` after a `~` that no shell has expanded.
pub(crate) fn expand_path(path: &OsStr, cwd: &AbsPath, home: &AbsPath) -> AbsPath {
    match Path::new(path).strip_prefix("~") {
        Ok(below) => home.join(below),
        Err(_) => cwd.join(path),
    }
}

fn variable(word: &str) -> Result<(String, Option<String>), CliError> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    if name.is_empty() || name.contains('\0') {
        return Err(CliError::Usage {
            what: format!("`{word}` is not a variable"),
            hint: "use `--env NAME` or `--env NAME=VALUE`".into(),
        });
    }
    Ok((name.to_owned(), value))
}

/// Parses `memory=2GiB` and the like; the last value of a limit wins.
fn limits(words: &[String]) -> Result<Limits, CliError> {
    let mut limits = Limits::default();
    for word in words {
        let wrong = |what: String, hint: String| CliError::Usage { what, hint };
        let (name, amount) = word.split_once('=').unwrap_or((word, ""));
        let known = || Limit::ALL.iter().map(|limit| limit.word()).collect::<Vec<_>>().join(", ");
        let limit: Limit = name.parse().map_err(|()| {
            wrong(
                format!("unknown limit `{name}`"),
                format!("use `--limit NAME=AMOUNT` with one of {}", known()),
            )
        })?;
        let most = limit.parse_amount(amount).filter(|most| *most > 0);
        let most = most.ok_or_else(|| {
            wrong(
                format!("`{amount}` is not an amount for `--limit {name}`"),
                format!("use {}", limit.expected_format()),
            )
        })?;
        limits = limits.with(limit, Some(most));
    }
    Ok(limits)
}

/// Parses `90`, `90s`, `500ms`, `5m`, `2h` to milliseconds.
pub(crate) fn parse_duration_ms(word: &str) -> Result<u64, CliError> {
    let wrong = || CliError::Usage {
        what: format!("`{word}` is not a duration"),
        hint: "use for example `--timeout 90s`, `5m` or `500ms`".into(),
    };
    let split = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).filter(|ms| *ms > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use ringfence_policy::AbsPath;

    #[track_caller]
    fn check(word: &str, expect: Option<u64>) {
        assert_eq!(super::parse_duration_ms(word).ok(), expect, "{word}");
    }

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        check("90", Some(90_000));
        check("90s", Some(90_000));
        check("500ms", Some(500));
        check("5m", Some(300_000));
        check("2h", Some(7_200_000));
        check("0", None);
        check("", None);
        check("s", None);
        check("1d", None);
        check("-1s", None);
        check("99999999999999999999", None);
        check("18446744073709551615h", None);
    }

    #[test]
    fn tilde_is_home_and_other_paths_are_relative_to_cwd() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        for (text, expect) in [
            ("~/x", "/h/x"),
            ("~", "/h"),
            ("x/../y", "/c/y"),
            ("/x", "/x"),
            ("~x", "/c/~x"),
            (".", "/c"),
        ] {
            assert_eq!(
                super::expand_path(text.as_ref(), &path("/c"), &path("/h")),
                path(expect),
                "{text}"
            );
        }
    }
}
