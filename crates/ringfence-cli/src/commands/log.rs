//! `ringfence log`

mod check;
mod filter;
mod table;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ringfence_audit::{LogLine, LogReader, now_ms, ocsf};
use ringfence_engine::gather;
use serde_json::{Map, Value};

use super::resolve_args::{absolute, directory};
use crate::error::CliError;
use crate::messages;
use crate::output::ColorMode;
use filter::RecordFilter;
pub(crate) use table::LogTable;

/// Show what was run, what was refused and what came of it
///
/// Every run is recorded before it starts and when it has ended, and so is everything that was
/// refused in it. `--verify` goes through all records and says whether any was changed, removed,
/// moved or cut off.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence log --since 2h
  ringfence log --blocked-only --follow
  ringfence log --json --agent claude | jq .target
  ringfence log --ocsf --since 2026-01-28 > events.jsonl
  ringfence log --verify

Exit status: 0, or 1 if `--verify` found something.")]
pub(crate) struct LogArgs {
    /// Show only what was refused
    #[arg(long)]
    blocked_only: bool,
    /// Show only what happened since then (`90s`, `2h`, `3d`, `2026-01-28`, `2026-01-28T10:30:00Z`)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Show only what this agent did
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Show only this run, by its name or the beginning or end of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show only this operation (`execute`, `exit`, `read`, `write`, `connect`, …)
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Go on showing what is recorded from now on
    #[arg(short, long, conflicts_with = "verify")]
    follow: bool,
    /// Print the records as they are, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print events of the Open Cybersecurity Schema Framework 1.8, one a line
    #[arg(long, conflicts_with_all = ["json", "verify"])]
    ocsf: bool,
    /// Check that all is as it was written, and print the hash of the last record
    #[arg(long)]
    verify: bool,
    /// With `--verify`: a hash that was printed earlier, whose record must still be there
    #[arg(long, value_name = "HASH", requires = "verify")]
    kept: Vec<String>,
    /// Read the log in this directory, such as a copy
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How often a reader that follows looks again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: LogArgs) -> Result<ExitCode, CliError> {
    let directory = match &arguments.dir {
        Some(directory) => absolute(directory)?,
        None => gather(&directory(None)?)?.facts.state.join("audit"),
    };
    if arguments.verify {
        return check::run(directory.as_path(), &arguments);
    }
    let choice = RecordFilter::meant(&arguments, now_ms())?;
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

/// In which form records are printed.
enum LogFormat {
    Table(LogTable),
    Json,
    Ocsf { host: String },
}

/// Where they are printed.
struct LogPrinter {
    form: LogFormat,
    out: BufWriter<io::StdoutLock<'static>>,
    failed: Option<io::Error>,
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
        Self { form, out: BufWriter::new(io::stdout().lock()), failed: None }
    }

    fn line(&mut self, line: &LogLine, choice: &RecordFilter) -> PrintFlow {
        let Ok(record) = serde_json::from_slice::<Map<String, Value>>(&line.bytes) else {
            messages::warning(&format!(
                "{}:{} is not a record; see `ringfence log --verify`",
                line.file, line.number
            ));
            return PrintFlow::Continue(());
        };
        if !choice.takes(&record) {
            return PrintFlow::Continue(());
        }
        let text = match &mut self.form {
            LogFormat::Table(table) => table.row(&record).into_bytes(),
            LogFormat::Json => [line.bytes.as_slice(), b"\n"].concat(),
            LogFormat::Ocsf { host } => format!("{}\n", ocsf::event(&record, host)).into_bytes(),
        };
        let written = self.out.write_all(&text);
        self.heed(written)
    }

    fn flush(&mut self) -> PrintFlow {
        let flushed = self.out.flush();
        self.heed(flushed)
    }

    fn heed(&mut self, result: io::Result<()>) -> PrintFlow {
        match result {
            Ok(()) => PrintFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                PrintFlow::Break(())
            }
        }
    }

    /// A reader that has seen enough, such as `head`, is no failure.
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
