//! `cargo xtask walk`: the stages of one command, from the log of a real `ringfence run -- true`.
//!
//! A stage is a tracing span of target `stage`. Forked processes keep the spans of their parent, so
//! the stages of the supervisor and of init are within the launcher's.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{TaskResult, workspace};

/// The document with the stages.
pub(crate) const DOCUMENT: &str = "docs/internals/one-command.md";
/// Most stages of one command.
const MAX_STAGES: usize = 20;

const INTRODUCTION: &str = "\
# One command

The stages of `ringfence run -- true`, in the order in which each process begins them; an indented
stage is within the one above it. The launcher starts the sandbox before it reads the policy, so the
supervisor and init wait in `for_one_command` until the plan arrives.

`cargo xtask gen` writes this page from the log of a real run, `RINGFENCE_LOG=stage=trace`. It fails
if there are more than 20 stages, or if a call returns to a crate that it left on the way down.

```text
";

/// Prints the document.
pub(crate) fn run() -> TaskResult {
    print!("{}", render(&workspace::build("ringfence-cli", &[])?)?);
    Ok(())
}

/// The document, from a run of `program`.
pub(crate) fn render(program: &Path) -> Result<String, Box<dyn Error>> {
    let stages = parse_log(&trace(program)?)?;
    check(&stages)?;
    let width = stages.iter().map(|stage| 2 * stage.depth() + stage.name().len()).max();
    let width = width.unwrap_or_default();
    let lines: String = in_order(&stages)
        .iter()
        .map(|stage| {
            let indented = format!("{}{}", "  ".repeat(stage.depth()), stage.name());
            format!("{:<10}  {indented:<width$}  {}\n", stage.process.name(), stage.file)
        })
        .collect();
    Ok(format!("{INTRODUCTION}{lines}```\n"))
}

/// The process of a stage. The order is that of their forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StageProcess {
    Launcher,
    Supervisor,
    Init,
}

impl StageProcess {
    fn name(self) -> &'static str {
        match self {
            StageProcess::Launcher => "launcher",
            StageProcess::Supervisor => "supervisor",
            StageProcess::Init => "init",
        }
    }

    /// From the ids at the start of a line: `[pid sandbox=pid]`. Init is pid 1 of its namespace.
    fn from_ids(ids: &str) -> Self {
        match ids.split_once(' ') {
            None => StageProcess::Launcher,
            Some(("1", _)) => StageProcess::Init,
            Some(_) => StageProcess::Supervisor,
        }
    }
}

#[derive(Debug)]
struct Stage {
    process: StageProcess,
    /// The names of the stages that it is within, and its own.
    path: Vec<String>,
    file: String,
}

impl Stage {
    fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    fn depth(&self) -> usize {
        self.path.len().saturating_sub(1)
    }

    fn package(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }

    fn parent<'a>(&self, stages: &'a [Stage]) -> Option<&'a Stage> {
        let (_, within) = self.path.split_last()?;
        stages.iter().find(|stage| stage.path == within)
    }
}

/// The log of one command in a new project and home.
fn trace(program: &Path) -> Result<String, Box<dyn Error>> {
    let home = std::env::temp_dir().join(format!("ringfence-walk-{}", std::process::id()));
    let project = home.join("project");
    std::fs::create_dir_all(&project)?;
    let output = Command::new(program)
        .args(["run", "--", "true"])
        .current_dir(&project)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", &home)
        .env("RINGFENCE_LOG", "stage=trace")
        .stdin(Stdio::null())
        .output();
    std::fs::remove_dir_all(&home)?;
    let output = output?;
    let log = String::from_utf8(output.stderr)?;
    if output.status.success() { Ok(log) } else { Err(format!("the run failed: {log}").into()) }
}

/// Reads lines such as `[7] 2026-11-19T05:51:57.4Z TRACE main:run: stage: crates/x/src/y.rs: new`.
fn parse_log(log: &str) -> Result<Vec<Stage>, Box<dyn Error>> {
    let stages: Vec<Stage> = log.lines().filter_map(parse_line).collect();
    match stages.iter().find(|stage| stage.depth() > 0 && stage.parent(&stages).is_none()) {
        _ if stages.is_empty() => Err(format!("no stages in the log: {log}").into()),
        Some(orphan) => Err(format!("a line is missing: the parent of {:?}", orphan.path).into()),
        None => Ok(stages),
    }
}

fn parse_line(line: &str) -> Option<Stage> {
    let (ids, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let (path, rest) = rest.split_once(" TRACE ")?.1.split_once(": stage: ")?;
    Some(Stage {
        process: StageProcess::from_ids(ids),
        path: path.split(':').map(str::to_owned).collect(),
        file: rest.strip_suffix(": new")?.to_owned(),
    })
}

/// Each stage behind its parent. Among the children of one stage, each process is in its own order.
fn in_order(stages: &[Stage]) -> Vec<&Stage> {
    fn add<'a>(within: &[String], stages: &'a [Stage], ordered: &mut Vec<&'a Stage>) {
        let mut children: Vec<&Stage> = stages
            .iter()
            .filter(|stage| stage.path.split_last().is_some_and(|(_, path)| path == within))
            .collect();
        children.sort_by_key(|stage| stage.process);
        for child in children {
            ordered.push(child);
            add(&child.path, stages, ordered);
        }
    }
    let mut ordered = Vec::new();
    add(&[], stages, &mut ordered);
    ordered
}

fn check(stages: &[Stage]) -> TaskResult {
    if stages.len() > MAX_STAGES {
        return Err(format!("{} stages; {MAX_STAGES} are the most", stages.len()).into());
    }
    for stage in stages {
        let mut packages = vec![stage.package()];
        let mut next = stage.parent(stages);
        while let Some(outer) = next {
            packages.push(outer.package());
            next = outer.parent(stages);
        }
        packages.dedup();
        let distinct: BTreeSet<&str> = packages.iter().copied().collect();
        if distinct.len() < packages.len() {
            packages.reverse();
            let (path, way) = (stage.path.join(":"), packages.join(", "));
            return Err(format!("{path} enters a crate twice: {way}").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MAX_STAGES, check, in_order, parse_log};

    fn log(lines: &[(&str, &str, &str)]) -> String {
        let line = |(ids, path, package): &(&str, &str, &str)| {
            format!(
                "[{ids}] 2026-11-19T05:51:57Z TRACE {path}: stage: crates/{package}/src/a.rs: new\n"
            )
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn stages_follow_their_parent() {
        let log = log(&[
            ("7", "main", "cli"),
            ("7", "main:run", "engine"),
            ("7", "main:finish", "engine"),
            ("1 sandbox=8", "main:run:build", "linux"),
            ("8 sandbox=8", "main:run:serve", "linux"),
        ]);
        let stages = parse_log(&log).unwrap();
        let names: Vec<&str> = in_order(&stages).iter().map(|stage| stage.name()).collect();
        assert_eq!(names, ["main", "run", "serve", "build", "finish"]);
        check(&stages).unwrap();
    }

    #[test]
    fn crate_entered_twice_is_an_error() {
        let log = log(&[("7", "a", "cli"), ("7", "a:b", "engine"), ("7", "a:b:c", "cli")]);
        let error = check(&parse_log(&log).unwrap()).unwrap_err().to_string();
        assert_eq!(error, "a:b:c enters a crate twice: cli, engine, cli");
    }

    #[test]
    fn too_many_stages_and_missing_lines_are_errors() {
        let names: Vec<String> = (0..=MAX_STAGES).map(|number| format!("a{number}")).collect();
        let lines: Vec<_> = names.iter().map(|name| ("7", name.as_str(), "cli")).collect();
        assert!(check(&parse_log(&log(&lines)).unwrap()).is_err());
        assert!(parse_log(&log(&[("7", "a:b", "cli")])).is_err());
        assert!(parse_log("error: no sandbox\n").is_err());
    }
}
