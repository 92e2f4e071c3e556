//! `ringfence log`

mod check;
mod filter;
mod table;

use std::collections::BTreeSet;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ringfence_audit::{LogLine, LogReader, now_ms, ocsf};
use ringfence_engine::gather_host_environment;
use serde_json::{Map, Value};

use super::resolve_args::{absolute_path, canonical_directory};
use super::test::is_test_run;
use crate::error::CliError;
use crate::messages;
use crate::output::ColorMode;
use filter::RecordFilter;
pub(crate) use table::LogTable;

/// Show commands, denials and results
///
/// ringfence records every run before it starts and after it ends, and every denial. The table leaves
/// out the runs of `ringfence test`; `--all`, `--json`, `--ocsf`, `--agent` and `--session` show
/// them. `--verify` checks all records and reports any that was changed, removed, moved or truncated.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence log --since 2h
  ringfence log --blocked-only --follow
  ringfence log --json --agent claude | jq .target
  ringfence log --ocsf --since 2026-01-28 > events.jsonl
  ringfence log --verify

Exit status: 0, or 1 if `--verify` finds tampering.")]
pub(crate) struct LogArgs {
    /// Show only denials
    #[arg(long)]
    blocked_only: bool,
    /// Show only records since this time (`90s`, `2h`, `3d`, `2026-01-28`, `2026-01-28T10:30:00Z`)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Show only records of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Show only this session, by its id or a prefix or suffix of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show also the runs of `ringfence test`
    #[arg(long)]
    all: bool,
    /// Show only this operation (`execute`, `exit`, `read`, `write`, `connect`, …)
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Keep printing new records
    #[arg(short, long, conflicts_with = "verify")]
    follow: bool,
    /// Print the records unchanged, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print Open Cybersecurity Schema Framework 1.8 events, one per line
    #[arg(long, conflicts_with_all = ["json", "verify"])]
    ocsf: bool,
    /// Check that no record was changed, and print the hash of the last record
    #[arg(long)]
    verify: bool,
    /// With `--verify`: a hash printed earlier; its record must still exist
    #[arg(long, value_name = "HASH", requires = "verify")]
    kept: Vec<String>,
    /// Read the log in this directory, such as a copy
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The interval between reads with `--follow`.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: LogArgs) -> Result<ExitCode, CliError> {
    let directory = match &arguments.dir {
        Some(directory) => absolute_path(directory)?,
        None => gather_host_environment(&canonical_directory(None)?)?.facts.state.join("audit"),
    };
    if arguments.verify {
        return check::run(directory.as_path(), &arguments);
    }
    let choice = RecordFilter::from_args(&arguments, now_ms())?;
    let mut printer = LogPrinter::new(&arguments);
    loop {
        let mut reader = LogReader::open(directory.as_path(), choice.since_ms)?;
        while let Some(reader) = &mut reader {
            while let Some(line) = reader.line()? {
                if printer.line(&line, &choice).is_break() {
                    return printer.done();
                }
            }
            if !arguments.follow || printer.flush().is_break() {
                return printer.done();
            }
            std::thread::sleep(PAUSE);
        }
        // There is no log yet.
        if !arguments.follow {
            return printer.done();
        }
        std::thread::sleep(PAUSE);
    }
}

/// The output format.
enum LogFormat {
    Table(LogTable),
    Json,
    Ocsf { host: String },
}

/// Prints records to standard output.
struct LogPrinter {
    form: LogFormat,
    out: BufWriter<io::StdoutLock<'static>>,
    failed: Option<io::Error>,
    test_runs: TestRuns,
}

/// Recognizes the records of `ringfence test`.
#[derive(Debug, Default)]
struct TestRuns {
    /// True if they are shown.
    are_shown: bool,
    sessions: BTreeSet<String>,
}

impl TestRuns {
    fn from_args(arguments: &LogArgs) -> Self {
        let is_raw = arguments.json || arguments.ocsf;
        let is_chosen = arguments.agent.is_some() || arguments.session.is_some();
        Self { are_shown: arguments.all || is_raw || is_chosen, sessions: BTreeSet::new() }
    }

    /// True if the record belongs to a run of `ringfence test` and is not shown.
    fn hides(&mut self, record: &Map<String, Value>) -> bool {
        let session = record.get("session").and_then(Value::as_str).unwrap_or_default();
        if self.are_shown || session.is_empty() {
            return false;
        }
        if is_test_run(record) {
            self.sessions.insert(session.to_owned());
        }
        // A session can have other commands later.
        if record.get("operation").and_then(Value::as_str) == Some("exit") {
            return self.sessions.remove(session);
        }
        self.sessions.contains(session)
    }
}

type PrintFlow = std::ops::ControlFlow<()>;

impl LogPrinter {
    fn new(arguments: &LogArgs) -> Self {
        let form = if arguments.json {
            LogFormat::Json
        } else if arguments.ocsf {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            LogFormat::Ocsf { host }
        } else {
            let width = io::stdout().is_terminal().then(|| {
                rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| size.ws_col.max(60))
            });
            LogFormat::Table(LogTable::new(width.map(usize::from), ColorMode::for_stdout()))
        };
        let test_runs = TestRuns::from_args(arguments);
        Self { form, out: BufWriter::new(io::stdout().lock()), failed: None, test_runs }
    }

    fn line(&mut self, line: &LogLine, choice: &RecordFilter) -> PrintFlow {
        let Ok(record) = serde_json::from_slice::<Map<String, Value>>(&line.bytes) else {
            messages::print_warning(&format!(
                "{}:{} is not a record; run `ringfence log --verify`",
                line.file, line.number
            ));
            return PrintFlow::Continue(());
        };
        if self.test_runs.hides(&record) || !choice.matches(&record) {
            return PrintFlow::Continue(());
        }
        let text = match &mut self.form {
            LogFormat::Table(table) => table.row(&record).into_bytes(),
            LogFormat::Json => [line.bytes.as_slice(), b"\n"].concat(),
            LogFormat::Ocsf { host } => format!("{}\n", ocsf::event(&record, host)).into_bytes(),
        };
        let written = self.out.write_all(&text);
        self.check_write(written)
    }

    fn flush(&mut self) -> PrintFlow {
        let flushed = self.out.flush();
        self.check_write(flushed)
    }

    fn check_write(&mut self, result: io::Result<()>) -> PrintFlow {
        match result {
            Ok(()) => PrintFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                PrintFlow::Break(())
            }
        }
    }

    /// Flushes the output. A reader that closes the pipe early, such as `head`, is not an error.
    fn done(mut self) -> Result<ExitCode, CliError> {
        let _ = self.flush();
        match self.failed {
            Some(source) if source.kind() != io::ErrorKind::BrokenPipe => {
                Err(CliError::File { what: "write to", path: "standard output".into(), source })
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}
