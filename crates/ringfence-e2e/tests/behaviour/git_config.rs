//! `.git/config` of the user: everyday git commands change it, and no setting that runs a program
//! gets in.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, needs};

use crate::project;

/// A clone with a remote branch, made on the host.
fn cloned(user: TestUser) -> TestProject {
    let project = project(user);
    project.write(".gitignore", "*\n");
    project
        .sh_bare(
            "git init -q ../up && cd ../up && git commit -q --allow-empty -m first && git branch dev && cd - && \
             git init -q && git remote add origin $PWD/../up && git fetch -q && git checkout -q -B main origin/main && \
             git config core.pager mine && git config alias.st '!echo \"a;b\"'",
        )
        .ok();
    project
}

const OUTSIDE: &[&str] = &["--read", "../up"];

#[track_caller]
fn run(project: &TestProject, line: &str) -> TestOutput {
    project.run([OUTSIDE, &["-c", line]].concat())
}

#[test]
fn everyday_git_commands_change_the_users_config() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        let mode = || project.sh_bare("stat -c '%a %u %g' .git/config").ok();
        let before = mode();
        run(&project, "git checkout -q dev && git branch -m dev work && git branch -q --track other origin/main").ok();
        run(&project, "git branch -q -u origin/dev other && git branch --unset-upstream work && git branch -d other").ok();
        run(&project, "git remote add fork https://example.org/x.git && git config user.name N && git config pull.rebase true").ok();
        run(&project, "git checkout -q -b new && git config branch.new.description 'a b'").ok();
        let config = project
            .sh_bare("git config --get-regexp 'branch|remote|user|pull|core.pager|alias' | sort")
            .ok();
        for line in [
            "remote.fork.url https://example.org/x.git",
            "remote.fork.fetch +refs/heads/*:refs/remotes/fork/*",
            "user.name N",
            "pull.rebase true",
            "branch.new.description a b",
            "core.pager mine",
            "alias.st !echo \"a;b\"",
        ] {
            assert!(
                config.lines().any(|found| found == line),
                "{user}: {line} is not in\n{config}"
            );
        }
        assert!(
            !config.contains("branch.other") && !config.contains("branch.work.remote"),
            "{user}: {config}"
        );
        assert_eq!(mode(), before, "{user}");
        assert_eq!(
            project.sh_bare("ls -A .git | grep -e lock -e ringfence; true").ok(),
            "",
            "{user}"
        );
    });
}

#[test]
fn push_set_upstream_is_written_to_the_config() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        project
            .run([
                "--write",
                "../up",
                "-c",
                "git checkout -q -b topic && git push -q -u origin topic",
            ])
            .ok();
        assert_eq!(
            project.sh_bare("git rev-parse --abbrev-ref topic@{upstream}").ok(),
            "origin/topic",
            "{user}"
        );
    });
}

/// Also for the next command, after the file was replaced.
#[test]
fn settings_that_run_programs_stay_out_of_the_config() {
    if !needs(&["git"]) {
        return;
    }
    let refused = [
        "git config core.fsmonitor x",
        "git config core.hooksPath x",
        "git config CORE.sshCommand x",
        "git config core.worktree /",
        "git config include.path ../x",
        "git config alias.st '!x'",
        "git config --unset core.pager",
        "git config filter.x.clean y",
        "git config remote.origin.url https://example.org/x",
        "git remote set-url origin /x",
        "git remote add evil ext::sh",
        "git config url.x.insteadOf y",
        "git config credential.helper x",
        "git config extensions.worktreeConfig true",
        "echo '[core] fsmonitor = x' >> .git/config",
        "echo x > .git/config",
        "rm -f .git/config",
        "mv .git/config x",
        "ln .git/config x",
        "echo x > x && mv x .git/config",
        "cp .git/config .git/other.lock && mv .git/other.lock .git/config",
        "cp .git/config .git/config.lock && cd .git && mv config.lock CONFIG && false",
        "touch .git/.ringfence-config-1",
        "touch .ringfence-config-1",
    ];
    each_user(|user| {
        let project = cloned(user);
        run(&project, "git config user.name first").ok();
        let before = project.sh_bare("cat .git/config").ok();
        // One run for all: the config was replaced before.
        let tries = refused.iter().map(|line| {
            let line = line.replace('\'', "'\\''");
            format!("git config user.name first || echo not replaced; sh -c '{line}' >/dev/null 2>&1 && printf '%s\\n' 'went through: {line}'; rm -f .git/*.lock\n")
        });
        assert_eq!(run(&project, &(tries.collect::<String>() + "true")).ok(), "", "{user}");
        assert_eq!(project.sh_bare("cat .git/config").ok(), before, "{user}");
        project.sh_bare("rm -f .git/CONFIG x").ok();
        assert_ne!(run(&project, "git remote remove origin").status, 0, "{user}");
        assert!(project.sh_bare("git config remote.origin.url").ok().ends_with("/up"), "{user}");
    });
}

#[test]
fn refusal_names_the_setting() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        let ran = project.run(["--json", "-c", "git config core.fsmonitor x"]);
        assert!(
            ran.text().contains("**/.git/config, setting core.fsmonitor"),
            "{user}: {}",
            ran.text()
        );
    });
}

/// Lock files that git never writes: each has a program that git would run, in a form that a lax
/// parser misses.
#[test]
fn forged_lock_files_are_refused() {
    if !needs(&["git", "python3"]) {
        return;
    }
    let added = [
        r"[CORE]\n\tFsMonitor = x\n",
        r"[core]\n\tbare = false\n\tfsmonitor = x\n",
        r"[user]\n\tname = a\\\n[core]\n\tfsmonitor = x\n\tname = b\n",
        r"[user] name = a\n[core] fsmonitor = x\n",
        r"[user][core]fsmonitor=x\n",
        r#"[user]\n\tname = "a"[core]\n\tfsmonitor = "x"\n"#,
        r#"[user "a\\"]\n[core]\n\tfsmonitor = x\n[user "b"]\n\tname = c\n"#,
        r"[core]\r\n\tfsmonitor = x\r\n",
        r"[user]\r[core]\rfsmonitor = x\n",
        r"\ufeff[core]\n\tfsmonitor = x\n",
        r"[core]\n\tfsmonitor\0 = x\n",
        r"[user]\n\tname = a\0\n[core]\n\tfsmonitor = x\n",
        r"[include]\n\tpath = x\n",
        r"[core.x]\n\tfsmonitor = x\n",
        r"[user]\n\tname = a # b \\\n\tname = c\n[core]\n\tfsmonitor = x\n",
        r#"[remote "n"]\n\turl = ext:\\\n:sh\n"#,
    ];
    each_user(|user| {
        let project = cloned(user);
        let before = project.sh_bare("cat .git/config").ok();
        let script = |added: &[&str]| {
            let all = added.iter().map(|added| format!("'{added}',")).collect::<String>();
            format!(
                "import os\ngood = open('.git/config').read()\nfor added in [{all}]:\n\
                 \topen('.git/config.lock', 'w', newline='').write(good + added)\n\ttry:\n\
                 \t\tos.rename('.git/config.lock', '.git/config')\n\t\tprint('went through:', repr(added))\n\
                 \texcept OSError:\n\t\tos.unlink('.git/config.lock')\n"
            )
        };
        project.write("forge.py", script(&added));
        assert_eq!(run(&project, "python3 forge.py").ok(), "", "{user}");
        assert_eq!(project.sh_bare("cat .git/config").ok(), before, "{user}");
        // Control: the same method with a harmless setting.
        project.write("forge.py", script(&[r"[user]\n\tname = N\n"]));
        assert_ne!(run(&project, "python3 forge.py").ok(), "", "{user}");
        assert_eq!(project.sh_bare("git config user.name").ok(), "N", "{user}");
    });
}

#[test]
fn lock_file_that_is_not_a_plain_file_is_refused() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        project.write("good", project.sh_bare("cat .git/config").ok() + "\n[user]\n\tname = N\n");
        let before = project.sh_bare("cat .git/config").ok();
        for line in [
            "ln -s ../good .git/config.lock && mv -T .git/config.lock .git/config",
            "cp good other && ln other .git/config.lock && mv -T .git/config.lock .git/config",
            "mkfifo .git/config.lock && mv -T .git/config.lock .git/config",
            "mkdir .git/config.lock && mv -T .git/config.lock .git/config",
            "mkdir sub2 && cp good sub2/config.lock && mv -T sub2/config.lock .git/config",
        ] {
            assert_ne!(run(&project, line).status, 0, "{user}: {line}");
            project.sh_bare("rm -rf .git/config.lock other sub2").ok();
            assert_eq!(project.sh_bare("cat .git/config").ok(), before, "{user}: {line}");
        }
    });
}

/// A program writes to the lock file during its rename, keeps it open, and hard-links the staged
/// file.
#[test]
fn lock_file_changed_during_the_rename_adds_nothing() {
    if !needs(&["git", "python3"]) {
        return;
    }
    const RACE: &str = r#"
import os, threading, time
good = open('.git/config').read()
evil = good + '[core]\n\tfsmonitor = x\n'
kept = []
ends = time.time() + 2
def swap():
    while time.time() < ends:
        for text in (good, evil):
            try:
                file = open('.git/config.lock', 'r+'); file.truncate(0); file.write(text); file.flush(); kept.append(file)
            except OSError: pass
        if len(kept) > 200: del kept[:100]
def steal():
    while time.time() < ends:
        for name in os.listdir('.git'):
            if not name.startswith('.ringfence') and name != 'config': continue
            for act in (lambda: open('.git/' + name, 'r+').write(evil), lambda: os.link('.git/' + name, 'stolen'), lambda: open('stolen', 'w').write(evil), lambda: os.rename('.git/' + name, 'moved'), lambda: os.rename('.git/config.lock', '.git/' + name)):
                try: act()
                except OSError: pass
def replace():
    while time.time() < ends:
        try:
            open('.git/config.lock', 'w').write(good)
            os.rename('.git/config.lock', '.git/config')
        except OSError: pass
threads = [threading.Thread(target=work) for work in (swap, steal, replace, replace)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for file in kept:
    try: file.seek(0); file.write(evil); file.flush()
    except OSError: pass
"#;
    each_user(|user| {
        let project = cloned(user);
        project.write("race.py", RACE);
        let before = project.sh_bare("cat .git/config").ok();
        run(&project, "python3 race.py").ok();
        assert_eq!(project.sh_bare("cat .git/config").ok(), before, "{user}");
        assert!(
            !project.has("stolen") || project.sh_bare("stat -c %h stolen").ok() == "1",
            "{user}: it has another name"
        );
    });
}

#[test]
fn config_of_the_users_worktree_is_checked_as_well() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        project
            .sh_bare("git config extensions.worktreeConfig true && git worktree add -q wt -b wt && git -C wt config --worktree user.name a")
            .ok();
        run(
            &project,
            "git -C wt config --worktree user.name b && git -C wt branch -q -u origin/dev",
        )
        .ok();
        assert_ne!(
            run(&project, "git -C wt config --worktree core.fsmonitor x").status,
            0,
            "{user}"
        );
        assert_eq!(
            project
                .sh_bare("git -C wt config user.name; git -C wt rev-parse --abbrev-ref @{upstream}")
                .ok(),
            "b\norigin/dev",
            "{user}"
        );
        // From the worktree itself, whose repository lies outside of it.
        project.run(["-C", "wt", "-c", "git config user.email e && git branch -m wt renamed"]).ok();
        assert_ne!(project.run(["-C", "wt", "-c", "git config core.pager x"]).status, 0, "{user}");
        assert_eq!(project.sh_bare("git config user.email").ok(), "e", "{user}");
    });
}

/// The lines are steps that are harmless alone. Later runs know the steps of earlier ones.
///
/// Promise: remote-addresses
#[test]
fn users_branch_cannot_be_pointed_at_a_commands_remote() {
    if !needs(&["git"]) {
        return;
    }
    let steps = [
        "git remote add evil https://evil.example/x.git",
        "git config branch.main.pushRemote evil",
        "git config branch.main.remote evil",
        "git config --unset branch.main.remote; git config branch.main.remote evil",
        "git config --unset branch.main.merge; git config branch.main.merge refs/heads/main",
        "git branch --unset-upstream main; git branch -q -u evil/main main",
        "git branch -m main trunk; git config branch.trunk.remote evil; git config branch.trunk.pushRemote evil; git branch -m trunk main",
        "git config --remove-section branch.main; git config branch.main.remote evil; git config branch.main.remote origin; \
         git config branch.main.merge refs/heads/main",
    ];
    each_user(|user| {
        let upstream =
            |project: &TestProject| project.sh_bare("git config --get-regexp '^branch.main'").ok();
        let together = cloned(user);
        let before = upstream(&together);
        let look = "git config --get-regexp '^branch' | grep evil";
        let lines = steps.map(|step| {
            format!(
                "{} 2>/dev/null; {look}\n",
                step.replace("; ", &format!(" 2>/dev/null; {look}; "))
            )
        });
        assert_eq!(run(&together, &(lines.concat() + "true")).ok(), "", "{user}: in one run");
        assert_eq!(upstream(&together), before, "{user}: in one run");
        let apart = cloned(user);
        for step in [
            steps[0],
            steps[1],
            "git config --remove-section branch.main",
            "git config branch.main.remote evil",
        ] {
            run(&apart, step);
            assert!(
                !apart.sh_bare("git config --get-regexp '^branch'").text().contains("evil"),
                "{user}: {step}"
            );
        }
        run(
            &apart,
            "git config branch.main.remote origin && git config branch.main.merge refs/heads/main",
        )
        .ok();
        assert_eq!(upstream(&apart), before, "{user}: in several runs");
        // Allowed: a branch of the command's own, and settings that the user makes later.
        run(&apart, "git checkout -q -b own && git config branch.own.remote evil && git config branch.own.remote origin").ok();
        apart.sh_bare("git config branch.main.remote evil").ok();
        run(&apart, "git branch -m main trunk").ok();
        assert_eq!(apart.sh_bare("git config branch.trunk.remote").ok(), "evil", "{user}");
    });
}

/// The worktree config would override the repository's.
///
/// Promise: remote-addresses
#[test]
fn worktree_config_accepts_no_remote_url() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for prepare in ["true", "git config --worktree core.sparseCheckout false"] {
            let project = cloned(user);
            project
                .sh_bare(&format!("git config extensions.worktreeConfig true && {prepare}"))
                .ok();
            let before = project.sh_bare("git remote -v; git config --list").ok();
            let settings = [
                "remote.origin.pushurl https://evil.example/x.git",
                "remote.origin.url https://evil.example/x.git",
                "remote.new.url https://evil.example/x.git",
                "branch.main.remote .",
                "branch.main.pushRemote origin",
                "submodule.lib.url https://evil.example/x.git",
            ];
            let lines = settings.map(|setting| {
                format!(
                    "git config --worktree {setting} 2>/dev/null && echo went through: {setting}\n"
                )
            });
            assert_eq!(run(&project, &(lines.concat() + "true")).ok(), "", "{user}");
            assert_eq!(project.sh_bare("git remote -v; git config --list").ok(), before, "{user}");
            run(&project, "git config --worktree user.name N").ok();
        }
    });
}

/// A rule of the user is stronger than the built-in list of harmless settings.
#[test]
fn config_protected_by_the_user_stays_unchanged() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "[filesystem]\nprotect = [\"**/.git/config\"]\n",
        );
        assert_ne!(run(&project, "git config user.name x").status, 0, "{user}");
    });
}

/// No rule opens the git config, and no message proposes one.
#[test]
fn allow_of_the_git_config_is_refused_with_a_reason() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = cloned(user);
        for path in [".git/config", ".git/hooks/pre-commit"] {
            let ran =
                TestOutput::run(project.ringfence().args(["policy", "allow", "write", path]), b"");
            assert_eq!(ran.status, 125, "{user}: {}", ran.text());
            assert!(
                ran.stderr_text().contains("would stay denied by **/.git/"),
                "{user}: {}",
                ran.stderr_text()
            );
            let explained =
                TestOutput::run(project.ringfence().args(["explain", "write", path]), b"").text();
            assert!(
                explained.contains("no rule opens git settings that run programs")
                    && !explained.contains("--write"),
                "{user}: {explained}"
            );
        }
        assert!(
            !project.home().join(".config/ringfence/policy.toml").exists(),
            "{user}: a rule was written"
        );
        assert!(
            TestOutput::run(
                project.ringfence().args(["policy", "allow", "read", ".git/config"]),
                b""
            )
            .ok()
            .starts_with("already allowed"),
            "{user}"
        );
    });
}

/// Promise: remote-addresses
#[test]
fn user_protect_rules_keep_every_setting() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q").ok();
        let before = project.read(".git/config");
        for protect in ["**/.git/config", "**/config", ".git/config", ".git"] {
            let ran =
                project.run(["--protect", protect, "--", "git", "config", "user.name", "other"]);
            assert!(
                ran.status != 0 && project.read(".git/config") == before,
                "{user}: {protect}: {}",
                ran.stderr_text()
            );
        }
        project.run(["--", "git", "config", "user.name", "other"]).ok();
    });
}
