//! Paths and programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;

use ringfence_enforce::{Plan, open_tracked};
use ringfence_engine::plan;
use ringfence_local::LocalProvider;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Disguise, Effect, Grants, Verdict,
};

use super::{ExplainAccess, ExplainVerdict, Explanation};
use crate::commands::resolve_args::{ResolvedArgs, below_home};
use crate::error::CliError;
use crate::provisions::{Writable, provided};

pub(super) fn explain(
    wish: ExplainAccess,
    target: &OsStr,
    meant: &ResolvedArgs,
) -> Result<Vec<Explanation>, CliError> {
    let grants = &meant.resolved.grants;
    let asked = match wish {
        ExplainAccess::Exec => program(target, meant)?,
        _ => below_home(target, &meant.cwd, &grants.home),
    };
    let access = access(wish);
    let paths = both(&asked);
    // A plan looks through the whole project, so it is made only where the rules are silent.
    let is_silent = paths.iter().any(|path| grants.verdict(path, access) == Verdict::Absent);
    let plan = if is_silent {
        plan(&LocalProvider::default(), &meant.resolved)?
    } else {
        Plan { steps: Vec::new(), gaps: Vec::new() }
    };
    let copies =
        if wish == ExplainAccess::Read { meant.resolved.settings_copies() } else { Vec::new() };
    let with_copy = |path: &AbsPath| {
        let is_copied = copies.iter().any(|copy| copy.path == *path);
        answer(grants, &plan, path, access).maybe("copy", is_copied.then(|| COPY.to_owned()))
    };
    Ok(paths.iter().map(with_copy).collect())
}

const COPY: &str = "the sandbox has a copy of it without its secrets (registries and mirrors only), which can be read";

/// As [`explain`], by the rules alone: of what was refused it is known that no sandbox has it
/// of its own.
pub(super) fn by_rules(wish: ExplainAccess, path: &AbsPath, grants: &Grants) -> Vec<Explanation> {
    let nothing = Plan { steps: Vec::new(), gaps: Vec::new() };
    both(path).iter().map(|path| answer(grants, &nothing, path, access(wish))).collect()
}

pub(super) fn access(wish: ExplainAccess) -> Access {
    match wish {
        ExplainAccess::Write => Access::Write,
        ExplainAccess::Exec => Access::Execute,
        ExplainAccess::Read
        | ExplainAccess::Connect
        | ExplainAccess::Env
        | ExplainAccess::Command => Access::Read,
    }
}

/// The path as asked, and as it really is, where that is another.
fn both(asked: &AbsPath) -> Vec<AbsPath> {
    let real = real(asked);
    let other = (real != *asked).then_some(real);
    std::iter::once(asked.clone()).chain(other).collect()
}

/// A program by its path, or the one that `PATH` finds.
fn program(target: &OsStr, meant: &ResolvedArgs) -> Result<AbsPath, CliError> {
    if target.as_encoded_bytes().contains(&b'/') {
        return Ok(below_home(target, &meant.cwd, &meant.resolved.grants.home));
    }
    let set = meant.resolved.grants.environment.set.get("PATH").map(OsString::from);
    let search = set.or_else(|| env::var_os("PATH")).unwrap_or_default();
    let found = env::split_paths(&search)
        .map(|directory| directory.join(target))
        .find(|path| path.is_file());
    found.and_then(AbsPath::new).ok_or_else(|| CliError::Words {
        what: format!("`{}` is not on PATH", target.to_string_lossy()),
        hint: "give the program's path, such as `./build.sh`".into(),
    })
}

/// The path without symbolic links, as far as it exists.
fn real(path: &AbsPath) -> AbsPath {
    let found = path.ancestors().find_map(|above| {
        let real = AbsPath::new(fs::canonicalize(above.as_path()).ok()?)?;
        Some(real.join(path.relative_to(&above)?))
    });
    found.unwrap_or_else(|| path.clone())
}

fn answer(grants: &Grants, plan: &Plan, path: &AbsPath, access: Access) -> Explanation {
    let tracked = with_tracked(grants, path, access);
    let grants = tracked.as_ref().unwrap_or(grants);
    let decision = grants.decide(path, access);
    if decision.verdict == Verdict::Absent
        && let Some(made) = made(plan, path, access)
    {
        return made;
    }
    let (verdict, fate) = match decision.verdict {
        Verdict::Allowed => ("allowed", ExplainVerdict::Allowed),
        Verdict::Absent => ("not there", ExplainVerdict::Refused),
        Verdict::Denied => ("denied", ExplainVerdict::Refused),
        Verdict::ReadOnly => ("read-only", ExplainVerdict::Refused),
    };
    let mut answer = Explanation::new(path.to_string(), verdict, fate);
    let silence = match decision.verdict {
        _ if !grants.is_confined() => Some("nothing is confined"),
        Verdict::Absent => Some("no rule opens it, so it looks as if it did not exist"),
        _ => None,
    };
    answer = answer.maybe("why", silence.map(str::to_owned));
    let (mut change, rest) =
        decision.explain().into_iter().partition::<Vec<_>, _>(|line| line.label == "change");
    answer.lines.extend(rest.into_iter().filter(|line| line.label != "verdict"));
    let shown = match grants.disguise(path) {
        Disguise::Deny => None,
        Disguise::Hide => {
            Some("as absent: a program that reads it gets ENOENT, and the attempt is recorded")
        }
        Disguise::Empty => {
            Some("as empty: a program that reads it gets nothing, and the attempt is recorded")
        }
    };
    let lifted = grants.pattern_lifted_by_git(path).map(|pattern| {
        let pattern = &pattern.origin.text;
        format!("git tracks it, so `{pattern}` does not hold; `[filesystem] tracked = \"deny\"` would deny it")
    });
    answer = answer
        .maybe("shown", shown.map(str::to_owned))
        .maybe("kept", kept(&decision))
        .maybe("tracked", lifted);
    if access == Access::Read
        && decision.is_of_env_files()
        && grants.disguise(path) == Disguise::Deny
    {
        change.iter_mut().for_each(|line| line.text.push_str(EMPTY_ENV_FILES));
    }
    answer.lines.extend(change);
    answer
}

/// The proposal for tools that load a `.env` file at every start: they need none of its content.
const EMPTY_ENV_FILES: &str =
    "; or let tools find it empty: ringfence configure set filesystem.env-files empty";

/// The grants with `path` open, if it is denied and git tracks it.
fn with_tracked(grants: &Grants, path: &AbsPath, access: Access) -> Option<Grants> {
    if grants.verdict(path, access) != Verdict::Denied {
        return None;
    }
    let mut tracked = grants.clone();
    open_tracked(&mut tracked, path);
    (!tracked.tracked.is_empty()).then_some(tracked)
}

/// Where a private place really is.
fn kept(decision: &Decision) -> Option<String> {
    match &decision.rule {
        Some(DecidingRule::Rule(rule)) => match &rule.effect {
            Effect::Private { store, .. } => Some(format!("{store}, for this project alone")),
            _ => None,
        },
        _ => None,
    }
}

/// What every sandbox has without any rule: its own files and directories.
fn made(plan: &Plan, path: &AbsPath, access: Access) -> Option<Explanation> {
    let found = provided(plan, path)?;
    let (verdict, fate) = match (access, found.writable) {
        (Access::Write, Writable::No) => ("read-only", ExplainVerdict::Refused),
        _ => ("allowed", ExplainVerdict::Allowed),
    };
    Some(
        Explanation::new(path.to_string(), verdict, fate)
            .line("rule", found.what)
            .line("from", "built in"),
    )
}
