//! `ringfence remote`, against a service that runs.

use std::process::Command;
use std::time::Duration;

use ringfence_testkit::{TestOutput, each_user, soon};
use serde_json::Value;

use crate::stage::{ADMIN, SKILL, Service};

/// `ringfence remote` with these words, as whoever runs the service.
fn remote(service: &Service, words: &[&str]) -> Command {
    let mut command = service.project().ringfence();
    command
        .env("RINGFENCE_URL", format!("http://{}", service.address))
        .env("RINGFENCE_TOKEN", ADMIN)
        .arg("remote")
        .args(words);
    command
}

#[track_caller]
fn says(service: &Service, words: &[&str]) -> String {
    TestOutput::of(&mut remote(service, words), b"").ok()
}

#[track_caller]
fn json(service: &Service, words: &[&str]) -> Value {
    let said = says(service, &[words, &["--json"]].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A service with one skill, brought from a directory.
fn with_skill(service: &Service) {
    let project = service.project();
    project.write("skills/tool/SKILL.md", SKILL);
    project.write("skills/tool/run.sh", "#!/bin/sh\necho ran; echo oops >&2; exit 3\n");
    project.executable("skills/tool/run.sh");
    project.write("skills/tool/data/lines.txt", "one\ntwo\nthree\n");
    assert_eq!(says(service, &["upload", "alice", "helper", "skills"]), "tool  new");
}

#[test]
fn a_directory_is_brought_and_read() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        // One skill by itself, and an archive.
        assert_eq!(says(&service, &["upload", "alice", "helper", "skills/tool"]), "tool  replaced");
        assert!(says(&service, &["list", "alice", "helper"]).contains("does things"));
        let files = says(&service, &["files", "alice", "helper", "tool"]);
        assert!(files.contains("data/lines.txt") && files.contains("run.sh"), "{files}");
        assert_eq!(
            says(&service, &["cat", "alice", "helper", "tool", "data/lines.txt", "--lines", "2:3"]),
            "two\nthree"
        );
        TestOutput::of(
            &mut remote(
                &service,
                &["edit", "alice", "helper", "tool", "data/lines.txt", "--lines", "2:2"],
            ),
            b"2\n",
        )
        .ok();
        assert_eq!(
            says(&service, &["cat", "alice", "helper", "tool", "data/lines.txt"]),
            "one\n2\nthree"
        );
        assert_eq!(json(&service, &["files", "alice", "helper", "tool"])["truncated"], false);
        says(&service, &["rm", "alice", "helper", "tool"]);
        assert_eq!(says(&service, &["list", "alice", "helper"]), "");
    });
}

#[test]
fn a_command_says_and_ends_as_it_would_here() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        let ran = TestOutput::of(
            &mut remote(&service, &["exec", "alice", "helper", "tool", "--", "./run.sh"]),
            b"",
        );
        assert_eq!((ran.status, ran.text(), ran.talk()), (3, "ran".into(), "oops\n".into()));
        // Words stay words, and bytes stay bytes.
        assert_eq!(
            says(
                &service,
                &["exec", "alice", "helper", "tool", "--", "printf", "%s\\n", "a b", "$HOME"]
            ),
            "a b\n$HOME"
        );
        let bytes = TestOutput::of(
            &mut remote(
                &service,
                &["exec", "alice", "helper", "tool", "-c", r"printf '\377\000x'"],
            ),
            b"",
        );
        assert_eq!(bytes.stdout, b"\xff\x00x");
        let refused = TestOutput::of(
            &mut remote(&service, &["exec", "alice", "helper", "tool", "-c", "cat /etc/shadow"]),
            b"",
        );
        assert_eq!(refused.status, 1);
        assert!(refused.talk().contains("/etc/shadow was refused"), "{}", refused.talk());
        let result = json(&service, &["exec", "alice", "helper", "tool", "-c", "exit 0"]);
        assert_eq!((&result["exitCode"], &result["confined"]), (&0.into(), &true.into()));
        TestOutput::of(
            &mut remote(
                &service,
                &["exec", "alice", "helper", "tool", "--timeout", "300ms", "-c", "sleep 9"],
            ),
            b"",
        )
        .ends(124);
    });
}

#[test]
fn what_takes_long_is_listed_and_cancelled() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        let id = says(&service, &["exec", "alice", "helper", "tool", "--async", "-c", "sleep 60"]);
        assert!(soon(Duration::from_secs(10), || says(
            &service,
            &["executions", "alice", "--running"]
        )
        .contains("running")));
        says(&service, &["cancel", &id]);
        assert!(soon(Duration::from_secs(20), || says(&service, &["executions", "--running"])
            .is_empty()));
    });
}

#[test]
fn a_question_is_answered() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        service.project().write_at(&service.project().home().join("other/secret.txt"), "told\n");
        let secret = service.project().home().join("other/secret.txt").display().to_string();
        let line = format!("cat {secret}");
        let waits = std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                TestOutput::of(
                    &mut remote(
                        &service,
                        &["exec", "alice", "helper", "tool", "--ask", "-c", &line],
                    ),
                    b"",
                )
            });
            let mut question = Value::Null;
            let is_asked = soon(Duration::from_secs(15), || {
                question = json(&service, &["asks"])["asks"].get(0).cloned().unwrap_or_default();
                question.is_object()
            });
            if is_asked {
                says(&service, &["answer", question["id"].as_str().expect("an id"), "allow_once"]);
            }
            (is_asked, asks.join().expect("it ends"))
        });
        assert!(waits.0, "{}", waits.1.talk());
        assert_eq!(waits.1.ok(), "told");
    });
}

#[test]
fn tenants_are_managed() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        assert!(says(&service, &["tenants"]).starts_with("alice "));
        let word = says(
            &service,
            &[
                "token",
                "new",
                "--user",
                "alice",
                "--scope",
                "skills:read",
                "--label",
                "for reading",
                "--expires",
                "1h",
            ],
        );
        let mut theirs = remote(&service, &["rm", "alice", "helper", "tool"]);
        let refused = TestOutput::of(theirs.env("RINGFENCE_TOKEN", &word), b"");
        assert!(
            refused.ends(125).talk().contains("error: this token lacks the scope `skills:write`"),
            "{}",
            refused.talk()
        );
        assert!(refused.talk().contains("hint: "), "{}", refused.talk());
        let listed = says(&service, &["token", "list"]);
        let id = listed
            .lines()
            .find(|line| line.ends_with("for reading"))
            .and_then(|line| line.split(' ').next())
            .expect("it is listed");
        assert!(!listed.contains(&word));
        says(&service, &["token", "revoke", id]);
        TestOutput::of(
            remote(&service, &["list", "alice", "helper"]).env("RINGFENCE_TOKEN", &word),
            b"",
        )
        .ends(125);
        TestOutput::of(
            &mut remote(&service, &["policy", "set", "alice"]),
            b"version = 1\n# ours\n",
        )
        .ok();
        assert_eq!(says(&service, &["policy", "get", "alice"]), "version = 1\n# ours");
        TestOutput::of(&mut remote(&service, &["policy", "set", "alice"]), b"version = \"none\"")
            .ends(125);
        assert_eq!(json(&service, &["quotas", "alice", "--executions", "3"])["executions"], 3);
        assert!(says(&service, &["quotas", "alice"]).contains("executions          3"));
        assert!(says(&service, &["log", "alice"]).contains("upload"));
        assert!(
            says(&service, &["log", "alice", "--blocked-only", "--json"])
                .lines()
                .all(|line| line.contains("\"blocked\""))
        );
    });
}

#[test]
fn a_token_goes_to_nobody_who_should_not_have_it() {
    each_user(|user| {
        let service = Service::start_open(user);
        let exposed = TestOutput::of(
            &mut remote(&service, &["tenants", "--url", "http://192.0.2.1:7420"]),
            b"",
        );
        assert!(
            exposed.ends(125).talk().contains("everybody on the way reads the token"),
            "{}",
            exposed.talk()
        );
        let without = TestOutput::of(
            remote(&service, &["tenants", "--json"]).env_remove("RINGFENCE_TOKEN"),
            b"",
        );
        let error: Value = serde_json::from_str(&without.ends(125).text()).expect("one object");
        assert_eq!(error["error"]["code"], "token", "{error}");
        service.project().write("word", format!("{ADMIN}\n"));
        TestOutput::of(
            remote(&service, &["tenants", "--token-file", "word"]).env_remove("RINGFENCE_TOKEN"),
            b"",
        )
        .ok();
        let nobody =
            TestOutput::of(&mut remote(&service, &["tenants", "--url", "http://127.0.0.1:1"]), b"");
        assert!(
            nobody.ends(125).talk().contains("cannot reach the service at 127.0.0.1:1"),
            "{}",
            nobody.talk()
        );
    });
}

#[test]
fn a_service_by_tls_is_vouched_for() {
    each_user(|user| {
        ringfence_testkit::fuse_for_all();
        let project = ringfence_testkit::TestProject::new(user, env!("CARGO_BIN_EXE_ringfence"));
        let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem";
        project.sh_bare(make).ok();
        let (cert, key) = (
            project.at("cert.pem").display().to_string(),
            project.at("key.pem").display().to_string(),
        );
        let service = Service::start_in(project, &["--tls-cert", &cert, "--tls-key", &key]);
        let url = format!("https://{}", service.address);
        TestOutput::of(&mut remote(&service, &["tenants", "--url", &url, "--ca", &cert]), b"").ok();
        let stranger = TestOutput::of(&mut remote(&service, &["tenants", "--url", &url]), b"");
        assert!(stranger.ends(125).talk().contains("is not vouched for"), "{}", stranger.talk());
    });
}
