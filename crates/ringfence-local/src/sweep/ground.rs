//! What was there before a command, as far as the sweep must know it: to leave it alone.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ringfence_enforce::{GuardKind, Plan, Step};
use ringfence_policy::AbsPath;

use super::{Identity, Moment, Roots, todo};

/// Where a command works, and what it found there.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) roots: Roots,
    /// Git directories that it could not change.
    pub(super) before: HashSet<Identity>,
    /// Files of git's that it could not change.
    pub(super) covered: HashSet<AbsPath>,
    /// Working trees of git's.
    pub(super) trees: Vec<AbsPath>,
    /// Git directories, where they stood.
    pub(super) gits: Vec<AbsPath>,
    /// Lines of unfinished rebases in them that run programs.
    pub(super) programs: HashSet<Vec<u8>>,
    /// What has not changed since then was there before.
    pub(super) begun: Moment,
}

impl Ground {
    /// `begun` is a moment before the host was looked at for `plan`.
    pub(crate) fn of(plan: &Plan, begun: Moment) -> Self {
        let guards = || plan.guards().iter().filter(|guard| guard.kind == GuardKind::Git);
        let cover = |step: &Step| match step {
            Step::Cover { path, .. } if is_looked_for(path) => Some(path.clone()),
            _ => None,
        };
        let covered: HashSet<AbsPath> = plan.steps.iter().filter_map(cover).collect();
        let dot_gits = guards().map(|guard| &guard.path).chain(&covered).filter(|path| path.name().is_some_and(|name| name == ".git"));
        let roots = Roots::of(plan);
        let gits: Vec<AbsPath> = guards().map(|guard| guard.path.clone()).collect();
        Self {
            programs: gits.iter().filter_map(|path| roots.open(path)).flat_map(|git| todo::programs(&git)).collect(),
            gits,
            roots,
            before: guards().map(|guard| (guard.device, guard.inode)).collect(),
            trees: dot_gits.filter_map(AbsPath::parent).collect(),
            covered,
            begun,
        }
    }

    /// As bytes that [`Ground::read`] understands: fields that end in NUL, which no path has.
    pub(crate) fn written(&self) -> Vec<u8> {
        let mut text = format!("begun {}\0", self.begun).into_bytes();
        let mut line = |word: &str, (device, inode): Identity, path: &[u8]| {
            text.extend_from_slice(format!("{word} {device} {inode} ").as_bytes());
            text.extend_from_slice(path);
            text.push(0);
        };
        for (path, identity) in self.roots.entries() {
            line("root", *identity, path.as_bytes());
        }
        for identity in &self.before {
            line("git", *identity, b"");
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
        for program in &self.programs {
            line("program", (0, 0), program);
        }
        text
    }

    /// `None` if nothing is known: not even when it began.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (mut roots, mut before, mut begun) = (Vec::new(), HashSet::new(), None);
        let (mut covered, mut trees, mut gits, mut programs) = (HashSet::new(), Vec::new(), Vec::new(), HashSet::new());
        for line in text.split(|byte| *byte == 0) {
            let mut words = line.splitn(4, |byte| *byte == b' ');
            let mut word = || words.next().unwrap_or_default();
            let (what, first, second, rest) = (word(), number(word()), number(word()), word());
            let path = || AbsPath::new(OsStr::from_bytes(rest));
            match (what, first, second) {
                (b"begun", Some(seconds), Some(nanoseconds)) => begun = Some(Moment::new(seconds, nanoseconds)),
                (b"root", Some(device), Some(inode)) => roots.extend(path().map(|path| (path, (device, inode)))),
                (b"git", Some(device), Some(inode)) => drop(before.insert((device, inode))),
                (b"cover", ..) => covered.extend(path()),
                (b"tree", ..) => trees.extend(path()),
                (b"at", ..) => gits.extend(path()),
                (b"program", ..) => drop(programs.insert(rest.to_vec())),
                _ => {}
            }
        }
        Some(Self { roots: Roots::from_entries(roots), before, covered, trees, gits, programs, begun: begun? })
    }
}

fn is_looked_for(path: &AbsPath) -> bool {
    path.name().is_some_and(|name| name == ".git" || name == "HEAD")
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ringfence_policy::AbsPath;

    use super::{Ground, Moment, Roots};

    #[test]
    fn what_is_written_is_read() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let ground = Ground {
            roots: Roots::from_entries(vec![(path("/a b\n"), (1, 2))]),
            before: HashSet::from([(3, 4), (5, 6)]),
            covered: HashSet::from([path("/a b\n/x/.git")]),
            trees: vec![path("/a b\n/x")],
            gits: vec![path("/a b\n/x/.git")],
            programs: HashSet::from([b"exec a  b\n".to_vec()]),
            begun: Moment::new(7, 8),
        };
        let read = Ground::read(&ground.written()).unwrap();
        assert_eq!(format!("{:?}", read.roots), format!("{:?}", ground.roots));
        assert_eq!((read.before, read.covered, read.trees, read.begun), (ground.before, ground.covered, ground.trees, ground.begun));
        assert_eq!((read.gits, read.programs), (ground.gits, ground.programs));
        assert!(Ground::read(b"").is_none());
    }
}
