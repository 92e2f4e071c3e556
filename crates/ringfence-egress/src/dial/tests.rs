use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use rustix::event::PollFlags;
use rustix::net::sockopt::socket_domain;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// Knows what it was told, and nothing else.
struct Told(Vec<(&'static str, Vec<IpAddr>)>);

impl Resolve for Told {
    fn resolve(&self, name: &str, _: &DialPatience<'_>) -> Result<Vec<IpAddr>, ResolveError> {
        let known = self.0.iter().find(|(known, _)| *known == name);
        known.map(|(_, addresses)| addresses.clone()).ok_or(ResolveError::Unknown(None))
    }
}

fn dialer(names: &[(&'static str, &[&str])]) -> Dialer {
    let told = names.iter().map(|(name, addresses)| {
        (*name, addresses.iter().map(|text| text.parse().unwrap()).collect())
    });
    Dialer {
        resolver: Arc::new(Told(told.collect())),
        limit: LIMIT,
        outer: UpstreamProxies::default(),
    }
}

fn name(text: &str) -> DialHost {
    DialHost::Name(text.into())
}

fn anything(_: IpAddr) -> Result<(), &'static str> {
    Ok(())
}

#[test]
fn a_name_is_reached_at_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let reached = dialer(&[("a.example", &["127.0.0.1"])])
        .connect(&name("a.example"), at.port(), &SocketOptions::default(), &anything)
        .unwrap();
    assert_eq!(reached.peer, at);
    let mut stream = TcpStream::from(reached.socket);
    stream.write_all(b"x").unwrap();
    let mut said = [0];
    listener.accept().unwrap().0.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"x");
}

#[test]
fn an_address_that_may_not_be_is_not_tried() {
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
        assert!(matches!(failure, DialFailure::Judged { why: "guarded", .. }), "{failure}");
        assert_eq!(failure.errno(), Errno::ACCESS.raw_os_error());
    }
    shut.set_nonblocking(true).unwrap();
    assert_eq!(shut.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn numbers_for_the_caller() {
    let dialer = dialer(&[("v6", &["::1"])]);
    let v4 = SocketOptions::like(SocketFamily::V4);
    let unknown = dialer.connect(&name("nowhere"), 1, &v4, &anything).unwrap_err();
    assert_eq!(unknown.errno(), Errno::HOSTUNREACH.raw_os_error());
    let other = dialer.connect(&name("v6"), 1, &v4, &anything).unwrap_err();
    assert!(matches!(other, DialFailure::OtherFamily));
    // Broadcast is refused by the kernel for a stream, and that very number is passed on.
    let broadcast = dialer
        .connect(&DialHost::Address(Ipv4Addr::BROADCAST.into()), 1, &v4, &anything)
        .unwrap_err();
    let (socket, address) = v4.socket_for("255.255.255.255:1".parse().unwrap()).unwrap();
    assert_eq!(
        broadcast.errno(),
        rustix::net::connect(&socket, &address).unwrap_err().raw_os_error()
    );
}

#[test]
fn a_caller_of_ipv6_gets_a_socket_of_ipv6() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = SocketOptions::like(SocketFamily::V6);
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
fn a_start_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket =
        dialer(&[]).start(listener.local_addr().unwrap(), &SocketOptions::default()).unwrap();
    assert!(
        wait_patiently(&socket, PollFlags::OUT, &DialPatience::until(Instant::now() + LIMIT))
            .unwrap()
    );
    outcome(&socket).unwrap();
    listener.accept().unwrap();
}

/// A proxy that answers once, and what it was asked.
fn outer_that_says(answer: &'static [u8]) -> (UpstreamProxies, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://me:pass@proxy.corp:{}", listener.local_addr().unwrap().port());
    let outer =
        UpstreamProxies::from_variables(|name| (name == "https_proxy").then(|| url.clone()))
            .unwrap();
    let asked = thread::spawn(move || {
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
    (outer, asked)
}

fn through(
    outer: UpstreamProxies,
    host: &DialHost,
) -> Result<DialedSocket, DialFailure<&'static str>> {
    let judge = |address: IpAddr| if address.is_loopback() { Err("guarded") } else { Ok(()) };
    Dialer { outer, ..dialer(&[("proxy.corp", &["127.0.0.1"])]) }.connect(
        host,
        443,
        &SocketOptions::default(),
        &judge,
    )
}

#[test]
fn the_proxy_of_the_network_is_the_way_out() {
    let (outer, asked) =
        outer_that_says(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0-first");
    let reached = through(outer, &name("a.example")).unwrap();
    let heard = asked.join().unwrap();
    assert_eq!(
        heard,
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n"
    );
    // What stands behind the head belongs to whoever gets the socket.
    let mut stream = TcpStream::from(reached.socket);
    stream.set_nonblocking(false).unwrap();
    let mut first = String::new();
    stream.read_to_string(&mut first).unwrap();
    assert_eq!(first, "SSH-2.0-first");
}

#[test]
fn what_the_proxy_of_the_network_says_is_told() {
    for (answer, errno, words) in [
        (b"HTTP/1.1 403 Not \x07here\r\n\r\n".as_slice(), Errno::CONNREFUSED, "403 Not here"),
        (b"HTTP/1.0 407 Who\r\n\r\n", Errno::CONNREFUSED, "password"),
        (b"HTTP/1.1 504 Slow\r\n\r\n", Errno::TIMEDOUT, "504"),
        (b"SSH-2.0-x\r\n\r\n", Errno::PROTO, "HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Errno::PROTO, "HTTP"),
        (b"HTTP/1.1 2", Errno::CONNRESET, "reset"),
    ] {
        let (outer, asked) = outer_that_says(answer);
        let failure = through(outer, &DialHost::Address("fd00::7".parse().unwrap())).unwrap_err();
        assert!(asked.join().unwrap().starts_with("CONNECT [fd00::7]:443 HTTP/1.1\r\n"));
        assert_eq!(failure.errno(), errno.raw_os_error(), "{failure}");
        assert!(failure.to_string().contains(words), "{failure}");
    }
}

#[test]
fn variables_say_which_way() {
    let outer = UpstreamProxies::from_variables(|name| match name {
        "HTTP_PROXY" => Some("http://a:1".into()),
        "all_proxy" => Some("http://b:2".into()),
        "HTTPS_PROXY" => Some(" ".into()),
        "no_proxy" => Some("direct.example".into()),
        _ => None,
    })
    .unwrap();
    let shown = |host: &str, port| outer.way_to(&name(host), port).map(|url| format!("{url:?}"));
    assert_eq!(shown("x.example", 80).as_deref(), Some("http://a:1"));
    assert_eq!(shown("x.example", 443).as_deref(), Some("http://b:2"));
    assert_eq!(shown("direct.example", 443), None);
    // What is wrong is named as it was found, and only where something would be reached by it.
    let wrong = |name: &str| (name == "all_proxy").then(|| "socks5://x".into());
    assert!(
        UpstreamProxies::from_variables(wrong).unwrap_err().to_string().starts_with("all_proxy ")
    );
    let proxies =
        |name: &str| matches!(name, "http_proxy" | "HTTPS_PROXY").then(|| "http://a:1".into());
    assert!(UpstreamProxies::from_variables(|name| wrong(name).or_else(|| proxies(name))).is_ok());
    assert!(
        UpstreamProxies::from_variables(
            |name| wrong(name).or_else(|| (name == "NO_PROXY").then(|| "a.example, *".into()))
        )
        .is_ok()
    );
}
