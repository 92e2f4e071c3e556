//! One sandbox for a conversation: calls are made as Claude Code makes them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, becomes_true, each_user, finish, fuse_for_all,
    needs, processes_with, signal,
};
use serde_json::{Value, json};

use super::{answer, quoted, runtime};
use crate::project;

const KILL: i32 = 9;
const TERM: i32 = 15;

/// Signals a process group.
fn signal_group(pid: u32, number: i32) {
    let group = rustix::process::Pid::from_raw(pid as i32).expect("a process id is not zero");
    let signal = rustix::process::Signal::from_named_raw(number).expect("a signal with a name");
    rustix::process::kill_process_group(group, signal).expect("the group is there");
}

/// An agent that holds a conversation.
struct ScriptedAgent {
    project: TestProject,
    /// The working directory of its shell.
    cwd: PathBuf,
    mode: &'static str,
    calls: u32,
}

/// A rewritten call.
struct CallResult {
    id: String,
    arguments: Value,
    line: String,
}

impl ScriptedAgent {
    fn new(user: TestUser) -> Self {
        let project = project(user);
        let cwd = project.root().to_owned();
        Self { project, cwd, mode: "default", calls: 0 }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.project.command(program);
        command
            .env("XDG_RUNTIME_DIR", runtime(&self.project))
            .env("CLAUDE_PROJECT_DIR", self.project.root())
            .current_dir(&self.cwd);
        command
    }

    fn input(&self, event: &str) -> Value {
        json!({ "session_id": "conversation-1", "cwd": self.cwd, "permission_mode": self.mode, "hook_event_name": event })
    }

    fn hook(&self, input: &Value) -> Value {
        self.project.ringfence();
        let binary = self.project.binary().to_str().expect("text").to_owned();
        answer(&TestOutput::run(
            self.command(&binary).args(["hook", "claude-code"]),
            input.to_string().as_bytes(),
        ))
    }

    /// Asks the hook before a command.
    #[track_caller]
    fn before(&mut self, arguments: Value) -> (CallResult, String) {
        self.calls += 1;
        let id = format!("toolu_{:03}", self.calls);
        let mut input = self.input("PreToolUse");
        input["tool_name"] = "Bash".into();
        input["tool_input"] = arguments.clone();
        input["tool_use_id"] = id.clone().into();
        let said = self.hook(&input)["hookSpecificOutput"].clone();
        let decision = said["permissionDecision"].as_str().unwrap_or("nothing").to_owned();
        let line = said["updatedInput"]["command"].as_str().unwrap_or_default().to_owned();
        (CallResult { id, arguments, line }, decision)
    }

    /// The shell that runs a call and prints its directory at the end.
    fn shell(&self, call: &CallResult, input: &str) -> Command {
        let whole = format!(
            "eval {} {input} && pwd -P >| {}",
            quoted(&call.line),
            quoted(&self.kept().display().to_string())
        );
        let mut command = self.command("bash");
        command.args(["-c", &whole]);
        command
    }

    fn kept(&self) -> PathBuf {
        self.project.home().join("cwd")
    }

    /// Reports the end of a command to the hook; returns the hook's response.
    fn after(&mut self, call: &CallResult, status: i32) -> String {
        let mut input = self.input(if status == 0 { "PostToolUse" } else { "PostToolUseFailure" });
        input["tool_name"] = "Bash".into();
        input["tool_input"] = call.arguments.clone();
        input["tool_use_id"] = call.id.clone().into();
        let report = self.hook(&input)["hookSpecificOutput"]["additionalContext"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        // Empty while a parallel call writes it.
        if let Ok(cwd) = fs::read_to_string(self.kept())
            && !cwd.is_empty()
        {
            self.cwd = cwd.trim_end().into();
        }
        report
    }

    /// A call from beginning to end.
    #[track_caller]
    fn call(&mut self, line: &str) -> TestOutput {
        self.call_and_report(line).0
    }

    /// The same, with the hook's response afterwards.
    #[track_caller]
    fn call_and_report(&mut self, line: &str) -> (TestOutput, String) {
        let (call, decision) = self.before(json!({ "command": line }));
        assert_eq!(decision, "allow", "{line}");
        let ran = TestOutput::run(&mut self.shell(&call, "< /dev/null"), b"");
        let report = self.after(&call, ran.status);
        (ran, report)
    }

    /// Starts a call in a process group of its own.
    #[track_caller]
    fn begin(&mut self, arguments: Value) -> (CallResult, Child) {
        let (call, decision) = self.before(arguments);
        assert_eq!(decision, "allow");
        let mut command = self.shell(&call, "< /dev/null");
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("it starts");
        (call, child)
    }

    fn end(&self) {
        let mut input = self.input("SessionEnd");
        input["reason"] = "exit".into();
        assert_eq!(self.hook(&input), Value::Null);
    }

    fn sockets(&self) -> usize {
        fs::read_dir(runtime(&self.project).join("ringfence")).map_or(0, |entries| entries.count())
    }

    /// Asserts that nothing is left of any session.
    #[track_caller]
    fn assert_nothing_left(&self) {
        let marker = self.project.home().display().to_string();
        let is_gone = || processes_with(&marker).is_empty() && self.sockets() == 0;
        assert!(
            becomes_true(Duration::from_secs(20), is_gone),
            "{:?}, {} sockets",
            processes_with(&marker),
            self.sockets()
        );
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
        assert!(!mounts.contains(&marker), "{mounts}");
        let ended = self.project.home().join(".local/state/ringfence/ended");
        assert_eq!(fs::read_dir(ended).map_or(0, |entries| entries.count()), 0);
    }
}

/// Promise: conversation-session
#[test]
fn conversation_is_one_shell_and_leaves_nothing() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        let root = agent.project.root().display().to_string();
        agent.call("echo kept > /tmp/kept; export COLOUR=blue; greet() { echo \"hello $1\"; }; shopt -s extglob").ok();
        assert_eq!(
            agent.call("cat /tmp/kept; echo $COLOUR; greet you; shopt -q extglob && echo on").ok(),
            "kept\nblue\nhello you\non"
        );
        agent.call("cd src").ok();
        assert_eq!(agent.cwd, agent.project.at("src"));
        assert_eq!(agent.call("pwd; go() { cd ../sub; }").ok(), format!("{root}/src"));
        agent.call("go").ok();
        assert_eq!(agent.call("pwd").ok(), format!("{root}/sub"));
        // A line that fails or ends outside the project does not change the directory.
        agent.call("cd ../src; false").expect_status(1);
        assert_eq!(agent.call("pwd").ok(), format!("{root}/sub"));
        agent.call("cd /tmp").ok();
        assert_eq!(agent.call("pwd; ls /tmp").ok(), format!("{root}/sub\nkept"));
        agent.call("cd ..").ok();
        // A shell in another project runs nothing.
        let (lost, _) = agent.before(json!({ "command": "pwd" }));
        let ran = TestOutput::run(
            agent.shell(&lost, "< /dev/null").current_dir(agent.project.home().join("code/other")),
            b"",
        );
        assert!(ran.status == 125 && ran.text().is_empty(), "{} {}", ran.text(), ran.stderr_text());
        agent.after(&lost, 125);
        // A server in the background, by the line and by the agent.
        agent.call("python3 -m http.server --bind 127.0.0.1 5173 > /dev/null 2>&1 &").ok();
        let reached = "for i in $(seq 100); do python3 -c 'import urllib.request as u; print(len(u.urlopen(\"http://127.0.0.1:PORT/README\").read()))' 2>/dev/null && exit 0; sleep 0.1; done; exit 1";
        assert_eq!(agent.call(&format!("( {} )", reached.replace("PORT", "5173"))).ok(), "6");
        let background = json!({ "command": "python3 -m http.server --bind 127.0.0.1 5174", "run_in_background": true });
        let (serving, server) = agent.begin(background);
        assert_eq!(agent.call(&format!("( {} )", reached.replace("PORT", "5174"))).ok(), "6");
        // Parallel calls do not wait for each other.
        let (slow, slow_runs) =
            agent.begin(json!({ "command": "echo $COLOUR; touch /tmp/begun; while [ ! -e /tmp/done ]; do sleep 0.05; done; echo slow" }));
        assert!(
            becomes_true(Duration::from_secs(20), || agent.call("test -e /tmp/begun").status == 0)
        );
        assert_eq!(agent.call("pwd; cat /tmp/kept; touch /tmp/done").ok(), format!("{root}\nkept"));
        assert_eq!(finish(slow_runs).ok(), "blue\nslow");
        agent.after(&slow, 0);
        // The agent ends the call with the server; the others continue.
        signal_group(server.id(), TERM);
        finish(server);
        agent.after(&serving, 143);
        assert_eq!(agent.call("echo $COLOUR").ok(), "blue");
        agent.end();
        agent.assert_nothing_left();
    });
}

/// Promise: conversation-session
#[test]
fn calls_of_a_conversation_have_their_own_status_and_output() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        agent.call("export COLOUR=blue; echo x > /tmp/x").ok();
        // The agent kills a call that takes too long: the command ends, and the shell continues.
        let (late, runs) = agent.begin(json!({ "command": "touch begun; sleep 300; touch late" }));
        assert!(becomes_true(Duration::from_secs(20), || agent.project.has("begun")));
        signal_group(runs.id(), KILL);
        finish(runs);
        agent.after(&late, 137);
        assert_eq!(agent.call("echo $COLOUR; cat /tmp/x; pgrep -c sleep").text(), "blue\nx\n0");
        assert!(!agent.project.has("late"));
        // Statuses, signals, a shell that ends.
        agent.call("(exit 7)").expect_status(7);
        agent.call("kill -TERM $BASHPID").expect_status(143);
        agent.call("exit 3").expect_status(3);
        assert_eq!(agent.call("echo \"${COLOUR-gone}\"; cat /tmp/x").ok(), "gone\nx");
        // Both streams in one place keep their order; much output arrives whole.
        let (mixed, _) = agent
            .before(json!({ "command": "for i in 1 2 3; do echo out$i; echo err$i >&2; done" }));
        let line = format!("{{ {} ; }} 2>&1", mixed.line);
        assert_eq!(
            TestOutput::run(agent.command("bash").args(["-c", &line]), b"").ok(),
            "out1\nerr1\nout2\nerr2\nout3\nerr3"
        );
        agent.after(&mixed, 0);
        let large = agent.call("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end >&2");
        assert_eq!((large.stdout.len(), large.stderr_text().trim_end()), (20_000_001, "end"));
        // Standard input arrives.
        let (reads, _) = agent.before(json!({ "command": "read first; echo \"<$first>\"; wc -c" }));
        let ran = TestOutput::run(
            &mut agent.shell(&reads, ""),
            &[b"one\n".as_slice(), &[b'y'; 300_000]].concat(),
        );
        assert_eq!(ran.ok(), "<one>\n300000");
        agent.after(&reads, 0);
        agent.end();
        agent.assert_nothing_left();
    });
}

#[test]
fn denials_are_reported_with_their_call() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        agent.call("true").ok();
        let (ran, report) = agent.call_and_report("cat .env; cat ~/.ssh/id_rsa");
        assert!(ran.status != 0 && !ran.text().contains(SECRET), "{}", ran.text());
        if fuse_for_all() {
            assert!(report.contains(".env") && report.contains("<sandbox_violations>"), "{report}");
        }
        let (_, report) = agent.call_and_report("cat README");
        assert_eq!(report, "");
        // Plan mode has a session of its own, in which nothing can be written.
        agent.call("echo x > /tmp/x").ok();
        agent.mode = "plan";
        let ran = agent.call("cat README; touch made");
        assert!(
            ran.status != 0 && ran.text() == "hello" && !agent.project.has("made"),
            "{}",
            ran.stderr_text()
        );
        agent.mode = "default";
        assert_eq!(agent.call("touch made; cat /tmp/x").ok(), "x");
        // Claude Code's settings are part of the session's start parameters.
        agent.project.write(
            ".claude/settings.json",
            r#"{"permissions": {"deny": ["Read(./README)"], "ask": ["Bash(make *)"]}}"#,
        );
        agent.call("cat README").expect_status(1);
        let (asked, decision) = agent.before(json!({ "command": "make all" }));
        assert!(
            decision == "ask" && asked.line.contains("--conversation"),
            "{decision} {}",
            asked.line
        );
        agent.project.write(".claude/settings.json", "{}");
        assert_eq!(agent.call("cat README; cat /tmp/x").ok(), "hello\nx");
        // An edited policy holds from the next call on.
        let policy = |text: &str| {
            agent
                .project
                .write_at(&agent.project.home().join(".config/ringfence/policy.toml"), text)
        };
        policy("version = 1\n[filesystem]\ndeny = [\"~/code/app/README\"]\n");
        agent.call("cat README").expect_status(1);
        agent.end();
        agent.assert_nothing_left();
    });
}

#[test]
fn narrowing_that_cannot_be_applied_restarts_the_sandbox() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        agent.call("echo x > /tmp/x; touch made").ok();
        agent.project.write_at(
            &agent.project.home().join(".config/ringfence/policy.toml"),
            "version = 1\nmode = \"read-only\"\n",
        );
        let ran = agent.call("touch other; ls /tmp");
        assert!(
            !agent.project.has("other") && ran.text().is_empty(),
            "{} {}",
            ran.text(),
            ran.stderr_text()
        );
        assert!(ran.stderr_text().contains("the sandbox was recreated"), "{}", ran.stderr_text());
        assert!(!agent.call("true").stderr_text().contains("recreated"));
        agent.end();
        agent.assert_nothing_left();
    });
}

#[test]
fn many_first_calls_start_one_session() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        let begun: Vec<_> = (0..6)
            .map(|number| agent.begin(json!({ "command": format!("echo x > /tmp/{number}") })))
            .collect();
        for (call, child) in begun {
            finish(child).ok();
            agent.after(&call, 0);
        }
        assert_eq!(agent.call("ls /tmp | wc -l").ok(), "6");
        assert_eq!(agent.sockets(), 1);
        agent.end();
        agent.assert_nothing_left();
    });
}

#[test]
fn killed_sandboxes_and_keepers_are_replaced() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        agent.call("echo x > /tmp/x").ok();
        let about = || -> Value {
            let binary = agent.project.binary().to_str().expect("text").to_owned();
            let list =
                TestOutput::run(agent.command(&binary).args(["session", "list", "--json"]), b"")
                    .ok();
            serde_json::from_str::<Value>(&list).expect("JSON")[0].clone()
        };
        let (keeper, shell) = (
            about()["pid"].as_u64().expect("a pid") as u32,
            about()["shellPid"].as_u64().expect("a pid") as u32,
        );
        // The sandbox's init, which is the parent of its shell.
        let status = fs::read_to_string(format!("/proc/{shell}/status")).expect("it runs");
        let init = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:"))
            .expect("it has a parent")
            .trim()
            .parse()
            .expect("a pid");
        // A killed process may take calls until the kernel runs it once more.
        let is_gone = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).is_err();
        signal(init, KILL);
        assert!(becomes_true(Duration::from_secs(20), || is_gone(init) && is_gone(shell)));
        assert_eq!(agent.call("ls /tmp; echo ran").ok(), "ran");
        signal(keeper, KILL);
        assert!(becomes_true(Duration::from_secs(20), || is_gone(keeper)));
        assert_eq!(agent.call("ls /tmp; echo ran").ok(), "ran");
        agent.end();
        agent.assert_nothing_left();
    });
}

/// Promise: conversation-session
#[test]
fn session_ends_with_its_agent_and_after_idle_time() {
    each_user(|user| {
        // The agent is a program that is not a shell; when it is killed, its session ends.
        let mut agent = ScriptedAgent::new(user);
        let (call, _) = agent.before(json!({ "command": "sleep 300 & echo started" }));
        let program = format!(
            "import os,time\nos.system({:?})\nopen(\"called\", \"w\")\ntime.sleep(300)",
            format!("bash -c {}", quoted(&call.line))
        );
        let mut child = agent
            .command("python3")
            .args(["-c", &program])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        assert!(becomes_true(Duration::from_secs(20), || agent.project.has("called")));
        assert_eq!(agent.sockets(), 1);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        agent.after(&call, 0);
        agent.assert_nothing_left();
        let policy = "version = 1\n[sandbox]\nhook-session-idle = \"500ms\"\n";
        agent.project.write_at(&agent.project.home().join(".config/ringfence/policy.toml"), policy);
        agent.call("echo x > /tmp/x").ok();
        agent.assert_nothing_left();
    });
}

#[test]
fn policy_can_keep_a_sandbox_for_each_call() {
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        let policy = "version = 1\n[sandbox]\nhook-session = \"call\"\n";
        agent.project.write_at(&agent.project.home().join(".config/ringfence/policy.toml"), policy);
        agent.call("echo x > /tmp/x").ok();
        assert_eq!(agent.call("ls /tmp").ok(), "");
        agent.assert_nothing_left();
    });
}

/// The user may continue a rebase between two calls, so no call leaves an exec line there.
#[test]
fn background_call_leaves_no_program_for_the_user_to_run() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let mut agent = ScriptedAgent::new(user);
        agent.project.sh_bare("git init -q && git add README && git commit -qm one").ok();
        agent.call("true").ok();
        let planted = "mkdir -p .git/rebase-merge && cd .git/rebase-merge && echo 'exec touch owned' > git-rebase-todo && echo ../../x > strategy";
        for is_in_background in [false, true] {
            let line = format!("( {planted} )");
            let (call, runs) =
                agent.begin(json!({ "command": line, "run_in_background": is_in_background }));
            finish(runs).ok();
            agent.after(&call, 0);
            let left = agent.project.sh_bare("cat .git/rebase-merge/git-rebase-todo .git/rebase-merge/strategy 2>/dev/null; true").ok();
            assert!(
                !left.contains("owned") && !left.contains("../x"),
                "{is_in_background}: {left}"
            );
            agent.project.sh_bare("rm -rf .git/rebase-merge").ok();
        }
        agent.end();
    });
}
