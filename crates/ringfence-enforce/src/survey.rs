//! What of the policy is there: which rules have something to stand on, and which files
//! in the opened trees a pattern catches.
//!
//! Reads the host and changes nothing. What appears after the survey is the guards' and
//! the covers' business.

mod build;
mod case_folding;
mod git;
mod git_config;
mod gitlinks;
mod index_paths;
mod links;
mod mounts;
mod remembered;
mod sockets;
mod tools;
mod tracked_files;
pub(crate) mod walk;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use ringfence_policy::{AbsPath, Effect, Grants, Rule, TrackedFiles};

use crate::plan::{FileKind, Overmount, PinnedDir};
use build::SurveyBuilder;
pub use case_folding::CaseFolding;
pub(crate) use git::OBEYED as OBEYED_BY_GIT;
pub use gitlinks::{Tracked, gitlinks, is_index, tracked};
pub use index_paths::{IndexFault, ObjectNames, index_fault};
use links::SymlinkCache;
pub use remembered::{digest_own, remember};
pub(crate) use tracked_files::TrackedLookup;
pub use tracked_files::{RememberedFiles, open_tracked};
pub use walk::vendored;

/// What was found on the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Where each rule's root leads; roots that are missing are not listed.
    pub found: BTreeMap<AbsPath, ResolvedRoot>,
    /// What must be covered in the opened trees.
    pub covers: BTreeMap<AbsPath, Overmount>,
    /// Files with several names, one of which is denied or protected: by inode and device.
    pub linked: HardLinks,
    /// Directories that keep their names and in which protects hold by identity.
    pub guards: Vec<PinnedDir>,
    /// Rules that follow from what was found: where protected and denied names lead, and
    /// what git is told to run. They hold beside those of the grants.
    pub rules: Vec<Rule>,
    /// The trees that were looked through: patterns hold in them.
    pub walked: Vec<AbsPath>,
    /// How many directories were looked through.
    pub directories: usize,
    /// Whether the project is one that tools build.
    pub builds: BuildSystem,
    /// Whether the walked trees tell upper from lower case.
    pub folding: CaseFolding,
    /// Files that a built-in pattern would deny and that are open because git tracks them.
    pub tracked: TrackedFiles,
}

/// Whether a project is one that tools build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BuildSystem {
    /// Nothing says so.
    #[default]
    Nothing,
    /// It has a file that a build tool reads.
    Something,
}

/// Files by which a project is known to be built.
const MANIFESTS: &[&str] = &[
    "Cargo.toml",
    "package.json",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "Gemfile",
    "deno.json",
    "pyproject.toml",
];

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRoot {
    /// Symbolic links on the way, outermost first.
    pub links: Vec<(AbsPath, PathBuf)>,
    /// The path without symbolic links.
    pub real: AbsPath,
    /// What stands there.
    pub kind: FileKind,
}

/// Files with several names, by inode and device: what covers one name must cover all.
pub type HardLinks = BTreeMap<(u64, u64), Overmount>;

/// Looks at the host through the eyes of `grants`.
pub fn survey(grants: &Grants) -> Survey {
    survey_beside(grants, &Known::default())
}

/// Traces that commands of the project left behind.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Tells git directories, worktrees' directories and `.git` files that commands made.
    pub is_made: &'a dyn Fn(&AbsPath) -> bool,
    /// Contents of tracked files that are open beside those in the project's list.
    pub remembered: &'a RememberedFiles,
}

impl Default for Known<'_> {
    fn default() -> Self {
        static NONE: LazyLock<RememberedFiles> = LazyLock::new(RememberedFiles::new);
        Self { is_made: &|_| false, remembered: &NONE }
    }
}

/// The same where some git directories, worktrees and `.git` files are known to be made by
/// commands. What git obeys in them is not protected, since it is swept after every command.
pub fn survey_beside(grants: &Grants, known: &Known<'_>) -> Survey {
    let mut links = SymlinkCache::default();
    let mut survey = look_by(grants, &mut links);
    if MANIFESTS.iter().any(|name| grants.workspace.as_path().join(name).exists()) {
        survey.builds = BuildSystem::Something;
    }
    SurveyBuilder::new(grants, links, survey, known).survey()
}

/// Where a path leads, whether or not something is there.
pub(crate) fn end_of(path: &AbsPath) -> Option<AbsPath> {
    SymlinkCache::default().trail(path).map(|trail| trail.end)
}

/// Surveys one repository, but for what commands made in it.
pub(crate) fn repository(
    grants: &Grants,
    directory: &AbsPath,
    is_made: &dyn Fn(&AbsPath) -> bool,
) -> Survey {
    let known = Known { is_made, ..Known::default() };
    SurveyBuilder::new(grants, SymlinkCache::default(), Survey::default(), &known)
        .repository(directory)
}

/// Finds what the rules stand on, and no more.
pub(crate) fn look(grants: &Grants) -> Survey {
    look_by(grants, &mut SymlinkCache::default())
}

fn look_by(grants: &Grants, links: &mut SymlinkCache) -> Survey {
    let mut survey = Survey::default();
    let walked: HashSet<&AbsPath> =
        grants.rules.iter().filter(|rule| is_walked(rule)).map(|rule| &rule.root).collect();
    // What is protected in a tree that is walked is found there, by its name.
    let is_found_anyway = |rule: &&Rule| {
        rule.effect == Effect::Protect
            && rule.root.parent().is_some_and(|above| walked.contains(&above))
    };
    let roots = grants.rules.iter().filter(|rule| !is_found_anyway(rule)).map(|rule| &rule.root);
    for root in roots.chain(&grants.network.unix_sockets) {
        if !survey.found.contains_key(root)
            && let Some(found) = links.follow(root)
        {
            survey.found.insert(root.clone(), found);
        }
    }
    survey
}

/// Whether patterns hold in what the rule opens, so that it is walked.
fn is_walked(rule: &Rule) -> bool {
    rule.opens() && rule.patterns_hold() && !matches!(rule.effect, Effect::Private { .. })
}

/// A small file's text; `None` if it leads to no plain file or is not small.
fn read_small(path: &AbsPath) -> Option<String> {
    const SMALL: u64 = 1 << 20;
    let metadata = fs::metadata(path.as_path()).ok()?;
    let bytes = (metadata.is_file() && metadata.len() < SMALL)
        .then(|| fs::read(path.as_path()).ok())
        .flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether we may list a directory and ask what its names stand for. One that was there a
/// moment ago and is gone may be anywhere.
fn is_searchable(directory: &AbsPath) -> bool {
    let wanted = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    match rustix::fs::access(directory.as_path(), wanted) {
        Ok(()) => true,
        Err(error) => matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR),
    }
}

/// What kind of thing this is, for the purpose of covering it.
fn kind_of(file_type: fs::FileType) -> FileKind {
    if file_type.is_dir() { FileKind::Directory } else { FileKind::File }
}

/// A socket in an opened tree belongs to a process of the host.
fn is_socket(file_type: fs::FileType) -> bool {
    file_type.is_socket()
}
