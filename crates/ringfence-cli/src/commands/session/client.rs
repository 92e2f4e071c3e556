//! The client side of a session.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ringfence_api::{AskAnswer, Denial, LimitBreach};
use ringfence_policy::AbsPath;
use serde_json::{Value, json};

use super::frames::{FrameKind, receive, send};
use super::{
    AskAnswerArgs, SessionExecArgs, SessionListArgs, SessionRef, SessionSignalArgs, socket_dir,
};
use crate::commands::resolve_args::parse_duration_ms;
use crate::denied::{Denied, is_silenced};
use crate::error::CliError;
use crate::{messages, output};

pub(super) fn exec(arguments: SessionExecArgs) -> Result<ExitCode, CliError> {
    let mut session = find(&arguments.session)?;
    let timeout = arguments.timeout.as_deref().map(parse_duration_ms).transpose()?;
    let (ask, line) = match &arguments.line {
        Some(line) => ("exec", line.as_bytes().to_vec()),
        None => (
            "start",
            arguments.command.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0),
        ),
    };
    session.send(FrameKind::Line, &line)?;
    let question = json!({ "ask": ask, "timeoutMs": timeout, "stream": !arguments.json, "input": arguments.input });
    session.send(FrameKind::Question, question.to_string().as_bytes())?;
    if arguments.input {
        session.forward_input()?;
    }
    let answer = session.answer()?;
    if arguments.json {
        output::print_json(&answer)?;
    } else if !arguments.quiet && !is_silenced() {
        report_denials(&answer);
    }
    Ok(conclude(&answer, arguments.json))
}

/// Prints which hosts and paths were denied to a command that failed.
fn report_denials(answer: &Value) {
    let is_failure = answer["exitCode"].as_u64().is_some_and(|status| status != 0);
    let is_refused_line = !answer["refusal"].is_null();
    if !is_failure || answer["blocked"] != true || is_refused_line {
        return;
    }
    let denials: Vec<Denial> =
        serde_json::from_value(answer["denials"].clone()).unwrap_or_default();
    let home = std::env::var_os("HOME").and_then(AbsPath::new);
    Denied {
        denials: &denials,
        dropped: answer["denialsDropped"].as_u64().unwrap_or_default(),
        home: home.as_ref(),
    }
    .report();
}

/// Prints notes and warnings, unless `is_printed`; returns the exit status.
pub(super) fn conclude(answer: &Value, is_printed: bool) -> ExitCode {
    let status = |key: &str| answer[key].as_u64().and_then(|status| u8::try_from(status).ok());
    if let Some(error) = answer.get("error") {
        if !is_printed {
            print_error(error);
        }
        return ExitCode::from(
            error["status"].as_u64().and_then(|status| u8::try_from(status).ok()).unwrap_or(125),
        );
    }
    if !is_printed {
        print_notes(answer);
    }
    ExitCode::from(status("exitCode").unwrap_or(125))
}

fn print_error(error: &Value) {
    let text = |key: &str| error[key].as_str().map(output::printable);
    messages::print_line(&format!("error: {}", text("message").unwrap_or_default()));
    for cause in error["causes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        messages::print_line(&format!("  caused by: {}", output::printable(cause)));
    }
    if let Some(hint) = text("hint") {
        messages::print_line(&format!("hint: {hint}"));
    }
}

/// Prints notes and warnings about an answer.
fn print_notes(answer: &Value) {
    if answer["restarted"] == true {
        messages::print_note(
            "the policy became stricter: the sandbox was recreated, without /tmp files and background processes of earlier commands",
        );
    }
    if answer["shell"] == "ended" {
        messages::print_note(
            "the command ended the session's shell; the next command gets a new one",
        );
    }
    if let Some(text) = answer["background"].as_str() {
        let dropped = answer["backgroundDropped"]
            .as_u64()
            .map(|dropped| format!(" ({dropped} bytes omitted)"));
        messages::print_note(&format!(
            "output of background processes from earlier commands{}:",
            dropped.unwrap_or_default()
        ));
        let _ = write_and_flush(&mut io::stderr().lock(), text.as_bytes());
    }
    let breaches = answer["breaches"].as_array().into_iter().flatten();
    for breach in
        breaches.filter_map(|breach| serde_json::from_value::<LimitBreach>(breach.clone()).ok())
    {
        messages::print_warning(&breach.to_string());
    }
    let policy = &answer["policy"];
    let texts = |value: &Value| {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(output::printable)
            .collect::<Vec<_>>()
    };
    for change in texts(&policy["said"]) {
        messages::print_note(&format!("the policy was changed: {change}"));
    }
    let is_pending = |change: &Value| !change["pending"].is_null();
    if policy["changes"].as_array().into_iter().flatten().any(is_pending) {
        let session = answer["session"].as_str().map(output::printable).unwrap_or_default();
        messages::print_line(&format!(
            "hint: `ringfence session stop {session}`, then `ringfence session start`"
        ));
    }
    for problem in policy["problems"].as_array().into_iter().flatten() {
        let text = |key: &str| problem[key].as_str().map(output::printable);
        messages::print_warning(&format!(
            "the policy is unchanged: {}",
            text("message").unwrap_or_default()
        ));
        if let Some(hint) = text("hint") {
            messages::print_line(&format!("hint: {hint}"));
        }
    }
    for warning in answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        messages::print_warning(&format!(
            "not recorded in the audit log: {}",
            output::printable(warning)
        ));
    }
}

pub(super) fn list(arguments: &SessionListArgs) -> Result<ExitCode, CliError> {
    let sessions: Vec<Value> = all()?.into_iter().map(|(_, about)| about).collect();
    if arguments.json {
        output::print_json(&Value::Array(sessions))?;
        return Ok(ExitCode::SUCCESS);
    }
    for about in sessions {
        let text = |key: &str| about[key].as_str().map(output::printable).unwrap_or_default();
        let busy = if about["busy"] == true { ", busy" } else { "" };
        let commands = format!("{} commands{busy}", about["commands"]);
        output::print_text(&format!(
            "{}  {:12}  {:18}  {}\n",
            text("session"),
            text("name"),
            commands,
            text("cwd")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn inspect(arguments: &SessionRef) -> Result<ExitCode, CliError> {
    let about = find(&arguments.session)?.ask(&json!({ "ask": "inspect" }))?;
    output::print_json(&about)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn signal(arguments: &SessionSignalArgs) -> Result<ExitCode, CliError> {
    let answer = find(&arguments.session)?
        .ask(&json!({ "ask": "signal", "signal": arguments.signal.number() }))?;
    Ok(conclude(&answer, false))
}

pub(super) fn stop(arguments: &SessionRef) -> Result<ExitCode, CliError> {
    let answer = find(&arguments.session)?.ask(&json!({ "ask": "stop" }))?;
    for moved in answer["quarantined"].as_array().into_iter().flatten() {
        let text = |key: &str| moved[key].as_str().unwrap_or_default();
        // The command chose these names.
        messages::print_warning(&output::printable(&format!(
            "{} was moved to {}: {}",
            text("path"),
            text("movedTo"),
            text("reason")
        )));
    }
    match answer.get("error") {
        Some(error) => {
            print_error(error);
            Ok(ExitCode::from(125))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

pub(super) fn questions(arguments: &SessionListArgs) -> Result<ExitCode, CliError> {
    let mut all = Vec::new();
    for (mut session, about) in self::all()? {
        let Value::Array(question) = session.ask(&json!({ "ask": "questions" }))? else { continue };
        all.extend(question.into_iter().map(|mut question| {
            question["session"] = about["session"].clone();
            question
        }));
    }
    if arguments.json {
        output::print_json(&Value::Array(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    for question in all {
        let text = |key: &str| question[key].as_str().map(output::printable).unwrap_or_default();
        // The command chose these names.
        let reason =
            question["permission"]["reason"].as_str().map(output::printable).unwrap_or_default();
        let offered = question["permission"]["options"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        // In the spelling that `ringfence ask answer` accepts.
        let offered: Vec<String> =
            offered.map(|answer| output::printable(answer).replace('_', "-")).collect();
        output::print_text(&format!(
            "{} {}  {} {}  by {}\n    {reason}\n    answers: {}\n",
            text("session"),
            question["question"],
            text("operation"),
            text("target"),
            text("program"),
            offered.join(" "),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn answer(arguments: &AskAnswerArgs) -> Result<ExitCode, CliError> {
    let answer = AskAnswer::from(arguments.answer).to_string();
    let question = json!({ "ask": "answer", "question": arguments.question, "answer": answer });
    let answered = find(&arguments.session)?.ask(&question)?;
    Ok(match answered.get("error") {
        Some(error) => {
            print_error(error);
            ExitCode::from(125)
        }
        None => ExitCode::SUCCESS,
    })
}

/// A connection to a session.
pub(super) struct SessionClient {
    id: String,
    pub(super) stream: UnixStream,
    /// Held while a frame is sent, so that two threads do not mix their frames.
    send_lock: Arc<Mutex<()>>,
}

impl SessionClient {
    /// Connects to a session. `None` if its server is gone; then its socket is removed.
    pub(super) fn connect(id: &str, socket: &Path) -> Option<Self> {
        match socket_dir::connect(socket) {
            Ok(stream) => Some(Self { id: id.to_owned(), stream, send_lock: Arc::default() }),
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    let _ = std::fs::remove_file(socket);
                }
                None
            }
        }
    }

    pub(super) fn fail(&self, what: &'static str, source: io::Error) -> CliError {
        CliError::File { what, path: format!("session {}", self.id), source }
    }

    pub(super) fn send(&mut self, kind: FrameKind, bytes: &[u8]) -> Result<(), CliError> {
        let _lock = self.send_lock.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut &self.stream, kind, bytes).map_err(|error| self.fail("send to", error))
    }

    /// Forwards standard input to its end, in a thread.
    pub(super) fn forward_input(&self) -> Result<(), CliError> {
        const PIECE: usize = 64 * 1024;
        let mut stream = self.stream.try_clone().map_err(|error| self.fail("send to", error))?;
        let send_lock = self.send_lock.clone();
        let forward = move || {
            let mut piece = vec![0; PIECE];
            loop {
                // A read error counts as the end.
                let length = io::stdin().lock().read(&mut piece).unwrap_or(0);
                let _lock = send_lock.lock().unwrap_or_else(PoisonError::into_inner);
                if send(&mut stream, FrameKind::Input, &piece[..length]).is_err() || length == 0 {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("input".into())
            .spawn(forward)
            .map(drop)
            .map_err(|error| self.fail("send to", error))
    }

    /// Sends a question, and forwards the command's output until the answer arrives.
    pub(super) fn ask(&mut self, question: &Value) -> Result<Value, CliError> {
        self.send(FrameKind::Question, question.to_string().as_bytes())?;
        self.answer()
    }

    /// Forwards the command's output until the answer arrives.
    pub(super) fn answer(&mut self) -> Result<Value, CliError> {
        loop {
            let frame =
                receive(&mut self.stream).map_err(|error| self.fail("receive from", error))?;
            let written = match frame {
                Some((FrameKind::Out, bytes)) => write_and_flush(&mut io::stdout().lock(), &bytes),
                Some((FrameKind::Err, bytes)) => write_and_flush(&mut io::stderr().lock(), &bytes),
                Some((FrameKind::Answer, text)) => {
                    return serde_json::from_slice(&text)
                        .map_err(|error| self.fail("parse the answer of", error.into()));
                }
                Some(_) => {
                    return Err(self.fail("parse the answer of", io::ErrorKind::InvalidData.into()));
                }
                None => return Err(self.fail("receive from", io::ErrorKind::UnexpectedEof.into())),
            };
            if written.is_err() {
                // The reader has closed the pipe: the command need not go on.
                self.send(FrameKind::Interrupt, b"")?;
            }
        }
    }
}

fn write_and_flush(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Returns all sessions that respond, and their state.
fn all() -> Result<Vec<(SessionClient, Value)>, CliError> {
    let connected = socket_dir::sockets()?
        .into_iter()
        .filter_map(|(id, socket)| SessionClient::connect(&id, &socket));
    Ok(connected
        .filter_map(|mut session| {
            session.ask(&json!({ "ask": "inspect" })).ok().map(|about| (session, about))
        })
        .collect())
}

/// Finds a session by its id, a prefix of its id, or its name.
pub(super) fn find(word: &str) -> Result<SessionClient, CliError> {
    if let Some((id, socket)) = socket_dir::sockets()?.into_iter().find(|(id, _)| id == word)
        && let Some(session) = SessionClient::connect(&id, &socket)
    {
        return Ok(session);
    }
    let is_match = |id: &str, about: &Value| {
        about["name"] == word || (word.len() >= 4 && id.starts_with(word))
    };
    let mut found: Vec<SessionClient> = all()?
        .into_iter()
        .filter(|(session, about)| is_match(&session.id, about))
        .map(|(session, _)| session)
        .collect();
    let what = match found.len() {
        1 => return Ok(found.remove(0)),
        0 => format!("there is no session `{word}`"),
        several => format!("`{word}` matches {several} sessions"),
    };
    Err(CliError::Usage {
        what,
        hint: "`ringfence session list` shows the running sessions".into(),
    })
}
