//! Every connection is on record, whether it was let through or not.

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, each_user, python};
use serde_json::Value;

use super::on_a_lan;
use super::served::Served;
use crate::project;

/// What is on record of connections.
#[track_caller]
pub(super) fn connections(project: &TestProject) -> Vec<Value> {
    let log =
        TestOutput::of(project.ringfence().args(["log", "--json", "--operation", "connect"]), b"")
            .ok();
    log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

/// Promise: P70
#[test]
fn a_connection_is_told_with_whom_it_led_to_and_what_it_carried() {
    on_a_lan(&["curl"], |project, lan| {
        let asks = [
            "app.test/hello",
            "app.test:8080/hello",
            "app.test:8080/hello",
            "app.test:9/",
            "other.test/hello",
        ];
        let line = asks.map(|place| format!("curl -4sS http://{place}")).join("; ");
        lan.run(&["--allow-host", "app.test", "-c", &format!("{line}; true")]).ok();
        let told = connections(project);
        let of =
            |target: &str| told.iter().filter(|one| one["target"] == target).collect::<Vec<_>>();
        let [checked] = of("app.test:80")[..] else { panic!("{told:?}") };
        assert_eq!(
            (&checked["result"], &checked["policy"], &checked["count"]),
            (&"allowed".into(), &"allow app.test".into(), &1.into())
        );
        assert!(
            checked["program"].as_str().is_some_and(|program| program.ends_with("/curl")),
            "{checked}"
        );
        assert!(checked["pid"].as_u64().is_some_and(|pid| pid > 1), "{checked}");
        let leads = |one: &Value, port: &str| {
            let address = one["address"].as_str().unwrap_or_default();
            address == format!("11.22.33.1:{port}")
                || address == format!("[2600:1234:5678::1]:{port}")
        };
        assert!(leads(checked, "80"), "{checked}");
        let carried = |key: &str| checked[key].as_u64().unwrap_or_default();
        assert!(carried("sent") > 50 && carried("received") > 100, "{checked}");
        let [plain] = of("app.test:8080")[..] else { panic!("{told:?}") };
        assert_eq!(
            (&plain["count"], plain.get("sent"), leads(plain, "8080")),
            (&2.into(), None, true),
            "{plain}"
        );
        let [down] = of("app.test:9")[..] else { panic!("{told:?}") };
        assert!(
            down["result"] == "failed"
                && down["reason"].as_str().is_some_and(|why| why.contains("refused")),
            "{down}"
        );
        let [refused] = of("other.test")[..] else { panic!("{told:?}") };
        assert_eq!(refused["result"], "blocked");
        let events = TestOutput::of(
            project.ringfence().args(["log", "--ocsf", "--operation", "connect"]),
            b"",
        )
        .ok();
        let event: Value = serde_json::from_str(
            events.lines().find(|line| line.contains("\"traffic\"")).expect("one is counted"),
        )
        .unwrap();
        assert_eq!(
            (&event["dst_endpoint"]["hostname"], &event["traffic"]["bytes_in"]),
            (&"app.test".into(), &checked["received"])
        );
    });
}

/// What the proxy inside does not listen to is told of.
#[test]
fn a_request_that_could_mean_two_hosts_is_told_of() {
    on_a_lan(&["curl"], |project, lan| {
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nproxy-variables = true\n",
        );
        let line =
            "curl -4sS -o /dev/null -w '%{http_code}' -H 'Host: other.test' http://app.test/hello";
        assert_eq!(lan.run(&["--allow-host", "app.test", "-c", line]).ok(), "400");
        let told = connections(project);
        let is_told = |one: &Value| {
            one["result"] == "blocked"
                && one["policy"].as_str().is_some_and(|why| why.contains("does not listen"))
        };
        assert!(told.iter().any(is_told), "{told:?}");
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
///
/// Promise: P70
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
        let of = |port: &str| {
            told.iter()
                .filter(|one| one["target"] == format!("127.0.0.1:{port}"))
                .collect::<Vec<_>>()
        };
        let [carried] = of(answers)[..] else { panic!("{told:?}") };
        assert_eq!(
            (&carried["sent"], &carried["received"]),
            (&1000.into(), &5.into()),
            "{carried}"
        );
        let [unfinished] = of(silent)[..] else { panic!("{told:?}") };
        assert_eq!(
            (&unfinished["result"], &unfinished["reason"]),
            (&"failed".into(), &"the sandbox has ended".into()),
            "{unfinished}"
        );
    });
}

/// What `run --json` says of a line of shell.
#[track_caller]
fn outcome(lan: &TestNetwork<'_>, words: &[&str]) -> Value {
    serde_json::from_str(&lan.run(&[&["--json"], words].concat()).ok()).expect("one object")
}

/// Promise: P70
#[test]
fn connections_are_in_the_result_and_told_of_once() {
    on_a_lan(&["curl"], |project, lan| {
        let line = "curl -4sS http://app.test/hello; curl -4sS http://app.test:8080/hello; curl -4sS http://other.test/; true";
        for observe in ["denials", "all"] {
            let before = connections(project).len();
            let said =
                outcome(lan, &["--observe", observe, "--allow-host", "app.test", "-c", line]);
            let told = said["connections"].as_array().expect("a list");
            let targets: Vec<_> =
                told.iter().map(|one| one["target"].as_str().unwrap_or_default()).collect();
            assert_eq!(targets, ["app.test:80", "app.test:8080"], "{said}");
            assert!(
                told[0]["sent"].as_u64().is_some_and(|sent| sent > 50) && told[1]["sent"].is_null(),
                "{said}"
            );
            assert!(told.iter().all(|one| one["count"] == 1
                && one["program"].as_str().is_some_and(|program| program.ends_with("/curl"))));
            let allowed = said["allowed"].as_array().into_iter().flatten();
            assert_eq!(allowed.filter(|one| one["operation"] == "connect").count(), 0, "{said}");
            // The two, and the name that was refused.
            assert_eq!(connections(project).len() - before, 3, "{observe}");
        }
    });
}

/// Promise: P70
#[test]
fn who_looked_up_a_name_is_told() {
    on_a_lan(&["curl"], |_, lan| {
        let said =
            outcome(lan, &["--allow-host", "app.test", "-c", "curl -sS http://other.test/; true"]);
        let [refused] = &said["denials"].as_array().expect("a list")[..] else { panic!("{said}") };
        assert_eq!(refused["target"], "other.test");
        assert!(
            refused["program"].as_str().is_some_and(|program| program.ends_with("/curl")),
            "{refused}"
        );
        assert!(refused["pid"].as_u64().is_some_and(|pid| pid > 1), "{refused}");
    });
}

/// What is told where the network is shut, whatever is observed.
///
/// Promise: P70
#[test]
fn whom_a_program_means_is_told_where_the_network_is_shut() {
    const CODE: &str = "import socket
def tried(act):
    try: act()
    except OSError as error: return type(error).__name__
tried(lambda: socket.create_connection(('11.22.33.1', 80)))
tried(lambda: socket.create_connection(('::ffff:11.22.33.2', 81)))
tried(lambda: socket.create_connection(('2600:1234:5678::1', 82)))
tried(lambda: socket.create_connection(('other.test', 83)))
tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('11.22.33.3', 84)))
tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('11.22.33.4', 85)))
server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname()).sendall(b'x')
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); names.bind(('127.0.0.1', 0))
names.sendto(b'x', names.getsockname()); print(names.recv(9))
";
    let Some(python) = python() else { return };
    on_a_lan(&[], |project, lan| {
        project.write("try.py", CODE);
        for observe in ["denials", "all"] {
            let said =
                outcome(lan, &["--observe", observe, "--net", "none", "--", python, "try.py"]);
            let told = said["denials"]
                .as_array()
                .expect("a list")
                .iter()
                .filter(|one| one["operation"] == "connect");
            let mut told: Vec<_> = told
                .map(|one| {
                    (one["target"].as_str().unwrap_or_default(), &one["rule"], &one["count"])
                })
                .collect();
            // A name is told by the thread that answers lookups, beside the others.
            told.sort_unstable_by_key(|one| one.0);
            let expected = [
                "11.22.33.1:80",
                "11.22.33.2:81",
                "11.22.33.3:84/udp",
                "11.22.33.4:85/udp",
                "[2600:1234:5678::1]:82",
                "other.test",
            ];
            assert_eq!(
                told.iter().map(|one| one.0).collect::<Vec<_>>(),
                expected,
                "{observe}: {said}"
            );
            assert!(told.iter().all(|one| one.1 == "network.mode = none"), "{said}");
            assert_eq!(said["stdout"], "b'x'\n");
        }
        // Where some can be reached, datagrams are told of in both ways as well.
        for observe in ["denials", "all"] {
            let said = outcome(
                lan,
                &["--observe", observe, "--allow-host", "app.test", "--", python, "try.py"],
            );
            let told: Vec<_> = said["denials"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|one| &one["target"])
                .collect();
            assert!(told.iter().any(|one| **one == "11.22.33.3:84/udp"), "{observe}: {told:?}");
        }
    });
}
