//! Whoever is not listed is not reached, and is reported by name.

use std::time::Duration;

use ringfence_testkit::{TestNetwork, TestOutput, python, soon};
use serde_json::Value;

use super::{inside, on_a_lan};

/// A line that says something to a server bare, and nothing inside with these flags; whom it
/// meant is reported as `target`, for a reason that has these words in it.
#[track_caller]
fn refused(lan: &TestNetwork<'_>, flags: &[&str], line: &str, (target, reason): (&str, &str)) {
    let before = lan.heard();
    lan.bare(line).ok();
    let bare = lan.heard();
    assert!(bare.len() > before.len(), "`{line}` bare is not heard: the probe cannot succeed");
    let ran = lan.run(&[&["--json"], flags, &["-c", line]].concat());
    assert_eq!(lan.heard(), bare, "`{line}` came through");
    let said: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.talk()));
    let denials = said["denials"].as_array().unwrap_or_else(|| panic!("{said}"));
    let is_told = |denial: &Value| {
        denial["operation"] == "connect"
            && denial["target"] == target
            && denial["rule"].as_str().is_some_and(|rule| rule.contains(reason))
    };
    assert!(
        denials.iter().any(is_told),
        "`{line}`: {target} because of `{reason}` is not in {denials:#?}"
    );
}

const UNLISTED: &str = "no entry of `allow` speaks of it";

/// Promise: P67
#[test]
fn a_name_that_is_not_listed() {
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
        // What is below a name does not speak of the name.
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

/// Promise: P67
#[test]
fn a_name_that_is_not_listed_does_not_leave_the_machine() {
    on_a_lan(&["getent"], |_, lan| {
        let line = "getent hosts the-secret.evil.test || true";
        refused(lan, &["--allow-host", "app.test"], line, ("the-secret.evil.test", UNLISTED));
        assert!(lan.heard().contains("the-secret.evil.test"), "{}", lan.heard());
    });
}

/// Promise: P67
#[test]
fn another_port() {
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

/// Promise: P67
#[test]
fn an_address_that_is_not_listed() {
    on_a_lan(&["curl"], |_, lan| {
        let app = ["--allow-host", "app.test", "--allow-host", "11.22.33.8/30"];
        // A neighbour, the very address of a host that is listed by its name, and beside a range.
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

/// Promise: P67
#[test]
fn the_hosts_loopback_in_every_spelling() {
    on_a_lan(&["curl", "nc"], |_, lan| {
        let app = ["--allow-host", "app.test"];
        for spelling in
            ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "017700000001", "[::ffff:127.0.0.1]"]
        {
            let line = format!("curl -sS 'http://{spelling}:8080/hello'");
            refused(lan, &app, &line, ("127.0.0.1:8080", "a loopback of its own"));
        }
        refused(
            lan,
            &app,
            "curl -sS 'http://[::1]:8080/hello'",
            ("[::1]:8080", "a loopback of its own"),
        );
        refused(
            lan,
            &app,
            "curl -sS http://0.0.0.0:8080/hello",
            ("0.0.0.0:8080", "a loopback of its own"),
        );
        refused(
            lan,
            &app,
            "echo x | nc -N localhost 7 || true",
            ("127.0.0.1:7", "a loopback of its own"),
        );
        // Where nobody is on either side, nobody is kept away.
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

/// Promise: P67
#[test]
fn a_listed_name_that_stands_for_a_guarded_address() {
    on_a_lan(&["curl", "nc"], |_, lan| {
        for (name, reason) in [
            ("inner.test", "it stands for 10.9.8.7 (private), which has to be allowed itself"),
            (
                "metadata.test",
                "it stands for 169.254.169.254 (the metadata service of a cloud), which has to be allowed itself",
            ),
            ("local.test", "it stands for 127.0.0.1 (loopback), which has to be allowed itself"),
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
fn guarded_address_of_a_listed_name_stands_in_the_last_line_with_a_command_that_opens_it() {
    on_a_lan(&["curl"], |project, lan| {
        let ran = lan.run(&[
            "--allow-host",
            "inner.test",
            "-c",
            "curl -sSf http://inner.test:8080/hello",
        ]);
        let line = "ringfence: 1 host was denied (inner.test: it leads to 10.9.8.7, which is not allowed); see: ringfence explain --last";
        assert!(ran.status != 0 && ran.talk().contains(line), "{}", ran.talk());
        let explained = TestOutput::of(project.ringfence().args(["explain", "--last"]), b"").text();
        assert!(explained.contains("ringfence allow host 10.9.8.7:8080"), "{explained}");
    });
}

/// Promise: P67
#[test]
fn a_listed_name_that_leads_elsewhere_the_second_time() {
    on_a_lan(&["curl"], |project, lan| {
        let ask = "curl -sS http://app.test:8080/hello";
        let line = format!("{ask}; touch asked; while test -e asked; do sleep 0.02; done; {ask}");
        let ran = std::thread::scope(|scope| {
            let run = scope.spawn(|| lan.run(&["--json", "--allow-host", "app.test", "-c", &line]));
            assert!(soon(Duration::from_secs(20), || project.has("asked")), "{}", lan.heard());
            // In its place: what is mounted is this very file.
            std::fs::write(lan.at("hosts"), "10.9.8.7 app.test\n").expect("the file is ours");
            std::fs::remove_file(project.at("asked")).expect("it is there");
            run.join().expect("a run does not panic")
        });
        let said: Value =
            serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.talk()));
        assert_eq!(said["stdout"], "hello from http://app.test:8080\n");
        let denial = &said["denials"][0];
        assert_eq!(denial["target"], "app.test:8080", "{said}");
        assert_eq!(
            denial["rule"],
            "it stands for 10.9.8.7 (private), which has to be allowed itself"
        );
        assert_eq!(lan.heard().lines().count(), 1, "{}", lan.heard());
        lan.bare(ask).ok();
        assert_eq!(lan.heard().lines().count(), 2, "{}", lan.heard());
    });
}

/// Promise: P67
#[test]
fn talk_that_is_meant_for_another_name() {
    on_a_lan(&["curl", "openssl", "nc"], |project, lan| {
        let app = ["--allow-host", "app.test"];
        let meant = "it is meant for other.test";
        refused(
            lan,
            &app,
            "curl -sS -H 'Host: other.test' http://app.test/hello",
            ("app.test:80", meant),
        );
        let tls = "curl -sS --cacert ca.crt --connect-to other.test:443:app.test:443 https://other.test/hello";
        refused(lan, &app, tls, ("app.test:443", meant));
        // Nobody is named, in what is no HTTP and in TLS.
        let nameless = "printf 'GET /hello HTTP/1.1\\r\\nHost: app.test\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client -quiet -noservername -connect app.test:443";
        refused(
            lan,
            &app,
            &format!("{{ {nameless}; sleep 0.2; }} 2>/dev/null"),
            ("app.test:443", ""),
        );
        // The second request of a connection is looked at like the first.
        let before = lan.heard();
        let two = "printf 'GET /hello HTTP/1.1\\r\\nHost: app.test\\r\\n\\r\\nGET /second HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n' | nc -N app.test 80 || true";
        lan.run(&["--allow-host", "app.test", "-c", two]).ok();
        assert!(!lan.heard()[before.len()..].contains("/second"), "{}", lan.heard());
        lan.bare(two).ok();
        assert!(lan.heard().contains("other.test /second"), "{}", lan.heard());
        // Whoever wants none of this says so.
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nsni = \"off\"\n",
        );
        assert_eq!(inside(lan, tls), "hello from https://other.test");
    });
}

/// Promise: P67
#[test]
fn datagrams() {
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

/// Promise: P67
#[test]
fn everybody_where_the_list_is_empty() {
    on_a_lan(&["curl"], |project, lan| {
        let file = project.home().join(".config/ringfence/policy.toml");
        let line = "curl -sS http://11.22.33.1:8080/hello";
        project.write_at(&file, "version = 1\n[network]\nmode = \"allow-list\"\nallow = []\n");
        // One that is chosen is not meant, and nothing runs.
        let ran = lan.run(&["-c", "touch ran"]);
        assert_eq!((ran.status, project.has("ran")), (125, false), "{}", ran.talk());
        assert!(
            ran.talk()
                .contains("policy.toml:3: `mode = allow-list` needs at least one host in `allow`"),
            "{}",
            ran.talk()
        );
        lan.run(&["--net", "allow-list", "-c", "true"]).ends(125);
        // Something else is on it: of hosts, nobody is.
        let port = ["--allow-localhost", "1"];
        refused(lan, &port, "curl -sS http://app.test:8080/hello", ("app.test", UNLISTED));
        refused(lan, &port, line, ("11.22.33.1:8080", UNLISTED));
        // One that is not chosen opens nothing.
        project.write_at(&file, "version = 1\n[network]\nallow = []\n");
        let before = lan.heard();
        lan.run(&["-c", &format!("! {line}")]).ok();
        assert_eq!(lan.heard(), before);
    });
}

/// Promise: P71
#[test]
fn another_way_for_a_connection() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        // A header that leads every packet to another host first, and the like.
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

/// One process connects to a host that is listed and hands the connection on to another, which
/// makes it anew and connects it to somebody else. Its own are `app.test` and `other.test`.
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

/// Promise: P71
#[test]
fn a_connection_that_somebody_else_has_made() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write("pass.py", HANDED_ON);
        refused(
            lan,
            &["--allow-host", "app.test"],
            &format!("{python} pass.py"),
            ("other.test", UNLISTED),
        );
        // Its address is known, and nobody is asked for a name: it stays connected to whom it was.
        project.write(
            "pass.py",
            HANDED_ON.replace("'other.test'", "'11.22.33.2'").replace("'app.test'", "'11.22.33.1'"),
        );
        let before = lan.heard();
        let ran = lan.run(&["--allow-host", "11.22.33.1:7", "-c", &format!("{python} pass.py")]);
        assert!(
            ran.status == 1 && ran.text().contains("already connected") && lan.heard() == before,
            "{}",
            ran.talk()
        );
    });
}
