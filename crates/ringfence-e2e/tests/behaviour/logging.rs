//! Log lines of every process, without secrets, and only where the user asks for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::egress::on_a_lan;
use crate::project;

/// `ringfence` that logs to a file in the home directory, which the sandbox cannot reach.
fn logging(project: &TestProject, filter: &str) -> Command {
    let mut command = project.ringfence();
    command.env("RINGFENCE_LOG", filter).env("RINGFENCE_LOG_FILE", log_file(project));
    command
}

fn log_file(project: &TestProject) -> std::path::PathBuf {
    project.home().join("ringfence.log")
}

fn log(project: &TestProject) -> String {
    fs::read_to_string(log_file(project)).unwrap_or_default()
}

/// The lines of a component.
fn lines_of<'a>(log: &'a str, component: &str) -> Vec<&'a str> {
    let marker = format!(" {component}: ");
    log.lines().filter(|line| line.contains(&marker)).collect()
}

#[test]
fn each_process_of_a_sandbox_logs_its_pid_and_the_sandbox() {
    each_user(|user| {
        let project = project(user);
        let line = "touch x.pem; mkdir made; cat .env; cd sub; git init -q; sleep 0.5";
        TestOutput::run(logging(&project, "trace").args(["run", "-c", line]), b"").ok();
        let log = log(&project);
        for component in
            ["engine", "launcher", "supervisor", "init", "notify", "watcher", "tripwire", "sweep"]
        {
            let lines = lines_of(&log, component);
            assert!(!lines.is_empty(), "{component} is missing:\n{log}");
            for line in lines {
                let ids = line.strip_prefix('[').and_then(|line| line.split_once("] "));
                let ids = ids.unwrap_or_else(|| panic!("no ids: {line}")).0;
                let pid = ids.split(' ').next().unwrap_or_default();
                assert!(pid.parse::<u32>().is_ok(), "{line}");
                let is_inside = ["supervisor", "init", "notify", "watcher"].contains(&component);
                assert_eq!(ids.contains(" sandbox="), is_inside, "{line}");
            }
        }
        let sandboxes: std::collections::BTreeSet<&str> = log
            .lines()
            .filter_map(|line| line.split_once("sandbox=")?.1.split([']', ' ']).next())
            .collect();
        assert_eq!(sandboxes.len(), 1, "{log}");
        let denials = lines_of(&log, "notify");
        assert!(
            denials.iter().any(|line| line.contains("denied") && line.contains("x.pem")),
            "{log}"
        );
    });
}

#[test]
fn stages_name_the_stages_they_are_within() {
    each_user(|user| {
        let project = project(user);
        TestOutput::run(logging(&project, "stage=trace").args(["run", "--", "true"]), b"").ok();
        let log = log(&project);
        let has = |path: &str, file: &str| {
            let end = format!(" {path}: stage: crates/{file}: new");
            assert!(log.lines().any(|line| line.ends_with(&end)), "{path}:\n{log}");
        };
        has("main", "ringfence-cli/src/lib.rs");
        has("main:run_for:resolve_with:resolve_as", "ringfence-policy/src/resolve.rs");
        has("main:run_for:run:prepare:plan", "ringfence-plan/src/linux.rs");
        // Only stages were asked for.
        assert!(log.lines().all(|line| line.contains(": stage: ")), "{log}");
    });
}

#[test]
fn hosts_and_names_are_logged() {
    on_a_lan(&["curl"], |project, lan| {
        let file = log_file(project);
        let variables = [
            ("RINGFENCE_LOG", "egress=debug,dns=debug"),
            ("RINGFENCE_LOG_FILE", file.to_str().unwrap()),
        ];
        let line = "curl -sS --cacert ca.crt https://app.test/hello; curl -sS https://other.test";
        let _ = lan.run_with(&variables, &["--allow-host", "app.test", "-c", line]);
        let log = log(project);
        let has = |component: &str, words: &[&str]| {
            let mut lines = lines_of(&log, component).into_iter();
            lines.any(|line| words.iter().all(|word| line.contains(word)))
        };
        assert!(has("dns", &["app.test", "Allow"]) && has("dns", &["other.test", "Deny"]), "{log}");
        assert!(has("egress", &["connected", "app.test:443"]), "{log}");
        assert!(has("egress", &["denied", "other.test"]), "{log}");
        assert!(lines_of(&log, "init").is_empty(), "{log}");
    });
}

#[test]
fn no_line_is_logged_by_default() {
    each_user(|user| {
        let project = project(user);
        let said = project.sh("touch made; sleep 0.1");
        assert_eq!(said.stderr_text(), "");
        let mut file_only = project.ringfence();
        file_only.env("RINGFENCE_LOG_FILE", log_file(&project)).args(["run", "--", "true"]);
        TestOutput::run(&mut file_only, b"").ok();
        assert!(!log_file(&project).exists());
    });
}

/// Promise: log-secrets
#[test]
fn secrets_never_appear_in_the_log() {
    const VALUE: &str = "heron-73-lantern";
    on_a_lan(&["curl"], |project, lan| {
        let policy = "version = 1\n[network]\nallow = [\"app.test\"]\n[environment]\nallow = [\"PLAIN_TOKEN\"]\n\
            [[secrets]]\nenv = \"APP_TOKEN\"\nhosts = [\"app.test\"]\nheader = \"Authorization\"\n";
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
        let line = format!(
            "cat .env; curl -sS --cacert ca.crt -u me:{VALUE} -H \"X: {VALUE}\" \
             'https://app.test/hello?key={VALUE}'; \
             curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/hello; \
             echo {VALUE} > made; echo $PLAIN_TOKEN; sleep 0.2"
        );
        for stdin in [VALUE, ""] {
            let mut command = lan.command();
            command.env("RINGFENCE_LOG", "trace").env("RINGFENCE_LOG_FILE", log_file(project));
            command.env("APP_TOKEN", VALUE).env("PLAIN_TOKEN", VALUE);
            command.env("SSL_CERT_FILE", project.root().join("ca.crt"));
            command.arg(project.binary()).args(["run", "-c", &line]);
            let said = TestOutput::run(&mut command, stdin.as_bytes());
            assert!(said.text().contains("hello from https://app.test"), "{}", said.text());
        }
        assert!(lan.server_log().contains(VALUE), "the probe sends the value");
        let log = log(project);
        assert!(
            !lines_of(&log, "egress").is_empty() && !lines_of(&log, "init").is_empty(),
            "{log}"
        );
        for secret in [VALUE, SECRET] {
            assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
        }
    });
}

#[test]
fn log_file_is_private_and_appended_to() {
    each_user(|user| {
        let project = project(user);
        for _ in 0..2 {
            TestOutput::run(logging(&project, "engine=info").args(["run", "--", "true"]), b"").ok();
        }
        let mode = fs::metadata(log_file(&project)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(lines_of(&log(&project), "engine").len(), 2, "{}", log(&project));
        let mut unwritable = logging(&project, "info");
        unwritable.env("RINGFENCE_LOG_FILE", "/proc/nowhere").args(["run", "--", "true"]);
        let said = TestOutput::run(&mut unwritable, b"");
        let said = said.expect_status(125).stderr_text();
        assert!(said.contains("cannot open the log file /proc/nowhere"), "{said}");
    });
}

#[test]
fn flags_log_to_standard_error() {
    each_user(|user| {
        let project = project(user);
        let of = |words: &[&str]| {
            let said = TestOutput::run(project.ringfence().args(words), b"");
            said.ok();
            said.stderr_text()
        };
        for words in [&["run", "-v", "--", "true"], &["-v", "run", "--", "true"]] {
            let said = of(words);
            assert!(!lines_of(&said, "init").is_empty() && !said.contains("DEBUG"), "{said}");
        }
        for words in [&["run", "-vv", "--", "true"], &["-vv", "run", "--", "true"]] {
            assert!(of(words).contains("DEBUG init: "), "{words:?}");
        }
        // The command's own flags do not count.
        assert_eq!(of(&["run", "--", "true", "-v"]), "");
        assert_eq!(of(&["run", "true", "-v"]), "");
    });
}

#[test]
fn wrong_filter_is_refused_with_the_known_components() {
    each_user(|user| {
        let project = project(user);
        for (filter, part) in
            [("loud", "no level `loud`"), ("server=debug", "no component `server`")]
        {
            let said = TestOutput::run(logging(&project, filter).args(["run", "--", "true"]), b"");
            let said = said.expect_status(125).stderr_text();
            assert!(said.contains(part) && said.contains("hint: "), "{said}");
        }
        // A hook that fails would let its command run without a sandbox.
        let call = serde_json::json!({
            "hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": project.root(),
            "session_id": "a", "tool_use_id": "b", "tool_input": { "command": "true" },
        });
        let with = |filter: &str| {
            let mut hook = logging(&project, filter);
            TestOutput::run(hook.args(["hook", "claude-code"]), call.to_string().as_bytes()).ok()
        };
        assert!(with("loud").contains("ringfence") && with("loud").contains("updatedInput"));
        assert_eq!(with("loud"), with(""));
    });
}

#[test]
fn names_of_the_command_cannot_forge_a_line() {
    each_user(|user| {
        let project = project(user);
        let line = "touch $'a\\n[1] 2026 INFO init: forged\\e[2J.pem'; true";
        TestOutput::run(logging(&project, "info").args(["run", "--", "bash", "-c", line]), b"")
            .ok();
        let log = log(&project);
        assert!(log.contains("forged") && log.lines().all(|line| line.starts_with('[')), "{log}");
        assert!(!log.lines().any(|line| line.starts_with("[1] 2026")), "{log}");
        assert!(!log.contains('\u{1b}'), "{log}");
    });
}

#[test]
fn session_logs_to_the_file() {
    each_user(|user| {
        let project = project(user);
        let id = TestOutput::run(logging(&project, "info").args(["session", "start"]), b"").ok();
        let id = id.trim();
        let run = |words: &[&str]| TestOutput::run(project.ringfence().args(words), b"").ok();
        run(&["session", "exec", id, "-c", "sleep 0.2"]);
        run(&["session", "stop", id]);
        let log = log(&project);
        for component in ["session", "supervisor", "init", "watcher"] {
            assert!(!lines_of(&log, component).is_empty(), "{component} is missing:\n{log}");
        }
    });
}

#[test]
fn mcp_server_writes_no_log_line_to_its_standard_output() {
    each_user(|user| {
        let project = project(user);
        let init = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let mut server = project.ringfence();
        let said = TestOutput::run(
            server.env("RINGFENCE_LOG", "trace").arg("mcp"),
            format!("{init}\n").as_bytes(),
        );
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(text.contains("serverInfo"), "{}", said.text());
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(value["jsonrpc"], "2.0", "{line}");
        }
        assert!(said.stderr_text().contains(" engine: "), "{}", said.text());
    });
}

#[test]
fn log_file_in_reach_of_commands_is_refused() {
    each_user(|user| {
        let project = project(user);
        let said = |file: &std::path::Path| {
            let mut run = logging(&project, "info");
            TestOutput::run(run.env("RINGFENCE_LOG_FILE", file).args(["run", "--", "true"]), b"")
        };
        let inside = said(&project.at("ringfence.log"));
        let text = inside.expect_status(125).stderr_text();
        assert!(text.contains("commands can write to the log file"), "{text}");
        // What a command could have put in its place.
        let target = project.home().join("target");
        project.write_at(&target, "untouched");
        let link = project.at("link.log");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        said(&link).expect_status(125);
        let hard = project.home().join("hard.log");
        fs::hard_link(&target, &hard).unwrap();
        let text = said(&hard).expect_status(125).stderr_text();
        assert!(text.contains("not a regular file with one name"), "{text}");
        let fifo = project.at("fifo.log");
        assert!(project.sh_bare("mkfifo fifo.log").status == 0);
        said(&fifo).expect_status(125);
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        // A command replaced the directory.
        let outside = project.home().join("outside");
        fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, project.at("logs")).unwrap();
        let text = said(&project.at("logs/rf.log")).expect_status(125).stderr_text();
        assert!(text.contains("leads through a symlink"), "{text}");
        assert!(!outside.join("rf.log").exists());
    });
}

/// A command that stops its terminal, or a reader that does not read, must not stop time limits.
#[test]
fn time_limit_holds_while_standard_error_is_not_read() {
    each_user(|user| {
        let project = project(user);
        let line = "for i in $(seq 3000); do : > x$i.pem; done 2>/dev/null; sleep 100";
        let mut run = project.ringfence();
        run.args(["run", "-vvv", "--timeout", "1s", "-c", line]);
        let began = std::time::Instant::now();
        let mut child = run.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let ended = ringfence_testkit::wait_at_most(&mut child, std::time::Duration::from_secs(60));
        assert!(ended.is_some(), "it still runs after {:?}", began.elapsed());
    });
}

/// A path of control characters is three times as long in a log line as on disk.
#[test]
fn long_names_in_log_lines_do_not_end_the_sandbox() {
    each_user(|user| {
        let project = project(user);
        let deep = "\u{1}".repeat(250);
        let mut directory = project.root();
        for _ in 0..11 {
            directory.push(&deep);
        }
        project.make_directories(&directory);
        let mut run = project.ringfence();
        run.args(["run", "-v", "-c", "touch ready; while [ ! -e over ]; do sleep 0.05; done"]);
        let child = run.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let limit = std::time::Duration::from_secs(20);
        assert!(ringfence_testkit::becomes_true(limit, || project.has("ready")));
        // The watcher starts 25 ms after the command.
        std::thread::sleep(std::time::Duration::from_millis(500));
        // The path is longer than one syscall takes.
        let plant =
            format!("cd {0}/{0}/{0}/{0}/{0}/{0} && cd {0}/{0}/{0}/{0}/{0} && echo S > .env", deep);
        assert!(project.sh_bare(&plant).status == 0);
        std::thread::sleep(std::time::Duration::from_millis(500));
        project.write("over", "");
        let said = ringfence_testkit::finish(child);
        assert_eq!(said.status, 0, "{}", said.text());
    });
}
