//! `cargo xtask bench`: what ringfence costs, next to nothing at all and to its peers.
//!
//! Contenders take turns within a round, so that a load that comes and goes hits
//! all of them; a ratio is the median of the rounds' own ratios for the same reason.

mod contender;
mod job;
mod machine;
mod measure;
mod report;
mod row;
mod scratch;
mod server;
mod service;

pub(crate) use server::POURED;

use std::path::PathBuf;

use crate::{Done, workspace};
use measure::measure;
use report::Report;
use row::ROWS;
use scratch::Scratch;

/// The bench as asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked<'a> {
    pace: Pace,
    only: Vec<&'a str>,
    failing: Failing,
}

/// How many rounds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Pace {
    #[default]
    Full,
    Quick,
}

/// What a missed bar does to the exit status. Machines are noisy, so by default nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Failing {
    #[default]
    Shown,
    Enforced,
}

impl<'a> Asked<'a> {
    pub(crate) fn parse(flags: &[&'a str]) -> Result<Asked<'a>, String> {
        let mut asked = Asked::default();
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => asked.pace = Pace::Quick,
                "--enforce" => asked.failing = Failing::Enforced,
                "--only" => asked.only.push(
                    flags
                        .next()
                        .copied()
                        .filter(|name| {
                            row::names().chain([service::NAME]).any(|known| known == *name)
                        })
                        .ok_or_else(|| {
                            format!(
                                "--only takes one of {}",
                                row::names().chain([service::NAME]).collect::<Vec<_>>().join(", ")
                            )
                        })?,
                ),
                flag => {
                    return Err(format!(
                        "`{flag}` is not a flag of bench; it takes --quick, --only ROW and --enforce"
                    ));
                }
            }
        }
        Ok(asked)
    }
}

/// Measures, prints the table and writes `bench.json` into the target directory.
pub(crate) fn run(asked: &Asked<'_>) -> Done {
    let scratch = Scratch::create()?;
    let mut report = Report::new(machine::facts(), Vec::new());
    if asked.only != [service::NAME] {
        rows(asked, &scratch, &mut report)?;
    }
    if asked.only.is_empty() || asked.only.contains(&service::NAME) {
        eprintln!(
            "bench: {}: commands of skills over HTTP, each in a sandbox of its own",
            service::NAME
        );
        let ringfence = workspace::build("ringfence-cli", &["--release"])?;
        match service::measure(&ringfence, scratch.disk(), asked.pace) {
            Ok(load) => report.under_load(load),
            Err(why) => report.note(format!("{}: skipped: {why}", service::NAME)),
        }
    }
    print!("{}", report.table());
    let path = target_directory()?.join("bench.json");
    std::fs::write(&path, format!("{:#}\n", report.json()))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    eprintln!("bench: wrote {}", path.display());
    match report.missed() {
        missed if asked.failing == Failing::Enforced && missed > 0 => {
            Err(format!("{missed} bars missed").into())
        }
        _ => Ok(()),
    }
}

/// Everything that is measured against others.
fn rows(asked: &Asked<'_>, scratch: &Scratch, report: &mut Report) -> Done {
    let programs = Programs::build()?;
    let (contenders, notes) = contender::find(&programs, scratch)?;
    notes.into_iter().for_each(|note| report.note(note));
    for row in ROWS.iter().filter(|row| asked.only.is_empty() || asked.only.contains(&row.name)) {
        eprintln!("bench: {}: {}", row.name, row.says);
        match (row.prepare)(scratch, &programs) {
            Ok(job) => report.add(row, measure(row, &job, &contenders, asked.pace)),
            Err(why) => report.note(format!("{}: skipped: {why}", row.name)),
        }
    }
    Ok(())
}

/// What is measured, and what measures inside.
struct Programs {
    ringfence: PathBuf,
    probe: PathBuf,
    /// Is told of what is made, and nothing else.
    told: PathBuf,
    /// Speaks to shells that live on.
    rounds: PathBuf,
    /// Has many of them.
    many: PathBuf,
    /// Asks the rules on commands.
    commands: PathBuf,
}

impl Programs {
    fn build() -> Result<Programs, Box<dyn std::error::Error>> {
        Ok(Programs {
            ringfence: workspace::build("ringfence-cli", &["--release"])?,
            probe: workspace::build("xtask", &["--release"])?,
            told: workspace::build("ringfence-sys", &["--release", "--example", "told"])?,
            rounds: workspace::build("ringfence-local", &["--release", "--example", "rounds"])?,
            many: workspace::build("ringfence", &["--release", "--example", "many"])?,
            commands: workspace::build(
                "ringfence-policy",
                &["--release", "--example", "commands"],
            )?,
        })
    }
}

fn target_directory() -> Result<PathBuf, Box<dyn std::error::Error>> {
    Ok(workspace::metadata()?["target_directory"]
        .as_str()
        .ok_or("cargo names no target directory")?
        .into())
}
