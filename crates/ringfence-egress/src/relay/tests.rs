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
    RelayLimits { first: Duration::from_millis(60), connecting: Duration::from_millis(60) };

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
struct Rig {
    relay: SpliceRelay,
    client: TcpStream,
    server: TcpStream,
    end: Receiver<RelayEnd>,
}

fn rig(limits: RelayLimits, check: Option<Box<dyn StreamCheck>>) -> Rig {
    let relay = SpliceRelay::start(limits).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, server, end) = through(&relay, &listener, check);
    Rig { relay, client, server, end }
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
    relay.carry(RelayPair { check, ended, ..RelayPair::new(inside.into(), outside.into()) });
    (client, server, end)
}

fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

#[track_caller]
fn hear(mut stream: &TcpStream, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, words);
}

#[track_caller]
fn say(mut stream: &TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Megabytes in which every byte is known.
fn load(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8).collect()
}

#[test]
fn the_end_of_one_direction_leaves_the_other_open() {
    let rig = rig(RelayLimits::default(), None);
    say(&rig.client, b"question");
    rig.client.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    (&rig.server).read_to_end(&mut said).unwrap();
    assert_eq!(said, b"question");
    let answer = load(3_000_000);
    say(&rig.server, &answer[..1_000_000]);
    let server = rig.server;
    let writer = thread::spawn(move || {
        say(&server, &load(3_000_000)[1_000_000..]);
        drop(server);
    });
    let mut heard = Vec::new();
    (&rig.client).read_to_end(&mut heard).unwrap();
    writer.join().unwrap();
    assert!(heard == answer, "{} bytes", heard.len());
    let end = rig.end.recv_timeout(LONG).unwrap();
    assert!(matches!(end.why, RelayEndReason::Closed), "{end:?}");
    assert_eq!((end.sent, end.received), (8, 3_000_000));
}

#[test]
fn a_reset_is_a_reset() {
    let inward = rig(RelayLimits::default(), None);
    say(&inward.server, b"x");
    hear(&inward.client, b"x");
    reset(inward.server);
    assert_eq!((&inward.client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(matches!(inward.end.recv_timeout(LONG).unwrap().why, RelayEndReason::Outside(_)));

    let outward = rig(RelayLimits::default(), None);
    say(&outward.client, b"x");
    hear(&outward.server, b"x");
    reset(outward.client);
    assert_eq!((&outward.server).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(matches!(outward.end.recv_timeout(LONG).unwrap().why, RelayEndReason::Inside(_)));
}

#[test]
fn a_reset_is_noticed_where_nothing_more_is_read() {
    let rig = rig(RelayLimits::default(), None);
    rig.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&rig.server).read(&mut [0]).unwrap(), 0);
    reset(rig.client);
    // Nobody says anything any more; it must be known all the same.
    assert!(matches!(rig.end.recv_timeout(LONG).unwrap().why, RelayEndReason::Inside(_)));
}

/// Writes to `stream` until it takes no more; how much it took.
fn stuff(stream: &TcpStream, bytes: &[u8]) -> usize {
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
fn whoever_does_not_read_is_not_written_to() {
    let rig = rig(RelayLimits::default(), None);
    let bytes = load(64 * 1024 * 1024);
    let taken = stuff(&rig.client, &bytes);
    assert!(taken < bytes.len(), "all of it was taken");
    rig.client.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    (&rig.server).read_to_end(&mut heard).unwrap();
    assert!(heard == bytes[..taken], "{} of {taken} bytes", heard.len());
}

#[test]
fn a_reset_is_noticed_where_nothing_can_be_got_rid_of() {
    let rig = rig(RelayLimits::default(), None);
    stuff(&rig.client, &load(64 * 1024 * 1024));
    reset(rig.client);
    assert!(matches!(rig.end.recv_timeout(LONG).unwrap().why, RelayEndReason::Inside(_)));
}

/// Wants lines. Those that begin with `big N` are followed by N bytes that nobody looks at.
struct Lines;

impl StreamCheck for Lines {
    fn look(&mut self, held: &[u8]) -> StreamVerdict {
        let Some(end) = held.iter().position(|byte| *byte == b'\n') else {
            return StreamVerdict::NeedMore;
        };
        match &held[..end] {
            b"pass" => StreamVerdict::Pass,
            b"finish" => StreamVerdict::Finish,
            b"bad" => StreamVerdict::Refuse(StreamObjection {
                reason: "bad words".into(),
                answer: b"no!".to_vec(),
            }),
            line => match line.strip_prefix(b"big ") {
                Some(size) => StreamVerdict::Through(
                    end as u64 + 1 + std::str::from_utf8(size).unwrap().parse::<u64>().unwrap(),
                ),
                None => StreamVerdict::Through(end as u64 + 1),
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
fn nothing_goes_out_before_it_was_looked_at() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Lines)));
    for part in [b"pa".as_slice(), b"s", b"s"] {
        say(&rig.client, part);
        hears_nothing(&rig.server);
    }
    // What comes in is nobody's business.
    say(&rig.server, b"welcome");
    hear(&rig.client, b"welcome");
    say(&rig.client, b"\nbad\nand all the rest");
    hear(&rig.server, b"pass\nbad\nand all the rest");
}

#[test]
fn what_is_said_later_is_looked_at_as_well() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Lines)));
    say(&rig.client, b"one\ntwo\nthr");
    hear(&rig.server, b"one\ntwo\n");
    hears_nothing(&rig.server);
    say(&rig.client, b"ee\n");
    hear(&rig.server, b"three\n");
    // Nobody looks at these bytes, though they look like words, and at the first after them.
    let unseen = b"bad\n".repeat(100_000);
    let client = rig.client.try_clone().unwrap();
    let writer = thread::spawn(move || {
        say(&client, b"big 400000\n");
        say(&client, &b"bad\n".repeat(100_000));
        say(&client, b"four\nbad\nfive\n");
    });
    hear(&rig.server, b"big 400000\n");
    hear(&rig.server, &unseen);
    hear(&rig.server, b"four\n");
    writer.join().unwrap();
    let mut answer = Vec::new();
    (&rig.client).read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"no!");
    drop(rig.client);
    assert_eq!((&rig.server).read(&mut [0]).unwrap(), 0);
    assert_eq!(rig.end.recv_timeout(LONG).unwrap().sent, 25 + 400_000 + 5);
}

#[test]
fn whoever_is_refused_hears_why_and_nothing_goes_out() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Lines)));
    say(&rig.client, b"bad\n");
    say(&rig.client, &load(100_000));
    let mut answer = Vec::new();
    (&rig.client).read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"no!");
    drop(rig.client);
    let end = rig.end.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&end.why, RelayEndReason::Refused(reason) if reason == "bad words"),
        "{end:?}"
    );
    assert_eq!((end.sent, end.received), (0, 0));
    assert_eq!((&rig.server).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_word_that_never_ends_is_refused() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Lines)));
    let client = rig.client;
    let writer = thread::spawn(move || {
        drop((&client).write_all(&load(1_000_000).iter().map(|byte| byte | 16).collect::<Vec<_>>()))
    });
    let end = rig.end.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&end.why, RelayEndReason::Refused(reason) if reason.contains("bytes")),
        "{end:?}"
    );
    assert_eq!(end.sent, 0);
    writer.join().unwrap();
}

#[test]
fn what_was_half_said_never_goes_out() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Lines)));
    say(&rig.client, b"half a word");
    rig.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&rig.server).read(&mut [0]).unwrap(), 0);
    say(&rig.server, b"answer");
    hear(&rig.client, b"answer");
}

#[test]
fn after_the_last_word_nothing_goes_out_and_everything_comes_in() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Lines)));
    say(&rig.client, b"one\nfinish\nmore");
    hear(&rig.server, b"one\n");
    say(&rig.client, b"and more");
    hears_nothing(&rig.server);
    say(&rig.server, b"answer");
    hear(&rig.client, b"answer");
}

/// Lets nothing out before the server has said `go`.
struct Waits(Arc<AtomicBool>);

/// Sees what the server says.
struct Hears(Arc<AtomicBool>);

impl StreamCheck for Waits {
    fn look(&mut self, _: &[u8]) -> StreamVerdict {
        if self.0.load(Ordering::Relaxed) { StreamVerdict::Pass } else { StreamVerdict::NeedMore }
    }

    fn answers(&mut self) -> Option<Box<dyn StreamCheck>> {
        Some(Box::new(Hears(Arc::clone(&self.0))))
    }
}

impl StreamCheck for Hears {
    fn look(&mut self, held: &[u8]) -> StreamVerdict {
        self.0.fetch_or(held.windows(2).any(|two| two == b"go"), Ordering::Relaxed);
        StreamVerdict::Through(held.len() as u64)
    }
}

#[test]
fn an_answer_can_be_what_is_waited_for() {
    let rig = rig(RelayLimits::default(), Some(Box::new(Waits(Arc::default()))));
    say(&rig.client, b"held");
    hears_nothing(&rig.server);
    say(&rig.server, b"wait");
    hear(&rig.client, b"wait");
    hears_nothing(&rig.server);
    say(&rig.server, b"go");
    hear(&rig.client, b"go");
    hear(&rig.server, b"held");
    let bytes = load(1_000_000);
    let (client, server) = (&rig.client, &rig.server);
    thread::scope(|scope| {
        scope.spawn(|| say(server, &bytes));
        hear(client, &bytes);
    });
}

/// A connection that becomes something else, with the reader of plain HTTP.
#[test]
fn a_web_socket_is_one_when_the_server_says_so() {
    let name = ringfence_policy::HostName::new("a.example").unwrap();
    let rig = rig(RelayLimits::default(), Some(crate::peek::checks::http(name, 80)));
    let upgrade =
        b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    say(&rig.client, upgrade);
    hear(&rig.server, upgrade);
    say(&rig.client, b"\x81\x05hello");
    hears_nothing(&rig.server);
    let agreed =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    say(&rig.server, agreed);
    hear(&rig.client, agreed);
    hear(&rig.server, b"\x81\x05hello");
}

#[test]
fn what_was_read_before_goes_first() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for check in [None, Some(Box::new(Lines) as Box<dyn StreamCheck>)] {
        let (client, inside) = ends(&listener);
        let (outside, server) = ends(&listener);
        relay.carry(RelayPair {
            said: b"early\nwo".to_vec(),
            check,
            ..RelayPair::new(inside.into(), outside.into())
        });
        hear(&server, b"early\n");
        say(&client, b"rd\n");
        hear(&server, b"word\n");
    }
}

#[test]
fn whoever_is_slow_to_say_what_it_is_is_ended() {
    let rig = rig(SHORT, Some(Box::new(Lines)));
    say(&rig.client, b"sl");
    assert!(matches!(rig.end.recv_timeout(LONG).unwrap().why, RelayEndReason::Slow));
    assert_eq!((&rig.client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn whoever_was_let_through_may_be_idle() {
    for check in [None, Some(Box::new(Lines) as Box<dyn StreamCheck>)] {
        let rig = rig(SHORT, check);
        say(&rig.client, b"one\n");
        hear(&rig.server, b"one\n");
        thread::sleep(4 * SHORT.first);
        say(&rig.client, b"two\n");
        hear(&rig.server, b"two\n");
    }
}

/// Carries between `inside` and what is being connected to at `to`.
fn connecting(limits: RelayLimits, to: SocketAddr) -> (SpliceRelay, TcpStream, Receiver<RelayEnd>) {
    let relay = SpliceRelay::start(limits).unwrap();
    let (client, inside) = ends(&TcpListener::bind("127.0.0.1:0").unwrap());
    let outside =
        Dialer::by(UpstreamProxies::default(), LONG).start(to, &SocketOptions::default()).unwrap();
    let (sender, end) = mpsc::channel();
    relay.carry(RelayPair {
        ended: Box::new(move |end| drop(sender.send(end))),
        ..RelayPair::new(inside.into(), outside)
    });
    (relay, client, end)
}

#[test]
fn the_side_outside_may_still_be_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_relay, client, _end) = connecting(RelayLimits::default(), listener.local_addr().unwrap());
    say(&client, b"early");
    let (server, _) = listener.accept().unwrap();
    hear(&server, b"early");
}

#[test]
fn nobody_there_is_a_reset_inside() {
    let (held, _) = SocketOptions::default().socket_for("127.0.0.1:0".parse().unwrap()).unwrap();
    rustix::net::bind(&held, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let nobody = SocketAddr::try_from(rustix::net::getsockname(&held).unwrap()).unwrap();
    let (_relay, client, end) = connecting(RelayLimits::default(), nobody);
    let RelayEndReason::Unreachable(error) = end.recv_timeout(LONG).unwrap().why else {
        panic!("it was reached")
    };
    assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    assert_eq!((&client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn whoever_never_answers_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let to = silent.local_addr().unwrap();
    let _full: Vec<_> = (0..4)
        .map(|_| {
            Dialer::by(UpstreamProxies::default(), LONG)
                .start(to, &SocketOptions::default())
                .unwrap()
        })
        .collect();
    let (_relay, _client, end) = connecting(SHORT, to);
    let RelayEndReason::Unreachable(error) = end.recv_timeout(LONG).unwrap().why else {
        panic!("it was reached")
    };
    assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error()));
}

#[test]
fn five_hundred_at_once() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let before = open_descriptors();
    let all: Vec<_> = (0..500).map(|_| through(&relay, &listener, None)).collect();
    let word = |index: usize| format!("connection {index};").repeat(1000).into_bytes();
    for (index, (client, server, _)) in all.iter().enumerate() {
        say(client, &word(index));
        say(server, &word(index + 500));
    }
    for (index, (client, server, _)) in all.iter().enumerate() {
        hear(server, &word(index));
        hear(client, &word(index + 500));
    }
    assert_eq!(relay.count(), 500);
    // Two ends of ours and two of theirs each, and hardly a pipe.
    let (now, most) = (open_descriptors(), before + 2000 + 40);
    assert!(now <= most, "{now} descriptors, {most} expected");
    for (client, server, end) in all {
        drop((client, server));
        assert!(matches!(end.recv_timeout(LONG).unwrap().why, RelayEndReason::Closed));
    }
    assert_eq!(relay.count(), 0);
}

#[test]
fn ten_thousand_in_a_row_leave_nothing() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut before = 0;
    for round in 0..10_000 {
        let (client, server, end) = through(
            &relay,
            &listener,
            (round % 2 == 0).then(|| Box::new(Lines) as Box<dyn StreamCheck>),
        );
        say(&client, b"word\n");
        hear(&server, b"word\n");
        // Some end in order, and some do not.
        if round % 3 == 0 {
            reset(client);
            drop(server);
        } else {
            drop((client, server));
        }
        end.recv_timeout(LONG).unwrap();
        if round == 100 {
            before = open_descriptors();
        }
    }
    let now = open_descriptors();
    assert!(now <= before + 4, "{now} descriptors, {before} before");
}

/// How often the thread that carries has gone to sleep.
fn naps() -> u64 {
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
fn idle_connections_cost_nothing() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let all: Vec<_> = (0..50).map(|_| through(&relay, &listener, None)).collect();
    for (client, server, _) in &all {
        say(client, b"x");
        hear(server, b"x");
    }
    // On a busy machine it may take a while before it has gone to sleep; then it sleeps on.
    let asleep = || {
        let before = naps();
        thread::sleep(Duration::from_millis(200));
        naps() == before
    };
    assert!((0..20).any(|_| asleep()), "it is never idle");
    let before = naps();
    say(&all[0].0, b"y");
    hear(&all[0].1, b"y");
    assert!((0..20).any(|_| !asleep() || naps() > before), "it is not that thread");
}

#[test]
fn when_it_ends_all_end() {
    let rig = rig(RelayLimits::default(), None);
    say(&rig.client, b"x");
    hear(&rig.server, b"x");
    drop(rig.relay);
    assert!(matches!(rig.end.recv().unwrap().why, RelayEndReason::Stopped));
    assert_eq!((&rig.client).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn without_descriptors_for_pipes_bytes_are_copied() {
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ((client, inside), (outside, server)) = (ends(&listener), ends(&listener));
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
    assert!(rustix::pipe::pipe().is_err());
    relay.carry(RelayPair::new(inside.into(), outside.into()));
    let bytes = load(2_000_000);
    let (client, server) = (&client, &server);
    thread::scope(|scope| {
        scope.spawn(|| say(client, &bytes));
        hear(server, &bytes);
    });
    setrlimit(Resource::Nofile, before).unwrap();
}

#[test]
fn a_broken_pipe_kills_nobody() {
    use ringfence_sys::signal::{SignalDisposition, set_disposition};
    set_disposition(rustix::process::Signal::PIPE.as_raw(), SignalDisposition::Default).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = SpliceRelay::start(RelayLimits::default()).unwrap();
    for _ in 0..50 {
        let (client, server, end) = through(&relay, &listener, None);
        // The server is gone while bytes for it are on their way.
        stuff(&client, &vec![0; 3_000_000]);
        drop(server);
        drop(client);
        end.recv_timeout(LONG).unwrap();
    }
}

#[test]
fn many_bytes_arrive_as_they_were_in_both_directions_at_once() {
    let rig = rig(RelayLimits::default(), None);
    let bytes = load(20_000_000);
    let (client, server) = (&rig.client, &rig.server);
    thread::scope(|scope| {
        scope.spawn(|| say(client, &bytes));
        scope.spawn(|| say(server, &bytes));
        scope.spawn(|| hear(client, &bytes));
        hear(server, &bytes);
    });
}

#[test]
fn closed_it_has_told_of_every_end_whoever_else_knows_it() {
    let rig = rig(RelayLimits::default(), None);
    say(&rig.client, b"word");
    hear(&rig.server, b"word");
    let relay = Arc::new(rig.relay);
    let _other = relay.clone();
    relay.close();
    let end = rig.end.try_recv().expect("told before it returned");
    assert!(matches!(end.why, RelayEndReason::Stopped) && end.sent == 4, "{end:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_client, _server, end) = through(&relay, &listener, None);
    assert!(matches!(end.try_recv().unwrap().why, RelayEndReason::Stopped));
}

#[test]
fn what_is_urgent_goes_on_in_its_place() {
    let rig = rig(RelayLimits::default(), None);
    let urgent = |stream: &TcpStream, word: &[u8]| {
        rustix::net::send(stream, word, rustix::net::SendFlags::OOB).unwrap()
    };
    for (from, to) in [(&rig.client, &rig.server), (&rig.server, &rig.client)] {
        say(from, b"abc");
        urgent(from, b"!");
        say(from, b"def");
        hear(to, b"abc!def");
        say(from, b"ghi");
        hear(to, b"ghi");
        urgent(from, b"?");
        hear(to, b"?");
        let more = load(1_000_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                urgent(from, b"1");
                say(from, &more);
                urgent(from, b"2");
                say(from, b"end");
            });
            hear(to, &[b"1", &more[..], b"2end"].concat());
        });
    }
}
