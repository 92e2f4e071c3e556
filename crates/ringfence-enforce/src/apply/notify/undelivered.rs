//! What was done for callers that did not hear of it.
//!
//! Before Linux 5.19 a signal takes a caller away while its call is carried out. The kernel
//! lets it handle the signal and begins the call anew: done a second time, `mkdir` would
//! answer that the directory is there already. So the outcome waits for the same question.

use std::collections::VecDeque;
use std::io;

use ringfence_sys::seccomp::{self, Notification};

use super::NotifyReply;
use super::caller::{CallerMemory, NotifyCaller};

/// Outcomes that nobody has heard yet.
#[derive(Default)]
pub(super) struct UndeliveredReplies {
    kept: VecDeque<UndeliveredReply>,
    /// Whether signals take callers away here.
    interruptible: Option<bool>,
}

struct UndeliveredReply {
    asked: Notification,
    read: CallerMemory,
    reply: NotifyReply,
}

/// Whether the caller did not wait any more.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

impl UndeliveredReplies {
    /// Most callers ask again at once; those that do not are not waited for.
    const MANY: usize = 16;

    /// Keeps what was done for a caller that was gone when it was to be told.
    pub(super) fn keep(
        &mut self,
        asked: &Notification,
        read: CallerMemory,
        reply: NotifyReply,
        error: &io::Error,
    ) {
        // Where only death takes callers away, none comes back.
        if !matches!(reply, NotifyReply::Value(_) | NotifyReply::Descriptor(..))
            || !is_gone(error)
            || !self.is_interruptible()
        {
            return;
        }
        if self.kept.len() == Self::MANY {
            self.kept.pop_front();
        }
        self.kept.push_back(UndeliveredReply { asked: *asked, read, reply });
    }

    fn is_interruptible(&mut self) -> bool {
        *self.interruptible.get_or_insert_with(|| !seccomp::waits_killable())
    }

    /// Until the caller has gone to handle a signal that waits for it. One that is about to
    /// go can still be answered, and does not hear it. Not for long: another thread may be
    /// the one to handle it, and others wait for us.
    pub(super) fn let_go(&mut self, caller: &NotifyCaller<'_>) {
        const TIMES: usize = 1000;
        if self.is_interruptible() {
            (0..TIMES)
                .take_while(|_| caller.signal().is_some() && caller.still_waits().is_ok())
                .for_each(|_| std::thread::yield_now());
        }
    }

    /// What was done for this caller, if it asks for the same once more. Asked for anything
    /// else, it has gone on, and what was kept is forgotten.
    pub(super) fn take(&mut self, caller: &NotifyCaller<'_>) -> Option<NotifyReply> {
        let asks = caller.notification;
        let at = self.kept.iter().position(|kept| kept.asked.pid == asks.pid)?;
        let UndeliveredReply { asked, read, reply } = self.kept.remove(at)?;
        let place = |call: &Notification| (call.arch, call.call, call.instruction, call.arguments);
        (place(&asked) == place(asks) && caller.has(&read)).then_some(reply)
    }
}
