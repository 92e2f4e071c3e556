//! The same ways for programs that would rather ask a proxy.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ringfence_egress::dial::{Dialer, Failure, Host as Dialed, Options};
use ringfence_egress::proxy::{Connection, Gate as Asks, Refusal, RefusalKind, Speech, Wish};
use ringfence_egress::relay::{End, Ending};
use ringfence_policy::{Host, Passage, Way};

use super::gate::{Caller, Gate};
use super::{PATIENCE, look};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where clients of the proxy are served.
pub(super) struct Window {
    pub(super) gate: Arc<Gate>,
    dialer: Dialer,
}

impl Window {
    pub(super) fn of(gate: Arc<Gate>) -> Self {
        Self { gate, dialer: Dialer::direct(PATIENCE) }
    }

    /// What the policy says of it. A client that means its own machine means the host, since the
    /// proxy is there; it reaches its own without one.
    fn passage(&self, host: &Host, port: u16) -> Passage {
        match host {
            Host::Name(name) if name.is_localhost() => self.gate.hosts_loopback(LOOPBACK, port),
            Host::Name(name) => self.gate.name(name, port),
            Host::Address(address) if address.is_loopback() || address.is_unspecified() => self.gate.hosts_loopback(*address, port),
            Host::Address(address) => self.gate.address(*address, port),
        }
    }
}

impl Asks for Window {
    fn open(&self, wish: &Wish<'_>) -> Result<Connection, Refusal> {
        let denied = |sentence: String| Refusal { kind: RefusalKind::Denied, sentence };
        let port = wish.port;
        let host = Host::new(wish.host).map_err(|error| denied(error.to_string()))?;
        let refuse = |passage: &Passage| {
            self.gate.refuse(passage, &Caller::default());
            denied(passage.to_string())
        };
        let passage = self.passage(&host, port);
        let Some(way) = passage.way else { return Err(refuse(&passage)) };
        let (dialed, name) = match &host {
            Host::Name(name) if name.is_localhost() => (Dialed::Address(LOOPBACK), None),
            Host::Name(name) => (Dialed::Name(name.to_string()), Some(name.clone())),
            Host::Address(address) => (Dialed::Address(*address), None),
        };
        let judge = |address: IpAddr| match &name {
            None => Ok(()),
            Some(name) => {
                Some(self.gate.address_of(address, port, Some(name))).filter(|passage| !passage.is_open()).map(Box::new).map_or(Ok(()), Err)
            }
        };
        let reached = self.dialer.connect(&dialed, port, &Options::default(), &judge).map_err(|failure| match &failure {
            Failure::Judged { why, .. } => refuse(why),
            Failure::Connect { .. } if failure.errno() == libc::ECONNREFUSED => {
                Refusal { kind: RefusalKind::Refused, sentence: failure.to_string() }
            }
            Failure::Connect { .. } if failure.errno() == libc::ETIMEDOUT => {
                Refusal { kind: RefusalKind::Late, sentence: failure.to_string() }
            }
            _ => Refusal { kind: RefusalKind::Unreachable, sentence: failure.to_string() },
        })?;
        // A request was read already, and names the host that was asked for.
        let check = match (way, &name, wish.speech) {
            (Way::Checked(check), Some(name), Speech::Tunnel) => Some(look(check, name, port)),
            _ => None,
        };
        let (gate, host) = (self.gate.clone(), host.to_string());
        let ended = move |end: End| {
            if let Ending::Refused(reason) = end.why {
                gate.refuse_talk(&host, port, &reason, &Caller::default());
            }
        };
        Ok(Connection { outside: reached.socket, check, ended: Box::new(ended) })
    }

    fn objected(&self, _client: std::net::SocketAddr, _reason: &str) {}
}
