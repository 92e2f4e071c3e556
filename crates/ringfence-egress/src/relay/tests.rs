use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::dial::{Dialer, SocketOptions, UpstreamProxies};

const LONG: Duration = Duration::from_secs(30);
const SHORT: RelayLimits =
    RelayLimits { first_bytes: Duration::from_millis(60), connecting: Duration::from_millis(60) };

/// Two ends of a connection on loopback.
fn ends(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(LONG)).unwrap();
        end.set_write_timeout(Some(LONG)).unwrap();
    }
    (near, far)
}

/// A relay and one connection through it.
struct RelayFixture {
    relay: SpliceRelay,
    client: TcpStream,
    server: TcpStream,
    end: Receiver<RelayEnd>,
}

fn rig(limits: RelayLimits, check: Option<Box<dyn StreamCheck>>) -> RelayFixture {
    let relay = SpliceRelay::start(limits).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, server, end) = through(&relay, &listener, check);
    RelayFixture { relay, client, server, end }
}

fn through(
    relay: &SpliceRelay,
    listener: &TcpListener,
    check: Option<Box<dyn StreamCheck>>,
) -> (TcpStream, TcpStream, Receiver<RelayEnd>) {
    let (client, inside) = ends(listener);
    let (outside, server) = ends(listener);
    let (sender, end) = mpsc::channel();
    let ended = Box::new(move |end| drop(sender.send(end)));
    relay.relay(RelayPair {
        check,
        on_end: ended,
        ..RelayPair::new(inside.into(), outside.into())
    });
    (client, server, end)
}

fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

#[track_caller]
fn expect_bytes(mut stream: &TcpStream, bytes: &[u8]) {
    let mut heard = vec![0; bytes.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, bytes);
}

#[track_caller]
fn send_all(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

fn open_fds() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes with a known pattern.
fn load(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8).collect()
}

#[test]
fn half_close_leaves_the_other_direction_open() {
    let rig = rig(RelayLimits::default(), None);
    send_all(&rig.client, b"question");
    rig.client.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    (&rig.server).read_to_end(&mut received).unwrap();
    assert_eq!(received, b"question");
    let answer = load(3_000_000);
    send_all(&rig.server, &answer[..1_000_000]);
    let server = rig.server;
    let writer = thread::spawn(move || {
        send_all(&server, &load(3_000_000)[1_000_000..]);
        drop(server);
    });
    let mut heard = Vec::new();
    (&rig.client).read_to_end(&mut heard).unwrap();
    writer.join().unwrap();
    assert!(heard == answer, "{} bytes", heard.len());
    let end = rig.end.recv_timeout(LONG).unwrap();
    assert!(matches!(end.reason, RelayEndReason::Closed), "{end:?}");
    assert_eq!((end.sent, end.received), (8, 3_000_000));
}

#[test]
fn reset_is_passed_on_as_reset() {
    let inward = rig(RelayLimits::default(), None);
    send_all(&inward.server, b"x");
    expect_bytes(&inward.client, b"x");
    reset(inward.server);
    assert_eq!((&inward.client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(matches!(inward.end.recv_timeout(LONG).unwrap().reason, RelayEndReason::Outside(_)));

    let outward = rig(RelayLimits::default(), None);
    send_all(&outward.client, b"x");
    expect_bytes(&outward.server, b"x");
    reset(outward.client);
    assert_eq!((&outward.server).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(matches!(outward.end.recv_timeout(LONG).unwrap().reason, RelayEndReason::Inside(_)));
}

#[test]
fn reset_is_noticed_after_half_close() {
    let rig = rig(RelayLimits::default(), None);
    rig.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&rig.server).read(&mut [0]).unwrap(), 0);
    reset(rig.client);
    // Neither side sends any more; the reset must be noticed all the same.
    assert!(matches!(rig.end.recv_timeout(LONG).unwrap().reason, RelayEndReason::Inside(_)));
}

/// Writes to `stream` until it takes no more; returns the count.
fn fill(stream: &TcpStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut taken, mut idle) = (0, 0);
    while idle < 50 && taken < bytes.len() {
        match (&mut &*stream).write(&bytes[taken..]) {
            Ok(count) => (taken, idle) = (taken + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(2));
                idle += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    taken
}

#[test]
fn backpressure_reaches_the_sender() {
    let rig = rig(RelayLimits::default(), None);
    let bytes = load(64 * 1024 * 1024);
    let taken = fill(&rig.client, &bytes);
    assert!(taken < bytes.len(), "all of it was taken");
    rig.client.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    (&rig.server).read_to_end(&mut heard).unwrap();
    assert!(heard == bytes[..taken], "{} of {taken} bytes", heard.len());
}

#[test]
fn reset_is_noticed_while_the_target_is_full() {
    let rig = rig(RelayLimits::default(), None);
    fill(&rig.client, &load(64 * 1024 * 1024));
    reset(rig.client);
    assert!(matches!(rig.end.recv_timeout(LONG).unwrap().reason, RelayEndReason::Inside(_)));
}

/// Expects lines. A line `big N` is followed by N unchecked bytes.
struct RelayLines;

impl StreamCheck for RelayLines {
    fn check(&mut self, held: &[u8]) -> StreamVerdict {
        let Some(end) = held.iter().position(|byte| *byte == b'\n') else {
            return StreamVerdict::NeedMore;
        };
        match &held[..end] {
            b"pass" => StreamVerdict::Pass,
            b"finish" => StreamVerdict::DropRest,
            b"bad" => StreamVerdict::Refuse(StreamObjection {
                reason: "bad bytes".into(),
                answer: b"no!".to_vec(),
            }),
            line => match line.strip_prefix(b"big ") {
                Some(size) => StreamVerdict::PassBytes(
                    end as u64 + 1 + std::str::from_utf8(size).unwrap().parse::<u64>().unwrap(),
                ),
                None => StreamVerdict::PassBytes(end as u64 + 1),
            },
        }
    }
}

#[track_caller]
fn hears_nothing(mut stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    thread::sleep(Duration::from_millis(30));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn nothing_is_sent_before_the_check() {
    let rig = rig(RelayLimits::default(), Some(Box::new(RelayLines)));
    for part in [b"pa".as_slice(), b"s", b"s"] {
        send_all(&rig.client, part);
        hears_nothing(&rig.server);
    }
    // Inward bytes are not checked.
    send_all(&rig.server, b"welcome");
    expect_bytes(&rig.client, b"welcome");
    send_all(&rig.client, b"\nbad\nand all the rest");
    expect_bytes(&rig.server, b"pass\nbad\nand all the rest");
}

#[test]
fn later_bytes_are_checked_as_well() {
    let rig = rig(RelayLimits::default(), Some(Box::new(RelayLines)));
    send_all(&rig.client, b"one\ntwo\nthr");
    expect_bytes(&rig.server, b"one\ntwo\n");
    hears_nothing(&rig.server);
    send_all(&rig.client, b"ee\n");
    expect_bytes(&rig.server, b"three\n");
    // These bytes pass unchecked although they look like bad lines; the first byte after them is
    // checked.
    let unseen = b"bad\n".repeat(100_000);
    let client = rig.client.try_clone().unwrap();
    let writer = thread::spawn(move || {
        send_all(&client, b"big 400000\n");
        send_all(&client, &b"bad\n".repeat(100_000));
        send_all(&client, b"four\nbad\nfive\n");
    });
    expect_bytes(&rig.server, b"big 400000\n");
    expect_bytes(&rig.server, &unseen);
    expect_bytes(&rig.server, b"four\n");
    writer.join().unwrap();
    let mut answer = Vec::new();
    (&rig.client).read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"no!");
    drop(rig.client);
    assert_eq!((&rig.server).read(&mut [0]).unwrap(), 0);
    assert_eq!(rig.end.recv_timeout(LONG).unwrap().sent, 25 + 400_000 + 5);
}

#[test]
fn refused_program_gets_the_reason_and_nothing_is_sent() {
    let rig = rig(RelayLimits::default(), Some(Box::new(RelayLines)));
    send_all(&rig.client, b"bad\n");
    send_all(&rig.client, &load(100_000));
    let mut answer = Vec::new();
    (&rig.client).read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"no!");
    drop(rig.client);
    let end = rig.end.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&end.reason, RelayEndReason::Refused(reason) if reason == "bad bytes"),
        "{end:?}"
    );
    assert_eq!((end.sent, end.received), (0, 0));
    assert_eq!((&rig.server).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn undecidable_bytes_are_refused_at_the_limit() {
    let rig = rig(RelayLimits::default(), Some(Box::new(RelayLines)));
    let client = rig.client;
    let writer = thread::spawn(move || {
        drop((&client).write_all(&load(1_000_000).iter().map(|byte| byte | 16).collect::<Vec<_>>()))
    });
    let end = rig.end.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&end.reason, RelayEndReason::Refused(reason) if reason.contains("bytes")),
        "{end:?}"
    );
    assert_eq!(end.sent, 0);
    writer.join().unwrap();
}

#[test]
fn undecided_bytes_are_not_sent_at_eof() {
    let rig = rig(RelayLimits::default(), Some(Box::new(RelayLines)));
    send_all(&rig.client, b"half a word");
    rig.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&rig.server).read(&mut [0]).unwrap(), 0);
    send_all(&rig.server, b"answer");
    expect_bytes(&rig.client, b"answer");
}

#[test]
fn finished_direction_drops_bytes_and_the_other_goes_on() {
    let rig = rig(RelayLimits::default(), Some(Box::new(RelayLines)));
    send_all(&rig.client, b"one\nfinish\nmore");
    expect_bytes(&rig.server, b"one\n");
    send_all(&rig.client, b"and more");
    hears_nothing(&rig.server);
    send_all(&rig.server, b"answer");
    expect_bytes(&rig.client, b"answer");
}

/// Holds everything until the server has sent `go`.
struct WaitsForGo(Arc<AtomicBool>);

/// Checks the server's bytes.
struct DetectsGo(Arc<AtomicBool>);

impl StreamCheck for WaitsForGo {
    fn check(&mut self, _: &[u8]) -> StreamVerdict {
        if self.0.load(Ordering::Relaxed) { StreamVerdict::Pass } else { StreamVerdict::NeedMore }
    }

    fn opposite_check(&mut self) -> Option<Box<dyn StreamCheck>> {
        Some(Box::new(DetectsGo(Arc::clone(&self.0))))
    }
}

impl StreamCheck for DetectsGo {
    fn check(&mut self, held: &[u8]) -> StreamVerdict {
        self.0.fetch_or(held.windows(2).any(|two| two == b"go"), Ordering::Relaxed);
        StreamVerdict::PassBytes(held.len() as u64)
    }
}

#[test]
fn held_bytes_are_checked_again_after_an_answer() {
    let rig = rig(RelayLimits::default(), Some(Box::new(WaitsForGo(Arc::default()))));
    send_all(&rig.client, b"held");
    hears_nothing(&rig.server);
    send_all(&rig.server, b"wait");
    expect_bytes(&rig.client, b"wait");
    hears_nothing(&rig.server);
    send_all(&rig.server, b"go");
    expect_bytes(&rig.client, b"go");
    expect_bytes(&rig.server, b"held");
    let bytes = load(1_000_000);
    let (client, server) = (&rig.client, &rig.server);
    thread::scope(|scope| {
        scope.spawn(|| send_all(server, &bytes));
        expect_bytes(client, &bytes);
    });
}

/// An upgraded connection, with the reader for plain HTTP.
#[test]
fn websocket_passes_once_the_server_agrees() {
    let name = ringfence_policy::HostName::new("a.example").unwrap();
    let rig = rig(RelayLimits::default(), Some(crate::peek::checks::http(name, 80)));
    let upgrade =
        b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    send_all(&rig.client, upgrade);
    expect_bytes(&rig.server, upgrade);
    send_all(&rig.client, b"\x81\x05hello");
    hears_nothing(&rig.server);
    let agreed =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    send_all(&rig.server, agreed);
    expect_bytes(&rig.client, agreed);
    expect_bytes(&rig.server, b"\x81\x05hello");
}

#[test]
fn early_bytes_are_sent_first() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for check in [None, Some(Box::new(RelayLines) as Box<dyn StreamCheck>)] {
        let (client, inside) = ends(&listener);
        let (outside, server) = ends(&listener);
        relay.relay(RelayPair {
            early_bytes: b"early\nwo".to_vec(),
            check,
            ..RelayPair::new(inside.into(), outside.into())
        });
        expect_bytes(&server, b"early\n");
        send_all(&client, b"rd\n");
        expect_bytes(&server, b"word\n");
    }
}

#[test]
fn slow_first_bytes_end_the_connection() {
    let rig = rig(SHORT, Some(Box::new(RelayLines)));
    send_all(&rig.client, b"sl");
    assert!(matches!(rig.end.recv_timeout(LONG).unwrap().reason, RelayEndReason::Slow));
    assert_eq!((&rig.client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn checked_connection_may_be_idle() {
    for check in [None, Some(Box::new(RelayLines) as Box<dyn StreamCheck>)] {
        let rig = rig(SHORT, check);
        send_all(&rig.client, b"one\n");
        expect_bytes(&rig.server, b"one\n");
        thread::sleep(4 * SHORT.first_bytes);
        send_all(&rig.client, b"two\n");
        expect_bytes(&rig.server, b"two\n");
    }
}

/// Relays between `inside` and a socket that is connecting to `to`.
fn connecting(limits: RelayLimits, to: SocketAddr) -> (SpliceRelay, TcpStream, Receiver<RelayEnd>) {
    let relay = SpliceRelay::start(limits).unwrap();
    let (client, inside) = ends(&TcpListener::bind("127.0.0.1:0").unwrap());
    let outside =
        Dialer::new(UpstreamProxies::default(), LONG).start(to, &SocketOptions::default()).unwrap();
    let (sender, end) = mpsc::channel();
    relay.relay(RelayPair {
        on_end: Box::new(move |end| drop(sender.send(end))),
        ..RelayPair::new(inside.into(), outside)
    });
    (relay, client, end)
}

#[test]
fn outside_socket_may_still_be_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_relay, client, _end) = connecting(RelayLimits::default(), listener.local_addr().unwrap());
    send_all(&client, b"early");
    let (server, _) = listener.accept().unwrap();
    expect_bytes(&server, b"early");
}

#[test]
fn refused_connect_is_a_reset_inside() {
    let (held, _) = SocketOptions::default().create_socket("127.0.0.1:0".parse().unwrap()).unwrap();
    rustix::net::bind(&held, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let closed_port = SocketAddr::try_from(rustix::net::getsockname(&held).unwrap()).unwrap();
    let (_relay, client, end) = connecting(RelayLimits::default(), closed_port);
    let RelayEndReason::Unreachable(error) = end.recv_timeout(LONG).unwrap().reason else {
        panic!("it was reached")
    };
    assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    assert_eq!((&client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn connect_timeout_ends_the_connection() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let to = silent.local_addr().unwrap();
    let _full: Vec<_> = (0..4)
        .map(|_| {
            Dialer::new(UpstreamProxies::default(), LONG)
                .start(to, &SocketOptions::default())
                .unwrap()
        })
        .collect();
    let (_relay, _client, end) = connecting(SHORT, to);
    let RelayEndReason::Unreachable(error) = end.recv_timeout(LONG).unwrap().reason else {
        panic!("it was reached")
    };
    assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error()));
}

#[test]
fn five_hundred_connections_share_few_pipes() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let before = open_fds();
    let all: Vec<_> = (0..500).map(|_| through(&relay, &listener, None)).collect();
    let word = |index: usize| format!("connection {index};").repeat(1000).into_bytes();
    for (index, (client, server, _)) in all.iter().enumerate() {
        send_all(client, &word(index));
        send_all(server, &word(index + 500));
    }
    for (index, (client, server, _)) in all.iter().enumerate() {
        expect_bytes(server, &word(index));
        expect_bytes(client, &word(index + 500));
    }
    assert_eq!(relay.open_connections(), 500);
    // Two fds of the test and two of the relay each, and hardly a pipe.
    let (now, most) = (open_fds(), before + 2000 + 40);
    assert!(now <= most, "{now} descriptors, {most} expected");
    for (client, server, end) in all {
        drop((client, server));
        assert!(matches!(end.recv_timeout(LONG).unwrap().reason, RelayEndReason::Closed));
    }
    assert_eq!(relay.open_connections(), 0);
}

#[test]
fn ten_thousand_connections_leak_no_fd() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut before = 0;
    for round in 0..10_000 {
        let (client, server, end) = through(
            &relay,
            &listener,
            (round % 2 == 0).then(|| Box::new(RelayLines) as Box<dyn StreamCheck>),
        );
        send_all(&client, b"word\n");
        expect_bytes(&server, b"word\n");
        // Some end in order, and some with a reset.
        if round % 3 == 0 {
            reset(client);
            drop(server);
        } else {
            drop((client, server));
        }
        end.recv_timeout(LONG).unwrap();
        if round == 100 {
            before = open_fds();
        }
    }
    let now = open_fds();
    assert!(now <= before + 4, "{now} descriptors, {before} before");
}

/// Voluntary context switches of the relay thread.
fn voluntary_switches() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let status = tasks
        .map(|task| fs::read_to_string(task.join("status")).unwrap())
        .find(|status| status.starts_with("Name:\trelay\n"));
    let status = status.expect("there is such a thread");
    let line =
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn idle_connections_use_no_cpu() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let all: Vec<_> = (0..50).map(|_| through(&relay, &listener, None)).collect();
    for (client, server, _) in &all {
        send_all(client, b"x");
        expect_bytes(server, b"x");
    }
    // A busy machine may take a while until the thread sleeps.
    let asleep = || {
        let before = voluntary_switches();
        thread::sleep(Duration::from_millis(200));
        voluntary_switches() == before
    };
    assert!((0..20).any(|_| asleep()), "it is never idle");
    let before = voluntary_switches();
    send_all(&all[0].0, b"y");
    expect_bytes(&all[0].1, b"y");
    assert!((0..20).any(|_| !asleep() || voluntary_switches() > before), "it is not that thread");
}

#[test]
fn dropped_relay_ends_all_connections() {
    let rig = rig(RelayLimits::default(), None);
    send_all(&rig.client, b"x");
    expect_bytes(&rig.server, b"x");
    drop(rig.relay);
    assert!(matches!(rig.end.recv().unwrap().reason, RelayEndReason::Stopped));
    assert_eq!((&rig.client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn bytes_are_copied_without_fds_for_pipes() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ((client, inside), (outside, server)) = (ends(&listener), ends(&listener));
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
    assert!(rustix::pipe::pipe().is_err());
    relay.relay(RelayPair::new(inside.into(), outside.into()));
    let bytes = load(2_000_000);
    let (client, server) = (&client, &server);
    thread::scope(|scope| {
        scope.spawn(|| send_all(client, &bytes));
        expect_bytes(server, &bytes);
    });
    setrlimit(Resource::Nofile, before).unwrap();
}

#[test]
fn broken_pipe_raises_no_sigpipe() {
    use ringfence_sys::signal::{SignalDisposition, set_disposition};
    set_disposition(rustix::process::Signal::PIPE.as_raw(), SignalDisposition::Default).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    for _ in 0..50 {
        let (client, server, end) = through(&relay, &listener, None);
        // The server is gone while bytes for it are in transit.
        fill(&client, &vec![0; 3_000_000]);
        drop(server);
        drop(client);
        end.recv_timeout(LONG).unwrap();
    }
}

#[test]
fn bytes_arrive_unchanged_in_both_directions() {
    let rig = rig(RelayLimits::default(), None);
    let bytes = load(20_000_000);
    let (client, server) = (&rig.client, &rig.server);
    thread::scope(|scope| {
        scope.spawn(|| send_all(client, &bytes));
        scope.spawn(|| send_all(server, &bytes));
        scope.spawn(|| expect_bytes(client, &bytes));
        expect_bytes(server, &bytes);
    });
}

#[test]
fn close_reports_every_end_before_it_returns() {
    let rig = rig(RelayLimits::default(), None);
    send_all(&rig.client, b"word");
    expect_bytes(&rig.server, b"word");
    let relay = Arc::new(rig.relay);
    let _other = relay.clone();
    relay.close();
    let end = rig.end.try_recv().expect("reported before it returned");
    assert!(matches!(end.reason, RelayEndReason::Stopped) && end.sent == 4, "{end:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_client, _server, end) = through(&relay, &listener, None);
    assert!(matches!(end.try_recv().unwrap().reason, RelayEndReason::Stopped));
}

#[test]
fn urgent_data_stays_in_order() {
    let rig = rig(RelayLimits::default(), None);
    let urgent = |stream: &TcpStream, word: &[u8]| {
        rustix::net::send(stream, word, rustix::net::SendFlags::OOB).unwrap()
    };
    for (from, to) in [(&rig.client, &rig.server), (&rig.server, &rig.client)] {
        send_all(from, b"abc");
        urgent(from, b"!");
        send_all(from, b"def");
        expect_bytes(to, b"abc!def");
        send_all(from, b"ghi");
        expect_bytes(to, b"ghi");
        urgent(from, b"?");
        expect_bytes(to, b"?");
        let more = load(1_000_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                urgent(from, b"1");
                send_all(from, &more);
                urgent(from, b"2");
                send_all(from, b"end");
            });
            expect_bytes(to, &[b"1", &more[..], b"2end"].concat());
        });
    }
}
