//! Checks of first bytes, run by a relay between real sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringfence_egress::peek::checks;
use ringfence_egress::relay::{
    RelayEnd, RelayEndReason, RelayLimits, RelayPair, SpliceRelay, StreamCheck,
};
use ringfence_policy::HostName;

const PATIENCE: Duration = Duration::from_secs(20);

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
const OTHER: &str = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const FRAME: &[u8] = b"\x81\x85\0\0\0\0hello";

/// A connection from a program to a host, and the relay between them.
struct CapturedLine {
    program: TcpStream,
    host: TcpStream,
    end: Receiver<RelayEnd>,
    _relay: SpliceRelay,
}

impl CapturedLine {
    fn new(check: Box<dyn StreamCheck>) -> Self {
        let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ends = || {
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            one.set_read_timeout(Some(PATIENCE)).unwrap();
            let other = listener.accept().unwrap().0;
            other.set_read_timeout(Some(PATIENCE)).unwrap();
            (one, other)
        };
        let ((program, inside), (outside, host)) = (ends(), ends());
        let (sender, end) = channel();
        let ended = Box::new(move |end| drop(sender.send(end)));
        relay.relay(RelayPair {
            check: Some(check),
            on_end: ended,
            ..RelayPair::new(inside.into(), outside.into())
        });
        CapturedLine { program, host, end, _relay: relay }
    }

    fn http() -> Self {
        Self::new(checks::http(HostName::new("a.example").unwrap(), 80))
    }

    fn refused(&self) -> String {
        match self.end.recv_timeout(PATIENCE).unwrap().reason {
            RelayEndReason::Refused(reason) => reason,
            other => panic!("{other}"),
        }
    }
}

fn send(mut stream: &TcpStream, bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).unwrap();
}

#[track_caller]
fn expect_bytes(mut stream: &TcpStream, bytes: impl AsRef<[u8]>) {
    let mut heard = vec![0; bytes.as_ref().len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, bytes.as_ref());
}

/// Reads until the end, which may be a reset.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    rest
}

#[test]
fn upgrade_passes_once_the_server_agrees() {
    let line = CapturedLine::http();
    // The program sends its frame before the answer; it must wait.
    send(&line.program, [UPGRADE.as_bytes(), FRAME].concat());
    expect_bytes(&line.host, UPGRADE);
    send(&line.host, "HTTP/1.1 1");
    expect_bytes(&line.program, "HTTP/1.1 1");
    send(&line.host, "01 Switching Protocols\r\n\r\n");
    expect_bytes(&line.program, "01 Switching Protocols\r\n\r\n");
    expect_bytes(&line.host, FRAME);
    send(&line.program, OTHER);
    expect_bytes(&line.host, OTHER);
    send(&line.host, FRAME);
    expect_bytes(&line.program, FRAME);
    line.program.shutdown(Shutdown::Both).unwrap();
    line.host.shutdown(Shutdown::Both).unwrap();
    assert!(matches!(line.end.recv_timeout(PATIENCE).unwrap().reason, RelayEndReason::Closed));
}

#[test]
fn connection_stays_http_if_the_server_declines() {
    let line = CapturedLine::http();
    send(&line.program, format!("{UPGRADE}{GET}{OTHER}"));
    expect_bytes(&line.host, UPGRADE);
    send(&line.host, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(line.refused(), "it names another host: b.example");
    assert_eq!(rest(&line.host), GET.as_bytes());
}

#[test]
fn only_requests_for_the_host_are_sent() {
    let line = CapturedLine::http();
    send(&line.program, format!("{GET}{OTHER}"));
    assert_eq!(line.refused(), "it names another host: b.example");
    assert_eq!(rest(&line.host), GET.as_bytes());

    let line = CapturedLine::http();
    send(&line.program, OTHER);
    assert_eq!(rest(&line.host), b"");
    let answer = String::from_utf8(rest(&line.program)).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 403 ")
            && answer.ends_with("it names another host: b.example\n"),
        "{answer}"
    );
}

#[test]
fn refused_hello_gets_an_alert() {
    let line = CapturedLine::new(checks::tls(HostName::new("a.example").unwrap()));
    // A hello without extensions, so without a name.
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    let message = [&[1, 0, 0, body.len() as u8], &body[..]].concat();
    send(&line.program, [&[22, 3, 1, 0, message.len() as u8], &message[..]].concat());
    assert_eq!(line.refused(), "it names no host");
    assert_eq!(rest(&line.program), [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(rest(&line.host), b"");
}
