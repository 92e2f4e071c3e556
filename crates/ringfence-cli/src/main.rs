//! `ringfence` on the command line: words in, words out.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod error;
mod json;
mod origins;
mod say;
mod show;
mod steps;

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence_enforce::apply::helper::enter_if_helper();
    let arguments = args::parse();
    let wants_json = arguments.command.wants_json();
    match commands::run(arguments) {
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
