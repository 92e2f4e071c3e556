//! Whoever looks for what is not opened: told to the caller, with the rule that shut it.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use crate::denials::Denials;
use crate::live::Props;
use ringfence_api::{Denial, Evidence, Operation};
use ringfence_enforce::{Plan, apply, scene};
use ringfence_policy::{AbsPath, Access, Decision, Grants, Verdict};
use ringfence_tripwire::{Scene, Trip, Tripwire, Watcher};

/// A sandbox whose tripwire is served from here.
#[derive(Debug)]
pub(crate) struct Watch {
    scene: Arc<RwLock<Scene>>,
    log: Arc<Log>,
    owner: (u32, u32),
}

impl Watch {
    /// `None` where the plan has no tripwire.
    pub(crate) fn over(plan: &Plan, grants: &Grants) -> Option<Self> {
        if !plan.is_wired() {
            return None;
        }
        let owner = plan.identity().map(|identity| (identity.uid, identity.gid))?;
        let log = Log { grants: grants.clone(), own: Arc::default(), denials: Mutex::default() };
        Some(Self { scene: Arc::new(RwLock::new(scene(plan))), log: Arc::new(log), owner })
    }

    /// Serves `device` until the sandbox is gone, on a thread of its own. What our `own`
    /// processes do, they do for others: the warden tells of it itself, and the first one
    /// looks for the command.
    pub(crate) fn serve(&self, device: OwnedFd, own: [i32; 2], processor: Option<usize>) {
        own.into_iter().for_each(|pid| self.log.own.add(pid));
        let tripwire = Tripwire::new(device, self.scene.clone(), self.log.clone(), self.owner);
        // Should there be no thread, the device is closed and every look fails.
        let _ = std::thread::Builder::new().name("tripwire".into()).spawn(move || tripwire.serve(processor));
    }

    /// What somebody needs who covers more with it.
    pub(crate) fn props(&self) -> Props {
        Props { scene: self.scene.clone(), own: self.log.own.clone() }
    }

    /// What was refused so far.
    pub(crate) fn take(&self) -> Denials {
        std::mem::take(&mut self.log.denials.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Processes of ours, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Own(RwLock<Vec<u32>>);

impl Own {
    pub(crate) fn add(&self, pid: i32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(pid as u32);
    }

    fn has(&self, pid: u32) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&pid)
    }
}

#[derive(Debug)]
struct Log {
    grants: Grants,
    own: Arc<Own>,
    denials: Mutex<Denials>,
}

impl Watcher for Log {
    fn exists(&self, path: &AbsPath) -> bool {
        fs::symlink_metadata(path.as_path()).is_ok()
    }

    fn tripped(&self, trip: Trip) {
        if self.own.has(trip.pid) {
            return;
        }
        let Some(trip) = self.meant(trip) else { return };
        let program = fs::read_link(format!("/proc/{}/exe", trip.pid)).unwrap_or_default();
        let wanted = match trip.operation {
            Operation::Write | Operation::Create | Operation::Rename => Access::Write,
            _ => Access::Read,
        };
        let decision = self.grants.decide(&trip.path, wanted);
        let (rule, origin) = because(&decision);
        let time_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let denial = Denial {
            operation: trip.operation,
            target: trip.path.to_string_lossy().into_owned(),
            rule,
            origin,
            explicit: decision.verdict != Verdict::Absent,
            pid: trip.pid,
            program: program.to_string_lossy().into_owned(),
            time_ms,
            evidence: Evidence::Kernel,
            count: 1,
        };
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).note(denial);
    }
}

/// The rule that refused, and where it was written.
pub(crate) fn because(decision: &Decision) -> (String, String) {
    match &decision.rule {
        // Hard links are covered by what they are, whatever the policy says of the name.
        _ if decision.verdict == Verdict::Allowed => (Denial::ANOTHER_NAME.to_owned(), "built in".to_owned()),
        Some(because) => (because.origin().text.clone(), because.origin().to_string()),
        None => (Denial::NOTHING_OPENS_IT.to_owned(), "built in".to_owned()),
    }
}

impl Log {
    /// What was wanted by somebody who got no further than to where the trip tells; `None`
    /// if it is nowhere: programs look for many things that are not there.
    fn meant(&self, trip: Trip) -> Option<Trip> {
        match apply::intent(trip.pid) {
            Some(intent) if intent.path.is_within(&trip.path) => {
                self.exists(&intent.path).then_some(Trip { path: intent.path, operation: intent.operation, ..trip })
            }
            // By way of a link, which leads to the same on the host.
            Some(intent) => match real(&intent.path).filter(|real| real.is_within(&trip.path)) {
                Some(path) => Some(Trip { path, operation: intent.operation, ..trip }),
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
