//! The `ringfence` command line program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence_cli::main()
}
