//! Calls of a conversation: in the shell of its session, or beside it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{Errors, ShellCommand};
use ringfence_engine::session::{Call, StartDecision};
use ringfence_policy::AbsPath;
use ringfence_provider::ProcessStdio;
use serde_json::{Value, json};

use super::{ClientRequest, SessionServer};
use crate::commands::hook::link;
use crate::commands::run::cwd_link;
use crate::commands::session::conversation::directory_of;

/// How long a call waits for one that is being interrupted: as long as the firmest signal takes.
const PATIENCE: Duration = Duration::from_secs(8);

impl SessionServer {
    /// Says whether a call may run here: one that asks for other rules may not.
    pub(super) fn begin_call(&self, question: &Value) -> Value {
        if self.lifetime.serves(question["signature"].as_str()) {
            return json!({ "begun": true });
        }
        json!({ "error": { "code": "signature", "message": "this session has other rules than the call" } })
    }

    /// Runs the line of a call in the shell if that is free, else beside it.
    pub(super) fn exec_call(&self, client: &UnixStream, asked: ClientRequest) -> Value {
        let restarted = self.opened.restart_if_narrowed();
        let question = &asked.question;
        let call = Call {
            name: question["call"].as_str().map(str::to_owned),
            cwd: directory_of(question),
        };
        let workspace = self.opened.policy().grants.workspace.clone();
        if let Some(cwd) = call.cwd.as_ref().filter(|cwd| !cwd.is_within(&workspace)) {
            let message = format!("{cwd} is not in the project {workspace}");
            return json!({ "error": { "code": "usage", "message": message, "hint": format!("go there first: `cd {workspace}`"), "status": 125 } });
        }
        let kept_directory = match self.begin_directory(question, &call) {
            Ok(link) => link,
            Err(error) => {
                return json!({ "error": { "code": "io", "message": error, "status": 125 } });
            }
        };
        let turn = if question["place"] == "beside" { None } else { self.take_shell() };
        let mut answer = match turn {
            Some(turn) => {
                self.set_shell_client(client.try_clone().ok());
                let answer = self.exec_in_shell(client, asked, &call);
                self.set_shell_client(None);
                drop(turn);
                answer
            }
            None => {
                let answer = self.exec_beside(client, asked, &call);
                self.opened.suspend_if_idle();
                answer
            }
        };
        if let (Some(link), Some(cwd)) =
            (kept_directory, answer["cwd"].as_str().and_then(AbsPath::new))
        {
            // Without it, the agent's shell stays where it was.
            let _ = cwd_link::end_at(&link, &cwd, &self.opened.policy().grants);
        }
        if restarted {
            answer["restarted"] = true.into();
        }
        answer
    }

    /// Makes the link that the agent's shell follows afterwards, where it is to.
    fn begin_directory(&self, question: &Value, call: &Call) -> Result<Option<PathBuf>, String> {
        let (true, Some(name), Some(cwd)) =
            (question["keepDirectory"] == true, &call.name, &call.cwd)
        else {
            return Ok(None);
        };
        let link = link(&self.opened.policy().surroundings.facts.state, name);
        cwd_link::begin_at(&link, cwd)
            .map_err(|error| format!("cannot make {}: {error}", link.display()))?;
        Ok(Some(link))
    }

    /// The shell, if no other call has it. One that is being interrupted is waited for.
    fn take_shell(&self) -> Option<MutexGuard<'_, ()>> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.shell_turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_shell_left() && Instant::now() < end => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    fn set_shell_client(&self, client: Option<UnixStream>) {
        *self.shell_client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Answers whether the client of the call in the shell is gone: its command is being
    /// interrupted.
    fn is_shell_left(&self) -> bool {
        // Between two calls there is none for a moment.
        self.shell_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_none_or(super::is_gone)
    }

    fn exec_in_shell(&self, client: &UnixStream, asked: ClientRequest, call: &Call) -> Value {
        let (deadline, input) = (self.deadline(&asked), asked.input());
        let errors =
            if asked.question["merged"] == true { Errors::WithOutput } else { Errors::Apart };
        let line = ShellCommand { text: asked.line, input, deadline, limit: 0, errors };
        self.watched(client, true, |begun, sink, tell| {
            self.opened.execute_as(&line, call, begun, sink, tell)
        })
    }

    fn exec_beside(&self, client: &UnixStream, asked: ClientRequest, call: &Call) -> Value {
        let (deadline, input) = (self.deadline(&asked), asked.input());
        let streams = match asked.question["merged"] == true {
            true => ProcessStdio::Merged { input, limit: 0 },
            false => ProcessStdio::Pipes { input, limit: 0 },
        };
        let command = vec![self.shell.clone(), "-c".into(), OsString::from_vec(asked.line)];
        match self.opened.start_as(call, command, streams, deadline, &mut |_| {}) {
            Ok(beside) => self.watched(client, true, |begun, sink, tell| {
                if begun(beside.reach()) == StartDecision::Left {
                    beside.reach().interrupter.interrupt();
                }
                beside.wait(sink, tell)
            }),
            Err(error) => super::failed(error),
        }
    }
}
