//! Repositories that the host creates or moves in while a command runs.
//!
//! The command's own repositories are its own, and the sweep checks them when the command has
//! ended. In all others the git protect rules apply from the moment the watcher sees them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use ringfence_plan::{Overmount, PinReason, Plan};
use ringfence_policy::{AbsPath, Grants};
use rustix::fs::CWD;

use super::masks::LiveMasker;
use crate::apply::{FileIdentity, PlanUpdate};
use crate::inode::InodeId;
use ringfence_survey as survey;

/// Subdirectories of a git directory in which each entry is another git directory.
const STORES: [&str; 2] = ["modules", "worktrees"];

pub(super) struct RepoTracker<'a> {
    grants: &'a Grants,
    /// The plan file, from which the notify handler reads new guards.
    plan: OwnedFd,
    /// Repositories that the user made: guarded from the start, or queried. Identified by birth
    /// time: the command could create and remove one, and the host's could get the same inode.
    foreign: RefCell<HashSet<FileIdentity>>,
    /// Repositories that a command made.
    own: RefCell<HashSet<FileIdentity>>,
    /// Guards already reported to the notify handler.
    guarded: HashSet<InodeId>,
    ruled: HashSet<AbsPath>,
    /// Directories in which a name could appear that git obeys, and their repositories.
    places: HashMap<AbsPath, AbsPath>,
}

impl<'a> RepoTracker<'a> {
    pub(super) fn new(grants: &'a Grants, steps: &Plan, plan: OwnedFd) -> Self {
        let guards: Vec<_> =
            steps.pinned_dirs().iter().filter(|guard| guard.kind == PinReason::Git).collect();
        // An entry in one of them is checked with the outermost git directory around it.
        let outermost = |path: &AbsPath| {
            guards
                .iter()
                .map(|guard| &guard.path)
                .filter(|above| path.is_within(above))
                .min_by_key(|above| above.depth())
        };
        let places = guards
            .iter()
            .filter_map(|guard| Some((guard.path.clone(), outermost(&guard.path)?.clone())))
            .collect();
        let foreign = guards
            .iter()
            .filter_map(|guard| FileIdentity::from_entry(CWD, guard.path.as_path()))
            .collect();
        let (foreign, own) = (RefCell::new(foreign), RefCell::default());
        Self { grants, plan, foreign, own, guarded: HashSet::new(), ruled: HashSet::new(), places }
    }

    /// The repository in which git would obey `name` in this directory.
    pub(super) fn repository_obeying(&self, directory: &AbsPath, name: &OsStr) -> Option<AbsPath> {
        let repository = self.places.get(directory)?;
        let is_obeyed =
            survey::OBEYED_BY_GIT.iter().any(|obeyed| name.eq_ignore_ascii_case(obeyed));
        // Every entry in these is a git directory.
        let holds_many =
            directory.as_path().strip_prefix(repository.as_path()).is_ok_and(|below| {
                let first = below.iter().next().unwrap_or_default();
                STORES.iter().any(|store| first == *store)
            });
        (is_obeyed || holds_many).then(|| repository.clone())
    }

    /// Directories to watch from the start.
    pub(super) fn watched(&self) -> Vec<AbsPath> {
        self.places.keys().cloned().collect()
    }

    /// Checks a repository that was found: a `.git`, or a bare repository. Returns the paths to
    /// mask and the directories to watch.
    pub(super) fn check_repository(
        &mut self,
        repository: &AbsPath,
        masker: &LiveMasker<'_>,
    ) -> io::Result<IncomingRepo> {
        let Some(itself) = FileIdentity::from_entry(CWD, repository.as_path())
            .filter(|identity| !self.foreign.borrow().contains(identity))
        else {
            return Ok(IncomingRepo::default());
        };
        let is_dot_git = repository.name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        // For a bare repository that the command just made, the `HEAD` is known.
        let head = if is_dot_git {
            None
        } else {
            FileIdentity::from_entry(CWD, repository.join("HEAD").as_path())
        };
        if self.is_own(itself, masker) || head.is_some_and(|head| masker.is_own(head)) {
            self.foreign.borrow_mut().remove(&itself);
            self.own.borrow_mut().insert(itself);
            return Ok(IncomingRepo::default());
        }
        // Checked each time it is found: its content may have changed.
        self.foreign.borrow_mut().remove(&itself);
        self.protect(repository, masker)
    }

    /// Checks a name that appeared in a git directory, and that git would obey there.
    pub(super) fn check_entry(
        &mut self,
        repository: &AbsPath,
        path: &AbsPath,
        masker: &LiveMasker<'_>,
    ) -> io::Result<IncomingRepo> {
        if !FileIdentity::from_entry(CWD, path.as_path())
            .is_some_and(|identity| self.is_own(identity, masker))
        {
            return self.protect(repository, masker);
        }
        let is_store = path.parent().as_ref() == Some(repository)
            && path.name().is_some_and(|name| STORES.iter().any(|store| name == *store));
        if !is_store {
            return Ok(IncomingRepo { is_own: true, ..IncomingRepo::default() });
        }
        // The command made the first worktree; the next one may be the user's.
        self.places.insert(path.clone(), repository.clone());
        Ok(IncomingRepo {
            watched: vec![path.clone()],
            rescan: Some(path.clone()),
            is_own: true,
            ..IncomingRepo::default()
        })
    }

    /// True if the command made this file.
    pub(super) fn is_own(&self, identity: FileIdentity, masker: &LiveMasker<'_>) -> bool {
        if self.own.borrow().contains(&identity) || self.foreign.borrow().contains(&identity) {
            return self.own.borrow().contains(&identity);
        }
        let is_own = masker.is_own(identity);
        let verdicts = if is_own { &self.own } else { &self.foreign };
        verdicts.borrow_mut().insert(identity);
        is_own
    }

    /// Collects the paths that git obeys in a repository from outside.
    fn protect(
        &mut self,
        repository: &AbsPath,
        masker: &LiveMasker<'_>,
    ) -> io::Result<IncomingRepo> {
        // The repository is the user's; a worktree in it may be the command's.
        let is_made = |path: &AbsPath| {
            path != repository
                && FileIdentity::from_entry(CWD, path.as_path())
                    .is_some_and(|identity| self.is_own(identity, masker))
        };
        let found = survey::survey_repository(self.grants, repository, &is_made);
        let own = [repository.clone(), repository.join("info")]
            .into_iter()
            .filter(|place| place.as_path().is_dir());
        let guarded = found
            .guards
            .iter()
            .filter(|guard| guard.kind == PinReason::Git)
            .map(|guard| guard.path.clone());
        let watched: Vec<AbsPath> =
            own.chain(guarded.filter(|place| place.is_within(repository))).collect();
        self.places.extend(watched.iter().map(|place| (place.clone(), repository.clone())));
        // Only new entries: otherwise the command could make the plan file grow without limit.
        let guards: Vec<_> = found
            .guards
            .into_iter()
            .filter(|guard| self.guarded.insert((guard.device, guard.inode)))
            .collect();
        let rules: Vec<_> =
            found.rules.into_iter().filter(|rule| self.ruled.insert(rule.root.clone())).collect();
        if !guards.is_empty() || !rules.is_empty() {
            PlanUpdate { guards, rules, revised: None }.append(&self.plan)?;
        }
        Ok(IncomingRepo {
            masks: found.masks.into_iter().collect(),
            watched,
            ..IncomingRepo::default()
        })
    }
}

/// Paths to mask and watch for a new repository.
#[derive(Default)]
pub(super) struct IncomingRepo {
    pub(super) masks: Vec<(AbsPath, Overmount)>,
    pub(super) watched: Vec<AbsPath>,
    /// A directory in which names may have appeared before it was watched.
    pub(super) rescan: Option<AbsPath>,
    /// True if the command made it: the sweep checks it, and the git protect patterns do not apply
    /// in it.
    pub(super) is_own: bool,
}
