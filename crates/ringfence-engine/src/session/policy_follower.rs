//! Follows the policy files of a running session.
//!
//! The files are checked before every command, and when a frontend calls
//! [`Session::follow_policy`](super::Session::follow_policy). A changed file is ignored if a
//! command of the session could have written it.

use std::ffi::OsString;
use std::fs;
use std::sync::Arc;

use ringfence_api::session_protocol::{PolicyProblemReport, PolicyReport};
use ringfence_api::{Gap, error_chain};
use ringfence_audit::{AuditLog, LogOptions, Record, RecordSubject, now_ms};
use ringfence_policy::{
    AbsPath, Access, ChangeDirection, ChangeKind, PolicyChange, Verdict, revise,
};
use ringfence_provider::{PolicyRevision, ProviderError, Sandbox};

use crate::asking::SessionGrants;
use crate::host::FileStamp;
use crate::permanent_grant::GrantTarget;
use crate::policy_cache::policy_file_stamps;
use crate::recorder::policy_digest;
use crate::run::check_gaps;
use crate::variables::variables;
use crate::{EngineError, ResolvedPolicy, RunRequest, fail_fast, files, tool_directories};

/// Reads the policy again, for the host environment of the session's start.
pub type PolicyResolver =
    dyn Fn(&ResolvedPolicy) -> Result<ResolvedPolicy, EngineError> + Send + Sync;

/// The policy of a session and its source files.
pub(super) struct PolicyFollower {
    resolve: Box<PolicyResolver>,
    seen: Vec<(AbsPath, Option<FileStamp>)>,
    /// The newest readable policy.
    pub(super) newest: Arc<ResolvedPolicy>,
    /// The policy in force.
    pub(super) in_force: Arc<ResolvedPolicy>,
    /// Changes that take effect with a new session.
    pub(super) pending: Vec<PolicyChange>,
    /// Gaps that the policy does not accept.
    refusing: Vec<Gap>,
    /// The reason the newest files are not followed.
    pub(super) problem: Option<PolicyProblemReport>,
    news: PolicyReport,
    /// Grants for the session that were requested explicitly. They survive file changes.
    requested: SessionGrants,
}

impl PolicyFollower {
    pub(super) fn new(
        request: &RunRequest,
        resolved: ResolvedPolicy,
        resolve: Box<PolicyResolver>,
    ) -> Self {
        let resolved = Arc::new(resolved);
        let seen = policy_file_stamps(&request.files, &resolved);
        let (newest, in_force) = (resolved.clone(), resolved);
        Self {
            resolve,
            seen,
            newest,
            in_force,
            pending: Vec::new(),
            refusing: Vec::new(),
            problem: None,
            news: PolicyReport::default(),
            requested: SessionGrants::default(),
        }
    }

    /// Replaces the policy by `outside`, which confines nothing, for the rest of the session.
    pub(super) fn abandon_sandbox(&mut self, outside: ResolvedPolicy) {
        let off = outside.grants.sandbox.off.clone().expect("it was just turned off");
        (self.newest, self.in_force) = (Arc::new(outside.clone()), Arc::new(outside));
        let resolve = std::mem::replace(&mut self.resolve, Box::new(|before| Ok(before.clone())));
        self.resolve = Box::new(move |before| {
            resolve(before).map(|resolved| resolved.without_sandbox(off.clone()))
        });
    }

    /// Takes the reports since the last call.
    pub(super) fn take_news(&mut self) -> PolicyReport {
        std::mem::take(&mut self.news)
    }

    /// An error if no new command may start.
    pub(super) fn check_may_start(&self, session: &str) -> Result<(), EngineError> {
        let owed: Vec<PolicyChange> =
            self.pending.iter().filter(|change| change.is_pending_narrowing()).cloned().collect();
        if !owed.is_empty() {
            return Err(EngineError::Narrowed { session: session.to_owned(), changes: owed });
        }
        check_gaps(&self.refusing, self.in_force.grants.on_gap)
    }

    /// Adopts the newest policy. Called when there is no sandbox.
    pub(super) fn adopt_newest(&mut self) {
        self.in_force = self.newest.clone();
        self.pending.clear();
        self.refusing.clear();
    }

    /// Checks the files for changes and applies them to `live_sandbox`. Returns the
    /// revision of its protections, if they changed.
    pub(super) fn poll_files(
        &mut self,
        request: &RunRequest,
        live_sandbox: Option<&dyn Sandbox>,
    ) -> Option<PolicyRevision> {
        let seen = policy_file_stamps(&request.files, &self.newest);
        if seen == self.seen {
            return None;
        }
        let changed: Vec<AbsPath> = differing(&self.seen, &seen);
        self.seen = seen;
        self.problem = None;
        match self.read(&changed) {
            Ok(new) => self.adopt(request, Arc::new(new), live_sandbox, &changed),
            Err(problem) => {
                self.record(request, &changed, Err(&problem.message));
                self.problem = Some(problem.clone());
                self.news.problems.push(problem);
                None
            }
        }
    }

    fn read(&self, changed: &[AbsPath]) -> Result<ResolvedPolicy, PolicyProblemReport> {
        if let Some(file) = changed.iter().find(|file| self.is_writable_by_commands(file)) {
            return Err(PolicyProblemReport {
                code: "policy-writable".into(),
                message: format!(
                    "ignored the change of {file}: commands of this session can write to it"
                ),
                hint: Some(
                    "check the file, then start a new session with `ringfence session start`"
                        .into(),
                ),
            });
        }
        let read = (self.resolve)(&self.newest);
        let read = read.map_err(|error| PolicyProblemReport {
            code: error.code().into(),
            message: error_chain(&error),
            hint: error.hint(),
        })?;
        Ok(self.requested.apply_to(&read))
    }

    /// Adds a grant for the rest of the session, and applies it to `live_sandbox` as a file change.
    pub(super) fn add_grant(
        &mut self,
        request: &RunRequest,
        opening: GrantTarget,
        live_sandbox: Option<&dyn Sandbox>,
    ) -> Option<PolicyRevision> {
        let one = SessionGrants::with_grant(opening.clone());
        self.requested.add(opening);
        let new = Arc::new(one.apply_to(&self.newest));
        self.adopt(request, new, live_sandbox, &[])
    }

    /// True if a command can write the file, or a link on the way to it.
    fn is_writable_by_commands(&self, file: &AbsPath) -> bool {
        let mut paths = vec![file.clone()];
        while let Some(last) = paths.last().cloned().filter(|_| paths.len() < 40) {
            let Ok(target) = fs::read_link(last.as_path()) else { break };
            paths.push(last.parent().unwrap_or_else(AbsPath::root).join(target));
        }
        let real = |path: &AbsPath| {
            let above = fs::canonicalize(path.parent()?.as_path()).ok().and_then(AbsPath::new)?;
            Some(above.join(path.name()?))
        };
        let grants = &self.in_force.grants;
        let is_writable = |path: &AbsPath| grants.verdict(path, Access::Write) == Verdict::Allowed;
        grants.is_confined()
            && paths
                .iter()
                .any(|path| is_writable(path) || real(path).is_some_and(|real| is_writable(&real)))
    }

    fn adopt(
        &mut self,
        request: &RunRequest,
        new: Arc<ResolvedPolicy>,
        live_sandbox: Option<&dyn Sandbox>,
        changed: &[AbsPath],
    ) -> Option<PolicyRevision> {
        // Adds files that were not known before. Known files keep the stamp taken before the read.
        let more = policy_file_stamps(&request.files, &new)
            .into_iter()
            .filter(|(file, _)| self.seen.iter().all(|(known, _)| known != file));
        self.seen.extend(more.collect::<Vec<_>>());
        let places = files::policy_file_paths(&request.files, &new.surroundings.facts);
        let is_used = |file: &AbsPath| {
            [&new.files, &new.absent, &places].iter().any(|files| files.contains(file))
        };
        self.seen.retain(|(file, _)| is_used(file));
        self.seen.sort();
        if new.grants == self.newest.grants {
            // Only comments or formatting changed.
            self.newest = new;
            return None;
        }
        let Some(live_sandbox) = live_sandbox else {
            self.newest = new;
            self.adopt_newest();
            return None;
        };
        let old = self.in_force.clone();
        let (grants, mut changes) = revise(&old.grants, &new.grants);
        changes.extend(environment_changes(request, &old, &new));
        let mut revision = None;
        if grants.is_confined() && new.grants.is_confined() {
            match live_sandbox.apply_policy(&grants) {
                Ok(mut revised) => {
                    changes.append(&mut revised.changes);
                    revision = Some(revised);
                }
                Err(error) => changes.push(failed_change(&error)),
            }
        }
        self.refusing = revision.as_ref().map(|revision| revision.gaps.clone()).unwrap_or_default();
        // A pending narrowing stays pending until another edit reverts it. Until then the next edit
        // is compared with the rules still in force.
        let is_owed = changes.iter().any(PolicyChange::is_pending_narrowing);
        let in_force = if is_owed { old.grants.clone() } else { grants };
        let digests = (policy_digest(&old.grants), policy_digest(&new.grants));
        self.in_force = Arc::new(ResolvedPolicy { grants: in_force, ..(*new).clone() });
        self.newest = new;
        if !changes.is_empty() {
            self.record(request, changed, Ok((digests, &changes)));
        }
        self.pending = changes.iter().filter(|change| change.pending.is_some()).cloned().collect();
        self.news.add_changes(changes);
        revision.filter(|_| !is_owed)
    }

    /// Records the change. An error is ignored here: the next command reports it.
    fn record(
        &self,
        request: &RunRequest,
        changed: &[AbsPath],
        taken: Result<((String, String), &[PolicyChange]), &str>,
    ) {
        let rules = &self.in_force.grants.audit;
        let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
        let subject =
            RecordSubject { agent: request.agent.clone(), session: request.session.clone() };
        let files: Vec<String> = changed.iter().map(AbsPath::to_string).collect();
        let record = Record::revised(&subject, now_ms(), &files, taken);
        let _ = AuditLog::open(rules.directory.as_path(), options)
            .and_then(|mut log| log.append(&[record]).map(drop));
    }
}

fn differing(
    old: &[(AbsPath, Option<FileStamp>)],
    new: &[(AbsPath, Option<FileStamp>)],
) -> Vec<AbsPath> {
    new.iter().filter(|one| !old.contains(one)).map(|(file, _)| file.clone()).collect()
}

/// The change for a failed update: the rules in force are unknown, and may allow too much.
fn failed_change(error: &ProviderError) -> PolicyChange {
    let change = PolicyChange {
        rule: "filesystem".into(),
        origin: None,
        turn: ChangeKind::Added,
        direction: ChangeDirection::Narrower,
        pending: None,
    };
    change.pending(error_chain(error))
}

/// Changes of environment variables, which the shell cannot take over.
fn environment_changes(
    request: &RunRequest,
    old: &ResolvedPolicy,
    new: &ResolvedPolicy,
) -> Vec<PolicyChange> {
    let has = |all: &[(OsString, OsString)], one: &(OsString, OsString)| all.contains(one);
    let (was, is) =
        (variables(&old.grants, &request.cwd, old), variables(&new.grants, &request.cwd, new));
    let change = |(name, _): &(OsString, OsString), turn, direction| PolicyChange {
        rule: format!("environment {}", name.to_string_lossy()),
        origin: None,
        turn,
        direction,
        pending: Some("the running shell keeps its environment".into()),
    };
    let is_fixed = |one: &&(OsString, OsString)| {
        !fail_fast::is_setting(&one.0) && !tool_directories::depends_on_project(&one.0)
    };
    let removed = was
        .iter()
        .filter(is_fixed)
        .filter(|one| !has(&is, one))
        .map(|one| change(one, ChangeKind::Removed, ChangeDirection::Narrower));
    let added = is
        .iter()
        .filter(is_fixed)
        .filter(|one| !has(&was, one))
        .map(|one| change(one, ChangeKind::Added, ChangeDirection::Wider));
    removed.chain(added).collect()
}
