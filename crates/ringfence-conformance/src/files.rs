//! Access to the host's files.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_policy::{AbsPath, Mode};

use super::CheckResult;
use super::check_run::{
    CheckRun, CheckStep, PreparedCheck, TmpName, expect_equal, expect_host_file,
    expect_no_host_file,
};
use super::fixture::SECRET;

checks! {
    Core: workspace_is_readable_and_writable,
    Core: granted_paths_are_accessible,
    Files: read_grant_allows_no_write_and_no_denied_subtree,
    Files: denied_path_stays_denied_under_another_name,
    Files: read_only_workspace_stays_unchanged,
    Files: secrets_are_not_read,
    Files: denied_link_hides_its_target,
    Files: paths_outside_the_policy_are_invisible,
    Files: write_outside_the_workspace_is_denied,
    Names: protected_name_cannot_be_created,
    Names: denied_name_cannot_be_created,
    Names: refused_names_leave_no_traces_on_the_host,
    Files: git_config_and_hooks_stay_unchanged,
    Files: sandbox_leaves_no_traces_on_the_host,
    Files: temporary_files_are_private,
    Files: caches_are_private_and_last,
}

/// Runs every line; each must fail, and none may stop the others.
fn all_fail(prepared: &mut PreparedCheck<'_>, lines: &[String]) -> CheckResult {
    for line in lines {
        prepared
            .sh(&format!("({line}) 2>/dev/null && echo done; echo over"))?
            .expect_output("over")?;
    }
    Ok(())
}

fn workspace_is_readable_and_writable(check_run: &CheckRun<'_>) -> CheckResult {
    let line = "cat README && echo made > new && mkdir -p a/b && echo deep > a/b/c && echo more >> README && mv sub/plain sub/moved && rm not-executable";
    check_run.open()?.sh(line)?.expect_status(0)?.expect_output("hello")?;
    for (name, content) in [
        ("new", "made\n"),
        ("a/b/c", "deep\n"),
        ("README", "hello\nmore\n"),
        ("sub/moved", "plain\n"),
    ] {
        expect_host_file(&check_run.path(name), content)?;
    }
    expect_no_host_file(&check_run.path("sub/plain"))?;
    expect_no_host_file(&check_run.path("not-executable"))
}

fn granted_paths_are_accessible(check_run: &CheckRun<'_>) -> CheckResult {
    let (open, drop_box, named) = (
        check_run.fixture.outside.join("open"),
        check_run.fixture.outside.join("drop"),
        check_run.path(".env"),
    );
    let mut prepared = check_run.open_with(|flags| {
        flags.read = vec![open.to_string(), named.to_string()];
        flags.write = vec![drop_box.to_string()];
    })?;
    let line = format!(
        "cat {} && echo made > {}/made && cat .env",
        prepared.quoted(&open.join("data")),
        prepared.quoted(&drop_box)
    );
    prepared.sh(&line)?.expect_status(0)?.expect_output(&format!("open\n{SECRET}"))?;
    expect_host_file(&drop_box.join("made"), "made\n")
}

fn read_grant_allows_no_write_and_no_denied_subtree(check_run: &CheckRun<'_>) -> CheckResult {
    let (open, shut) =
        (check_run.fixture.outside.join("open"), check_run.fixture.outside.join("open/shut"));
    let mut prepared = check_run.open_with(|flags| {
        flags.read = vec![open.to_string()];
        flags.deny = vec![shut.to_string()];
    })?;
    let [opened, closed, beside] =
        [&open, &shut, &check_run.fixture.outside.join("drop")].map(|path| prepared.quoted(path));
    prepared.sh(&format!("cat {closed}/data {opened}/data 2>/dev/null"))?.expect_output("open")?;
    all_fail(
        &mut prepared,
        &[
            format!("echo x > {opened}/made"),
            format!("echo x >> {opened}/data"),
            format!("rm {opened}/data"),
            format!("ls {beside}"),
        ],
    )?;
    expect_no_host_file(&open.join("made"))?;
    expect_host_file(&open.join("data"), "open\n")
}

/// Also in the next command, whose sandbox would not find the path again.
fn denied_path_stays_denied_under_another_name(check_run: &CheckRun<'_>) -> CheckResult {
    let shut = check_run.path("made/deep/shut");
    fs::create_dir_all(shut.as_path()).during("create a directory")?;
    fs::write(shut.join("data").as_path(), SECRET).during("write a file")?;
    let mut prepared = check_run.open_with(|flags| flags.deny = vec![shut.to_string()])?;
    for line in ["mv made/deep/shut taken", "mv made/deep taken", "mv made taken"] {
        prepared.sh(&format!("({line}) 2>/dev/null; echo over"))?.expect_output("over")?;
        prepared
            .sh("cat taken/data taken/shut/data taken/deep/shut/data made/deep/shut/data 2>/dev/null; cat README")?
            .expect_output("hello")?;
    }
    expect_host_file(&shut.join("data"), SECRET)
}

fn read_only_workspace_stays_unchanged(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open_with(|flags| flags.mode = Some(Mode::ReadOnly))?;
    prepared.sh("cat README")?.expect_status(0)?.expect_output("hello")?;
    let lines = [
        "echo x > made",
        "echo x >> README",
        "mkdir made",
        "rm README",
        "mv README made",
        "chmod 777 README",
    ];
    all_fail(&mut prepared, &lines.map(String::from))?;
    expect_no_host_file(&check_run.path("made"))?;
    expect_host_file(&check_run.path("README"), "hello\n")
}

fn secrets_are_not_read(check_run: &CheckRun<'_>) -> CheckResult {
    let fixture = check_run.fixture;
    let secrets = [
        fixture.home.join(".ssh/id_rsa"),
        fixture.home.join(".aws/credentials"),
        fixture.home.join("notes.txt"),
        fixture.other.join("main.rs"),
        fixture.outside.join("note.txt"),
        check_run.path(".env"),
        check_run.path("sub/x.pem"),
        check_run.path("sub/../.env"),
        check_run.path("link"),
    ];
    let mut prepared = check_run.open()?;
    for path in &secrets {
        prepared
            .sh(&format!("cat {} 2>/dev/null; cat README", prepared.quoted(path)))?
            .expect_output("hello")?;
    }
    let copy = TmpName::new("copy");
    let line = format!(
        "cp -r . {0} 2>/dev/null; cat {0}/.env {0}/sub/x.pem {0}/link 2>/dev/null; cat README",
        prepared.quoted(&copy.0)
    );
    prepared.sh(&line)?.expect_output("hello").map(drop)
}

fn denied_link_hides_its_target(check_run: &CheckRun<'_>) -> CheckResult {
    for name in ["settings/prod", "vault/key", "vault/.git/config"] {
        let path = check_run.path(name);
        fs::create_dir_all(path.parent().unwrap_or_else(AbsPath::root).as_path())
            .during("create a directory")?;
        fs::write(path.as_path(), SECRET).during("write a file")?;
    }
    let links = [("settings/prod", ".env.file"), ("vault", ".env.d"), ("sub/plain", "ordinary")];
    for (target, name) in links {
        let link = check_run.path(name);
        symlink(target, link.as_path()).during("create a symbolic link")?;
    }
    let line =
        "cat .env.file settings/prod .env.d/* vault/* vault/.git/config 2>/dev/null; cat ordinary";
    check_run.open()?.sh(line)?.expect_output("plain").map(drop)
}

fn paths_outside_the_policy_are_invisible(check_run: &CheckRun<'_>) -> CheckResult {
    let fixture = check_run.fixture;
    let absent = [
        fixture.other.clone(),
        fixture.outside.clone(),
        fixture.home.join("notes.txt"),
        fixture.store.clone(),
    ];
    let mut prepared = check_run.open()?;
    let words: Vec<String> = absent.iter().map(|path| prepared.quoted(path)).collect();
    let line = format!(
        "for path in {}; do [ -e \"$path\" ] && echo \"$path\"; done; ls ..",
        words.join(" ")
    );
    prepared.sh(&line)?.expect_output("app").map(drop)
}

fn write_outside_the_workspace_is_denied(check_run: &CheckRun<'_>) -> CheckResult {
    let fixture = check_run.fixture;
    let mut prepared = check_run.open()?;
    let paths = [&fixture.home, &fixture.other, &fixture.outside, &fixture.home.join(".ssh")]
        .map(|directory| directory.join("made"));
    let inside = paths.each_ref().map(|path| prepared.quoted(path));
    all_fail(&mut prepared, &inside.each_ref().map(|path| format!("echo x > {path}")))?;
    all_fail(&mut prepared, &inside.each_ref().map(|path| format!("mkdir {path}")))?;
    let note = prepared.quoted(&fixture.outside.join("note.txt"));
    all_fail(&mut prepared, &[format!("echo x >> {note}")])?;
    paths.iter().try_for_each(expect_no_host_file)?;
    expect_host_file(&fixture.outside.join("note.txt"), SECRET)
}

/// Tries every usual way to create something with one of these names.
fn cannot_be_made(check_run: &CheckRun<'_>, names: &[&str]) -> CheckResult {
    let mut prepared = check_run.open()?;
    prepared
        .sh("mkdir -p from && echo x > from/x && echo x > plain && cat plain")?
        .expect_status(0)?
        .expect_output("x")?;
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
        all_fail(&mut prepared, &ways.map(|way| way.replace("NAME", name)))?;
        expect_no_host_file(&check_run.path(name))?;
    }
    expect_host_file(&check_run.path("plain"), "x\n")?;
    expect_host_file(&check_run.path("from/x"), "x\n")
}

fn protected_name_cannot_be_created(check_run: &CheckRun<'_>) -> CheckResult {
    cannot_be_made(
        check_run,
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

fn denied_name_cannot_be_created(check_run: &CheckRun<'_>) -> CheckResult {
    cannot_be_made(check_run, &[".env.local", "sub/server.key", "my-secret.json"])
}

fn git_config_and_hooks_stay_unchanged(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    // The rest of `.git` stays writable for git.
    prepared
        .sh("echo x > .git/refs/mine && cat .git/refs/mine .git/config")?
        .expect_output("x\n[core]\n\tbare = false")?;
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
    all_fail(&mut prepared, &lines.map(String::from))?;
    expect_host_file(&check_run.path(".git/config"), "[core]\n\tbare = false\n")?;
    expect_host_file(&check_run.path(".git/hooks/pre-commit"), "#!/bin/sh\n")
}

fn sandbox_leaves_no_traces_on_the_host(check_run: &CheckRun<'_>) -> CheckResult {
    leaves_no_traces(
        check_run,
        "ls -A . .. ~; cat .env sub/x.pem ~/.ssh/id_rsa; touch ../made ~/made ../other/made; mkdir ~/.config",
    )
}

fn refused_names_leave_no_traces_on_the_host(check_run: &CheckRun<'_>) -> CheckResult {
    leaves_no_traces(check_run, "echo x > .mcp.json; mkdir .claude; mkdir -p .git/hooks/x")
}

/// Runs `attempts`, which must change nothing.
fn leaves_no_traces(check_run: &CheckRun<'_>, attempts: &str) -> CheckResult {
    let look = || check_run.fixture.entries().during("list the fixture");
    let before = look()?;
    // Opening and dropping a sandbox creates nothing either.
    drop(check_run.open()?);
    let line = format!("({attempts}) >/dev/null 2>&1; ls -A | wc -l");
    let count =
        fs::read_dir(check_run.fixture.workspace.as_path()).during("list the workspace")?.count();
    // Inside, the listing equals the host's: no placeholder, nothing hidden.
    check_run.open()?.sh(&line)?.expect_output(&count.to_string())?;
    let after = look()?;
    let changed: Vec<String> = after
        .iter()
        .filter(|(path, content)| before.get(*path) != Some(*content))
        .map(|(path, _)| path.to_string())
        .collect();
    expect_equal("new or changed entries", changed, Vec::new())?;
    expect_equal("removed entries", before.keys().find(|path| !after.contains_key(*path)), None)
}

fn temporary_files_are_private(check_run: &CheckRun<'_>) -> CheckResult {
    let (ours, theirs) = (TmpName::new("host"), TmpName::new("inside"));
    fs::write(ours.0.as_path(), "x").during("write to /tmp")?;
    let mut prepared = check_run.open()?;
    let line = format!(
        "echo x > {0} && cat {0}; [ -e {1} ] && echo seen; echo over",
        prepared.quoted(&theirs.0),
        prepared.quoted(&ours.0)
    );
    prepared.sh(&line)?.expect_output("x\nover")?;
    expect_no_host_file(&theirs.0)
}

fn caches_are_private_and_last(check_run: &CheckRun<'_>) -> CheckResult {
    check_run
        .open()?
        .sh("mkdir -p ~/.cache/mine && echo kept > ~/.cache/mine/x && cat ~/.cache/mine/x")?
        .expect_status(0)?
        .expect_output("kept")?;
    expect_no_host_file(&check_run.fixture.home.join(".cache/mine"))?;
    check_run.open()?.sh("cat ~/.cache/mine/x")?.expect_status(0)?.expect_output("kept").map(drop)
}
