//! A flood of lookups of absent names costs the FUSE server no memory and hides no denial.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use ringfence_testkit::{
    TestProject, becomes_true, each_user, finish, fuse_for_all, python, repetitions,
};
use serde_json::Value;

use crate::project;

/// Allowed growth of the server in kilobytes after all lookups; 20 bytes for each would exceed it.
/// Kept denials are bounded as well.
const MAX_GROWTH_KB: u64 = 4096;
/// Number of different names, most of them absent.
const LOOKS: usize = 60_000;
const LOOKS_UNDER_STRESS: usize = 200_000;
/// Number of those names that exist on the host.
const THERE: usize = 2_000;

/// Four threads look up names in the root, in the home and below other directories outside.
const FLOOD: &str = "
import os, sys, threading, time
def wait(name):
    while not os.path.exists(name): time.sleep(0.005)
def made(name): open(name, 'w').close()
home, looks, there = os.path.expanduser('~'), int(sys.argv[1]), int(sys.argv[2])
def flood(me):
    for number in range(me, looks, 4):
        path = '%s/crowd/%d' % (home, number) if number < there else '%s/nowhere-%d' % ('' if number % 2 else home, number)
        try: os.stat(path)
        except FileNotFoundError: continue
        made('found')
made('ready'); wait('go')
threads = [threading.Thread(target=flood, args=(me,)) for me in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
made('flooded'); wait('end')
open('.env')
";

/// A field of `/proc/PID/status`, in kilobytes.
fn memory(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells it");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// A process that is killed on drop if it was not waited for.
struct Started(Option<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(project: &TestProject, name: &str) {
    assert!(becomes_true(Duration::from_secs(60), || project.has(name)), "{name} does not come");
}

/// Promise: lookup-flood
#[test]
fn flood_of_lookups_costs_no_memory_and_hides_nothing() {
    let (Some(python), true) = (python(), fuse_for_all()) else { return };
    each_user(|user| {
        let project = project(user);
        let crowd = project.home().join("crowd");
        project.make_directories(&crowd);
        (0..THERE).for_each(|number| project.write_at(&crowd.join(number.to_string()), ""));
        let mut command = project.ringfence();
        command
            .args(["run", "--json", "--", python, "-Bc", FLOOD])
            .args([repetitions(LOOKS, LOOKS_UNDER_STRESS).to_string(), THERE.to_string()]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ringfence starts");
        let (pid, mut started) = (child.id(), Started(Some(child)));
        wait_for(&project, "ready");
        let before = memory(pid, "VmRSS:");
        project.write("go", "");
        wait_for(&project, "flooded");
        let after = memory(pid, "VmHWM:");
        project.write("end", "");
        let ran = finish(started.0.take().expect("taken here alone"));
        eprintln!("{user}: {before} kB before, {after} kB at most");
        assert!(after < before + MAX_GROWTH_KB, "{user}: {before} kB before, {after} kB at most");
        assert!(!project.has("found"), "a file outside was found");
        let said: Value = serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", ran.stderr_text()));
        let denials = said["denials"].as_array().expect("a list");
        assert!(denials.len() > 1 && denials.len() <= 1001, "{} denials", denials.len());
        let secret = project.at(".env").to_string_lossy().into_owned();
        assert!(
            denials.iter().any(|denial| denial["target"] == secret && denial["explicit"] == true),
            "{:?}",
            denials.last()
        );
    });
}
