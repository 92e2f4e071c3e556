//! Starts logging, as the environment and the flags say.

use std::os::unix::process::CommandExt;
use std::process::Command;

use ringfence_log::{FILTER_VARIABLE, LineFormat, LogError, LogFilter};

use crate::args;
use crate::error::CliError;

/// State of logging before the arguments are parsed.
#[derive(Debug)]
pub(crate) enum EarlyLogging {
    /// The environment decided.
    Decided(Result<bool, LogError>),
    /// A flag may decide.
    Open,
}

/// Starts logging unless a flag may decide about it.
///
/// Flags before the subcommand become a setting of the environment, in this process executed again:
/// many parts look for the subcommand in the first argument.
pub(crate) fn start_early() -> EarlyLogging {
    if !args::may_be_verbose() {
        return EarlyLogging::Decided(ringfence_log::start_from_environment(format()));
    }
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let flags = words.iter().take_while(|word| count_of(word) > 0);
    let (flags, level) =
        flags.fold((0, 0), |(flags, level), word| (flags + 1, level + count_of(word)));
    if flags > 0 {
        let again = Command::new("/proc/self/exe")
            .args(&words[flags..])
            .env(FILTER_VARIABLE, level_name(level))
            .exec();
        return EarlyLogging::Decided(Err(LogError::Restart(again)));
    }
    EarlyLogging::Open
}

impl EarlyLogging {
    /// True if no flag decides about logging.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self, EarlyLogging::Decided(_))
    }

    /// Starts logging with the number of `-v` flags, or reports the early error.
    pub(crate) fn finish(self, verbose: u8) -> Result<(), CliError> {
        // A hook that fails would let its command run without a sandbox.
        let started =
            self.start(verbose).or_else(|error| if is_hook() { Ok(true) } else { Err(error) })?;
        if !started && format() == LineFormat::Json {
            let filter = LogFilter::parse(SERVICE_FILTER).expect("a filter");
            let file = ringfence_log::file_from_environment();
            ringfence_log::start(&filter, file.as_deref(), format())?;
        }
        Ok(())
    }

    fn start(self, verbose: u8) -> Result<bool, LogError> {
        match self {
            EarlyLogging::Decided(started) => started,
            EarlyLogging::Open if verbose == 0 => ringfence_log::start_from_environment(format()),
            EarlyLogging::Open => {
                let filter = LogFilter::parse(level_name(verbose.into())).expect("a level");
                let file = ringfence_log::file_from_environment();
                ringfence_log::start(&filter, file.as_deref(), format()).map(|()| true)
            }
        }
    }
}

/// Logging of the service, unless the user asks for more or less.
const SERVICE_FILTER: &str = "http=info";

/// True for `ringfence hook`, also behind `-v`.
fn is_hook() -> bool {
    std::env::args_os().skip(1).find(|word| count_of(word) == 0).is_some_and(|word| word == "hook")
}

/// The service logs JSON.
fn format() -> LineFormat {
    if args::is_subcommand("serve") { LineFormat::Json } else { LineFormat::Text }
}

fn level_name(flags: usize) -> &'static str {
    match flags {
        0 | 1 => "info",
        2 => "debug",
        _ => "trace",
    }
}

/// The number of `-v` in a word that has nothing else.
fn count_of(word: &std::ffi::OsString) -> usize {
    let word = word.as_encoded_bytes();
    match word.strip_prefix(b"-") {
        _ if word == b"--verbose" => 1,
        Some(flags) if flags.iter().all(|flag| *flag == b'v') => flags.len(),
        _ => 0,
    }
}
