//! Asking on behalf of a run: what may be offered, what is recorded of it, and what lasts.

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use ringfence_api::{Ask, AskAnswer, Asker, Denial, Operation, Outcome, Permission, whole};
use ringfence_audit::{AuditError, AuditLog, LogOptions, Record, RecordSubject, now_ms};
use ringfence_policy as policy;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Effect, Facts, Grants, HostRule, ListedHost, OnError,
    Origin, Rule, Source, Verdict, is_sandboxes_own,
};

use crate::files::PolicyFiles;
use crate::permanent_grant::{GrantTarget, could_open, is_own, open_for_good};
use crate::{ResolvedPolicy, RunRequest};

/// The question to a person about a command that was blocked; `None` if it was not blocked, or if
/// only "no" could be answered: what stood in its way is locked, or is neither a file nor a host.
pub fn permission(
    outcome: &Outcome,
    files: &PolicyFiles,
    resolved: &ResolvedPolicy,
) -> Option<Permission> {
    permission_for(outcome.blocked_by()?, files, resolved)
}

/// What a person could be asked about a refusal.
pub(crate) fn permission_for(
    denial: &Denial,
    files: &PolicyFiles,
    resolved: &ResolvedPolicy,
) -> Option<Permission> {
    let (grants, facts) = (&resolved.grants, &resolved.surroundings.facts);
    // A name that was not resolved: the port that was meant is not known.
    if let Some(
        opening @ GrantTarget::Host(HostRule {
            subject: policy::HostPattern::Name(name),
            port: None,
        }),
    ) = &wanted(denial)
    {
        grants.network.lookup(name).remedy()?;
        let is_offered = |answer: &AskAnswer| {
            *answer != AskAnswer::AllowPermanent || could_open(opening, files, facts)
        };
        let options: Vec<AskAnswer> = AskAnswer::ALL.iter().copied().filter(is_offered).collect();
        return Permission::of(denial, &options);
    }
    Permission::of(denial, &offered(denial, AskAnswer::ALL, grants, files, facts))
}

/// Whether a person may be asked about something that was refused: they could open it.
pub fn is_asked_about(denial: &Denial, files: &PolicyFiles, resolved: &ResolvedPolicy) -> bool {
    wanted(denial).is_some_and(|opening| {
        is_offered(&opening, &resolved.grants, files, &resolved.surroundings.facts)
    })
}

pub(crate) fn offered(
    denial: &Denial,
    options: &[AskAnswer],
    grants: &Grants,
    files: &PolicyFiles,
    facts: &Facts,
) -> Vec<AskAnswer> {
    let Some(opening) = wanted(denial).filter(|opening| is_offered(opening, grants, files, facts))
    else {
        return vec![AskAnswer::Deny];
    };
    let lasts = || could_open(&opening, files, facts);
    options
        .iter()
        .copied()
        .filter(|answer| *answer != AskAnswer::AllowPermanent || lasts())
        .collect()
}

/// Whether anybody is asked: it is shut, and a person may open it.
fn is_offered(opening: &GrantTarget, grants: &Grants, files: &PolicyFiles, facts: &Facts) -> bool {
    match opening {
        GrantTarget::Path(path, access) => {
            let decision = grants.decide(path, *access);
            let is_locked = decision.rule.as_ref().is_some_and(|because| because.is_locked());
            // Whoever was left no tool that writes is not helped to one by asking.
            let is_shut_for_good =
                || grants.tools.against_writing().is_some() || is_kept(&decision, files, facts);
            let could_be = !is_locked && !is_sandboxes_own(path);
            decision.verdict != Verdict::Allowed
                && could_be
                && !(*access == Access::Write && is_shut_for_good())
        }
        // An entry would open it: nothing denies it, and no list is locked.
        GrantTarget::Host(rule) => {
            grants.network.about(rule).is_some_and(|passage| passage.remedy().is_some())
        }
    }
}

/// Whether nobody is asked to let a command write this: what ringfence goes by and what it
/// keeps, and what this very run was told to protect.
fn is_kept(decision: &Decision, files: &PolicyFiles, facts: &Facts) -> bool {
    let path = &decision.path;
    let is_protected = |because: &DecidingRule| matches!(because, DecidingRule::Rule(rule) if rule.effect == Effect::Protect && rule.origin.source == Source::Flag && rule.root == *path);
    let is_settings = |name: &OsStr| name.eq_ignore_ascii_case(".ringfence");
    is_own(path, facts)
        || path.is_within(&facts.store)
        || files.project.as_ref() == Some(path)
        || path.as_path().iter().any(is_settings)
        || decision.rule.as_ref().is_some_and(is_protected)
}

/// What would have to be opened; `None` for what is neither file nor host.
fn wanted(denial: &Denial) -> Option<GrantTarget> {
    let access = match denial.operation {
        Operation::Read => Access::Read,
        Operation::Execute => Access::Execute,
        Operation::Write | Operation::Create | Operation::Rename => Access::Write,
        Operation::Connect => return HostRule::parse(&denial.target).ok().map(GrantTarget::Host),
        Operation::Call | Operation::Command => return None,
    };
    Some(GrantTarget::Path(AbsPath::new(&denial.target)?, access))
}

/// Stands between a place and whoever is asked.
///
/// What is locked is never asked about, what is said is on record before it has an effect,
/// and what is allowed for good is written down.
#[derive(Debug)]
pub(crate) struct RecordingAsker {
    asker: Arc<dyn Asker>,
    /// Those that hold by now.
    grants: RwLock<Grants>,
    facts: Facts,
    files: PolicyFiles,
    subject: RecordSubject,
    log: Mutex<Option<AuditLog>>,
    lasting: Arc<SessionGrants>,
}

/// What was allowed for a session, whichever of its sandboxes it was asked in.
#[derive(Debug, Default)]
pub(crate) struct SessionGrants(Mutex<Vec<GrantTarget>>);

impl SessionGrants {
    pub(crate) fn of(opening: GrantTarget) -> Self {
        Self(Mutex::new(vec![opening]))
    }

    pub(crate) fn add(&self, opening: GrantTarget) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(opening);
    }

    fn note(&self, denial: &Denial) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(wanted(denial));
    }

    /// The policy, and what was allowed beside it.
    pub(crate) fn on(&self, resolved: &ResolvedPolicy) -> ResolvedPolicy {
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
        asked: &RunRequest,
        resolved: &ResolvedPolicy,
        lasting: Arc<SessionGrants>,
    ) -> Self {
        Self {
            asker,
            lasting,
            grants: RwLock::new(resolved.grants.clone()),
            facts: resolved.surroundings.facts.clone(),
            files: asked.files.clone(),
            subject: RecordSubject { agent: asked.agent.clone(), session: asked.session.clone() },
            log: Mutex::new(None),
        }
    }

    /// The policy was changed.
    pub(crate) fn revise(&self, grants: &Grants) {
        self.grants.write().unwrap_or_else(PoisonError::into_inner).clone_from(grants);
    }

    fn grants(&self) -> RwLockReadGuard<'_, Grants> {
        self.grants.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records, and says whether things may go on.
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

    /// Writes down what is allowed for good. If that cannot be, it is allowed as long as the
    /// sandbox lives: the person has said yes to that as well.
    fn keep(&self, denial: &Denial, options: &[AskAnswer]) -> AskAnswer {
        let Some(opening) = wanted(denial) else { return AskAnswer::Deny };
        let rule = opening
            .permit(&self.facts)
            .map_or_else(|_| String::new(), |permit| format!("{} {}", permit.key(), permit.text()));
        let allowed = open_for_good(&opening, &self.files, &self.facts);
        let (note, record) = match &allowed {
            Ok(allowed) if allowed.is_new => {
                (format!("`{rule}` now stands in {}", allowed.place()), Ok(allowed.place()))
            }
            Ok(allowed) => {
                (format!("it is open by {} already", allowed.place()), Ok(allowed.place()))
            }
            Err(error) => (format!("not written down: {}", whole(error)), Err(whole(error))),
        };
        self.asker.note(&note);
        // The answer is on record, and the file speaks for itself.
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
        let options = offered(&ask.denial, &ask.options, &self.grants(), &self.files, &self.facts);
        if options.iter().all(|answer| *answer == AskAnswer::Deny) {
            return AskAnswer::Deny;
        }
        let said = self.asker.ask(&Ask { denial: ask.denial.clone(), options: options.clone() });
        let said = if options.contains(&said) { said } else { AskAnswer::Deny };
        if let Err(error) = self.record(Record::asked(&self.subject, now_ms(), &ask.denial, said)) {
            self.asker.note(&format!(
                "the answer cannot be recorded, and nothing goes through unrecorded: {}",
                whole(&error)
            ));
            return AskAnswer::Deny;
        }
        let said =
            if said == AskAnswer::AllowPermanent { self.keep(&ask.denial, &options) } else { said };
        if matches!(said, AskAnswer::AllowSession | AskAnswer::AllowPermanent) {
            self.lasting.note(&ask.denial);
        }
        said
    }

    fn note(&self, text: &str) {
        self.asker.note(text);
    }
}
