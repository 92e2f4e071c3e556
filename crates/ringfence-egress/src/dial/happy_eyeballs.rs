//! The first of several addresses that answers (RFC 8305, "happy eyeballs").

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{DialPatience, SocketOptions};

/// How long one address has before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);
/// Addresses that are tried at all: a name may have hundreds.
const TRIED: usize = 12;

/// What was reached.
#[derive(Debug)]
pub struct DialedSocket {
    /// Connected; calls on it never wait.
    pub socket: OwnedFd,
    /// Whom with.
    pub peer: SocketAddr,
}

/// Connects to whichever of `addresses` answers first; `Err` has what is the most telling of
/// what went wrong, with the address.
pub(super) fn race(
    addresses: &[IpAddr],
    port: u16,
    options: &SocketOptions,
    patience: &DialPatience<'_>,
) -> Result<DialedSocket, (SocketAddr, io::Error)> {
    let mut waiting: VecDeque<SocketAddr> =
        alternate(addresses).into_iter().take(TRIED).map(|ip| SocketAddr::new(ip, port)).collect();
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
            match start(peer, options) {
                Ok(socket) => {
                    running.push(DialedSocket { socket, peer });
                    next = now + STAGGER;
                }
                Err(error) => keep_worse(&mut worst, peer, error),
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
                // Whatever else failed, something did not answer.
                return Err((
                    running.first().map_or(first, |one| one.peer),
                    Errno::TIMEDOUT.into(),
                ));
            }
            continue;
        };
        let one = running.swap_remove(index);
        match outcome(&one.socket) {
            Ok(()) => return Ok(one),
            Err(error) => keep_worse(&mut worst, one.peer, error),
        }
        // There is no point in giving time to an address that has failed.
        next = now;
    }
}

/// Begins to connect to one address; the socket is still connecting, or connected.
pub(super) fn start(peer: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let (socket, address) = options.socket_for(peer)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// How an attempt has ended.
pub(crate) fn outcome(socket: &OwnedFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::socket_error(socket)??)
}

/// Waits for one of `running` to be decided.
fn wait(running: &[DialedSocket], limit: Duration) -> io::Result<Option<usize>> {
    let mut polled: Vec<PollFd<'_>> =
        running.iter().map(|one| PollFd::new(&one.socket, PollFlags::OUT)).collect();
    match poll(&mut polled, Some(&timespec(limit))) {
        Ok(_) => Ok(polled.iter().position(|one| !one.revents().is_empty())),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits until `fd` can be read, or `limit` has passed.
pub(crate) fn wait_readable(fd: impl AsFd, limit: Duration) -> io::Result<bool> {
    wait_for(fd, PollFlags::IN, limit)
}

/// Waits until something can be done with `fd`, as long as there is patience.
pub(crate) fn wait_patiently(
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
    // Rounded up, so that nobody looks again just before the time has come.
    let limit = limit + Duration::from_micros(1);
    Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) }
}

/// Addresses of both families in turn, beginning with IPv6, in the order given otherwise.
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

/// Keeps the error that says more: an answer says more than silence, and silence more than that
/// there was no way to begin with, as there is none for IPv6 on many hosts.
fn keep_worse(kept: &mut Option<(SocketAddr, io::Error)>, peer: SocketAddr, error: io::Error) {
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

    /// A listener whose queue is full: connecting to it is neither accepted nor refused.
    fn silent(address: &str) -> (TcpListener, Vec<OwnedFd>) {
        let listener = TcpListener::bind(address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let to = listener.local_addr().unwrap();
        let full = (0..4).map(|_| start(to, &SocketOptions::default()).unwrap()).collect();
        (listener, full)
    }

    #[test]
    fn families_take_turns() {
        let given = ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]);
        assert_eq!(
            alternate(&given),
            ips(&["2001:db8::1", "10.0.0.1", "2001:db8::2", "10.0.0.2", "10.0.0.3"])
        );
    }

    #[test]
    fn an_answer_weighs_more_than_no_way() {
        let peer = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let mut kept = None;
        for (at, errno) in [
            ("[2001:db8::1]:1", Errno::NETUNREACH),
            ("10.0.0.1:1", Errno::CONNREFUSED),
            ("10.0.0.2:1", Errno::HOSTUNREACH),
            ("10.0.0.3:1", Errno::TIMEDOUT),
        ] {
            keep_worse(&mut kept, peer(at), errno.into());
        }
        let (at, error) = kept.unwrap();
        assert_eq!(
            (at, error.raw_os_error()),
            (peer("10.0.0.1:1"), Some(Errno::CONNREFUSED.raw_os_error()))
        );
    }

    #[test]
    fn what_refuses_is_passed_over_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let began = Instant::now();
        let reached = race(
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
    fn what_is_silent_is_overtaken() {
        let (hanging, _full) = silent("127.0.0.3:0");
        let port = hanging.local_addr().unwrap().port();
        let listener = TcpListener::bind(("127.0.0.4", port)).unwrap();
        let began = Instant::now();
        let reached = race(
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
    fn the_limit_is_a_time_out() {
        let (hanging, _full) = silent("127.0.0.5:0");
        let port = hanging.local_addr().unwrap().port();
        let end = Instant::now() + Duration::from_millis(50);
        let (at, error) =
            race(&ips(&["127.0.0.5"]), port, &SocketOptions::default(), &DialPatience::until(end))
                .unwrap_err();
        assert_eq!(
            (at, error.raw_os_error()),
            (hanging.local_addr().unwrap(), Some(Errno::TIMEDOUT.raw_os_error()))
        );
    }

    #[test]
    fn nobody_goes_on_for_whoever_is_gone() {
        let (hanging, _full) = silent("127.0.0.6:0");
        let port = hanging.local_addr().unwrap().port();
        let (began, looks) = (Instant::now(), std::cell::Cell::new(0));
        let is_wanted = || looks.replace(looks.get() + 1) < 2;
        let ended = race(
            &ips(&["127.0.0.6"]),
            port,
            &SocketOptions::default(),
            &DialPatience::new(began + LONG, &is_wanted),
        );
        assert!(ended.is_err() && began.elapsed() < LONG, "{ended:?}");
    }

    #[test]
    fn a_refusal_keeps_its_number() {
        // Bound and not listening, so that nobody else has the port.
        let (held, _) =
            SocketOptions::default().socket_for("127.0.0.1:0".parse().unwrap()).unwrap();
        rustix::net::bind(&held, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let port = SocketAddr::try_from(rustix::net::getsockname(&held).unwrap()).unwrap().port();
        let (_, error) = race(
            &ips(&["127.0.0.1"]),
            port,
            &SocketOptions::default(),
            &DialPatience::until(Instant::now() + LONG),
        )
        .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    }
}
