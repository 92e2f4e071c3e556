//! Whoever asks a session.

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
use crate::commands::resolve_args::duration;
use crate::denied::{Denied, is_silenced};
use crate::error::CliError;
use crate::{messages, output};

pub(super) fn exec(arguments: SessionExecArgs) -> Result<ExitCode, CliError> {
    let mut session = find(&arguments.session)?;
    let timeout = arguments.timeout.as_deref().map(duration).transpose()?;
    let (ask, line) = match &arguments.line {
        Some(line) => ("exec", line.as_bytes().to_vec()),
        None => (
            "start",
            arguments.command.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0),
        ),
    };
    session.say(FrameKind::Line, &line)?;
    let question = json!({ "ask": ask, "timeoutMs": timeout, "stream": !arguments.json, "input": arguments.input });
    session.say(FrameKind::Question, question.to_string().as_bytes())?;
    if arguments.input {
        session.pass_input()?;
    }
    let answer = session.answer()?;
    if arguments.json {
        output::json(&answer)?;
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

/// Says what a person should know beside the output; answers the status to end with.
pub(super) fn conclude(answer: &Value, is_told: bool) -> ExitCode {
    let status = |key: &str| answer[key].as_u64().and_then(|status| u8::try_from(status).ok());
    if let Some(error) = answer.get("error") {
        if !is_told {
            complain(error);
        }
        return ExitCode::from(
            error["status"].as_u64().and_then(|status| u8::try_from(status).ok()).unwrap_or(125),
        );
    }
    if !is_told {
        tell(answer);
    }
    ExitCode::from(status("exitCode").unwrap_or(125))
}

fn complain(error: &Value) {
    let text = |key: &str| error[key].as_str().map(output::printable);
    messages::line(&format!("error: {}", text("message").unwrap_or_default()));
    for cause in error["causes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        messages::line(&format!("  caused by: {}", output::printable(cause)));
    }
    if let Some(hint) = text("hint") {
        messages::line(&format!("hint: {hint}"));
    }
}

/// What a person should know beside the output.
fn tell(answer: &Value) {
    if answer["restarted"] == true {
        messages::note(
            "the policy was narrowed: the sandbox was made anew, without what earlier commands left in /tmp or running",
        );
    }
    if answer["shell"] == "ended" {
        messages::note("the command ended the shell of the session; the next one gets a new one");
    }
    if let Some(text) = answer["background"].as_str() {
        let dropped = answer["backgroundDropped"]
            .as_u64()
            .map(|dropped| format!(" (without {dropped} bytes in between)"));
        messages::note(&format!(
            "what earlier commands left running wrote meanwhile{}:",
            dropped.unwrap_or_default()
        ));
        let _ = written(&mut io::stderr().lock(), text.as_bytes());
    }
    let breaches = answer["breaches"].as_array().into_iter().flatten();
    for breach in
        breaches.filter_map(|breach| serde_json::from_value::<LimitBreach>(breach.clone()).ok())
    {
        messages::warning(&breach.to_string());
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
    for said in texts(&policy["said"]) {
        messages::note(&format!("the policy was changed: {said}"));
    }
    let is_pending = |change: &Value| !change["pending"].is_null();
    if policy["changes"].as_array().into_iter().flatten().any(is_pending) {
        let session = answer["session"].as_str().map(output::printable).unwrap_or_default();
        messages::line(&format!(
            "hint: `ringfence session stop {session}`, then `ringfence session start`"
        ));
    }
    for problem in policy["problems"].as_array().into_iter().flatten() {
        let text = |key: &str| problem[key].as_str().map(output::printable);
        messages::warning(&format!(
            "the policy stays as it was: {}",
            text("message").unwrap_or_default()
        ));
        if let Some(hint) = text("hint") {
            messages::line(&format!("hint: {hint}"));
        }
    }
    for warning in answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        messages::warning(&format!(
            "not recorded in the audit log: {}",
            output::printable(warning)
        ));
    }
}

pub(super) fn list(arguments: &SessionListArgs) -> Result<ExitCode, CliError> {
    let sessions: Vec<Value> = all()?.into_iter().map(|(_, about)| about).collect();
    if arguments.json {
        output::json(&Value::Array(sessions))?;
        return Ok(ExitCode::SUCCESS);
    }
    for about in sessions {
        let text = |key: &str| about[key].as_str().map(output::printable).unwrap_or_default();
        let busy = if about["busy"] == true { ", busy" } else { "" };
        let commands = format!("{} commands{busy}", about["commands"]);
        output::text(&format!(
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
    output::json(&about)?;
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
        // Names that the command chose.
        messages::warning(&output::printable(&format!(
            "{} was moved to {}: {}",
            text("path"),
            text("movedTo"),
            text("reason")
        )));
    }
    match answer.get("error") {
        Some(error) => {
            complain(error);
            Ok(ExitCode::from(125))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

pub(super) fn questions(arguments: &SessionListArgs) -> Result<ExitCode, CliError> {
    let mut all = Vec::new();
    for (mut session, about) in self::all()? {
        let Value::Array(asked) = session.ask(&json!({ "ask": "questions" }))? else { continue };
        all.extend(asked.into_iter().map(|mut asked| {
            asked["session"] = about["session"].clone();
            asked
        }));
    }
    if arguments.json {
        output::json(&Value::Array(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    for asked in all {
        let text = |key: &str| asked[key].as_str().map(output::printable).unwrap_or_default();
        // Names that the command chose.
        let reason =
            asked["permission"]["reason"].as_str().map(output::printable).unwrap_or_default();
        let offered = asked["permission"]["options"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        // In the words that `ringfence ask answer` takes.
        let offered: Vec<String> =
            offered.map(|answer| output::printable(answer).replace('_', "-")).collect();
        output::text(&format!(
            "{} {}  {} {}  by {}\n    {reason}\n    answers: {}\n",
            text("session"),
            asked["question"],
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
            complain(error);
            ExitCode::from(125)
        }
        None => ExitCode::SUCCESS,
    })
}

/// A session that answers.
pub(super) struct SessionClient {
    id: String,
    pub(super) stream: UnixStream,
    /// Held while something is said: what two say at once would be one muddle.
    speaks: Arc<Mutex<()>>,
}

impl SessionClient {
    /// `None` if nobody keeps it any more; what is left of it is removed.
    pub(super) fn reach(id: &str, socket: &Path) -> Option<Self> {
        match socket_dir::reach(socket) {
            Ok(stream) => Some(Self { id: id.to_owned(), stream, speaks: Arc::default() }),
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

    pub(super) fn say(&mut self, kind: FrameKind, bytes: &[u8]) -> Result<(), CliError> {
        let _whole = self.speaks.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut &self.stream, kind, bytes).map_err(|error| self.fail("speak with", error))
    }

    /// Passes on what stands on standard input, as it comes, to its end.
    pub(super) fn pass_input(&self) -> Result<(), CliError> {
        const PIECE: usize = 64 * 1024;
        let mut stream = self.stream.try_clone().map_err(|error| self.fail("speak with", error))?;
        let speaks = self.speaks.clone();
        let pass = move || {
            let mut piece = vec![0; PIECE];
            loop {
                // What cannot be read has ended.
                let length = io::stdin().lock().read(&mut piece).unwrap_or(0);
                let _whole = speaks.lock().unwrap_or_else(PoisonError::into_inner);
                if send(&mut stream, FrameKind::Input, &piece[..length]).is_err() || length == 0 {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("input".into())
            .spawn(pass)
            .map(drop)
            .map_err(|error| self.fail("speak with", error))
    }

    /// Asks, and passes on what a command writes until the answer comes.
    pub(super) fn ask(&mut self, question: &Value) -> Result<Value, CliError> {
        self.say(FrameKind::Question, question.to_string().as_bytes())?;
        self.answer()
    }

    /// Passes on what a command writes until the answer comes.
    pub(super) fn answer(&mut self) -> Result<Value, CliError> {
        loop {
            let heard = receive(&mut self.stream).map_err(|error| self.fail("hear from", error))?;
            let written = match heard {
                Some((FrameKind::Out, bytes)) => written(&mut io::stdout().lock(), &bytes),
                Some((FrameKind::Err, bytes)) => written(&mut io::stderr().lock(), &bytes),
                Some((FrameKind::Answer, text)) => {
                    return serde_json::from_slice(&text)
                        .map_err(|error| self.fail("understand", error.into()));
                }
                Some(_) => return Err(self.fail("understand", io::ErrorKind::InvalidData.into())),
                None => return Err(self.fail("hear from", io::ErrorKind::UnexpectedEof.into())),
            };
            if written.is_err() {
                // Whoever reads it has seen enough: the command need not go on.
                self.say(FrameKind::Interrupt, b"")?;
            }
        }
    }
}

fn written(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// All that answer, and what they say of themselves.
fn all() -> Result<Vec<(SessionClient, Value)>, CliError> {
    let reached = socket_dir::sockets()?
        .into_iter()
        .filter_map(|(id, socket)| SessionClient::reach(&id, &socket));
    Ok(reached
        .filter_map(|mut session| {
            session.ask(&json!({ "ask": "inspect" })).ok().map(|about| (session, about))
        })
        .collect())
}

/// The one that is meant: by its id, the beginning of it, or its name.
pub(super) fn find(word: &str) -> Result<SessionClient, CliError> {
    if let Some((id, socket)) = socket_dir::sockets()?.into_iter().find(|(id, _)| id == word)
        && let Some(session) = SessionClient::reach(&id, &socket)
    {
        return Ok(session);
    }
    let is_meant = |id: &str, about: &Value| {
        about["name"] == word || (word.len() >= 4 && id.starts_with(word))
    };
    let mut meant: Vec<SessionClient> = all()?
        .into_iter()
        .filter(|(session, about)| is_meant(&session.id, about))
        .map(|(session, _)| session)
        .collect();
    let what = match meant.len() {
        1 => return Ok(meant.remove(0)),
        0 => format!("there is no session `{word}`"),
        several => format!("`{word}` may be any of {several} sessions"),
    };
    Err(CliError::Words {
        what,
        hint: "`ringfence session list` shows those that there are".into(),
    })
}
