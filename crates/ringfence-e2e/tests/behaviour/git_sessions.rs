//! Everyday git in a session with a running watcher, and in repositories of earlier commands.

use std::time::Duration;

use ringfence_testkit::{SECRET, TestProject, TestUser, becomes_true, each_user, needs};

use crate::project;
use crate::sessions::TestSession;

/// A project that is a repository with two commits.
fn committed(user: TestUser) -> TestProject {
    let project = project(user);
    project.write(
        ".gitignore",
        ".env\n.env.local\n*.pem\nSECRET.txt\n*.KEY\ncredentials.json\nlater\n",
    );
    project.sh_bare("git init -q && git add -A && git commit -qm first && echo a > f && git add f && git commit -qm second").ok();
    project
}

/// A session in such a project, once its watcher masks new files.
#[track_caller]
fn watched(user: TestUser) -> TestSession {
    let session = TestSession::start_by(committed(user), TestProject::ringfence, &[]);
    session.project.write("later/.env", SECRET);
    assert!(
        becomes_true(Duration::from_secs(20), || !session
            .exec("cat later/.env")
            .text()
            .contains(SECRET)),
        "no watcher stands"
    );
    session
}

/// Ends a session; returns its report of quarantined files.
#[track_caller]
fn ended(session: &TestSession) -> String {
    let stopped = session.words(&["stop", &session.id]);
    stopped.ok();
    stopped.stderr_text()
}

/// Promise: git-in-session
#[test]
fn worktrees_are_made_used_and_removed_under_the_watcher() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = watched(user);
        // The first one makes `.git/worktrees` as well.
        for name in ["one", "two", "three"] {
            session.exec(&format!("git worktree add -q {name} -b {name}")).ok();
            session.exec(&format!("(cd {name} && echo x > x && git add x && git commit -qm {name} && git status --short)")).ok();
        }
        session
            .exec("git worktree lock one && git worktree unlock one && git worktree move two four")
            .ok();
        session
            .exec(
                "git worktree remove one && git worktree remove four && rm -rf three && git worktree prune && test ! -e .git/worktrees/one",
            )
            .ok();
        session.exec("git worktree add -q one one && git -C one log -1 --format=%s").ok();
        assert_eq!(ended(&session), "", "{user}");
        assert_eq!(
            session
                .project
                .sh_bare("git -C one status --short; git -C one log -1 --format=%s")
                .ok(),
            "one"
        );
    });
}

/// The user's worktree is recognised, also where the command made the directory around it.
#[test]
fn worktree_added_by_the_host_is_protected() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = watched(user);
        session.exec("git worktree add -q mine -b mine").ok();
        session.project.sh_bare("git worktree add -q host -b host").ok();
        let writes = |name: &str| {
            session.exec(&format!("echo ../.. > .git/worktrees/{name}/commondir")).status == 0
        };
        assert!(
            becomes_true(Duration::from_secs(20), || !writes("host")),
            "{user}: it can be written"
        );
        assert!(writes("mine"), "{user}: the command's own is protected as well");
        session.exec("git worktree remove mine").ok();
        assert!(
            session.exec("git worktree remove --force host").status != 0,
            "{user}: it was removed"
        );
    });
}

/// Promise: git-in-session
#[test]
fn rebase_cherry_pick_and_stash_work_under_the_watcher() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = watched(user);
        session.exec("git checkout -qb side && echo side > f && git commit -qam side && git checkout -q main && echo main > f && git commit -qam main").ok();
        assert_ne!(
            session.exec("git checkout -q side && git rebase -q main").status,
            0,
            "{user}: there is no conflict"
        );
        session.exec("echo both > f && git add f && GIT_EDITOR=true git rebase --continue").ok();
        assert_eq!(session.exec("git log --format=%s").ok(), "side\nmain\nsecond\nfirst", "{user}");
        session.exec("git checkout -q main && echo other > f && git commit -qam other").ok();
        assert_ne!(session.exec("git cherry-pick side").status, 0, "{user}: there is no conflict");
        session
            .exec("echo picked > f && git add f && GIT_EDITOR=true git cherry-pick --continue")
            .ok();
        session.exec("git rebase -q -X theirs HEAD~1 && git revert --no-edit HEAD && git reset -q --hard HEAD~1").ok();
        session
            .exec("echo changed > f && echo new > untracked && git stash -q -u && test ! -e untracked && git stash pop -q && cat untracked")
            .ok();
        session
            .exec(
                "rm untracked && git checkout -q f && git bisect start -q && git bisect bad && git bisect good HEAD~2 && git bisect reset",
            )
            .ok();
        assert_eq!(ended(&session), "", "{user}");
        assert_eq!(session.project.sh_bare("git status --short && cat f").ok(), "picked", "{user}");
    });
}

/// A conflict that is left to the user keeps all files that git wrote.
#[test]
fn unfinished_rebase_can_be_continued_by_the_user() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for flags in ["", "-X theirs", "-s ort -X patience", "--apply", "--autostash"] {
            let project = committed(user);
            let line = format!(
                "git checkout -qb side && echo side > f && echo g > g && git add g && git commit -qam side && git checkout -q main && git rm -q f && git commit -qm main && git checkout -q side && git rebase {flags} main"
            );
            let ran = project.sh(&line);
            assert_ne!(ran.status, 0, "{user} {flags}: there is no conflict");
            assert!(
                !ran.stderr_text().contains("was moved"),
                "{user} {flags}: {}",
                ran.stderr_text()
            );
            project
                .sh_bare("echo both > f && git add f && GIT_EDITOR=true git rebase --continue")
                .ok();
            assert_eq!(
                project.sh_bare("git log --format=%s").ok(),
                "side\nmain\nsecond\nfirst",
                "{user} {flags}"
            );
        }
    });
}

#[test]
fn submodule_of_a_repository_made_in_a_session_outlasts_it() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = watched(user);
        session
            .exec("git init -q lib && (cd lib && echo l > l && git add l && git commit -qm lib)")
            .ok();
        session.exec("git init -q own && (cd own && git commit -q --allow-empty -m x)").ok();
        session.exec("(cd own && git -c protocol.file.allow=always submodule --quiet add ../lib deep/sub && git commit -qm sub)").ok();
        assert_eq!(ended(&session), "", "{user}");
        let status = session
            .project
            .sh_bare("cd own && git status --short && git submodule status && cat deep/sub/l")
            .ok();
        assert!(status.contains(" deep/sub (") && status.ends_with("\nl"), "{user}: {status}");
        session.project.sh("cd own/deep/sub && echo m > m && git add m && git commit -qm m && git config a.b c 2>&1; cd ../../.. && rm -rf own && test ! -e own").ok();
    });
}

/// Promise: made-earlier
#[test]
fn repository_of_an_earlier_run_can_be_changed_moved_and_removed() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.sh("git init -q lib && git clone -q --bare . store.git && git -C store.git worktree add -q ../of-store main").ok();
        project.sh("cd lib && git remote add origin /nowhere && git config user.name x && git commit -q --allow-empty -m x").ok();
        project.sh("git -C store.git config a.b c 2>/dev/null; git -C store.git remote add more /nowhere && git -C store.git worktree remove of-store").ok();
        assert_eq!(
            project
                .sh_bare(
                    "git -C lib config remote.origin.url && git -C store.git config remote.more.url"
                )
                .ok(),
            "/nowhere\n/nowhere"
        );
        project
            .sh("mv lib moved && mv store.git other.git && git -C moved remote rename origin again")
            .ok();
        project.sh("git -C moved remote remove again && git -C other.git remote remove more").ok();
        project.sh("rm -rf moved other.git && test ! -e moved && test ! -e other.git").ok();
    });
}

/// The same with the later run's watcher, which finds the repositories when it starts.
#[test]
fn repository_of_an_earlier_run_stays_writable_under_the_watcher() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project
            .sh("git init -q lib && git init -q --bare store.git && git worktree add -q wt -b wt")
            .ok();
        let session = TestSession::start_by(project, TestProject::ringfence, &[]);
        session.project.write("later/.env", SECRET);
        assert!(
            becomes_true(Duration::from_secs(20), || !session
                .exec("cat later/.env")
                .text()
                .contains(SECRET)),
            "no watcher stands"
        );
        session.exec("git -C lib remote add origin /nowhere && git -C store.git remote add origin /nowhere").ok();
        session.exec("git worktree remove wt && rm -rf lib store.git && test ! -e lib && test ! -e store.git").ok();
    });
}

#[test]
fn worktree_of_an_earlier_run_can_be_removed() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.sh("git worktree add -q wt -b wt && git worktree add -q gone -b gone && git worktree add -q there -b there").ok();
        project.sh("git -C wt commit -q --allow-empty -m x && git worktree move there here").ok();
        project
            .sh("git worktree remove wt && rm -rf gone && git worktree prune && git worktree remove here && test ! -e .git/worktrees/wt")
            .ok();
        assert_eq!(project.sh_bare("git worktree list | wc -l").ok(), "1", "{user}");
    });
}

/// An action of the user on the host that takes a repository over, with a name.
type TakeOver = (&'static str, fn(&TestProject));

/// Promise: made-earlier
#[test]
fn repository_taken_over_by_the_user_is_protected() {
    if !needs(&["git"]) {
        return;
    }
    let taken_over: [TakeOver; 4] = [
        ("a hook", |project| project.write("own/.git/hooks/pre-push", "#!/bin/sh\n")),
        ("a setting", |project| drop(project.sh_bare("git -C own config core.pager mine").ok())),
        ("a commit", |project| {
            drop(project.sh_bare("git -C own commit -q --allow-empty -m mine").ok())
        }),
        ("another remote", |project| {
            drop(project.sh_bare("git -C own remote add origin /mine").ok())
        }),
    ];
    each_user(|user| {
        for (what, take) in taken_over {
            let project = committed(user);
            project.sh("git init -q own").ok();
            // Reading it is not a takeover.
            project.sh_bare("git -C own status && git -C own log --all").ok();
            project.sh("git -C own config core.abbrev 12").ok();
            take(&project);
            let before = project.sh_bare("cat own/.git/config; ls own/.git/hooks").ok();
            for _ in 0..2 {
                assert_ne!(
                    project.sh("git -C own config core.abbrev 13").status,
                    0,
                    "{user}: {what}"
                );
                assert_ne!(
                    project.sh("mv own/.git/hooks hooks || mv own other").status,
                    0,
                    "{user}: {what}"
                );
            }
            assert_eq!(
                project.sh_bare("cat own/.git/config; ls own/.git/hooks").ok(),
                before,
                "{user}: {what}"
            );
        }
    });
}

/// A command that can write the list could put the user's repositories on it.
#[test]
fn list_writable_by_a_command_is_ignored() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.sh("git init -q own").ok();
        let store = project.home().join(".cache/ringfence");
        let list = project.sh_bare("find ~/.cache/ringfence -name .made").ok();
        assert!(list.ends_with("/runs/.made"), "{user}: there is no list: {list}");
        assert_ne!(project.sh(&format!("cat {list}")).status, 0, "{user}: it can be read");
        assert_ne!(project.sh(&format!("echo x >> {list}")).status, 0, "{user}: it can be written");
        let ran = project.run([
            "--write",
            &store.to_string_lossy(),
            "-c",
            "git -C own config core.abbrev 13",
        ]);
        assert_ne!(ran.status, 0, "{user}: it counts");
        project.sh("git -C own config core.abbrev 12").ok();
    });
}

#[test]
fn git_link_cannot_be_removed_or_replaced() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q real && mv real/.git store && ln -s store .git && git status >/dev/null").ok();
        for line in ["rm .git", "unlink .git", "mv .git x", "ln -sfn sub .git"] {
            assert_ne!(project.sh(line).status, 0, "{user}: {line}");
            assert_eq!(project.sh_bare("readlink .git").ok(), "store", "{user}: {line}");
        }
    });
}
