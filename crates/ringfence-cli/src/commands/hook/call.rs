//! A call of a hook, and what holds for it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_api::{Allowance, Denial, DenialEvidence, Operation};
use ringfence_audit::{AuditError, AuditLog, LogOptions, Record, RecordSubject, now_ms};
use ringfence_engine::{
    EngineError, PolicyFiles, ResolvedPolicy, gather, is_asked_about, resolve_in,
};
use ringfence_policy::{AbsPath, Access, Asking, Flags, Grants, Mode, OnError, ToolRule, Verdict};

use super::HookAgent;
use super::answer::{HookReply, short};
use super::input::HookInput;
use crate::commands::resolve_args::directory;
use crate::error::CliError;
use crate::messages;

/// A call of a hook, and what holds for it.
pub(super) struct HookCall {
    pub(super) agent: HookAgent,
    pub(super) input: HookInput,
    pub(super) resolved: ResolvedPolicy,
    files: PolicyFiles,
    pub(super) cwd: AbsPath,
    /// Where the agent was started: it reads its settings there.
    pub(super) start: AbsPath,
}

/// Something that is not to be done, and why.
pub(super) struct HookRefusal {
    pub(super) operation: Operation,
    pub(super) target: String,
    /// The rule and where it was written.
    pub(super) rule: (String, String),
    pub(super) evidence: DenialEvidence,
    /// What else is to be said of it.
    pub(super) more: Option<String>,
}

impl HookRefusal {
    /// A tool that was taken away.
    pub(super) fn call(tool: &str, rule: &ToolRule) -> HookRefusal {
        HookRefusal {
            operation: Operation::Call,
            target: tool.to_owned(),
            rule: (rule.name.clone(), rule.origin.to_string()),
            evidence: DenialEvidence::Tool,
            more: Some("the tool is taken away by `disallowed` under [tools]".into()),
        }
    }
}

impl HookCall {
    pub(super) fn of(agent: HookAgent, input: HookInput) -> Result<HookCall, CliError> {
        // The agent's shell may stand in a part of the project that looks like one of its own, and
        // must not choose by that which project it is.
        let named = env::var_os("CLAUDE_PROJECT_DIR")
            .filter(|path| agent == HookAgent::ClaudeCode && !path.is_empty());
        let named = named.map(|path| directory(Some(Path::new(&path)))).transpose()?;
        let cwd = match (directory(Some(&input.cwd)), &named) {
            // A command took it away; an agent that can do nothing any more cannot go elsewhere
            // either.
            (Err(CliError::File { source, .. }), Some(project))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                project.clone()
            }
            (entered, _) => entered?,
        };
        let start = named.unwrap_or_else(|| cwd.clone());
        let surroundings = gather(&start)?;
        // A name that nobody has described is one that comes with the program.
        let described = input
            .described
            .as_deref()
            .map(|name| ringfence_engine::agent(name, &surroundings.facts))
            .transpose()?
            .flatten();
        let files = PolicyFiles {
            agent: described.map(|described| described.agent.name),
            ..PolicyFiles::default()
        };
        let flags = Flags { started_in: Some(start.clone()), ..Flags::none(cwd.clone()) };
        let resolved = resolve_in(surroundings, &flags, &files)?;
        Ok(HookCall { agent, input, resolved, files, cwd, start })
    }

    /// On whose behalf: the agent that is described, or the program.
    pub(super) fn name(&self) -> &str {
        self.files.agent.as_deref().unwrap_or(self.agent.word())
    }

    pub(super) fn grants(&self) -> &Grants {
        &self.resolved.grants
    }

    /// Answers whether the agent only plans: its commands change nothing then.
    pub(super) fn is_planning(&self) -> bool {
        self.input.permission_mode.as_deref() == Some("plan")
    }

    /// The mode that a command of this call runs in.
    pub(super) fn mode(&self) -> Mode {
        if self.is_planning() { Mode::ReadOnly } else { self.grants().mode }
    }

    pub(super) fn subject(&self) -> RecordSubject {
        let session = self.input.call.clone().unwrap_or_else(ringfence_audit::session_id);
        RecordSubject { agent: Some(self.name().to_owned()), session }
    }

    /// Ringfence itself.
    pub(super) fn program(&self) -> Result<PathBuf, CliError> {
        env::current_exe().map_err(|source| CliError::File {
            what: "find",
            path: "ringfence itself".into(),
            source,
        })
    }

    /// The same, where somebody who is to be confined by it could replace it.
    pub(super) fn exposed(&self) -> Result<Option<PathBuf>, CliError> {
        let program = self.program()?;
        let is_theirs =
            |path: AbsPath| self.grants().verdict(&path, Access::Write) == Verdict::Allowed;
        let is_exposed =
            self.grants().is_confined() && AbsPath::new(&program).is_none_or(is_theirs);
        Ok(is_exposed.then_some(program))
    }

    /// Where the agent keeps its own settings and notes.
    pub(super) fn config(&self) -> PathBuf {
        let moved =
            env::var_os("CLAUDE_CONFIG_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
        moved.unwrap_or_else(|| self.grants().home.as_path().join(".claude"))
    }

    /// Records a refusal, and says it.
    pub(super) fn refuse(&self, refusal: HookRefusal) -> Result<HookReply, CliError> {
        let HookRefusal { operation, target, rule: (rule, origin), evidence, more } = refusal;
        let (pid, program, time_ms) = (std::process::id(), self.agent.word().to_owned(), now_ms());
        let denial = Denial {
            operation,
            target,
            rule,
            origin,
            explicit: true,
            pid,
            program,
            time_ms,
            evidence,
            count: 1,
            optional: false,
        };
        self.record(Record::denied(&self.subject(), &denial))?;
        Ok(self.refused(&denial, more))
    }

    /// Says what is on record already.
    pub(super) fn refused(&self, denial: &Denial, more: Option<String>) -> HookReply {
        let Denial { operation, target, rule, origin, .. } = denial;
        let mut reason = format!(
            "ringfence refuses: {} {}, by `{rule}` ({origin})",
            operation.word(),
            short(target)
        );
        if let Some(more) = more {
            reason.push_str(&format!("; {more}"));
        }
        let is_asked = self.grants().ask == Asking::Terminal
            && is_asked_about(denial, &self.files, &self.resolved);
        if is_asked { HookReply::Asked { reason } } else { HookReply::Denied { reason } }
    }

    /// Records that a call goes on as the agent makes it.
    pub(super) fn pass(
        &self,
        operation: Operation,
        target: &str,
        rule: (String, String),
    ) -> Result<HookReply, CliError> {
        let (pid, program, time_ms) = (std::process::id(), self.agent.word().to_owned(), now_ms());
        let (rule, origin) = rule;
        let allowance = Allowance {
            operation,
            target: target.to_owned(),
            rule,
            origin,
            pid,
            program,
            time_ms,
            count: 1,
        };
        self.record(Record::allowed(&self.subject(), &allowance))?;
        Ok(HookReply::Nothing)
    }

    fn record(&self, record: Record) -> Result<(), CliError> {
        let rules = &self.grants().audit;
        let options = LogOptions { fsync: rules.fsync, rotate_bytes: rules.rotate_bytes };
        let write = || -> Result<(), AuditError> {
            let mut log = AuditLog::open(rules.directory.as_path(), options)?;
            log.append(&[record.by_tool(&self.input.tool)])?;
            log.finish()
        };
        match (write(), rules.on_error) {
            (Ok(()), _) => Ok(()),
            (Err(source), OnError::Refuse) => Err(EngineError::Audit { source }.into()),
            (Err(error), OnError::Run) => {
                messages::unrecorded(&error);
                Ok(())
            }
        }
    }
}
