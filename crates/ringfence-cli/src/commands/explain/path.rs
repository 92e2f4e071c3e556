//! Paths and programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;

use ringfence_enforce::{Plan, Step};
use ringfence_engine::plan;
use ringfence_local::Local;
use ringfence_policy::{AbsPath, Access, Because, Decision, Effect, Grants, Verdict};

use super::{Answer, Fate, Wish};
use crate::commands::words::{Meant, below_home};
use crate::error::CliError;

pub(super) fn explain(wish: Wish, target: &OsStr, meant: &Meant) -> Result<Vec<Answer>, CliError> {
    let grants = &meant.resolved.grants;
    let asked = match wish {
        Wish::Exec => program(target, meant)?,
        _ => below_home(target, &meant.cwd, &grants.home),
    };
    let access = match wish {
        Wish::Write => Access::Write,
        Wish::Exec => Access::Execute,
        Wish::Read | Wish::Connect | Wish::Env => Access::Read,
    };
    let real = real(&asked);
    let mut paths = vec![asked];
    paths.extend((real != paths[0]).then_some(real));
    // A plan looks through the whole project, so it is made only where the rules are silent.
    let is_silent = paths.iter().any(|path| grants.verdict(path, access) == Verdict::Absent);
    let plan = if is_silent { plan(&Local::default(), &meant.resolved)? } else { Plan { steps: Vec::new(), gaps: Vec::new() } };
    Ok(paths.iter().map(|path| answer(grants, &plan, path, access)).collect())
}

/// A program by its path, or the one that `PATH` finds.
fn program(target: &OsStr, meant: &Meant) -> Result<AbsPath, CliError> {
    if target.as_encoded_bytes().contains(&b'/') {
        return Ok(below_home(target, &meant.cwd, &meant.resolved.grants.home));
    }
    let set = meant.resolved.grants.environment.set.get("PATH").map(OsString::from);
    let search = set.or_else(|| env::var_os("PATH")).unwrap_or_default();
    let found = env::split_paths(&search).map(|directory| directory.join(target)).find(|path| path.is_file());
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

fn answer(grants: &Grants, plan: &Plan, path: &AbsPath, access: Access) -> Answer {
    let decision = grants.decide(path, access);
    if decision.verdict == Verdict::Absent
        && let Some(made) = made(plan, path, access)
    {
        return made;
    }
    let (verdict, fate) = match decision.verdict {
        Verdict::Allowed => ("allowed", Fate::Allowed),
        Verdict::Absent => ("not there", Fate::Refused),
        Verdict::Denied => ("denied", Fate::Refused),
        Verdict::ReadOnly => ("read-only", Fate::Refused),
    };
    let mut answer = Answer::new(path.to_string(), verdict, fate);
    let silence = match decision.verdict {
        _ if !grants.is_confined() => Some("nothing is confined"),
        Verdict::Absent => Some("no rule opens it, so it looks as if it did not exist"),
        _ => None,
    };
    answer = answer.maybe("why", silence.map(str::to_owned));
    let (change, rest) = decision.explain().into_iter().partition::<Vec<_>, _>(|line| line.label == "change");
    answer.lines.extend(rest.into_iter().filter(|line| line.label != "verdict"));
    answer = answer.maybe("kept", kept(&decision));
    answer.lines.extend(change);
    answer
}

/// Where a private place really is.
fn kept(decision: &Decision) -> Option<String> {
    match &decision.rule {
        Some(Because::Rule(rule)) => match &rule.effect {
            Effect::Private { store, .. } => Some(format!("{store}, for this project alone")),
            _ => None,
        },
        _ => None,
    }
}

/// What every sandbox has without any rule: its own files and directories.
fn made(plan: &Plan, path: &AbsPath, access: Access) -> Option<Answer> {
    let (what, writable) = plan.steps.iter().find_map(|step| provision(step, path)).or_else(|| {
        let leads_on = plan.steps.iter().filter_map(place).any(|below| below != path && below.is_within(path));
        leads_on.then_some(("a directory of the sandbox's own, in which only what is opened shows", Writable::No))
    })?;
    let (verdict, fate) = match (access, writable) {
        (Access::Write, Writable::No) => ("read-only", Fate::Refused),
        _ => ("allowed", Fate::Allowed),
    };
    Some(Answer::new(path.to_string(), verdict, fate).line("rule", what).line("from", "built in"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writable {
    Yes,
    No,
}

/// What `step` puts at `path`.
fn provision(step: &Step, path: &AbsPath) -> Option<(&'static str, Writable)> {
    let is_below = |root: &str| AbsPath::new(root).is_some_and(|root| path.is_within(&root));
    match step {
        Step::Scratch { path: root } if path.is_within(root) => Some(("private to the sandbox, gone when it ends", Writable::Yes)),
        Step::Processes if is_below("/proc") => Some(("the sandbox's own processes", Writable::Yes)),
        Step::Devices if is_below("/dev") && is_device(path) => Some(("a device that programs need", Writable::Yes)),
        Step::File { path: at, .. } if at == path => Some(("a file that ringfence writes for the sandbox", Writable::No)),
        Step::Directory { path: at } if at == path => Some(("a directory of the sandbox's own, in which only what is opened shows", Writable::No)),
        Step::Symlink { path: at, .. } if at == path => Some(("a link that leads to something opened", Writable::No)),
        _ => None,
    }
}

fn is_device(path: &AbsPath) -> bool {
    const DEVICES: [&str; 12] = ["null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "fd", "stdin", "stdout", "stderr"];
    let below = path.as_path().strip_prefix("/dev").ok().and_then(|below| below.iter().next());
    below.is_none_or(|name| DEVICES.iter().any(|device| name == *device))
}

fn place(step: &Step) -> Option<&AbsPath> {
    match step {
        Step::Symlink { path, .. }
        | Step::File { path, .. }
        | Step::Directory { path }
        | Step::Bind { path, .. }
        | Step::Private { path, .. }
        | Step::Scratch { path }
        | Step::Denied { path, .. }
        | Step::Passage { path } => Some(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, access: Access, expect: Option<&str>) {
        let at = |text: &str| AbsPath::new(text).unwrap();
        let steps = vec![
            Step::Processes,
            Step::Devices,
            Step::Scratch { path: at("/tmp") },
            Step::File { path: at("/etc/passwd"), content: String::new() },
            Step::Directory { path: at("/home/me") },
        ];
        let plan = Plan { steps, gaps: Vec::new() };
        assert_eq!(made(&plan, &at(path), access).map(|answer| answer.verdict), expect, "{path}");
    }

    #[test]
    fn what_the_sandbox_makes_is_there_without_a_rule() {
        check("/tmp/x", Access::Write, Some("allowed"));
        check("/etc/passwd", Access::Read, Some("allowed"));
        check("/etc/passwd", Access::Write, Some("read-only"));
        check("/etc/passwd2", Access::Read, None);
        check("/home", Access::Read, Some("allowed"));
        check("/home/me/x", Access::Write, None);
        check("/home/other", Access::Read, None);
        check("/dev/null", Access::Write, Some("allowed"));
        check("/dev/sda", Access::Read, None);
        check("/dev/pts/0", Access::Write, Some("allowed"));
        check("/proc/self/status", Access::Read, Some("allowed"));
    }
}
