//! Signals.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The set of these signals.
    pub fn from_signals(signals: &[i32]) -> Self {
        // SAFETY: `sigset_t` is plain data; `sigemptyset` initialises it.
        let mut set = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live set.
        unsafe { libc::sigemptyset(&mut set) };
        for &signal in signals {
            // SAFETY: the set was initialised; a number that is no signal is refused by the call.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        Self(set)
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sigset_t {
        &self.0
    }
}

/// Sets the signal mask of this thread and returns the mask before.
pub fn set_mask(set: &SignalSet) -> io::Result<SignalSet> {
    change_mask(libc::SIG_SETMASK, set)
}

/// Blocks the signals of `set` for this thread and returns the mask before.
pub fn block(set: &SignalSet) -> io::Result<SignalSet> {
    change_mask(libc::SIG_BLOCK, set)
}

fn change_mask(how: i32, set: &SignalSet) -> io::Result<SignalSet> {
    let mut before = SignalSet::from_signals(&[]);
    // SAFETY: both pointers are to live, initialised sets.
    match unsafe { libc::pthread_sigmask(how, &set.0, &mut before.0) } {
        0 => Ok(before),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Disposition of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalDisposition {
    /// The default action.
    Default,
    /// Nothing.
    Ignore,
}

/// `sigaction(2)`, without handlers.
pub fn set_disposition(signal: i32, disposition: SignalDisposition) -> io::Result<()> {
    let handler = match disposition {
        SignalDisposition::Default => libc::SIG_DFL,
        SignalDisposition::Ignore => libc::SIG_IGN,
    };
    // SAFETY: no handler of ours is installed, so nothing can run in signal context.
    let before = unsafe { libc::signal(signal, handler) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `signalfd(2)` for `set`, which should be blocked.
pub fn signalfd(set: &SignalSet) -> io::Result<OwnedFd> {
    // SAFETY: the pointer is to a live set.
    let fd = super::check(unsafe {
        libc::signalfd(-1, &set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedSignal {
    /// Its number.
    pub signal: i32,
    /// The sender.
    pub sender: SignalSender,
}

/// Sender of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalSender {
    /// The kernel, e.g. the terminal, which sends to the whole process group.
    Kernel,
    /// A process.
    Process,
}

/// The next signal pending at an fd made by [`signalfd`].
pub fn read_signalfd(descriptor: BorrowedFd<'_>) -> io::Result<Option<ReceivedSignal>> {
    // SAFETY: `signalfd_siginfo` is plain data for which all zeroes is a value.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is `size` bytes long and live.
    let got = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), size) };
    if got < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let sender =
        if info.ssi_code == libc::SI_KERNEL { SignalSender::Kernel } else { SignalSender::Process };
    Ok(Some(ReceivedSignal { signal: info.ssi_signo as i32, sender }))
}

/// `kill(2)`.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    super::check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// `raise(3)`: sends `signal` to this process.
pub fn raise(signal: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    super::check(unsafe { libc::raise(signal) }).map(drop)
}
