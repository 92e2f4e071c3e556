//! Connects to the first of several addresses that answers (RFC 8305, "happy eyeballs").

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{DialPatience, SocketOptions};

/// Head start of an address before the next one is tried in parallel.
const STAGGER: Duration = Duration::from_millis(250);
/// Maximum of addresses tried: a name may have hundreds.
const MAX_ADDRESSES: usize = 12;

/// A dialed connection.
#[derive(Debug)]
pub struct DialedSocket {
    /// Connected and non-blocking.
    pub socket: OwnedFd,
    /// Peer address.
    pub peer: SocketAddr,
}

/// Connects to the first of `addresses` that answers; `Err` has the most useful error, with its
/// address.
pub(super) fn connect_first(
    addresses: &[IpAddr],
    port: u16,
    options: &SocketOptions,
    patience: &DialPatience<'_>,
) -> Result<DialedSocket, (SocketAddr, io::Error)> {
    let mut waiting: VecDeque<SocketAddr> = alternate(addresses)
        .into_iter()
        .take(MAX_ADDRESSES)
        .map(|ip| SocketAddr::new(ip, port))
        .collect();
    let first =
        waiting.front().copied().unwrap_or_else(|| SocketAddr::new(IpAddr::from([0; 4]), port));
    let mut running: Vec<DialedSocket> = Vec::new();
    let mut worst: Option<(SocketAddr, io::Error)> = None;
    let mut next = Instant::now();
    loop {
        let now = Instant::now();
        if now >= next
            && let Some(peer) = waiting.pop_front()
        {
            match start_connect(peer, options) {
                Ok(socket) => {
                    running.push(DialedSocket { socket, peer });
                    next = now + STAGGER;
                }
                Err(error) => keep_more_useful(&mut worst, peer, error),
            }
            continue;
        }
        if running.is_empty() && waiting.is_empty() {
            return Err(worst.unwrap_or_else(|| (first, Errno::ADDRNOTAVAIL.into())));
        }
        let limit =
            if waiting.is_empty() { patience.step() } else { patience.step().min(next - now) };
        let Some(index) = wait(&running, limit).map_err(|error| (first, error))? else {
            if patience.is_over() {
                // At least one address did not answer.
                return Err((
                    running.first().map_or(first, |one| one.peer),
                    Errno::TIMEDOUT.into(),
                ));
            }
            continue;
        };
        let one = running.swap_remove(index);
        match connect_result(&one.socket) {
            Ok(()) => return Ok(one),
            Err(error) => keep_more_useful(&mut worst, one.peer, error),
        }
        // A failed address does not delay the next one.
        next = now;
    }
}

/// Begins a non-blocking connect; the socket is connecting or connected.
pub(super) fn start_connect(peer: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let (socket, address) = options.create_socket(peer)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Result of a connect attempt.
pub(crate) fn connect_result(socket: &OwnedFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::socket_error(socket)??)
}

/// Waits until one of `running` has a result.
fn wait(running: &[DialedSocket], limit: Duration) -> io::Result<Option<usize>> {
    let mut polled: Vec<PollFd<'_>> =
        running.iter().map(|one| PollFd::new(&one.socket, PollFlags::OUT)).collect();
    match poll(&mut polled, Some(&timespec(limit))) {
        Ok(_) => Ok(polled.iter().position(|one| !one.revents().is_empty())),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits until `fd` is readable, or `limit` has passed.
pub(crate) fn wait_readable(fd: impl AsFd, limit: Duration) -> io::Result<bool> {
    wait_for(fd, PollFlags::IN, limit)
}

/// Waits for `what` on `fd`, until `patience` ends.
pub(crate) fn wait_with_patience(
    fd: impl AsFd,
    what: PollFlags,
    patience: &DialPatience<'_>,
) -> io::Result<bool> {
    loop {
        if wait_for(&fd, what, patience.step())? {
            return Ok(true);
        }
        if patience.is_over() {
            return Ok(false);
        }
    }
}

fn wait_for(fd: impl AsFd, what: PollFlags, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        let mut polled = [PollFd::new(&fd, what)];
        match poll(&mut polled, Some(&timespec(end.saturating_duration_since(Instant::now())))) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn timespec(limit: Duration) -> Timespec {
    // Rounded up, so that the wait does not end just before the deadline.
    let limit = limit + Duration::from_micros(1);
    Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) }
}

/// Addresses of both families in turn, IPv6 first, otherwise in the given order.
fn alternate(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let (mut v6, mut v4): (VecDeque<IpAddr>, VecDeque<IpAddr>) =
        addresses.iter().partition(|address| address.is_ipv6());
    let mut turns = Vec::new();
    while !v6.is_empty() || !v4.is_empty() {
        turns.extend(v6.pop_front());
        turns.extend(v4.pop_front());
    }
    turns
}

/// Keeps the more useful error: an answer over a timeout, and a timeout over a missing route
/// (common for IPv6).
fn keep_more_useful(
    kept: &mut Option<(SocketAddr, io::Error)>,
    peer: SocketAddr,
    error: io::Error,
) {
    let weight = |error: &io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET | Errno::ACCESS | Errno::PERM) => 4,
        Some(Errno::TIMEDOUT) => 3,
        Some(Errno::HOSTUNREACH) => 2,
        Some(Errno::NETUNREACH) => 1,
        _ => 0,
    };
    if kept.as_ref().is_none_or(|(_, before)| weight(&error) > weight(before)) {
        *kept = Some((peer, error));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// A listener with a full queue: it neither accepts nor refuses.
    fn silent(address: &str) -> (TcpListener, Vec<OwnedFd>) {
        let listener = TcpListener::bind(address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let to = listener.local_addr().unwrap();
        let full = (0..4).map(|_| start_connect(to, &SocketOptions::default()).unwrap()).collect();
        (listener, full)
    }

    #[test]
    fn address_families_alternate() {
        let given = ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]);
        assert_eq!(
            alternate(&given),
            ips(&["2001:db8::1", "10.0.0.1", "2001:db8::2", "10.0.0.2", "10.0.0.3"])
        );
    }

    #[test]
    fn answer_is_kept_over_missing_route() {
        let peer = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let mut kept = None;
        for (at, errno) in [
            ("[2001:db8::1]:1", Errno::NETUNREACH),
            ("10.0.0.1:1", Errno::CONNREFUSED),
            ("10.0.0.2:1", Errno::HOSTUNREACH),
            ("10.0.0.3:1", Errno::TIMEDOUT),
        ] {
            keep_more_useful(&mut kept, peer(at), errno.into());
        }
        let (at, error) = kept.unwrap();
        assert_eq!(
            (at, error.raw_os_error()),
            (peer("10.0.0.1:1"), Some(Errno::CONNREFUSED.raw_os_error()))
        );
    }

    #[test]
    fn refusing_address_does_not_delay_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let began = Instant::now();
        let reached = connect_first(
            &ips(&["::1", "127.0.0.2", "127.0.0.1"]),
            port,
            &SocketOptions::default(),
            &DialPatience::until(began + LONG),
        )
        .unwrap();
        assert_eq!(reached.peer, listener.local_addr().unwrap());
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    }

    #[test]
    fn silent_address_is_overtaken() {
        let (hanging, _full) = silent("127.0.0.3:0");
        let port = hanging.local_addr().unwrap().port();
        let listener = TcpListener::bind(("127.0.0.4", port)).unwrap();
        let began = Instant::now();
        let reached = connect_first(
            &ips(&["127.0.0.3", "127.0.0.4"]),
            port,
            &SocketOptions::default(),
            &DialPatience::until(began + LONG),
        )
        .unwrap();
        assert_eq!(reached.peer, listener.local_addr().unwrap());
        assert!(began.elapsed() >= STAGGER);
    }

    #[test]
    fn limit_gives_etimedout() {
        let (hanging, _full) = silent("127.0.0.5:0");
        let port = hanging.local_addr().unwrap().port();
        let end = Instant::now() + Duration::from_millis(50);
        let (at, error) = connect_first(
            &ips(&["127.0.0.5"]),
            port,
            &SocketOptions::default(),
            &DialPatience::until(end),
        )
        .unwrap_err();
        assert_eq!(
            (at, error.raw_os_error()),
            (hanging.local_addr().unwrap(), Some(Errno::TIMEDOUT.raw_os_error()))
        );
    }

    #[test]
    fn dial_stops_when_the_caller_gives_up() {
        let (hanging, _full) = silent("127.0.0.6:0");
        let port = hanging.local_addr().unwrap().port();
        let (began, looks) = (Instant::now(), std::cell::Cell::new(0));
        let is_wanted = || looks.replace(looks.get() + 1) < 2;
        let ended = connect_first(
            &ips(&["127.0.0.6"]),
            port,
            &SocketOptions::default(),
            &DialPatience::new(began + LONG, &is_wanted),
        );
        assert!(ended.is_err() && began.elapsed() < LONG, "{ended:?}");
    }

    #[test]
    fn refused_connect_keeps_its_errno() {
        // Bound and not listening, so that no other process has the port.
        let (held, _) =
            SocketOptions::default().create_socket("127.0.0.1:0".parse().unwrap()).unwrap();
        rustix::net::bind(&held, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let port = SocketAddr::try_from(rustix::net::getsockname(&held).unwrap()).unwrap().port();
        let (_, error) = connect_first(
            &ips(&["127.0.0.1"]),
            port,
            &SocketOptions::default(),
            &DialPatience::until(Instant::now() + LONG),
        )
        .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    }
}
