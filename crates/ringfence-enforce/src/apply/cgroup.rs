//! Control groups: the kernel counts for all processes of a sandbox together, and holds them.
//!
//! What it holds is a ceiling somewhat beyond the limit: whoever reaches the limit is ended by its
//! caller, who can say why. The ceiling is for whoever is faster than that.
//!
//! Where nobody lets us make a group, everything is counted process by process instead.

mod dir;
mod discover;
mod pool;
mod reaper;

pub(super) use reaper::{JANITOR, main as tidy_up};

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use ringfence_policy::Limit;
use ringfence_sys::process;

use super::MemoryCounter;
use super::handle::{LaunchError, failed};
use super::helper::is_gone;
use super::probe;
use crate::plan::Plan;
use crate::support::PidAllocation;
use dir::CgroupDir;
use discover::{CgroupResource, CgroupVersion, LookupPurpose, places};

/// The group of one sandbox. Dropping it removes it, when nobody is left in it.
#[derive(Debug)]
pub struct Cgroup {
    parts: Vec<CgroupDir>,
    /// What it was made for.
    wanted: Vec<CgroupResource>,
    after: CgroupRelease,
}

/// What becomes of a group that nobody is in any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupRelease {
    Removed,
    /// Another sandbox of this program gets it: to make one and to remove it takes the kernel
    /// longer than all else that is done with it, and everybody else waits meanwhile.
    UsedAgain,
}

/// What the kernel has counted for a sandbox. What it was not asked to count is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// Milliseconds on processors, of whoever has ended, too.
    pub cpu_ms: Option<u64>,
    /// Bytes of memory that is nobody's file on a disk.
    pub memory: Option<u64>,
    /// How many the kernel has ended because there was no more.
    pub starved: u64,
}

impl Cgroup {
    /// Puts a sandbox into one of its own, where the kernel is to count for it. Nothing runs in it
    /// yet; `control` leads to its warden.
    pub(super) fn around(
        warden: i32,
        control: &OwnedFd,
        plan: &Plan,
        after: CgroupRelease,
    ) -> Result<Option<Arc<Self>>, LaunchError> {
        let Some(mut group) = Self::of(plan, after) else { return held(None, plan) };
        match first_of(warden, control) {
            InitLookup::Is(first) => {
                group.parts.retain(|part| part.write("cgroup.procs", &first.to_string()).is_ok())
            }
            // It has said why, and is heard next.
            InitLookup::Never => return Ok(None),
            InitLookup::Late => group.parts.clear(),
        }
        held(Some(group), plan)
    }

    /// For a sandbox with such a plan; `None` where nothing is to be counted, or the host has no
    /// place for it.
    fn of(plan: &Plan, after: CgroupRelease) -> Option<Self> {
        let memory = plan.most(Limit::Memory).map(above_memory);
        let processes =
            plan.most(Limit::Processes).filter(|_| needs_processes()).map(above_processes);
        let wanted = [
            (CgroupResource::Memory, memory.is_some()),
            (CgroupResource::Processes, processes.is_some()),
            (CgroupResource::Time, plan.most(Limit::Cpu).is_some()),
        ];
        let wanted: Vec<CgroupResource> =
            wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(of, _)| of).collect();
        if wanted.is_empty() {
            return None;
        }
        let hold = |mut parts: Vec<CgroupDir>| {
            parts.iter_mut().for_each(|part| part.hold(memory, processes));
            parts
        };
        // One that another has left in a state in which it cannot be held is no use.
        let used = pool::used_before(&wanted)
            .map(hold)
            .filter(|parts| parts.iter().all(CgroupDir::is_whole));
        let parts = used.or_else(|| made(&wanted, after).map(hold))?;
        Some(Self { parts, wanted, after })
    }

    fn counts(&self, of: CgroupResource) -> Option<&CgroupDir> {
        self.parts.iter().find(|part| part.counts(of))
    }

    /// The counter of a sandbox's memory, with its group if there is one.
    pub(super) fn memory_counter(group: Option<&Self>, plan: &Plan) -> MemoryCounter {
        let is_counted = group.is_some_and(|group| group.counts(CgroupResource::Memory).is_some());
        if plan.most(Limit::Memory).is_some() && !is_counted {
            MemoryCounter::ByProcess
        } else {
            MemoryCounter::Complete
        }
    }

    /// What was counted so far.
    pub fn counted(&self) -> CgroupUsage {
        let memory = self.counts(CgroupResource::Memory);
        CgroupUsage {
            cpu_ms: self.counts(CgroupResource::Time).and_then(CgroupDir::cpu_ms),
            memory: memory.and_then(CgroupDir::memory),
            starved: memory.map(CgroupDir::starved).unwrap_or_default(),
        }
    }

    /// How much there was when the kernel had no more to give, of files on disks, too.
    pub fn peak(&self, most: u64) -> u64 {
        self.counts(CgroupResource::Memory)
            .and_then(CgroupDir::peak)
            .unwrap_or_else(|| above_memory(most))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        match self.after {
            CgroupRelease::UsedAgain => pool::keep(std::mem::take(&mut self.wanted), parts),
            CgroupRelease::Removed if !parts.is_empty() => {
                drop(parts);
                reaper::dismiss();
            }
            CgroupRelease::Removed => {}
        }
    }
}

/// A new one; `None` where the host has no place for it.
fn made(wanted: &[CgroupResource], after: CgroupRelease) -> Option<Vec<CgroupDir>> {
    // For which of the sets of what is wanted there are only places that are not to be used again:
    // to find that out takes as long as to start a process.
    static UNUSED: AtomicU8 = AtomicU8::new(0);
    let this = wanted.iter().fold(0, |set, of| set | 1 << *of as u8);
    let this = 1_u8 << this;
    if after == CgroupRelease::UsedAgain && UNUSED.load(Ordering::Relaxed) & this != 0 {
        return None;
    }
    let mut places = places(wanted, LookupPurpose::Make);
    if after == CgroupRelease::UsedAgain && !places.is_empty() {
        // To enter a hierarchy of the older generation lets everybody wait who starts or ends a
        // process meanwhile: with hundreds in a second, the slowest wait a tenth longer.
        places.retain(|place| {
            place.version == CgroupVersion::Two || place.counts.contains(&CgroupResource::Processes)
        });
        UNUSED.fetch_or(if places.is_empty() { this } else { 0 }, Ordering::Relaxed);
    }
    if places.is_empty() {
        return None;
    }
    pool::try_again();
    reaper::call();
    let parts: Vec<CgroupDir> = places.into_iter().filter_map(CgroupDir::make).collect();
    if parts.is_empty() {
        reaper::dismiss();
    }
    (!parts.is_empty()).then_some(parts)
}

/// Where the plan has no gap because a group holds the processes, there must be one.
fn held(group: Option<Cgroup>, plan: &Plan) -> Result<Option<Arc<Cgroup>>, LaunchError> {
    let is_held =
        group.as_ref().is_some_and(|group| group.counts(CgroupResource::Processes).is_some());
    if !is_held
        && plan.most(Limit::Processes).is_some()
        && process::ids().0 == 0
        && needs_processes()
    {
        return Err(failed("take the sandbox into a control group")(
            io::ErrorKind::PermissionDenied.into(),
        ));
    }
    Ok(group.map(Arc::new))
}

/// The kernel takes memory of files back, as long as there is such.
fn above_memory(most: u64) -> u64 {
    most.saturating_add(most / 4).saturating_add(32 << 20)
}

/// `pids.max` for `most` processes: init is in the group, and one more can be started, which the
/// limit monitor sees and ends everything for. The kernel refuses larger numbers.
fn above_processes(most: u64) -> u64 {
    const LARGEST: u64 = 4_194_304;
    most.saturating_add(2).min(LARGEST)
}

/// Whether nothing else holds them: a group for it takes as long as those for the rest.
fn needs_processes() -> bool {
    probe::numbers() == PidAllocation::Grouped
}

/// The first process of a sandbox.
enum InitLookup {
    Is(i32),
    /// Its warden has failed.
    Never,
    /// Nobody knows what keeps it.
    Late,
}

/// A warden makes it before anything else, and has no other child until something runs in it.
fn first_of(warden: i32, control: &OwnedFd) -> InitLookup {
    const PATIENCE: Duration = Duration::from_secs(2);
    let begun = Instant::now();
    loop {
        let children = fs::read_to_string(format!("/proc/{warden}/task/{warden}/children"))
            .unwrap_or_default();
        if let Some(first) = children.split_whitespace().next().and_then(|child| child.parse().ok())
        {
            return InitLookup::Is(first);
        }
        if is_gone(control) {
            return InitLookup::Never;
        }
        if begun.elapsed() > PATIENCE {
            return InitLookup::Late;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Whether the kernel can hold the number of a sandbox's processes, whoever they are.
pub(super) fn holds_processes() -> bool {
    !places(&[CgroupResource::Processes], LookupPurpose::Ask).is_empty()
}

/// Which generation of control groups counts what for a sandbox, in words; `None` where none does.
pub fn grouping() -> Option<String> {
    let wanted = CgroupResource::ALL
        .into_iter()
        .filter(|of| *of != CgroupResource::Processes || needs_processes());
    let places = places(&wanted.collect::<Vec<_>>(), LookupPurpose::Ask);
    let version = places.first()?.version;
    let counts: Vec<&str> =
        places.iter().flat_map(|place| &place.counts).map(|of| of.word()).collect();
    Some(format!("{} counts {}", version.word(), counts.join(", ")))
}
