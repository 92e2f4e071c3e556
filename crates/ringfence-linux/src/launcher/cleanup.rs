//! Cleanup after a sandbox has ended.

use std::os::fd::OwnedFd;

use ringfence_api::QuarantinedFile;
use ringfence_policy::AbsPath;

use super::cache_dirs;
use super::command_loop::Masked;
use super::git_sweep::{self, SweepBaseline, SweepScope};
use super::run_registry::{CreatedRepos, RunMarker, RunRegistry};
use super::sandbox_monitor::SandboxMonitor;

/// Cleanup after a sandbox has ended.
pub(super) struct PostRunCleanup {
    pub(super) runs: Option<RunRegistry>,
    pub(super) left_over: Option<Vec<QuarantinedFile>>,
    pub(super) mark: Option<RunMarker>,
    pub(super) baseline: SweepBaseline,
    pub(super) listed: CreatedRepos,
    pub(super) quarantine: AbsPath,
    /// Held until the sandbox has ended.
    pub(super) stores: cache_dirs::Locks,
}

impl PostRunCleanup {
    /// The project's lock for a sandbox. It ends with that sandbox, so the caller must not keep it.
    pub(super) fn open_lock(&self) -> Option<OwnedFd> {
        self.runs.as_ref().and_then(RunRegistry::open_notify_lock)
    }

    /// Moves planted files away. Unless `is_known`, more may have been created than was reported.
    pub(super) fn finish(self, seen: &mut SandboxMonitor, is_known: bool) -> Vec<QuarantinedFile> {
        let Self { runs, left_over, mark, mut baseline, listed, quarantine, stores } = self;
        drop(stores);
        let is_all_known = is_known && !seen.has_unknown;
        if is_all_known {
            baseline.foreign = std::mem::take(&mut seen.foreign);
        }
        // Also files that other commands created, now or before: unless the survey found them, this
        // one could write to them.
        let (mut others, moved) =
            runs.as_ref().map(|runs| runs.created_markers(&listed)).unwrap_or_default();
        others.retain(|made| !baseline.is_masked(made));
        baseline.forget_foreign(&others);
        let are_others = runs.as_ref().is_some_and(|runs| runs.has_other_runs(mark.as_ref()));
        let mut made = std::mem::take(&mut seen.made);
        let mut more = std::mem::take(&mut seen.more);
        made.extend(others);
        more.extend(moved);
        let look = match (is_all_known || !seen.is_started, more.is_empty()) {
            (false, _) => SweepScope::Everywhere,
            (true, false) => SweepScope::Known(more),
            (true, true) => SweepScope::Made,
        };
        // The work is bounded, and an impatient signal would leave the rest unchecked.
        let masked = Masked::begin();
        let mut quarantined = left_over.unwrap_or_default();
        let swept = git_sweep::sweep(made, look, &baseline, &quarantine);
        quarantined.extend(swept.moved);
        if let Some(runs) = runs {
            runs.add_to_list(swept.spotted, &listed, mark.as_ref());
            if !seen.own_files.is_empty() {
                runs.remember(&std::mem::take(&mut seen.own_files), seen.left_contents.as_ref());
            }
            if are_others {
                // A run that ended before this report may have written to it after it was swept.
                let (mut again, _) = runs.created_markers(&listed);
                again.retain(|made| !baseline.is_masked(made));
                baseline.forget_foreign(&again);
                let swept = git_sweep::sweep(again, SweepScope::Made, &baseline, &quarantine);
                if !swept.moved.is_empty() {
                    runs.add_to_list(swept.spotted, &listed, mark.as_ref());
                }
                quarantined.extend(swept.moved);
            }
        }
        if let Some(mark) = mark {
            mark.remove();
        }
        drop(masked);
        quarantined
    }
}
