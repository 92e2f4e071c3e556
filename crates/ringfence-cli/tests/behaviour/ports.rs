//! Ports that lead out to this machine, and in from it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestOutput, each_user, soon};

use crate::project;

/// Says a word to everybody who comes; answers the port.
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

/// A port that nobody has at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn hear(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3")
}

/// Promise: P71
#[test]
fn this_machine_is_reached_at_the_ports_that_are_listed() {
    each_user(|user| {
        let project = project(user);
        let (listed, other) = (server("listed"), server("other"));
        project.run(["bash", "-c", &hear(listed)]).ends(1);
        let flag = format!("--allow-localhost={listed}");
        let run = |port: u16| {
            TestOutput::of(
                project.ringfence().args(["run", &flag, "--", "bash", "-c", &hear(port)]),
                b"",
            )
        };
        assert_eq!(run(listed).ok(), "listed");
        run(other).ends(1);
    });
}

/// Promise: P71
#[test]
fn a_server_inside_is_reached_at_the_ports_that_are_listed() {
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
        assert!(soon(Duration::from_secs(10), || is_up(listed) && is_up(other)));
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
            soon(Duration::from_secs(2), || TcpListener::bind(("127.0.0.1", listed)).is_ok()),
            "nobody listens any more"
        );
    });
}

/// Promise: P71
#[test]
fn a_port_that_is_taken_is_told_and_nothing_runs() {
    each_user(|user| {
        let project = project(user);
        let taken = server("taken");
        // Many at once: whoever looks only while the command begins is late for some of them.
        let try_one = |which: usize| {
            let words = ["run", &format!("--bind={taken}"), "--", "touch", &format!("ran{which}")];
            TestOutput::of(project.ringfence().args(words), b"")
        };
        let tried: Vec<TestOutput> = thread::scope(|scope| {
            let tries: Vec<_> = (0..8).map(|which| scope.spawn(move || try_one(which))).collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for (which, ran) in tried.iter().enumerate() {
            ran.ends(125);
            assert!(ran.talk().contains(&format!("port {taken}")), "{}", ran.talk());
            assert!(!project.has(format!("ran{which}")), "it ran all the same");
        }
    });
}

/// A listener that nobody accepts at, and those who fill its queue: whoever comes next waits.
fn crowded() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = (0..8)
        .map_while(|_| TcpStream::connect_timeout(&at, Duration::from_millis(200)).ok())
        .collect();
    (listener, waiting)
}

/// Wants to be called after a second, and connects.
const CALLED: &str = "
import signal, socket, sys, time
def handle(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handle)
signal.alarm(1)
began = time.monotonic()
try: socket.create_connection(('127.0.0.1', int(sys.argv[1])))
except KeyboardInterrupt: print('called' if time.monotonic() - began < 20 else 'late')
";

/// Promise: P71
#[test]
fn who_waits_to_be_connected_hears_signals() {
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
        assert_eq!(TestOutput::of(project.ringfence().args(words), b"").ok(), "called");
    });
}

/// Promise: P71
#[test]
fn a_server_inside_that_lets_nobody_in_keeps_nobody_else_waiting() {
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
        assert!(soon(Duration::from_secs(10), || project.has("up")));
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
        assert!(soon(Duration::from_secs(10), || project.has("up")), "{user}");
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
fn port_of_a_policy_goes_to_the_first_command_and_the_others_run() {
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
        assert!(soon(Duration::from_secs(10), || project.has("up")), "{user}");
        let other = project.run(["--", "echo", "ran"]);
        assert_eq!(
            (other.ok(), other.talk().matches(&format!("port {port}")).count()),
            ("ran".into(), 1),
            "{user}: {}",
            other.talk()
        );
        let named = project.run([&format!("--bind={port}"), "--", "touch", "named"]);
        assert!(
            named.ends(125).talk().contains(&port.to_string()) && !project.has("named"),
            "{user}"
        );
        let mut word = String::new();
        TcpStream::connect(("127.0.0.1", port)).unwrap().take(6).read_to_string(&mut word).unwrap();
        assert_eq!(word, "inside", "{user}");
        running.kill().unwrap();
        running.wait().unwrap();
    });
}
