//! Owner of an egress server, which ends with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::apply::PendingConnect;
use crate::locks::lock;

use super::EgressServer;

/// Owner of the egress server. Dropping it closes the server: threads that still dial share the
/// server, and would keep it open.
#[derive(Debug)]
pub(crate) struct EgressGuard(Arc<EgressServer>);

impl EgressGuard {
    pub(super) fn new(egress: EgressServer) -> Self {
        Self(Arc::new(egress))
    }

    /// Passes a socket of the sandbox's network to a published port.
    pub(crate) fn handle_socket(&self, socket: OwnedFd) {
        self.0.handle_socket(socket);
    }

    /// Connects a program, or denies it, on a thread of its own.
    pub(crate) fn handle_connect(&self, program: PendingConnect) {
        self.0.handle_connect(program);
    }
}

impl Drop for EgressGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl EgressServer {
    /// Closes the egress when the sandbox has ended. Published ports are free again; relayed
    /// traffic is counted and unfinished dials are recorded as failed before this returns. Threads
    /// that still dial notice it and end by themselves.
    fn close(&self) {
        drop(lock(&self.published).take());
        self.active_dials.close(&self.gate);
        drop(lock(&self.proxy).take());
        self.relay.close();
    }
}
