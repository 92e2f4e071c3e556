//! Git works inside, and the host's git finds the same repository as after a bare run.

use ringfence_testkit::{TestOutput, TestProject, each_user, needs};

use crate::project;

/// A project whose secrets are in `.gitignore`.
fn ignoring(user: ringfence_testkit::TestUser) -> TestProject {
    let project = project(user);
    project.write(".gitignore", ".env\n.env.local\n*.pem\nSECRET.txt\n*.KEY\ncredentials.json\n");
    project
}

/// The same with a repository made on the host.
fn committed(user: ringfence_testkit::TestUser) -> TestProject {
    let project = ignoring(user);
    project.sh_bare("git init -q && git add -A && git commit -qm first").ok();
    project
}

/// Checks that the host's git reports no problem, and that only `names` are new.
#[track_caller]
fn clean(project: &TestProject, names: &[&str]) {
    assert_eq!(project.sh_bare("git status --short").ok(), "");
    assert_eq!(project.sh_bare("git fsck --no-dangling 2>&1").ok(), "");
    let mut expected: Vec<&str> = names.to_vec();
    expected.extend([
        ".env",
        ".env.example",
        ".env.local",
        ".git",
        ".gitignore",
        "README",
        "SECRET.txt",
        "id.pub",
        "secrets.rs",
        "server.KEY",
        "src",
        "sub",
        "x.pem",
    ]);
    expected.sort_unstable();
    let listed = project.sh_bare("ls -A").ok();
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, expected);
}

/// Promise: tools-work
#[test]
fn init_add_and_commit_leave_a_clean_status() {
    each_user(|user| {
        if !needs(&["git"]) {
            return;
        }
        let project = ignoring(user);
        project.sh("git init -q && git add -A && git commit -qm x && git status --short").ok();
        assert_eq!(project.sh("git status --short").ok(), "");
        assert_eq!(
            project.sh_bare("git log --format='%an %ae %s'").ok(),
            "A Person person@example.org x"
        );
        clean(&project, &[]);
    });
}

#[test]
fn branches_merges_and_rebases_work() {
    each_user(|user| {
        let project = committed(user);
        project.sh("echo a > a && git add a && git commit -qm a && git checkout -qb side && echo b > b && git add b && git commit -qm b && git checkout -q main && git merge -q --no-edit side && git branch -d side && git tag v1 && git gc -q").ok();
        project.sh("git checkout -qb r HEAD~1 && echo c > c && git add c && git commit -qm c && git rebase -q main && git checkout -q main && git merge -q r && git branch -q old && git reset -q --hard HEAD~1 && git cherry-pick old >/dev/null").ok();
        clean(&project, &["a", "b", "c"]);
    });
}

/// Promise: tools-work
#[test]
fn stash_and_pop_work() {
    each_user(|user| {
        let project = committed(user);
        project.sh("echo changed > README && echo new > untracked && git stash -u && test ! -e untracked && git stash pop && cat untracked && rm untracked && git checkout -q README").ok();
        clean(&project, &[]);
    });
}

/// Promise: tools-work
#[test]
fn commits_work_in_a_worktree_made_inside() {
    each_user(|user| {
        let project = committed(user);
        project.sh("git worktree add -q wt -b other && cd wt && echo x > x && git add x && git commit -qm x && git status --short").ok();
        assert_eq!(project.sh_bare("git log -1 --format=%s other").ok(), "x");
        project.sh_bare("git worktree remove wt").ok();
        project.sh("git worktree add -q wt2 && git worktree remove wt2").ok();
        clean(&project, &[]);
    });
}

#[test]
fn worktrees_of_every_kind_outlast_the_command() {
    let of_a_bare_one = "git clone -q --bare . store && git -C store worktree add -q ../wt main";
    let with_an_odd_name = "git worktree add -q \"$(printf 'w\\377t')\" -b odd";
    let of_its_own = "git init -q own && cd own && git commit -q --allow-empty -m x && git worktree add -q ../wt";
    for (line, place) in [(of_a_bare_one, "wt"), (with_an_odd_name, "w?t"), (of_its_own, "wt")] {
        each_user(|user| {
            let project = committed(user);
            let ran = project.sh(line);
            ran.ok();
            assert_eq!(ran.stderr_text(), "", "{line}");
            project.sh_bare(&format!("cd {place} && git status --short && git log -1")).ok();
        });
    }
}

#[test]
fn linked_worktree_is_a_workspace() {
    each_user(|user| {
        let project = committed(user);
        project.sh_bare("git worktree add -q ../linked -b linked").ok();
        project
            .run([
                "-C",
                "../linked",
                "-c",
                "git status --short && echo x > x && git add x && git commit -qm inside && git log -1 --format=%s",
            ])
            .ok();
        assert_eq!(
            project
                .sh_bare("git log -1 --format=%s linked && git -C ../linked status --short")
                .ok(),
            "inside"
        );
        // The main tree is another project, and git's hooks and config stay protected.
        let flags = ["-C", "../linked"];
        let common = project.at(".git");
        project.tries("read('ROOT/README')").with(&flags).inside(&["ENOENT"]);
        for name in [
            "config",
            "hooks/pre-commit",
            "commondir",
            "config.worktree",
            "info/attributes",
            "worktrees/linked/commondir",
            "worktrees/linked/gitdir",
            "worktrees/linked/config.worktree",
        ] {
            project
                .tries(&format!("create('{}')", common.join(name).display()))
                .with(&flags)
                .inside(&["EACCES", "EROFS"]);
        }
        project.tries("write('.git')").with(&flags).inside(&["EACCES", "EROFS"]);
        clean(&project, &[]);
    });
}

#[test]
fn commits_work_in_a_submodule() {
    each_user(|user| {
        let project = committed(user);
        project
            .sh_bare(
                "git init -q ../lib && cd ../lib && echo l > l && git add l && git commit -qm lib",
            )
            .ok();
        project.sh_bare("git -c protocol.file.allow=always submodule --quiet add ../lib lib && git commit -qm sub").ok();
        project.sh("cd lib && echo m > m && git add m && git commit -qm from-above && cd .. && git status --short && git submodule status && git add lib && git commit -qm bump").ok();
        project
            .run([
                "-C",
                "lib",
                "-c",
                "echo n > n && git add n && git commit -qm from-within && git log -1 --format=%s",
            ])
            .ok();
        assert_eq!(
            project.sh_bare("git -C lib log -2 --format=%s").ok(),
            "from-within\nfrom-above"
        );
        for name in ["config", "hooks/pre-commit", "commondir"] {
            project
                .tries(&format!("create('.git/modules/lib/{name}')"))
                .inside(&["EACCES", "EROFS"]);
            project
                .tries(&format!("create('ROOT/.git/modules/lib/{name}')"))
                .with(&["-C", "lib"])
                .inside(&["EACCES", "EROFS"]);
        }
        project.tries("write('lib/.git')").inside(&["EACCES", "EROFS"]);
    });
}

#[test]
fn forged_gitdir_pointer_opens_nothing() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("cd ../other && git init -q && git add -A && git commit -qm x").ok();
        project.write(
            ".git",
            format!("gitdir: {}\n", project.home().join("code/other/.git").display()),
        );
        project.tries("read('HOME/code/other/.git/HEAD')").inside(&["ENOENT"]).bare_ok();
    });
}

#[test]
fn separate_git_directory_opens_only_for_its_work_tree() {
    each_user(|user| {
        let project = ignoring(user);
        project.sh_bare("mkdir ~/store && git init -q --separate-git-dir ~/store/app . && git add -A && git commit -qm first").ok();
        project.sh("git status --short && echo x > x && git add x && git commit -qm inside").ok();
        assert_eq!(project.sh_bare("git log -1 --format=%s && git status --short").ok(), "inside");
        for name in ["config", "hooks/pre-commit", "info/attributes"] {
            project.tries(&format!("create('HOME/store/app/{name}')")).inside(&["EACCES", "EROFS"]);
        }
        // The same pointer elsewhere opens nothing, even with the same files.
        project.sh_bare("mkdir ../copy && cp -a . ../copy/").ok();
        project
            .tries("read('HOME/store/app/HEAD')")
            .with(&["-C", "../copy"])
            .inside(&["ENOENT"])
            .bare_ok();
    });
}

#[test]
fn doctor_reports_tracked_secrets() {
    each_user(|user| {
        let project = project(user);
        assert!(
            !TestOutput::run(project.ringfence().arg("doctor"), b"").ok().contains("git store"),
            "{user}: there is no repository"
        );
        project.sh_bare("git init -q && git add README && git commit -qm first").ok();
        assert!(
            TestOutput::run(project.ringfence().arg("doctor"), b"")
                .ok()
                .contains("no tracked file is denied"),
            "{user}"
        );
        project.sh_bare("git add -f x.pem sub/.env && git commit -qm second").ok();
        let said =
            TestOutput::run(project.ringfence().arg("doctor").current_dir(project.at("src")), b"")
                .ok();
        assert!(
            said.contains("2 denied files are tracked, and readable in `.git`: sub/.env, x.pem"),
            "{user}: {said}"
        );
    });
}

#[test]
fn reading_git_does_not_rehash_the_tree() {
    each_user(|user| {
        let project = committed(user);
        let index = || std::fs::read(project.at(".git/index")).expect("there is an index");
        project.sh_bare("sleep 1.1; touch README; git status --short").ok();
        let before = index();
        project.sh("git status --short").ok();
        project.sh_bare("git status --short").ok();
        assert!(
            index() == before,
            "the index was written anew: something about the files looks different inside"
        );
    });
}

#[test]
fn global_gitignore_of_the_user_works() {
    each_user(|user| {
        for (config, ignore) in [
            ("", ".config/git/ignore"),
            ("[core]\n\texcludesfile = ~/.gitignore_global\n", ".gitignore_global"),
        ] {
            let project = project(user);
            project.write_at(
                &project.home().join(".gitconfig"),
                format!("[user]\n\tname = A\n\temail = a@b\n{config}"),
            );
            project.write_at(&project.home().join(ignore), "*.swp\n");
            project.write("a.swp", "");
            project.write("a.txt", "");
            let said = project.sh("git init -q && git status --short 'a.*'").ok();
            assert_eq!(said, "?? a.txt");
        }
    });
}
