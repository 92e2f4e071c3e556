//! Programs reach the allowed hosts, and no others, as they would without a sandbox.

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

/// Runs `body` with its own test network, as every user, if these programs are installed.
#[track_caller]
pub(crate) fn on_a_lan(programs: &[&str], body: impl Fn(&TestProject, &TestNetwork<'_>)) {
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

/// Returns the output of a shell line inside, with `app.test` allowed.
#[track_caller]
fn inside(lan: &TestNetwork<'_>, line: &str) -> String {
    lan.run(&["--allow-host", "app.test", "-c", line]).ok()
}
