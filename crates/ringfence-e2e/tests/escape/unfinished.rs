//! Operations that a command leaves unfinished must run nothing when the user continues them.

use ringfence_testkit::{SECRET, each_user, needs};

use crate::left_over::{end, started};
use crate::planted::{Plant, spelled};
use crate::project;

/// Two branches, and a program that `git merge-../x` would run.
const BEFORE: &str = r#"git init -q; git add README; COMMIT; git checkout -qb side; echo s > s; git add s; COMMIT;
    git checkout -q main; echo b > README; git add README; COMMIT"#;
const PROGRAM: &str =
    r#"mkdir -p "git-merge-.."; HOOK > "git-merge-../x"; chmod +x "git-merge-../x""#;

/// An interactive rebase of `side` in the git directory `$g`.
const REBASE: &str = r#"h=$(git rev-parse HEAD); m=$g/rebase-merge; mkdir -p $m; echo refs/heads/main > $m/head-name; echo $h > $m/onto;
    echo $h > $m/orig-head; : > $m/interactive; : > $m/done; echo 1 > $m/end; echo 0 > $m/msgnum; git checkout -q --detach;
    echo "pick $(git rev-parse side) s" > $m/git-rebase-todo"#;
/// A cherry-pick of it.
const PICK: &str = r#"m=$g/sequencer; mkdir -p $m; git rev-parse HEAD > $m/head; git rev-parse HEAD > $m/abort-safety;
    printf "pick $(git rev-parse HEAD) b\npick $(git rev-parse side) s\n" > $m/todo"#;

const CONTINUE: &str =
    "GIT_EDITOR=true git rebase --continue; GIT_EDITOR=true git cherry-pick --continue";

/// Promise: continued-operations
#[test]
fn rebase_strategy_of_a_command_runs_no_program() {
    let evil = format!("g=.git; {REBASE}; {PROGRAM}; echo ../x > $m/strategy");
    Plant { before: BEFORE, commands: &[&evil], then: CONTINUE }.never_runs();
    Plant {
        before: BEFORE,
        commands: &[
            &format!("g=.git; {REBASE}"),
            &format!("{PROGRAM}; echo ../x > .git/rebase-merge/strategy"),
        ],
        then: CONTINUE,
    }
    .never_runs();
}

/// Promise: continued-operations
#[test]
fn cherry_pick_options_of_a_command_run_no_program() {
    let evil =
        format!(r#"g=.git; {PICK}; {PROGRAM}; printf "[options]\n\tstrategy = ../x\n" > $m/opts"#);
    Plant { before: BEFORE, commands: &[&evil], then: CONTINUE }.never_runs();
}

/// In the git directory of another worktree, of a submodule, and of a repository of the command's
/// own.
///
/// Promise: continued-operations
#[test]
fn strategy_in_other_git_directories_runs_no_program() {
    let rebase = format!("{REBASE}; {PROGRAM}; echo ../x > $m/strategy");
    let before = format!("{BEFORE}; git worktree add -q wt -b wt 2>/dev/null");
    let evil = format!("cd wt; g=../.git/worktrees/wt; {rebase}");
    Plant { before: &before, commands: &[&evil], then: &format!("cd wt; {CONTINUE}") }.never_runs();
    let made = format!("git worktree add -q new -b new; cd new; g=../.git/worktrees/new; {rebase}");
    Plant { before: BEFORE, commands: &[&made], then: &format!("cd new; {CONTINUE}") }.never_runs();
    let own = format!("git clone -q . own; cd own; git branch side origin/side; g=.git; {rebase}");
    Plant { before: BEFORE, commands: &[&own], then: &format!("cd own; {CONTINUE}") }.never_runs();
    let again = format!("cd own; git branch side origin/side; g=.git; {rebase}");
    Plant {
        before: BEFORE,
        commands: &["git clone -q . own", &again],
        then: &format!("cd own; {CONTINUE}"),
    }
    .never_runs();
    let submodule = format!(
        "{BEFORE}; git clone -q . ../lib; git -C ../lib branch -q side origin/side; git -c protocol.file.allow=always submodule --quiet add ../lib lib"
    );
    let evil = format!("cd lib; git branch -q side origin/side; g=../.git/modules/lib; {rebase}");
    Plant { before: &submodule, commands: &[&evil], then: &format!("cd lib; {CONTINUE}") }
        .never_runs();
}

/// Git follows a link in place of the directory, in a repository of the command's own.
///
/// Promise: continued-operations
#[test]
fn rebase_state_behind_a_link_runs_no_program() {
    let evil = format!(
        "git clone -q . own; cd own; git branch side origin/side; mkdir ../elsewhere; ln -s ../../elsewhere .git/rebase-merge; g=.git; {REBASE}; {PROGRAM}; echo ../x > $m/strategy"
    );
    Plant { before: BEFORE, commands: &[&evil], then: &format!("cd own; {CONTINUE}") }.never_runs();
}

/// `rerere` copies the files that `MERGE_RR` names into the repository, where the next command
/// could read them.
///
/// Promise: continued-operations
#[test]
fn recorded_resolution_copies_no_secret() {
    let id = "0123456789012345678901234567890123456789";
    for path in ["$HOME/.ssh/id_rsa", "../../.ssh/id_rsa", ".env", "x.pem", "link"] {
        let evil = format!(
            r#"ln -s ../../.ssh/id_rsa link; mkdir -p .git/rr-cache/{id}; echo x > .git/rr-cache/{id}/preimage; printf "{id}\t{path}\0" > .git/MERGE_RR"#
        );
        let then = format!(
            "echo z > z; git add z; COMMIT; if grep -rqs {SECRET} .git/rr-cache; then touch ~/RAN; fi"
        );
        Plant { before: "git init -q", commands: &[&evil], then: &then }.never_runs();
    }
}

/// The user's own strategy stays, and so do the files that git writes.
///
/// Promise: continued-operations
#[test]
fn strategy_of_the_user_stays() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let begun = format!(
            "{BEFORE}; g=.git; {REBASE}; echo mine > $m/strategy; echo \"'--mine'\" > $m/strategy_opts"
        );
        project.sh_bare(&spelled(&begun)).ok();
        let ran = project.sh("touch x; git status >/dev/null");
        assert_eq!(ran.stderr_text(), "", "{user}");
        assert_eq!(project.read(".git/rebase-merge/strategy").as_deref(), Some("mine\n"), "{user}");
        // A replacement is moved away.
        let ran =
            project.sh("echo other > .git/rebase-merge/strategy; echo ort > .git/rebase-merge/x");
        assert!(
            ran.stderr_text().contains("rebase-merge/strategy was moved"),
            "{user}: {}",
            ran.stderr_text()
        );
        assert!(
            !project.has(".git/rebase-merge/strategy")
                && project.has(".git/rebase-merge/strategy_opts"),
            "{user}"
        );
    });
}

/// A command may write to a repository of the user in a tree that the survey skips.
///
/// Promise: continued-operations
#[test]
fn repository_moved_out_of_a_vendored_tree_runs_nothing() {
    let before = "git init -q node_modules/a/b/mine; git init -q --bare node_modules/bare.git";
    for (line, place) in [
        ("EVIL >> node_modules/a/b/mine/.git/config; mv node_modules/a out", "out/b/mine"),
        ("EVIL >> node_modules/a/b/mine/.git/config; mv node_modules out", "out/a/b/mine"),
        (
            "EVIL >> node_modules/a/b/mine/.git/config; mkdir out; mv node_modules/a/b/mine/.git out/.git",
            "out",
        ),
    ] {
        let then = format!("cd {place} && git status");
        Plant { before, commands: &[line], then: &then }.never_runs();
        Plant { before, commands: &[line, "true"], then: &then }.never_runs();
    }
    let bare = "HOOK > node_modules/bare.git/hooks/post-update; chmod +x node_modules/bare.git/hooks/post-update; mv node_modules/bare.git out.git";
    let push = "git init -q p; cd p; git -c user.name=a -c user.email=b commit -q --allow-empty -m x; git push -q ../out.git HEAD:refs/heads/x";
    Plant { before, commands: &[bare], then: push }.never_runs();
    Plant {
        before,
        commands: &[
            "EVIL >> node_modules/a/b/mine/.git/config; mv node_modules/a out; kill -9 $PPID",
            "true",
        ],
        then: "cd out/b/mine && git status",
    }
    .never_runs_after(ringfence_testkit::TestProject::sh);
}

/// The same for a run that was killed before it recorded its moves.
///
/// Promise: continued-operations
#[test]
fn repository_moved_out_of_a_vendored_tree_by_a_killed_run_runs_nothing() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q node_modules/a/b/mine; git init -q mine; git init -q node_modules/stays; mkdir linked; ln -s ../mine/.git linked/.git").ok();
        for place in ["mine", "node_modules/stays"] {
            project.write(format!("{place}/.git/hooks/pre-push"), "#!/bin/sh\n");
        }
        let line = spelled(
            "EVIL >> node_modules/a/b/mine/.git/config; mv node_modules/a out; touch linked/x; echo ready; sleep 60",
        );
        let mut child = started(&project, &line);
        end(&mut child, 9);
        project.sh("true").ok();
        project.sh_bare("cd out/b/mine && git status");
        assert!(
            !project.home().join("RAN").exists(),
            "{user}: the planted program ran on the host"
        );
        for place in ["mine", "node_modules/stays"] {
            assert!(
                project.has(format!("{place}/.git/hooks/pre-push")),
                "{user}: a hook in {place} is gone"
            );
        }
        assert!(project.has("linked/.git"), "{user}: a link is gone");
    });
}

/// A command adds `HEAD`, `objects` and `refs` to a directory of the user.
///
/// Promise: continued-operations
#[test]
fn user_directory_made_to_look_like_a_repository_keeps_its_files() {
    each_user(|user| {
        let project = project(user);
        project.write("deploy/hooks/restart", "#!/bin/sh\n");
        project.write("deploy/config", "[core]\n\tfsmonitor = mine\n");
        project.write("app/config/routes", "x");
        let plant = "for d in deploy app; do mkdir -p $d/objects $d/refs; echo ref: refs/heads/main > $d/HEAD; done";
        for line in [
            plant,
            &format!("{plant}; kill -9 $PPID"),
            &format!("mkdir t; echo ref: refs/heads/main > t/x; {plant}; mv t/x deploy/HEAD"),
        ] {
            project.sh(line);
            project.sh("true");
            assert_eq!(
                project.read("deploy/hooks/restart").as_deref(),
                Some("#!/bin/sh\n"),
                "{user}: {line}"
            );
            assert_eq!(
                project.read("deploy/config").as_deref(),
                Some("[core]\n\tfsmonitor = mine\n"),
                "{user}: {line}"
            );
            assert_eq!(project.read("app/config/routes").as_deref(), Some("x"), "{user}: {line}");
            assert!(
                !project.has("deploy/HEAD") && !project.has("app/HEAD"),
                "{user}: {line}: git would obey it"
            );
        }
    });
}
