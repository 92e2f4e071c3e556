//! Results of syscalls whose caller was interrupted before it got the reply.
//!
//! Before Linux 5.19 a signal interrupts a caller while its syscall is executed. The kernel runs
//! the signal handler and restarts the syscall: executed a second time, `mkdir` would fail with
//! EEXIST. So the result is kept for the restarted syscall.

use std::collections::VecDeque;
use std::io;

use ringfence_sys::seccomp::{self, Notification};

use super::NotifyReply;
use super::caller::{CallerMemory, NotifyCaller};

/// Results that no caller has received yet.
#[derive(Default)]
pub(super) struct UndeliveredReplies {
    kept: VecDeque<UndeliveredReply>,
    /// True if signals interrupt waiting callers on this kernel.
    interruptible: Option<bool>,
}

struct UndeliveredReply {
    notification: Notification,
    read: CallerMemory,
    reply: NotifyReply,
}

/// True if the caller no longer waits.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

impl UndeliveredReplies {
    /// Most callers restart the syscall at once; older entries are dropped.
    const CAPACITY: usize = 16;

    /// Keeps the result for a caller that was gone when the reply was sent.
    pub(super) fn keep(
        &mut self,
        notification: &Notification,
        read: CallerMemory,
        reply: NotifyReply,
        error: &io::Error,
    ) {
        // If only death ends the wait, no caller comes back.
        if !matches!(reply, NotifyReply::Value(_) | NotifyReply::Descriptor(..))
            || !is_gone(error)
            || !self.is_interruptible()
        {
            return;
        }
        if self.kept.len() == Self::CAPACITY {
            self.kept.pop_front();
        }
        self.kept.push_back(UndeliveredReply { notification: *notification, read, reply });
    }

    fn is_interruptible(&mut self) -> bool {
        *self.interruptible.get_or_insert_with(|| !seccomp::supports_wait_killable())
    }

    /// Yields until the caller has gone to handle its pending signal. A reply sent just before that
    /// would be lost. Bounded: another thread may handle the signal, and other callers wait.
    pub(super) fn wait_for_signal(&mut self, caller: &NotifyCaller<'_>) {
        const TIMES: usize = 1000;
        if self.is_interruptible() {
            (0..TIMES)
                .take_while(|_| {
                    caller.pending_signal().is_some() && caller.ensure_waiting().is_ok()
                })
                .for_each(|_| std::thread::yield_now());
        }
    }

    /// The kept result, if the caller repeats the same syscall. For any other syscall the kept
    /// result is dropped.
    pub(super) fn take(&mut self, caller: &NotifyCaller<'_>) -> Option<NotifyReply> {
        let repeated = caller.notification;
        let at = self.kept.iter().position(|kept| kept.notification.pid == repeated.pid)?;
        let UndeliveredReply { notification, read, reply } = self.kept.remove(at)?;
        let key = |call: &Notification| (call.arch, call.call, call.instruction, call.arguments);
        (key(&notification) == key(repeated) && caller.memory_is_unchanged(&read)).then_some(reply)
    }
}
