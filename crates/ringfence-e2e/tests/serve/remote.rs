//! `ringfence remote`, against a service that runs.

use std::process::Command;
use std::time::Duration;

use ringfence_testkit::{TestOutput, becomes_true, each_user};
use serde_json::Value;

use crate::stage::{ADMIN, SKILL, Service};

/// `ringfence remote` with these arguments, as the user that runs the service.
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
    TestOutput::run(&mut remote(service, words), b"").ok()
}

#[track_caller]
fn json(service: &Service, words: &[&str]) -> Value {
    let said = says(service, &[words, &["--json"]].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Uploads one skill from a directory.
fn with_skill(service: &Service) {
    let project = service.project();
    project.write("skills/tool/SKILL.md", SKILL);
    project.write("skills/tool/run.sh", "#!/bin/sh\necho ran; echo oops >&2; exit 3\n");
    project.executable("skills/tool/run.sh");
    project.write("skills/tool/data/lines.txt", "one\ntwo\nthree\n");
    assert_eq!(says(service, &["upload", "alice", "helper", "skills"]), "tool  new");
}

#[test]
fn directory_is_uploaded_and_read() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        // A single skill, and an archive.
        assert_eq!(says(&service, &["upload", "alice", "helper", "skills/tool"]), "tool  replaced");
        assert!(says(&service, &["list", "alice", "helper"]).contains("does things"));
        let files = says(&service, &["files", "alice", "helper", "tool"]);
        assert!(files.contains("data/lines.txt") && files.contains("run.sh"), "{files}");
        assert_eq!(
            says(&service, &["cat", "alice", "helper", "tool", "data/lines.txt", "--lines", "2:3"]),
            "two\nthree"
        );
        TestOutput::run(
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
fn remote_command_has_the_same_output_and_status() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        let ran = TestOutput::run(
            &mut remote(&service, &["exec", "alice", "helper", "tool", "--", "./run.sh"]),
            b"",
        );
        assert_eq!((ran.status, ran.text(), ran.stderr_text()), (3, "ran".into(), "oops\n".into()));
        // Arguments are not split, and bytes are not changed.
        assert_eq!(
            says(
                &service,
                &["exec", "alice", "helper", "tool", "--", "printf", "%s\\n", "a b", "$HOME"]
            ),
            "a b\n$HOME"
        );
        let bytes = TestOutput::run(
            &mut remote(
                &service,
                &["exec", "alice", "helper", "tool", "-c", r"printf '\377\000x'"],
            ),
            b"",
        );
        assert_eq!(bytes.stdout, b"\xff\x00x");
        let refused = TestOutput::run(
            &mut remote(&service, &["exec", "alice", "helper", "tool", "-c", "cat /etc/shadow"]),
            b"",
        );
        assert_eq!(refused.status, 1);
        assert!(
            refused.stderr_text().contains("/etc/shadow was denied"),
            "{}",
            refused.stderr_text()
        );
        let result = json(&service, &["exec", "alice", "helper", "tool", "-c", "exit 0"]);
        assert_eq!((&result["exitCode"], &result["confined"]), (&0.into(), &true.into()));
        TestOutput::run(
            &mut remote(
                &service,
                &["exec", "alice", "helper", "tool", "--timeout", "300ms", "-c", "sleep 9"],
            ),
            b"",
        )
        .expect_status(124);
    });
}

#[test]
fn long_execution_is_listed_and_cancelled() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        let id = says(&service, &["exec", "alice", "helper", "tool", "--async", "-c", "sleep 60"]);
        assert!(becomes_true(Duration::from_secs(10), || says(
            &service,
            &["executions", "alice", "--running"]
        )
        .contains("running")));
        says(&service, &["cancel", &id]);
        assert!(becomes_true(Duration::from_secs(20), || says(
            &service,
            &["executions", "--running"]
        )
        .is_empty()));
    });
}

#[test]
fn permission_request_is_answered() {
    each_user(|user| {
        let service = Service::start_open(user);
        with_skill(&service);
        service.project().write_at(&service.project().home().join("other/secret.txt"), "content\n");
        let secret = service.project().home().join("other/secret.txt").display().to_string();
        let line = format!("cat {secret}");
        let waits = std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                TestOutput::run(
                    &mut remote(
                        &service,
                        &["exec", "alice", "helper", "tool", "--ask", "-c", &line],
                    ),
                    b"",
                )
            });
            let mut question = Value::Null;
            let is_asked = becomes_true(Duration::from_secs(15), || {
                question = json(&service, &["asks"])["asks"].get(0).cloned().unwrap_or_default();
                question.is_object()
            });
            if is_asked {
                says(&service, &["answer", question["id"].as_str().expect("an id"), "allow_once"]);
            }
            (is_asked, asks.join().expect("it ends"))
        });
        assert!(waits.0, "{}", waits.1.stderr_text());
        assert_eq!(waits.1.ok(), "content");
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
        let refused = TestOutput::run(theirs.env("RINGFENCE_TOKEN", &word), b"");
        assert!(
            refused
                .expect_status(125)
                .stderr_text()
                .contains("error: the token lacks the scope `skills:write`"),
            "{}",
            refused.stderr_text()
        );
        assert!(refused.stderr_text().contains("hint: "), "{}", refused.stderr_text());
        let listed = says(&service, &["token", "list"]);
        let id = listed
            .lines()
            .find(|line| line.ends_with("for reading"))
            .and_then(|line| line.split(' ').next())
            .expect("it is listed");
        assert!(!listed.contains(&word));
        says(&service, &["token", "revoke", id]);
        TestOutput::run(
            remote(&service, &["list", "alice", "helper"]).env("RINGFENCE_TOKEN", &word),
            b"",
        )
        .expect_status(125);
        TestOutput::run(
            &mut remote(&service, &["policy", "set", "alice"]),
            b"version = 1\n# ours\n",
        )
        .ok();
        assert_eq!(says(&service, &["policy", "get", "alice"]), "version = 1\n# ours");
        TestOutput::run(&mut remote(&service, &["policy", "set", "alice"]), b"version = \"none\"")
            .expect_status(125);
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
fn token_is_sent_only_to_its_service() {
    each_user(|user| {
        let service = Service::start_open(user);
        let exposed = TestOutput::run(
            &mut remote(&service, &["tenants", "--url", "http://192.0.2.1:7420"]),
            b"",
        );
        assert!(
            exposed.expect_status(125).stderr_text().contains("without TLS: it is another machine"),
            "{}",
            exposed.stderr_text()
        );
        let without = TestOutput::run(
            remote(&service, &["tenants", "--json"]).env_remove("RINGFENCE_TOKEN"),
            b"",
        );
        let error: Value =
            serde_json::from_str(&without.expect_status(125).text()).expect("one object");
        assert_eq!(error["error"]["code"], "token", "{error}");
        service.project().write("word", format!("{ADMIN}\n"));
        TestOutput::run(
            remote(&service, &["tenants", "--token-file", "word"]).env_remove("RINGFENCE_TOKEN"),
            b"",
        )
        .ok();
        let unreachable = TestOutput::run(
            &mut remote(&service, &["tenants", "--url", "http://127.0.0.1:1"]),
            b"",
        );
        assert!(
            unreachable
                .expect_status(125)
                .stderr_text()
                .contains("cannot connect to the server at 127.0.0.1:1"),
            "{}",
            unreachable.stderr_text()
        );
    });
}

#[test]
fn tls_certificate_of_the_service_is_verified() {
    each_user(|user| {
        ringfence_testkit::fuse_for_all();
        let project =
            ringfence_testkit::TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"));
        let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem";
        project.sh_bare(make).ok();
        let (cert, key) = (
            project.at("cert.pem").display().to_string(),
            project.at("key.pem").display().to_string(),
        );
        let service = Service::start_in(project, &["--tls-cert", &cert, "--tls-key", &key]);
        let url = format!("https://{}", service.address);
        TestOutput::run(&mut remote(&service, &["tenants", "--url", &url, "--ca", &cert]), b"")
            .ok();
        let stranger = TestOutput::run(&mut remote(&service, &["tenants", "--url", &url]), b"");
        assert!(
            stranger.expect_status(125).stderr_text().contains("is not trusted"),
            "{}",
            stranger.stderr_text()
        );
    });
}
