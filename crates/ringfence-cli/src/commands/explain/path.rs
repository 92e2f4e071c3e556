//! Explains access to paths and programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;

use ringfence_engine::plan;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Disguise, Effect, Grants, Verdict,
};
use ringfence_survey::grant_if_tracked;

use super::{ExplainAccess, ExplainVerdict, Explanation};
use ringfence_provider::SandboxDescription;

use crate::commands::resolve_args::{ResolvedArgs, expand_path};
use crate::error::CliError;
use crate::providers::plain_registry;
use crate::provisions::{Writable, find_provision};

pub(super) fn explain(
    query: ExplainAccess,
    target: &OsStr,
    resolved_args: &ResolvedArgs,
) -> Result<Vec<Explanation>, CliError> {
    let grants = &resolved_args.resolved.grants;
    let given = match query {
        ExplainAccess::Exec => program(target, resolved_args)?,
        _ => expand_path(target, &resolved_args.cwd, &grants.home),
    };
    let access = access_for_query(query);
    let paths = both(&given);
    // A plan walks the whole project, so it is built only if no rule matches.
    let is_silent = paths.iter().any(|path| grants.verdict(path, access) == Verdict::Absent);
    let sandbox = if is_silent {
        plan(&plain_registry(), &resolved_args.resolved)?.description
    } else {
        SandboxDescription::default()
    };
    let copies = if query == ExplainAccess::Read {
        resolved_args.resolved.settings_copies()
    } else {
        Vec::new()
    };
    let with_copy = |path: &AbsPath| {
        let is_copied = copies.iter().any(|copy| copy.path == *path);
        answer(grants, &sandbox, path, access)
            .line_if_some("copy", is_copied.then(|| COPY.to_owned()))
    };
    Ok(paths.iter().map(with_copy).collect())
}

const COPY: &str = "the sandbox has a readable copy without secrets (registries and mirrors only)";

/// Like [`explain`], by the rules alone: a path with a recorded denial is not one that every
/// sandbox provides.
pub(super) fn explain_by_rules(
    query: ExplainAccess,
    path: &AbsPath,
    grants: &Grants,
) -> Vec<Explanation> {
    let nothing = SandboxDescription::default();
    both(path).iter().map(|path| answer(grants, &nothing, path, access_for_query(query))).collect()
}

pub(super) fn access_for_query(query: ExplainAccess) -> Access {
    match query {
        ExplainAccess::Write => Access::Write,
        ExplainAccess::Exec => Access::Execute,
        ExplainAccess::Read
        | ExplainAccess::Connect
        | ExplainAccess::Env
        | ExplainAccess::Command => Access::Read,
    }
}

/// Returns the path as given, and as resolved if that differs.
fn both(given: &AbsPath) -> Vec<AbsPath> {
    let real = real(given);
    let other = (real != *given).then_some(real);
    std::iter::once(given.clone()).chain(other).collect()
}

/// Returns a program's path, or searches for it in `PATH`.
fn program(target: &OsStr, resolved_args: &ResolvedArgs) -> Result<AbsPath, CliError> {
    if target.as_encoded_bytes().contains(&b'/') {
        return Ok(expand_path(target, &resolved_args.cwd, &resolved_args.resolved.grants.home));
    }
    let set = resolved_args.resolved.grants.environment.set.get("PATH").map(OsString::from);
    let search = set.or_else(|| env::var_os("PATH")).unwrap_or_default();
    let found = env::split_paths(&search)
        .map(|directory| directory.join(target))
        .find(|path| path.is_file());
    found.and_then(AbsPath::new).ok_or_else(|| CliError::Usage {
        what: format!("`{}` is not on PATH", target.to_string_lossy()),
        hint: "give the program's path, such as `./build.sh`".into(),
    })
}

/// Resolves symbolic links, as far as the path exists.
fn real(path: &AbsPath) -> AbsPath {
    let found = path.ancestors().find_map(|above| {
        let real = AbsPath::new(fs::canonicalize(above.as_path()).ok()?)?;
        Some(real.join(path.relative_to(&above)?))
    });
    found.unwrap_or_else(|| path.clone())
}

fn answer(
    grants: &Grants,
    sandbox: &SandboxDescription,
    path: &AbsPath,
    access: Access,
) -> Explanation {
    let tracked = with_tracked(grants, path, access);
    let grants = tracked.as_ref().unwrap_or(grants);
    let decision = grants.decide(path, access);
    if decision.verdict == Verdict::Absent
        && let Some(made) = made(sandbox, path, access)
    {
        return made;
    }
    let (verdict, result) = match decision.verdict {
        Verdict::Allowed => ("allowed", ExplainVerdict::Allowed),
        Verdict::Absent => ("not there", ExplainVerdict::Refused),
        Verdict::Denied => ("denied", ExplainVerdict::Refused),
        Verdict::ReadOnly => ("read-only", ExplainVerdict::Refused),
    };
    let mut answer = Explanation::new(path.to_string(), verdict, result);
    let silence = match decision.verdict {
        _ if !grants.is_confined() => Some("nothing is confined"),
        Verdict::Absent => Some("no rule allows it, so it looks as if it did not exist"),
        _ => None,
    };
    answer = answer.line_if_some("why", silence.map(str::to_owned));
    let (mut change, rest) =
        decision.explain().into_iter().partition::<Vec<_>, _>(|line| line.label == "change");
    answer.lines.extend(rest.into_iter().filter(|line| line.label != "verdict"));
    let shown = match grants.disguise(path) {
        Disguise::Deny => None,
        Disguise::Hide => {
            Some("as absent: a program that reads it gets ENOENT, and the attempt is recorded")
        }
        Disguise::Empty => {
            Some("as empty: a program that reads it gets no data, and the attempt is recorded")
        }
    };
    let lifted = grants.pattern_overridden_by_git(path).map(|pattern| {
        let pattern = &pattern.origin.text;
        format!("git tracks it, so `{pattern}` does not apply; `[filesystem] tracked = \"deny\"` would deny it")
    });
    answer = answer
        .line_if_some("shown", shown.map(str::to_owned))
        .line_if_some("kept", kept(&decision))
        .line_if_some("tracked", lifted);
    if access == Access::Read
        && decision.is_env_file_pattern()
        && grants.disguise(path) == Disguise::Deny
    {
        change.iter_mut().for_each(|line| line.text.push_str(EMPTY_ENV_FILES));
    }
    answer.lines.extend(change);
    answer
}

/// The hint for tools that load a `.env` file at every start and work with an empty one.
const EMPTY_ENV_FILES: &str =
    "; or show it as an empty file: ringfence configure set filesystem.env-files empty";

/// Returns the grants with `path` allowed, if it is denied and git tracks it.
fn with_tracked(grants: &Grants, path: &AbsPath, access: Access) -> Option<Grants> {
    if grants.verdict(path, access) != Verdict::Denied {
        return None;
    }
    let mut tracked = grants.clone();
    grant_if_tracked(&mut tracked, path);
    (!tracked.tracked.is_empty()).then_some(tracked)
}

/// Returns the storage location of a private path.
fn kept(decision: &Decision) -> Option<String> {
    match &decision.rule {
        Some(DecidingRule::Rule(rule)) => match &rule.effect {
            Effect::Private { store, .. } => Some(format!("{store}, for this project only")),
            _ => None,
        },
        _ => None,
    }
}

/// Explains a path that every sandbox provides without a rule.
fn made(sandbox: &SandboxDescription, path: &AbsPath, access: Access) -> Option<Explanation> {
    let found = find_provision(sandbox, path)?;
    let (verdict, result) = match (access, found.writable) {
        (Access::Write, Writable::No) => ("read-only", ExplainVerdict::Refused),
        _ => ("allowed", ExplainVerdict::Allowed),
    };
    Some(
        Explanation::new(path.to_string(), verdict, result)
            .line("rule", found.what)
            .line("from", "built in"),
    )
}
