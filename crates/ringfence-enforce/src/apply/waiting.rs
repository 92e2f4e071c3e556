//! A call that waits for somebody other than the usher to answer it.
//!
//! The usher has said what it is about and goes on with others. Whoever holds this answers in
//! the usher's place, by the number that the kernel gave the call: nobody else can be meant.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringfence_sys::{process, seccomp};
use serde::{Deserialize, Serialize};

/// A call, as the usher tells of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) id: u64,
    /// Who calls.
    pub(super) pid: u32,
    /// What it is told if nobody answers.
    pub(super) errno: i32,
}

/// A call that waits for an answer. Dropped, it is refused.
#[derive(Debug)]
pub struct Waiting {
    told: Told,
    listener: Arc<OwnedFd>,
    is_answered: bool,
}

/// Whether a descriptor goes along to the next program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnExecute {
    /// It does.
    Keep,
    /// It does not.
    Close,
}

impl Waiting {
    pub(super) fn of(told: Told, listener: Arc<OwnedFd>) -> Self {
        Self { told, listener, is_answered: false }
    }

    /// Who waits.
    pub fn pid(&self) -> u32 {
        self.told.pid
    }

    /// Whether anybody still waits. Whoever was killed does not.
    pub fn is_waiting(&self) -> bool {
        !self.is_answered && seccomp::is_waiting(self.listener.as_fd(), self.told.id)
    }

    /// Lets whoever has a signal to handle go and handle it: the kernel then returns to the
    /// program or makes the call again, and waits anew. It does not do so by itself once the
    /// usher has heard of a call (from 5.19).
    pub fn mind_signals(&mut self) {
        /// The kernel's own word for "as the handler of the signal says".
        const RESTART: i32 = 512;
        if self.is_waiting() && handles_signal(self.told.pid) {
            self.is_answered = true;
            // Whoever is gone by now needs none.
            let _ = seccomp::answer(self.listener.as_fd(), self.told.id, Err(RESTART));
        }
    }

    /// The call has succeeded with this descriptor; an error if its caller never heard of it.
    pub fn give(mut self, descriptor: &OwnedFd, on_execute: OnExecute) -> io::Result<()> {
        let flags = if on_execute == OnExecute::Close { libc::O_CLOEXEC as u32 } else { 0 };
        let given = seccomp::answer_with(self.listener.as_fd(), self.told.id, descriptor.as_fd(), flags);
        // The caller's table is full: that is its error, not a refusal.
        if let Some(number) = given.as_ref().err().and_then(io::Error::raw_os_error) {
            let _ = seccomp::answer(self.listener.as_fd(), self.told.id, Err(number));
        }
        self.is_answered = true;
        given
    }

    /// The caller has `descriptor` in the place of its own of that number now, and the call has
    /// ended so; an error if its caller never heard of it.
    pub fn replace(mut self, number: u32, descriptor: &OwnedFd, on_execute: OnExecute, ended: Result<(), i32>) -> io::Result<()> {
        let flags = if on_execute == OnExecute::Close { libc::O_CLOEXEC as u32 } else { 0 };
        seccomp::replace(self.listener.as_fd(), self.told.id, number, descriptor.as_fd(), flags)?;
        self.is_answered = true;
        seccomp::answer(self.listener.as_fd(), self.told.id, ended.map(|()| 0))
    }

    /// The call has failed with this number.
    pub fn fail(mut self, errno: i32) {
        self.told.errno = errno;
    }

    /// The call has succeeded; an error if its caller never heard of it.
    pub fn done(mut self) -> io::Result<()> {
        self.is_answered = true;
        seccomp::answer(self.listener.as_fd(), self.told.id, Ok(0))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = seccomp::answer(self.listener.as_fd(), self.told.id, Err(self.told.errno));
        }
    }
}

fn handles_signal(pid: u32) -> bool {
    process::status(pid).is_ok_and(|status| has_signal(&status))
}

/// Whether a signal waits for a process that it wants to handle, as its `status` tells.
pub(super) fn has_signal(status: &str) -> bool {
    let set = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(text.trim(), 16).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & set("SigCgt:") != 0
}
