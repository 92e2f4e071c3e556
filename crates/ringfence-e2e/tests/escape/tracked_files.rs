//! Git's index opens a file with a denied name only if its content matches, and only against
//! built-in patterns.

use std::process::Stdio;
use std::time::Duration;

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, becomes_true, each_user, needs, python,
};

use crate::project;

/// A repository with a committed `certs/test.pem`, `.env.development` and `secrets/db.yaml`.
fn committed(user: TestUser) -> TestProject {
    let project = project(user);
    project.write("repo/certs/test.pem", "known\n");
    project.write("repo/.env.development", "known\n");
    project.write("repo/secrets/db.yaml", "known\n");
    project.sh_bare("cd repo && git init -q && git add -A && git commit -qm first").ok();
    project
}

/// Reads `names` inside: the secret must not come out, though it does bare.
#[track_caller]
fn check_hidden(project: &TestProject, names: &str) {
    let line = format!("cd repo; cat {names}; cp {names} copy; cat copy");
    assert!(
        project.sh_bare(&format!("cd repo; cat {names}")).text().contains(SECRET),
        "{names}: the probe cannot succeed"
    );
    assert!(!project.sh(&line).text().contains(SECRET), "{names}: the secret was read");
}

/// Promise: tracked-content
#[test]
fn index_entry_with_another_object_opens_no_secret() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.write("repo/prod.key", SECRET);
        let forged = "cd repo && id=$(echo known | git hash-object -w --stdin) && git update-index --add --cacheinfo 100644,$id,prod.key \
                      && git ls-files | grep -q prod.key";
        project.sh(forged).ok();
        check_hidden(&project, "prod.key");
        // Also with intent-to-add, assume-unchanged and skip-worktree entries.
        project.sh("cd repo && git update-index --assume-unchanged prod.key; git update-index --skip-worktree prod.key").ok();
        check_hidden(&project, "prod.key");
        project
            .sh_bare("cd repo && git update-index --force-remove prod.key && git add -N prod.key")
            .ok();
        check_hidden(&project, "prod.key");
    });
}

/// Promise: tracked-content
#[test]
fn times_and_size_in_the_index_open_no_secret() {
    let Some(python) = python().filter(|_| needs(&["git"])) else { return };
    each_user(|user| {
        let project = committed(user);
        project.write("repo/prod.key", SECRET);
        // The host's own entry with true times, inode and size, and another object.
        project
            .sh_bare("cd repo && git add prod.key && git ls-files -s prod.key | cut -d' ' -f2 > id")
            .ok();
        let forge = "import binascii; id = binascii.unhexlify(open('repo/id').read().strip()); p = 'repo/.git/index'; \
                     b = open(p, 'rb').read(); assert id in b; open(p, 'wb').write(b.replace(id, b'\\7' * 20))";
        project.sh_bare(&format!("{python} -c \"{forge}\"")).ok();
        check_hidden(&project, "prod.key");
    });
}

/// Promise: tracked-content
#[test]
fn tracked_file_changed_by_the_host_is_denied() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        let read = "cd repo && cat certs/test.pem .env.development secrets/db.yaml";
        assert_eq!(project.sh(read).ok(), "known\nknown\nknown");
        project
            .sh("cd repo && echo mine | tee -a certs/test.pem .env.development secrets/db.yaml")
            .ok();
        assert_eq!(project.sh(read).ok().matches("mine").count(), 3, "{user}");
        for name in ["certs/test.pem", ".env.development", "secrets/db.yaml"] {
            project.sh_bare(&format!("cd repo && echo {SECRET} >> {name}")).ok();
            check_hidden(&project, name);
        }
        // In a directory that is open for a tracked file, every other file is denied.
        project.sh_bare("cd repo && git checkout -q .").ok();
        project.write("repo/secrets/prod.yaml", SECRET);
        assert_eq!(project.sh("cd repo && cat secrets/db.yaml").ok(), "known");
        check_hidden(&project, "secrets/prod.yaml");
    });
}

/// Promise: tracked-content
#[test]
fn user_deny_rules_apply_to_tracked_files() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for policy in [
            "deny = [\"**/*.pem\"]",
            "deny = [\"./repo/certs\"]",
            "deny = [\"**/certs/**\"]",
            "tracked = \"deny\"",
            "deny = [\"**/test.*\"]",
        ] {
            for place in [".ringfence/policy.toml", "home"] {
                let project = committed(user);
                let text = format!("version = 1\n[filesystem]\n{policy}\n");
                let text = text.replace("./repo", &project.at("repo").display().to_string());
                if place == "home" {
                    project.write_at(&project.home().join(".config/ringfence/policy.toml"), text);
                } else {
                    project.write(place, text);
                }
                assert!(
                    !project.sh("cat repo/certs/test.pem").text().contains("known"),
                    "{user} {place}: {policy}"
                );
            }
        }
        // A project must not widen what the user chose.
        let project = committed(user);
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[filesystem]\ntracked = \"deny\"\n",
        );
        project.write(".ringfence/policy.toml", "version = 1\n[filesystem]\ntracked = \"open\"\n");
        assert!(!project.sh("cat repo/certs/test.pem").text().contains("known"), "{user}");
    });
}

/// Promise: tracked-content
#[test]
fn denied_file_stays_denied_under_a_tracked_name() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.write("repo/prod.key", SECRET);
        for line in [
            "ln -f prod.key certs/test.pem",
            "mv -f prod.key certs/test.pem",
            "ln -sf ../prod.key certs/test.pem",
            "git mv -f prod.key x",
        ] {
            let said = project.sh(&format!(
                "cd repo; {line}; cat certs/test.pem x; git add -A; git diff --cached"
            ));
            assert!(!said.text().contains(SECRET), "{user}: {line}");
            project
                .sh_bare("cd repo && git reset -q && git checkout -q . && test -s prod.key")
                .ok();
        }
        // A hard link to the secret that the host put in place of a tracked file.
        project.sh_bare("cd repo && ln -f prod.key certs/test.pem").ok();
        check_hidden(&project, "certs/test.pem");
    });
}

/// Promise: tracked-content
#[test]
fn program_that_poses_as_git_cannot_make_denied_names() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for directory in ["bin", "/tmp/git-core", "$HOME/.cache/git-core"] {
            let project = committed(user);
            let line = format!(
                "mkdir -p {directory}; cp \"$(command -v sh)\" {directory}/git; {directory}/git -c 'echo x > repo/prod.key'"
            );
            project.sh(&line);
            assert!(!project.has("repo/prod.key"), "{user}: {directory}");
            project.sh_bare("mkdir -p bin; cp \"$(command -v sh)\" bin/git; bin/git -c 'echo x > repo/prod.key'").ok();
            assert!(project.has("repo/prod.key"), "the probe cannot succeed");
        }
        let project = committed(user);
        project.sh("cd repo; echo x > prod.key; cp certs/test.pem other.pem; touch .env; mkdir new-secrets");
        assert!(
            !["prod.key", "other.pem", ".env", "new-secrets"]
                .iter()
                .any(|name| project.has(format!("repo/{name}"))),
            "{user}"
        );
    });
}

/// Lets git make `path` with an object that the command wrote.
fn made_by_git(path: &str) -> String {
    format!(
        "export GIT_INDEX_FILE=/tmp/index; id=$(echo known | git hash-object -w --stdin) && \
         git update-index --add --cacheinfo 100644,$id,{path} && git checkout-index -a && cat {path}"
    )
}

/// Runs `first` inside `repo`, then `host` outside, then waits until the command cannot read the
/// secret at `place` any more, and runs `then`. Returns the output from inside.
fn meanwhile(
    project: &TestProject,
    first: &str,
    host: &str,
    (place, then): (&str, &str),
) -> String {
    let wait = "touch here; while [ ! -e go ]; do sleep 0.05; done";
    let masked = format!(
        "for i in $(seq 60); do cat {place} > /dev/null 2>&1 || break; sleep 0.05; done; cat {place}"
    );
    let line = format!("cd repo; {first}; {wait}; {masked}; {then}");
    let child = project
        .ringfence()
        .args(["run", "-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    assert!(
        becomes_true(Duration::from_secs(20), || project.has("repo/here")),
        "{line}: it does not begin"
    );
    project.sh_bare(&format!("cd repo && {host}")).ok();
    project.write("repo/go", "");
    let ended = child.expect("ringfence starts").wait_with_output().expect("it ends");
    String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr)
}

/// Checks that a file which the host makes while a command runs stays denied in spite of `then`,
/// which moves the directory around it, and is denied to the next run at `arrived`.
#[track_caller]
fn check_stays_denied(
    project: &TestProject,
    first: &str,
    host: &str,
    (place, then, arrived): (&str, &str, &str),
) {
    let said = meanwhile(project, first, host, (place, then));
    assert!(!said.contains(SECRET), "{first}: {host}: the secret was read: {said}");
    let next = project.sh(&format!("cd repo; cat {arrived} {place}"));
    assert!(!next.text().contains(SECRET), "{first}: {host}: {then}: the next run read the secret");
    assert!(
        project.sh_bare(&format!("cd repo; cat {arrived} {place}")).text().contains(SECRET),
        "{host}: the probe cannot succeed"
    );
}

/// Promise: tracked-replaced
#[test]
fn directory_with_a_replaced_tracked_file_cannot_be_moved() {
    if !needs(&["git"]) {
        return;
    }
    let saved = format!("echo {SECRET} > .t && mv .t certs/test.pem");
    let anew = format!("echo {SECRET} > certs/test.pem");
    let own = format!("mkdir -p d; {}; rm d/.env", made_by_git("d/.env"));
    each_user(|user| {
        for (first, host) in [("mkdir target", &saved), ("mkdir target; rm certs/test.pem", &anew)]
        {
            check_stays_denied(
                &committed(user),
                first,
                host,
                ("certs/test.pem", "mv certs target/certs", "target/certs/test.pem"),
            );
        }
        let first = format!("mkdir target; {own}");
        let host = format!("echo {SECRET} > d/.env");
        check_stays_denied(
            &committed(user),
            &first,
            &host,
            ("d/.env", "mv d target/d", "target/d/.env"),
        );
        // Without a file of the host, the same moves are allowed.
        let project = committed(user);
        project.sh("cd repo && mkdir target && mv certs target/certs && mv target/certs more && cat more/test.pem").ok();
        project
            .sh(&format!(
                "cd repo && {} && mkdir -p target && mv d target/d && cat target/d/.env",
                made_by_git("d/.env")
            ))
            .ok();
    });
}

/// Promise: tracked-replaced
#[test]
fn denied_directory_with_a_host_file_cannot_be_moved() {
    if !needs(&["git"]) {
        return;
    }
    let added = |place: &str| format!("echo {SECRET} > {place}");
    let replaced = format!("echo {SECRET} > .t && mv .t secrets/db.yaml");
    each_user(|user| {
        let moved = "mv secrets plain";
        check_stays_denied(
            &committed(user),
            "true",
            &added("secrets/prod.yaml"),
            ("secrets/prod.yaml", moved, "plain/prod.yaml"),
        );
        check_stays_denied(
            &committed(user),
            "true",
            &replaced,
            ("secrets/db.yaml", moved, "plain/db.yaml"),
        );
        // Also with its parent directory, and in one that holds source code.
        let project = committed(user);
        project.write("repo/src/secrets/mod.rs", "known\n");
        let file = "src/secrets/prod.yaml";
        check_stays_denied(
            &project,
            "true",
            &added(file),
            (
                file,
                "mv src/secrets src/plain; mv src/secrets/prod.yaml .",
                "src/plain/prod.yaml prod.yaml",
            ),
        );
        let project = committed(user);
        project
            .sh_bare("cd repo && mkdir k8s && git mv secrets k8s/secrets && git commit -qm second")
            .ok();
        let then = "mkdir target; mv k8s target/k8s; mv k8s/secrets plain";
        let file = "k8s/secrets/prod.yaml";
        check_stays_denied(
            &project,
            "true",
            &added(file),
            (file, then, "target/k8s/secrets/prod.yaml plain/prod.yaml"),
        );
        // With only tracked and own files it can be moved.
        let project = committed(user);
        project.write("repo/src/secrets/mod.rs", "known\n");
        project.sh("cd repo && echo own > secrets/own.yaml && mv secrets plain && cat plain/own.yaml && mv src/secrets src/plain").ok();
    });
}

/// Promise: tracked-replaced
#[test]
fn host_file_in_a_denied_directory_made_by_git_is_masked() {
    if !needs(&["git"]) {
        return;
    }
    let host = format!("echo {SECRET} > n/secrets/prod.yaml");
    each_user(|user| {
        let first = made_by_git("n/secrets/q.yaml");
        let project = committed(user);
        let then = "cat n/secrets/q.yaml; mv n/secrets n/plain; mv n/secrets/prod.yaml x";
        let arrived = "n/plain/prod.yaml x";
        check_stays_denied(&project, &first, &host, ("n/secrets/prod.yaml", then, arrived));
        // The command's own files there stay open to it.
        let then = "sleep 0.3; echo own > n/secrets/own.yaml; sleep 0.3; cat n/secrets/q.yaml n/secrets/own.yaml";
        let said = meanwhile(&committed(user), &first, &host, ("n/secrets/prod.yaml", then));
        assert!(said.contains("known\nown\n") && !said.contains(SECRET), "{user}: {said}");
    });
}

/// Promise: tracked-replaced
#[test]
fn tracked_file_changed_between_session_commands_is_denied() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        let session = TestOutput::run(project.ringfence().args(["session", "start"]), b"").ok();
        let exec = |line: &str| {
            TestOutput::run(
                project.ringfence().args(["session", "exec", &session, "-c", line]),
                b"",
            )
        };
        exec(&format!("cd repo && {}", made_by_git(".env"))).ok();
        exec("echo mine >> .env.development; echo mine >> certs/test.pem").ok();
        project
            .sh_bare(&format!(
                "cd repo && echo {SECRET} >> .env && echo {SECRET} >> .env.development"
            ))
            .ok();
        let repo = project.at("repo").display().to_string();
        let said =
            exec(&format!("cd {repo}; cat .env .env.development certs/test.pem; mv .env x; mkdir target; cp .env .env.development x"))
                .text();
        assert!(said.contains("mine") && !said.contains(SECRET), "{user}: {said}");
        exec("true").ok();
        project.sh_bare(&format!("cd repo && echo {SECRET} >> secrets/db.yaml")).ok();
        TestOutput::run(project.ringfence().args(["session", "stop", &session]), b"").ok();
        for name in [".env", ".env.development", "secrets/db.yaml"] {
            check_hidden(&project, name);
        }
        // The change of a command is remembered.
        assert!(project.sh("cd repo && cat certs/test.pem").ok().contains("mine"), "{user}");
    });
}
