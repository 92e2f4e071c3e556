use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use rustix::event::PollFlags;
use rustix::net::sockopt::socket_domain;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// Resolver with a fixed table.
struct FixedResolver(Vec<(&'static str, Vec<IpAddr>)>);

impl NameResolver for FixedResolver {
    fn resolve(&self, name: &str, _: &DialPatience<'_>) -> Result<Vec<IpAddr>, ResolveError> {
        let known = self.0.iter().find(|(known, _)| *known == name);
        known.map(|(_, addresses)| addresses.clone()).ok_or(ResolveError::Unknown(None))
    }
}

fn dialer(names: &[(&'static str, &[&str])]) -> Dialer {
    let table = names.iter().map(|(name, addresses)| {
        (*name, addresses.iter().map(|text| text.parse().unwrap()).collect())
    });
    Dialer {
        resolver: Arc::new(FixedResolver(table.collect())),
        limit: LIMIT,
        upstream: UpstreamProxies::default(),
    }
}

fn name(text: &str) -> DialHost {
    DialHost::Name(text.into())
}

fn anything(_: IpAddr) -> Result<(), &'static str> {
    Ok(())
}

#[test]
fn name_is_dialed_at_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let reached = dialer(&[("a.example", &["127.0.0.1"])])
        .connect(&name("a.example"), at.port(), &SocketOptions::default(), &anything)
        .unwrap();
    assert_eq!(reached.peer, at);
    let mut stream = TcpStream::from(reached.socket);
    stream.write_all(b"x").unwrap();
    let mut received = [0];
    listener.accept().unwrap().0.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"x");
}

#[test]
fn rejected_address_is_not_tried() {
    let shut = TcpListener::bind("127.0.0.7:0").unwrap();
    let port = shut.local_addr().unwrap().port();
    let open = TcpListener::bind(("127.0.0.8", port)).unwrap();
    let judge = |address: IpAddr| {
        if address == IpAddr::from([127, 0, 0, 7]) { Err("guarded") } else { Ok(()) }
    };
    let dialer = dialer(&[("both", &["127.0.0.7", "127.0.0.8"]), ("one", &["127.0.0.7"])]);
    let reached = dialer.connect(&name("both"), port, &SocketOptions::default(), &judge).unwrap();
    assert_eq!(reached.peer, open.local_addr().unwrap());
    for host in [name("one"), DialHost::Address(Ipv4Addr::new(127, 0, 0, 7).into())] {
        let failure = dialer.connect(&host, port, &SocketOptions::default(), &judge).unwrap_err();
        assert!(matches!(failure, DialFailure::Rejected { why: "guarded", .. }), "{failure}");
        assert_eq!(failure.errno(), Errno::ACCESS.raw_os_error());
    }
    shut.set_nonblocking(true).unwrap();
    assert_eq!(shut.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn failures_have_the_errno_for_the_caller() {
    let dialer = dialer(&[("v6", &["::1"])]);
    let v4 = SocketOptions::for_family(SocketFamily::V4);
    let unknown = dialer.connect(&name("nowhere"), 1, &v4, &anything).unwrap_err();
    assert_eq!(unknown.errno(), Errno::HOSTUNREACH.raw_os_error());
    let other = dialer.connect(&name("v6"), 1, &v4, &anything).unwrap_err();
    assert!(matches!(other, DialFailure::OtherFamily));
    // The kernel refuses a stream to broadcast, and its errno is passed on.
    let broadcast = dialer
        .connect(&DialHost::Address(Ipv4Addr::BROADCAST.into()), 1, &v4, &anything)
        .unwrap_err();
    let (socket, address) = v4.create_socket("255.255.255.255:1".parse().unwrap()).unwrap();
    assert_eq!(
        broadcast.errno(),
        rustix::net::connect(&socket, &address).unwrap_err().raw_os_error()
    );
}

#[test]
fn ipv6_caller_gets_an_ipv6_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = SocketOptions::for_family(SocketFamily::V6);
    let host = DialHost::Address(Ipv4Addr::LOCALHOST.into());
    let reached = dialer(&[])
        .connect(&host, listener.local_addr().unwrap().port(), &options, &anything)
        .unwrap();
    assert_eq!(socket_domain(&reached.socket).unwrap(), rustix::net::AddressFamily::INET6);
    assert_eq!(
        TcpStream::from(reached.socket).peer_addr().unwrap().ip(),
        "::ffff:127.0.0.1".parse::<IpAddr>().unwrap()
    );
}

#[test]
fn started_connect_does_not_block() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket =
        dialer(&[]).start(listener.local_addr().unwrap(), &SocketOptions::default()).unwrap();
    assert!(
        wait_with_patience(&socket, PollFlags::OUT, &DialPatience::until(Instant::now() + LIMIT))
            .unwrap()
    );
    connect_result(&socket).unwrap();
    listener.accept().unwrap();
}

/// A proxy that answers once, and the request it got.
fn upstream_that_answers(answer: &'static [u8]) -> (UpstreamProxies, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://me:pass@proxy.corp:{}", listener.local_addr().unwrap().port());
    let outer =
        UpstreamProxies::from_environment(|name| (name == "https_proxy").then(|| url.clone()))
            .unwrap();
    let proxy_request = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        stream.write_all(answer).unwrap();
        String::from_utf8(head).unwrap()
    });
    (outer, proxy_request)
}

fn through(
    outer: UpstreamProxies,
    host: &DialHost,
) -> Result<DialedSocket, DialFailure<&'static str>> {
    let judge = |address: IpAddr| if address.is_loopback() { Err("guarded") } else { Ok(()) };
    Dialer { upstream: outer, ..dialer(&[("proxy.corp", &["127.0.0.1"])]) }.connect(
        host,
        443,
        &SocketOptions::default(),
        &judge,
    )
}

#[test]
fn upstream_proxy_opens_a_tunnel() {
    let (outer, proxy_request) = upstream_that_answers(
        b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0-first",
    );
    let reached = through(outer, &name("a.example")).unwrap();
    let heard = proxy_request.join().unwrap();
    assert_eq!(
        heard,
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n"
    );
    // Bytes behind the head belong to the tunnel.
    let mut stream = TcpStream::from(reached.socket);
    stream.set_nonblocking(false).unwrap();
    let mut first = String::new();
    stream.read_to_string(&mut first).unwrap();
    assert_eq!(first, "SSH-2.0-first");
}

#[test]
fn upstream_proxy_errors_are_reported() {
    for (answer, errno, words) in [
        (b"HTTP/1.1 403 Not \x07here\r\n\r\n".as_slice(), Errno::CONNREFUSED, "403 Not here"),
        (b"HTTP/1.0 407 Who\r\n\r\n", Errno::CONNREFUSED, "password"),
        (b"HTTP/1.1 504 Slow\r\n\r\n", Errno::TIMEDOUT, "504"),
        (b"SSH-2.0-x\r\n\r\n", Errno::PROTO, "HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Errno::PROTO, "HTTP"),
        (b"HTTP/1.1 2", Errno::CONNRESET, "reset"),
    ] {
        let (outer, proxy_request) = upstream_that_answers(answer);
        let failure = through(outer, &DialHost::Address("fd00::7".parse().unwrap())).unwrap_err();
        assert!(proxy_request.join().unwrap().starts_with("CONNECT [fd00::7]:443 HTTP/1.1\r\n"));
        assert_eq!(failure.errno(), errno.raw_os_error(), "{failure}");
        assert!(failure.to_string().contains(words), "{failure}");
    }
}

#[test]
fn environment_selects_the_upstream_proxy() {
    let outer = UpstreamProxies::from_environment(|name| match name {
        "HTTP_PROXY" => Some("http://a:1".into()),
        "all_proxy" => Some("http://b:2".into()),
        "HTTPS_PROXY" => Some(" ".into()),
        "no_proxy" => Some("direct.example".into()),
        _ => None,
    })
    .unwrap();
    let shown = |host: &str, port| outer.proxy_for(&name(host), port).map(|url| format!("{url:?}"));
    assert_eq!(shown("x.example", 80).as_deref(), Some("http://a:1"));
    assert_eq!(shown("x.example", 443).as_deref(), Some("http://b:2"));
    assert_eq!(shown("direct.example", 443), None);
    // An invalid variable is named as found, and only if it applies to a destination.
    let wrong = |name: &str| (name == "all_proxy").then(|| "socks5://x".into());
    assert!(
        UpstreamProxies::from_environment(wrong).unwrap_err().to_string().starts_with("all_proxy ")
    );
    let proxies =
        |name: &str| matches!(name, "http_proxy" | "HTTPS_PROXY").then(|| "http://a:1".into());
    assert!(
        UpstreamProxies::from_environment(|name| wrong(name).or_else(|| proxies(name))).is_ok()
    );
    assert!(
        UpstreamProxies::from_environment(
            |name| wrong(name).or_else(|| (name == "NO_PROXY").then(|| "a.example, *".into()))
        )
        .is_ok()
    );
}
