//! What holds right now: the policy, and what follows from it for the host as it is.
//!
//! The rules themselves are asked anew at each call, so a name that is denied is denied from the
//! moment it appears. What follows from other places of the host (another name of a denied file,
//! what a denied link leads to, programs that a git config names) takes a look through the
//! opened trees: the same survey that a sandbox is made from, which is remembered for a while.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_enforce::{FileKind, HardLinks, Overmount, PinReason, survey};
use ringfence_policy::builtin::{planted_at, pointer_at, setting_at, vendored_names};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Effect, Grants, Rule, Verdict};

use rustix::fs::FileType;
use rustix::time::{ClockId, clock_gettime};

use crate::opened_path::{OpenedPath, PathHandle};

/// What holds right now.
pub(crate) struct PolicySnapshot {
    /// With the rules that follow from the survey.
    grants: Grants,
    covers: BTreeMap<AbsPath, Overmount>,
    linked: HardLinks,
    /// Tops of repositories, in which settings that programs obey must not be made.
    trees: HashSet<AbsPath>,
    /// When the survey was begun, in seconds and nanoseconds of the clock that files have their
    /// times from.
    begun: (i64, i64),
    looked: Instant,
    took: Duration,
}

/// So long a survey is believed, or twenty times as long as it took: no more than a twentieth of
/// the time is spent on it.
const BELIEVED: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

impl PolicySnapshot {
    /// Looks at the host through the eyes of `grants`.
    pub(crate) fn survey(grants: &Grants) -> PolicySnapshot {
        let (begun, looked) = (clock_gettime(ClockId::RealtimeCoarse), Instant::now());
        let begun = (begun.tv_sec, begun.tv_nsec);
        let mut ground = PolicySnapshot {
            grants: grants.clone(),
            covers: BTreeMap::new(),
            linked: HardLinks::new(),
            trees: HashSet::new(),
            begun,
            looked,
            took: Duration::ZERO,
        };
        if grants.is_confined() {
            let found = survey(grants);
            ground.grants.rules.extend(found.rules);
            ground.grants.tracked.extend(found.tracked);
            ground.covers = found.covers;
            ground.linked = found.linked;
            ground.trees = found
                .guards
                .into_iter()
                .filter(|guard| guard.kind == PinReason::Tree)
                .map(|guard| guard.path)
                .collect();
        }
        ground.took = looked.elapsed();
        ground
    }

    /// Whether the look at the host is too old to be believed.
    pub(crate) fn is_stale(&self) -> bool {
        self.grants.is_confined() && self.looked.elapsed() > BELIEVED.max(self.took * SHARE)
    }

    /// Whether a file may have got another name since the look: that changes the time of the
    /// file itself.
    pub(crate) fn is_stale_for(&self, node: &PathHandle) -> bool {
        let changed = (node.status.st_ctime, i64::try_from(node.status.st_ctime_nsec).unwrap_or(0));
        self.grants.is_confined() && has_other_names(node) && changed >= self.begun
    }

    /// Whether a name may be seen at all: it is opened, or on the way to something that is.
    pub(crate) fn shows(&self, path: &AbsPath) -> bool {
        let is_open =
            matches!(self.grants.verdict(path, Access::Read), Verdict::Allowed | Verdict::ReadOnly);
        is_open || self.grants.rules.iter().any(|rule| rule.opens() && rule.root.is_within(path))
    }

    /// Decides about a place: by its path, and by which file stands there.
    pub(crate) fn decide_at(&self, place: &OpenedPath, wanted: Access) -> Decision {
        // What is written by way of a protected name is what that name stands for.
        let kept = |link: &AbsPath| Some(self.decide(link, wanted)).filter(is_kept);
        if wanted == Access::Write
            && let Some(decision) = place.links.iter().find_map(kept)
        {
            return decision;
        }
        let mut decision = self.decide(&place.path, wanted);
        let node = place
            .there
            .as_ref()
            .filter(|node| decision.verdict == Verdict::Allowed && has_other_names(node));
        let linked =
            node.and_then(|node| self.linked.get(&(node.status.st_ino, node.status.st_dev)));
        if let Some(verdict) = linked.and_then(|cover| verdict_of(*cover, wanted)) {
            (decision.verdict, decision.rule) = (verdict, None);
        }
        decision
    }

    /// Decides about a path without links.
    pub(crate) fn decide(&self, path: &AbsPath, wanted: Access) -> Decision {
        let mut decision = self.grants.decide(path, wanted);
        if decision.verdict != Verdict::Allowed {
            return decision;
        }
        let covered = |above: AbsPath| verdict_of(*self.covers.get(&above)?, wanted);
        // What somebody opened within something covered lies above the cover.
        let opened = match &decision.rule {
            Some(DecidingRule::Rule(rule)) => rule.root.clone(),
            _ => AbsPath::root(),
        };
        if let Some(verdict) =
            path.ancestors().take_while(|above| above.is_within(&opened)).find_map(covered)
        {
            (decision.verdict, decision.rule) = (verdict, None);
        }
        if wanted == Access::Write
            && decision.verdict == Verdict::Allowed
            && let Some(rule) = self.setting_of_tree(path, &opened)
        {
            (decision.verdict, decision.rule) = (Verdict::ReadOnly, Some(DecidingRule::Rule(rule)));
        }
        decision
    }

    /// The rule against making a setting, or something in it, at the top of a repository. A rule
    /// that opens it by name goes before.
    fn setting_of_tree(&self, path: &AbsPath, opened: &AbsPath) -> Option<Rule> {
        if let Some((pointer, names)) = pointer_at(path.as_path().iter().map(OsStr::as_bytes)) {
            let protects_below =
                |rule: &Rule| rule.effect == Effect::Protect && rule.root.is_within(path);
            let is_protected = |tree: &AbsPath| {
                self.trees.contains(tree) || self.grants.rules.iter().any(protects_below)
            };
            return path
                .ancestors()
                .nth(names)
                .filter(is_protected)
                .map(|tree| pointer.rule_in(&tree));
        }
        path.ancestors().take_while(|above| above != opened && above.is_within(opened)).find_map(
            |above| {
                let (setting, names) = setting_at(above.as_path().iter().map(OsStr::as_bytes))?;
                let tree = above.ancestors().nth(names).filter(|tree| self.trees.contains(tree))?;
                Some(setting.rule_in(&tree))
            },
        )
    }

    /// Whether a file at this path would make an agent or editor start programs. In vendored trees
    /// agents are not started, and a rule that opens such a setting by name is the user's word.
    pub(crate) fn is_planted(&self, path: &AbsPath) -> bool {
        let Some(opener) = self
            .grants
            .opener(path)
            .filter(|rule| rule.effect == Effect::Write && self.grants.is_confined())
        else {
            return false;
        };
        let is_vendored = |below: &Path| {
            below.iter().any(|name| vendored_names().any(|vendored| name == vendored))
        };
        if path.relative_to(&opener.root).is_some_and(is_vendored) {
            return false;
        }
        path.ancestors().any(|at| {
            let planted = planted_at(at.as_path().iter().map(OsStr::as_bytes));
            planted.is_some_and(|(_, names)| opener.root.depth() + names <= at.depth())
        })
    }

    /// What is denied and stands there.
    pub(crate) fn denied(&self) -> impl Iterator<Item = (&AbsPath, FileKind)> {
        let covered = self.covers.iter().filter_map(|(path, cover)| match cover {
            Overmount::Deny(kind) => Some((path, *kind)),
            Overmount::ReadOnly | Overmount::Shallow => None,
        });
        let ruled =
            self.grants.rules.iter().filter(|rule| {
                rule.effect == Effect::Deny && !self.covers.contains_key(&rule.root)
            });
        let there = ruled.filter_map(|rule| {
            let metadata = std::fs::symlink_metadata(rule.root.as_path()).ok()?;
            Some((&rule.root, if metadata.is_dir() { FileKind::Directory } else { FileKind::File }))
        });
        covered.chain(there)
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }
}

/// Whether something is protected by its name, rather than lying in a tree that is read-only.
fn is_kept(decision: &Decision) -> bool {
    match &decision.rule {
        Some(DecidingRule::Rule(rule)) => {
            decision.verdict == Verdict::ReadOnly && rule.effect == Effect::Protect
        }
        Some(DecidingRule::Pattern(_)) => decision.verdict == Verdict::ReadOnly,
        None => false,
    }
}

fn has_other_names(node: &PathHandle) -> bool {
    node.kind() == FileType::RegularFile && node.status.st_nlink > 1
}

fn verdict_of(cover: Overmount, wanted: Access) -> Option<Verdict> {
    match cover {
        Overmount::Deny(_) => Some(Verdict::Denied),
        Overmount::ReadOnly | Overmount::Shallow => {
            (wanted == Access::Write).then_some(Verdict::ReadOnly)
        }
    }
}
