//! Pool of zygotes, from which the supervisors of sandboxes are forked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::apply::{LaunchError, NetnsReuse, PrestartedSandbox, Zygote};
use crate::fuse::pin_to;
use crate::locks::lock;
use ringfence_plan::{NetworkNamespace, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::signal::SignalSet;
use rustix::thread::CpuSet;

/// Most zygotes, on any number of CPUs.
const MAX_ZYGOTES: usize = 16;

/// Starts supervisors: each from scratch, or as a fork of a zygote, one per CPU.
///
/// Building a sandbox takes about ten exchanges between processes. Under load each is cheapest if
/// all processes are on one CPU; other sandboxes use the other CPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ZygotePool(Option<Arc<[ZygoteSlot]>>);

/// The zygote of one CPU.
#[derive(Debug, Default)]
struct ZygoteSlot {
    processor: usize,
    zygote: Mutex<Option<Arc<Zygote>>>,
    /// Number of sandboxes being built.
    busy: AtomicUsize,
}

/// A sandbox being built. Until this is dropped, its thread stays on the CPU it is built on.
pub(crate) struct BuildSlot {
    slots: Arc<[ZygoteSlot]>,
    number: usize,
    affinity_before: Option<CpuSet>,
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        self.slot().busy.fetch_sub(1, Ordering::Relaxed);
        self.unpin();
    }
}

impl ZygotePool {
    /// One pool for all sandboxes of a program.
    pub(crate) fn shared() -> Self {
        let processors = rustix::thread::sched_getaffinity(None).unwrap_or_default();
        let slot = |processor| ZygoteSlot { processor, ..ZygoteSlot::default() };
        Self(Some(
            (0..CpuSet::MAX_CPU)
                .filter(|processor| processors.is_set(*processor))
                .take(MAX_ZYGOTES)
                .map(slot)
                .collect(),
        ))
    }

    /// Starts a supervisor, and pins this thread to its CPU. Network namespaces of a `circle` are
    /// reused only within it.
    pub(crate) fn start(
        &self,
        plan: &Plan,
        circle: &AbsPath,
        mask: &SignalSet,
    ) -> Result<(PrestartedSandbox, Option<BuildSlot>), LaunchError> {
        let network = plan.network();
        let has_egress = plan.steps.contains(&Step::Egress);
        let reuse = if has_egress {
            NetnsReuse::Served
        } else {
            NetnsReuse::Reusable(circle.as_bytes().to_vec())
        };
        // A sandbox in the host's network cannot be forked from a zygote that has left it.
        match self.build_slot().filter(|_| network == NetworkNamespace::Own) {
            Some(mut build_slot) => Ok((build_slot.start(reuse, mask)?, Some(build_slot))),
            None => Ok((PrestartedSandbox::start(network, mask)?, None)),
        }
    }

    /// The slot with the fewest builds.
    fn build_slot(&self) -> Option<BuildSlot> {
        let slots = self.0.as_ref()?;
        let here = rustix::thread::sched_getcpu();
        // Prefers the current CPU.
        let order = |slot: &ZygoteSlot| (slot.busy.load(Ordering::Relaxed), slot.processor != here);
        let (number, slot) = slots.iter().enumerate().min_by_key(|(_, slot)| order(slot))?;
        slot.busy.fetch_add(1, Ordering::Relaxed);
        Some(BuildSlot { slots: slots.clone(), number, affinity_before: None })
    }
}

impl BuildSlot {
    /// Unpins the thread.
    fn unpin(&mut self) {
        // Only for speed.
        let _ = self
            .affinity_before
            .take()
            .map(|affinity_before| rustix::thread::sched_setaffinity(None, &affinity_before));
    }

    fn slot(&self) -> &ZygoteSlot {
        &self.slots[self.number]
    }

    fn start(
        &mut self,
        reuse: NetnsReuse,
        mask: &SignalSet,
    ) -> Result<PrestartedSandbox, LaunchError> {
        let zygote = {
            let mut zygote = lock(&self.slot().zygote);
            match &*zygote {
                Some(zygote) => zygote.clone(),
                None => zygote
                    .insert(Arc::new(Zygote::start(mask, Some(self.slot().processor))?))
                    .clone(),
            }
        };
        self.affinity_before = pin_to(self.slot().processor);
        PrestartedSandbox::start_from_zygote(&zygote, reuse).or_else(|_| {
            // The zygote is gone, or is full: the next build starts another.
            lock(&self.slot().zygote).take_if(|known| Arc::ptr_eq(known, &zygote));
            self.unpin();
            PrestartedSandbox::start(NetworkNamespace::Own, mask)
        })
    }
}
