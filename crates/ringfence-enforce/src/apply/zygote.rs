//! Where wardens come from in a program that has very many: a process of one thread that does
//! nothing but copy itself.
//!
//! It was our binary started anew, once; a copy of it takes the kernel a fraction of what that
//! takes. It has nothing in its memory that was anybody's, and ends with the program.
//!
//! It also keeps networks. To make one, and to take it down, costs the kernel as much as all other
//! namespaces together, and most commands never use theirs. One in which by the kernel's own counts
//! nothing has happened goes to the next sandbox of the *same* circle, and never to another's: the
//! kernel does not count everything, and whoever has opened a file of `/proc/net` keeps what it
//! shows. It belongs to the nursery's user namespace, so nobody in a sandbox could ever change
//! anything about it.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::Observe;
use ringfence_sys::process::{self, ChildStatus, Fork};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{namespace, net};
use ringfence_tripwire::stay_at;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair, sockopt,
};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use super::handle::{LaunchError, failed, helper};
use super::helper::{CpuPinning, NOT_FOR_US, NetnsSource, become_warden, map_ids, send_with};
use super::{CONTROL_FD, HELPER, SetupError, SetupStep, support};
use crate::seccomp::{self, ConnectHandling, FileOwner, FilterOptions, GroupSignals, Uncounted};
use crate::support::HostSupport;

/// The argument that makes the helper a nursery.
pub(super) const NURSERY: &str = "--nursery";

/// So long it may take to copy itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any message has.
const LONGEST: usize = 8192;

/// What is asked of it.
#[derive(Debug, Serialize, Deserialize)]
enum ZygoteRequest {
    /// A warden, who is to speak with its caller by the descriptor that comes along. The answer
    /// has the same number.
    Make(u64, NetnsReuse),
    /// Nobody waits for this one any more: its number may be another's.
    Reap(i32),
}

/// What has to be there for a sandbox in its network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetnsReuse {
    /// Nothing: it may be one that another sandbox of the circle that is named had, and did nothing
    /// in.
    Nobody(Vec<u8>),
    /// Servers by which some hosts are reached, at ports that only the network's owner may use.
    Hosts,
}

/// The process, from the caller's side. It ends when this is dropped, and with it every sandbox
/// whose warden comes from it.
#[derive(Debug)]
pub struct Zygote {
    control: Mutex<ZygoteSocket>,
    pid: i32,
    processor: Option<usize>,
}

#[derive(Debug)]
struct ZygoteSocket {
    socket: OwnedFd,
    /// How often it was asked for something.
    asked: u64,
}

/// What it answers: to which question, and the number of a warden or why there is none.
type ZygoteReply = (u64, Result<i32, i32>);

impl Zygote {
    /// Starts it. `mask` is the signal mask that commands will start with. Where there is a
    /// `processor`, all sandboxes of it are built there.
    pub fn start(mask: &SignalSet, processor: Option<usize>) -> Result<Self, LaunchError> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(helper("socketpair"))?;
        // One that is stuck keeps nobody waiting for ever.
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Send, Some(PATIENCE))
            .map_err(helper("setsockopt"))?;
        // Out of the way of the number it is to have.
        let theirs = rustix::io::fcntl_dupfd_cloexec(&theirs, 10).map_err(helper("fcntl"))?;
        let words = [HELPER.to_owned(), NURSERY.to_owned()]
            .into_iter()
            .chain(processor.map(|processor| processor.to_string()));
        let arguments: Vec<_> =
            words.map(|word| CString::new(word).expect("a word without NUL")).collect();
        let pid = process::spawn(
            c"/proc/self/exe",
            &arguments,
            &[],
            &[(theirs.as_fd(), CONTROL_FD)],
            mask,
        )
        .map_err(failed("spawn /proc/self/exe"))?;
        Ok(Self { control: Mutex::new(ZygoteSocket { socket: ours, asked: 0 }), pid, processor })
    }

    /// Where its sandboxes are built.
    pub fn processor(&self) -> Option<usize> {
        self.processor
    }

    /// A new warden, that speaks by `control`: its number, which nobody else gets before
    /// [`Self::reap`], and a handle on it.
    pub(super) fn make(
        &self,
        serves: NetnsReuse,
        control: BorrowedFd<'_>,
    ) -> io::Result<(i32, OwnedFd)> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).make(serves, control)
    }

    /// One that has ended is waited for by nobody any more.
    pub(super) fn reap(&self, pid: i32) {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = send_with(&control.socket, &ZygoteRequest::Reap(pid), &[]);
    }
}

impl ZygoteSocket {
    fn make(&mut self, serves: NetnsReuse, control: BorrowedFd<'_>) -> io::Result<(i32, OwnedFd)> {
        self.asked += 1;
        send_with(&self.socket, &ZygoteRequest::Make(self.asked, serves), &[control])?;
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.checked_duration_since(Instant::now()).ok_or(io::ErrorKind::TimedOut)?;
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                ready => ready?,
            };
            let ((number, made), handle) = receive::<ZygoteReply>(&self.socket)?;
            match (made, handle) {
                (Ok(pid), Some(handle)) if number == self.asked => return Ok((pid, handle)),
                (Err(error), _) if number == self.asked => {
                    return Err(io::Error::from_raw_os_error(error));
                }
                // One that nobody waited for so long, or there was no room for the handle. It has
                // nobody to speak with, and ends by itself.
                (Ok(pid), _) => {
                    send_with(&self.socket, &ZygoteRequest::Reap(pid), &[])?;
                    if number == self.asked {
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
        let _ = signal::kill(self.pid, libc::SIGKILL);
        process::await_end(self.pid);
    }
}

fn receive<T: for<'a> Deserialize<'a>>(from: &OwnedFd) -> io::Result<(T, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = [0; LONGEST];
    let length = recvmsg(
        from,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?
    .bytes;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((
        postcard::from_bytes(&buffer[..length]).map_err(|_| io::ErrorKind::UnexpectedEof)?,
        descriptor,
    ))
}

/// The process itself: it ends when its caller does.
pub(super) fn main(control: OwnedFd, processor: Option<usize>) -> i32 {
    // Those who come from here have it in their memory.
    seccomp::make_ready(&usual(&support()));
    let mut nursery = ZygoteServer {
        mask: signal::block(&SignalSet::of(NOT_FOR_US)).expect("these signals can be blocked"),
        stay: processor.and_then(stay_at).map_or(CpuPinning::Anywhere, CpuPinning::ToTheEnd),
        // Where no namespaces can be had, whoever needs them says so.
        own: own_users().ok().and_then(|()| PooledNetns::new().ok()),
        idle: VecDeque::new(),
        lent: HashMap::new(),
    };
    loop {
        let (errand, descriptor) = match receive::<ZygoteRequest>(&control) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return 0,
        };
        let told = match (errand, descriptor) {
            (ZygoteRequest::Reap(pid), _) => {
                nursery.reap(pid);
                continue;
            }
            (ZygoteRequest::Make(number, serves), Some(theirs)) => {
                match nursery.make(serves, theirs) {
                    Ok((pid, handle)) => {
                        send_with::<ZygoteReply>(&control, &(number, Ok(pid)), &[handle.as_fd()])
                    }
                    Err(error) => send_with::<ZygoteReply>(
                        &control,
                        &(number, Err(error.raw_os_error().unwrap_or(libc::EIO))),
                        &[],
                    ),
                }
            }
            (ZygoteRequest::Make(number, _), None) => {
                send_with::<ZygoteReply>(&control, &(number, Err(libc::EMFILE)), &[])
            }
        };
        if told.is_err() {
            return 0;
        }
    }
}

/// Shapes of most sandboxes' filters: without limits, and with those of a service.
fn usual(support: &HostSupport) -> [FilterOptions; 3] {
    let group_signals = if support.scopes() { GroupSignals::Scoped } else { GroupSignals::Refused };
    let owner = FileOwner::of(Some(support.uid));
    let [disk, memory] = [Uncounted::Allowed; 2];
    let free = FilterOptions {
        group_signals,
        owner,
        observe: Observe::Denials,
        connects: ConnectHandling::Shut,
        disk,
        memory,
    };
    let on_disk = FilterOptions { disk: Uncounted::Refused, ..free };
    [free, on_disk, FilterOptions { memory: Uncounted::Refused, ..on_disk }]
}

/// A user namespace for all sandboxes of ours to be in, which has power over their networks.
fn own_users() -> Result<(), SetupError> {
    let (uid, gid) = process::ids();
    namespace::unshare(namespace::USER).during(|| "unshare(CLONE_NEWUSER)".into())?;
    map_ids(uid, gid)
}

struct ZygoteServer {
    mask: SignalSet,
    stay: CpuPinning,
    /// Where we are while nobody is copied; nothing where networks cannot be kept.
    own: Option<PooledNetns>,
    /// Those that can be had again, with whose they were.
    idle: VecDeque<(Vec<u8>, PooledNetns)>,
    /// Those of each sandbox.
    lent: HashMap<i32, (Vec<u8>, PooledNetns)>,
}

impl ZygoteServer {
    fn make(&mut self, serves: NetnsReuse, control: OwnedFd) -> io::Result<(i32, OwnedFd)> {
        let lent = match (&self.own, serves) {
            (Some(_), NetnsReuse::Nobody(circle)) => Some((self.network(&circle)?, circle)),
            _ => None,
        };
        let net = if lent.is_some() { NetnsSource::Found } else { NetnsSource::New };
        let copied = copy(net, control, &self.mask, &self.stay);
        // Nobody is made in a network that is another's.
        self.own.iter().try_for_each(PooledNetns::enter)?;
        let (pid, handle) = copied?;
        self.lent.extend(lent.map(|(network, circle)| (pid, (circle, network))));
        Ok((pid, handle))
    }

    /// Enters a network that nobody is in.
    fn network(&mut self, circle: &[u8]) -> io::Result<PooledNetns> {
        let known = self.idle.iter().rposition(|(whose, _)| whose == circle);
        match known.and_then(|known| self.idle.remove(known)) {
            Some((_, network)) => network.enter().map(|()| network),
            None => PooledNetns::new(),
        }
    }

    /// The sandbox of this warden has ended.
    fn reap(&mut self, pid: i32) {
        let ended = process::await_end(pid);
        let Some((circle, network)) = self.lent.remove(&pid) else { return };
        // One that was killed has waited for nobody: others may still be in it.
        let is_over = ended == Some(ChildStatus::Exited(0));
        if is_over && network.enter().is_ok() && network.is_untouched() {
            self.idle.push_back((circle, network));
            if self.idle.len() > MOST_IDLE {
                self.idle.pop_front();
            }
        }
        // Where that fails, nobody is made any more: it is tried again before the next one is.
        let _ = self.own.as_ref().map(PooledNetns::enter);
    }
}

/// More networks are not kept.
const MOST_IDLE: usize = 16;

/// A network with nothing but a loopback.
struct PooledNetns {
    itself: OwnedFd,
    /// What was counted in it when it was new.
    new: Vec<u8>,
}

impl PooledNetns {
    /// Makes and enters one.
    fn new() -> io::Result<Self> {
        namespace::unshare(namespace::NETWORK)?;
        net::loopback_up()?;
        let itself =
            rustix::fs::open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { itself, new: counted()? })
    }

    fn enter(&self) -> io::Result<()> {
        namespace::enter(self.itself.as_fd(), namespace::NETWORK)
    }

    /// Whether by what is counted nothing happened in it, which is the one we are in.
    fn is_untouched(&self) -> bool {
        counted().is_ok_and(|counted| counted == self.new)
    }
}

/// Packets and sockets in the network that we are in. (There is more that the kernel counts, such
/// as attempts that came to nothing; to ask for all of it takes half as long as to make a network.)
fn counted() -> io::Result<Vec<u8>> {
    let read = |name: &str| match fs::read(format!("/proc/self/net/{name}")) {
        // Without IPv6 there is less to count.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    };
    let mut all = in_use(&read("sockstat")?);
    for name in ["sockstat6", "dev", "ip6_flowlabel"] {
        all.extend(read(name)?);
    }
    Ok(all)
}

/// Of how many sockets there are, without what is counted for the whole machine.
fn in_use(sockstat: &[u8]) -> Vec<u8> {
    const EVERYWHERE: [&str; 3] = ["alloc", "mem", "orphan"];
    let text = String::from_utf8_lossy(sockstat);
    let mut words = text.split_whitespace();
    let mut kept = String::new();
    while let Some(word) = words.next() {
        if EVERYWHERE.contains(&word) {
            words.next();
        } else {
            kept.push_str(word);
            kept.push(' ');
        }
    }
    kept.into_bytes()
}

/// A copy of this process, which is a warden.
fn copy(
    network: NetnsSource,
    control: OwnedFd,
    mask: &SignalSet,
    stay: &CpuPinning,
) -> io::Result<(i32, OwnedFd)> {
    match process::fork()? {
        Fork::Child => {
            let _ = signal::set_mask(mask);
            // It keeps nothing of ours but this.
            process::exit_now(become_warden(network, control, mask, stay))
        }
        Fork::Parent(pid) => process::pidfd(pid).map(|handle| (pid, handle)).inspect_err(|_| {
            let _ = signal::kill(pid, libc::SIGKILL);
            process::await_end(pid);
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::in_use;

    #[test]
    fn what_is_counted_for_the_whole_machine_does_not_count() {
        let text = |used, alloc, mem| {
            format!(
                "sockets: used {used}\nTCP: inuse 0 orphan {alloc} tw 0 alloc {alloc} mem {mem}\nUDP: inuse 0 mem {mem}\n"
            )
        };
        assert_eq!(in_use(text(2, 1, 164).as_bytes()), in_use(text(2, 7, 3).as_bytes()));
        assert_ne!(in_use(text(2, 1, 164).as_bytes()), in_use(text(3, 1, 164).as_bytes()));
    }
}
