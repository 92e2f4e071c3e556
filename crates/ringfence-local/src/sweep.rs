//! The last look: repositories the command made are its own to use, but what in them would
//! run a program on the host is moved away before anybody there runs git.
//!
//! What it looks at was made by somebody who is not trusted. It works on directories held
//! open and never follows a link; a path is for messages, or is opened and believed only of
//! the directory it was to lead to.

mod config;
mod entered;
mod ground;
mod held;
mod moment;
mod pointer;
mod roots;
mod store;
mod todo;

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_api::Quarantined;
use ringfence_enforce::apply::{Made, Planted};
use ringfence_policy::AbsPath;
use rustix::fs::{FileType, Mode, OFlags};

pub(crate) use ground::Ground;
use held::{Held, Mounts, Next, Want, kind};
pub(crate) use held::{Identity, identity, led_to};
pub(crate) use moment::Moment;
use roots::Roots;
use store::Store;

/// Where to look beside where something was seen to be made.
#[derive(Debug, Clone)]
pub(crate) enum Look {
    /// Nowhere.
    Made,
    /// At these directories, wherever they are.
    Known(HashSet<Identity>),
    /// At everything in the writable trees that may be new: not all that was made was seen.
    Everywhere,
}

/// What came of looking.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) moved: Vec<Quarantined>,
    /// Where there are git's names now that were not there before.
    pub(crate) spotted: Vec<Spotted>,
}

/// A directory in which something of git's was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spotted {
    pub(crate) path: AbsPath,
    pub(crate) identity: Identity,
    pub(crate) what: Planted,
}

/// Looks through what the command made of git's.
pub(crate) fn sweep(made: Vec<Made>, mut look: Look, ground: &Ground, quarantine: &AbsPath) -> Swept {
    let mut sweep = Sweep { store: Store::new(quarantine), swept: Swept::default(), ground, roots: &ground.roots, done: HashSet::new() };
    for Made { directory, path, what, .. } in made {
        let Some(directory) = directory else { continue };
        let found = ground.roots.find(&directory, &path);
        let spot = match found {
            Some((directory, path)) => Spot { directory, path, standing: Standing::OnHost },
            None => match held::hold(&directory, Want::Look) {
                Ok(directory) => Spot { directory, path, standing: Standing::Adrift },
                Err(_) => {
                    look = Look::Everywhere;
                    continue;
                }
            },
        };
        sweep.look_at(&spot, what);
    }
    if !matches!(look, Look::Made) {
        for root in ground.roots.iter() {
            sweep.everywhere(root, |directory| match &look {
                Look::Made => false,
                Look::Known(known) => identity(directory).is_some_and(|identity| known.contains(&identity)),
                Look::Everywhere => ground.begun.may_precede_change_of(directory),
            });
        }
    }
    sweep.entered_by_git();
    for path in &ground.gits {
        if let Some(git) = ground.roots.open(path) {
            sweep.todo(&git, path);
        }
    }
    sweep.swept
}

/// A directory in which something was made.
struct Spot {
    directory: Held,
    path: AbsPath,
    standing: Standing,
}

/// What the path of a spot is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It led to the directory just now.
    OnHost,
    /// The directory once stood there. It is in a private place of the sandbox, or somebody
    /// moved it.
    Adrift,
}

struct Sweep<'a> {
    store: Store,
    swept: Swept,
    ground: &'a Ground,
    roots: &'a Roots,
    /// Directories that were looked through.
    done: HashSet<Identity>,
}

impl Sweep<'_> {
    /// A whole tree, for what was not there before in directories that are `wanted`.
    fn everywhere(&mut self, root: &AbsPath, wanted: impl Fn(&Held) -> bool) {
        // Anew if somebody on the host moves directories under our feet.
        for _ in 0..3 {
            let Some(top) = self.roots.open(root) else { return };
            let seen = held::walk(top, Mounts::Cross, |directory, way| {
                let is_there = |name: &str| kind(directory, name).is_some();
                let (has_git, has_head) = (is_there(".git"), is_there("HEAD"));
                if (has_git || has_head) && wanted(directory) {
                    let path = root.join(way);
                    let is_new = |name: &str| !self.ground.covered.contains(&path.join(name));
                    let (has_git, has_head) = (has_git && is_new(".git"), has_head && is_new("HEAD"));
                    let Ok(directory) = held::hold(directory, Want::Look) else { return Ok(Next::Below) };
                    let spot = Spot { directory, path, standing: Standing::OnHost };
                    if has_git {
                        self.look_at(&spot, Planted::DotGit);
                    }
                    if has_head {
                        self.look_at(&spot, Planted::Head);
                    }
                }
                Ok(Next::Below)
            });
            if seen.is_ok() {
                return;
            }
        }
        self.swept.moved.push(Quarantined {
            path: root.to_string_lossy().into_owned(),
            moved_to: "nowhere: NOT ALL OF IT WAS LOOKED THROUGH".into(),
            reason: "its directories were moved meanwhile".into(),
        });
    }

    fn was_before(&self, directory: impl AsFd) -> bool {
        identity(directory).is_some_and(|identity| self.ground.before.contains(&identity))
    }

    fn look_at(&mut self, spot: &Spot, what: Planted) {
        let name = match what {
            Planted::DotGit => ".git",
            Planted::Head => "HEAD",
        };
        match what {
            Planted::DotGit => self.dot_git(spot),
            Planted::Head => self.head(spot),
        }
        let is_known = match what {
            Planted::DotGit => held::identity_at(&spot.directory, ".git").is_some_and(|identity| self.ground.before.contains(&identity)),
            Planted::Head => self.was_before(&spot.directory),
        };
        if spot.standing == Standing::OnHost
            && !is_known
            && kind(&spot.directory, name).is_some()
            && let Some(identity) = identity(&spot.directory)
        {
            self.swept.spotted.push(Spotted { path: spot.path.clone(), identity, what });
        }
    }

    /// A directory with a `HEAD`, which may make it a repository.
    fn head(&mut self, spot: &Spot) {
        let directory = &spot.directory;
        if self.was_before(directory) || !looks_like_git(directory) {
            return;
        }
        if identity(directory).is_some_and(|identity| self.roots.is_one(identity)) {
            return self.planted(spot);
        }
        let Some(git) = repository_around(directory) else { return self.repository(directory, &spot.path) };
        self.worktree(directory, &spot.path);
        if !self.was_before(&git)
            && let (Ok(git), Some(path)) = (held::hold(git, Want::Look), spot.path.parent().and_then(|above| above.parent()))
        {
            self.repository(&git, &path);
        }
    }

    /// Files of a repository that lie about in a writable root: git would obey them there.
    fn planted(&mut self, spot: &Spot) {
        for name in ["HEAD", "config", "hooks", "commondir", "config.worktree"] {
            if kind(&spot.directory, name).is_some() {
                self.move_away(&spot.directory, name, &spot.path.join(name), "makes git take the project for a bare repository");
            }
        }
    }

    /// `.git` in a directory, whatever it is.
    fn dot_git(&mut self, spot: &Spot) {
        let (directory, at) = (&spot.directory, spot.path.join(".git"));
        match kind(directory, ".git") {
            Some(FileType::Directory) => match held::enter(directory, ".git", Want::Look, Mounts::Cross) {
                Ok(git) if self.was_before(&git) => {}
                Ok(git) => self.repository(&git, &at),
                Err(_) => self.move_away(directory, ".git", &at, "cannot be looked into"),
            },
            Some(FileType::RegularFile) if !self.is_worktree_pointer(spot) => {
                self.move_away(directory, ".git", &at, "points git at a directory that is no worktree's");
            }
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => self.move_away(directory, ".git", &at, "leads git somewhere else"),
            Some(_) => self.move_away(directory, ".git", &at, "is nothing that git knows"),
        }
    }

    /// A git directory, its worktrees, and the submodules in it.
    fn repository(&mut self, git: &Held, path: &AbsPath) {
        if !identity(git).is_some_and(|identity| self.done.insert(identity)) {
            return;
        }
        self.settings(git, path);
        if kind(git, "modules") == Some(FileType::Symlink) {
            self.move_away(git, "modules", &path.join("modules"), "leads git somewhere else");
        }
        if let Ok(modules) = held::enter(git, "modules", Want::Look, Mounts::Cross) {
            let path = path.join("modules");
            let _ = held::walk(modules, Mounts::Cross, |directory, way| {
                // Once, however many repositories there are around it.
                if !identity(directory).is_some_and(|identity| self.done.insert(identity)) {
                    return Ok(Next::Past);
                }
                if looks_like_git(directory) && repository_around(directory).is_none() && !self.was_before(directory) {
                    self.settings(directory, &path.join(way));
                }
                Ok(Next::Below)
            });
        }
    }

    /// What git obeys of a git directory.
    fn settings(&mut self, git: &Held, path: &AbsPath) {
        self.programs(git, path);
        if kind(git, "commondir").is_some() {
            self.move_away(git, "commondir", &path.join("commondir"), "makes git obey the settings of another directory");
        }
        let at = path.join("worktrees");
        if kind(git, "worktrees") == Some(FileType::Symlink) {
            self.move_away(git, "worktrees", &at, "leads git somewhere else");
        }
        let Ok(worktrees) = held::enter(git, "worktrees", Want::Look, Mounts::Cross) else { return };
        for (name, kind) in held::entries(&worktrees).unwrap_or_default() {
            if kind == FileType::Symlink {
                self.move_away(&worktrees, &name, &at.join(&name), "leads git somewhere else");
            } else if let Ok(own) = held::enter(&worktrees, &name, Want::Look, Mounts::Cross) {
                self.worktree(&own, &at.join(&name));
            }
        }
    }

    /// A worktree's own directory.
    fn worktree(&mut self, own: &Held, path: &AbsPath) {
        // Also what counts only without a `commondir`: it may be gone tomorrow.
        self.programs(own, path);
        if kind(own, "commondir").is_some() && !is_two_up(own) {
            self.move_away(own, "commondir", &path.join("commondir"), "makes git obey the settings of another directory");
        }
    }

    fn programs(&mut self, git: &Held, path: &AbsPath) {
        self.hooks(git, path);
        for name in ["config", "config.worktree"] {
            self.config(git, name, &path.join(name));
        }
        self.todo(git, path);
    }

    fn hooks(&mut self, git: &Held, path: &AbsPath) {
        /// More than these go together.
        const FEW: usize = 64;
        let at = path.join("hooks");
        let reason = "git would run it on the host";
        match kind(git, "hooks") {
            None => return,
            Some(FileType::Directory) => {}
            Some(_) => return self.move_away(git, "hooks", &at, "stands for hooks elsewhere"),
        }
        let hooks = held::enter(git, "hooks", Want::Look, Mounts::Cross);
        let entries = hooks.as_ref().map_err(|error| *error).and_then(held::entries);
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
    fn config(&mut self, git: &Held, name: &str, path: &AbsPath) {
        match kind(git, name) {
            None => return,
            Some(FileType::RegularFile) => {}
            Some(_) => return self.move_away(git, name, path, "is not a plain file"),
        }
        let Ok(text) = held::read(git, name) else { return self.move_away(git, name, path, "cannot be read") };
        let filtered = config::filter(&text);
        if filtered.dropped.is_empty() {
            return;
        }
        let reason = format!("makes git run programs or read other settings: {}", listed(&filtered.dropped));
        self.replace(git, name, path, &filtered.kept, &reason);
    }

    /// Moves a file into quarantine and leaves what may stay of it.
    fn replace(&mut self, directory: &Held, name: &str, path: &AbsPath, kept: &[u8], reason: &str) {
        self.move_away(directory, name, path, reason);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(file) = held::change(directory, || rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))) {
            let _ = fs::File::from(file).write_all(kept);
        }
    }

    /// Moves an entry into quarantine. What cannot be kept is removed all the same.
    fn move_away(&mut self, directory: &Held, name: impl AsRef<Path>, path: &AbsPath, reason: &str) {
        let name = name.as_ref();
        let moved_to = match self.store.take(directory, name, path, self.roots) {
            Ok(place) => place.to_string_lossy().into_owned(),
            Err(_) if held::remove(directory, name).is_ok() => "nowhere: it could not be kept and was removed".into(),
            Err(_) => "nowhere: IT IS STILL THERE and could be neither moved nor removed".into(),
        };
        self.swept.moved.push(Quarantined { path: path.to_string_lossy().into_owned(), moved_to, reason: reason.into() });
    }
}

/// By what git goes by: where there is a `commondir`, the rest is elsewhere.
fn looks_like_git(directory: impl AsFd) -> bool {
    let has = |name: &str| kind(&directory, name).is_some();
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

/// The repository among whose worktrees' directories `directory` is.
fn repository_around(directory: &Held) -> Option<std::os::fd::OwnedFd> {
    let worktrees = held::around(directory).ok()?;
    let git = held::around(&worktrees).ok()?;
    let is_so = held::identity_at(&git, "worktrees") == identity(&worktrees) && looks_like_git(&git);
    is_so.then_some(git)
}

/// Whether a worktree's `commondir` says what git writes there: the repository around it.
fn is_two_up(own: &Held) -> bool {
    held::read(own, "commondir").is_ok_and(|text| pointer::without_line_end(&text) == b"../..")
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
