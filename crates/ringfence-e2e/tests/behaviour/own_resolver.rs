//! Programs with their own DNS client, such as Go and c-ares, without a network.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

/// Asks for a name over a connected datagram socket; prints the response code, or the error.
const LOOKUP: &str = r"
import socket, struct, sys
def lookup(name, server):
    family = socket.AF_INET6 if ':' in server else socket.AF_INET
    asks = socket.socket(family, socket.SOCK_DGRAM)
    asks.settimeout(20)
    labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.'))
    try:
        asks.connect((server, 53))
        for kind in (1, 28):
            query = struct.pack('>6H', 7 + kind, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>2H', kind, 1)
            asks.send(query)
            reply = asks.recv(512)
            assert reply[:2] == query[:2], reply
            print(reply[3] & 15)
    except OSError as error:
        print(error)
lookup(sys.argv[1], sys.argv[2])
";

fn lookup(project: &TestProject, name: &str, server: &str) -> (String, Vec<Value>) {
    project.write("lookup.py", LOOKUP);
    let ran = TestOutput::run(
        project.ringfence().args(["run", "--json", "--", "python3", "lookup.py", name, server]),
        b"",
    );
    let said: Value = serde_json::from_str(&ran.ok()).expect("JSON");
    let denials = said["denials"].as_array().cloned().unwrap_or_default();
    (said["stdout"].as_str().unwrap_or_default().to_owned(), denials)
}

#[test]
fn dns_lookup_by_a_program_is_reported_without_a_network() {
    each_user(|user| {
        let project = project(user);
        for server in ["127.0.0.1", "127.0.0.53", "::1"] {
            let (said, denials) = lookup(&project, "proxy.example.org", server);
            // NXDOMAIN for both kinds of address.
            assert_eq!(said, "3\n3\n", "{server}: {denials:?}");
            let report: Vec<_> =
                denials.iter().filter(|denial| denial["operation"] == "connect").collect();
            assert_eq!(report.len(), 1, "{server}: {denials:?}");
            assert_eq!(
                (&report[0]["target"], &report[0]["rule"]),
                (&"proxy.example.org".into(), &"network.mode = none".into())
            );
            assert!(
                report[0]["program"].as_str().is_some_and(|program| program.contains("python")),
                "{report:?}"
            );
        }
    });
}
