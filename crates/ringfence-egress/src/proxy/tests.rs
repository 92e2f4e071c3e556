use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

use super::*;
use crate::relay::{RelayEndReason, RelayLimits, StreamObjection, StreamVerdict};

const LONG: Duration = Duration::from_secs(30);

/// Opens `open.example` at a listener of the test; also has hosts that are missing, that refuse,
/// and that time out.
struct TestGate {
    behind: SocketAddr,
    requests: Mutex<Vec<String>>,
    ends: Mutex<Sender<RelayEnd>>,
    check: bool,
}

/// Refuses everything.
struct Never;

impl StreamCheck for Never {
    fn check(&mut self, _: &[u8]) -> StreamVerdict {
        StreamVerdict::Refuse(StreamObjection { reason: "never".into(), answer: b"never".to_vec() })
    }
}

impl ProxyHandler for TestGate {
    fn open(&self, request: &ProxyRequest<'_>) -> Result<ProxyConnection, ProxyRefusal> {
        self.requests
            .lock()
            .unwrap()
            .push(format!("{}:{} {:?}", request.host, request.port, request.protocol));
        let refusal = |kind, sentence: &str| Err(ProxyRefusal { kind, message: sentence.into() });
        match request.host {
            "open.example" | "127.0.0.1" | "::1" => {
                let ends = self.ends.lock().unwrap().clone();
                Ok(ProxyConnection {
                    outside: TcpStream::connect(self.behind).unwrap().into(),
                    check: self.check.then(|| Box::new(Never) as Box<dyn StreamCheck>),
                    on_end: Box::new(move |end| drop(ends.send(end))),
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

    fn report_malformed(&self, _: SocketAddr, reason: &str) {
        self.requests.lock().unwrap().push(format!("objected: {reason}"));
    }
}

struct ProxyFixture {
    _proxy: ProxyServer,
    at: SocketAddr,
    gate: Arc<TestGate>,
    /// The server behind `open.example`.
    server: TcpListener,
    ends: Receiver<RelayEnd>,
}

fn rig_that(speaks: ListenerProtocol, check: bool) -> ProxyFixture {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    for crowded in [&listener, &server] {
        // With a short queue the kernel silently drops connections under load.
        rustix::net::listen(crowded, 4096).unwrap();
    }
    let (sender, ends) = mpsc::channel();
    let gate = Arc::new(TestGate {
        behind: server.local_addr().unwrap(),
        requests: Mutex::default(),
        ends: Mutex::new(sender),
        check,
    });
    let at = listener.local_addr().unwrap();
    let relay = Arc::new(SpliceRelay::start(RelayLimits::default()).unwrap());
    let _proxy = ProxyServer::serve(listener, speaks, gate.clone(), relay).unwrap();
    ProxyFixture { _proxy, at, gate, server, ends }
}

fn rig() -> ProxyFixture {
    rig_that(ListenerProtocol::Either, false)
}

impl ProxyFixture {
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

    /// The complete answer to `input`.
    fn answer(&self, input: &[u8]) -> Vec<u8> {
        let mut client = self.client();
        client.write_all(input).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.gate.requests.lock().unwrap())
    }
}

#[track_caller]
fn expect_bytes(mut stream: &TcpStream, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(words));
}

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

#[test]
fn http_connect_opens_a_tunnel() {
    let rig = rig();
    let mut client = rig.client();
    // Some clients send before the tunnel is confirmed.
    client
        .write_all(b"CONNECT open.example:443 HTTP/1.1\r\nHost: open.example:443\r\n\r\nearly")
        .unwrap();
    expect_bytes(&client, ESTABLISHED);
    let mut server = rig.accept();
    expect_bytes(&server, b"early");
    server.write_all(b"answer").unwrap();
    expect_bytes(&client, b"answer");
    drop((client, server));
    let end = rig.ends.recv_timeout(LONG).unwrap();
    assert!(
        matches!(end.reason, RelayEndReason::Closed) && (end.sent, end.received) == (5, 6),
        "{end:?}"
    );
    assert_eq!(rig.requests(), ["open.example:443 Tunnel"]);
}

#[test]
fn tunnelled_bytes_are_checked() {
    let rig = rig_that(ListenerProtocol::Http, true);
    let mut client = rig.client();
    client
        .write_all(b"CONNECT open.example:443 HTTP/1.1\r\nHost: open.example:443\r\n\r\nhello")
        .unwrap();
    expect_bytes(&client, ESTABLISHED);
    expect_bytes(&client, b"never");
    drop(client);
    assert!(matches!(rig.ends.recv_timeout(LONG).unwrap().reason, RelayEndReason::Refused(_)));
}

#[test]
fn only_one_request_per_connection_is_sent() {
    let rig = rig();
    let mut client = rig.client();
    client
        .write_all(b"POST http://open.example/x HTTP/1.1\r\nHost: open.example\r\nProxy-Connection: x\r\nContent-Length: 5\r\n\r\nhel")
        .unwrap();
    let mut server = rig.accept();
    expect_bytes(&server, b"POST /x HTTP/1.1\r\nHost: open.example\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhel");
    client
        .write_all(b"loGET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n")
        .unwrap();
    expect_bytes(&server, b"lo");
    server.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(b"\r\n\r\nbody"));
    drop(client);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).unwrap();
    assert_eq!(String::from_utf8_lossy(&rest), "");
    assert_eq!(rig.requests(), ["open.example:80 Request"]);
}

#[test]
fn refusal_names_its_rule() {
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
fn client_that_keeps_sending_gets_the_refusal() {
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
fn malformed_head_opens_no_connection() {
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
        let requests = rig.requests();
        assert!(
            matches!(&requests[..], [one] if one.starts_with("objected: ")),
            "{head:?}: {requests:?}"
        );
    }
    let long = format!(
        "GET http://open.example/ HTTP/1.1\r\nHost: open.example\r\nX: {}",
        "x".repeat(40_000)
    );
    assert!(rig.answer(long.as_bytes()).starts_with(b"HTTP/1.1 400 "));
    assert_eq!(rig.requests(), ["objected: the head is too long"]);
}

/// A SOCKS5 connect request.
fn socks(kind: u8, host: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, kind], host, &port.to_be_bytes()].concat()
}

#[test]
fn socks_connect_opens_a_tunnel() {
    let rig = rig();
    let name = [&[12], b"open.example".as_slice()].concat();
    let (v4, v6) = ([127, 0, 0, 1], std::net::Ipv6Addr::LOCALHOST.octets());
    for (kind, host, shown) in
        [(3, name.as_slice(), "open.example"), (1, &v4, "127.0.0.1"), (4, &v6, "::1")]
    {
        let mut client = rig.client();
        client.write_all(&[5, 2, 0, 2]).unwrap();
        expect_bytes(&client, &[5, 0]);
        client.write_all(&[socks(kind, host, 22), b"early".to_vec()].concat()).unwrap();
        expect_bytes(&client, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut server = rig.accept();
        expect_bytes(&server, b"early");
        server.write_all(b"answer").unwrap();
        expect_bytes(&client, b"answer");
        assert_eq!(rig.requests(), [format!("{shown}:22 Tunnel")]);
    }
}

#[test]
fn socks_password_is_accepted() {
    let rig = rig();
    let mut client = rig.client();
    client.write_all(&[5, 1, 2]).unwrap();
    expect_bytes(&client, &[5, 2]);
    client.write_all(b"\x01\x02me\x04pass").unwrap();
    expect_bytes(&client, &[1, 0]);
    client.write_all(&socks(1, &[127, 0, 0, 1], 22)).unwrap();
    expect_bytes(&client, &[5, 0, 0, 1]);
}

#[test]
fn socks_refusals_have_their_reply_code() {
    let rig = rig();
    let name = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    for (input, reply) in [
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
        let answer = rig.answer(&[vec![5, 1, 0], input.clone()].concat());
        assert_eq!(answer, [5, 0, 5, reply, 0, 1, 0, 0, 0, 0, 0, 0], "{input:?}");
    }
    assert_eq!(rig.answer(&[5, 1, 9]), [5, 0xff]);
}

#[test]
fn listener_serves_only_its_protocol() {
    for (speaks, input) in [
        (ListenerProtocol::Http, [5, 1, 0].as_slice()),
        (ListenerProtocol::Socks, b"G"),
        (ListenerProtocol::Either, &[4, 1, 0, 22]),
    ] {
        let rig = rig_that(speaks, false);
        assert_eq!(rig.answer(input), b"", "{speaks:?}");
        assert_eq!(rig.requests(), ["objected: it speaks neither HTTP nor SOCKS5"], "{speaks:?}");
    }
}

#[test]
fn five_hundred_clients_are_served_at_once() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let rig = rig();
    // Silent clients must not block others.
    let _silent: Vec<TcpStream> = (0..200).map(|_| rig.client()).collect();
    let clients: Vec<TcpStream> = (0..500).map(|_| rig.client()).collect();
    let head = b"CONNECT open.example:443 HTTP/1.1\r\nHost: open.example:443\r\n\r\n";
    clients.iter().for_each(|mut client| client.write_all(head).unwrap());
    let servers: Vec<TcpStream> = (0..500).map(|_| rig.accept()).collect();
    servers.iter().for_each(|mut server| server.write_all(b"welcome").unwrap());
    for client in &clients {
        expect_bytes(client, ESTABLISHED);
        expect_bytes(client, b"welcome");
    }
}

#[test]
fn slow_client_is_closed() {
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
        // Single bytes do not extend the deadline.
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
fn dropped_proxy_accepts_no_clients() {
    let ProxyFixture { _proxy: proxy, at, .. } = rig();
    let mut waiting = TcpStream::connect(at).unwrap();
    waiting.write_all(b"GET ").unwrap();
    waiting.set_read_timeout(Some(LONG)).unwrap();
    drop(proxy);
    match waiting.read(&mut [0]) {
        Ok(0) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        Ok(_) => panic!("the dropped proxy answered"),
    }
    assert!(TcpStream::connect(at).is_err());
}
