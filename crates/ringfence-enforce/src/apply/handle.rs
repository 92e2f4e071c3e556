//! The caller's side: starting the helper and hearing from it.

mod reins;

use std::borrow::Cow;
use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use ringfence_api::{Allowance, Denial, ExitStatus, ResourceUsage};
use ringfence_policy::AbsPath;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::signal::SignalSet;
use ringfence_tripwire::only;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::CpuSet;

use super::cgroup::{Cgroup, CgroupRelease};
use super::config_change::ConfigChange;
use super::helper::{CpuPinning, HOST_NETWORK};
use super::netns_listeners::NetnsListeners;
use super::parked::{CloseOnExec, ParkedNotification};
use super::pending_connect::PendingConnect;
use super::pending_write::PendingWrite;
use super::watcher::SandboxFds;
use super::zygote::{NetnsReuse, Zygote};
use super::{
    Birth, CONTROL_FD, ExecId, ExecReport, ExecSpec, GitMarker, HELPER, InitUsage, LaunchSpec,
    MOST_DESCRIPTORS, SandboxMessage, SandboxOrder, SpaceTaken,
};
use crate::limits;
use crate::plan::NetworkNamespace;
pub use reins::Reins;

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The helper itself could not be started.
    #[error("cannot start the helper: {what}")]
    Helper {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A step of making the sandbox failed.
    #[error("{what} failed")]
    Step {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The helper ended without a word.
    #[error("the helper ended before the command was started")]
    Silent,
}

impl LaunchError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            LaunchError::Helper { .. } => "helper-not-started",
            LaunchError::Step { .. } => "sandbox-not-made",
            LaunchError::Silent => "helper-ended",
        }
    }

    /// What to type next.
    pub fn hint(&self) -> &'static str {
        match self {
            LaunchError::Helper { source, .. } | LaunchError::Step { source, .. }
                if limits::hint(source).is_some() =>
            {
                limits::hint(source).unwrap_or_default()
            }
            LaunchError::Step { what, .. } if what.starts_with("unshare") => {
                "this host forbids unprivileged user namespaces; `ringfence doctor` shows the cause and the fix"
            }
            LaunchError::Step { source, .. } if source.raw_os_error() == Some(libc::ENOSYS) => {
                "ringfence needs Linux 5.14 or later; `ringfence doctor` shows what this host can do"
            }
            _ => "`ringfence doctor` shows what this host can do",
        }
    }
}

/// Something that happened to the command.
#[derive(Debug)]
pub enum SandboxEvent {
    /// It could not be executed: the error number.
    NotExecuted(i32),
    /// It was stopped by a signal.
    Stopped(i32),
    /// It goes on.
    Continued,
    /// It ended.
    Ended(ExitStatus, ResourceUsage),
    /// Something was refused.
    Denied(Denial),
    /// Something is about to be refused, and whoever wants it waits.
    Pleads(PendingWrite),
    /// A program replaces a protected git config, and waits.
    ReplacesConfig(ConfigChange),
    /// The ways out of its network.
    Doors(NetnsListeners),
    /// A program connects to somewhere that is not in the sandbox.
    Connects(PendingConnect),
    /// A socket of its network, as was asked for.
    Socket(OwnedFd),
    /// A program has sent datagrams to a host, which led nowhere.
    Sent {
        /// Where to.
        to: SocketAddr,
        /// Who.
        pid: u32,
        /// Which program.
        program: String,
    },
    /// A program looks up a name, where some can be.
    LooksUp {
        /// Which.
        name: String,
        /// Who.
        pid: u32,
        /// Which program.
        program: String,
    },
    /// A process and program that asks for names by itself in a shut network; the other end of its
    /// socket.
    Queries(u32, String, UdpSocket),
    /// A shell opens one of the streams that are offered to it.
    Takes {
        /// Which one.
        number: u32,
        /// Whether the next program gets it as well.
        on_execute: CloseOnExec,
        /// Whoever opens it, and waits.
        call: ParkedNotification,
    },
    /// Something went through.
    Passed(Allowance),
    /// This much more went through than is told of one by one.
    Unlisted(u64),
    /// It made a name of git's.
    Made(GitMarkerCreated),
    /// Whoever looks for what is not opened waits for an answer here; the sandbox's first
    /// process is the one of this number.
    Wired(OwnedFd, i32),
    /// What it takes to reach into the sandbox.
    Inside(SandboxFds),
    /// Everything that was made before it was asked for has been told.
    Settled,
    /// What only the sandbox's first process knows of what is used, as was asked for.
    Account(InitUsage),
    /// The disk space that the notify handler took for the command so far, where a limit counts it.
    TookSpace(SpaceTaken),
    /// Nobody goes on, as was asked for.
    Paused,
    /// The sandbox stands, and waits to be told what to start.
    Standing,
    /// Something became of a process that was started beside others.
    Of(ExecId, ExecEvent),
    /// Nothing that matters.
    Nothing,
    /// Nothing more will come: the sandbox is gone.
    Closed,
}

/// What became of a process.
#[derive(Debug)]
pub enum ExecEvent {
    /// It runs.
    Started {
        /// Readable when it has ended.
        pidfd: OwnedFd,
        /// Our end of its terminal, if it has one.
        terminal: Option<OwnedFd>,
    },
    /// It could not be executed: the error number.
    NotExecuted(i32),
    /// It ended.
    Ended(ExitStatus, ResourceUsage),
}

/// A name of git's that the command made.
#[derive(Debug)]
pub struct GitMarkerCreated {
    /// The directory it was made in, wherever that is by now; `None` if there were too many.
    pub directory: Option<OwnedFd>,
    /// Where that was then.
    pub path: AbsPath,
    /// Which name.
    pub what: GitMarker,
    /// What was made, where that is known.
    pub birth: Option<Birth>,
}

/// A sandbox that runs a command. Dropping it ends everything in it.
#[derive(Debug)]
pub struct SandboxHandle {
    control: Arc<OwnedFd>,
    warden: Option<Arc<SupervisorProcess>>,
    processor: Option<usize>,
    /// Where calls wait that are answered from here, once there was one.
    listener: OnceLock<Arc<OwnedFd>>,
    /// By which the kernel counts for it, where it does.
    group: Option<Arc<Cgroup>>,
}

/// The warden of a sandbox, from its caller's side.
#[derive(Debug)]
struct SupervisorProcess {
    pid: i32,
    /// Means this very process, also when its number has become another's.
    handle: OwnedFd,
    /// Whose child it is, if not ours.
    nursery: Option<Arc<Zygote>>,
}

impl SupervisorProcess {
    /// A child of ours that was not waited for.
    fn ours(pid: i32) -> Result<Self, LaunchError> {
        match process::pidfd(pid) {
            Ok(handle) => Ok(Self { pid, handle, nursery: None }),
            Err(source) => {
                let _ = ringfence_sys::signal::kill(pid, libc::SIGKILL);
                process::await_end(pid);
                Err(LaunchError::Helper { what: "pidfd_open", source })
            }
        }
    }

    fn kill(&self) {
        let _ = process::signal_by(self.handle.as_fd(), libc::SIGKILL);
    }

    fn wait(&self) {
        let Some(nursery) = &self.nursery else {
            process::await_end(self.pid);
            return;
        };
        while let Err(rustix::io::Errno::INTR) =
            poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], None)
        {}
        nursery.reap(self.pid);
    }
}

/// A helper that was started before it is known what for.
///
/// It makes the namespaces and waits in them, while its caller still reads the policy.
#[derive(Debug)]
pub struct PrestartedSandbox {
    running: SandboxHandle,
    network: NetworkNamespace,
}

impl PrestartedSandbox {
    /// Starts the helper: our binary anew, with nothing of ours. `mask` is the signal mask the
    /// command will start with.
    pub fn start(network: NetworkNamespace, mask: &SignalSet) -> Result<Self, LaunchError> {
        Self::by(network, |theirs| {
            Ok((SupervisorProcess::ours(start_anew(network, &theirs, mask)?)?, None))
        })
    }

    /// The same by a copy of a process that is there for this, for a sandbox with a network of its
    /// own. Unless somebody has to serve hosts in it, it may be one that another of its circle had.
    pub fn start_in(nursery: &Arc<Zygote>, serves: NetnsReuse) -> Result<Self, LaunchError> {
        Self::by(NetworkNamespace::Own, |theirs| {
            let (pid, handle) = nursery
                .make(serves, theirs.as_fd())
                .map_err(failed("ask for a copy of the nursery"))?;
            Ok((
                SupervisorProcess { pid, handle, nursery: Some(nursery.clone()) },
                nursery.processor(),
            ))
        })
    }

    /// The same for a program that has only begun. One of one thread is copied, which is the
    /// fastest. The copy becomes the sandbox's first process with all that is in the memory of the
    /// caller, so this is to be called before anything was read, variables among it.
    pub fn start_early(network: NetworkNamespace, mask: &SignalSet) -> Result<Self, LaunchError> {
        if !has_one_thread() {
            return Self::start(network, mask);
        }
        Self::by(network, |theirs| copy_self(network, theirs, mask))
    }

    fn by(
        network: NetworkNamespace,
        start: impl FnOnce(OwnedFd) -> Result<(SupervisorProcess, Option<usize>), LaunchError>,
    ) -> Result<Self, LaunchError> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(helper("socketpair"))?;
        let (warden, processor) = start(theirs)?;
        let warden = Some(Arc::new(warden));
        Ok(Self {
            running: SandboxHandle {
                control: Arc::new(ours),
                warden,
                processor,
                listener: OnceLock::new(),
                group: None,
            },
            network,
        })
    }

    /// Which network the helper is in.
    pub fn network(&self) -> NetworkNamespace {
        self.network
    }

    /// Tells the helper what to do; standard streams are those given. The notify handlers of all
    /// sandboxes with the same `lock` file keep each other from acting between a judgement and its
    /// call. The file must be opened for this sandbox alone: `flock` does not tell copies of an fd
    /// apart.
    pub fn launch(
        mut self,
        launch: &LaunchSpec,
        streams: [BorrowedFd<'_>; 3],
        lock: Option<BorrowedFd<'_>>,
    ) -> Result<SandboxHandle, LaunchError> {
        let is_one_of_many =
            self.running.warden.as_ref().is_some_and(|warden| warden.nursery.is_some());
        let after = if is_one_of_many { CgroupRelease::UsedAgain } else { CgroupRelease::Removed };
        if let Some(warden) = self.running.pid() {
            self.running.group =
                Cgroup::around(warden, &self.running.control, &launch.plan, after)?;
        }
        let failed = failed("write the plan");
        let memory = Cgroup::memory_counter(self.running.group.as_deref(), &launch.plan);
        let launch = if memory == launch.memory {
            Cow::Borrowed(launch)
        } else {
            Cow::Owned(LaunchSpec { memory, ..launch.clone() })
        };
        let bytes =
            postcard::to_stdvec(&*launch).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
        let mut plan = std::fs::File::from(
            rustix::fs::memfd_create("ringfence-plan", MemfdFlags::CLOEXEC)
                .map_err(helper("memfd_create"))?,
        );
        plan.write_all(&bytes).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = streams.into_iter().chain([plan.as_fd()]).chain(lock).collect();
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        // A helper that failed meanwhile has said so, and will be heard next.
        let _ = sendmsg(
            &self.running.control,
            &[IoSlice::new(b"l")],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
        Ok(self.running)
    }
}

pub(super) fn helper(what: &'static str) -> impl Fn(rustix::io::Errno) -> LaunchError {
    move |error| LaunchError::Helper { what, source: error.into() }
}

pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| LaunchError::Helper { what, source }
}

/// The event of a process that was started beside others.
fn of_job(job: ExecId, fate: ExecReport, descriptors: Vec<OwnedFd>) -> SandboxEvent {
    match fate {
        ExecReport::Started => {
            let mut given = descriptors.into_iter();
            given.next().map_or(SandboxEvent::Closed, |pidfd| {
                SandboxEvent::Of(job, ExecEvent::Started { pidfd, terminal: given.next() })
            })
        }
        ExecReport::NotExecuted(errno) => SandboxEvent::Of(job, ExecEvent::NotExecuted(errno)),
        ExecReport::Exited(status, usage) => {
            SandboxEvent::Of(job, ExecEvent::Ended(ExitStatus::Exited(status), usage))
        }
        ExecReport::Killed(signal, usage) => {
            SandboxEvent::Of(job, ExecEvent::Ended(ExitStatus::Killed(signal), usage))
        }
    }
}

/// A directory has a link for each directory in it, and two of its own.
fn has_one_thread() -> bool {
    std::fs::metadata("/proc/self/task")
        .is_ok_and(|tasks| std::os::unix::fs::MetadataExt::nlink(&tasks) == 3)
}

fn copy_self(
    network: NetworkNamespace,
    control: OwnedFd,
    mask: &SignalSet,
) -> Result<(SupervisorProcess, Option<usize>), LaunchError> {
    let processors = rustix::thread::sched_getaffinity(None).ok();
    match process::fork().map_err(failed("fork"))? {
        Fork::Parent(pid) => Ok((
            SupervisorProcess::ours(pid)?,
            processors.and_then(|processors| send_elsewhere(pid, &processors)),
        )),
        Fork::Child => {
            // What is made of it stands in the sandbox.
            process::forget_variables();
            process::exit_now(super::helper::become_warden(
                network.into(),
                control,
                mask,
                &processors.map_or(CpuPinning::Anywhere, CpuPinning::Shortly),
            ))
        }
    }
}

/// Sends the helper to another processor. Left alone, the kernel often lets it wait for the
/// one its caller is busy on, and nothing would be done meanwhile.
///
/// It returns to all of them when it was told what to do.
fn send_elsewhere(pid: i32, processors: &CpuSet) -> Option<usize> {
    let here = rustix::thread::sched_getcpu();
    let other = (1..CpuSet::MAX_CPU)
        .map(|step| (here + step) % CpuSet::MAX_CPU)
        .find(|other| processors.is_set(*other))?;
    // Only a matter of speed.
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(pid), &only(other))
        .ok()
        .map(|()| other)
}

fn start_anew(
    network: NetworkNamespace,
    control: &OwnedFd,
    mask: &SignalSet,
) -> Result<i32, LaunchError> {
    // Out of the way of the number it is to have.
    let control = rustix::io::fcntl_dupfd_cloexec(control, 10).map_err(helper("fcntl"))?;
    let mut arguments = vec![CString::new(HELPER).expect("a literal without NUL")];
    if network == NetworkNamespace::Host {
        arguments.push(CString::new(HOST_NETWORK).expect("a literal without NUL"));
    }
    process::spawn(c"/proc/self/exe", &arguments, &[], &[(control.as_fd(), CONTROL_FD)], mask)
        .map_err(failed("spawn /proc/self/exe"))
}

impl SandboxHandle {
    /// The warden's number.
    pub fn pid(&self) -> Option<i32> {
        self.warden.as_ref().map(|warden| warden.pid)
    }

    /// The processor that the sandbox is built on.
    pub fn processor(&self) -> Option<usize> {
        self.processor
    }

    /// By which the kernel counts for it, where it does.
    pub fn group(&self) -> Option<Arc<Cgroup>> {
        self.group.clone()
    }

    /// Readable when an event waits.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The same for somebody who waits on another thread.
    pub fn shared_descriptor(&self) -> Arc<OwnedFd> {
        self.control.clone()
    }

    /// The next event; blocks.
    pub fn next(&self) -> Result<SandboxEvent, LaunchError> {
        let mut buffer = vec![0; self.length_of_next()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            match recvmsg(
                &self.control,
                &mut [IoSliceMut::new(&mut buffer)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Ok(received) => break received.bytes,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                Err(_) => break 0,
            }
        };
        let descriptors = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
            _ => None,
        });
        let mut descriptors = descriptors.unwrap_or_default();
        if length == 0 {
            return Ok(SandboxEvent::Closed);
        }
        let Ok(report) = postcard::from_bytes(&buffer[..length]) else {
            return Ok(SandboxEvent::Closed);
        };
        Ok(match report {
            SandboxMessage::Failed(what, errno) => {
                return Err(LaunchError::Step {
                    what,
                    source: io::Error::from_raw_os_error(errno),
                });
            }
            SandboxMessage::NotExecuted(errno) => SandboxEvent::NotExecuted(errno),
            SandboxMessage::Stopped(signal) => SandboxEvent::Stopped(signal),
            SandboxMessage::Exited(status, usage) => {
                SandboxEvent::Ended(ExitStatus::Exited(status), usage)
            }
            SandboxMessage::Killed(signal, usage) => {
                SandboxEvent::Ended(ExitStatus::Killed(signal), usage)
            }
            SandboxMessage::Denied(denial) => SandboxEvent::Denied(*denial),
            SandboxMessage::Pleads(told) => {
                self.listener.get().map_or(SandboxEvent::Closed, |listener| {
                    SandboxEvent::Pleads(PendingWrite::of(told, listener.clone()))
                })
            }
            SandboxMessage::ReplacesConfig(told) => {
                ConfigChange::event(told, descriptors, self.listener.get())
            }
            SandboxMessage::LooksUp(name, pid, program) => {
                SandboxEvent::LooksUp { name, pid, program }
            }
            SandboxMessage::Queries(pid, program) => descriptors
                .pop()
                .map_or(SandboxEvent::Nothing, |fd| SandboxEvent::Queries(pid, program, fd.into())),
            SandboxMessage::Sent(to, pid, program) => SandboxEvent::Sent { to, pid, program },
            SandboxMessage::Socket => {
                descriptors.pop().map_or(SandboxEvent::Nothing, SandboxEvent::Socket)
            }
            SandboxMessage::Doors(more) => NetnsListeners::of(descriptors, more)
                .map_or(SandboxEvent::Closed, SandboxEvent::Doors),
            SandboxMessage::Connects(told) => {
                PendingConnect::event(told, descriptors.pop(), self.listener.get())
            }
            SandboxMessage::Takes(number, on_execute, call) => match self.listener.get() {
                Some(listener) => SandboxEvent::Takes {
                    number,
                    on_execute,
                    call: ParkedNotification::of(call, listener.clone()),
                },
                None => SandboxEvent::Closed,
            },
            SandboxMessage::Passed(allowance) => SandboxEvent::Passed(*allowance),
            SandboxMessage::Unlisted(more) => SandboxEvent::Unlisted(more),
            SandboxMessage::Wired(init) => descriptors
                .pop()
                .map_or(SandboxEvent::Closed, |device| SandboxEvent::Wired(device, init)),
            SandboxMessage::Settled => SandboxEvent::Settled,
            SandboxMessage::Account(account) => SandboxEvent::Account(account),
            SandboxMessage::TookSpace(taken) => SandboxEvent::TookSpace(taken),
            SandboxMessage::Paused => SandboxEvent::Paused,
            SandboxMessage::Inside => {
                let _ = (!descriptors.is_empty())
                    .then(|| self.listener.set(Arc::new(descriptors.remove(0))));
                SandboxFds::of(descriptors).map_or(SandboxEvent::Closed, SandboxEvent::Inside)
            }
            SandboxMessage::Standing => SandboxEvent::Standing,
            SandboxMessage::Of(job, fate) => of_job(job, fate, descriptors),
            SandboxMessage::Made(path, what, birth) => SandboxEvent::Made(GitMarkerCreated {
                directory: descriptors.pop(),
                path,
                what,
                birth,
            }),
        })
    }

    /// How long the next message is: most are a few bytes. Blocks.
    fn length_of_next(&self) -> usize {
        loop {
            match rustix::net::recv(
                &self.control,
                &mut [0u8; 1],
                RecvFlags::PEEK | RecvFlags::TRUNC,
            ) {
                Ok((_, length)) => return length.max(1),
                // Reset: the helper ended with something of ours unread. What it said before
                // is still there, and comes next.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                Err(_) => return 1,
            }
        }
    }

    /// Starts a process beside others, with these descriptors: an event tells what becomes
    /// of it.
    pub fn start(
        &self,
        job: ExecId,
        start: &ExecSpec,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = postcard::to_stdvec(start).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut what =
            std::fs::File::from(rustix::fs::memfd_create("ringfence-start", MemfdFlags::CLOEXEC)?);
        what.write_all(&bytes)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let given: Vec<_> = [what.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
        if !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let order = postcard::to_stdvec(&SandboxOrder::Start(job))
            .map_err(|_| io::ErrorKind::InvalidData)?;
        sendmsg(&self.control, &[IoSlice::new(&order)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends the command a signal.
    pub fn signal(&self, signal: i32) {
        self.order(SandboxOrder::Signal(signal));
    }

    /// Ends everything in the sandbox.
    pub fn end(&self) {
        self.order(SandboxOrder::End);
    }

    /// For somebody else who may stop or end what runs.
    pub fn reins(&self) -> Reins {
        Reins { control: self.control.clone(), warden: self.warden.clone() }
    }

    fn order(&self, order: SandboxOrder) {
        send(&self.control, order);
    }

    /// Ends the warden, and with it everything in the sandbox.
    pub fn kill(&self) {
        self.warden.iter().for_each(|warden| warden.kill());
    }

    /// Lets the sandbox go by itself: everything in it has ended, and taking its mounts
    /// down takes the kernel longer than the command took. For callers about to end.
    pub fn leave(&mut self) {
        if self.group.is_some() {
            // It can only be removed when nobody is left in it.
            self.wait();
        }
        self.warden = None;
    }

    /// Waits until nothing of the sandbox is left.
    pub fn wait(&mut self) {
        if let Some(warden) = self.warden.take() {
            warden.wait();
        }
        self.group = None;
    }
}

fn send(control: &OwnedFd, order: SandboxOrder) {
    if let Ok(bytes) = postcard::to_stdvec(&order) {
        let _ = rustix::net::send(control, &bytes, SendFlags::NOSIGNAL);
    }
}

impl Drop for SandboxHandle {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}
