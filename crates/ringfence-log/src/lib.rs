//! Logging of ringfence's processes: filter, format and output of `tracing` events.
//!
//! Logging is off unless the user sets `RINGFENCE_LOG` or passes `-v`. While it is off, an event
//! costs one comparison of an atomic number.
//!
//! The supervisor and init have no standard error and no log file: [`relay`] sends their lines to
//! the launcher, which writes them with [`write_line`]. No log fd exists in the sandbox.

#![forbid(unsafe_code)]

mod filter;
mod json;
mod platform;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use json::JsonLine;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

pub use filter::{COMPONENTS, FilterError, LogFilter};

/// The environment variable with the filter, such as `notify=debug,egress=trace`.
pub const FILTER_VARIABLE: &str = "RINGFENCE_LOG";
/// The environment variable with the log file; without it, lines go to standard error.
pub const FILE_VARIABLE: &str = "RINGFENCE_LOG_FILE";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// Text for a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

/// Logging cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be parsed.
    #[error("`{FILTER_VARIABLE}={text}` is not a log filter")]
    Filter {
        /// The filter as it was given.
        text: String,
        /// The wrong part.
        source: FilterError,
    },
    /// The program cannot be executed again.
    #[error("cannot execute ringfence again, to start logging")]
    Restart(#[source] io::Error),
    /// The log file is no regular file, or has another name.
    #[error("the log file {} is not a regular file with one name", path.display())]
    NotPlain {
        /// The file.
        path: PathBuf,
    },
    /// The path of the log file leads through a symlink.
    #[error("the path of the log file {} leads through a symlink, to {}", path.display(), real.display())]
    Linked {
        /// The path as written.
        path: PathBuf,
        /// The path of the directory without symlinks.
        real: PathBuf,
    },
    /// The log file cannot be opened.
    #[error("cannot open the log file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl LogError {
    /// A command to type, or another way to fix the error.
    pub fn hint(&self) -> &'static str {
        match self {
            LogError::Filter { .. } => {
                "give a level, or one for each component: `RINGFENCE_LOG=info`, \
                 `RINGFENCE_LOG=notify=debug,egress=trace`"
            }
            LogError::Restart(_) => "put `-v` behind the subcommand",
            LogError::Linked { .. } => {
                "name the file by its path without symlinks: `RINGFENCE_LOG_FILE=\"$(realpath FILE)\"`"
            }
            LogError::NotPlain { .. } | LogError::File { .. } => {
                "name a new file, or a regular file of your own, in `RINGFENCE_LOG_FILE`"
            }
        }
    }
}

/// The output of a process that logs.
enum LogSink {
    Stderr,
    /// Standard error, opened again without blocking. The command shares standard error and may
    /// stop its reader: a write that waited would also stop the launcher, and with it the time
    /// limits.
    NonBlockingStderr(File),
    File(File),
    /// A helper process: lines go through [`relay`], if at all.
    Helper,
}

struct LogOutput {
    sink: LogSink,
    format: LineFormat,
    filter: LogFilter,
    /// The sandbox that a helper process works for; `None` if it is a supervisor.
    sandbox: Option<u32>,
}

/// Sends a line to the launcher. False if the line had to be dropped.
type RelayFn = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Longest line; the rest is cut. A pipe takes this many bytes at once or not at all.
const MAX_LINE: usize = 4096;

static OUTPUT: OnceLock<LogOutput> = OnceLock::new();
static RELAY: OnceLock<(u32, RelayFn)> = OnceLock::new();
/// Lines that this process dropped because their reader was too slow.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Starts logging in this process, and in helper processes that are forked from it later. Only the
/// first call has an effect.
pub fn start(filter: &LogFilter, file: Option<&Path>, format: LineFormat) -> Result<(), LogError> {
    let sink = match file {
        None => platform::reopen_stderr().map_or(LogSink::Stderr, LogSink::NonBlockingStderr),
        Some(path) => LogSink::File(platform::open_log_file(path)?),
    };
    install(LogOutput { sink, format, filter: filter.clone(), sandbox: None });
    Ok(())
}

/// The log file's path, if this process logs to a file.
pub fn log_file() -> Option<PathBuf> {
    let LogSink::File(file) = &OUTPUT.get()?.sink else { return None };
    platform::path_of(file).ok()
}

fn install(output: LogOutput) {
    let format = output.format;
    let (events, stages) = (output.filter.events(), output.filter.stages());
    if OUTPUT.set(output).is_err() {
        return;
    }
    let layer = || tracing_subscriber::fmt::layer().with_ansi(false).with_writer(LineWriter);
    // A stage is a span: its line is written when it begins, behind those that it is within.
    let stage_layer = layer().with_span_events(FmtSpan::NEW).with_file(true);
    let (event_layer, stage_layer) = match format {
        LineFormat::Text => (layer().boxed(), stage_layer.boxed()),
        LineFormat::Json => {
            (layer().event_format(JsonLine).boxed(), stage_layer.event_format(JsonLine).boxed())
        }
    };
    let layers =
        vec![event_layer.with_filter(events).boxed(), stage_layer.with_filter(stages).boxed()];
    let subscriber = Registry::default().with(layers);
    // It fails if the embedding program has a subscriber of its own, which gets the events then.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Starts logging as the environment says. True if it does.
pub fn start_from_environment(format: LineFormat) -> Result<bool, LogError> {
    let Some(text) = std::env::var_os(FILTER_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(false);
    };
    let text = text.to_string_lossy().into_owned();
    match LogFilter::parse(&text) {
        Ok(filter) => start(&filter, file_from_environment().as_deref(), format).map(|()| true),
        Err(source) => Err(LogError::Filter { text, source }),
    }
}

/// The log file that the environment names.
pub fn file_from_environment() -> Option<PathBuf> {
    std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The environment for a helper process that is executed, not forked: empty while logging is off.
/// `sandbox` is the pid of the supervisor, unless the process is or forks supervisors.
pub fn helper_environment(sandbox: Option<u32>) -> Vec<CString> {
    let Some(output) = OUTPUT.get() else { return Vec::new() };
    let format = if output.format == LineFormat::Json { "json" } else { "text" };
    let sandbox = sandbox.map(|pid| pid.to_string()).unwrap_or_default();
    let variable = format!("{FILTER_VARIABLE}={format}:{sandbox}:{}", output.filter);
    CString::new(variable).into_iter().collect()
}

/// Starts logging in a helper process with the environment that [`helper_environment`] made.
pub fn start_in_helper() {
    let Ok(variable) = std::env::var(FILTER_VARIABLE) else { return };
    let mut parts = variable.splitn(3, ':');
    let (Some(format), Some(sandbox), Some(filter)) = (parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    let Ok(filter) = LogFilter::parse(filter) else { return };
    let format = if format == "json" { LineFormat::Json } else { LineFormat::Text };
    install(LogOutput { sink: LogSink::Helper, format, filter, sandbox: sandbox.parse().ok() });
}

/// True if this process logs.
pub fn is_on() -> bool {
    OUTPUT.get().is_some()
}

/// Sends the lines of this process, and of processes forked from it, to the launcher. The lines
/// carry the pid of the sandbox's supervisor, which is this process if the environment names none.
///
/// `send` must not block: a launcher that is slow to read must not stop the sandbox. It returns
/// false for a line that it dropped; the next line tells how many were.
pub fn relay(send: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
    let Some(output) = OUTPUT.get() else { return };
    let sandbox = output.sandbox.unwrap_or_else(std::process::id);
    let _ = RELAY.set((sandbox, Box::new(send)));
}

/// Writes a line that a helper process sent.
pub fn write_line(line: &[u8]) {
    let Some(output) = OUTPUT.get() else { return };
    let written = match &output.sink {
        LogSink::Stderr => io::stderr().lock().write_all(line),
        LogSink::NonBlockingStderr(file) | LogSink::File(file) => (&*file).write_all(line),
        LogSink::Helper => Ok(()),
    };
    if written.is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ids that are added to a line.
#[derive(Debug, Clone, Copy)]
struct LineIds {
    pid: u32,
    sandbox: Option<u32>,
    /// Lines dropped before this one.
    dropped: u64,
}

impl LineIds {
    fn own(sandbox: Option<u32>) -> Self {
        Self { pid: std::process::id(), sandbox, dropped: 0 }
    }
}

/// A line with the ids of its process and sandbox, of at most [`MAX_LINE`] bytes, with one line
/// feed, at its end.
fn with_ids(line: &[u8], format: LineFormat, ids: LineIds) -> Vec<u8> {
    let LineIds { pid, sandbox, dropped } = ids;
    let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
    let field = |name: &str, value: Option<u64>| match (format, value) {
        (_, None) => String::new(),
        (LineFormat::Text, Some(value)) => format!(" {name}={value}"),
        (LineFormat::Json, Some(value)) => format!(",\"{name}\":{value}"),
    };
    let ids = field("sandbox", sandbox.map(u64::from))
        + &field("dropped", Some(dropped).filter(|dropped| *dropped > 0));
    let whole = match format {
        LineFormat::Text => format!("[{pid}{ids}] {line}"),
        LineFormat::Json => {
            format!("{{\"pid\":{pid}{ids},{}", line.strip_prefix('{').unwrap_or(&line))
        }
    };
    // The command chooses names. A line feed would start a line that no process wrote, and an
    // escape sequence would reach the terminal.
    let printable = |found: char| match found {
        _ if found.is_control() => char::REPLACEMENT_CHARACTER,
        _ => found,
    };
    let mut out: String = whole.chars().map(printable).collect();
    if out.len() >= MAX_LINE {
        out = match format {
            LineFormat::Text => out[..out.floor_char_boundary(MAX_LINE - 1)].to_owned(),
            LineFormat::Json => format!("{{\"pid\":{pid}{ids},{}", json::without_fields(&line)),
        };
    }
    out.push('\n');
    out.into_bytes()
}

/// Writes each event with one call: lines of threads and processes do not mix.
#[derive(Clone, Copy)]
struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(output) = OUTPUT.get() else { return Ok(line.len()) };
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        let Some((sandbox, send)) = RELAY.get() else {
            let ids = LineIds { dropped, ..LineIds::own(None) };
            write_line(&with_ids(line, output.format, ids));
            return Ok(line.len());
        };
        let ids = LineIds { dropped, ..LineIds::own(Some(*sandbox)) };
        if !send(&with_ids(line, output.format, ids)) {
            DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::{LineFormat, LineIds, MAX_LINE, with_ids};

    #[test]
    fn lines_carry_the_ids_of_process_and_sandbox() {
        let check = |line: &str, format, sandbox, dropped, expect: &str| {
            let whole = with_ids(line.as_bytes(), format, LineIds { pid: 7, sandbox, dropped });
            assert_eq!(String::from_utf8(whole).unwrap(), expect);
        };
        check("x\n", LineFormat::Text, None, 0, "[7] x\n");
        check("x\n", LineFormat::Text, Some(5), 0, "[7 sandbox=5] x\n");
        check("x\n", LineFormat::Text, Some(5), 3, "[7 sandbox=5 dropped=3] x\n");
        check("x\n[1] \u{1b}[2J\n", LineFormat::Text, None, 0, "[7] x\u{fffd}[1] \u{fffd}[2J\n");
        check("{\"a\":1}\n", LineFormat::Json, Some(5), 0, "{\"pid\":7,\"sandbox\":5,\"a\":1}\n");
        check("{\"a\":1}\n", LineFormat::Json, None, 2, "{\"pid\":7,\"dropped\":2,\"a\":1}\n");
    }

    #[test]
    fn no_line_is_longer_than_a_message() {
        let ids = LineIds { pid: u32::MAX, sandbox: Some(u32::MAX), dropped: u64::MAX };
        // Each control character becomes three bytes.
        for text in ["x".repeat(9000), "\u{1}".repeat(9000), "é\u{1}".repeat(3000)] {
            let whole = with_ids(text.as_bytes(), LineFormat::Text, ids);
            assert!(whole.len() <= MAX_LINE && whole.ends_with(b"\n"), "{}", whole.len());
            let event = serde_json::json!({
                "time": "now", "level": "info", "component": "init", "message": text, "path": text,
            });
            let whole = with_ids(event.to_string().as_bytes(), LineFormat::Json, ids);
            assert!(whole.len() <= MAX_LINE, "{}", whole.len());
            let object: serde_json::Value = serde_json::from_slice(&whole).unwrap();
            assert_eq!((&object["component"], &object["level"]), (&"init".into(), &"info".into()));
            assert_eq!(object["pid"], u32::MAX);
        }
    }
}
