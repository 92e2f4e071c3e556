//! Decides who is reached, and notes who is not.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ringfence_api::{Denial, Evidence, Operation};
use ringfence_egress::dns::{NameGate, Refusal, Verdict};
use ringfence_enforce::apply::Connecting;
use ringfence_policy::{Ground as Because, Host, Name, NetworkRules, OpenPorts, Passage};

use super::own;
use crate::asks::Ground;
use crate::denials::Denials;

/// What holds of the network, and what was refused by it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// What holds now: it may be another policy than a moment ago.
    ground: Arc<Ground>,
    denials: Mutex<Denials>,
}

/// Who wanted something.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller {
    pid: u32,
    program: String,
}

impl Caller {
    pub(super) fn of(program: &Connecting) -> Self {
        Self { pid: program.pid(), program: program.program().to_owned() }
    }
}

impl Gate {
    pub(crate) fn new(ground: Arc<Ground>) -> Self {
        Self { ground, denials: Mutex::default() }
    }

    fn read<T>(&self, look: impl FnOnce(&NetworkRules) -> T) -> T {
        self.ground.read(|grants| look(&grants.network))
    }

    pub(super) fn name(&self, name: &Name, port: u16) -> Passage {
        self.read(|rules| rules.name(name, port))
    }

    pub(super) fn address(&self, address: IpAddr, port: u16) -> Passage {
        self.address_of(address, port, None)
    }

    pub(super) fn address_of(&self, address: IpAddr, port: u16, name: Option<&Name>) -> Passage {
        self.read(|rules| rules.address(address, port, name, &own()))
    }

    /// The ports that lead in.
    pub(super) fn published(&self) -> OpenPorts {
        self.read(|rules| rules.bind.clone())
    }

    /// The host's loopback, by the address that was asked for.
    pub(super) fn hosts_loopback(&self, address: IpAddr, port: u16) -> Passage {
        Passage { host: Host::Address(address), ..self.read(|rules| rules.hosts_loopback(port)) }
    }

    fn denials(&self) -> MutexGuard<'_, Denials> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was refused since this was asked for last.
    pub(crate) fn take(&self) -> Denials {
        std::mem::take(&mut *self.denials())
    }

    /// Notes that somebody was not reached.
    pub(super) fn refuse(&self, passage: &Passage, caller: &Caller) {
        let rule = passage.rule().unwrap_or_else(|| passage.why());
        let origin = passage.origin().map_or_else(|| "built in".to_owned(), ToString::to_string);
        let explicit = matches!(passage.ground, Because::Deny(_));
        self.note(passage.target(), (rule, origin), explicit, caller);
    }

    /// Notes that what was said to somebody was not for them.
    pub(super) fn refuse_talk(&self, name: &str, port: u16, why: &str, caller: &Caller) {
        self.note(format!("{name}:{port}"), (why.to_owned(), "built in".to_owned()), true, caller);
    }

    /// Notes that datagrams were meant for somebody.
    pub(super) fn refuse_datagrams(&self, to: SocketAddr, caller: &Caller) {
        self.note(format!("{to}/udp"), ("only TCP leaves the sandbox".to_owned(), "built in".to_owned()), false, caller);
    }

    /// The same, of somebody who was not asked to wait.
    pub(crate) fn sent(&self, to: SocketAddr, pid: u32, program: String) {
        self.refuse_datagrams(to, &Caller { pid, program });
    }

    fn note(&self, target: String, (rule, origin): (String, String), explicit: bool, caller: &Caller) {
        let time_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (operation, evidence) = (Operation::Connect, Evidence::Kernel);
        let Caller { pid, program } = caller.clone();
        self.denials().note(Denial { operation, target, rule, origin, explicit, pid, program, time_ms, evidence, count: 1 });
    }
}

impl NameGate for Gate {
    fn decide(&self, name: &Name) -> Verdict {
        if self.read(|rules| rules.lookup(name).is_open()) { Verdict::Open } else { Verdict::Shut }
    }

    fn wait(&self, name: &Name) -> Verdict {
        self.decide(name)
    }

    fn refused(&self, name: &str, why: Refusal) {
        let caller = Caller::default();
        match (why, Name::new(name)) {
            (Refusal::Shut, Ok(name)) => self.refuse(&self.read(|rules| rules.lookup(&name)), &caller),
            (Refusal::Shut | Refusal::NoName, _) => {
                self.note(name.to_owned(), ("it can name no host".into(), "built in".into()), false, &caller)
            }
            // It is open, and may work later.
            (Refusal::Crowded | Refusal::NoAddress, _) => {}
        }
    }
}
