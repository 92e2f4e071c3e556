//! Repositories that come in from outside while a command runs.
//!
//! The command's own are its own, and are looked through when it has ended; git's protects
//! hold in all others, from the moment they are seen.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use ringfence_policy::{AbsPath, Grants};
use rustix::fs::CWD;

use super::masks::LiveMasker;
use crate::apply::{Birth, PlanUpdate};
use crate::plan::{Overmount, PinReason, Plan};
use crate::survey;

type InodeId = (u64, u64);

/// Directories of a git directory in which each name is that of another one.
const STORES: [&str; 2] = ["modules", "worktrees"];

pub(super) struct RepoTracker<'a> {
    grants: &'a Grants,
    /// Where the usher finds what it is to guard.
    plan: OwnedFd,
    /// Those that the user is known to have made: guarded from the start, or asked about.
    /// Known by when they were made: the command could make one and take it away again, and
    /// the host's would come to lie in its place, with the same inode.
    foreign: RefCell<HashSet<Birth>>,
    /// Those that a command is known to have made.
    own: RefCell<HashSet<Birth>>,
    /// What the usher was told of.
    guarded: HashSet<InodeId>,
    ruled: HashSet<AbsPath>,
    /// Directories in which something could appear that git obeys, and of which repository.
    places: HashMap<AbsPath, AbsPath>,
}

impl<'a> RepoTracker<'a> {
    pub(super) fn new(grants: &'a Grants, steps: &Plan, plan: OwnedFd) -> Self {
        let guards: Vec<_> =
            steps.guards().iter().filter(|guard| guard.kind == PinReason::Git).collect();
        // What comes to lie in one of them is looked for with the outermost around it.
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
        let foreign =
            guards.iter().filter_map(|guard| Birth::of(CWD, guard.path.as_path())).collect();
        let (foreign, own) = (RefCell::new(foreign), RefCell::default());
        Self { grants, plan, foreign, own, guarded: HashSet::new(), ruled: HashSet::new(), places }
    }

    /// The repository of which git would obey `name` in this directory.
    pub(super) fn of(&self, directory: &AbsPath, name: &OsStr) -> Option<AbsPath> {
        let repository = self.places.get(directory)?;
        let is_obeyed =
            survey::OBEYED_BY_GIT.iter().any(|obeyed| name.eq_ignore_ascii_case(obeyed));
        // In these, every name is that of a git directory.
        let holds_many =
            directory.as_path().strip_prefix(repository.as_path()).is_ok_and(|below| {
                let first = below.iter().next().unwrap_or_default();
                STORES.iter().any(|store| first == *store)
            });
        (is_obeyed || holds_many).then(|| repository.clone())
    }

    /// Where to watch from the start.
    pub(super) fn watched(&self) -> Vec<AbsPath> {
        self.places.keys().cloned().collect()
    }

    /// Looks at a repository that was found: a `.git`, or a directory that is one. Answers
    /// what of it is to be covered, and where to watch for more.
    pub(super) fn found(
        &mut self,
        repository: &AbsPath,
        covers: &LiveMasker<'_>,
    ) -> io::Result<IncomingRepo> {
        let Some(itself) = Birth::of(CWD, repository.as_path())
            .filter(|birth| !self.foreign.borrow().contains(birth))
        else {
            return Ok(IncomingRepo::default());
        };
        let is_dot_git = repository.name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        // Of a bare repository that the command made just now, the `HEAD` is known.
        let head =
            if is_dot_git { None } else { Birth::of(CWD, repository.join("HEAD").as_path()) };
        if self.is_own(itself, covers) || head.is_some_and(|head| covers.is_own(head)) {
            self.foreign.borrow_mut().remove(&itself);
            self.own.borrow_mut().insert(itself);
            return Ok(IncomingRepo::default());
        }
        // Looked at again whenever it is found: what is in it may be others by then.
        self.foreign.borrow_mut().remove(&itself);
        self.protect(repository, covers)
    }

    /// Looks at a name that has appeared in a git directory, and that git would obey there.
    pub(super) fn entered(
        &mut self,
        repository: &AbsPath,
        path: &AbsPath,
        covers: &LiveMasker<'_>,
    ) -> io::Result<IncomingRepo> {
        if !Birth::of(CWD, path.as_path()).is_some_and(|birth| self.is_own(birth, covers)) {
            return self.protect(repository, covers);
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
            anew: Some(path.clone()),
            is_own: true,
            ..IncomingRepo::default()
        })
    }

    /// Answers whether a command made a name of git's.
    pub(super) fn is_own(&self, birth: Birth, covers: &LiveMasker<'_>) -> bool {
        if self.own.borrow().contains(&birth) || self.foreign.borrow().contains(&birth) {
            return self.own.borrow().contains(&birth);
        }
        let is_own = covers.is_own(birth);
        let asked = if is_own { &self.own } else { &self.foreign };
        asked.borrow_mut().insert(birth);
        is_own
    }

    /// What git obeys in a repository that came from outside.
    fn protect(
        &mut self,
        repository: &AbsPath,
        covers: &LiveMasker<'_>,
    ) -> io::Result<IncomingRepo> {
        // What was found is the user's; a worktree in it need not be.
        let is_made = |path: &AbsPath| {
            path != repository
                && Birth::of(CWD, path.as_path()).is_some_and(|birth| self.is_own(birth, covers))
        };
        let found = survey::repository(self.grants, repository, &is_made);
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
        // Only what is new: the command could have it said again and again.
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
            covers: found.covers.into_iter().collect(),
            watched,
            ..IncomingRepo::default()
        })
    }
}

/// What has come in with a repository.
#[derive(Default)]
pub(super) struct IncomingRepo {
    pub(super) covers: Vec<(AbsPath, Overmount)>,
    pub(super) watched: Vec<AbsPath>,
    /// A directory whose names may have appeared before it was watched.
    pub(super) anew: Option<AbsPath>,
    /// The command made it: the sweep looks through it, and no pattern of git's holds in it.
    pub(super) is_own: bool,
}
