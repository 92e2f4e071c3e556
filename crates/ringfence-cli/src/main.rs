//! `ringfence` on the command line: words in, words out.

#![forbid(unsafe_code)]

mod args;
mod asker;
mod commands;
mod denied;
mod error;
mod json;
mod messages;
mod origins;
mod output;
mod provisions;
mod read_file;

use std::process::ExitCode;

use ringfence_local::LocalProvider;

fn main() -> ExitCode {
    ringfence_enforce::apply::helper::enter_if_helper();
    // Begun before anything is understood: it goes on by itself while we read.
    let local = if args::names("run") && !args::is_of_conversation() {
        LocalProvider::for_one_command()
    } else {
        LocalProvider::default()
    };
    let arguments = args::parse();
    let wants_json = arguments.command.wants_json();
    match commands::run(arguments, &local) {
        Ok(status) => status,
        Err(error) => {
            messages::error(&error);
            if wants_json {
                let _ = output::json(&serde_json::json!({ "error": error.json() }));
            }
            ExitCode::from(error.status())
        }
    }
}
