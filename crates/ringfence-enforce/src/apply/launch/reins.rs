//! Stopping and ending what runs in a sandbox.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Order, Warden, send};

/// Handle that stops and ends what runs in a sandbox.
#[derive(Debug)]
pub struct Reins {
    pub(super) control: Arc<OwnedFd>,
    pub(super) warden: Option<Arc<Warden>>,
}

impl Reins {
    /// Ends everything in the sandbox.
    pub fn end(&self) {
        send(&self.control, Order::End);
    }

    /// The same for one that does not listen.
    pub fn kill(&self) {
        self.warden.iter().for_each(|warden| warden.kill());
    }

    /// Asks for [`Event::Settled`].
    pub fn settle(&self) {
        send(&self.control, Order::Settle);
    }

    /// Asks for [`Event::Account`].
    pub fn account(&self) {
        send(&self.control, Order::Account);
    }

    /// Asks for [`Event::Socket`].
    pub fn ask_for_socket(&self) {
        send(&self.control, Order::Socket);
    }

    /// Stops every process in the sandbox.
    pub fn pause(&self) {
        send(&self.control, Order::Pause);
    }

    /// Lets everybody go on.
    pub fn resume(&self) {
        send(&self.control, Order::Resume);
    }
}
