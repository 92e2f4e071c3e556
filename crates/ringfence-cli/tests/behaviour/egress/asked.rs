//! Somebody is asked about a host that nothing opens, and whoever connects to it waits.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, finish, soon};

use super::on_a_lan;
use super::records::connections;

/// A session on a network of its own, whose questions are answered from elsewhere.
struct Session<'a> {
    project: &'a TestProject,
    lan: &'a TestNetwork<'a>,
    id: String,
}

fn runtime(project: &TestProject) -> PathBuf {
    project.home().with_file_name("runtime")
}

impl<'a> Session<'a> {
    #[track_caller]
    fn start(project: &'a TestProject, lan: &'a TestNetwork<'a>, words: &[&str]) -> Self {
        let runtime = runtime(project);
        std::fs::create_dir_all(&runtime).expect("a directory can be made");
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700))
            .expect("its mode can be set");
        project.user.own(&runtime);
        let mut start = lan.command();
        start
            .env("XDG_RUNTIME_DIR", runtime)
            .arg(project.binary())
            .args(["session", "start", "--ask"])
            .args(words);
        Self { project, lan, id: TestOutput::of(&mut start, b"").ok() }
    }

    /// As somebody whom the session takes for its owner: who is not the superuser has made a
    /// network as one of a user namespace.
    fn ringfence(&self) -> Command {
        let mut command = self.lan.command();
        command.env("XDG_RUNTIME_DIR", runtime(self.project)).arg(self.project.binary());
        command
    }

    fn exec(&self, line: &str) -> TestOutput {
        TestOutput::of(self.ringfence().args(["session", "exec", &self.id, "-c", line]), b"")
    }

    fn questions(&self) -> String {
        TestOutput::of(self.ringfence().args(["ask", "list", "--json"]), b"").ok()
    }

    /// Runs a line that waits, and answers the question, which is about `what`, meanwhile.
    #[track_caller]
    fn answer(&self, line: &str, what: &str, question: &str, answer: &str) -> TestOutput {
        let mut asked = self.ringfence();
        asked
            .args(["session", "exec", &self.id, "-c", line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let waiting = asked.spawn().unwrap();
        assert!(
            soon(Duration::from_secs(10), || self.questions().contains(what)),
            "{line}: {}",
            self.questions()
        );
        TestOutput::of(self.ringfence().args(["ask", "answer", &self.id, question, answer]), b"")
            .ok();
        finish(waiting)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = self.ringfence().args(["session", "stop", &self.id]).stderr(Stdio::null()).status();
    }
}

/// For longer than a refusal is not asked about again.
fn rest() {
    thread::sleep(Duration::from_millis(2200));
}

/// What was asked and answered, as it is on record.
fn answers(project: &TestProject) -> Vec<String> {
    let log =
        TestOutput::of(project.ringfence().args(["log", "--json", "--operation", "ask"]), b"").ok();
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

/// Promise: P69
#[test]
fn each_answer_does_what_it_says() {
    on_a_lan(&["curl"], |project, lan| {
        // Nobody has said anything about the network.
        let session = Session::start(project, lan, &[]);
        session.answer(PLAIN, "\"app.test:8080\"", "1", "deny").ends(7);
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
        // What was allowed for good holds elsewhere, and nothing else does.
        let policy = std::fs::read_to_string(project.own_policy()).unwrap();
        assert!(policy.ends_with("\n\n[network]\nallow = [\"app.test:80\"]\n"), "{policy}");
        assert_eq!(lan.run(&["-c", CHECKED]).ok(), "hello from http://app.test");
        lan.run(&["-c", PLAIN]).ends(7);
        // Each connection is on record, and what was refused by its name and port.
        let told = connections(project)
            .into_iter()
            .map(|one| format!("{} {}", one["target"], one["result"]))
            .collect::<Vec<_>>();
        assert_eq!(
            told.iter().filter(|one| *one == "\"app.test:8080\" \"blocked\"").count(),
            2,
            "{told:?}"
        );
        assert_eq!(
            told.iter().filter(|one| *one == "\"app.test:8080\" \"allowed\"").count(),
            4,
            "{told:?}"
        );
    });
}

/// Promise: P69
#[test]
fn what_no_answer_may_open_is_not_asked_about() {
    on_a_lan(&["curl"], |project, lan| {
        let session = Session::start(project, lan, &["--deny-host", "other.test"]);
        // Not even its name is there.
        session.exec("curl -4sS http://other.test:8080/hello").ends(6);
        assert_eq!(answers(project), Vec::<String>::new());
        // Whoever says yes to a name has not said yes to where it leads.
        session
            .answer(
                "curl -4sS http://inner.test:8080/hello",
                "\"inner.test:8080\"",
                "1",
                "allow-session",
            )
            .ends(7);
        session.exec("curl -4sS http://inner.test:8080/hello").ends(7);
        let refused = connections(project).pop().unwrap();
        assert_eq!(
            (&refused["result"], &refused["target"]),
            (&"blocked".into(), &"inner.test:8080".into())
        );
        assert!(refused["reason"].as_str().unwrap().contains("10.9.8.7 (private)"), "{refused}");
        assert_eq!(answers(project), ["inner.test:8080 allow_session"]);
        // By the address itself, it is asked about.
        let said = session
            .answer("curl -4sS http://10.9.8.7:8080/hello", "\"10.9.8.7:8080\"", "2", "allow-once")
            .ok();
        assert_eq!(said, "hello from http://10.9.8.7:8080");
    });
}

/// Promise: P69
#[test]
fn who_waits_can_be_called_away_and_no_answer_is_no() {
    on_a_lan(&["curl", "timeout", "python3"], |project, lan| {
        let session = Session::start(project, lan, &["--ask-timeout", "4s"]);
        // By a signal that ends it, and by one that it handles.
        session.exec(&format!("timeout 1 {PLAIN}")).ends(124);
        let code = "import signal, socket\ndef away(*_): raise SystemExit(9)\nsignal.signal(signal.SIGALRM, away); signal.alarm(1)\nsocket.create_connection((\"app.test\", 443))";
        session.exec(&format!("python3 -c '{code}'")).ends(9);
        assert!(connections(project).is_empty(), "{:?}", connections(project));
        // Whoever is asked says nothing.
        session.exec("curl -4sS http://deep.app.test:8080/hello").ends(7);
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

/// Promise: P69
#[test]
fn several_who_want_the_same_wait_for_one_answer() {
    on_a_lan(&["curl"], |project, lan| {
        let session = Session::start(project, lan, &[]);
        let line = format!("for i in 1 2 3 4 5; do {PLAIN} & done; wait");
        let said =
            session.answer(&format!("({line})"), "\"app.test:8080\"", "1", "allow-session").ok();
        assert_eq!(said, ["hello from http://app.test:8080"; 5].join("\n"));
        assert_eq!(answers(project), ["app.test:8080 allow_session"]);
    });
}

/// Promise: P69
#[test]
fn a_client_of_the_proxy_waits_as_well() {
    on_a_lan(&["curl"], |project, lan| {
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nproxy-variables = true\n",
        );
        let session = Session::start(project, lan, &["--deny-host", "other.test"]);
        let ask = "curl -fsS --max-time 20 http://app.test:8080/hello";
        session.answer(ask, "\"app.test:8080\"", "1", "deny").ends(22);
        rest();
        assert_eq!(
            session.answer(ask, "\"app.test:8080\"", "2", "allow-once").ok(),
            "hello from http://app.test:8080"
        );
        session.exec("curl -fsS http://other.test:8080/hello").ends(22);
        assert_eq!(answers(project), ["app.test:8080 deny", "app.test:8080 allow_once"]);
        let told = connections(project);
        let results = told.iter().map(|one| {
            format!("{} {}", one["target"].as_str().unwrap(), one["result"].as_str().unwrap())
        });
        let mut results: Vec<String> = results.collect();
        // What a connection has carried by its end may be told of behind it.
        results.dedup();
        assert_eq!(
            results,
            ["app.test:8080 blocked", "app.test:8080 allowed", "other.test:8080 blocked"]
        );
    });
}
