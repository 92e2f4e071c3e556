//! A syscall that waits for a component other than the notify handler to answer it.
//!
//! The notify handler has reported it and goes on with others. The holder of this value answers in
//! its place, by the notification id, which the kernel never reuses.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ringfence_sys::{process, seccomp};
use serde::{Deserialize, Serialize};

/// A notification, as the notify handler reports it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct NotificationInfo {
    pub(super) id: u64,
    /// The calling process.
    pub(super) pid: u32,
    /// The errno if no component answers.
    pub(super) errno: i32,
}

/// A syscall that waits for an answer. Dropping it fails the syscall.
#[derive(Debug)]
pub(crate) struct ParkedNotification {
    call: Arc<NotifiedCall>,
}

/// The syscall itself.
#[derive(Debug)]
struct NotifiedCall {
    info: NotificationInfo,
    listener: Arc<OwnedFd>,
    is_answered: AtomicBool,
    /// Set if a signal was pending at the last check that another thread may handle.
    was_unsure: AtomicBool,
}

/// Checks the pending signals of a parked syscall, independent of its holder.
#[derive(Debug)]
pub(crate) struct SignalCheck {
    call: Weak<NotifiedCall>,
}

impl SignalCheck {
    /// Lets the caller go if it has a signal to handle. True if it still waits.
    pub(crate) fn check(&self) -> bool {
        let Some(call) = self.call.upgrade() else { return false };
        call.check_signals();
        call.is_waiting()
    }
}

impl NotifiedCall {
    /// The listener and the notification id, for the first caller, which must answer the syscall.
    fn claim(&self) -> io::Result<(BorrowedFd<'_>, u64)> {
        if self.is_answered.swap(true, Ordering::SeqCst) {
            // The caller was let go meanwhile.
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok((self.listener.as_fd(), self.info.id))
    }

    /// Fails the syscall, unless it is answered.
    fn fail(&self, errno: i32) {
        if let Ok((listener, id)) = self.claim() {
            // A caller that is gone needs no answer.
            let _ = seccomp::answer(listener, id, Err(errno));
        }
    }

    fn is_waiting(&self) -> bool {
        !self.is_answered.load(Ordering::SeqCst)
            && seccomp::is_waiting(self.listener.as_fd(), self.info.id)
    }

    fn check_signals(&self) {
        if !self.is_waiting() {
            return;
        }
        let status = process::status(self.info.pid).unwrap_or_default();
        let number = match signal_for(&status) {
            Some(SignalRecipient::Caller) => RESTART,
            // Most are handled by another thread before the second check.
            Some(SignalRecipient::AnyThread)
                if self.was_unsure.swap(true, Ordering::SeqCst) || is_leader(&status) =>
            {
                libc::EINTR
            }
            Some(SignalRecipient::AnyThread) => return,
            None => return self.was_unsure.store(false, Ordering::SeqCst),
        };
        self.fail(number);
    }
}

/// Close-on-exec flag of an fd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CloseOnExec {
    /// The next program inherits the fd.
    Keep,
    /// The next program does not inherit it.
    Close,
}

impl ParkedNotification {
    pub(super) fn new(info: NotificationInfo, listener: Arc<OwnedFd>) -> Self {
        Self {
            call: Arc::new(NotifiedCall {
                info,
                listener,
                is_answered: AtomicBool::new(false),
                was_unsure: AtomicBool::new(false),
            }),
        }
    }

    /// The waiting process.
    pub(crate) fn pid(&self) -> u32 {
        self.call.info.pid
    }

    /// True if the caller still waits. A killed caller does not.
    pub(crate) fn is_waiting(&self) -> bool {
        self.call.is_waiting()
    }

    /// Lets a caller with a pending signal handle it: the kernel then returns to the program or
    /// restarts the syscall, which waits again. Since Linux 5.19 the kernel does not do so by
    /// itself once the notify handler has received the notification.
    pub(crate) fn check_signals(&self) {
        self.call.check_signals();
    }

    /// A handle for another thread that checks signals.
    pub(crate) fn signal_check(&self) -> SignalCheck {
        SignalCheck { call: Arc::downgrade(&self.call) }
    }

    /// Succeeds with this fd; an error if the caller did not get it.
    pub(crate) fn succeed_with_fd(
        self,
        descriptor: &OwnedFd,
        on_execute: CloseOnExec,
    ) -> io::Result<()> {
        let (listener, id) = self.call.claim()?;
        let given = seccomp::answer_with_fd(listener, id, descriptor.as_fd(), on_execute.flags());
        // The caller's fd table is full: that is its error, not a denial.
        if let Some(number) = given.as_ref().err().and_then(io::Error::raw_os_error) {
            let _ = seccomp::answer(listener, id, Err(number));
        }
        given
    }

    /// Succeeds with a file that may be open for writing; our fd is closed before the caller
    /// resumes, because `execve` fails with ETXTBSY while any other process has the file open for
    /// writing.
    pub(crate) fn succeed_with_owned_fd(
        self,
        descriptor: OwnedFd,
        on_execute: CloseOnExec,
    ) -> io::Result<()> {
        let (listener, id) = self.call.claim()?;
        let given = seccomp::add_fd(listener, id, descriptor.as_fd(), on_execute.flags());
        drop(descriptor);
        let ended = given
            .as_ref()
            .map(|number| i64::from(*number))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE));
        seccomp::answer(listener, id, ended).and(given.map(drop))
    }

    /// Replaces the caller's fd `number` with `descriptor` and ends the syscall with `ended`; an
    /// error if the caller did not get it.
    pub(crate) fn replace(
        self,
        number: u32,
        descriptor: &OwnedFd,
        on_execute: CloseOnExec,
        ended: Result<(), i32>,
    ) -> io::Result<()> {
        let (listener, id) = self.call.claim()?;
        let replaced =
            seccomp::replace_fd(listener, id, number, descriptor.as_fd(), on_execute.flags());
        let ended = replaced
            .as_ref()
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
            .copied()
            .and(ended);
        seccomp::answer(listener, id, ended.map(|()| 0)).and(replaced)
    }

    /// Fails with this errno.
    pub(crate) fn fail(self, errno: i32) {
        self.call.fail(errno);
    }

    /// Succeeds; an error if the caller did not get the answer.
    pub(crate) fn succeed(self) -> io::Result<()> {
        let (listener, id) = self.call.claim()?;
        seccomp::answer(listener, id, Ok(0))
    }
}

impl CloseOnExec {
    /// From the flags of a syscall that opens a file.
    pub(super) fn from_flags(flags: i32) -> Self {
        if flags & libc::O_CLOEXEC != 0 { CloseOnExec::Close } else { CloseOnExec::Keep }
    }

    /// As flags for the kernel.
    pub(super) fn flags(self) -> u32 {
        if self == CloseOnExec::Close { libc::O_CLOEXEC as u32 } else { 0 }
    }
}

impl Drop for ParkedNotification {
    fn drop(&mut self) {
        self.call.fail(self.call.info.errno);
    }
}

/// `ERESTARTSYS`: the kernel returns `EINTR` or restarts the syscall, as the signal's handler
/// requests. Valid only for a thread that is about to handle a signal: any other would see the
/// number itself.
pub(super) const RESTART: i32 = 512;

/// The thread that handles a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRecipient {
    /// The calling thread: it is the only one, or the signal was sent to it.
    Caller,
    /// Any thread of its process, as the kernel chooses.
    AnyThread,
}

impl SignalRecipient {
    /// The errno for the syscall.
    pub(super) fn number(self) -> i32 {
        if self == SignalRecipient::Caller { RESTART } else { libc::EINTR }
    }
}

/// The recipient of a pending signal that a thread handles, from its `/proc` `status`.
pub(super) fn signal_for(status: &str) -> Option<SignalRecipient> {
    let set = |name: &str| u64::from_str_radix(field(status, name), 16).unwrap_or(0);
    let handled = !set("SigBlk:") & set("SigCgt:");
    if set("SigPnd:") & handled != 0 {
        return Some(SignalRecipient::Caller);
    }
    let recipient = if field(status, "Threads:") == "1" {
        SignalRecipient::Caller
    } else {
        SignalRecipient::AnyThread
    };
    (set("ShdPnd:") & handled != 0).then_some(recipient)
}

/// True for the thread group leader, which the kernel prefers.
fn is_leader(status: &str) -> bool {
    field(status, "Pid:") == field(status, "Tgid:")
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(own: u64, shared: u64, blocked: u64, threads: u32, expected: Option<SignalRecipient>) {
        let status = format!(
            "Name:\tx\nTgid:\t7\nPid:\t8\nThreads:\t{threads}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigCgt:\t0000000000002000\n"
        );
        assert_eq!(signal_for(&status), expected, "{status}");
    }

    /// ERESTARTSYS is sent only to a thread that certainly handles the signal.
    #[test]
    fn shared_signal_of_threads_gives_eintr() {
        const ALARM: u64 = 1 << 13;
        check(ALARM, 0, 0, 3, Some(SignalRecipient::Caller));
        check(0, ALARM, 0, 1, Some(SignalRecipient::Caller));
        check(0, ALARM, 0, 2, Some(SignalRecipient::AnyThread));
        check(0, ALARM, ALARM, 2, None);
        check(ALARM, ALARM, ALARM, 1, None);
        // No handler.
        check(1, 1, 0, 1, None);
        check(0, 0, 0, 1, None);
        assert_eq!(SignalRecipient::AnyThread.number(), libc::EINTR);
    }
}
