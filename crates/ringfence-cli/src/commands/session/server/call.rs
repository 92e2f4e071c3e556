//! Calls of a conversation: in the shell of its session, or in a separate shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{Errors, ShellCommand};
use ringfence_engine::session::{SessionCall, StartDecision};
use ringfence_policy::AbsPath;
use ringfence_provider::ProcessStdio;
use serde_json::{Value, json};

use super::{ClientRequest, SessionServer};
use crate::commands::hook::cwd_link_path;
use crate::commands::run::cwd_link;
use crate::commands::session::conversation::call_directory;

/// The time a call waits for one that is being interrupted: as long as the signals up to SIGKILL
/// take.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(8);

impl SessionServer {
    /// Checks that a call may run here: it must have the same settings.
    pub(super) fn begin_call(&self, question: &Value) -> Value {
        if self.lifetime.accepts_signature(question["signature"].as_str()) {
            return json!({ "begun": true });
        }
        json!({ "error": { "code": "signature", "message": "the session and the call have different settings" } })
    }

    /// Runs the line of a call in the shell if that is free, else in a separate shell.
    pub(super) fn exec_call(&self, client: &UnixStream, request: ClientRequest) -> Value {
        let restarted = self.session.restart_if_narrowed();
        let question = &request.question;
        let call = SessionCall {
            name: question["call"].as_str().map(str::to_owned),
            cwd: call_directory(question),
        };
        let workspace = self.session.policy().grants.workspace.clone();
        if let Some(cwd) = call.cwd.as_ref().filter(|cwd| !cwd.is_within(&workspace)) {
            let message = format!("{cwd} is not in the project {workspace}");
            return json!({ "error": { "code": "usage", "message": message, "hint": format!("run `cd {workspace}` first"), "status": 125 } });
        }
        let cwd_link = match self.begin_directory(question, &call) {
            Ok(link) => link,
            Err(error) => {
                return json!({ "error": { "code": "io", "message": error, "status": 125 } });
            }
        };
        let turn = if question["place"] == "beside" { None } else { self.take_shell() };
        let mut answer = match turn {
            Some(turn) => {
                self.set_shell_client(client.try_clone().ok());
                let answer = self.exec_in_shell(client, request, &call);
                self.set_shell_client(None);
                drop(turn);
                answer
            }
            None => {
                let answer = self.exec_separately(client, request, &call);
                self.session.suspend_if_idle();
                answer
            }
        };
        if let (Some(link), Some(cwd)) = (cwd_link, answer["cwd"].as_str().and_then(AbsPath::new)) {
            // On failure, the agent's shell stays in its directory.
            let _ = cwd_link::update_link(&link, &cwd, &self.session.policy().grants);
        }
        if restarted {
            answer["restarted"] = true.into();
        }
        answer
    }

    /// Creates the link that the agent's shell follows afterwards, if requested.
    fn begin_directory(
        &self,
        question: &Value,
        call: &SessionCall,
    ) -> Result<Option<PathBuf>, String> {
        let (true, Some(name), Some(cwd)) =
            (question["keepDirectory"] == true, &call.name, &call.cwd)
        else {
            return Ok(None);
        };
        let link = cwd_link_path(&self.session.policy().surroundings.facts.state, name);
        cwd_link::create_link(&link, cwd)
            .map_err(|error| format!("cannot create {}: {error}", link.display()))?;
        Ok(Some(link))
    }

    /// Locks the shell, if no other call uses it. Waits for a call that is being interrupted.
    fn take_shell(&self) -> Option<MutexGuard<'_, ()>> {
        let end = Instant::now() + INTERRUPT_TIMEOUT;
        loop {
            match self.shell_turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock)
                    if self.is_shell_client_gone() && Instant::now() < end =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    fn set_shell_client(&self, client: Option<UnixStream>) {
        *self.shell_client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// True if the client of the call in the shell has left: its command is being interrupted.
    fn is_shell_client_gone(&self) -> bool {
        // Between two calls there is no client for a moment.
        self.shell_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_none_or(super::is_gone)
    }

    fn exec_in_shell(
        &self,
        client: &UnixStream,
        request: ClientRequest,
        call: &SessionCall,
    ) -> Value {
        let (deadline, input) = (self.deadline(&request), request.input());
        let errors =
            if request.question["merged"] == true { Errors::WithOutput } else { Errors::Separate };
        let line = ShellCommand { text: request.line, input, deadline, limit: 0, errors };
        self.run_watched(client, true, |on_start, sink, warn| {
            self.session.execute_as(&line, call, on_start, sink, warn)
        })
    }

    fn exec_separately(
        &self,
        client: &UnixStream,
        request: ClientRequest,
        call: &SessionCall,
    ) -> Value {
        let (deadline, input) = (self.deadline(&request), request.input());
        let streams = match request.question["merged"] == true {
            true => ProcessStdio::Merged { input, limit: 0 },
            false => ProcessStdio::Pipes { input, limit: 0 },
        };
        let command = vec![self.shell.clone(), "-c".into(), OsString::from_vec(request.line)];
        match self.session.start_as(call, command, streams, deadline, &mut |_| {}) {
            Ok(process) => self.run_watched(client, true, |on_start, sink, warn| {
                if on_start(process.control()) == StartDecision::Left {
                    process.control().interrupter.interrupt();
                }
                process.wait(sink, warn)
            }),
            Err(error) => super::failed(error),
        }
    }
}
