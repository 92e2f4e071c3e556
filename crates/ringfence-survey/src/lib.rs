//! Applies the policy to the host's file system: finds the paths that rules refer to, and the files
//! in granted trees that patterns match.
//!
//! Reads the host and changes nothing. Paths that appear later are handled by the guards and the
//! watcher.

mod birth;
mod build;
mod case_folding;
mod git;
mod git_config;
mod gitlinks;
mod links;
mod mounts;
mod remembered;
mod sockets;
mod tools;
mod tracked_files;
pub mod walk;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::sync::LazyLock;

use ringfence_plan::{BuildSystem, FileKind, Survey};
use ringfence_policy::{AbsPath, Effect, Grants, Rule};

pub use birth::{FileIdentity, NotABirth};
use build::SurveyBuilder;
pub use git::OBEYED_NAMES as OBEYED_BY_GIT;
use links::SymlinkCache;
pub use remembered::{digest_unchanged, remember_contents};
use tracing::trace_span;
pub use tracked_files::TrackedLookup;
pub use tracked_files::{RememberedFiles, grant_if_tracked};
pub use walk::skipped_directory_names;

/// Files that identify a build system.
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

/// Surveys the host for `grants`.
pub fn survey(grants: &Grants) -> Survey {
    survey_with_known(grants, &Known::default())
}

/// Traces that commands of the project left behind.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// True for git directories, worktree directories and `.git` files that commands created.
    pub is_made: &'a dyn Fn(&AbsPath) -> bool,
    /// Contents of tracked files that are granted in addition to the project's list.
    pub remembered: &'a RememberedFiles,
}

impl Default for Known<'_> {
    fn default() -> Self {
        static NONE: LazyLock<RememberedFiles> = LazyLock::new(RememberedFiles::new);
        Self { is_made: &|_| false, remembered: &NONE }
    }
}

/// Surveys the host with known git directories, worktrees and `.git` files of commands. Git
/// settings in them are not protected, since they are swept after every command.
pub fn survey_with_known(grants: &Grants, known: &Known<'_>) -> Survey {
    let _stage = trace_span!(target: "stage", "survey_with_known").entered();
    let mut links = SymlinkCache::default();
    let mut survey = resolve_with(grants, &mut links);
    if MANIFESTS.iter().any(|name| grants.workspace.as_path().join(name).exists()) {
        survey.builds = BuildSystem::Something;
    }
    SurveyBuilder::new(grants, links, survey, known).survey()
}

/// The end of a path's symbolic links, even if nothing is there.
pub fn resolve_links(path: &AbsPath) -> Option<AbsPath> {
    SymlinkCache::default().resolve_trail(path).map(|trail| trail.end)
}

/// Surveys one repository, without the parts that commands created.
pub fn survey_repository(
    grants: &Grants,
    directory: &AbsPath,
    is_made: &dyn Fn(&AbsPath) -> bool,
) -> Survey {
    let known = Known { is_made, ..Known::default() };
    SurveyBuilder::new(grants, SymlinkCache::default(), Survey::default(), &known)
        .repository(directory)
}

/// Resolves the roots of the rules, and no more.
pub fn resolve_rule_roots(grants: &Grants) -> Survey {
    resolve_with(grants, &mut SymlinkCache::default())
}

fn resolve_with(grants: &Grants, links: &mut SymlinkCache) -> Survey {
    let mut survey = Survey::default();
    let walked: HashSet<&AbsPath> =
        grants.rules.iter().filter(|rule| is_walked(rule)).map(|rule| &rule.root).collect();
    // Protected names in a walked tree are found by the walk.
    let is_found_anyway = |rule: &&Rule| {
        rule.effect == Effect::Protect
            && rule.root.parent().is_some_and(|above| walked.contains(&above))
    };
    let roots = grants.rules.iter().filter(|rule| !is_found_anyway(rule)).map(|rule| &rule.root);
    for root in roots.chain(&grants.network.unix_sockets) {
        if !survey.found.contains_key(root)
            && let Some(found) = links.resolve_root(root)
        {
            survey.found.insert(root.clone(), found);
        }
    }
    survey
}

/// True if patterns apply in the granted tree, so that it is walked.
fn is_walked(rule: &Rule) -> bool {
    rule.opens() && rule.patterns_apply() && !matches!(rule.effect, Effect::Private { .. })
}

/// Content of a small file; `None` if it is no regular file or too large.
fn read_small(path: &AbsPath) -> Option<String> {
    read_small_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// As [`read_small`], as bytes.
fn read_small_bytes(path: &AbsPath) -> Option<Vec<u8>> {
    const SMALL: u64 = 1 << 20;
    let metadata = fs::metadata(path.as_path()).ok()?;
    (metadata.is_file() && metadata.len() < SMALL).then(|| fs::read(path.as_path()).ok()).flatten()
}

/// True if the directory can be listed and its entries can be examined. A directory that has just
/// vanished may have moved anywhere.
fn is_searchable_dir(directory: &AbsPath) -> bool {
    let wanted = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    match rustix::fs::access(directory.as_path(), wanted) {
        Ok(()) => true,
        Err(error) => matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR),
    }
}

/// Kind of a file for masking.
fn kind_of(file_type: fs::FileType) -> FileKind {
    if file_type.is_dir() { FileKind::Directory } else { FileKind::File }
}

/// True for a socket; in a granted tree it belongs to a process of the host.
fn is_socket(file_type: fs::FileType) -> bool {
    file_type.is_socket()
}
