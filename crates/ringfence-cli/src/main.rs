//! `ringfence` on the command line: words in, words out.

#![forbid(unsafe_code)]

mod args;
mod asker;
mod commands;
mod denied;
mod error;
mod json;
mod origins;
mod plain;
mod say;
mod show;
mod steps;

use std::process::ExitCode;

use ringfence_local::Local;

fn main() -> ExitCode {
    ringfence_enforce::apply::helper::enter_if_helper();
    // Begun before anything is understood: it goes on by itself while we read.
    let local = if args::names("run") && !args::is_of_conversation() {
        Local::for_one_command()
    } else {
        Local::default()
    };
    let arguments = args::parse();
    let wants_json = arguments.command.wants_json();
    match commands::run(arguments, &local) {
        Ok(status) => status,
        Err(error) => {
            say::error(&error);
            if wants_json {
                let _ = show::json(&serde_json::json!({ "error": error.json() }));
            }
            ExitCode::from(error.status())
        }
    }
}
