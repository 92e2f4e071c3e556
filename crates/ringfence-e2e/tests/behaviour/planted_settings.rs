//! Agent settings that commands make below protected places: later and concurrent runs, and other
//! ways to plant them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ringfence_testkit::{SECRET, TestOutput, TestProject, becomes_true, each_user, finish, needs};

use crate::project;

/// A repository with one commit and settings that are tracked.
fn repository(project: &TestProject) {
    project.write("app/.vscode/settings.json", "{}");
    project.write(".vscode/settings.json", "{}");
    project.sh_bare("git init -q . && git add README app .vscode && git commit -qm one").ok();
}

#[track_caller]
fn is_absent(project: &TestProject, names: &[&str]) {
    for name in names {
        // Also through links, since the user's programs follow them.
        assert!(!project.at(name).exists(), "{name} is there as {}", project.user);
    }
}

/// Promise: settings-start-nothing
#[test]
fn settings_in_a_repository_of_an_earlier_run_start_no_programs() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        repository(&project);
        let made = "git init -q own && mkdir own/.claude own/.vscode own/.hg && echo '{}' > own/.vscode/tasks.json && \
                    printf '[paths]\\ndefault = x\\n' > own/.hg/hgrc && git worktree add -q wt -b wt && mkdir wt/.cursor";
        project.sh(made).ok();
        let planting = "echo '{}' > own/.claude/settings.json; echo folderOpen >> own/.vscode/tasks.json; echo '{}' > wt/.cursor/mcp.json; \
                        echo '{}' > own/.mcp.json; printf '[hooks]\\nupdate = id\\n' >> own/.hg/hgrc; true";
        project.sh(planting).ok();
        is_absent(&project, &["own/.claude/settings.json", "wt/.cursor/mcp.json", "own/.mcp.json"]);
        for name in ["own/.vscode/tasks.json", "own/.hg/hgrc"] {
            let text = project.read(name).unwrap_or_default();
            assert!(
                !text.contains("folderOpen") && !text.contains("[hooks]"),
                "{name} as {user}: {text}"
            );
        }
    });
}

#[test]
fn users_settings_stay_protected_in_a_repository_made_around_them() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for name in [
            "packages/app/.claude/settings.json",
            "packages/app/.mcp.json",
            "packages/app/.zed/tasks.json",
        ] {
            project.write(name, "mine");
        }
        project.sh("git init -q . && git -C packages init -q && mkdir packages/app/.vscode").ok();
        project.sh("cd packages/app; echo x > .claude/settings.json; echo x > .mcp.json; echo x > .zed/tasks.json; rm -rf .zed; true").ok();
        for name in [
            "packages/app/.claude/settings.json",
            "packages/app/.mcp.json",
            "packages/app/.zed/tasks.json",
        ] {
            assert_eq!(project.read(name).as_deref(), Some("mine"), "{name} as {user}");
        }
    });
}

#[test]
fn users_settings_moved_into_a_commands_repository_stay_protected() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write("lib/.claude/hooks/check.sh", "mine");
        project.sh("git init -q own && mv lib own/lib && mkdir own/lib/.cursor").ok();
        project.sh("echo x > own/lib/.claude/hooks/check.sh; true").ok();
        assert_eq!(
            project.read("own/lib/.claude/hooks/check.sh").as_deref(),
            Some("mine"),
            "as {user}"
        );
    });
}

#[test]
fn repository_and_worktree_of_an_earlier_run_are_removed_with_their_settings() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        repository(&project);
        project.sh("git worktree add -q wt -b wt && git clone -q . own && mkdir own/.idea && echo x > own/.gitmodules").ok();
        // Settings that the user has changed since belong to the user.
        project.sh("git worktree add -q mine -b mine").ok();
        project.write("mine/app/.vscode/settings.json", "mine");
        project.sh("git worktree remove wt && rm -rf own && test ! -e own && test ! -e wt").ok();
        project.sh("rm -rf mine; echo x > mine/app/.vscode/settings.json; true").ok();
        assert_eq!(
            project.read("mine/app/.vscode/settings.json").as_deref(),
            Some("mine"),
            "as {user}"
        );
    });
}

/// A project in a directory with the name of a vendored tree, and a repository in its own vendored
/// tree.
fn below_vendored_name(project: &TestProject, name: &str) -> PathBuf {
    let root = project.home().join(name).join("p");
    project.write_at(&root.join("README"), "hello\n");
    project.write_at(&root.join(".env"), SECRET);
    project.make_directories(&root.join("node_modules/lib"));
    TestOutput::run(
        project.command("git").current_dir(&root).args(["init", "-q", "node_modules/lib"]),
        b"",
    )
    .ok();
    root
}

/// Promise: settings-start-nothing
#[test]
fn project_below_a_vendored_name_is_not_a_vendored_tree() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for name in ["vendor", "target/deep", "x/node_modules"] {
            let root = below_vendored_name(&project, name);
            let line = "mkdir x; mkdir x/.claude; echo '{}' > x/.claude/settings.json; cat .env; \
                        printf '[core]\\n\\tfsmonitor = touch ../PWNED; false\\n' >> node_modules/lib/.git/config; mv node_modules/lib out";
            let ran = TestOutput::run(
                project.ringfence().current_dir(&root).args(["run", "-c", line]),
                b"",
            );
            assert!(!ran.text().contains(SECRET), "{name} as {user}");
            assert!(
                root.join("x/.claude").exists() && !root.join("x/.claude/settings.json").exists(),
                "{name} as {user}: {}",
                ran.stderr_text()
            );
            TestOutput::run(
                project.command("git").current_dir(root.join("out")).args(["status", "--short"]),
                b"",
            )
            .ok();
            assert!(!root.join("PWNED").exists(), "{name} as {user}: {}", ran.stderr_text());
        }
    });
}

#[test]
fn secret_stays_denied_when_a_parent_below_a_vendored_name_is_opened() {
    each_user(|user| {
        let project = project(user);
        let root = project.home().join("code/vendor/p");
        project.write_at(&root.join(".env"), SECRET);
        project.write_at(&root.join("sub/.claude/settings.json"), "{}");
        let parent = project.home().join("code");
        let line = "cat .env; echo x > sub/.claude/settings.json; mkdir y; mkdir y/.claude; echo '{}' > y/.claude/settings.json; echo done";
        let ran = TestOutput::run(
            project
                .ringfence()
                .current_dir(&root)
                .args(["run", "--write"])
                .arg(&parent)
                .args(["-c", line]),
            b"",
        );
        assert_eq!(ran.text(), "done", "as {user}: {}", ran.stderr_text());
        assert_eq!(
            std::fs::read_to_string(root.join("sub/.claude/settings.json")).ok().as_deref(),
            Some("{}"),
            "as {user}"
        );
        assert!(!root.join("y/.claude/settings.json").exists(), "as {user}: {}", ran.stderr_text());
    });
}

/// Settings whose path has two or three components.
const DEEP: &[&str] =
    &[".hg/hgrc", ".sl/config", ".jj/repo/config.toml", ".hg/hgrc-not-shared", ".hg/sharedpath"];

/// A line that moves each of them into `directory` without making its last component there.
fn bringing(directory: &str) -> String {
    format!(
        "d={directory}; mkdir -p parts/x parts/j/repo parts/r $d/.JJ; for f in hgrc hgrc-not-shared sharedpath config; do \
         printf '[hooks]\\nupdate = id\\n' > parts/x/$f; done; echo x > parts/j/repo/config.toml; echo x > parts/r/config.toml; \
         cp -r parts/x parts/x2; cp -r parts/x parts/x3; mv -T parts/x $d/.hg; mv -T parts/j $d/.jj || mv -T parts/r $d/.jj/repo; \
         mv -T parts/r $d/.JJ/repo; ln -s $PWD/parts/x2 $d/.sl; ln -s $PWD/parts/x3 parts/link; mv -T parts/link $d/.HG; true"
    )
}

/// Promise: settings-start-nothing
#[test]
fn nested_settings_cannot_be_moved_into_a_repository() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("mkdir nested && git init -q nested").ok();
        project.sh(&bringing("nested")).ok();
        for name in DEEP {
            is_absent(&project, &[&format!("nested/{name}")]);
        }
        is_absent(&project, &["nested/.JJ/repo/config.toml", "nested/.HG/hgrc"]);
        project.sh("mkdir -p nested/.jj && echo ../../x > nested/.jj/repo; true").ok();
        is_absent(&project, &["nested/.jj/repo"]);
        // Mercurial and Jujutsu may work there.
        project
            .sh("mkdir -p nested/.hg/store nested/.jj/repo/store && echo x > nested/.hg/store/data && echo x > nested/.jj/repo/store/type")
            .ok();
    });
}

#[test]
fn nested_settings_moved_elsewhere_are_quarantined() {
    each_user(|user| {
        let project = project(user);
        project.make_directories(&project.at("plain"));
        project.sh(&bringing("plain")).ok();
        for name in DEEP {
            is_absent(&project, &[&format!("plain/{name}")]);
        }
        is_absent(&project, &["plain/.JJ/repo/config.toml", "plain/.HG/hgrc"]);
        // In two steps, in two runs.
        project.sh("mkdir -p two/.jj two/.hg parts/q && echo x > parts/q/config.toml && echo '[hooks]' > parts/h").ok();
        project
            .sh("mv -T parts/q two/.jj/repo; mv parts/h two/.hg/hgrc; mkdir -p pointer/.jj && echo ../../x > pointer/.jj/repo; true")
            .ok();
        is_absent(&project, &["two/.jj/repo/config.toml", "two/.hg/hgrc", "pointer/.jj/repo"]);
    });
}

#[test]
fn sapling_settings_in_a_git_directory_are_refused() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q .").ok();
        let line = "printf '[hooks]\\nupdate = id\\n' > c; mkdir .git/sl; cp c .git/sl/config; mkdir s; cp c s/config; mv -T s .git/sl; \
                    git init -q own; mkdir own/.git/sl; cp c own/.git/sl/config; git init -q led; mkdir s2; cp c s2/config; ln -s ../../s2 led/.git/sl; true";
        project.sh(line).ok();
        is_absent(&project, &[".git/sl/config", "own/.git/sl/config", "led/.git/sl/config"]);
        project.sh("mkdir -p .git/sl/store && echo x > .git/sl/store/data").ok();
    });
}

/// Promise: settings-start-nothing
#[test]
fn settings_made_by_two_runs_together_are_quarantined() {
    each_user(|user| {
        let project = project(user);
        project.make_directories(&project.at("s9"));
        project.make_directories(&project.at("s8"));
        let line = "touch ready; until [ -e go ]; do sleep 0.02; done; mkdir -p s9/.kiro/settings; \
                    echo '{}' > s9/.claude/settings.json; echo '{}' > s9/.kiro/settings/mcp.json; mv s8/.claude s8/x && mv s8/x s8/.gemini; echo '{}' > s8/.gemini/settings.json";
        let mut command = project.ringfence();
        command
            .args(["run", "-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let slow = command.spawn().expect("ringfence starts");
        assert!(
            becomes_true(Duration::from_secs(30), || project.has("ready")),
            "the first run does not start"
        );
        project.sh("mkdir s9/.claude s9/.kiro s8/.claude").ok();
        project.write("go", "");
        finish(slow).ok();
        assert!(project.has("s9/.claude") && project.has("s8/.gemini"), "as {user}");
        is_absent(
            &project,
            &["s9/.claude/settings.json", "s9/.kiro/settings/mcp.json", "s8/.gemini/settings.json"],
        );
    });
}

#[test]
fn disguised_settings_are_quarantined() {
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p a/.vscode b/.vscode c/.kiro k d/.hg e/.hg f/.sl g/.junie m && \
                    printf '{\"runOn\": \"folder\\\\u004fpen\"}' > a/.vscode/tasks.json && \
                    printf '{\"runOn\": \"folderOpen\"}' | iconv -t UTF-16 > b/.vscode/tasks.json && \
                    echo '{}' > k/mcp.json && ln -s ../../k c/.kiro/settings && \
                    printf '[pager]\\npager = id\\n' > d/.hg/hgrc && printf '[paths]\\nx = y\\n%%include ../x\\n' > e/.hg/hgrc && \
                    printf '[encode]\\n* = id\\n' > f/.sl/config && echo '{}' > m/mcp.json && ln -s $PWD/m g/.junie/mcp";
        let ran = project.sh(line);
        ran.ok();
        let gone = [
            "a/.vscode/tasks.json",
            "b/.vscode/tasks.json",
            "c/.kiro/settings",
            "d/.hg/hgrc",
            "e/.hg/hgrc",
            "f/.sl/config",
            "g/.junie/mcp",
        ];
        is_absent(&project, &gone);
        for name in gone {
            assert!(
                ran.stderr_text().contains(name),
                "{name} is not reported as {user}:\n{}",
                ran.stderr_text()
            );
        }
    });
}

#[test]
fn settings_link_to_its_parent_keeps_the_project_writable() {
    each_user(|user| {
        let project = project(user);
        project.sh("mkdir z6 z7 && ln -s .. z6/.zed && ln -s . z7/.idea").ok();
        project.sh("echo x > new && echo x > z6/new && echo x > z7/new && mkdir made").ok();
        // The user's own link stays unchanged.
        project.write("links/real.json", "{}");
        std::os::unix::fs::symlink("real.json", project.at("links/.mcp.json"))
            .expect("a link can be made");
        project
            .sh("rm -f links/.mcp.json; mv links/.mcp.json x; echo x > links/real.json; true")
            .ok();
        assert_eq!(project.read("links/.mcp.json").as_deref(), Some("{}"), "as {user}");
    });
}
