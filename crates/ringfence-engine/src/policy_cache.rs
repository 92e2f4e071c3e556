//! A cache of a resolved policy, valid while its files are unchanged.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_policy::{AbsPath, Flags};

use crate::files::{self, PolicyFiles};
use crate::host::{FileStamp, system};
use crate::{EngineError, HostEnvironment, ResolvedPolicy, resolve_in};

/// The version of a file; `None` if it is missing.
pub(crate) fn file_stamp(file: &AbsPath) -> Option<FileStamp> {
    fs::metadata(file.as_path()).ok().map(|found| system::stamp(&found))
}

fn stamped(files: Vec<AbsPath>) -> Vec<(AbsPath, Option<FileStamp>)> {
    files.into_iter().map(|file| (file.clone(), file_stamp(&file))).collect()
}

/// The policy files that apply, and those that would apply if they existed.
pub(crate) fn policy_file_stamps(
    files: &PolicyFiles,
    resolved: &ResolvedPolicy,
) -> Vec<(AbsPath, Option<FileStamp>)> {
    let mut all = files::policy_file_paths(files, &resolved.surroundings.facts);
    all.extend(resolved.files.iter().chain(&resolved.absent).cloned());
    all.sort();
    all.dedup();
    stamped(all)
}

/// True if a change at `now` or later is visible in the stamp. File times advance in steps, of two
/// seconds on the coarsest file systems: within the step a change may be invisible.
fn is_reliable(stamp: Option<FileStamp>, now: SystemTime) -> bool {
    const STEP: Duration = Duration::from_secs(2);
    let Some(FileStamp { changed: (seconds, nanos), .. }) = stamp else { return true };
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u64::try_from(nanos)) else {
        return true;
    };
    let changed = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos);
    now.duration_since(changed).is_ok_and(|age| age > STEP)
}

/// A resolved policy for the same host environment, read again when one of its files changes.
#[derive(Debug)]
pub struct CachedPolicy {
    resolved: ResolvedPolicy,
    seen: Vec<(AbsPath, Option<FileStamp>)>,
}

impl CachedPolicy {
    /// Resolves the policy. The cache is `None` if a file changed just now or during the call, or
    /// if files extend other files.
    pub fn resolve(
        surroundings: HostEnvironment,
        flags: &Flags,
        files: &PolicyFiles,
    ) -> Result<(ResolvedPolicy, Option<Self>), EngineError> {
        let now = SystemTime::now();
        let seen = stamped(files::policy_file_paths(files, &surroundings.facts));
        let resolved = resolve_in(surroundings, flags, files)?;
        let is_known = |file: &AbsPath| seen.iter().any(|(known, _)| known == file);
        let are_reliable = seen.iter().all(|(_, stamp)| is_reliable(*stamp, now));
        let mut used = resolved.files.iter().chain(&resolved.absent);
        let is_cached = are_reliable && files.agent.is_none() && used.all(is_known);
        let cached = is_cached
            .then(|| Self { resolved: resolved.clone(), seen })
            .filter(|cached| cached.current().is_some());
        Ok((resolved, cached))
    }

    /// The policy, if none of its files has changed.
    pub fn current(&self) -> Option<&ResolvedPolicy> {
        self.seen.iter().all(|(file, seen)| file_stamp(file) == *seen).then_some(&self.resolved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestHome;

    fn cached(home: &TestHome) -> Option<CachedPolicy> {
        let (facts, files) = (home.facts(), PolicyFiles::default());
        let flags = Flags::none(facts.workspace.clone());
        CachedPolicy::resolve(HostEnvironment::for_other_user(facts, Vec::new()), &flags, &files)
            .unwrap()
            .1
    }

    #[test]
    fn policy_stays_cached_until_a_file_changes() {
        let home = TestHome::new();
        let cached = cached(&home).unwrap();
        assert!(cached.current().is_some());
        home.write("version = 1\n");
        assert!(cached.current().is_none());
    }

    /// It may change again without a visible change of its size or times.
    #[test]
    fn file_changed_just_now_is_not_cached() {
        let home = TestHome::new();
        home.write("version = 1\n");
        assert!(cached(&home).is_none());
        let stamp = file_stamp(&AbsPath::new(home.policy()).unwrap());
        let now = SystemTime::now();
        assert!(!is_reliable(stamp, now));
        assert!(!is_reliable(stamp, now - Duration::from_secs(60)));
        assert!(is_reliable(stamp, now + Duration::from_secs(3)));
    }
}
