//! The sweep after a command cannot be misled, blocked, or turned against files of the user.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{
    PRELUDE, TestOutput, TestProject, TestUser, becomes_true, each_user, python, signal, skip,
};

use crate::next_run::ends_soon;
use crate::planted::{Plant, spelled, with_few_descriptors};
use crate::project;

/// Repositories that keep the sweep busy until the sandbox is gone.
const FILLER: &str = "head -c 900000 /dev/zero | tr '\\0' '#' > big; for i in $(seq 60); do mkdir -p f$i/.git; cp big f$i/.git/config; done";

fn mode(project: &TestProject, name: &str) -> u32 {
    std::fs::metadata(project.at(name)).expect("it is there").permissions().mode() & 0o7777
}

/// All paths in the quarantine, one a line.
fn quarantine(project: &TestProject) -> String {
    project
        .sh_bare("chmod -R u+rwX ~/.cache/ringfence; find ~/.cache/ringfence -path '*quarantine/*'")
        .text()
}

/// Promise: sweep-scope
#[test]
fn sweep_does_not_follow_a_link_out_of_the_project() {
    each_user(|user| {
        let project = project(user);
        let victim = project.home().join("code/victim");
        project.write_at(&victim.join("inner/file"), "precious");
        let line = format!(
            "{FILLER}; mkdir -p a/.git/hooks/inner/x; mv a b; mkdir -p a/.git; ln -s {} a/.git/hooks",
            victim.display()
        );
        project.sh(&line);
        assert!(
            victim.join("inner/file").exists(),
            "the sweep removed a directory outside of the project"
        );
        assert!(!project.has("b/.git/hooks/inner"), "nothing was swept");
        assert!(!project.has("a/.git/hooks"), "the link was left");
    });
}

/// Promise: sweep-scope
#[test]
fn repository_outside_keeps_its_hooks() {
    each_user(|user| {
        let project = project(user);
        let hook = "HOOK > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout";
        // A worktree of another repository, whose pointer was lost.
        project
            .sh_bare(&spelled(&format!(
                "git init -q ../far; cd ../far; echo x > f; git add f; COMMIT; git worktree add -q ../app/wt; {hook}; mv ../app/wt/.git ../pointer"
            )))
            .ok();
        project.sh(&format!(
            "echo gitdir: {} > wt/.git",
            project.home().join("code/far/.git/worktrees/wt").display()
        ));
        assert!(project.has("../far/.git/hooks/post-checkout"));
        assert!(!project.has("wt/.git"), "the pointer leads out of what the command could write");
    });
}

/// Promise: sweep-scope
#[test]
fn repository_of_the_user_keeps_its_hooks() {
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(&spelled("git init -q --bare fix/r.git; HOOK > fix/r.git/hooks/pre-receive"))
            .ok();
        project.sh("git -C fix/r.git symbolic-ref HEAD refs/heads/other").ok();
        assert!(project.has("fix/r.git/hooks/pre-receive"));
        // The same hook in a repository that the command made is gone.
        project.sh(&spelled("git init -q --bare own.git; HOOK > own.git/hooks/pre-receive"));
        assert!(!project.has("own.git/hooks/pre-receive"));
    });
}

/// Promise: sweep-scope
#[test]
fn sweep_keeps_directory_modes() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("chmod 700 .").ok();
        project.sh("ln -s nowhere .git");
        assert!(!project.has(".git"), "nothing was swept");
        assert_eq!(mode(&project, "."), 0o700);
        for shut in [0o311, 0o500, 0o600, 0o000] {
            let line = format!(
                "mkdir -p own/.git/hooks; touch own/.git/hooks/x; chmod {shut:o} own/.git/hooks own/.git own"
            );
            project.sh(&line);
            let modes = project.sh_bare("stat -c %a own; chmod 700 own; stat -c %a own/.git; chmod 700 own/.git; stat -c %a own/.git/hooks; chmod 700 own/.git/hooks").ok();
            assert_eq!(modes, format!("{shut:o}\n{shut:o}\n{shut:o}"));
            assert!(!project.has("own/.git/hooks/x"), "{shut:o}: nothing was swept");
            project.sh_bare("rm -r own").ok();
        }
    });
}

// Pointers and links.

/// A repository within the project's own, and the directory `own` of a worktree of it.
fn hidden(own: &str, link: &str, pointer: &str) -> String {
    format!(
        r#"top=$PWD; mkdir -p sub .git/worktrees .git/a/objects .git/a/refs {own}; EVIL > .git/a/config;
        echo "ref: refs/heads/m" > {own}/HEAD; echo ../.. > {own}/commondir; echo $top/sub/.git > {own}/gitdir; {link};
        echo "gitdir: {pointer}" > sub/.git"#
    )
}

/// Promise: git-runs-nothing
#[test]
fn config_behind_a_link_among_the_worktrees_runs_nothing() {
    let before = "git init -q; git add README; COMMIT";
    for (own, link, pointer) in [
        (".git/a/b/w", "ln -s ../a/b/w .git/worktrees/w", "$top/.git/worktrees/w"),
        (".git/a/b/w", "ln -s ../a/b/w .git/worktrees/w", "../.git/worktrees/w"),
        (".git/a/b/w", "rmdir .git/worktrees; ln -s a/b .git/worktrees", "$top/.git/worktrees/w"),
        (".git/a/b/w", "ln -s ../a/b/w .git/worktrees/w", "$top/.git/a/b/w"),
        (".git/a/worktrees/w", "true", "$top/.git/a/worktrees/w"),
        (".git/a/worktrees/w", "ln -s .git/a e", "$top/e/worktrees/w"),
    ] {
        Plant { before, commands: &[&hidden(own, link, pointer)], then: "cd sub && git status" }
            .never_runs();
    }
}

#[test]
fn config_behind_a_link_in_an_own_repository_runs_nothing() {
    let line = r#"top=$PWD; git init -q own; mkdir -p sub ev/objects ev/refs ev/worktrees/w; EVIL > ev/config; cd ev/worktrees/w;
        echo "ref: refs/heads/m" > HEAD; echo ../.. > commondir; echo $top/sub/.git > gitdir; cd $top;
        ln -s ../../ev/worktrees own/.git/worktrees; echo "gitdir: $top/own/.git/worktrees/w" > sub/.git"#;
    Plant { before: "true", commands: &[line], then: "cd sub && git status" }.never_runs();
}

/// Promise: git-runs-nothing
#[test]
fn commondir_that_ends_in_a_space_runs_nothing() {
    // To git, `../.. ` is another directory than `../..`.
    let line = r#"top=$PWD; w=.git/worktrees/w; mkdir -p sub $w "$w/.. /objects" "$w/../.. /refs" "$w/../.. /objects"; EVIL > "$w/../.. /config";
        echo "ref: refs/heads/m" > $w/HEAD; printf "../.. \n" > $w/commondir; echo $top/sub/.git > $w/gitdir; echo "gitdir: $top/$w" > sub/.git"#;
    Plant {
        before: "git init -q; git add README; COMMIT",
        commands: &[line],
        then: "cd sub && git status",
    }
    .never_runs();
}

#[test]
fn gitdir_pointer_through_a_later_link_runs_nothing() {
    // The first command makes a valid worktree; the target of the later link has no config yet.
    let good = r#"top=$PWD; w=r/worktrees/w; mkdir -p sub x e/f e/$w $w; echo "ref: refs/heads/m" | tee e/$w/HEAD > $w/HEAD;
        echo ../.. > $w/commondir; echo $top/sub/.git > $w/gitdir; echo "gitdir: $top/x/../r/worktrees/w" > sub/.git"#;
    let evil = "mkdir e/r/objects e/r/refs; EVIL > e/r/config; echo ../.. > e/r/worktrees/w/commondir; rm -r x; ln -s e/f x";
    Plant {
        before: "git init -q; git init -q --bare r",
        commands: &[good, evil],
        then: "cd sub && git status",
    }
    .never_runs();
}

#[test]
fn config_next_to_a_commondir_runs_nothing() {
    let line = r#"git init -q own; cd own; echo x > f; git add f; COMMIT; git worktree add -q ../w; cd .git/worktrees/w;
        mkdir objects refs; printf "[alias]\nx = !touch ~/RAN\n" > config; echo ../../ > commondir"#;
    Plant {
        before: "true",
        commands: &[line],
        then: "cd own/.git/worktrees/w; rm -f commondir; git x",
    }
    .never_runs();
}

// Attempts to block the sweep.

/// Promise: git-runs-nothing
#[test]
fn pipes_devices_and_huge_files_do_not_block_the_sweep() {
    for name in ["commondir", "gitdir", "HEAD", "config.worktree"] {
        for plant in ["mkfifo F", "ln -s /dev/zero F", "truncate -s 9G F"] {
            let plant = plant.replace('F', &format!(".git/worktrees/w/{name}"));
            let line = format!(
                r#"mkdir -p sub .git/worktrees/w; cd .git/worktrees/w; echo "ref: refs/heads/m" > HEAD; echo ../.. > commondir;
                echo $OLDPWD/sub/.git > gitdir; rm -f {name}; cd $OLDPWD; {plant}; echo "gitdir: $PWD/.git/worktrees/w" > sub/.git;
                git init -q evil; EVIL >> evil/.git/config"#
            );
            Plant { before: "git init -q", commands: &[&line], then: "cd evil && git status" }
                .never_runs_after(|project, line| {
                    let words = r#"ulimit -v 4000000; exec "$0" run -c "$1""#;
                    ends_soon(
                        project
                            .command("/bin/sh")
                            .args(["-c", words])
                            .arg(project.binary())
                            .arg(line),
                    )
                });
        }
    }
}

/// Promise: git-runs-nothing
#[test]
fn sigterm_does_not_stop_the_sweep() {
    each_user(|user| {
        let project = project(user);
        let line = spelled(&format!(
            "{}; git init -q evil; EVIL >> evil/.git/config; echo ended; exec >&-",
            FILLER.replace("60", "200")
        ));
        let mut child = project
            .ringfence()
            .args(["run", "-c", &line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ringfence starts");
        let output = child.stdout.take().expect("piped just above");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut String::new())
            .expect("it says something");
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            if matches!(child.try_wait(), Ok(None)) {
                signal(child.id(), 15);
            }
        }
        assert!(
            becomes_true(Duration::from_secs(20), || !matches!(child.try_wait(), Ok(None))),
            "it does not end"
        );
        assert!(
            !project.read("evil/.git/config").unwrap_or_default().contains("fsmonitor"),
            "not all of it was swept"
        );
    });
}

/// Nested submodules, each a repository, deeper than the fd limit.
const NESTED: &str = r#"
os.makedirs('own/.git'); os.chdir('own/.git')
for i in range(350):
    os.makedirs('objects'); os.mkdir('refs'); open('HEAD', 'w').write('ref: refs/heads/m\n')
    open('config', 'w').write('[core]\nfsmonitor = evil\n')
    os.makedirs('modules/m'); os.chdir('modules/m')
"#;

#[test]
fn configs_deeper_than_the_fd_limit_are_swept() {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        let count = "grep -rl fsmonitor own | wc -l";
        let code = format!("{PRELUDE}\n{NESTED}");
        with_few_descriptors(&project, &["--", python, "-Bc", &code]).ok();
        assert_eq!(project.sh_bare(count).ok(), "0");
        project.sh_bare("rm -r own").ok();
        project.python_bare(NESTED).ok();
        assert_eq!(project.sh_bare(count).ok(), "350", "the probe cannot succeed");
    });
}

/// Promise: git-runs-nothing
#[test]
fn bare_repository_around_a_secret_runs_nothing_after_a_kill() {
    // A denied file in it shows that the directory existed before the command.
    let line = r#"cd sub; mkdir objects refs; printf "[alias]\nx = !touch ~/RAN\n" > config; echo "ref: refs/heads/m" > HEAD"#;
    Plant { before: "true", commands: &[line], then: "cd sub && git x" }.never_runs();
    let line = format!("{line}; kill -9 $PPID");
    Plant { before: "true", commands: &[&line], then: "cd sub && git x" }
        .never_runs_after(TestProject::sh);
    // A repository within a git directory.
    let line = r#"mkdir -p .git/a/objects .git/a/refs; cd .git/a; printf "[alias]\nx = !touch ~/RAN\n" > config; echo "ref: refs/heads/m" > HEAD;
        kill -9 $PPID"#;
    Plant { before: "git init -q", commands: &[line], then: "cd .git/a && git x" }
        .never_runs_after(TestProject::sh);
}

// The quarantine.

/// A cache on another file system than the project's; skips if there is none.
fn far_cache(project: &TestProject) -> Option<PathBuf> {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let shared = Path::new("/dev/shm");
    if device(shared).is_none() || device(shared) == device(&project.root()) {
        skip("/dev/shm is not on another file system than the tests");
        return None;
    }
    // Without `ringfence` in the name: another test counts such files in /dev/shm.
    let cache = shared.join(format!("far-cache-{}-{}", std::process::id(), project.user.ids().0));
    project.make_directories(&cache);
    Some(cache)
}

/// Promise: sweep-scope
#[test]
fn quarantine_on_another_file_system_keeps_everything() {
    each_user(|user| {
        let project = project(user);
        let Some(cache) = far_cache(&project) else { return };
        let line = "mkdir -p own/.git/hooks/d/e; cd own/.git/hooks; echo deep > d/e/f; ln -s nowhere d/link; head -c 3000000 /dev/zero > large";
        TestOutput::run(
            project.ringfence().env("XDG_CACHE_HOME", &cache).args(["run", "-c", line]),
            b"",
        );
        let kept = project.sh_bare(&format!(
            "cd {0}; chmod -R u+rwX .; cat $(find . -name f); find . -name link; find . -size +2M",
            cache.display()
        ));
        let _ = std::fs::remove_dir_all(&cache);
        assert!(
            !project.has("own/.git/hooks/d") && !project.has("own/.git/hooks/large"),
            "nothing was swept"
        );
        let text = kept.text();
        assert!(
            text.starts_with("deep") && text.contains("/link") && text.contains("large"),
            "{text}"
        );
    });
}

/// A directory among the hooks that is deeper than `PATH_MAX`.
const ABYSS: &str = r#"
os.makedirs('own/.git/hooks'); os.chdir('own/.git/hooks')
for i in range(3000): os.mkdir('dddd'); os.chdir('dddd')
open('f', 'w').write('x')
"#;

#[test]
fn tree_deeper_than_any_path_is_moved_away() {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        let Some(cache) = far_cache(&project) else { return };
        let code = format!("{PRELUDE}\n{ABYSS}");
        let line = r#"ulimit -n 1024; exec "$0" run -- "$@""#;
        let mut shell = project.command("/bin/sh");
        let ran = TestOutput::run(
            shell
                .env("XDG_CACHE_HOME", &cache)
                .args(["-c", line])
                .arg(project.binary())
                .args([python, "-Bc", &code]),
            b"",
        );
        let is_there = project.has("own/.git/hooks/dddd");
        let _ = Command::new("rm").args(["-rf", "--"]).arg(project.at("own")).arg(&cache).status();
        assert!(!is_there, "{}", ran.stderr_text());
    });
}

/// Promise: sweep-scope
#[test]
fn repository_in_the_quarantine_is_inert() {
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p x/.git/hooks; cd x/.git/hooks; git init -q d; git init -q --bare e";
        project.sh(line);
        let kept = project.sh_bare("find ~/.cache/ringfence -name .git -o -name HEAD");
        if user == TestUser::User {
            assert_eq!(kept.text(), "", "git would obey it there");
        }
        let listed = quarantine(&project);
        assert!(listed.contains("d/.git/HEAD"), "nothing was kept: {listed}");
    });
}

#[test]
fn control_characters_in_names_are_not_printed() {
    each_user(|user| {
        let project = project(user);
        let ran =
            project.sh("mkdir -p own/.git/hooks; touch \"own/.git/hooks/$(printf 'a\\033[2Jb')\"");
        assert!(ran.stderr_text().contains("own/.git/hooks/a"), "{}", ran.stderr_text());
        assert!(!ran.stderr_text().contains('\u{1b}'));
    });
}

/// A pointer to a repository whose config runs a program.
const EVIL: &str = "mkdir -p ev/objects ev/refs; echo ref: refs/heads/m > ev/HEAD; printf '[core]\\n\\tfsmonitor = touch %s/hit\\n' $PWD > ev/config";

#[test]
fn empty_git_marker_stays_and_no_later_run_makes_a_pointer_of_it() {
    each_user(|user| {
        let project = project(user);
        let made = project.sh("mkdir mark ~/.cache/uv && : > mark/.git && : > ~/.cache/uv/.git");
        assert!(
            made.status == 0 && !made.stderr_text().contains("was moved"),
            "{user}: {}",
            made.stderr_text()
        );
        assert!(
            project.has("mark/.git") && quarantine(&project).is_empty(),
            "{user}: the marker of uv is left where it is"
        );
        let ways = [
            "echo gitdir: $PWD/ev > mark/.git",
            "echo gitdir: $PWD/ev >> mark/.git",
            "echo gitdir: $PWD/ev > new && mv -f new mark/.git",
            "rm -f mark/.git; echo gitdir: $PWD/ev > mark/.git",
            "ln mark/.git other && echo gitdir: $PWD/ev > other",
            "mv mark moved && echo gitdir: $PWD/ev > moved/.git && mv moved mark",
            "python3 -c \"import os; os.truncate('mark/.git', 0); f = os.open('mark/.git', os.O_WRONLY); os.write(f, b'gitdir: ../ev')\"",
        ];
        for way in ways {
            project.sh(&format!("{EVIL}; {way}"));
            let content = project.read("mark/.git").unwrap_or_default();
            assert_eq!(content, "", "{user}: {way}");
            project.sh_bare("git -C mark status; git -C mark/. status");
            assert!(!project.has("hit"), "{user}: {way}");
        }
    });
}

#[test]
fn empty_git_marker_with_a_second_name_is_moved_away() {
    each_user(|user| {
        let project = project(user);
        project.sh("mkdir mark && : > other && ln other mark/.git").ok();
        assert!(!project.has("mark/.git"), "{user}");
    });
}
