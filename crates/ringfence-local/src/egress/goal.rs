//! A connection that is to be made.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ringfence_api::Connection;
use ringfence_egress::dial::{Failure, Host};
use ringfence_egress::peek::checks;
use ringfence_egress::relay::{self, End, Ending};
use ringfence_policy::{Check, Name, Passage};

use super::gate::{Caller, Gate, connection};

/// Whom to reach, for whom, and by what.
pub(super) struct Goal<'a> {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) judge: &'a Judge<'a>,
    pub(super) caller: Caller,
    pub(super) passage: &'a Passage,
}

/// Asked about each address before it is tried.
pub(super) type Judge<'a> = dyn Fn(IpAddr) -> Result<(), Box<Passage>> + 'a;

impl Goal<'_> {
    /// Notes that it leads to `peer`.
    pub(super) fn made(&self, gate: &Gate, peer: SocketAddr) -> Connection {
        let made = Connection { address: Some(peer.to_string()), ..connection(self.passage, &self.caller) };
        gate.connected(made.clone());
        made
    }

    /// Notes the same of one that is carried; answers who is to be told of its end.
    pub(super) fn carried(&self, gate: &Arc<Gate>, peer: SocketAddr) -> Box<dyn FnOnce(End) + Send> {
        let (made, gate) = (self.made(gate, peer), gate.clone());
        let (host, port, caller) = (self.host.to_string(), self.port, self.caller.clone());
        Box::new(move |end| {
            gate.connected(Connection { sent: Some(end.sent), received: Some(end.received), count: 0, ..made });
            if let Ending::Refused(reason) = end.why {
                gate.refuse_talk(&host, port, &reason, &caller);
            }
        })
    }

    /// Notes that nobody was reached; answers with what number. Only what the policy says is a
    /// refusal: a host may be down.
    pub(super) fn missed(&self, gate: &Gate, failure: &Failure<Box<Passage>>) -> i32 {
        match failure {
            Failure::Judged { why, .. } => gate.refuse(why, &self.caller),
            _ => gate.connected(Connection { failed: Some(failure.to_string()), ..connection(self.passage, &self.caller) }),
        }
        failure.errno()
    }
}

/// Whoever looks at what is said from inside.
pub(super) type Look = Box<dyn relay::Check>;

/// For a connection to `name`.
pub(super) fn look(check: Check, name: &Name, port: u16) -> Look {
    match check {
        Check::Tls => checks::tls(name.clone()),
        Check::Http => checks::http(name.clone(), port),
    }
}
