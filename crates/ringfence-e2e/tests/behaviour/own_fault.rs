//! Commands that fail by themselves, in a home with the usual start-up files, are not `blocked`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_testkit::{TestProject, TestUser, each_user, fuse_for_all};
use serde_json::Value;

use crate::project;

/// Start-up files, histories and settings that a home usually has.
const DOTFILES: &[&str] = &[
    ".profile",
    ".bash_profile",
    ".bashrc",
    ".bash_logout",
    ".bash_history",
    ".zshenv",
    ".zshrc",
    ".zprofile",
    ".npmrc",
    ".yarnrc",
    ".node_repl_history",
    ".curlrc",
    ".config/curlrc",
    ".wgetrc",
    ".wget-hsts",
    ".netrc",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".python_history",
    ".pdbrc",
    ".config/git/config",
    ".config/git/ignore",
    ".gitignore_global",
    ".gitconfig-work",
    ".vimrc",
    ".exrc",
    ".viminfo",
    ".lesskey",
    ".inputrc",
    ".terminfo/x",
    ".tmux.conf",
    ".sqliterc",
    ".jq",
    ".config/go/env",
    ".m2/settings.xml",
    ".gemrc",
    ".toprc",
    ".perldb",
];

const FILES: &[(&str, &str)] = &[
    (
        "package.json",
        r#"{"name":"a","version":"1.0.0","scripts":{"test":"exit 1","build":"node -e \"process.exit(2)\""}}"#,
    ),
    ("Makefile", "all:\n\tfalse\n"),
    ("bad.c", "int main(void) { return x; }\n"),
    ("bad.go", "package main\nfunc main() { x }\n"),
    ("Bad.java", "class Bad { int x = \"a\"; }\n"),
    ("bad.py", "import nosuchmodule\n"),
    ("bad.js", "require('nosuchmodule')\n"),
    ("bad.sh", "exit 4\n"),
    (
        "read.py",
        "import os, sys\nprint(open(os.path.expanduser('~/.config/pip/' + 'pip.conf')).read())\n",
    ),
    ("read.js", "console.log(require('fs').readFileSync(process.env.HOME + '/.npm' + 'rc'))\n"),
];

fn home_with_dotfiles(user: TestUser) -> TestProject {
    let project = project(user);
    for file in DOTFILES {
        project.write_at(&project.home().join(file), "# mine\n");
    }
    let config = "[user]\n\tname = A Person\n\temail = person@example.org\n[include]\n\tpath = ~/.gitconfig-work\n[core]\n\texcludesFile = ~/.gitignore_global\n";
    project.write_at(&project.home().join(".gitconfig"), config);
    for (name, content) in FILES {
        project.write(name, content);
    }
    project.sh_bare("git init -q").ok();
    project
}

#[track_caller]
fn outcome(project: &TestProject, line: &str) -> Value {
    let ran = project.run(["--json", "-c", line]);
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("`{line}`: {error}\n{}", ran.stderr_text()))
}

/// Runs each line as each user: every one fails, and none is blocked.
#[track_caller]
fn check(lines: &[&str]) {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = home_with_dotfiles(user);
        let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                let said = outcome(&project, line);
                let nothing =
                    [&said["blockedResource"], &said["blockedReason"], &said["permission"]]
                        .into_iter()
                        .all(Value::is_null);
                if said["exitCode"] == 0
                    || said["exitCode"] == 127
                    || said["blocked"] != false
                    || !nothing
                {
                    let denials = said["denials"].as_array().cloned().unwrap_or_default();
                    let denied: Vec<String> = denials
                        .iter()
                        .map(|one| format!("{} by {}", one["target"], one["program"]))
                        .collect();
                    let text = format!(
                        "`{line}` {} {} {denied:?} {}",
                        said["exitCode"], said["blocked"], said["stderr"]
                    );
                    wrong.lock().expect("no thread panics").push(text);
                }
            }
        };
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
        let wrong = wrong.into_inner().expect("no thread panics");
        assert!(wrong.is_empty(), "{user}:\n{}", wrong.join("\n"));
    });
}

/// Promise: own-failures
#[test]
fn failing_shells_are_not_blocked() {
    check(&[
        "bash -lc false",
        "bash -ic false",
        "bash --login -c 'exit 3'",
        "bash -l bad.sh",
        "sh -lc false",
        "zsh -c false",
        "zsh -lc false",
        "zsh -ic false",
        "exit 7",
        "kill -TERM $$",
        "cd nosuch",
    ]);
}

/// Promise: own-failures
#[test]
fn failing_package_managers_are_not_blocked() {
    check(&[
        "npm test",
        "npm run build",
        "npm run nosuch",
        "npm ls nosuch",
        "node -e 'process.exit(1)'",
        "node bad.js",
        "node nosuch.js",
        "/usr/bin/python3 -m pip show nosuch",
        "/usr/bin/python3 -m pip install ./nosuch",
        "/usr/bin/python3 -m pip nosuch",
        "/usr/bin/python3 -c 'raise SystemExit(1)'",
        "/usr/bin/python3 bad.py",
        "/usr/bin/python3 -m unittest nosuch",
        "/usr/bin/python3 -c 'raise ValueError'",
    ]);
}

/// Promise: own-failures
#[test]
fn failing_git_is_not_blocked() {
    check(&[
        "git commit -m x",
        "git checkout nosuch",
        "git log nosuch",
        "git push",
        "git merge nosuch",
        "git apply nosuch.patch",
        "git rev-parse nosuch",
        "git diff --exit-code --no-index README package.json",
    ]);
}

/// Promise: own-failures
#[test]
fn failing_transfers_are_not_blocked() {
    check(&[
        "curl -s http://127.0.0.1:9/",
        "curl --nosuch",
        "curl -s file:///nosuch",
        "wget -q http://127.0.0.1:9/",
        "wget --nosuch",
        "nc -z 127.0.0.1 9",
    ]);
}

/// Promise: own-failures
#[test]
fn failing_builds_and_editors_are_not_blocked() {
    check(&[
        "make",
        "make nosuch",
        "gcc bad.c",
        "gcc nosuch.c",
        "go build bad.go",
        "javac Bad.java",
        "ex -s -c cq",
        "vi -es -c cq README",
        "sqlite3 x.db 'select nosuch'",
        "jq . README",
        "tmux has-session -t nosuch",
        "perl -e 'exit 1'",
        "perl -e die",
        "patch < README",
        "openssl x509 -in README",
        "ssh-keygen -l -f nosuch",
    ]);
}

/// Promise: own-failures
#[test]
fn failing_plain_tools_are_not_blocked() {
    check(&[
        "false",
        "test -e nosuch",
        "ls nosuch",
        "cat nosuch",
        "grep nosuch README",
        "tar xf nosuch.tar",
        "tar tf README",
        "find nosuch",
        "diff README package.json",
        "sed -n p nosuch",
        "unzip nosuch.zip",
        "zip -q nosuch.zip nosuch",
        "timeout 1 sleep 5",
        "ps -p 999999",
    ]);
}

/// Promise: own-failures
#[test]
fn own_start_up_files_are_recorded_as_optional() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = home_with_dotfiles(user);
        for (line, file) in [
            ("bash -lc false", ".bash_profile"),
            ("npm test", ".npmrc"),
            ("curl -s http://127.0.0.1:9/", ".curlrc"),
            ("wget -q http://127.0.0.1:9/", ".netrc"),
            ("/usr/bin/python3 -m pip show nosuch", ".config/pip/pip.conf"),
        ] {
            let said = outcome(&project, line);
            let target = project.home().join(file).to_string_lossy().into_owned();
            let is_reported =
                |one: &Value| one["target"] == target.as_str() && one["optional"] == true;
            assert!(
                said["denials"].as_array().is_some_and(|all| all.iter().any(is_reported)),
                "{user}: `{line}`: {said}"
            );
        }
    });
}

/// Promise: own-failures
#[test]
fn deliberate_access_to_a_start_up_file_is_blocked() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = home_with_dotfiles(user);
        for (line, file) in [
            ("cat ~/.npmrc", ".npmrc"),
            ("cat ~/.profile", ".profile"),
            ("cat ~/.curlrc", ".curlrc"),
            ("cat ~/.config/pip/pip.conf || true", ".config/pip/pip.conf"),
            (". ~/.profile", ".profile"),
            ("node read.js", ".npmrc"),
            ("/usr/bin/python3 read.py", ".config/pip/pip.conf"),
            ("curl -s file://$HOME/.netrc", ".netrc"),
            ("bash -lc 'cat ~/.netrc'", ".netrc"),
            ("npm test; cat ~/.npmrc", ".npmrc"),
            ("cp ~/.vimrc mine", ".vimrc"),
        ] {
            let said = outcome(&project, line);
            let target = project.home().join(file).to_string_lossy().into_owned();
            assert_eq!(
                (&said["blocked"], &said["blockedResource"]),
                (&true.into(), &target.into()),
                "{user}: `{line}`: {said}"
            );
        }
    });
}

/// Promise: own-failures
#[test]
fn unresolved_name_is_blocked_and_offers_a_grant() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = home_with_dotfiles(user);
        let said = outcome(&project, "curl -s --max-time 5 https://example.invalid/");
        assert_eq!(
            (&said["blocked"], &said["blockedResource"]),
            (&true.into(), &"example.invalid".into()),
            "{user}: {said}"
        );
        let permission = &said["permission"];
        assert_eq!(permission["resource"], "example.invalid", "{user}: {said}");
        let options = ["allow_once", "allow_session", "allow_permanent", "deny"];
        assert_eq!(permission["options"], serde_json::json!(options), "{user}: {said}");
        let said = outcome(&project, "curl -s --max-time 5 http://192.0.2.1/");
        assert_eq!(said["permission"]["resource"], "192.0.2.1:80", "{user}: {said}");
        // An answer does not lift a rule that denies the host.
        let ran = project.run([
            "--json",
            "--allow-host",
            "example.org",
            "--deny-host",
            "example.invalid",
            "-c",
            "curl -s https://example.invalid/",
        ]);
        let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert_eq!(
            (&said["blocked"], &said["permission"]),
            (&true.into(), &Value::Null),
            "{user}: {said}"
        );
    });
}
