//! Network interfaces and sockets.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Sets the loopback interface of this network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request names an interface and lives across the call.
    super::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) })
        .map(drop)
}

/// Adds an address to the loopback interface.
pub fn add_loopback_address(address: IpAddr) -> io::Result<()> {
    // SAFETY: all of these are plain data for which all zeroes is a value.
    let (mut v4, mut v6): (libc::ifreq, libc::in6_ifreq) = unsafe { std::mem::zeroed() };
    match address {
        IpAddr::V4(address) => {
            let socket = socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
            // The old ioctl has one address per interface; further ones need an alias name.
            for (place, letter) in v4.ifr_name.iter_mut().zip(b"lo:1") {
                *place = *letter as libc::c_char;
            }
            let inside = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: both are socket addresses of the same size, as the call takes them.
            v4.ifr_ifru.ifru_addr =
                unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inside) };
            // SAFETY: the request names an interface and lives across the call.
            super::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &v4) })
                .map(drop)
        }
        IpAddr::V6(address) => {
            const LOOPBACK: i32 = 1;
            let socket = socket(libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
            v6.ifr6_addr.s6_addr = address.octets();
            v6.ifr6_prefixlen = 128;
            v6.ifr6_ifindex = LOOPBACK;
            // SAFETY: the request is the kernel's layout and lives across the call.
            super::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &v6) })
                .map(drop)
        }
    }
}

/// `socket(2)` with raw numbers.
pub fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = super::check(unsafe { libc::socket(family, kind, protocol) })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bind(2)` with a raw address.
pub fn bind_raw(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the same live buffer; the kernel copies it and checks
    // family and length itself.
    super::check(unsafe {
        libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32)
    })
    .map(drop)
}

/// `connect(2)` with a raw address.
pub fn connect_raw(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the same live buffer; the kernel copies it and checks
    // family and length itself.
    super::check(unsafe {
        libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32)
    })
    .map(drop)
}

/// Cookie of the network namespace of a socket: equal cookies mean the same namespace.
pub fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = [0; size_of::<u64>()];
    match option(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)? {
        length if length == cookie.len() => Ok(u64::from_ne_bytes(cookie)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The addresses of this machine's interfaces (`getifaddrs(3)`).
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the pointer is to a live pointer, which the call sets.
    super::check(unsafe { libc::getifaddrs(&mut first) })?;
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: the list is linked by pointers that are valid until it is freed below, each address
    // is a structure of its family, and the last pointer is null.
    unsafe {
        while !next.is_null() {
            let address = (*next).ifa_addr;
            match if address.is_null() { libc::AF_UNSPEC } else { i32::from((*address).sa_family) }
            {
                libc::AF_INET => {
                    let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                    addresses
                        .push(IpAddr::from(u32::from_be(address.sin_addr.s_addr).to_be_bytes()));
                }
                libc::AF_INET6 => addresses.push(IpAddr::from(
                    address.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr,
                )),
                _ => {}
            }
            next = (*next).ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(addresses)
}

/// `getsockopt(2)`; returns the number of bytes filled in `value`.
pub fn option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: pointer and length describe the same live buffer, of which the kernel fills at most
    // that much.
    super::check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length)
    })?;
    Ok(length as usize)
}

/// `setsockopt(2)` with a raw value.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the same live buffer; the kernel copies and checks it
    // itself.
    super::check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as u32)
    })
    .map(drop)
}
