//! `cargo xtask ci`: everything a change must pass, in one command.

use std::process::Stdio;
use std::time::Instant;

use crate::generate::Purpose;
use crate::{Done, fuzz, generate, tidy, workspace};

/// A heading and what is run under it.
type Step = (&'static str, fn() -> Done);

/// Cheapest first.
const STEPS: &[Step] = &[
    ("tidy", tidy::run),
    ("fmt --check", format),
    ("clippy", clippy),
    ("gen --check", || generate::run(Purpose::Check)),
    ("fuzz", fuzz::all),
    ("tests", tests),
];

/// Runs every step even when one fails: a person wants to know all of it at once.
pub(crate) fn run() -> Done {
    let began = Instant::now();
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        println!("=== {name}");
        let started = Instant::now();
        let done = step();
        if let Err(error) = &done {
            println!("error: {error}");
            failed.push(*name);
        }
        println!("=== {name}: {} in {:.1} s\n", if done.is_ok() { "passed" } else { "FAILED" }, started.elapsed().as_secs_f64());
    }
    let total = began.elapsed().as_secs_f64();
    if failed.is_empty() {
        println!("=== ci: {} steps passed in {total:.1} s", STEPS.len());
        return Ok(());
    }
    Err(format!("ci failed after {total:.1} s: {}", failed.join(", ")).into())
}

fn format() -> Done {
    cargo(&["fmt", "--check"])
}

fn clippy() -> Done {
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn tests() -> Done {
    let nextest = workspace::cargo(&["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if nextest.is_ok_and(|status| status.success()) {
        return cargo(&["nextest", "run", "--workspace"]);
    }
    println!("cargo-nextest is not installed; `cargo test` runs the same tests");
    cargo(&["test", "--workspace"])
}

fn cargo(arguments: &[&str]) -> Done {
    println!("$ cargo {}", arguments.join(" "));
    let status = workspace::cargo(arguments).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cargo {}: {status}", arguments[0]).into()) }
}
