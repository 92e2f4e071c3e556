//! State before a command, as far as the sweep must know it to leave the user's files alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::apply::{CreatedName, FileIdentity, NameKind};
use crate::inode::{InodeId, inode_id};
use ringfence_plan::{PinReason, PinnedDir, Plan, Step};
use ringfence_policy::{AbsPath, builtin};
use rustix::fs::CWD;

use super::{FsTimestamp, WritableRoots, state};

/// Writable trees of a command, and the state it found there.
#[derive(Debug)]
pub(crate) struct SweepBaseline {
    pub(crate) roots: WritableRoots,
    /// Git directories that it could not change. By birth time: another directory can get the inode
    /// of a removed one.
    pub(super) before: HashSet<FileIdentity>,
    /// Git markers that the watcher attributed to the user while the command ran.
    pub(crate) foreign: HashSet<FileIdentity>,
    /// Files of git, and settings of other programs, that it could not change.
    pub(super) masked: HashSet<AbsPath>,
    /// Working trees.
    pub(super) trees: Vec<AbsPath>,
    /// Git directories, by their paths.
    pub(super) gits: Vec<AbsPath>,
    /// Programs and options of unfinished operations in them.
    pub(super) programs: HashSet<Vec<u8>>,
    /// Directories in which earlier commands created a `HEAD`, and the start of the first of them.
    pub(super) heads: HashMap<InodeId, FsTimestamp>,
    /// Trees that the survey searched for repositories.
    pub(super) walked: Vec<AbsPath>,
    /// Names of directories in them that it skipped.
    pub(super) skipped: BTreeSet<OsString>,
    /// Files unchanged since then existed before.
    pub(super) begun: FsTimestamp,
    /// Files that earlier commands created and the user has not changed since. Empty after a killed
    /// run.
    pub(super) made: HashSet<FileIdentity>,
}

impl SweepBaseline {
    /// `begun`: a time before the survey for `plan`. `heads`: created by earlier commands.
    /// `skipped`: names of directories that the survey does not enter.
    pub(crate) fn new(
        plan: &Plan,
        begun: FsTimestamp,
        heads: HashMap<InodeId, FsTimestamp>,
        skipped: BTreeSet<OsString>,
    ) -> Self {
        let guards = || plan.pinned_dirs().iter().filter(|guard| guard.kind == PinReason::Git);
        let masked_path = |step: &Step| match step {
            Step::Mask { path, .. } if is_swept_name(path) => Some(path.clone()),
            _ => None,
        };
        // A link has no mask, and stays anyway.
        let links = plan
            .pinned_dirs()
            .iter()
            .filter(|guard| guard.kind == PinReason::Link && is_swept_name(&guard.path));
        let links = links.map(|guard| guard.path.clone());
        let masked: HashSet<AbsPath> =
            plan.steps.iter().filter_map(masked_path).chain(links).collect();
        let walked = plan.steps.iter().filter_map(|step| {
            if let Step::Watcher { trees } = step { Some(trees.clone()) } else { None }
        });
        let dot_gits = guards()
            .map(|guard| &guard.path)
            .chain(&masked)
            .filter(|path| path.name().is_some_and(|name| name == ".git"));
        let roots = WritableRoots::from_plan(plan);
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
            masked,
            begun,
            made: HashSet::new(),
        }
    }

    /// True if a git marker was created outside while the command ran. An older one may have been
    /// moved by the command out of a skipped tree.
    pub(super) fn is_foreign(&self, birth: FileIdentity) -> bool {
        self.foreign.contains(&birth) && birth.birth_time().is_some() && !self.begun.follows(birth)
    }

    /// Removes repositories that other commands created from those created outside.
    pub(crate) fn forget_foreign(&mut self, others: &[CreatedName]) {
        for made in others.iter().filter(|made| made.what == NameKind::DotGit) {
            let birth = made
                .directory
                .as_ref()
                .and_then(|directory| FileIdentity::from_entry(directory, ".git"));
            birth.map(|birth| self.foreign.remove(&birth));
        }
    }

    /// Adds the files that earlier commands created and the user has not changed since.
    pub(crate) fn with_created(mut self, made: &HashSet<FileIdentity>) -> Self {
        self.made = made.clone();
        self
    }

    /// True if a command created this, an earlier one or one that ran since.
    pub(super) fn is_of_command(&self, birth: FileIdentity) -> bool {
        self.made.contains(&birth) || !self.begun.follows(birth)
    }

    /// True if the survey would have found a repository in this directory before the command.
    pub(super) fn was_surveyed(&self, directory: &AbsPath) -> bool {
        let mut relative_paths = self.walked.iter().filter_map(|tree| directory.relative_to(tree));
        relative_paths.any(|below| below.iter().all(|name| !self.skipped.contains(name)))
    }

    /// True if a directory is in a vendored tree, where agents are not started. A project in
    /// `~/vendor` itself is not.
    pub(super) fn is_vendored(&self, directory: &AbsPath) -> bool {
        let relative_paths: Vec<_> =
            self.walked.iter().filter_map(|tree| directory.relative_to(tree)).collect();
        let is_vendored = |below: &&Path| {
            below.iter().any(|name| builtin::vendored_names().any(|vendored| name == vendored))
        };
        !relative_paths.is_empty() && relative_paths.iter().all(is_vendored)
    }

    /// True if a directory is below a name that the survey skips.
    pub(super) fn was_skipped(&self, directory: &AbsPath) -> bool {
        let is_walked = self.walked.iter().any(|tree| directory.is_within(tree));
        is_walked && !self.was_surveyed(directory)
    }

    /// True if this is a `.git` that the command could not change.
    pub(crate) fn is_masked(&self, made: &CreatedName) -> bool {
        made.what == NameKind::DotGit && self.masked.contains(&made.path.join(".git"))
    }

    /// Serializes for [`SweepBaseline::from_bytes`]: fields that end in NUL, which no path
    /// contains.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
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
        for path in &self.masked {
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

    /// Parses; `None` without the start time.
    pub(crate) fn from_bytes(text: &[u8]) -> Option<Self> {
        let (mut roots, mut before, mut heads, mut begun) =
            (Vec::new(), HashSet::new(), HashMap::new(), None);
        let (mut masked, mut trees, mut gits, mut programs) =
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
                    before.extend(text_of(rest).and_then(|text| text.parse::<FileIdentity>().ok()))
                }
                (b"head", Some(device), Some(inode)) => heads.extend(
                    text_of(rest)
                        .and_then(FsTimestamp::parse)
                        .map(|since| ((device, inode), since)),
                ),
                (b"cover", ..) => masked.extend(path()),
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
            masked,
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

fn is_swept_name(path: &AbsPath) -> bool {
    let names = path.as_path().iter().map(OsStr::as_bytes);
    path.name().is_some_and(|name| name == ".git" || name == "HEAD")
        || builtin::setting_at(names.clone()).or_else(|| builtin::pointer_at(names)).is_some()
}

/// The birth of a guarded directory, if it is still the one that was guarded.
fn birth(guard: &PinnedDir) -> Option<FileIdentity> {
    let status = rustix::fs::lstat(guard.path.as_path()).ok()?;
    let is_it = inode_id(&status) == (guard.device, guard.inode);
    FileIdentity::from_entry(CWD, guard.path.as_path()).filter(|_| is_it)
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
    fn serialized_baseline_is_read_back() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let written = SweepBaseline {
            roots: WritableRoots::from_entries(vec![(path("/a b\n"), (1, 2))]),
            before: HashSet::from(["1:2:3:4:5".parse().unwrap(), "1:2:3:4:6".parse().unwrap()]),
            foreign: HashSet::new(),
            masked: HashSet::from([path("/a b\n/x/.git")]),
            trees: vec![path("/a b\n/x")],
            gits: vec![path("/a b\n/x/.git")],
            programs: HashSet::from([b"exec a  b\n".to_vec()]),
            heads: HashMap::from([((9, 10), FsTimestamp::new(11, 12))]),
            walked: vec![path("/a b\n")],
            skipped: BTreeSet::from(["node modules".into()]),
            begun: FsTimestamp::new(7, 8),
            made: HashSet::new(),
        };
        let read = SweepBaseline::from_bytes(&written.to_bytes()).unwrap();
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
        assert_eq!(format!("{:?}", read.roots), format!("{:?}", written.roots));
        assert_eq!(
            (read.before, read.masked, read.trees, read.begun),
            (written.before, written.masked, written.trees, written.begun)
        );
        assert_eq!(
            (read.gits, read.programs, read.heads),
            (written.gits, written.programs, written.heads)
        );
        assert_eq!((&read.walked, &read.skipped), (&written.walked, &written.skipped));
        assert!(SweepBaseline::from_bytes(b"").is_none());
    }
}
