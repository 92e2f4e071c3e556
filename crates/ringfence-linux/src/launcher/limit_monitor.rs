//! Limit monitor: measures the usage of a sandbox, and ends it above a limit.
//!
//! The kernel reports the usage of each process and of its reaped children. The monitor reads all
//! processes about fifty times per second. If the sandbox has a cgroup, the cgroup counts CPU time
//! and memory.

mod command_usage;
mod proc_usage;
mod share;
mod usage_ledger;

pub(crate) use command_usage::CommandUsage;
pub(crate) use share::share_cpus;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::apply::{Cgroup, InitUsage, SandboxControl, SpaceTaken};
use crate::launcher::system_step::SystemStep;
use crate::locks::lock;
use ringfence_api::LimitBreach;
use ringfence_policy::{Limit, Limits};
use ringfence_provider::ProviderError;

use crate::launcher::thread_pool::{self, PoolHandle};
use proc_usage::ProcUsage;
use usage_ledger::UsageLedger;

/// Interval between measurements.
const INTERVAL: Duration = Duration::from_millis(20);
/// Longest interval for an idle sandbox among many.
const IDLE_INTERVAL: Duration = Duration::from_millis(60);

/// Time for init to end everything, before the sandbox is killed.
const END_LIMIT: Duration = Duration::from_millis(500);

/// Monitor of one sandbox, while it lives.
#[derive(Debug)]
pub(crate) struct LimitMonitor {
    shared: Arc<MonitorShared>,
    target: Arc<MonitorTarget>,
    /// The thread, once a process exists that can use resources.
    thread: Option<PoolHandle>,
}

/// The sandbox that is measured.
#[derive(Debug)]
struct MonitorTarget {
    limits: Limits,
    supervisor: i32,
    control: SandboxControl,
    group: Option<Arc<Cgroup>>,
}

#[derive(Debug, Default)]
struct MonitorShared {
    state: Mutex<MonitorState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MonitorState {
    is_over: bool,
    /// Set when a command has begun since the last measurement.
    has_begun: bool,
    breaches: Vec<LimitBreach>,
    /// CPU time of earlier commands, in milliseconds.
    before_ms: u64,
    cpu_ms: u64,
    /// The last usage report of init.
    init_usage: InitUsage,
    /// Disk space taken by the notify handler on behalf of the sandbox.
    taken: SpaceTaken,
    /// Number of processes that the kernel killed for lack of memory.
    oom_kills: u64,
}

impl MonitorState {
    /// Usage reported by init. Space that the notify handler took counts as written.
    fn account(&self) -> InitUsage {
        InitUsage {
            written: self.init_usage.written.saturating_add(self.taken.bytes()),
            ..self.init_usage
        }
    }
}

impl LimitMonitor {
    /// Monitor for the descendants of `supervisor`; `None` if there is nothing to measure.
    pub(crate) fn new(
        limits: &Limits,
        supervisor: i32,
        control: SandboxControl,
        group: Option<Arc<Cgroup>>,
    ) -> Option<Self> {
        const WATCHED: [Limit; 5] =
            [Limit::Cpu, Limit::Memory, Limit::Processes, Limit::OpenFiles, Limit::Disk];
        let is_watched = WATCHED.iter().any(|limit| limits.get(*limit).is_some());
        let target = MonitorTarget { limits: *limits, supervisor, control, group };
        (is_watched || share::is_shared()).then(|| Self {
            shared: Arc::default(),
            target: Arc::new(target),
            thread: None,
        })
    }

    /// Starts the monitor, before a command runs.
    pub(crate) fn start(&mut self) -> Result<(), ProviderError> {
        if self.thread.is_some() {
            return Ok(());
        }
        let (shared, target) = (self.shared.clone(), self.target.clone());
        let thread = thread_pool::run("limits", None, move || shared.run(&target));
        self.thread = Some(thread.during("start a thread")?);
        Ok(())
    }

    /// Takes the breaches since the last call.
    pub(crate) fn take_breaches(&self) -> Vec<LimitBreach> {
        // A process killed by the kernel may be gone before a measurement.
        if self.shared.note_oom_kills(&self.target) {
            self.target.control.end();
        }
        std::mem::take(&mut lock(&self.shared.state).breaches)
    }

    /// True if a limit was breached that ends everything.
    pub(crate) fn has_fatal_breach(&self) -> bool {
        self.shared.note_oom_kills(&self.target);
        lock(&self.shared.state).breaches.iter().any(|breach| breach.limit != Limit::OpenFiles)
    }

    /// Stores a usage report that the monitor requested from init.
    pub(crate) fn set_init_usage(&self, account: InitUsage) {
        lock(&self.shared.state).init_usage = account;
    }

    /// Stores the disk space that the notify handler took so far.
    pub(crate) fn set_space_taken(&self, taken: SpaceTaken) {
        lock(&self.shared.state).taken = taken;
    }

    /// Begins a command: CPU time counts for it from here on.
    pub(crate) fn begin_command(&self) {
        let mut state = lock(&self.shared.state);
        state.before_ms = state.cpu_ms;
        state.has_begun = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for LimitMonitor {
    fn drop(&mut self) {
        lock(&self.shared.state).is_over = true;
        self.shared.changed.notify_all();
        let _ = self.thread.take().map(PoolHandle::join);
    }
}

impl MonitorShared {
    fn run(&self, target: &MonitorTarget) {
        // Highest priority, so that a fork bomb does not starve the monitor. Only root may set it.
        const HIGHEST_PRIORITY: i32 = -20;
        let before = rustix::process::getpriority_process(None);
        let is_raised = rustix::process::setpriority_process(None, HIGHEST_PRIORITY).is_ok();
        self.measure_loop(target);
        // The pool reuses the thread.
        let _ = before
            .map(|before| is_raised.then(|| rustix::process::setpriority_process(None, before)));
    }

    fn measure_loop(&self, target: &MonitorTarget) {
        let MonitorTarget { limits, supervisor, control, group } = target;
        let (mut ledger, mut last) = (UsageLedger::default(), ProcUsage::default());
        let mut pause = INTERVAL;
        while self.is_wanted_after(pause) {
            let begun = Instant::now();
            let counted = group.as_deref().map(Cgroup::usage).unwrap_or_default();
            if limits.disk.is_some() || limits.memory.is_some() && counted.memory.is_none() {
                control.request_usage();
            }
            let init_usage = lock(&self.state).account();
            let tally = ledger.measure(*supervisor, limits, init_usage, counted);
            if self.record_breaches(limits, &tally) || self.note_oom_kills(target) {
                control.end();
                // Init may be kept from ending it.
                if !self.is_over_within(END_LIMIT) {
                    control.kill();
                }
                return;
            }
            if share::is_shared() && tally.cpu_ms > share::YIELD_AFTER_MS {
                ledger.give_way();
            }
            let is_idle = share::is_shared() && tally == last;
            pause = if is_idle {
                (pause * 2).clamp(INTERVAL, IDLE_INTERVAL)
            } else {
                next_pause(limits, &tally, begun.elapsed())
            };
            last = tally;
        }
    }

    fn is_over_within(&self, duration: Duration) -> bool {
        let waited =
            self.changed.wait_timeout_while(lock(&self.state), duration, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Waits, at most [`INTERVAL`] once a command begins; true if the sandbox still runs.
    fn is_wanted_after(&self, duration: Duration) -> bool {
        let mut end = Instant::now() + duration;
        let mut state = lock(&self.state);
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            let waited = self
                .changed
                .wait_timeout_while(state, rest, |state| !state.is_over && !state.has_begun);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over || !std::mem::take(&mut state.has_begun) {
                return !state.is_over;
            }
            end = end.min(Instant::now() + INTERVAL);
        }
    }

    /// Records kills by the kernel for lack of memory; true if there are new ones.
    fn note_oom_kills(&self, MonitorTarget { limits, group, .. }: &MonitorTarget) -> bool {
        let (Some(group), Some(configured)) = (group, limits.memory) else { return false };
        let mut state = lock(&self.state);
        let oom_kills = group.usage().oom_kills;
        if oom_kills <= state.oom_kills {
            return false;
        }
        state.oom_kills = oom_kills;
        let observed = group.memory_peak(configured).max(configured.saturating_add(1));
        note(&mut state.breaches, LimitBreach { limit: Limit::Memory, configured, observed });
        true
    }

    /// Records breaches; true if the sandbox must end.
    fn record_breaches(&self, limits: &Limits, tally: &ProcUsage) -> bool {
        let mut state = lock(&self.state);
        state.cpu_ms = state.cpu_ms.max(tally.cpu_ms);
        let cpu_ms = state.cpu_ms - state.before_ms;
        let ends = [
            (Limit::Cpu, limits.cpu_ms, cpu_ms),
            (Limit::Memory, limits.memory, tally.memory),
            (Limit::Processes, limits.processes, tally.processes),
            (Limit::Disk, limits.disk, tally.disk),
        ];
        let breach_of = |(limit, most, observed): &(Limit, Option<u64>, u64)| {
            most.filter(|most| observed > most).map(|configured| LimitBreach {
                limit: *limit,
                configured,
                observed: *observed,
            })
        };
        let found: Vec<LimitBreach> = ends.iter().filter_map(breach_of).collect();
        // The kernel denies more open files, so reaching this limit does not end the sandbox.
        if let Some(configured) = limits.open_files.filter(|limit| tally.open_files >= *limit) {
            note(
                &mut state.breaches,
                LimitBreach { limit: Limit::OpenFiles, configured, observed: tally.open_files },
            );
        }
        found.iter().for_each(|breach| note(&mut state.breaches, *breach));
        !found.is_empty()
    }
}

/// Time until the next measurement. Near the process limit it is short, as long as measuring takes
/// at most a tenth of a CPU: a fork takes a fraction of a millisecond.
fn next_pause(limits: &Limits, tally: &ProcUsage, took: Duration) -> Duration {
    const SHORT: Duration = Duration::from_millis(2);
    let is_near = limits.processes.is_some_and(|limits| tally.processes > limits / 2);
    if is_near { (took * 9).clamp(SHORT, INTERVAL) } else { INTERVAL }
}

/// Adds a breach; each limit is listed once.
fn note(breaches: &mut Vec<LimitBreach>, breach: LimitBreach) {
    if breaches.iter().all(|known| known.limit != breach.limit) {
        breaches.push(breach);
    }
}
