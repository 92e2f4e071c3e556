//! The page in a browser. The steps are in `crates/ringfence-http/page/tests`.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_testkit::{TestUser, skip};

use crate::stage::{ADMIN, Service};

/// The directory in which `.ci/clients` installs the browser driver.
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

/// Runs one of the test files against a service of its own.
#[track_caller]
fn check(file: &str) {
    let Some(tools) = tools() else { return };
    let service = Service::start(TestUser::all()[TestUser::all().len() - 1]);
    // The user can read it; no rule of a skill opens it.
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

/// Promise: page-text
#[test]
fn skill_is_uploaded_edited_run_and_granted_access() {
    check("flow.test.mjs");
}

/// Promise: page-access
#[test]
fn page_works_by_keyboard() {
    check("keyboard.test.mjs");
}

/// Promise: page-text
#[test]
fn foreign_text_is_never_rendered_as_html() {
    check("hostile.test.mjs");
}

/// Promise: page-access
#[test]
fn every_view_passes_the_accessibility_check() {
    check("looks.test.mjs");
}

#[test]
fn sandbox_is_made_and_used_from_the_page() {
    check("sandboxes.test.mjs");
}
