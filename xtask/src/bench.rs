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

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use crate::{TaskResult, workspace};
use measure::measure;
use report::Report;
use row::{BenchRow, ROWS};
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
    let is_chosen = |row: &&BenchRow| options.only.is_empty() || options.only.contains(&row.name);
    let rows: Vec<&BenchRow> = ROWS.iter().filter(is_chosen).collect();
    if rows.iter().any(|row| row.is_for_notify_only()) {
        contenders.push(contender::notify_only(programs.notify_only.path()?.to_owned()));
    }
    for row in rows {
        eprintln!("bench: {}: {}", row.name, row.says);
        match (row.prepare)(scratch, &programs) {
            Ok(job) => report.add(row, measure(row, &job, &contenders, options.pace)),
            Err(why) => report.note(format!("{}: skipped: {why}", row.name)),
        }
    }
    Ok(())
}

/// The measured program, and helpers that measure inside. Each is built when a row first needs it.
struct BenchPrograms {
    ringfence: PathBuf,
    probe: BenchHelper,
    /// Gets notifications of created files, and does nothing else.
    notify_only: BenchHelper,
    /// Sends commands to shells that stay open.
    rounds: BenchHelper,
    /// Opens many sessions.
    many: BenchHelper,
    /// Evaluates rules on command text.
    commands: BenchHelper,
}

/// A helper program.
struct BenchHelper {
    package: &'static str,
    example: Option<&'static str>,
    path: OnceCell<PathBuf>,
}

impl BenchHelper {
    fn new(package: &'static str, example: Option<&'static str>) -> Self {
        Self { package, example, path: OnceCell::new() }
    }

    /// The path of the program, built if necessary.
    fn path(&self) -> Result<&Path, Box<dyn std::error::Error>> {
        if let Some(path) = self.path.get() {
            return Ok(path);
        }
        let example = self.example.iter().flat_map(|name| ["--example", name]);
        let flags: Vec<&str> = ["--release"].into_iter().chain(example).collect();
        let built = workspace::build(self.package, &flags)?;
        Ok(self.path.get_or_init(|| built))
    }
}

impl BenchPrograms {
    fn build() -> Result<BenchPrograms, Box<dyn std::error::Error>> {
        Ok(BenchPrograms {
            ringfence: workspace::build("ringfence-cli", &["--release"])?,
            probe: BenchHelper::new("xtask", None),
            notify_only: BenchHelper::new("ringfence-sys", Some("notify_only")),
            rounds: BenchHelper::new("ringfence-linux", Some("rounds")),
            many: BenchHelper::new("ringfence", Some("many")),
            commands: BenchHelper::new("ringfence-cmdline", Some("commands")),
        })
    }
}

fn target_directory() -> Result<PathBuf, Box<dyn std::error::Error>> {
    Ok(workspace::metadata()?["target_directory"]
        .as_str()
        .ok_or("cargo names no target directory")?
        .into())
}
