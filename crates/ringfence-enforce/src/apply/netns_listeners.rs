//! Sockets in the sandbox's network that are served outside of it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_policy::PROXY_PORT;
use ringfence_sys::net;
use serde::{Deserialize, Serialize};

use super::helper::tell_with;
use super::{SandboxMessage, SetupError, SetupStep};
use crate::plan::{Plan, Step};

/// What is served for a sandbox whose programs reach some hosts. All of it is on the sandbox's
/// own loopback.
#[derive(Debug)]
pub struct NetnsListeners {
    /// Where names are asked for.
    pub names: UdpSocket,
    /// The same for questions that are long.
    pub long_names: TcpListener,
    /// What programs' own sockets are connected to.
    pub v4: TcpListener,
    /// The same for IPv6, where the host has that.
    pub v6: Option<TcpListener>,
    /// Where a proxy is asked, if there is to be one.
    pub proxy: Option<TcpListener>,
}

/// Which of those come along that need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OptionalListeners {
    v6: bool,
    proxy: bool,
}

/// So many may wait to be let in; the kernel may have less.
const MANY: i32 = 4096;

/// The port that programs ask for names at.
const NAMES: u16 = 53;

impl NetnsListeners {
    /// Out of the descriptors as they are handed over.
    pub(super) fn of(descriptors: Vec<OwnedFd>, more: OptionalListeners) -> Option<Self> {
        let mut given = descriptors.into_iter();
        let (names, long_names, v4) =
            (given.next()?.into(), given.next()?.into(), given.next()?.into());
        let mut next_if =
            |is_there: bool| if is_there { given.next().map(TcpListener::from) } else { None };
        Some(Self { names, long_names, v4, v6: next_if(more.v6), proxy: next_if(more.proxy) })
    }
}

/// Gives a socket of the sandbox's network away, to be connected within it. One for IPv6 can be
/// connected to addresses of both kinds; a kernel may have no IPv6.
pub(super) fn hand_out(control: &OwnedFd) {
    let make = |family| net::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
    if let Ok(socket) = make(libc::AF_INET6).or_else(|_| make(libc::AF_INET)) {
        tell_with(control, &SandboxMessage::Socket, &[socket.as_fd()]);
    }
}

/// Makes them, in the sandbox's network, while this process may still use any port of it.
pub(super) fn open(control: &OwnedFd, plan: &Plan) -> Result<(), SetupError> {
    // Some programs ask for addresses of a kind only if an interface has one that is not the
    // loopback's (`AI_ADDRCONFIG`). Without IPv6 there is none of that kind to ask for.
    net::add_to_loopback(FakeIpPool::OWN.v4.into())
        .during(|| "give the loopback an address".into())?;
    let _ = net::add_to_loopback(FakeIpPool::OWN.v6.into());
    let names = SocketAddr::from((Ipv4Addr::LOCALHOST, NAMES));
    let asked = UdpSocket::bind(names).during(|| "open a socket for names".into())?;
    let long = TcpListener::bind(names).during(|| "open a socket for names".into())?;
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).during(|| "open the way out".into())?;
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
    let is_proxied = plan.steps.contains(&Step::Proxy);
    let proxy =
        is_proxied.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))).transpose();
    let proxy = proxy.during(|| "open a socket for a proxy".into())?;
    // Many programs may come at once, and a queue that is full loses them.
    for listener in [Some(&long), Some(&v4), v6.as_ref(), proxy.as_ref()].into_iter().flatten() {
        rustix::net::listen(listener, MANY).during(|| "open the way out".into())?;
    }
    let more = OptionalListeners { v6: v6.is_some(), proxy: proxy.is_some() };
    let optional = [v6.as_ref(), proxy.as_ref()].into_iter().flatten().map(AsFd::as_fd);
    let all: Vec<_> =
        [asked.as_fd(), long.as_fd(), v4.as_fd()].into_iter().chain(optional).collect();
    if tell_with(control, &SandboxMessage::Doors(more), &all) {
        Ok(())
    } else {
        Err(SetupError { what: "hand the ways out over".into(), errno: libc::EPIPE })
    }
}
