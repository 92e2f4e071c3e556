//! DNS responder for programs that look up names by themselves in a closed network.
//!
//! It records every name as denied and answers NXDOMAIN. No query leaves the sandbox.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_api::{Denial, Operation};
use ringfence_egress::dns::{nxdomain_reply, queried_name};

use crate::launcher::asks::LivePolicy;
use crate::launcher::denial_log::DenialLog;
use crate::launcher::optional::mark_optional;
use crate::locks::lock;
use crate::new_denial::new_denial;

/// Most sockets served at a time; lookups beyond it get no answer.
const MAX_SOCKETS: usize = 32;

/// Idle time after which a socket is no longer served.
const IDLE: Duration = Duration::from_secs(5);

/// Longest query.
const MAX_QUERY: usize = 512;

/// Denials of names that programs looked up by themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lookups(Arc<Mutex<DenialLog>>);

impl Lookups {
    /// Takes the denials so far.
    pub(crate) fn take_denials(&self) -> DenialLog {
        std::mem::take(&mut *lock(&self.0))
    }

    /// Serves a socket of this process and program, on its own thread.
    pub(crate) fn serve_socket(
        &self,
        socket: UdpSocket,
        asker: (u32, String),
        policy: Option<Arc<LivePolicy>>,
    ) {
        // Each thread holds a clone.
        if Arc::strong_count(&self.0) > MAX_SOCKETS {
            return;
        }
        let lookups = self.clone();
        // Without a thread the socket is closed, and the lookup gets no answer.
        let _ = std::thread::Builder::new()
            .name("lookups".into())
            .spawn(move || lookups.serve(&socket, &asker, policy.as_deref()));
    }

    fn serve(&self, socket: &UdpSocket, asker: &(u32, String), policy: Option<&LivePolicy>) {
        let mut message = [0; MAX_QUERY];
        if socket.set_read_timeout(Some(IDLE)).is_err() {
            return;
        }
        while let Ok(length) = socket.recv(&mut message) {
            let message = &message[..length];
            if let Some(name) = queried_name(message) {
                self.note(denial(name.to_string(), asker), policy);
            }
            // Recorded before the reply: the command may end at once.
            if nxdomain_reply(message).is_none_or(|reply| socket.send(&reply).is_err()) {
                return;
            }
        }
    }

    fn note(&self, denial: Denial, policy: Option<&LivePolicy>) {
        let denial = match policy {
            Some(policy) => policy.read(|grants| mark_optional(denial, grants)),
            None => denial,
        };
        lock(&self.0).record(denial);
    }
}

fn denial(target: String, caller: &(u32, String)) -> Denial {
    let because = (Denial::NETWORK_NONE.to_owned(), "the policy".to_owned());
    new_denial(Operation::Connect, target, because, caller.clone())
}
