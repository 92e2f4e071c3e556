//! Cgroups: the kernel counts resources for all processes of a sandbox together, and limits them.
//!
//! The kernel's limit is somewhat above the policy's: a sandbox that reaches the policy's limit is
//! ended by the limit monitor, which can report the reason. The kernel's limit stops a sandbox that
//! is faster than that.
//!
//! If no cgroup can be created, everything is counted per process instead.

mod dir;
mod discover;
mod pool;
mod reaper;

pub(super) use reaper::{REAPER, main as reaper_main};

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use ringfence_plan::{PidAllocation, Plan};
use ringfence_policy::Limit;
use ringfence_sys::process;

use super::MemoryCounter;
use super::fd_passing::is_peer_gone;
use super::handle::{LaunchError, helper_io_error};
use super::probe;
use dir::CgroupDir;
use discover::{CgroupResource, CgroupVersion, LookupPurpose, find_parents};

/// The cgroup of one sandbox. Dropping it removes it, when it is empty.
#[derive(Debug)]
pub(crate) struct Cgroup {
    parts: Vec<CgroupDir>,
    /// The resources it was made for.
    wanted: Vec<CgroupResource>,
    after: CgroupRelease,
}

/// Handling of an empty cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupRelease {
    Removed,
    /// Another sandbox of this program reuses it: creating and removing one takes the kernel longer
    /// than all other operations on it, and blocks other processes meanwhile.
    UsedAgain,
}

/// Usage counted by the kernel. A resource that is not counted is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CgroupUsage {
    /// CPU time in milliseconds, including ended processes.
    pub cpu_ms: Option<u64>,
    /// Bytes of memory that is not the cache of a file on disk.
    pub memory: Option<u64>,
    /// Number of processes killed by the kernel because of the memory limit.
    pub oom_kills: u64,
}

impl Cgroup {
    /// Moves a sandbox into its own cgroup, if the kernel is to count for it. No command runs in it
    /// yet; `control` leads to its supervisor.
    pub(super) fn for_sandbox(
        supervisor: i32,
        control: &OwnedFd,
        plan: &Plan,
        after: CgroupRelease,
    ) -> Result<Option<Arc<Self>>, LaunchError> {
        let Some(mut group) = Self::for_plan(plan, after) else {
            return require_process_limit(None, plan);
        };
        match find_init(supervisor, control) {
            InitLookup::Is(first) => {
                group.parts.retain(|part| part.write("cgroup.procs", &first.to_string()).is_ok())
            }
            // The supervisor has reported the reason; the next event shows it.
            InitLookup::Never => return Ok(None),
            InitLookup::Late => group.parts.clear(),
        }
        require_process_limit(Some(group), plan)
    }

    /// Creates the cgroup for a plan; `None` if nothing is to be counted, or the host offers no
    /// cgroup.
    fn for_plan(plan: &Plan, after: CgroupRelease) -> Option<Self> {
        let memory = plan.limit(Limit::Memory).map(memory_limit);
        let processes =
            plan.limit(Limit::Processes).filter(|_| needs_processes()).map(process_limit);
        let wanted = [
            (CgroupResource::Memory, memory.is_some()),
            (CgroupResource::Processes, processes.is_some()),
            (CgroupResource::Time, plan.limit(Limit::Cpu).is_some()),
        ];
        let wanted: Vec<CgroupResource> =
            wanted.into_iter().filter(|(_, is_needed)| *is_needed).map(|(of, _)| of).collect();
        if wanted.is_empty() {
            return None;
        }
        let with_limits = |mut parts: Vec<CgroupDir>| {
            parts.iter_mut().for_each(|part| part.set_limits(memory, processes));
            parts
        };
        // A reused cgroup whose limits cannot be set is of no use.
        let reused = pool::take_idle(&wanted)
            .map(with_limits)
            .filter(|parts| parts.iter().all(CgroupDir::has_all_limits));
        let parts = reused.or_else(|| create(&wanted, after).map(with_limits))?;
        Some(Self { parts, wanted, after })
    }

    fn counts(&self, of: CgroupResource) -> Option<&CgroupDir> {
        self.parts.iter().find(|part| part.counts(of))
    }

    /// The counter of a sandbox's memory, given its cgroup.
    pub(super) fn memory_counter(group: Option<&Self>, plan: &Plan) -> MemoryCounter {
        let is_counted = group.is_some_and(|group| group.counts(CgroupResource::Memory).is_some());
        if plan.limit(Limit::Memory).is_some() && !is_counted {
            MemoryCounter::ByProcess
        } else {
            MemoryCounter::Complete
        }
    }

    /// The usage so far.
    pub(crate) fn usage(&self) -> CgroupUsage {
        let memory = self.counts(CgroupResource::Memory);
        CgroupUsage {
            cpu_ms: self.counts(CgroupResource::Time).and_then(CgroupDir::cpu_ms),
            memory: memory.and_then(CgroupDir::memory),
            oom_kills: memory.map(CgroupDir::oom_kills).unwrap_or_default(),
        }
    }

    /// Peak memory when the limit was reached, including the cache of files on disk.
    pub(crate) fn memory_peak(&self, most: u64) -> u64 {
        self.counts(CgroupResource::Memory)
            .and_then(CgroupDir::peak)
            .unwrap_or_else(|| memory_limit(most))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        match self.after {
            CgroupRelease::UsedAgain => pool::keep(std::mem::take(&mut self.wanted), parts),
            CgroupRelease::Removed if !parts.is_empty() => {
                drop(parts);
                reaper::unregister();
            }
            CgroupRelease::Removed => {}
        }
    }
}

/// Creates a cgroup; `None` if the host offers none.
fn create(wanted: &[CgroupResource], after: CgroupRelease) -> Option<Vec<CgroupDir>> {
    // The sets of resources for which there are only cgroups that must not be reused: finding that
    // out takes as long as starting a process.
    static UNUSED: AtomicU8 = AtomicU8::new(0);
    let this = wanted.iter().fold(0, |set, of| set | 1 << *of as u8);
    let this = 1_u8 << this;
    if after == CgroupRelease::UsedAgain && UNUSED.load(Ordering::Relaxed) & this != 0 {
        return None;
    }
    let mut parents = find_parents(wanted, LookupPurpose::Make);
    if after == CgroupRelease::UsedAgain && !parents.is_empty() {
        // Moving a process into a v1 hierarchy blocks every fork and exit meanwhile: with hundreds
        // per second, the slowest wait 10 % longer.
        parents.retain(|place| {
            place.version == CgroupVersion::Two || place.counts.contains(&CgroupResource::Processes)
        });
        UNUSED.fetch_or(if parents.is_empty() { this } else { 0 }, Ordering::Relaxed);
    }
    if parents.is_empty() {
        return None;
    }
    pool::retry_unremoved();
    reaper::register();
    let parts: Vec<CgroupDir> = parents.into_iter().filter_map(CgroupDir::make).collect();
    if parts.is_empty() {
        reaper::unregister();
    }
    (!parts.is_empty()).then_some(parts)
}

/// Fails if the plan relies on a cgroup to limit the processes and there is none.
fn require_process_limit(
    group: Option<Cgroup>,
    plan: &Plan,
) -> Result<Option<Arc<Cgroup>>, LaunchError> {
    let is_held =
        group.as_ref().is_some_and(|group| group.counts(CgroupResource::Processes).is_some());
    if !is_held
        && plan.limit(Limit::Processes).is_some()
        && process::ids().0 == 0
        && needs_processes()
    {
        return Err(helper_io_error("move the sandbox into a cgroup")(
            io::ErrorKind::PermissionDenied.into(),
        ));
    }
    Ok(group.map(Arc::new))
}

/// The memory limit of the cgroup: the kernel first reclaims file cache.
fn memory_limit(most: u64) -> u64 {
    most.saturating_add(most / 4).saturating_add(32 << 20)
}

/// `pids.max` for `most` processes: init is in the cgroup, and one more can be started, which the
/// limit monitor sees and ends the sandbox for. The kernel rejects larger numbers.
fn process_limit(most: u64) -> u64 {
    const LARGEST: u64 = 4_194_304;
    most.saturating_add(2).min(LARGEST)
}

/// True if only a cgroup can limit processes: a `pids` cgroup takes as long as the others together.
fn needs_processes() -> bool {
    probe::pid_allocation() == PidAllocation::Grouped
}

/// Result of looking for init.
enum InitLookup {
    Is(i32),
    /// The supervisor has failed.
    Never,
    /// It did not appear in time, for an unknown reason.
    Late,
}

/// The pid of init: the supervisor forks it first, and has no other child until a command runs.
fn find_init(supervisor: i32, control: &OwnedFd) -> InitLookup {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let started = Instant::now();
    loop {
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))
            .unwrap_or_default();
        if let Some(first) = children.split_whitespace().next().and_then(|child| child.parse().ok())
        {
            return InitLookup::Is(first);
        }
        if is_peer_gone(control) {
            return InitLookup::Never;
        }
        if started.elapsed() > TIMEOUT {
            return InitLookup::Late;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// True if the kernel can limit the number of a sandbox's processes, also for root.
pub(super) fn can_limit_processes() -> bool {
    !find_parents(&[CgroupResource::Processes], LookupPurpose::Ask).is_empty()
}

/// The cgroup version and the resources it counts, for display; `None` if there is none.
pub(crate) fn describe_cgroups() -> Option<String> {
    let wanted = CgroupResource::ALL
        .into_iter()
        .filter(|of| *of != CgroupResource::Processes || needs_processes());
    let parents = find_parents(&wanted.collect::<Vec<_>>(), LookupPurpose::Ask);
    let version = parents.first()?.version;
    let counts: Vec<&str> =
        parents.iter().flat_map(|place| &place.counts).map(|of| of.word()).collect();
    Some(format!("{} counts {}", version.word(), counts.join(", ")))
}
