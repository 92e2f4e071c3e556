//! The sweep tells files that an earlier command left behind from files of the user: the first are
//! moved away, the second stay.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use ringfence_testkit::{TestOutput, TestProject, becomes_true, each_user, signal};

use crate::planted::{Plant, spelled};
use crate::project;

/// Repositories of the user in trees that the survey skips.
const MINE: &str = r#"git init -q; git init -q ../lib; git -C ../lib commit -q --allow-empty -m x;
    git -c protocol.file.allow=always submodule --quiet add $PWD/../lib vendor/lib;
    git init -q node_modules/mine; cd node_modules/mine; git config alias.mine status; HOOK > .git/hooks/pre-push; sleep 0.1"#;

/// Starts a command and waits until it has printed a line.
#[track_caller]
pub(crate) fn started(project: &TestProject, line: &str) -> Child {
    let mut command = project.ringfence();
    command.args(["run", "-c", &spelled(line)]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("ringfence starts");
    let output = child.stdout.take().expect("piped just above");
    BufReader::new(output).read_line(&mut String::new()).expect("it says something");
    child
}

#[track_caller]
pub(crate) fn end(child: &mut Child, number: i32) {
    signal(child.id(), number);
    assert!(
        becomes_true(Duration::from_secs(20), || !matches!(child.try_wait(), Ok(None))),
        "it does not end"
    );
}

#[track_caller]
fn still_has_mine(project: &TestProject) {
    assert!(project.has("vendor/lib/.git"), "a submodule's pointer is gone");
    assert!(project.has("node_modules/mine/.git/hooks/pre-push"), "a hook is gone");
    assert!(
        project.read("node_modules/mine/.git/config").is_some_and(|config| config.contains("mine")),
        "a setting is gone"
    );
}

/// Promise: sweep-scope
#[test]
fn repository_of_the_user_is_kept_when_a_command_makes_hundreds() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled(MINE)).ok();
        let many = "mkdir -p $(seq -f t/%g/.git/hooks/x 300)";
        project.sh(many);
        still_has_mine(&project);
        assert_eq!(
            project.sh_bare("ls -d t/*/.git/hooks/x | wc -l").ok(),
            "0",
            "not all of it was swept"
        );
        project.sh(&format!("rm -r t; {many}; kill -9 $PPID"));
        still_has_mine(&project);
        assert_eq!(
            project.sh_bare("ls -d t/*/.git/hooks/x | wc -l").ok(),
            "0",
            "not all of it was swept"
        );
    });
}

/// Promise: git-runs-nothing
#[test]
fn repository_of_a_killed_run_is_swept_by_the_next() {
    let plant = "git init -q own; EVIL >> own/.git/config; git init -q node_modules/x; EVIL >> node_modules/x/.git/config";
    for then in ["cd own && git status", "cd node_modules/x && git status"] {
        Plant { before: MINE, commands: &[plant, "true"], then }.never_runs_after(
            |project, line| {
                if line == "true" {
                    let ran = project.sh(line);
                    still_has_mine(project);
                    return ran;
                }
                end(&mut started(project, &format!("{line}; echo done; exec sleep 60")), 9);
                assert!(
                    project
                        .read("own/.git/config")
                        .is_some_and(|config| config.contains("fsmonitor")),
                    "the probe cannot succeed"
                );
                project.sh_bare("true")
            },
        );
    }
}

#[test]
fn git_directory_without_head_of_a_killed_run_stays_inert() {
    let before = "git init -q; git add README; COMMIT";
    for store in
        [".git/modules/x", ".git/modules/refs/x", ".git/worktrees/x", ".git/worktrees/x/modules/y"]
    {
        let plant = format!("mkdir -p {store}/objects {store}/refs; EVIL > {store}/config");
        let complete = format!("rm -f {store}/commondir; echo ref: refs/heads/main > {store}/HEAD");
        let then = format!("git --git-dir={store} --work-tree=. status");
        Plant { before, commands: &[&plant, &complete], then: &then }.never_runs_after(
            |project, line| {
                if line == complete {
                    return project.sh(line);
                }
                end(&mut started(project, &format!("{line}; echo done; exec sleep 60")), 9);
                assert!(
                    project.has(format!("{store}/config")),
                    "{store}: the probe cannot succeed"
                );
                project.sh_bare("true")
            },
        );
    }
}

/// Promise: sweep-scope
#[test]
fn repository_of_a_running_command_is_not_swept_by_another() {
    each_user(|user| {
        let project = project(user);
        let mut child = started(
            &project,
            "git init -q own; HOOK > own/.git/hooks/pre-push; echo done; exec sleep 60",
        );
        project.sh("true").ok();
        assert!(project.has("own/.git/hooks/pre-push"), "it was swept while it runs");
        end(&mut child, 15);
        assert!(!project.has("own/.git/hooks/pre-push"), "nothing was swept");
        let marks = project.sh_bare("find ~/.cache/ringfence -path '*/runs/[!.]*'").ok();
        assert_eq!(marks, "", "a run that has swept leaves no mark");
    });
}

/// Promise: git-runs-nothing
#[test]
fn sweep_works_on_a_small_stack() {
    let plant = "git init -q own; EVIL >> own/.git/config";
    Plant { before: "true", commands: &[plant], then: "cd own && git status" }.never_runs_after(
        |project, line| {
            // The smallest stack that ringfence runs on; unoptimised code needs more.
            let size = if cfg!(debug_assertions) { 512 } else { 96 };
            let words = format!(r#"ulimit -s {size}; exec "$0" run -c "$1""#);
            let ran = TestOutput::run(
                project.command("/bin/sh").args(["-c", &words]).arg(project.binary()).arg(line),
                b"",
            );
            ran.ok();
            ran
        },
    );
}

// Commands that share a project.

/// Promise: git-runs-nothing
#[test]
fn repository_made_by_a_concurrent_command_runs_nothing() {
    for (place, first) in [("own", ""), ("node_modules/own", ""), ("other", "mv own other; ")] {
        let evil = format!("{first}EVIL >> {place}/.git/config");
        let made = place.replace("other", "own");
        let then = format!("cd {place} && git status");
        Plant { before: "true", commands: &[&format!("git init -q {made}"), &evil], then: &then }
            .never_runs();
        each_user(|user| {
            let project = project(user);
            let wait = "echo ready; while [ ! -e go ]; do sleep 0.05; done";
            let mut child = started(&project, &format!("{wait}; {evil}"));
            project.sh(&format!("git init -q {made}")).ok();
            project.sh_bare("touch go").ok();
            assert!(
                becomes_true(Duration::from_secs(20), || !matches!(child.try_wait(), Ok(None))),
                "it does not end"
            );
            project.sh_bare(&then);
            // For the command that already ran, the repository came from outside and is protected.
            assert!(
                [place, &made].iter().any(|place| project.has(format!("{place}/.git/HEAD"))),
                "nothing was made"
            );
            assert!(
                !project.home().join("RAN").exists(),
                "{evil}: the planted program ran on the host"
            );
        });
    }
}

const LINK: &str = "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),";

/// Promise: git-runs-nothing
#[test]
fn repository_of_an_earlier_command_in_a_vendored_tree_runs_nothing() {
    let before = "git init -q; git add README; COMMIT";
    let linked = format!("git init -q vendor/x; {LINK}vendor/x");
    Plant { before, commands: &[&linked, "EVIL >> vendor/x/.git/config"], then: "git status" }
        .never_runs();
    for (evil, then) in [
        ("EVIL >> vendor/x/.git/config", "cd vendor/x && git status"),
        ("mv vendor/x vendor/y; EVIL >> vendor/y/.git/config", "cd vendor/y && git status"),
    ] {
        Plant { before, commands: &["git init -q vendor/x", "true", evil], then }.never_runs();
    }
}

/// Promise: git-runs-nothing
#[test]
fn repository_of_the_user_added_as_a_gitlink_runs_nothing() {
    let before = "git init -q; git add README; COMMIT; git init -q node_modules/mine; git -C node_modules/mine commit -q --allow-empty -m x";
    let link = format!("{LINK}node_modules/mine");
    let evil = "EVIL >> node_modules/mine/.git/config";
    Plant { before, commands: &[&format!("{evil}; {link}")], then: "git status" }.never_runs();
    Plant { before, commands: &[evil, &link], then: "git status" }.never_runs();
    let split = format!("{evil}; {link}; git update-index --split-index --index-version 4");
    Plant { before, commands: &[&split], then: "git status" }.never_runs();
    // A repository that the index already lists is protected.
    let known = format!("{before}; {link}; {}", "HOOK > node_modules/mine/.git/hooks/pre-push");
    Plant { before: &known, commands: &[evil], then: "git status" }.never_runs();
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled(&known)).ok();
        project.sh("git update-index --refresh; touch node_modules/mine/x; mkdir -p $(seq -f t/%g/.git 300); kill -9 $PPID");
        assert!(project.has("node_modules/mine/.git/hooks/pre-push"), "a hook is gone");
    });
}

/// Promise: git-runs-nothing
#[test]
fn rebase_begun_by_a_command_runs_no_exec_lines() {
    let before = "git init -q; git add README; COMMIT; echo b > README; git add README; COMMIT";
    let state = r#"m=.git/rebase-merge; mkdir $m; h=$(git rev-parse HEAD); git symbolic-ref HEAD > $m/head-name; echo $h > $m/onto; echo $h > $m/orig-head;
        : > $m/interactive; : > $m/done; echo 1 > $m/end; echo 0 > $m/msgnum; git update-ref --no-deref HEAD $h"#;
    let then = "GIT_EDITOR=true git rebase --continue";
    for exec in ["exec touch ~/RAN", " x\ttouch ~/RAN"] {
        let line = format!(r#"{state}; printf "{exec}\n" > $m/git-rebase-todo"#);
        Plant { before, commands: &[&line], then }.never_runs();
        let own = format!("mkdir own; cd own; cp ../README .; {before}; {line}");
        Plant { before: "true", commands: &[&own], then: &format!("cd own; {then}") }.never_runs();
    }
    // A rebase that the user began continues unchanged.
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(&spelled(&format!(
                "{before}; {state}; echo exec touch ~/RAN > $m/git-rebase-todo"
            )))
            .ok();
        project.sh("echo pick HEAD >> .git/rebase-merge/git-rebase-todo; echo x false >> .git/rebase-merge/git-rebase-todo");
        let left = project.sh_bare("cat .git/rebase-merge/git-rebase-todo").ok();
        assert_eq!(
            left,
            "exec touch ~/RAN\npick HEAD".replace('~', &project.home().display().to_string())
        );
    });
}
