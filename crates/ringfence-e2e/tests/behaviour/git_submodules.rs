//! Submodules in repositories of the user and in those that a command makes.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, needs};

use crate::project;

/// Next to the project: `inner`, `lib` with `inner` in it, and `up` with `lib` at `vendor/lib`.
fn upstream(user: TestUser) -> TestProject {
    let project = project(user);
    project.sh_bare("rm -rf * .[a-z]*").ok();
    project
        .sh_bare(
            "git config --global protocol.file.allow always; cd ..; \
             git init -q inner && (cd inner && echo i > i && git add i && git commit -qm i); \
             git init -q lib && (cd lib && echo l > l && mkdir .vscode && echo '{}' > .vscode/settings.json && git add l .vscode && \
                 git submodule --quiet add $PWD/../inner inner && git commit -qm l); \
             git init -q up && (cd up && git submodule --quiet add $PWD/../lib vendor/lib && git commit -qm up)",
        )
        .ok();
    project
}

#[track_caller]
fn run(project: &TestProject, line: &str) -> TestOutput {
    let line = format!(
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always; {line}"
    );
    let ran =
        project.run(["--read", "../inner", "--read", "../lib", "--read", "../up", "-c", &line]);
    assert!(!ran.stderr_text().contains("was moved"), "{line}: {}", ran.stderr_text());
    ran
}

/// Checks that the host's git finds both submodules complete.
#[track_caller]
fn is_whole(project: &TestProject, directory: &str, user: TestUser) {
    let status = project
        .sh_bare(&format!(
            "cd {directory} && git status --short && git submodule status --recursive"
        ))
        .ok();
    let lines: Vec<&str> = status.lines().collect();
    assert_eq!(lines.len(), 2, "{user}: {status}");
    // `git submodule status` marks missing or different commits in the first column.
    assert!(
        !status.contains(['-', '+']) || lines.iter().all(|line| !line.starts_with(['-', '+', 'U'])),
        "{user}: {status}"
    );
    assert_eq!(project.sh_bare(&format!("cat {directory}/vendor/lib/inner/i")).ok(), "i", "{user}");
}

#[test]
fn nested_submodules_of_the_users_repository_are_updated() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = upstream(user);
        project.sh_bare("git clone -q ../up .").ok();
        run(&project, "git submodule --quiet update --init --recursive && git status --short").ok();
        is_whole(&project, ".", user);
        // The next run works in them as well.
        run(
            &project,
            "cd vendor/lib/inner && git checkout -q -B work && echo j > j && git add j && git commit -qm j && git branch -m done",
        )
        .ok();
        assert_eq!(
            project.sh_bare("git -C vendor/lib/inner log -1 --format='%s %D'").ok(),
            "j HEAD -> done",
            "{user}"
        );
        run(&project, "git submodule --quiet update --recursive --force && git submodule --quiet foreach --recursive git status --short")
            .ok();
    });
}

#[test]
fn submodule_is_added_to_the_users_repository() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = upstream(user);
        project.sh_bare("git init -q && git commit -q --allow-empty -m first").ok();
        run(
            &project,
            "git submodule --quiet add $PWD/../lib vendor/lib && git submodule --quiet update --init --recursive && git commit -qm sub",
        )
        .ok();
        is_whole(&project, ".", user);
        run(&project, "git submodule --quiet add -b main --name other $PWD/../inner deep/inner && git commit -qm more").ok();
        assert_eq!(
            project.sh_bare("git config -f .gitmodules submodule.other.path; cat deep/inner/i; git status --short").ok(),
            "deep/inner\ni"
        );
    });
}

#[test]
fn clone_with_submodules_outlasts_the_command() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = upstream(user);
        run(&project, "git clone -q --recurse-submodules ../up own").ok();
        is_whole(&project, "own", user);
        run(&project, "cd own && git submodule --quiet add $PWD/../../inner more && git commit -qm more && git submodule --quiet update --init --recursive").ok();
        run(&project, "rm -rf own && test ! -e own").ok();
    });
}

#[test]
fn submodules_of_a_linked_worktree_are_updated() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = upstream(user);
        project.sh_bare("git clone -q ../up .").ok();
        run(&project, "git worktree add -q wt -b wt && cd wt && git submodule --quiet update --init --recursive").ok();
        is_whole(&project, "wt", user);
    });
}

/// `.gitmodules` can name no program and no path outside, and a submodule's URL stays.
#[test]
fn gitmodules_accepts_only_harmless_submodules() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = upstream(user);
        project.sh_bare("git clone -q ../up .").ok();
        let before = project.read(".gitmodules");
        for line in [
            "git config -f .gitmodules submodule.x.update '!sh'",
            "git config -f .gitmodules submodule.x.url ext::sh",
            "git config -f .gitmodules submodule.x.url -u",
            "git config -f .gitmodules submodule.x.path ../x",
            "git config -f .gitmodules submodule.vendor/lib.url https://example.org/x",
            "git config -f .gitmodules core.fsmonitor x",
            "echo x > .gitmodules",
            "echo x > x && mv x .gitmodules",
        ] {
            assert_ne!(run(&project, line).status, 0, "{user}: {line}");
            assert_eq!(project.read(".gitmodules"), before, "{user}: {line}");
        }
    });
}

/// `git submodule update` of the user would fetch from there.
///
/// Promise: remote-addresses
#[test]
fn url_of_the_users_submodule_cannot_be_changed() {
    if !needs(&["git"]) {
        return;
    }
    let tries = [
        "git remote add evil https://evil.example/q/x.git; git config submodule.lib.url https://evil.example/q/lib.git",
        "git config submodule.new.url https://evil.example/q/new.git",
        "mkdir -p .git/worktrees/fk fake; echo $PWD/fake/.git > .git/worktrees/fk/gitdir; echo gitdir: $PWD/.git/worktrees/fk > fake/.git; \
         printf '[submodule \"abs\"]\\n\\turl = https://evil.example/abs.git\\n[submodule \"far\"]\\n\\turl = https://evil.example/far.git\\n' > fake/.gitmodules; \
         git config submodule.abs.url https://evil.example/abs.git; git config submodule.far.url https://evil.example/far.git; \
         rm -rf fake .git/worktrees/fk",
        "git config -f .gitmodules --remove-section submodule.abs; git config -f .gitmodules submodule.abs.path abs; \
         git config -f .gitmodules submodule.abs.url https://evil.example/abs2.git; git config submodule.abs.url https://evil.example/abs2.git",
        "git config --remove-section submodule.abs; git config submodule.abs.url https://evil.example/abs2.git",
        "git config -f .gitmodules submodule.other.path far && git config -f .gitmodules submodule.other.url https://evil.example/far.git",
    ];
    each_user(|user| {
        let project = upstream(user);
        let add = |name: &str, url: &str| {
            format!(
                "git config -f .gitmodules submodule.{name}.path {name} && git config -f .gitmodules submodule.{name}.url {url} && "
            )
        };
        let modules = [
            add("lib", "../lib.git"),
            add("abs", "https://good.example/abs.git"),
            add("new", "../new.git"),
            add("far", "https://good.example/far.git"),
        ];
        let initialised = "git config submodule.lib.url https://good.example/lib.git && git config submodule.abs.url https://good.example/abs.git";
        project
            .sh_bare(&format!("git init -q && git remote add origin https://good.example/x.git && {}{initialised}", modules.concat()))
            .ok();
        // Settings of the first run could prepare those of the second.
        for round in ["first", "second"] {
            run(&project, &tries.join("\n"));
            let settings = project.sh_bare("git config --get-regexp ^submodule; git config -f .gitmodules --get-regexp url").text();
            assert!(!settings.contains("evil"), "{user}: {round}\n{settings}");
        }
        // Control: the URLs of `.gitmodules`, also a second time.
        run(
            &project,
            "git config submodule.new.url https://good.example/new.git && git config submodule.far.url https://good.example/far.git",
        )
        .ok();
        run(&project, "git config submodule.abs.url https://good.example/abs.git").ok();
    });
}

/// Git uses a submodule's git directory if it exists already.
#[test]
fn submodule_prepared_by_a_command_has_no_program_after_the_run() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for make in [
            "git init -q --bare .git/modules/vendor/lib",
            "mkdir -p .git/modules/vendor && git init -q --bare x && mkdir .git/modules/vendor/lib && cp -r x/. .git/modules/vendor/lib && rm -rf x",
        ] {
            let project = upstream(user);
            project.sh_bare("git clone -q ../up .").ok();
            let plant = "cd .git/modules/vendor/lib && printf '#!/bin/sh\\ntouch ~/ran\\n' > hooks/post-checkout && chmod +x hooks/post-checkout && \
                         printf '[core]\\n\\tfsmonitor = touch ~/ran; false\\n\\thooksPath = hooks\\n' >> config";
            project.run(["--read", "../up", "-c", &format!("{make} && {plant}")]).ok();
            project
                .sh_bare("git submodule update --init; git status; cd vendor/lib && git status")
                .text();
            assert!(!project.home().join("ran").exists(), "{user}: {make}");
            let config = project.read(".git/modules/vendor/lib/config").unwrap_or_default();
            assert!(!config.contains("fsmonitor"), "{user}: {config}");
        }
    });
}

/// The user's directories in `.git/modules` are protected.
#[test]
fn users_submodule_accepts_no_program() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = upstream(user);
        project.sh_bare("git clone -q --recurse-submodules ../up .").ok();
        let git = ".git/modules/vendor/lib";
        for line in [
            "git -C vendor/lib config core.fsmonitor x".to_owned(),
            format!("echo x > {git}/hooks/pre-commit"),
            format!("echo x >> {git}/config"),
            format!("mkdir {git}/modules/inner/hooks/x"),
            "git -C vendor/lib/inner config core.pager x".to_owned(),
            format!("mv {git} x"),
            format!("mkdir -p .git/modules/new && mv .git/modules/new {git}/new"),
            format!(
                "mkdir .git/modules/new && ln {git}/config .git/modules/new/config && echo x >> .git/modules/new/config"
            ),
        ] {
            assert_ne!(run(&project, &line).status, 0, "{user}: {line}");
        }
        is_whole(&project, ".", user);
        run(
            &project,
            "git -C vendor/lib config user.name N && git -C vendor/lib checkout -q -b topic && git -C vendor/lib branch -u origin/main",
        )
        .ok();
        assert_eq!(project.sh_bare("git -C vendor/lib config user.name").ok(), "N", "{user}");
    });
}
