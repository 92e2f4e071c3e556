//! The last look: repositories the command made are its own to use, but what in them would
//! run a program on the host is moved away before anybody there runs git.
//!
//! What it looks at was made by somebody who is not trusted. It works on directories held
//! open and never follows a link; a path is for messages, or is opened and believed only of
//! the directory it was to lead to.

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

use ringfence_api::QuarantinedFile;
use ringfence_enforce::apply::{Birth, GitMarker, GitMarkerCreated};
use ringfence_policy::AbsPath;
use rustix::fs::{FileType, Mode, OFlags};

pub(crate) use baseline::SweepBaseline;
pub(crate) use held_dir::led_to;
use held_dir::{CrossMounts, DirAccess, HeldDir, WalkControl, kind};
pub(crate) use held_dir::{InodeId, identity};
use quarantine::Quarantine;
use roots::WritableRoots;
pub(crate) use suspended::Suspension;
pub(crate) use timestamp::FsTimestamp;

/// Names by which git chooses settings and programs in a directory that it takes for its own.
const OBEYED: [&str; 4] = ["config", "hooks", "commondir", "config.worktree"];

/// Where to look beside where something was seen to be made.
#[derive(Debug, Clone)]
pub(crate) enum SweepScope {
    /// Nowhere.
    Made,
    /// At these directories, wherever they are.
    Known(HashSet<InodeId>),
    /// At everything in the writable trees that may be new: not all that was made was seen.
    Everywhere,
}

/// What came of looking.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    pub(crate) moved: Vec<QuarantinedFile>,
    /// Where there are git's names now that were not there before.
    pub(crate) spotted: Vec<FoundGitDir>,
}

/// A directory in which something of git's was made, or a setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FoundGitDir {
    /// Of the directory, or of the setting.
    pub(crate) path: AbsPath,
    /// Of the directory, which is the one around a setting.
    pub(crate) identity: InodeId,
    pub(crate) what: GitMarker,
    /// What is older there is the user's: a moment before the command began that was the first to
    /// make something there. Nothing is, if a command brought it there with all that is in it.
    pub(crate) since: FsTimestamp,
}

impl FoundGitDir {
    /// Path of the directory.
    pub(crate) fn directory(&self) -> AbsPath {
        match self.what {
            GitMarker::Setting => self.path.parent().unwrap_or_else(AbsPath::root),
            _ => self.path.clone(),
        }
    }

    /// The directory, if it is still there.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        led_to(&self.directory(), self.identity)
    }
}

/// Looks through what the command made of git's.
pub(crate) fn sweep(
    made: Vec<GitMarkerCreated>,
    mut look: SweepScope,
    ground: &SweepBaseline,
    quarantine: &AbsPath,
) -> SweepResult {
    let mut sweep = GitSweep {
        store: Quarantine::new(quarantine),
        swept: SweepResult::default(),
        ground,
        roots: &ground.roots,
        done: HashSet::new(),
        cleared: HashSet::new(),
        searches: false,
    };
    for GitMarkerCreated { directory, path, what, .. } in made {
        let Some(directory) = directory else { continue };
        let found = ground.roots.find(&directory, &path);
        let spot = match found {
            Some((directory, path)) => {
                SweepDir { directory, path, standing: PathTrust::OnHost, came: Came::Alone }
            }
            None => match held_dir::hold(&directory, DirAccess::Look) {
                Ok(directory) => {
                    SweepDir { directory, path, standing: PathTrust::Adrift, came: Came::Alone }
                }
                Err(_) => {
                    look = SweepScope::Everywhere;
                    continue;
                }
            },
        };
        sweep.look_at(&spot, what);
    }
    sweep.searches = true;
    if !matches!(look, SweepScope::Made) {
        for root in ground.roots.iter() {
            sweep.everywhere(root, |directory, path| match &look {
                SweepScope::Made => false,
                SweepScope::Known(known) => {
                    identity(directory).is_some_and(|identity| known.contains(&identity))
                }
                // What the survey would have found is new, wherever it was made.
                SweepScope::Everywhere => {
                    ground.was_surveyed(path) || ground.begun.may_precede_change_of(directory)
                }
            });
        }
    }
    // First: git enters the repositories that they name.
    for path in &ground.gits {
        if let Some(git) = ground.roots.open(path) {
            if matches!(look, SweepScope::Everywhere) {
                sweep.stores(&git, path);
            }
            sweep.indexes(&git, path);
        }
    }
    sweep.entered_by_git();
    for path in &ground.gits {
        if let Some(git) = ground.roots.open(path) {
            sweep.state(&git, path);
        }
    }
    sweep.swept
}

/// A directory in which something was made.
struct SweepDir {
    directory: HeldDir,
    path: AbsPath,
    standing: PathTrust,
    came: Came,
}

/// Way in which a name came to stand in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// It was made there.
    Alone,
    /// With the directory and all that is in it.
    Whole,
}

/// Owner of a directory that has a `HEAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Commands,
    Users,
}

/// What the path of a spot is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathTrust {
    /// It led to the directory just now.
    OnHost,
    /// The directory once stood there. It is in a private place of the sandbox, or somebody
    /// moved it.
    Adrift,
}

struct GitSweep<'a> {
    store: Quarantine,
    swept: SweepResult,
    ground: &'a SweepBaseline,
    roots: &'a WritableRoots,
    /// Directories that were looked through.
    done: HashSet<InodeId>,
    /// Directories in which no links are left.
    cleared: HashSet<InodeId>,
    /// Whole trees are searched, after all that is known to be made.
    searches: bool,
}

impl GitSweep<'_> {
    /// A whole tree, for what was not there before in directories that are `wanted`.
    fn everywhere(&mut self, root: &AbsPath, wanted: impl Fn(&HeldDir, &AbsPath) -> bool) {
        // Anew if somebody on the host moves directories under our feet.
        for _ in 0..3 {
            let Some(top) = self.roots.open(root) else { return };
            let seen = held_dir::walk(top, CrossMounts::Cross, |directory, way| {
                let is_there = |name: &str| kind(directory, name).is_some();
                let (has_git, has_head) = (is_there(".git"), is_there("HEAD"));
                let has_settings = settings::may_have_settings(directory);
                let is_candidate = has_git || has_head || has_settings;
                // A path of its own for every directory would be quadratic in a deep tree.
                let path =
                    is_candidate.then(|| root.join(way)).filter(|path| wanted(directory, path));
                if let Some(path) = path {
                    let is_new = |name: &str| !self.ground.covered.contains(&path.join(name));
                    // Where the survey does not look, the user may have repositories too.
                    let is_mine = has_git
                        && self.ground.was_skipped(&path)
                        && self.is_older(directory, ".git", self.ground.begun);
                    let (has_git, has_head) =
                        (has_git && !is_mine && is_new(".git"), has_head && is_new("HEAD"));
                    let Ok(directory) = held_dir::hold(directory, DirAccess::Look) else {
                        return Ok(WalkControl::Below);
                    };
                    let spot = SweepDir {
                        directory,
                        path,
                        standing: PathTrust::OnHost,
                        came: Came::Alone,
                    };
                    if has_git {
                        self.look_at(&spot, GitMarker::DotGit);
                    }
                    if has_head {
                        self.look_at(&spot, GitMarker::Head);
                    }
                    if has_settings {
                        self.settings_in(&spot);
                    }
                }
                Ok(WalkControl::Below)
            });
            if seen.is_ok() {
                return;
            }
        }
        self.not_looked_through(root);
    }

    fn was_before(&self, directory: impl AsFd) -> bool {
        Birth::of_open(directory).is_some_and(|birth| self.ground.before.contains(&birth))
    }

    /// Answers whether the git directory at `path` is the user's: it was there before, or was made
    /// outside since. The second is known only of a directory by the name of `.git`, which no
    /// command makes unseen.
    fn is_users(&self, directory: impl AsFd, path: &AbsPath, came: Came) -> bool {
        let is_named = came == Came::Alone && path.name().is_some_and(|name| name == ".git");
        self.was_before(&directory)
            || (is_named
                && Birth::of_open(&directory).is_some_and(|birth| self.ground.is_foreign(birth)))
    }

    fn look_at(&mut self, spot: &SweepDir, what: GitMarker) {
        let directory = &spot.directory;
        let is_left = match what {
            GitMarker::DotGit => {
                self.dot_git(spot);
                let git = Birth::of(directory, ".git");
                git.is_some_and(|git| {
                    !self.ground.before.contains(&git)
                        && (spot.came == Came::Whole || !self.ground.is_foreign(git))
                })
            }
            GitMarker::Head => {
                self.head(spot) == Whose::Commands && kind(directory, "HEAD").is_some()
            }
            GitMarker::Store if self.was_before(directory) => false,
            GitMarker::Store => {
                self.worktree(directory, &spot.path);
                self.submodules(directory, &spot.path, "modules");
                repository_around(directory).is_some()
            }
            GitMarker::Tree => return self.tree(spot),
            GitMarker::File => false,
            GitMarker::Setting => return self.settings_in(spot),
        };
        if spot.standing == PathTrust::OnHost
            && is_left
            && let Some(identity) = identity(directory)
        {
            let since =
                if spot.came == Came::Whole { FsTimestamp::new(0, 0) } else { self.ground.begun };
            self.swept.spotted.push(FoundGitDir { path: spot.path.clone(), identity, what, since });
        }
    }

    /// A directory that came out of a tree which the survey does not walk.
    fn tree(&mut self, spot: &SweepDir) {
        let seen = held_dir::hold(&spot.directory, DirAccess::Look).and_then(|top| {
            held_dir::walk(top, CrossMounts::Cross, |directory, way| {
                let is_there = |name: &str| kind(directory, name).is_some();
                let found = [
                    (GitMarker::DotGit, is_there(".git")),
                    (GitMarker::Head, is_there("HEAD")),
                    (GitMarker::Setting, settings::may_have_settings(directory)),
                ];
                for (what, _) in found.into_iter().filter(|(_, is_there)| *is_there) {
                    let (directory, path) =
                        (held_dir::hold(directory, DirAccess::Look)?, spot.path.join(way));
                    self.look_at(
                        &SweepDir { directory, path, standing: spot.standing, came: Came::Whole },
                        what,
                    );
                }
                Ok(WalkControl::Below)
            })
        });
        if seen.is_err() {
            self.not_looked_through(&spot.path);
        }
    }

    fn not_looked_through(&mut self, path: &AbsPath) {
        self.swept.moved.push(QuarantinedFile {
            path: path.to_string_lossy().into_owned(),
            moved_to: "nowhere: NOT ALL OF IT WAS LOOKED THROUGH".into(),
            reason: "its directories were moved meanwhile".into(),
        });
    }

    /// Answers whether something that git would obey in a directory is older than the command, or
    /// than the earlier one that made the `HEAD` there.
    fn has_older(&self, directory: &HeldDir) -> bool {
        let since =
            identity(directory).and_then(|identity| self.ground.heads.get(&identity).copied());
        OBEYED.iter().any(|name| self.is_older(directory, name, since.unwrap_or(self.ground.begun)))
    }

    fn is_older(&self, directory: &HeldDir, name: &str, moment: FsTimestamp) -> bool {
        Birth::of(directory, name).is_some_and(|birth| moment.follows(birth))
    }

    /// Answers whether a directory where the survey does not look was a repository before. Its
    /// `HEAD` may be new: git writes another one for every checkout. The notify handler reports no
    /// `HEAD` that replaces another, so this matters only in a search. What git obeys must be as it
    /// was: a command can move older files there.
    fn was_vendored(&self, spot: &SweepDir) -> bool {
        let directory = &spot.directory;
        let is_listed =
            identity(directory).is_some_and(|identity| self.ground.heads.contains_key(&identity));
        let are_older = ["objects", "refs", "config"]
            .iter()
            .all(|name| self.is_older(directory, name, self.ground.begun));
        let is_whole = || {
            OBEYED
                .iter()
                .all(|name| kind(directory, *name).is_none() || self.is_unchanged(directory, name))
        };
        let is_searched = self.searches && spot.standing == PathTrust::OnHost;
        is_searched && !is_listed && are_older && self.ground.was_skipped(&spot.path) && is_whole()
    }

    fn is_unchanged(&self, directory: &HeldDir, name: &str) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty());
        file.is_ok_and(|file| !self.ground.begun.may_precede_change_of(&file))
    }

    /// A directory with a `HEAD`, which may make it a repository.
    fn head(&mut self, spot: &SweepDir) -> Whose {
        let directory = &spot.directory;
        if self.is_users(directory, &spot.path, spot.came) {
            return Whose::Users;
        }
        if !looks_like_git(directory) {
            return Whose::Commands;
        }
        if identity(directory).is_some_and(|identity| self.roots.is_one(identity)) {
            self.planted(spot);
            return Whose::Commands;
        }
        if spot.came == Came::Alone && self.was_vendored(spot) {
            return Whose::Users;
        }
        if spot.came == Came::Alone && self.has_older(directory) {
            // Without it, git obeys nothing there, and what the user has there stays.
            let reason = "makes git take a directory that was there before for a repository";
            self.move_away(directory, "HEAD", &spot.path.join("HEAD"), reason);
            return Whose::Users;
        }
        let Some(git) = repository_around(directory) else {
            self.repository(directory, &spot.path);
            return Whose::Commands;
        };
        self.worktree(directory, &spot.path);
        self.submodules(directory, &spot.path, "modules");
        if let (Ok(git), Some(path)) = (
            held_dir::hold(git, DirAccess::Look),
            spot.path.parent().and_then(|above| above.parent()),
        ) && !self.is_users(&git, &path, spot.came)
        {
            self.repository(&git, &path);
        }
        Whose::Commands
    }

    /// Files of a repository that lie about in a writable root: git would obey them there.
    fn planted(&mut self, spot: &SweepDir) {
        for name in ["HEAD"].iter().chain(&OBEYED) {
            if kind(&spot.directory, name).is_some()
                && (*name == "HEAD" || !self.is_older(&spot.directory, name, self.ground.begun))
            {
                self.move_away(
                    &spot.directory,
                    name,
                    &spot.path.join(name),
                    "makes git take the project for a bare repository",
                );
            }
        }
    }

    /// `.git` in a directory, whatever it is.
    fn dot_git(&mut self, spot: &SweepDir) {
        let (directory, at) = (&spot.directory, spot.path.join(".git"));
        match kind(directory, ".git") {
            Some(FileType::Directory) => {
                match held_dir::enter(directory, ".git", DirAccess::Look, CrossMounts::Cross) {
                    Ok(git) if self.is_users(&git, &at, spot.came) => {}
                    Ok(git) => self.repository(&git, &at),
                    Err(_) => self.move_away(directory, ".git", &at, "cannot be looked into"),
                }
            }
            Some(FileType::RegularFile)
                if !pointer::is_empty_marker(directory) && !self.is_worktree_pointer(spot) =>
            {
                self.move_away(
                    directory,
                    ".git",
                    &at,
                    "points git at a directory that belongs to no worktree of the project",
                );
            }
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => {
                self.move_away(directory, ".git", &at, "leads git somewhere else")
            }
            Some(_) => self.move_away(directory, ".git", &at, "is nothing that git knows"),
        }
    }

    /// A git directory, its worktrees, and the submodules in it.
    fn repository(&mut self, git: &HeldDir, path: &AbsPath) {
        if !identity(git).is_some_and(|identity| self.done.insert(identity)) {
            return;
        }
        self.settings(git, path);
        self.links(git, path);
        // A worktree's directory holds those of the submodules in it.
        for name in ["modules", "worktrees"] {
            self.submodules(git, path, name);
        }
    }

    /// What git obeys of a git directory.
    fn settings(&mut self, git: &HeldDir, path: &AbsPath) {
        self.programs(git, path);
        if kind(git, "commondir").is_some() {
            self.move_away(
                git,
                "commondir",
                &path.join("commondir"),
                "makes git obey the settings of another directory",
            );
        }
        if kind(git, "lazygit.yml").is_some() {
            self.move_away(
                git,
                "lazygit.yml",
                &path.join("lazygit.yml"),
                "lazygit would run what it names",
            );
        }
        let at = path.join("worktrees");
        if kind(git, "worktrees") == Some(FileType::Symlink) {
            self.move_away(git, "worktrees", &at, "leads git somewhere else");
        }
        let Ok(worktrees) = held_dir::enter(git, "worktrees", DirAccess::Look, CrossMounts::Cross)
        else {
            return;
        };
        for (name, kind) in held_dir::entries(&worktrees).unwrap_or_default() {
            if kind == FileType::Symlink {
                self.move_away(&worktrees, &name, &at.join(&name), "leads git somewhere else");
            } else if let Ok(own) =
                held_dir::enter(&worktrees, &name, DirAccess::Look, CrossMounts::Cross)
            {
                self.worktree(&own, &at.join(&name));
            }
        }
    }

    /// A worktree's own directory.
    fn worktree(&mut self, own: &HeldDir, path: &AbsPath) {
        // Also what counts only without a `commondir`: it may be gone tomorrow.
        self.programs(own, path);
        if kind(own, "commondir").is_some() && !is_two_up(own) {
            self.move_away(
                own,
                "commondir",
                &path.join("commondir"),
                "makes git obey the settings of another directory",
            );
        }
    }

    fn programs(&mut self, git: &HeldDir, path: &AbsPath) {
        self.hooks(git, path);
        for name in ["config", "config.worktree"] {
            self.config(git, name, &path.join(name));
        }
        self.sapling(git, path);
        self.state_elsewhere(git, path);
        self.indexes(git, path);
        self.state(git, path);
    }

    fn hooks(&mut self, git: &HeldDir, path: &AbsPath) {
        /// More than these go together.
        const FEW: usize = 64;
        let at = path.join("hooks");
        let reason = "git would run it on the host";
        match kind(git, "hooks") {
            None => return,
            Some(FileType::Directory) => {}
            Some(_) => return self.move_away(git, "hooks", &at, "stands for hooks elsewhere"),
        }
        let hooks = held_dir::enter(git, "hooks", DirAccess::Look, CrossMounts::Cross);
        let entries = hooks.as_ref().map_err(|error| *error).and_then(held_dir::entries);
        let (Ok(hooks), Ok(mut entries)) = (hooks, entries) else {
            return self.move_away(git, "hooks", &at, "cannot be looked into");
        };
        entries.retain(|(name, _)| !name.as_bytes().ends_with(b".sample"));
        if entries.len() > FEW {
            return self.move_away(git, "hooks", &at, reason);
        }
        for (name, _) in entries {
            self.move_away(&hooks, &name, &at.join(&name), reason);
        }
    }

    /// Rewrites a config file without what makes git run programs.
    fn config(&mut self, git: &HeldDir, name: &str, path: &AbsPath) {
        match kind(git, name) {
            None => return,
            Some(FileType::RegularFile) => {}
            Some(_) => return self.move_away(git, name, path, "is not a plain file"),
        }
        let Ok(text) = held_dir::read(git, name) else {
            return self.move_away(git, name, path, "cannot be read");
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

    /// Moves a file into quarantine and leaves what may stay of it.
    fn replace(
        &mut self,
        directory: &HeldDir,
        name: &str,
        path: &AbsPath,
        kept: &[u8],
        reason: &str,
    ) {
        self.move_away(directory, name, path, reason);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(file) = held_dir::change(directory, || {
            rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))
        }) {
            let _ = fs::File::from(file).write_all(kept);
        }
    }

    /// Moves an entry into quarantine. What cannot be kept is removed all the same.
    fn move_away(
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
                "nowhere: it could not be kept and was removed".into()
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

/// By what git goes by: where there is a `commondir`, the rest is elsewhere.
fn looks_like_git(directory: impl AsFd) -> bool {
    let has = |name: &str| kind(&directory, name).is_some();
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

/// The repository among whose worktrees' directories `directory` is.
fn repository_around(directory: &HeldDir) -> Option<OwnedFd> {
    let worktrees = held_dir::around(directory).ok()?;
    let git = held_dir::around(&worktrees).ok()?;
    let is_so =
        held_dir::identity_at(&git, "worktrees") == identity(&worktrees) && looks_like_git(&git);
    is_so.then_some(git)
}

/// Whether a worktree's `commondir` says what git writes there: the repository around it.
fn is_two_up(own: &HeldDir) -> bool {
    held_dir::read(own, "commondir").is_ok_and(|text| pointer::without_line_end(&text) == b"../..")
}

/// The first few of the names, of which there may be thousands.
fn listed(names: &[String]) -> String {
    const FEW: usize = 8;
    const LONG: usize = 80;
    let short = |name: &String| name.chars().take(LONG).collect::<String>();
    let mut text = names.iter().take(FEW).map(short).collect::<Vec<_>>().join(", ");
    if names.len() > FEW {
        text += &format!(" and {} more", names.len() - FEW);
    }
    text
}
