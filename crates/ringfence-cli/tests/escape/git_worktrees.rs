//! Parts of a git directory that are easily overlooked: submodules of linked worktrees, addresses
//! outside of the config, programs that the config names by a single word, and hooks of agents.

use ringfence_testkit::{each_user, needs};

use crate::planted::{Plant, spelled};
use crate::project;

/// A repository with a submodule, and a linked worktree that has it as well.
const LINKED: &str = "git init -q ../lib; (cd ../lib; echo l > l; git add l; COMMIT); git init -q; git add README; COMMIT;
    git -c protocol.file.allow=always submodule --quiet add $PWD/../lib part; COMMIT; git worktree add -q ../linked";
const UPDATE: &str = "git -c protocol.file.allow=always submodule --quiet update --init";

/// Promise: P155
#[test]
fn submodule_of_a_linked_worktree_runs_no_program_of_a_command() {
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

/// Git takes a submodule's directory that is there already.
#[test]
fn submodule_that_a_command_makes_ahead_in_a_worktree_runs_no_program() {
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

/// Promise: P155
#[test]
fn submodule_of_a_linked_worktree_can_be_worked_in() {
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
        assert_eq!(ran.talk(), "", "{user}");
        assert_eq!(
            project
                .sh_bare("git -C inner/part log --format=%s | wc -l; git -C inner status --short")
                .ok(),
            "2",
            "{user}"
        );
    });
}

/// Git takes the address of a remote that the config lacks from a file.
///
/// Promise: P155
#[test]
fn push_goes_to_no_address_of_a_command() {
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

/// Promise: P155
#[test]
fn repositories_are_made_cloned_and_given_remotes_inside() {
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
        assert_eq!(ran.talk(), "", "{user}");
        let names = |git: &str| project.sh_bare(&format!("ls {git}")).ok();
        assert_eq!(
            names("new/.git").contains("branches"),
            names(".git").contains("branches"),
            "{user}: the template is not copied"
        );
    });
}

/// Promise: P155
#[test]
fn program_that_the_config_names_without_a_directory_stays_as_it_is() {
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

/// A single word of the config that is also the name of a file of git's.
#[test]
fn alias_that_names_head_leaves_a_bare_repository_of_use() {
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

/// Promise: P155
#[test]
fn hooks_of_agents_and_settings_of_lazygit_are_kept_out() {
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
                    ran.talk()
                );
            }
            assert!(
                project.has(format!("{directory}/.github/workflows/ci.yml")),
                "{user}: {directory}\n{}",
                ran.talk()
            );
        }
    });
}
