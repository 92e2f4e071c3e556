//! `connect` and `listen`, where the command owns sockets of the host's network.
//!
//! The kernel continues none of these syscalls: between the check and the execution, a thread could
//! replace the checked socket with one of the host network. So ringfence connects the very socket
//! that it checked, through a copied fd. The notify handler itself connects Unix sockets, and
//! datagram sockets to an address in the sandbox. It hands every other `connect` to an IPv4 or IPv6
//! address to the launcher.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringfence_egress::dns::queried_name as looked_up_by;
use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_policy::NetworkMode;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::{net, seccomp};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{self, Timeout};

use super::NotifyReply;
use super::caller::NotifyCaller;
use super::creation_rules::CreationRules;
use super::poll_check::is_watched;
use crate::apply::fd_passing::{send_message, send_message_with_fds};
use crate::apply::listener_lookup::{has_listener, has_loopback_listener};
use crate::apply::pending_connect::{ConnectInfo, SocketKind};
use crate::apply::{SandboxMessage, parked};

/// Maximum length of a socket address.
const MAX_ADDRESS: u64 = 128;

/// Replies to a syscall that connects, listens or sends.
pub(super) fn handle(
    call: Call,
    caller: &NotifyCaller<'_>,
    rules: &mut CreationRules,
    control: &OwnedFd,
) -> NotifyReply {
    let names_path = matches!(call, Call::Connect | Call::Sendto);
    let target = if names_path { rules.unix_target(call, caller) } else { Ok(None) };
    let is_executed = rules.has_egress() && matches!(call, Call::Connect | Call::Listen);
    let reply = match target {
        // The kernel itself reports an absent path.
        Err(error) if error != Errno::NOENT || is_executed => NotifyReply::from(error),
        Ok(target) if is_executed => {
            rules.report(control);
            let done = if call == Call::Connect {
                connect(caller, target, control)
            } else {
                listen(caller)
            };
            return done.unwrap_or_else(NotifyReply::from);
        }
        _ => match answer_queries(call, caller, rules, control) {
            Some(reply) => reply,
            None => {
                report_destination(call, caller, rules, control);
                NotifyReply::Continue
            }
        },
    };
    rules.report(control);
    reply
}

/// Connects for `caller`, or hands the request to the launcher. `target` is the socket that the
/// address names by a path.
fn connect(
    caller: &NotifyCaller<'_>,
    target: Option<OwnedFd>,
    control: &OwnedFd,
) -> Result<NotifyReply, Errno> {
    if caller.raw_arg(2) > MAX_ADDRESS {
        return Err(Errno::INVAL);
    }
    let address = caller.read_bytes(caller.raw_arg(1), caller.raw_arg(2) as usize)?;
    let socket = caller.copy_fd(caller.int_arg(0))?;
    caller.ensure_waiting()?;
    let kind = sockopt::socket_type(&socket)?;
    if !is_sandbox_socket(&socket)? {
        // The socket is connected already and stays so.
        return Err(if family(&address) == Some(libc::AF_UNSPEC) {
            Errno::OPNOTSUPP
        } else {
            Errno::ISCONN
        });
    }
    match family(&address) {
        Some(libc::AF_UNIX) => unix(caller, socket, kind, target, &address),
        Some(libc::AF_INET | libc::AF_INET6) => {
            let to = parse_inet(&address).ok_or(Errno::INVAL)?;
            let carries =
                if kind == SocketType::STREAM { SocketKind::Stream } else { SocketKind::NotStream };
            if carries == SocketKind::NotStream && is_in_sandbox(to) {
                connect_raw(&socket, &address)
            } else {
                hand_to_launcher(caller, &socket, to, carries, control)
            }
        }
        _ => connect_raw(&socket, &address),
    }
}

/// Executes `listen` for `caller`.
fn listen(caller: &NotifyCaller<'_>) -> Result<NotifyReply, Errno> {
    let socket = caller.copy_fd(caller.int_arg(0))?;
    caller.ensure_waiting()?;
    if !is_sandbox_socket(&socket)? {
        return Err(Errno::INVAL);
    }
    rustix::net::listen(&socket, caller.int_arg(1)).map(|()| NotifyReply::Value(0))
}

/// True if the address belongs to the sandbox itself.
fn is_in_sandbox(to: SocketAddr) -> bool {
    let address = to.ip().to_canonical();
    address.is_loopback() || address.is_unspecified() || FakeIpPool::is_own(address)
}

fn family(address: &[u8]) -> Option<i32> {
    address.get(..2).map(|two| i32::from(u16::from_ne_bytes([two[0], two[1]])))
}

fn parse_inet(address: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(address.get(2..4)?.try_into().ok()?);
    if family(address)? == libc::AF_INET {
        let host: [u8; 4] = address.get(4..8)?.try_into().ok()?;
        return (address.len() >= size_of::<libc::sockaddr_in>())
            .then(|| SocketAddr::from((Ipv4Addr::from(host), port)));
    }
    let host: [u8; 16] = address.get(8..24)?.try_into().ok()?;
    let scope =
        address.get(24..28).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes);
    Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(host), port, 0, scope)))
}

/// True if the socket belongs to the sandbox's network namespace, in which the notify handler runs.
pub(super) fn is_sandbox_socket(socket: &OwnedFd) -> Result<bool, Errno> {
    let number = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let ours =
        net::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).map_err(number)?;
    Ok(net::cookie(socket.as_fd()).map_err(number)? == net::cookie(ours.as_fd()).map_err(number)?)
}

fn connect_raw(socket: &OwnedFd, address: &[u8]) -> Result<NotifyReply, Errno> {
    net::connect_raw(socket.as_fd(), address)
        .map(|()| NotifyReply::Value(0))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Hands the connection to the launcher, which knows the egress rules.
fn hand_to_launcher(
    caller: &NotifyCaller<'_>,
    socket: &OwnedFd,
    to: SocketAddr,
    carries: SocketKind,
    control: &OwnedFd,
) -> Result<NotifyReply, Errno> {
    let call = parked::NotificationInfo {
        id: caller.notification.id,
        pid: caller.notification.pid,
        errno: libc::ENETUNREACH,
    };
    let on_execute = caller.close_on_exec(caller.int_arg(0));
    // A caller blocked in `connect` needs no events of its socket before `connect` returns.
    let is_watched = carries == SocketKind::Stream
        && rustix::fs::fcntl_getfl(socket)?.contains(OFlags::NONBLOCK)
        && is_watched(caller, caller.int_arg(0));
    let info = ConnectInfo {
        call,
        to,
        carries,
        program: caller.program(),
        number: caller.int_arg(0) as u32,
        on_execute,
        is_watched,
        is_unserved: carries == SocketKind::Stream && is_in_sandbox(to) && !is_served(to),
    };
    let is_sent = send_message_with_fds(
        control,
        &SandboxMessage::PendingConnect(Box::new(info)),
        &[socket.as_fd()],
    );
    if is_sent { Ok(NotifyReply::Later) } else { Err(Errno::NETUNREACH) }
}

/// Connects to the checked socket file, or to an abstract address.
fn unix(
    caller: &NotifyCaller<'_>,
    socket: OwnedFd,
    kind: SocketType,
    target: Option<OwnedFd>,
    address: &[u8],
) -> Result<NotifyReply, Errno> {
    caller.ensure_waiting()?;
    let waits =
        kind != SocketType::DGRAM && !rustix::fs::fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
    let connect = |address: &[u8]| {
        if waits { try_connect(&socket, address) } else { connect_raw(&socket, address) }
    };
    let result = match &target {
        None => connect(address),
        // The notify handler is not visible in the sandbox's own `/proc`.
        Some(target) => {
            rustix::process::fchdir(caller.host_proc)?;
            let result = connect(&address_of(&format!("self/fd/{}", target.as_raw_fd())));
            rustix::process::fchdir(caller.fds.root()?)?;
            result
        }
    };
    if !waits || result.as_ref().err() != Some(&Errno::AGAIN) {
        return result;
    }
    // In a child process, which may wait as long as the caller would. A child, not a thread: after
    // `unshare(CLONE_NEWPID)` a process cannot create threads.
    match process::fork().map_err(|_| Errno::AGAIN)? {
        Fork::Parent(_) => Ok(NotifyReply::Later),
        Fork::Child => {
            wait_to_connect(caller, &socket, target.as_ref(), address);
            process::exit_now(0)
        }
    }
}

fn address_of(path: &str) -> Vec<u8> {
    [&(libc::AF_UNIX as u16).to_ne_bytes(), path.as_bytes(), b"\0"].concat()
}

/// In the child process: connects, and replies to the caller. The child keeps only three fds of the
/// notify handler open: the socket, the listener and the target.
fn wait_to_connect(
    caller: &NotifyCaller<'_>,
    socket: &OwnedFd,
    target: Option<&OwnedFd>,
    address: &[u8],
) {
    let fail = |error: Errno| {
        drop(seccomp::answer(caller.listener, caller.notification.id, Err(error.raw_os_error())))
    };
    if let Err(error) = move_to_std_fds(socket, caller.listener, target) {
        return fail(error);
    }
    let (socket, listener) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let (others, address) =
        target.map_or_else(|| (2, address.to_vec()), |_| (3, address_of("/proc/self/fd/2")));
    let result = process::close_from(others).and_then(|()| net::connect_raw(socket, &address));
    let result = result.map(|()| 0).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
    let _ = seccomp::answer(listener, caller.notification.id, result);
}

/// Moves the fds to the numbers of the standard streams.
fn move_to_std_fds(
    socket: &OwnedFd,
    listener: BorrowedFd<'_>,
    target: Option<&OwnedFd>,
) -> Result<(), Errno> {
    // An fd may already have a number that another one needs.
    let socket = rustix::io::fcntl_dupfd_cloexec(socket, 3)?;
    let listener = rustix::io::fcntl_dupfd_cloexec(listener, 3)?;
    let target = target.map(|target| rustix::io::fcntl_dupfd_cloexec(target, 3)).transpose()?;
    rustix::stdio::dup2_stdin(&socket)?;
    rustix::stdio::dup2_stdout(&listener)?;
    target.map_or(Ok(()), rustix::stdio::dup2_stderr)
}

/// Connects, unless it would have to wait for the peer's backlog: then it fails with `EAGAIN`.
///
/// The send timeout is an option of the caller's socket, which is shared. It changes for the
/// duration of this syscall.
fn try_connect(socket: &OwnedFd, address: &[u8]) -> Result<NotifyReply, Errno> {
    const MOMENT: Duration = Duration::from_millis(1);
    let own = sockopt::socket_timeout(socket, Timeout::Send)?;
    sockopt::set_socket_timeout(
        socket,
        Timeout::Send,
        Some(own.map_or(MOMENT, |own| own.min(MOMENT))),
    )?;
    let result = connect_raw(socket, address);
    sockopt::set_socket_timeout(socket, Timeout::Send, own)?;
    result
}

/// Port of DNS servers.
const DNS_PORT: u16 = 53;

/// Answers DNS queries where the network is off: connects a datagram socket, which the caller
/// connects to a name server, to a socket that the launcher serves. `None` for any other syscall.
///
/// Go and c-ares connect and then `write`, which no filter can tell from any other `write`. Nothing
/// is served until a program connects, so a command that looks up nothing does not wait.
fn answer_queries(
    call: Call,
    caller: &NotifyCaller<'_>,
    rules: &CreationRules,
    control: &OwnedFd,
) -> Option<NotifyReply> {
    if call != Call::Connect || rules.has_egress() || rules.network() != NetworkMode::None {
        return None;
    }
    destination(call, caller).filter(|to| to.port() == DNS_PORT && is_in_sandbox(*to))?;
    let socket = caller.copy_fd(caller.int_arg(0)).ok()?;
    if sockopt::socket_type(&socket) != Ok(SocketType::DGRAM) {
        return None;
    }
    let mut address = caller.read_bytes(caller.raw_arg(1), caller.raw_arg(2) as usize).ok()?;
    let server = UdpSocket::bind((parse_inet(&address)?.ip(), 0)).ok()?;
    address.get_mut(2..4)?.copy_from_slice(&server.local_addr().ok()?.port().to_be_bytes());
    caller.ensure_waiting().ok()?;
    net::connect_raw(socket.as_fd(), &address).ok()?;
    // Answer only this socket.
    let client = SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()?;
    server.connect(client).ok()?;
    let is_sent = send_message_with_fds(
        control,
        &SandboxMessage::DnsQueries(caller.notification.pid, caller.program()),
        &[server.as_fd()],
    );
    is_sent.then_some(NotifyReply::Value(0))
}

/// Reports the destination of a syscall that is continued and leads nowhere, or the name that it
/// looks up.
fn report_destination(
    call: Call,
    caller: &NotifyCaller<'_>,
    rules: &mut CreationRules,
    control: &OwnedFd,
) {
    if let Some(name) = queried_name(call, caller) {
        if rules.has_egress() {
            // The DNS responder decides about the name, but does not know which program asks.
            return send_message(
                control,
                &SandboxMessage::DnsLookup(name, caller.notification.pid, caller.program()),
            );
        }
        return rules.refuse_host(caller, name);
    }
    if call == Call::Connect {
        return refuse_connect(caller, rules, control);
    }
    match destination(call, caller).filter(|to| !is_in_sandbox(*to)) {
        Some(to) if rules.has_egress() => send_message(
            control,
            &SandboxMessage::DatagramSent(to, caller.notification.pid, caller.program()),
        ),
        Some(to) => rules.refuse_host(caller, format!("{to}/udp")),
        None => {}
    }
}

/// Notes the destination of a connect in a network that leads nowhere.
fn refuse_connect(caller: &NotifyCaller<'_>, rules: &mut CreationRules, control: &OwnedFd) {
    if rules.network() == NetworkMode::Full {
        return;
    }
    let Some(to) = destination(Call::Connect, caller) else { return };
    if !is_in_sandbox(to) {
        let kind = if is_datagrams(caller) { "/udp" } else { "" };
        rules.refuse_host(caller, format!("{to}{kind}"));
    } else if !FakeIpPool::is_own(to.ip()) && !is_served(to) && !is_datagrams(caller) {
        // The launcher knows if the host has a server there, which the program probably meant.
        send_message(
            control,
            &SandboxMessage::UnservedPort(to.port(), caller.notification.pid, caller.program()),
        );
    }
}

/// True if a process in the sandbox listens at the port. A program that looks up `localhost` tries
/// both loopback addresses.
fn is_served(to: SocketAddr) -> bool {
    has_loopback_listener(to.port()) || has_listener(&[to.ip()], to.port())
}

/// True for a datagram socket: the C library connects one to find the nearest of several addresses.
fn is_datagrams(caller: &NotifyCaller<'_>) -> bool {
    caller
        .copy_fd(caller.int_arg(0))
        .is_ok_and(|socket| sockopt::socket_type(&socket) == Ok(SocketType::DGRAM))
}

/// A `msghdr` in a program's memory: address and length of the destination, and of the first bytes.
struct CallerMsghdr {
    address: (u64, u64),
    bytes: Option<(u64, u64)>,
}

/// Reads the message; of several, only the first.
fn message(call: Call, caller: &NotifyCaller<'_>) -> Option<CallerMsghdr> {
    if call == Call::Sendto {
        return Some(CallerMsghdr {
            address: (caller.raw_arg(4), caller.raw_arg(5)),
            bytes: Some((caller.raw_arg(1), caller.raw_arg(2))),
        });
    }
    let size =
        if Arch::from_audit_arch(caller.notification.arch) == Some(Arch::X86) { 4 } else { 8 };
    // `msghdr`: address of the destination, its length, address of the iovecs, and their count.
    let head = words(&caller.read_bytes(caller.raw_arg(1), 4 * size).ok()?, size);
    let [address, length, pieces, count] = head[..] else { return None };
    let first = (count > 0)
        .then(|| caller.read_bytes(pieces, 2 * size).ok())
        .flatten()
        .map(|piece| words(&piece, size));
    let bytes = first.and_then(|piece| Some((*piece.first()?, *piece.get(1)?)));
    // The length has four bytes; the rest is padding.
    Some(CallerMsghdr { address: (address, length & u64::from(u32::MAX)), bytes })
}

fn words(bytes: &[u8], size: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks_exact(size).map(word).collect()
}

/// The internet address that a syscall names, if it names one.
fn destination(call: Call, caller: &NotifyCaller<'_>) -> Option<SocketAddr> {
    let (address, length) = match call {
        Call::Connect => (caller.raw_arg(1), caller.raw_arg(2)),
        _ => message(call, caller)?.address,
    };
    if address == 0 || length > MAX_ADDRESS {
        return None;
    }
    let address = caller.read_bytes(address, length as usize).ok()?;
    family(&address).filter(|family| matches!(*family, libc::AF_INET | libc::AF_INET6))?;
    parse_inet(&address).map(|to| SocketAddr::new(to.ip().to_canonical(), to.port()))
}

/// The name that a message asks a DNS server of the sandbox for.
fn queried_name(call: Call, caller: &NotifyCaller<'_>) -> Option<String> {
    /// Maximum length of a query with one name.
    const MAX_QUERY: u64 = 512;
    if call == Call::Connect {
        return None;
    }
    let (bytes, length) =
        message(call, caller)?.bytes.filter(|(_, length)| (17..=MAX_QUERY).contains(length))?;
    let name = looked_up_by(&caller.read_bytes(bytes, length as usize).ok()?)?;
    let peer = || {
        SocketAddr::try_from(
            rustix::net::getpeername(caller.copy_fd(caller.int_arg(0)).ok()?).ok()??,
        )
        .ok()
    };
    let to = destination(call, caller).or_else(peer)?;
    (to.port() == DNS_PORT).then(|| name.to_string())
}
