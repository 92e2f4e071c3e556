//! Caches over the host's: denials hold in them, and links that a command leaves in them are not
//! followed.

use std::os::unix::fs::symlink;

use ringfence_testkit::{SECRET, TestOutput, TestProject, TestUser, each_user};

use crate::project;

/// A project that is built with `gem`, which is on `PATH`.
fn ruby(user: TestUser) -> TestProject {
    let project = project(user);
    project.write("Gemfile", "");
    project.write_at(&project.home().join("tools/bin/gem"), "#!/bin/sh\n");
    project
}

fn command(project: &TestProject, words: &[&str]) -> TestOutput {
    let path = format!("{}/tools/bin:/usr/local/bin:/usr/bin:/bin", project.home().display());
    TestOutput::run(project.ringfence().env("PATH", path).arg("run").args(words), b"")
}

fn inside(project: &TestProject, line: &str) -> TestOutput {
    command(project, &["-c", line])
}

/// Makes a host cache with a key and a public file.
fn host_cache(project: &TestProject) {
    project.write_at(&project.home().join(".gem/credentials"), SECRET);
    project.write_at(&project.home().join(".gem/keys/mine"), SECRET);
    project.write_at(&project.home().join(".gem/seen"), "from the host\n");
}

/// Promise: home-secrets
#[test]
fn built_in_denials_hold_in_a_cache() {
    each_user(|user| {
        let project = ruby(user);
        host_cache(&project);
        // Control: this is a writable overlay with the host's files.
        assert_eq!(
            inside(&project, "cat ~/.gem/seen; echo own > ~/.gem/own; cat ~/.gem/own").ok(),
            "from the host\nown"
        );
        for _ in 0..3 {
            assert_eq!(
                inside(&project, "cat ~/.gem/own ~/.gem/seen").ok(),
                "own\nfrom the host",
                "the cache does not last"
            );
        }
        for line in
            ["cat ~/.gem/credentials", "cp ~/.gem/credentials x; cat x", "cat < ~/.gem/credentials"]
        {
            assert!(!inside(&project, line).text().contains(SECRET), "{line}: the secret was read");
        }
        let said = inside(&project, "cat ~/.gem/credentials").stderr_text();
        assert!(said.contains("Permission denied"), "{said}");
        for line in [
            "mv ~/.gem/credentials ~/.gem/c",
            "rm -f ~/.gem/credentials",
            "echo > ~/.gem/credentials",
            "ln ~/.gem/credentials x",
        ] {
            assert!(inside(&project, line).status != 0, "{line}");
        }
        assert!(
            !inside(&project, "mv ~/.gem ~/.g; cat ~/.gem/c* ~/.g/c*; true")
                .text()
                .contains(SECRET)
        );
    });
}

/// Promise: parallel-caches
#[test]
fn parallel_runs_keep_what_each_writes_to_a_cache() {
    const WAIT: &str = "until [ -e $1 ]; do sleep .02; done";
    each_user(|user| {
        let project = ruby(user);
        host_cache(&project);
        inside(&project, "echo earlier > ~/.gem/earlier").ok();
        // Each looks up a directory first, then both make it and write to it concurrently.
        let run = |own: &str, other: &str| {
            let line = format!(
                "waits() {{ {WAIT}; }}; test ! -e ~/.gem/dir || exit 9; touch {own}.ready; waits {other}.ready; \
                 mkdir -p ~/.gem/dir && echo {own} > ~/.gem/dir/{own} && echo {own} > ~/.gem/dir/both || exit 8; \
                 for i in $(seq 20); do echo {own} > ~/.gem/{own}-$i; done; touch {own}.wrote; waits {other}.wrote; \
                 cat ~/.gem/earlier ~/.gem/seen ~/.gem/dir/{own}; ls ~/.gem | grep -c {own}-"
            );
            inside(&project, &line)
        };
        std::thread::scope(|scope| {
            let others = [("one", "two"), ("two", "one")]
                .map(|(own, other)| scope.spawn(move || run(own, other)));
            let said = others.map(|other| other.join().expect("it ends").ok());
            assert_eq!(
                said,
                ["earlier\nfrom the host\none\n20", "earlier\nfrom the host\ntwo\n20"]
            );
        });
        let kept =
            inside(&project, "cat ~/.gem/dir/one ~/.gem/dir/two ~/.gem/earlier ~/.gem/seen; ls ~/.gem | grep -c -e one- -e two-").ok();
        assert_eq!(kept, "one\ntwo\nearlier\nfrom the host\n40");
        assert!(["one", "two"].contains(&inside(&project, "cat ~/.gem/dir/both").ok().as_str()));
    });
}

/// Promise: home-secrets
#[test]
fn user_denials_hold_in_a_cache() {
    each_user(|user| {
        let project = ruby(user);
        host_cache(&project);
        let deny = format!("{}/.gem/keys/mine", project.home().display());
        let with = |line: &str| command(&project, &["--deny", &deny, "-c", line]);
        assert!(
            inside(&project, "cat ~/.gem/keys/mine").text().contains(SECRET),
            "the probe cannot succeed"
        );
        assert!(
            !with("cat ~/.gem/keys/mine; mv ~/.gem/keys ~/.gem/k; cat ~/.gem/k/mine")
                .text()
                .contains(SECRET)
        );
        // A denied name that the cache lacks, or has as another file type, is no error.
        inside(&project, "rm ~/.gem/keys/mine").ok();
        with("test ! -r ~/.gem/keys/mine").ok();
        inside(&project, "mkdir ~/.gem/keys/mine").ok();
        with("! ls ~/.gem/keys/mine").ok();
    });
}

/// Promise: next-run
#[test]
fn links_left_in_a_cache_are_not_followed() {
    each_user(|user| {
        let project = ruby(user);
        let private = project.home().join("private");
        project.write_at(&private.join("file"), SECRET);
        let line = format!(
            "cd ~/.gem && ln -s {} upper; ln -s $OLDPWD/w work; mkdir $OLDPWD/w; echo kept > kept",
            private.display()
        );
        inside(&project, &line).ok();
        host_cache(&project);
        let ran = inside(
            &project,
            "cat ~/.gem/seen ~/.gem/kept; cat ~/.gem/file; echo planted > ~/.gem/file2",
        );
        assert!(
            ran.text().starts_with("from the host\nkept"),
            "the cache is not kept: {} {}",
            ran.text(),
            ran.stderr_text()
        );
        assert!(!ran.text().contains(SECRET), "read");
        assert!(!private.join("file2").exists(), "written");
    });
}

/// Promise: next-run
#[test]
fn cache_store_that_is_not_a_plain_directory_is_refused() {
    each_user(|user| {
        let project = ruby(user);
        let private = project.home().join("private");
        project.write_at(&private.join("file"), SECRET);
        inside(&project, "echo x > ~/.gem/x").ok();
        let stores = project.home().join(".cache/ringfence/projects");
        let store = std::fs::read_dir(&stores)
            .expect("a store was made")
            .next()
            .expect("one")
            .expect("readable")
            .path()
            .join(".gem");
        for replaced in ["upper", "work", ""] {
            for cache in ["", "the host's too"] {
                let _ = std::fs::remove_dir_all(project.home().join(".gem"));
                if !cache.is_empty() {
                    host_cache(&project);
                }
                let _ = std::fs::remove_file(&store);
                let _ = std::fs::remove_dir_all(&store);
                let at = store.join(replaced);
                project.make_directories(if replaced.is_empty() {
                    store.parent().expect("it has one")
                } else {
                    &store
                });
                symlink(&private, at.as_os_str().to_string_lossy().trim_end_matches('/'))
                    .expect("a link is made");
                let ran =
                    inside(&project, "cat ~/.gem/file; echo planted > ~/.gem/file2; echo alive");
                assert_eq!(ran.ok(), "alive", "{replaced} {cache}");
                assert!(!private.join("file2").exists(), "{replaced} {cache}: written");
            }
        }
    });
}

#[test]
fn read_below_a_private_cache_shows_the_hosts_files() {
    each_user(|user| {
        let project = project(user);
        let cache = project.home().join(".cache");
        project.write_at(&cache.join("tool/data/model.bin"), "weights");
        project.write_at(&cache.join("tool/data/.env"), SECRET);
        project.write_at(&cache.join("browser/cookies"), SECRET);
        let run = |line: &str| project.run(["--read", "~/.cache/tool", "--", "sh", "-c", line]);
        assert!(
            project.sh("cat ~/.cache/tool/data/model.bin").status != 0,
            "{user}: without the flag"
        );
        for _ in 0..2 {
            assert_eq!(
                run("cat ~/.cache/tool/data/model.bin; echo own > ~/.cache/own; cat ~/.cache/own")
                    .ok(),
                "weightsown",
                "{user}"
            );
        }
        for line in [
            "cat ~/.cache/tool/data/.env",
            "cat ~/.cache/browser/cookies",
            "echo x > ~/.cache/tool/new",
            "rm -r ~/.cache/tool",
        ] {
            let ran = run(line);
            assert!(ran.status != 0 && !ran.text().contains(SECRET), "{user}: {line}");
        }
        assert!(!cache.join("own").exists() && !cache.join("tool/new").exists(), "{user}");
        // A single file.
        let one = project.run([
            "--read",
            "~/.cache/tool/data/model.bin",
            "--",
            "sh",
            "-c",
            "cat ~/.cache/tool/data/model.bin; ls ~/.cache/tool/data",
        ]);
        assert_eq!(one.ok(), "weightsmodel.bin", "{user}");
    });
}

#[test]
fn links_left_in_a_private_cache_do_not_move_a_mount() {
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join(".cache/tool/data"), "weights");
        let other = project.home().join("code/other");
        for planted in [
            "ln -s ~/code/other ~/.cache/tool",
            "ln -s $PWD ~/.cache/tool",
            "echo file > ~/.cache/tool",
            "ln -s / ~/.cache/tool",
        ] {
            project.sh(&format!("rm -rf ~/.cache/tool; {planted}")).ok();
            let ran = project.run([
                "--read",
                "~/.cache/tool",
                "--",
                "sh",
                "-c",
                "cat ~/.cache/tool/data; ls",
            ]);
            assert!(ran.ok().starts_with("weights") && !project.has("data"), "{user}: {planted}");
        }
        assert!(other.exists() && project.has("README"), "{user}");
    });
}

#[test]
fn policy_allow_opens_paths_below_a_private_cache() {
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join(".cache/tool/data"), "weights");
        let allow = || {
            TestOutput::run(
                project
                    .ringfence()
                    .args(["policy", "allow", "read"])
                    .arg(project.home().join(".cache/tool")),
                b"",
            )
            .ok()
        };
        assert!(allow().contains("allowed from now on"), "{user}");
        assert_eq!(project.sh("cat ~/.cache/tool/data").ok(), "weights", "{user}");
        assert!(allow().contains("already allowed"), "{user}");
    });
}

#[test]
fn caches_without_secrets_are_readable_by_default_and_kept_apart() {
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        let caches = ["ms-playwright", "puppeteer", "Cypress", "huggingface/hub", "torch"];
        for cache in caches {
            project.write_at(&home.join(".cache").join(cache).join("a/file"), cache);
        }
        project.write_at(&home.join(".cache/huggingface/token"), SECRET);
        project.write_at(&home.join(".cache/mail/inbox"), SECRET);
        for manifest in ["", "package.json"] {
            if !manifest.is_empty() {
                project.write(manifest, "{}");
            }
            for cache in caches {
                assert_eq!(
                    project.sh(&format!("cat ~/.cache/{cache}/a/file")).ok(),
                    cache,
                    "{user} {manifest}"
                );
            }
            let line = "cat ~/.cache/huggingface/token ~/.cache/mail/inbox; grep -rs . ~/.cache/huggingface/token ~/.cache/mail";
            assert!(!project.sh(line).text().contains(SECRET), "{user}");
        }
        // With a build preset, written files stay with the project.
        project.sh("echo own > ~/.cache/ms-playwright/own && rm -r ~/.cache/torch/a").ok();
        assert_eq!(
            project.sh("cat ~/.cache/ms-playwright/own ~/.cache/ms-playwright/a/file; ls ~/.cache/torch").ok(),
            "own\nms-playwright",
            "{user}"
        );
        assert!(
            !home.join(".cache/ms-playwright/own").exists()
                && home.join(".cache/torch/a/file").exists(),
            "{user}"
        );
        let named = project.run([
            "--read",
            "~/.cache/huggingface",
            "--",
            "sh",
            "-c",
            "cat ~/.cache/huggingface/token",
        ]);
        assert!(named.status != 0 && !named.text().contains(SECRET), "{user}");
    });
}

/// A fresh Rust home: `~/.cargo` has programs and a secret, and no cache directory.
fn fresh_rust(user: TestUser) -> TestProject {
    let project = project(user);
    project.write("Cargo.toml", "");
    let cargo = project.home().join(".cargo");
    project.write_at(&project.home().join("tools/bin/cargo"), "#!/bin/sh\n");
    project.write_at(&cargo.join("bin/tool"), "the tool\n");
    project.write_at(&cargo.join("env"), "settings\n");
    project.write_at(&cargo.join("credentials.toml"), SECRET);
    symlink("bin/tool", cargo.join("link")).expect("a link");
    project
}

/// Reads both caches, or fills them as cargo does at its first fetch.
const FETCH: &str = "(cd ~/.cargo; cat registry/cache/x git/db/x 2> /dev/null || echo fetch; mkdir -p registry/cache git/db && \
                     echo crate > registry/cache/x && echo repo > git/db/x)";

fn names(directory: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .expect("it can be listed")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Promise: absent-cache
#[test]
fn missing_cache_in_a_read_only_tree_is_made_and_kept() {
    each_user(|user| {
        let project = fresh_rust(user);
        let before = names(&project.home().join(".cargo"));
        assert_eq!(inside(&project, FETCH).ok(), "fetch");
        assert_eq!(inside(&project, FETCH).ok(), "crate\nrepo", "the cache does not last");
        assert_eq!(names(&project.home().join(".cargo")), before, "something was made on the host");
        // By now the host has one of the two.
        project.write_at(&project.home().join(".cargo/git/seen"), "from the host\n");
        assert_eq!(
            inside(&project, &format!("{FETCH}; cat ~/.cargo/git/seen")).ok(),
            "crate\nrepo\nfrom the host"
        );
    });
}

/// Promise: absent-cache
#[test]
fn tree_around_a_missing_cache_stays_unchanged() {
    each_user(|user| {
        let project = fresh_rust(user);
        let line = format!("{FETCH}; cd ~/.cargo; cat bin/tool env link; readlink link; ls -A");
        let shown = "fetch\nthe tool\nsettings\nthe tool\nbin/tool\nbin\ncredentials.toml\nenv\ngit\nlink\nregistry";
        assert_eq!(inside(&project, &line).ok(), shown);
        for line in [
            "touch new",
            "touch bin/new",
            "echo >> env",
            "rm env",
            "mv env other",
            "rmdir registry",
            "chmod 700 .",
            "mkdir dir",
        ] {
            assert!(inside(&project, &format!("cd ~/.cargo && {line}")).status != 0, "{line}");
        }
        for line in [
            "cat credentials.toml",
            "cp credentials.toml registry/x; cat registry/x",
            "ln credentials.toml registry/y; cat registry/y",
        ] {
            assert!(
                !inside(&project, &format!("cd ~/.cargo; {line}")).text().contains(SECRET),
                "{line}: the secret was read"
            );
        }
        let said = inside(&project, "cat ~/.cargo/credentials.toml").stderr_text();
        assert!(said.contains("Permission denied"), "{said}");
        assert_eq!(
            names(&project.home().join(".cargo")),
            ["bin", "credentials.toml", "env", "link"]
        );
        assert_eq!(
            std::fs::read_to_string(project.home().join(".cargo/env")).ok().as_deref(),
            Some("settings\n")
        );
    });
}
