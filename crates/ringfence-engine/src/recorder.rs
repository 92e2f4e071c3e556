//! Audit records of a run: its start, its denials and its end.

use std::ffi::OsString;

use ringfence_api::{Denial, Gap, Outcome, error_chain, shell_word};
use ringfence_audit::{
    AuditError, AuditLog, LogOptions, Record, RecordAction, RecordDetails, RecordResult,
    RecordSubject, RunEnded, RunStarted, digest, now_ms,
};
use ringfence_policy::{AbsPath, Asking, Grants, Mode, Observe, OnError};
use tracing::trace_span;

use crate::provider_registry::chosen_provider;
use crate::run::{NoticeFn, Readiness, RunNotice};
use crate::{EngineError, ResolvedPolicy, RunRequest, command_guard};

/// The records of one run.
pub(crate) struct RunRecorder<'a> {
    log: Option<AuditLog>,
    request: &'a RunRequest,
    resolved: &'a ResolvedPolicy,
    subject: RecordSubject,
    /// The command as one line.
    line: String,
    has_begun: bool,
    /// The denials before the run failed.
    pub(crate) refused_before: (Vec<Denial>, u64),
    is_sandboxed: bool,
    pub(crate) on_notice: &'a mut NoticeFn<'a>,
}

impl<'a> RunRecorder<'a> {
    pub(crate) fn open(
        request: &'a RunRequest,
        resolved: &'a ResolvedPolicy,
        on_notice: &'a mut NoticeFn<'a>,
    ) -> Result<Self, EngineError> {
        let rules = &resolved.grants.audit;
        let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
        let subject =
            RecordSubject { agent: request.agent.clone(), session: request.session.clone() };
        let mut recorder = RunRecorder {
            log: None,
            request,
            resolved,
            subject,
            line: command_line(&request.command),
            has_begun: false,
            refused_before: (Vec::new(), 0),
            is_sandboxed: true,
            on_notice,
        };
        match AuditLog::open(rules.directory.as_path(), options) {
            Ok(log) => recorder.log = Some(log),
            Err(error) => recorder.handle_audit_error(error)?,
        }
        Ok(recorder)
    }

    /// As [`RunRecorder::open`], for a command whose start is already recorded.
    pub(crate) fn resume(
        request: &'a RunRequest,
        resolved: &'a ResolvedPolicy,
        ready: &Readiness,
        on_notice: &'a mut NoticeFn<'a>,
    ) -> Result<Self, EngineError> {
        let recorder = Self::open(request, resolved, on_notice)?;
        Ok(RunRecorder { has_begun: true, is_sandboxed: ready.is_confined, ..recorder })
    }

    /// False if the command runs unconfined: by the policy, or by its provider.
    pub(crate) fn is_confined(&self) -> bool {
        self.resolved.grants.is_confined() && self.is_sandboxed
    }

    /// Records that the command is about to run.
    pub(crate) fn begin(&mut self, ready: &Readiness) -> Result<(), EngineError> {
        let _stage = trace_span!(target: "stage", "begin").entered();
        self.is_sandboxed = ready.is_confined;
        // The record always shows that there is no sandbox, and which rule turned it off.
        let sandbox = &self.resolved.grants.sandbox;
        let is_unconfined = self.resolved.grants.is_confined() && !ready.is_confined;
        let off = sandbox.off.as_ref().or(is_unconfined.then_some(&sandbox.provider_origin));
        let reason = off.map(|off| format!("not confined: {} ({off})", off.text));
        let reason = reason.or_else(|| {
            command_guard::doubt_about(
                &self.resolved.grants,
                command_guard::CommandText::Words(&self.request.command),
            )
        });
        let begun = self.begun(&ready.gaps);
        let record = self.record(RecordAction::Begin, RecordResult::Allowed, reason, begun);
        self.has_begun = true;
        match self.append(&[record]) {
            Err(error) => self.handle_audit_error(error),
            Ok(()) => Ok(()),
        }
    }

    /// Records the end of the run, and completes its outcome. A write error is only reported: the
    /// command has already run.
    pub(crate) fn finish(
        &mut self,
        mut result: Result<Outcome, EngineError>,
    ) -> Result<Outcome, EngineError> {
        let _stage = trace_span!(target: "stage", "finish").entered();
        let records = match &mut result {
            Err(EngineError::Audit { .. }) => return result,
            Err(error) if !self.has_begun => vec![self.refused(error)],
            Err(error) => self.failed(error),
            Ok(outcome) => {
                outcome.session = self.subject.session.clone();
                outcome.confined = self.is_confined();
                self.ended(outcome)
            }
        };
        let written =
            self.append(&records).and_then(|()| self.log.as_mut().map_or(Ok(()), AuditLog::finish));
        if let Err(error) = written {
            self.report_unrecorded(&error);
        }
        result
    }

    fn report_unrecorded(&mut self, error: &AuditError) {
        (self.on_notice)(&RunNotice::Unrecorded(error_chain(error)));
    }

    fn append(&mut self, records: &[Record]) -> Result<(), AuditError> {
        self.log.as_mut().map_or(Ok(()), |log| log.append(records).map(drop))
    }

    /// Refuses or reports a run that cannot be recorded, as the policy says.
    fn handle_audit_error(&mut self, error: AuditError) -> Result<(), EngineError> {
        match self.resolved.grants.audit.on_error {
            OnError::Refuse => Err(EngineError::Audit { source: error }),
            OnError::Run => {
                self.report_unrecorded(&error);
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
        let ResolvedPolicy { grants, surroundings, files, absent: _ } = self.resolved;
        let (command, command_base64) = RunStarted::command_fields(&self.request.command);
        let (cwd, cwd_base64) = RunStarted::path_fields(self.request.cwd.as_path().as_os_str());
        RecordDetails::Begun(Box::new(RunStarted {
            command,
            command_base64,
            cwd,
            cwd_base64,
            confined: self.is_confined(),
            provider: chosen_provider(grants).name.clone(),
            policy_files: files.iter().map(AbsPath::to_string).collect(),
            policy_digest: policy_digest(grants),
            gaps: gaps.iter().map(|gap| gap.what.clone()).collect(),
            user: surroundings.facts.user.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
        }))
    }

    /// The record of a run that was requested and not started.
    fn refused(&self, error: &EngineError) -> Record {
        let (verdict, gaps) = match error {
            EngineError::Gaps { gaps } => (RecordResult::Blocked, gaps.as_slice()),
            _ => (RecordResult::Failed, Default::default()),
        };
        self.record(RecordAction::Begin, verdict, Some(error_chain(error)), self.begun(gaps))
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
            Some(error_chain(error)),
            RecordDetails::Ended(ended),
        ));
        records
    }

    /// The record of a denial. It names the removed tool, if the denial follows from that.
    fn denied(&self, denial: &Denial) -> Record {
        let record = Record::denied(&self.subject, denial);
        match self.resolved.grants.tools.rule_behind_denial(&denial.rule, &denial.origin) {
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
            // A rule on its text refused it, so its start is not recorded yet.
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
        let verdict =
            if outcome.is_blocked() { RecordResult::Blocked } else { RecordResult::Allowed };
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

/// The mode that allowed the run.
fn policy(grants: &Grants) -> &'static str {
    if grants.enabled { grants.mode.word() } else { Mode::FullAccess.word() }
}

/// The digest of the rules. It is the same in one version of ringfence, with and without reporting
/// of allowed accesses, and with and without questions to the user.
pub fn policy_digest(grants: &Grants) -> String {
    let is_plain = grants.observe == Observe::Denials && grants.ask == Asking::Never;
    let plain = (!is_plain).then(|| Grants {
        observe: Observe::Denials,
        ask: Asking::Never,
        network: grants.network.without_prompts(),
        ..grants.clone()
    });
    let packed =
        postcard::to_stdvec(plain.as_ref().unwrap_or(grants)).expect("grants are plain data");
    digest(&packed).to_string()
}

/// A command as typed in a shell.
pub(crate) fn command_line(command: &[OsString]) -> String {
    command.iter().map(|word| shell_word(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(words: &[&str], expect: &str) {
        assert_eq!(super::command_line(&words.iter().map(Into::into).collect::<Vec<_>>()), expect);
    }

    #[test]
    fn command_is_quoted_for_a_shell() {
        check(&["npm", "test"], "npm test");
        check(&["/bin/sh", "-c", "npm ci && npm test"], "/bin/sh -c 'npm ci && npm test'");
        check(&["echo", "", "it's", "--x=a,b"], r"echo '' 'it'\''s' --x=a,b");
        check(&["rm", "a b", "*", "$HOME", "é"], "rm 'a b' '*' '$HOME' é");
    }
}
