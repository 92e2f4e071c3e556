//! Stops and ends the processes in a sandbox.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{SandboxOrder, SupervisorProcess, send};

/// Handle that stops and ends the processes in a sandbox.
#[derive(Debug)]
pub(crate) struct SandboxControl {
    pub(super) control: Arc<OwnedFd>,
    pub(super) supervisor: Option<Arc<SupervisorProcess>>,
}

impl SandboxControl {
    /// Ends every process in the sandbox.
    pub(crate) fn end(&self) {
        send(&self.control, SandboxOrder::End);
    }

    /// Kills the supervisor, for a sandbox that does not react.
    pub(crate) fn kill(&self) {
        self.supervisor.iter().for_each(|supervisor| supervisor.kill());
    }

    /// Requests [`SandboxMessage::Settled`](crate::apply::SandboxMessage::Settled).
    pub(crate) fn request_settled(&self) {
        send(&self.control, SandboxOrder::Settle);
    }

    /// Requests [`SandboxMessage::Usage`](crate::apply::SandboxMessage::Usage).
    pub(crate) fn request_usage(&self) {
        send(&self.control, SandboxOrder::Usage);
    }

    /// Requests [`SandboxMessage::Socket`](crate::apply::SandboxMessage::Socket).
    pub(crate) fn request_socket(&self) {
        send(&self.control, SandboxOrder::Socket);
    }

    /// Stops every process in the sandbox.
    pub(crate) fn pause(&self) {
        send(&self.control, SandboxOrder::Pause);
    }

    /// Continues every process in the sandbox.
    pub(crate) fn resume(&self) {
        send(&self.control, SandboxOrder::Resume);
    }
}
