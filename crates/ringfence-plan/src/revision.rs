//! Steps to apply a changed policy to a live sandbox.
//!
//! The host is surveyed with both policies. Findings of both are not caused by the change: sockets
//! and repositories that commands created cancel out.

use std::collections::BTreeSet;

use ringfence_policy::{
    AbsPath, Access, ChangeDirection, ChangeKind, DecidingRule, Effect, Grants, PolicyChange, Rule,
    Source, Verdict,
};

use crate::plan::{FileKind, Overmount, Plan, Step};
use crate::survey::Survey;

/// A policy and its survey.
#[derive(Debug, Clone, Copy)]
pub struct PolicyView<'a> {
    /// The rules.
    pub grants: &'a Grants,
    /// The survey with these rules.
    pub survey: &'a Survey,
}

/// Steps to apply, and changes that cannot be applied live.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanRevision {
    /// Paths that become readable.
    pub open: Vec<RevisionStep<()>>,
    /// Paths that become denied or read-only.
    pub shut: Vec<RevisionStep<Overmount>>,
    /// Changes that cannot be applied while commands run.
    pub not_applicable: Vec<PolicyChange>,
}

/// One step, with the rule that causes it.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionStep<T> {
    /// The path.
    pub path: AbsPath,
    /// The effect.
    pub what: T,
    /// The change to report; `None` if it follows from another step.
    pub change: Option<PolicyChange>,
}

/// Steps from `old`, with its `plan`, to `new`.
pub fn revise(old: PolicyView<'_>, new: PolicyView<'_>, plan: &Plan) -> PlanRevision {
    let builder = RevisionBuilder { old, new };
    let mut revision = PlanRevision::default();
    builder.open(plan, &mut revision);
    builder.shut(plan, &mut revision);
    builder.unwritable(&mut revision);
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
        matches!(self.survey.masks.get(path), Some(Overmount::Deny(_)))
    }

    /// Granted roots, by their real path.
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
            old.survey.masks.keys().filter(|path| old.denies(path) && !new.denies(path));
        let opened: BTreeSet<&AbsPath> = new
            .roots()
            .map(|(_, real, _)| real)
            .filter(|real| !old.reads(real))
            .chain(uncovered)
            .filter(|path| new.reads(path))
            .collect();
        let mut above: Option<&AbsPath> = None;
        for path in opened {
            // Sorted by path: a path below a granted one needs no step.
            if above.is_some_and(|above| path.is_within(above)) {
                continue;
            }
            above = Some(path);
            let change = self.opening(path);
            match change {
                Some(change) if is_mounted_below(plan, path) => {
                    revision.not_applicable.push(change.pending(format!(
                        "a mount below {path} exists already and would be hidden"
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
                let change = PolicyChange::from_rule(
                    &DecidingRule::Rule(rule.clone()),
                    ChangeKind::Added,
                    ChangeDirection::Wider,
                );
                revision.not_applicable.push(change.pending("the path does not exist yet"));
            }
        }
    }

    fn shut(&self, plan: &Plan, revision: &mut PlanRevision) {
        let (old, new) = (&self.old, &self.new);
        let closed = old.roots().filter(|(_, real, _)| old.reads(real) && !new.reads(real));
        let closed = closed.map(|(_, real, kind)| (real.clone(), Overmount::Deny(kind)));
        let masked = new.survey.masks.iter().filter(|(path, mask)| match mask {
            // Without a rule of its own, it is another name of a denied file.
            Overmount::Deny(_) => !old.denies(path) && old.reads(path),
            Overmount::ReadOnly | Overmount::Shallow => {
                !old.survey.masks.contains_key(*path)
                    && old.grants.verdict(path, Access::Write) == Verdict::Allowed
            }
        });
        let mut all: Vec<(AbsPath, Overmount)> =
            masked.map(|(path, mask)| (path.clone(), *mask)).chain(closed).collect();
        all.sort();
        all.dedup_by(|one, other| one.0 == other.0);
        let mut above: Option<AbsPath> = None;
        for (path, mask) in all {
            if above.as_ref().is_some_and(|above| path.is_within(above)) {
                continue;
            }
            let change = self.shutting(&path, mask);
            if matches!(mask, Overmount::Deny(_)) {
                let is_needed =
                    |below: &AbsPath| below != &path && below.is_within(&path) && new.reads(below);
                if new.roots().any(|(_, real, _)| is_needed(real)) || mounted(plan).any(is_needed) {
                    let why = format!("a granted path below {path} would become unreachable");
                    revision.not_applicable.extend(change.map(|change| change.pending(why)));
                    continue;
                }
                above = Some(path.clone());
            }
            revision.shut.push(RevisionStep { path, what: mask, change });
        }
    }

    /// Trees that become read-only.
    fn unwritable(&self, revision: &mut PlanRevision) {
        let (old, new) = (&self.old, &self.new);
        for (rule, real, _) in old.roots() {
            let was = old.grants.verdict(real, Access::Write) == Verdict::Allowed;
            let is_masked = new.survey.masks.contains_key(real);
            if rule.effect != Effect::Read
                && was
                && !is_masked
                && new.grants.verdict(real, Access::Write) == Verdict::ReadOnly
            {
                let change = PolicyChange::from_rule(
                    &DecidingRule::Rule(rule.clone()),
                    ChangeKind::Removed,
                    ChangeDirection::Narrower,
                );
                revision.not_applicable.push(
                    change.pending("a writable tree cannot become read-only while commands use it"),
                );
            }
        }
    }

    /// The change that grants `path`: the rule that grants it, or the one that denied it.
    fn opening(&self, path: &AbsPath) -> Option<PolicyChange> {
        let opener = self.new.because(path).filter(|because| is_written(&because.origin().source));
        let was = self.old.because(path).filter(|_| !self.old.reads(path));
        match (opener, was) {
            (Some(opener), None) => {
                Some(PolicyChange::from_rule(&opener, ChangeKind::Added, ChangeDirection::Wider))
            }
            (Some(opener), Some(_))
                if self
                    .old
                    .grants
                    .rules
                    .iter()
                    .all(|rule| DecidingRule::Rule(rule.clone()) != opener) =>
            {
                Some(PolicyChange::from_rule(&opener, ChangeKind::Added, ChangeDirection::Wider))
            }
            (_, was) => was.map(|was| {
                PolicyChange::from_rule(&was, ChangeKind::Removed, ChangeDirection::Wider)
            }),
        }
    }

    fn shutting(&self, path: &AbsPath, mask: Overmount) -> Option<PolicyChange> {
        let wanted = if matches!(mask, Overmount::Deny(_)) { Access::Read } else { Access::Write };
        let decision = self.new.grants.decide(path, wanted);
        match (decision.verdict, decision.rule) {
            (Verdict::Denied | Verdict::ReadOnly, Some(rule)) => {
                Some(PolicyChange::from_rule(&rule, ChangeKind::Added, ChangeDirection::Narrower))
            }
            (Verdict::Absent, _) => self.old.because(path).map(|was| {
                PolicyChange::from_rule(&was, ChangeKind::Removed, ChangeDirection::Narrower)
            }),
            _ => None,
        }
    }
}

/// True for a rule that the user wrote, not a built-in one.
fn is_written(source: &Source) -> bool {
    matches!(
        source,
        Source::Managed | Source::User | Source::Project | Source::Flag | Source::Session
    )
}

fn is_mounted_below(plan: &Plan, path: &AbsPath) -> bool {
    mounted(plan).any(|below| below != path && below.is_within(path))
}

/// Paths with a mount of their own.
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
