//! Git sweep: checks the repositories that a command created, before git runs in them on the host.
//! Files in them that would run a program there are moved to quarantine.
//!
//! The contents are untrusted. The sweep works on directories held open and never follows a link. A
//! path is for messages only, or is opened and then checked for the identity of the directory.

mod autostash;
mod baseline;
mod config;
mod held_dir;
mod index;
mod links;
mod modules;
mod pointer;
mod quarantine;
mod replacements;
mod roots;
mod settings;
mod state;
mod submodules;
mod suspended;
mod timestamp;
mod worktree_hooks;

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::apply::{CreatedName, FileIdentity, NameKind};
use crate::inode::InodeId;
use ringfence_api::QuarantinedFile;
use ringfence_policy::AbsPath;
use rustix::fs::{FileType, Mode, OFlags};
use tracing::{debug, info};

pub(crate) use baseline::SweepBaseline;
pub(crate) use held_dir::identity;
pub(crate) use held_dir::open_expected;
use held_dir::{CrossMounts, DirAccess, HeldDir, WalkControl, kind};
use quarantine::Quarantine;
use roots::WritableRoots;
pub(crate) use suspended::Suspension;
pub(crate) use timestamp::FsTimestamp;

/// Names by which git finds settings and programs in a git directory.
const OBEYED: [&str; 4] = ["config", "hooks", "commondir", "config.worktree"];

/// Directories to check, besides those where a marker was reported.
#[derive(Debug, Clone)]
pub(crate) enum SweepScope {
    /// None.
    Made,
    /// These directories, at any path.
    Known(HashSet<InodeId>),
    /// Everything in the writable trees that may be new: not all markers were reported.
    Everywhere,
}

/// Result of a sweep.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    pub(crate) moved: Vec<QuarantinedFile>,
    /// Git markers that exist now and did not before.
    pub(crate) spotted: Vec<FoundGitDir>,
}

/// A directory in which a command created a git marker or a setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FoundGitDir {
    /// Path of the directory, or of the setting.
    pub(crate) path: AbsPath,
    /// Identity of the directory; for a setting, of its parent.
    pub(crate) identity: InodeId,
    pub(crate) what: NameKind,
    /// Older files there are the user's: the time just before the first command that created a file
    /// there. Zero if a command moved the whole directory there.
    pub(crate) since: FsTimestamp,
}

impl FoundGitDir {
    /// Path of the directory.
    pub(crate) fn directory(&self) -> AbsPath {
        match self.what {
            NameKind::Setting => self.path.parent().unwrap_or_else(AbsPath::root),
            _ => self.path.clone(),
        }
    }

    /// The directory, if it still exists.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        open_expected(&self.directory(), self.identity)
    }
}

/// Checks the git markers that the command created.
pub(crate) fn sweep(
    made: Vec<CreatedName>,
    mut look: SweepScope,
    baseline: &SweepBaseline,
    quarantine: &AbsPath,
) -> SweepResult {
    let mut sweep = GitSweep {
        store: Quarantine::new(quarantine),
        swept: SweepResult::default(),
        baseline,
        roots: &baseline.roots,
        done: HashSet::new(),
        cleared: HashSet::new(),
        is_searching: false,
    };
    for CreatedName { directory, path, what, .. } in made {
        let Some(directory) = directory else { continue };
        match SweepDir::find(baseline, &directory, path) {
            Some(found) => sweep.check_marker(&found, what),
            None => look = SweepScope::Everywhere,
        }
    }
    debug!(target: "sweep", scope = ?look, repositories = baseline.gits.len(), "begins");
    sweep.is_searching = true;
    if !matches!(look, SweepScope::Made) {
        for root in baseline.roots.iter() {
            sweep.search_tree(root, |directory, path| match &look {
                SweepScope::Made => false,
                SweepScope::Known(known) => {
                    identity(directory).is_some_and(|identity| known.contains(&identity))
                }
                // A marker that the survey would have found is new, wherever it was created.
                SweepScope::Everywhere => {
                    baseline.was_surveyed(path) || baseline.begun.may_precede_change_of(directory)
                }
            });
        }
    }
    // Indexes first: git enters the repositories that they name.
    for path in &baseline.gits {
        if let Some(git) = baseline.roots.open(path) {
            if matches!(look, SweepScope::Everywhere) {
                sweep.sweep_stores(&git, path);
            }
            sweep.sweep_indexes(&git, path);
        }
    }
    sweep.check_submodule_trees();
    for path in &baseline.gits {
        if let Some(git) = baseline.roots.open(path) {
            sweep.sweep_state(&git, path);
        }
    }
    for file in &sweep.swept.moved {
        let QuarantinedFile { path, moved_to, reason } = file;
        info!(target: "sweep", path, moved_to, reason, "moved to quarantine");
    }
    sweep.swept
}

/// A directory in which a marker was created.
struct SweepDir {
    directory: HeldDir,
    path: AbsPath,
    trust: PathTrust,
    origin: NameOrigin,
}

impl SweepDir {
    /// The directory by a path on the host, or held as it is; `None` if it cannot be opened.
    fn find(baseline: &SweepBaseline, directory: &OwnedFd, path: AbsPath) -> Option<Self> {
        let origin = NameOrigin::Alone;
        if let Some((directory, path)) = baseline.roots.locate(directory, &path) {
            return Some(SweepDir { directory, path, trust: PathTrust::OnHost, origin });
        }
        let directory = held_dir::open_held(directory, DirAccess::Look).ok()?;
        Some(SweepDir { directory, path, trust: PathTrust::Adrift, origin })
    }
}

/// Origin of a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameOrigin {
    /// Created there.
    Alone,
    /// Moved there with the whole directory.
    Whole,
}

/// Owner of a directory that has a `HEAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadOwner {
    Commands,
    Users,
}

/// Trust in the path of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathTrust {
    /// It led to the directory just now.
    OnHost,
    /// The directory was there once. It is in a private mount of the sandbox, or was moved.
    Adrift,
}

struct GitSweep<'a> {
    store: Quarantine,
    swept: SweepResult,
    baseline: &'a SweepBaseline,
    roots: &'a WritableRoots,
    /// Directories that were checked.
    done: HashSet<InodeId>,
    /// Directories in which no links are left.
    cleared: HashSet<InodeId>,
    /// Set while whole trees are searched, after all reported markers.
    is_searching: bool,
}

impl GitSweep<'_> {
    /// Checks a whole tree for new markers in directories that are `wanted`.
    fn search_tree(&mut self, root: &AbsPath, wanted: impl Fn(&HeldDir, &AbsPath) -> bool) {
        // Retry if a process on the host moves directories meanwhile.
        for _ in 0..3 {
            let Some(top) = self.roots.open(root) else { return };
            let seen = held_dir::walk(top, CrossMounts::Cross, |directory, way| {
                let is_there = |name: &str| kind(directory, name).is_some();
                let (has_git, has_head) = (is_there(".git"), is_there("HEAD"));
                let has_settings = settings::may_have_settings(directory);
                let is_candidate = has_git || has_head || has_settings;
                // Joined only for candidates: a path for every directory would be quadratic in a
                // deep tree.
                let path =
                    is_candidate.then(|| root.join(way)).filter(|path| wanted(directory, path));
                if let Some(path) = path {
                    let is_new = |name: &str| !self.baseline.masked.contains(&path.join(name));
                    // The user may have repositories in trees that the survey skips.
                    let is_mine = has_git
                        && self.baseline.was_skipped(&path)
                        && self.is_older(directory, ".git", self.baseline.begun);
                    let (has_git, has_head) =
                        (has_git && !is_mine && is_new(".git"), has_head && is_new("HEAD"));
                    let Ok(directory) = held_dir::open_held(directory, DirAccess::Look) else {
                        return Ok(WalkControl::Below);
                    };
                    let found_dir = SweepDir {
                        directory,
                        path,
                        trust: PathTrust::OnHost,
                        origin: NameOrigin::Alone,
                    };
                    if has_git {
                        self.check_marker(&found_dir, NameKind::DotGit);
                    }
                    if has_head {
                        self.check_marker(&found_dir, NameKind::Head);
                    }
                    if has_settings {
                        self.sweep_settings(&found_dir);
                    }
                }
                Ok(WalkControl::Below)
            });
            if seen.is_ok() {
                return;
            }
        }
        self.report_unchecked(root);
    }

    fn existed_before(&self, directory: impl AsFd) -> bool {
        FileIdentity::from_fd(directory).is_some_and(|birth| self.baseline.before.contains(&birth))
    }

    /// True if the git directory at `path` is the user's: it existed before, or was created outside
    /// since. The second is known only for the name `.git`, which no command creates without a
    /// report.
    fn is_owned_by_user(&self, directory: impl AsFd, path: &AbsPath, origin: NameOrigin) -> bool {
        let is_named =
            origin == NameOrigin::Alone && path.name().is_some_and(|name| name == ".git");
        self.existed_before(&directory)
            || (is_named
                && FileIdentity::from_fd(&directory)
                    .is_some_and(|birth| self.baseline.is_foreign(birth)))
    }

    fn check_marker(&mut self, found_dir: &SweepDir, what: NameKind) {
        let directory = &found_dir.directory;
        let is_left = match what {
            NameKind::DotGit => {
                self.sweep_dot_git(found_dir);
                let git = FileIdentity::from_entry(directory, ".git");
                git.is_some_and(|git| {
                    !self.baseline.before.contains(&git)
                        && (found_dir.origin == NameOrigin::Whole || !self.baseline.is_foreign(git))
                })
            }
            NameKind::Head => {
                self.sweep_head(found_dir) == HeadOwner::Commands
                    && kind(directory, "HEAD").is_some()
            }
            NameKind::Store if self.existed_before(directory) => false,
            NameKind::Store => {
                self.sweep_worktree(directory, &found_dir.path);
                self.sweep_submodules(directory, &found_dir.path, "modules");
                repository_around(directory).is_some()
            }
            NameKind::Tree => return self.sweep_moved_tree(found_dir),
            NameKind::DeniedFile => false,
            NameKind::Setting => return self.sweep_settings(found_dir),
        };
        if found_dir.trust == PathTrust::OnHost
            && is_left
            && let Some(identity) = identity(directory)
        {
            let since = if found_dir.origin == NameOrigin::Whole {
                FsTimestamp::new(0, 0)
            } else {
                self.baseline.begun
            };
            self.swept.spotted.push(FoundGitDir {
                path: found_dir.path.clone(),
                identity,
                what,
                since,
            });
        }
    }

    /// Checks a directory that was moved out of a tree which the survey skips.
    fn sweep_moved_tree(&mut self, found_dir: &SweepDir) {
        let seen = held_dir::open_held(&found_dir.directory, DirAccess::Look).and_then(|top| {
            held_dir::walk(top, CrossMounts::Cross, |directory, way| {
                let is_there = |name: &str| kind(directory, name).is_some();
                let found = [
                    (NameKind::DotGit, is_there(".git")),
                    (NameKind::Head, is_there("HEAD")),
                    (NameKind::Setting, settings::may_have_settings(directory)),
                ];
                for (what, _) in found.into_iter().filter(|(_, is_there)| *is_there) {
                    let (directory, path) = (
                        held_dir::open_held(directory, DirAccess::Look)?,
                        found_dir.path.join(way),
                    );
                    self.check_marker(
                        &SweepDir {
                            directory,
                            path,
                            trust: found_dir.trust,
                            origin: NameOrigin::Whole,
                        },
                        what,
                    );
                }
                Ok(WalkControl::Below)
            })
        });
        if seen.is_err() {
            self.report_unchecked(&found_dir.path);
        }
    }

    fn report_unchecked(&mut self, path: &AbsPath) {
        self.swept.moved.push(QuarantinedFile {
            path: path.to_string_lossy().into_owned(),
            moved_to: "nowhere: NOT FULLY CHECKED".into(),
            reason: "its directories were moved during the check".into(),
        });
    }

    /// True if a file that git obeys in a directory is older than the command, or than the earlier
    /// one that created the `HEAD` there.
    fn has_older(&self, directory: &HeldDir) -> bool {
        let since =
            identity(directory).and_then(|identity| self.baseline.heads.get(&identity).copied());
        OBEYED
            .iter()
            .any(|name| self.is_older(directory, name, since.unwrap_or(self.baseline.begun)))
    }

    fn is_older(&self, directory: &HeldDir, name: &str, moment: FsTimestamp) -> bool {
        FileIdentity::from_entry(directory, name).is_some_and(|birth| moment.follows(birth))
    }

    /// True if a directory in a skipped tree was a repository before. Its `HEAD` may be new: git
    /// writes another one for every checkout. The notify handler does not report a `HEAD` that
    /// replaces another, so this matters only in a search. The files that git obeys must be
    /// unchanged: a command can move older files there.
    fn was_vendored(&self, found_dir: &SweepDir) -> bool {
        let directory = &found_dir.directory;
        let is_listed =
            identity(directory).is_some_and(|identity| self.baseline.heads.contains_key(&identity));
        let are_older = ["objects", "refs", "config"]
            .iter()
            .all(|name| self.is_older(directory, name, self.baseline.begun));
        let is_whole = || {
            OBEYED
                .iter()
                .all(|name| kind(directory, *name).is_none() || self.is_unchanged(directory, name))
        };
        let is_searched = self.is_searching && found_dir.trust == PathTrust::OnHost;
        is_searched
            && !is_listed
            && are_older
            && self.baseline.was_skipped(&found_dir.path)
            && is_whole()
    }

    fn is_unchanged(&self, directory: &HeldDir, name: &str) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty());
        file.is_ok_and(|file| !self.baseline.begun.may_precede_change_of(&file))
    }

    /// Checks a directory with a `HEAD`, which may make it a repository.
    fn sweep_head(&mut self, found_dir: &SweepDir) -> HeadOwner {
        let directory = &found_dir.directory;
        if self.is_owned_by_user(directory, &found_dir.path, found_dir.origin) {
            return HeadOwner::Users;
        }
        if !looks_like_git(directory) {
            return HeadOwner::Commands;
        }
        if identity(directory).is_some_and(|identity| self.roots.contains(identity)) {
            self.sweep_planted(found_dir);
            return HeadOwner::Commands;
        }
        if found_dir.origin == NameOrigin::Alone && self.was_vendored(found_dir) {
            return HeadOwner::Users;
        }
        if found_dir.origin == NameOrigin::Alone && self.has_older(directory) {
            // Without the `HEAD`, git obeys nothing there, and the user's files stay.
            let reason = "makes git treat an existing directory as a repository";
            self.quarantine_entry(directory, "HEAD", &found_dir.path.join("HEAD"), reason);
            return HeadOwner::Users;
        }
        let Some(git) = repository_around(directory) else {
            self.sweep_repository(directory, &found_dir.path);
            return HeadOwner::Commands;
        };
        self.sweep_worktree(directory, &found_dir.path);
        self.sweep_submodules(directory, &found_dir.path, "modules");
        if let (Ok(git), Some(path)) = (
            held_dir::open_held(git, DirAccess::Look),
            found_dir.path.parent().and_then(|above| above.parent()),
        ) && !self.is_owned_by_user(&git, &path, found_dir.origin)
        {
            self.sweep_repository(&git, &path);
        }
        HeadOwner::Commands
    }

    /// Moves away files that make a writable root itself a git directory.
    fn sweep_planted(&mut self, found_dir: &SweepDir) {
        for name in ["HEAD"].iter().chain(&OBEYED) {
            if kind(&found_dir.directory, name).is_some()
                && (*name == "HEAD"
                    || !self.is_older(&found_dir.directory, name, self.baseline.begun))
            {
                self.quarantine_entry(
                    &found_dir.directory,
                    name,
                    &found_dir.path.join(name),
                    "makes git treat the project as a bare repository",
                );
            }
        }
    }

    /// Checks `.git` in a directory, of any file type.
    fn sweep_dot_git(&mut self, found_dir: &SweepDir) {
        let (directory, at) = (&found_dir.directory, found_dir.path.join(".git"));
        match kind(directory, ".git") {
            Some(FileType::Directory) => {
                match held_dir::enter(directory, ".git", DirAccess::Look, CrossMounts::Cross) {
                    Ok(git) if self.is_owned_by_user(&git, &at, found_dir.origin) => {}
                    Ok(git) => self.sweep_repository(&git, &at),
                    Err(_) => self.quarantine_entry(directory, ".git", &at, "cannot be read"),
                }
            }
            Some(FileType::RegularFile)
                if !pointer::is_empty_marker(directory) && !self.is_worktree_pointer(found_dir) =>
            {
                self.quarantine_entry(
                    directory,
                    ".git",
                    &at,
                    "points git at a directory that belongs to no worktree of the project",
                );
            }
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => {
                self.quarantine_entry(directory, ".git", &at, "redirects git to another directory")
            }
            Some(_) => {
                self.quarantine_entry(directory, ".git", &at, "is not a file type that git writes")
            }
        }
    }

    /// Checks a git directory, its worktrees, and the submodules in it.
    fn sweep_repository(&mut self, git: &HeldDir, path: &AbsPath) {
        if !identity(git).is_some_and(|identity| self.done.insert(identity)) {
            return;
        }
        self.sweep_git_dir(git, path);
        self.sweep_links(git, path);
        // A worktree's directory holds the git directories of its submodules.
        for name in ["modules", "worktrees"] {
            self.sweep_submodules(git, path, name);
        }
    }

    /// Checks the files of a git directory that git obeys.
    fn sweep_git_dir(&mut self, git: &HeldDir, path: &AbsPath) {
        self.sweep_programs(git, path);
        if kind(git, "commondir").is_some() {
            self.quarantine_entry(
                git,
                "commondir",
                &path.join("commondir"),
                "makes git obey the settings of another directory",
            );
        }
        if kind(git, "lazygit.yml").is_some() {
            self.quarantine_entry(
                git,
                "lazygit.yml",
                &path.join("lazygit.yml"),
                "lazygit would run the programs it names",
            );
        }
        let at = path.join("worktrees");
        if kind(git, "worktrees") == Some(FileType::Symlink) {
            self.quarantine_entry(git, "worktrees", &at, "redirects git to another directory");
        }
        let Ok(worktrees) = held_dir::enter(git, "worktrees", DirAccess::Look, CrossMounts::Cross)
        else {
            return;
        };
        for (name, kind) in held_dir::entries(&worktrees).unwrap_or_default() {
            if kind == FileType::Symlink {
                self.quarantine_entry(
                    &worktrees,
                    &name,
                    &at.join(&name),
                    "redirects git to another directory",
                );
            } else if let Ok(own) =
                held_dir::enter(&worktrees, &name, DirAccess::Look, CrossMounts::Cross)
            {
                self.sweep_worktree(&own, &at.join(&name));
            }
        }
    }

    /// Checks a worktree's own git directory.
    fn sweep_worktree(&mut self, own: &HeldDir, path: &AbsPath) {
        // Also files that count only without a `commondir`, which can be removed later.
        self.sweep_programs(own, path);
        if kind(own, "commondir").is_some() && !is_plain_commondir(own) {
            self.quarantine_entry(
                own,
                "commondir",
                &path.join("commondir"),
                "makes git obey the settings of another directory",
            );
        }
    }

    fn sweep_programs(&mut self, git: &HeldDir, path: &AbsPath) {
        self.sweep_hooks(git, path);
        for name in ["config", "config.worktree"] {
            self.sweep_config(git, name, &path.join(name));
        }
        self.sweep_sapling(git, path);
        self.sweep_state_dirs(git, path);
        self.sweep_indexes(git, path);
        self.sweep_state(git, path);
    }

    fn sweep_hooks(&mut self, git: &HeldDir, path: &AbsPath) {
        /// A larger number is moved away as one directory.
        const MAX_LISTED: usize = 64;
        let at = path.join("hooks");
        let reason = "git would run it on the host";
        match kind(git, "hooks") {
            None => return,
            Some(FileType::Directory) => {}
            Some(_) => {
                return self.quarantine_entry(
                    git,
                    "hooks",
                    &at,
                    "redirects git to hooks elsewhere",
                );
            }
        }
        let hooks = held_dir::enter(git, "hooks", DirAccess::Look, CrossMounts::Cross);
        let entries = hooks.as_ref().map_err(|error| *error).and_then(held_dir::entries);
        let (Ok(hooks), Ok(mut entries)) = (hooks, entries) else {
            return self.quarantine_entry(git, "hooks", &at, "cannot be read");
        };
        entries.retain(|(name, _)| !name.as_bytes().ends_with(b".sample"));
        if entries.len() > MAX_LISTED {
            return self.quarantine_entry(git, "hooks", &at, reason);
        }
        for (name, _) in entries {
            self.quarantine_entry(&hooks, &name, &at.join(&name), reason);
        }
    }

    /// Rewrites a config file without the settings that make git run programs.
    fn sweep_config(&mut self, git: &HeldDir, name: &str, path: &AbsPath) {
        match kind(git, name) {
            None => return,
            Some(FileType::RegularFile) => {}
            Some(_) => return self.quarantine_entry(git, name, path, "is not a plain file"),
        }
        let Ok(text) = held_dir::read(git, name) else {
            return self.quarantine_entry(git, name, path, "cannot be read");
        };
        let tree = self
            .tree_of(git, &path.parent().unwrap_or_else(AbsPath::root))
            .filter(|_| name == "config");
        let filtered = config::filter(&text, tree.as_ref().map(|(written, _)| written.as_str()));
        if filtered.dropped.is_empty() {
            return;
        }
        let reason =
            format!("makes git run programs or read other settings: {}", listed(&filtered.dropped));
        self.replace(git, name, path, &filtered.kept, &reason);
    }

    /// Moves a file to quarantine and writes the harmless rest of it back.
    fn replace(
        &mut self,
        directory: &HeldDir,
        name: &str,
        path: &AbsPath,
        kept: &[u8],
        reason: &str,
    ) {
        self.quarantine_entry(directory, name, path, reason);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(file) = held_dir::with_write_permission(directory, || {
            rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))
        }) {
            let _ = fs::File::from(file).write_all(kept);
        }
    }

    /// Moves an entry to quarantine. An entry that cannot be kept is removed anyway.
    fn quarantine_entry(
        &mut self,
        directory: &HeldDir,
        name: impl AsRef<Path>,
        path: &AbsPath,
        reason: &str,
    ) {
        let name = name.as_ref();
        let moved_to = match self.store.take(directory, name, path, self.roots) {
            Ok(place) => place.to_string_lossy().into_owned(),
            Err(_) if held_dir::remove(directory, name).is_ok() => {
                "nowhere: it could not be moved and was removed".into()
            }
            Err(_) => "nowhere: IT IS STILL THERE and could be neither moved nor removed".into(),
        };
        self.swept.moved.push(QuarantinedFile {
            path: path.to_string_lossy().into_owned(),
            moved_to,
            reason: reason.into(),
        });
    }
}

/// True if git would take a directory for a repository. With a `commondir`, the other files are
/// elsewhere.
fn looks_like_git(directory: impl AsFd) -> bool {
    let has = |name: &str| kind(&directory, name).is_some();
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

/// The repository whose `worktrees` hold `directory`.
fn repository_around(directory: &HeldDir) -> Option<OwnedFd> {
    let worktrees = held_dir::open_parent(directory).ok()?;
    let git = held_dir::open_parent(&worktrees).ok()?;
    let is_worktree_store =
        held_dir::identity_at(&git, "worktrees") == identity(&worktrees) && looks_like_git(&git);
    is_worktree_store.then_some(git)
}

/// True if a worktree's `commondir` is as git writes it: the repository around it.
fn is_plain_commondir(own: &HeldDir) -> bool {
    held_dir::read(own, "commondir").is_ok_and(|text| pointer::without_line_end(&text) == b"../..")
}

/// The first few names, of which there may be thousands.
fn listed(names: &[String]) -> String {
    const MAX_LISTED: usize = 8;
    const MAX_LENGTH: usize = 80;
    let short = |name: &String| name.chars().take(MAX_LENGTH).collect::<String>();
    let mut text = names.iter().take(MAX_LISTED).map(short).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_LISTED {
        text += &format!(" and {} more", names.len() - MAX_LISTED);
    }
    text
}
