//! The same ways for programs that would rather ask a proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ringfence_egress::dial::{DialFailure, DialHost as Dialed, Dialer, SocketOptions};
use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_egress::proxy::{
    ProxyConnection, ProxyHandler as Asks, ProxyProtocol, ProxyRefusal, ProxyRefusalKind,
    ProxyRequest,
};
use ringfence_policy::{ConnectRoute, HostDecision, HostTarget, PROXY_PORT};

use super::PATIENCE;
use super::dial_goal::{DialGoal, look};
use super::gate::{AllowedConnect, EgressCaller, EgressGate};
use super::pending::PendingDials;

/// Where clients of the proxy are served.
pub(super) struct ProxyGate {
    pub(super) gate: Arc<EgressGate>,
    pool: Arc<FakeIpPool>,
    dialer: Dialer,
    pending: Arc<PendingDials>,
}

impl ProxyGate {
    pub(super) fn of(
        gate: Arc<EgressGate>,
        pool: Arc<FakeIpPool>,
        pending: Arc<PendingDials>,
    ) -> Self {
        let dialer = gate.dialer(PATIENCE);
        Self { gate, pool, dialer, pending }
    }

    /// Whom a client means. Some look names up themselves, and ask for what stands for one.
    fn meant(&self, text: &str) -> Result<HostTarget, ProxyRefusal> {
        let host = HostTarget::new(text).map_err(|error| denied(error.to_string()))?;
        match host {
            HostTarget::Address(address) if FakeIpPool::covers(address) => {
                let name = self.pool.name_of(address, Instant::now());
                name.map(HostTarget::Name)
                    .ok_or_else(|| denied(format!("{address} stands for no name")))
            }
            host => Ok(host),
        }
    }

    /// What the policy says of it. A client that means its own machine means the host, since the
    /// proxy is there; it reaches its own without one.
    fn passage(&self, host: &HostTarget, port: u16) -> HostDecision {
        match host {
            HostTarget::Name(name) if name.is_localhost() => {
                self.gate.hosts_loopback(LOOPBACK, port)
            }
            HostTarget::Address(address) if address.is_loopback() || address.is_unspecified() => {
                self.gate.hosts_loopback(*address, port)
            }
            _ => self.gate.host(host, port, None),
        }
    }
}

/// What `localhost` is.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn denied(sentence: String) -> ProxyRefusal {
    ProxyRefusal { kind: ProxyRefusalKind::Denied, sentence }
}

/// What a client is told of a host that was not reached.
fn unreached(failure: &DialFailure<Box<HostDecision>>) -> ProxyRefusal {
    let kind = match (failure, failure.errno()) {
        (DialFailure::Judged { why, .. }, _) => return denied(why.to_string()),
        (DialFailure::Connect { .. }, libc::ECONNREFUSED) => ProxyRefusalKind::Refused,
        (DialFailure::Connect { .. }, libc::ETIMEDOUT) => ProxyRefusalKind::Late,
        _ => ProxyRefusalKind::Unreachable,
    };
    ProxyRefusal { kind, sentence: failure.to_string() }
}

impl Asks for ProxyGate {
    fn open(&self, wish: &ProxyRequest<'_>) -> Result<ProxyConnection, ProxyRefusal> {
        let (port, caller) = (wish.port, EgressCaller::default());
        let host = self.meant(wish.host)?;
        let admitted = self.gate.admit(self.passage(&host, port), None, &caller);
        let AllowedConnect { passage, also, .. } =
            admitted.map_err(|passage| denied(passage.to_string()))?;
        let (dialed, name) = match &host {
            HostTarget::Name(name) if name.is_localhost() => (Dialed::Address(LOOPBACK), None),
            HostTarget::Name(name) => (Dialed::Name(name.to_string()), Some(name)),
            HostTarget::Address(address) => (Dialed::Address(*address), None),
        };
        let judge = |address: IpAddr| {
            let named = name.map(|name| self.gate.address_of(name, address, port, also.as_ref()));
            named
                .filter(|passage| !passage.is_open())
                .map_or(Ok(()), |passage| Err(Box::new(passage)))
        };
        // What is sent in the clear carries no secret.
        let sealing = name
            .filter(|_| wish.speech == ProxyProtocol::Tunnel)
            .and_then(|name| self.gate.sealing(name, port));
        let goal =
            DialGoal { host: dialed, port, judge: &judge, caller, passage: &passage, sealing };
        let attempt = self.pending.begin(goal.unfinished());
        let is_wanted = || !self.pending.is_closed();
        let reached = match self.dialer.connect_while(
            &is_wanted,
            &goal.host,
            port,
            &SocketOptions::default(),
            goal.judge,
        ) {
            Ok(reached) => reached,
            Err(failure) => {
                attempt.settle(|| goal.missed(&self.gate, &failure));
                return Err(unreached(&failure));
            }
        };
        // A request was read already, and names the host that was asked for.
        let check = match (passage.way, name, wish.speech) {
            _ if goal.sealing.is_some() => None,
            (Some(ConnectRoute::Checked(check)), Some(name), ProxyProtocol::Tunnel) => {
                Some(look(check, name, port))
            }
            _ => None,
        };
        let unreachable = |error: io::Error| ProxyRefusal {
            kind: ProxyRefusalKind::Unreachable,
            sentence: error.to_string(),
        };
        let carried = attempt.settle(|| goal.carried(&self.gate, reached));
        let (outside, ended) = carried
            .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
            .map_err(unreachable)?;
        Ok(ProxyConnection { outside, check, ended })
    }

    fn objected(&self, _client: SocketAddr, reason: &str) {
        self.gate.refuse_talk(
            "localhost",
            PROXY_PORT,
            &format!("the proxy does not listen to that: {reason}"),
            &EgressCaller::default(),
        );
    }
}
