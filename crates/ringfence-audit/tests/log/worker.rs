//! Other processes: this test binary, entered again at the same test with a task.

use std::process::{Command, Stdio};

use crate::Scratch;

/// What a worker is told to do; names of a test, as the test is entered again by it.
const TASK: &str = "AUDIT_TEST_TASK";
const STATE: &str = "AUDIT_TEST_STATE";

/// The scratch directory to work in, if this process is a worker.
pub(crate) fn task() -> Option<(String, Scratch)> {
    let (task, state) = (std::env::var(TASK).ok()?, std::env::var(STATE).ok()?);
    Some((task, Scratch(state.into())))
}

/// A command that enters `test` again with a task.
pub(crate) fn worker(test: &str, task: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a binary"));
    dress(&mut command, test, task, scratch);
    command
}

/// The same below a shell, which prepares namespaces of its own with `line` first.
pub(crate) fn worker_after(line: &str, test: &str, task: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-ec", &format!("{line}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("a test has a binary"));
    dress(&mut command, test, task, scratch);
    command.env("SCRATCH", &scratch.0);
    command
}

fn dress(command: &mut Command, test: &str, task: &str, scratch: &Scratch) {
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env(STATE, &scratch.0)
        .stdin(Stdio::null());
}

/// What a worker says, with a mark that no test runner prints.
pub(crate) fn say(text: &str) {
    println!("\n@{text}");
}

/// What workers said, out of everything that was printed.
pub(crate) fn said(output: &[u8]) -> Vec<String> {
    // Half a line at the end was never said.
    let text = String::from_utf8_lossy(output);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| line.strip_prefix('@')).map(str::to_owned).collect()
}
