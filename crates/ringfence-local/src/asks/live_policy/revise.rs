//! Another policy for a sandbox that runs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use ringfence_api::{Operation, whole};
use ringfence_enforce::apply::{LaunchError, MountGrant, PolicyReplacement, SandboxFds, support};
use ringfence_enforce::{
    FileKind, Known, MountAccess as Bound, Overmount, PinnedDir, Plan, PlanRevision, PolicyView,
    RememberedFiles, RevisionStep, SandboxUser, Step, Survey, plan, revision, survey_beside,
};
use ringfence_policy::{
    AbsPath, Access, ChangeDirection, ChangeKind, Effect, Grants, ListedHost, PolicyChange, Rule,
    Source, Verdict,
};
use ringfence_provider::ProviderError;

use super::{LivePolicy, ReadTarget, StillDenied};
use crate::watcher_thread::WatcherRestart;

/// So often a policy is taken over: each time leaves something in the sandbox's memory, and
/// perhaps a mount over a mount.
const OFTEN: usize = 500;

/// The policy that holds in a sandbox, and what was done for it.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    /// As it was given, without what people answered since.
    given: Arc<Grants>,
    person: SandboxUser,
    /// What is mounted.
    plan: Plan,
    /// What is covered.
    covers: BTreeMap<AbsPath, Overmount>,
    /// Covered for a policy that could not be taken over as a whole.
    ahead: Vec<AbsPath>,
    count: usize,
}

impl ActivePolicy {
    pub(crate) fn of(given: Arc<Grants>, person: SandboxUser) -> Self {
        Self {
            given,
            person,
            plan: Plan::default(),
            covers: BTreeMap::new(),
            ahead: Vec::new(),
            count: 0,
        }
    }

    /// The sandbox stands as `plan` says.
    pub(crate) fn by(&mut self, plan: &Plan) {
        self.plan = plan.clone();
        let covers = plan.steps.iter().filter_map(|step| match step {
            Step::Cover { path, cover } => Some((path.clone(), *cover)),
            _ => None,
        });
        self.covers = covers.collect();
    }

    /// What is protected by its path and may have appeared since, or have lost its cover to the
    /// host. The lookout covers it in time; but among it may be the very policy that is taken
    /// over, and that is not to be written by those it holds for. Git's are left to the lookout,
    /// which knows whose a repository is.
    fn protected(new: &SurveyedPolicy) -> Vec<RevisionStep<Overmount>> {
        let is_gits = |path: &AbsPath| path.as_path().iter().any(|name| name == ".git");
        let is_meant = |path: &AbsPath| {
            new.grants.rules.iter().any(|rule| rule.effect == Effect::Protect && rule.root == *path)
        };
        let covers = new.survey.covers.iter().filter(|(path, cover)| {
            !matches!(cover, Overmount::Deny(_)) && !is_gits(path) && is_meant(path)
        });
        covers
            .map(|(path, cover)| RevisionStep { path: path.clone(), what: *cover, change: None })
            .collect()
    }
}

/// A policy and the host as it looks to it.
struct SurveyedPolicy {
    grants: Grants,
    survey: Survey,
}

/// What people answered since a sandbox was made.
struct AnsweredGrants {
    rules: Vec<Rule>,
    hosts: Vec<ListedHost>,
}

impl AnsweredGrants {
    /// What of `now` is not in what was `given`.
    fn of(now: &Grants, given: &Grants) -> Self {
        let is_answer =
            |rule: &&Rule| rule.origin.source == Source::Session && !given.rules.contains(rule);
        let is_host = |host: &&ListedHost| {
            host.origin.source == Source::Session && !given.network.allow.contains(host)
        };
        let rules = now.rules.iter().filter(is_answer).cloned().collect();
        Self { rules, hosts: now.network.allow.iter().filter(is_host).cloned().collect() }
    }
}

impl SurveyedPolicy {
    /// `remembered` are the contents of tracked files by which the sandbox was planned.
    fn by(given: &Grants, answered: &AnsweredGrants, remembered: &RememberedFiles) -> Self {
        let mut grants = given.clone();
        grants.rules.extend(answered.rules.iter().cloned());
        if grants.network.locked.is_none() {
            grants.network.allow.extend(answered.hosts.iter().cloned());
        }
        let survey = survey_beside(&grants, &Known { remembered, ..Known::default() });
        grants.rules.extend(survey.rules.iter().cloned());
        grants.tracked.extend(survey.tracked.clone());
        Self { grants, survey }
    }

    fn view(&self) -> PolicyView<'_> {
        PolicyView { grants: &self.grants, survey: &self.survey }
    }

    fn reads(&self, path: &AbsPath) -> bool {
        self.grants.verdict(path, Access::Read) == Verdict::Allowed
    }
}

impl LivePolicy {
    /// Lets `given` hold in place of what held before. Answers what changed, and what is
    /// enforced by then.
    ///
    /// What is shut is shut first. If not all of it could be, nothing is opened: whoever reads
    /// the policy would not find what holds in it.
    pub(crate) fn revise(
        &self,
        standing: &mut ActivePolicy,
        given: &Grants,
    ) -> Result<(Vec<PolicyChange>, Plan), ProviderError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = self.inside().ok_or(ProviderError::Gone { what: "sandbox" })?;
        let answered = self.read(|grants| AnsweredGrants::of(grants, &standing.given));
        let known = self.read(|grants| {
            grants.tracked.files.iter().map(|(path, file)| (path.clone(), file.digest)).collect()
        });
        let (old, new) = (
            SurveyedPolicy::by(&standing.given, &answered, &known),
            SurveyedPolicy::by(given, &answered, &known),
        );
        let PlanRevision { mut open, mut shut, left } =
            revision(old.view(), new.view(), &standing.plan);
        shut.extend(ActivePolicy::protected(&new));
        let was_ahead = standing
            .ahead
            .iter()
            .filter(|path| new.reads(path) && open.iter().all(|act| !path.is_within(&act.path)));
        open.extend(
            was_ahead
                .map(|path| RevisionStep { path: path.clone(), what: (), change: None })
                .collect::<Vec<_>>(),
        );
        self.tell(&inside, standing, &new, &old.survey.guards, &open, &shut)?;
        let paths: Vec<AbsPath> = shut.iter().map(|act| act.path.clone()).collect();
        let mut changes = left;
        changes.extend(self.shut(&inside, shut));
        if changes.iter().any(PolicyChange::is_owed) {
            standing.ahead.extend(paths);
            let with_the_rest = open.into_iter().filter_map(|act| act.change);
            changes.extend(with_the_rest.map(|change| {
                change.pending("what is to be shut cannot be shut before, and that comes first")
            }));
        } else {
            standing.ahead.clear();
            standing.given = Arc::new(given.clone());
            changes.extend(
                open.into_iter().filter_map(|act| self.bring_in(&inside, standing, &new, act)),
            );
        }
        let mut enforced = plan(&new.grants, &new.survey, &support(), &standing.person);
        if !standing.plan.is_wired() {
            enforced.unwire();
        }
        *self.grants.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new.grants);
        let _ = self.renewal.get().map(WatcherRestart::wanted);
        Ok((told_once(changes), enforced))
    }

    /// Those who judge know of it before anything is done.
    fn tell(
        &self,
        inside: &SandboxFds,
        standing: &mut ActivePolicy,
        new: &SurveyedPolicy,
        guarded: &[PinnedDir],
        open: &[RevisionStep<()>],
        shut: &[RevisionStep<Overmount>],
    ) -> Result<(), ProviderError> {
        let failed =
            |source| ProviderError::System { what: "tell the sandbox of its new policy", source };
        standing.count += 1;
        if standing.count > OFTEN {
            return Err(failed(std::io::Error::other(
                "it was changed too often while the session runs",
            )));
        }
        standing.covers.retain(|path, _| open.iter().all(|act| !path.is_within(&act.path)));
        standing.covers.extend(shut.iter().map(|act| (act.path.clone(), act.what)));
        let covers = standing.covers.iter().map(|(path, cover)| (path.clone(), *cover)).collect();
        let revised = PolicyReplacement {
            grants: new.grants.clone(),
            trees: new.survey.walked.clone(),
            covers,
        };
        let guards =
            new.survey.guards.iter().filter(|guard| !guarded.contains(guard)).cloned().collect();
        inside.revise(revised, guards).map_err(failed)
    }

    fn shut(&self, inside: &SandboxFds, acts: Vec<RevisionStep<Overmount>>) -> Vec<PolicyChange> {
        if acts.is_empty() {
            return Vec::new();
        }
        let covers = self.nodes(acts.iter().map(|act| (act.path.clone(), act.what)).collect());
        let done = self.as_own(|begun| inside.shut(covers, begun));
        let why = |at: usize| match &done {
            Ok(holders) => holders
                .iter()
                .find(|holder| holder.covered == at)
                .map(|holder| holder.reason(&acts[at].path)),
            Err(error) => Some(whole(error)),
        };
        let pending: Vec<Option<String>> = (0..acts.len()).map(why).collect();
        let changes = acts.into_iter().zip(pending).filter_map(|(act, why)| {
            act.change.map(|change| PolicyChange { pending: why, ..change })
        });
        changes.chain(done.as_ref().err().map(not_covered)).collect()
    }

    fn bring_in(
        &self,
        inside: &SandboxFds,
        standing: &mut ActivePolicy,
        new: &SurveyedPolicy,
        act: RevisionStep<()>,
    ) -> Option<PolicyChange> {
        let RevisionStep { path, change, .. } = act;
        let is_written = new.grants.verdict(&path, Access::Write) == Verdict::Allowed;
        let brought = match ReadTarget::look(&path, Operation::Read) {
            None => Err("it is neither a file nor a directory that you can read".to_owned()),
            Some(target) => {
                let kind = target.kind;
                // In a directory that can be written, whatever git obeys would have to be looked
                // for.
                let access = if is_written && kind == FileKind::File {
                    Bound::ReadWrite
                } else {
                    Bound::ReadOnly
                };
                let covers = self.nodes(StillDenied::within(&target, &new.grants).covers);
                let delivery =
                    MountGrant { path: path.clone(), identity: target.identity, access, covers };
                self.bring(inside, kind, &delivery)
                    .map(|()| (kind, access))
                    .map_err(|error| whole(&error))
            }
        };
        let pending = match brought {
            Ok((kind, access)) => {
                standing.plan.steps.push(Step::Bind { path, access, kind });
                (is_written && access == Bound::ReadOnly)
                    .then(|| "by now it can be read; it can be written then".to_owned())
            }
            Err(why) => Some(why),
        };
        change.map(|change| PolicyChange { pending, ..change })
    }
}

/// Nobody knows what of it is covered.
fn not_covered(error: &LaunchError) -> PolicyChange {
    let change = PolicyChange {
        rule: "filesystem".into(),
        origin: None,
        turn: ChangeKind::Added,
        direction: ChangeDirection::Narrower,
        pending: None,
    };
    change.pending(whole(error))
}

/// One rule may shut many things: what stands in the way of one of them is said.
fn told_once(changes: Vec<PolicyChange>) -> Vec<PolicyChange> {
    let mut told: Vec<PolicyChange> = Vec::new();
    for change in changes {
        match told.iter_mut().find(|one| {
            (&one.rule, &one.origin, one.turn) == (&change.rule, &change.origin, change.turn)
        }) {
            Some(one) if one.pending.is_none() => one.pending = change.pending,
            Some(_) => {}
            None => told.push(change),
        }
    }
    told
}
