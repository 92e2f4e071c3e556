//! Policy replacement in a running sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::apply::{LaunchError, MountGrant, PolicyReplacement, SandboxFds, support};
use crate::launcher::system_step::SystemStep;
use crate::locks::{lock, write_lock};
use ringfence_api::{HostFacts, Operation, error_chain};
use ringfence_plan::linux::plan;
use ringfence_plan::{
    FileKind, MountAccess as Bound, Overmount, PinnedDir, Plan, PlanRevision, PolicyView,
    RevisionStep, Step, Survey, revise,
};
use ringfence_policy::{
    AbsPath, Access, ChangeDirection, ChangeKind, Effect, Grants, ListedHost, PolicyChange, Rule,
    Source, Verdict,
};
use ringfence_provider::ProviderError;
use ringfence_survey::{Known, RememberedFiles, survey_with_known};

use super::{LivePolicy, ReadTarget, StillDenied};
use crate::launcher::watcher_thread::WatcherRestart;

/// Most policy replacements per sandbox: each one leaves data in the supervisor's memory, and
/// perhaps a stacked mount.
const MAX_REVISIONS: usize = 500;

/// The policy in force in a sandbox, and the mounts made for it.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    /// The policy as given, without the user's answers since.
    given: Arc<Grants>,
    user: HostFacts,
    /// Mounts of the sandbox.
    plan: Plan,
    /// Masked paths.
    masks: BTreeMap<AbsPath, Overmount>,
    /// Paths masked for a policy that could not be applied as a whole.
    masked_early: Vec<AbsPath>,
    count: usize,
}

impl ActivePolicy {
    pub(crate) fn new(given: Arc<Grants>, user: HostFacts) -> Self {
        Self {
            given,
            user,
            plan: Plan::default(),
            masks: BTreeMap::new(),
            masked_early: Vec::new(),
            count: 0,
        }
    }

    /// Sets the plan that the sandbox was built from.
    pub(crate) fn set_plan(&mut self, plan: &Plan) {
        self.plan = plan.clone();
        let masks = plan.steps.iter().filter_map(|step| match step {
            Step::Mask { path, mask } => Some((path.clone(), *mask)),
            _ => None,
        });
        self.masks = masks.collect();
    }

    /// Masks for protected paths that may have appeared since, or whose mask the host removed. The
    /// watcher masks them in time too, but one of them may be the policy file that is being
    /// applied, and the commands it restricts must not write it. Paths of git are left to the
    /// watcher, which knows which repositories the commands created.
    fn protective_masks(new: &SurveyedPolicy) -> Vec<RevisionStep<Overmount>> {
        let is_git_path = |path: &AbsPath| path.as_path().iter().any(|name| name == ".git");
        let is_protected = |path: &AbsPath| {
            new.grants.rules.iter().any(|rule| rule.effect == Effect::Protect && rule.root == *path)
        };
        let masks = new.survey.masks.iter().filter(|(path, mask)| {
            !matches!(mask, Overmount::Deny(_)) && !is_git_path(path) && is_protected(path)
        });
        masks
            .map(|(path, mask)| RevisionStep { path: path.clone(), what: *mask, change: None })
            .collect()
    }
}

/// A policy, and the survey of the host for it.
struct SurveyedPolicy {
    grants: Grants,
    survey: Survey,
}

/// Grants that the user answered since the sandbox was built.
struct AnsweredGrants {
    rules: Vec<Rule>,
    hosts: Vec<ListedHost>,
}

impl AnsweredGrants {
    /// The session grants of `now` that `given` does not have.
    fn new(now: &Grants, given: &Grants) -> Self {
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
    /// `remembered`: the contents of tracked files by which the sandbox was planned.
    fn new(given: &Grants, answered: &AnsweredGrants, remembered: &RememberedFiles) -> Self {
        let mut grants = given.clone();
        grants.rules.extend(answered.rules.iter().cloned());
        if grants.network.locked.is_none() {
            grants.network.allow.extend(answered.hosts.iter().cloned());
        }
        let survey = survey_with_known(&grants, &Known { remembered, ..Known::default() });
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
    /// Replaces the policy in force by `given`. Returns the changes, and the plan that is then
    /// enforced.
    ///
    /// Narrowing comes first. If one narrowing stays pending, nothing is opened: the sandbox would
    /// match neither policy.
    pub(crate) fn revise(
        &self,
        active: &mut ActivePolicy,
        given: &Grants,
    ) -> Result<(Vec<PolicyChange>, Plan), ProviderError> {
        let _turn = lock(&self.turn);
        let fds = self.fds().ok_or(ProviderError::Gone { what: "sandbox" })?;
        let answered = self.read(|grants| AnsweredGrants::new(grants, &active.given));
        let known = self.read(|grants| {
            grants.tracked.files.iter().map(|(path, file)| (path.clone(), file.digest)).collect()
        });
        let (old, new) = (
            SurveyedPolicy::new(&active.given, &answered, &known),
            SurveyedPolicy::new(given, &answered, &known),
        );
        let PlanRevision { mut open, mut shut, not_applicable: left } =
            revise(old.view(), new.view(), &active.plan);
        shut.extend(ActivePolicy::protective_masks(&new));
        let no_longer_masked = active
            .masked_early
            .iter()
            .filter(|path| new.reads(path) && open.iter().all(|act| !path.is_within(&act.path)));
        open.extend(
            no_longer_masked
                .map(|path| RevisionStep { path: path.clone(), what: (), change: None })
                .collect::<Vec<_>>(),
        );
        self.send_rules(&fds, active, &new, &old.survey.guards, &open, &shut)?;
        let paths: Vec<AbsPath> = shut.iter().map(|act| act.path.clone()).collect();
        let mut changes = left;
        changes.extend(self.shut(&fds, shut));
        if changes.iter().any(PolicyChange::is_pending_narrowing) {
            active.masked_early.extend(paths);
            let held_back = open.into_iter().filter_map(|act| act.change);
            changes.extend(held_back.map(|change| {
                change.pending("a narrowing of the same edit is pending and comes first")
            }));
        } else {
            active.masked_early.clear();
            active.given = Arc::new(given.clone());
            changes
                .extend(open.into_iter().filter_map(|act| self.bring_in(&fds, active, &new, act)));
        }
        let mut enforced = plan(&new.grants, &new.survey, &support(), &active.user);
        if !active.plan.has_tripwire() {
            enforced.replace_tripwire_by_gap();
        }
        *write_lock(&self.grants) = Arc::new(new.grants);
        let _ = self.renewal.get().map(WatcherRestart::request);
        Ok((merge_by_rule(changes), enforced))
    }

    /// Sends the rules to the notify handler before any mount changes.
    fn send_rules(
        &self,
        fds: &SandboxFds,
        active: &mut ActivePolicy,
        new: &SurveyedPolicy,
        guarded: &[PinnedDir],
        open: &[RevisionStep<()>],
        shut: &[RevisionStep<Overmount>],
    ) -> Result<(), ProviderError> {
        let what = "send the new policy to the sandbox";
        active.count += 1;
        if active.count > MAX_REVISIONS {
            let why = "the policy changed too often in this session";
            return Err(std::io::Error::other(why)).during(what);
        }
        active.masks.retain(|path, _| open.iter().all(|act| !path.is_within(&act.path)));
        active.masks.extend(shut.iter().map(|act| (act.path.clone(), act.what)));
        let masks = active.masks.iter().map(|(path, mask)| (path.clone(), *mask)).collect();
        let revised = PolicyReplacement {
            grants: new.grants.clone(),
            trees: new.survey.walked.clone(),
            masks,
        };
        let guards =
            new.survey.guards.iter().filter(|guard| !guarded.contains(guard)).cloned().collect();
        fds.replace_policy(revised, guards).during(what)
    }

    fn shut(&self, fds: &SandboxFds, acts: Vec<RevisionStep<Overmount>>) -> Vec<PolicyChange> {
        if acts.is_empty() {
            return Vec::new();
        }
        let masks = self.mask_nodes(acts.iter().map(|act| (act.path.clone(), act.what)).collect());
        let done = self.with_own_pid(|begun| fds.mask_paths(masks, begun));
        let why = |at: usize| match &done {
            Ok(holders) => holders
                .iter()
                .find(|holder| holder.masked == at)
                .map(|holder| holder.reason(&acts[at].path)),
            Err(error) => Some(error_chain(error)),
        };
        let pending: Vec<Option<String>> = (0..acts.len()).map(why).collect();
        let changes = acts.into_iter().zip(pending).filter_map(|(act, why)| {
            act.change.map(|change| PolicyChange { pending: why, ..change })
        });
        changes.chain(done.as_ref().err().map(not_covered)).collect()
    }

    fn bring_in(
        &self,
        fds: &SandboxFds,
        active: &mut ActivePolicy,
        new: &SurveyedPolicy,
        act: RevisionStep<()>,
    ) -> Option<PolicyChange> {
        let RevisionStep { path, change, .. } = act;
        let is_written = new.grants.verdict(&path, Access::Write) == Verdict::Allowed;
        let brought = match ReadTarget::find(&path, Operation::Read) {
            None => Err("it is not a file or directory that you can read".to_owned()),
            Some(target) => {
                let kind = target.kind;
                // A writable directory would need a scan for files that git obeys.
                let access = if is_written && kind == FileKind::File {
                    Bound::ReadWrite
                } else {
                    Bound::ReadOnly
                };
                let masks = self.mask_nodes(StillDenied::within(&target, &new.grants).masks);
                let delivery =
                    MountGrant { path: path.clone(), identity: target.identity, access, masks };
                self.mount_in_sandbox(fds, kind, &delivery)
                    .map(|()| (kind, access))
                    .map_err(|error| error_chain(&error))
            }
        };
        let pending = match brought {
            Ok((kind, access)) => {
                active.plan.steps.push(Step::Bind { path, access, kind });
                (is_written && access == Bound::ReadOnly)
                    .then(|| "it can be read now; writing has to wait".to_owned())
            }
            Err(why) => Some(why),
        };
        change.map(|change| PolicyChange { pending, ..change })
    }
}

/// Reports a mask batch that failed as a whole: the masked paths are unknown.
fn not_covered(error: &LaunchError) -> PolicyChange {
    let change = PolicyChange {
        rule: "filesystem".into(),
        origin: None,
        turn: ChangeKind::Added,
        direction: ChangeDirection::Narrower,
        pending: None,
    };
    change.pending(error_chain(error))
}

/// Merges the changes of one rule, and keeps one reason why it is pending.
fn merge_by_rule(changes: Vec<PolicyChange>) -> Vec<PolicyChange> {
    let mut merged: Vec<PolicyChange> = Vec::new();
    for change in changes {
        match merged.iter_mut().find(|one| {
            (&one.rule, &one.origin, one.turn) == (&change.rule, &change.origin, change.turn)
        }) {
            Some(one) if one.pending.is_none() => one.pending = change.pending,
            Some(_) => {}
            None => merged.push(change),
        }
    }
    merged
}
