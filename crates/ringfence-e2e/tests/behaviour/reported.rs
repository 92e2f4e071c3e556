//! Regression tests for denials and failures that were once not reported.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ringfence_testkit::{
    TestOutput, TestProject, TestUser, becomes_true, compile, each_user, finish, fuse_for_all,
    needs, skip,
};
use serde_json::Value;

use crate::project;

#[track_caller]
fn object(ran: &TestOutput) -> Value {
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.stderr_text()))
}

/// The denials, each as `operation target`.
fn denied(said: &Value) -> Vec<String> {
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    said["denials"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| format!("{} {}", text(one, "operation"), text(one, "target")))
        .collect()
}

#[test]
fn missing_file_in_a_denied_directory_is_reported() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let home = project.home().display().to_string();
        let said = object(&project.run(["--json", "-c", "cat ~/.ssh/nosuch; ls ~/.aws/none"]));
        assert_eq!(
            denied(&said),
            [format!("read {home}/.ssh/nosuch"), format!("read {home}/.aws/none")],
            "{user}: {said}"
        );
        assert_eq!(said["blocked"], true, "{user}: {said}");
        // A missing file is denied only in a denied directory that exists.
        let said = object(&project.run([
            "--json",
            "-c",
            "cat ~/nosuch ~/.gnupg/nosuch ~/.kube/config nosuch",
        ]));
        assert_eq!(
            (denied(&said), &said["blocked"]),
            (Vec::new(), &false.into()),
            "{user}: {said}"
        );
    });
}

/// A home below `/tmp`, with a project in it; removed when dropped.
struct BelowTmp(PathBuf);

impl BelowTmp {
    fn new(user: TestUser) -> Self {
        let home =
            PathBuf::from(format!("/tmp/ringfence-below-{}-{}", std::process::id(), user.ids().0));
        let _ = fs::remove_dir_all(&home);
        for directory in ["", ".ssh", "code", "code/app", "code/other"] {
            fs::create_dir(home.join(directory)).expect("a directory can be made");
            user.chown(&home.join(directory));
        }
        for file in [".ssh/id_rsa", "code/other/x", "notes.txt", "code/app/.env"] {
            fs::write(home.join(file), "secret").expect("a file can be written");
            user.chown(&home.join(file));
        }
        Self(home)
    }

    fn run(&self, project: &TestProject, words: &[&str]) -> TestOutput {
        let mut command = project.ringfence();
        TestOutput::run(
            command
                .arg("run")
                .args(words)
                .env("HOME", &self.0)
                .current_dir(self.0.join("code/app")),
            b"",
        )
    }
}

impl Drop for BelowTmp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn denials_below_tmp_are_reported() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let (project, below) = (project(user), BelowTmp::new(user));
        let home = below.0.display().to_string();
        for (line, expect) in [
            ("cat ~/.ssh/id_rsa", "read HOME/.ssh/id_rsa"),
            ("ls ~/.ssh", "read HOME/.ssh"),
            ("cat ../other/x", "read HOME/code/other/x"),
            ("cat ~/notes.txt", "read HOME/notes.txt"),
            ("cat .env", "read HOME/code/app/.env"),
            ("echo x > ~/new", "create HOME/new"),
            ("mkdir ~/made", "create HOME/made"),
        ] {
            let said = object(&below.run(&project, &["--json", "-c", line]));
            assert_eq!(denied(&said), [expect.replace("HOME", &home)], "{user}: `{line}` {said}");
            assert_eq!(said["blocked"], true, "{user}: `{line}` {said}");
        }
        // The sandbox's own files are not denied.
        let said = object(&below.run(
            &project,
            &[
                "--json",
                "-c",
                "echo x > /tmp/own; cat /tmp/own /tmp/nosuch ~/.cache/nosuch; exit 3",
            ],
        ));
        assert_eq!(
            (denied(&said), &said["blocked"]),
            (Vec::new(), &false.into()),
            "{user}: {said}"
        );
    });
}

#[test]
fn absent_write_path_is_refused_with_a_hint() {
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        for (words, named) in [
            (vec!["--mode", "read-only", "--write", "new.txt"], project.at("new.txt")),
            (vec!["--mode", "read-only", "--write", "deep/er"], project.at("deep/er")),
            (vec!["--write", "~/new"], home.join("new")),
        ] {
            let ran = project.run([words.as_slice(), &["-c", "touch ran"]].concat());
            ran.expect_status(125);
            let path = named.display().to_string();
            assert!(
                ran.stderr_text().contains(&format!("{path} does not exist")),
                "{user}: {}",
                ran.stderr_text()
            );
            assert!(
                ran.stderr_text().contains(&format!(
                    "hint: create it first: `mkdir -p {path}` or `touch {path}`"
                )),
                "{user}: {}",
                ran.stderr_text()
            );
            assert!(!project.has("ran"));
        }
        // If it can be made, and once it exists, it is open.
        project.run(["--write", "new.txt", "-c", "echo x > new.txt"]).ok();
        project.run(["--mode", "read-only", "--write", "new.txt", "-c", "echo y > new.txt"]).ok();
        assert_eq!(project.read("new.txt").as_deref(), Some("y\n"));
    });
}

#[test]
fn denied_creation_of_an_absent_write_path_is_reported() {
    each_user(|user| {
        let project = project(user);
        let policy = project.home().join(".config/ringfence/policy.toml");
        project.write_at(&policy, "version = 1\n[filesystem]\nwrite = [\"~/out\"]\n");
        let out = project.home().join("out");
        let said = object(&project.run(["--json", "-c", "mkdir ~/out"]));
        assert_eq!(
            (denied(&said), &said["blocked"]),
            (vec![format!("create {}", out.display())], &true.into()),
            "{user}: {said}"
        );
        fs::create_dir(&out).expect("a directory can be made");
        user.chown(&out);
        project.run(["-c", "echo x > ~/out/f"]).ok();
    });
}

#[test]
fn full_standard_streams_do_not_change_the_exit_status() {
    each_user(|user| {
        let project = project(user);
        let full = || {
            Stdio::from(File::options().write(true).open("/dev/full").expect("every system has it"))
        };
        let run = |words: &[&str], out: Stdio, err: Stdio| {
            finish(
                project
                    .ringfence()
                    .arg("run")
                    .args(words)
                    .stdin(Stdio::null())
                    .stdout(out)
                    .stderr(err)
                    .spawn()
                    .expect("it starts"),
            )
        };
        // The result of `--json` is lost, and a message says so.
        let ran = run(&["--json", "-c", "exit 3"], full(), Stdio::piped());
        ran.expect_status(125);
        assert!(
            ran.stderr_text()
                .contains("the command ended with status 3, but its result could not be written"),
            "{user}: {}",
            ran.stderr_text()
        );
        assert!(
            ran.stderr_text().contains("error: cannot write to standard output"),
            "{user}: {}",
            ran.stderr_text()
        );
        run(&["--json", "-c", "exit 3"], full(), full()).expect_status(125);
        // A warning that cannot be written does not change the status.
        run(&["--mode", "full-access", "-c", "exit 3"], Stdio::null(), full()).expect_status(3);
        run(
            &["-c", "mkdir -p made/.git/hooks; echo x > made/.git/HEAD; exit 3"],
            Stdio::null(),
            full(),
        )
        .expect_status(3);
        run(&["--policy", "nosuch", "-c", "exit 3"], Stdio::null(), full()).expect_status(125);
    });
}

#[test]
fn unconfined_warning_is_given_only_when_a_command_runs() {
    each_user(|user| {
        let project = project(user);
        let policy = project.home().join(".config/ringfence/policy.toml");
        project.write_at(&policy, "version = 1\n[commands]\ndeny = [\"touch *\"]\n");
        let ran = project.run(["--mode", "full-access", "--", "touch", "ran"]);
        assert!(
            ran.status == 126 && !project.has("ran"),
            "{user}: {} {}",
            ran.status,
            ran.stderr_text()
        );
        assert!(
            !ran.stderr_text().contains("nothing is confined"),
            "{user}: {}",
            ran.stderr_text()
        );
        let ran = project.run(["--mode", "full-access", "--", "true"]);
        assert_eq!(
            ran.expect_status(0).stderr_text().matches("nothing is confined").count(),
            1,
            "{user}: {}",
            ran.stderr_text()
        );
    });
}

/// Promise: signals-and-sweep
#[test]
fn fatal_signal_ends_the_command_and_planted_files_are_quarantined() {
    if !needs(&["git"]) {
        return;
    }
    const ALARM: i32 = 14;
    const STACK_FAULT: i32 = 16;
    const CPU_LIMIT: i32 = 24;
    const FILE_LIMIT: i32 = 25;
    const VIRTUAL_TIMER: i32 = 26;
    const PROFILER: i32 = 27;
    const INPUT: i32 = 29;
    const POWER: i32 = 30;
    const REAL_TIME: i32 = 40;
    each_user(|user| {
        let project = project(user);
        let line = "git init -q made; printf '#!/bin/sh\\n' > made/.git/hooks/pre-commit; chmod +x made/.git/hooks/pre-commit; touch begun; exec sleep 60";
        for number in [
            ALARM,
            STACK_FAULT,
            CPU_LIMIT,
            FILE_LIMIT,
            VIRTUAL_TIMER,
            PROFILER,
            INPUT,
            POWER,
            REAL_TIME,
        ] {
            let mut command = project.ringfence();
            command
                .args(["run", "-c", line])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let child = command.spawn().expect("it starts");
            assert!(
                becomes_true(Duration::from_secs(20), || project.has("begun")),
                "{user}: it does not begin"
            );
            project.sh_bare(&format!("kill -{number} {}", child.id())).ok();
            let ran = finish(child);
            assert_eq!(
                (ran.status, ran.signal),
                (128 + number, None),
                "{user}: {number} {}",
                ran.stderr_text()
            );
            assert!(
                !project.has("made/.git/hooks/pre-commit")
                    && ran.stderr_text().contains("was moved to"),
                "{user}: {number} {}",
                ran.stderr_text()
            );
            fs::remove_dir_all(project.at("made")).expect("it was made");
            fs::remove_file(project.at("begun")).expect("it was made");
        }
    });
}

#[test]
fn alarm_set_before_ringfence_ends_the_command() {
    if !needs(&["perl"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let mut command = project.command("perl");
        command.args(["-e", "alarm 5; exec @ARGV", "--"]).arg(project.binary()).args([
            "run",
            "-c",
            "touch ran; exec sleep 30",
        ]);
        let ran = TestOutput::run(&mut command, b"");
        assert_eq!(
            (ran.status, ran.signal, project.has("ran")),
            (128 + 14, None, true),
            "{user}: {}",
            ran.stderr_text()
        );
    });
}

/// Syscalls that the policy denies, each in a way that is hard to observe.
const UNSEEN: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
static char *low;
static void old(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
}
static void host(void *at, const char *name) {
    struct sockaddr_in to = {AF_INET, htons(80)};
    inet_pton(AF_INET, name, &to.sin_addr);
    memcpy(at, &to, sizeof to);
}
int main(int count, char **words) {
    low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    char *high = mmap((void *)0x100000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(high, "kept/times");
    utimensat(AT_FDCWD, high, 0, 0);
    host(high, "203.0.113.1");
    sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (void *)high, sizeof(struct sockaddr_in));
    old(182, (long)strcpy(low, "kept/chown"), getuid(), getgid());
    old(16, (long)strcpy(low, "kept/lchown"), getuid(), getgid());
    int *args = (int *)(low + 256);
    host(low, "203.0.113.2");
    args[0] = socket(AF_INET, SOCK_STREAM, 0); args[1] = (int)(long)low; args[2] = sizeof(struct sockaddr_in);
    old(102, 3, (long)args, 0);
    chmod("/proc/thread-self/cwd/kept/chmod", 0600);
    unlink("/proc/thread-self/cwd/kept/unlink");
    symlink("/proc/self/cwd", "here");
    truncate("here/kept/truncate", 0);
    rmdir("here/kept/rmdir");
    rename("README", words[1]);
    link("README", words[2]);
    return 1;
}
"#;

#[test]
fn denials_are_reported_for_every_kind_of_syscall() {
    if !cfg!(target_arch = "x86_64") {
        skip("the calls of other architectures are written down for x86-64 only");
        return;
    }
    each_user(|user| {
        let project = project(user);
        let Some(program) = compile(&project, "unseen", UNSEEN) else { return };
        let names = ["times", "chown", "lchown", "chmod", "unlink", "truncate"];
        names.iter().for_each(|name| project.write(format!("kept/{name}"), "kept"));
        project.make_directories(&project.at("kept/rmdir"));
        project.make_directories(&project.home().join("opened"));
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[filesystem]\nprotect = [\"kept\"]\n",
        );
        let (root, opened) = (
            project.root().display().to_string(),
            project.home().join("opened").display().to_string(),
        );
        let (renamed, linked) = (format!("{opened}/renamed"), format!("{opened}/linked"));
        let said = object(&project.run([
            "--json",
            "--read",
            &opened,
            "--",
            &program.to_string_lossy(),
            &renamed,
            &linked,
        ]));
        let denied = denied(&said);
        let written =
            names.iter().chain(&["rmdir"]).map(|name| format!("write {root}/kept/{name}"));
        let hosts = ["connect 203.0.113.1:80/udp", "connect 203.0.113.2:80"].map(str::to_owned);
        let made = [format!("rename {renamed}"), format!("create {linked}")];
        let missing: Vec<String> =
            written.chain(hosts).chain(made).filter(|one| !denied.contains(one)).collect();
        assert!(missing.is_empty(), "{missing:?} of {denied:?}");
    });
}
