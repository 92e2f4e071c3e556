//! Ports of the host reachable from inside, and published ports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestOutput, TestProject, becomes_true, each_user};
use serde_json::Value;

use crate::project;

/// Starts a server that sends `word` to every client; returns its port.
fn server(word: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(word.as_bytes());
        }
    });
    port
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn hear(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3")
}

/// Promise: host-network
#[test]
fn host_is_reached_at_allowed_localhost_ports() {
    each_user(|user| {
        let project = project(user);
        let (listed, other) = (server("listed"), server("other"));
        project.run(["bash", "-c", &hear(listed)]).expect_status(1);
        let flag = format!("--allow-localhost={listed}");
        let run = |port: u16| {
            TestOutput::run(
                project.ringfence().args(["run", &flag, "--", "bash", "-c", &hear(port)]),
                b"",
            )
        };
        assert_eq!(run(listed).ok(), "listed");
        run(other).expect_status(1);
    });
}

/// The flags under which the host's loopback stays closed.
const CLOSED: [&[&str]; 2] = [&[], &["--allow-host", "app.test"]];

/// The outcome of a line that is run with these flags.
fn outcome(project: &TestProject, flags: &[&str], line: &str) -> Value {
    let ran = project.run([&["--json"], flags, &["--", "bash", "-c", line]].concat());
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr_text()))
}

fn denied_targets(said: &Value) -> Vec<&str> {
    let denials = said["denials"].as_array().unwrap();
    denials.iter().map(|denial| denial["target"].as_str().unwrap()).collect()
}

#[test]
fn refused_connection_to_a_server_of_the_host_is_a_denial() {
    each_user(|user| {
        let project = project(user);
        let port = server("host");
        let target = format!("localhost:{port}");
        project.sh_bare(&format!("bash -c '{}'", hear(port))).ok();
        for flags in CLOSED {
            for host in ["127.0.0.1", "localhost"] {
                let line = format!("exec 3<>/dev/tcp/{host}/{port}");
                let said = outcome(&project, flags, &line);
                assert_eq!(denied_targets(&said), [target.as_str()], "{user}: {flags:?} {said}");
                assert_eq!((&said["exitCode"], &said["blocked"]), (&1.into(), &true.into()));
            }
            let ran = project.run([flags, &["--", "bash", "-c", &hear(port)]].concat());
            let line =
                format!("ringfence: 1 host was denied ({target}); see: ringfence explain --last");
            assert!(ran.stderr_text().contains(&line), "{user}: {}", ran.stderr_text());
            let explained =
                TestOutput::run(project.ringfence().args(["explain", "--last"]).args(flags), b"");
            let change = format!(
                "ringfence run --allow-localhost {port}, or for good: ringfence allow localhost {port}"
            );
            let text = explained.expect_status(1).text();
            assert!(
                text.contains(&format!("connect {target}")) && text.contains(&change),
                "{text}"
            );
        }
    });
}

/// Promise: host-network
#[test]
fn allowed_port_of_this_machine_is_reached_and_others_are_not() {
    each_user(|user| {
        let project = project(user);
        let (first, second, other) = (server("first"), server("second"), server("other"));
        let global = project.home().join(".config/ringfence/policy.toml");
        project.write_at(&global, format!("version = 1\n[network]\nlocalhost = [{first}]\n"));
        let allow = |word: &str| {
            TestOutput::run(project.ringfence().args(["allow", "localhost", word]), b"")
        };
        project.run(["bash", "-c", &hear(second)]).expect_status(1);
        allow(&second.to_string()).ok();
        // The project's list replaces the user's, and repeats its port.
        for (port, word) in [(first, "first"), (second, "second")] {
            assert_eq!(project.run(["bash", "-c", &hear(port)]).ok(), word, "{user}");
        }
        project.run(["bash", "-c", &hear(other)]).expect_status(1);
        let again = allow(&format!("localhost:{second}"));
        assert!(again.ok().starts_with("already allowed: "), "{}", again.text());
        for word in ["0", "65536", "http"] {
            assert!(allow(word).expect_status(125).stderr_text().contains("is not a port"));
        }
        project.write_at(&global, "version = 1\n[network]\ndeny = [\"localhost\"]\n");
        let shut = allow(&other.to_string());
        assert!(shut.expect_status(125).stderr_text().contains("would stay denied"), "{user}");
    });
}

/// A program that fails to connect to a server of its own, which does not run, or has connected.
#[test]
fn refused_connection_that_is_the_programs_own_fault_is_no_denial() {
    each_user(|user| {
        let project = project(user);
        let (closed, port) = (free_port(), server("host"));
        // The sandbox has a server of its own at the port of the host's.
        project.write(
            "own.py",
            format!("import socket\ns = socket.create_server(('127.0.0.1', {port}))\nfor host in ('::1', '127.0.0.1'):\n    try: socket.create_connection((host, {port}))\n    except OSError: print('refused')\nexit(3)\n"),
        );
        for (flags, line) in [
            (CLOSED[0], hear(closed)),
            (CLOSED[1], hear(closed)),
            (CLOSED[0], "python3 own.py".into()),
        ] {
            let said = outcome(&project, flags, &line);
            assert_ne!(said["exitCode"], 0, "{user}: `{line}` {said}");
            assert_eq!(said["blocked"], false, "{user}: `{line}` {said}");
            assert_eq!(denied_targets(&said), [""; 0], "{user}: `{line}` {said}");
        }
    });
}

/// Promise: host-network
#[test]
fn server_inside_is_reached_at_published_ports() {
    each_user(|user| {
        let project = project(user);
        let (listed, other) = (free_port(), free_port());
        project.write(
            "serve.py",
            "import socket, sys, threading\n\
             def serve(port):\n    s = socket.create_server(('127.0.0.1', port))\n    open('up%d' % port, 'w')\n    while True: s.accept()[0].sendall(b'inside')\n\
             [threading.Thread(target=serve, args=(int(port),)).start() for port in sys.argv[1:]]\n",
        );
        let mut running = project.ringfence();
        running.args([
            "run",
            &format!("--bind={listed}"),
            "--",
            "python3",
            "serve.py",
            &listed.to_string(),
            &other.to_string(),
        ]);
        let mut running = running.stdout(Stdio::null()).spawn().unwrap();
        let is_up = |port: u16| project.has(format!("up{port}"));
        assert!(becomes_true(Duration::from_secs(10), || is_up(listed) && is_up(other)));
        let mut word = String::new();
        TcpStream::connect(("127.0.0.1", listed))
            .unwrap()
            .take(6)
            .read_to_string(&mut word)
            .unwrap();
        assert_eq!(word, "inside");
        assert!(TcpStream::connect(("127.0.0.1", other)).is_err());
        running.kill().unwrap();
        running.wait().unwrap();
        assert!(
            becomes_true(Duration::from_secs(2), || TcpListener::bind(("127.0.0.1", listed))
                .is_ok()),
            "the port is still open"
        );
    });
}

/// Promise: host-network
#[test]
fn published_port_in_use_is_reported_and_nothing_runs() {
    each_user(|user| {
        let project = project(user);
        let taken = server("taken");
        // Many at once: a check only at the start of the command would miss some.
        let try_one = |which: usize| {
            let words = ["run", &format!("--bind={taken}"), "--", "touch", &format!("ran{which}")];
            TestOutput::run(project.ringfence().args(words), b"")
        };
        let tried: Vec<TestOutput> = thread::scope(|scope| {
            let tries: Vec<_> = (0..8).map(|which| scope.spawn(move || try_one(which))).collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for (which, ran) in tried.iter().enumerate() {
            ran.expect_status(125);
            assert!(ran.stderr_text().contains(&format!("port {taken}")), "{}", ran.stderr_text());
            assert!(!project.has(format!("ran{which}")), "it ran all the same");
        }
    });
}

/// A listener that never accepts, and connections that fill its queue: the next `connect` waits.
fn crowded() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = (0..8)
        .map_while(|_| TcpStream::connect_timeout(&at, Duration::from_millis(200)).ok())
        .collect();
    (listener, waiting)
}

/// Sets an alarm for one second, and connects.
const CALLED: &str = "
import signal, socket, sys, time
def handle(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handle)
signal.alarm(1)
began = time.monotonic()
try: socket.create_connection(('127.0.0.1', int(sys.argv[1])))
except KeyboardInterrupt: print('called' if time.monotonic() - began < 20 else 'late')
";

/// Promise: host-network
#[test]
fn waiting_connect_is_interrupted_by_signals() {
    each_user(|user| {
        let project = project(user);
        let (listener, _waiting) = crowded();
        let port = listener.local_addr().unwrap().port();
        project.write("called.py", CALLED);
        let words = [
            "run",
            &format!("--allow-localhost={port}"),
            "--",
            "python3",
            "called.py",
            &port.to_string(),
        ];
        assert_eq!(TestOutput::run(project.ringfence().args(words), b"").ok(), "called");
    });
}

/// Promise: host-network
#[test]
fn server_inside_that_never_accepts_does_not_block_others() {
    each_user(|user| {
        let project = project(user);
        let port = free_port();
        project.write(
            "deaf.py",
            "import socket, sys, time\ns = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(0)\n\
             full = []\nfor _ in range(8):\n    c = socket.socket(); c.setblocking(False); c.connect_ex(s.getsockname()); full.append(c)\n\
             open('up', 'w'); time.sleep(60)\n",
        );
        let words = [
            "run",
            "--timeout=4s",
            &format!("--bind={port}"),
            "--",
            "python3",
            "deaf.py",
            &port.to_string(),
        ];
        let mut running = project
            .ringfence()
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        assert!(becomes_true(Duration::from_secs(10), || project.has("up")));
        let _guests: Vec<_> =
            (0..4).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        assert_eq!(running.wait().unwrap().code(), Some(124));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
}

const V6_SERVER: &str = "import socket\ns = socket.create_server(('::1', PORT), family=socket.AF_INET6)\nopen('up', 'w')\nwhile True: s.accept()[0].sendall(b'inside')\n";

#[test]
fn server_on_the_ipv6_loopback_is_reached_by_both_addresses() {
    if TcpListener::bind("[::1]:0").is_err() {
        return ringfence_testkit::skip("this host has no IPv6");
    }
    each_user(|user| {
        let project = project(user);
        let port = free_port();
        project.write("serve.py", V6_SERVER.replace("PORT", &port.to_string()));
        let mut running = project.ringfence();
        running.args(["run", &format!("--bind={port}"), "--", "python3", "serve.py"]);
        let mut running = running.stdout(Stdio::null()).spawn().unwrap();
        assert!(becomes_true(Duration::from_secs(10), || project.has("up")), "{user}");
        for address in ["127.0.0.1", "::1"] {
            let mut word = String::new();
            TcpStream::connect((address, port)).unwrap().take(6).read_to_string(&mut word).unwrap();
            assert_eq!(word, "inside", "{user}: {address}");
        }
        running.kill().unwrap();
        running.wait().unwrap();
    });
}

#[test]
fn policy_port_goes_to_the_first_command_and_others_run() {
    each_user(|user| {
        let project = project(user);
        let port = free_port();
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            format!("version = 1\n[network]\nbind = [{port}]\n"),
        );
        project.write(
            "serve.py",
            format!("import socket\ns = socket.create_server(('127.0.0.1', {port}))\nopen('up', 'w')\nwhile True: s.accept()[0].sendall(b'inside')\n"),
        );
        let mut running = project
            .ringfence()
            .args(["run", "--", "python3", "serve.py"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(becomes_true(Duration::from_secs(10), || project.has("up")), "{user}");
        let other = project.run(["--", "echo", "ran"]);
        assert_eq!(
            (
                other.ok(),
                other.stderr_text().matches(&format!("port {port} does not lead")).count()
            ),
            ("ran".into(), 1),
            "{user}: {}",
            other.stderr_text()
        );
        let named = project.run([&format!("--bind={port}"), "--", "touch", "named"]);
        assert!(
            named.expect_status(125).stderr_text().contains(&port.to_string())
                && !project.has("named"),
            "{user}"
        );
        let mut word = String::new();
        TcpStream::connect(("127.0.0.1", port)).unwrap().take(6).read_to_string(&mut word).unwrap();
        assert_eq!(word, "inside", "{user}");
        running.kill().unwrap();
        running.wait().unwrap();
    });
}
