//! Sandboxes are forked from a zygote, and some reuse the network namespace of an earlier one.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use ringfence_testkit::{becomes_true, each_user, processes_with};
use serde_json::json;

use crate::stage::{SKILL, Service};

const AT: &str = "/v1/skills/alice/helper/tool/execute";

/// Prints the network namespace and all kernel counters of it.
const LOOK: &str = "
import os, re
print(os.readlink('/proc/self/ns/net'))
for name in ['dev', 'snmp', 'snmp6', 'netstat', 'sockstat', 'sockstat6', 'tcp', 'tcp6', 'udp', 'udp6', 'igmp', 'mcfilter', 'ip6_flowlabel', 'unix']:
    try: text = open('/proc/self/net/' + name).read()
    except OSError: continue
    # Counted for the whole machine.
    if name == 'sockstat': text = re.sub(r'(alloc|mem|orphan) \\d+', '', text)
    print(name, text if name != 'unix' else len(text.splitlines()))
";

/// Each leaves a trace in its network namespace that the kernel counts.
const COUNTED: &[&str] = &[
    // A packet.
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', 9))",
    // A connection in TIME_WAIT, which keeps its port in use.
    "import socket
l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.close(); c.close()",
    // An IPv6 flow label that stays for a while and shows a chosen address.
    "import socket, struct
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(41, 32, socket.inet_pton(socket.AF_INET6, '::1') + struct.pack('!I', 0x12345) + struct.pack('=BBHHHI', 0, 255, 1, 120, 120, 0))",
];

/// Each leaves a trace that is not counted, or only later.
const UNCOUNTED: &[&str] = &[
    // A multicast group, and its membership report, which is sent later.
    "import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('224.9.9.9') + socket.inet_aton('127.0.0.1'))",
    // A namespace that a process left behind still uses.
    "import os, socket, time
l = socket.create_server(('127.0.0.1', 4711))
if os.fork() == 0: time.sleep(60)",
];

/// Promise: prepared-namespaces
#[test]
fn network_namespace_is_reused_only_clean_and_within_a_tenant() {
    each_user(|user| {
        let service = Service::start_open(user);
        let touches = || COUNTED.iter().chain(UNCOUNTED).copied();
        let names: Vec<String> =
            touches().enumerate().map(|(number, _)| format!("tool/touch{number}.py")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(touches()).collect();
        let files =
            [&[("tool/SKILL.md", SKILL), ("tool/look.py", LOOK)], files.as_slice()].concat();
        for tenant in ["alice", "bob"] {
            service.upload(tenant, "helper", &files).is(200);
        }
        let run = |tenant: &str, script: &str| {
            let way = format!("/v1/skills/{tenant}/helper/tool/execute");
            let result =
                service.post(&way, &json!({ "command": format!("python3 {script}") })).is(200);
            assert_eq!(result["exitCode"], 0, "{script}: {result}");
            let said = result["stdout"].as_str().unwrap().to_owned();
            let (network, counted) = said.split_once('\n').unwrap_or_default();
            (network.to_owned(), counted.to_owned())
        };
        let (_, new) = run("bob", "look.py");
        assert!(new.contains("lo:") && new.contains("Udp:") && new.contains("Label"), "{new}");
        // Commands without network use get a reused namespace: otherwise nothing is tested here.
        let seen: Vec<_> = (0..8).map(|_| run("alice", "look.py").0).collect();
        assert!(seen.iter().collect::<HashSet<_>>().len() < seen.len(), "{seen:?}");
        for number in 0..touches().count() {
            for _ in 0..3 {
                run("alice", &format!("touch{number}.py"));
                if number < COUNTED.len() {
                    assert_eq!(run("alice", "look.py").1, new, "after touch{number}.py");
                }
                assert_eq!(run("bob", "look.py").1, new, "another's, after touch{number}.py");
            }
        }
        // No tenant ever gets the network namespace of another, used or not.
        let of = |tenant: &str| (0..6).map(|_| run(tenant, "look.py").0).collect::<HashSet<_>>();
        let (alice, bob) = (of("alice"), of("bob"));
        assert!(alice.is_disjoint(&bob), "{alice:?} {bob:?}");
    });
}

/// Pids of this service's zygotes.
fn zygotes(service: &Service) -> Vec<i32> {
    let children = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    let is_one = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent == Some(service.pid()) && String::from_utf8_lossy(&line).contains("--zygote")
    };
    children.filter(is_one).collect()
}

/// Promise: prepared-namespaces
#[test]
fn killed_zygote_ends_its_sandboxes_and_is_replaced() {
    each_user(|user| {
        let service = Service::start(user);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        let marker = format!("9{:05}.75", service.pid() % 100_000);
        let ids: Vec<String> = (0..4)
            .map(|_| {
                let line =
                    json!({ "command": format!("python3 -c 'import time; time.sleep({marker})'") });
                service.post(&format!("{AT}?async=true"), &line).is(202)["id"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert!(
            becomes_true(Duration::from_secs(20), || processes_with(&marker).len() >= ids.len()),
            "they run"
        );
        let found = zygotes(&service);
        assert!(!found.is_empty(), "no zygote was found");
        for zygote in found {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(zygote).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
        }
        assert!(
            becomes_true(Duration::from_secs(5), || processes_with(&marker).is_empty()),
            "they ended with it"
        );
        for id in ids {
            let state = || service.get(&format!("/v1/executions/{id}")).is(200)["state"].clone();
            assert!(becomes_true(Duration::from_secs(10), || state() != "running"), "{}", state());
        }
        for _ in 0..4 {
            assert_eq!(
                service.post(AT, &json!({ "command": "echo again" })).is(200)["stdout"],
                "again\n"
            );
        }
        assert!(!zygotes(&service).is_empty(), "no zygote replaced the killed one");
    });
}
