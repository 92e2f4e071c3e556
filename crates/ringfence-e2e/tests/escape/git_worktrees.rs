//! Rare parts of a git directory: submodules of linked worktrees, remote URLs outside the config,
//! programs that the config names by a single word, and hooks of agents.

use ringfence_testkit::{each_user, needs};

use crate::planted::{Plant, spelled};
use crate::project;

/// A repository with a submodule, and a linked worktree that has it as well.
const LINKED: &str = "git init -q ../lib; (cd ../lib; echo l > l; git add l; COMMIT); git init -q; git add README; COMMIT;
    git -c protocol.file.allow=always submodule --quiet add $PWD/../lib part; COMMIT; git worktree add -q ../linked";
const UPDATE: &str = "git -c protocol.file.allow=always submodule --quiet update --init";

/// Promise: submodule-settings
#[test]
fn submodule_of_a_linked_worktree_runs_nothing_planted() {
    let before = format!("{LINKED}; cd ../linked; {UPDATE}");
    let own = ".git/worktrees/linked/modules/part";
    for (line, then) in [
        (format!("EVIL >> {own}/config"), "git status"),
        (
            format!("ELSEWHERE; mv {own} ev/own; EVIL >> ev/own/config; mv ev/own {own}"),
            "git status",
        ),
        (format!("ELSEWHERE; echo $PWD/ev > {own}/commondir"), "git status"),
        (
            format!("HOOK > {own}/hooks/post-checkout; chmod +x {own}/hooks/post-checkout"),
            "git -C part checkout -q -b other",
        ),
    ] {
        Plant { before: &before, commands: &[&line], then: &format!("cd ../linked; {then}") }
            .never_runs();
    }
    let (aside, back) = (
        format!("mv {own}/HEAD {own}/H2"),
        format!("EVIL >> {own}/config; mv {own}/H2 {own}/HEAD"),
    );
    Plant { before: &before, commands: &[&aside, &back], then: "cd ../linked; git status" }
        .never_runs();
}

/// Git uses a submodule's directory if it exists already.
#[test]
fn submodule_prepared_in_a_worktree_runs_nothing() {
    let plant = "mkdir -p $w/modules; git clone -q --bare ../lib p; HOOK > p/hooks/post-checkout; chmod +x p/hooks/post-checkout;
        git -C p config core.bare false; cp -r p $w/modules/part";
    let then = format!("cd ../linked; {UPDATE}");
    Plant {
        before: LINKED,
        commands: &[&format!("w=.git/worktrees/linked; {plant}")],
        then: &then,
    }
    .never_runs();
    // In a worktree and in a repository that the command made.
    let added = format!("git worktree add -q new -b new; w=.git/worktrees/new; {plant}");
    Plant { before: LINKED, commands: &[&added], then: &format!("cd new; {UPDATE}") }.never_runs();
    let own = format!(
        "git clone -q . own; cd own; git worktree add -q ../new -b new; cd ..; w=own/.git/worktrees/new; {plant}"
    );
    Plant {
        before: LINKED,
        commands: &[&own],
        then: &format!("cd new; git config submodule.part.url $PWD/../../lib; {UPDATE}"),
    }
    .never_runs();
}

/// Promise: submodule-settings
#[test]
fn commits_work_in_a_submodule_of_a_linked_worktree() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(&spelled(&format!("{LINKED}; git worktree add -q inner; cd inner; {UPDATE}")))
            .ok();
        let ran = project
            .sh(&spelled("cd inner/part && echo m > m && git add m && COMMIT && cd .. && git add part && COMMIT && git status --short"));
        ran.ok();
        assert_eq!(ran.stderr_text(), "", "{user}");
        assert_eq!(
            project
                .sh_bare("git -C inner/part log --format=%s | wc -l; git -C inner status --short")
                .ok(),
            "2",
            "{user}"
        );
    });
}

/// Git reads the URL of a remote that the config lacks from a file.
///
/// Promise: submodule-settings
#[test]
fn remote_url_of_a_command_is_not_used_by_push() {
    let before = "git init -q; git add README; COMMIT";
    let then = "git push -q origin HEAD:refs/heads/x; if git -C got rev-parse -q --verify refs/heads/x; then touch ~/RAN; fi";
    for line in [
        "mkdir -p .git/branches; echo $PWD/got > .git/branches/origin",
        "mkdir -p .git/remotes; echo URL: $PWD/got > .git/remotes/origin",
        "mkdir r; echo URL: $PWD/got > r/origin; mv r .git/remotes",
    ] {
        let line = format!("git init -q --bare got; {line}");
        Plant { before, commands: &[&line], then }.never_runs();
        let absent = format!("{before}; rm -rf .git/branches");
        Plant { before: &absent, commands: &[&line], then }.never_runs();
    }
}

/// Promise: submodule-settings
#[test]
fn init_clone_and_remote_add_work_inside() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled("git init -q; git add README; COMMIT")).ok();
        let line = "git init -q new && git -C new remote add a ../x && git -C new remote rename a b && git clone -q . copy && \
                    git -C copy fetch -q && git -C copy remote rm origin && git worktree add -q wt && \
                    git init -q --bare store && git remote -v";
        let ran = project.sh(line);
        ran.ok();
        assert_eq!(ran.stderr_text(), "", "{user}");
        let names = |git: &str| project.sh_bare(&format!("ls {git}")).ok();
        assert_eq!(
            names("new/.git").contains("branches"),
            names(".git").contains("branches"),
            "{user}: the template is not copied"
        );
    });
}

/// Promise: submodule-settings
#[test]
fn program_named_in_the_config_by_one_word_cannot_be_changed() {
    let before = r#"git init -q; echo cat > clean.sh; git config filter.f.clean "sh clean.sh"; echo "*.txt filter=f" > .gitattributes"#;
    let then = "echo x > a.txt; git add a.txt";
    for line in
        ["echo 'touch ~/RAN; cat' > clean.sh", "echo 'touch ~/RAN; cat' > x; mv -f x clean.sh"]
    {
        Plant { before, commands: &[line], then }.never_runs();
    }
    let linked = format!("{before}; git add .; COMMIT; git worktree add -q wt");
    Plant {
        before: &linked,
        commands: &["echo 'touch ~/RAN; cat' > wt/clean.sh"],
        then: "cd wt; echo x > a.txt; git add a.txt",
    }
    .never_runs();
}

/// A single word of the config that is also the name of a file in the git directory.
#[test]
fn alias_named_head_keeps_a_bare_repository_usable() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare("git init -q --bare store && git -C store config alias.last 'log -1 HEAD'")
            .ok();
        project.sh("git -C store symbolic-ref HEAD refs/heads/other").ok();
        assert_eq!(
            project.read("store/HEAD").as_deref(),
            Some("ref: refs/heads/other\n"),
            "{user}"
        );
    });
}

/// Promise: submodule-settings
#[test]
fn agent_hooks_and_lazygit_settings_are_protected() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled("git init -q; git add README; COMMIT")).ok();
        let ran = project.sh("for d in . deep own; do mkdir -p $d; if [ $d = own ]; then git init -q own; fi; \
             mkdir -p $d/.github/hooks $d/.clinerules/hooks; echo '{}' > $d/.github/hooks/x.json; echo > $d/.clinerules/hooks/TaskStart; \
             echo > $d/.lazygit.yml; echo > $d/.git/lazygit.yml; mkdir -p $d/.github/workflows; echo > $d/.github/workflows/ci.yml; done");
        for directory in [".", "deep", "own"] {
            for name in [".github/hooks", ".clinerules/hooks", ".lazygit.yml", ".git/lazygit.yml"] {
                assert!(
                    !project.has(format!("{directory}/{name}")),
                    "{user}: {directory}/{name}\n{}",
                    ran.stderr_text()
                );
            }
            assert!(
                project.has(format!("{directory}/.github/workflows/ci.yml")),
                "{user}: {directory}\n{}",
                ran.stderr_text()
            );
        }
    });
}
