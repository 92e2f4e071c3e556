//! What was there before a command, as far as the sweep must know it: to leave it alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_enforce::apply::{Birth, GitMarker, GitMarkerCreated};
use ringfence_enforce::{PinReason, PinnedDir, Plan, Step};
use ringfence_policy::{AbsPath, builtin};
use rustix::fs::CWD;

use super::{FsTimestamp, InodeId, WritableRoots, state};

/// Where a command works, and what it found there.
#[derive(Debug)]
pub(crate) struct SweepBaseline {
    pub(crate) roots: WritableRoots,
    /// Git directories that it could not change. By birth: another directory can get the inode of
    /// one that is gone.
    pub(super) before: HashSet<Birth>,
    /// Names of git's that the watcher took for the user's while it ran.
    pub(crate) foreign: HashSet<Birth>,
    /// Files of git's, and settings of other programs, that it could not change.
    pub(super) covered: HashSet<AbsPath>,
    /// Working trees of git's.
    pub(super) trees: Vec<AbsPath>,
    /// Git directories, where they stood.
    pub(super) gits: Vec<AbsPath>,
    /// Programs and options of unfinished operations in them.
    pub(super) programs: HashSet<Vec<u8>>,
    /// Directories that earlier commands made a `HEAD` in, and when the first of them began.
    pub(super) heads: HashMap<InodeId, FsTimestamp>,
    /// Trees that were looked through for repositories.
    pub(super) walked: Vec<AbsPath>,
    /// Names of directories in them that were not.
    pub(super) skipped: BTreeSet<OsString>,
    /// What has not changed since then was there before.
    pub(super) begun: FsTimestamp,
    /// What earlier commands made and the user has not changed since. A run that was killed leaves
    /// none.
    pub(super) made: HashSet<Birth>,
}

impl SweepBaseline {
    /// `begun` is a moment before the host was looked at for `plan`; earlier commands made the
    /// `heads`, and directories of the `skipped` names were not looked into.
    pub(crate) fn of(
        plan: &Plan,
        begun: FsTimestamp,
        heads: HashMap<InodeId, FsTimestamp>,
        skipped: BTreeSet<OsString>,
    ) -> Self {
        let guards = || plan.guards().iter().filter(|guard| guard.kind == PinReason::Git);
        let cover = |step: &Step| match step {
            Step::Cover { path, .. } if is_looked_for(path) => Some(path.clone()),
            _ => None,
        };
        // A link has no cover, and stays all the same.
        let links = plan
            .guards()
            .iter()
            .filter(|guard| guard.kind == PinReason::Link && is_looked_for(&guard.path));
        let links = links.map(|guard| guard.path.clone());
        let covered: HashSet<AbsPath> = plan.steps.iter().filter_map(cover).chain(links).collect();
        let walked = plan.steps.iter().filter_map(|step| {
            if let Step::Lookout { trees } = step { Some(trees.clone()) } else { None }
        });
        let dot_gits = guards()
            .map(|guard| &guard.path)
            .chain(&covered)
            .filter(|path| path.name().is_some_and(|name| name == ".git"));
        let roots = WritableRoots::of(plan);
        let gits: Vec<AbsPath> = guards().map(|guard| guard.path.clone()).collect();
        Self {
            programs: gits
                .iter()
                .filter_map(|path| roots.open(path))
                .flat_map(|git| state::programs(&git))
                .collect(),
            heads,
            walked: walked.flatten().collect(),
            skipped,
            gits,
            roots,
            before: guards().filter_map(birth).collect(),
            foreign: HashSet::new(),
            trees: dot_gits.filter_map(AbsPath::parent).collect(),
            covered,
            begun,
            made: HashSet::new(),
        }
    }

    /// Answers whether a name of git's was made outside while the command ran. An older one may
    /// have been moved by the command from where the survey does not look.
    pub(super) fn is_foreign(&self, birth: Birth) -> bool {
        self.foreign.contains(&birth) && birth.born().is_some() && !self.begun.follows(birth)
    }

    /// Takes repositories that other commands made out of those that were made outside.
    pub(crate) fn forget_foreign(&mut self, others: &[GitMarkerCreated]) {
        for made in others.iter().filter(|made| made.what == GitMarker::DotGit) {
            let birth = made.directory.as_ref().and_then(|directory| Birth::of(directory, ".git"));
            birth.map(|birth| self.foreign.remove(&birth));
        }
    }

    /// Adds what earlier commands made and the user has not changed since.
    pub(crate) fn beside(mut self, made: &HashSet<Birth>) -> Self {
        self.made = made.clone();
        self
    }

    /// Answers whether a command made this, an earlier one or one that ran since.
    pub(super) fn is_of_command(&self, birth: Birth) -> bool {
        self.made.contains(&birth) || !self.begun.follows(birth)
    }

    /// Answers whether a repository in this directory would have been found before the command.
    pub(super) fn was_surveyed(&self, directory: &AbsPath) -> bool {
        let mut ways = self.walked.iter().filter_map(|tree| directory.relative_to(tree));
        ways.any(|below| below.iter().all(|name| !self.skipped.contains(name)))
    }

    /// Answers whether a directory lies in a vendored tree, where agents are not started. A project
    /// that lies in `~/vendor` itself does not.
    pub(super) fn is_vendored(&self, directory: &AbsPath) -> bool {
        let ways: Vec<_> =
            self.walked.iter().filter_map(|tree| directory.relative_to(tree)).collect();
        let is_vendored = |below: &&Path| {
            below.iter().any(|name| builtin::vendored_names().any(|vendored| name == vendored))
        };
        !ways.is_empty() && ways.iter().all(is_vendored)
    }

    /// Answers whether a directory is below a name that the survey does not look into.
    pub(super) fn was_skipped(&self, directory: &AbsPath) -> bool {
        let is_walked = self.walked.iter().any(|tree| directory.is_within(tree));
        is_walked && !self.was_surveyed(directory)
    }

    /// Answers whether this is a `.git` that the command could not change.
    pub(crate) fn is_covered(&self, made: &GitMarkerCreated) -> bool {
        made.what == GitMarker::DotGit && self.covered.contains(&made.path.join(".git"))
    }

    /// As bytes that [`Ground::read`] understands: fields that end in NUL, which no path has.
    pub(crate) fn written(&self) -> Vec<u8> {
        let mut text = format!("begun {}\0", self.begun).into_bytes();
        let mut line = |word: &str, (device, inode): InodeId, path: &[u8]| {
            text.extend_from_slice(format!("{word} {device} {inode} ").as_bytes());
            text.extend_from_slice(path);
            text.push(0);
        };
        for (path, identity) in self.roots.entries() {
            line("root", *identity, path.as_bytes());
        }
        for birth in &self.before {
            line("git", (0, 0), birth.to_string().as_bytes());
        }
        for (identity, since) in &self.heads {
            line("head", *identity, since.to_string().as_bytes());
        }
        for path in &self.covered {
            line("cover", (0, 0), path.as_bytes());
        }
        for path in &self.trees {
            line("tree", (0, 0), path.as_bytes());
        }
        for path in &self.gits {
            line("at", (0, 0), path.as_bytes());
        }
        for path in &self.walked {
            line("walked", (0, 0), path.as_bytes());
        }
        for name in &self.skipped {
            line("skipped", (0, 0), name.as_bytes());
        }
        for program in &self.programs {
            line("program", (0, 0), program);
        }
        text
    }

    /// `None` if nothing is known: not even when it began.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (mut roots, mut before, mut heads, mut begun) =
            (Vec::new(), HashSet::new(), HashMap::new(), None);
        let (mut covered, mut trees, mut gits, mut programs) =
            (HashSet::new(), Vec::new(), Vec::new(), HashSet::new());
        let (mut walked, mut skipped) = (Vec::new(), BTreeSet::new());
        for line in text.split(|byte| *byte == 0) {
            let mut words = line.splitn(4, |byte| *byte == b' ');
            let mut word = || words.next().unwrap_or_default();
            let (what, first, second, rest) = (word(), number(word()), number(word()), word());
            let path = || AbsPath::new(OsStr::from_bytes(rest));
            match (what, first, second) {
                (b"begun", Some(seconds), Some(nanoseconds)) => {
                    begun = Some(FsTimestamp::new(seconds, nanoseconds))
                }
                (b"root", Some(device), Some(inode)) => {
                    roots.extend(path().map(|path| (path, (device, inode))))
                }
                (b"git", ..) => {
                    before.extend(text_of(rest).and_then(|text| text.parse::<Birth>().ok()))
                }
                (b"head", Some(device), Some(inode)) => heads.extend(
                    text_of(rest)
                        .and_then(FsTimestamp::parse)
                        .map(|since| ((device, inode), since)),
                ),
                (b"cover", ..) => covered.extend(path()),
                (b"tree", ..) => trees.extend(path()),
                (b"at", ..) => gits.extend(path()),
                (b"walked", ..) => walked.extend(path()),
                (b"skipped", ..) => drop(skipped.insert(OsStr::from_bytes(rest).to_owned())),
                (b"program", ..) => drop(programs.insert(rest.to_vec())),
                _ => {}
            }
        }
        let (roots, foreign, begun, made) =
            (WritableRoots::from_entries(roots), HashSet::new(), begun?, HashSet::new());
        Some(Self {
            roots,
            before,
            foreign,
            covered,
            trees,
            gits,
            programs,
            heads,
            walked,
            skipped,
            begun,
            made,
        })
    }
}

fn is_looked_for(path: &AbsPath) -> bool {
    let names = path.as_path().iter().map(OsStr::as_bytes);
    path.name().is_some_and(|name| name == ".git" || name == "HEAD")
        || builtin::setting_at(names.clone()).or_else(|| builtin::pointer_at(names)).is_some()
}

/// The birth of a guarded directory, if it is still the one that was guarded.
fn birth(guard: &PinnedDir) -> Option<Birth> {
    let status = rustix::fs::lstat(guard.path.as_path()).ok()?;
    let is_it = (status.st_dev, status.st_ino) == (guard.device, guard.inode);
    Birth::of(CWD, guard.path.as_path()).filter(|_| is_it)
}

fn text_of(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap, HashSet};

    use ringfence_policy::AbsPath;

    use super::{FsTimestamp, SweepBaseline, WritableRoots};

    #[test]
    fn what_is_written_is_read() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let ground = SweepBaseline {
            roots: WritableRoots::from_entries(vec![(path("/a b\n"), (1, 2))]),
            before: HashSet::from(["1:2:3:4:5".parse().unwrap(), "1:2:3:4:6".parse().unwrap()]),
            foreign: HashSet::new(),
            covered: HashSet::from([path("/a b\n/x/.git")]),
            trees: vec![path("/a b\n/x")],
            gits: vec![path("/a b\n/x/.git")],
            programs: HashSet::from([b"exec a  b\n".to_vec()]),
            heads: HashMap::from([((9, 10), FsTimestamp::new(11, 12))]),
            walked: vec![path("/a b\n")],
            skipped: BTreeSet::from(["node modules".into()]),
            begun: FsTimestamp::new(7, 8),
            made: HashSet::new(),
        };
        let read = SweepBaseline::read(&ground.written()).unwrap();
        assert!(read.was_surveyed(&path("/a b\n/x")) && read.was_surveyed(&path("/a b\n")));
        assert!(
            !read.was_surveyed(&path("/a b\n/node modules/x"))
                && !read.was_surveyed(&path("/other"))
        );
        assert!(
            read.was_skipped(&path("/a b\n/node modules/x"))
                && !read.was_skipped(&path("/other/node modules"))
        );
        assert!(
            read.is_vendored(&path("/a b\n/node_modules/x"))
                && !read.is_vendored(&path("/a b\n/x"))
        );
        assert!(!read.is_vendored(&path("/node_modules/x")));
        assert_eq!(format!("{:?}", read.roots), format!("{:?}", ground.roots));
        assert_eq!(
            (read.before, read.covered, read.trees, read.begun),
            (ground.before, ground.covered, ground.trees, ground.begun)
        );
        assert_eq!(
            (read.gits, read.programs, read.heads),
            (ground.gits, ground.programs, ground.heads)
        );
        assert_eq!((&read.walked, &read.skipped), (&ground.walked, &ground.skipped));
        assert!(SweepBaseline::read(b"").is_none());
    }
}
