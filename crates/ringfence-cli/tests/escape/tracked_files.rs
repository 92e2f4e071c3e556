//! Git's index opens a file with a denied name only by its content, and only against built-in
//! patterns.

use ringfence_testkit::{As, Project, SECRET, each_user, needs, python};

use crate::project;

/// A repository with a committed `certs/test.pem`, `.env.development` and `secrets/db.yaml`.
fn committed(user: As) -> Project {
    let project = project(user);
    project.write("repo/certs/test.pem", "known\n");
    project.write("repo/.env.development", "known\n");
    project.write("repo/secrets/db.yaml", "known\n");
    project.sh_bare("cd repo && git init -q && git add -A && git commit -qm first").ok();
    project
}

/// Reads `names` inside: the secret must not come out, though it does bare.
#[track_caller]
fn check_hidden(project: &Project, names: &str) {
    let line = format!("cd repo; cat {names}; cp {names} copy; cat copy");
    assert!(project.sh_bare(&format!("cd repo; cat {names}")).text().contains(SECRET), "{names}: the probe cannot succeed");
    assert!(!project.sh(&line).text().contains(SECRET), "{names}: the secret was read");
}

#[test]
fn index_that_names_a_secret_by_another_object_opens_nothing() {
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
        // Also where the entry is only intended, or the file is named as unchanged for ever.
        project.sh("cd repo && git update-index --assume-unchanged prod.key; git update-index --skip-worktree prod.key").ok();
        check_hidden(&project, "prod.key");
        project.sh_bare("cd repo && git update-index --force-remove prod.key && git add -N prod.key").ok();
        check_hidden(&project, "prod.key");
    });
}

#[test]
fn times_and_size_in_the_index_open_nothing() {
    let Some(python) = python().filter(|_| needs(&["git"])) else { return };
    each_user(|user| {
        let project = committed(user);
        project.write("repo/prod.key", SECRET);
        // The host's own entry, with true times, inode and size; only the object is another.
        project.sh_bare("cd repo && git add prod.key && git ls-files -s prod.key | cut -d' ' -f2 > id").ok();
        let forge = "import binascii; id = binascii.unhexlify(open('repo/id').read().strip()); p = 'repo/.git/index'; \
                     b = open(p, 'rb').read(); assert id in b; open(p, 'wb').write(b.replace(id, b'\\7' * 20))";
        project.sh_bare(&format!("{python} -c \"{forge}\"")).ok();
        check_hidden(&project, "prod.key");
    });
}

#[test]
fn change_by_the_host_is_denied_and_one_by_a_command_is_not() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        let read = "cd repo && cat certs/test.pem .env.development secrets/db.yaml";
        assert_eq!(project.sh(read).ok(), "known\nknown\nknown");
        project.sh("cd repo && echo mine | tee -a certs/test.pem .env.development secrets/db.yaml").ok();
        assert_eq!(project.sh(read).ok().matches("mine").count(), 3, "{user}");
        for name in ["certs/test.pem", ".env.development", "secrets/db.yaml"] {
            project.sh_bare(&format!("cd repo && echo {SECRET} >> {name}")).ok();
            check_hidden(&project, name);
        }
        // In a directory that is open for a tracked file, all else is denied.
        project.sh_bare("cd repo && git checkout -q .").ok();
        project.write("repo/secrets/prod.yaml", SECRET);
        assert_eq!(project.sh("cd repo && cat secrets/db.yaml").ok(), "known");
        check_hidden(&project, "secrets/prod.yaml");
    });
}

#[test]
fn own_deny_rules_and_the_key_hold_for_tracked_files() {
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
                assert!(!project.sh("cat repo/certs/test.pem").text().contains("known"), "{user} {place}: {policy}");
            }
        }
        // A project must not widen what the user chose.
        let project = committed(user);
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), "version = 1\n[filesystem]\ntracked = \"deny\"\n");
        project.write(".ringfence/policy.toml", "version = 1\n[filesystem]\ntracked = \"open\"\n");
        assert!(!project.sh("cat repo/certs/test.pem").text().contains("known"), "{user}");
    });
}

#[test]
fn denied_file_is_not_opened_by_a_tracked_name() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = committed(user);
        project.write("repo/prod.key", SECRET);
        for line in
            ["ln -f prod.key certs/test.pem", "mv -f prod.key certs/test.pem", "ln -sf ../prod.key certs/test.pem", "git mv -f prod.key x"]
        {
            let said = project.sh(&format!("cd repo; {line}; cat certs/test.pem x; git add -A; git diff --cached"));
            assert!(!said.text().contains(SECRET), "{user}: {line}");
            project.sh_bare("cd repo && git reset -q && git checkout -q . && test -s prod.key").ok();
        }
        // Another name of the secret that the host made in the place of a tracked file.
        project.sh_bare("cd repo && ln -f prod.key certs/test.pem").ok();
        check_hidden(&project, "certs/test.pem");
    });
}

#[test]
fn denied_names_are_made_by_no_git_that_a_command_wrote() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for directory in ["bin", "/tmp/git-core", "$HOME/.cache/git-core"] {
            let project = committed(user);
            let line =
                format!("mkdir -p {directory}; cp \"$(command -v sh)\" {directory}/git; {directory}/git -c 'echo x > repo/prod.key'");
            project.sh(&line);
            assert!(!project.has("repo/prod.key"), "{user}: {directory}");
            project.sh_bare("mkdir -p bin; cp \"$(command -v sh)\" bin/git; bin/git -c 'echo x > repo/prod.key'").ok();
            assert!(project.has("repo/prod.key"), "the probe cannot succeed");
        }
        let project = committed(user);
        project.sh("cd repo; echo x > prod.key; cp certs/test.pem other.pem; touch .env; mkdir new-secrets");
        assert!(!["prod.key", "other.pem", ".env", "new-secrets"].iter().any(|name| project.has(format!("repo/{name}"))), "{user}");
    });
}
