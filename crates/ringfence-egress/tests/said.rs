//! What is said first, looked at by a relay between real sockets.

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
struct Line {
    program: TcpStream,
    host: TcpStream,
    end: Receiver<RelayEnd>,
    _relay: SpliceRelay,
}

impl Line {
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
        relay.carry(RelayPair {
            check: Some(check),
            ended,
            ..RelayPair::new(inside.into(), outside.into())
        });
        Line { program, host, end, _relay: relay }
    }

    fn http() -> Self {
        Self::new(checks::http(HostName::new("a.example").unwrap(), 80))
    }

    fn refused(&self) -> String {
        match self.end.recv_timeout(PATIENCE).unwrap().why {
            RelayEndReason::Refused(reason) => reason,
            other => panic!("{other}"),
        }
    }
}

fn say(mut stream: &TcpStream, words: impl AsRef<[u8]>) {
    stream.write_all(words.as_ref()).unwrap();
}

#[track_caller]
fn hear(mut stream: &TcpStream, words: impl AsRef<[u8]>) {
    let mut heard = vec![0; words.as_ref().len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, words.as_ref());
}

/// All that comes until the end, which may be a reset.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    rest
}

#[test]
fn a_connection_becomes_something_else_when_the_server_agrees() {
    let line = Line::http();
    // The program is hasty: what it says before the answer waits.
    say(&line.program, [UPGRADE.as_bytes(), FRAME].concat());
    hear(&line.host, UPGRADE);
    say(&line.host, "HTTP/1.1 1");
    hear(&line.program, "HTTP/1.1 1");
    say(&line.host, "01 Switching Protocols\r\n\r\n");
    hear(&line.program, "01 Switching Protocols\r\n\r\n");
    hear(&line.host, FRAME);
    say(&line.program, OTHER);
    hear(&line.host, OTHER);
    say(&line.host, FRAME);
    hear(&line.program, FRAME);
    line.program.shutdown(Shutdown::Both).unwrap();
    line.host.shutdown(Shutdown::Both).unwrap();
    assert!(matches!(line.end.recv_timeout(PATIENCE).unwrap().why, RelayEndReason::Closed));
}

#[test]
fn it_stays_what_it_is_when_the_server_does_not() {
    let line = Line::http();
    say(&line.program, format!("{UPGRADE}{GET}{OTHER}"));
    hear(&line.host, UPGRADE);
    say(&line.host, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(line.refused(), "it is meant for b.example");
    assert_eq!(rest(&line.host), GET.as_bytes());
}

#[test]
fn a_good_request_goes_out_and_a_bad_one_does_not() {
    let line = Line::http();
    say(&line.program, format!("{GET}{OTHER}"));
    assert_eq!(line.refused(), "it is meant for b.example");
    assert_eq!(rest(&line.host), GET.as_bytes());

    let line = Line::http();
    say(&line.program, OTHER);
    assert_eq!(rest(&line.host), b"");
    let answer = String::from_utf8(rest(&line.program)).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("it is meant for b.example\n"),
        "{answer}"
    );
}

#[test]
fn a_hello_for_another_host_hears_an_alert() {
    let line = Line::new(checks::tls(HostName::new("a.example").unwrap()));
    // A hello without any extension, which names nobody.
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    let message = [&[1, 0, 0, body.len() as u8], &body[..]].concat();
    say(&line.program, [&[22, 3, 1, 0, message.len() as u8], &message[..]].concat());
    assert_eq!(line.refused(), "it names no host");
    assert_eq!(rest(&line.program), [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(rest(&line.host), b"");
}
