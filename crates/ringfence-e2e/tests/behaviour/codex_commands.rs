//! `ringfence sandbox` and `ringfence debug`: the command lines that users of `codex sandbox` know.
//!
//! The quoted sentences are from the description of that tool, translated.

use std::net::TcpListener;

use ringfence_testkit::{SECRET, TestOutput, TestProject, TestUser, each_user};
use serde_json::{Value, json};

use crate::agents::records;
use crate::project;
use crate::sessions::can_change_mounts;

fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(words), b"")
}

/// Runs a shell line by `ringfence sandbox linux`.
fn linux(project: &TestProject, flags: &[&str], line: &str) -> TestOutput {
    ringfence(project, &[&["sandbox", "linux"], flags, &["-c", line]].concat())
}

/// Runs a shell line under a sandbox policy.
fn under(project: &TestProject, policy: &Value, line: &str) -> TestOutput {
    linux(project, &["--sandbox-policy", &policy.to_string()], line)
}

fn user_policy(project: &TestProject, text: &str) {
    project.write_at(
        &project.home().join(".config/ringfence/policy.toml"),
        format!("version = 1\n{text}"),
    );
}

/// "The flag `--full-auto` uses the sandbox mode workspace-write; otherwise the default is read-only."
#[test]
fn project_is_read_only_without_full_auto() {
    each_user(|user| {
        for mode in ["workspace-write", "full-access"] {
            let project = project(user);
            user_policy(&project, &format!("mode = \"{mode}\"\n"));
            assert_eq!(linux(&project, &[], "cat README").ok(), "hello");
            assert_ne!(linux(&project, &[], "touch made").status, 0, "{mode}");
            assert!(!project.has("made"), "{mode}");
            linux(&project, &["--full-auto"], "touch made").ok();
            assert!(project.has("made"), "{mode}");
            // The denials of `run` hold in both modes.
            for flags in [&[][..], &["--full-auto"]] {
                let ran = linux(&project, flags, "cat .env ~/.ssh/id_rsa");
                assert!(ran.status != 0 && !ran.text().contains(SECRET), "{mode}");
            }
        }
    });
}

/// "codex sandbox linux [--full-auto] [COMMAND]..." and "older aliases: codex debug landlock
/// [--full-auto] [COMMAND]..."
#[test]
fn other_spellings_of_a_run_give_the_same_result() {
    each_user(|user| {
        let result = |words: &[&str]| {
            let project = project(user);
            let ran = ringfence(&project, words);
            (ran.status, ran.text(), ran.stderr_text(), project.entries())
        };
        let line = "echo out; echo err >&2; cat .env; touch made; exit 3";
        for (full_auto, mode) in [(&[][..], "read-only"), (&["--full-auto"], "workspace-write")] {
            let command = ["sh", "-c", line];
            let expect = result(&[&["run", "--mode", mode, "--"][..], &command].concat());
            assert_eq!((expect.0, expect.1.as_str()), (3, "out"));
            for name in [["sandbox", "linux"], ["debug", "landlock"]] {
                // The two dashes are optional.
                for dashes in [&["--"][..], &[]] {
                    let words = [&name[..], full_auto, dashes, &command].concat();
                    assert_eq!(result(&words), expect, "{words:?} as {user}");
                }
            }
        }
    });
}

#[test]
fn json_and_policy_flags_are_those_of_run() {
    each_user(|user| {
        let project = project(user);
        let ran = linux(&project, &["--json", "--deny", "README"], "cat README");
        let result: Value = serde_json::from_str(&ran.text()).expect("one object");
        assert_eq!((&result["exitCode"], &result["blocked"]), (&1.into(), &true.into()));
        let begun = &records(&project)[0];
        assert_eq!((&begun["operation"], &begun["confined"]), (&"execute".into(), &true.into()));
        // An explicit mode is stronger than the default of the command.
        linux(&project, &["--mode", "workspace-write"], "touch made").ok();
    });
}

/// The interactive shell is `ringfence shell`: an empty command of a program must open none.
#[test]
fn missing_command_is_a_usage_error() {
    each_user(|user| {
        let project = project(user);
        for words in [&["sandbox", "linux"][..], &["sandbox", "linux", "--full-auto"]] {
            let ran = ringfence(&project, words);
            let said = ran.expect_status(125).stderr_text();
            assert!(
                said.contains("hint: write the command after `--`; `ringfence shell`"),
                "{said}"
            );
        }
    });
}

/// "codex sandbox macos [--full-auto] [COMMAND]..." and "codex debug seatbelt"
#[test]
fn sandbox_of_another_platform_runs_nothing_and_says_so() {
    each_user(|user| {
        let project = project(user);
        for (words, platform) in [
            (["sandbox", "macos"], "macOS"),
            (["debug", "seatbelt"], "macOS"),
            (["sandbox", "windows"], "Windows"),
        ] {
            for flags in [&[][..], &["--full-auto"], &["--json"]] {
                let ran = ringfence(&project, &[&words[..], flags, &["touch", "ran"]].concat());
                let said = ran.expect_status(125).stderr_text();
                assert!(
                    said.contains(&format!("cannot run in the sandbox of {platform}"))
                        && said.contains(&format!("no plan for {platform}"))
                        && said.contains("hint: `ringfence sandbox linux`"),
                    "{said}"
                );
                if flags == ["--json"] {
                    let object: Value = serde_json::from_str(&ran.text()).expect("one object");
                    assert_eq!(object["error"]["code"], "other-platform");
                }
            }
        }
        assert!(!project.has("ran"));
    });
}

#[test]
fn log_and_test_are_those_without_sandbox() {
    each_user(|user| {
        let project = project(user);
        project.run(["-c", "echo x > .mcp.json"]);
        for flags in [&[][..], &["--blocked-only"], &["--json", "--since", "1h"], &["--verify"]] {
            let [ours, theirs] = [&["log"][..], &["sandbox", "log"]]
                .map(|words| ringfence(&project, &[words, flags].concat()));
            assert_eq!(ours.ok(), theirs.ok(), "{flags:?}");
            assert!(!ours.text().is_empty(), "{flags:?}");
        }
        let promises = |words: &[&str]| {
            let text = ringfence(&project, &[words, &["--json", "--mode", "read-only"]].concat());
            let table: Value = serde_json::from_str(&text.ok()).expect("one object");
            let rows = table["promises"].as_array().expect("rows").clone();
            rows.into_iter().map(|row| (row["promise"].clone(), row["state"].clone())).collect()
        };
        let ours: Vec<(Value, Value)> = promises(&["test"]);
        assert!(ours.len() > 5, "{ours:?}");
        assert_eq!(ours, promises(&["sandbox", "test"]));
    });
}

/// "These policies decide which file paths the AI can read and write, and whether network access is
/// allowed."
#[test]
fn writable_roots_are_writable_and_no_other_directory() {
    each_user(|user| {
        let project = project(user);
        for name in ["lib", "lib2"] {
            project.make_directories(&project.home().join("code").join(name));
        }
        let write = "echo x > ../lib/x && echo x > ../lib2/x && echo x > made";
        let lib = project.home().join("code/lib");
        let policy = json!({ "type": "workspace-write", "writable_roots": [lib, "../lib2"] });
        assert_ne!(under(&project, &json!({ "type": "workspace-write" }), write).status, 0);
        under(&project, &policy, write).ok();
        let outside = |name: &str| project.home().join("code").join(name).exists();
        assert!(outside("lib/x") && outside("lib2/x") && project.has("made"));
        assert_ne!(under(&project, &policy, "echo x > ../other/x").status, 0);
        assert_ne!(under(&project, &json!({ "type": "read-only" }), "touch more").status, 0);
        // The same from a file, with the older key, and as a name.
        project.write("p.json", policy.to_string().replace("type", "mode"));
        linux(&project, &["--sandbox-policy", "@p.json"], write).ok();
        for name in ["read-only", "workspace-write"] {
            let ran = linux(&project, &["--sandbox-policy", name], "touch more");
            assert_eq!(ran.status == 0, name == "workspace-write", "{}", ran.stderr_text());
        }
    });
}

/// "[codex-linux-sandbox] --sandbox-policy-cwd [cwd] --sandbox-policy [json_policy] --
/// [original_command]"
#[test]
fn directory_of_the_policy_is_the_workspace_and_the_base_of_its_roots() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q . && mkdir part more").ok();
        let ran = |policy: Value, line: &str| {
            let (cwd, policy) = (project.at("part").display().to_string(), policy.to_string());
            let flags = ["--sandbox-policy-cwd", &cwd, "--sandbox-policy", &policy, "--"];
            let words = [&["debug", "landlock"][..], &flags, &["sh", "-c", line]].concat();
            ringfence(&project, &words).status == 0
        };
        let plain = json!({ "type": "workspace-write" });
        assert!(ran(plain.clone(), "echo x > part/x && cat README"));
        // It is a part of the repository: the rest stays read-only.
        assert!(!ran(plain.clone(), "echo x > x") && !ran(plain, "echo x > more/x"));
        let more = json!({ "type": "workspace-write", "writable_roots": ["../more"] });
        assert!(ran(more.clone(), "echo x > more/x && echo x > part/y") && !ran(more, "touch x"));
        assert!(!ran(json!({ "type": "read-only" }), "echo x > part/z"));
    });
}

/// "For the policy `WorkspaceWrite`, it allows writing in the workspace directory and its
/// subdirectories, but prevents writing in sensitive subdirectories such as `.git` and `.codex`, so
/// that no malicious code is injected."
#[test]
fn git_config_and_codex_settings_are_protected_in_a_writable_workspace() {
    each_user(|user| {
        let project = project(user);
        project.make_directories(&project.home().join("code/lib"));
        project.sh_bare("git init -q . && git init -q ../lib").ok();
        project.write(".codex/config.toml", "a = 1\n");
        let roots = json!({ "type": "workspace-write", "writable_roots": ["../lib"] }).to_string();
        for flags in [&["--full-auto"][..], &["--sandbox-policy", &roots]] {
            for name in [
                ".git/config",
                ".git/hooks/pre-commit",
                ".codex/config.toml",
                "../lib/.git/config",
                "../lib/.git/hooks/pre-commit",
            ] {
                let ran = linux(&project, flags, &format!("echo x >> {name}"));
                assert_ne!(ran.status, 0, "{flags:?} {name}");
            }
        }
        assert_eq!(project.read(".codex/config.toml").as_deref(), Some("a = 1\n"));
    });
}

/// "[sandbox_workspace_write] network_access = true: allow network access in the mode
/// workspace-write."
#[test]
fn network_is_shut_unless_the_sandbox_policy_opens_it() {
    each_user(|user| {
        let project = project(user);
        let server = TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
        let port = server.local_addr().expect("it is bound").port();
        let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'");
        // The JSON is a flag: it is stronger than the user's file.
        user_policy(&project, "[network]\nmode = \"full\"\n");
        linux(&project, &[], &line).ok();
        for kind in ["read-only", "workspace-write"] {
            for (access, is_open) in [(json!(true), true), (json!(false), false)] {
                let policy = json!({ "type": kind, "network_access": access });
                assert_eq!(under(&project, &policy, &line).status == 0, is_open, "{policy}");
            }
            assert_ne!(under(&project, &json!({ "type": kind }), &line).status, 0, "{kind}");
        }
    });
}

/// Roots of another tool's policy open nothing that a built-in rule denies, also through a link.
#[test]
fn policy_directory_opens_no_protected_directory() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q . && mkdir -p .claude .ringfence part").ok();
        let run = |directory: &str, line: &str| {
            let mut command = project.ringfence();
            command.args(["sandbox", "linux", "--sandbox-policy", r#"{"type":"workspace-write"}"#]);
            let words = ["--sandbox-policy-cwd", directory, "--", "sh", "-c", line];
            TestOutput::run(command.args(words), b"")
        };
        for directory in [".claude", ".ringfence", ".git/hooks"] {
            let ran = run(directory, "echo x > made");
            let said = ran.expect_status(125).stderr_text();
            assert!(said.contains("`--sandbox-policy-cwd` is not opened"), "{directory}: {said}");
            assert!(!project.has(format!("{directory}/made")), "{directory}");
        }
        run("part", "echo x > part/made").ok();
        assert!(project.has("part/made"));
    });
}

#[test]
fn writable_roots_open_no_built_in_deny() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("ln -s ~/.ssh keys && git init -q .").ok();
        let home = project.home().display().to_string();
        for (root, rule) in [
            (format!("{home}/.ssh"), "~/.ssh"),
            ("../../.aws/credentials".into(), "~/.aws"),
            ("keys".into(), "~/.ssh"),
            (".env".into(), ".env"),
            (".git/hooks".into(), ".git/hooks"),
        ] {
            let policy = json!({ "type": "workspace-write", "writable_roots": [root] });
            let ran = under(&project, &policy, "touch ran; cat ~/.ssh/id_rsa .env");
            let said = ran.expect_status(125).stderr_text();
            assert!(
                said.contains(&format!("`{root}` in `writable_roots` is not opened"))
                    && said.contains(rule),
                "{said}"
            );
        }
        std::fs::create_dir(project.at("$HOME")).expect("the project is writable");
        for (root, reason) in [
            ("$HOME", "its name has `$`"),
            ("lib/**", "does not exist"),
            // A name like any other, below the project.
            ("~", "does not exist"),
            ("/", "name the directories in it"),
        ] {
            let policy = json!({ "type": "workspace-write", "writable_roots": [root] });
            let said = under(&project, &policy, "touch ran").expect_status(125).stderr_text();
            assert!(said.contains(reason), "{root}: {said}");
        }
        assert!(!project.has("ran"));
        let whole = json!({ "type": "workspace-write", "writable_roots": [home] });
        let ran = under(&project, &whole, "cat ~/.ssh/id_rsa ~/.netrc .env");
        assert!(ran.status != 0 && !ran.text().contains(SECRET), "{}", ran.text());
    });
}

#[test]
fn mistakes_in_a_sandbox_policy_have_a_position_and_run_nothing() {
    each_user(|user| {
        let project = project(user);
        project.write("p.json", "{\n  \"type\": \"read-only\",\n  \"writeable_roots\": []\n}\n");
        for (policy, place, hint) in [
            (r#"{"type":"read-only""#, "--sandbox-policy:1:", "{\"type\":\"read-only\"}"),
            (r#"{"type":"read-write"}"#, "--sandbox-policy:1:9:", "danger-full-access"),
            (r#"{"type":"external-sandbox"}"#, "--sandbox-policy:1:9:", "workspace-write"),
            (r#"{"type":"read-only","roots":[]}"#, "--sandbox-policy:1:21:", "network_access"),
            ("@p.json", "p.json:3:3: unknown key `writeable_roots`", "network_access"),
            (
                r#"{"type":"x\u001b[2J"}"#,
                "--sandbox-policy:1:9: unknown type of sandbox policy `x\u{fffd}[2J`",
                "read-only",
            ),
            ("@missing.json", "missing.json", ""),
        ] {
            let ran = linux(&project, &["--sandbox-policy", policy], "touch ran");
            let said = ran.expect_status(125).stderr_text();
            assert!(said.contains(&format!("error: {place}")) || hint.is_empty(), "{said}");
            assert!(said.contains(place) && said.contains(hint), "{said}");
        }
        let policy = r#"{"type":"workspace-write"}"#;
        for flags in [
            &["--sandbox-policy", policy, "--full-auto"][..],
            &["--sandbox-policy", policy, "--mode", "read-only"],
            &["--sandbox-policy", policy, "--net", "full"],
            &["--sandbox-policy", policy, "--sandbox-policy-cwd", ".", "--project", "."],
            &["--sandbox-policy-cwd", "."],
            &["--full-auto", "--mode", "read-only"],
        ] {
            let said = linux(&project, flags, "touch ran").expect_status(125).stderr_text();
            let is_usage = said.contains("cannot be used with") || said.contains("required");
            assert!(is_usage && said.contains("Usage:"), "{flags:?}: {said}");
        }
        assert!(!project.has("ran"));
        // An exclusion that cannot matter is named, and the command runs.
        let policy = json!({ "type": "workspace-write", "exclude_slash_tmp": true });
        let ran = under(&project, &policy, "touch ran");
        ran.ok();
        assert!(ran.stderr_text().contains("note: exclude_slash_tmp"), "{}", ran.stderr_text());
    });
}

/// "It defines three main modes: read-only, workspace-write and dangerous full access." The third is
/// loud and recorded.
#[test]
fn full_access_is_announced_and_recorded() {
    each_user(|user| {
        let project = project(user);
        let ran = under(&project, &json!({ "type": "danger-full-access" }), "cat .env");
        assert_eq!(ran.ok(), SECRET);
        assert!(ran.stderr_text().contains("warning: nothing is confined"), "{}", ran.text());
        let begun = &records(&project)[0];
        assert_eq!((&begun["operation"], &begun["confined"]), (&"execute".into(), &false.into()));
        assert_eq!(begun["policy"], "full-access");
    });
}

/// Runs a line on a machine with a managed policy.
fn managed(user: TestUser, text: &str, flags: &[&str], line: &str) -> (TestOutput, TestProject) {
    let project = project(user);
    project.make_directories(&project.home().join("code/lib"));
    project.write_at(&project.home().join("managed/policy.toml"), format!("version = 1\n{text}"));
    let etc = project.home().join("etc").display().to_string();
    let mounts = format!(
        "mkdir -p {etc} && mount -t tmpfs none {etc} && cp -a /etc/. {etc}/ 2> /dev/null; mkdir -p {etc}/ringfence && \
         cp {}/managed/policy.toml {etc}/ringfence/ && mount --bind {etc} /etc",
        project.home().display()
    );
    let words = [&["sandbox", "linux"], flags, &["-c", line]].concat();
    let ran = TestOutput::run(project.ringfence_after(&mounts).args(words), b"");
    (ran, project)
}

#[test]
fn managed_policy_is_not_exceeded() {
    if !can_change_mounts() {
        return;
    }
    let roots = r#"{"type":"workspace-write","writable_roots":["../lib"]}"#;
    each_user(|user| {
        for (text, flags, flag, ceiling) in [
            ("mode = \"read-only\"", &["--full-auto"][..], "--full-auto", "read-only"),
            ("mode = \"read-only\"", &["--sandbox-policy", roots], "--sandbox-policy", "read-only"),
            (
                "mode = \"workspace-write\"",
                &["--sandbox-policy", r#"{"type":"danger-full-access"}"#],
                "--sandbox-policy",
                "workspace-write",
            ),
            ("[network]\nmode = \"none\"", &["--full-auto", "--net", "full"], "--net", "none"),
            (
                "[network]\nmode = \"none\"",
                &["--sandbox-policy", r#"{"type":"read-only","network_access":true}"#],
                "--sandbox-policy",
                "none",
            ),
        ] {
            let (ran, project) = managed(user, text, flags, "touch ran");
            let said = ran.expect_status(125).stderr_text();
            let expect = format!("{flag} goes beyond what the managed policy allows, `{ceiling}`");
            assert!(said.contains(&expect), "{said}");
            assert!(!project.has("ran"));
        }
        let lock = "[filesystem]\ndeny = [{ path = \"~/code/lib\", locked = true }]\n";
        let flags = ["--sandbox-policy", roots];
        let (ran, project) = managed(user, lock, &flags, "echo x > ../lib/x");
        assert!(ran.status != 0 && !project.home().join("code/lib/x").exists());
    });
}
