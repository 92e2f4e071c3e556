//! Connecting, where sockets of the host's network are among the command's own.
//!
//! None of these calls goes through to the kernel: between being judged and being carried out, a
//! thread could put one of the host's sockets in the place of the one that was meant. What is
//! connected is the very socket that was looked at, by a copy of its descriptor.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringfence_egress::dns::looked_up as looked_up_by;
use ringfence_egress::fake_ip::FakeIpPool;
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
use crate::apply::helper::{tell, tell_with};
use crate::apply::pending_connect::{ConnectInfo, SocketKind};
use crate::apply::{SandboxMessage, parked};
use crate::seccomp::calls::{Arch, Call};

/// No address is longer.
const LONGEST: u64 = 128;

/// Connects for `caller`, or passes the request on to the process that does. `target` is the socket
/// that its address names by a path.
pub(super) fn connect(
    caller: &NotifyCaller<'_>,
    target: Option<OwnedFd>,
    control: &OwnedFd,
) -> Result<NotifyReply, Errno> {
    if caller.raw(2) > LONGEST {
        return Err(Errno::INVAL);
    }
    let address = caller.bytes(caller.raw(1), caller.raw(2) as usize)?;
    let socket = caller.descriptor(caller.int(0))?;
    caller.still_waits()?;
    let kind = sockopt::socket_type(&socket)?;
    if !is_of_the_sandbox(&socket)? {
        // It is connected, and stays so.
        return Err(if family(&address) == Some(libc::AF_UNSPEC) {
            Errno::OPNOTSUPP
        } else {
            Errno::ISCONN
        });
    }
    match family(&address) {
        Some(libc::AF_UNIX) => unix(caller, socket, kind, target, &address),
        Some(libc::AF_INET | libc::AF_INET6) => {
            let to = internet(&address).ok_or(Errno::INVAL)?;
            let carries =
                if kind == SocketType::STREAM { SocketKind::Stream } else { SocketKind::Datagrams };
            if carries == SocketKind::Datagrams && is_within(to) {
                done(&socket, &address)
            } else {
                hand_on(caller, &socket, to, carries, control)
            }
        }
        _ => done(&socket, &address),
    }
}

/// Listens for `caller`.
pub(super) fn listen(caller: &NotifyCaller<'_>) -> Result<NotifyReply, Errno> {
    let socket = caller.descriptor(caller.int(0))?;
    caller.still_waits()?;
    if !is_of_the_sandbox(&socket)? {
        return Err(Errno::INVAL);
    }
    rustix::net::listen(&socket, caller.int(1)).map(|()| NotifyReply::Value(0))
}

/// Whether somebody in the sandbox is meant.
fn is_within(to: SocketAddr) -> bool {
    let address = to.ip().to_canonical();
    address.is_loopback() || address.is_unspecified() || FakeIpPool::is_own(address)
}

fn family(address: &[u8]) -> Option<i32> {
    address.get(..2).map(|two| i32::from(u16::from_ne_bytes([two[0], two[1]])))
}

fn internet(address: &[u8]) -> Option<SocketAddr> {
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

/// The usher lives in the sandbox's network.
pub(super) fn is_of_the_sandbox(socket: &OwnedFd) -> Result<bool, Errno> {
    let number = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let ours =
        net::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).map_err(number)?;
    Ok(net::cookie(socket.as_fd()).map_err(number)? == net::cookie(ours.as_fd()).map_err(number)?)
}

fn done(socket: &OwnedFd, address: &[u8]) -> Result<NotifyReply, Errno> {
    net::connect_raw(socket.as_fd(), address)
        .map(|()| NotifyReply::Value(0))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Somebody outside knows what is reached there, and how.
fn hand_on(
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
    let on_execute = caller.on_execute(caller.int(0));
    // Whoever waits in `connect` has nothing to hear of its socket before that has ended.
    let is_watched = carries == SocketKind::Stream
        && rustix::fs::fcntl_getfl(socket)?.contains(OFlags::NONBLOCK)
        && is_watched(caller, caller.int(0));
    let told = ConnectInfo {
        call,
        to,
        carries,
        program: caller.program(),
        number: caller.int(0) as u32,
        on_execute,
        is_watched,
    };
    let is_told = tell_with(control, &SandboxMessage::Connects(Box::new(told)), &[socket.as_fd()]);
    if is_told { Ok(NotifyReply::Later) } else { Err(Errno::NETUNREACH) }
}

/// To the very socket that was judged, or to one that is in no file.
fn unix(
    caller: &NotifyCaller<'_>,
    socket: OwnedFd,
    kind: SocketType,
    target: Option<OwnedFd>,
    address: &[u8],
) -> Result<NotifyReply, Errno> {
    caller.still_waits()?;
    let waits =
        kind != SocketType::DGRAM && !rustix::fs::fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
    let connect =
        |address: &[u8]| if waits { promptly(&socket, address) } else { done(&socket, address) };
    let ended = match &target {
        None => connect(address),
        // In the sandbox's own `/proc` we are not.
        Some(target) => {
            rustix::process::fchdir(caller.host_proc)?;
            let ended = connect(&address_of(&format!("self/fd/{}", target.as_raw_fd())));
            rustix::process::fchdir(caller.at_hand.root()?)?;
            ended
        }
    };
    if !waits || ended.as_ref().err() != Some(&Errno::AGAIN) {
        return ended;
    }
    // In a process of its own, which may wait as long as the caller would have. It is one of the
    // sandbox's: a process that has made a namespace for those it starts can start no thread.
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

/// In a process of its own: connects, and answers the caller. Nothing of the usher's is open in it
/// by then but the socket, what is answered by, and what is connected to.
fn wait_to_connect(
    caller: &NotifyCaller<'_>,
    socket: &OwnedFd,
    target: Option<&OwnedFd>,
    address: &[u8],
) {
    let fail = |error: Errno| {
        drop(seccomp::answer(caller.listener, caller.notification.id, Err(error.raw_os_error())))
    };
    if let Err(error) = keep_as_streams(socket, caller.listener, target) {
        return fail(error);
    }
    let (socket, listener) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let (others, address) =
        target.map_or_else(|| (2, address.to_vec()), |_| (3, address_of("/proc/self/fd/2")));
    let ended = process::close_from(others).and_then(|()| net::connect_raw(socket, &address));
    let ended = ended.map(|()| 0).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
    let _ = seccomp::answer(listener, caller.notification.id, ended);
}

/// Puts descriptors in the place of the standard streams.
fn keep_as_streams(
    socket: &OwnedFd,
    listener: BorrowedFd<'_>,
    target: Option<&OwnedFd>,
) -> Result<(), Errno> {
    // One of them may stand where another is to go.
    let socket = rustix::io::fcntl_dupfd_cloexec(socket, 3)?;
    let listener = rustix::io::fcntl_dupfd_cloexec(listener, 3)?;
    let target = target.map(|target| rustix::io::fcntl_dupfd_cloexec(target, 3)).transpose()?;
    rustix::stdio::dup2_stdin(&socket)?;
    rustix::stdio::dup2_stdout(&listener)?;
    target.map_or(Ok(()), rustix::stdio::dup2_stderr)
}

/// Connects unless it would have to wait for room at the other end, which is `EAGAIN`.
///
/// For how long a caller waits is an option of its socket, of which this is a copy. It is another
/// for the moment that it takes.
fn promptly(socket: &OwnedFd, address: &[u8]) -> Result<NotifyReply, Errno> {
    const MOMENT: Duration = Duration::from_millis(1);
    let own = sockopt::socket_timeout(socket, Timeout::Send)?;
    sockopt::set_socket_timeout(
        socket,
        Timeout::Send,
        Some(own.map_or(MOMENT, |own| own.min(MOMENT))),
    )?;
    let ended = done(socket, address);
    sockopt::set_socket_timeout(socket, Timeout::Send, own)?;
    ended
}

/// The port of name servers.
const NAMES: u16 = 53;

/// Connects a datagram socket that is meant for a name server of a shut network to a socket that
/// the caller of ringfence answers, and which tells the names. `None` if another thing is meant.
///
/// Go and c-ares connect and then write, and no filter can tell that from any other `write`.
/// Nothing is served until a program connects, so a command that looks up nothing waits for
/// nothing.
pub(super) fn answer_queries(
    call: Call,
    caller: &NotifyCaller<'_>,
    judge: &CreationRules,
    control: &OwnedFd,
) -> Option<NotifyReply> {
    if call != Call::Connect || judge.is_listed() || judge.network() != NetworkMode::None {
        return None;
    }
    meant(call, caller).filter(|to| to.port() == NAMES && is_within(*to))?;
    let socket = caller.descriptor(caller.int(0)).ok()?;
    if sockopt::socket_type(&socket) != Ok(SocketType::DGRAM) {
        return None;
    }
    let mut address = caller.bytes(caller.raw(1), caller.raw(2) as usize).ok()?;
    let server = UdpSocket::bind((internet(&address)?.ip(), 0)).ok()?;
    address.get_mut(2..4)?.copy_from_slice(&server.local_addr().ok()?.port().to_be_bytes());
    caller.still_waits().ok()?;
    net::connect_raw(socket.as_fd(), &address).ok()?;
    // No other socket is answered.
    let asks = SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()?;
    server.connect(asks).ok()?;
    let is_told = tell_with(
        control,
        &SandboxMessage::Queries(caller.notification.pid, caller.program()),
        &[server.as_fd()],
    );
    is_told.then_some(NotifyReply::Value(0))
}

/// Tells of whom a call means that goes through and leads nowhere, and of a name that is looked up.
pub(super) fn tell_of(
    call: Call,
    caller: &NotifyCaller<'_>,
    judge: &mut CreationRules,
    control: &OwnedFd,
) {
    if let Some(name) = looked_up(call, caller) {
        if judge.is_listed() {
            // Whether it is found is for the name server to say, who does not hear by whom it is
            // asked.
            return tell(
                control,
                &SandboxMessage::LooksUp(name, caller.notification.pid, caller.program()),
            );
        }
        return judge.refuse_host(caller, name);
    }
    if call == Call::Connect {
        return refuse_connect(caller, judge);
    }
    match meant(call, caller).filter(|to| !is_within(*to)) {
        Some(to) if judge.is_listed() => {
            tell(control, &SandboxMessage::Sent(to, caller.notification.pid, caller.program()))
        }
        Some(to) => judge.refuse_host(caller, format!("{to}/udp")),
        None => {}
    }
}

/// Notes whom a program connects to in a network that leads nowhere.
fn refuse_connect(caller: &NotifyCaller<'_>, judge: &mut CreationRules) {
    if judge.network() == NetworkMode::Full {
        return;
    }
    if let Some(to) = meant(Call::Connect, caller).filter(|to| !is_within(*to)) {
        let kind = if is_datagrams(caller) { "/udp" } else { "" };
        judge.refuse_host(caller, format!("{to}{kind}"));
    }
}

/// The C library asks in this way which of several addresses is near.
fn is_datagrams(caller: &NotifyCaller<'_>) -> bool {
    caller
        .descriptor(caller.int(0))
        .is_ok_and(|socket| sockopt::socket_type(&socket) == Ok(SocketType::DGRAM))
}

/// A message as a program has it in memory: where its address stands, and where its first bytes.
struct CallerMsghdr {
    address: (u64, u64),
    bytes: Option<(u64, u64)>,
}

/// The first of several is as good as any.
fn message(call: Call, caller: &NotifyCaller<'_>) -> Option<CallerMsghdr> {
    if call == Call::Sendto {
        return Some(CallerMsghdr {
            address: (caller.raw(4), caller.raw(5)),
            bytes: Some((caller.raw(1), caller.raw(2))),
        });
    }
    let size = if Arch::from_audit(caller.notification.arch) == Some(Arch::X86) { 4 } else { 8 };
    // `msghdr`: where the address is, its length, where the pieces are, and how many.
    let head = words(&caller.bytes(caller.raw(1), 4 * size).ok()?, size);
    let [address, length, pieces, count] = head[..] else { return None };
    let first = (count > 0)
        .then(|| caller.bytes(pieces, 2 * size).ok())
        .flatten()
        .map(|piece| words(&piece, size));
    let bytes = first.and_then(|piece| Some((*piece.first()?, *piece.get(1)?)));
    // The length has four bytes, whatever stands behind them.
    Some(CallerMsghdr { address: (address, length & u64::from(u32::MAX)), bytes })
}

fn words(bytes: &[u8], size: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks_exact(size).map(word).collect()
}

/// Which host a call names, if it names one.
fn meant(call: Call, caller: &NotifyCaller<'_>) -> Option<SocketAddr> {
    let (address, length) = match call {
        Call::Connect => (caller.raw(1), caller.raw(2)),
        _ => message(call, caller)?.address,
    };
    if address == 0 || length > LONGEST {
        return None;
    }
    let address = caller.bytes(address, length as usize).ok()?;
    family(&address).filter(|family| matches!(*family, libc::AF_INET | libc::AF_INET6))?;
    internet(&address).map(|to| SocketAddr::new(to.ip().to_canonical(), to.port()))
}

/// The name that a message asks a name server of the sandbox for.
fn looked_up(call: Call, caller: &NotifyCaller<'_>) -> Option<String> {
    /// No question is longer that has one name in it.
    const LONG: u64 = 512;
    if call == Call::Connect {
        return None;
    }
    let (bytes, length) =
        message(call, caller)?.bytes.filter(|(_, length)| (17..=LONG).contains(length))?;
    let name = looked_up_by(&caller.bytes(bytes, length as usize).ok()?)?;
    let peer = || {
        SocketAddr::try_from(
            rustix::net::getpeername(caller.descriptor(caller.int(0)).ok()?).ok()??,
        )
        .ok()
    };
    let to = meant(call, caller).or_else(peer)?;
    (to.port() == NAMES).then(|| name.to_string())
}
