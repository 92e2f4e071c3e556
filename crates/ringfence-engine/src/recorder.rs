//! What is recorded of a run: that it was asked for, what was refused in it, how it ended.

use std::ffi::OsString;

use ringfence_api::{Denial, Gap, Outcome, typed, whole};
use ringfence_audit::{
    AuditError, AuditLog, LogOptions, Record, RecordAction, RecordDetails, RecordResult,
    RecordSubject, RunEnded, RunStarted, digest, now_ms,
};
use ringfence_policy::{AbsPath, Asking, Grants, Mode, Observe, OnError};

use crate::{EngineError, ResolvedPolicy, RunRequest, command_guard};

/// The records of one run.
pub(crate) struct RunRecorder<'a> {
    log: Option<AuditLog>,
    asked: &'a RunRequest,
    resolved: &'a ResolvedPolicy,
    subject: RecordSubject,
    /// The command in one line.
    line: String,
    has_begun: bool,
    /// What was refused before the run ended in an error.
    pub(crate) refused_before: (Vec<Denial>, u64),
    tell: &'a mut dyn FnMut(&AuditError),
}

impl<'a> RunRecorder<'a> {
    pub(crate) fn open(
        asked: &'a RunRequest,
        resolved: &'a ResolvedPolicy,
        tell: &'a mut dyn FnMut(&AuditError),
    ) -> Result<Self, EngineError> {
        let rules = &resolved.grants.audit;
        let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
        let subject = RecordSubject { agent: asked.agent.clone(), session: asked.session.clone() };
        let mut book = RunRecorder {
            log: None,
            asked,
            resolved,
            subject,
            line: line(&asked.command),
            has_begun: false,
            refused_before: (Vec::new(), 0),
            tell,
        };
        match AuditLog::open(rules.directory.as_path(), options) {
            Ok(log) => book.log = Some(log),
            Err(error) => book.decide(error)?,
        }
        Ok(book)
    }

    /// The same for a command that was recorded to be about to run.
    pub(crate) fn resume(
        asked: &'a RunRequest,
        resolved: &'a ResolvedPolicy,
        tell: &'a mut dyn FnMut(&AuditError),
    ) -> Result<Self, EngineError> {
        Ok(RunRecorder { has_begun: true, ..Self::open(asked, resolved, tell)? })
    }

    /// Records that the command is about to run.
    pub(crate) fn begin(&mut self, gaps: &[Gap]) -> Result<(), EngineError> {
        // That there is no sandbox, and who said so, is never to be looked for elsewhere.
        let off = self.resolved.grants.sandbox.off.as_ref();
        let reason = off.map(|off| format!("not confined: {} ({off})", off.text));
        let reason = reason.or_else(|| {
            command_guard::doubted(
                &self.resolved.grants,
                command_guard::CommandText::Words(&self.asked.command),
            )
        });
        let record =
            self.record(RecordAction::Begin, RecordResult::Allowed, reason, self.begun(gaps));
        self.has_begun = true;
        match self.append(&[record]) {
            Err(error) => self.decide(error),
            Ok(()) => Ok(()),
        }
    }

    /// Records what became of it. By now nothing can be refused any more, only told.
    pub(crate) fn finish(&mut self, result: &Result<Outcome, EngineError>) {
        let records = match result {
            Err(EngineError::Audit { .. }) => return,
            Err(error) if !self.has_begun => vec![self.refused(error)],
            Err(error) => self.failed(error),
            Ok(outcome) => self.ended(outcome),
        };
        let written =
            self.append(&records).and_then(|()| self.log.as_mut().map_or(Ok(()), AuditLog::finish));
        if let Err(error) = written {
            (self.tell)(&error);
        }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), AuditError> {
        self.log.as_mut().map_or(Ok(()), |log| log.append(records).map(drop))
    }

    /// What the policy says about a run that cannot be recorded.
    fn decide(&mut self, error: AuditError) -> Result<(), EngineError> {
        match self.resolved.grants.audit.on_error {
            OnError::Refuse => Err(EngineError::Audit { source: error }),
            OnError::Run => {
                (self.tell)(&error);
                Ok(())
            }
        }
    }

    fn record(
        &self,
        operation: RecordAction,
        result: RecordResult,
        reason: Option<String>,
        details: RecordDetails,
    ) -> Record {
        Record {
            timestamp: now_ms(),
            agent: self.subject.agent.clone(),
            session: self.subject.session.clone(),
            operation,
            target: self.line.clone(),
            result,
            policy: policy(&self.resolved.grants).to_owned(),
            reason,
            details,
        }
    }

    fn begun(&self, gaps: &[Gap]) -> RecordDetails {
        let ResolvedPolicy { grants, surroundings, files } = self.resolved;
        let (command, command_base64) = RunStarted::words(&self.asked.command);
        let (cwd, cwd_base64) = RunStarted::path(self.asked.cwd.as_path().as_os_str());
        RecordDetails::Begun(Box::new(RunStarted {
            command,
            command_base64,
            cwd,
            cwd_base64,
            confined: grants.is_confined(),
            policy_files: files.iter().map(AbsPath::to_string).collect(),
            policy_digest: policy_digest(grants),
            gaps: gaps.iter().map(|gap| gap.what.clone()).collect(),
            user: surroundings.facts.user.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
        }))
    }

    /// A run that was asked for and not begun.
    fn refused(&self, error: &EngineError) -> Record {
        let (verdict, gaps) = match error {
            EngineError::Gaps { gaps } => (RecordResult::Blocked, gaps.as_slice()),
            _ => (RecordResult::Failed, [].as_slice()),
        };
        self.record(RecordAction::Begin, verdict, Some(whole(error)), self.begun(gaps))
    }

    fn failed(&self, error: &EngineError) -> Vec<Record> {
        let (denials, denials_dropped) = &self.refused_before;
        let ended = RunEnded {
            exit_code: error.status(),
            duration_ms: 0,
            timed_out: false,
            breaches: Vec::new(),
            denials: denials.len(),
            denials_dropped: *denials_dropped,
            error: Some(error.code().into()),
            allowed: None,
            allowed_dropped: None,
            connections_dropped: 0,
        };
        let mut records: Vec<Record> = denials.iter().map(|denial| self.denied(denial)).collect();
        records.push(self.record(
            RecordAction::End,
            RecordResult::Failed,
            Some(whole(error)),
            RecordDetails::Ended(ended),
        ));
        records
    }

    /// What was refused since a tool was taken away says which.
    fn denied(&self, denial: &Denial) -> Record {
        let record = Record::denied(&self.subject, denial);
        match self.resolved.grants.tools.behind(&denial.rule, &denial.origin) {
            Some(tool) => record.by_tool(&tool.name),
            None => record,
        }
    }

    fn ended(&self, outcome: &Outcome) -> Vec<Record> {
        let reason =
            outcome.blocked_by().map(|denial| format!("{} ({})", denial.rule, denial.origin));
        let allowed = outcome.observed.iter().flat_map(|observed| &observed.allowed);
        let mut records: Vec<Record> =
            allowed.map(|allowance| Record::allowed(&self.subject, allowance)).collect();
        if !self.has_begun {
            // Refused by what it says: it never was about to run.
            let why = outcome.refusal.as_ref().map(|refusal| refusal.reason.clone());
            records.push(self.record(
                RecordAction::Begin,
                RecordResult::Blocked,
                why,
                self.begun(&[]),
            ));
        }
        records.extend(
            outcome
                .connections
                .iter()
                .map(|connection| Record::connected(&self.subject, connection)),
        );
        records.extend(outcome.denials.iter().map(|denial| self.denied(denial)));
        records.extend(
            outcome
                .quarantined
                .iter()
                .map(|moved| Record::quarantined(&self.subject, now_ms(), moved)),
        );
        let verdict = if outcome.blocked() { RecordResult::Blocked } else { RecordResult::Allowed };
        let ended = RunEnded {
            exit_code: outcome.exit_code(),
            duration_ms: outcome.duration_ms,
            timed_out: outcome.timed_out,
            breaches: outcome.breaches.clone(),
            denials: outcome.denials.len(),
            denials_dropped: outcome.denials_dropped,
            allowed: outcome.observed.as_ref().map(|observed| observed.allowed.len()),
            allowed_dropped: outcome
                .observed
                .as_ref()
                .map(|observed| observed.dropped)
                .filter(|dropped| *dropped > 0),
            connections_dropped: outcome.connections_dropped,
            error: None,
        };
        records.push(self.record(RecordAction::End, verdict, reason, RecordDetails::Ended(ended)));
        records
    }
}

/// By what the run was let through.
fn policy(grants: &Grants) -> &'static str {
    if grants.enabled { grants.mode.word() } else { Mode::FullAccess.word() }
}

/// The same rules have the same digest, in the same version of ringfence, whether what goes
/// through is told of or not, and whether somebody is asked or not.
pub fn policy_digest(grants: &Grants) -> String {
    let is_plain = grants.observe == Observe::Denials && grants.ask == Asking::Never;
    let plain = (!is_plain).then(|| Grants {
        observe: Observe::Denials,
        ask: Asking::Never,
        network: grants.network.unasked(),
        ..grants.clone()
    });
    let packed =
        postcard::to_stdvec(plain.as_ref().unwrap_or(grants)).expect("grants are plain data");
    digest(&packed).to_string()
}

/// A command as one would type it.
pub(crate) fn line(command: &[OsString]) -> String {
    command.iter().map(|word| typed(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(words: &[&str], expect: &str) {
        assert_eq!(super::line(&words.iter().map(Into::into).collect::<Vec<_>>()), expect);
    }

    #[test]
    fn a_command_is_written_as_one_would_type_it() {
        check(&["npm", "test"], "npm test");
        check(&["/bin/sh", "-c", "npm ci && npm test"], "/bin/sh -c 'npm ci && npm test'");
        check(&["echo", "", "it's", "--x=a,b"], r"echo '' 'it'\''s' --x=a,b");
        check(&["rm", "a b", "*", "$HOME", "é"], "rm 'a b' '*' '$HOME' é");
    }
}
