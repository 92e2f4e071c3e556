//! From words as typed to what they mean.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;

use ringfence_api::{StdioMode, typed};
use ringfence_audit::session_id;
use ringfence_engine::{
    EngineError, HostEnvironment, PolicyFiles, ResolvedPolicy, RunRequest, gather, inspect_in,
    resolve_in,
};
use ringfence_policy::{
    AbsPath, Access, Asking, Effect, Flags, Fsync, Grants, Limit, Limits, Mode, NetworkMode,
    Observe, OnError, OnGap, Rule, Source, Verdict,
};

use crate::args::{EngineArg, ModeArg, NetArg, OnGapArg, PolicyArgs};
use crate::error::CliError;
use crate::messages;

/// A command line's policy, resolved.
pub(crate) struct ResolvedArgs {
    pub(crate) cwd: AbsPath,
    pub(crate) flags: Flags,
    pub(crate) files: PolicyFiles,
    pub(crate) resolved: ResolvedPolicy,
}

/// A command as it was typed: a line for the shell, or words.
pub(crate) struct TypedCommand {
    pub(crate) line: Option<String>,
    pub(crate) command: Vec<OsString>,
    pub(crate) agent: Option<String>,
}

impl ResolvedArgs {
    /// The request for a command under this policy, in a session of its own.
    pub(crate) fn asked(
        self,
        typed: TypedCommand,
        stdio: StdioMode,
    ) -> (RunRequest, ResolvedPolicy) {
        let command = match typed.line {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line.into()],
            None => typed.command,
        };
        let agent = typed.agent.or_else(agent);
        let asked = RunRequest {
            command,
            cwd: self.cwd,
            flags: self.flags,
            files: self.files,
            stdio,
            asker: None,
            agent,
            session: session_id(),
        };
        (asked, self.resolved)
    }
}

/// Who acts, by the environment.
pub(crate) fn agent() -> Option<String> {
    std::env::var_os("RINGFENCE_AGENT")
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !name.is_empty())
}

/// Resolves the policy that `arguments` ask for, to be shown: no command runs by it.
pub(crate) fn meant(arguments: &PolicyArgs) -> Result<ResolvedArgs, CliError> {
    meant_by(inspect_in, arguments, RunOverrides::default())
}

/// Flags that open what is not there.
fn without_effect(arguments: &PolicyArgs, resolved: &ResolvedPolicy) -> Vec<String> {
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
        .map(|entry| format!("--read {entry} opens nothing: there is no such file or directory"));
    paths
        .chain(unset.map(|name| format!("--env {name} passes nothing: the variable is not set")))
        .collect()
}

/// What is chosen for a command that is to be run, and for no other purpose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunOverrides<'a> {
    pub(crate) timeout: Option<&'a str>,
    /// Whose definition holds.
    pub(crate) agent: Option<&'a str>,
    /// Whether there is a sandbox, if somebody says so.
    pub(crate) sandbox: Option<bool>,
    pub(crate) observe: Option<Observe>,
    pub(crate) ask: Option<Asking>,
}

/// The same for a command that is to be run.
pub(crate) fn meant_to_run(
    arguments: &PolicyArgs,
    chosen: RunOverrides<'_>,
) -> Result<ResolvedArgs, CliError> {
    meant_by(resolve_in, arguments, chosen)
}

type Resolve = fn(HostEnvironment, &Flags, &PolicyFiles) -> Result<ResolvedPolicy, EngineError>;

fn meant_by(
    resolve: Resolve,
    arguments: &PolicyArgs,
    chosen: RunOverrides<'_>,
) -> Result<ResolvedArgs, CliError> {
    let cwd = directory(arguments.directory.as_deref())?;
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
    flags.started_in =
        arguments.started_in.as_deref().map(|start| directory(Some(start))).transpose()?;
    flags.enabled = chosen.sandbox;
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
        flags.limits.wall_ms = Some(duration(timeout)?);
    }
    let files = PolicyFiles {
        project: arguments.policy.as_deref().map(absolute).transpose()?,
        agent: chosen.agent.map(str::to_owned),
        ..PolicyFiles::default()
    };
    let resolved = resolve(gather(&project(arguments, &cwd)?)?, &flags, &files)?;
    stay_within(arguments, &cwd, &resolved)?;
    check_engine(arguments.engine, &resolved.grants)?;
    check_absent_writes(&resolved.grants)?;
    for warning in resolved.grants.warnings.iter().chain(&without_effect(arguments, &resolved)) {
        messages::warning(warning);
    }
    Ok(ResolvedArgs { cwd, flags, files, resolved })
}

/// From where the project is looked for.
fn project(arguments: &PolicyArgs, cwd: &AbsPath) -> Result<AbsPath, CliError> {
    arguments.project.as_deref().map_or_else(|| Ok(cwd.clone()), |project| directory(Some(project)))
}

/// Whoever names a project does not work in another one.
fn stay_within(
    arguments: &PolicyArgs,
    cwd: &AbsPath,
    resolved: &ResolvedPolicy,
) -> Result<(), CliError> {
    let workspace = &resolved.grants.workspace;
    if arguments.project.is_none() || cwd.is_within(workspace) {
        return Ok(());
    }
    Err(CliError::Words {
        what: format!("{cwd} is not in the project {workspace}"),
        hint: format!("go there first: `cd {workspace}`"),
    })
}

/// Whoever names an engine wants to be confined by it, and is not obeyed by half.
///
/// Every engine that can be named is the one that `auto` takes, so there is nothing to choose
/// beyond that yet.
fn check_engine(engine: EngineArg, grants: &Grants) -> Result<(), CliError> {
    match engine {
        EngineArg::Namespaces if !grants.is_confined() => Err(CliError::Words {
            what: "`--engine namespaces` asks for confinement, and the policy is to confine nothing".into(),
            hint: "leave out `--engine`; `ringfence policy show --origin` says who switched confinement off".into(),
        }),
        EngineArg::Auto | EngineArg::Namespaces => Ok(()),
    }
}

/// Refuses a `--write` that could have no effect in this run.
///
/// A path is opened by mounting it, so it has to be there, or to be made in a directory that is
/// writable itself. An entry of a policy file may be meant for later; a flag is meant for now.
fn check_absent_writes(grants: &Grants) -> Result<(), CliError> {
    let is_flag = |rule: &&Rule| rule.effect == Effect::Write && rule.origin.source == Source::Flag;
    for rule in grants.rules.iter().filter(is_flag).filter(|_| grants.is_confined()) {
        let around = rule.root.parent().unwrap_or_else(AbsPath::root);
        if fs::symlink_metadata(rule.root.as_path()).is_ok()
            || grants.verdict(&around, Access::Write) == Verdict::Allowed
        {
            continue;
        }
        let path = typed(&rule.root.to_string_lossy());
        return Err(CliError::Words {
            what: format!(
                "`{}` opens nothing: {} does not exist, and nothing may be made in {around}",
                rule.origin.text, rule.root
            ),
            hint: format!("make it first: `mkdir -p {path}` or `touch {path}`"),
        });
    }
    Ok(())
}

/// As it is written in a policy.
pub(crate) fn gap_word(on_gap: OnGap) -> &'static str {
    match on_gap {
        OnGap::Refuse => "refuse",
        OnGap::Run => "run",
    }
}

/// As it is written in a policy.
pub(crate) fn fsync_word(fsync: Fsync) -> &'static str {
    match fsync {
        Fsync::Always => "always",
        Fsync::End => "end",
        Fsync::Never => "never",
    }
}

/// As it is written in a policy.
pub(crate) fn on_error_word(on_error: OnError) -> &'static str {
    match on_error {
        OnError::Refuse => "refuse",
        OnError::Run => "run",
    }
}

/// A directory to stand in, without symbolic links on the way.
pub(crate) fn directory(asked: Option<&Path>) -> Result<AbsPath, CliError> {
    let path = asked.unwrap_or(Path::new("."));
    let fail = |source| CliError::File { what: "enter", path: path.display().to_string(), source };
    let real = fs::canonicalize(path).map_err(fail)?;
    if !real.is_dir() {
        return Err(fail(std::io::ErrorKind::NotADirectory.into()));
    }
    AbsPath::new(real).ok_or_else(|| fail(std::io::ErrorKind::InvalidInput.into()))
}

/// A path as typed, from where the person stands.
pub(crate) fn absolute(path: &Path) -> Result<AbsPath, CliError> {
    let fail = |source| CliError::File { what: "find", path: path.display().to_string(), source };
    let here = env::current_dir().map_err(fail)?;
    AbsPath::new(here.join(path)).ok_or_else(|| fail(std::io::ErrorKind::InvalidInput.into()))
}

/// A path to ask about: from `cwd`, and from `home` behind a `~` that no shell has replaced.
pub(crate) fn below_home(path: &OsStr, cwd: &AbsPath, home: &AbsPath) -> AbsPath {
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
        return Err(CliError::Words {
            what: format!("`{word}` is not a variable"),
            hint: "write `--env NAME` or `--env NAME=VALUE`".into(),
        });
    }
    Ok((name.to_owned(), value))
}

/// `memory=2GiB` and the like; of one that is said twice, the last.
fn limits(words: &[String]) -> Result<Limits, CliError> {
    let mut limits = Limits::default();
    for word in words {
        let wrong = |what: String, hint: String| CliError::Words { what, hint };
        let (name, amount) = word.split_once('=').unwrap_or((word, ""));
        let known = || Limit::ALL.iter().map(|limit| limit.word()).collect::<Vec<_>>().join(", ");
        let limit: Limit = name.parse().map_err(|()| {
            wrong(
                format!("there is no limit `{name}`"),
                format!("write `--limit NAME=AMOUNT` with one of {}", known()),
            )
        })?;
        let most = limit.amount(amount).filter(|most| *most > 0);
        let most = most.ok_or_else(|| {
            wrong(
                format!("`{amount}` is no amount for `--limit {name}`"),
                format!("write {}", limit.expected()),
            )
        })?;
        limits = limits.with(limit, Some(most));
    }
    Ok(limits)
}

/// `90`, `90s`, `500ms`, `5m`, `2h` in milliseconds.
pub(crate) fn duration(word: &str) -> Result<u64, CliError> {
    let wrong = || CliError::Words {
        what: format!("`{word}` is not a duration"),
        hint: "write for example `--timeout 90s`, `5m` or `500ms`".into(),
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
        assert_eq!(super::duration(word).ok(), expect, "{word}");
    }

    #[test]
    fn durations() {
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
    fn a_tilde_is_home_and_the_rest_is_from_here() {
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
                super::below_home(text.as_ref(), &path("/c"), &path("/h")),
                path(expect),
                "{text}"
            );
        }
    }
}
