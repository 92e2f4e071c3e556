//! Clients that third-party tools generate from the OpenAPI document, as in docs/clients.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_testkit::{TestOutput, TestUser, skip};
use serde_json::{Value, json};

use crate::archives::zip;
use crate::stage::{ADMIN, SKILL, Service};

/// The path of a tool that `.ci/clients` installed; skips the test if it is absent.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let place = root().join("target/service-clients").join(name);
    if !place.exists() {
        skip(&format!("{} is not there; `.ci/clients` installs it", place.display()));
        return None;
    }
    Some(place)
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

fn ours(name: &str) -> PathBuf {
    root().join("crates/ringfence-e2e/tests/serve/clients").join(name)
}

/// An empty directory for generated files.
fn made(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("it can be made");
    place
}

/// Runs a client against a service and checks its output.
#[track_caller]
fn check(client: &mut Command, place: &Path) {
    let service = Service::start_open(TestUser::User);
    let archive = place.join("skills.zip");
    fs::write(
        &archive,
        zip(&[("tool/SKILL.md", SKILL.as_bytes()), ("tool/run.py", b"print('ran')\n")]),
    )
    .expect("it can be written");
    let url = format!("http://{}", service.address);
    client.env("RINGFENCE_URL", url).env("RINGFENCE_TOKEN", ADMIN).env("ARCHIVE", &archive);
    let seen: Value = serde_json::from_str(&TestOutput::run(client, b"").ok()).expect("one object");
    let expect = json!({
        "skill": "tool", "stdout": "ran\n", "exitCode": 1, "blocked": true, "denied": ["/etc/shadow"], "absent": "no-skill",
    });
    assert_eq!(seen, expect);
}

#[test]
fn generated_typescript_client_works() {
    let Some(packages) = installed("typescript/node_modules") else { return };
    let place = made("typescript-client");
    std::os::unix::fs::symlink(&packages, place.join("node_modules")).expect("it can be made");
    fs::write(place.join("package.json"), r#"{ "type": "module" }"#).expect("it can be written");
    fs::copy(ours("client.ts"), place.join("client.ts")).expect("it can be copied");
    let description = root().join("docs/openapi.json");
    let within = |program: &str| {
        let mut command = Command::new("node");
        command.current_dir(&place).arg(packages.join(program));
        command
    };
    TestOutput::run(
        within("openapi-typescript/bin/cli.js").arg(&description).args(["-o", "service.ts"]),
        b"",
    )
    .ok();
    let strict =
        ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "client.ts"];
    TestOutput::run(within("typescript/bin/tsc").args(strict), b"").ok();
    check(Command::new("node").current_dir(&place).arg("client.js"), &place);
}

#[test]
fn generated_python_client_works() {
    let Some(environment) = installed("venv") else { return };
    let place = made("python-client");
    let names = "project_name_override: ringfence-client\npackage_name_override: ringfence_client\npost_hooks: []\n";
    fs::write(place.join("config.yaml"), names).expect("it can be written");
    let mut make = Command::new(environment.join("bin/openapi-python-client"));
    make.current_dir(&place).args([
        "generate",
        "--meta",
        "none",
        "--config",
        "config.yaml",
        "--fail-on-warning",
        "--path",
    ]);
    TestOutput::run(
        make.arg(root().join("docs/openapi.json")).args(["--output-path", "ringfence_client"]),
        b"",
    )
    .ok();
    let mut client = Command::new(environment.join("bin/python"));
    check(client.env("PYTHONPATH", &place).arg(ours("client.py")), &place);
}
