//! The command line of ringfence.

#![forbid(unsafe_code)]

mod args;
mod asker;
mod commands;
mod denied;
mod error;
mod logging;
mod messages;
mod origins;
mod output;
mod providers;
mod provisions;
mod read_file;

use std::process::ExitCode;

use providers::EarlyProviders;
use ringfence_linux::LocalProvider;
use tracing::trace_span;

/// Runs the program `ringfence` with the arguments of this process.
pub fn main() -> ExitCode {
    ringfence_linux::enter_if_helper();
    let logging = logging::start_early();
    let _stage = trace_span!(target: "stage", "main").entered();
    // Started before the arguments are parsed: it prepares the sandbox meanwhile.
    let is_early = logging.is_decided() && args::runs_one_command();
    let local = if is_early && !args::runs_in_conversation() {
        LocalProvider::for_one_command()
    } else {
        LocalProvider::default()
    };
    let providers = EarlyProviders::new(local);
    let arguments = args::parse();
    let wants_json = arguments.command.prints_json();
    let ran = logging.finish(arguments.verbose).and_then(|()| commands::run(arguments, &providers));
    match ran {
        Ok(status) => status,
        Err(error) => {
            messages::print_error(&error);
            if wants_json {
                let _ = output::print_json(&serde_json::json!({ "error": error.to_json() }));
            }
            ExitCode::from(error.exit_status())
        }
    }
}
