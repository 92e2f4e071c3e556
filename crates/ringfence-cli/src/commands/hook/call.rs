//! A hook call, and the policy for it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_api::{Allowance, Denial, DenialEvidence, Operation};
use ringfence_audit::{AuditError, AuditLog, LogOptions, Record, RecordSubject, now_ms};
use ringfence_engine::{
    AppliedSettings, EngineError, PolicyFiles, ResolvedPolicy, can_be_asked,
    gather_host_environment, resolve_in, settings_files,
};
use ringfence_policy::{
    AbsPath, Access, Asking, Effect, Flags, ForeignTool, Grants, Mode, NetworkMode, OnError,
    Origin, Rule, Tool, ToolRule, Verdict,
};

use super::HookAgent;
use super::answer::{HookReply, truncate};
use super::input::{HookEvent, HookInput};
use crate::commands::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::messages;

/// A hook call, and the policy for it.
pub(super) struct HookCall {
    pub(super) agent: HookAgent,
    pub(super) input: HookInput,
    pub(super) resolved: ResolvedPolicy,
    files: PolicyFiles,
    pub(super) cwd: AbsPath,
    /// The directory the agent was started in: it reads its settings there.
    pub(super) start: AbsPath,
}

/// A refused action, and the reason.
pub(super) struct HookRefusal {
    pub(super) operation: Operation,
    pub(super) target: String,
    /// The rule and its origin.
    pub(super) rule: (String, String),
    pub(super) evidence: DenialEvidence,
    /// More text for the reason.
    pub(super) more: Option<String>,
}

impl HookRefusal {
    /// Refuses a tool that the policy takes away.
    pub(super) fn call(tool: &str, rule: &ToolRule) -> HookRefusal {
        HookRefusal {
            operation: Operation::Call,
            target: tool.to_owned(),
            rule: (rule.name.clone(), rule.origin.to_string()),
            evidence: DenialEvidence::Tool,
            more: Some("the policy denies the tool (`disallowed` under [tools])".into()),
        }
    }
}

/// The agent whose settings apply to a call as if the user's policy extended them.
///
/// Commands of Claude Code get its rules as flags of the rewritten line instead.
fn settings_to_apply(agent: HookAgent, input: &HookInput) -> Option<ForeignTool> {
    let is_command = input.tool == "Monitor" || Tool::from_name(&input.tool) == Some(Tool::Shell);
    match agent {
        _ if input.event != HookEvent::Before => None,
        HookAgent::ClaudeCode => (!is_command).then_some(ForeignTool::ClaudeCode),
        HookAgent::Codex => Some(ForeignTool::Codex),
    }
}

impl HookCall {
    pub(super) fn new(agent: HookAgent, input: HookInput) -> Result<HookCall, CliError> {
        // The agent's shell may be in a subdirectory that looks like a project. That must not
        // change the project.
        let named = env::var_os("CLAUDE_PROJECT_DIR")
            .filter(|path| agent == HookAgent::ClaudeCode && !path.is_empty());
        let named = named.map(|path| canonical_directory(Some(Path::new(&path)))).transpose()?;
        let cwd = match (canonical_directory(Some(&input.cwd)), &named) {
            // A command removed the directory. Failing here would leave the agent no way to
            // change to another one.
            (Err(CliError::File { source, .. }), Some(project))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                project.clone()
            }
            (entered, _) => entered?,
        };
        let start = named.unwrap_or_else(|| cwd.clone());
        let surroundings = gather_host_environment(&start)?;
        // An agent type without a definition is built into the agent.
        let agent_type = input
            .agent_type
            .as_deref()
            .map(|name| ringfence_engine::find_agent(name, &surroundings.facts))
            .transpose()?
            .flatten();
        let settings = settings_to_apply(agent, &input)
            .map(|tool| AppliedSettings { tool, start: start.clone() });
        let files = PolicyFiles {
            settings,
            agent: agent_type.map(|agent_type| agent_type.agent.name),
            ..PolicyFiles::default()
        };
        let flags = Flags { started_in: Some(start.clone()), ..Flags::none(cwd.clone()) };
        let resolved = resolve_in(surroundings, &flags, &files)?;
        Ok(HookCall { agent, input, resolved, files, cwd, start })
    }

    /// Returns the rules of Codex's settings as flags of `ringfence run`.
    pub(super) fn codex_flags(&self) -> Vec<String> {
        if self.agent != HookAgent::Codex {
            return Vec::new();
        }
        let (grants, facts) = (self.grants(), &self.resolved.surroundings.facts);
        let files = settings_files(ForeignTool::Codex, facts);
        let is_theirs =
            |origin: &Origin| origin.file.as_ref().is_some_and(|file| files.contains(file));
        let mut flags = Vec::new();
        if grants.mode == Mode::ReadOnly && !self.is_planning() {
            flags.push("--mode=read-only".to_owned());
        }
        // `run` refuses a `--write` without effect.
        let can_write = self.mode() == Mode::WorkspaceWrite;
        let is_written = |rule: &&Rule| {
            can_write && rule.effect == Effect::Write && rule.root.as_path().exists()
        };
        let written = grants.rules.iter().filter(is_written).filter(|rule| is_theirs(&rule.origin));
        flags.extend(written.map(|rule| format!("--write={}", rule.root)));
        let network = &grants.network;
        if network.mode == NetworkMode::Full && network.mode_origin.as_ref().is_some_and(is_theirs)
        {
            flags.push("--net=full".to_owned());
        }
        flags
    }

    /// Returns the agent's name: the defined agent, or the program.
    pub(super) fn name(&self) -> &str {
        self.files.agent.as_deref().unwrap_or(self.agent.word())
    }

    pub(super) fn grants(&self) -> &Grants {
        &self.resolved.grants
    }

    /// True in plan mode: commands must not change anything.
    pub(super) fn is_planning(&self) -> bool {
        self.input.permission_mode.as_deref() == Some("plan")
    }

    /// Returns the mode of a command of this call.
    pub(super) fn mode(&self) -> Mode {
        if self.is_planning() { Mode::ReadOnly } else { self.grants().mode }
    }

    pub(super) fn subject(&self) -> RecordSubject {
        let session = self.input.call.clone().unwrap_or_else(ringfence_audit::session_id);
        RecordSubject { agent: Some(self.name().to_owned()), session }
    }

    /// Returns the path of ringfence itself.
    pub(super) fn program(&self) -> Result<PathBuf, CliError> {
        env::current_exe().map_err(|source| CliError::File {
            what: "find",
            path: "ringfence itself".into(),
            source,
        })
    }

    /// Returns the path of ringfence, if a confined command could replace it.
    pub(super) fn replaceable_program(&self) -> Result<Option<PathBuf>, CliError> {
        let program = self.program()?;
        let is_writable =
            |path: AbsPath| self.grants().verdict(&path, Access::Write) == Verdict::Allowed;
        let is_exposed =
            self.grants().is_confined() && AbsPath::new(&program).is_none_or(is_writable);
        Ok(is_exposed.then_some(program))
    }

    /// Returns the directory of the agent's own settings and notes.
    pub(super) fn config(&self) -> PathBuf {
        let moved =
            env::var_os("CLAUDE_CONFIG_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
        moved.unwrap_or_else(|| self.grants().home.as_path().join(".claude"))
    }

    /// Records a refusal, and returns the reply.
    pub(super) fn record_refusal(&self, refusal: HookRefusal) -> Result<HookReply, CliError> {
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
        Ok(self.refusal_reply(&denial, more))
    }

    /// Returns the reply for a denial that is already recorded.
    pub(super) fn refusal_reply(&self, denial: &Denial, more: Option<String>) -> HookReply {
        let Denial { operation, target, rule, origin, .. } = denial;
        let mut reason = format!(
            "ringfence denies {} {}, by `{rule}` ({origin})",
            operation.word(),
            truncate(target)
        );
        if let Some(more) = more {
            reason.push_str(&format!("; {more}"));
        }
        let is_asked = self.grants().ask == Asking::Terminal
            && can_be_asked(denial, &self.files, &self.resolved);
        if is_asked { HookReply::Asked { reason } } else { HookReply::Denied { reason } }
    }

    /// Records that a call runs unchanged.
    pub(super) fn allow_unchanged(
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
                messages::warn_unrecorded(&error);
                Ok(())
            }
        }
    }
}
