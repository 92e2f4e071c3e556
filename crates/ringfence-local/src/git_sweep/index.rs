//! Check of git indexes: git on the host would follow the paths in them anywhere. See
//! [`ringfence_plan::index_fault`].

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use ringfence_plan::{IndexFault, ObjectNames, index_fault, is_index};
use ringfence_policy::AbsPath;
use rustix::fs::FileType;

use super::held_dir::{self, HeldDir};
use super::{GitSweep, SweepBaseline, repository_around};

/// The largest known indexes have some hundred megabytes.
const MAX_SIZE: u64 = 512 << 20;

/// An index that git must not read.
pub(super) struct BadIndex {
    pub(super) name: OsString,
    reason: String,
}

/// Checks the indexes of a git directory that changed since the command began.
pub(super) fn bad_indexes(baseline: &SweepBaseline, git: &HeldDir) -> Vec<BadIndex> {
    let names = object_names(git);
    let entries = held_dir::entries(git)
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, _)| is_index(name.as_bytes()));
    let bad = |(name, kind): (OsString, FileType)| {
        reason(baseline, git, &name, kind, names).map(|reason| BadIndex { name, reason })
    };
    entries.filter_map(bad).collect()
}

fn reason(
    baseline: &SweepBaseline,
    git: &HeldDir,
    name: &OsString,
    kind: FileType,
    names: ObjectNames,
) -> Option<String> {
    if kind != FileType::RegularFile {
        return Some("is not a plain file".to_owned());
    }
    let Ok(file) = held_dir::open_file(git, name) else { return Some("cannot be read".to_owned()) };
    if !baseline.begun.may_precede_change_of(&file) {
        return None;
    }
    let Ok(index) = held_dir::read_all(file, MAX_SIZE) else {
        return Some("is too large to check".to_owned());
    };
    let remedy = "run `git reset` to write a new one";
    index_fault(&index, names).map(|fault| match fault {
        IndexFault::Path(path) => format!("makes git follow the path {path:?}, which leads out of the working tree or into .git; {remedy}"),
        IndexFault::Malformed => format!("is malformed, and git may follow paths in it; {remedy}"),
    })
}

/// Object name length, by the config of the repository, or the one around a worktree.
fn object_names(git: &HeldDir) -> ObjectNames {
    let around = || repository_around(git).and_then(|git| held_dir::read(git, "config").ok());
    let config =
        held_dir::read(git, "config").ok().or_else(around).unwrap_or_default().to_ascii_lowercase();
    let mentions_sha256 = config.windows(6).any(|word| word == b"sha256");
    if mentions_sha256 { ObjectNames::Either } else { ObjectNames::Sha1 }
}

impl GitSweep<'_> {
    /// Moves indexes away that git must not read.
    pub(super) fn sweep_indexes(&mut self, git: &HeldDir, path: &AbsPath) {
        for BadIndex { name, reason } in bad_indexes(self.baseline, git) {
            self.quarantine_entry(git, &name, &path.join(&name), &reason);
        }
    }
}
