//! The launcher's side: starts the supervisor and receives its messages.

mod control;

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use crate::apply::helper_process::{execute_again, kill_and_reap, message_sockets};
use crate::fuse::cpu_set_of;
use ringfence_api::host_limits;
use ringfence_plan::NetworkNamespace;
use ringfence_policy::AbsPath;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::signal::SignalSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::thread::CpuSet;

use super::cgroup::{Cgroup, CgroupRelease};
use super::fd_passing::{receive_bytes_with_fds, send_bytes_with_fds, send_with_fds};
use super::parked::ParkedNotification;
use super::reexec::HOST_NETWORK;
use super::restricted::RESTRICTED;
use super::supervisor::CpuPinning;
use super::zygote::{NetnsReuse, Zygote};
use super::{ExecId, ExecSpec, LaunchSpec, NameKind, SandboxMessage, SandboxOrder};
pub(crate) use control::SandboxControl;

/// The reason a command could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The helper process could not be started.
    #[error("cannot start the helper: {what}")]
    Helper {
        /// The attempted step.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A step of building the sandbox failed.
    #[error("{what} failed")]
    Step {
        /// The attempted step.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The helper ended without a message.
    #[error("the helper ended before the command was started")]
    Silent,
}

impl LaunchError {
    /// The next command to type.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            LaunchError::Helper { source, .. } | LaunchError::Step { source, .. }
                if host_limits::limit_hint(source).is_some() =>
            {
                host_limits::limit_hint(source).unwrap_or_default()
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

/// A message of the sandbox, with everything that came along.
#[derive(Debug)]
pub(crate) struct SandboxEvent {
    pub(crate) message: SandboxMessage,
    /// The fds that were sent along, as far as this process could take them.
    pub(crate) fds: Vec<OwnedFd>,
    /// The syscall that waits for an answer, if the message reports one.
    pub(crate) waiting: Option<ParkedNotification>,
}

impl From<SandboxMessage> for SandboxEvent {
    fn from(message: SandboxMessage) -> Self {
        Self { message, fds: Vec::new(), waiting: None }
    }
}

/// A name that the command created and the sweep or the watcher has to know.
#[derive(Debug)]
pub(crate) struct CreatedName {
    /// The directory in which it was created, at its current path; `None` if there were too many.
    pub directory: Option<OwnedFd>,
    /// The path at that time.
    pub path: AbsPath,
    /// Its kind.
    pub what: NameKind,
}

/// A sandbox that runs a command. Dropping it kills every process in it.
#[derive(Debug)]
pub(crate) struct SandboxHandle {
    control: Arc<OwnedFd>,
    supervisor: Option<Arc<SupervisorProcess>>,
    processor: Option<usize>,
    /// The seccomp listener, used to answer parked syscalls. Set by the first
    /// [`SandboxMessage::EntryFds`].
    listener: OnceLock<Arc<OwnedFd>>,
    /// The sandbox's cgroup, if it has one.
    group: Option<Arc<Cgroup>>,
}

/// The supervisor of a sandbox, from the launcher's side.
#[derive(Debug)]
struct SupervisorProcess {
    pid: i32,
    /// A pidfd, valid even if the pid is reused.
    handle: OwnedFd,
    /// The zygote that is its parent, if it is not our child.
    zygote: Option<Arc<Zygote>>,
    /// The control socket of a sandbox without a pid namespace: the helper ends all processes when
    /// it is shut down, and a helper that is killed cannot.
    control: Option<Arc<OwnedFd>>,
}

impl SupervisorProcess {
    /// A child of ours that was not reaped.
    fn ours(pid: i32) -> Result<Self, LaunchError> {
        match process::pidfd(pid) {
            Ok(handle) => Ok(Self { pid, handle, zygote: None, control: None }),
            Err(source) => {
                kill_and_reap(pid);
                Err(LaunchError::Helper { what: "pidfd_open", source })
            }
        }
    }

    fn kill(&self) {
        match &self.control {
            Some(control) => drop(rustix::net::shutdown(control, Shutdown::Both)),
            None => drop(process::pidfd_send_signal(self.handle.as_fd(), libc::SIGKILL)),
        }
    }

    fn wait(&self) {
        let Some(zygote) = &self.zygote else {
            process::await_end(self.pid);
            return;
        };
        while let Err(rustix::io::Errno::INTR) =
            poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], None)
        {}
        zygote.reap(self.pid);
    }
}

/// A supervisor that was started before the policy is known.
///
/// It creates the namespaces and waits in them, while the launcher still reads the policy.
#[derive(Debug)]
pub(crate) struct PrestartedSandbox {
    running: SandboxHandle,
    network: NetworkNamespace,
}

impl PrestartedSandbox {
    /// Starts the supervisor: our binary, executed again, with nothing of ours. `mask` is the
    /// signal mask the command will start with.
    pub(crate) fn start(network: NetworkNamespace, mask: &SignalSet) -> Result<Self, LaunchError> {
        Self::start_with(network, |theirs| {
            Ok((SupervisorProcess::ours(spawn_supervisor(network, &theirs, mask)?)?, None))
        })
    }

    /// Starts the helper of a sandbox without namespaces.
    pub(crate) fn start_restricted(mask: &SignalSet) -> Result<Self, LaunchError> {
        let mut started = Self::start_with(NetworkNamespace::Host, |theirs| {
            Ok((SupervisorProcess::ours(execute_again(&[RESTRICTED], &theirs, mask)?)?, None))
        })?;
        let control = Some(started.running.control.clone());
        if let Some(supervisor) = started.running.supervisor.as_mut().and_then(Arc::get_mut) {
            supervisor.control = control;
        }
        Ok(started)
    }

    /// Forks the supervisor from a zygote, for a sandbox with its own network. Unless hosts are
    /// served in it, the network may be one that another sandbox of the same circle used.
    pub(crate) fn start_from_zygote(
        zygote: &Arc<Zygote>,
        serves: NetnsReuse,
    ) -> Result<Self, LaunchError> {
        let cpu = zygote.cpu();
        Self::start_with(NetworkNamespace::Own, |theirs| {
            let (pid, handle) = zygote
                .fork_supervisor(serves, theirs.as_fd())
                .map_err(helper_io_error("fork from the zygote"))?;
            let zygote = Some(zygote.clone());
            Ok((SupervisorProcess { pid, handle, zygote, control: None }, cpu))
        })
    }

    /// The same for a program that has just started. A single-threaded program is forked, which is
    /// the fastest. The child becomes init with a copy of the caller's memory, so call this before
    /// anything is read, including environment variables.
    pub(crate) fn start_early(
        network: NetworkNamespace,
        mask: &SignalSet,
    ) -> Result<Self, LaunchError> {
        if !has_one_thread() {
            return Self::start(network, mask);
        }
        Self::start_with(network, |theirs| fork_supervisor(network, theirs, mask))
    }

    fn start_with(
        network: NetworkNamespace,
        start: impl FnOnce(OwnedFd) -> Result<(SupervisorProcess, Option<usize>), LaunchError>,
    ) -> Result<Self, LaunchError> {
        let (ours, theirs) = message_sockets().map_err(helper_error("socketpair"))?;
        let (supervisor, processor) = start(theirs)?;
        let supervisor = Some(Arc::new(supervisor));
        Ok(Self {
            running: SandboxHandle {
                control: Arc::new(ours),
                supervisor,
                processor,
                listener: OnceLock::new(),
                group: None,
            },
            network,
        })
    }

    /// The network the supervisor is in.
    pub(crate) fn network(&self) -> NetworkNamespace {
        self.network
    }

    /// Sends the launch spec and the standard streams to the supervisor. The notify handlers of all
    /// sandboxes with the same `lock` file are serialised between a check and its syscall. Open the
    /// file for this sandbox alone: `flock` does not distinguish duplicates of an fd.
    pub(crate) fn launch(
        mut self,
        launch: &LaunchSpec,
        streams: [BorrowedFd<'_>; 3],
        lock: Option<BorrowedFd<'_>>,
    ) -> Result<SandboxHandle, LaunchError> {
        let has_zygote =
            self.running.supervisor.as_ref().is_some_and(|supervisor| supervisor.zygote.is_some());
        let after = if has_zygote { CgroupRelease::UsedAgain } else { CgroupRelease::Removed };
        if let Some(supervisor) = self.running.supervisor_pid() {
            self.running.group =
                Cgroup::for_sandbox(supervisor, &self.running.control, &launch.plan, after)?;
        }
        let failed = helper_io_error("write the plan");
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
                .map_err(helper_error("memfd_create"))?,
        );
        plan.write_all(&bytes).map_err(failed)?;
        let fds: Vec<_> = streams.into_iter().chain([plan.as_fd()]).chain(lock).collect();
        // A supervisor that failed meanwhile has reported it; `next` returns that.
        let _ = send_bytes_with_fds(&self.running.control, b"l", &fds);
        Ok(self.running)
    }
}

pub(super) fn helper_error(what: &'static str) -> impl Fn(rustix::io::Errno) -> LaunchError {
    move |error| LaunchError::Helper { what, source: error.into() }
}

pub(super) fn helper_io_error(what: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| LaunchError::Helper { what, source }
}

/// True if this process has one thread: the link count of a directory is two plus its
/// subdirectories.
fn has_one_thread() -> bool {
    std::fs::metadata("/proc/self/task")
        .is_ok_and(|tasks| std::os::unix::fs::MetadataExt::nlink(&tasks) == 3)
}

fn fork_supervisor(
    network: NetworkNamespace,
    control: OwnedFd,
    mask: &SignalSet,
) -> Result<(SupervisorProcess, Option<usize>), LaunchError> {
    let cpus = rustix::thread::sched_getaffinity(None).ok();
    match process::fork().map_err(helper_io_error("fork"))? {
        Fork::Parent(pid) => {
            Ok((SupervisorProcess::ours(pid)?, cpus.and_then(|cpus| move_to_other_cpu(pid, &cpus))))
        }
        Fork::Child => {
            // Memory of init is visible to root in the sandbox.
            process::clear_environment();
            process::exit_now(super::supervisor::run_supervisor(
                network.into(),
                control,
                mask,
                &cpus.map_or(CpuPinning::Unpinned, CpuPinning::UntilFork),
            ))
        }
    }
}

/// Moves the supervisor to another CPU. By default, the kernel often queues it on the CPU that the
/// caller is busy on, and nothing would run in parallel.
///
/// It returns to all CPUs once it has its launch spec.
fn move_to_other_cpu(pid: i32, cpus: &CpuSet) -> Option<usize> {
    let here = rustix::thread::sched_getcpu();
    let other = (1..CpuSet::MAX_CPU)
        .map(|step| (here + step) % CpuSet::MAX_CPU)
        .find(|other| cpus.is_set(*other))?;
    // An optimisation only.
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(pid), &cpu_set_of(other))
        .ok()
        .map(|()| other)
}

fn spawn_supervisor(
    network: NetworkNamespace,
    control: &OwnedFd,
    mask: &SignalSet,
) -> Result<i32, LaunchError> {
    let words: &[&str] = if network == NetworkNamespace::Host { &[HOST_NETWORK] } else { &[] };
    execute_again(words, control, mask)
}

impl SandboxHandle {
    /// The supervisor's pid.
    pub(crate) fn supervisor_pid(&self) -> Option<i32> {
        self.supervisor.as_ref().map(|supervisor| supervisor.pid)
    }

    /// The CPU on which the sandbox is built.
    pub(crate) fn cpu(&self) -> Option<usize> {
        self.processor
    }

    /// The sandbox's cgroup, if it has one.
    pub(crate) fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.group.clone()
    }

    /// Readable when an event is waiting.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The same fd, for a waiter on another thread.
    pub(crate) fn shared_fd(&self) -> Arc<OwnedFd> {
        self.control.clone()
    }

    /// Receives the next event; blocks.
    pub(crate) fn next_event(&self) -> Result<SandboxEvent, LaunchError> {
        let Some((message, mut fds)) = self.receive() else {
            return Ok(SandboxMessage::Closed.into());
        };
        match &message {
            SandboxMessage::Failed(what, errno) => {
                let source = io::Error::from_raw_os_error(*errno);
                return Err(LaunchError::Step { what: what.clone(), source });
            }
            SandboxMessage::Log(line) => ringfence_log::write_line(line),
            // The first is the seccomp listener.
            SandboxMessage::EntryFds if !fds.is_empty() => {
                let _ = self.listener.set(Arc::new(fds.remove(0)));
            }
            _ => {}
        }
        let waiting = match (message.waiting_call(), self.listener.get()) {
            (None, _) => None,
            (Some(call), Some(listener)) => Some(ParkedNotification::new(call, listener.clone())),
            (Some(_), None) => return Ok(SandboxMessage::Closed.into()),
        };
        Ok(SandboxEvent { message, fds, waiting })
    }

    /// Receives a message and its fds; `None` if the sandbox is gone.
    fn receive(&self) -> Option<(SandboxMessage, Vec<OwnedFd>)> {
        let mut buffer = vec![0; self.next_length()];
        let (length, fds) = loop {
            match receive_bytes_with_fds(&self.control, &mut buffer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                received => break received.ok()?,
            }
        };
        let message = buffer.get(..length).filter(|bytes| !bytes.is_empty())?;
        Some((postcard::from_bytes(message).ok()?, fds))
    }

    /// Length of the next message: most are a few bytes. Blocks.
    fn next_length(&self) -> usize {
        loop {
            match rustix::net::recv(
                &self.control,
                &mut [0u8; 1],
                RecvFlags::PEEK | RecvFlags::TRUNC,
            ) {
                Ok((_, length)) => return length.max(1),
                // Reset: the supervisor ended with unread data. Its earlier messages are still
                // queued and come next.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                Err(_) => return 1,
            }
        }
    }

    /// Starts another process in the sandbox, with these fds. An [`ExecReport`](super::ExecReport)
    /// tells its state.
    pub(crate) fn start_process(
        &self,
        job: ExecId,
        start: &ExecSpec,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = postcard::to_stdvec(start).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut what =
            std::fs::File::from(rustix::fs::memfd_create("ringfence-start", MemfdFlags::CLOEXEC)?);
        what.write_all(&bytes)?;
        let fds: Vec<_> = [what.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
        send_with_fds(&self.control, &SandboxOrder::Start(job), &fds)
    }

    /// Sends the command a signal.
    pub(crate) fn signal(&self, signal: i32) {
        self.order(SandboxOrder::Signal(signal));
    }

    /// Ends every process in the sandbox.
    pub(crate) fn end(&self) {
        self.order(SandboxOrder::End);
    }

    /// A handle that can stop or end the sandbox from another thread.
    pub(crate) fn control(&self) -> SandboxControl {
        SandboxControl { control: self.control.clone(), supervisor: self.supervisor.clone() }
    }

    fn order(&self, order: SandboxOrder) {
        send(&self.control, order);
    }

    /// Kills the supervisor, and with it the sandbox.
    pub(crate) fn kill(&self) {
        self.supervisor.iter().for_each(|supervisor| supervisor.kill());
    }

    /// Releases the sandbox without waiting: every process in it has ended, and the kernel takes
    /// longer to remove its mounts than the command took. For callers about to exit.
    pub(crate) fn release(&mut self) {
        if self.group.is_some() {
            // A cgroup can only be removed when it is empty.
            self.wait();
        }
        self.supervisor = None;
    }

    /// Waits until nothing of the sandbox is left.
    pub(crate) fn wait(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.wait();
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
