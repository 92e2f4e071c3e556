//! The end of a command, and commands that cannot start.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::check_run::{CheckRun, CheckStep, difference, expect_equal, expect_no_host_file};
use super::{CheckResult, ConformanceCheck};
use crate::ProviderError;

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::running("statuses_pass_through", statuses_pass_through),
    ConformanceCheck::running("missing_program_is_an_error", missing_program_is_an_error),
    ConformanceCheck::running("unexecutable_program_is_an_error", unexecutable_program_is_an_error),
    ConformanceCheck::confinement(
        "command_cannot_start_in_a_denied_directory",
        command_cannot_start_in_a_denied_directory,
    ),
    ConformanceCheck::running(
        "deadline_ends_the_command_and_is_reported",
        deadline_ends_the_command_and_is_reported,
    ),
    ConformanceCheck::confinement(
        "deadline_ends_all_started_processes",
        deadline_ends_all_started_processes,
    ),
    ConformanceCheck::confinement("nothing_outlives_the_command", nothing_outlives_the_command),
    ConformanceCheck::running("resource_usage_is_reported", resource_usage_is_reported),
];

fn statuses_pass_through(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    for (line, status) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        session.sh(line)?.expect_status(status)?;
    }
    Ok(())
}

/// Checks the code and the status of an error.
fn check_error(error: &ProviderError, code: &str, status: i32) -> CheckResult {
    expect_equal("the error's code", error.code(), code)?;
    expect_equal("the error's status", error.status(), status)
}

fn missing_program_is_an_error(trial: &CheckRun<'_>) -> CheckResult {
    for name in ["no-such-program", "./no-such-program", "/no-such-directory/program"] {
        let mut session = trial.open()?;
        let error = session.expect_error(&session.request([name]))?;
        check_error(&error, "command-not-executed", 127)?;
        expect_equal(
            "the error has a hint",
            error.hint().is_some_and(|hint| !hint.is_empty()),
            true,
        )?;
    }
    Ok(())
}

fn unexecutable_program_is_an_error(trial: &CheckRun<'_>) -> CheckResult {
    for name in ["./not-executable", "./sub"] {
        let mut session = trial.open()?;
        check_error(&session.expect_error(&session.request([name]))?, "command-not-executed", 126)?;
    }
    Ok(())
}

fn command_cannot_start_in_a_denied_directory(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.line("echo x > made");
    request.cwd = trial.fixture.outside.clone();
    let error = session.expect_error(&request)?;
    check_error(&error, "sandbox-not-started", 125)?;
    expect_equal("the error has a hint", error.hint().is_some_and(|hint| !hint.is_empty()), true)?;
    expect_no_host_file(&trial.fixture.outside.join("made"))
}

/// The most time that a provider may add to a command.
const MAX_OVERHEAD: Duration = Duration::from_secs(5);

fn check_elapsed(begun: Instant, limit: Duration) -> CheckResult {
    let took = begun.elapsed();
    if took < limit {
        Ok(())
    } else {
        Err(difference("the time it took", &format!("less than {limit:?}"), format!("{took:?}")))
    }
}

fn deadline_ends_the_command_and_is_reported(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.line("echo before; sleep 7; echo after");
    request.deadline = Some(Duration::from_millis(400));
    let begun = Instant::now();
    let ran = session.run(&request)?;
    check_elapsed(begun, MAX_OVERHEAD)?;
    expect_equal("the outcome reports the timeout", ran.outcome.timed_out, true)?;
    ran.expect_status(124)?.expect_output("before")?;
    let mut request = session.line("echo in time; exit 3");
    request.deadline = Some(MAX_OVERHEAD);
    let ran = session.run(&request)?;
    expect_equal(
        "the outcome reports a timeout of a command in time",
        ran.outcome.timed_out,
        false,
    )?;
    ran.expect_status(3)?.expect_output("in time").map(drop)
}

fn deadline_ends_all_started_processes(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let line = "trap '' TERM HUP; setsid sh beat away </dev/null >/dev/null 2>&1 & (sh beat deep >/dev/null 2>&1 &)
        i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done";
    let mut request = session.line(line);
    request.deadline = Some(Duration::from_millis(800));
    let ran = session.run(&request)?;
    expect_equal("the outcome reports the timeout", ran.outcome.timed_out, true)?;
    check_stopped(trial, ["away", "deep"])
}

fn nothing_outlives_the_command(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    session
        .sh("setsid sh beat away </dev/null >/dev/null 2>&1 & sh beat near >/dev/null 2>&1 & sleep 0.5; echo over")?
        .expect_status(0)?
        .expect_output("over")?;
    check_stopped(trial, ["away", "near"])?;
    // A process that holds the output open does not delay the end either.
    let begun = Instant::now();
    session.sh("sleep 7 & echo over")?.expect_status(0)?.expect_output("over")?;
    check_elapsed(begun, MAX_OVERHEAD)
}

/// Fails unless each file was written to and no longer grows.
fn check_stopped(trial: &CheckRun<'_>, names: [&str; 2]) -> CheckResult {
    let lengths = || {
        names.map(|name| {
            fs::metadata(trial.path(name).as_path()).map_or(0, |metadata| metadata.len())
        })
    };
    let before = lengths();
    thread::sleep(Duration::from_millis(700));
    let after = lengths();
    for name in names {
        fs::write(trial.path(&format!("{name}.stop")).as_path(), "").during("write a file")?;
    }
    expect_equal("everything was started", before.contains(&0), false)?;
    expect_equal(
        "the lengths of files a while after their writers should have ended",
        after,
        before,
    )
}

fn resource_usage_is_reported(trial: &CheckRun<'_>) -> CheckResult {
    let outcome =
        trial.open()?.sh("sleep 0.2; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")?.outcome;
    expect_equal("the duration is reported", (200..20_000).contains(&outcome.duration_ms), true)?;
    expect_equal(
        "the CPU time is reported",
        outcome.usage.user_us + outcome.usage.system_us > 0,
        true,
    )
}
