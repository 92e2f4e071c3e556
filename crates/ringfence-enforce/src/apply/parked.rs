//! A call that waits for somebody other than the usher to answer it.
//!
//! The usher has said what it is about and goes on with others. Whoever holds this answers in
//! the usher's place, by the number that the kernel gave the call: nobody else can be meant.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ringfence_sys::{process, seccomp};
use serde::{Deserialize, Serialize};

/// A call, as the usher tells of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct NotificationInfo {
    pub(super) id: u64,
    /// Who calls.
    pub(super) pid: u32,
    /// What it is told if nobody answers.
    pub(super) errno: i32,
}

/// A call that waits for an answer. Dropped, it is refused.
#[derive(Debug)]
pub struct ParkedNotification {
    call: Arc<NotifiedCall>,
}

/// The call itself.
#[derive(Debug)]
struct NotifiedCall {
    told: NotificationInfo,
    listener: Arc<OwnedFd>,
    is_answered: AtomicBool,
    /// Whether a signal waited when it was looked at last that may be another thread's to handle.
    was_unsure: AtomicBool,
}

/// Somebody who minds the signals of a call, whoever answers it.
#[derive(Debug)]
pub struct SignalCheck {
    call: Weak<NotifiedCall>,
}

impl SignalCheck {
    /// Lets the caller go if it has a signal to handle; answers whether it still waits.
    pub fn mind(&self) -> bool {
        let Some(call) = self.call.upgrade() else { return false };
        call.mind_signals();
        call.is_waiting()
    }
}

impl NotifiedCall {
    /// Whether it is for whoever asks to answer it: once.
    fn claim(&self) -> bool {
        !self.is_answered.swap(true, Ordering::SeqCst)
    }

    fn is_waiting(&self) -> bool {
        !self.is_answered.load(Ordering::SeqCst)
            && seccomp::is_waiting(self.listener.as_fd(), self.told.id)
    }

    fn mind_signals(&self) {
        if !self.is_waiting() {
            return;
        }
        let status = process::status(self.told.pid).unwrap_or_default();
        let number = match signal_for(&status) {
            Some(SignalRecipient::Caller) => RESTART,
            // Most are handled by another thread before they are looked at a second time.
            Some(SignalRecipient::Anybody)
                if self.was_unsure.swap(true, Ordering::SeqCst) || is_leader(&status) =>
            {
                libc::EINTR
            }
            Some(SignalRecipient::Anybody) => return,
            None => return self.was_unsure.store(false, Ordering::SeqCst),
        };
        if self.claim() {
            // Whoever is gone by now needs none.
            let _ = seccomp::answer(self.listener.as_fd(), self.told.id, Err(number));
        }
    }
}

/// Its caller has been let go meanwhile.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// Whether a descriptor goes along to the next program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseOnExec {
    /// It does.
    Keep,
    /// It does not.
    Close,
}

impl ParkedNotification {
    pub(super) fn of(told: NotificationInfo, listener: Arc<OwnedFd>) -> Self {
        Self {
            call: Arc::new(NotifiedCall {
                told,
                listener,
                is_answered: AtomicBool::new(false),
                was_unsure: AtomicBool::new(false),
            }),
        }
    }

    /// Who waits.
    pub fn pid(&self) -> u32 {
        self.call.told.pid
    }

    /// Whether anybody still waits. Whoever was killed does not.
    pub fn is_waiting(&self) -> bool {
        self.call.is_waiting()
    }

    /// Lets whoever has a signal to handle go and handle it: the kernel then returns to the
    /// program or makes the call again, and waits anew. It does not do so by itself once the
    /// usher has heard of a call (from 5.19).
    pub fn mind_signals(&self) {
        self.call.mind_signals();
    }

    /// For somebody else to do that.
    pub fn minder(&self) -> SignalCheck {
        SignalCheck { call: Arc::downgrade(&self.call) }
    }

    /// The call has succeeded with this descriptor; an error if its caller never heard of it.
    pub fn give(self, descriptor: &OwnedFd, on_execute: CloseOnExec) -> io::Result<()> {
        let NotifiedCall { told, listener, .. } = &*self.call;
        if !self.call.claim() {
            return Err(gone());
        }
        let given =
            seccomp::answer_with(listener.as_fd(), told.id, descriptor.as_fd(), on_execute.flags());
        // The caller's table is full: that is its error, not a refusal.
        if let Some(number) = given.as_ref().err().and_then(io::Error::raw_os_error) {
            let _ = seccomp::answer(listener.as_fd(), told.id, Err(number));
        }
        given
    }

    /// The same with a file that may be open to be written, which is the caller's alone once it
    /// goes on: as long as anybody else has it open so, nobody can execute it.
    pub fn give_away(self, descriptor: OwnedFd, on_execute: CloseOnExec) -> io::Result<()> {
        let NotifiedCall { told, listener, .. } = &*self.call;
        if !self.call.claim() {
            return Err(gone());
        }
        let given = seccomp::add(listener.as_fd(), told.id, descriptor.as_fd(), on_execute.flags());
        drop(descriptor);
        let ended = given
            .as_ref()
            .map(|number| i64::from(*number))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE));
        seccomp::answer(listener.as_fd(), told.id, ended).and(given.map(drop))
    }

    /// The caller has `descriptor` in the place of its own of that number now, and the call has
    /// ended so; an error if its caller never heard of it.
    pub fn replace(
        self,
        number: u32,
        descriptor: &OwnedFd,
        on_execute: CloseOnExec,
        ended: Result<(), i32>,
    ) -> io::Result<()> {
        let NotifiedCall { told, listener, .. } = &*self.call;
        if !self.call.claim() {
            return Err(gone());
        }
        let replaced = seccomp::replace(
            listener.as_fd(),
            told.id,
            number,
            descriptor.as_fd(),
            on_execute.flags(),
        );
        let ended = replaced
            .as_ref()
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
            .copied()
            .and(ended);
        seccomp::answer(listener.as_fd(), told.id, ended.map(|()| 0)).and(replaced)
    }

    /// The call has failed with this number.
    pub fn fail(self, errno: i32) {
        if self.call.claim() {
            let _ = seccomp::answer(self.call.listener.as_fd(), self.call.told.id, Err(errno));
        }
    }

    /// The call has succeeded; an error if its caller never heard of it.
    pub fn done(self) -> io::Result<()> {
        if !self.call.claim() {
            return Err(gone());
        }
        seccomp::answer(self.call.listener.as_fd(), self.call.told.id, Ok(0))
    }
}

impl CloseOnExec {
    /// As the flags of a call that opens something say.
    pub(super) fn of(flags: i32) -> Self {
        if flags & libc::O_CLOEXEC != 0 { CloseOnExec::Close } else { CloseOnExec::Keep }
    }

    /// As the kernel is told.
    pub(super) fn flags(self) -> u32 {
        if self == CloseOnExec::Close { libc::O_CLOEXEC as u32 } else { 0 }
    }
}

impl Drop for ParkedNotification {
    fn drop(&mut self) {
        if self.call.claim() {
            let _ = seccomp::answer(
                self.call.listener.as_fd(),
                self.call.told.id,
                Err(self.call.told.errno),
            );
        }
    }
}

/// The kernel's own word for "as the handler of the signal says": it then returns `EINTR` to the
/// program or makes the call again. Only a thread that goes on to handle a signal may be told so:
/// the number itself would be returned to any other.
pub(super) const RESTART: i32 = 512;

/// Who handles a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRecipient {
    /// The thread that calls: it is the only one, or the signal was sent to it.
    Caller,
    /// It or another thread of its process, as the kernel has chosen.
    Anybody,
}

impl SignalRecipient {
    /// What the call is answered with.
    pub(super) fn number(self) -> i32 {
        if self == SignalRecipient::Caller { RESTART } else { libc::EINTR }
    }
}

/// Whether a signal waits for a thread that wants to handle it, and whose it is, as its `status`
/// tells.
pub(super) fn signal_for(status: &str) -> Option<SignalRecipient> {
    let set = |name: &str| u64::from_str_radix(field(status, name), 16).unwrap_or(0);
    let handled = !set("SigBlk:") & set("SigCgt:");
    if set("SigPnd:") & handled != 0 {
        return Some(SignalRecipient::Caller);
    }
    let whose = if field(status, "Threads:") == "1" {
        SignalRecipient::Caller
    } else {
        SignalRecipient::Anybody
    };
    (set("ShdPnd:") & handled != 0).then_some(whose)
}

/// Whether it is the first thread of its process, which the kernel prefers.
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

    /// The kernel's word for a call that is made again is said to nobody who might not handle the
    /// signal.
    #[test]
    fn whose_a_signal_is() {
        const ALARM: u64 = 1 << 13;
        check(ALARM, 0, 0, 3, Some(SignalRecipient::Caller));
        check(0, ALARM, 0, 1, Some(SignalRecipient::Caller));
        check(0, ALARM, 0, 2, Some(SignalRecipient::Anybody));
        check(0, ALARM, ALARM, 2, None);
        check(ALARM, ALARM, ALARM, 1, None);
        // Nobody handles it.
        check(1, 1, 0, 1, None);
        check(0, 0, 0, 1, None);
        assert_eq!(SignalRecipient::Anybody.number(), libc::EINTR);
    }
}
