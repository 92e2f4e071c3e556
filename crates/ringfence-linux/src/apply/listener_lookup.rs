//! Listening TCP sockets of a network namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of a request: header and `struct inet_diag_req_v2`.
const REQUEST: usize = HEADER + 56;
/// Type of the message for one socket, of requests and answers.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// True if a process listens at a port of the loopback, in the network namespace of the calling
/// thread. Asks the kernel for that one socket: `/proc/net/tcp` walks the whole hash table of the
/// machine, which takes milliseconds.
///
/// False on a kernel without `INET_TCP_DIAG`.
pub(crate) fn has_loopback_listener(port: u16) -> bool {
    has_listener(&[Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()], port)
}

/// True if a process listens at a port of one of the addresses.
pub(super) fn has_listener(addresses: &[IpAddr], port: u16) -> bool {
    let protocol = Some(netlink::SOCK_DIAG);
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol).is_ok_and(
        |kernel| addresses.iter().any(|address| find_listener(&kernel, *address, port) == Ok(true)),
    )
}

/// Asks for the socket that would accept a connection to this address.
fn find_listener(kernel: &OwnedFd, address: IpAddr, port: u16) -> Result<bool, Errno> {
    send(kernel, &request(address, port), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(kernel.as_fd(), &mut answer, RecvFlags::DONTWAIT)?;
    let kind = answer[..length].get(4..6).and_then(|kind| kind.try_into().ok());
    Ok(kind.map(u16::from_ne_bytes) == Some(SOCK_DIAG_BY_FAMILY))
}

/// A request for one TCP socket. The peer has port 0, which no connection has: only a listener
/// matches.
fn request(address: IpAddr, port: u16) -> [u8; REQUEST] {
    const NLM_F_REQUEST: u16 = 1;
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut bytes = [0; REQUEST];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(HEADER, &[family as u8, libc::IPPROTO_TCP as u8]);
    // All states.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    // `inet_diag_sockid`: own port, the peer's port, own address, the peer's address.
    put(HEADER + 8, &port.to_be_bytes());
    put(HEADER + 12, &octets);
    put(HEADER + 28, &octets);
    // `INET_DIAG_NOCOOKIE`: any socket.
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn listener_is_found_and_connection_is_not() {
        let (v4, v6) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from(Ipv6Addr::LOCALHOST));
        for (address, reached) in
            [("127.0.0.1:0", v4), ("0.0.0.0:0", v4), ("[::1]:0", v6), ("[::]:0", v6)]
        {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert!(has_loopback_listener(port), "{address}");
            let client = TcpStream::connect((reached, port)).unwrap();
            assert!(!has_loopback_listener(client.local_addr().unwrap().port()), "{address}");
            drop(listener);
            assert!(!has_loopback_listener(port), "{address}");
        }
    }

    #[test]
    fn listener_at_another_address_is_not_found() {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!has_loopback_listener(port));
        assert!(has_listener(&[IpAddr::from([127, 0, 0, 2])], port));
    }
}
