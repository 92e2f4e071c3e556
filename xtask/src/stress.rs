//! `cargo xtask stress`: repeats the races and generated inputs many times, which CI repeats a few
//! times.

use std::time::Instant;

use crate::{TaskResult, fuzz, workspace};

/// Tests that use `ringfence_testkit::repetitions`.
const REPEATED: &str = "test(/^(making|races|connecting|live|flood|kill|fuzz|contract|leaks)::/)";
/// The environment variable that those tests read.
const VARIABLE: &str = "RINGFENCE_STRESS";
/// Seconds for each fuzz target.
const SECONDS: &str = "300";

/// Runs everything; stops at the first failure.
pub(crate) fn run() -> TaskResult {
    step("repeated tests", || {
        let status = workspace::cargo(&["nextest", "run", "--workspace", "-E", REPEATED])
            .env(VARIABLE, "1")
            .status()?;
        if status.success() { Ok(()) } else { Err(format!("cargo nextest: {status}").into()) }
    })?;
    fuzz::run_all(SECONDS)
}

/// Runs one part and prints its time.
pub(crate) fn step(name: &str, part: impl FnOnce() -> TaskResult) -> TaskResult {
    let begun = Instant::now();
    println!("=== {name}");
    let done = part();
    println!(
        "=== {name}: {} in {:.1} s\n",
        if done.is_ok() { "passed" } else { "FAILED" },
        begun.elapsed().as_secs_f64()
    );
    done
}
