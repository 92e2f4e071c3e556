//! A snapshot of the policy, and of its consequences for the host's files.
//!
//! The rules are evaluated at each call, so a denied name is denied as soon as it exists.
//! Consequences of other paths (another hard link of a denied file, the target of a denied link,
//! programs named in a git config) need a survey of the allowed trees. It is the same survey as for
//! a sandbox, and is cached for a while.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_plan::{FileKind, HardLinks, Overmount, PinReason};
use ringfence_policy::builtin::{planted_at, pointer_at, setting_at, vendored_names};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Effect, Grants, Rule, Verdict};
use ringfence_survey::survey;

use rustix::fs::FileType;
use rustix::time::{ClockId, clock_gettime};

use crate::opened_path::{OpenedPath, PathHandle};

/// The policy in force, with a survey of the host.
pub(crate) struct PolicySnapshot {
    /// The grants, with the rules from the survey.
    grants: Grants,
    masks: BTreeMap<AbsPath, Overmount>,
    linked: HardLinks,
    /// Roots of repositories, in which settings that programs obey must not be created.
    trees: HashSet<AbsPath>,
    /// The start of the survey by the clock of file times, in seconds and nanoseconds.
    begun: (i64, i64),
    surveyed_at: Instant,
    duration: Duration,
}

/// The lifetime of a survey: one second, or twenty times its duration, so that surveys take at most
/// 5 % of the time.
const MIN_LIFETIME: Duration = Duration::from_secs(1);
const LIFETIME_FACTOR: u32 = 20;

impl PolicySnapshot {
    /// Surveys the host under `grants`.
    pub(crate) fn survey(grants: &Grants) -> PolicySnapshot {
        let (begun, surveyed_at) = (clock_gettime(ClockId::RealtimeCoarse), Instant::now());
        let begun = (begun.tv_sec, begun.tv_nsec);
        let mut snapshot = PolicySnapshot {
            grants: grants.clone(),
            masks: BTreeMap::new(),
            linked: HardLinks::new(),
            trees: HashSet::new(),
            begun,
            surveyed_at,
            duration: Duration::ZERO,
        };
        if grants.is_confined() {
            let found = survey(grants);
            snapshot.grants.rules.extend(found.rules);
            snapshot.grants.tracked.extend(found.tracked);
            snapshot.masks = found.masks;
            snapshot.linked = found.linked;
            snapshot.trees = found
                .guards
                .into_iter()
                .filter(|guard| guard.kind == PinReason::Tree)
                .map(|guard| guard.path)
                .collect();
        }
        snapshot.duration = surveyed_at.elapsed();
        snapshot
    }

    /// True if the survey is too old.
    pub(crate) fn is_stale(&self) -> bool {
        self.grants.is_confined()
            && self.surveyed_at.elapsed() > MIN_LIFETIME.max(self.duration * LIFETIME_FACTOR)
    }

    /// True if a file may have a new hard link since the survey: that changes its ctime.
    pub(crate) fn is_stale_for(&self, node: &PathHandle) -> bool {
        let changed = (node.status.st_ctime, i64::try_from(node.status.st_ctime_nsec).unwrap_or(0));
        self.grants.is_confined() && has_other_names(node) && changed >= self.begun
    }

    /// True if a path is visible: it is allowed, or a parent of an allowed path.
    pub(crate) fn is_visible(&self, path: &AbsPath) -> bool {
        let is_open =
            matches!(self.grants.verdict(path, Access::Read), Verdict::Allowed | Verdict::ReadOnly);
        is_open || self.grants.rules.iter().any(|rule| rule.opens() && rule.root.is_within(path))
    }

    /// Decides about an opened path: by its path, and by the file there.
    pub(crate) fn decide_at(&self, place: &OpenedPath, wanted: Access) -> Decision {
        // A write through a protected link would change what that name means.
        let protected = |link: &AbsPath| Some(self.decide(link, wanted)).filter(is_protected_name);
        if wanted == Access::Write
            && let Some(decision) = place.links.iter().find_map(protected)
        {
            return decision;
        }
        let mut decision = self.decide(&place.path, wanted);
        let node = place
            .target
            .as_ref()
            .filter(|node| decision.verdict == Verdict::Allowed && has_other_names(node));
        let linked =
            node.and_then(|node| self.linked.get(&(node.status.st_ino, node.status.st_dev)));
        if let Some(verdict) = linked.and_then(|mask| verdict_of(*mask, wanted)) {
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
        let masked = |above: AbsPath| verdict_of(*self.masks.get(&above)?, wanted);
        // A path allowed inside a masked directory is mounted above the mask.
        let opened = match &decision.rule {
            Some(DecidingRule::Rule(rule)) => rule.root.clone(),
            _ => AbsPath::root(),
        };
        if let Some(verdict) =
            path.ancestors().take_while(|above| above.is_within(&opened)).find_map(masked)
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

    /// The rule against creating a setting, or a file in it, at the root of a repository. A rule
    /// that allows it by name wins.
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

    /// True if a file at this path would make an agent or editor start programs. Vendored trees are
    /// exempt, because agents are not started there, and so is a setting that the user allows by
    /// name.
    pub(crate) fn is_planted(&self, path: &AbsPath) -> bool {
        let Some(opener) = self
            .grants
            .opening_rule(path)
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

    /// The denied paths that exist.
    pub(crate) fn denied_paths(&self) -> impl Iterator<Item = (&AbsPath, FileKind)> {
        let masked = self.masks.iter().filter_map(|(path, mask)| match mask {
            Overmount::Deny(kind) => Some((path, *kind)),
            Overmount::ReadOnly | Overmount::Shallow => None,
        });
        let ruled = self
            .grants
            .rules
            .iter()
            .filter(|rule| rule.effect == Effect::Deny && !self.masks.contains_key(&rule.root));
        let target = ruled.filter_map(|rule| {
            let metadata = std::fs::symlink_metadata(rule.root.as_path()).ok()?;
            Some((&rule.root, if metadata.is_dir() { FileKind::Directory } else { FileKind::File }))
        });
        masked.chain(target)
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }
}

/// True if a path is protected by its name, not by a read-only tree.
fn is_protected_name(decision: &Decision) -> bool {
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

fn verdict_of(mask: Overmount, wanted: Access) -> Option<Verdict> {
    match mask {
        Overmount::Deny(_) => Some(Verdict::Denied),
        Overmount::ReadOnly | Overmount::Shallow => {
            (wanted == Access::Write).then_some(Verdict::ReadOnly)
        }
    }
}
