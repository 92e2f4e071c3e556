//! Every connection is audited, allowed or denied.

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, each_user, python};
use serde_json::Value;

use super::on_a_lan;
use super::served::HttpOrigin;
use crate::project;

/// The audit records of connections.
#[track_caller]
pub(super) fn connections(project: &TestProject) -> Vec<Value> {
    let log =
        TestOutput::run(project.ringfence().args(["log", "--json", "--operation", "connect"]), b"")
            .ok();
    log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

/// Promise: connections-recorded
#[test]
fn connection_is_audited_with_host_and_byte_counts() {
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
        let report = connections(project);
        let of =
            |target: &str| report.iter().filter(|one| one["target"] == target).collect::<Vec<_>>();
        let [checked] = of("app.test:80")[..] else { panic!("{report:?}") };
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
        let [plain] = of("app.test:8080")[..] else { panic!("{report:?}") };
        assert_eq!(
            (&plain["count"], plain.get("sent"), leads(plain, "8080")),
            (&2.into(), None, true),
            "{plain}"
        );
        let [down] = of("app.test:9")[..] else { panic!("{report:?}") };
        assert!(
            down["result"] == "failed"
                && down["reason"].as_str().is_some_and(|why| why.contains("refused")),
            "{down}"
        );
        let [refused] = of("other.test")[..] else { panic!("{report:?}") };
        assert_eq!(refused["result"], "blocked");
        let events = TestOutput::run(
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

/// Promise: connections-recorded
#[test]
fn failed_connection_to_an_allowed_host_is_explained_and_not_blocked() {
    on_a_lan(&["curl"], |project, lan| {
        let explained = |flag: &[&str]| {
            TestOutput::run(project.ringfence().args(["explain", "--last"]).args(flag), b"").ok()
        };
        for (place, why) in [
            ("app.test:9", "Connection refused (os error 111)"),
            ("nowhere.test:8080", "the name has no address"),
        ] {
            let words = ["--allow-host", "app.test", "--allow-host", "nowhere.test"];
            let url = format!("http://{place}/");
            let ran = lan.run(&[&["--json"], &words[..], &["--", "curl", "-4sS", &url]].concat());
            let said: Value = serde_json::from_slice(&ran.stdout).expect("one object");
            assert_eq!(
                (&said["blocked"], &said["denials"]),
                (&false.into(), &Value::Array(vec![]))
            );
            let text = explained(&[]);
            assert!(
                text.contains(&format!("connect {place}: failed"))
                    && text.contains("the host is allowed, and the connection failed: ")
                    && text.contains(why)
                    && text.contains("no denials, but 1 allowed connection failed"),
                "{text}"
            );
            let json: Value = serde_json::from_str(&explained(&["--json"])).expect("JSON");
            let [failed] = &json["failedConnections"].as_array().expect("a list")[..] else {
                panic!("{json}")
            };
            assert_eq!(failed["target"], *place);
        }
    });
}

/// A request that the proxy inside refuses is reported.
#[test]
fn ambiguous_proxy_request_is_reported() {
    on_a_lan(&["curl"], |project, lan| {
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nproxy-variables = true\n",
        );
        let line =
            "curl -4sS -o /dev/null -w '%{http_code}' -H 'Host: other.test' http://app.test/hello";
        assert_eq!(lan.run(&["--allow-host", "app.test", "-c", line]).ok(), "400");
        let report = connections(project);
        let is_reported = |one: &Value| {
            one["result"] == "blocked"
                && one["policy"].as_str().is_some_and(|why| why.contains("rejects the request"))
        };
        assert!(report.iter().any(is_reported), "{report:?}");
    });
}

/// Sends to one host, starts to connect to the other, and ends. A socket that is already polled is
/// relayed by ringfence.
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

/// Connections that are open when a sandbox ends are audited with their byte counts.
///
/// Promise: connections-recorded
#[test]
fn open_connections_are_audited_when_the_sandbox_ends() {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("begun.py", BEGUN);
        let served = HttpOrigin::start(python);
        served.run(&project, python, "begun.py").ok();
        let (answers, silent) = served.ports();
        let report = connections(&project);
        let of = |port: &str| {
            report
                .iter()
                .filter(|one| one["target"] == format!("127.0.0.1:{port}"))
                .collect::<Vec<_>>()
        };
        let [carried] = of(answers)[..] else { panic!("{report:?}") };
        assert_eq!(
            (&carried["sent"], &carried["received"]),
            (&1000.into(), &5.into()),
            "{carried}"
        );
        let [unfinished] = of(silent)[..] else { panic!("{report:?}") };
        assert_eq!(
            (&unfinished["result"], &unfinished["reason"]),
            (&"failed".into(), &"the sandbox has ended".into()),
            "{unfinished}"
        );
    });
}

/// The `run --json` result of a shell line.
#[track_caller]
fn outcome(lan: &TestNetwork<'_>, words: &[&str]) -> Value {
    serde_json::from_str(&lan.run(&[&["--json"], words].concat()).ok()).expect("one object")
}

/// Promise: connections-recorded
#[test]
fn connections_are_in_the_result_once() {
    on_a_lan(&["curl"], |project, lan| {
        let line = "curl -4sS http://app.test/hello; curl -4sS http://app.test:8080/hello; curl -4sS http://other.test/; true";
        for observe in ["denials", "all"] {
            let before = connections(project).len();
            let said =
                outcome(lan, &["--observe", observe, "--allow-host", "app.test", "-c", line]);
            let report = said["connections"].as_array().expect("a list");
            let targets: Vec<_> =
                report.iter().map(|one| one["target"].as_str().unwrap_or_default()).collect();
            assert_eq!(targets, ["app.test:80", "app.test:8080"], "{said}");
            assert!(
                report[0]["sent"].as_u64().is_some_and(|sent| sent > 50)
                    && report[1]["sent"].is_null(),
                "{said}"
            );
            assert!(report.iter().all(|one| one["count"] == 1
                && one["program"].as_str().is_some_and(|program| program.ends_with("/curl"))));
            let allowed = said["allowed"].as_array().into_iter().flatten();
            assert_eq!(allowed.filter(|one| one["operation"] == "connect").count(), 0, "{said}");
            // The two connections, and the denied name.
            assert_eq!(connections(project).len() - before, 3, "{observe}");
        }
    });
}

/// Promise: connections-recorded
#[test]
fn name_lookup_is_reported_with_its_program() {
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

/// Reports without a network, for every `observe` setting.
///
/// Promise: connections-recorded
#[test]
fn contacted_hosts_are_reported_without_a_network() {
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
            let report = said["denials"]
                .as_array()
                .expect("a list")
                .iter()
                .filter(|one| one["operation"] == "connect");
            let mut report: Vec<_> = report
                .map(|one| {
                    (one["target"].as_str().unwrap_or_default(), &one["rule"], &one["count"])
                })
                .collect();
            // The DNS responder's thread reports names, in no fixed order with the others.
            report.sort_unstable_by_key(|one| one.0);
            let expected = [
                "11.22.33.1:80",
                "11.22.33.2:81",
                "11.22.33.3:84/udp",
                "11.22.33.4:85/udp",
                "[2600:1234:5678::1]:82",
                "other.test",
            ];
            assert_eq!(
                report.iter().map(|one| one.0).collect::<Vec<_>>(),
                expected,
                "{observe}: {said}"
            );
            assert!(report.iter().all(|one| one.1 == "network.mode = none"), "{said}");
            assert_eq!(said["stdout"], "b'x'\n");
        }
        // With some hosts allowed, datagrams are reported in both ways as well.
        for observe in ["denials", "all"] {
            let said = outcome(
                lan,
                &["--observe", observe, "--allow-host", "app.test", "--", python, "try.py"],
            );
            let report: Vec<_> = said["denials"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|one| &one["target"])
                .collect();
            assert!(report.iter().any(|one| **one == "11.22.33.3:84/udp"), "{observe}: {report:?}");
        }
    });
}
