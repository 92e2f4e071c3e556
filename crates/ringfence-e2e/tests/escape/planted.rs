//! Files that a command plants in git repositories run nothing when the user runs git on the host.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, needs};

use crate::project;

/// Abbreviations in the lines below.
const WORDS: &[(&str, &str)] = &[
    ("EVIL", r#"printf "[core]\nrepositoryformatversion = 0\nfsmonitor = touch ~/RAN; false\n""#),
    ("HOOK", r##"printf "#!/bin/sh\ntouch ~/RAN\n""##),
    ("COMMIT", "git -c user.name=a -c user.email=b commit -q -m x"),
    ("ELSEWHERE", "mkdir -p ev/objects ev/refs; EVIL > ev/config"),
];

pub(crate) fn spelled(line: &str) -> String {
    WORDS.iter().rev().fold(line.to_owned(), |line, (word, meaning)| line.replace(word, meaning))
}

/// One attack: the setup on the host, the commands that plant, and the user's command afterwards.
pub(crate) struct Plant<'a> {
    pub(crate) before: &'a str,
    pub(crate) commands: &'a [&'a str],
    pub(crate) then: &'a str,
}

impl Plant<'_> {
    /// Returns true if a planted program ran on the host, and all output. `run` runs one command.
    fn runs(
        &self,
        user: TestUser,
        run: impl Fn(&TestProject, &str) -> TestOutput,
    ) -> (bool, String) {
        let project = project(user);
        project.sh_bare(&spelled(self.before)).ok();
        let mut said = String::new();
        for line in self.commands {
            said += &run(&project, &spelled(line)).stderr_text();
        }
        said += &project.sh_bare(&spelled(self.then)).stderr_text();
        project.sh_bare("chmod -R u+rwX .").ok();
        (project.home().join("RAN").exists(), said)
    }

    #[track_caller]
    pub(crate) fn never_runs_after(&self, run: impl Fn(&TestProject, &str) -> TestOutput) {
        each_user(|user| {
            let (ran, said) = self.runs(user, &run);
            assert!(!ran, "{:?}: the planted program ran on the host\n{said}", self.commands);
        });
    }

    /// Checks that the program runs when planted bare, and not when planted from inside.
    #[track_caller]
    pub(crate) fn never_runs(&self) {
        each_user(|user| {
            let (ran, said) = self.runs(user, TestProject::sh_bare);
            assert!(ran, "{:?}: the probe cannot succeed\n{said}", self.commands);
        });
        self.never_runs_after(TestProject::sh);
    }
}

/// Runs ringfence with 1024 fds, the soft limit of most machines.
pub(crate) fn with_few_descriptors(project: &TestProject, words: &[&str]) -> TestOutput {
    let line = r#"ulimit -n 1024; exec "$0" run "$@""#;
    TestOutput::run(
        project.command("/bin/sh").args(["-c", line]).arg(project.binary()).args(words),
        b"",
    )
}

// Repositories of the host.

#[test]
fn repository_moved_through_a_vendored_tree_runs_nothing() {
    for name in ["vendor", "node_modules", "x/.git"] {
        let (there, back) = (
            format!("mkdir -p {name}; mv nested {name}/"),
            format!("EVIL >> {name}/nested/.git/config; mv {name}/nested nested"),
        );
        Plant {
            before: "git init -q; git init -q nested",
            commands: &[&there, &back],
            then: "cd nested && git status",
        }
        .never_runs();
    }
}

/// Promise: git-runs-nothing
#[test]
fn repository_made_unreadable_runs_nothing() {
    let shut = "chmod 000 .git";
    Plant {
        before: "git init -q",
        commands: &[shut, "chmod 755 .git; EVIL >> .git/config"],
        then: "git status",
    }
    .never_runs();
    let above = "chmod 311 nested";
    Plant {
        before: "git init -q nested",
        commands: &[above, "EVIL >> nested/.git/config"],
        then: "cd nested && git status",
    }
    .never_runs();
}

#[test]
fn head_planted_in_the_project_root_runs_nothing() {
    let plant = r#"rm -f .git/HEAD; ELSEWHERE; printf "[core]\nbare = false\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true\n" >> ev/config;
        printf "[core]\nworktree = $PWD\n" > config.worktree; echo ev > commondir; echo "ref: refs/heads/m" > HEAD"#;
    Plant { before: "git init -q; git add README; COMMIT", commands: &[plant], then: "git status" }
        .never_runs();
    Plant { before: "true", commands: &[plant], then: "git status" }.never_runs();
}

#[test]
fn commondir_of_a_linked_worktree_runs_nothing() {
    Plant {
        before: "git init -q; git add README; COMMIT; git worktree add -q ../linked",
        commands: &["ELSEWHERE; echo ../../../ev > .git/worktrees/linked/commondir"],
        then: "cd ../linked && git status",
    }
    .never_runs();
}

#[test]
fn config_written_through_a_hard_link_runs_nothing() {
    Plant {
        before: "true",
        commands: &["git init -q; ln .git/config notes.txt", "EVIL >> notes.txt"],
        then: "git status",
    }
    .never_runs();
}

#[test]
fn config_behind_a_gitdir_pointer_runs_nothing() {
    Plant {
        before: r#"git init -q --bare .bare; echo "gitdir: ./.bare" > .git"#,
        commands: &[r#"EVIL >> .bare/config; printf "bare = false\n" >> .bare/config"#],
        then: "git status",
    }
    .never_runs();
    Plant {
        before: "git init -q --separate-git-dir=store",
        commands: &["EVIL >> store/config"],
        then: "git status",
    }
    .never_runs();
}

#[test]
fn bare_repository_below_the_project_runs_nothing() {
    let before = "git init -q; git init -q --bare fix/r.git; git add README; COMMIT";
    let hook = "HOOK > fix/r.git/hooks/pre-receive; chmod +x fix/r.git/hooks/pre-receive";
    Plant { before, commands: &[hook], then: "git push -q fix/r.git HEAD:main" }.never_runs();
    let config = r#"printf "[alias]\nx = !touch ~/RAN\n" >> fix/r.git/config"#;
    Plant { before, commands: &[config], then: "cd fix/r.git && git x" }.never_runs();
}

#[test]
fn hooks_directory_made_inside_runs_nothing() {
    let before = "git init -q; rm -rf .git/hooks; git add README; COMMIT";
    let hook =
        "mkdir .git/hooks; HOOK > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout";
    Plant { before, commands: &[hook], then: "git checkout -q -b other" }.never_runs();
}

/// Promise: git-runs-nothing
#[test]
fn tree_moved_into_git_modules_runs_nothing() {
    Plant {
        before: "git init -q ../lib-origin; (cd ../lib-origin; echo s > s; git add s; COMMIT); git init -q;
            git -c protocol.file.allow=always submodule --quiet add $PWD/../lib-origin lib; COMMIT;
            git submodule --quiet deinit -f lib; rm -rf .git/modules lib",
        commands: &[r#"git init -q --bare p; HOOK > p/hooks/post-checkout; chmod +x p/hooks/post-checkout;
            printf "[core]\nbare = false\nworktree = ../../../lib\n[remote \"origin\"]\nurl = $PWD/../lib-origin\nfetch = +refs/heads/*:refs/remotes/origin/*\n" > p/config;
            mkdir .git/modules; mv p .git/modules/lib"#],
        then: "git -c protocol.file.allow=always submodule --quiet update --init",
    }
    .never_runs();
}

#[test]
fn protected_name_cannot_arrive_with_a_moved_directory() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q").ok();
        project.sh("mkdir p; echo '* filter=x' > p/attributes; rm -f .git/info/exclude; rmdir .git/info; mv p .git/info");
        assert!(!project.has(".git/info/attributes"));
        let line = "mkdir -p x/workflows; echo evil > x/workflows/ci.yml; mv x .github";
        project.run(["--protect", "./.github/workflows", "-c", line]);
        assert!(!project.has(".github/workflows"));
    });
}

// Repositories that the command makes.

/// Promise: git-runs-nothing
#[test]
fn config_line_that_looks_like_a_header_runs_nothing() {
    let include = r#"git init -q own; cd own; printf "[includeIf \"gitdir:**\"] path = \"../evil\"]\n" >> .git/config; EVIL > "evil]""#;
    Plant { before: "true", commands: &[include], then: "cd own && git status" }.never_runs();
    let filter = r#"git init -q own; cd own; printf "[filter \"x\"] clean = \"touch ~/RAN; cat; true \"]\n" >> .git/config;
        echo "* filter=x" > .gitattributes; echo 1 > f"#;
    Plant { before: "true", commands: &[filter], then: "cd own && git add f" }.never_runs();
}

/// Promise: git-runs-nothing
#[test]
fn config_of_a_killed_or_timed_out_run_runs_nothing() {
    if !needs(&["prlimit"]) {
        return;
    }
    // Not bare: there, pid 1 is the machine's init.
    for end in ["prlimit --pid 1 --nofile=0:0; (sleep 0.1 &); sleep 0.5", "kill -9 $PPID"] {
        let line = format!("git init -q own; EVIL >> own/.git/config; {end}");
        Plant { before: "true", commands: &[&line], then: "cd own && git status" }
            .never_runs_after(TestProject::sh);
    }
    let line = "git init -q own; EVIL >> own/.git/config; sleep 60";
    Plant { before: "true", commands: &[line], then: "cd own && git status" }
        .never_runs_after(|project, line| project.run(["--timeout", "300ms", "-c", line]));
}

/// Puts more fds into sockets than may be in flight at once, then plants.
const IN_FLIGHT: &str = r#"
import array
pairs, null = [], os.open('/dev/null', 0)
try:
    for i in range(8):
        pairs.append(socket.socketpair())
        pairs[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null] * 200))])
except OSError: pass
os.makedirs('p/objects'); os.makedirs('p/refs'); os.mkdir('own')
open('p/config', 'w').write('[core]\nrepositoryformatversion = 0\nfsmonitor = touch ~/RAN; false\n')
open('p/named-later', 'w').write('ref: refs/heads/m\n')
os.rename('p/named-later', 'p/HEAD'); os.rename('p', 'own/.git')
"#;

#[test]
fn config_made_while_no_fd_can_be_sent_runs_nothing() {
    let Some(python) = ringfence_testkit::python() else { return };
    let code = format!("{}\n{IN_FLIGHT}", ringfence_testkit::PRELUDE);
    Plant { before: "true", commands: &[&code], then: "cd own && git status" }.never_runs_after(
        |project, code| with_few_descriptors(project, &["--", python, "-Bc", code]),
    );
}

/// Checks that a hook in a repository made inside does not run, after the command ended with `end`.
#[track_caller]
fn hook_never_runs_after(end: &str) {
    let own = "git init -q own; cd own; echo x > f; git add f; COMMIT; HOOK > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout";
    Plant {
        before: "true",
        commands: &[&format!("{own}; {end}")],
        then: "cd own && git checkout -q -b other",
    }
    .never_runs();
}

#[test]
fn hook_in_a_read_only_directory_runs_nothing() {
    hook_never_runs_after("chmod 555 .git/hooks");
}

#[test]
fn hook_below_an_unreadable_directory_runs_nothing() {
    hook_never_runs_after("chmod 311 .");
}

#[test]
fn read_only_config_runs_nothing() {
    let line = "git init -q own; EVIL >> own/.git/config; chmod 444 own/.git/config; chmod 555 own/.git own";
    Plant { before: "true", commands: &[line], then: "cd own && git status" }.never_runs();
}

#[test]
fn hook_whose_quarantine_names_are_taken_runs_nothing() {
    let names = "git init -q own; cd own/.git/hooks; for i in post-checkout $(seq -f post-checkout.%g 1 99); do echo > $i; done";
    let again = "mv own old; git init -q own; cd own; echo x > f; git add f; COMMIT; HOOK > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout";
    Plant { before: "true", commands: &[names, again], then: "cd own && git checkout -q -b other" }
        .never_runs();
}

#[test]
fn repository_within_a_git_directory_runs_nothing() {
    Plant {
        before: "true",
        commands: &[r#"top=$PWD; mkdir -p x/.git/e/objects x/.git/e/refs x/.git/e/worktrees/w wt; cd x/.git/e;
            echo "ref: refs/heads/m" > HEAD; EVIL > config; cd worktrees/w; echo "ref: refs/heads/m" > HEAD; echo ../.. > commondir;
            echo $top/wt/.git > gitdir; echo "gitdir: $top/x/.git/e/worktrees/w" > $top/wt/.git"#],
        then: "cd wt && git status",
    }
    .never_runs();
}

#[test]
fn config_worktree_runs_nothing() {
    Plant {
        before: "true",
        commands: &[
            "git init -q own; cd own; echo x > f; git add f; COMMIT; git worktree add -q ../w;
            git config extensions.worktreeConfig true; EVIL > .git/worktrees/w/config.worktree",
        ],
        then: "cd w && git status",
    }
    .never_runs();
}

/// Promise: git-runs-nothing
#[test]
fn config_behind_more_repositories_than_fds_runs_nothing() {
    let line = "mkdir -p $(seq -f r%g/.git 1 1100); git init -q own; EVIL >> own/.git/config";
    Plant { before: "true", commands: &[line], then: "cd own && git status" }
        .never_runs_after(|project, line| with_few_descriptors(project, &["-c", line]));
}

#[test]
fn hook_in_an_unreadable_directory_runs_nothing() {
    for end in ["chmod 311 .git/hooks", "chmod 111 .git/hooks", "chmod 311 .git"] {
        hook_never_runs_after(end);
    }
}

#[test]
fn config_in_an_unreadable_directory_runs_nothing() {
    let line = "git init -q own; cd own; EVIL >> .git/config; chmod 311 .git";
    Plant { before: "true", commands: &[line], then: "cd own && git status" }.never_runs();
}

#[test]
fn config_worktree_in_an_unreadable_directory_runs_nothing() {
    let line =
        "git init -q own; cd own; echo x > f; git add f; COMMIT; git worktree add -q ../w; git config extensions.worktreeConfig true;
        EVIL > .git/worktrees/w/config.worktree; chmod 311 .git/worktrees";
    Plant { before: "true", commands: &[line], then: "cd w && git status" }.never_runs();
}

#[test]
fn commondir_of_a_bare_project_runs_nothing() {
    Plant {
        before: "git init -q --bare .",
        commands: &[
            r#"ELSEWHERE; printf "[alias]\nx = !touch ~/RAN\n" >> ev/config; echo ev > commondir"#,
        ],
        then: "git x",
    }
    .never_runs();
}

#[test]
fn absent_files_of_a_nested_bare_repository_cannot_be_planted() {
    let before =
        "git init -q; git init -q --bare fix/r.git; rm -rf fix/r.git/hooks; git add README; COMMIT";
    let common = r#"ELSEWHERE; printf "[alias]\nx = !touch ~/RAN\n" >> ev/config; echo ../../ev > fix/r.git/commondir"#;
    Plant { before, commands: &[common], then: "cd fix/r.git && git x" }.never_runs();
    let hook = "mkdir fix/r.git/hooks; HOOK > fix/r.git/hooks/pre-receive; chmod +x fix/r.git/hooks/pre-receive";
    Plant { before, commands: &[hook], then: "git push -q fix/r.git HEAD:main" }.never_runs();
}

#[test]
fn absent_files_of_a_separate_git_directory_cannot_be_planted() {
    let before = "git init -q --separate-git-dir=store; rm -rf store/hooks; git add README; COMMIT";
    Plant { before, commands: &["ELSEWHERE; echo ../ev > store/commondir"], then: "git status" }
        .never_runs();
    let hook =
        "mkdir store/hooks; HOOK > store/hooks/post-checkout; chmod +x store/hooks/post-checkout";
    Plant { before, commands: &[hook], then: "git checkout -q -b other" }.never_runs();
}

#[test]
fn symlink_among_the_worktrees_of_git_runs_nothing() {
    let lead = |plant: &str| {
        let commands = &[plant];
        Plant {
            before: "git init -q .; git add -A; COMMIT; mkdir -p .git/info",
            commands,
            then: "echo '* filter=evil' > /dev/null; git -C sub status; git status",
        }
        .never_runs();
    };
    let store = "mkdir -p .git/a/objects .git/a/refs .git/a/b/w; EVIL > .git/a/config; echo 'ref: refs/heads/x' > .git/a/b/w/HEAD; \
        echo ../.. > .git/a/b/w/commondir; mkdir -p sub .git/worktrees; echo $PWD/sub/.git > .git/a/b/w/gitdir; \
        echo gitdir: $PWD/.git/worktrees/w > sub/.git;";
    lead(&format!("{store} ln -s ../a/b/w .git/worktrees/w"));
    lead(&format!("{store} ln -s ../a/b/w w; mv w .git/worktrees/w"));
    lead(&format!("{store} ln -s ../a/b/w w; ln -P w .git/worktrees/w"));
}

#[test]
fn symlinks_cannot_be_made_in_the_git_directory() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q .; mkdir -p .git/worktrees .git/info; ln -s ../x there").ok();
        for line in [
            "ln -s ../x .git/worktrees/w",
            "rm -rf .git/info; ln -s ../e .git/info",
            "mv there .git/worktrees/w",
            "ln -P there .git/worktrees/w",
        ] {
            let ran = project.sh(line);
            assert!(
                ran.stderr_text().contains("Permission denied"),
                "{line}: {}",
                ran.stderr_text()
            );
        }
        assert_eq!(project.sh_bare("find .git -type l").ok(), "");
    });
}

#[test]
fn repository_without_search_permission_runs_nothing() {
    let undo = "chmod 755 .git nested 2>/dev/null; ";
    for (shut, plant, then) in [
        ("chmod 600 .git", "chmod 755 .git; EVIL >> .git/config", "git status"),
        (
            "chmod 600 nested",
            "chmod 755 nested; EVIL >> nested/.git/config",
            "cd nested && git status",
        ),
    ] {
        let then = format!("{undo}{then}");
        Plant { before: "git init -q; git init -q nested", commands: &[shut, plant], then: &then }
            .never_runs();
    }
}

#[test]
fn submodule_with_its_head_moved_away_runs_nothing() {
    let before = "git init -q ../lib; cd ../lib; echo l > l; git add l; COMMIT; cd - > /dev/null; git init -q; \
        git -c protocol.file.allow=always submodule --quiet add $PWD/../lib lib; COMMIT";
    let evil = "EVIL >> .git/modules/lib/config";
    let aside = "mv .git/modules/lib/HEAD .git/modules/lib/H2";
    let back = format!("{evil}; mv .git/modules/lib/H2 .git/modules/lib/HEAD");
    Plant { before, commands: &[aside, &back], then: "git status" }.never_runs();
    let shut = format!("chmod 755 .git/modules; {evil}");
    Plant {
        before,
        commands: &["chmod 000 .git/modules", &shut],
        then: "chmod 755 .git/modules; git status",
    }
    .never_runs();
}

#[test]
fn worktree_made_unreadable_runs_nothing() {
    Plant {
        before: "git init -q; git add README; COMMIT; git worktree add -q ../linked",
        commands: &["chmod 000 .git/worktrees", "chmod 755 .git/worktrees; ELSEWHERE; echo ../../../ev > .git/worktrees/linked/commondir"],
        then: "chmod 755 .git/worktrees; cd ../linked && git status",
    }
    .never_runs();
}

#[test]
fn programs_that_git_config_names_cannot_be_changed() {
    let commit = "git add -A; COMMIT";
    for (before, plant, then) in [
        (
            "git init -q; mkdir s; HOOK | sed s/RAN/x/ > s/h; chmod +x s/h; ln -s ../../s/h .git/hooks/pre-commit",
            "HOOK > s/h",
            commit,
        ),
        (
            "git init -q; echo > git.inc; git config include.path ../git.inc",
            "EVIL > git.inc",
            "git status",
        ),
        (
            "git init -q; printf 'false\n' > fm.sh; chmod +x fm.sh; git config core.fsmonitor ./fm.sh",
            "HOOK > fm.sh",
            "git status",
        ),
        (
            r#"git init -q; mkdir -p .husky/_; git config core.hooksPath .husky/_; printf '#!/bin/sh\nsh .husky/pre-commit\n' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit; echo true > .husky/pre-commit"#,
            "HOOK > .husky/pre-commit",
            commit,
        ),
    ] {
        Plant { before, commands: &[plant], then }.never_runs();
    }
}

#[test]
fn git_config_below_xdg_config_home_cannot_be_planted() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q; mkdir -p conf").ok();
        let config = project.root().join("conf");
        let line = spelled("mkdir -p conf/git; EVIL > conf/git/config");
        let binary = project.binary().to_string_lossy().into_owned();
        TestOutput::run(
            project
                .command(&binary)
                .env("XDG_CONFIG_HOME", &config)
                .args(["run", "--", "/bin/sh", "-c", &line]),
            b"",
        );
        assert!(!project.has("conf/git/config"));
    });
}
