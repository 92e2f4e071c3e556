//! Stopping and ending what runs in a sandbox.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{SandboxOrder, SupervisorProcess, send};

/// Handle that stops and ends what runs in a sandbox.
#[derive(Debug)]
pub struct Reins {
    pub(super) control: Arc<OwnedFd>,
    pub(super) warden: Option<Arc<SupervisorProcess>>,
}

impl Reins {
    /// Ends everything in the sandbox.
    pub fn end(&self) {
        send(&self.control, SandboxOrder::End);
    }

    /// The same for one that does not listen.
    pub fn kill(&self) {
        self.warden.iter().for_each(|warden| warden.kill());
    }

    /// Asks for [`Event::Settled`].
    pub fn settle(&self) {
        send(&self.control, SandboxOrder::Settle);
    }

    /// Asks for [`Event::Account`].
    pub fn account(&self) {
        send(&self.control, SandboxOrder::Account);
    }

    /// Asks for [`Event::Socket`].
    pub fn ask_for_socket(&self) {
        send(&self.control, SandboxOrder::Socket);
    }

    /// Stops every process in the sandbox.
    pub fn pause(&self) {
        send(&self.control, SandboxOrder::Pause);
    }

    /// Lets everybody go on.
    pub fn resume(&self) {
        send(&self.control, SandboxOrder::Resume);
    }
}
