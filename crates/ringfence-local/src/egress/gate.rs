//! Decides who is reached, and notes who is not.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ringfence_api::{ConnectionRecord, Denial, DenialEvidence, Operation};
use ringfence_egress::dial::{Dialer, UpstreamProxies};
use ringfence_egress::dns::{DnsGate, DnsRefusal, DnsVerdict};
use ringfence_enforce::apply::PendingConnect;
use ringfence_policy::{
    HostDecision, HostName, HostReason as Because, HostRule, HostTarget, NetworkRules,
};

use super::dial_goal::SecretInjection;
use super::own_addresses;
use super::secrets::SecretInjector;
use crate::asks::{AskSubject, HostPort, LivePolicy, ParkedConnect, ParkedRequest, QuestionBroker};
use crate::connection_log::ConnectionLog;
use crate::denial_log::DenialLog;
use crate::optional::marked;

/// What holds of the network, and what was refused by it.
#[derive(Debug)]
pub(crate) struct EgressGate {
    /// What holds now: it may be another policy than a moment ago.
    ground: Arc<LivePolicy>,
    denials: Mutex<DenialLog>,
    connections: Mutex<ConnectionLog>,
    /// Who looked up which name first.
    askers: Mutex<HashMap<String, Lookup>>,
    /// Who asks, where somebody can be asked.
    asks: Option<Arc<QuestionBroker>>,
    /// What is put into requests, where something is.
    seal: Option<Arc<SecretInjector>>,
    /// By which proxy, where there is no way without.
    outer: UpstreamProxies,
}

/// Somebody who may be connected, and by what.
pub(super) struct AllowedConnect {
    /// A program that waits in its call; a client of the proxy does not.
    pub(super) program: Option<PendingConnect>,
    pub(super) passage: HostDecision,
    /// What holds for this connection and perhaps for no other.
    pub(super) also: Option<HostRule>,
}

/// The first process that looked up a name.
#[derive(Debug)]
struct Lookup {
    caller: EgressCaller,
    /// True if every process that looked it up runs without it.
    optional: bool,
}

/// Who wanted something.
#[derive(Debug, Clone, Default)]
pub(super) struct EgressCaller {
    pid: u32,
    program: String,
}

impl EgressCaller {
    pub(super) fn of(program: &PendingConnect) -> Self {
        Self { pid: program.pid(), program: program.program().to_owned() }
    }
}

impl EgressGate {
    pub(crate) fn new(
        ground: Arc<LivePolicy>,
        asks: Option<Arc<QuestionBroker>>,
        seal: Option<Arc<SecretInjector>>,
        outer: UpstreamProxies,
    ) -> Self {
        Self {
            ground,
            denials: Mutex::default(),
            connections: Mutex::default(),
            askers: Mutex::default(),
            asks,
            seal,
            outer,
        }
    }

    /// What is put into requests to `name` by now, and by whom.
    pub(super) fn sealing(&self, name: &HostName, port: u16) -> Option<SecretInjection> {
        let seal = self.seal.as_ref()?;
        let swaps: Vec<_> = self.read(|rules| {
            rules.secrets_for(name, port).filter_map(|secret| seal.swap(secret)).collect()
        });
        (!swaps.is_empty()).then(|| SecretInjection {
            seal: seal.clone(),
            name: name.clone(),
            swaps,
        })
    }

    /// Reaches hosts in the way that this machine's network has for it, and takes no longer.
    pub(super) fn dialer(&self, limit: Duration) -> Dialer {
        Dialer::by(self.outer.clone(), limit)
    }

    fn read<T>(&self, look: impl FnOnce(&NetworkRules) -> T) -> T {
        self.ground.network(None, look)
    }

    /// What holds of a port of `host`.
    pub(super) fn host(
        &self,
        host: &HostTarget,
        port: u16,
        also: Option<&HostRule>,
    ) -> HostDecision {
        self.ground.network(also, |rules| match host {
            HostTarget::Name(name) => rules.name(name, port),
            HostTarget::Address(address) => rules.address(*address, port, None, &own(*address)),
        })
    }

    /// What holds of an address by the name it was looked up with.
    pub(super) fn address_of(
        &self,
        name: &HostName,
        address: IpAddr,
        port: u16,
        also: Option<&HostRule>,
    ) -> HostDecision {
        self.ground.network(also, |rules| rules.address(address, port, Some(name), &own(address)))
    }

    /// Lets somebody go on by `passage`, if that is open or somebody who is asked opens it now;
    /// if not, it was refused, and told of.
    pub(super) fn admit(
        &self,
        passage: HostDecision,
        program: Option<PendingConnect>,
        caller: &EgressCaller,
    ) -> Result<AllowedConnect, Box<HostDecision>> {
        if passage.is_open() {
            return Ok(AllowedConnect { program, passage, also: None });
        }
        let refused = |passage: HostDecision, program: Option<PendingConnect>| {
            self.refuse(&passage, caller);
            let _ = program.map(|program| program.fail(libc::EACCES));
            Err(Box::new(passage))
        };
        let (Some(asks), Some(wanted), Some(port)) =
            (&self.asks, HostPort::of(&passage), passage.port)
        else {
            return refused(passage, program);
        };
        let (also, (onwards, answered)) = (wanted.rule.clone(), channel());
        asks.ask(
            denial(&passage, caller),
            AskSubject::Connect(wanted),
            ParkedRequest::Connect(ParkedConnect::new(program, onwards)),
        );
        // Whoever is refused was told, and does not come back.
        let Ok(program) = answered.recv() else { return Err(Box::new(passage)) };
        // What is denied by now stays so.
        let passage = self.host(&passage.host, port, Some(&also));
        if passage.is_open() {
            Ok(AllowedConnect { program, passage, also: Some(also) })
        } else {
            refused(passage, program)
        }
    }

    /// The host's loopback, by the address that was asked for.
    pub(super) fn hosts_loopback(&self, address: IpAddr, port: u16) -> HostDecision {
        self.read(|rules| rules.hosts_loopback(address, port))
    }

    fn denials(&self) -> MutexGuard<'_, DenialLog> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was refused since this was asked for last.
    pub(crate) fn take(&self) -> DenialLog {
        let mut refused = std::mem::take(&mut *self.denials());
        let askers = std::mem::take(&mut *self.askers());
        refused.each(|denial| {
            if let Some(Lookup { caller, optional }) =
                askers.get(&denial.target).filter(|_| denial.pid == 0)
            {
                (denial.pid, denial.program, denial.optional) =
                    (caller.pid, caller.program.clone(), *optional);
            }
        });
        refused
    }

    fn askers(&self) -> MutexGuard<'_, HashMap<String, Lookup>> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes who looks up a name, as far as that was seen: whoever answers does not hear it.
    pub(crate) fn looks_up(&self, name: &str, pid: u32, program: &str) {
        const MANY: usize = 4096;
        let caller = EgressCaller { pid, program: program.to_owned() };
        let because = (Denial::NETWORK_SHUT.to_owned(), String::new());
        let attempt = told(name.to_owned(), because, false, &caller);
        let optional = self.ground.read(|grants| marked(attempt, grants)).optional;
        let mut askers = self.askers();
        if let Some(known) = askers.get_mut(name) {
            known.optional &= optional;
        } else if askers.len() < MANY {
            askers.insert(name.to_owned(), Lookup { caller, optional });
        }
    }

    /// Who was connected to since this was asked for last.
    pub(crate) fn connections(&self) -> ConnectionLog {
        std::mem::take(&mut self.connections.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a connection that was let through, or what is known of it only now.
    pub(super) fn connected(&self, connection: ConnectionRecord) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).note(connection);
    }

    /// Notes that somebody was not reached.
    pub(super) fn refuse(&self, passage: &HostDecision, caller: &EgressCaller) {
        self.denials().note(denial(passage, caller));
    }

    /// Notes that what was said to somebody was not for them.
    pub(super) fn refuse_talk(&self, name: &str, port: u16, why: &str, caller: &EgressCaller) {
        self.note(format!("{name}:{port}"), (why.to_owned(), "built in".to_owned()), true, caller);
    }

    /// Notes that datagrams were meant for somebody.
    pub(super) fn refuse_datagrams(&self, to: SocketAddr, caller: &EgressCaller) {
        self.note(
            format!("{to}/udp"),
            ("only TCP leaves the sandbox".to_owned(), "built in".to_owned()),
            false,
            caller,
        );
    }

    /// The same, of somebody who was not asked to wait.
    pub(crate) fn sent(&self, to: SocketAddr, pid: u32, program: String) {
        self.refuse_datagrams(to, &EgressCaller { pid, program });
    }

    fn note(
        &self,
        target: String,
        (rule, origin): (String, String),
        explicit: bool,
        caller: &EgressCaller,
    ) {
        self.denials().note(told(target, (rule, origin), explicit, caller));
    }
}

/// What is told of a connection by `passage`, before anything is known of whom it leads to.
pub(super) fn connection(passage: &HostDecision, caller: &EgressCaller) -> ConnectionRecord {
    let (rule, origin) = because(passage);
    let EgressCaller { pid, program } = caller.clone();
    let (address, sent, received, failed) = (None, None, None, None);
    let (target, time_ms, secrets) = (passage.target(), now_ms(), Vec::new());
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

/// The addresses of this machine. Where they are not known, whatever is asked about may be one.
fn own(address: IpAddr) -> Vec<IpAddr> {
    own_addresses().unwrap_or_else(|_| vec![address])
}

/// The rule that decides, and where it was written.
fn because(passage: &HostDecision) -> (String, String) {
    let rule = passage.rule().unwrap_or_else(|| passage.why());
    (rule, passage.origin().map_or_else(|| "built in".to_owned(), ToString::to_string))
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// What is told of somebody who is not reached.
fn denial(passage: &HostDecision, caller: &EgressCaller) -> Denial {
    told(passage.target(), because(passage), matches!(passage.ground, Because::Deny(_)), caller)
}

fn told(
    target: String,
    (rule, origin): (String, String),
    explicit: bool,
    caller: &EgressCaller,
) -> Denial {
    let (operation, evidence, time_ms) = (Operation::Connect, DenialEvidence::Kernel, now_ms());
    let EgressCaller { pid, program } = caller.clone();
    Denial {
        operation,
        target,
        rule,
        origin,
        explicit,
        pid,
        program,
        time_ms,
        evidence,
        count: 1,
        optional: false,
    }
}

impl DnsGate for EgressGate {
    /// Where somebody can be asked, every name that an answer could open is looked up: they are
    /// asked when it is connected to, and at which port is known.
    fn decide(&self, name: &HostName) -> DnsVerdict {
        let passage = self.read(|rules| rules.lookup(name));
        let is_asked_about = || self.asks.is_some() && HostPort::of(&passage).is_some();
        if passage.is_open() || is_asked_about() { DnsVerdict::Open } else { DnsVerdict::Shut }
    }

    fn refused(&self, name: &str, why: DnsRefusal) {
        let caller = EgressCaller::default();
        match (why, HostName::new(name)) {
            (DnsRefusal::Shut, Ok(name)) => {
                self.refuse(&self.read(|rules| rules.lookup(&name)), &caller)
            }
            (DnsRefusal::Shut | DnsRefusal::NoName, _) => self.note(
                name.to_owned(),
                ("it can name no host".into(), "built in".into()),
                false,
                &caller,
            ),
            // It is open, and may work later.
            (DnsRefusal::NoAddress, _) => {}
        }
    }
}
