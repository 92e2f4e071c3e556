//! Audit records of tool calls: each call before it takes effect, and each denial.

use std::sync::{Mutex, PoisonError};

use ringfence_api::{Allowance, Denial, DenialEvidence, Operation};
use ringfence_audit::{
    AuditError, AuditLog, LogOptions, Record, RecordResult, RecordSubject, now_ms,
};
use ringfence_policy::{AuditRules, DecidingRule, Decision, OnError};

use crate::error::ToolError;

/// Receives audit errors that do not stop a call.
pub type OnUnrecorded = dyn Fn(&AuditError) + Send + Sync;

/// The records of one agent's calls.
pub(crate) struct ToolRecorder {
    log: Mutex<Option<AuditLog>>,
    subject: RecordSubject,
    on_error: OnError,
    program: String,
    on_unrecorded: Box<OnUnrecorded>,
}

impl ToolRecorder {
    pub(crate) fn open(
        rules: &AuditRules,
        subject: RecordSubject,
        on_unrecorded: Box<OnUnrecorded>,
    ) -> Result<ToolRecorder, AuditError> {
        let program = std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let journal = ToolRecorder {
            log: Mutex::new(None),
            subject,
            on_error: rules.on_error,
            program: program.unwrap_or_else(|| "ringfence".into()),
            on_unrecorded,
        };
        let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
        match AuditLog::open(rules.directory.as_path(), options) {
            Ok(log) => *journal.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log),
            Err(error) => journal.decide(error)?,
        }
        Ok(journal)
    }

    /// Records a call before it runs; an error means that it must not run.
    pub(crate) fn allow(
        &self,
        tool: &str,
        operation: Operation,
        decision: &Decision,
    ) -> Result<(), ToolError> {
        self.write(self.allowed(tool, operation, decision))
    }

    /// Records a call before it goes to another handler.
    pub(crate) fn record_routed(&self, tool: &str) -> Result<(), ToolError> {
        let because = ("no rule removes it".to_owned(), "built in".to_owned());
        self.write(self.record(tool, Operation::Call, tool.to_owned(), because))
    }

    fn allowed(&self, tool: &str, operation: Operation, decision: &Decision) -> Record {
        let because = match decision.rule.as_ref().map(DecidingRule::origin) {
            Some(origin) => (origin.text.clone(), origin.to_string()),
            None => ("full-access".to_owned(), "the mode".to_owned()),
        };
        self.record(tool, operation, decision.path.to_string_lossy().into_owned(), because)
    }

    fn record(
        &self,
        tool: &str,
        operation: Operation,
        target: String,
        (rule, origin): (String, String),
    ) -> Record {
        let (pid, program, time_ms) = (std::process::id(), self.program.clone(), now_ms());
        Record::allowed(
            &self.subject,
            &Allowance { operation, target, rule, origin, pid, program, time_ms, count: 1 },
        )
        .by_tool(tool)
    }

    /// Records a denial by a decision.
    pub(crate) fn refuse(
        &self,
        tool: &str,
        operation: Operation,
        decision: &Decision,
    ) -> ToolError {
        let target = decision.path.to_string_lossy().into_owned();
        self.refuse_with_reason(tool, operation, target, Denial::rule_from_decision(decision))
    }

    /// Records any other denial: `(rule, origin, explicit)`.
    pub(crate) fn refuse_with_reason(
        &self,
        tool: &str,
        operation: Operation,
        target: String,
        because: (String, String, bool),
    ) -> ToolError {
        let (rule, origin, explicit) = because;
        let denial = Denial {
            operation,
            target,
            rule,
            origin,
            explicit,
            pid: std::process::id(),
            program: self.program.clone(),
            time_ms: now_ms(),
            evidence: DenialEvidence::Tool,
            count: 1,
            optional: false,
        };
        // The call is denied in any case; an audit error replaces the denial.
        match self.write(Record::denied(&self.subject, &denial).by_tool(tool)) {
            Ok(()) => ToolError::Denied { denial: Box::new(denial) },
            Err(error) => error,
        }
    }

    /// Records that an allowed call failed.
    pub(crate) fn failed(
        &self,
        tool: &str,
        operation: Operation,
        decision: &Decision,
        error: &ToolError,
    ) {
        let record = Record {
            result: RecordResult::Failed,
            reason: Some(error.to_string()),
            ..self.allowed(tool, operation, decision)
        };
        if let Err(ToolError::Audit { source }) = self.write(record) {
            (self.on_unrecorded)(&source);
        }
    }

    fn write(&self, record: Record) -> Result<(), ToolError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match log.as_mut().map_or(Ok(()), |log| log.append(&[record]).and_then(|_| log.finish())) {
            Ok(()) => Ok(()),
            Err(error) => self.decide(error).map_err(|source| ToolError::Audit { source }),
        }
    }

    /// Refuses or reports a call that cannot be recorded, as the policy says.
    fn decide(&self, error: AuditError) -> Result<(), AuditError> {
        match self.on_error {
            OnError::Refuse => Err(error),
            OnError::Run => {
                (self.on_unrecorded)(&error);
                Ok(())
            }
        }
    }
}
