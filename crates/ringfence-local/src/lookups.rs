//! Answers to programs that look up names by themselves in a shut network.
//!
//! Every name is told as refused and does not exist. Nothing is passed on.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ringfence_api::{Denial, DenialEvidence, Operation};
use ringfence_egress::dns::{looked_up, no_such_name};

use crate::asks::LivePolicy;
use crate::denial_log::DenialLog;
use crate::optional::marked;

/// Sockets that are answered at a time; lookups beyond it get no answer.
const MOST_SOCKETS: usize = 32;

/// A socket on which nothing is asked for so long is answered no more.
const IDLE: Duration = Duration::from_secs(5);

/// No question is longer.
const LONGEST: usize = 512;

/// The denials of names that programs looked up by themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lookups(Arc<Mutex<DenialLog>>);

impl Lookups {
    /// Takes the denials noted so far.
    pub(crate) fn take(&self) -> DenialLog {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers what this process and program asks on a socket, in a thread of its own.
    pub(crate) fn answer(
        &self,
        socket: UdpSocket,
        asker: (u32, String),
        ground: Option<Arc<LivePolicy>>,
    ) {
        // Each thread holds a clone.
        if Arc::strong_count(&self.0) > MOST_SOCKETS {
            return;
        }
        let lookups = self.clone();
        // Without a thread, the socket is closed and the lookup gets no answer.
        let _ = std::thread::Builder::new()
            .name("lookups".into())
            .spawn(move || lookups.serve(&socket, &asker, ground.as_deref()));
    }

    fn serve(&self, socket: &UdpSocket, asker: &(u32, String), ground: Option<&LivePolicy>) {
        let mut message = [0; LONGEST];
        if socket.set_read_timeout(Some(IDLE)).is_err() {
            return;
        }
        while let Ok(length) = socket.recv(&mut message) {
            let message = &message[..length];
            if let Some(name) = looked_up(message) {
                self.note(denial(name.to_string(), asker), ground);
            }
            // Told before it is answered: the command may end at once.
            if no_such_name(message).is_none_or(|reply| socket.send(&reply).is_err()) {
                return;
            }
        }
    }

    fn note(&self, denial: Denial, ground: Option<&LivePolicy>) {
        let denial = match ground {
            Some(ground) => ground.read(|grants| marked(denial, grants)),
            None => denial,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(denial);
    }
}

fn denial(target: String, (pid, program): &(u32, String)) -> Denial {
    let time_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    Denial {
        operation: Operation::Connect,
        target,
        rule: Denial::NETWORK_SHUT.to_owned(),
        origin: "the policy".to_owned(),
        explicit: false,
        pid: *pid,
        program: program.clone(),
        time_ms,
        evidence: DenialEvidence::Kernel,
        count: 1,
        optional: false,
    }
}
