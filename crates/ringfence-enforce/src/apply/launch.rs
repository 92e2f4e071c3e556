//! The caller's side: starting the helper and hearing from it.

use std::ffi::CString;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_api::{Denial, Status, Usage};
use ringfence_policy::AbsPath;
use ringfence_sys::process::{self, Fork, Wait};
use ringfence_sys::signal::Set;
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType, recvmsg, socketpair};

use super::{CONTROL_FD, HELPER, LAUNCH_FD, Launch, Order, Planted, Report};

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
            LaunchError::Step { what, .. } if what.starts_with("unshare") => {
                "this host forbids unprivileged user namespaces; `ringfence doctor` shows the cause and the fix"
            }
            _ => "`ringfence doctor` shows what this host can do",
        }
    }
}

/// Something that happened to the command.
#[derive(Debug)]
pub enum Event {
    /// It is about to be executed.
    Started,
    /// It could not be executed: the error number.
    NotExecuted(i32),
    /// It was stopped by a signal.
    Stopped(i32),
    /// It ended.
    Ended(Status, Usage),
    /// Something was refused.
    Denied(Denial),
    /// It made a name of git's.
    Made(Made),
    /// Nothing more will come: the sandbox is gone.
    Closed,
}

/// A name of git's that the command made.
#[derive(Debug)]
pub struct Made {
    /// The directory it was made in, wherever that is by now.
    pub directory: OwnedFd,
    /// Where that was then.
    pub path: AbsPath,
    /// Which name.
    pub what: Planted,
}

/// A sandbox that runs a command. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Running {
    control: OwnedFd,
    pid: Option<i32>,
}

/// Starts the helper with `launch`; standard streams are those given.
///
/// `mask` is the signal mask the command starts with. A caller of one thread is copied,
/// which is the fastest; one of several cannot be, and our binary is started anew.
pub fn launch(launch: &Launch, streams: [BorrowedFd<'_>; 3], mask: &Set) -> Result<Running, LaunchError> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(helper("socketpair"))?;
    // Numbers that a later copy could overwrite are moved out of the way.
    let high = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 10).map_err(helper("fcntl"));
    let theirs = high(theirs.as_fd())?;
    let streams = [high(streams[0])?, high(streams[1])?, high(streams[2])?];
    let pid = if has_one_thread() { copy_self(launch, theirs, &streams, mask)? } else { start_anew(launch, &theirs, &streams, mask)? };
    Ok(Running { control: ours, pid: Some(pid) })
}

fn helper(what: &'static str) -> impl Fn(rustix::io::Errno) -> LaunchError {
    move |error| LaunchError::Helper { what, source: error.into() }
}

/// A directory has a link for each directory in it, and two of its own.
fn has_one_thread() -> bool {
    std::fs::metadata("/proc/self/task").is_ok_and(|tasks| std::os::unix::fs::MetadataExt::nlink(&tasks) == 3)
}

fn copy_self(launch: &Launch, control: OwnedFd, streams: &[OwnedFd; 3], mask: &Set) -> Result<i32, LaunchError> {
    match process::fork().map_err(|source| LaunchError::Helper { what: "fork", source })? {
        Fork::Parent(pid) => Ok(pid),
        Fork::Child => {
            let placed = rustix::stdio::dup2_stdin(&streams[0])
                .and_then(|()| rustix::stdio::dup2_stdout(&streams[1]))
                .and_then(|()| rustix::stdio::dup2_stderr(&streams[2]));
            let status = if placed.is_ok() { super::helper::become_warden(launch, control, mask) } else { 125 };
            process::exit_now(status)
        }
    }
}

fn start_anew(launch: &Launch, control: &OwnedFd, streams: &[OwnedFd; 3], mask: &Set) -> Result<i32, LaunchError> {
    let failed = |what: &'static str| move |source: io::Error| LaunchError::Helper { what, source };
    let plan = rustix::fs::memfd_create("ringfence-plan", MemfdFlags::CLOEXEC).map_err(helper("memfd_create"))?;
    let bytes = postcard::to_stdvec(launch).map_err(|_| failed("write the plan")(io::ErrorKind::InvalidData.into()))?;
    let mut file = std::fs::File::from(plan);
    file.write_all(&bytes).and_then(|()| io::Seek::rewind(&mut file)).map_err(failed("write the plan"))?;
    let plan = rustix::io::fcntl_dupfd_cloexec(&file, 10).map_err(helper("fcntl"))?;
    let descriptors = [
        (streams[0].as_fd(), 0),
        (streams[1].as_fd(), 1),
        (streams[2].as_fd(), 2),
        (plan.as_fd(), LAUNCH_FD),
        (control.as_fd(), CONTROL_FD),
    ];
    let name = CString::new(HELPER).expect("a literal without NUL");
    process::spawn(c"/proc/self/exe", &[name], &[], &descriptors, mask).map_err(failed("spawn /proc/self/exe"))
}

impl Running {
    /// Readable when an event waits.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The next event; blocks.
    pub fn next(&self) -> Result<Event, LaunchError> {
        let mut buffer = vec![0; 64 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            match recvmsg(&self.control, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break 0,
            }
        };
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if length == 0 {
            return Ok(Event::Closed);
        }
        let Ok(report) = postcard::from_bytes(&buffer[..length]) else { return Ok(Event::Closed) };
        Ok(match report {
            Report::Started => Event::Started,
            Report::Failed(what, errno) => {
                return Err(LaunchError::Step { what, source: io::Error::from_raw_os_error(errno) });
            }
            Report::NotExecuted(errno) => Event::NotExecuted(errno),
            Report::Stopped(signal) => Event::Stopped(signal),
            Report::Exited(status, usage) => Event::Ended(Status::Exited(status), usage),
            Report::Killed(signal, usage) => Event::Ended(Status::Killed(signal), usage),
            Report::Denied(denial) => Event::Denied(*denial),
            Report::Made(path, what) => match descriptor {
                Some(directory) => Event::Made(Made { directory, path, what }),
                None => Event::Started,
            },
        })
    }

    /// Sends the command a signal.
    pub fn signal(&self, signal: i32) {
        self.order(Order::Signal(signal));
    }

    /// Ends everything in the sandbox.
    pub fn end(&self) {
        self.order(Order::End);
    }

    fn order(&self, order: Order) {
        if let Ok(bytes) = postcard::to_stdvec(&order) {
            let _ = rustix::net::send(&self.control, &bytes, SendFlags::NOSIGNAL);
        }
    }

    /// Lets the sandbox go by itself: everything in it has ended, and taking its mounts
    /// down takes the kernel longer than the command took. For callers about to end.
    pub fn leave(&mut self) {
        self.pid = None;
    }

    /// Waits until nothing of the sandbox is left.
    pub fn wait(&mut self) {
        if let Some(pid) = self.pid.take() {
            while let Ok(Some((_, change, _))) = process::wait(pid, Wait::Block) {
                if matches!(change, process::Change::Exited(_) | process::Change::Killed(_)) {
                    break;
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            let _ = ringfence_sys::signal::kill(pid, libc::SIGKILL);
            self.wait();
        }
    }
}
