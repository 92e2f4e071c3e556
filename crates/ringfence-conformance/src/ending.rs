//! The end of a command, and commands that cannot start.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_provider::ProviderError;

use super::CheckResult;
use super::check_run::{CheckRun, CheckStep, difference, expect_equal, expect_no_host_file};

checks! {
    Core: statuses_pass_through,
    Core: missing_program_is_an_error,
    Core: unexecutable_program_is_an_error,
    Files: command_cannot_start_in_a_denied_directory,
    Core: deadline_ends_the_command_and_is_reported,
    Processes: deadline_ends_all_started_processes,
    Processes: nothing_outlives_the_command,
    Core: resource_usage_is_reported,
}

fn statuses_pass_through(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    for (line, status) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        prepared.sh(line)?.expect_status(status)?;
    }
    Ok(())
}

/// Checks the code and the status of an error.
fn check_error(error: &ProviderError, code: &str, status: i32) -> CheckResult {
    expect_equal("the error's code", error.code(), code)?;
    expect_equal("the error's status", error.status(), status)
}

fn missing_program_is_an_error(check_run: &CheckRun<'_>) -> CheckResult {
    for name in ["no-such-program", "./no-such-program", "/no-such-directory/program"] {
        let mut prepared = check_run.open()?;
        let error = prepared.expect_error(&prepared.request([name]))?;
        check_error(&error, "command-not-executed", 127)?;
        expect_equal(
            "the error has a hint",
            error.hint().is_some_and(|hint| !hint.is_empty()),
            true,
        )?;
    }
    Ok(())
}

fn unexecutable_program_is_an_error(check_run: &CheckRun<'_>) -> CheckResult {
    for name in ["./not-executable", "./sub"] {
        let mut prepared = check_run.open()?;
        check_error(
            &prepared.expect_error(&prepared.request([name]))?,
            "command-not-executed",
            126,
        )?;
    }
    Ok(())
}

fn command_cannot_start_in_a_denied_directory(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let mut request = prepared.line("echo x > made");
    request.cwd = check_run.fixture.outside.clone();
    let error = prepared.expect_error(&request)?;
    check_error(&error, "sandbox-not-started", 125)?;
    expect_equal("the error has a hint", error.hint().is_some_and(|hint| !hint.is_empty()), true)?;
    expect_no_host_file(&check_run.fixture.outside.join("made"))
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

fn deadline_ends_the_command_and_is_reported(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let mut request = prepared.line("echo before; sleep 7; echo after");
    request.deadline = Some(Duration::from_millis(400));
    let begun = Instant::now();
    let ran = prepared.run(&request)?;
    check_elapsed(begun, MAX_OVERHEAD)?;
    expect_equal("the outcome reports the timeout", ran.outcome.timed_out, true)?;
    ran.expect_status(124)?.expect_output("before")?;
    let mut request = prepared.line("echo in time; exit 3");
    request.deadline = Some(MAX_OVERHEAD);
    let ran = prepared.run(&request)?;
    expect_equal(
        "the outcome reports a timeout of a command in time",
        ran.outcome.timed_out,
        false,
    )?;
    ran.expect_status(3)?.expect_output("in time").map(drop)
}

fn deadline_ends_all_started_processes(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let line = "trap '' TERM HUP; setsid sh beat away </dev/null >/dev/null 2>&1 & (sh beat deep >/dev/null 2>&1 &)
        i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done";
    let mut request = prepared.line(line);
    request.deadline = Some(Duration::from_millis(800));
    let ran = prepared.run(&request)?;
    expect_equal("the outcome reports the timeout", ran.outcome.timed_out, true)?;
    check_stopped(check_run, ["away", "deep"])
}

fn nothing_outlives_the_command(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    prepared
        .sh("setsid sh beat away </dev/null >/dev/null 2>&1 & sh beat near >/dev/null 2>&1 & sleep 0.5; echo over")?
        .expect_status(0)?
        .expect_output("over")?;
    check_stopped(check_run, ["away", "near"])?;
    // A process that holds the output open does not delay the end either.
    let begun = Instant::now();
    prepared.sh("sleep 7 & echo over")?.expect_status(0)?.expect_output("over")?;
    check_elapsed(begun, MAX_OVERHEAD)
}

/// Fails unless each file was written to and no longer grows.
fn check_stopped(check_run: &CheckRun<'_>, names: [&str; 2]) -> CheckResult {
    let lengths = || {
        names.map(|name| {
            fs::metadata(check_run.path(name).as_path()).map_or(0, |metadata| metadata.len())
        })
    };
    let before = lengths();
    thread::sleep(Duration::from_millis(700));
    let after = lengths();
    for name in names {
        fs::write(check_run.path(&format!("{name}.stop")).as_path(), "").during("write a file")?;
    }
    expect_equal("everything was started", before.contains(&0), false)?;
    expect_equal(
        "the lengths of files a while after their writers should have ended",
        after,
        before,
    )
}

fn resource_usage_is_reported(check_run: &CheckRun<'_>) -> CheckResult {
    let outcome = check_run
        .open()?
        .sh("sleep 0.2; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")?
        .outcome;
    expect_equal("the duration is reported", (200..20_000).contains(&outcome.duration_ms), true)?;
    let is_gap = outcome.gaps.iter().any(|gap| gap.what == "usage");
    let is_reported = outcome.usage.user_us + outcome.usage.system_us > 0;
    expect_equal("the CPU time is reported or a gap", is_reported || is_gap, true)
}
