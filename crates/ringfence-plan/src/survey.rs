//! Findings on the host, as data. `ringfence-linux` makes them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use ringfence_policy::{AbsPath, Rule, TrackedFiles};

use crate::plan::{FileKind, Overmount, PinnedDir};

/// Findings on the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Resolved root of each rule; missing roots are not listed.
    pub found: BTreeMap<AbsPath, ResolvedRoot>,
    /// Paths to mask in the granted trees.
    pub masks: BTreeMap<AbsPath, Overmount>,
    /// Files with several hard links, one of which is denied or protected: by inode and device.
    pub linked: HardLinks,
    /// Directories that cannot be renamed and in which git protections apply by identity.
    pub guards: Vec<PinnedDir>,
    /// Rules derived from findings: targets of protected and denied links, and programs that git
    /// runs. They apply in addition to the grants.
    pub rules: Vec<Rule>,
    /// Walked trees: patterns apply in them.
    pub walked: Vec<AbsPath>,
    /// Number of walked directories.
    pub directories: usize,
    /// Set if the project has a build system.
    pub builds: BuildSystem,
    /// Case sensitivity of the walked trees.
    pub folding: CaseFolding,
    /// Files that a built-in pattern would deny and that are granted because git tracks them.
    pub tracked: TrackedFiles,
}

impl Survey {
    /// True if a path is in a walked tree.
    pub fn is_walked(&self, path: &AbsPath) -> bool {
        self.walked.iter().any(|root| path.is_within(root))
    }

    /// Limits the number of masks: the kernel allows 100,000 mounts. Above half of that, a
    /// directory in which everything is denied is denied as a whole.
    pub fn fold_masks(&mut self, full: &[AbsPath], roots: &[AbsPath]) {
        const MANY: usize = 50_000;
        const MANY_IN_ONE: usize = 10_000;
        if self.masks.len() <= MANY {
            return;
        }
        // Stale sockets come by the thousand; a directory full of them can be denied as a whole.
        let mut counts: HashMap<AbsPath, usize> = HashMap::new();
        for path in self.masks.keys() {
            *counts.entry(path.parent().unwrap_or_else(AbsPath::root)).or_default() += 1;
        }
        let crowded: Vec<AbsPath> = counts
            .into_iter()
            .filter(|(_, count)| *count > MANY_IN_ONE)
            .map(|(directory, _)| directory)
            .collect();
        let full: HashSet<&AbsPath> =
            full.iter().chain(&crowded).filter(|directory| !roots.contains(directory)).collect();
        self.masks.retain(|path, _| path.parent().is_none_or(|above| !full.contains(&above)));
        self.masks.extend(
            full.into_iter()
                .map(|directory| (directory.clone(), Overmount::Deny(FileKind::Directory))),
        );
    }
}

/// Build system of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BuildSystem {
    /// None found.
    #[default]
    Nothing,
    /// It has a file that a build tool reads.
    Something,
}

/// Case handling of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseFolding {
    /// Case-sensitive.
    #[default]
    None,
    /// Case-insensitive, and the kernel knows: a mask covers every spelling.
    Known,
    /// Case-insensitive behind the kernel (Windows, host of a virtual machine), while the kernel
    /// sees two names: a mask covers one spelling.
    Hidden,
}

/// A resolved path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRoot {
    /// Symbolic links on the way, outermost first.
    pub links: Vec<(AbsPath, PathBuf)>,
    /// The path without symbolic links.
    pub real: AbsPath,
    /// Kind of the path.
    pub kind: FileKind,
}

/// Files with several hard links, by inode and device: a mask of one name must cover all.
pub type HardLinks = BTreeMap<(u64, u64), Overmount>;
