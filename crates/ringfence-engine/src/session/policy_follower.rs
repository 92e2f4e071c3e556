//! The policy files of a session, followed while it runs.
//!
//! Whether a file was changed is seen by looking at it: before every command, and whenever a
//! door thinks of it. What is read is not believed if a command of the session could have
//! written it.

use std::ffi::OsString;
use std::fs;
use std::sync::Arc;

use ringfence_api::{Gap, whole};
use ringfence_audit::{AuditLog, LogOptions, Record, RecordSubject, now_ms};
use ringfence_policy::{
    AbsPath, Access, ChangeDirection, ChangeKind, PolicyChange, Verdict, revise,
};
use ringfence_provider::{ProviderError, Sandbox};

use crate::asking::SessionGrants;
use crate::permanent_grant::GrantTarget;
use crate::policy_cache::{FileStamp, stamps};
use crate::recorder::policy_digest;
use crate::{
    EngineError, ResolvedPolicy, RunRequest, accept, fail_fast, files, tool_directories, variables,
};

/// Reads the policy anew, for the surroundings that the session began in.
pub type PolicyResolver =
    dyn Fn(&ResolvedPolicy) -> Result<ResolvedPolicy, EngineError> + Send + Sync;

/// What there is to tell of policy files that were changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyNews {
    /// Rules that came or went, and whether that is in force.
    pub changes: Vec<PolicyChange>,
    /// Why the policy stays as it was.
    pub problems: Vec<PolicyProblem>,
}

/// A policy that was changed and cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// A stable word for it.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
    /// What to type next.
    pub hint: Option<String>,
}

/// The policy of a session, and where it comes from.
pub(super) struct PolicyFollower {
    resolve: Box<PolicyResolver>,
    seen: Vec<(AbsPath, FileStamp)>,
    /// The newest that could be read.
    pub(super) newest: Arc<ResolvedPolicy>,
    /// What holds.
    pub(super) holding: Arc<ResolvedPolicy>,
    /// What takes effect with a new session.
    pub(super) pending: Vec<PolicyChange>,
    /// Gaps that the policy does not accept.
    refusing: Vec<Gap>,
    /// Why the newest files are not followed.
    pub(super) problem: Option<PolicyProblem>,
    news: PolicyNews,
    /// What was asked for in so many words and allowed for the session, whatever the files say.
    requested: SessionGrants,
}

impl PolicyFollower {
    pub(super) fn new(
        asked: &RunRequest,
        resolved: ResolvedPolicy,
        resolve: Box<PolicyResolver>,
    ) -> Self {
        let resolved = Arc::new(resolved);
        let seen = stamps(&asked.files, &resolved);
        let (newest, holding) = (resolved.clone(), resolved);
        Self {
            resolve,
            seen,
            newest,
            holding,
            pending: Vec::new(),
            refusing: Vec::new(),
            problem: None,
            news: PolicyNews::default(),
            requested: SessionGrants::default(),
        }
    }

    /// What there is to tell, once.
    pub(super) fn news(&mut self) -> PolicyNews {
        std::mem::take(&mut self.news)
    }

    /// Whether something may be begun.
    pub(super) fn permits(&self, session: &str) -> Result<(), EngineError> {
        let owed: Vec<PolicyChange> =
            self.pending.iter().filter(|change| change.is_owed()).cloned().collect();
        if !owed.is_empty() {
            return Err(EngineError::Narrowed { session: session.to_owned(), changes: owed });
        }
        accept(&self.refusing, self.holding.grants.on_gap)
    }

    /// There is no sandbox: the next one is made for the newest policy.
    pub(super) fn begin_anew(&mut self) {
        self.holding = self.newest.clone();
        self.pending.clear();
        self.refusing.clear();
    }

    /// Looks whether a file was changed, and if so lets `standing` follow. Answers what is
    /// enforced by then, if that is anything else.
    pub(super) fn look(
        &mut self,
        asked: &RunRequest,
        standing: Option<&dyn Sandbox>,
    ) -> Option<ringfence_enforce::Plan> {
        let seen = stamps(&asked.files, &self.newest);
        if seen == self.seen {
            return None;
        }
        let changed: Vec<AbsPath> = differing(&self.seen, &seen);
        self.seen = seen;
        self.problem = None;
        match self.read(&changed) {
            Ok(new) => self.take(asked, Arc::new(new), standing, &changed),
            Err(problem) => {
                self.record(asked, &changed, Err(&problem.message));
                self.problem = Some(problem.clone());
                self.news.problems.push(problem);
                None
            }
        }
    }

    fn read(&self, changed: &[AbsPath]) -> Result<ResolvedPolicy, PolicyProblem> {
        if let Some(file) = changed.iter().find(|file| self.could_be_a_commands(file)) {
            return Err(PolicyProblem {
                code: "policy-writable",
                message: format!(
                    "{file} was changed, and commands of this session could have done that: it is not followed"
                ),
                hint: Some("look at it, and start another session".into()),
            });
        }
        let read = (self.resolve)(&self.newest);
        let read = read.map_err(|error| PolicyProblem {
            code: error.code(),
            message: whole(&error),
            hint: error.hint(),
        })?;
        Ok(self.requested.on(&read))
    }

    /// Opens something for as long as the session lives, and lets `standing` follow as it would a
    /// file.
    pub(super) fn open(
        &mut self,
        asked: &RunRequest,
        opening: GrantTarget,
        standing: Option<&dyn Sandbox>,
    ) -> Option<ringfence_enforce::Plan> {
        let one = SessionGrants::of(opening.clone());
        self.requested.add(opening);
        let new = Arc::new(one.on(&self.newest));
        self.take(asked, new, standing, &[])
    }

    /// Whether a command may write the file, or change where its name leads.
    fn could_be_a_commands(&self, file: &AbsPath) -> bool {
        let mut ways = vec![file.clone()];
        while let Some(last) = ways.last().cloned().filter(|_| ways.len() < 40) {
            let Ok(target) = fs::read_link(last.as_path()) else { break };
            ways.push(last.parent().unwrap_or_else(AbsPath::root).join(target));
        }
        let real = |way: &AbsPath| {
            let above = fs::canonicalize(way.parent()?.as_path()).ok().and_then(AbsPath::new)?;
            Some(above.join(way.name()?))
        };
        let grants = &self.holding.grants;
        let is_writable = |path: &AbsPath| grants.verdict(path, Access::Write) == Verdict::Allowed;
        grants.is_confined()
            && ways
                .iter()
                .any(|way| is_writable(way) || real(way).is_some_and(|real| is_writable(&real)))
    }

    fn take(
        &mut self,
        asked: &RunRequest,
        new: Arc<ResolvedPolicy>,
        standing: Option<&dyn Sandbox>,
        changed: &[AbsPath],
    ) -> Option<ringfence_enforce::Plan> {
        // Files that were not known before; of the others, what was seen before they were read.
        let more = stamps(&asked.files, &new)
            .into_iter()
            .filter(|(file, _)| self.seen.iter().all(|(known, _)| known != file));
        self.seen.extend(more.collect::<Vec<_>>());
        let places = files::places(&asked.files, &new.surroundings.facts);
        self.seen.retain(|(file, _)| new.files.contains(file) || places.contains(file));
        self.seen.sort();
        if new.grants == self.newest.grants {
            // Nothing but words.
            self.newest = new;
            return None;
        }
        let Some(standing) = standing else {
            self.newest = new;
            self.begin_anew();
            return None;
        };
        let old = self.holding.clone();
        let (grants, mut changes) = revise(&old.grants, &new.grants);
        changes.extend(other_variables(asked, &old, &new));
        let mut plan = None;
        if grants.is_confined() && new.grants.is_confined() {
            match standing.revise(&grants) {
                Ok(revised) => {
                    changes.extend(revised.changes);
                    plan = Some(revised.plan);
                }
                Err(error) => changes.push(not_taken(&error)),
            }
        }
        self.refusing = plan.as_ref().map(|plan| plan.gaps.clone()).unwrap_or_default();
        // What is owed is owed until another edit takes it back: until then, what held before
        // is what the next edit is compared with.
        let is_owed = changes.iter().any(PolicyChange::is_owed);
        let holding = if is_owed { old.grants.clone() } else { grants };
        let digests = (policy_digest(&old.grants), policy_digest(&new.grants));
        self.holding = Arc::new(ResolvedPolicy { grants: holding, ..(*new).clone() });
        self.newest = new;
        if !changes.is_empty() {
            self.record(asked, changed, Ok((digests, &changes)));
        }
        self.pending = changes.iter().filter(|change| change.pending.is_some()).cloned().collect();
        self.news.changes.extend(changes);
        plan.filter(|_| !is_owed)
    }

    /// What the log cannot take is told with the next command, which it cannot take either.
    fn record(
        &self,
        asked: &RunRequest,
        changed: &[AbsPath],
        taken: Result<((String, String), &[PolicyChange]), &str>,
    ) {
        let rules = &self.holding.grants.audit;
        let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
        let subject = RecordSubject { agent: asked.agent.clone(), session: asked.session.clone() };
        let files: Vec<String> = changed.iter().map(AbsPath::to_string).collect();
        let record = Record::revised(&subject, now_ms(), &files, taken);
        let _ = AuditLog::open(rules.directory.as_path(), options)
            .and_then(|mut log| log.append(&[record]).map(drop));
    }
}

fn differing(old: &[(AbsPath, FileStamp)], new: &[(AbsPath, FileStamp)]) -> Vec<AbsPath> {
    new.iter().filter(|one| !old.contains(one)).map(|(file, _)| file.clone()).collect()
}

/// Nothing is known of what holds: it may be more than the policy allows.
fn not_taken(error: &ProviderError) -> PolicyChange {
    let change = PolicyChange {
        rule: "filesystem".into(),
        origin: None,
        turn: ChangeKind::Added,
        direction: ChangeDirection::Narrower,
        pending: None,
    };
    change.pending(whole(error))
}

/// Variables that the shell has already, or that it lacks.
fn other_variables(
    asked: &RunRequest,
    old: &ResolvedPolicy,
    new: &ResolvedPolicy,
) -> Vec<PolicyChange> {
    let has = |all: &[(OsString, OsString)], one: &(OsString, OsString)| all.contains(one);
    let (was, is) =
        (variables(&old.grants, &asked.cwd, old), variables(&new.grants, &asked.cwd, new));
    let change = |(name, _): &(OsString, OsString), turn, direction| PolicyChange {
        rule: format!("environment {}", name.to_string_lossy()),
        origin: None,
        turn,
        direction,
        pending: Some("the shell has its variables already".into()),
    };
    let is_lasting = |one: &&(OsString, OsString)| {
        !fail_fast::is_setting(&one.0) && !tool_directories::is_of_project(&one.0)
    };
    let gone = was
        .iter()
        .filter(is_lasting)
        .filter(|one| !has(&is, one))
        .map(|one| change(one, ChangeKind::Removed, ChangeDirection::Narrower));
    let come = is
        .iter()
        .filter(is_lasting)
        .filter(|one| !has(&was, one))
        .map(|one| change(one, ChangeKind::Added, ChangeDirection::Wider));
    gone.chain(come).collect()
}
