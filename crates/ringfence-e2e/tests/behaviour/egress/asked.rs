//! The user is asked about a host that no rule opens, while the connecting program waits.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, becomes_true, finish};

use super::on_a_lan;
use super::records::connections;

/// A session on its own test network, whose questions are answered from another process.
struct AskingSession<'a> {
    project: &'a TestProject,
    lan: &'a TestNetwork<'a>,
    id: String,
}

fn runtime(project: &TestProject) -> PathBuf {
    project.home().with_file_name("runtime")
}

impl<'a> AskingSession<'a> {
    #[track_caller]
    fn start(project: &'a TestProject, lan: &'a TestNetwork<'a>, words: &[&str]) -> Self {
        let runtime = runtime(project);
        std::fs::create_dir_all(&runtime).expect("a directory can be made");
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700))
            .expect("its mode can be set");
        project.user.chown(&runtime);
        let mut start = lan.command();
        start
            .env("XDG_RUNTIME_DIR", runtime)
            .arg(project.binary())
            .args(["session", "start", "--ask"])
            .args(words);
        Self { project, lan, id: TestOutput::run(&mut start, b"").ok() }
    }

    /// `ringfence` as the session's owner: without root the network was made in a user namespace,
    /// which changes the uid.
    fn ringfence(&self) -> Command {
        let mut command = self.lan.command();
        command.env("XDG_RUNTIME_DIR", runtime(self.project)).arg(self.project.binary());
        command
    }

    fn exec(&self, line: &str) -> TestOutput {
        TestOutput::run(self.ringfence().args(["session", "exec", &self.id, "-c", line]), b"")
    }

    fn questions(&self) -> String {
        TestOutput::run(self.ringfence().args(["ask", "list", "--json"]), b"").ok()
    }

    /// Runs a line that waits, and meanwhile answers the question about `what`.
    #[track_caller]
    fn answer(&self, line: &str, what: &str, question: &str, answer: &str) -> TestOutput {
        let mut asked = self.ringfence();
        asked
            .args(["session", "exec", &self.id, "-c", line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let waiting = asked.spawn().unwrap();
        assert!(
            becomes_true(Duration::from_secs(10), || self.questions().contains(what)),
            "{line}: {}",
            self.questions()
        );
        TestOutput::run(self.ringfence().args(["ask", "answer", &self.id, question, answer]), b"")
            .ok();
        finish(waiting)
    }
}

impl Drop for AskingSession<'_> {
    fn drop(&mut self) {
        let _ = self.ringfence().args(["session", "stop", &self.id]).stderr(Stdio::null()).status();
    }
}

/// Waits longer than the time in which a denial is not asked about again.
fn rest() {
    thread::sleep(Duration::from_millis(2200));
}

/// The questions and answers in the audit log.
fn answers(project: &TestProject) -> Vec<String> {
    let log =
        TestOutput::run(project.ringfence().args(["log", "--json", "--operation", "ask"]), b"")
            .ok();
    let line = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("a record");
        format!(
            "{} {}",
            record["target"].as_str().unwrap_or_default(),
            record["answer"].as_str().unwrap_or_default()
        )
    };
    log.lines().map(line).collect()
}

const PLAIN: &str = "curl -4sS http://app.test:8080/hello";
const CHECKED: &str = "curl -4sS http://app.test/hello";

/// Promise: ask-connect
#[test]
fn each_answer_to_a_host_question_holds() {
    on_a_lan(&["curl"], |project, lan| {
        // No policy mentions the network.
        let session = AskingSession::start(project, lan, &[]);
        session.answer(PLAIN, "\"app.test:8080\"", "1", "deny").expect_status(7);
        rest();
        let hello = "hello from http://app.test:8080";
        assert_eq!(session.answer(PLAIN, "\"app.test:8080\"", "2", "allow-once").ok(), hello);
        assert_eq!(session.answer(PLAIN, "\"app.test:8080\"", "3", "allow-session").ok(), hello);
        assert_eq!(session.exec(PLAIN).ok(), hello);
        // Another port is another question.
        assert_eq!(
            session.answer(CHECKED, "\"app.test:80\"", "4", "allow-permanent").ok(),
            "hello from http://app.test"
        );
        assert_eq!(
            session.exec(&format!("{CHECKED}; {PLAIN}")).ok(),
            format!("hello from http://app.test\n{hello}")
        );
        let expect = ["8080 deny", "8080 allow_once", "8080 allow_session", "80 allow_permanent"]
            .map(|one| format!("app.test:{one}"));
        assert_eq!(answers(project), expect);
        // A permanent grant holds in other runs, and no other grant does.
        let policy = std::fs::read_to_string(project.own_policy()).unwrap();
        assert!(policy.ends_with("\n\n[network]\nallow = [\"app.test:80\"]\n"), "{policy}");
        assert_eq!(lan.run(&["-c", CHECKED]).ok(), "hello from http://app.test");
        lan.run(&["-c", PLAIN]).expect_status(7);
        // Each connection is audited, and each denial with its host and port.
        let report = connections(project)
            .into_iter()
            .map(|one| format!("{} {}", one["target"], one["result"]))
            .collect::<Vec<_>>();
        assert_eq!(
            report.iter().filter(|one| *one == "\"app.test:8080\" \"blocked\"").count(),
            2,
            "{report:?}"
        );
        assert_eq!(
            report.iter().filter(|one| *one == "\"app.test:8080\" \"allowed\"").count(),
            4,
            "{report:?}"
        );
    });
}

/// Promise: ask-connect
#[test]
fn denied_hosts_are_not_asked_about() {
    on_a_lan(&["curl"], |project, lan| {
        let session = AskingSession::start(project, lan, &["--deny-host", "other.test"]);
        // Its name does not resolve either.
        session.exec("curl -4sS http://other.test:8080/hello").expect_status(6);
        assert_eq!(answers(project), Vec::<String>::new());
        // A grant for a name does not open a guarded address that it resolves to.
        session
            .answer(
                "curl -4sS http://inner.test:8080/hello",
                "\"inner.test:8080\"",
                "1",
                "allow-session",
            )
            .expect_status(7);
        session.exec("curl -4sS http://inner.test:8080/hello").expect_status(7);
        let refused = connections(project).pop().unwrap();
        assert_eq!(
            (&refused["result"], &refused["target"]),
            (&"blocked".into(), &"inner.test:8080".into())
        );
        assert!(refused["reason"].as_str().unwrap().contains("10.9.8.7 (private)"), "{refused}");
        assert_eq!(answers(project), ["inner.test:8080 allow_session"]);
        // For the address itself there is a question.
        let said = session
            .answer("curl -4sS http://10.9.8.7:8080/hello", "\"10.9.8.7:8080\"", "2", "allow-once")
            .ok();
        assert_eq!(said, "hello from http://10.9.8.7:8080");
    });
}

/// Promise: ask-connect
#[test]
fn waiting_connect_is_interruptible_and_a_timeout_denies() {
    on_a_lan(&["curl", "timeout", "python3"], |project, lan| {
        let session = AskingSession::start(project, lan, &["--ask-timeout", "4s"]);
        // By a fatal signal, and by one that the program handles.
        session.exec(&format!("timeout 1 {PLAIN}")).expect_status(124);
        let code = "import signal, socket\ndef away(*_): raise SystemExit(9)\nsignal.signal(signal.SIGALRM, away); signal.alarm(1)\nsocket.create_connection((\"app.test\", 443))";
        session.exec(&format!("python3 -c '{code}'")).expect_status(9);
        assert!(connections(project).is_empty(), "{:?}", connections(project));
        // The user does not answer.
        session.exec("curl -4sS http://deep.app.test:8080/hello").expect_status(7);
        assert!(
            answers(project).contains(&"deep.app.test:8080 deny".to_owned()),
            "{:?}",
            answers(project)
        );
        let refused = connections(project).pop().unwrap();
        assert_eq!(
            (&refused["result"], &refused["target"]),
            (&"blocked".into(), &"deep.app.test:8080".into())
        );
    });
}

/// Promise: ask-connect
#[test]
fn concurrent_connects_share_one_question() {
    on_a_lan(&["curl"], |project, lan| {
        let session = AskingSession::start(project, lan, &[]);
        let line = format!("for i in 1 2 3 4 5; do {PLAIN} & done; wait");
        let said =
            session.answer(&format!("({line})"), "\"app.test:8080\"", "1", "allow-session").ok();
        assert_eq!(said, ["hello from http://app.test:8080"; 5].join("\n"));
        assert_eq!(answers(project), ["app.test:8080 allow_session"]);
    });
}

/// Promise: ask-connect
#[test]
fn proxy_client_waits_for_the_answer() {
    on_a_lan(&["curl"], |project, lan| {
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nproxy-variables = true\n",
        );
        let session = AskingSession::start(project, lan, &["--deny-host", "other.test"]);
        let ask = "curl -fsS --max-time 20 http://app.test:8080/hello";
        session.answer(ask, "\"app.test:8080\"", "1", "deny").expect_status(22);
        rest();
        assert_eq!(
            session.answer(ask, "\"app.test:8080\"", "2", "allow-once").ok(),
            "hello from http://app.test:8080"
        );
        session.exec("curl -fsS http://other.test:8080/hello").expect_status(22);
        assert_eq!(answers(project), ["app.test:8080 deny", "app.test:8080 allow_once"]);
        let report = connections(project);
        let results = report.iter().map(|one| {
            format!("{} {}", one["target"].as_str().unwrap(), one["result"].as_str().unwrap())
        });
        let mut results: Vec<String> = results.collect();
        // The byte counts of a connection may be recorded after its end.
        results.dedup();
        assert_eq!(
            results,
            ["app.test:8080 blocked", "app.test:8080 allowed", "other.test:8080 blocked"]
        );
    });
}
