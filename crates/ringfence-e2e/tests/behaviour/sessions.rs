//! A session keeps shell state between commands, and leaves nothing behind when it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{
    TestOutput, TestProject, TestUser, becomes_true, each_user, needs, processes_with, signal,
};

use crate::project;

const KILL: i32 = 9;

/// A session in a project, ended with it.
pub(crate) struct TestSession {
    pub(crate) project: TestProject,
    pub(crate) id: String,
}

/// Returns true if a session can run in another mount namespace and be used from this one. Without
/// root this needs a user namespace, in which the session's owner has another uid.
pub(crate) fn can_change_mounts() -> bool {
    if !TestUser::runner_is_root() {
        ringfence_testkit::skip("only the superuser can change the mounts of a session and use it");
    }
    TestUser::runner_is_root()
}

impl TestSession {
    pub(crate) fn start(user: TestUser) -> Self {
        Self::start_with(user, &[])
    }

    pub(crate) fn start_with(user: TestUser, words: &[&str]) -> Self {
        Self::start_by(project(user), TestProject::ringfence, words)
    }

    /// Starts a session with the given `ringfence` command.
    pub(crate) fn start_by(
        project: TestProject,
        ringfence: impl FnOnce(&TestProject) -> Command,
        words: &[&str],
    ) -> Self {
        let user = project.user;
        let runtime = runtime(&project);
        std::fs::create_dir(&runtime).expect("a directory can be made");
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700))
            .expect("its mode can be set");
        user.chown(&runtime);
        let id = TestOutput::run(
            ringfence(&project)
                .env("XDG_RUNTIME_DIR", runtime)
                .args(["session", "start"])
                .args(words),
            b"",
        )
        .ok();
        Self { project, id }
    }

    pub(crate) fn words(&self, words: &[&str]) -> TestOutput {
        TestOutput::run(ringfence(&self.project).arg("session").args(words), b"")
    }

    pub(crate) fn exec(&self, line: &str) -> TestOutput {
        self.words(&["exec", &self.id, "-c", line])
    }

    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.words(&["exec", &self.id, "--json", "-c", line]).text())
            .expect("one object")
    }

    /// Runs a line that waits, and meanwhile answers the question about `what`.
    #[track_caller]
    fn answer(&self, line: &str, what: &str, question: &str, answer: &str) -> TestOutput {
        let mut asked = ringfence(&self.project);
        asked
            .args(["session", "exec", &self.id, "-c", line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let waiting = asked.spawn().unwrap();
        let said =
            || TestOutput::run(ringfence(&self.project).args(["ask", "list", "--json"]), b"").ok();
        assert!(
            becomes_true(Duration::from_secs(10), || said().contains(what)),
            "{line}: {}",
            said()
        );
        TestOutput::run(
            ringfence(&self.project).args(["ask", "answer", &self.id, question, answer]),
            b"",
        )
        .ok();
        ringfence_testkit::finish(waiting)
    }

    pub(crate) fn keeper(&self) -> u32 {
        let about: serde_json::Value =
            serde_json::from_str(&self.words(&["inspect", &self.id]).ok()).expect("one object");
        about["pid"].as_u64().expect("a number") as u32
    }
}

impl Drop for TestSession {
    fn drop(&mut self) {
        let _ = ringfence(&self.project)
            .args(["session", "stop", &self.id])
            .stderr(Stdio::null())
            .status();
    }
}

fn runtime(project: &TestProject) -> PathBuf {
    project.home().join("run")
}

pub(crate) fn ringfence(project: &TestProject) -> Command {
    let mut command = project.ringfence();
    command.env("XDG_RUNTIME_DIR", runtime(project));
    command
}

#[test]
fn next_command_can_read_the_exit_status() {
    each_user(|user| {
        let session = TestSession::start(user);
        for (line, status) in [
            ("false", "1"),
            ("(exit 42)", "42"),
            ("true", "0"),
            ("exit 9", "0"),
            ("nosuch 2>/dev/null", "127"),
        ] {
            session.exec(line);
            assert_eq!(session.exec("echo $?").ok(), status, "{line}");
        }
        // Also in a function that is called by its name only, and with redirected streams.
        session.exec("show() { echo $?; }").ok();
        session.exec("(exit 5)").expect_status(5);
        assert_eq!(session.exec("show").ok(), "5");
        assert_eq!(session.exec("echo $0").ok(), "bash");
    });
}

/// Promise: session-state
#[test]
fn shell_state_persists_across_commands() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("cd src; export LEFT=there; f() { echo of a function; }").ok();
        let said = session.exec("basename $PWD; echo $LEFT; f").ok();
        assert_eq!(said, "src\nthere\nof a function");
        session.exec("exit 3").expect_status(3);
        assert_eq!(session.exec("echo [$LEFT]").ok(), "[]");
    });
}

/// The watcher's question about the repository's owner passes through init, which must not change
/// the umask of later commands.
#[test]
fn exec_keeps_the_umask_of_the_session() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let session = TestSession::start(user);
        let umask = || session.words(&["exec", &session.id, "--", "sh", "-c", "umask"]).ok();
        let before = umask();
        // Long enough for the watcher to start.
        session.exec("sleep 0.2").ok();
        session.project.sh_bare("git init -q came").ok();
        assert!(becomes_true(Duration::from_secs(5), || session
            .exec("echo x >> came/.git/config")
            .status
            != 0));
        assert_eq!(umask(), before, "{user}");
    });
}

/// Promise: session-denials
#[test]
fn output_and_status_belong_to_the_command() {
    each_user(|user| {
        let session = TestSession::start(user);
        let ran = session.exec("echo out; echo err >&2; (exit 42)");
        assert_eq!((ran.text().as_str(), ran.stderr_text().as_str()), ("out", "err\n"));
        ran.expect_status(42);
        let report = session.json("printf 'a\\377'; cat .env; pwd >&2; cd sub");
        assert_eq!(report["stdoutBase64"], "Yf8=");
        assert_eq!(report["blocked"], true);
        assert_eq!(report["blockedResource"], session.project.at(".env").to_str().unwrap());
        assert_eq!(report["cwd"], session.project.at("sub").to_str().unwrap());
        assert_eq!(report["session"], session.id.as_str());
    });
}

/// Promise: session-state
#[test]
fn interrupted_command_keeps_the_session() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("kept=yes").ok();
        session
            .words(&["exec", &session.id, "--timeout", "300ms", "-c", "sleep 30; echo after"])
            .expect_status(124);
        // The client has disconnected.
        let mut asked = ringfence(&session.project);
        let mut asked = asked
            .args(["session", "exec", &session.id, "-c", "sleep 31.5; echo after"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(becomes_true(Duration::from_secs(5), || !processes_with("31.5").is_empty()));
        asked.kill().unwrap();
        asked.wait().unwrap();
        assert!(becomes_true(Duration::from_secs(8), || processes_with("31.5").is_empty()));
        assert_eq!(session.exec("echo $kept").ok(), "yes");
    });
}

#[test]
fn queued_command_of_a_disconnected_client_never_starts() {
    each_user(|user| {
        let session = TestSession::start(user);
        let spawn = |line: &str| {
            ringfence(&session.project)
                .args(["session", "exec", &session.id, "-c", line])
                .spawn()
                .unwrap()
        };
        let mut first = spawn("touch begun; sleep 1");
        assert!(becomes_true(Duration::from_secs(5), || session.project.has("begun")));
        let mut second = spawn("touch second");
        thread::sleep(Duration::from_millis(300));
        second.kill().unwrap();
        second.wait().unwrap();
        assert!(first.wait().unwrap().success());
        // The next command in the queue is not interrupted in its place.
        session.exec("sleep 0.1").ok();
        assert!(!session.project.has("second"));
    });
}

#[test]
fn exec_runs_while_the_shell_is_busy() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("cd src; export LEFT=there").ok();
        let said = session.words(&[
            "exec",
            &session.id,
            "--",
            "sh",
            "-c",
            "basename $PWD; echo [$LEFT]; exit 9",
        ]);
        assert_eq!(said.text(), "app\n[]");
        said.expect_status(9);
        session.words(&["exec", &session.id, "--", "no-such-program"]).expect_status(127);
        // Also while the shell is busy.
        let mut slow = ringfence(&session.project);
        let mut slow =
            slow.args(["session", "exec", &session.id, "-c", "sleep 4"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        assert_eq!(session.words(&["exec", &session.id, "--", "echo", "quick"]).ok(), "quick");
        assert!(begun.elapsed() < Duration::from_secs(3));
        slow.wait().unwrap();
        let read = TestOutput::run(
            ringfence(&session.project).args([
                "session",
                "exec",
                &session.id,
                "-i",
                "--",
                "wc",
                "-l",
            ]),
            b"a\nb\n",
        )
        .ok();
        assert_eq!(read.trim(), "2");
    });
}

#[test]
fn signal_reaches_the_processes_of_a_command() {
    each_user(|user| {
        let session = TestSession::start(user);
        let idle = session.words(&["signal", &session.id, "usr1"]);
        assert!(idle.stderr_text().contains("no command is running"), "{}", idle.stderr_text());
        idle.expect_status(125);
        let line = "sh -c 'trap \"echo heard; exit 3\" USR1; echo ready; while :; do sleep 0.05; done'; echo $?";
        let mut asked = ringfence(&session.project);
        let mut asked = asked
            .args(["session", "exec", &session.id, "-c", line])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(asked.stdout.take().unwrap());
        let mut said = String::new();
        output.read_line(&mut said).unwrap();
        session.words(&["signal", &session.id, "USR1"]).ok();
        output.read_to_string(&mut said).unwrap();
        asked.wait().unwrap();
        assert_eq!(said, "ready\nheard\n3\n");
    });
}

#[test]
fn standard_input_is_streamed_to_a_command() {
    each_user(|user| {
        let session = TestSession::start(user);
        for how in [
            &["-c", "read a; echo got $a; cat"][..],
            &["--", "sh", "-c", "read a; echo got $a; cat"],
        ] {
            let mut fed = ringfence(&session.project);
            let fed = fed
                .args(["session", "exec", &session.id, "-i"])
                .args(how)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut fed = fed.spawn().unwrap();
            let (mut input, mut output) =
                (fed.stdin.take().unwrap(), BufReader::new(fed.stdout.take().unwrap()));
            writeln!(input, "one").unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "got one\n");
            write!(input, "two").unwrap();
            drop(input);
            line.clear();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "two");
            assert!(fed.wait().unwrap().success());
        }
        assert_eq!(session.exec("cat; echo nothing is left").ok(), "nothing is left");
    });
}

#[test]
fn background_processes_are_reported_separately() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("(sleep 0.4; echo from behind) & :").ok();
        let said = session.exec("wait; echo mine");
        assert_eq!(said.text(), "mine");
        assert!(
            said.stderr_text().contains("background processes")
                && said.stderr_text().contains("from behind"),
            "{}",
            said.stderr_text()
        );
        session.exec("(sleep 0.4; echo from behind) & :").ok();
        let report: serde_json::Value = serde_json::from_str(
            &session.words(&["exec", &session.id, "--json", "-c", "wait"]).ok(),
        )
        .unwrap();
        assert_eq!(
            (&report["stdout"], &report["background"]),
            (&"".into(), &"from behind\n".into())
        );
    });
}

#[test]
fn session_is_found_by_its_name() {
    each_user(|user| {
        let session = TestSession::start_with(user, &["--name", "mine"]);
        assert_eq!(session.words(&["exec", "mine", "-c", "echo found"]).ok(), "found");
        assert_eq!(session.words(&["exec", &session.id[..13], "-c", "echo found"]).ok(), "found");
        let listed = session.words(&["list"]).ok();
        assert!(listed.contains(&session.id) && listed.contains("mine"), "{listed}");
        let refused = session.words(&["exec", "no-such", "-c", "true"]);
        assert!(
            refused.stderr_text().contains("there is no session `no-such`"),
            "{}",
            refused.stderr_text()
        );
        refused.expect_status(125);
        session.words(&["stop", "mine"]).ok();
        assert_eq!(session.words(&["list"]).ok(), "");
        assert_eq!(
            std::fs::read_dir(runtime(&session.project).join("ringfence")).unwrap().count(),
            0
        );
    });
}

/// Promise: session-ends
#[test]
fn other_users_cannot_use_a_session() {
    let session = TestSession::start(TestUser::Root);
    let socket = runtime(&session.project).join("ringfence").join(format!("{}.sock", session.id));
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    // Not even if the socket is reachable: the peer's credentials are checked.
    for path in [runtime(&session.project), runtime(&session.project).join("ringfence")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let code = "import socket,sys\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\ns.sendall(b'{\"ask\":\"hello\",\"version\":1}\\n')\nprint(len(s.recv(100)))";
    let Some(python) = ringfence_testkit::python() else { return };
    let mut command = Command::new(python);
    TestUser::User.apply_to(command.args(["-c", code]).arg(&socket).current_dir("/"));
    let said = TestOutput::run(&mut command, b"");
    assert!(
        said.text() == "0" || said.stderr_text().contains("Error"),
        "{} {}",
        said.text(),
        said.stderr_text()
    );
    for path in [runtime(&session.project), runtime(&session.project).join("ringfence")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// Promise: session-ends
#[test]
fn session_without_its_socket_ends() {
    each_user(|user| {
        let session = TestSession::start(user);
        let marker = format!("78{}.{}", std::process::id(), user.ids().0);
        session.exec(&format!("sleep {marker} & true")).ok();
        let keeper = session.keeper();
        std::fs::remove_dir_all(runtime(&session.project).join("ringfence")).unwrap();
        assert!(becomes_true(Duration::from_secs(20), || processes_with(&marker).is_empty()));
        assert!(becomes_true(Duration::from_secs(20), || std::fs::read_link(format!(
            "/proc/{keeper}/exe"
        ))
        .is_err()));
    });
}

/// Promise: session-ends
#[test]
fn killed_supervisor_leaves_nothing() {
    each_user(|user| {
        let session = TestSession::start(user);
        let marker = format!("77{}.{}", std::process::id(), user.ids().0);
        session.exec(&format!("sleep {marker} & sleep {marker} >/dev/null 2>&1 & echo $!")).ok();
        assert!(becomes_true(Duration::from_secs(5), || processes_with(&marker).len() == 2));
        signal(session.keeper(), KILL);
        assert!(
            becomes_true(Duration::from_secs(1), || processes_with(&marker).is_empty()),
            "{:?}",
            processes_with(&marker)
        );
        session.exec("true").expect_status(125);
        assert_eq!(session.words(&["list"]).ok(), "");
    });
}

#[test]
fn stale_socket_is_removed_by_the_next_session() {
    each_user(|user| {
        let session = TestSession::start(user);
        let sockets = || {
            std::fs::read_dir(runtime(&session.project).join("ringfence"))
                .expect("it was made")
                .count()
        };
        let socket =
            runtime(&session.project).join("ringfence").join(format!("{}.sock", session.id));
        signal(session.keeper(), KILL);
        assert!(becomes_true(Duration::from_secs(20), || std::os::unix::net::UnixStream::connect(
            &socket
        )
        .is_err()));
        assert_eq!(sockets(), 1);
        let id = session.words(&["start"]).ok();
        assert_eq!(sockets(), 1, "the socket of the killed one is left");
        session.words(&["stop", id.trim()]).ok();
    });
}

/// Promise: session-ends
#[test]
fn dead_sandbox_is_reported_and_replaced() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("cd src; x=1").ok();
        let mut busy = ringfence(&session.project);
        let busy = busy
            .args(["session", "exec", &session.id, "-c", "sleep 39.25"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let sleeps = || {
            processes_with("39.25")
                .iter()
                .any(|process| process.trim_end().ends_with(": sleep 39.25"))
        };
        assert!(becomes_true(Duration::from_secs(20), sleeps));
        signal(first_process(session.keeper()).expect("it has a first process"), KILL);
        let ran = ringfence_testkit::finish(busy);
        assert!(ran.stderr_text().contains("the sandbox has ended"), "{}", ran.stderr_text());
        ran.expect_status(125);
        assert_eq!(session.exec("basename $PWD; echo [$x]").ok(), "app\n[]");
        // The new sandbox persists, although its first client is gone.
        session.exec("x=2").ok();
        assert_eq!(session.exec("echo [$x]").ok(), "[2]");
        // A sandbox that dies while idle, with a background process in it.
        session.exec("sleep 39.75 & :").ok();
        signal(first_process(session.keeper()).expect("it has a first process"), KILL);
        assert!(becomes_true(Duration::from_secs(5), || processes_with("39.75").is_empty()));
        assert!((0..3).any(|_| session.exec("echo [$x]").text() == "[]"));
        session.exec("x=3").ok();
        assert_eq!(session.exec("echo [$x]").ok(), "[3]");
    });
}

/// Promise: session-ends
#[test]
fn session_socket_is_unusable_from_inside() {
    let Some(python) = ringfence_testkit::python() else { return };
    each_user(|user| {
        let session = TestSession::start_with(user, &["--read", "../run"]);
        let socket =
            runtime(&session.project).join("ringfence").join(format!("{}.sock", session.id));
        let code = "import socket,sys\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\nprint('connected', flush=True)\ns.sendall(b'{\"ask\":\"hello\",\"version\":1}\\n')\nprint(len(s.recv(100)))";
        // Control: the same code gets a response outside.
        let mut outside = session.project.command(python);
        assert_ne!(
            TestOutput::run(outside.args(["-c", code]).arg(&socket), b"").text(),
            "connected\n0"
        );
        let inside = session.words(&[
            "exec",
            &session.id,
            "--",
            python,
            "-c",
            code,
            &socket.display().to_string(),
        ]);
        assert!(
            inside.text() == "connected\n0" || inside.stderr_text().contains("Error"),
            "{} {}",
            inside.text(),
            inside.stderr_text()
        );
    });
}

/// The sandbox's init: the descendant of `keeper` with pid 1 in its own namespace.
fn first_process(keeper: u32) -> Option<u32> {
    let mut waiting = vec![keeper];
    while let Some(pid) = waiting.pop() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        if pid != keeper && inside.split_whitespace().last() == Some("1") {
            return Some(pid);
        }
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let children = threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        waiting.extend(children.flat_map(|text| {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        }));
    }
    None
}

#[test]
fn invalid_session_start_fails_and_leaves_nothing() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\nnonsense = 3\n");
        let refused = TestOutput::run(ringfence(&project).args(["session", "start"]), b"");
        assert!(refused.stderr_text().contains("nonsense"), "{}", refused.stderr_text());
        assert_eq!(refused.text(), "");
        refused.expect_status(125);
    });
}

/// Promise: session-denials
#[test]
fn each_session_command_is_audited() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("cat .env; true").ok();
        session.words(&["exec", &session.id, "--", "echo", "second"]).ok();
        let log = TestOutput::run(
            ringfence(&session.project).args(["log", "--json", "--session", &session.id]),
            b"",
        )
        .ok();
        let kinds: Vec<String> = log
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["operation"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert!(kinds.len() >= 5, "{log}");
        assert!(log.contains(".env") && log.contains("echo second"), "{log}");
        TestOutput::run(ringfence(&session.project).args(["log", "--verify"]), b"").ok();
    });
}

/// Promise: write-grant
#[test]
fn session_questions_are_answered_from_another_process() {
    if !ringfence_testkit::fuse_for_all() {
        return;
    }
    each_user(|user| {
        let session = TestSession::start_with(user, &["--ask", "--ask-timeout", "20s"]);
        let answer = |line: &str, question: &str, answer: &str| {
            session.answer(line, ".env", question, answer)
        };
        let shell = session.exec("kept=yes; echo $$").ok();
        assert_eq!(answer("cat .env 2>&1 | tail -c 18", "1", "deny").text(), "Permission denied");
        thread::sleep(Duration::from_millis(2200));
        let secret = session.project.read(".env").unwrap();
        assert_eq!(answer("cat .env", "2", "allow-once").ok(), secret.trim_end());
        assert_eq!(answer("cat .env", "3", "allow-session").ok(), secret.trim_end());
        // There is no further question, and the shell is the same.
        let said = session.exec("cat .env; echo $kept $$").ok();
        assert_eq!(said, format!("{secret}yes {shell}"));
        // The same for a new file.
        let made = session.project.at(".env.made");
        assert_eq!(answer("echo a > .env.made; echo $kept", "4", "allow-session").ok(), "yes");
        assert_eq!(
            session.exec("echo b >> .env.made; cat .env.made; echo $$").ok(),
            format!("a\nb\n{shell}")
        );
        assert_eq!(std::fs::read_to_string(&made).unwrap(), "a\nb\n");
        // Grants hold in the next sandbox as well, if this one dies.
        signal(first_process(session.keeper()).expect("it has a first process"), KILL);
        let _ = session.exec("true");
        assert_eq!(
            session.exec("cat .env; cat .env.made; echo c > .env.made; echo [$kept]").ok(),
            format!("{secret}a\nb\n[]")
        );
        assert_eq!(std::fs::read_to_string(&made).unwrap(), "c\n");
        let late = TestOutput::run(
            ringfence(&session.project).args(["ask", "answer", &session.id, "3", "deny"]),
            b"",
        );
        assert!(late.stderr_text().contains("no open question 3"), "{}", late.stderr_text());
        late.expect_status(125);
    });
}

#[test]
fn questions_show_answers_and_results_show_grants() {
    if !ringfence_testkit::fuse_for_all() {
        return;
    }
    each_user(|user| {
        let session = TestSession::start_with(user, &["--ask", "--ask-timeout", "20s"]);
        let mut asked = ringfence(&session.project);
        asked
            .args(["session", "exec", &session.id, "--json", "-c", "cat .env"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let waiting = asked.spawn().unwrap();
        let said = || TestOutput::run(ringfence(&session.project).args(["ask", "list"]), b"").ok();
        assert!(
            becomes_true(Duration::from_secs(10), || said().contains(".env")),
            "{user}: {}",
            said()
        );
        assert!(
            said().contains("\n    answers: allow-once allow-session allow-permanent deny"),
            "{user}: {}",
            said()
        );
        TestOutput::run(
            ringfence(&session.project).args(["ask", "answer", &session.id, "1", "allow-once"]),
            b"",
        )
        .ok();
        let result: serde_json::Value =
            serde_json::from_str(&ringfence_testkit::finish(waiting).ok()).expect("one object");
        let [granted] = result["granted"].as_array().expect("a list").as_slice() else {
            panic!("{user}: {result}")
        };
        assert_eq!(
            (&granted["answer"], &granted["denial"]["operation"]),
            (&"allow_once".into(), &"read".into()),
            "{user}: {result}"
        );
        assert_eq!(session.json("true")["granted"], serde_json::json!([]), "{user}");
    });
}

#[test]
fn peak_memory_of_a_command_is_reported() {
    if !needs(&["perl"]) {
        return;
    }
    const MIB: u64 = 1024;
    each_user(|user| {
        let session = TestSession::start(user);
        let used = |line: &str| session.json(line)["usage"]["maxRssKb"].as_u64().expect("a number");
        let little = used("true");
        assert!((1..32 * MIB).contains(&little), "{user}: {little}");
        let much = used("perl -e '$x = \"x\" x (64 << 20); select(undef, undef, undef, 0.5)'");
        assert!((64 * MIB..256 * MIB).contains(&much), "{user}: {much}");
        // Of this command, and not of earlier ones.
        let little = used("sleep 0.1");
        assert!((1..32 * MIB).contains(&little), "{user}: {little}");
    });
}

#[test]
fn sandbox_that_died_while_idle_is_replaced() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("kept=yes; cd src").ok();
        let first = first_process(session.keeper()).expect("it has a first process");
        signal(first, KILL);
        assert!(
            becomes_true(Duration::from_secs(10), || first_process(session.keeper())
                != Some(first)),
            "{user}: it does not die"
        );
        let root = session.project.root().display().to_string();
        assert_eq!(
            session.exec("echo [$kept] $PWD; echo x > made").ok(),
            format!("[] {root}"),
            "{user}"
        );
        assert!(session.project.has("made"));
        // The same for its shell alone.
        let shell = session.exec("kept=again; echo $$").ok();
        let about: serde_json::Value =
            serde_json::from_str(&session.words(&["inspect", &session.id]).ok())
                .expect("one object");
        let pid = about["shellPid"].as_u64().unwrap_or_else(|| panic!("{user}: {about}")) as u32;
        signal(pid, KILL);
        assert!(
            becomes_true(Duration::from_secs(10), || !std::path::Path::new(&format!(
                "/proc/{pid}/exe"
            ))
            .exists()),
            "{user}: it does not die"
        );
        assert_ne!(session.exec("echo [$kept] $$").ok(), format!("[] {shell}"), "{user}");
    });
}

/// Promise: ask-write
#[test]
fn writes_are_asked_about_without_fuse() {
    if !can_change_mounts() {
        return;
    }
    if !ringfence_testkit::needs(&["unshare", "mount", "setpriv"]) {
        return;
    }
    each_user(|user| {
        let session = TestSession::start_by(
            project(user),
            TestProject::ringfence_without_fuse,
            &["--ask", "--ask-timeout", "20s"],
        );
        let out = session.project.home().join("out");
        std::fs::create_dir(&out).unwrap();
        user.chown(&out);
        // No existing path can be mounted there, so only `allow-once` works.
        session.answer("echo a > ~/out/new", "out/new", "1", "allow-once").ok();
        let refused = TestOutput::run(
            ringfence(&session.project).args([
                "session",
                "exec",
                &session.id,
                "--json",
                "-c",
                "cat .env",
            ]),
            b"",
        )
        .text();
        assert!(refused.contains("Permission denied"), "{refused}");
        session.answer("echo b >> .env", ".env", "2", "allow-session").ok();
        let said = session.exec("echo c >> .env; tail -n 2 .env").ok();
        assert!(said.ends_with("b\nc"), "{said}");
        assert_eq!(std::fs::read_to_string(out.join("new")).unwrap(), "a\n");
        assert!(session.project.read(".env").unwrap().ends_with("b\nc\n"));
        session.answer("mkdir ~/out/x 2>&1 || echo no", "out/x", "3", "deny").ok();
        assert!(!out.join("x").exists());
    });
}

/// A Unix socket address holds at most 107 bytes.
///
/// Promise: session-state
#[test]
fn session_with_a_long_socket_path_is_reachable() {
    each_user(|user| {
        let project = project(user);
        let deep = project.home().join("d".repeat(100)).join("e".repeat(100));
        project.make_directories(&deep);
        std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o700))
            .expect("its mode can be set");
        let session = |words: &[&str]| {
            TestOutput::run(
                project.ringfence().env("XDG_RUNTIME_DIR", &deep).arg("session").args(words),
                b"",
            )
            .ok()
        };
        session(&["start", "--name", "deep"]);
        assert_eq!(session(&["exec", "deep", "-c", "echo here"]), "here");
        assert!(session(&["list"]).contains("deep"));
        session(&["stop", "deep"]);
        assert_eq!(
            std::fs::read_dir(deep.join("ringfence")).expect("it was made").count(),
            0,
            "a socket is left"
        );
    });
}
