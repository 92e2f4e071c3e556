//! Commands: they go into the sandbox.

use ringfence_engine::{Files, Resolved, gather, resolve_in};
use ringfence_policy::command::Line;
use ringfence_policy::{Access, Flags, Verdict};

use super::Agent;
use super::answer::{Answer, Consent};
use super::input::Input;
use super::rewrite::Rewrite;
use crate::commands::words::directory;
use crate::error::CliError;

pub(super) fn before(agent: Agent, input: &Input) -> Result<Answer, CliError> {
    if input.tool != "Bash" {
        return Ok(Answer::Nothing);
    }
    let line = input.text("command")?;
    let cwd = directory(Some(&input.cwd))?;
    let resolved: Resolved = resolve_in(gather(&cwd)?, &Flags::none(cwd.clone()), &Files::default())?;
    let grants = &resolved.grants;
    let read = Line::parse(line);
    if let Some(refusal) = grants.commands.refusal(read.as_ref()) {
        return Ok(Answer::Denied { reason: refusal.reason });
    }
    let program = std::env::current_exe().map_err(|source| CliError::File { what: "find", path: "ringfence itself".into(), source })?;
    let is_writable = ringfence_policy::AbsPath::new(&program).is_none_or(|path| grants.verdict(&path, Access::Write) == Verdict::Allowed);
    if is_writable && grants.is_confined() {
        return Ok(Answer::Denied { reason: "ringfence itself stands where commands may write".into() });
    }
    let rewrite = Rewrite { program: &program, project: &grants.workspace, agent: agent.word(), call: input.call.as_deref() };
    let mut arguments = input.arguments.clone();
    if !rewrite.made(line) {
        let made = rewrite.of(line).ok_or_else(|| CliError::Words {
            what: "the path of ringfence or of the project is no text".into(),
            hint: "rename it".into(),
        })?;
        arguments.insert("command".into(), made.into());
    }
    Ok(Answer::Rewritten { arguments, consent: Consent::Given, reason: "runs in ringfence's sandbox".into() })
}
