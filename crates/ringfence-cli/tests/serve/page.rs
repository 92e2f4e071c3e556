//! The page, clicked through in a browser. What is done there is written in
//! `crates/ringfence-http/page/tests`, in the browser's own language.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_testkit::{TestUser, skip};

use crate::stage::{ADMIN, Service};

/// Where `.ci/clients` puts what drives the browser.
fn tools() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/page-tools");
    if !place.exists() {
        skip(&format!("{} is not there; `.ci/clients` installs it", place.display()));
        return None;
    }
    if !Path::new("/usr/bin/chromium").exists() {
        skip("there is no /usr/bin/chromium; `apt-get install chromium` brings it");
        return None;
    }
    Some(place.canonicalize().expect("it is there"))
}

/// Has one file of them done, against a service of its own.
#[track_caller]
fn check(file: &str) {
    let Some(tools) = tools() else { return };
    let service = Service::start(TestUser::all()[TestUser::all().len() - 1]);
    // A person could read it; no rule of any skill opens it.
    let secret = service.project().home().join("figures.txt");
    service.project().write_at(&secret, "a secret of the host\n");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ringfence-http/page/tests");
    let ended = Command::new("node")
        .arg("--test")
        .arg(tests.join(file))
        .env("RINGFENCE_PAGE_URL", format!("http://{}/", service.address))
        .env("RINGFENCE_PAGE_TOKEN", ADMIN)
        .env("RINGFENCE_PAGE_TOOLS", tools)
        .env("RINGFENCE_PAGE_SECRET", &secret)
        .output()
        .expect("node starts");
    assert!(
        ended.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// Promise: P112
#[test]
fn a_skill_is_brought_edited_and_run_and_what_it_asks_for_is_allowed() {
    check("flow.test.mjs");
}

/// Promise: P113
#[test]
fn everything_can_be_done_by_keys() {
    check("keyboard.test.mjs");
}

/// Promise: P112
#[test]
fn what_others_write_stays_text() {
    check("hostile.test.mjs");
}

/// Promise: P113
#[test]
fn every_view_can_be_read_by_everybody() {
    check("looks.test.mjs");
}

#[test]
fn sandbox_is_made_and_used_from_the_page() {
    check("sandboxes.test.mjs");
}
