//! Sockets in the sandbox's network that the launcher serves.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_plan::{Plan, Step};
use ringfence_policy::PROXY_PORT;
use ringfence_sys::net;
use serde::{Deserialize, Serialize};

use super::fd_passing::send_message_with_fds;
use super::{SandboxMessage, SetupError, SetupStep};

/// The listening sockets of a sandbox with egress (`NetworkRules::needs_egress`). All are on the
/// sandbox's own loopback.
#[derive(Debug)]
pub(crate) struct NetnsListeners {
    /// DNS over UDP.
    pub names: UdpSocket,
    /// DNS over TCP.
    pub long_names: TcpListener,
    /// The socket to which ringfence connects the sockets of programs.
    pub v4: TcpListener,
    /// The same for IPv6, if the host has IPv6.
    pub v6: Option<TcpListener>,
    /// The HTTP proxy, if there is one.
    pub proxy: Option<TcpListener>,
}

/// The optional sockets that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OptionalListeners {
    v6: bool,
    proxy: bool,
}

/// Listen backlog; the kernel may limit it.
const BACKLOG: i32 = 4096;

/// Port of DNS.
const DNS_PORT: u16 = 53;

impl NetnsListeners {
    /// Takes the fds in the order in which they are sent.
    pub(crate) fn from_fds(descriptors: Vec<OwnedFd>, more: OptionalListeners) -> Option<Self> {
        let mut given = descriptors.into_iter();
        let (names, long_names, v4) =
            (given.next()?.into(), given.next()?.into(), given.next()?.into());
        let mut next_if =
            |is_there: bool| if is_there { given.next().map(TcpListener::from) } else { None };
        Some(Self { names, long_names, v4, v6: next_if(more.v6), proxy: next_if(more.proxy) })
    }
}

/// Sends an unconnected socket in the sandbox's network to the launcher. An IPv6 socket can connect
/// to addresses of both families; a kernel may lack IPv6.
pub(super) fn send_socket(control: &OwnedFd) {
    let make = |family| net::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
    if let Ok(socket) = make(libc::AF_INET6).or_else(|_| make(libc::AF_INET)) {
        send_message_with_fds(control, &SandboxMessage::Socket, &[socket.as_fd()]);
    }
}

/// Opens the sockets in the sandbox's network, while init may still bind any port.
pub(super) fn open_listeners(control: &OwnedFd, plan: &Plan) -> Result<(), SetupError> {
    // Some programs look up an address family only if an interface other than the loopback has such
    // an address (`AI_ADDRCONFIG`). Without IPv6 there is none to look up.
    net::add_loopback_address(FakeIpPool::OWN.v4.into())
        .during("add an address to the loopback")?;
    let _ = net::add_loopback_address(FakeIpPool::OWN.v6.into());
    let names = SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT));
    let dns_udp = UdpSocket::bind(names).during("open the DNS socket")?;
    let dns_tcp = TcpListener::bind(names).during("open the DNS socket")?;
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).during("open the egress socket")?;
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
    let is_proxied = plan.steps.contains(&Step::Proxy);
    let proxy =
        is_proxied.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))).transpose();
    let proxy = proxy.during("open the proxy socket")?;
    // Many programs may connect at once, and a full queue drops connections.
    for listener in [Some(&dns_tcp), Some(&v4), v6.as_ref(), proxy.as_ref()].into_iter().flatten() {
        rustix::net::listen(listener, BACKLOG).during("open the egress socket")?;
    }
    let more = OptionalListeners { v6: v6.is_some(), proxy: proxy.is_some() };
    let optional = [v6.as_ref(), proxy.as_ref()].into_iter().flatten().map(AsFd::as_fd);
    let all: Vec<_> =
        [dns_udp.as_fd(), dns_tcp.as_fd(), v4.as_fd()].into_iter().chain(optional).collect();
    if send_message_with_fds(control, &SandboxMessage::Listeners(more), &all) {
        Ok(())
    } else {
        Err(SetupError::new("send the egress sockets", libc::EPIPE))
    }
}
