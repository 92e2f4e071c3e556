//! Whether a policy still says what it said.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_policy::{AbsPath, Flags};

use crate::files::{self, PolicyFiles};
use crate::{EngineError, HostEnvironment, ResolvedPolicy, resolve_in};

/// By what a file is known to be the same: device, inode, size and times; `None` if it is not
/// there.
pub(crate) type FileStamp = Option<[i64; 7]>;

pub(crate) fn stamp(file: &AbsPath) -> FileStamp {
    let found = fs::metadata(file.as_path()).ok()?;
    let identity = [found.dev() as i64, found.ino() as i64, found.len() as i64];
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let mut stamp = [0; 7];
    stamp[..3].copy_from_slice(&identity);
    stamp[3..].copy_from_slice(&times);
    Some(stamp)
}

fn stamped(files: Vec<AbsPath>) -> Vec<(AbsPath, FileStamp)> {
    files.into_iter().map(|file| (file.clone(), stamp(&file))).collect()
}

/// The files that count, and those that would if they were there.
pub(crate) fn stamps(files: &PolicyFiles, resolved: &ResolvedPolicy) -> Vec<(AbsPath, FileStamp)> {
    let mut all = files::places(files, &resolved.surroundings.facts);
    all.extend(resolved.files.iter().cloned());
    all.sort();
    all.dedup();
    stamped(all)
}

/// Whether a change at `now` or later shows in the stamp. Times of files advance in steps, of two
/// seconds where they are coarsest: a file of this very moment can become another within the step.
fn is_telling(stamp: FileStamp, now: SystemTime) -> bool {
    const STEP: Duration = Duration::from_secs(2);
    let Some([_, _, _, _, _, seconds, nanos]) = stamp else { return true };
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u64::try_from(nanos)) else {
        return true;
    };
    let changed = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos);
    now.duration_since(changed).is_ok_and(|age| age > STEP)
}

/// A policy for the same surroundings again and again, which is read anew when one of its files has
/// become another.
#[derive(Debug)]
pub struct CachedPolicy {
    resolved: ResolvedPolicy,
    seen: Vec<(AbsPath, FileStamp)>,
}

impl CachedPolicy {
    /// Resolves it. There is nothing to keep of one whose files changed a moment ago or
    /// meanwhile, or name others.
    pub fn resolve(
        surroundings: HostEnvironment,
        flags: &Flags,
        files: &PolicyFiles,
    ) -> Result<(ResolvedPolicy, Option<Self>), EngineError> {
        let now = SystemTime::now();
        let seen = stamped(files::places(files, &surroundings.facts));
        let resolved = resolve_in(surroundings, flags, files)?;
        let is_known = |file: &AbsPath| seen.iter().any(|(known, _)| known == file);
        let are_telling = seen.iter().all(|(_, stamp)| is_telling(*stamp, now));
        let is_kept = are_telling && files.agent.is_none() && resolved.files.iter().all(is_known);
        let kept = is_kept
            .then(|| Self { resolved: resolved.clone(), seen })
            .filter(|kept| kept.current().is_some());
        Ok((resolved, kept))
    }

    /// What it says, if none of its files is another by now.
    pub fn current(&self) -> Option<&ResolvedPolicy> {
        self.seen.iter().all(|(file, seen)| stamp(file) == *seen).then_some(&self.resolved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestHome;

    fn kept(home: &TestHome) -> Option<CachedPolicy> {
        let (facts, files) = (home.facts(), PolicyFiles::default());
        let flags = Flags::none(facts.workspace.clone());
        CachedPolicy::resolve(HostEnvironment::of_somebody(facts, Vec::new()), &flags, &files)
            .unwrap()
            .1
    }

    #[test]
    fn a_policy_holds_until_one_of_its_files_is_another() {
        let home = TestHome::new();
        let kept = kept(&home).unwrap();
        assert!(kept.current().is_some());
        home.write("version = 1\n");
        assert!(kept.current().is_none());
    }

    /// It may be changed once more without a trace in its size or times.
    #[test]
    fn a_file_of_this_very_moment_is_read_again() {
        let home = TestHome::new();
        home.write("version = 1\n");
        assert!(kept(&home).is_none());
        let stamp = stamp(&AbsPath::new(home.policy()).unwrap());
        let now = SystemTime::now();
        assert!(!is_telling(stamp, now));
        assert!(!is_telling(stamp, now - Duration::from_secs(60)));
        assert!(is_telling(stamp, now + Duration::from_secs(3)));
    }
}
