//! Copies socket options from the caller's socket to the dialed one.
//!
//! Options are copied as bytes. Defaults are not set again, since setting some options has an
//! effect of its own: a buffer with an explicit size no longer grows.

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
/// Buffers with an explicit size (Linux 5.14).
const SO_BUF_LOCK: i32 = 72;
const SNDBUF_LOCKED: i32 = 1;
const RCVBUF_LOCKED: i32 = 2;
const IPV6_V6ONLY: i32 = 26;

/// Copied options as (level, name, bytes). The type of service comes before the priority, which it
/// changes.
const COPIED_OPTIONS: &[(i32, i32, usize)] = &[
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

/// Options that affect the path: marking, and detection of a dead peer.
const PATH_OPTIONS: &[(i32, i32)] = &[
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

/// Address family of the caller's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketFamily {
    /// No caller's socket to match.
    #[default]
    Any,
    /// `AF_INET`: reaches only IPv4.
    V4,
    /// `AF_INET6`: reaches IPv4 by mapped addresses.
    V6,
}

/// Options set on a socket. The default has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// The family of the socket.
    pub family: SocketFamily,
    waiting: BlockingMode,
    set: Vec<(i32, i32, Vec<u8>)>,
}

/// Blocking mode of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockingMode {
    /// Calls block.
    #[default]
    Blocks,
    /// Calls never block (`O_NONBLOCK`).
    Never,
}

impl SocketOptions {
    /// Options of a socket of `family` with nothing set.
    pub fn for_family(family: SocketFamily) -> SocketOptions {
        SocketOptions { family, ..SocketOptions::default() }
    }

    /// Reads the options of `socket`, a TCP socket of the caller.
    pub fn from_socket(socket: BorrowedFd<'_>) -> io::Result<SocketOptions> {
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
        let plain = new_socket(family)?;
        let mut set = Vec::new();
        for (level, name, size) in COPIED_OPTIONS {
            if let Ok(value) = bytes(socket, *level, *name, *size)
                && bytes(plain.as_fd(), *level, *name, *size).ok().as_ref() != Some(&value)
            {
                set.push((*level, *name, value));
            }
        }
        for (name, lock) in [(SO_SNDBUF, SNDBUF_LOCKED), (SO_RCVBUF, RCVBUF_LOCKED)] {
            if number(socket, SOL_SOCKET, SO_BUF_LOCK)? & lock != 0 {
                // The kernel doubles the value on set and returns the doubled value.
                let requested = number(socket, SOL_SOCKET, name)? / 2;
                set.push((SOL_SOCKET, name, requested.to_ne_bytes().to_vec()));
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

    /// Only the options that affect the path: for the outside socket of a relayed connection, whose
    /// inside socket the caller keeps. It may be of any family.
    pub fn path_options(mut self) -> SocketOptions {
        self.set.retain(|(level, name, _)| PATH_OPTIONS.contains(&(*level, *name)));
        SocketOptions { family: SocketFamily::Any, waiting: BlockingMode::Never, set: self.set }
    }

    /// Blocking mode of the caller's socket.
    pub fn blocking_mode(&self) -> BlockingMode {
        self.waiting
    }

    /// A non-blocking socket with these options that can reach `to`, and the address to pass to
    /// `connect` (mapped for IPv4 on an IPv6 socket).
    ///
    /// An option that cannot be set (a congestion control reserved for root) is skipped: the caller
    /// was allowed it in its own namespace, and a connection without it is better than none.
    pub fn create_socket(&self, to: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
        let (family, address) = match (self.family, to.ip()) {
            (SocketFamily::Any | SocketFamily::V4, IpAddr::V4(_)) => (SocketFamily::V4, to),
            (SocketFamily::Any | SocketFamily::V6, IpAddr::V6(_)) => (SocketFamily::V6, to),
            (SocketFamily::V6, IpAddr::V4(address)) => {
                (SocketFamily::V6, SocketAddr::new(address.to_ipv6_mapped().into(), to.port()))
            }
            (SocketFamily::V4, IpAddr::V6(_)) => return Err(rustix::io::Errno::AFNOSUPPORT.into()),
        };
        let socket = new_socket(family)?;
        let mapped = matches!(address.ip(), IpAddr::V6(address) if is_mapped(address));
        if mapped {
            // With `net.ipv6.bindv6only` = 1 the default is 1, and mapped addresses would be
            // unreachable.
            rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        }
        for (level, name, value) in &self.set {
            if !(mapped && (*level, *name) == (IPPROTO_IPV6, IPV6_V6ONLY)) {
                let _ = set_option(socket.as_fd(), *level, *name, value);
            }
        }
        Ok((socket, address))
    }

    /// Sets the caller's blocking mode on `socket`.
    pub fn apply_blocking_mode(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
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

fn new_socket(family: SocketFamily) -> io::Result<OwnedFd> {
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
        let socket = new_socket(family).unwrap();
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
    fn options_of_the_caller_are_copied() {
        for (family, to) in [
            (SocketFamily::V4, "127.0.0.1:9"),
            (SocketFamily::V6, "[::1]:9"),
            (SocketFamily::V6, "127.0.0.1:9"),
        ] {
            let caller = caller(family);
            let (socket, _) = SocketOptions::from_socket(caller.as_fd())
                .unwrap()
                .create_socket(to.parse().unwrap())
                .unwrap();
            check_same(&caller, &socket);
            let plain = new_socket(family).unwrap();
            assert_ne!(tcp_keepidle(&plain), tcp_keepidle(&socket));
            assert_ne!(socket_recv_buffer_size(&plain), socket_recv_buffer_size(&socket));
        }
    }

    #[test]
    fn default_options_are_not_set() {
        let plain = new_socket(SocketFamily::V4).unwrap();
        let options = SocketOptions::from_socket(plain.as_fd()).unwrap();
        assert_eq!(options.set, []);
        // A buffer with an explicit size no longer grows.
        let (socket, _) = options.create_socket("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(number(socket.as_fd(), SOL_SOCKET, SO_BUF_LOCK).unwrap(), 0);
    }

    #[test]
    fn path_options_are_kept_for_the_outside_socket() {
        let caller = caller(SocketFamily::V6);
        let options = SocketOptions::from_socket(caller.as_fd()).unwrap().path_options();
        let (far, _) = options.create_socket("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(socket_domain(&far).unwrap(), AddressFamily::INET);
        assert_eq!(tcp_keepidle(&far), tcp_keepidle(&caller));
        assert_eq!(tcp_user_timeout(&far), tcp_user_timeout(&caller));
        assert_eq!(ip_tos(&far), ip_tos(&caller));
        assert_eq!(socket_linger(&far).unwrap(), None);
        assert_eq!(socket_timeout(&far, Timeout::Recv).unwrap(), None);
        assert_eq!(number(far.as_fd(), SOL_SOCKET, SO_BUF_LOCK).unwrap(), 0);
    }

    #[test]
    fn socket_family_matches_the_caller() {
        let v6 = SocketOptions::from_socket(new_socket(SocketFamily::V6).unwrap().as_fd()).unwrap();
        let (socket, address) = v6.create_socket("10.1.2.3:80".parse().unwrap()).unwrap();
        assert_eq!(socket_domain(&socket).unwrap(), AddressFamily::INET6);
        assert_eq!(address, "[::ffff:10.1.2.3]:80".parse().unwrap());
        let v4 = SocketOptions::from_socket(new_socket(SocketFamily::V4).unwrap().as_fd()).unwrap();
        assert!(v4.create_socket("[::1]:80".parse().unwrap()).is_err());
    }

    #[test]
    fn v6only_is_copied_unless_it_blocks_mapped_ipv4() {
        let caller = new_socket(SocketFamily::V6).unwrap();
        set_ipv6_v6only(&caller, true).unwrap();
        let options = SocketOptions::from_socket(caller.as_fd()).unwrap();
        assert!(ipv6_v6only(options.create_socket("[::1]:9".parse().unwrap()).unwrap().0).unwrap());
        assert!(
            !ipv6_v6only(options.create_socket("127.0.0.1:9".parse().unwrap()).unwrap().0).unwrap()
        );
    }

    #[test]
    fn blocking_mode_is_restored() {
        for waiting in [BlockingMode::Blocks, BlockingMode::Never] {
            let caller = new_socket(SocketFamily::V4).unwrap();
            SocketOptions { waiting, ..SocketOptions::default() }
                .apply_blocking_mode(caller.as_fd())
                .unwrap();
            let options = SocketOptions::from_socket(caller.as_fd()).unwrap();
            assert_eq!(options.blocking_mode(), waiting);
            let (socket, _) = options.create_socket("127.0.0.1:9".parse().unwrap()).unwrap();
            options.apply_blocking_mode(socket.as_fd()).unwrap();
            assert_eq!(
                fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK),
                waiting == BlockingMode::Never
            );
        }
    }
}
