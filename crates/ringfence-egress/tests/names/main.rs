//! The DNS responder over real sockets, as resolvers use it.

mod asking;
mod crowds;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_egress::dns::{DnsGate, DnsRefusal, DnsServer, DnsSockets, DnsVerdict};
use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_policy::HostName;

/// Enough for a busy machine, and shorter than the server's timeout for a silent client: an earlier
/// end has another cause. Only a failing test takes it.
const PATIENCE: Duration = Duration::from_secs(8);

/// Opens `*.open`.
struct NamesGate {
    refused: Mutex<Vec<String>>,
}

impl DnsGate for NamesGate {
    fn decide(&self, name: &HostName) -> DnsVerdict {
        match name.as_str().rsplit('.').next() {
            Some("open") => DnsVerdict::Allow,
            _ => DnsVerdict::Deny,
        }
    }

    fn report_refused(&self, name: &str, why: DnsRefusal) {
        self.refused.lock().unwrap().push(format!("{name} {why:?}"));
    }
}

struct NamesFixture {
    server: DnsServer,
    address: SocketAddr,
    gate: Arc<NamesGate>,
}

impl NamesFixture {
    fn new() -> Self {
        let streams = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = streams.local_addr().unwrap();
        // The kernel chose a TCP port; the same UDP port may be taken.
        let datagrams = match UdpSocket::bind(address) {
            Ok(datagrams) => datagrams,
            Err(_) => return Self::new(),
        };
        let gate = Arc::new(NamesGate { refused: Mutex::default() });
        let search = vec![HostName::new("corp.test").unwrap()];
        let server = DnsServer::start(
            DnsSockets { datagrams, streams },
            gate.clone(),
            Arc::new(FakeIpPool::new()),
            search,
        )
        .unwrap();
        NamesFixture { server, address, gate }
    }

    fn datagrams(&self) -> Datagrams {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Datagrams(socket)
    }

    fn stream(&self) -> Stream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Stream(stream)
    }

    fn refused(&self) -> Vec<String> {
        self.gate.refused.lock().unwrap().clone()
    }
}

struct Datagrams(UdpSocket);

impl Datagrams {
    fn send(&self, message: &[u8]) {
        self.0.send(message).unwrap();
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 4096];
        let count = self.0.recv(&mut buffer).unwrap();
        summary(&buffer[..count])
    }

    fn ask(&self, message: &[u8]) -> String {
        self.send(message);
        self.receive()
    }
}

struct Stream(TcpStream);

impl Stream {
    fn send(&mut self, message: &[u8]) {
        self.0.write_all(&framed(message)).unwrap();
    }

    fn receive(&mut self) -> String {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).unwrap();
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut message).unwrap();
        summary(&message)
    }

    /// Waits until the server has closed it.
    fn ends(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{rest:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

const A: u16 = 1;
const AAAA: u16 = 28;
const HTTPS: u16 = 65;

fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [id, 0x0100, 1, 0, 0, 0] {
        out.extend(number.to_be_bytes());
    }
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.bytes());
    }
    out.push(0);
    out.extend(kind.to_be_bytes());
    out.extend([0, 1]);
    out
}

/// Summary of an answer: id, code, and the address if there is one. It is parsed here
/// independently, not with the code that wrote it.
fn summary(message: &[u8]) -> String {
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    assert_eq!(message[2] & 0x80, 0x80, "no answer");
    let code = match message[3] & 15 {
        0 => "ok",
        1 => "formerr",
        2 => "servfail",
        3 => "nxdomain",
        4 => "notimp",
        5 => "refused",
        _ => "other",
    };
    let mut at = 12;
    if number(4) == 1 {
        while message[at] != 0 {
            at += usize::from(message[at]) + 1;
        }
        at += 5;
    }
    let address = match number(6) {
        0 => String::new(),
        _ => {
            let data = &message[at + 12..at + 12 + usize::from(number(at + 10))];
            match data.len() {
                4 => format!(" {}", Ipv4Addr::from(<[u8; 4]>::try_from(data).unwrap())),
                16 => format!(" {}", std::net::Ipv6Addr::from(<[u8; 16]>::try_from(data).unwrap())),
                _ => " ?".to_owned(),
            }
        }
    };
    format!("{} {code}{address}", number(0))
}
