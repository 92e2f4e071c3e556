//! What a caller had set on its socket, to be set on the one it gets.
//!
//! Options are copied as bytes: their meaning is the kernel's. What a new socket has by itself
//! is not set again, since setting some of them has an effect of its own: a buffer that was
//! given a size no longer grows.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_sys::net::{option, set_option};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

const SOL_SOCKET: i32 = 1;
const IPPROTO_IP: i32 = 0;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_IPV6: i32 = 41;

const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const SO_DOMAIN: i32 = 39;
/// Which buffers were given a size (Linux 5.14).
const SO_BUF_LOCK: i32 = 72;
const SNDBUF_LOCKED: i32 = 1;
const RCVBUF_LOCKED: i32 = 2;
const IPV6_V6ONLY: i32 = 26;

/// The options that are carried over, as (level, name, bytes). The type of service comes before
/// the priority, which it changes.
const CARRIED: &[(i32, i32, usize)] = &[
    (IPPROTO_IP, 1, 4),    // IP_TOS
    (IPPROTO_IP, 2, 4),    // IP_TTL
    (IPPROTO_IPV6, 67, 4), // IPV6_TCLASS
    (IPPROTO_IPV6, 16, 4), // IPV6_UNICAST_HOPS
    (SOL_SOCKET, 9, 4),    // SO_KEEPALIVE
    (SOL_SOCKET, 10, 4),   // SO_OOBINLINE
    (SOL_SOCKET, 12, 4),   // SO_PRIORITY
    (SOL_SOCKET, 13, 8),   // SO_LINGER
    (SOL_SOCKET, 18, 4),   // SO_RCVLOWAT
    (SOL_SOCKET, 20, 16),  // SO_RCVTIMEO
    (SOL_SOCKET, 21, 16),  // SO_SNDTIMEO
    (IPPROTO_TCP, 1, 4),   // TCP_NODELAY
    (IPPROTO_TCP, 2, 4),   // TCP_MAXSEG
    (IPPROTO_TCP, 3, 4),   // TCP_CORK
    (IPPROTO_TCP, 4, 4),   // TCP_KEEPIDLE
    (IPPROTO_TCP, 5, 4),   // TCP_KEEPINTVL
    (IPPROTO_TCP, 6, 4),   // TCP_KEEPCNT
    (IPPROTO_TCP, 7, 4),   // TCP_SYNCNT
    (IPPROTO_TCP, 13, 16), // TCP_CONGESTION
    (IPPROTO_TCP, 18, 4),  // TCP_USER_TIMEOUT
    (IPPROTO_TCP, 25, 4),  // TCP_NOTSENT_LOWAT
];

/// Those that mean the way: how it is marked, and how it is noticed that nobody is there any more.
const OF_THE_WAY: &[(i32, i32)] = &[
    (IPPROTO_IP, 1),
    (IPPROTO_IPV6, 67),
    (SOL_SOCKET, 9),
    (SOL_SOCKET, 12),
    (IPPROTO_TCP, 4),
    (IPPROTO_TCP, 5),
    (IPPROTO_TCP, 6),
    (IPPROTO_TCP, 7),
    (IPPROTO_TCP, 13),
    (IPPROTO_TCP, 18),
];

/// Which addresses a caller's socket knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketFamily {
    /// There is no caller's socket to be like.
    #[default]
    Any,
    /// `AF_INET`: nothing but IPv4 can be reached with it.
    V4,
    /// `AF_INET6`: IPv4 is reached by addresses that are mapped into IPv6.
    V6,
}

/// What was set on a socket. The default is a socket on which nothing was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// The family of the socket.
    pub family: SocketFamily,
    waiting: BlockingMode,
    set: Vec<(i32, i32, Vec<u8>)>,
}

/// Whether calls on a socket wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockingMode {
    /// They wait.
    #[default]
    Blocks,
    /// They never do (`O_NONBLOCK`).
    Never,
}

impl SocketOptions {
    /// Those of a socket of `family` on which nothing was set.
    pub fn like(family: SocketFamily) -> SocketOptions {
        SocketOptions { family, ..SocketOptions::default() }
    }

    /// Reads what is set on `socket`, which is a TCP socket of somebody's.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<SocketOptions> {
        let family = match AddressFamily::from_raw(number(socket, SOL_SOCKET, SO_DOMAIN)? as u16) {
            AddressFamily::INET => SocketFamily::V4,
            AddressFamily::INET6 => SocketFamily::V6,
            _ => return Err(io::Error::from(rustix::io::Errno::AFNOSUPPORT)),
        };
        let waiting = if fcntl_getfl(socket)?.contains(OFlags::NONBLOCK) {
            BlockingMode::Never
        } else {
            BlockingMode::Blocks
        };
        let plain = bare(family)?;
        let mut set = Vec::new();
        for (level, name, size) in CARRIED {
            if let Ok(value) = bytes(socket, *level, *name, *size)
                && bytes(plain.as_fd(), *level, *name, *size).ok().as_ref() != Some(&value)
            {
                set.push((*level, *name, value));
            }
        }
        for (name, lock) in [(SO_SNDBUF, SNDBUF_LOCKED), (SO_RCVBUF, RCVBUF_LOCKED)] {
            if number(socket, SOL_SOCKET, SO_BUF_LOCK)? & lock != 0 {
                // The kernel doubles what it is told and answers with the double.
                let told = number(socket, SOL_SOCKET, name)? / 2;
                set.push((SOL_SOCKET, name, told.to_ne_bytes().to_vec()));
            }
        }
        if family == SocketFamily::V6
            && number(socket, IPPROTO_IPV6, IPV6_V6ONLY)?
                != number(plain.as_fd(), IPPROTO_IPV6, IPV6_V6ONLY)?
        {
            set.push((IPPROTO_IPV6, IPV6_V6ONLY, bytes(socket, IPPROTO_IPV6, IPV6_V6ONLY, 4)?));
        }
        Ok(SocketOptions { family, waiting, set })
    }

    /// Those of them that mean the way and not the socket: for the far side of a connection that
    /// is carried, whose near side the caller keeps. It may be of any family.
    pub fn for_the_way(mut self) -> SocketOptions {
        self.set.retain(|(level, name, _)| OF_THE_WAY.contains(&(*level, *name)));
        SocketOptions { family: SocketFamily::Any, waiting: BlockingMode::Never, set: self.set }
    }

    /// Whether calls on the socket wait.
    pub fn waiting(&self) -> BlockingMode {
        self.waiting
    }

    /// A socket that never waits and can reach `to`, with these options, and the address to name
    /// in the call: for a socket of IPv6, one of IPv4 is mapped.
    ///
    /// An option that cannot be set here (a congestion control that only the superuser may
    /// choose) is left out: the caller was allowed it in a namespace of its own, and a connection
    /// without it is worth more to it than none.
    pub fn socket_for(&self, to: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
        let (family, address) = match (self.family, to.ip()) {
            (SocketFamily::Any | SocketFamily::V4, IpAddr::V4(_)) => (SocketFamily::V4, to),
            (SocketFamily::Any | SocketFamily::V6, IpAddr::V6(_)) => (SocketFamily::V6, to),
            (SocketFamily::V6, IpAddr::V4(address)) => {
                (SocketFamily::V6, SocketAddr::new(address.to_ipv6_mapped().into(), to.port()))
            }
            (SocketFamily::V4, IpAddr::V6(_)) => return Err(rustix::io::Errno::AFNOSUPPORT.into()),
        };
        let socket = bare(family)?;
        let mapped = matches!(address.ip(), IpAddr::V6(address) if is_mapped(address));
        if mapped {
            // The host's default may be 1 (`net.ipv6.bindv6only`), and then nothing mapped is
            // reached.
            rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        }
        for (level, name, value) in &self.set {
            if !(mapped && (*level, *name) == (IPPROTO_IPV6, IPV6_V6ONLY)) {
                let _ = set_option(socket.as_fd(), *level, *name, value);
            }
        }
        Ok((socket, address))
    }

    /// Makes calls on `socket` wait, or not, as they did on the caller's.
    pub fn finish(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let flags = fcntl_getfl(socket)?;
        let wanted = match self.waiting {
            BlockingMode::Blocks => flags - OFlags::NONBLOCK,
            BlockingMode::Never => flags | OFlags::NONBLOCK,
        };
        Ok(fcntl_setfl(socket, wanted)?)
    }
}

fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

fn bare(family: SocketFamily) -> io::Result<OwnedFd> {
    let family =
        if family == SocketFamily::V6 { AddressFamily::INET6 } else { AddressFamily::INET };
    Ok(socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?)
}

fn bytes(socket: BorrowedFd<'_>, level: i32, name: i32, size: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0; size];
    let length = option(socket, level, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

fn number(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = [0; 4];
    option(socket, level, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::net::sockopt::*;

    use super::*;

    fn caller(family: SocketFamily) -> OwnedFd {
        let socket = bare(family).unwrap();
        set_socket_keepalive(&socket, true).unwrap();
        set_tcp_nodelay(&socket, true).unwrap();
        set_tcp_keepidle(&socket, Duration::from_secs(17)).unwrap();
        set_tcp_keepintvl(&socket, Duration::from_secs(3)).unwrap();
        set_tcp_keepcnt(&socket, 4).unwrap();
        set_tcp_user_timeout(&socket, 4321).unwrap();
        set_socket_recv_buffer_size(&socket, 30_000).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(1500))).unwrap();
        set_socket_linger(&socket, Some(Duration::from_secs(2))).unwrap();
        set_socket_oobinline(&socket, true).unwrap();
        set_ip_tos(&socket, 0x10).unwrap();
        socket
    }

    #[track_caller]
    fn check_same(a: &OwnedFd, b: &OwnedFd) {
        assert_eq!(socket_keepalive(a), socket_keepalive(b));
        assert_eq!(tcp_nodelay(a), tcp_nodelay(b));
        assert_eq!(tcp_keepidle(a), tcp_keepidle(b));
        assert_eq!(tcp_keepintvl(a), tcp_keepintvl(b));
        assert_eq!(tcp_keepcnt(a), tcp_keepcnt(b));
        assert_eq!(tcp_user_timeout(a), tcp_user_timeout(b));
        assert_eq!(socket_recv_buffer_size(a), socket_recv_buffer_size(b));
        assert_eq!(socket_send_buffer_size(a), socket_send_buffer_size(b));
        assert_eq!(socket_timeout(a, Timeout::Recv), socket_timeout(b, Timeout::Recv));
        assert_eq!(socket_timeout(a, Timeout::Send), socket_timeout(b, Timeout::Send));
        assert_eq!(socket_linger(a), socket_linger(b));
        assert_eq!(socket_oobinline(a), socket_oobinline(b));
        assert_eq!(ip_tos(a), ip_tos(b));
        for name in [SO_BUF_LOCK, 12] {
            assert_eq!(
                number(a.as_fd(), SOL_SOCKET, name).unwrap(),
                number(b.as_fd(), SOL_SOCKET, name).unwrap()
            );
        }
    }

    #[test]
    fn what_the_caller_set_is_set() {
        for (family, to) in [
            (SocketFamily::V4, "127.0.0.1:9"),
            (SocketFamily::V6, "[::1]:9"),
            (SocketFamily::V6, "127.0.0.1:9"),
        ] {
            let caller = caller(family);
            let (socket, _) =
                SocketOptions::of(caller.as_fd()).unwrap().socket_for(to.parse().unwrap()).unwrap();
            check_same(&caller, &socket);
            let plain = bare(family).unwrap();
            assert_ne!(tcp_keepidle(&plain), tcp_keepidle(&socket));
            assert_ne!(socket_recv_buffer_size(&plain), socket_recv_buffer_size(&socket));
        }
    }

    #[test]
    fn what_nobody_set_is_left_alone() {
        let plain = bare(SocketFamily::V4).unwrap();
        let options = SocketOptions::of(plain.as_fd()).unwrap();
        assert_eq!(options.set, []);
        // A buffer that was given a size no longer grows.
        let (socket, _) = options.socket_for("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(number(socket.as_fd(), SOL_SOCKET, SO_BUF_LOCK).unwrap(), 0);
    }

    #[test]
    fn what_means_the_way_holds_for_the_far_side() {
        let caller = caller(SocketFamily::V6);
        let options = SocketOptions::of(caller.as_fd()).unwrap().for_the_way();
        let (far, _) = options.socket_for("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(socket_domain(&far).unwrap(), AddressFamily::INET);
        assert_eq!(tcp_keepidle(&far), tcp_keepidle(&caller));
        assert_eq!(tcp_user_timeout(&far), tcp_user_timeout(&caller));
        assert_eq!(ip_tos(&far), ip_tos(&caller));
        assert_eq!(socket_linger(&far).unwrap(), None);
        assert_eq!(socket_timeout(&far, Timeout::Recv).unwrap(), None);
        assert_eq!(number(far.as_fd(), SOL_SOCKET, SO_BUF_LOCK).unwrap(), 0);
    }

    #[test]
    fn the_family_is_the_callers() {
        let v6 = SocketOptions::of(bare(SocketFamily::V6).unwrap().as_fd()).unwrap();
        let (socket, address) = v6.socket_for("10.1.2.3:80".parse().unwrap()).unwrap();
        assert_eq!(socket_domain(&socket).unwrap(), AddressFamily::INET6);
        assert_eq!(address, "[::ffff:10.1.2.3]:80".parse().unwrap());
        let v4 = SocketOptions::of(bare(SocketFamily::V4).unwrap().as_fd()).unwrap();
        assert!(v4.socket_for("[::1]:80".parse().unwrap()).is_err());
    }

    #[test]
    fn only_v6_holds_but_where_it_would_shut_the_way() {
        let caller = bare(SocketFamily::V6).unwrap();
        set_ipv6_v6only(&caller, true).unwrap();
        let options = SocketOptions::of(caller.as_fd()).unwrap();
        assert!(ipv6_v6only(options.socket_for("[::1]:9".parse().unwrap()).unwrap().0).unwrap());
        assert!(
            !ipv6_v6only(options.socket_for("127.0.0.1:9".parse().unwrap()).unwrap().0).unwrap()
        );
    }

    #[test]
    fn waiting_is_as_it_was() {
        for waiting in [BlockingMode::Blocks, BlockingMode::Never] {
            let caller = bare(SocketFamily::V4).unwrap();
            SocketOptions { waiting, ..SocketOptions::default() }.finish(caller.as_fd()).unwrap();
            let options = SocketOptions::of(caller.as_fd()).unwrap();
            assert_eq!(options.waiting(), waiting);
            let (socket, _) = options.socket_for("127.0.0.1:9".parse().unwrap()).unwrap();
            options.finish(socket.as_fd()).unwrap();
            assert_eq!(
                fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK),
                waiting == BlockingMode::Never
            );
        }
    }
}
