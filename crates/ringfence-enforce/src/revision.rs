//! What is to be done in a sandbox that stands, for another policy to hold there.
//!
//! The host is looked at through the eyes of both policies. What both find is not the
//! policy's doing, however new it is: sockets and repositories that commands made cancel out.

use std::collections::BTreeSet;

use ringfence_policy::{
    AbsPath, Access, ChangeDirection, ChangeKind, DecidingRule, Effect, Grants, PolicyChange, Rule,
    Source, Verdict,
};

use crate::plan::{FileKind, Overmount, Plan, Step};
use crate::survey::Survey;

/// A policy, and what of it stands on the host.
#[derive(Debug, Clone, Copy)]
pub struct PolicyView<'a> {
    /// The rules.
    pub grants: &'a Grants,
    /// What was found by them.
    pub survey: &'a Survey,
}

/// What is to be done, and what cannot be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanRevision {
    /// What can be read from now on.
    pub open: Vec<RevisionStep<()>>,
    /// What can be opened no longer, or written no longer.
    pub shut: Vec<RevisionStep<Overmount>>,
    /// What cannot be done while things run.
    pub left: Vec<PolicyChange>,
}

/// Something that is to be done somewhere, and by which rule.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionStep<T> {
    /// Where.
    pub path: AbsPath,
    /// What.
    pub what: T,
    /// What is said of it; nothing of what follows from something else.
    pub change: Option<PolicyChange>,
}

/// From `old`, by which `plan` was made, to `new`.
pub fn revision(old: PolicyView<'_>, new: PolicyView<'_>, plan: &Plan) -> PlanRevision {
    let turning = RevisionBuilder { old, new };
    let mut revision = PlanRevision::default();
    turning.open(plan, &mut revision);
    turning.shut(plan, &mut revision);
    turning.unwritable(&mut revision);
    revision
}

struct RevisionBuilder<'a> {
    old: PolicyView<'a>,
    new: PolicyView<'a>,
}

impl<'a> PolicyView<'a> {
    fn reads(&self, path: &AbsPath) -> bool {
        self.grants.verdict(path, Access::Read) == Verdict::Allowed
    }

    fn denies(&self, path: &AbsPath) -> bool {
        matches!(self.survey.covers.get(path), Some(Overmount::Deny(_)))
    }

    /// What is opened as such, by its real path.
    fn roots(&self) -> impl Iterator<Item = (&'a Rule, &'a AbsPath, FileKind)> {
        let survey = self.survey;
        let rules = self.grants.rules.iter().filter(|rule| rule.opens());
        rules.filter_map(|rule| {
            survey.found.get(&rule.root).map(|found| (rule, &found.real, found.kind))
        })
    }

    fn because(&self, path: &AbsPath) -> Option<DecidingRule> {
        self.grants.decide(path, Access::Read).rule
    }
}

impl RevisionBuilder<'_> {
    fn open(&self, plan: &Plan, revision: &mut PlanRevision) {
        let (old, new) = (&self.old, &self.new);
        let uncovered =
            old.survey.covers.keys().filter(|path| old.denies(path) && !new.denies(path));
        let opened: BTreeSet<&AbsPath> = new
            .roots()
            .map(|(_, real, _)| real)
            .filter(|real| !old.reads(real))
            .chain(uncovered)
            .filter(|path| new.reads(path))
            .collect();
        let mut above: Option<&AbsPath> = None;
        for path in opened {
            // Sorted by path: what lies below something that is opened comes along with it.
            if above.is_some_and(|above| path.is_within(above)) {
                continue;
            }
            above = Some(path);
            let change = self.opening(path);
            match change {
                Some(change) if is_mounted_below(plan, path) => {
                    revision.left.push(change.pending(format!(
                        "something below {path} is there already, and would be hidden"
                    )));
                }
                change => revision.open.push(RevisionStep { path: path.clone(), what: (), change }),
            }
        }
        for rule in
            new.grants.rules.iter().filter(|rule| rule.opens() && is_written(&rule.origin.source))
        {
            let is_there = new.survey.found.contains_key(&rule.root);
            if !is_there && !old.reads(&rule.root) && new.reads(&rule.root) {
                let change = PolicyChange::of(
                    &DecidingRule::Rule(rule.clone()),
                    ChangeKind::Added,
                    ChangeDirection::Wider,
                );
                revision.left.push(change.pending("nothing is there yet"));
            }
        }
    }

    fn shut(&self, plan: &Plan, revision: &mut PlanRevision) {
        let (old, new) = (&self.old, &self.new);
        let closed = old.roots().filter(|(_, real, _)| old.reads(real) && !new.reads(real));
        let closed = closed.map(|(_, real, kind)| (real.clone(), Overmount::Deny(kind)));
        let covered = new.survey.covers.iter().filter(|(path, cover)| match cover {
            // By a name that nothing denies, it is another name of something that is.
            Overmount::Deny(_) => !old.denies(path) && old.reads(path),
            Overmount::ReadOnly | Overmount::Shallow => {
                !old.survey.covers.contains_key(*path)
                    && old.grants.verdict(path, Access::Write) == Verdict::Allowed
            }
        });
        let mut all: Vec<(AbsPath, Overmount)> =
            covered.map(|(path, cover)| (path.clone(), *cover)).chain(closed).collect();
        all.sort();
        all.dedup_by(|one, other| one.0 == other.0);
        let mut above: Option<AbsPath> = None;
        for (path, cover) in all {
            if above.as_ref().is_some_and(|above| path.is_within(above)) {
                continue;
            }
            let change = self.shutting(&path, cover);
            if matches!(cover, Overmount::Deny(_)) {
                let is_needed =
                    |below: &AbsPath| below != &path && below.is_within(&path) && new.reads(below);
                if new.roots().any(|(_, real, _)| is_needed(real)) || mounted(plan).any(is_needed) {
                    let why =
                        format!("something below {path} stays open, and cannot be reached past it");
                    revision.left.extend(change.map(|change| change.pending(why)));
                    continue;
                }
                above = Some(path.clone());
            }
            revision.shut.push(RevisionStep { path, what: cover, change });
        }
    }

    /// Trees that are to be readable only.
    fn unwritable(&self, revision: &mut PlanRevision) {
        let (old, new) = (&self.old, &self.new);
        for (rule, real, _) in old.roots() {
            let was = old.grants.verdict(real, Access::Write) == Verdict::Allowed;
            let is_covered = new.survey.covers.contains_key(real);
            if rule.effect != Effect::Read
                && was
                && !is_covered
                && new.grants.verdict(real, Access::Write) == Verdict::ReadOnly
            {
                let change = PolicyChange::of(
                    &DecidingRule::Rule(rule.clone()),
                    ChangeKind::Removed,
                    ChangeDirection::Narrower,
                );
                revision.left.push(change.pending(
                    "what is open for writing cannot be made read-only under those who use it",
                ));
            }
        }
    }

    /// What is said of opening `path`: the rule that opens it, or the one that shut it.
    fn opening(&self, path: &AbsPath) -> Option<PolicyChange> {
        let opener = self.new.because(path).filter(|because| is_written(&because.origin().source));
        let was = self.old.because(path).filter(|_| !self.old.reads(path));
        match (opener, was) {
            (Some(opener), None) => {
                Some(PolicyChange::of(&opener, ChangeKind::Added, ChangeDirection::Wider))
            }
            (Some(opener), Some(_))
                if self
                    .old
                    .grants
                    .rules
                    .iter()
                    .all(|rule| DecidingRule::Rule(rule.clone()) != opener) =>
            {
                Some(PolicyChange::of(&opener, ChangeKind::Added, ChangeDirection::Wider))
            }
            (_, was) => {
                was.map(|was| PolicyChange::of(&was, ChangeKind::Removed, ChangeDirection::Wider))
            }
        }
    }

    fn shutting(&self, path: &AbsPath, cover: Overmount) -> Option<PolicyChange> {
        let wanted = if matches!(cover, Overmount::Deny(_)) { Access::Read } else { Access::Write };
        let decision = self.new.grants.decide(path, wanted);
        match (decision.verdict, decision.rule) {
            (Verdict::Denied | Verdict::ReadOnly, Some(rule)) => {
                Some(PolicyChange::of(&rule, ChangeKind::Added, ChangeDirection::Narrower))
            }
            (Verdict::Absent, _) => self
                .old
                .because(path)
                .map(|was| PolicyChange::of(&was, ChangeKind::Removed, ChangeDirection::Narrower)),
            _ => None,
        }
    }
}

/// Whether somebody wrote the rule down, or said so.
fn is_written(source: &Source) -> bool {
    matches!(
        source,
        Source::Managed | Source::User | Source::Project | Source::Flag | Source::Session
    )
}

fn is_mounted_below(plan: &Plan, path: &AbsPath) -> bool {
    mounted(plan).any(|below| below != path && below.is_within(path))
}

/// What stands in the sandbox by itself.
fn mounted(plan: &Plan) -> impl Iterator<Item = &AbsPath> {
    plan.steps.iter().filter_map(|step| match step {
        Step::Bind { path, .. }
        | Step::Private { path, .. }
        | Step::Scratch { path }
        | Step::File { path, .. }
        | Step::Symlink { path, .. }
        | Step::Directory { path } => Some(path),
        _ => None,
    })
}
