//! Questions to the user during a run: the offered answers, their records and lasting grants.

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use ringfence_api::{Ask, AskAnswer, Asker, Denial, Operation, Outcome, Permission, error_chain};
use ringfence_audit::{AuditError, AuditLog, LogOptions, Record, RecordSubject, now_ms};
use ringfence_policy as policy;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Effect, Facts, Grants, HostRule, ListedHost, OnError,
    Origin, Rule, Source, Verdict, is_created_by_sandbox,
};

use crate::files::PolicyFiles;
use crate::permanent_grant::{
    GrantTarget, allow_target_permanent, can_allow_permanent, is_ringfence_path,
};
use crate::{ResolvedPolicy, RunRequest};

/// The question to the user about a blocked command. `None` if the command was not blocked, or if
/// only "deny" could be answered: a locked rule blocked it, or the target is neither a file nor a
/// host.
pub fn permission_for_outcome(
    outcome: &Outcome,
    files: &PolicyFiles,
    resolved: &ResolvedPolicy,
) -> Option<Permission> {
    permission_for_denial(outcome.blocked_by()?, files, resolved)
}

/// The question to the user about a denial.
pub(crate) fn permission_for_denial(
    denial: &Denial,
    files: &PolicyFiles,
    resolved: &ResolvedPolicy,
) -> Option<Permission> {
    let (grants, facts) = (&resolved.grants, &resolved.surroundings.facts);
    // The lookup was denied, so the port is not known.
    if let Some(
        opening @ GrantTarget::Host(HostRule {
            subject: policy::HostPattern::Name(name),
            port: None,
        }),
    ) = &grant_target(denial)
    {
        grants.network.decide_lookup(name).remedy()?;
        let is_offered = |answer: &AskAnswer| {
            *answer != AskAnswer::AllowPermanent || can_allow_permanent(opening, files, facts)
        };
        let options: Vec<AskAnswer> = AskAnswer::ALL.iter().copied().filter(is_offered).collect();
        return Permission::from_denial(denial, &options);
    }
    Permission::from_denial(denial, &offered_answers(denial, AskAnswer::ALL, grants, files, facts))
}

/// True if the user may be asked about this denial, because an answer could allow it.
pub fn can_be_asked(denial: &Denial, files: &PolicyFiles, resolved: &ResolvedPolicy) -> bool {
    grant_target(denial).is_some_and(|opening| {
        is_offered(&opening, &resolved.grants, files, &resolved.surroundings.facts)
    })
}

pub(crate) fn offered_answers(
    denial: &Denial,
    options: &[AskAnswer],
    grants: &Grants,
    files: &PolicyFiles,
    facts: &Facts,
) -> Vec<AskAnswer> {
    let Some(opening) =
        grant_target(denial).filter(|opening| is_offered(opening, grants, files, facts))
    else {
        return vec![AskAnswer::Deny];
    };
    let lasts = || can_allow_permanent(&opening, files, facts);
    options
        .iter()
        .copied()
        .filter(|answer| *answer != AskAnswer::AllowPermanent || lasts())
        .collect()
}

/// True if the user is asked: the target is denied, and a grant could allow it.
fn is_offered(opening: &GrantTarget, grants: &Grants, files: &PolicyFiles, facts: &Facts) -> bool {
    match opening {
        GrantTarget::Path(path, access) => {
            let decision = grants.decide(path, *access);
            let is_locked = decision.rule.as_ref().is_some_and(|because| because.is_locked());
            // A policy that disables every writing tool is not weakened by a question.
            let is_shut_for_good = || {
                grants.tools.rule_against_writing().is_some()
                    || is_never_writable(&decision, files, facts)
            };
            let could_be = !is_locked && !is_created_by_sandbox(path);
            decision.verdict != Verdict::Allowed
                && could_be
                && !(*access == Access::Write && is_shut_for_good())
        }
        // An entry would open it: nothing denies it, and no list is locked.
        GrantTarget::Host(rule) => {
            grants.network.decide_rule(rule).is_some_and(|decision| decision.remedy().is_some())
        }
    }
}

/// True if the user is never asked for write access: ringfence's own policy files, the project's
/// store, and paths protected by a flag of this run.
fn is_never_writable(decision: &Decision, files: &PolicyFiles, facts: &Facts) -> bool {
    let path = &decision.path;
    let is_protected = |because: &DecidingRule| matches!(because, DecidingRule::Rule(rule) if rule.effect == Effect::Protect && rule.origin.source == Source::Flag && rule.root == *path);
    let is_settings = |name: &OsStr| name.eq_ignore_ascii_case(".ringfence");
    is_ringfence_path(path, facts)
        || path.is_within(&facts.store)
        || files.project.as_ref() == Some(path)
        || path.as_path().iter().any(is_settings)
        || decision.rule.as_ref().is_some_and(is_protected)
}

/// The grant that would allow the denied operation; `None` if it is neither a file nor a host.
fn grant_target(denial: &Denial) -> Option<GrantTarget> {
    let access = match denial.operation {
        Operation::Read => Access::Read,
        Operation::Execute => Access::Execute,
        Operation::Write | Operation::Create | Operation::Rename => Access::Write,
        Operation::Connect => return HostRule::parse(&denial.target).ok().map(GrantTarget::Host),
        Operation::Call | Operation::Command => return None,
    };
    Some(GrantTarget::Path(AbsPath::new(&denial.target)?, access))
}

/// Asks the user through another asker and records the answer.
///
/// Never asks about a locked rule, records the answer before it takes effect, and writes a
/// permanent grant to the policy file.
#[derive(Debug)]
pub(crate) struct RecordingAsker {
    asker: Arc<dyn Asker>,
    /// The grants currently in force.
    grants: RwLock<Grants>,
    facts: Facts,
    files: PolicyFiles,
    subject: RecordSubject,
    log: Mutex<Option<AuditLog>>,
    session_grants: Arc<SessionGrants>,
}

/// Grants that the user gave for a session, in any of its sandboxes.
#[derive(Debug, Default)]
pub(crate) struct SessionGrants(Mutex<Vec<GrantTarget>>);

impl SessionGrants {
    pub(crate) fn with_grant(opening: GrantTarget) -> Self {
        Self(Mutex::new(vec![opening]))
    }

    pub(crate) fn add(&self, opening: GrantTarget) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(opening);
    }

    fn add_from_denial(&self, denial: &Denial) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(grant_target(denial));
    }

    /// The policy with the session's grants added.
    pub(crate) fn apply_to(&self, resolved: &ResolvedPolicy) -> ResolvedPolicy {
        let mut all = resolved.clone();
        let grants = &mut all.grants;
        for opening in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match opening {
                GrantTarget::Path(path, access) => {
                    let effect =
                        if *access == Access::Write { Effect::Write } else { Effect::Read };
                    let origin = Origin::new(Source::Session, path.to_string_lossy());
                    grants.rules.push(Rule { root: path.clone(), effect, origin, locked: false });
                }
                GrantTarget::Host(rule) if grants.network.locked.is_none() => {
                    let origin = Origin::new(Source::Session, rule.to_string());
                    grants.network.allow.push(ListedHost { rule: rule.clone(), origin });
                }
                GrantTarget::Host(_) => {}
            }
        }
        all
    }
}

impl RecordingAsker {
    pub(crate) fn new(
        asker: Arc<dyn Asker>,
        request: &RunRequest,
        resolved: &ResolvedPolicy,
        session_grants: Arc<SessionGrants>,
    ) -> Self {
        Self {
            asker,
            session_grants,
            grants: RwLock::new(resolved.grants.clone()),
            facts: resolved.surroundings.facts.clone(),
            files: request.files.clone(),
            subject: RecordSubject {
                agent: request.agent.clone(),
                session: request.session.clone(),
            },
            log: Mutex::new(None),
        }
    }

    /// Takes over the grants of a changed policy.
    pub(crate) fn set_grants(&self, grants: &Grants) {
        self.grants.write().unwrap_or_else(PoisonError::into_inner).clone_from(grants);
    }

    fn grants(&self) -> RwLockReadGuard<'_, Grants> {
        self.grants.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records; an error means that the request must be denied.
    fn record(&self, record: Record) -> Result<(), AuditError> {
        let rules = self.grants().audit.clone();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match log.as_mut() {
            Some(log) => log.append(&[record]),
            None => {
                let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
                AuditLog::open(rules.directory.as_path(), options)
                    .and_then(|opened| log.insert(opened).append(&[record]))
            }
        };
        match written {
            Err(error) if rules.on_error == OnError::Refuse => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a permanent grant to the policy file. If that fails, the grant lasts as long as the
    /// sandbox: the user agreed to that too.
    fn write_permanent(&self, denial: &Denial, options: &[AskAnswer]) -> AskAnswer {
        let Some(opening) = grant_target(denial) else { return AskAnswer::Deny };
        let rule = opening
            .policy_entry(&self.facts)
            .map_or_else(|_| String::new(), |permit| format!("{} {}", permit.key(), permit.text()));
        let allowed = allow_target_permanent(&opening, &self.files, &self.facts);
        let (note, record) = match &allowed {
            Ok(allowed) if allowed.is_new => {
                (format!("added `{rule}` to {}", allowed.position()), Ok(allowed.position()))
            }
            Ok(allowed) => {
                (format!("already allowed by {}", allowed.position()), Ok(allowed.position()))
            }
            Err(error) => (
                format!("not added to the policy: {}", error_chain(error)),
                Err(error_chain(error)),
            ),
        };
        self.asker.note(&note);
        // An error is ignored: the answer is already recorded, and the policy file shows the grant.
        let _ =
            self.record(Record::permitted(&self.subject, now_ms(), &denial.target, &rule, record));
        let lesser = [AskAnswer::AllowSession, AskAnswer::AllowOnce]
            .into_iter()
            .find(|answer| options.contains(answer));
        if allowed.is_ok() { AskAnswer::AllowPermanent } else { lesser.unwrap_or(AskAnswer::Deny) }
    }
}

impl Asker for RecordingAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let options =
            offered_answers(&ask.denial, &ask.options, &self.grants(), &self.files, &self.facts);
        if options.iter().all(|answer| *answer == AskAnswer::Deny) {
            return AskAnswer::Deny;
        }
        let answer = self.asker.ask(&Ask { denial: ask.denial.clone(), options: options.clone() });
        let answer = if options.contains(&answer) { answer } else { AskAnswer::Deny };
        if let Err(error) = self.record(Record::asked(&self.subject, now_ms(), &ask.denial, answer))
        {
            self.asker.note(&format!(
                "denied: the answer cannot be recorded in the audit log: {}",
                error_chain(&error)
            ));
            return AskAnswer::Deny;
        }
        let answer = if answer == AskAnswer::AllowPermanent {
            self.write_permanent(&ask.denial, &options)
        } else {
            answer
        };
        if matches!(answer, AskAnswer::AllowSession | AskAnswer::AllowPermanent) {
            self.session_grants.add_from_denial(&ask.denial);
        }
        answer
    }

    fn note(&self, text: &str) {
        self.asker.note(text);
    }
}
