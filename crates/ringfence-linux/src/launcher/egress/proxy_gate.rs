//! Egress for programs that use a proxy.

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

use super::DIAL_LIMIT;
use super::active_dials::ActiveDials;
use super::dial_goal::{DialGoal, stream_check};
use super::gate::{AllowedConnect, EgressCaller, EgressGate};

/// Serves the clients of the proxy.
pub(super) struct ProxyGate {
    pub(super) gate: Arc<EgressGate>,
    pool: Arc<FakeIpPool>,
    dialer: Dialer,
    active_dials: Arc<ActiveDials>,
}

impl ProxyGate {
    pub(super) fn new(
        gate: Arc<EgressGate>,
        pool: Arc<FakeIpPool>,
        active_dials: Arc<ActiveDials>,
    ) -> Self {
        let dialer = gate.dialer(DIAL_LIMIT);
        Self { gate, pool, dialer, active_dials }
    }

    /// The host that a client asks for. Some clients resolve names themselves and ask for the fake
    /// IP.
    fn target_host(&self, text: &str) -> Result<HostTarget, ProxyRefusal> {
        let host = HostTarget::new(text).map_err(|error| denied(error.to_string()))?;
        match host {
            HostTarget::Address(address) if FakeIpPool::is_fake(address) => {
                let name = self.pool.name_of(address, Instant::now());
                name.map(HostTarget::Name).ok_or_else(|| {
                    denied(format!("{address} is an expired address of the sandbox's DNS"))
                })
            }
            host => Ok(host),
        }
    }

    /// The decision on a host. A client that asks for loopback means the host's, since the proxy
    /// runs there; its own loopback needs no proxy.
    fn decide(&self, host: &HostTarget, port: u16) -> HostDecision {
        match host {
            HostTarget::Name(name) if name.is_localhost() => {
                self.gate.hosts_loopback(LOOPBACK, port)
            }
            HostTarget::Address(address) if address.is_loopback() || address.is_unspecified() => {
                self.gate.hosts_loopback(*address, port)
            }
            _ => self.gate.decide_host(host, port, None),
        }
    }
}

/// The address of `localhost`.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn denied(sentence: String) -> ProxyRefusal {
    ProxyRefusal { kind: ProxyRefusalKind::Denied, message: sentence }
}

/// The proxy's reply for a host that was not reached.
fn dial_refusal(failure: &DialFailure<Box<HostDecision>>) -> ProxyRefusal {
    let kind = match (failure, failure.errno()) {
        (DialFailure::Rejected { why, .. }, _) => return denied(why.to_string()),
        (DialFailure::Connect { .. }, libc::ECONNREFUSED) => ProxyRefusalKind::Refused,
        (DialFailure::Connect { .. }, libc::ETIMEDOUT) => ProxyRefusalKind::Late,
        _ => ProxyRefusalKind::Unreachable,
    };
    ProxyRefusal { kind, message: failure.to_string() }
}

impl Asks for ProxyGate {
    fn open(&self, request: &ProxyRequest<'_>) -> Result<ProxyConnection, ProxyRefusal> {
        let (port, caller) = (request.port, EgressCaller::default());
        let host = self.target_host(request.host)?;
        let admitted = self.gate.deny_or_ask(self.decide(&host, port), None, &caller);
        let AllowedConnect { decision, also, .. } =
            admitted.map_err(|decision| denied(decision.to_string()))?;
        let (dialed, name) = match &host {
            HostTarget::Name(name) if name.is_localhost() => (Dialed::Address(LOOPBACK), None),
            HostTarget::Name(name) => (Dialed::Name(name.to_string()), Some(name)),
            HostTarget::Address(address) => (Dialed::Address(*address), None),
        };
        let judge = |address: IpAddr| {
            let named =
                name.map(|name| self.gate.decide_address(name, address, port, also.as_ref()));
            named
                .filter(|decision| !decision.is_open())
                .map_or(Ok(()), |decision| Err(Box::new(decision)))
        };
        // No secret is injected into plain HTTP.
        let injection = name
            .filter(|_| request.protocol == ProxyProtocol::Tunnel)
            .and_then(|name| self.gate.injection_for(name, port));
        let goal =
            DialGoal { host: dialed, port, judge: &judge, caller, decision: &decision, injection };
        let attempt = self.active_dials.begin(goal.unfinished());
        let is_wanted = || !self.active_dials.is_closed();
        let reached = match self.dialer.connect_while(
            &is_wanted,
            &goal.host,
            port,
            &SocketOptions::default(),
            goal.judge,
        ) {
            Ok(reached) => reached,
            Err(failure) => {
                attempt.settle(|| goal.record_failed(&self.gate, &failure));
                return Err(dial_refusal(&failure));
            }
        };
        // A plain request was parsed already, and names the host.
        let check = match (decision.route, name, request.protocol) {
            _ if goal.injection.is_some() => None,
            (Some(ConnectRoute::Checked(check)), Some(name), ProxyProtocol::Tunnel) => {
                Some(stream_check(check, name, port))
            }
            _ => None,
        };
        let unreachable = |error: io::Error| ProxyRefusal {
            kind: ProxyRefusalKind::Unreachable,
            message: error.to_string(),
        };
        let carried = attempt.settle(|| goal.record_relayed(&self.gate, reached));
        let (outside, ended) = carried
            .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
            .map_err(unreachable)?;
        Ok(ProxyConnection { outside, check, on_end: ended })
    }

    fn report_malformed(&self, _client: SocketAddr, reason: &str) {
        self.gate.record_wrong_host(
            "localhost",
            PROXY_PORT,
            &format!("the proxy rejects the request: {reason}"),
            &EgressCaller::default(),
        );
    }
}
