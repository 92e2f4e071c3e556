//! The same ways for programs that would rather ask a proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ringfence_egress::dial::{Dialer, Failure, Host as Dialed, Options};
use ringfence_egress::pool::Pool;
use ringfence_egress::proxy::{Connection, Gate as Asks, Refusal, RefusalKind, Speech, Wish};
use ringfence_policy::{Host, PROXY_PORT, Passage, Way};

use super::PATIENCE;
use super::gate::{Admitted, Caller, Gate};
use super::goal::{Goal, look};
use super::pending::Pending;

/// Where clients of the proxy are served.
pub(super) struct Window {
    pub(super) gate: Arc<Gate>,
    pool: Arc<Pool>,
    dialer: Dialer,
    pending: Arc<Pending>,
}

impl Window {
    pub(super) fn of(gate: Arc<Gate>, pool: Arc<Pool>, pending: Arc<Pending>) -> Self {
        let dialer = gate.dialer(PATIENCE);
        Self { gate, pool, dialer, pending }
    }

    /// Whom a client means. Some look names up themselves, and ask for what stands for one.
    fn meant(&self, text: &str) -> Result<Host, Refusal> {
        let host = Host::new(text).map_err(|error| denied(error.to_string()))?;
        match host {
            Host::Address(address) if Pool::covers(address) => {
                let name = self.pool.name_of(address, Instant::now());
                name.map(Host::Name).ok_or_else(|| denied(format!("{address} stands for no name")))
            }
            host => Ok(host),
        }
    }

    /// What the policy says of it. A client that means its own machine means the host, since the
    /// proxy is there; it reaches its own without one.
    fn passage(&self, host: &Host, port: u16) -> Passage {
        match host {
            Host::Name(name) if name.is_localhost() => self.gate.hosts_loopback(LOOPBACK, port),
            Host::Address(address) if address.is_loopback() || address.is_unspecified() => {
                self.gate.hosts_loopback(*address, port)
            }
            _ => self.gate.host(host, port, None),
        }
    }
}

/// What `localhost` is.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn denied(sentence: String) -> Refusal {
    Refusal { kind: RefusalKind::Denied, sentence }
}

/// What a client is told of a host that was not reached.
fn unreached(failure: &Failure<Box<Passage>>) -> Refusal {
    let kind = match (failure, failure.errno()) {
        (Failure::Judged { why, .. }, _) => return denied(why.to_string()),
        (Failure::Connect { .. }, libc::ECONNREFUSED) => RefusalKind::Refused,
        (Failure::Connect { .. }, libc::ETIMEDOUT) => RefusalKind::Late,
        _ => RefusalKind::Unreachable,
    };
    Refusal { kind, sentence: failure.to_string() }
}

impl Asks for Window {
    fn open(&self, wish: &Wish<'_>) -> Result<Connection, Refusal> {
        let (port, caller) = (wish.port, Caller::default());
        let host = self.meant(wish.host)?;
        let admitted = self.gate.admit(self.passage(&host, port), None, &caller);
        let Admitted { passage, also, .. } =
            admitted.map_err(|passage| denied(passage.to_string()))?;
        let (dialed, name) = match &host {
            Host::Name(name) if name.is_localhost() => (Dialed::Address(LOOPBACK), None),
            Host::Name(name) => (Dialed::Name(name.to_string()), Some(name)),
            Host::Address(address) => (Dialed::Address(*address), None),
        };
        let judge = |address: IpAddr| {
            let named = name.map(|name| self.gate.address_of(name, address, port, also.as_ref()));
            named
                .filter(|passage| !passage.is_open())
                .map_or(Ok(()), |passage| Err(Box::new(passage)))
        };
        // What is sent in the clear carries no secret.
        let sealing = name
            .filter(|_| wish.speech == Speech::Tunnel)
            .and_then(|name| self.gate.sealing(name, port));
        let goal = Goal { host: dialed, port, judge: &judge, caller, passage: &passage, sealing };
        let attempt = self.pending.begin(goal.unfinished());
        let is_wanted = || !self.pending.is_closed();
        let reached = match self.dialer.connect_while(
            &is_wanted,
            &goal.host,
            port,
            &Options::default(),
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
            (Some(Way::Checked(check)), Some(name), Speech::Tunnel) => {
                Some(look(check, name, port))
            }
            _ => None,
        };
        let unreachable = |error: io::Error| Refusal {
            kind: RefusalKind::Unreachable,
            sentence: error.to_string(),
        };
        let carried = attempt.settle(|| goal.carried(&self.gate, reached));
        let (outside, ended) = carried
            .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
            .map_err(unreachable)?;
        Ok(Connection { outside, check, ended })
    }

    fn objected(&self, _client: SocketAddr, reason: &str) {
        self.gate.refuse_talk(
            "localhost",
            PROXY_PORT,
            &format!("the proxy does not listen to that: {reason}"),
            &Caller::default(),
        );
    }
}
