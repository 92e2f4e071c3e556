use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ringfence_sys::net::set_option;
use rustix::net::{connect, ipproto, socket_with};

use super::*;

fn inlet() -> LoopbackInlet {
    LoopbackInlet::new(
        TcpListener::bind("127.0.0.1:0").unwrap(),
        Some(TcpListener::bind("[::1]:0").unwrap()),
    )
    .unwrap()
}

fn soon() -> DialPatience<'static> {
    DialPatience::until(Instant::now() + CONNECT_LIMIT)
}

/// A socket that never gets an answer: `IP_MINTTL` 255 drops loopback replies, which have TTL 64.
fn unanswered() -> OwnedFd {
    const IP_MINTTL: i32 = 21;
    let caller = socket(AddressFamily::INET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    set_option(caller.as_fd(), 0, IP_MINTTL, &255_i32.to_ne_bytes()).unwrap();
    caller
}

/// Waits until `caller` is connecting.
fn begun(caller: &OwnedFd) {
    while name_of(caller.as_fd()).unwrap().port() == 0 {
        thread::yield_now();
    }
}

fn socket(family: AddressFamily, flags: SocketFlags) -> OwnedFd {
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).unwrap()
}

/// Asserts that both ends belong to each other.
#[track_caller]
fn check(inlet: &LoopbackInlet, caller: OwnedFd) {
    let other = inlet.connect(caller.as_fd(), &|| true).unwrap();
    let listener_address =
        SocketAddr::try_from(rustix::net::getpeername(&caller).unwrap().unwrap()).unwrap();
    assert_eq!(connect(&caller, &listener_address), Err(Errno::ISCONN));
    let (caller, other) = (TcpStream::from(caller), TcpStream::from(other));
    assert_eq!(plain(caller.local_addr().unwrap()), plain(other.peer_addr().unwrap()));
    caller.set_nonblocking(false).unwrap();
    other.set_nonblocking(false).unwrap();
    for (from, to) in [(&caller, &other), (&other, &caller)] {
        let (mut from, mut to) = (from, to);
        from.write_all(b"word").unwrap();
        let mut received = [0; 4];
        to.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"word");
    }
}

#[test]
fn every_socket_kind_is_connected() {
    let inlet = inlet();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        for flags in [SocketFlags::CLOEXEC, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK] {
            check(&inlet, socket(family, flags));
        }
    }
    for (family, at) in [
        (AddressFamily::INET, "0.0.0.0:0"),
        (AddressFamily::INET, "127.0.0.9:0"),
        (AddressFamily::INET6, "[::]:0"),
        (AddressFamily::INET6, "[::1]:0"),
        (AddressFamily::INET6, "[::ffff:127.0.0.9]:0"),
    ] {
        let bound = socket(family, SocketFlags::CLOEXEC);
        rustix::net::bind(&bound, &at.parse::<SocketAddr>().unwrap()).unwrap();
        check(&inlet, bound);
    }
}

#[test]
fn ipv6_caller_connects_without_ipv6_listener() {
    let inlet = LoopbackInlet::new(TcpListener::bind("127.0.0.1:0").unwrap(), None).unwrap();
    check(&inlet, socket(AddressFamily::INET6, SocketFlags::CLOEXEC));
}

#[test]
fn socket_in_use_stays_unchanged() {
    let inlet = inlet();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap();
    assert_eq!(
        inlet.connect(connected.as_fd(), &|| true).unwrap_err().raw_os_error(),
        Some(Errno::ISCONN.raw_os_error())
    );
    assert_eq!(connected.peer_addr().unwrap(), elsewhere.local_addr().unwrap());
    assert_eq!(
        inlet.connect(elsewhere.as_fd(), &|| true).unwrap_err().raw_os_error(),
        Some(Errno::ISCONN.raw_os_error())
    );
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(inlet.connect(datagrams.as_fd(), &|| true).is_err());
}

#[test]
fn socket_options_and_flags_stay_unchanged() {
    let inlet = inlet();
    for flags in [SocketFlags::CLOEXEC, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK] {
        let caller = socket(AddressFamily::INET, flags);
        let before = rustix::fs::fcntl_getfl(&caller).unwrap();
        inlet.connect(caller.as_fd(), &|| true).unwrap();
        assert_eq!(rustix::fs::fcntl_getfl(&caller).unwrap(), before);
    }
}

#[test]
fn unexpected_connection_is_closed() {
    let inlet = inlet();
    let listener_address = inlet.v4.listener.local_addr().unwrap();
    let mut before = TcpStream::connect(listener_address).unwrap();
    before.write_all(b"let me in").unwrap();
    check(&inlet, socket(AddressFamily::INET, SocketFlags::CLOEXEC));
    assert!(matches!(before.read(&mut [0; 8]), Ok(0) | Err(_)));
}

#[test]
fn earlier_connection_is_not_taken_for_the_caller() {
    let inlet = inlet();
    for (inlet_listener, family) in
        [(&inlet.v4, AddressFamily::INET), (inlet.v6.as_ref().unwrap(), AddressFamily::INET6)]
    {
        let at = inlet_listener.listener.local_addr().unwrap();
        let caller = socket(family, SocketFlags::CLOEXEC);
        // They connect after the queue was emptied and before the caller.
        let mut queue = inlet_listener.queue();
        let _strangers: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(at).unwrap()).collect();
        let address = queue.expect(caller.as_fd(), at).unwrap();
        let other = inlet_listener.wait(queue, caller.as_fd(), address, &soon()).unwrap();
        assert_eq!(
            TcpStream::from(other).peer_addr().unwrap(),
            TcpStream::from(caller).local_addr().unwrap()
        );
    }
}

#[test]
fn dead_connection_with_same_address_is_not_taken() {
    let inlet = inlet();
    let listener_address = inlet.v4.listener.local_addr().unwrap();
    // It sends, resets, and leaves its port to the caller's socket.
    let gone = socket(AddressFamily::INET, SocketFlags::CLOEXEC);
    sockopt::set_socket_reuseaddr(&gone, true).unwrap();
    rustix::net::bind(&gone, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let port = name_of(gone.as_fd()).unwrap();
    rustix::net::connect(&gone, &listener_address).unwrap();
    TcpStream::from(gone.try_clone().unwrap()).write_all(b"forged").unwrap();
    sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
    drop(gone);
    let caller = socket(AddressFamily::INET, SocketFlags::CLOEXEC);
    rustix::net::bind(&caller, &port).unwrap();
    let mut queue = inlet.v4.queue();
    let address = queue.expect(caller.as_fd(), listener_address).unwrap();
    let other = inlet.v4.wait(queue, caller.as_fd(), address, &soon()).unwrap();
    TcpStream::from(caller).write_all(b"honest").unwrap();
    let mut received = [0; 6];
    let mut other = TcpStream::from(other);
    other.set_nonblocking(false).unwrap();
    other.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"honest");
}

#[test]
fn flood_of_unexpected_connections_does_not_block_callers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 16).unwrap();
    let inlet = LoopbackInlet::new(listener, None).unwrap();
    let listener_address = inlet.v4.listener.local_addr().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let connects = Arc::new(AtomicUsize::new(0));
    let flood: Vec<_> = (0..2)
        .map(|_| {
            let (done, connects) = (Arc::clone(&done), Arc::clone(&connects));
            thread::spawn(move || {
                let mut kept = std::collections::VecDeque::new();
                while !done.load(Ordering::Relaxed) {
                    let other_client =
                        socket(AddressFamily::INET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
                    let _ = rustix::net::connect(&other_client, &listener_address);
                    connects.fetch_add(1, Ordering::Relaxed);
                    kept.push_back(other_client);
                    if kept.len() > 64 {
                        let oldest = kept.pop_front().unwrap();
                        let _ = sockopt::set_socket_linger(&oldest, Some(Duration::ZERO));
                    }
                }
            })
        })
        .collect();
    // The queue is full before the first caller.
    while connects.load(Ordering::Relaxed) < 200 {
        thread::yield_now();
    }
    let mut got_in = 0;
    for _ in 0..20 {
        let caller = socket(AddressFamily::INET, SocketFlags::CLOEXEC);
        match inlet.connect(caller.as_fd(), &|| true) {
            Ok(other) => {
                let (mut caller, mut other) = (TcpStream::from(caller), TcpStream::from(other));
                assert_eq!(caller.local_addr().unwrap(), other.peer_addr().unwrap());
                other.set_nonblocking(false).unwrap();
                caller.write_all(b"mine").unwrap();
                let mut received = [0; 4];
                other.read_exact(&mut received).unwrap();
                assert_eq!(&received, b"mine");
                got_in += 1;
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error())),
        }
    }
    done.store(true, Ordering::Relaxed);
    flood.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(got_in > 0);
}

#[test]
fn connect_that_never_arrives_does_not_delay_others() {
    let inlet = inlet();
    let unanswered: Vec<OwnedFd> = (0..3).map(|_| unanswered()).collect();
    thread::scope(|scope| {
        let waiting: Vec<_> = unanswered
            .iter()
            .map(|caller| scope.spawn(|| inlet.connect(caller.as_fd(), &|| true)))
            .collect();
        unanswered.iter().take(1).for_each(begun);
        check(&inlet, socket(AddressFamily::INET, SocketFlags::CLOEXEC));
        assert!(waiting.iter().all(|thread| !thread.is_finished()), "they were waited for first");
        for thread in waiting {
            assert_eq!(
                thread.join().unwrap().unwrap_err().raw_os_error(),
                Some(Errno::TIMEDOUT.raw_os_error())
            );
        }
    });
    // The begun connect is undone.
    assert!(
        unanswered
            .iter()
            .all(|caller| name_of(caller.as_fd()).is_ok_and(|name| name.ip().is_unspecified()))
    );
    assert!(inlet.v4.queue().awaited.is_empty());
}

#[test]
fn cancelled_caller_is_not_waited_for() {
    let inlet = inlet();
    let (caller, is_there) = (unanswered(), AtomicBool::new(true));
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| inlet.connect(caller.as_fd(), &|| is_there.load(Ordering::SeqCst)));
        begun(&caller);
        is_there.store(false, Ordering::SeqCst);
        assert_eq!(
            waiting.join().unwrap().unwrap_err().raw_os_error(),
            Some(Errno::CANCELED.raw_os_error())
        );
    });
}

#[test]
fn concurrent_callers_get_their_own_ends() {
    let inlet = inlet();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                (0..50)
                    .for_each(|_| check(&inlet, socket(AddressFamily::INET, SocketFlags::CLOEXEC)))
            });
        }
    });
}
