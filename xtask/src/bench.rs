//! `cargo xtask bench`: the cost of ringfence, compared with the bare command and with peers.
//!
//! Contenders take turns within a round, so that a temporary load affects all of them; for the same
//! reason a ratio is the median of the ratios of the rounds.

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

use std::path::{Path, PathBuf};

use crate::{TaskResult, workspace};
use measure::measure;
use report::Report;
use row::ROWS;
use scratch::BenchScratch;

/// The options of the bench.
#[derive(Debug, Default)]
pub(crate) struct BenchOptions<'a> {
    pace: Pace,
    only: Vec<&'a str>,
    failing: Failing,
    /// Another build of ringfence, to compare with.
    before: Option<PathBuf>,
}

/// The number of rounds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Pace {
    #[default]
    Full,
    Quick,
}

/// The effect of a missed bar on the exit status. Machines are noisy, so by default none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Failing {
    #[default]
    Shown,
    Enforced,
}

impl<'a> BenchOptions<'a> {
    pub(crate) fn parse(flags: &[&'a str]) -> Result<BenchOptions<'a>, String> {
        let mut options = BenchOptions::default();
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => options.pace = Pace::Quick,
                "--enforce" => options.failing = Failing::Enforced,
                "--before" => {
                    let path = flags.next().map(|path| Path::new(*path));
                    let path = path.and_then(|path| path.canonicalize().ok());
                    options.before =
                        Some(path.ok_or("--before takes the path of another ringfence")?);
                }
                "--only" => options.only.push(
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
                        "`{flag}` is not a flag of bench; it takes --quick, --only ROW, --before PATH and --enforce"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Measures, prints the table and writes `bench.json` into the target directory.
pub(crate) fn run(options: &BenchOptions<'_>) -> TaskResult {
    let scratch = BenchScratch::create()?;
    let mut report = Report::new(machine::facts(), Vec::new());
    if options.only != [service::NAME] {
        rows(options, &scratch, &mut report)?;
    }
    if options.only.is_empty() || options.only.contains(&service::NAME) {
        eprintln!(
            "bench: {}: commands of skills over HTTP, each in its own sandbox",
            service::NAME
        );
        let ringfence = workspace::build("ringfence-cli", &["--release"])?;
        match service::measure(&ringfence, scratch.disk(), options.pace) {
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
        missed if options.failing == Failing::Enforced && missed > 0 => {
            Err(format!("{missed} bars missed").into())
        }
        _ => Ok(()),
    }
}

/// Measures all rows that compare contenders.
fn rows(options: &BenchOptions<'_>, scratch: &BenchScratch, report: &mut Report) -> TaskResult {
    let programs = BenchPrograms::build()?;
    let (mut contenders, notes) = contender::find(&programs, scratch)?;
    contenders.extend(options.before.clone().map(contender::before));
    notes.into_iter().for_each(|note| report.note(note));
    for row in ROWS.iter().filter(|row| options.only.is_empty() || options.only.contains(&row.name))
    {
        eprintln!("bench: {}: {}", row.name, row.says);
        match (row.prepare)(scratch, &programs) {
            Ok(job) => report.add(row, measure(row, &job, &contenders, options.pace)),
            Err(why) => report.note(format!("{}: skipped: {why}", row.name)),
        }
    }
    Ok(())
}

/// The measured program, and helpers that measure inside.
struct BenchPrograms {
    ringfence: PathBuf,
    probe: PathBuf,
    /// Gets notifications of created files, and does nothing else.
    notify_only: PathBuf,
    /// Sends commands to shells that stay open.
    rounds: PathBuf,
    /// Opens many sessions.
    many: PathBuf,
    /// Evaluates rules on command text.
    commands: PathBuf,
}

impl BenchPrograms {
    fn build() -> Result<BenchPrograms, Box<dyn std::error::Error>> {
        Ok(BenchPrograms {
            ringfence: workspace::build("ringfence-cli", &["--release"])?,
            probe: workspace::build("xtask", &["--release"])?,
            notify_only: workspace::build(
                "ringfence-sys",
                &["--release", "--example", "notify_only"],
            )?,
            rounds: workspace::build("ringfence-local", &["--release", "--example", "rounds"])?,
            many: workspace::build("ringfence", &["--release", "--example", "many"])?,
            commands: workspace::build(
                "ringfence-cmdline",
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
