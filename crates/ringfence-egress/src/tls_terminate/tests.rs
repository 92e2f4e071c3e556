use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use ringfence_api::SecretValue;
use ringfence_policy::HostName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::*;

type TlsOrigin = StreamOwned<ServerConnection, TcpStream>;
type Program = StreamOwned<ClientConnection, UnixStream>;

/// A host on loopback with a CA of its own, and a terminator that trusts that CA.
struct TlsFixture {
    terminator: TlsTerminator,
    authority: SandboxCa,
    events: Arc<Mutex<Vec<TlsEvent>>>,
}

fn name() -> HostName {
    HostName::new("api.test").unwrap()
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn file(name: &str, text: &str) -> PathBuf {
    let path =
        std::env::temp_dir().join(format!("ringfence-terminator-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

impl TlsFixture {
    fn new(test: &str) -> Self {
        let authority = SandboxCa::new().unwrap();
        let path = file(test, &format!("# test CA\n{}", authority.pem()));
        let bundle = CaBundle::load(Some(&path)).unwrap();
        fs::remove_file(path).unwrap();
        Self { terminator: TlsTerminator::new(&bundle).unwrap(), authority, events: Arc::default() }
    }

    /// A host that serves one connection as `host_name`, certified by `authority`, and a socket to
    /// it.
    fn host(
        &self,
        authority: &SandboxCa,
        host_name: &str,
        serve: impl FnOnce(TlsOrigin) + Send + 'static,
    ) -> (OwnedFd, thread::JoinHandle<()>) {
        let certified =
            SingleCertAndKey::from(authority.issue(&HostName::new(host_name).unwrap()).unwrap());
        let config = ServerConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = Arc::new(config.with_no_client_auth().with_cert_resolver(Arc::new(certified)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let serving = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            serve(StreamOwned::new(ServerConnection::new(config).unwrap(), socket));
        });
        (way.into(), serving)
    }

    fn end(&self, way: OwnedFd) -> UnixStream {
        let swap = SecretSwap {
            name: "TOKEN".into(),
            header: "Authorization".into(),
            placeholder: "ringfence-placeholder-TOKEN".into(),
            value: SecretValue::new("the-real-value".into()),
        };
        let events = self.events.clone();
        let events = Box::new(move |what| events.lock().unwrap().push(what));
        let way = self
            .terminator
            .terminate(
                way,
                TerminateRequest { name: name(), port: 443, swaps: vec![swap], on_event: events },
            )
            .unwrap();
        let way = UnixStream::from(way);
        way.set_nonblocking(false).unwrap();
        way
    }

    /// A program that trusts `certificate`.
    fn program(&self, way: UnixStream, certificate: &str) -> Program {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let host = ServerName::try_from("api.test").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), host).unwrap(), way)
    }

    fn events(&self) -> Vec<TlsEvent> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

/// Reads a head, byte by byte.
fn head(from: &mut impl Read) -> String {
    let mut heard = Vec::new();
    let mut byte = [0];
    while !heard.ends_with(b"\r\n\r\n") && from.read(&mut byte).unwrap() == 1 {
        heard.push(byte[0]);
    }
    String::from_utf8(heard).unwrap()
}

fn exactly(from: &mut impl Read, count: usize) -> String {
    let mut heard = vec![0; count];
    from.read_exact(&mut heard).unwrap();
    String::from_utf8(heard).unwrap()
}

/// Reads everything, also if it ends without `close_notify`.
fn all(from: &mut impl Read) -> String {
    let mut heard = Vec::new();
    let _ = from.read_to_end(&mut heard);
    String::from_utf8(heard).unwrap()
}

const ASKS: &str =
    "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer ringfence-placeholder-TOKEN\r\n\r\n";

#[test]
fn host_gets_the_secret_and_program_never_does() {
    let fixture = TlsFixture::new("value");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        let request = head(&mut served);
        let expect = ASKS.replacen("\r\n", "\r\nAccept-Encoding: identity\r\n", 1);
        assert_eq!(request, expect.replace("ringfence-placeholder-TOKEN", "the-real-value"));
        served
            .write_all(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{request}", request.len())
                    .as_bytes(),
            )
            .unwrap();
        // The body of the next request is not changed.
        let request = head(&mut served);
        assert!(request.contains("Authorization: Bearer the-real-value\r\n"), "{request}");
        const BODY: &str = "1b\r\nringfence-placeholder-TOKEN\r\n0\r\n\r\n";
        assert_eq!(exactly(&mut served, BODY.len()), BODY);
        assert!(head(&mut served).contains("Authorization: Bearer the-real-value\r\n"));
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    program.write_all(ASKS.as_bytes()).unwrap();
    assert_eq!(head(&mut program), "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
    let received = exactly(&mut program, 99);
    assert!(received.contains("\r\nAuthorization: Bearer **************\r\n"), "{received}");
    assert_eq!(fixture.events(), [TlsEvent::SecretInserted("TOKEN".into())]);
    let chunked = ASKS
        .replacen("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n", 1)
        .replacen("GET", "POST", 1);
    program
        .write_all(
            format!("{chunked}1b\r\nringfence-placeholder-TOKEN\r\n0\r\n\r\n{ASKS}").as_bytes(),
        )
        .unwrap();
    serving.join().unwrap();
}

/// Reads a chunked body.
fn chunked(from: &mut impl Read) -> String {
    let mut body = String::new();
    loop {
        let mut line = String::new();
        while !line.ends_with("\r\n") {
            line.push_str(&exactly(from, 1));
        }
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
        body.push_str(&exactly(from, length));
        assert_eq!(exactly(from, 2), "\r\n");
        if length == 0 {
            return body;
        }
    }
}

/// Promise: secret-reflection
#[test]
fn value_across_two_chunks_stays_outside() {
    const CUTS: usize = "the-real-value".len() + 1;
    let fixture = TlsFixture::new("chunks");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        for cut in 0..CUTS {
            let request = head(&mut served);
            let at = request.find("the-real-value").unwrap() + cut;
            served.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            // Each chunk in a TLS record of its own.
            for chunk in [&request[..at], &request[at..], ""] {
                served.write_all(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes()).unwrap();
                served.flush().unwrap();
            }
        }
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    for cut in 0..CUTS {
        program.write_all(ASKS.as_bytes()).unwrap();
        assert_eq!(head(&mut program), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let received = chunked(&mut program);
        assert!(
            received.contains("\r\nAuthorization: Bearer **************\r\n"),
            "cut at {cut}: {received}"
        );
    }
    drop(program);
    serving.join().unwrap();
}

#[test]
fn compressed_answer_is_not_passed_on() {
    let fixture = TlsFixture::new("compressed");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        assert!(head(&mut served).contains("\r\nAccept-Encoding: identity\r\n"));
        served
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
            )
            .unwrap();
        assert_eq!(all(&mut served), "");
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    program.write_all(ASKS.as_bytes()).unwrap();
    let answer = all(&mut program);
    assert!(
        answer.starts_with("HTTP/1.1 502 ")
            && answer.contains("it compressed its answer")
            && !answer.contains("abcd"),
        "{answer}"
    );
    drop(program);
    serving.join().unwrap();
    assert!(
        matches!(&fixture.events()[..], [TlsEvent::SecretInserted(_), TlsEvent::Failed(why)] if why.contains("compressed"))
    );
}

#[test]
fn request_for_another_host_is_not_sent() {
    let fixture = TlsFixture::new("other");
    let (heard, hears): (_, Receiver<String>) = channel();
    let (way, serving) = fixture.host(&fixture.authority, "api.test", move |mut served| {
        heard.send(all(&mut served)).unwrap()
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    program.write_all(ASKS.replace("Host: api.test", "Host: evil.test").as_bytes()).unwrap();
    let answer = all(&mut program);
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    assert!(
        answer.ends_with(
            "ringfence: request to api.test refused: it names another host: evil.test\n"
        ),
        "{answer}"
    );
    drop(program);
    serving.join().unwrap();
    assert_eq!(hears.recv().unwrap(), "");
    assert_eq!(fixture.events(), [TlsEvent::Refused("it names another host: evil.test".into())]);
}

#[test]
fn untrusted_host_gets_no_request() {
    for (is_untrusted, host_name) in [(true, "api.test"), (false, "evil.test")] {
        let fixture = TlsFixture::new("untrusted");
        let other = SandboxCa::new().unwrap();
        let authority = if is_untrusted { &other } else { &fixture.authority };
        let (way, serving) =
            fixture.host(authority, host_name, |mut served| assert_eq!(all(&mut served), ""));
        let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
        program.write_all(ASKS.as_bytes()).unwrap();
        let answer = all(&mut program);
        assert!(
            answer.starts_with("HTTP/1.1 502 ")
                && answer.contains("ringfence: TLS or HTTP with api.test failed"),
            "{answer}"
        );
        serving.join().unwrap();
        let events = fixture.events();
        assert!(
            matches!(&events[..], [TlsEvent::Failed(why)] if why.contains("certificate")),
            "{events:?}"
        );
    }
}

#[test]
fn program_that_distrusts_the_sandbox_ca_is_reported() {
    let fixture = TlsFixture::new("distrust");
    let (way, serving) =
        fixture.host(&fixture.authority, "api.test", |mut served| assert_eq!(all(&mut served), ""));
    let mut program = fixture.program(fixture.end(way), &fixture.authority.pem());
    let _ = program.write_all(ASKS.as_bytes());
    assert_eq!(all(&mut program), "");
    drop(program);
    serving.join().unwrap();
    let events = fixture.events();
    assert!(
        matches!(&events[..], [TlsEvent::Failed(why)] if why.starts_with("the program did not accept")),
        "{events:?}"
    );
}

#[test]
fn upgraded_connection_is_passed_on() {
    let fixture = TlsFixture::new("upgrade");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        assert!(head(&mut served).contains("the-real-value"));
        served.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\nhi").unwrap();
        assert_eq!(exactly(&mut served, 5), "\x01\x02\n\x03\x04");
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    program
        .write_all(
            ASKS.replacen("\r\n", "\r\nConnection: upgrade\r\nUpgrade: websocket\r\n", 1)
                .as_bytes(),
        )
        .unwrap();
    assert!(head(&mut program).starts_with("HTTP/1.1 101"));
    assert_eq!(exactly(&mut program, 2), "hi");
    program.write_all(b"\x01\x02\n\x03\x04").unwrap();
    serving.join().unwrap();
}

#[test]
fn large_bodies_pass_in_both_directions() {
    const MUCH: usize = 8 * 1024 * 1024;
    let fixture = TlsFixture::new("much");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        head(&mut served);
        let mut body = vec![0; MUCH];
        served.read_exact(&mut body).unwrap();
        served
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n").as_bytes())
            .unwrap();
        served.write_all(&body).unwrap();
        // The last letter may be the first of a secret, and nothing follows.
        assert_eq!(all(&mut served), "");
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    let body: Vec<u8> =
        (0..MUCH).map(|at| if at + 1 == MUCH { b't' } else { (at % 251) as u8 }).collect();
    let asks = ASKS.replacen("GET", "PUT", 1).replacen(
        "\r\n\r\n",
        &format!("\r\nContent-Length: {MUCH}\r\n\r\n"),
        1,
    );
    program.write_all(asks.as_bytes()).unwrap();
    program.write_all(&body).unwrap();
    head(&mut program);
    let mut heard = vec![0; MUCH];
    program.read_exact(&mut heard).unwrap();
    assert!(heard == body);
    drop(program);
    serving.join().unwrap();
}

#[test]
fn request_with_ambiguous_body_is_the_last() {
    let fixture = TlsFixture::new("last");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        let request = head(&mut served);
        assert!(
            request.contains("\r\nConnection: close\r\n") && request.contains("the-real-value"),
            "{request}"
        );
        served.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!(all(&mut served), "hidden");
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    let asks = ASKS.replacen(
        "\r\n\r\n",
        "\r\nConnection: keep-alive\r\nContent-Length: 6\r\n\r\nhidden",
        1,
    );
    program.write_all(format!("{asks}{ASKS}").as_bytes()).unwrap();
    assert_eq!(all(&mut program), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    drop(program);
    serving.join().unwrap();
    assert_eq!(fixture.events(), [TlsEvent::SecretInserted("TOKEN".into())]);
}

#[test]
fn trace_request_is_refused() {
    let fixture = TlsFixture::new("trace");
    let (way, serving) =
        fixture.host(&fixture.authority, "api.test", |mut served| assert_eq!(all(&mut served), ""));
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    program.write_all(ASKS.replacen("GET", "TRACE", 1).as_bytes()).unwrap();
    assert!(all(&mut program).starts_with("HTTP/1.1 421 "));
    drop(program);
    serving.join().unwrap();
}

#[test]
fn half_closed_program_is_answered_and_broken_response_stays_broken() {
    let fixture = TlsFixture::new("break");
    let (way, serving) = fixture.host(&fixture.authority, "api.test", |mut served| {
        head(&mut served);
        served.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it").unwrap();
        // Without `close_notify`.
        served.sock.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let mut program = fixture.program(fixture.end(way), &fixture.terminator.certificate());
    program.write_all(ASKS.as_bytes()).unwrap();
    program.conn.send_close_notify();
    program.flush().unwrap();
    let _ = program.sock.shutdown(std::net::Shutdown::Write);
    let mut heard = Vec::new();
    let broken = program.read_to_end(&mut heard).unwrap_err();
    assert_eq!(
        (heard.ends_with(b"half of it"), broken.kind()),
        (true, std::io::ErrorKind::UnexpectedEof)
    );
    serving.join().unwrap();
}

#[test]
fn unusable_ca_bundle_is_named() {
    let error = |path: &PathBuf| CaBundle::load(Some(path)).unwrap_err().to_string();
    assert_eq!(error(&PathBuf::from("ca.crt")), "ca.crt is not an absolute path");
    let missing = PathBuf::from("/nowhere/ca.crt");
    assert_eq!(error(&missing), "cannot read the certificates in /nowhere/ca.crt");
    let empty = file("empty", "nothing of the kind\n");
    assert_eq!(error(&empty), format!("no certificate found in {}", empty.display()));
    fs::remove_file(empty).unwrap();
}
