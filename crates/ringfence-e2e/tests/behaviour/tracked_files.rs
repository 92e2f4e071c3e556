//! Git works as bare with committed files whose names a built-in pattern denies.

use std::time::Duration;

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, becomes_true, each_user, needs,
};

use crate::project;
use crate::sessions::TestSession;

/// Files with denied names, as teams commit them.
const FILES: [(&str, &str); 6] = [
    ("certs/test.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n"),
    ("k8s/secret.yaml", "kind: Secret\nvalue: 1\n"),
    ("k8s/secrets/db.yaml", "kind: Secret\nvalue: 2\n"),
    (".env.development", "PORT=3000\n"),
    ("config/credentials.json", "{\"client\": 1}\n"),
    ("keys/dev.key", "dev\n"),
];

/// A repository of such files with a branch `without` that lacks them and one `other` that differs.
fn committed(user: TestUser) -> TestProject {
    let project = project(user);
    for (name, content) in FILES {
        project.write(format!("repo/{name}"), content);
    }
    project.write("repo/readme", "one\n");
    project.write("repo/.gitignore", "/.env\n*.local\n");
    project.sh_bare("cd repo && git init -q -b main && git add -A && git commit -qm first").ok();
    project.sh_bare("cd repo && git checkout -qb without && git rm -rq certs k8s config keys .env.development && git commit -qm gone").ok();
    project
        .sh_bare(
            "cd repo && git checkout -q main && git checkout -qb other && for f in certs/test.pem k8s/secret.yaml k8s/secrets/db.yaml \
             .env.development config/credentials.json keys/dev.key; do echo more >> $f; done && echo new > keys/new.key && git add -A && \
             git commit -qm other && git checkout -q main",
        )
        .ok();
    project
}

/// Everyday git. Each line runs inside and bare, in equal repositories, and must print the same.
const LINES: [&str; 22] = [
    "git status --short",
    "git diff",
    "cat .env.development certs/test.pem k8s/secret.yaml k8s/secrets/db.yaml config/credentials.json keys/dev.key",
    "git checkout -q without && ls && git status --short",
    "git checkout -q main && git status --short && cat keys/dev.key",
    "git checkout -q other && git status --short && cat keys/new.key k8s/secrets/db.yaml",
    "git checkout -q main && git status --short && ls keys",
    "echo changed >> .env.development && echo changed >> k8s/secrets/db.yaml && git status --short && git diff",
    "git stash -q && git status --short && git stash pop -q && git status --short",
    "git commit -qam changed && git status --short && git show --stat --format=%s",
    "git merge -q -X ours -m merged other && git status --short && cat .env.development",
    "git reset -q --hard HEAD~1 && git status --short && cat .env.development",
    "git checkout -q -b topic HEAD~1 && echo two > readme && git commit -qam topic && git rebase -q main && git status --short",
    "git mv certs/test.pem certs/moved.pem && git mv keys secret-keys && git status --short && cat secret-keys/dev.key",
    "git commit -qm moved && git status --short && git reset -q --hard HEAD~1 && git status --short && ls keys certs",
    "git rm -q certs/test.pem && ls certs 2>/dev/null; git status --short; git reset -q --hard && git status --short",
    "git clone -q . ../cloned && git -C ../cloned status --short && cat ../cloned/keys/dev.key ../cloned/k8s/secrets/db.yaml",
    "git worktree add -q ../tree -b tree && git -C ../tree status --short && cat ../tree/.env.development",
    "git worktree remove ../tree && rm -rf ../cloned && git status --short",
    "sed -i s/3000/4000/ .env.development && cat .env.development && git diff --stat && git checkout -q .env.development && git diff",
    "rm certs/test.pem && git status --short && git checkout -q . && git status --short && cat certs/test.pem",
    "echo more > k8s/secrets/more.yaml && git add -A && git commit -qm more && git status --short && cat k8s/secrets/more.yaml",
];

#[track_caller]
fn check_alike(line: &str, inside: &TestOutput, bare: &TestOutput) {
    assert_eq!(
        (inside.status, inside.text()),
        (bare.status, bare.text()),
        "{line}\n{}\n{}",
        inside.stderr_text(),
        bare.stderr_text()
    );
}

/// Promise: tracked-denied-names
#[test]
fn git_with_committed_denied_names_works_as_bare_in_runs() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let (confined, bare) = (committed(user), committed(user));
        for line in LINES {
            let line = format!("cd repo && {line}");
            check_alike(&line, &confined.sh(&line), &bare.sh_bare(&line));
        }
    });
}

/// Promise: tracked-denied-names
#[test]
fn git_with_committed_denied_names_works_as_bare_under_the_watcher() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let (confined, bare) = (committed(user), committed(user));
        let session = TestSession::start_by(confined, TestProject::ringfence, &[]);
        session.project.write("later/.env", SECRET);
        assert!(
            becomes_true(Duration::from_secs(20), || !session
                .exec("cat later/.env")
                .text()
                .contains(SECRET)),
            "no watcher stands"
        );
        for line in LINES {
            let line = format!("(cd repo && {line})");
            check_alike(&line, &session.exec(&line), &bare.sh_bare(&line));
        }
    });
}

/// A session in a repository of such files, once its watcher masks new files.
#[track_caller]
fn watched(user: TestUser) -> TestSession {
    let session = TestSession::start_by(committed(user), TestProject::ringfence, &[]);
    session.project.write("later/.env", SECRET);
    assert!(
        becomes_true(Duration::from_secs(20), || !session
            .exec("cat later/.env")
            .text()
            .contains(SECRET)),
        "no watcher stands"
    );
    session
}

/// Promise: tracked-content
#[test]
fn tracked_file_that_the_host_replaces_is_masked_unless_git_knows_the_content() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = watched(user);
        let read = |name: &str| session.exec(&format!("cat repo/{name}")).text();
        assert_eq!(read("certs/test.pem"), FILES[0].1.trim());
        // Replaced by a file with the content in the index.
        for name in ["keys/dev.key", "k8s/secret.yaml"] {
            session.project.sh_bare(&format!("cp repo/{name} next && mv next repo/{name}")).ok();
        }
        for name in ["certs/test.pem", ".env.development", "k8s/secrets/db.yaml"] {
            session.project.write("next", SECRET);
            session.project.sh_bare(&format!("mv next repo/{name}")).ok();
            assert!(
                becomes_true(Duration::from_secs(20), || !read(name).contains(SECRET)),
                "{user}: {name} stays open"
            );
        }
        assert_eq!(read("keys/dev.key"), "dev", "{user}");
        assert_eq!(read("k8s/secret.yaml"), FILES[1].1.trim(), "{user}");
    });
}

#[test]
fn explain_and_tools_agree_that_a_tracked_file_is_open() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.write("repo/prod.key", SECRET);
        let explain =
            |name: &str| TestOutput::run(project.ringfence().args(["explain", "read", name]), b"");
        let open = explain("repo/certs/test.pem");
        open.expect_status(0);
        for word in ["tracked", "**/*.pem", "tracked = \"deny\""] {
            assert!(open.text().contains(word), "{word}: {}", open.text());
        }
        assert_ne!(explain("repo/prod.key").status, 0);
        let tool = |name: &str| {
            let ran = TestOutput::run(
                project.ringfence().args(["tool", "read", &format!("{{\"path\": \"{name}\"}}")]),
                b"",
            );
            ran.text() + &ran.stderr_text()
        };
        assert!(
            tool("repo/certs/test.pem").contains("CERTIFICATE")
                && !tool("repo/prod.key").contains(SECRET),
            "{user}"
        );
        // After a change by a command.
        project.sh("echo mine >> repo/certs/test.pem").ok();
        assert!(
            tool("repo/certs/test.pem").contains("mine")
                && explain("repo/certs/test.pem").status == 0,
            "{user}"
        );
        project.sh_bare(&format!("echo {SECRET} >> repo/certs/test.pem")).ok();
        assert!(
            !tool("repo/certs/test.pem").contains(SECRET)
                && explain("repo/certs/test.pem").status != 0,
            "{user}"
        );
    });
}

/// Promise: tracked-denied-names
#[test]
fn directory_of_source_code_with_a_denied_name_is_open() {
    each_user(|user| {
        let project = project(user);
        project.write("src/secrets/mod.rs", "mod vault;\n");
        project.write("src/secrets/vault/mod.rs", "fn f() {}\n");
        project.write("deploy/secrets/tool.py", "print(1)\n");
        project.write("deploy/secrets/prod.yaml", SECRET);
        assert_eq!(
            project.sh("cat src/secrets/mod.rs src/secrets/vault/mod.rs").ok(),
            "mod vault;\nfn f() {}"
        );
        project.sh("echo 'fn g() {}' > src/secrets/more.rs && echo '// x' >> src/secrets/mod.rs && mkdir src/secrets/new").ok();
        assert_eq!(
            project.sh("cat src/secrets/mod.rs src/secrets/more.rs").ok(),
            "mod vault;\n// x\nfn g() {}",
            "{user}"
        );
        // One file that may hold a secret value denies the directory.
        assert!(!project.sh("cat deploy/secrets/*").text().contains(SECRET), "{user}");
        project.write("src/secrets/prod.json", SECRET);
        assert!(!project.sh("cat src/secrets/prod.json").text().contains(SECRET), "{user}");
    });
}
