//! Keeping account of what a sandbox uses, and ending it where it uses too much.
//!
//! The kernel tells of every process what it has used, and what those had used that it has
//! waited for. All that are there are looked at some fifty times in a second. Where the sandbox is
//! a control group, it has counted time and memory itself.

mod command_usage;
mod proc_usage;
mod share;
mod usage_ledger;

pub(crate) use command_usage::CommandUsage;
pub(crate) use share::share_cpus;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::LimitBreach;
use ringfence_enforce::apply::{Cgroup, InitUsage, Reins, SpaceTaken};
use ringfence_policy::{Limit, Limits};
use ringfence_provider::ProviderError;

use crate::thread_pool::{self, PoolHandle};
use proc_usage::ProcUsage;
use usage_ledger::UsageLedger;

/// So often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// The longest pause between looks at a sandbox of many in which nothing happens.
const IDLE_LOOK: Duration = Duration::from_millis(60);

/// For so long somebody who was told to end everything may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whoever keeps account of a sandbox, as long as it is there.
#[derive(Debug)]
pub(crate) struct LimitMonitor {
    shared: Arc<MonitorShared>,
    charge: Arc<MonitorTarget>,
    /// As soon as there is something that can use anything.
    keeper: Option<PoolHandle>,
}

/// What is kept account of.
#[derive(Debug)]
struct MonitorTarget {
    most: Limits,
    warden: i32,
    reins: Reins,
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
    /// A command has begun since the last look.
    has_begun: bool,
    breaches: Vec<LimitBreach>,
    /// CPU time that counts for nobody who runs now, in milliseconds.
    before_ms: u64,
    cpu_ms: u64,
    /// What the sandbox's first process has told last.
    told: InitUsage,
    /// Disk space that was taken for it by the notify handler.
    taken: SpaceTaken,
    /// How many the kernel had ended for want of memory.
    starved: u64,
}

impl MonitorState {
    /// What was told. What the notify handler took counts as written.
    fn account(&self) -> InitUsage {
        InitUsage { written: self.told.written.saturating_add(self.taken.bytes()), ..self.told }
    }
}

impl LimitMonitor {
    /// For what will come from `warden`; nobody where there is nothing to keep account of.
    pub(crate) fn over(
        limits: &Limits,
        warden: i32,
        reins: Reins,
        group: Option<Arc<Cgroup>>,
    ) -> Option<Self> {
        const WATCHED: [Limit; 5] =
            [Limit::Cpu, Limit::Memory, Limit::Processes, Limit::OpenFiles, Limit::Disk];
        let is_watched = WATCHED.iter().any(|limit| limits.of(*limit).is_some());
        let charge = MonitorTarget { most: *limits, warden, reins, group };
        (is_watched || share::is_shared()).then(|| Self {
            shared: Arc::default(),
            charge: Arc::new(charge),
            keeper: None,
        })
    }

    /// Keeps account from now on: something is about to run.
    pub(crate) fn attend(&mut self) -> Result<(), ProviderError> {
        if self.keeper.is_some() {
            return Ok(());
        }
        let (kept, charge) = (self.shared.clone(), self.charge.clone());
        let keeper = thread_pool::lend("steward", None, move || kept.keep(&charge));
        self.keeper = Some(
            keeper.map_err(|source| ProviderError::System { what: "start a thread", source })?,
        );
        Ok(())
    }

    /// What was noticed since this was asked for last.
    pub(crate) fn breaches(&self) -> Vec<LimitBreach> {
        // Whoever was ended by the kernel may have been gone before anybody looked.
        if self.shared.note_starved(&self.charge) {
            self.charge.reins.end();
        }
        std::mem::take(&mut self.shared.lock().breaches)
    }

    /// Whether something was too much that everything is ended for.
    pub(crate) fn has_ended_it(&self) -> bool {
        self.shared.note_starved(&self.charge);
        self.shared.lock().breaches.iter().any(|breach| breach.limit != Limit::OpenFiles)
    }

    /// As [`Reins::account`] asks for.
    pub(crate) fn told(&self, account: InitUsage) {
        self.shared.lock().told = account;
    }

    /// The notify handler took so much disk space so far.
    pub(crate) fn took_space(&self, taken: SpaceTaken) {
        self.shared.lock().taken = taken;
    }

    /// A command begins: CPU time is its own from here on.
    pub(crate) fn begin(&self) {
        let mut state = self.shared.lock();
        state.before_ms = state.cpu_ms;
        state.has_begun = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for LimitMonitor {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        let _ = self.keeper.take().map(PoolHandle::join);
    }
}

impl MonitorShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, charge: &MonitorTarget) {
        // Whoever makes very many processes must not keep us waiting. Only root may be preferred.
        const FIRST: i32 = -20;
        let before = rustix::process::getpriority_process(None);
        let is_first = rustix::process::setpriority_process(None, FIRST).is_ok();
        self.look_on(charge);
        // Others have the thread after us.
        let _ = before
            .map(|before| is_first.then(|| rustix::process::setpriority_process(None, before)));
    }

    fn look_on(&self, charge: &MonitorTarget) {
        let MonitorTarget { most, warden, reins, group } = charge;
        let (mut ledger, mut last) = (UsageLedger::default(), ProcUsage::default());
        let mut pause = LOOK;
        while self.is_wanted_after(pause) {
            let begun = Instant::now();
            let counted = group.as_deref().map(Cgroup::counted).unwrap_or_default();
            if most.disk.is_some() || most.memory.is_some() && counted.memory.is_none() {
                reins.account();
            }
            let told = self.lock().account();
            let tally = ledger.look(*warden, most, told, counted);
            if self.judge(most, &tally) || self.note_starved(charge) {
                reins.end();
                // Whoever was to end it may be kept from it.
                if !self.is_over_within(PATIENCE) {
                    reins.kill();
                }
                return;
            }
            if share::is_shared() && tally.cpu_ms > share::MUCH_MS {
                ledger.give_way();
            }
            let is_idle = share::is_shared() && tally == last;
            pause = if is_idle {
                (pause * 2).clamp(LOOK, IDLE_LOOK)
            } else {
                next_pause(most, &tally, begun.elapsed())
            };
            last = tally;
        }
    }

    fn is_over_within(&self, long: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), long, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Waits, no longer than [`LOOK`] once a command begins, and answers if there is still
    /// something to look at.
    fn is_wanted_after(&self, long: Duration) -> bool {
        let mut end = Instant::now() + long;
        let mut state = self.lock();
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            let waited = self
                .changed
                .wait_timeout_while(state, rest, |state| !state.is_over && !state.has_begun);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over || !std::mem::take(&mut state.has_begun) {
                return !state.is_over;
            }
            end = end.min(Instant::now() + LOOK);
        }
    }

    /// The kernel has ended somebody for want of memory; answers whether it has since this was
    /// asked for last.
    fn note_starved(&self, MonitorTarget { most, group, .. }: &MonitorTarget) -> bool {
        let (Some(group), Some(configured)) = (group, most.memory) else { return false };
        let mut state = self.lock();
        let starved = group.counted().starved;
        if starved <= state.starved {
            return false;
        }
        state.starved = starved;
        let observed = group.peak(configured).max(configured.saturating_add(1));
        note(&mut state.breaches, LimitBreach { limit: Limit::Memory, configured, observed });
        true
    }

    /// Notes what is too much; answers whether it is to end.
    fn judge(&self, most: &Limits, tally: &ProcUsage) -> bool {
        let mut state = self.lock();
        state.cpu_ms = state.cpu_ms.max(tally.cpu_ms);
        let cpu_ms = state.cpu_ms - state.before_ms;
        let ends = [
            (Limit::Cpu, most.cpu_ms, cpu_ms),
            (Limit::Memory, most.memory, tally.memory),
            (Limit::Processes, most.processes, tally.processes),
            (Limit::Disk, most.disk, tally.disk),
        ];
        let beyond = |(limit, most, observed): &(Limit, Option<u64>, u64)| {
            most.filter(|most| observed > most).map(|configured| LimitBreach {
                limit: *limit,
                configured,
                observed: *observed,
            })
        };
        let found: Vec<LimitBreach> = ends.iter().filter_map(beyond).collect();
        // The kernel refuses what goes beyond it: nobody is ended for standing there.
        if let Some(configured) = most.open_files.filter(|most| tally.open_files >= *most) {
            note(
                &mut state.breaches,
                LimitBreach { limit: Limit::OpenFiles, configured, observed: tally.open_files },
            );
        }
        found.iter().for_each(|breach| note(&mut state.breaches, *breach));
        !found.is_empty()
    }
}

/// The time until the next look. Near the limit of processes it is short, as far as looking takes
/// no more than a tenth of a CPU: a new process takes a fraction of a millisecond.
fn next_pause(most: &Limits, tally: &ProcUsage, took: Duration) -> Duration {
    const SHORT: Duration = Duration::from_millis(2);
    let is_near = most.processes.is_some_and(|most| tally.processes > most / 2);
    if is_near { (took * 9).clamp(SHORT, LOOK) } else { LOOK }
}

/// Each limit once.
fn note(breaches: &mut Vec<LimitBreach>, breach: LimitBreach) {
    if breaches.iter().all(|known| known.limit != breach.limit) {
        breaches.push(breach);
    }
}
