//! Sandboxes with several commands: state that persists, and state that does not.

use std::fs;
use std::time::Duration;

use ringfence_policy::Mode;

use super::CheckResult;
use super::check_run::{CheckRun, CheckStep, TmpName, expect_host_file, expect_no_host_file};
use super::fixture::SECRET;

checks! {
    Core: prepared_sandbox_runs_several_commands,
    Core: host_changes_are_visible,
    Files: secret_created_later_stays_denied,
    Files: two_sandboxes_are_independent,
}

/// Also after a command that could not be executed, and after one that was killed.
fn prepared_sandbox_runs_several_commands(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    prepared.sh("echo one > made; cat made")?.expect_status(0)?.expect_output("one")?;
    prepared
        .sh("echo two >> made; cat made; exit 4")?
        .expect_status(4)?
        .expect_output("one\ntwo")?;
    prepared.expect_error(&prepared.request(["no-such-program"]))?;
    prepared
        .sh("echo three >> made; cat made")?
        .expect_status(0)?
        .expect_output("one\ntwo\nthree")?;
    let mut request = prepared.line("echo four >> made; sleep 7");
    request.deadline = Some(Duration::from_secs(2));
    prepared.run(&request)?.expect_status(124)?;
    prepared.sh("cat made")?.expect_status(0)?.expect_output("one\ntwo\nthree\nfour").map(drop)
}

fn host_changes_are_visible(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    prepared.sh("cat README")?.expect_output("hello")?;
    fs::write(check_run.path("new").as_path(), "new\n").during("write a file")?;
    prepared.sh("cat new README")?.expect_status(0)?.expect_output("new\nhello")?;
    // Editors save to another name, then rename.
    fs::write(check_run.path("README~").as_path(), "saved\n").during("write a file")?;
    fs::rename(check_run.path("README~").as_path(), check_run.path("README").as_path())
        .during("rename a file")?;
    fs::remove_file(check_run.path("new").as_path()).during("remove a file")?;
    prepared.sh("cat README; test ! -e new")?.expect_status(0)?.expect_output("saved").map(drop)
}

/// Name rules also apply to files that the host creates while a sandbox is open.
fn secret_created_later_stays_denied(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    prepared.sh("cat README")?.expect_output("hello")?;
    for name in ["late.pem", "sub/.env.local"] {
        fs::write(check_run.path(name).as_path(), SECRET).during("write a file")?;
        prepared.sh(&format!("cat {name} 2>/dev/null; cat README"))?.expect_output("hello")?;
    }
    // Editors save by rename: the old inode is gone, and the mask on it with it.
    fs::write(check_run.path("sub/new").as_path(), SECRET).during("write a file")?;
    fs::rename(check_run.path("sub/new").as_path(), check_run.path("sub/x.pem").as_path())
        .during("rename a file")?;
    prepared.sh("cat sub/x.pem 2>/dev/null; cat README")?.expect_output("hello").map(drop)
}

fn two_sandboxes_are_independent(check_run: &CheckRun<'_>) -> CheckResult {
    let mut writes = check_run.open()?;
    let mut reads = check_run.open_with(|flags| flags.mode = Some(Mode::ReadOnly))?;
    let mine = TmpName::new("mine");
    writes
        .sh(&format!("echo a > from-one; echo x > {}; cat from-one", writes.quoted(&mine.0)))?
        .expect_output("a")?;
    let line = format!(
        "cat from-one; [ -e {} ] && echo seen; (echo b > from-other) 2>/dev/null; echo over",
        reads.quoted(&mine.0)
    );
    reads.sh(&line)?.expect_output("a\nover")?;
    expect_no_host_file(&check_run.path("from-other"))?;
    // Closing one does not affect the other.
    drop(reads);
    writes
        .sh("echo again >> from-one; cat from-one")?
        .expect_status(0)?
        .expect_output("a\nagain")?;
    expect_host_file(&check_run.path("from-one"), "a\nagain\n")
}
