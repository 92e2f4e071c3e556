//! The client side of a session.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use ringfence_api::ExecuteResult;
use ringfence_api::session_protocol::{
    ExecRequest, QuestionReport, SessionReport, SessionRequest, StartRequest,
};
use ringfence_client::{find_all, find_by_id, find_session};
use ringfence_policy::AbsPath;

use super::forward::{forward_input, forward_output};
use super::notes::{conclude, exit_status};
use super::{AskAnswerArgs, SessionExecArgs, SessionListArgs, SessionRef, SessionSignalArgs};
use crate::commands::resolve_args::parse_duration_ms;
use crate::denied::{Denied, is_silenced};
use crate::error::CliError;
use crate::output::printable;
use crate::{messages, output};

pub(super) fn exec(arguments: SessionExecArgs) -> Result<ExitCode, CliError> {
    let mut session = find_session(&arguments.session)?;
    let timeout_ms = arguments.timeout.as_deref().map(parse_duration_ms).transpose()?;
    let (stream, input) = (!arguments.json, arguments.input);
    session.send(&match &arguments.line {
        Some(line) => {
            let line = line.as_bytes().into();
            SessionRequest::Exec(ExecRequest { line, timeout_ms, stream, input })
        }
        None => {
            let command = arguments.command.iter().map(|word| word.as_bytes().into()).collect();
            SessionRequest::Start(StartRequest { command, timeout_ms, stream, input })
        }
    })?;
    if input {
        forward_input(&session)?;
    }
    let result = session.result(forward_output)?;
    if arguments.json {
        output::print_json(&result)?;
        return Ok(exit_status(&result));
    }
    if !arguments.quiet && !is_silenced() {
        report_denials(&result);
    }
    Ok(conclude(&result))
}

/// Prints which hosts and paths were denied to a command that failed.
fn report_denials(result: &ExecuteResult) {
    if result.exit_code == 0 || !result.blocked || result.refusal.is_some() {
        return;
    }
    let home = std::env::var_os("HOME").and_then(AbsPath::new);
    Denied { denials: &result.denials, dropped: result.denials_dropped, home: home.as_ref() }
        .report();
}

pub(super) fn list(arguments: &SessionListArgs) -> Result<ExitCode, CliError> {
    let sessions: Vec<SessionReport> = find_all().into_iter().map(|(_, state)| state).collect();
    if arguments.json {
        output::print_json(&sessions)?;
        return Ok(ExitCode::SUCCESS);
    }
    for state in sessions {
        let busy = if state.busy { ", busy" } else { "" };
        output::print_text(&format!(
            "{}  {:12}  {:18}  {}\n",
            printable(&state.session),
            state.name.as_deref().map(printable).unwrap_or_default(),
            format!("{} commands{busy}", state.commands),
            printable(&state.cwd)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn inspect(arguments: &SessionRef) -> Result<ExitCode, CliError> {
    output::print_json(&find_session(&arguments.session)?.inspect()?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn signal(arguments: &SessionSignalArgs) -> Result<ExitCode, CliError> {
    find_session(&arguments.session)?.signal(arguments.signal.signal())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn stop(arguments: &SessionRef) -> Result<ExitCode, CliError> {
    // A session of another version can be stopped by its id.
    let mut session = match find_by_id(&arguments.session) {
        Some(session) => session,
        None => find_session(&arguments.session)?,
    };
    for moved in session.stop()? {
        // The command chose these names.
        messages::print_warning(&printable(&format!(
            "{} was moved to {}: {}",
            moved.path, moved.moved_to, moved.reason
        )));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn questions(arguments: &SessionListArgs) -> Result<ExitCode, CliError> {
    let mut listed: Vec<QuestionReport> = Vec::new();
    for (mut session, _) in find_all() {
        listed.extend(session.questions()?);
    }
    if arguments.json {
        output::print_json(&listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    for question in listed {
        // In the spelling that `ringfence ask answer` accepts.
        let offered = question.permission.options.iter();
        let offered: Vec<_> = offered.map(|answer| answer.to_string().replace('_', "-")).collect();
        // The command chose these names.
        output::print_text(&format!(
            "{} {}  {} {}  by {}\n    {}\n    answers: {}\n",
            printable(&question.session),
            question.question,
            question.operation.word(),
            printable(&question.target),
            printable(&question.program),
            printable(&question.permission.reason),
            offered.join(" "),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn answer(arguments: &AskAnswerArgs) -> Result<ExitCode, CliError> {
    find_session(&arguments.session)?.answer(arguments.question, arguments.answer.into())?;
    Ok(ExitCode::SUCCESS)
}
