//! Whoever looks for what is not opened: told to the caller, with the rule that shut it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use ringfence_api::{AskAnswer, Asker, Denial, DenialEvidence, GrantedAccess, Operation};
use ringfence_enforce::apply::{IntentEffect, PendingWrite};
use ringfence_enforce::{Plan, apply};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Disguise, Verdict};
use ringfence_sys::memory;
use ringfence_tripwire::{HostEntry, NodeTree, PendingOpen, TripEvent, TripHandler, TripwireFs};

use crate::asks::{
    AskSubject, LivePolicy, ParkedRequest, QuestionBroker, ReadTarget, WriteTarget, is_asked_about,
    is_granted, is_worth_asking, is_worth_asking_to_write,
};
use crate::denial_log::DenialLog;
use crate::optional::marked;
use crate::thread_pool;
use crate::watcher_thread::WatcherNodes;

/// A sandbox whose tripwire is served from here, or in which somebody is asked about what is
/// to be written.
#[derive(Debug)]
pub(crate) struct TripwireServer {
    /// What the tripwire shows, where there is one.
    scene: Option<Arc<RwLock<NodeTree>>>,
    log: Arc<TripwireLog>,
    owner: (u32, u32),
}

impl TripwireServer {
    /// `None` where the plan has no tripwire and nobody can be asked. With an `asker`, some of
    /// what would be refused is asked about.
    pub(crate) fn over(
        plan: &Plan,
        ground: &Arc<LivePolicy>,
        asker: Option<&Arc<dyn Asker>>,
    ) -> Option<Self> {
        let (scene, own, ground) = (ground.scene(), ground.own(), ground.clone());
        if scene.is_none() && asker.is_none() {
            return None;
        }
        let owner = plan.identity().map(|identity| (identity.uid, identity.gid))?;
        let denials = Arc::<Mutex<DenialLog>>::default();
        let asks =
            asker.map(|asker| QuestionBroker::of(asker.clone(), ground.clone(), denials.clone()));
        Some(Self { scene, log: Arc::new(TripwireLog { ground, denials, own, asks }), owner })
    }

    /// Serves `device` until the sandbox is gone, on a thread of its own. What our `own`
    /// processes do, they do for others: the warden tells of it itself, and the first one
    /// looks for the command.
    pub(crate) fn serve(&self, device: OwnedFd, own: [i32; 2], processor: Option<usize>) {
        let Some(scene) = self.scene.clone() else { return };
        own.into_iter().for_each(|pid| self.log.own.add(pid));
        self.begin();
        /// How many are served at the same time.
        static SERVED: AtomicUsize = AtomicUsize::new(0);
        let tripwire = TripwireFs::new(device, scene, self.log.clone(), self.owner);
        // Should there be no thread, the device is closed and every look fails.
        let serve = move || {
            SERVED.fetch_add(1, Ordering::Relaxed);
            tripwire.serve(processor);
            // The last of a sandbox's threads to go, and what it showed was much.
            match SERVED.fetch_sub(1, Ordering::Relaxed) {
                1 => memory::give_back(),
                _ => memory::give_back_at_times(),
            }
        };
        let _ = thread_pool::lend("tripwire", processor, serve);
    }

    /// What somebody needs who covers more with the tripwire, where there is one.
    pub(crate) fn props(&self) -> Option<WatcherNodes> {
        self.scene.clone().map(|scene| WatcherNodes { scene, own: self.log.own.clone() })
    }

    /// Who asks, where somebody can be asked.
    pub(crate) fn asks(&self) -> Option<Arc<QuestionBroker>> {
        self.log.asks.clone()
    }

    /// What was refused so far.
    pub(crate) fn take(&self) -> DenialLog {
        std::mem::take(&mut self.log.denials.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What went through so far because somebody said so.
    pub(crate) fn granted(&self) -> Vec<GrantedAccess> {
        self.log.asks.as_ref().map(|asks| asks.granted()).unwrap_or_default()
    }

    /// A call that came by the usher is about to be refused, and waits.
    pub(crate) fn plead(&self, plea: PendingWrite) {
        self.log.plead(plea);
    }

    /// Somebody can be asked from now on: there may be threads.
    pub(crate) fn begin(&self) {
        self.log.asks.iter().for_each(|asks| asks.begin());
    }
}

/// Processes of ours, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct OwnPids(RwLock<Vec<u32>>);

impl OwnPids {
    pub(crate) fn add(&self, pid: i32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(pid as u32);
    }

    pub(crate) fn remove(&self, pid: i32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|own| *own != pid as u32);
    }

    fn has(&self, pid: u32) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&pid)
    }
}

#[derive(Debug)]
struct TripwireLog {
    ground: Arc<LivePolicy>,
    denials: Arc<Mutex<DenialLog>>,
    own: Arc<OwnPids>,
    asks: Option<Arc<QuestionBroker>>,
}

impl TripHandler for TripwireLog {
    fn exists(&self, path: &AbsPath) -> bool {
        fs::symlink_metadata(path.as_path()).is_ok()
    }

    fn tripped(&self, trip: TripEvent) {
        if self.own.has(trip.pid) {
            return;
        }
        let Some(trip) = self.meant(trip) else { return };
        self.refused(self.denial(&trip, &self.decide(&trip)));
    }

    fn disguise(&self, path: &AbsPath, pid: u32) -> Disguise {
        if self.own.has(pid) {
            Disguise::Deny
        } else {
            self.ground.read(|grants| grants.disguise(path))
        }
    }

    fn can_ask(&self) -> bool {
        self.asks.is_some()
    }

    fn lead(&self, path: &AbsPath, pid: u32) -> Option<HostEntry> {
        if self.own.has(pid) {
            return None;
        }
        let intent = apply::intent(pid).filter(|intent| intent.end == IntentEffect::Use)?;
        let meant = if intent.path.is_within(path) {
            intent.path
        } else {
            real(&intent.path).filter(|real| real.is_within(path))?
        };
        let decision = self.ground.decide(&meant, Access::Read);
        if !is_granted(&decision) && !self.ground.read(|grants| is_worth_asking(&decision, grants))
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
        if self.own.has(trip.pid) {
            return;
        }
        // A cover that was put just now, and nobody has said yet of what: no question can be
        // made of it, and whoever tries again will find it named.
        if trip.path == AbsPath::root() {
            return self.tripped(trip);
        }
        let decision = self.decide(&trip);
        let denial = self.denial(&trip, &decision);
        let target = if is_asked_about(trip.operation) {
            ReadTarget::look(&trip.path, trip.operation)
        } else {
            None
        };
        let is_worth_it = || self.ground.read(|grants| is_worth_asking(&decision, grants));
        match (&self.asks, target) {
            (Some(asks), Some(target)) if is_granted(&decision) && !target.may_be_another() => {
                asks.let_through(
                    denial,
                    AskAnswer::AllowSession,
                    &AskSubject::Read(target),
                    ParkedRequest::Open(pending),
                );
            }
            (Some(asks), Some(target)) if is_worth_it() => {
                asks.ask(denial, AskSubject::Read(target), ParkedRequest::Open(pending));
            }
            _ => self.refused(denial),
        }
    }
}

/// What is told of something that is refused.
fn denial(trip: &TripEvent, decision: &Decision) -> Denial {
    let program = fs::read_link(format!("/proc/{}/exe", trip.pid)).unwrap_or_default();
    let (rule, origin) = because(decision);
    let time_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    Denial {
        operation: trip.operation,
        target: trip.path.to_string_lossy().into_owned(),
        rule,
        origin,
        explicit: decision.verdict != Verdict::Absent,
        pid: trip.pid,
        program: program.to_string_lossy().into_owned(),
        time_ms,
        evidence: DenialEvidence::Kernel,
        count: 1,
        optional: false,
    }
}

/// The rule that refused, and where it was written.
pub(crate) fn because(decision: &Decision) -> (String, String) {
    match &decision.rule {
        // Hard links are covered by what they are, whatever the policy says of the name.
        _ if decision.verdict == Verdict::Allowed => {
            (Denial::ANOTHER_NAME.to_owned(), "built in".to_owned())
        }
        Some(because) => (because.origin().text.clone(), because.origin().to_string()),
        None => (Denial::NOTHING_OPENS_IT.to_owned(), "built in".to_owned()),
    }
}

impl TripwireLog {
    fn denial(&self, trip: &TripEvent, decision: &Decision) -> Denial {
        self.ground.read(|grants| marked(denial(trip, decision), grants))
    }

    fn refused(&self, denial: Denial) {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).note(denial);
    }

    fn plead(&self, plea: PendingWrite) {
        let Some((asks, place)) = self.asks.as_ref().zip(WriteTarget::find(&plea)) else {
            return self.refused(plea.denial().clone());
        };
        let decision = self.ground.decide(&place.path, Access::Write);
        let (rule, origin) = because(&decision);
        let target = place.path.to_string_lossy().into_owned();
        let is_opener = matches!(&decision.rule, Some(DecidingRule::Rule(rule)) if rule.opens());
        let explicit = decision.verdict != Verdict::Absent && !is_opener;
        let denial = Denial {
            operation: place.operation,
            target,
            rule,
            origin,
            explicit,
            ..plea.denial().clone()
        };
        if is_granted(&decision) {
            asks.let_through(
                denial,
                AskAnswer::AllowSession,
                &AskSubject::Write(place),
                ParkedRequest::Call(plea),
            );
        } else if !denial.is_done_without()
            && self.ground.read(|grants| is_worth_asking_to_write(&decision, grants))
        {
            asks.ask(denial, AskSubject::Write(place), ParkedRequest::Call(plea));
        } else {
            self.refused(plea.denial().clone());
        }
    }

    fn decide(&self, trip: &TripEvent) -> Decision {
        let wanted = match trip.operation {
            Operation::Write | Operation::Create | Operation::Rename => Access::Write,
            _ => Access::Read,
        };
        self.ground.decide(&trip.path, wanted)
    }

    /// What was wanted by somebody who got no further than to where the trip tells; `None`
    /// if it is nowhere: programs look for many things that are not there.
    fn meant(&self, trip: TripEvent) -> Option<TripEvent> {
        match apply::intent(trip.pid) {
            Some(intent) if intent.path.is_within(&trip.path) => {
                // In a directory that is denied, also what is not there is denied.
                let is_shut = |around: &AbsPath| {
                    self.ground.decide(around, Access::Read).verdict == Verdict::Denied
                };
                let is_denied = || {
                    trip.path
                        .parent()
                        .is_some_and(|around| is_shut(&around) && self.exists(&around))
                };
                (self.exists(&intent.path) || is_denied()).then_some(TripEvent {
                    path: intent.path,
                    operation: intent.operation,
                    ..trip
                })
            }
            // By way of a link, which leads to the same on the host.
            Some(intent) => match real(&intent.path).filter(|real| real.is_within(&trip.path)) {
                Some(path) => Some(TripEvent { path, operation: intent.operation, ..trip }),
                None => Some(trip),
            },
            // In a call that takes no path.
            None => Some(trip),
        }
    }
}

fn real(path: &AbsPath) -> Option<AbsPath> {
    AbsPath::new(fs::canonicalize(path.as_path()).ok()?)
}
