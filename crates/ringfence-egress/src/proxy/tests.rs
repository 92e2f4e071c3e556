use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

use super::*;
use crate::relay::{RelayEndReason, RelayLimits, StreamObjection, StreamVerdict};

const LONG: Duration = Duration::from_secs(30);

/// Opens what is called `open.example`, at a listener of the test; knows a host that is not
/// there, one that says no and one that says nothing.
struct TestGate {
    behind: SocketAddr,
    asked: Mutex<Vec<String>>,
    ends: Mutex<Sender<RelayEnd>>,
    check: bool,
}

/// Refuses everything.
struct Never;

impl StreamCheck for Never {
    fn look(&mut self, _: &[u8]) -> StreamVerdict {
        StreamVerdict::Refuse(StreamObjection { reason: "never".into(), answer: b"never".to_vec() })
    }
}

impl ProxyHandler for TestGate {
    fn open(&self, wish: &ProxyRequest<'_>) -> Result<ProxyConnection, ProxyRefusal> {
        self.asked.lock().unwrap().push(format!("{}:{} {:?}", wish.host, wish.port, wish.speech));
        let refusal = |kind, sentence: &str| Err(ProxyRefusal { kind, sentence: sentence.into() });
        match wish.host {
            "open.example" | "127.0.0.1" | "::1" => {
                let ends = self.ends.lock().unwrap().clone();
                Ok(ProxyConnection {
                    outside: TcpStream::connect(self.behind).unwrap().into(),
                    check: self.check.then(|| Box::new(Never) as Box<dyn StreamCheck>),
                    ended: Box::new(move |end| drop(ends.send(end))),
                })
            }
            "gone.example" => refusal(ProxyRefusalKind::Unreachable, "no such host"),
            "no.example" => refusal(ProxyRefusalKind::Refused, "it says no"),
            "late.example" => refusal(ProxyRefusalKind::Late, "it says nothing"),
            _ => refusal(
                ProxyRefusalKind::Denied,
                "denied by `deny *.example`\r\nX: y (user policy)",
            ),
        }
    }

    fn objected(&self, _: SocketAddr, reason: &str) {
        self.asked.lock().unwrap().push(format!("objected: {reason}"));
    }
}

struct Rig {
    _proxy: ProxyServer,
    at: SocketAddr,
    gate: Arc<TestGate>,
    /// What is behind `open.example`.
    server: TcpListener,
    ends: Receiver<RelayEnd>,
}

fn rig_that(speaks: ListenerProtocol, check: bool) -> Rig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    for crowded in [&listener, &server] {
        // With a short queue the kernel loses some of many who come at once, and they do not
        // notice.
        rustix::net::listen(crowded, 4096).unwrap();
    }
    let (sender, ends) = mpsc::channel();
    let gate = Arc::new(TestGate {
        behind: server.local_addr().unwrap(),
        asked: Mutex::default(),
        ends: Mutex::new(sender),
        check,
    });
    let at = listener.local_addr().unwrap();
    let relay = Arc::new(SpliceRelay::start(RelayLimits::default()).unwrap());
    let _proxy = ProxyServer::serve(listener, speaks, gate.clone(), relay).unwrap();
    Rig { _proxy, at, gate, server, ends }
}

fn rig() -> Rig {
    rig_that(ListenerProtocol::Either, false)
}

impl Rig {
    fn client(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn accept(&self) -> TcpStream {
        let stream = self.server.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// All that is answered to `said`.
    fn answer(&self, said: &[u8]) -> Vec<u8> {
        let mut client = self.client();
        client.write_all(said).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.gate.asked.lock().unwrap())
    }
}

#[track_caller]
fn hear(mut stream: &TcpStream, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(words));
}

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

#[test]
fn a_tunnel_by_http() {
    let rig = rig();
    let mut client = rig.client();
    // Some say the first bytes before they were told that they may.
    client
        .write_all(b"CONNECT open.example:443 HTTP/1.1\r\nHost: open.example:443\r\n\r\nearly")
        .unwrap();
    hear(&client, ESTABLISHED);
    let mut server = rig.accept();
    hear(&server, b"early");
    server.write_all(b"answer").unwrap();
    hear(&client, b"answer");
    drop((client, server));
    let end = rig.ends.recv_timeout(LONG).unwrap();
    assert!(
        matches!(end.why, RelayEndReason::Closed) && (end.sent, end.received) == (5, 6),
        "{end:?}"
    );
    assert_eq!(rig.asked(), ["open.example:443 Tunnel"]);
}

#[test]
fn what_is_said_in_a_tunnel_is_looked_at() {
    let rig = rig_that(ListenerProtocol::Http, true);
    let mut client = rig.client();
    client
        .write_all(b"CONNECT open.example:443 HTTP/1.1\r\nHost: open.example:443\r\n\r\nhello")
        .unwrap();
    hear(&client, ESTABLISHED);
    hear(&client, b"never");
    drop(client);
    assert!(matches!(rig.ends.recv_timeout(LONG).unwrap().why, RelayEndReason::Refused(_)));
}

#[test]
fn one_request_and_no_other() {
    let rig = rig();
    let mut client = rig.client();
    client
        .write_all(b"POST http://open.example/x HTTP/1.1\r\nHost: open.example\r\nProxy-Connection: x\r\nContent-Length: 5\r\n\r\nhel")
        .unwrap();
    let mut server = rig.accept();
    hear(&server, b"POST /x HTTP/1.1\r\nHost: open.example\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhel");
    client
        .write_all(b"loGET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n")
        .unwrap();
    hear(&server, b"lo");
    server.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(b"\r\n\r\nbody"));
    drop(client);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).unwrap();
    assert_eq!(String::from_utf8_lossy(&rest), "");
    assert_eq!(rig.asked(), ["open.example:80 Request"]);
}

#[test]
fn a_refusal_names_its_rule() {
    let rig = rig();
    let denied =
        rig.answer(b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n");
    let denied = String::from_utf8(denied).unwrap();
    assert!(denied.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{denied}");
    assert!(
        denied.ends_with("\r\n\r\nringfence: denied by `deny *.example`  X: y (user policy)\n"),
        "{denied}"
    );
    for (host, status) in [("gone", "502"), ("no", "502"), ("late", "504"), ("other", "403")] {
        let answer = rig.answer(format!("GET http://{host}.example/ HTTP/1.0\r\n\r\n").as_bytes());
        assert!(answer.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{host}");
    }
}

#[test]
fn a_refusal_is_heard_by_one_who_goes_on_talking() {
    let rig = rig();
    let body = vec![b'x'; 1_000_000];
    let head = format!(
        "POST http://other.example/ HTTP/1.1\r\nHost: other.example\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = rig.answer(&[head.as_bytes(), &body].concat());
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn nothing_is_opened_for_a_head_that_is_none() {
    let rig = rig();
    for head in [
        "GET http://open.example/ HTTP/1.1\r\nHost: open.example\r\nHost: other.example\r\n\r\n",
        "GET http://open.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET http://open.example\0.other.example/ HTTP/1.1\r\nHost: open.example\r\n\r\n",
        "CONNECT open.example:443\rX HTTP/1.1\r\n\r\n",
        "CONNECT open.example :443 HTTP/1.1\r\nHost: open.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: open.example\r\n\r\n",
    ] {
        let answer = rig.answer(head.as_bytes());
        assert!(
            answer.starts_with(b"HTTP/1.1 400 "),
            "{head:?}: {}",
            String::from_utf8_lossy(&answer)
        );
        let asked = rig.asked();
        assert!(
            matches!(&asked[..], [one] if one.starts_with("objected: ")),
            "{head:?}: {asked:?}"
        );
    }
    let long = format!(
        "GET http://open.example/ HTTP/1.1\r\nHost: open.example\r\nX: {}",
        "x".repeat(40_000)
    );
    assert!(rig.answer(long.as_bytes()).starts_with(b"HTTP/1.1 400 "));
    assert_eq!(rig.asked(), ["objected: the head is too long"]);
}

/// A request of SOCKS5 to connect.
fn socks(kind: u8, host: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, kind], host, &port.to_be_bytes()].concat()
}

#[test]
fn a_tunnel_by_socks() {
    let rig = rig();
    let name = [&[12], b"open.example".as_slice()].concat();
    let (v4, v6) = ([127, 0, 0, 1], std::net::Ipv6Addr::LOCALHOST.octets());
    for (kind, host, shown) in
        [(3, name.as_slice(), "open.example"), (1, &v4, "127.0.0.1"), (4, &v6, "::1")]
    {
        let mut client = rig.client();
        client.write_all(&[5, 2, 0, 2]).unwrap();
        hear(&client, &[5, 0]);
        client.write_all(&[socks(kind, host, 22), b"early".to_vec()].concat()).unwrap();
        hear(&client, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut server = rig.accept();
        hear(&server, b"early");
        server.write_all(b"answer").unwrap();
        hear(&client, b"answer");
        assert_eq!(rig.asked(), [format!("{shown}:22 Tunnel")]);
    }
}

#[test]
fn socks_with_a_password() {
    let rig = rig();
    let mut client = rig.client();
    client.write_all(&[5, 1, 2]).unwrap();
    hear(&client, &[5, 2]);
    client.write_all(b"\x01\x02me\x04pass").unwrap();
    hear(&client, &[1, 0]);
    client.write_all(&socks(1, &[127, 0, 0, 1], 22)).unwrap();
    hear(&client, &[5, 0, 0, 1]);
}

#[test]
fn what_socks_says_to_no() {
    let rig = rig();
    let name = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    for (said, reply) in [
        (socks(3, &name("other.example"), 22), 2),
        (socks(3, &name("gone.example"), 22), 4),
        (socks(3, &name("no.example"), 22), 5),
        (socks(3, &name("late.example"), 22), 6),
        ([5, 2, 0, 1, 127, 0, 0, 1, 0, 22].to_vec(), 7),
        ([5, 3, 0, 1, 127, 0, 0, 1, 0, 22].to_vec(), 7),
        (socks(9, &[], 22), 8),
        (socks(3, &name("a\0b"), 22), 1),
        (socks(3, &name("a\r\nb"), 22), 1),
        (socks(3, &name("a b"), 22), 1),
        (socks(3, &name(""), 22), 1),
        (socks(3, &name("open.example"), 0), 1),
    ] {
        let answer = rig.answer(&[vec![5, 1, 0], said.clone()].concat());
        assert_eq!(answer, [5, 0, 5, reply, 0, 1, 0, 0, 0, 0, 0, 0], "{said:?}");
    }
    assert_eq!(rig.answer(&[5, 1, 9]), [5, 0xff]);
}

#[test]
fn each_listener_speaks_what_it_speaks() {
    for (speaks, said) in [
        (ListenerProtocol::Http, [5, 1, 0].as_slice()),
        (ListenerProtocol::Socks, b"G"),
        (ListenerProtocol::Either, &[4, 1, 0, 22]),
    ] {
        let rig = rig_that(speaks, false);
        assert_eq!(rig.answer(said), b"", "{speaks:?}");
        assert_eq!(rig.asked(), ["objected: it speaks neither HTTP nor SOCKS5"], "{speaks:?}");
    }
}

#[test]
fn five_hundred_clients_at_once() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let rig = rig();
    // Those that say nothing keep nobody out.
    let _silent: Vec<TcpStream> = (0..200).map(|_| rig.client()).collect();
    let clients: Vec<TcpStream> = (0..500).map(|_| rig.client()).collect();
    let head = b"CONNECT open.example:443 HTTP/1.1\r\nHost: open.example:443\r\n\r\n";
    clients.iter().for_each(|mut client| client.write_all(head).unwrap());
    let servers: Vec<TcpStream> = (0..500).map(|_| rig.accept()).collect();
    servers.iter().for_each(|mut server| server.write_all(b"welcome").unwrap());
    for client in &clients {
        hear(client, ESTABLISHED);
        hear(client, b"welcome");
    }
}

#[test]
fn whoever_takes_too_long_is_let_go() {
    let (mut client, inside) = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    inside.set_nonblocking(true).unwrap();
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let mut wire =
        ClientSocket::new(inside.into(), bell, Instant::now() + Duration::from_millis(100));
    let writer = thread::spawn(move || {
        // A byte now and then does not buy more time.
        while client.write_all(b"G").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let mut calls = 0;
    while wire.fill().is_ok() {
        calls += 1;
    }
    assert!(calls > 1);
    drop(wire);
    writer.join().unwrap();
}

#[test]
fn when_it_is_dropped_nobody_is_listened_to() {
    let Rig { _proxy: proxy, at, .. } = rig();
    let mut waiting = TcpStream::connect(at).unwrap();
    waiting.write_all(b"GET ").unwrap();
    waiting.set_read_timeout(Some(LONG)).unwrap();
    drop(proxy);
    match waiting.read(&mut [0]) {
        Ok(0) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        Ok(_) => panic!("somebody answered"),
    }
    assert!(TcpStream::connect(at).is_err());
}
