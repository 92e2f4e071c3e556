//! Everyday tools work inside and leave the same files as bare.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, needs};

use crate::project;

/// Runs a line inside; checks that exactly `made` is new at the top of the project, and nothing in
/// the home.
#[track_caller]
fn leaves(project: &TestProject, line: &str, made: &[&str]) -> String {
    let (before, home) = (top(project), home(project));
    let said = project.sh(line).ok();
    let new: Vec<PathBuf> = top(project).difference(&before).cloned().collect();
    assert_eq!(new, made.iter().map(PathBuf::from).collect::<Vec<_>>());
    assert_eq!(self::home(project), home);
    said
}

fn top(project: &TestProject) -> BTreeSet<PathBuf> {
    project.entries().into_keys().filter(|path| path.components().count() == 1).collect()
}

fn home(project: &TestProject) -> BTreeSet<PathBuf> {
    project.home_entries().into_keys().filter(|path| !path.starts_with("code/app")).collect()
}

/// Promise: tools-work
#[test]
fn npm_installs_a_local_tarball() {
    each_user(|user| {
        if !needs(&["npm", "node", "tar"]) {
            return;
        }
        let project = project(user);
        project.write("package.json", r#"{"name": "app", "version": "1.0.0"}"#);
        project.write("dep/package/package.json", r#"{"name": "dep", "version": "1.2.3", "main": "index.js", "scripts": {"postinstall": "node -e \"require('fs').writeFileSync('ran', '')\""}}"#);
        project.write("dep/package/index.js", "module.exports = 42\n");
        project.sh_bare("tar -C dep -czf dep.tgz package && rm -r dep").ok();
        let line = "npm install --offline --no-audit --no-fund ./dep.tgz >/dev/null && node -p 'require(\"dep\")' && test -e node_modules/dep/ran";
        assert_eq!(leaves(&project, line, &["node_modules", "package-lock.json"]), "42");
        // The cache persists to the next run, and is not the host's.
        assert_eq!(project.sh("ls ~/.npm/_cacache >/dev/null && npm run 2>/dev/null; npx --offline node -p 6*7").ok(), "42");
        assert!(!project.home().join(".npm").exists());
    });
}

/// Promise: tools-work
#[test]
fn cargo_builds() {
    if !needs(&["cargo", "rustc"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write(
            "Cargo.toml",
            "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        project.write("src/main.rs", "fn main() { println!(\"hello from rust\"); }\n");
        let before = top(&project);
        let mut command = project.ringfence();
        let bin = if user == TestUser::User && TestUser::runner_is_root() {
            project.toolchain()
        } else {
            own_toolchain(&mut command)
        };
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
        let ran = TestOutput::run(
            command.args([
                "run",
                "-c",
                "cargo build --offline -q && ./target/debug/hello && cargo run --offline -q",
            ]),
            b"",
        );
        assert_eq!(ran.ok(), "hello from rust\nhello from rust");
        let new: Vec<PathBuf> = top(&project).difference(&before).cloned().collect();
        assert_eq!(new, [PathBuf::from("Cargo.lock"), PathBuf::from("target")]);
    });
}

/// Gives `command` the toolchain of the user who runs the tests; returns its directory.
pub(crate) fn own_toolchain(command: &mut Command) -> PathBuf {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    for (name, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        command.env(name, std::env::var_os(name).map_or_else(|| home.join(below), PathBuf::from));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|directory| directory.join("cargo").is_file())
        .expect("it was found before")
}

/// Promise: tools-work
#[test]
fn python_venv_works() {
    each_user(|user| {
        let Some(python) = ringfence_testkit::python() else { return };
        let project = project(user);
        let line = format!(
            "({python} -m venv v >/dev/null 2>&1 || {python} -m venv --clear --without-pip v) && v/bin/python -c 'import sys; print(sys.prefix)' && PYTHONPYCACHEPREFIX= v/bin/python -m compileall -q v/bin"
        );
        assert_eq!(leaves(&project, &line, &["v"]), project.at("v").to_string_lossy());
    });
}

/// Promise: tools-work
#[test]
fn make_runs_parallel_jobs() {
    each_user(|user| {
        if !needs(&["make"]) {
            return;
        }
        let project = project(user);
        project.write(
            "Makefile",
            ".PHONY: all a b c d\nall: a b c d\na b c d:\n\t@sleep 0.05; echo $@ > $@.out; flock lock echo done >> log\n",
        );
        leaves(
            &project,
            "make -s -j2 && sort -u log",
            &["a.out", "b.out", "c.out", "d.out", "lock", "log"],
        );
    });
}

#[test]
fn c_compiler_works() {
    each_user(|user| {
        if !needs(&["gcc"]) {
            return;
        }
        let project = project(user);
        project.write(
            "hello.c",
            "#include <stdio.h>\nint main() { puts(\"hello from c\"); return 0; }\n",
        );
        assert_eq!(leaves(&project, "gcc -o hello hello.c && ./hello", &["hello"]), "hello from c");
    });
}

/// Promise: tools-work
#[test]
fn tmux_session_works() {
    each_user(|user| {
        if !needs(&["tmux"]) {
            return;
        }
        let project = project(user);
        let line = "export TERM=xterm; tmux -f /dev/null new-session -d -x 80 -y 24 sh && tmux send-keys 'echo $((6*7))' Enter && for i in $(seq 40); do sleep 0.1; tmux capture-pane -p | grep -q 42 && echo 42 && break; done; tmux list-sessions | wc -l; tmux kill-server";
        assert_eq!(leaves(&project, line, &[]), "42\n1");
    });
}

#[test]
fn archives_and_copies_keep_metadata() {
    each_user(|user| {
        if !needs(&["tar"]) {
            return;
        }
        let project = project(user);
        project.sh_bare("mkdir -p tree/d && cd tree && for i in $(seq 300); do echo $i > d/f$i; done; ln -s d/f1 link; ln d/f2 hard; mkfifo pipe; chmod 640 d/f3; chmod 755 d/f4; cd .. && tar cf tree.tar tree").ok();
        leaves(
            &project,
            "mkdir out && tar xpf tree.tar -C out && cp -a tree copy && diff -r --no-dereference tree/d out/tree/d",
            &["copy", "out"],
        );
        for copy in ["copy", "out/tree"] {
            let list = |at: &str| {
                project
                    .sh_bare(&format!(
                        "cd {at} && find . -printf '%P %M %s %l\\n' | grep -v '^ ' | sort"
                    ))
                    .ok()
            };
            let trimmed = |text: String| {
                text.lines()
                    .filter(|line| !line.starts_with("d d") && !line.starts_with(" "))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(trimmed(list(copy)), trimmed(list("tree")), "{copy}");
        }
    });
}

#[test]
fn editors_can_save_by_rename() {
    each_user(|user| {
        let project = project(user);
        leaves(
            &project,
            "sed -i s/hello/bye/ README && grep bye README && cp README README~ && echo x > .README.swp && mv .README.swp README && perl -pi -e s/x/y/ README; rm README~",
            &[],
        );
        assert_eq!(project.read("README").as_deref(), Some("y\n"));
    });
}

#[test]
fn caches_are_private_and_persistent() {
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join(".cache/tool/seen"), "from the host\n");
        project.sh("mkdir -p ~/.cache/mine && echo kept > ~/.cache/mine/x").ok();
        assert_eq!(project.sh("cat ~/.cache/mine/x").ok(), "kept");
        assert!(!project.home().join(".cache/mine").exists());
        // Another project has its own.
        let other = project.home().join("code/other").to_string_lossy().into_owned();
        project.run(["-C", &other, "-c", "test ! -e ~/.cache/mine"]).ok();
        assert_eq!(
            std::fs::read_to_string(project.home().join(".cache/tool/seen")).ok().as_deref(),
            Some("from the host\n")
        );
    });
}
