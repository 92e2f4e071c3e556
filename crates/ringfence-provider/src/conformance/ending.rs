//! How a command ends, or does not begin.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::trial::{CheckRun, CheckStep, differs, host_lacks, same};
use super::{CheckResult, ConformanceCheck};
use crate::ProviderError;

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::running("statuses_pass_through", statuses_pass_through),
    ConformanceCheck::running(
        "a_program_that_is_not_there_is_an_error",
        a_program_that_is_not_there_is_an_error,
    ),
    ConformanceCheck::running(
        "a_program_that_cannot_be_executed_is_an_error",
        a_program_that_cannot_be_executed_is_an_error,
    ),
    ConformanceCheck::confinement(
        "a_directory_that_is_not_opened_is_no_place_to_start",
        a_directory_that_is_not_opened_is_no_place_to_start,
    ),
    ConformanceCheck::running(
        "a_deadline_ends_the_command_and_is_told",
        a_deadline_ends_the_command_and_is_told,
    ),
    ConformanceCheck::confinement(
        "a_deadline_ends_all_that_was_started",
        a_deadline_ends_all_that_was_started,
    ),
    ConformanceCheck::confinement("nothing_outlives_the_command", nothing_outlives_the_command),
    ConformanceCheck::running("what_it_used_is_told", what_it_used_is_told),
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
        session.sh(line)?.ends(status)?;
    }
    Ok(())
}

/// Everything that an error has to say.
fn told(error: &ProviderError, code: &str, status: i32) -> CheckResult {
    same("the error's code", error.code(), code)?;
    same("the error's status", error.status(), status)
}

fn a_program_that_is_not_there_is_an_error(trial: &CheckRun<'_>) -> CheckResult {
    for name in ["no-such-program", "./no-such-program", "/no-such-directory/program"] {
        let mut session = trial.open()?;
        let error = session.refused(&session.request([name]))?;
        told(&error, "command-not-executed", 127)?;
        same(
            "whether the error has a hint",
            error.hint().is_some_and(|hint| !hint.is_empty()),
            true,
        )?;
    }
    Ok(())
}

fn a_program_that_cannot_be_executed_is_an_error(trial: &CheckRun<'_>) -> CheckResult {
    for name in ["./not-executable", "./sub"] {
        let mut session = trial.open()?;
        told(&session.refused(&session.request([name]))?, "command-not-executed", 126)?;
    }
    Ok(())
}

fn a_directory_that_is_not_opened_is_no_place_to_start(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.line("echo x > made");
    request.cwd = trial.place.outside.clone();
    let error = session.refused(&request)?;
    told(&error, "sandbox-not-started", 125)?;
    same("whether the error has a hint", error.hint().is_some_and(|hint| !hint.is_empty()), true)?;
    host_lacks(&trial.place.outside.join("made"))
}

/// How long a place may take over what takes no time.
const PROMPT: Duration = Duration::from_secs(5);

fn within(begun: Instant, limit: Duration) -> CheckResult {
    let took = begun.elapsed();
    if took < limit {
        Ok(())
    } else {
        Err(differs("the time it took", &format!("less than {limit:?}"), format!("{took:?}")))
    }
}

fn a_deadline_ends_the_command_and_is_told(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.line("echo before; sleep 7; echo after");
    request.deadline = Some(Duration::from_millis(400));
    let begun = Instant::now();
    let ran = session.run(&request)?;
    within(begun, PROMPT)?;
    same("whether the outcome tells of the deadline", ran.outcome.timed_out, true)?;
    ran.ends(124)?.says("before")?;
    let mut request = session.line("echo in time; exit 3");
    request.deadline = Some(PROMPT);
    let ran = session.run(&request)?;
    same("whether the outcome tells of a deadline that was kept", ran.outcome.timed_out, false)?;
    ran.ends(3)?.says("in time").map(drop)
}

fn a_deadline_ends_all_that_was_started(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let line = "trap '' TERM HUP; setsid sh beat away </dev/null >/dev/null 2>&1 & (sh beat deep >/dev/null 2>&1 &)
        i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done";
    let mut request = session.line(line);
    request.deadline = Some(Duration::from_millis(800));
    let ran = session.run(&request)?;
    same("whether the outcome tells of the deadline", ran.outcome.timed_out, true)?;
    at_rest(trial, ["away", "deep"])
}

fn nothing_outlives_the_command(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    session
        .sh("setsid sh beat away </dev/null >/dev/null 2>&1 & sh beat near >/dev/null 2>&1 & sleep 0.5; echo over")?
        .ends(0)?
        .says("over")?;
    at_rest(trial, ["away", "near"])?;
    // Whoever holds the command's output open does not hold up its end either.
    let begun = Instant::now();
    session.sh("sleep 7 & echo over")?.ends(0)?.says("over")?;
    within(begun, PROMPT)
}

/// Fails unless each of these was written to, and no longer is.
fn at_rest(trial: &CheckRun<'_>, names: [&str; 2]) -> CheckResult {
    let lengths = || {
        names
            .map(|name| fs::metadata(trial.at(name).as_path()).map_or(0, |metadata| metadata.len()))
    };
    let before = lengths();
    thread::sleep(Duration::from_millis(700));
    let after = lengths();
    for name in names {
        fs::write(trial.at(&format!("{name}.stop")).as_path(), "").during("write a file")?;
    }
    same("whether everything was started", before.contains(&0), false)?;
    same("the lengths of files a while after their writers should have ended", after, before)
}

fn what_it_used_is_told(trial: &CheckRun<'_>) -> CheckResult {
    let outcome =
        trial.open()?.sh("sleep 0.2; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")?.outcome;
    same("whether the duration is told", (200..20_000).contains(&outcome.duration_ms), true)?;
    same(
        "whether the processor's time is told",
        outcome.usage.user_us + outcome.usage.system_us > 0,
        true,
    )
}
