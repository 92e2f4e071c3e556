//! What a command finds of the host's files, and what it can do to them.

use std::fs;

use ringfence_policy::{AbsPath, Mode};

use super::place::SECRET;
use super::trial::{
    CheckRun, CheckSession, CheckStep, TmpName, host_has, host_lacks, quoted, same,
};
use super::{CheckResult, ConformanceCheck};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::running("the_workspace_is_worked_in", the_workspace_is_worked_in),
    ConformanceCheck::running("what_is_opened_is_open", what_is_opened_is_open),
    ConformanceCheck::confinement(
        "an_opened_tree_is_opened_no_further",
        an_opened_tree_is_opened_no_further,
    ),
    ConformanceCheck::confinement(
        "a_read_only_workspace_is_not_written",
        a_read_only_workspace_is_not_written,
    ),
    ConformanceCheck::confinement("secrets_are_not_read", secrets_are_not_read),
    ConformanceCheck::confinement("what_is_outside_is_not_there", what_is_outside_is_not_there),
    ConformanceCheck::confinement("a_write_outside_is_refused", a_write_outside_is_refused),
    ConformanceCheck::confinement(
        "a_protected_name_cannot_be_made",
        a_protected_name_cannot_be_made,
    ),
    ConformanceCheck::confinement("a_denied_name_cannot_be_made", a_denied_name_cannot_be_made),
    ConformanceCheck::confinement("what_git_obeys_is_not_changed", what_git_obeys_is_not_changed),
    ConformanceCheck::confinement(
        "nothing_appears_that_the_command_did_not_make",
        nothing_appears_that_the_command_did_not_make,
    ),
    ConformanceCheck::confinement("temporary_files_are_its_own", temporary_files_are_its_own),
    ConformanceCheck::confinement("caches_are_private_and_last", caches_are_private_and_last),
];

/// Tries every line; none may succeed, and none may end the others.
fn all_fail(session: &mut CheckSession<'_>, lines: &[String]) -> CheckResult {
    for line in lines {
        session.sh(&format!("({line}) 2>/dev/null && echo done; echo over"))?.says("over")?;
    }
    Ok(())
}

fn the_workspace_is_worked_in(trial: &CheckRun<'_>) -> CheckResult {
    let line = "cat README && echo made > new && mkdir -p a/b && echo deep > a/b/c && echo more >> README && mv sub/plain sub/moved && rm not-executable";
    trial.open()?.sh(line)?.ends(0)?.says("hello")?;
    for (name, content) in [
        ("new", "made\n"),
        ("a/b/c", "deep\n"),
        ("README", "hello\nmore\n"),
        ("sub/moved", "plain\n"),
    ] {
        host_has(&trial.at(name), content)?;
    }
    host_lacks(&trial.at("sub/plain"))?;
    host_lacks(&trial.at("not-executable"))
}

fn what_is_opened_is_open(trial: &CheckRun<'_>) -> CheckResult {
    let (open, drop_box, named) =
        (trial.place.outside.join("open"), trial.place.outside.join("drop"), trial.at(".env"));
    let mut session = trial.open_with(|flags| {
        flags.read = vec![open.to_string(), named.to_string()];
        flags.write = vec![drop_box.to_string()];
    })?;
    let line = format!(
        "cat {} && echo made > {}/made && cat .env",
        quoted(&open.join("data")),
        quoted(&drop_box)
    );
    session.sh(&line)?.ends(0)?.says(&format!("open\n{SECRET}"))?;
    host_has(&drop_box.join("made"), "made\n")
}

fn an_opened_tree_is_opened_no_further(trial: &CheckRun<'_>) -> CheckResult {
    let (open, shut) = (trial.place.outside.join("open"), trial.place.outside.join("open/shut"));
    let mut session = trial.open_with(|flags| {
        flags.read = vec![open.to_string()];
        flags.deny = vec![shut.to_string()];
    })?;
    session
        .sh(&format!(
            "cat {} {} 2>/dev/null",
            quoted(&shut.join("data")),
            quoted(&open.join("data"))
        ))?
        .says("open")?;
    all_fail(
        &mut session,
        &[
            format!("echo x > {}/made", quoted(&open)),
            format!("echo x >> {}/data", quoted(&open)),
            format!("rm {}/data", quoted(&open)),
            format!("ls {}", quoted(&trial.place.outside.join("drop"))),
        ],
    )?;
    host_lacks(&open.join("made"))?;
    host_has(&open.join("data"), "open\n")
}

fn a_read_only_workspace_is_not_written(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open_with(|flags| flags.mode = Some(Mode::ReadOnly))?;
    session.sh("cat README")?.ends(0)?.says("hello")?;
    let lines = [
        "echo x > made",
        "echo x >> README",
        "mkdir made",
        "rm README",
        "mv README made",
        "chmod 777 README",
    ];
    all_fail(&mut session, &lines.map(String::from))?;
    host_lacks(&trial.at("made"))?;
    host_has(&trial.at("README"), "hello\n")
}

fn secrets_are_not_read(trial: &CheckRun<'_>) -> CheckResult {
    let place = trial.place;
    let secrets = [
        place.home.join(".ssh/id_rsa"),
        place.home.join(".aws/credentials"),
        place.home.join("notes.txt"),
        place.other.join("main.rs"),
        place.outside.join("note.txt"),
        trial.at(".env"),
        trial.at("sub/x.pem"),
        trial.at("sub/../.env"),
        trial.at("link"),
    ];
    let mut session = trial.open()?;
    for path in &secrets {
        session.sh(&format!("cat {} 2>/dev/null; cat README", quoted(path)))?.says("hello")?;
    }
    let copy = TmpName::new("copy");
    let line = format!(
        "cp -r . {0} 2>/dev/null; cat {0}/.env {0}/sub/x.pem {0}/link 2>/dev/null; cat README",
        quoted(&copy.0)
    );
    session.sh(&line)?.says("hello").map(drop)
}

fn what_is_outside_is_not_there(trial: &CheckRun<'_>) -> CheckResult {
    let place = trial.place;
    let absent = [
        place.other.clone(),
        place.outside.clone(),
        place.home.join("notes.txt"),
        place.store.clone(),
    ];
    let words = absent.iter().map(quoted).collect::<Vec<_>>().join(" ");
    let above = trial.place.workspace.parent().unwrap_or_else(AbsPath::root);
    let line = format!(
        "for path in {words}; do [ -e \"$path\" ] && echo \"$path\"; done; ls {}",
        quoted(&above)
    );
    trial.open()?.sh(&line)?.says("app").map(drop)
}

fn a_write_outside_is_refused(trial: &CheckRun<'_>) -> CheckResult {
    let place = trial.place;
    let mut session = trial.open()?;
    let paths = [&place.home, &place.other, &place.outside, &place.home.join(".ssh")]
        .map(|directory| directory.join("made"));
    all_fail(&mut session, &paths.each_ref().map(|path| format!("echo x > {}", quoted(path))))?;
    all_fail(&mut session, &paths.each_ref().map(|path| format!("mkdir {}", quoted(path))))?;
    all_fail(&mut session, &[format!("echo x >> {}", quoted(&place.outside.join("note.txt")))])?;
    paths.iter().try_for_each(host_lacks)?;
    host_has(&place.outside.join("note.txt"), SECRET)
}

/// Every usual way to give something one of these names.
fn cannot_be_made(trial: &CheckRun<'_>, names: &[&str]) -> CheckResult {
    let mut session = trial.open()?;
    session
        .sh("mkdir -p from && echo x > from/x && echo x > plain && cat plain")?
        .ends(0)?
        .says("x")?;
    for name in names {
        let ways = [
            "echo x > NAME",
            "mkdir NAME",
            "cp plain NAME",
            "mv plain NAME",
            "ln plain NAME",
            "ln -s plain NAME",
            "mv from NAME",
        ];
        all_fail(&mut session, &ways.map(|way| way.replace("NAME", name)))?;
        host_lacks(&trial.at(name))?;
    }
    host_has(&trial.at("plain"), "x\n")?;
    host_has(&trial.at("from/x"), "x\n")
}

fn a_protected_name_cannot_be_made(trial: &CheckRun<'_>) -> CheckResult {
    cannot_be_made(
        trial,
        &[
            ".mcp.json",
            ".claude",
            ".ringfence",
            ".bashrc",
            ".git/hooks/post-checkout",
            ".git/commondir",
        ],
    )
}

fn a_denied_name_cannot_be_made(trial: &CheckRun<'_>) -> CheckResult {
    cannot_be_made(trial, &[".env.local", "sub/server.key", "my-secret.json"])
}

fn what_git_obeys_is_not_changed(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    // The rest of it is git's to work with.
    session
        .sh("echo x > .git/refs/mine && cat .git/refs/mine .git/config")?
        .says("x\n[core]\n\tbare = false")?;
    let lines = [
        "echo x >> .git/config",
        "rm .git/config",
        "mv .git/config .git/old",
        "cp README .git/config",
        "echo x >> .git/hooks/pre-commit",
        "rm .git/hooks/pre-commit",
        "mv .git/hooks .git/old",
        "mv .git old",
    ];
    all_fail(&mut session, &lines.map(String::from))?;
    host_has(&trial.at(".git/config"), "[core]\n\tbare = false\n")?;
    host_has(&trial.at(".git/hooks/pre-commit"), "#!/bin/sh\n")
}

fn nothing_appears_that_the_command_did_not_make(trial: &CheckRun<'_>) -> CheckResult {
    let look = || trial.place.entries().during("look through the place");
    let before = look()?;
    // Opened and left again, which makes nothing either.
    drop(trial.open()?);
    let line = "(ls -A . .. ~; cat .env sub/x.pem ~/.ssh/id_rsa; echo x > .mcp.json; mkdir .claude; touch ../made ~/made ../other/made; mkdir ~/.config) >/dev/null 2>&1; ls -A | wc -l";
    let count = fs::read_dir(trial.place.workspace.as_path()).during("list the workspace")?.count();
    // Inside, the listing is the host's: no placeholder, nothing hidden.
    trial.open()?.sh(line)?.says(&count.to_string())?;
    let after = look()?;
    let changed: Vec<String> = after
        .iter()
        .filter(|(path, content)| before.get(*path) != Some(*content))
        .map(|(path, _)| path.to_string())
        .collect();
    same("what is new or changed", changed, Vec::new())?;
    same("what is gone", before.keys().find(|path| !after.contains_key(*path)), None)
}

fn temporary_files_are_its_own(trial: &CheckRun<'_>) -> CheckResult {
    let (ours, theirs) = (TmpName::new("host"), TmpName::new("inside"));
    fs::write(ours.0.as_path(), "x").during("write to /tmp")?;
    let line = format!(
        "echo x > {0} && cat {0}; [ -e {1} ] && echo seen; echo over",
        quoted(&theirs.0),
        quoted(&ours.0)
    );
    trial.open()?.sh(&line)?.says("x\nover")?;
    host_lacks(&theirs.0)
}

fn caches_are_private_and_last(trial: &CheckRun<'_>) -> CheckResult {
    trial
        .open()?
        .sh("mkdir -p ~/.cache/mine && echo kept > ~/.cache/mine/x && cat ~/.cache/mine/x")?
        .ends(0)?
        .says("kept")?;
    host_lacks(&trial.place.home.join(".cache/mine"))?;
    trial.open()?.sh("cat ~/.cache/mine/x")?.ends(0)?.says("kept").map(drop)
}
