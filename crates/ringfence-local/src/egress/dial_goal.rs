//! A connection that is to be made.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_api::ConnectionRecord;
use ringfence_egress::dial::{DialFailure, DialHost, DialedSocket};
use ringfence_egress::peek::checks;
use ringfence_egress::relay::{self, RelayEnd, RelayEndReason};
use ringfence_egress::tls_terminate::{SecretSwap, TerminateRequest, TlsEvent};
use ringfence_policy::{HostDecision, HostName, RouteCheck};

use super::gate::{EgressCaller, EgressGate, connection};
use super::secrets::SecretInjector;

/// Whom to reach, for whom, and by what.
pub(super) struct DialGoal<'a> {
    pub(super) host: DialHost,
    pub(super) port: u16,
    pub(super) judge: &'a AddressCheck<'a>,
    pub(super) caller: EgressCaller,
    pub(super) passage: &'a HostDecision,
    /// What is put into requests on the way, if something is.
    pub(super) sealing: Option<SecretInjection>,
}

/// Values for a host, and who puts them in.
pub(super) struct SecretInjection {
    pub(super) seal: Arc<SecretInjector>,
    pub(super) name: HostName,
    pub(super) swaps: Vec<SecretSwap>,
}

/// Who is told of the end of a connection that is carried.
type OnRelayEnd = Box<dyn FnOnce(RelayEnd) + Send>;

/// Asked about each address before it is tried.
pub(super) type AddressCheck<'a> = dyn Fn(IpAddr) -> Result<(), Box<HostDecision>> + 'a;

impl DialGoal<'_> {
    /// Notes that it leads to `peer`.
    pub(super) fn made(&self, gate: &EgressGate, peer: SocketAddr) -> ConnectionRecord {
        let made = ConnectionRecord {
            address: Some(peer.to_string()),
            ..connection(self.passage, &self.caller)
        };
        gate.connected(made.clone());
        made
    }

    /// Notes the same of one that is carried. Answers the socket that leads there, which is
    /// another one where values are put in, and who is to be told of its end.
    pub(super) fn carried(
        &self,
        gate: &Arc<EgressGate>,
        reached: DialedSocket,
    ) -> io::Result<(OwnedFd, OnRelayEnd)> {
        let made = self.made(gate, reached.peer);
        let refuse = {
            let (gate, host, port, caller) =
                (gate.clone(), self.host.to_string(), self.port, self.caller.clone());
            move |why: &str| gate.refuse_talk(&host, port, why, &caller)
        };
        let socket = match &self.sealing {
            None => reached.socket,
            Some(SecretInjection { seal, name, swaps }) => {
                let (heard, made, refuse) = (gate.clone(), made.clone(), refuse.clone());
                let told = Box::new(move |told| match told {
                    TlsEvent::Put(secret) => heard.connected(ConnectionRecord {
                        secrets: vec![secret],
                        count: 0,
                        ..made.clone()
                    }),
                    TlsEvent::Refused(why) => refuse(&why),
                    TlsEvent::Failed(why) => {
                        heard.connected(ConnectionRecord { failed: Some(why), ..made.clone() })
                    }
                });
                let errand = TerminateRequest {
                    name: name.clone(),
                    port: self.port,
                    swaps: swaps.clone(),
                    told,
                };
                seal.end(reached.socket, errand).inspect_err(|error| self.failed(gate, error))?
            }
        };
        let gate = gate.clone();
        let ended = Box::new(move |end: RelayEnd| {
            gate.connected(ConnectionRecord {
                sent: Some(end.sent),
                received: Some(end.received),
                count: 0,
                ..made
            });
            if let RelayEndReason::Refused(reason) = end.why {
                refuse(&reason);
            }
        });
        Ok((socket, ended))
    }

    /// What is told of it if the sandbox ends before it is made.
    pub(super) fn unfinished(&self) -> ConnectionRecord {
        ConnectionRecord {
            failed: Some(RelayEndReason::Stopped.to_string()),
            ..connection(self.passage, &self.caller)
        }
    }

    /// Notes that nobody was reached; answers with what number. Only what the policy says is a
    /// refusal: a host may be down.
    pub(super) fn missed(
        &self,
        gate: &EgressGate,
        failure: &DialFailure<Box<HostDecision>>,
    ) -> i32 {
        match failure {
            DialFailure::Judged { why, .. } => gate.refuse(why, &self.caller),
            _ => self.failed(gate, failure),
        }
        failure.errno()
    }

    fn failed(&self, gate: &EgressGate, why: &impl ToString) {
        gate.connected(ConnectionRecord {
            failed: Some(why.to_string()),
            ..connection(self.passage, &self.caller)
        });
    }
}

/// Whoever looks at what is said from inside.
pub(super) type OutboundCheck = Box<dyn relay::StreamCheck>;

/// For a connection to `name`.
pub(super) fn look(check: RouteCheck, name: &HostName, port: u16) -> OutboundCheck {
    match check {
        RouteCheck::Tls => checks::tls(name.clone()),
        RouteCheck::Http => checks::http(name.clone(), port),
    }
}
