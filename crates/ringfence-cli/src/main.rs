//! `ringfence` on the command line: words in, words out.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod error;
mod json;
mod say;

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence_enforce::apply::helper::enter_if_helper();
    let arguments = args::parse();
    match commands::run(arguments) {
        Ok(status) => status,
        Err(error) => {
            say::error(&error);
            ExitCode::from(error.status())
        }
    }
}
