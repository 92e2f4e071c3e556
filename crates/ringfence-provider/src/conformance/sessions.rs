//! Sessions: what lasts from one command to the next, and what does not.

use std::fs;
use std::time::Duration;

use ringfence_policy::Mode;

use super::trial::{CheckRun, CheckStep, TmpName, host_has, host_lacks, quoted};
use super::{CheckResult, ConformanceCheck, SECRET};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::running("a_session_runs_several_commands", a_session_runs_several_commands),
    ConformanceCheck::running("what_the_host_changes_is_seen", what_the_host_changes_is_seen),
    ConformanceCheck::confinement(
        "a_secret_that_appears_later_is_not_read",
        a_secret_that_appears_later_is_not_read,
    ),
    ConformanceCheck::confinement("two_sessions_are_independent", two_sessions_are_independent),
];

/// Also after one that could not be executed, and after one that was ended.
fn a_session_runs_several_commands(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    session.sh("echo one > made; cat made")?.ends(0)?.says("one")?;
    session.sh("echo two >> made; cat made; exit 4")?.ends(4)?.says("one\ntwo")?;
    session.refused(&session.request(["no-such-program"]))?;
    session.sh("echo three >> made; cat made")?.ends(0)?.says("one\ntwo\nthree")?;
    let mut request = session.line("echo four >> made; sleep 7");
    request.deadline = Some(Duration::from_secs(2));
    session.run(&request)?.ends(124)?;
    session.sh("cat made")?.ends(0)?.says("one\ntwo\nthree\nfour").map(drop)
}

fn what_the_host_changes_is_seen(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    session.sh("cat README")?.says("hello")?;
    fs::write(trial.at("new").as_path(), "new\n").during("write a file")?;
    session.sh("cat new README")?.ends(0)?.says("new\nhello")?;
    // As editors save: under another name, then in its place.
    fs::write(trial.at("README~").as_path(), "saved\n").during("write a file")?;
    fs::rename(trial.at("README~").as_path(), trial.at("README").as_path())
        .during("rename a file")?;
    fs::remove_file(trial.at("new").as_path()).during("remove a file")?;
    session.sh("cat README; test ! -e new")?.ends(0)?.says("saved").map(drop)
}

/// Rules on names hold for what the host makes while a session is open, too.
fn a_secret_that_appears_later_is_not_read(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    session.sh("cat README")?.says("hello")?;
    for name in ["late.pem", "sub/.env.local"] {
        fs::write(trial.at(name).as_path(), SECRET).during("write a file")?;
        session.sh(&format!("cat {name} 2>/dev/null; cat README"))?.says("hello")?;
    }
    // As editors save: what stood there is gone, and with it whatever covered it.
    fs::write(trial.at("sub/new").as_path(), SECRET).during("write a file")?;
    fs::rename(trial.at("sub/new").as_path(), trial.at("sub/x.pem").as_path())
        .during("rename a file")?;
    session.sh("cat sub/x.pem 2>/dev/null; cat README")?.says("hello").map(drop)
}

fn two_sessions_are_independent(trial: &CheckRun<'_>) -> CheckResult {
    let mut writes = trial.open()?;
    let mut reads = trial.open_with(|flags| flags.mode = Some(Mode::ReadOnly))?;
    let mine = TmpName::new("mine");
    writes
        .sh(&format!("echo a > from-one; echo x > {}; cat from-one", quoted(&mine.0)))?
        .says("a")?;
    let line = format!(
        "cat from-one; [ -e {} ] && echo seen; (echo b > from-other) 2>/dev/null; echo over",
        quoted(&mine.0)
    );
    reads.sh(&line)?.says("a\nover")?;
    host_lacks(&trial.at("from-other"))?;
    // Closing one leaves the other as it is.
    drop(reads);
    writes.sh("echo again >> from-one; cat from-one")?.ends(0)?.says("a\nagain")?;
    host_has(&trial.at("from-one"), "a\nagain\n")
}
