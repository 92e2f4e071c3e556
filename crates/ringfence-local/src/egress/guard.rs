//! The ways out have an owner, and end with it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_enforce::apply::PendingConnect;

use super::EgressServer;

/// Whoever has the ways out. Dropped, all of them are closed: threads that are about to connect
/// somebody know them too, and would keep them open.
#[derive(Debug)]
pub(crate) struct EgressGuard(Arc<EgressServer>);

impl EgressGuard {
    pub(super) fn of(egress: EgressServer) -> Self {
        Self(Arc::new(egress))
    }

    /// A socket of the sandbox's network is there, for somebody who has come from the host.
    pub(crate) fn arrived(&self, socket: OwnedFd) {
        self.0.arrived(socket);
    }

    /// Connects a program, or refuses to, on a thread of its own.
    pub(crate) fn connects(&self, program: PendingConnect) {
        self.0.connects(program);
    }
}

impl Drop for EgressGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Nothing is left half done by whoever panics.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EgressServer {
    /// The sandbox has ended. Nobody comes in by a published port any more, which is free again;
    /// what was carried is counted, and what was being made has failed, both on record when this
    /// returns. Threads that still dial find out, and end by themselves.
    fn close(&self) {
        drop(lock(&self.published).take());
        self.pending.close(&self.gate);
        drop(lock(&self.proxy).take());
        self.relay.close();
    }
}
