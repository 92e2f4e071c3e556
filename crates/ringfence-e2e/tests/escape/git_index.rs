//! Index files that a command wrote: git on the host follows their paths without a check.

use ringfence_testkit::{each_user, needs};

use crate::planted::{Plant, spelled};
use crate::project;

const REPOSITORY: &str = "git init -q -b main; git add README; COMMIT";

/// A line that adds entries to the index, each as `path@object@mode`.
fn adds(entries: &str) -> String {
    const SCRIPT: &str = r#"import sys,struct,hashlib,subprocess,os
entries=[]
for e in subprocess.run(["git","ls-files","-s","-z"],capture_output=True).stdout.split(b"\0"):
    if e: m,p=e.split(b"\t",1); m,o,s=m.split(); entries.append((p,o.decode(),int(m,8)))
for a in sys.argv[1:]: p,o,m=a.rsplit("@",2); entries.append((p.encode(),o,int(m,8)))
b=b"DIRC"+struct.pack(">II",2,len(entries))
for p,o,m in sorted(entries):
    e=struct.pack(">10I",0,0,0,0,0,0,m,0,0,0)+bytes.fromhex(o)+struct.pack(">H",len(p))+p; b+=e+b"\0"*(8-len(e)%8)
open(".git/n","wb").write(b+hashlib.sha1(b).digest()); os.rename(".git/n",".git/index")"#;
    format!("python3 -c '{SCRIPT}' {entries}")
}

/// Promise: index-paths
#[test]
fn index_of_a_command_adds_no_hook() {
    let evil = format!(
        "printf '#!/bin/sh\\ntouch ~/RAN\\n' > h; o=$(git hash-object -w h); rm h; {}",
        adds(".git/hooks/post-checkout@$o@100755")
    );
    Plant {
        before: REPOSITORY,
        commands: &[&evil],
        then: "git restore .; git checkout -q -b other",
    }
    .never_runs();
    let own = format!("git clone -q . own; cd own; {evil}");
    Plant {
        before: REPOSITORY,
        commands: &[&own],
        then: "cd own; git restore .; git checkout -q -b other",
    }
    .never_runs();
    let worktree = format!(
        "git worktree add -q tree; cd tree; {}",
        evil.replace("\".git/", "\"../.git/worktrees/tree/")
    );
    let worktree = worktree.replace(".git/hooks/post-checkout", "../.git/hooks/post-checkout");
    Plant {
        before: REPOSITORY,
        commands: &[&worktree],
        then: "cd tree; git restore .; git checkout -q -b other",
    }
    .never_runs();
}

/// Promise: index-paths
#[test]
fn index_of_a_command_reaches_no_file_outside() {
    let writes = format!("o=$(git hash-object -w README); {}", adds("../outside@$o@100644"));
    Plant {
        before: REPOSITORY,
        commands: &[&writes],
        then: "git restore .; if test -e ../outside; then touch ~/RAN; fi",
    }
    .never_runs();
    let reads = format!("o=$(git hash-object -w README); {}", adds("../outside@$o@100644"));
    let then = "git commit -qam wip; if git ls-tree -r --name-only HEAD | grep -q outside; then touch ~/RAN; fi";
    Plant { before: &format!("{REPOSITORY}; echo secret > ../outside"), commands: &[&reads], then }
        .never_runs();
}

/// Promise: index-paths
#[test]
fn index_of_a_command_enters_no_repository_by_another_spelling() {
    let before = format!(
        "{REPOSITORY}; git init -q node_modules/foo; cd node_modules/foo; git commit -q --allow-empty -m x"
    );
    for path in ["./node_modules/foo", "node_modules/../node_modules/foo", "node_modules/./foo"] {
        let evil = format!(
            "o=$(git -C node_modules/foo rev-parse HEAD); EVIL >> node_modules/foo/.git/config; {}",
            adds(&format!("{path}@$o@160000"))
        );
        Plant { before: &before, commands: &[&evil], then: "git status" }.never_runs();
    }
    // Too long to be read to the end.
    let long = r#"python3 -c 'import struct,os
d=open(".git/index","rb").read()[:-20]; s=(1<<30)+4096
f=open(".git/n","wb"); f.write(d+b"ZZZZ"+struct.pack(">I",s)); f.truncate(len(d)+8+s+20); f.close(); os.rename(".git/n",".git/index")'"#;
    let evil = format!(
        "o=$(git -C node_modules/foo rev-parse HEAD); EVIL >> node_modules/foo/.git/config; {}; {long}",
        adds("node_modules/foo@$o@160000")
    );
    Plant { before: &before, commands: &[&evil], then: "git status" }
        .never_runs_after(ringfence_testkit::TestProject::sh);
}

/// Makes `tools/build.sh` run a program, and names that tree in the index in place of `tools`.
const FORGES_TREE: &str = r#"python3 -c 'import subprocess,hashlib,os
g=lambda *a,i=None: subprocess.run(["git",*a],input=i,capture_output=True).stdout.strip().decode()
b=g("hash-object","-w","--stdin",i=b"touch ~/RAN\n")
t=bytes.fromhex(g("mktree",i=b"100644 blob "+b.encode()+b"\tbuild.sh\n"))
g("write-tree"); p=g("rev-parse","--absolute-git-dir")+"/index"; old=bytes.fromhex(g("rev-parse","HEAD:tools"))
x=open(p,"rb").read()[:-20]; assert old in x; x=x.replace(old,t)
open(p+".n","wb").write(x+hashlib.sha1(x).digest()); os.rename(p+".n",p)'"#;

/// Files older than the index: git reads newer ones again, and then computes their trees.
const OLD: &str = "touch -d yesterday README tools/build.sh; git status -s";

const WITH_TOOLS: &str = "git init -q; mkdir tools; echo true > tools/build.sh; touch -d yesterday README tools/build.sh; git add README tools; COMMIT";

/// The user changes another file, commits, and comes back to the commit later.
const COMMITS: &str = "echo more >> README; COMMIT -a; git checkout -q --detach HEAD~1; git checkout -q -; sh tools/build.sh";

/// Promise: index-trees
#[test]
fn tree_named_by_an_index_is_not_committed() {
    let stash = "echo more >> README; git config user.name a; git config user.email b; git stash -q; if git show stash:tools/build.sh | grep -q RAN; then touch ~/RAN; fi";
    for then in [COMMITS, stash] {
        Plant { before: WITH_TOOLS, commands: &[FORGES_TREE], then }.never_runs();
    }
}

/// Promise: index-trees
#[test]
fn tree_named_by_a_split_index_is_not_committed() {
    let split = format!("{WITH_TOOLS}; git update-index --split-index; echo x > x; git add x");
    Plant { before: &split, commands: &[FORGES_TREE], then: COMMITS }.never_runs();
}

/// Promise: index-trees
#[test]
fn tree_named_by_an_index_of_a_worktree_is_not_committed() {
    check_part(&format!("{WITH_TOOLS}; git worktree add -q part"));
}

/// Promise: index-trees
#[test]
fn tree_named_by_an_index_of_a_submodule_is_not_committed() {
    let library = WITH_TOOLS.replace("git init -q", "git init -q; echo x > README");
    check_part(&format!(
        "git init -q; (mkdir ../lib; cd ../lib; {library}); git -c protocol.file.allow=always submodule --quiet add $PWD/../lib part; COMMIT"
    ));
}

/// Forges a tree in the index of the working tree `part`.
#[track_caller]
fn check_part(before: &str) {
    let own = format!("cd part; {OLD}; {FORGES_TREE}");
    let then = format!("cd part; {COMMITS}");
    Plant { before, commands: &[&own], then: &then }.never_runs();
}

/// Promise: index-trees
#[test]
fn index_with_a_foreign_tree_keeps_its_entries() {
    if !needs(&["git", "python3"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled(WITH_TOOLS)).ok();
        let ran = project.sh(&format!("echo new > staged; git add staged; {FORGES_TREE}"));
        assert!(ran.stderr_text().contains("names trees"), "{}", ran.stderr_text());
        let staged = project.sh_bare("ls .git | grep -c ringfence; git status --porcelain -uno");
        assert_eq!(staged.ok().trim(), "0\nA  staged", "as {user}");
    });
}

/// Promise: worktree-hooks
#[test]
fn replacement_of_a_users_object_is_moved_away() {
    let before = format!(
        "{REPOSITORY}; git branch other; mkdir hooks; printf '#!/bin/sh\\n' > hooks/x; git add hooks; COMMIT"
    );
    let then =
        "git switch -q other; git switch -q main; if grep -q RAN hooks/x; then touch ~/RAN; fi";
    for packed in ["true", "git pack-refs --all"] {
        let evil = format!(
            "echo 'touch ~/RAN' > h; e=$(git hash-object -w h); rm h; git replace $(git rev-parse HEAD:hooks/x) $e; {packed}"
        );
        Plant { before: &before, commands: &[&evil], then }.never_runs();
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare(&spelled(&format!("{before}; git replace HEAD HEAD~1"))).ok();
        project.sh("git branch -q more; git pack-refs --all").ok();
        assert_eq!(
            project.sh_bare("git replace -l | wc -l").ok(),
            "1",
            "the user's own stays, as {user}"
        );
    });
}

/// A relative `core.hooksPath` means another directory in each worktree.
///
/// Promise: worktree-hooks
#[test]
fn hooks_in_a_worktree_made_inside_do_not_run() {
    for (hooks, runs) in
        [(".githooks", ".githooks/post-index-change"), (".husky/_", ".husky/post-index-change")]
    {
        let shim = "printf '#!/bin/sh\\n. ./.husky/post-index-change\\n' > .husky/_/post-index-change; chmod +x .husky/_/*";
        let shim = if hooks.ends_with('_') { shim } else { "true" };
        let before = format!(
            "git init -q -b main; mkdir -p {hooks}; printf '#!/bin/sh\\n' > {runs}; chmod +x {runs}; {shim}; git add README {hooks} {runs}; COMMIT; git config core.hooksPath {hooks}"
        );
        let evil = format!(
            "git worktree add -q tree; printf '#!/bin/sh\\ntouch ~/RAN\\n' > tree/{runs}; chmod +x tree/{runs}"
        );
        Plant {
            before: &before,
            commands: &[&evil],
            then: "cd tree; touch -d yesterday README; git status",
        }
        .never_runs();
        each_user(|user| {
            let project = project(user);
            project.sh_bare(&spelled(&before)).ok();
            project.sh("git worktree add -q tree").ok();
            assert!(project.has(format!("tree/{runs}")), "hooks that are the same stay, as {user}");
        });
    }
}

/// Every kind of index that git writes.
///
/// Promise: index-paths
#[test]
fn indexes_that_git_writes_stay() {
    if !needs(&["git"]) {
        return;
    }
    let many =
        "mkdir d; (cd d; seq 1 300 | xargs touch); git add d; COMMIT; grep -c IEOT .git/index";
    for (before, line) in [
        ("git init -q", "git update-index --split-index; echo x > x; git add x"),
        ("git init -q", "git update-index --index-version 4; echo x > x; git add x"),
        ("git init -q --object-format=sha256", "echo x > x; git add x; git commit -qm x"),
        (
            "git init -q",
            "git add -N README; git rm -q --cached README; git add README; git update-index --assume-unchanged README",
        ),
        (
            "git init -q; git add README; COMMIT",
            "git update-index --split-index; echo x > x; git add x; COMMIT; echo y >> x; git add x",
        ),
        (
            "git init -q; mkdir d; touch d/x d/y e; git add .; COMMIT; git branch o; echo 1 > d/x; COMMIT -a; git switch -q o; echo 2 > d/x; COMMIT -a",
            "git -c user.name=a -c user.email=b merge -q @{-1} || git ls-files -u",
        ),
        ("git init -q; git config index.threads 4", many),
        ("git init -q; git config index.version 4; git config index.threads 4", many),
        (
            "git init -q; mkdir -p a/b c; touch a/b/x c/y; git add a c; COMMIT; git sparse-checkout init --cone --sparse-index; git sparse-checkout set c",
            "echo z > c/z; git add c/z; git status",
        ),
    ] {
        each_user(|user| {
            let project = project(user);
            project.sh_bare(&spelled(before)).ok();
            let ran = project.sh(&spelled(line));
            assert!(
                ran.status == 0 && !ran.stderr_text().contains("quarantine"),
                "`{line}` after `{before}` as {user}: {}",
                ran.stderr_text()
            );
            assert!(project.has(".git/index"), "`{line}` as {user}");
            assert!(!project.sh_bare("git ls-files -s").ok().is_empty(), "`{line}` as {user}");
        });
    }
}
