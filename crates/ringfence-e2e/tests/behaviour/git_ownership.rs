//! Repositories of the user stay intact, wherever they are and whatever a command does there.

use std::time::Duration;

use ringfence_testkit::{SECRET, TestProject, TestUser, becomes_true, each_user, needs};

use crate::project;
use crate::sessions::TestSession;

const HOOK: &str = "#!/bin/sh\n";

/// A repository with one commit in `app`, and two below a vendored name, each with a hook of the
/// user.
fn vendored(user: TestUser) -> TestProject {
    let project = project(user);
    project
        .sh_bare(
            "git init -q && git init -q vendor/lib && cd vendor/lib && git commit -q --allow-empty -m x && git branch other \
             && git init -q --bare ../mirror.git && sleep 0.02",
        )
        .ok();
    project.write("vendor/lib/.git/hooks/pre-push", HOOK);
    project.write("vendor/mirror.git/hooks/pre-receive", HOOK);
    project
}

#[track_caller]
fn vendored_are_whole(project: &TestProject) {
    let heads = project
        .sh_bare("cat vendor/lib/.git/HEAD vendor/mirror.git/HEAD vendor/lib/.git/hooks/pre-push vendor/mirror.git/hooks/pre-receive");
    assert_eq!(
        heads.text(),
        "ref: refs/heads/other\nref: refs/heads/other\n#!/bin/sh\n#!/bin/sh",
        "{}: {}",
        project.user,
        heads.stderr_text()
    );
}

/// Promise: user-repositories
#[test]
fn users_vendored_repository_keeps_head_and_hooks() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = vendored(user);
        let line = "git -C vendor/lib checkout -q other && git -C vendor/mirror.git symbolic-ref HEAD refs/heads/other";
        assert_eq!(project.sh(line).stderr_text(), "", "{user}");
        vendored_are_whole(&project);
        // Neither the next run nor a full sweep takes them for repositories of the command.
        project.sh("git -C vendor/lib checkout -q main; git -C vendor/lib checkout -q other").ok();
        vendored_are_whole(&project);
        project.sh("git -C vendor/lib checkout -q -f main; touch vendor/lib/x; git -C vendor/lib checkout -q other; kill -9 $PPID");
        project.sh("true").ok();
        vendored_are_whole(&project);
    });
}

/// A command assembles a repository from older directories in a vendored tree, also if it kills the
/// sandbox before anything is recorded.
///
/// Promise: repository-links
#[test]
fn repository_assembled_in_a_vendored_tree_is_swept() {
    each_user(|user| {
        for (end, is_moved) in [("true", true), ("kill -9 $PPID", true), ("true", false)] {
            let project = project(user);
            let (objects, refs) = if is_moved {
                ("node_modules/a", "node_modules/b")
            } else {
                ("vendor/x/objects", "vendor/x/refs")
            };
            project.sh_bare(&format!("mkdir -p {objects} {refs} vendor/x; sleep 0.02")).ok();
            let moved = if is_moved {
                "mv node_modules/a vendor/x/objects; mv node_modules/b vendor/x/refs;"
            } else {
                ""
            };
            let config =
                "printf '[core]\\nbare=false\\nworktree=.\\nfsmonitor=./e\\n' > vendor/x/config";
            project.sh(&format!("{moved} {config}; echo ref: refs/heads/m > vendor/x/HEAD; {end}"));
            project.sh("true").ok();
            let is_harmless = !project.has("vendor/x/HEAD")
                || !project.read("vendor/x/config").unwrap_or_default().contains("fsmonitor");
            assert!(is_harmless, "{user}: {end} {is_moved}");
        }
    });
}

/// Working trees that share their refs by a link, as `git-new-workdir` makes them.
///
/// Promise: user-repositories
#[test]
fn users_linked_packed_refs_stay() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(
                "git init -q && git commit -q --allow-empty -m x && git branch kept && git pack-refs --all \
                 && mv .git/packed-refs ../refs && ln -s ../../refs .git/packed-refs",
            )
            .ok();
        assert_eq!(project.sh("git status >/dev/null").stderr_text(), "", "{user}");
        assert!(project.sh_bare("git rev-parse -q --verify kept").ok().len() == 40, "{user}");
    });
}

#[test]
fn worktree_removal_is_not_denied() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && git commit -q --allow-empty -m x && git worktree add -q old 2>/dev/null").ok();
        let line = "git worktree add -q new 2>/dev/null && git worktree remove new && git worktree prune && git worktree list | wc -l";
        let ran = project.run(["--json", "-c", line]);
        let said: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
        assert_eq!(
            (&said["stdout"], &said["denials"]),
            (&"2\n".into(), &serde_json::json!([])),
            "{user}: {said}"
        );
    });
}

/// The user's files stay in a vendored repository that a command made and the user took over.
#[test]
fn vendored_repository_taken_over_by_the_user_keeps_its_hooks() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh("git init -q vendor/own && git init -q --bare vendor/own.git").ok();
        project.write("vendor/own/.git/hooks/pre-push", HOOK);
        project.write("vendor/own.git/hooks/pre-receive", HOOK);
        for _ in 0..2 {
            assert_eq!(
                project.sh("git -C vendor/own status >/dev/null").stderr_text(),
                "",
                "{user}"
            );
        }
        assert!(
            project.has("vendor/own/.git/hooks/pre-push")
                && project.has("vendor/own.git/hooks/pre-receive"),
            "{user}: a hook is gone"
        );
    });
}

/// Two runs turn a directory of the user into a repository, one step each.
#[test]
fn users_directory_made_a_repository_by_two_runs_keeps_its_files() {
    each_user(|user| {
        let project = project(user);
        project.write("deploy/hooks/restart", HOOK);
        project.write("deploy/config", "mine\n");
        project.sh("echo ref: refs/heads/main > deploy/HEAD");
        project.sh("mkdir -p deploy/objects deploy/refs");
        project.sh("true");
        assert_eq!(project.read("deploy/hooks/restart").as_deref(), Some(HOOK), "{user}");
        assert_eq!(project.read("deploy/config").as_deref(), Some("mine\n"), "{user}");
        assert!(!project.has("deploy/HEAD"), "{user}: git would obey what is there");
    });
}

/// A clone that the user makes during a session stays intact when the session ends.
///
/// Promise: user-repositories
#[test]
fn users_clone_keeps_its_hooks_when_a_session_ends() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = TestSession::start(user);
        let project = &session.project;
        project.write("later/.env", SECRET);
        assert!(
            becomes_true(Duration::from_secs(20), || !session
                .exec("cat later/.env")
                .text()
                .contains(SECRET)),
            "no watcher stands"
        );
        project.sh_bare("git init -q host && git -C host commit -q --allow-empty -m x").ok();
        project.write("host/.git/hooks/pre-push", HOOK);
        let writes = || session.exec("echo >> host/.git/config").status == 0;
        assert!(becomes_true(Duration::from_secs(20), || !writes()), "{user}: it is not protected");
        session
            .exec("git -C host checkout -q -b x && git -C host worktree add -q ../linked -b y")
            .ok();
        // Repositories that the command makes are still swept.
        session.exec("git init -q own && echo x > own/.git/hooks/pre-push").ok();
        let stopped = session.words(&["stop", &session.id]);
        assert!(
            !stopped.stderr_text().contains("/host/")
                && stopped.stderr_text().contains("own/.git/hooks"),
            "{user}: {}",
            stopped.stderr_text()
        );
        assert!(project.has("host/.git/hooks/pre-push"), "{user}: a hook is gone");
    });
}

/// A commit by the user is a takeover, also where git keeps no reflog.
///
/// Promise: user-repositories
#[test]
fn commit_without_a_reflog_counts_as_a_takeover() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for packed in ["true", "git pack-refs --all"] {
            let project = project(user);
            project.sh(&format!("git init -q own; cd own; git commit -q --allow-empty -m x; {packed}; git config core.logAllRefUpdates false; rm -rf .git/logs")).ok();
            project.sh("git -C own config core.abbrev 13").ok();
            project.sh_bare("git -C own commit -q --allow-empty -m mine").ok();
            assert_ne!(
                project.sh("git -C own config core.abbrev 14").status,
                0,
                "{user}: {packed}: it is still the command's"
            );
        }
    });
}

/// Between two commands of a session the user can continue a rebase outside, and none of its exec
/// lines runs.
#[test]
fn rebase_exec_lines_exist_only_while_a_session_command_runs() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && echo a > a && git add a && git commit -qm a && git checkout -qb side && echo s > a && git commit -qam s && git checkout -q main && echo m > a && git commit -qam m").ok();
        let session = TestSession::start_by(project, TestProject::ringfence, &[]);
        assert_ne!(
            session.exec("git checkout -q side && git rebase -q -x 'echo x >> ran' main").status,
            0,
            "{user}: there is no conflict"
        );
        let todo =
            || session.project.read(".git/rebase-merge/git-rebase-todo").expect("a rebase goes on");
        assert!(!todo().contains("exec"), "{user}: {}", todo());
        session.exec("grep exec .git/rebase-merge/git-rebase-todo && echo x > .git/rebase-merge/strategy").ok();
        assert!(
            !todo().contains("exec") && !session.project.has(".git/rebase-merge/strategy"),
            "{user}: {}",
            todo()
        );
        // Inside, the rebase continues unchanged.
        session.exec("test -e .git/rebase-merge/strategy && rm .git/rebase-merge/strategy && echo both > a && git add a && GIT_EDITOR=true git rebase --continue && cat ran").ok();
        assert_ne!(
            session.exec("git rebase -q -x 'echo x >> ran' HEAD~1; git reset -q --hard HEAD; rm ran; git rebase -q -x false HEAD~1").status,
            0,
            "{user}"
        );
        session.exec("echo 'exec touch ~/RAN' >> .git/rebase-merge/git-rebase-todo").ok();
        let stopped = session.words(&["stop", &session.id]);
        assert!(
            stopped.stderr_text().contains("git-rebase-todo was moved"),
            "{user}: {}",
            stopped.stderr_text()
        );
        assert!(!todo().contains("exec"), "{user}: {}", todo());
    });
}
