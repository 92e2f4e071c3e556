//! A host that somebody is asked about, and a program that waits for it.

use std::ffi::OsString;
use std::sync::mpsc::Sender;

use ringfence_enforce::apply::PendingConnect;
use ringfence_policy::{HostDecision, HostReason, HostRule, HostTarget};

/// A port of a host, by the name that was looked up.
#[derive(Debug, Clone)]
pub(crate) struct HostPort {
    /// As people are told.
    pub(crate) target: OsString,
    /// The entry that opens it and nothing else.
    pub(crate) rule: HostRule,
}

impl HostPort {
    /// What to ask about where `passage` is shut; `None` where no answer is to open it.
    ///
    /// What is denied stays so, whatever else allows it. A name that leads to a guarded address
    /// is nobody's to open by its name: whoever says yes to a name has not seen where it leads.
    pub(crate) fn of(passage: &HostDecision) -> Option<Self> {
        let is_asked_about = match (&passage.ground, &passage.host) {
            (HostReason::Unlisted, _) | (HostReason::Guarded { .. }, HostTarget::Address(_)) => {
                !passage.is_open()
            }
            _ => false,
        };
        let rule = passage.remedy().filter(|_| is_asked_about)?;
        Some(Self { target: passage.target().into(), rule })
    }
}

/// A program that connects, or a client of the proxy, held until somebody has said something to
/// it. Dropped, it is refused.
#[derive(Debug)]
pub(crate) struct ParkedConnect {
    program: Option<PendingConnect>,
    /// Whoever connects it.
    onwards: Sender<Option<PendingConnect>>,
}

impl ParkedConnect {
    pub(crate) fn new(
        program: Option<PendingConnect>,
        onwards: Sender<Option<PendingConnect>>,
    ) -> Self {
        Self { program, onwards }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        // A client that is gone is noticed when it is answered.
        self.program.as_ref().is_none_or(PendingConnect::is_waiting)
    }

    pub(crate) fn mind_signals(&mut self) {
        self.program.iter_mut().for_each(PendingConnect::mind_signals);
    }

    /// It goes on to be connected.
    pub(crate) fn release(mut self) {
        let _ = self.onwards.send(self.program.take());
    }
}

impl Drop for ParkedConnect {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            program.fail(libc::EACCES);
        }
    }
}
