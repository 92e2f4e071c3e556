//! Server of the tripwire: reports accesses to paths that are not open, with the rule that denies
//! them.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crate::apply;
use crate::apply::{IntentEffect, PendingWrite};
use crate::fuse::{HostEntry, NodeTree, PendingOpen, TripEvent, TripHandler, TripwireFs};
use crate::locks::{lock, read_lock, write_lock};
use crate::new_denial::new_denial;
use ringfence_api::{AskAnswer, Asker, Denial, GrantedAccess, Operation};
use ringfence_plan::Plan;
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Disguise, Verdict};
use ringfence_sys::memory;
use tracing::{debug, info};

use crate::launcher::asks::{
    AskSubject, LivePolicy, ParkedRequest, QuestionBroker, ReadTarget, WriteTarget,
    is_session_grant, is_tripwire_question, is_worth_asking, is_worth_asking_to_write,
};
use crate::launcher::denial_log::DenialLog;
use crate::launcher::optional::mark_optional;
use crate::launcher::thread_pool;
use crate::launcher::watcher_thread::WatcherNodes;

/// A sandbox whose tripwire is served from here, or in which the user is asked about writes.
#[derive(Debug)]
pub(crate) struct TripwireServer {
    /// Nodes that the tripwire shows, if there is one.
    tree: Option<Arc<RwLock<NodeTree>>>,
    log: Arc<TripwireLog>,
    owner: (u32, u32),
}

impl TripwireServer {
    /// Server for a plan; `None` without a tripwire and an asker. With an `asker`, some denials
    /// become questions.
    pub(crate) fn new(
        plan: &Plan,
        policy: &Arc<LivePolicy>,
        asker: Option<&Arc<dyn Asker>>,
    ) -> Option<Self> {
        let (tree, own, policy) = (policy.tree(), policy.own_pids(), policy.clone());
        if tree.is_none() && asker.is_none() {
            return None;
        }
        let owner = plan.identity().map(|identity| (identity.uid, identity.gid))?;
        let denials = Arc::<Mutex<DenialLog>>::default();
        let asks =
            asker.map(|asker| QuestionBroker::new(asker.clone(), policy.clone(), denials.clone()));
        Some(Self { tree, log: Arc::new(TripwireLog { policy, denials, own, asks }), owner })
    }

    /// Serves `device` on its own thread until the sandbox is gone. Accesses of the `own` pids are
    /// not reported: the supervisor reports by itself, and init looks for the command.
    pub(crate) fn serve(&self, device: OwnedFd, own: [i32; 2], processor: Option<usize>) {
        let Some(tree) = self.tree.clone() else { return };
        own.into_iter().for_each(|pid| self.log.own.add(pid));
        self.start_asking();
        /// Number of tripwires served at the same time.
        static SERVED: AtomicUsize = AtomicUsize::new(0);
        let tripwire = TripwireFs::new(device, tree, self.log.clone(), self.owner);
        // Without a thread the device is closed, and every access fails.
        let serve = move || {
            SERVED.fetch_add(1, Ordering::Relaxed);
            tripwire.serve(processor);
            // This thread ends last, and the node tree was large.
            match SERVED.fetch_sub(1, Ordering::Relaxed) {
                1 => memory::trim_heap(),
                _ => memory::trim_heap_rarely(),
            }
        };
        let _ = thread_pool::run("tripwire", processor, serve);
    }

    /// The tripwire parts that the watcher needs to add masks, if there is a tripwire.
    pub(crate) fn watcher_nodes(&self) -> Option<WatcherNodes> {
        self.tree.clone().map(|tree| WatcherNodes { tree, own: self.log.own.clone() })
    }

    /// The questions to the user, if the user can be asked.
    pub(crate) fn asks(&self) -> Option<Arc<QuestionBroker>> {
        self.log.asks.clone()
    }

    /// Takes the denials so far.
    pub(crate) fn take_denials(&self) -> DenialLog {
        std::mem::take(&mut lock(&self.log.denials))
    }

    /// Takes the accesses granted by an answer so far.
    pub(crate) fn take_granted(&self) -> Vec<GrantedAccess> {
        self.log.asks.as_ref().map(|asks| asks.take_granted()).unwrap_or_default()
    }

    /// Handles a write that is about to be denied, and waits in the notify handler.
    pub(crate) fn ask_write(&self, pending: PendingWrite) {
        self.log.ask_write(pending);
    }

    /// Enables questions: threads may be started from now on.
    pub(crate) fn start_asking(&self) {
        self.log.asks.iter().for_each(|asks| asks.start_spawner());
    }
}

/// Pids of ringfence's own processes.
#[derive(Debug, Default)]
pub(crate) struct OwnPids(RwLock<Vec<u32>>);

impl OwnPids {
    pub(crate) fn add(&self, pid: i32) {
        write_lock(&self.0).push(pid as u32);
    }

    pub(crate) fn remove(&self, pid: i32) {
        write_lock(&self.0).retain(|own| *own != pid as u32);
    }

    fn contains(&self, pid: u32) -> bool {
        read_lock(&self.0).contains(&pid)
    }
}

#[derive(Debug)]
struct TripwireLog {
    policy: Arc<LivePolicy>,
    denials: Arc<Mutex<DenialLog>>,
    own: Arc<OwnPids>,
    asks: Option<Arc<QuestionBroker>>,
}

impl TripHandler for TripwireLog {
    fn exists(&self, path: &AbsPath) -> bool {
        fs::symlink_metadata(path.as_path()).is_ok()
    }

    fn report_trip(&self, trip: TripEvent) {
        if self.own.contains(trip.pid) {
            return;
        }
        debug!(target: "tripwire", caller = trip.pid, path = %trip.path, "access");
        let Some(trip) = self.intended(trip) else { return };
        self.refused(self.denial(&trip, &self.decide(&trip)));
    }

    fn disguise(&self, path: &AbsPath, pid: u32) -> Disguise {
        if self.own.contains(pid) {
            Disguise::Deny
        } else {
            self.policy.read(|grants| grants.disguise(path))
        }
    }

    fn can_ask(&self) -> bool {
        self.asks.is_some()
    }

    fn host_entry(&self, path: &AbsPath, pid: u32) -> Option<HostEntry> {
        if self.own.contains(pid) {
            return None;
        }
        let intent = apply::intent(pid).filter(|intent| intent.end == IntentEffect::Use)?;
        let intended = if intent.path.is_within(path) {
            intent.path
        } else {
            resolve(&intent.path).filter(|real| real.is_within(path))?
        };
        let decision = self.policy.decide(&intended, Access::Read);
        if !is_session_grant(&decision)
            && !self.policy.read(|grants| is_worth_asking(&decision, grants))
        {
            return None;
        }
        let found = fs::symlink_metadata(path.as_path()).ok()?;
        Some(match found.file_type() {
            kind if kind.is_dir() => HostEntry::Directory,
            kind if kind.is_symlink() => HostEntry::Link(fs::read_link(path.as_path()).ok()?),
            kind if kind.is_file() && found.permissions().mode() & 0o111 != 0 => HostEntry::Program,
            kind if kind.is_file() => HostEntry::File,
            _ => return None,
        })
    }

    fn ask(&self, trip: TripEvent, pending: PendingOpen) {
        if self.own.contains(trip.pid) {
            return;
        }
        // A fresh mask whose path is not known yet: no question is possible, and a retry finds it
        // named.
        if trip.path == AbsPath::root() {
            return self.report_trip(trip);
        }
        let decision = self.decide(&trip);
        let denial = self.denial(&trip, &decision);
        let target = if is_tripwire_question(trip.operation) {
            ReadTarget::find(&trip.path, trip.operation)
        } else {
            None
        };
        let is_askable = || self.policy.read(|grants| is_worth_asking(&decision, grants));
        match (&self.asks, target) {
            (Some(asks), Some(target))
                if is_session_grant(&decision) && !target.may_be_hard_link() =>
            {
                asks.grant(
                    denial,
                    AskAnswer::AllowSession,
                    &AskSubject::Read(target),
                    ParkedRequest::Open(pending),
                );
            }
            (Some(asks), Some(target)) if is_askable() => {
                asks.ask(denial, AskSubject::Read(target), ParkedRequest::Open(pending));
            }
            _ => self.refused(denial),
        }
    }
}

/// The denial for a trip.
fn denial(trip: &TripEvent, decision: &Decision) -> Denial {
    let program = fs::read_link(format!("/proc/{}/exe", trip.pid)).unwrap_or_default();
    let caller = (trip.pid, program.to_string_lossy().into_owned());
    let target = trip.path.to_string_lossy().into_owned();
    let explicit = decision.verdict != Verdict::Absent;
    let because = rule_and_origin_of(decision);
    Denial { explicit, ..new_denial(trip.operation, target, because, caller) }
}

/// The rule that denies, and its origin.
pub(crate) fn rule_and_origin_of(decision: &Decision) -> (String, String) {
    match &decision.rule {
        // A hard link is masked for its inode, whatever the policy says about the name.
        _ if decision.verdict == Verdict::Allowed => {
            (Denial::ALIAS_OF_DENIED.to_owned(), "built in".to_owned())
        }
        Some(rule_and_origin_of) => {
            (rule_and_origin_of.origin().text.clone(), rule_and_origin_of.origin().to_string())
        }
        None => (Denial::NO_RULE_ALLOWS.to_owned(), "built in".to_owned()),
    }
}

impl TripwireLog {
    fn denial(&self, trip: &TripEvent, decision: &Decision) -> Denial {
        self.policy.read(|grants| mark_optional(denial(trip, decision), grants))
    }

    fn refused(&self, denial: Denial) {
        let Denial { operation, target, rule, origin, pid, .. } = &denial;
        info!(target: "tripwire", caller = pid, ?operation, path = target, rule, origin, "denied");
        lock(&self.denials).record(denial);
    }

    fn ask_write(&self, pending: PendingWrite) {
        let Some((asks, place)) = self.asks.as_ref().zip(WriteTarget::find(&pending)) else {
            return self.refused(pending.denial().clone());
        };
        let decision = self.policy.decide(&place.path, Access::Write);
        let (rule, origin) = rule_and_origin_of(&decision);
        let target = place.path.to_string_lossy().into_owned();
        let is_opener = matches!(&decision.rule, Some(DecidingRule::Rule(rule)) if rule.opens());
        let explicit = decision.verdict != Verdict::Absent && !is_opener;
        let denial = Denial {
            operation: place.operation,
            target,
            rule,
            origin,
            explicit,
            ..pending.denial().clone()
        };
        if is_session_grant(&decision) {
            asks.grant(
                denial,
                AskAnswer::AllowSession,
                &AskSubject::Write(place),
                ParkedRequest::Call(pending),
            );
        } else if !denial.is_tolerated()
            && self.policy.read(|grants| is_worth_asking_to_write(&decision, grants))
        {
            asks.ask(denial, AskSubject::Write(place), ParkedRequest::Call(pending));
        } else {
            self.refused(pending.denial().clone());
        }
    }

    fn decide(&self, trip: &TripEvent) -> Decision {
        let wanted = match trip.operation {
            Operation::Write | Operation::Create | Operation::Rename => Access::Write,
            _ => Access::Read,
        };
        self.policy.decide(&trip.path, wanted)
    }

    /// The path that the process wanted, which may be below the path of the trip; `None` if it does
    /// not exist: programs look for many absent files.
    fn intended(&self, trip: TripEvent) -> Option<TripEvent> {
        match apply::intent(trip.pid) {
            Some(intent) if intent.path.is_within(&trip.path) => {
                // In a denied directory, absent names are denied too.
                let is_denied_dir = |around: &AbsPath| {
                    self.policy.decide(around, Access::Read).verdict == Verdict::Denied
                };
                let is_denied = || {
                    trip.path
                        .parent()
                        .is_some_and(|around| is_denied_dir(&around) && self.exists(&around))
                };
                (self.exists(&intent.path) || is_denied()).then_some(TripEvent {
                    path: intent.path,
                    operation: intent.operation,
                    ..trip
                })
            }
            // Through a link, which resolves to the same path on the host.
            Some(intent) => match resolve(&intent.path).filter(|real| real.is_within(&trip.path)) {
                Some(path) => Some(TripEvent { path, operation: intent.operation, ..trip }),
                None => Some(trip),
            },
            // In a syscall without a path.
            None => Some(trip),
        }
    }
}

fn resolve(path: &AbsPath) -> Option<AbsPath> {
    AbsPath::new(fs::canonicalize(path.as_path()).ok()?)
}
