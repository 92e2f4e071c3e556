//! The service against its own OpenAPI document, with requests that Schemathesis generates.

use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{TestUser, repetitions, wait_at_most};

use crate::languages::{installed, root};
use crate::stage::{ADMIN, SKILL, Service};

/// The same requests every time, about one minute of them.
const SEED: &str = "7420";

#[test]
fn every_response_matches_the_openapi_document() {
    let Some(environment) = installed("venv") else { return };
    let service = Service::start(TestUser::User);
    let files = [("tool/SKILL.md", SKILL), ("tool/run.py", "print('ran')\n")];
    service.upload("alice", "helper", &files).is(200);
    let place = service.project().root();
    let mut tries = Command::new(environment.join("bin/schemathesis"));
    tries
        .current_dir(place)
        .arg("--config-file")
        .arg(root().join("crates/ringfence-e2e/tests/serve/clients/schemathesis.toml"));
    tries
        .arg("run")
        .arg(root().join("docs/openapi.json"))
        .args(["--url", &format!("http://{}", service.address)]);
    tries.args(["--header", &format!("Authorization: Bearer {ADMIN}"), "--seed", SEED]);
    tries.args(["--max-examples", &repetitions(6, 20).to_string()]);
    let mut child = tries
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = child.stdout.take().expect("it is a pipe");
    let report = std::thread::spawn(move || std::io::read_to_string(&mut said).unwrap_or_default());
    let status = wait_at_most(&mut child, Duration::from_secs(170));
    let report = report.join().unwrap_or_default();
    assert!(status.is_some_and(|status| status.success()), "{report}");
    // The service still works and logged no internal error.
    assert_eq!(service.get("/healthz").status, 200);
    let (_, log) = service.end();
    assert!(!log.contains("\"level\":\"error\""), "{log}");
}
