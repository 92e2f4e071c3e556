//! Files in a git directory that git on the host acts on by itself: autostashes, recorded
//! resolutions, and links in place of git's own files.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use ringfence_testkit::{
    PRELUDE, SECRET, TestProject, TestUser, becomes_true, each_user, needs, python,
};

use crate::planted::{Plant, spelled};
use crate::project;

/// A commit that git takes for an autostash, in `$w`: it adds one setting and changes another.
const STASH: &str = r#"export GIT_INDEX_FILE=$PWD/.other; b=$(git rev-parse HEAD); git read-tree HEAD; h=$(echo planted | git hash-object -w --stdin);
    git update-index --add --cacheinfo 100644,$h,.mcp.json --cacheinfo 100644,$h,.claude/settings.json; t=$(git write-tree);
    unset GIT_INDEX_FILE; rm .other;
    i=$(git commit-tree -p $b -m i HEAD^{tree}); w=$(git commit-tree -p $b -p $i -m w $t)"#;
const REPOSITORY: &str = "git init -q; git add README; COMMIT";
const COMMITS: &str =
    "echo z > z; git add z; COMMIT; if grep -qs planted .mcp.json; then touch ~/RAN; fi";
const CONTINUES: &str =
    "GIT_EDITOR=true git rebase --continue; if grep -qs planted .mcp.json; then touch ~/RAN; fi";
/// An interactive rebase that has nothing left to do, in the git directory `$g`.
const REBASE: &str = r#"h=$(git rev-parse HEAD); m=$g/rebase-merge; mkdir -p $m; echo refs/heads/main > $m/head-name; echo $h > $m/onto;
    echo $h > $m/orig-head; : > $m/interactive; : > $m/done; : > $m/git-rebase-todo; echo 0 > $m/end; echo 0 > $m/msgnum"#;

/// Promise: autostash
#[test]
fn autostash_of_a_command_adds_no_git_settings() {
    let merge = format!("{STASH}; echo $w > .git/MERGE_AUTOSTASH");
    Plant { before: REPOSITORY, commands: &[&merge], then: COMMITS }.never_runs();
    let rebase = format!("{STASH}; g=.git; {REBASE}; echo $w > $m/autostash");
    Plant { before: REPOSITORY, commands: &[&rebase], then: CONTINUES }.never_runs();
}

/// The same in a worktree and in a repository that the command made.
#[test]
fn autostash_in_other_git_directories_adds_no_git_settings() {
    let made = format!(
        "git worktree add -q new -b new; cd new; {STASH}; echo $w > ../.git/worktrees/new/MERGE_AUTOSTASH"
    );
    Plant { before: REPOSITORY, commands: &[&made], then: &format!("cd new; {COMMITS}") }
        .never_runs();
    let own = format!("git clone -q . own; cd own; {STASH}; echo $w > .git/MERGE_AUTOSTASH");
    Plant { before: REPOSITORY, commands: &[&own], then: &format!("cd own; {COMMITS}") }
        .never_runs();
}

/// Git takes a ref without a file of its own from the packed ones.
#[test]
fn autostash_in_packed_refs_adds_no_git_settings() {
    let packed = "git pack-refs --all; p=.git/packed-refs; { head -n 1 $p; echo $w MERGE_AUTOSTASH; tail -n +2 $p; } > q; mv q $p";
    let mine = format!("{STASH}; {packed}");
    Plant { before: REPOSITORY, commands: &[&mine], then: COMMITS }.never_runs();
    let own = format!("git clone -q . own; cd own; {STASH}; {packed}");
    Plant { before: REPOSITORY, commands: &[&own], then: &format!("cd own; {COMMITS}") }
        .never_runs();
}

/// The same while the command runs, and refs that git packs itself.
#[test]
fn packed_refs_stay_plain_while_a_command_runs() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(&spelled(&format!(
                "{REPOSITORY}; git pack-refs --all; cp .git/packed-refs before"
            )))
            .ok();
        let line = r#"p=.git/packed-refs; echo $(git rev-parse HEAD) MERGE_AUTOSTASH > q; chmod 600 $p;
            mv -f q $p; cat q >> $p; cp q $p; ln $p alias && cat q >> alias; (cd .git; cat ../q >> packed-refs; mv -f ../q packed-refs);
            python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b".git/packed-refs", -100, b"q", 2)'; cmp before $p && echo same"#;
        assert!(project.sh(line).text().contains("same"), "{user}");
        project.sh("git tag -a -m t t && git branch x && git pack-refs --all && git gc -q && git branch -d -q x && git for-each-ref").ok();
        let refs = project.sh_bare("git for-each-ref --format='%(refname)'; ls .git/refs/heads .git | grep -i ringfence; git fsck").ok();
        assert_eq!(refs, "refs/heads/main\nrefs/tags/t", "{user}");
        // A file that the command still has open is a different one.
        let line = "git branch y; exec 7<> f; cat .git/packed-refs > f; mv f .git/packed-refs; echo $(git rev-parse HEAD) MERGE_AUTOSTASH >&7; cat .git/packed-refs";
        assert!(!project.sh(line).text().contains("MERGE_AUTOSTASH"), "{user}");
    });
}

/// Ways to make the host read a different commit than the autostash names.
///
/// Promise: autostash
#[test]
fn replaced_autostash_adds_no_git_settings() {
    let plain = r#"p=$(git commit-tree -p $b -p $i -m p HEAD^{tree})"#;
    for replaced in [
        "git replace $p $w",
        "git replace $p $w; git pack-refs --all",
        // Untracked files of a stash are in a third parent.
        "e=$(git mktree </dev/null); u=$(git commit-tree -m u $t); p=$(git commit-tree -p $b -p $i -p $u -m p HEAD^{tree})",
    ] {
        let evil = format!(
            "git clone -q . own; cd own; {STASH}; {plain}; {replaced}; g=.git; {REBASE}; echo $p > $m/autostash"
        );
        Plant { before: REPOSITORY, commands: &[&evil], then: &format!("cd own; {CONTINUES}") }
            .never_runs();
    }
}

/// Git on the host acts on these at the next commit, also while the command still runs.
///
/// Promise: autostash
#[test]
fn rerere_and_autostash_files_cannot_be_made_in_the_users_repository() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(&spelled(&format!(
                "{REPOSITORY}; git worktree add -q wt -b wt; git init -q --bare bare.git"
            )))
            .ok();
        let line = r#"for d in .git .git/worktrees/wt bare.git; do for n in MERGE_RR MERGE_AUTOSTASH; do echo x > x;
            echo x > $d/$n; (cd $d && echo x > $n); mv x $d/$n; echo x > x; ln x $d/$n; cp x $d/$n; ln -s x $d/$n; mkdir $d/$n;
            (cd $d && touch y && mv y ./$n; touch z && ln z $n); test -e $d/$n && echo made $d/$n; done; done; rm -f x; true"#;
        let ran = project.sh(line);
        assert!(!ran.text().contains("made "), "{user}: {}", ran.text());
        project.sh_bare("echo old > .git/MERGE_RR").ok();
        let ran = project.sh("echo new > .git/MERGE_RR; cd .git; echo new >> MERGE_RR; truncate -s 1 MERGE_RR; cat MERGE_RR");
        assert_eq!(ran.text().trim(), "old", "{user}");
    });
}

/// Links and other files that lead git on the host out of a repository of the command's own.
///
/// Promise: repository-links
#[test]
fn links_in_a_repository_made_inside_do_not_mislead_git() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let far = project.home().join("far");
        project.write_at(&far.join("file"), "precious");
        project.sh_bare("git init -q ~/other; cd ~/other; git commit -q --allow-empty -m x; git repack -qad").ok();
        let plant = r#"git init -q own; cd own; echo x > f; git add f; git commit -qm x;
            git worktree add -q ../w; git init -q --bare .git/modules/sub; cd .git; rm -rf objects/pack logs/HEAD COMMIT_EDITMSG;
            for n in COMMIT_EDITMSG logs/HEAD ORIG_HEAD refs/heads/x modules/sub/packed-refs worktrees/w/COMMIT_EDITMSG; do ln -sf ~/far/file $n; done;
            ln -s ~/other/.git/objects/pack objects/pack; mkfifo gc.log refs/heads/pipe"#;
        project.sh(plant);
        let left = project.sh_bare("find own/.git -type l -o -type p").text();
        assert_eq!(left, "", "{user}: links are left");
        let amended = project.sh_bare("cd own && git commit -q --amend -m y && git gc -q --prune=now && git log --format=%s && cat f").ok();
        assert_eq!(amended, "y\nx", "{user}: the repository does not work");
        assert_eq!(
            project.sh_bare("cat ~/far/file; git -C ~/other log --format=%s").ok(),
            "preciousx",
            "{user}"
        );
        // A file that a later run puts there is removed as well.
        project.sh("git init -q again && cd again && git commit -q --allow-empty -m x");
        project.sh(
            "ln -sf ~/far/file again/.git/COMMIT_EDITMSG; ln -s ~/far again/.git/objects/info/x",
        );
        assert_eq!(
            project.sh_bare("find again/.git -type l").text(),
            "",
            "{user}: links of a later run are left"
        );
    });
}

/// If a guarded directory were removed, a directory of the command could get its inode.
#[test]
fn guarded_git_directory_cannot_be_removed() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh_bare(&spelled(&format!(
                "{REPOSITORY}; mkdir -p .git/modules; git init -q --bare bare.git; rm -rf .git/info/* bare.git/info/*"
            )))
            .ok();
        let ways = "rmdir D; rm -rf D; (cd D/.. && rmdir $(basename D)); python3 -c 'import os; os.rmdir(\"D\")'";
        for directory in [".git/info", ".git/modules", "bare.git/info"] {
            let ran = project.sh(&ways.replace('D', directory));
            assert!(
                project.has(directory),
                "{user}: {directory} was removed\n{}",
                ran.stderr_text()
            );
        }
        project.sh("mkdir -p a/b .git/own && rmdir a/b && rm -r a && rmdir .git/own && test ! -e a && test ! -e .git/own").ok();
    });
}

/// Makes a git directory with the inode that `.git/info` had, once the host has removed that, and
/// leaves a rebase there that runs a program.
const TAKES_INODE: &str = r#"
import time
wanted = os.stat('.git/info').st_ino
print('ready', flush=True)
while os.path.exists('.git/info'): time.sleep(0.01)
for n in range(1500):
    os.makedirs(f'many/{n}/.git')
    if os.stat(f'many/{n}/.git').st_ino == wanted: break
os.rename(f'many/{n}', 'own')
for name in ['objects', 'refs', 'rebase-merge']: os.mkdir(f'own/.git/{name}')
open('own/.git/HEAD', 'w').write('ref: refs/heads/m\n')
open('own/.git/rebase-merge/git-rebase-todo', 'w').write('exec touch ~/RAN\n')
"#;

/// Promise: repository-links
#[test]
fn repository_with_the_inode_of_a_guarded_directory_is_swept() {
    let Some(python) = python().filter(|_| needs(&["git"])) else { return };
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled(REPOSITORY)).ok();
        let mut command = project.ringfence();
        command
            .args(["run", "--", python, "-Bc", &format!("{PRELUDE}\n{TAKES_INODE}")])
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("ringfence starts");
        BufReader::new(child.stdout.take().expect("piped just above"))
            .read_line(&mut String::new())
            .expect("it says something");
        project.sh_bare("rm -r .git/info").ok();
        assert!(
            becomes_true(Duration::from_secs(60), || !matches!(child.try_wait(), Ok(None))),
            "{user}: it does not end"
        );
        let todo =
            project.read("own/.git/rebase-merge/git-rebase-todo").expect("a rebase is there");
        assert!(!todo.contains("exec"), "{user}: it was not swept");
    });
}

/// A recorded resolution of the user that names a file which a command replaces by a link.
///
/// Promise: autostash
#[test]
fn rerere_of_a_linked_worktree_does_not_follow_a_link() {
    let id = "0123456789012345678901234567890123456789";
    let before = format!(
        r#"{REPOSITORY}; git worktree add -q wt -b wt; mkdir -p .git/rr-cache/{id}; echo x > .git/rr-cache/{id}/preimage;
        echo f > wt/f; printf "{id}\tf\0" > .git/worktrees/wt/MERGE_RR"#
    );
    let then = format!(
        "cd wt; echo z > z; git add z; COMMIT; if grep -rqs {} ../.git/rr-cache; then touch ~/RAN; fi",
        SECRET
    );
    Plant { before: &before, commands: &["ln -sf ~/.ssh/id_rsa wt/f"], then: &then }.never_runs();
}

/// Conflicts can be resolved inside while the user has `rerere` enabled.
#[test]
fn conflicts_are_resolved_inside_with_rerere_enabled() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = conflict(user);
        project.sh_bare("git config rerere.enabled true").ok();
        let merged = project.sh("git merge side");
        assert!(
            merged.status == 1 && merged.text().contains("Automatic merge failed"),
            "{user}: {}",
            merged.stderr_text()
        );
        assert!(!merged.stderr_text().contains("was moved"), "{user}: {}", merged.stderr_text());
        project.sh("echo both > f && git add f && git commit -qm merged").ok();
        project.sh("git reset -q --hard HEAD~1; git checkout -q side; ! git rebase -q main").ok();
        project.sh("echo both > f && git add f && GIT_EDITOR=true git rebase --continue && git log --format=%s").ok();
        assert_eq!(
            project.sh_bare("git status --short; git log --format=%s").ok(),
            "side\nmain\nfirst",
            "{user}"
        );
    });
}

/// A repository whose branches `main` and `side` change the same line of `f`.
fn conflict(user: TestUser) -> TestProject {
    let project = project(user);
    project.write(".gitignore", "*\n!f\n!g\n");
    let line = "git init -q && echo 1 > f && echo g > g && git add f g && git commit -qm first && git checkout -qb side && echo s > f && git commit -qam side && git checkout -q main && echo m > f && git commit -qam main";
    project.sh_bare(line).ok();
    project
}

/// An autostash that git made returns to the working tree, also if the user ends the rebase.
#[test]
fn autostash_made_by_git_is_applied_inside_and_outside() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = conflict(user);
        project.sh("echo mine >> g && git rebase -q --autostash HEAD~1 && tail -n 1 g | grep mine && git checkout -q g").ok();
        let ran = project.sh("echo mine >> g; git checkout -q side; git rebase --autostash main");
        assert!(
            ran.status != 0 && !ran.stderr_text().contains("was moved"),
            "{user}: {}",
            ran.stderr_text()
        );
        assert!(project.has(".git/rebase-merge/autostash"), "{user}: there is no autostash");
        project.sh("git status >/dev/null").ok();
        let ended = project
            .sh_bare(
                "echo both > f && git add f && GIT_EDITOR=true git rebase --continue 2>&1 && cat g",
            )
            .ok();
        assert!(ended.contains("Applied autostash") && ended.ends_with("mine"), "{user}: {ended}");
    });
}
