//! Memory in the sockets of the sandbox's network namespace, including sockets that no process has
//! open: `NETLINK_SOCK_DIAG` lists a socket while it is in flight.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`, the request and the type of each answer.
const BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Sizes of `nlmsghdr`, `unix_diag_msg` and `inet_diag_msg`.
const HEADER: usize = 16;
const UNIX_ANSWER: usize = 16;
const INET_ANSWER: usize = 72;
/// `UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_MEMINFO`, and the attributes they give.
const UNIX_SHOW: u32 = 0x4 | 0x10 | 0x20;
const UNIX_PEER: u16 = 2;
const UNIX_QUEUE: u16 = 4;
const UNIX_MEMORY: u16 = 5;
/// `INET_DIAG_SKMEMINFO`: the attribute, and its bit in a request is one less.
const INET_MEMORY: u16 = 7;
const DATAGRAM: u8 = libc::SOCK_DGRAM as u8;
const TCP_LISTEN: u8 = 10;

/// A netlink socket that queries other sockets.
#[derive(Debug)]
pub(super) struct SocketMemory {
    diag: OwnedFd,
    /// `/proc/net/sockstat` and `sockstat6`: number of sockets per protocol.
    counts: [Option<File>; 2],
    /// Maximum bytes that one sender can have in flight.
    per_sender: u64,
    /// Maximum number of datagrams queued at one receiver.
    datagrams: u64,
}

impl SocketMemory {
    /// For the network namespace of this process; `None` if the kernel lacks sock_diag.
    pub(super) fn open() -> Option<Self> {
        let diag = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )
        .ok()?;
        let setting = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/net/{name}"))
                .ok()?
                .trim()
                .parse::<u64>()
                .ok()
        };
        // The kernel doubles the size that a program requests.
        let per_sender = 2 * setting("core/wmem_max").unwrap_or(212_992);
        let counts =
            ["sockstat", "sockstat6"].map(|name| File::open(format!("/proc/self/net/{name}")).ok());
        Some(Self {
            diag,
            counts,
            per_sender,
            datagrams: 1 + setting("unix/max_dgram_qlen").unwrap_or(10),
        })
    }

    /// Bytes in all sockets.
    pub(super) fn bytes(&self) -> u64 {
        const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];
        const PROTOCOLS: [(&[u8], u8); 3] = [
            (b"TCP", libc::IPPROTO_TCP as u8),
            (b"UDP", libc::IPPROTO_UDP as u8),
            (b"UDPLITE", libc::IPPROTO_UDPLITE as u8),
        ];
        let mut sum = 0_u64;
        let unix = unix_request();
        self.dump(&unix, |answer| sum = sum.saturating_add(self.unix_bytes(answer)));
        // A dump walks through the hash table of all network namespaces, which takes about a
        // millisecond.
        for (family, counts) in FAMILIES.into_iter().zip(&self.counts) {
            let text = counts.as_ref().map(contents);
            for (_, protocol) in PROTOCOLS
                .into_iter()
                .filter(|(name, _)| text.as_deref().is_none_or(|text| is_in_use(text, name)))
            {
                self.dump(&inet_request(family, protocol), |answer| {
                    sum = sum.saturating_add(
                        attributes(answer, INET_ANSWER)
                            .find(|(kind, _)| *kind == INET_MEMORY)
                            .map_or(0, |(_, memory)| bytes_held(memory)),
                    );
                });
            }
        }
        sum
    }

    /// The kernel charges a message to its sender. When the sender is closed, only the receiver is
    /// left: the kernel shows that its queue is not empty, but not how much memory it takes.
    fn unix_bytes(&self, answer: &[u8]) -> u64 {
        let (kind, state) = (answer.get(1).copied(), answer.get(2).copied());
        let (mut own, mut waits, mut has_peer) = (0, false, false);
        for (attribute, value) in attributes(answer, UNIX_ANSWER) {
            match attribute {
                UNIX_MEMORY => own = bytes_held(value),
                // A closed peer is still listed, without an inode.
                UNIX_PEER => has_peer = word(value, 0) != 0,
                // The queue of a listening socket holds connections, which are listed themselves.
                UNIX_QUEUE => waits = state != Some(TCP_LISTEN) && word(value, 0) > 0,
                _ => {}
            }
        }
        let orphaned = match kind {
            // The reported queue length is that of the first datagram, which may be empty. Only the
            // peer can send to a connected socket.
            Some(DATAGRAM) if !waits && has_peer => 0,
            Some(DATAGRAM) => self.per_sender * self.datagrams,
            _ if !waits || has_peer => 0,
            _ => self.per_sender,
        };
        own + orphaned
    }

    /// Passes each answer to `visit`, without its header. An unknown family has no answer.
    fn dump(&self, request: &[u8], mut visit: impl FnMut(&[u8])) {
        if send(&self.diag, request, SendFlags::empty()).is_err() {
            return;
        }
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = match recv(&self.diag, buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((length, _)) if length > 0 => length,
                Err(rustix::io::Errno::INTR) => continue,
                _ => return,
            };
            let mut rest = &buffer[..length];
            while rest.len() >= HEADER {
                let size = word(rest, 0) as usize;
                match half(rest, 4) {
                    NLMSG_DONE | NLMSG_ERROR => return,
                    BY_FAMILY => visit(rest.get(HEADER..size).unwrap_or_default()),
                    _ => {}
                }
                rest = rest.get(aligned(size).max(HEADER)..).unwrap_or_default();
            }
        }
    }
}

/// Reads a `/proc` file from its beginning; empty if it cannot be read.
fn contents(file: &File) -> Vec<u8> {
    let mut buffer = vec![0; 1024];
    let length = file.read_at(&mut buffer, 0).unwrap_or(0);
    buffer.truncate(length);
    buffer
}

/// Looks for sockets of a protocol in lines such as `TCP: inuse 3 …` and `UDP6: inuse 0`. True if
/// there is no such line.
fn is_in_use(text: &[u8], protocol: &[u8]) -> bool {
    let count = |line: &[u8]| {
        let rest = line.strip_prefix(protocol)?;
        let number = rest.strip_prefix(b"6").unwrap_or(rest).strip_prefix(b": inuse ")?;
        Some(number.first() != Some(&b'0'))
    };
    text.split(|byte| *byte == b'\n').find_map(count).unwrap_or(true)
}

fn unix_request() -> Vec<u8> {
    const EVERY_STATE: u32 = u32::MAX;
    let body = [u32::from(libc::AF_UNIX as u8), EVERY_STATE, 0, UNIX_SHOW, u32::MAX, u32::MAX];
    request(&body.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>())
}

fn inet_request(family: u8, protocol: u8) -> Vec<u8> {
    const SOCKET_ID: usize = 48;
    let mut body = vec![family, protocol, 1 << (INET_MEMORY - 1), 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.resize(body.len() + SOCKET_ID, 0);
    request(&body)
}

fn request(body: &[u8]) -> Vec<u8> {
    let mut request = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    request
}

/// Type and value of each attribute behind the first `skipped` bytes.
fn attributes(answer: &[u8], skipped: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = answer.get(skipped..).unwrap_or_default();
    std::iter::from_fn(move || {
        let size = usize::from(half(rest.get(..4)?, 0));
        let (kind, value) = (half(rest, 2), rest.get(4..size)?);
        rest = rest.get(aligned(size)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Bytes that a socket holds, by its `SK_MEMINFO_…`: received, sent or queued, options, and
/// backlog.
fn bytes_held(memory: &[u8]) -> u64 {
    let field = |number: usize| u64::from(word(memory, number * 4));
    field(0) + field(2).max(field(5)) + field(6) + field(7)
}

fn aligned(size: usize) -> usize {
    size.next_multiple_of(4)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Runs this test program again, for one test, in its own network namespace: sockets of other
    /// programs come and go in the host's.
    fn in_own_network(test: &str, body: impl FnOnce(&SocketMemory)) {
        const INSIDE: &str = "RINGFENCE_TEST_IN_OWN_NETWORK";
        if std::env::var_os(INSIDE).is_some() {
            ringfence_sys::net::loopback_up().expect("the loopback can be set up");
            return body(&SocketMemory::open().expect("sock_diag is there"));
        }
        let test = format!(
            "{}::{test}",
            module_path!().split_once("::").expect("the module has a crate").1
        );
        let this = std::env::current_exe().expect("this program has a path");
        let output = std::process::Command::new("unshare")
            .args(["--map-root-user", "--net"])
            .arg(this)
            .args([test.as_str(), "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .expect("unshare starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    #[test]
    fn bytes_of_closed_sender_still_count() {
        in_own_network("bytes_of_closed_sender_still_count", |memory| {
            let mut pairs: Vec<(UnixStream, UnixStream)> =
                (0..64).filter_map(|_| UnixStream::pair().ok()).collect();
            for (one, _) in &mut pairs {
                one.set_nonblocking(true).expect("it can be set");
                while one.write(&[0; 4096]).is_ok() {}
            }
            let filled = memory.bytes();
            assert!(filled > 64 * 100_000, "{filled}");
            let receivers: Vec<UnixStream> = pairs.into_iter().map(|(_, other)| other).collect();
            let orphaned = memory.bytes();
            assert!(orphaned >= filled, "{orphaned} of {filled}");
            drop(receivers);
            assert!(memory.bytes() < filled / 2);
        });
    }

    #[test]
    fn bytes_in_internet_sockets_count() {
        in_own_network("bytes_in_internet_sockets_count", |memory| {
            // Kept open: the kernel frees closed connections some time later.
            let mut open = Vec::new();
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let Ok(listener) = TcpListener::bind(address) else { continue };
                let before = memory.bytes();
                let mut sender = TcpStream::connect(listener.local_addr().expect("it is bound"))
                    .expect("it listens");
                sender.set_nonblocking(true).expect("it can be set");
                while sender.write(&[0; 65536]).is_ok() {}
                let filled = memory.bytes().saturating_sub(before);
                assert!(filled > 1_000_000, "{address}: {filled}");
                open.push((listener, sender));
            }
            assert!(!open.is_empty(), "no loopback address can be bound");
        });
    }

    #[test]
    fn protocol_missing_in_sockstat_counts_as_in_use() {
        let text =
            b"sockets: used 9\nTCP: inuse 12 orphan 0\nUDP: inuse 0 mem 131\nUDPLITE: inuse 4\n";
        assert!(is_in_use(text, b"TCP") && !is_in_use(text, b"UDP"));
        assert!(
            !is_in_use(b"TCP6: inuse 0\nUDP6: inuse 1\n", b"TCP")
                && is_in_use(b"TCP6: inuse 0\nUDP6: inuse 1\n", b"UDP")
        );
        assert!(is_in_use(b"", b"TCP"));
    }
}
