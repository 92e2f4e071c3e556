//! `cargo xtask stress`: the races and generated inputs that CI repeats a few times, many times.

use std::time::Instant;

use crate::{Done, fuzz, workspace};

/// Tests that count their repetitions by `ringfence_testkit::repetitions`.
const REPEATED: &str = "test(/^(making|races|connecting|live|flood|kill|fuzz|contract|leaks)::/)";
/// The variable that those tests look for.
const VARIABLE: &str = "RINGFENCE_STRESS";
/// Seconds for each fuzz target.
const SECONDS: &str = "300";

/// Runs all of it; stops at the first failure.
pub(crate) fn run() -> Done {
    step("repeated tests", || {
        let status = workspace::cargo(&["nextest", "run", "--workspace", "-E", REPEATED])
            .env(VARIABLE, "1")
            .status()?;
        if status.success() { Ok(()) } else { Err(format!("cargo nextest: {status}").into()) }
    })?;
    fuzz::run_all(SECONDS)
}

/// Runs one part and prints how long it took.
pub(crate) fn step(name: &str, part: impl FnOnce() -> Done) -> Done {
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
