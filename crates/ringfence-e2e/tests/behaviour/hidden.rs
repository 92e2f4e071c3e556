//! Denied names that look absent (`hide`) or empty (`env-files = "empty"`) to programs that read
//! them: loaders of `.env` files continue, no content is visible, and every attempt is reported.

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, each_user, fuse_for_all, needs,
};
use serde_json::Value;

use crate::project;

const LOADER: &str = "
import os
if os.path.exists('.env'):
    print('loaded', repr(open('.env').read()))
try:
    print('opened', repr(open('.env').read()))
except FileNotFoundError:
    print('none')
print(os.path.lexists('.env'), os.access('.env', os.F_OK), os.access('.env', os.R_OK))
";

/// A project with `.env`, ignored by git, and this choice for such files.
fn with_env_files(user: TestUser, choice: &str) -> TestProject {
    let project = project(user);
    project.write(
        ".ringfence/policy.toml",
        format!("version = 1\n[filesystem]\nenv-files = \"{choice}\"\n"),
    );
    project.write("web/.env.local", SECRET);
    project.write(".gitignore", ".env*\n.ringfence\n");
    project
}

/// Runs `body` for each user, where FUSE is available.
fn each(body: impl Fn(TestUser)) {
    if fuse_for_all() {
        each_user(body);
    }
}

fn result(ran: &TestOutput) -> Value {
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", ran.text(), ran.stderr_text()))
}

/// The denials of a command line as `operation name`.
fn denials(said: &Value) -> Vec<String> {
    let name = |denial: &Value| {
        denial["target"]
            .as_str()
            .unwrap_or_default()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    said["denials"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|denial| {
            format!("{} {}", denial["operation"].as_str().unwrap_or_default(), name(denial))
        })
        .collect()
}

#[test]
fn loaders_find_a_hidden_env_file_absent() {
    each(|user| {
        let project = with_env_files(user, "hide");
        assert_eq!(
            project.run(["--", "python3", "-c", LOADER]).ok(),
            "none\nFalse False False",
            "{user}"
        );
        let talk = project.run(["--", "cat", ".env"]).expect_status(1).stderr_text();
        assert!(talk.contains("No such file or directory"), "{user}: {talk}");
        project.sh("! [ -e .env ] && ! [ -e web/.env.local ] && ! cat web/.env.local").ok();
        project.sh("cd web && ! [ -e .env.local ]").ok();
    });
}

#[test]
fn node_loaders_find_a_hidden_env_file_absent() {
    if !needs(&["node"]) {
        return;
    }
    each(|user| {
        let project = with_env_files(user, "hide");
        let line = "const fs = require('fs'); let code = 'read'; try { fs.readFileSync('.env') } catch (e) { code = e.code } console.log(fs.existsSync('.env'), code)";
        assert_eq!(project.run(["--", "node", "-e", line]).ok(), "false ENOENT", "{user}");
    });
}

#[test]
fn empty_env_file_reads_as_empty_and_tools_continue() {
    each(|user| {
        let project = with_env_files(user, "empty");
        assert_eq!(
            project.run(["--", "python3", "-c", LOADER]).ok(),
            "loaded ''\nopened ''\nTrue True True",
            "{user}"
        );
        project
            .sh_bare("rm -rf x.pem SECRET.txt server.KEY sub/deeper; git init -q; git add -A")
            .ok();
        let line = "set -e; cat .env; wc -c < web/.env.local; ls -la >/dev/null; mkdir /tmp/copy; cp -r .env web README /tmp/copy
            tar cf /tmp/x.tar .; git diff; git status --short > /tmp/status; ! grep -v '^A ' /tmp/status; ! grep -r zzz .";
        let ran = project.sh(line);
        let talk = ran.stderr_text();
        ran.ok();
        assert_eq!(talk, "", "{user}");
        assert_eq!(
            project
                .sh("stat -c '%s %A' .env; cat /tmp/copy/.env 2>/dev/null; dd if=.env 2>/dev/null")
                .ok(),
            "0 -r--r--r--",
            "{user}"
        );
    });
}

#[test]
fn env_file_content_is_never_shown_or_changed() {
    each(|user| {
        for choice in ["deny", "hide", "empty"] {
            let project = with_env_files(user, choice);
            let before = project.read(".env");
            let line = "cat .env web/.env.local; cat < .env; cp .env x; ln .env y; mv .env z; rm -f .env; echo x > .env; echo x >> .env; truncate -s0 .env; chmod 777 .env; grep -r . .env web; python3 -c 'import mmap; print(mmap.mmap(open(\".env\").fileno(), 0)[:])'; dd if=.env; cat /proc/self/fd/3 3<.env; true";
            let ran = project.sh(line);
            assert!(
                !ran.text().contains(SECRET) && !ran.stderr_text().contains(SECRET),
                "{user} {choice}: {}",
                ran.text()
            );
            assert_eq!(project.read(".env"), before, "{user} {choice}");
            for line in [
                "echo x > .env",
                "rm .env",
                "mv .env z",
                "ln .env y",
                "echo x > .env.new",
                "mv README .env",
            ] {
                assert_ne!(project.sh(line).status, 0, "{user} {choice}: {line}");
            }
            let talk = project.sh("echo x > .env").stderr_text();
            assert!(talk.contains("Permission denied"), "{user} {choice}: {talk}");
        }
    });
}

#[test]
fn read_of_a_hidden_file_is_recorded_and_not_blocked() {
    each(|user| {
        for choice in ["hide", "empty"] {
            let project = with_env_files(user, choice);
            let said = result(&project.run(["--json", "--", "sh", "-c", "cat .env; exit 3"]));
            assert_eq!(denials(&said), ["read .env"], "{user} {choice}");
            let denial = &said["denials"][0];
            assert_eq!(
                (&denial["rule"], &denial["evidence"], &denial["explicit"]),
                (&"**/.env".into(), &"kernel".into(), &true.into()),
                "{user}"
            );
            assert_eq!(
                (&said["blocked"], &said["exitCode"]),
                (&false.into(), &3.into()),
                "{user} {choice}: {said}"
            );
            // `stat` is not a read.
            let said = result(&project.run([
                "--json",
                "--",
                "sh",
                "-c",
                "[ -e .env ]; [ -f .env.local ]; stat .env; exit 3",
            ]));
            assert_eq!(
                (denials(&said), &said["blocked"]),
                (Vec::new(), &false.into()),
                "{user} {choice}: {said}"
            );
            // A write is denied and is the cause of the failure.
            let said = result(&project.run(["--json", "--", "sh", "-c", "echo x > .env"]));
            assert_eq!(said["blocked"], true, "{user} {choice}: {said}");
        }
    });
}

#[test]
fn env_file_that_appears_later_is_hidden_too() {
    each(|user| {
        for (choice, expect) in [("hide", "No such file"), ("empty", "0")] {
            let project = with_env_files(user, choice);
            let line = "for i in $(seq 400); do [ -e ready ] && break; sleep 0.05; done; sleep 1; wc -c < web/.env.late; true";
            let mut command = project.ringfence();
            command.args(["run", "--", "sh", "-c", line]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            let child = command.spawn().expect("ringfence starts");
            std::thread::sleep(std::time::Duration::from_millis(700));
            project.write("web/.env.late", SECRET);
            project.write("ready", "");
            let ran = ringfence_testkit::finish(child);
            let both = ran.text() + &ran.stderr_text();
            assert!(both.contains(expect) && !both.contains(SECRET), "{user} {choice}: {both}");
        }
    });
}

#[test]
fn hide_flag_and_list_take_paths_and_globs() {
    each(|user| {
        let project = project(user);
        project.write("notes/plan.txt", SECRET);
        project.write("deep/er/api.token", SECRET);
        let hidden = |line: &str| {
            project.run(["--hide", "notes", "--hide", "**/*.token", "--", "sh", "-c", line])
        };
        for line in [
            "[ -e notes ]",
            "cat notes/plan.txt",
            "ls notes",
            "cd notes",
            "[ -e deep/er/api.token ]",
            "cat deep/er/api.token",
            "mkdir notes/new",
            "echo x > new.token",
            "rm -r notes",
        ] {
            let ran = hidden(line);
            assert_ne!(ran.status, 0, "{user}: {line}");
            assert!(!ran.text().contains(SECRET), "{user}: {line}");
        }
        for line in ["ls notes", "cat notes/plan.txt", "cat deep/er/api.token"] {
            assert!(
                hidden(line).stderr_text().contains("No such file or directory"),
                "{user}: {line} {}",
                hidden(line).stderr_text()
            );
        }
        // In a directory of the sandbox, the name is not even listed.
        let home = |flag: &str| {
            project
                .run([
                    flag,
                    "~/.ssh",
                    "--",
                    "sh",
                    "-c",
                    "ls -A ~; [ -e ~/.ssh ] && echo there; true",
                ])
                .ok()
        };
        assert!(
            home("--deny").contains(".ssh") && home("--deny").contains("there"),
            "{user}: {}",
            home("--deny")
        );
        assert!(
            !home("--hide").contains(".ssh") && !home("--hide").contains("there"),
            "{user}: {}",
            home("--hide")
        );
        project.write(".ringfence/policy.toml", "version = 1\n[filesystem]\nhide = [\"notes\"]\n");
        assert!(project.sh("cat notes/plan.txt").stderr_text().contains("No such file"), "{user}");
        let shown =
            TestOutput::run(project.ringfence().args(["explain", "read", "notes/plan.txt"]), b"")
                .text();
        assert!(shown.contains("as absent"), "{user}: {shown}");
    });
}

#[test]
fn ringfence_test_passes_with_hidden_env_files() {
    each(|user| {
        for choice in ["hide", "empty"] {
            let project = with_env_files(user, choice);
            let ran = TestOutput::run(project.ringfence().arg("test"), b"");
            ran.ok();
        }
    });
}

#[test]
fn host_without_fuse_denies_hidden_names_with_a_warning() {
    if !needs(&["unshare", "mount", "setpriv"]) {
        return;
    }
    each_user(|user| {
        let project = with_env_files(user, "hide");
        let ran = TestOutput::run(
            project.ringfence_without_fuse().args(["run", "--json", "-c", "cat .env"]),
            b"",
        );
        let said = result(&ran);
        assert!(
            said["stderr"].as_str().is_some_and(|text| text.contains("Permission denied")),
            "{user}: {said}"
        );
        let gaps = said["gaps"].as_array().expect("a list");
        assert!(gaps.iter().any(|gap| gap["what"] == "filesystem.hide"), "{user}: {said}");
    });
}

#[test]
fn init_proposes_empty_env_files_where_a_loader_is_listed() {
    each_user(|user| {
        for (list, is_proposed) in [(r#"{"devDependencies":{"vite":"^7"}}"#, true), ("{}", false)] {
            let project = project(user);
            project.write("package.json", list);
            let said = TestOutput::run(project.ringfence().args(["init", "--dry-run"]), b"").text();
            assert_eq!(
                said.contains("env-files = \"empty\""),
                is_proposed,
                "{user}: {list}\n{said}"
            );
        }
    });
}
