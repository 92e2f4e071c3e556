//! Programs reach the hosts that are listed, and no others, as they would without a sandbox.

mod asked;
mod calls;
mod languages;
mod many;
mod outer;
mod packages;
mod records;
mod refusals;
mod remotes;
mod secrets;
mod served;
mod web;
mod within;

use ringfence_testkit::{TestNetwork, TestProject, each_user, needs};

use crate::project;

/// Tries `body` with a network of its own, as every user, where these programs are.
#[track_caller]
fn on_a_lan(programs: &[&str], body: impl Fn(&TestProject, &TestNetwork<'_>)) {
    if !needs(programs) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        if let Some(lan) = project.lan() {
            body(&project, &lan);
        }
    });
}

/// What a line of shell says inside, where `app.test` may be reached.
#[track_caller]
fn inside(lan: &TestNetwork<'_>, line: &str) -> String {
    lan.run(&["--allow-host", "app.test", "-c", line]).ok()
}
