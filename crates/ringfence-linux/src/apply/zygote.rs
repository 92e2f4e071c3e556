//! The zygote: a single-threaded process that does nothing but fork supervisors, for a program with
//! very many sandboxes.
//!
//! It is our binary, executed again once; a fork of it takes a fraction of the time of an exec. Its
//! memory contains no user's data, and it ends with the program.
//!
//! It also keeps network namespaces. Creating and removing one costs the kernel as much as all
//! other namespaces together, and most commands never use theirs. One in which, by the kernel's own
//! counters, nothing happened goes to the next sandbox of the *same* circle, and never to
//! another's: the kernel does not count everything, and a process that has opened a file of
//! `/proc/net` keeps seeing its content. The network belongs to the zygote's user namespace, so no
//! process in a sandbox can change it.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::apply::helper_process::{execute_again, kill_and_reap, message_sockets};
use crate::clock::timespec;
use crate::fuse::pin_to;
use crate::locks::lock;
use crate::open::open;
use ringfence_plan::HostSupport;
use ringfence_plan::seccomp::{ConnectHandling, FileOwner, FilterOptions, GroupSignals, Uncounted};
use ringfence_policy::Observe;
use ringfence_sys::process::{self, ChildStatus, Fork};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{namespace, net};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, sockopt};
use serde::{Deserialize, Serialize};

use super::fd_passing::{receive_bytes_with_fds, send_with_fds};
use super::filter_cache::prepare_filters;
use super::handle::{LaunchError, helper_error};
use super::supervisor::{COMMAND_SIGNALS, CpuPinning, NetnsSource, map_ids, run_supervisor};
use super::{SetupError, SetupStep, support};

/// The argument that starts our binary as a zygote.
pub(super) const ZYGOTE: &str = "--zygote";

/// Timeout for a fork.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a message.
const MAX_MESSAGE: usize = 8192;

/// A request to the zygote.
#[derive(Debug, Serialize, Deserialize)]
enum ZygoteRequest {
    /// Fork a supervisor, which talks to the launcher through the fd that is sent along. The reply
    /// has the same number.
    Make(u64, NetnsReuse),
    /// Reap this supervisor: the launcher no longer uses its pid.
    Reap(i32),
}

/// Requirements for the network namespace of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetnsReuse {
    /// None: the namespace may be one that another sandbox of the named circle had, and did not
    /// use.
    Reusable(Vec<u8>),
    /// DNS responder and proxies listen in it, at ports that only the network's owner may bind.
    Served,
}

/// The zygote, from the launcher's side. Dropping it ends it, and with it every sandbox whose
/// supervisor it forked.
#[derive(Debug)]
pub(crate) struct Zygote {
    control: Mutex<ZygoteSocket>,
    pid: i32,
    processor: Option<usize>,
}

#[derive(Debug)]
struct ZygoteSocket {
    socket: OwnedFd,
    /// Number of the last request.
    last_request: u64,
}

/// A reply: the number of the request, and the pid of the supervisor or an errno.
type ZygoteReply = (u64, Result<i32, i32>);

impl Zygote {
    /// Starts the zygote. `mask` is the signal mask that commands will start with. With a
    /// `processor`, all its sandboxes are built on that CPU.
    pub(crate) fn start(mask: &SignalSet, processor: Option<usize>) -> Result<Self, LaunchError> {
        let (ours, theirs) = message_sockets().map_err(helper_error("socketpair"))?;
        // A stuck zygote must not block the launcher forever.
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Send, Some(TIMEOUT))
            .map_err(helper_error("setsockopt"))?;
        let cpu = processor.map(|processor| processor.to_string());
        let words: Vec<_> = [ZYGOTE].into_iter().chain(cpu.as_deref()).collect();
        let pid = execute_again(&words, &theirs, mask)?;
        Ok(Self {
            control: Mutex::new(ZygoteSocket { socket: ours, last_request: 0 }),
            pid,
            processor,
        })
    }

    /// The CPU on which its sandboxes are built.
    pub(crate) fn cpu(&self) -> Option<usize> {
        self.processor
    }

    /// Forks a supervisor, which talks through `control`. Returns its pid, which is not reused
    /// before [`Self::reap`], and its pidfd.
    pub(super) fn fork_supervisor(
        &self,
        serves: NetnsReuse,
        control: BorrowedFd<'_>,
    ) -> io::Result<(i32, OwnedFd)> {
        lock(&self.control).fork_supervisor(serves, control)
    }

    /// Lets the zygote reap a supervisor that has ended.
    pub(super) fn reap(&self, pid: i32) {
        let control = lock(&self.control);
        let _ = send_with_fds(&control.socket, &ZygoteRequest::Reap(pid), &[]);
    }
}

impl ZygoteSocket {
    fn fork_supervisor(
        &mut self,
        serves: NetnsReuse,
        control: BorrowedFd<'_>,
    ) -> io::Result<(i32, OwnedFd)> {
        self.last_request += 1;
        send_with_fds(&self.socket, &ZygoteRequest::Make(self.last_request, serves), &[control])?;
        let end = Instant::now() + TIMEOUT;
        loop {
            let left = end.checked_duration_since(Instant::now()).ok_or(io::ErrorKind::TimedOut)?;
            let left = timespec(left);
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                ready => ready?,
            };
            let ((number, made), handle) = receive::<ZygoteReply>(&self.socket)?;
            match (made, handle) {
                (Ok(pid), Some(handle)) if number == self.last_request => return Ok((pid, handle)),
                (Err(error), _) if number == self.last_request => {
                    return Err(io::Error::from_raw_os_error(error));
                }
                // A reply that came after its timeout, or without a pidfd because our fd table is
                // full. The supervisor has no peer, and ends by itself.
                (Ok(pid), _) => {
                    send_with_fds(&self.socket, &ZygoteRequest::Reap(pid), &[])?;
                    if number == self.last_request {
                        return Err(io::Error::from_raw_os_error(libc::EMFILE));
                    }
                }
                (Err(_), _) => {}
            }
        }
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        kill_and_reap(self.pid);
    }
}

fn receive<T: for<'a> Deserialize<'a>>(from: &OwnedFd) -> io::Result<(T, Option<OwnedFd>)> {
    let mut buffer = [0; MAX_MESSAGE];
    let (length, fds) = receive_bytes_with_fds(from, &mut buffer, RecvFlags::empty())?;
    let value = postcard::from_bytes(&buffer[..length]);
    Ok((value.map_err(|_| io::ErrorKind::UnexpectedEof)?, fds.into_iter().next()))
}

/// Entry point of the zygote process: it ends when the launcher does.
pub(super) fn main(control: OwnedFd, processor: Option<usize>) -> i32 {
    // Every fork has the compiled filter in its memory.
    prepare_filters(&common_filters(&support()));
    let mut server = ZygoteServer {
        mask: signal::block(&SignalSet::from_signals(COMMAND_SIGNALS))
            .expect("these signals can be blocked"),
        pinning: processor.and_then(pin_to).map_or(CpuPinning::Unpinned, CpuPinning::UntilBuilt),
        // If namespaces are not available, the supervisor reports it.
        own: enter_user_namespace().ok().and_then(|()| PooledNetns::new().ok()),
        idle: VecDeque::new(),
        in_use_networks: HashMap::new(),
    };
    loop {
        let (request, descriptor) = match receive::<ZygoteRequest>(&control) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return 0,
        };
        let sent = match (request, descriptor) {
            (ZygoteRequest::Reap(pid), _) => {
                server.reap(pid);
                continue;
            }
            (ZygoteRequest::Make(number, serves), Some(theirs)) => {
                match server.fork_supervisor(serves, theirs) {
                    Ok((pid, handle)) => send_with_fds::<ZygoteReply>(
                        &control,
                        &(number, Ok(pid)),
                        &[handle.as_fd()],
                    ),
                    Err(error) => send_with_fds::<ZygoteReply>(
                        &control,
                        &(number, Err(error.raw_os_error().unwrap_or(libc::EIO))),
                        &[],
                    ),
                }
            }
            (ZygoteRequest::Make(number, _), None) => {
                send_with_fds::<ZygoteReply>(&control, &(number, Err(libc::EMFILE)), &[])
            }
        };
        if sent.is_err() {
            return 0;
        }
    }
}

/// Filter options of most sandboxes: without limits, and with those of a service.
fn common_filters(support: &HostSupport) -> [FilterOptions; 3] {
    let group_signals =
        if support.has_landlock_scopes() { GroupSignals::Scoped } else { GroupSignals::Refused };
    let owner = FileOwner::from_uid(Some(support.uid));
    let [disk, memory] = [Uncounted::Allowed; 2];
    let free = FilterOptions {
        group_signals,
        owner,
        observe: Observe::Denials,
        connects: ConnectHandling::Isolated,
        disk,
        memory,
    };
    let on_disk = FilterOptions { disk: Uncounted::Refused, ..free };
    [free, on_disk, FilterOptions { memory: Uncounted::Refused, ..on_disk }]
}

/// Enters a user namespace that owns the networks of all sandboxes of this zygote.
fn enter_user_namespace() -> Result<(), SetupError> {
    let (uid, gid) = process::ids();
    namespace::unshare(namespace::USER).during("unshare(CLONE_NEWUSER)")?;
    map_ids(uid, gid)
}

struct ZygoteServer {
    mask: SignalSet,
    pinning: CpuPinning,
    /// The network in which the zygote itself stays; `None` if networks cannot be kept.
    own: Option<PooledNetns>,
    /// Networks that can be reused, with their circles.
    idle: VecDeque<(Vec<u8>, PooledNetns)>,
    /// The networks in use, by supervisor pid.
    in_use_networks: HashMap<i32, (Vec<u8>, PooledNetns)>,
}

impl ZygoteServer {
    fn fork_supervisor(
        &mut self,
        serves: NetnsReuse,
        control: OwnedFd,
    ) -> io::Result<(i32, OwnedFd)> {
        let in_use_networks = match (&self.own, serves) {
            (Some(_), NetnsReuse::Reusable(circle)) => Some((self.network(&circle)?, circle)),
            _ => None,
        };
        let net = if in_use_networks.is_some() { NetnsSource::Found } else { NetnsSource::New };
        let forked = fork_supervisor(net, control, &self.mask, &self.pinning);
        // No supervisor is forked in another sandbox's network.
        self.own.iter().try_for_each(PooledNetns::enter)?;
        let (pid, handle) = forked?;
        self.in_use_networks
            .extend(in_use_networks.map(|(network, circle)| (pid, (circle, network))));
        Ok((pid, handle))
    }

    /// Enters a network that no process is in.
    fn network(&mut self, circle: &[u8]) -> io::Result<PooledNetns> {
        let known = self.idle.iter().rposition(|(whose, _)| whose == circle);
        match known.and_then(|known| self.idle.remove(known)) {
            Some((_, network)) => network.enter().map(|()| network),
            None => PooledNetns::new(),
        }
    }

    /// Reaps a supervisor, and keeps its network if it is unused.
    fn reap(&mut self, pid: i32) {
        let ended = process::await_end(pid);
        let Some((circle, network)) = self.in_use_networks.remove(&pid) else { return };
        // A killed supervisor has not waited for its children: processes may still be in the
        // network.
        let is_over = ended == Some(ChildStatus::Exited(0));
        if is_over && network.enter().is_ok() && network.is_untouched() {
            self.idle.push_back((circle, network));
            if self.idle.len() > MAX_IDLE {
                self.idle.pop_front();
            }
        }
        // If this fails, no supervisor is forked: `make` tries again first.
        let _ = self.own.as_ref().map(PooledNetns::enter);
    }
}

/// Number of idle networks that are kept.
const MAX_IDLE: usize = 16;

/// A network namespace with only a loopback.
struct PooledNetns {
    fd: OwnedFd,
    /// Its counters when it was new.
    new: Vec<u8>,
}

impl PooledNetns {
    /// Creates and enters one.
    fn new() -> io::Result<Self> {
        namespace::unshare(namespace::NETWORK)?;
        net::loopback_up()?;
        let fd = open("/proc/self/ns/net", OFlags::RDONLY)?;
        Ok(Self { fd, new: counters()? })
    }

    fn enter(&self) -> io::Result<()> {
        namespace::enter(self.fd.as_fd(), namespace::NETWORK)
    }

    /// True if the counters of the current network, which must be this one, show no use.
    fn is_untouched(&self) -> bool {
        counters().is_ok_and(|counters| counters == self.new)
    }
}

/// Packets and sockets in the current network. The kernel counts more, such as failed attempts;
/// reading all of it takes half as long as creating a network.
fn counters() -> io::Result<Vec<u8>> {
    let read = |name: &str| match fs::read(format!("/proc/self/net/{name}")) {
        // Without IPv6 there are fewer counters.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    };
    let mut all = sockets_in_use(&read("sockstat")?);
    for name in ["sockstat6", "dev", "ip6_flowlabel"] {
        all.extend(read(name)?);
    }
    Ok(all)
}

/// Socket counts without the machine-wide values.
fn sockets_in_use(sockstat: &[u8]) -> Vec<u8> {
    const MACHINE_WIDE: [&str; 3] = ["alloc", "mem", "orphan"];
    let text = String::from_utf8_lossy(sockstat);
    let mut words = text.split_whitespace();
    let mut kept = String::new();
    while let Some(word) = words.next() {
        if MACHINE_WIDE.contains(&word) {
            words.next();
        } else {
            kept.push_str(word);
            kept.push(' ');
        }
    }
    kept.into_bytes()
}

/// Forks a supervisor.
fn fork_supervisor(
    network: NetnsSource,
    control: OwnedFd,
    mask: &SignalSet,
    pinning: &CpuPinning,
) -> io::Result<(i32, OwnedFd)> {
    match process::fork()? {
        Fork::Child => {
            let _ = signal::set_mask(mask);
            // The fork keeps no other fd of the zygote.
            process::exit_now(run_supervisor(network, control, mask, pinning))
        }
        Fork::Parent(pid) => {
            process::pidfd(pid).map(|handle| (pid, handle)).inspect_err(|_| kill_and_reap(pid))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sockets_in_use;

    #[test]
    fn machine_wide_socket_counters_are_ignored() {
        let text = |used, alloc, mem| {
            format!(
                "sockets: used {used}\nTCP: inuse 0 orphan {alloc} tw 0 alloc {alloc} mem {mem}\nUDP: inuse 0 mem {mem}\n"
            )
        };
        assert_eq!(
            sockets_in_use(text(2, 1, 164).as_bytes()),
            sockets_in_use(text(2, 7, 3).as_bytes())
        );
        assert_ne!(
            sockets_in_use(text(2, 1, 164).as_bytes()),
            sockets_in_use(text(3, 1, 164).as_bytes())
        );
    }
}
