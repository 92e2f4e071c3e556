//! A connection that is to be made.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_api::Connection;
use ringfence_egress::dial::{Failure, Host, Reached};
use ringfence_egress::ender::{Errand, Swap, Told};
use ringfence_egress::peek::checks;
use ringfence_egress::relay::{self, End, Ending};
use ringfence_policy::{Check, Name, Passage};

use super::gate::{Caller, Gate, connection};
use super::seal::Seal;

/// Whom to reach, for whom, and by what.
pub(super) struct Goal<'a> {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) judge: &'a Judge<'a>,
    pub(super) caller: Caller,
    pub(super) passage: &'a Passage,
    /// What is put into requests on the way, if something is.
    pub(super) sealing: Option<Sealing>,
}

/// Values for a host, and who puts them in.
pub(super) struct Sealing {
    pub(super) seal: Arc<Seal>,
    pub(super) name: Name,
    pub(super) swaps: Vec<Swap>,
}

/// Who is told of the end of a connection that is carried.
type Ended = Box<dyn FnOnce(End) + Send>;

/// Asked about each address before it is tried.
pub(super) type Judge<'a> = dyn Fn(IpAddr) -> Result<(), Box<Passage>> + 'a;

impl Goal<'_> {
    /// Notes that it leads to `peer`.
    pub(super) fn made(&self, gate: &Gate, peer: SocketAddr) -> Connection {
        let made = Connection {
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
        gate: &Arc<Gate>,
        reached: Reached,
    ) -> io::Result<(OwnedFd, Ended)> {
        let made = self.made(gate, reached.peer);
        let refuse = {
            let (gate, host, port, caller) =
                (gate.clone(), self.host.to_string(), self.port, self.caller.clone());
            move |why: &str| gate.refuse_talk(&host, port, why, &caller)
        };
        let socket = match &self.sealing {
            None => reached.socket,
            Some(Sealing { seal, name, swaps }) => {
                let (heard, made, refuse) = (gate.clone(), made.clone(), refuse.clone());
                let told = Box::new(move |told| match told {
                    Told::Put(secret) => heard.connected(Connection {
                        secrets: vec![secret],
                        count: 0,
                        ..made.clone()
                    }),
                    Told::Refused(why) => refuse(&why),
                    Told::Failed(why) => {
                        heard.connected(Connection { failed: Some(why), ..made.clone() })
                    }
                });
                let errand =
                    Errand { name: name.clone(), port: self.port, swaps: swaps.clone(), told };
                seal.end(reached.socket, errand).inspect_err(|error| self.failed(gate, error))?
            }
        };
        let gate = gate.clone();
        let ended = Box::new(move |end: End| {
            gate.connected(Connection {
                sent: Some(end.sent),
                received: Some(end.received),
                count: 0,
                ..made
            });
            if let Ending::Refused(reason) = end.why {
                refuse(&reason);
            }
        });
        Ok((socket, ended))
    }

    /// What is told of it if the sandbox ends before it is made.
    pub(super) fn unfinished(&self) -> Connection {
        Connection {
            failed: Some(Ending::Stopped.to_string()),
            ..connection(self.passage, &self.caller)
        }
    }

    /// Notes that nobody was reached; answers with what number. Only what the policy says is a
    /// refusal: a host may be down.
    pub(super) fn missed(&self, gate: &Gate, failure: &Failure<Box<Passage>>) -> i32 {
        match failure {
            Failure::Judged { why, .. } => gate.refuse(why, &self.caller),
            _ => self.failed(gate, failure),
        }
        failure.errno()
    }

    fn failed(&self, gate: &Gate, why: &impl ToString) {
        gate.connected(Connection {
            failed: Some(why.to_string()),
            ..connection(self.passage, &self.caller)
        });
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
