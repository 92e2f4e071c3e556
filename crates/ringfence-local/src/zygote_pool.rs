//! Where the wardens of sandboxes come from.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_enforce::apply::{LaunchError, NetnsReuse, PrestartedSandbox, Zygote};
use ringfence_enforce::{NetworkNamespace, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::signal::SignalSet;
use ringfence_tripwire::stay_at;
use rustix::thread::CpuSet;

/// Nobody needs more nurseries, however many processors there are.
const MOST: usize = 16;

/// Starts wardens: each anew, or all of them by copies of a process for each processor.
///
/// To build a sandbox takes some ten conversations between processes. Under load each of them is
/// cheapest where all are on one processor, and there are always others for the other ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ZygotePool(Option<Arc<[ZygoteSlot]>>);

/// Those of one processor.
#[derive(Debug, Default)]
struct ZygoteSlot {
    processor: usize,
    nursery: Mutex<Option<Arc<Zygote>>>,
    /// How many are being built.
    busy: AtomicUsize,
}

/// A sandbox that is being built. Until this is dropped, the thread that has it stays on the
/// processor that it is built on.
pub(crate) struct BuildSlot {
    bays: Arc<[ZygoteSlot]>,
    number: usize,
    home: Option<CpuSet>,
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        self.bay().busy.fetch_sub(1, Ordering::Relaxed);
        self.leave();
    }
}

impl ZygotePool {
    /// One for all sandboxes of a program.
    pub(crate) fn shared() -> Self {
        let processors = rustix::thread::sched_getaffinity(None).unwrap_or_default();
        let bay = |processor| ZygoteSlot { processor, ..ZygoteSlot::default() };
        Self(Some(
            (0..CpuSet::MAX_CPU)
                .filter(|processor| processors.is_set(*processor))
                .take(MOST)
                .map(bay)
                .collect(),
        ))
    }

    /// Starts a warden, and goes to where it is. What is left of those of a `circle` only others of
    /// it may get.
    pub(crate) fn start(
        &self,
        plan: &Plan,
        circle: &AbsPath,
        mask: &SignalSet,
    ) -> Result<(PrestartedSandbox, Option<BuildSlot>), LaunchError> {
        let network = plan.network();
        let is_served = plan.steps.contains(&Step::Egress);
        let serves = if is_served {
            NetnsReuse::Hosts
        } else {
            NetnsReuse::Nobody(circle.as_bytes().to_vec())
        };
        // Whoever is in the host's network cannot come from one who has left it.
        match self.seat().filter(|_| network == NetworkNamespace::Own) {
            Some(mut seat) => Ok((seat.start(serves, mask)?, Some(seat))),
            None => Ok((PrestartedSandbox::start(network, mask)?, None)),
        }
    }

    /// A place to build the next one, where the fewest are being built.
    fn seat(&self) -> Option<BuildSlot> {
        let bays = self.0.as_ref()?;
        let here = rustix::thread::sched_getcpu();
        // Whoever need not move does not.
        let order = |bay: &ZygoteSlot| (bay.busy.load(Ordering::Relaxed), bay.processor != here);
        let (number, bay) = bays.iter().enumerate().min_by_key(|(_, bay)| order(bay))?;
        bay.busy.fetch_add(1, Ordering::Relaxed);
        Some(BuildSlot { bays: bays.clone(), number, home: None })
    }
}

impl BuildSlot {
    /// Lets the thread be anywhere again.
    fn leave(&mut self) {
        // Only a matter of speed.
        let _ = self.home.take().map(|home| rustix::thread::sched_setaffinity(None, &home));
    }

    fn bay(&self) -> &ZygoteSlot {
        &self.bays[self.number]
    }

    fn start(
        &mut self,
        serves: NetnsReuse,
        mask: &SignalSet,
    ) -> Result<PrestartedSandbox, LaunchError> {
        let nursery = {
            let mut nursery = lock(&self.bay().nursery);
            match &*nursery {
                Some(nursery) => nursery.clone(),
                None => nursery
                    .insert(Arc::new(Zygote::start(mask, Some(self.bay().processor))?))
                    .clone(),
            }
        };
        self.home = stay_at(self.bay().processor);
        PrestartedSandbox::start_in(&nursery, serves).or_else(|_| {
            // It is gone, or has no room: the next one has another.
            lock(&self.bay().nursery).take_if(|known| Arc::ptr_eq(known, &nursery));
            self.leave();
            PrestartedSandbox::start(NetworkNamespace::Own, mask)
        })
    }
}

fn lock(nursery: &Mutex<Option<Arc<Zygote>>>) -> MutexGuard<'_, Option<Arc<Zygote>>> {
    nursery.lock().unwrap_or_else(PoisonError::into_inner)
}
