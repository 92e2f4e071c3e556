//! Decides which hosts are reached, and records denials and connections.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::apply::PendingConnect;
use crate::clock::now_ms;
use crate::locks::lock;
use crate::new_denial::new_denial;
use ringfence_api::{ConnectionRecord, Denial, Operation};
use ringfence_egress::dial::{Dialer, UpstreamProxies};
use ringfence_egress::dns::{DnsGate, DnsRefusal, DnsVerdict};
use ringfence_policy::{HostDecision, HostName, HostReason, HostRule, HostTarget, NetworkRules};
use tracing::info;

use super::dial_goal::SecretInjection;
use super::own_addresses;
use super::secrets::SecretInjector;
use crate::launcher::asks::{
    AskSubject, AskedConnect, HostPort, LivePolicy, ParkedRequest, QuestionBroker,
};
use crate::launcher::connection_log::ConnectionLog;
use crate::launcher::denial_log::DenialLog;
use crate::launcher::optional::mark_optional;

/// The network rules in force, and a log of denials and connections.
#[derive(Debug)]
pub(crate) struct EgressGate {
    /// The policy in force; it may change at any time.
    policy: Arc<LivePolicy>,
    denials: Mutex<DenialLog>,
    connections: Mutex<ConnectionLog>,
    /// The first process that looked up each name.
    lookups: Mutex<HashMap<String, Lookup>>,
    /// Questions to the user, if the user can be asked.
    asks: Option<Arc<QuestionBroker>>,
    /// The injector of secrets, if there are any.
    injector: Option<Arc<SecretInjector>>,
    /// Upstream proxies of the host, if it needs them.
    upstream: UpstreamProxies,
}

/// A connect that is allowed, and the decision behind it.
pub(super) struct AllowedConnect {
    /// A program that waits in `connect`; `None` for a client of the proxy.
    pub(super) program: Option<PendingConnect>,
    pub(super) decision: HostDecision,
    /// A rule for this connection, and perhaps for no other.
    pub(super) also: Option<HostRule>,
}

/// The first process that looked up a name.
#[derive(Debug)]
struct Lookup {
    caller: EgressCaller,
    /// True if every process that looked it up runs without it.
    optional: bool,
}

/// The process that wanted a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct EgressCaller {
    pid: u32,
    program: String,
}

impl EgressCaller {
    pub(crate) fn new(pid: u32, program: String) -> Self {
        Self { pid, program }
    }

    pub(super) fn from_program(program: &PendingConnect) -> Self {
        Self { pid: program.pid(), program: program.program().to_owned() }
    }
}

impl EgressGate {
    pub(crate) fn new(
        policy: Arc<LivePolicy>,
        asks: Option<Arc<QuestionBroker>>,
        injector: Option<Arc<SecretInjector>>,
        upstream: UpstreamProxies,
    ) -> Self {
        Self {
            policy,
            denials: Mutex::default(),
            connections: Mutex::default(),
            lookups: Mutex::default(),
            asks,
            injector,
            upstream,
        }
    }

    /// The secrets for requests to `name`, and their injector.
    pub(super) fn injection_for(&self, name: &HostName, port: u16) -> Option<SecretInjection> {
        let injector = self.injector.as_ref()?;
        let swaps: Vec<_> = self.read(|rules| {
            rules.secrets_for(name, port).filter_map(|secret| injector.swap(secret)).collect()
        });
        (!swaps.is_empty()).then(|| SecretInjection {
            injector: injector.clone(),
            name: name.clone(),
            swaps,
        })
    }

    /// A dialer by the route that this machine's network has, with a time limit.
    pub(super) fn dialer(&self, limit: Duration) -> Dialer {
        Dialer::new(self.upstream.clone(), limit)
    }

    fn read<T>(&self, look: impl FnOnce(&NetworkRules) -> T) -> T {
        self.policy.network(None, look)
    }

    /// The decision on a port of `host`.
    pub(super) fn decide_host(
        &self,
        host: &HostTarget,
        port: u16,
        also: Option<&HostRule>,
    ) -> HostDecision {
        self.policy.network(also, |rules| match host {
            HostTarget::Name(name) => rules.decide_name(name, port),
            HostTarget::Address(address) => {
                rules.decide_address(*address, port, None, &own_addresses_or(*address))
            }
        })
    }

    /// The decision on an address, by the name it was looked up with.
    pub(super) fn decide_address(
        &self,
        name: &HostName,
        address: IpAddr,
        port: u16,
        also: Option<&HostRule>,
    ) -> HostDecision {
        self.policy.network(also, |rules| {
            rules.decide_address(address, port, Some(name), &own_addresses_or(address))
        })
    }

    /// Denies and records a connect, unless `decision` is open or the user opens it now.
    pub(super) fn deny_or_ask(
        &self,
        decision: HostDecision,
        program: Option<PendingConnect>,
        caller: &EgressCaller,
    ) -> Result<AllowedConnect, Box<HostDecision>> {
        if decision.is_open() {
            return Ok(AllowedConnect { program, decision, also: None });
        }
        let refused = |decision: HostDecision, program: Option<PendingConnect>| {
            self.record_denial(&decision, caller);
            let _ = program.map(|program| program.fail(libc::EACCES));
            Err(Box::new(decision))
        };
        let (Some(asks), Some(wanted), Some(port)) =
            (&self.asks, HostPort::from_decision(&decision), decision.port)
        else {
            return refused(decision, program);
        };
        let (also, (onwards, answered)) = (wanted.rule.clone(), channel());
        asks.ask(
            denial(&decision, caller),
            AskSubject::Connect(wanted),
            ParkedRequest::Connect(AskedConnect::new(program, onwards)),
        );
        // A denied request was recorded and does not come back.
        let Ok(program) = answered.recv() else { return Err(Box::new(decision)) };
        // A deny rule that was added meanwhile wins.
        let decision = self.decide_host(&decision.host, port, Some(&also));
        if decision.is_open() {
            Ok(AllowedConnect { program, decision, also: Some(also) })
        } else {
            refused(decision, program)
        }
    }

    /// The decision on the host's loopback, by the address that the program used.
    pub(super) fn hosts_loopback(&self, address: IpAddr, port: u16) -> HostDecision {
        self.read(|rules| rules.decide_host_loopback(address, port))
    }

    /// Takes the denials since the last call.
    pub(crate) fn take_denials(&self) -> DenialLog {
        let mut refused = std::mem::take(&mut *lock(&self.denials));
        let lookups = std::mem::take(&mut *lock(&self.lookups));
        refused.amend_each(|denial| {
            if let Some(Lookup { caller, optional }) =
                lookups.get(&denial.target).filter(|_| denial.pid == 0)
            {
                (denial.pid, denial.program, denial.optional) =
                    (caller.pid, caller.program.clone(), *optional);
            }
        });
        refused
    }

    /// Records the process that looks up a name: the DNS responder does not see the pid.
    pub(crate) fn record_lookup(&self, name: &str, pid: u32, program: &str) {
        const MAX_LOOKUPS: usize = 4096;
        let caller = EgressCaller { pid, program: program.to_owned() };
        let because = (Denial::NETWORK_NONE.to_owned(), String::new());
        let attempt = connect_denial(name.to_owned(), because, false, &caller);
        let optional = self.policy.read(|grants| mark_optional(attempt, grants)).optional;
        let mut lookups = lock(&self.lookups);
        if let Some(known) = lookups.get_mut(name) {
            known.optional &= optional;
        } else if lookups.len() < MAX_LOOKUPS {
            lookups.insert(name.to_owned(), Lookup { caller, optional });
        }
    }

    /// Takes the connections since the last call.
    pub(crate) fn take_connections(&self) -> ConnectionLog {
        std::mem::take(&mut lock(&self.connections))
    }

    /// Records an allowed connection, or an update to one.
    pub(super) fn record_connection(&self, connection: ConnectionRecord) {
        let ConnectionRecord { target, address, pid, failed, sent, received, .. } = &connection;
        let address = address.as_deref();
        match failed {
            Some(why) => info!(target: "egress", caller = pid, host = target, why, "failed"),
            None if sent.is_some() => {
                info!(target: "egress", caller = pid, host = target, sent, received, "closed")
            }
            None => info!(target: "egress", caller = pid, host = target, address, "connected"),
        }
        lock(&self.connections).record(connection);
    }

    /// Records a denied connect.
    pub(super) fn record_denial(&self, decision: &HostDecision, caller: &EgressCaller) {
        self.record(denial(decision, caller));
    }

    /// Records traffic that named another host.
    pub(super) fn record_wrong_host(
        &self,
        name: &str,
        port: u16,
        why: &str,
        caller: &EgressCaller,
    ) {
        self.note(format!("{name}:{port}"), (why.to_owned(), "built in".to_owned()), true, caller);
    }

    /// Records datagrams to an address.
    pub(super) fn refuse_datagrams(&self, to: SocketAddr, caller: &EgressCaller) {
        self.note(
            format!("{to}/udp"),
            ("only TCP leaves the sandbox".to_owned(), "built in".to_owned()),
            false,
            caller,
        );
    }

    /// Records datagrams of a program that does not wait.
    pub(crate) fn record_datagrams(&self, to: SocketAddr, pid: u32, program: String) {
        self.refuse_datagrams(to, &EgressCaller::new(pid, program));
    }

    fn note(
        &self,
        target: String,
        (rule, origin): (String, String),
        explicit: bool,
        caller: &EgressCaller,
    ) {
        self.record(connect_denial(target, (rule, origin), explicit, caller));
    }

    fn record(&self, denial: Denial) {
        let Denial { target, rule, origin, pid, .. } = &denial;
        info!(target: "egress", caller = pid, host = target, rule, origin, "denied");
        lock(&self.denials).record(denial);
    }
}

/// The record of a connection by `decision`, before its peer is known.
pub(super) fn connection_record(
    decision: &HostDecision,
    caller: &EgressCaller,
) -> ConnectionRecord {
    let (rule, origin) = rule_and_origin(decision);
    let EgressCaller { pid, program } = caller.clone();
    let (address, sent, received, failed) = (None, None, None, None);
    let (target, time_ms, secrets) = (decision.target(), now_ms(), Vec::new());
    ConnectionRecord {
        target,
        address,
        rule,
        origin,
        pid,
        program,
        time_ms,
        sent,
        received,
        failed,
        secrets,
        count: 1,
    }
}

/// Addresses of this machine. If they are unknown, any address may be one.
fn own_addresses_or(address: IpAddr) -> Vec<IpAddr> {
    own_addresses().unwrap_or_else(|_| vec![address])
}

/// The rule that decides, and its origin.
fn rule_and_origin(decision: &HostDecision) -> (String, String) {
    let rule = decision.rule().unwrap_or_else(|| decision.why());
    (rule, decision.origin().map_or_else(|| "built in".to_owned(), ToString::to_string))
}

/// The denial for a decision.
pub(super) fn denial(decision: &HostDecision, caller: &EgressCaller) -> Denial {
    connect_denial(
        decision.target(),
        rule_and_origin(decision),
        matches!(decision.reason, HostReason::Deny(_)),
        caller,
    )
}

fn connect_denial(
    target: String,
    because: (String, String),
    explicit: bool,
    caller: &EgressCaller,
) -> Denial {
    let EgressCaller { pid, program } = caller.clone();
    Denial { explicit, ..new_denial(Operation::Connect, target, because, (pid, program)) }
}

impl DnsGate for EgressGate {
    /// If the user can be asked, every name that an answer could open resolves: the question comes
    /// at the connect, when the port is known.
    fn decide(&self, name: &HostName) -> DnsVerdict {
        let decision = self.read(|rules| rules.decide_lookup(name));
        let is_askable = || self.asks.is_some() && HostPort::from_decision(&decision).is_some();
        if decision.is_open() || is_askable() { DnsVerdict::Allow } else { DnsVerdict::Deny }
    }

    fn report_refused(&self, name: &str, why: DnsRefusal) {
        let caller = EgressCaller::default();
        match (why, HostName::new(name)) {
            (DnsRefusal::Shut, Ok(name)) => {
                self.record_denial(&self.read(|rules| rules.decide_lookup(&name)), &caller)
            }
            (DnsRefusal::Shut | DnsRefusal::NoName, _) => self.note(
                name.to_owned(),
                ("not a valid host name".into(), "built in".into()),
                false,
                &caller,
            ),
            // The name is open, and may resolve later.
            (DnsRefusal::NoAddress, _) => {}
        }
    }
}
