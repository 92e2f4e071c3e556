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

type Served = StreamOwned<ServerConnection, TcpStream>;
type Program = StreamOwned<ClientConnection, UnixStream>;

/// A host on loopback, by an authority of its own, and an ender that trusts that one.
struct Scene {
    ender: TlsTerminator,
    authority: SandboxCa,
    told: Arc<Mutex<Vec<TlsEvent>>>,
}

fn name() -> HostName {
    HostName::new("api.test").unwrap()
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ringfence-ender-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

impl Scene {
    fn new(test: &str) -> Self {
        let authority = SandboxCa::new().unwrap();
        let path = file(test, &format!("# somebody\n{}", authority.pem()));
        let bundle = CaBundle::of_host(Some(&path)).unwrap();
        fs::remove_file(path).unwrap();
        Self { ender: TlsTerminator::new(&bundle).unwrap(), authority, told: Arc::default() }
    }

    /// A host that `serves` one connection, as `whom` by `authority`; answers the way to it.
    fn host(
        &self,
        authority: &SandboxCa,
        whom: &str,
        serve: impl FnOnce(Served) + Send + 'static,
    ) -> (OwnedFd, thread::JoinHandle<()>) {
        let certified =
            SingleCertAndKey::from(authority.vouch_for(&HostName::new(whom).unwrap()).unwrap());
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
        let told = self.told.clone();
        let told = Box::new(move |what| told.lock().unwrap().push(what));
        let way = self
            .ender
            .end(way, TerminateRequest { name: name(), port: 443, swaps: vec![swap], told })
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

    fn told(&self) -> Vec<TlsEvent> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

/// Hears the head of something, and what of its body has come with it.
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

/// Hears everything, also where it ends without a farewell.
fn all(from: &mut impl Read) -> String {
    let mut heard = Vec::new();
    let _ = from.read_to_end(&mut heard);
    String::from_utf8(heard).unwrap()
}

const ASKS: &str =
    "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer ringfence-placeholder-TOKEN\r\n\r\n";

#[test]
fn the_host_gets_the_value_and_the_program_never_does() {
    let scene = Scene::new("value");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        let asked = head(&mut served);
        let expect = ASKS.replacen("\r\n", "\r\nAccept-Encoding: identity\r\n", 1);
        assert_eq!(asked, expect.replace("ringfence-placeholder-TOKEN", "the-real-value"));
        served
            .write_all(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{asked}", asked.len())
                    .as_bytes(),
            )
            .unwrap();
        // The next one has a body that is none of our business.
        let asked = head(&mut served);
        assert!(asked.contains("Authorization: Bearer the-real-value\r\n"), "{asked}");
        const BODY: &str = "1b\r\nringfence-placeholder-TOKEN\r\n0\r\n\r\n";
        assert_eq!(exactly(&mut served, BODY.len()), BODY);
        assert!(head(&mut served).contains("Authorization: Bearer the-real-value\r\n"));
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
    program.write_all(ASKS.as_bytes()).unwrap();
    assert_eq!(head(&mut program), "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
    let said = exactly(&mut program, 99);
    assert!(said.contains("\r\nAuthorization: Bearer **************\r\n"), "{said}");
    assert_eq!(scene.told(), [TlsEvent::Put("TOKEN".into())]);
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

/// Hears a body in chunks.
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

/// Promise: P138
#[test]
fn value_across_two_chunks_stays_outside() {
    const CUTS: usize = "the-real-value".len() + 1;
    let scene = Scene::new("chunks");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        for cut in 0..CUTS {
            let asked = head(&mut served);
            let at = asked.find("the-real-value").unwrap() + cut;
            served.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            // Each chunk in a record of its own.
            for chunk in [&asked[..at], &asked[at..], ""] {
                served.write_all(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes()).unwrap();
                served.flush().unwrap();
            }
        }
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
    for cut in 0..CUTS {
        program.write_all(ASKS.as_bytes()).unwrap();
        assert_eq!(head(&mut program), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let said = chunked(&mut program);
        assert!(
            said.contains("\r\nAuthorization: Bearer **************\r\n"),
            "cut at {cut}: {said}"
        );
    }
    drop(program);
    serving.join().unwrap();
}

#[test]
fn compressed_answer_is_not_passed_on() {
    let scene = Scene::new("compressed");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        assert!(head(&mut served).contains("\r\nAccept-Encoding: identity\r\n"));
        served
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
            )
            .unwrap();
        assert_eq!(all(&mut served), "");
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
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
        matches!(&scene.told()[..], [TlsEvent::Put(_), TlsEvent::Failed(why)] if why.contains("compressed"))
    );
}

#[test]
fn a_request_for_another_host_goes_nowhere() {
    let scene = Scene::new("other");
    let (heard, hears): (_, Receiver<String>) = channel();
    let (way, serving) = scene.host(&scene.authority, "api.test", move |mut served| {
        heard.send(all(&mut served)).unwrap()
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
    program.write_all(ASKS.replace("Host: api.test", "Host: evil.test").as_bytes()).unwrap();
    let answer = all(&mut program);
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    assert!(
        answer.ends_with(
            "ringfence: this request does not go to api.test: it is meant for evil.test\n"
        ),
        "{answer}"
    );
    drop(program);
    serving.join().unwrap();
    assert_eq!(hears.recv().unwrap(), "");
    assert_eq!(scene.told(), [TlsEvent::Refused("it is meant for evil.test".into())]);
}

#[test]
fn a_host_that_nobody_vouches_for_gets_nothing() {
    for (stranger, whom) in [(true, "api.test"), (false, "evil.test")] {
        let scene = Scene::new("untrusted");
        let other = SandboxCa::new().unwrap();
        let authority = if stranger { &other } else { &scene.authority };
        let (way, serving) =
            scene.host(authority, whom, |mut served| assert_eq!(all(&mut served), ""));
        let mut program = scene.program(scene.end(way), &scene.ender.certificate());
        program.write_all(ASKS.as_bytes()).unwrap();
        let answer = all(&mut program);
        assert!(
            answer.starts_with("HTTP/1.1 502 ")
                && answer.contains("ringfence: TLS or HTTP with api.test failed"),
            "{answer}"
        );
        serving.join().unwrap();
        let told = scene.told();
        assert!(
            matches!(&told[..], [TlsEvent::Failed(why)] if why.contains("certificate")),
            "{told:?}"
        );
    }
}

#[test]
fn a_program_that_trusts_somebody_else_is_told_of() {
    let scene = Scene::new("distrust");
    let (way, serving) =
        scene.host(&scene.authority, "api.test", |mut served| assert_eq!(all(&mut served), ""));
    let mut program = scene.program(scene.end(way), &scene.authority.pem());
    let _ = program.write_all(ASKS.as_bytes());
    assert_eq!(all(&mut program), "");
    drop(program);
    serving.join().unwrap();
    let told = scene.told();
    assert!(
        matches!(&told[..], [TlsEvent::Failed(why)] if why.starts_with("the program did not accept")),
        "{told:?}"
    );
}

#[test]
fn a_connection_that_becomes_something_else_is_passed_on() {
    let scene = Scene::new("upgrade");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        assert!(head(&mut served).contains("the-real-value"));
        served.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\nhi").unwrap();
        assert_eq!(exactly(&mut served, 5), "\x01\x02\n\x03\x04");
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
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
fn much_goes_both_ways() {
    const MUCH: usize = 8 * 1024 * 1024;
    let scene = Scene::new("much");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        head(&mut served);
        let mut body = vec![0; MUCH];
        served.read_exact(&mut body).unwrap();
        served
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n").as_bytes())
            .unwrap();
        served.write_all(&body).unwrap();
        // The last letter may be the first of a value, and nothing comes after it.
        assert_eq!(all(&mut served), "");
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
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
fn what_could_be_taken_for_the_next_request_is_the_last() {
    let scene = Scene::new("last");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        let asked = head(&mut served);
        assert!(
            asked.contains("\r\nConnection: close\r\n") && asked.contains("the-real-value"),
            "{asked}"
        );
        served.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!(all(&mut served), "hidden");
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
    let asks = ASKS.replacen(
        "\r\n\r\n",
        "\r\nConnection: keep-alive\r\nContent-Length: 6\r\n\r\nhidden",
        1,
    );
    program.write_all(format!("{asks}{ASKS}").as_bytes()).unwrap();
    assert_eq!(all(&mut program), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    drop(program);
    serving.join().unwrap();
    assert_eq!(scene.told(), [TlsEvent::Put("TOKEN".into())]);
}

#[test]
fn a_request_to_be_told_what_was_said_is_refused() {
    let scene = Scene::new("trace");
    let (way, serving) =
        scene.host(&scene.authority, "api.test", |mut served| assert_eq!(all(&mut served), ""));
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
    program.write_all(ASKS.replacen("GET", "TRACE", 1).as_bytes()).unwrap();
    assert!(all(&mut program).starts_with("HTTP/1.1 421 "));
    drop(program);
    serving.join().unwrap();
}

#[test]
fn who_asks_and_hangs_up_is_answered_and_a_break_stays_one() {
    let scene = Scene::new("break");
    let (way, serving) = scene.host(&scene.authority, "api.test", |mut served| {
        head(&mut served);
        served.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it").unwrap();
        // Without a farewell.
        served.sock.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let mut program = scene.program(scene.end(way), &scene.ender.certificate());
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
fn a_bundle_that_cannot_be_used_is_named() {
    let error = |path: &PathBuf| CaBundle::of_host(Some(path)).unwrap_err().to_string();
    assert_eq!(error(&PathBuf::from("ca.crt")), "ca.crt is not an absolute path");
    let missing = PathBuf::from("/nowhere/ca.crt");
    assert_eq!(error(&missing), "the certificates in /nowhere/ca.crt cannot be read");
    let empty = file("empty", "nothing of the kind\n");
    assert_eq!(error(&empty), format!("no certificate is in {}", empty.display()));
    fs::remove_file(empty).unwrap();
}
