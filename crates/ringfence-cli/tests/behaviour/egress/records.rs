//! Every connection is on record, whether it was let through or not.

use ringfence_testkit::{Project, Ran, each_user, python};
use serde_json::Value;

use super::on_a_lan;
use super::served::Served;
use crate::project;

/// What is on record of connections.
#[track_caller]
pub(super) fn connections(project: &Project) -> Vec<Value> {
    let log = Ran::of(project.ringfence().args(["log", "--json", "--operation", "connect"]), b"").ok();
    log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

#[test]
fn a_connection_is_told_with_whom_it_led_to_and_what_it_carried() {
    on_a_lan(&["curl"], |project, lan| {
        let asks = ["app.test/hello", "app.test:8080/hello", "app.test:8080/hello", "app.test:9/", "other.test/hello"];
        let line = asks.map(|place| format!("curl -4sS http://{place}")).join("; ");
        lan.run(&["--allow-host", "app.test", "-c", &format!("{line}; true")]).ok();
        let told = connections(project);
        let of = |target: &str| told.iter().filter(|one| one["target"] == target).collect::<Vec<_>>();
        let [checked] = of("app.test:80")[..] else { panic!("{told:?}") };
        assert_eq!((&checked["result"], &checked["policy"], &checked["count"]), (&"allowed".into(), &"allow app.test".into(), &1.into()));
        assert!(checked["program"].as_str().is_some_and(|program| program.ends_with("/curl")), "{checked}");
        assert!(checked["pid"].as_u64().is_some_and(|pid| pid > 1), "{checked}");
        let leads = |one: &Value, port: &str| {
            let address = one["address"].as_str().unwrap_or_default();
            address == format!("11.22.33.1:{port}") || address == format!("[2600:1234:5678::1]:{port}")
        };
        assert!(leads(checked, "80"), "{checked}");
        let carried = |key: &str| checked[key].as_u64().unwrap_or_default();
        assert!(carried("sent") > 50 && carried("received") > 100, "{checked}");
        let [plain] = of("app.test:8080")[..] else { panic!("{told:?}") };
        assert_eq!((&plain["count"], plain.get("sent"), leads(plain, "8080")), (&2.into(), None, true), "{plain}");
        let [down] = of("app.test:9")[..] else { panic!("{told:?}") };
        assert!(down["result"] == "failed" && down["reason"].as_str().is_some_and(|why| why.contains("refused")), "{down}");
        let [refused] = of("other.test")[..] else { panic!("{told:?}") };
        assert_eq!(refused["result"], "blocked");
        let events = Ran::of(project.ringfence().args(["log", "--ocsf", "--operation", "connect"]), b"").ok();
        let event: Value = serde_json::from_str(events.lines().find(|line| line.contains("\"traffic\"")).expect("one is counted")).unwrap();
        assert_eq!((&event["dst_endpoint"]["hostname"], &event["traffic"]["bytes_in"]), (&"app.test".into(), &checked["received"]));
    });
}

/// Says something to the one, begins to connect to the other, and ends. Whoever waits for events
/// of its socket already is carried.
const BEGUN: &str = "import os, select, socket, sys
def begin(port):
    client = socket.socket(); client.setblocking(False)
    events = select.epoll(); events.register(client.fileno(), select.EPOLLOUT)
    client.connect_ex(('127.0.0.1', port)); events.poll(5)
    return client, events
client, _ = kept = begin(int(sys.argv[1])); client.send(b'x' * 1000); client.setblocking(True); print(client.recv(20))
more = begin(int(sys.argv[2]))
os._exit(0)
";

/// What a sandbox has begun when it ends is on record, with what was carried until then.
#[test]
fn what_a_sandbox_has_begun_is_told_when_it_ends() {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("begun.py", BEGUN);
        let served = Served::start(python);
        served.run(&project, python, "begun.py").ok();
        let (answers, silent) = served.ports();
        let told = connections(&project);
        let of = |port: &str| told.iter().filter(|one| one["target"] == format!("127.0.0.1:{port}")).collect::<Vec<_>>();
        let [carried] = of(answers)[..] else { panic!("{told:?}") };
        assert_eq!((&carried["sent"], &carried["received"]), (&1000.into(), &5.into()), "{carried}");
        let [unfinished] = of(silent)[..] else { panic!("{told:?}") };
        assert_eq!((&unfinished["result"], &unfinished["reason"]), (&"failed".into(), &"the sandbox has ended".into()), "{unfinished}");
    });
}
