//! A host the user is asked about, and a connect that waits for the answer.

use std::ffi::OsString;
use std::sync::mpsc::Sender;

use crate::apply::PendingConnect;
use ringfence_policy::{HostDecision, HostReason, HostRule, HostTarget};

/// A port of a host, by the name that the program looked up.
#[derive(Debug, Clone)]
pub(crate) struct HostPort {
    /// Target as shown to the user.
    pub(crate) target: OsString,
    /// The rule that opens this target and nothing else.
    pub(crate) rule: HostRule,
}

impl HostPort {
    /// The question for a denied `decision`; `None` if no answer may open it.
    ///
    /// A deny rule stays in force whatever else allows the host. A name that resolves to a guarded
    /// address cannot be opened by name: the user who says yes to a name does not see the address.
    pub(crate) fn from_decision(decision: &HostDecision) -> Option<Self> {
        let is_askable = match (&decision.reason, &decision.host) {
            (HostReason::Unlisted, _) | (HostReason::Guarded { .. }, HostTarget::Address(_)) => {
                !decision.is_open()
            }
            _ => false,
        };
        let rule = decision.remedy().filter(|_| is_askable)?;
        Some(Self { target: decision.target().into(), rule })
    }
}

/// A connecting program, or a client of the proxy, parked until the user answers. Dropping it
/// denies the connect.
#[derive(Debug)]
pub(crate) struct AskedConnect {
    program: Option<PendingConnect>,
    /// Channel to the thread that connects it.
    onwards: Sender<Option<PendingConnect>>,
}

impl AskedConnect {
    pub(crate) fn new(
        program: Option<PendingConnect>,
        onwards: Sender<Option<PendingConnect>>,
    ) -> Self {
        Self { program, onwards }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        // A disconnected proxy client is noticed when ringfence replies to it.
        self.program.as_ref().is_none_or(PendingConnect::is_waiting)
    }

    pub(crate) fn check_signals(&mut self) {
        self.program.iter_mut().for_each(PendingConnect::check_signals);
    }

    /// Sends the program on to be connected.
    pub(crate) fn release(mut self) {
        let _ = self.onwards.send(self.program.take());
    }
}

impl Drop for AskedConnect {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            program.fail(libc::EACCES);
        }
    }
}
