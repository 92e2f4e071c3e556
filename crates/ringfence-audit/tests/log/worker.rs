//! Worker processes: this test binary, run again for the same test with a task.

use std::process::{Command, Stdio};

use crate::LogScratch;

/// The environment variable with a worker's task.
const TASK: &str = "AUDIT_TEST_TASK";
const STATE: &str = "AUDIT_TEST_STATE";

/// The scratch directory to work in, if this process is a worker.
pub(crate) fn task() -> Option<(String, LogScratch)> {
    let (task, state) = (std::env::var(TASK).ok()?, std::env::var(STATE).ok()?);
    Some((task, LogScratch(state.into())))
}

/// A command that enters `test` again with a task.
pub(crate) fn worker(test: &str, task: &str, scratch: &LogScratch) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a binary"));
    set_task(&mut command, test, task, scratch);
    command
}

/// As [`worker`], below a shell that first runs `line` in its own namespaces.
pub(crate) fn worker_after(line: &str, test: &str, task: &str, scratch: &LogScratch) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-ec", &format!("{line}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("a test has a binary"));
    set_task(&mut command, test, task, scratch);
    command.env("SCRATCH", &scratch.0);
    command
}

fn set_task(command: &mut Command, test: &str, task: &str, scratch: &LogScratch) {
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env(STATE, &scratch.0)
        .stdin(Stdio::null());
}

/// Prints a worker's report, with a mark that no test runner prints.
pub(crate) fn print_report(text: &str) {
    println!("\n@{text}");
}

/// The reports of workers in all printed output.
pub(crate) fn parse_reports(output: &[u8]) -> Vec<String> {
    // An incomplete last line is not a report.
    let text = String::from_utf8_lossy(output);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| line.strip_prefix('@')).map(str::to_owned).collect()
}
