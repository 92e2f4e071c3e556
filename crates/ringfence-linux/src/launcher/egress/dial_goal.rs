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

use super::gate::{EgressCaller, EgressGate, connection_record};
use super::secrets::SecretInjector;

/// Target of a connection, its caller, and the decision that allows it.
pub(super) struct DialGoal<'a> {
    pub(super) host: DialHost,
    pub(super) port: u16,
    pub(super) judge: &'a AddressCheck<'a>,
    pub(super) caller: EgressCaller,
    pub(super) decision: &'a HostDecision,
    /// Secrets to inject into requests on the way, if any.
    pub(super) injection: Option<SecretInjection>,
}

/// Secrets for a host, and their injector.
pub(super) struct SecretInjection {
    pub(super) injector: Arc<SecretInjector>,
    pub(super) name: HostName,
    pub(super) swaps: Vec<SecretSwap>,
}

/// Callback for the end of a relayed connection.
type OnRelayEnd = Box<dyn FnOnce(RelayEnd) + Send>;

/// Check of each address before it is dialed.
pub(super) type AddressCheck<'a> = dyn Fn(IpAddr) -> Result<(), Box<HostDecision>> + 'a;

impl DialGoal<'_> {
    /// Records a connection to `peer`.
    pub(super) fn record_connected(&self, gate: &EgressGate, peer: SocketAddr) -> ConnectionRecord {
        let made = ConnectionRecord {
            address: Some(peer.to_string()),
            ..connection_record(self.decision, &self.caller)
        };
        gate.record_connection(made.clone());
        made
    }

    /// Records a relayed connection. Returns the socket to the host (the injector's, if secrets are
    /// injected) and the callback for its end.
    pub(super) fn record_relayed(
        &self,
        gate: &Arc<EgressGate>,
        reached: DialedSocket,
    ) -> io::Result<(OwnedFd, OnRelayEnd)> {
        let made = self.record_connected(gate, reached.peer);
        let refuse = {
            let (gate, host, port, caller) =
                (gate.clone(), self.host.to_string(), self.port, self.caller.clone());
            move |why: &str| gate.record_wrong_host(&host, port, why, &caller)
        };
        let socket = match &self.injection {
            None => reached.socket,
            Some(SecretInjection { injector, name, swaps }) => {
                let (recorder, made, refuse) = (gate.clone(), made.clone(), refuse.clone());
                let on_event = Box::new(move |on_event| match on_event {
                    TlsEvent::SecretInserted(secret) => {
                        recorder.record_connection(ConnectionRecord {
                            secrets: vec![secret],
                            count: 0,
                            ..made.clone()
                        })
                    }
                    TlsEvent::Refused(why) => refuse(&why),
                    TlsEvent::Failed(why) => recorder
                        .record_connection(ConnectionRecord { failed: Some(why), ..made.clone() }),
                });
                let request = TerminateRequest {
                    name: name.clone(),
                    port: self.port,
                    swaps: swaps.clone(),
                    on_event,
                };
                injector
                    .terminate(reached.socket, request)
                    .inspect_err(|error| self.failed(gate, error))?
            }
        };
        let gate = gate.clone();
        let ended = Box::new(move |end: RelayEnd| {
            gate.record_connection(ConnectionRecord {
                sent: Some(end.sent),
                received: Some(end.received),
                count: 0,
                ..made
            });
            if let RelayEndReason::Refused(reason) = end.reason {
                refuse(&reason);
            }
        });
        Ok((socket, ended))
    }

    /// The record if the sandbox ends before the connection is made.
    pub(super) fn unfinished(&self) -> ConnectionRecord {
        ConnectionRecord {
            failed: Some(RelayEndReason::Stopped.to_string()),
            ..connection_record(self.decision, &self.caller)
        }
    }

    /// Records a failed dial; returns its errno. Only a policy decision is a denial: a host may be
    /// down.
    pub(super) fn record_failed(
        &self,
        gate: &EgressGate,
        failure: &DialFailure<Box<HostDecision>>,
    ) -> i32 {
        match failure {
            DialFailure::Rejected { why, .. } => gate.record_denial(why, &self.caller),
            _ => self.failed(gate, failure),
        }
        failure.errno()
    }

    fn failed(&self, gate: &EgressGate, why: &impl ToString) {
        gate.record_connection(ConnectionRecord {
            failed: Some(why.to_string()),
            ..connection_record(self.decision, &self.caller)
        });
    }
}

/// Check of the traffic from inside.
pub(super) type OutboundCheck = Box<dyn relay::StreamCheck>;

/// The traffic check for a connection to `name`.
pub(super) fn stream_check(check: RouteCheck, name: &HostName, port: u16) -> OutboundCheck {
    match check {
        RouteCheck::Tls => checks::tls(name.clone()),
        RouteCheck::Http => checks::http(name.clone(), port),
    }
}
